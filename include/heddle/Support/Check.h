//===- Check.h - Checks of our own mistakes, always on ----------*- C++ -*-===//

#ifndef HEDDLE_SUPPORT_CHECK_H
#define HEDDLE_SUPPORT_CHECK_H

#include <fmt/format.h>

#include <string>

namespace heddle::detail {
/// Prints "internal error: FILE:LINE: CONDITION does not hold: MESSAGE" to
/// stderr and ends the process with exit code 3.
[[noreturn]] void checkFailed(const char *file, int line, const char *condition,
                              const std::string &message);
} // namespace heddle::detail

/// HEDDLE_CHECK(condition, format, arguments...): what must hold unless heddle
/// itself is wrong. Never for input: that is a Result. Stays on in all builds.
#define HEDDLE_CHECK(condition, ...)                                           \
  do {                                                                         \
    if (!(condition)) [[unlikely]]                                             \
      ::heddle::detail::checkFailed(__FILE__, __LINE__, #condition,            \
                                    ::fmt::format(__VA_ARGS__));               \
  } while (false)

#endif
