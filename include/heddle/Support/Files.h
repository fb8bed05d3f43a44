//===- Files.h - Whole files in, whole files out ----------------*- C++ -*-===//
//
// Standard library and POSIX only. Messages name the path and what the system
// said.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_SUPPORT_FILES_H
#define HEDDLE_SUPPORT_FILES_H

#include "heddle/Support/Result.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace heddle {

/// The bytes of a regular file of at most `maxBytes`. A missing file, a
/// directory, a larger file are errors.
Result<std::string> readFile(const std::filesystem::path &path,
                             std::uint64_t maxBytes = std::uint64_t{1} << 32);

/// A file that appears under its name only when it is complete: written beside
/// its place, renamed by commit(). Without commit() nothing stays.
class AtomicFile {
public:
  static Result<AtomicFile> create(const std::filesystem::path &path);
  AtomicFile(AtomicFile &&other) noexcept;
  AtomicFile &operator=(AtomicFile &&other) noexcept;
  ~AtomicFile();

  /// Writes at the end of what append() wrote.
  Result<void> append(std::string_view bytes);
  /// Writes at a place; the file grows as needed (holes are zero).
  Result<void> writeAt(std::uint64_t offset, std::string_view bytes);
  /// Flushes to the disk and renames.
  Result<void> commit();

private:
  AtomicFile() = default;
  void discard();

  std::filesystem::path target, temporary;
  int descriptor = -1;
  std::uint64_t end = 0;
};

/// create(), append(), commit().
Result<void> writeFile(const std::filesystem::path &path,
                       std::string_view bytes);

/// A file's bytes, mapped read-only for the life of the object.
class MappedFile {
public:
  static Result<MappedFile> open(const std::filesystem::path &path);
  MappedFile() = default; ///< maps nothing
  MappedFile(MappedFile &&other) noexcept;
  MappedFile &operator=(MappedFile &&other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data, size}; }

private:
  const std::byte *data = nullptr;
  std::size_t size = 0;
};

} // namespace heddle

#endif
