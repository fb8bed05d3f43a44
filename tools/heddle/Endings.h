//===- Endings.h - How the ranks of a program ended -------------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_ENDINGS_H
#define HEDDLE_TOOLS_ENDINGS_H

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace heddle::tool {

/// How a run ended by the ranks' own word (heddle/Runtime/Endings.h).
struct Ending {
  int code = 0;
  std::string untold; ///< why, where the ranks' stderr does not say it
};

/// What one rank's file says; nothing where there is none.
std::optional<Ending> readEnding(const std::filesystem::path &path);

/// What the files in `folder` say together. Nothing where no rank tells of a
/// failure and one of them has left no file.
std::optional<Ending> readEndings(const std::filesystem::path &folder,
                                  int64_t ranks);

} // namespace heddle::tool

#endif
