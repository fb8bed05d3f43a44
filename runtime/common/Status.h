//===- Status.h - Statuses with a sentence --------------------------------===//

#ifndef RUNTIME_COMMON_STATUS_H
#define RUNTIME_COMMON_STATUS_H

#include "heddle/Runtime/heddle_rt.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace heddle::runtime {

/// Makes `message` this thread's heddle_rt_last_error and returns `status`.
heddle_rt_status failWith(heddle_rt_status status, std::string message);

template <class... Args>
heddle_rt_status fail(heddle_rt_status status,
                      fmt::format_string<Args...> format, Args &&...args) {
  return failWith(status, fmt::format(format, std::forward<Args>(args)...));
}

/// `fail` for the caller's mistakes.
template <class... Args>
heddle_rt_status invalid(fmt::format_string<Args...> format, Args &&...args) {
  return failWith(HEDDLE_RT_INVALID_ARGUMENT,
                  fmt::format(format, std::forward<Args>(args)...));
}

/// The thread's latest sentence. Never NULL.
const std::string &lastError();

/// A name that may be NULL, for messages.
inline const char *orUnnamed(const char *name, const char *otherwise) {
  return name && *name ? name : otherwise;
}

} // namespace heddle::runtime

#define HEDDLE_RT_TRY(...)                                                     \
  do {                                                                         \
    if (heddle_rt_status tried = (__VA_ARGS__); tried != HEDDLE_RT_OK)         \
      return tried;                                                            \
  } while (false)

#endif
