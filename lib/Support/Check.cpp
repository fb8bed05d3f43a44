#include "heddle/Support/Check.h"

#include <cstdio>
#include <cstdlib>

void heddle::detail::checkFailed(const char *file, int line,
                                 const char *condition,
                                 const std::string &message) {
  std::fflush(stdout);
  fmt::print(stderr, "internal error: {}:{}: {} does not hold: {}\n", file,
             line, condition, message);
  std::fflush(stderr);
  // Not exit(): other ranks' threads may hold what destructors would need.
  std::_Exit(3);
}
