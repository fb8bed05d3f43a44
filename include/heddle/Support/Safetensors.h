//===- Safetensors.h - Named tensors in a file ------------------*- C++ -*-===//
//
// The format: 8 bytes little-endian header size, a JSON header
// {name: {dtype, shape, data_offsets: [begin, end]}, "__metadata__": {..}}, the
// bytes. Standard library and fmt only; the runtime uses it too.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_SUPPORT_SAFETENSORS_H
#define HEDDLE_SUPPORT_SAFETENSORS_H

#include "heddle/Support/Files.h"
#include "heddle/Support/Result.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace heddle {

enum class TensorType {
  Bool,
  U8,
  I8,
  F8E4M3,
  F8E5M2,
  U16,
  I16,
  F16,
  BF16,
  U32,
  I32,
  F32,
  U64,
  I64,
  F64
};

/// "F32", as in the header.
std::string_view tensorTypeName(TensorType type);
std::int64_t tensorTypeBytes(TensorType type);
/// None for a name that the format does not have.
std::optional<TensorType> tensorTypeByName(std::string_view name);

/// A tensor of a file. Row-major, little-endian; a scalar has an empty shape.
struct TensorEntry {
  std::string name;
  TensorType type = TensorType::F32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0; ///< bytes after the header; readers only

  std::int64_t elements() const;
};

/// What stands before the data.
struct SafetensorsHeader {
  std::uint64_t bytes = 0;          ///< of all of it, its size field included
  std::vector<TensorEntry> tensors; ///< in the order of their bytes
  std::map<std::string, std::string> metadata;
};
/// Size of the header of a file that begins so. `name` is for messages.
Result<std::uint64_t> safetensorsHeaderBytes(std::span<const std::byte> begin,
                                             std::uint64_t fileBytes,
                                             const std::string &name);
/// Reads and checks it: sizes in range, each name once, each tensor's bytes
/// equal to its shape times its type, all bytes of the file in one tensor.
Result<SafetensorsHeader> readSafetensorsHeader(std::string_view header,
                                                std::uint64_t fileBytes,
                                                const std::string &name);
/// The header of a file of these tensors in this order; sets their places.
std::string
safetensorsHeader(std::vector<TensorEntry> &tensors,
                  const std::map<std::string, std::string> &metadata);

/// A file whose header was checked. Bytes are mapped, so that opening costs
/// nothing.
class SafetensorsFile {
public:
  static Result<SafetensorsFile> open(const std::filesystem::path &path);

  const std::string &path() const { return name; }
  /// In the order of their bytes.
  const std::vector<TensorEntry> &tensors() const { return list; }
  const std::map<std::string, std::string> &metadata() const { return meta; }
  /// Null if the file has no tensor of this name.
  const TensorEntry *find(std::string_view tensor) const;
  /// All bytes of a tensor of this file.
  std::span<const std::byte> bytes(const TensorEntry &tensor) const;

private:
  Result<void> readHeader();

  std::string name;
  MappedFile file;
  std::uint64_t dataStart = 0;
  std::vector<TensorEntry> list;
  std::unordered_map<std::string, std::size_t> index;
  std::map<std::string, std::string> meta;
};

/// Writes a file tensor by tensor, in any order and in pieces; nothing stands
/// under `path` before commit().
class SafetensorsWriter {
public:
  /// The tensors' begin and end are ignored: bytes lie in the given order.
  static Result<SafetensorsWriter>
  create(const std::filesystem::path &path, std::vector<TensorEntry> tensors,
         const std::map<std::string, std::string> &metadata = {});

  /// Writes bytes of a tensor, from `offset` bytes into it.
  Result<void> write(std::string_view tensor, std::span<const std::byte> bytes,
                     std::uint64_t offset = 0);
  /// An error where not every byte of every tensor was written.
  Result<void> commit();

private:
  SafetensorsWriter(AtomicFile file) : file(std::move(file)) {}

  AtomicFile file;
  std::string name;
  std::uint64_t dataStart = 0;
  std::vector<TensorEntry> list;
  std::vector<std::uint64_t> written; ///< bytes per tensor
  std::unordered_map<std::string, std::size_t> index;
};

} // namespace heddle

#endif
