#include "tools/heddle/Folder.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace fs = std::filesystem;
using namespace heddle;
using namespace heddle::tool;

Result<NewFolder> NewFolder::create(const fs::path &target) {
  std::error_code error;
  NewFolder folder;
  folder.target = fs::absolute(target, error).lexically_normal();
  if (!folder.target.has_filename()) // "DIR/"
    folder.target = folder.target.parent_path();
  if (fs::exists(folder.target, error)) {
    if (!fs::is_directory(folder.target, error))
      return Error{fmt::format("{}: found a file, expected a folder or nothing",
                               target.string())};
    if (!fs::is_empty(folder.target, error) &&
        !fs::exists(folder.target / "plan.json", error))
      return Error{fmt::format("{}: found a folder that heddle did not write "
                               "(it has no plan.json); name another or empty "
                               "it",
                               target.string())};
  }
  fs::create_directories(folder.target.parent_path(), error);
  folder.temporary = folder.target;
  folder.temporary += fmt::format(".part-{}", getpid());
  if (!error)
    fs::create_directory(folder.temporary, error);
  if (error)
    return Error{fmt::format("{}: cannot make the folder: {}", target.string(),
                             error.message())};
  return folder;
}

NewFolder::NewFolder(NewFolder &&other) noexcept
    : target(std::move(other.target)),
      temporary(std::exchange(other.temporary, {})) {}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!temporary.empty())
    fs::remove_all(temporary, ignored);
}

Result<void> NewFolder::commit() {
  std::error_code error;
  fs::remove_all(target, error);
  if (!error)
    fs::rename(temporary, target, error);
  if (error)
    return Error{fmt::format("{}: cannot replace the folder: {}",
                             target.string(), error.message())};
  temporary.clear();
  return {};
}

Result<ScratchFolder> ScratchFolder::create() {
  std::error_code error;
  fs::path root = fs::temp_directory_path(error);
  if (error)
    return Error{fmt::format("no folder for temporary files: {}; set TMPDIR",
                             error.message())};
  std::string name = (root / "heddle-XXXXXX").string();
  if (!mkdtemp(name.data()))
    return Error{fmt::format("{}: cannot make the folder: {}; set TMPDIR", name,
                             strerror(errno))};
  ScratchFolder scratch;
  scratch.folder = name;
  return scratch;
}

ScratchFolder::ScratchFolder(ScratchFolder &&other) noexcept
    : folder(std::exchange(other.folder, {})) {}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!folder.empty())
    fs::remove_all(folder, ignored);
}
