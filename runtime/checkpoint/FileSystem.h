//===- FileSystem.h - All that checkpoints ask of a disk ------------------===//
//
// Every read and write of this room goes through here, so that tests can
// record, refuse, tear and forget. Paths are text with `/`; errors name the
// path and what the system said.
//
//===----------------------------------------------------------------------===//

#ifndef RUNTIME_CHECKPOINT_FILESYSTEM_H
#define RUNTIME_CHECKPOINT_FILESYSTEM_H

#include "heddle/Support/Result.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::checkpoint {

/// A new file. What was written is on the disk only after sync().
class OutputFile {
public:
  virtual ~OutputFile() = default;
  /// Behind what was written so far.
  virtual Result<void> write(std::span<const std::byte> bytes) = 0;
  virtual Result<void> sync() = 0;
  virtual Result<void> close() = 0;
};

/// A regular file, read by place. Never mapped: a file that is cut off while
/// it is read gives an error, no signal.
class InputFile {
public:
  virtual ~InputFile() = default;
  virtual uint64_t size() const = 0;
  /// Fills `to`; an error where the file ends before.
  virtual Result<void> read(uint64_t offset, std::span<std::byte> to) const = 0;
};

/// Held as long as the object lives, and by no process that has ended.
class Lock {
public:
  virtual ~Lock() = default;
};

struct Entry {
  std::string name;
  bool isFolder = false;
};

/// May be used by several threads at once.
class FileSystem {
public:
  virtual ~FileSystem() = default;

  /// An error where something has the name. For the owner alone.
  virtual Result<void> makeFolder(const std::string &path) = 0;
  virtual Result<std::unique_ptr<OutputFile>>
  create(const std::string &path) = 0;
  /// An error where something has the new name.
  virtual Result<void> rename(const std::string &from,
                              const std::string &to) = 0;
  /// Takes the place of what has the new name.
  virtual Result<void> replace(const std::string &from,
                               const std::string &to) = 0;
  virtual Result<void> removeFile(const std::string &path) = 0;
  virtual Result<void> removeFolder(const std::string &path) = 0;
  /// Names made, changed and removed in a folder last only after this.
  virtual Result<void> syncFolder(const std::string &path) = 0;

  virtual Result<std::unique_ptr<InputFile>>
  open(const std::string &path) const = 0;
  /// By name. A folder that is not there has no entries.
  virtual Result<std::vector<Entry>> list(const std::string &path) const = 0;
  /// For whoever writes below the folder.
  virtual Result<uint64_t> freeBytes(const std::string &path) const = 0;
  /// An error where another one holds it.
  virtual Result<std::unique_ptr<Lock>> lock(const std::string &path) = 0;
};

/// The operating system's. Lives as long as the process.
FileSystem &realFileSystem();

/// A whole file of at most `most` bytes.
Result<std::string> readText(const FileSystem &files, const std::string &path,
                             uint64_t most = uint64_t(1) << 31);
/// A new file with these bytes, on the disk once its folder is synced.
Result<void> writeText(FileSystem &files, const std::string &path,
                       std::string_view text);
/// A folder with all that is in it.
Result<void> removeTree(FileSystem &files, const std::string &path);

inline std::span<const std::byte> bytesOf(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

} // namespace heddle::checkpoint

#endif
