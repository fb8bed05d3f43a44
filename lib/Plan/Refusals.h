// How checks say no.

#ifndef HEDDLE_LIB_PLAN_REFUSALS_H
#define HEDDLE_LIB_PLAN_REFUSALS_H

#include "heddle/Support/Printable.h"
#include "heddle/Support/Result.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace heddle::detail {

template <typename... Arguments>
Error refuse(fmt::format_string<Arguments...> text, Arguments &&...arguments) {
  return Error{"plan: " + printable(fmt::format(
                              text, std::forward<Arguments>(arguments)...))};
}

inline Error notSupported(const std::string &what, const std::string &instead) {
  return refuse("{} is not supported yet; {}", what, instead);
}

} // namespace heddle::detail

#endif // HEDDLE_LIB_PLAN_REFUSALS_H
