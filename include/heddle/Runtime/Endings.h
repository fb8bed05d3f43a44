//===- Endings.h - How ranks tell how they ended ----------------*- C++ -*-===//
//
// Who starts ranks through a launcher makes a folder and names it in an
// environment variable. Each rank leaves a file there when it ends: its exit
// code, and on the lines after it a message that it has not told yet. A
// launcher may fail while it shuts itself down, or add up exit codes in its own
// way; the files say what happened nevertheless.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_RUNTIME_ENDINGS_H
#define HEDDLE_RUNTIME_ENDINGS_H

#include <cstdint>
#include <string>

namespace heddle::runtime {

inline constexpr const char *kEndingsVariable = "HEDDLE_ENDINGS";

/// The name of a rank's file in the folder.
inline std::string endingName(int64_t rank) {
  return "rank-" + std::to_string(rank);
}

} // namespace heddle::runtime

#endif
