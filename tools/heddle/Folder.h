//===- Folder.h - Folders that appear when they are complete ----*- C++ -*-===//

#ifndef HEDDLE_TOOLS_FOLDER_H
#define HEDDLE_TOOLS_FOLDER_H

#include "heddle/Support/Result.h"

#include <filesystem>
#include <string>

namespace heddle::tool {

/// A folder beside `target` that takes its place with commit(), and is gone
/// without it.
class NewFolder {
public:
  /// Refuses a target that is there and was not written by heddle: a file, or a
  /// folder with anything in it but no plan.json.
  static Result<NewFolder> create(const std::filesystem::path &target);
  NewFolder(NewFolder &&other) noexcept;
  NewFolder &operator=(NewFolder &&) = delete;
  ~NewFolder();

  const std::filesystem::path &path() const { return temporary; }
  /// Replaces what stood under the name.
  Result<void> commit();

private:
  NewFolder() = default;

  std::filesystem::path target, temporary;
};

/// A folder of its own below TMPDIR, removed at the end.
class ScratchFolder {
public:
  static Result<ScratchFolder> create();
  ScratchFolder(ScratchFolder &&other) noexcept;
  ScratchFolder &operator=(ScratchFolder &&) = delete;
  ~ScratchFolder();

  const std::filesystem::path &path() const { return folder; }

private:
  ScratchFolder() = default;

  std::filesystem::path folder;
};

} // namespace heddle::tool

#endif
