#include "heddle/Support/Safetensors.h"

#include "heddle/Support/Check.h"
#include "heddle/Support/Document.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>

using namespace heddle;

namespace {
struct TypeFacts {
  std::string_view name;
  std::int64_t bytes;
};
} // namespace

// In the order of TensorType.
static constexpr std::array<TypeFacts, 15> typeFacts = {{{"BOOL", 1},
                                                         {"U8", 1},
                                                         {"I8", 1},
                                                         {"F8_E4M3", 1},
                                                         {"F8_E5M2", 1},
                                                         {"U16", 2},
                                                         {"I16", 2},
                                                         {"F16", 2},
                                                         {"BF16", 2},
                                                         {"U32", 4},
                                                         {"I32", 4},
                                                         {"F32", 4},
                                                         {"U64", 8},
                                                         {"I64", 8},
                                                         {"F64", 8}}};

// No model has longer names or more dimensions.
static constexpr std::size_t maxNameBytes = 4096, maxDimensions = 32;
// What the format's own implementation accepts.
static constexpr std::uint64_t maxHeaderBytes = 100'000'000;

std::string_view heddle::tensorTypeName(TensorType type) {
  return typeFacts[static_cast<std::size_t>(type)].name;
}

std::int64_t heddle::tensorTypeBytes(TensorType type) {
  return typeFacts[static_cast<std::size_t>(type)].bytes;
}

std::optional<TensorType> heddle::tensorTypeByName(std::string_view name) {
  for (std::size_t i = 0; i < typeFacts.size(); ++i)
    if (typeFacts[i].name == name)
      return static_cast<TensorType>(i);
  return std::nullopt;
}

std::int64_t TensorEntry::elements() const {
  // Zero times what does not fit into 64 bits is zero.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end())
    return 0;
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1},
                         std::multiplies<>());
}

/// Bytes of a tensor; none where they do not fit into 63 bits.
static std::optional<std::uint64_t> checkedBytes(const TensorEntry &tensor) {
  std::int64_t bytes = tensorTypeBytes(tensor.type);
  // A zero anywhere makes the whole zero, so it must not hide behind overflow.
  for (std::int64_t size : tensor.shape)
    if (size == 0)
      return 0;
  for (std::int64_t size : tensor.shape)
    if (__builtin_mul_overflow(bytes, size, &bytes))
      return std::nullopt;
  return static_cast<std::uint64_t>(bytes);
}

/// One entry of the header; `where` is the file's name.
static Result<TensorEntry> readEntry(const DocumentValue::Entry &entry,
                                     const std::string &where,
                                     std::uint64_t dataBytes) {
  auto bad = [&](const std::string &message) {
    return Error{fmt::format("{}: tensor '{}': {}", where, entry.key, message)};
  };
  if (entry.key.size() > maxNameBytes)
    return Error{fmt::format("{}: found a tensor's name of {} bytes, expected "
                             "at most {}",
                             where, entry.key.size(), maxNameBytes)};
  MapReader reader(where, entry.value, entry.key);
  std::string type = reader.string("dtype");
  std::vector<std::int64_t> shape =
      reader.integers("shape", IntegerRange::nonNegative());
  std::vector<std::int64_t> place =
      reader.integers("data_offsets", {0, INT64_MAX}, std::nullopt, 2);
  if (auto done = reader.finish(); !done)
    return done.error();
  TensorEntry tensor;
  tensor.name = entry.key;
  std::optional<TensorType> known = tensorTypeByName(type);
  if (!known)
    return bad(fmt::format("found dtype {}, expected one like \"F32\"",
                           jsonString(type)));
  tensor.type = *known;
  if (shape.size() > maxDimensions)
    return bad(fmt::format("found {} dimensions, expected at most {}",
                           shape.size(), maxDimensions));
  tensor.shape = std::move(shape);
  tensor.begin = static_cast<std::uint64_t>(place[0]);
  tensor.end = static_cast<std::uint64_t>(place[1]);
  if (tensor.begin > tensor.end || tensor.end > dataBytes)
    return bad(fmt::format("found bytes {} to {}, expected a range inside the "
                           "file's {} bytes of data; the file may be cut off",
                           tensor.begin, tensor.end, dataBytes));
  std::optional<std::uint64_t> bytes = checkedBytes(tensor);
  if (bytes != tensor.end - tensor.begin)
    return bad(fmt::format("found {} bytes, expected {} for shape [{}] of {}",
                           tensor.end - tensor.begin,
                           bytes ? fmt::format("{}", *bytes) : "more than 2^63",
                           fmt::join(tensor.shape, ", "),
                           tensorTypeName(tensor.type)));
  return tensor;
}

Result<std::uint64_t>
heddle::safetensorsHeaderBytes(std::span<const std::byte> begin,
                               std::uint64_t fileBytes,
                               const std::string &name) {
  const std::uint64_t there = std::min<std::uint64_t>(fileBytes, begin.size());
  if (there < 8)
    return Error{fmt::format(
        "{}: found {} bytes, expected a safetensors file (at least 8)", name,
        there)};
  std::uint64_t bytes = 0;
  for (int i = 7; i >= 0; --i)
    bytes = bytes << 8 | std::to_integer<std::uint64_t>(begin[i]);
  if (bytes > maxHeaderBytes || bytes > fileBytes - 8)
    return Error{fmt::format(
        "{}: found a header of {} bytes, expected at most "
        "{}; this is no safetensors file, or it is cut "
        "off",
        name, bytes, std::min<std::uint64_t>(maxHeaderBytes, fileBytes - 8))};
  return 8 + bytes;
}

static Result<void> readMetadata(const DocumentValue &value,
                                 const std::string &name,
                                 std::map<std::string, std::string> &to) {
  MapReader reader(name, value, "__metadata__");
  for (const DocumentValue::Entry &pair : value.entries)
    to[pair.key] = pair.value.kind == DocumentValue::Kind::String
                       ? pair.value.text
                       : reader.string(pair.key);
  for (const DocumentValue::Entry &pair : value.entries)
    reader.know(pair.key);
  return reader.finish();
}

/// Sorts tensors by their bytes, which have to fill the data.
static Result<void> checkPlaces(std::vector<TensorEntry> &list,
                                std::uint64_t data, const std::string &name) {
  std::sort(list.begin(), list.end(), [](auto &a, auto &b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::uint64_t end = 0;
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i].begin < end)
      return Error{fmt::format("{}: tensors '{}' and '{}' overlap at byte {}, "
                               "expected bytes of their own",
                               name, list[i - 1].name, list[i].name,
                               list[i].begin)};
    if (list[i].begin > end)
      return Error{fmt::format("{}: bytes {} to {} belong to no tensor, "
                               "expected no holes",
                               name, end, list[i].begin)};
    end = list[i].end;
  }
  if (end != data)
    return Error{fmt::format("{}: found {} bytes of data, expected {} as the "
                             "header says",
                             name, data, end)};
  return {};
}

Result<SafetensorsHeader>
heddle::readSafetensorsHeader(std::string_view header, std::uint64_t fileBytes,
                              const std::string &name) {
  SafetensorsHeader read;
  read.bytes = header.size();
  Result<DocumentValue> value = parseJson(header.substr(8), name);
  if (!value)
    return value.error();
  if (!value->isMap())
    return Error{fmt::format("{}: found {} as header, expected a map of "
                             "tensors",
                             name, value->describe())};
  for (const DocumentValue::Entry &entry : value->entries) {
    if (entry.key == "__metadata__") {
      if (auto done = readMetadata(entry.value, name, read.metadata); !done)
        return done.error();
      continue;
    }
    Result<TensorEntry> tensor =
        readEntry(entry, name, fileBytes - header.size());
    if (!tensor)
      return tensor.error();
    read.tensors.push_back(std::move(*tensor));
  }
  if (auto done = checkPlaces(read.tensors, fileBytes - header.size(), name);
      !done)
    return done.error();
  return read;
}

Result<void> SafetensorsFile::readHeader() {
  std::span<const std::byte> all = file.bytes();
  Result<std::uint64_t> bytes = safetensorsHeaderBytes(all, all.size(), name);
  if (!bytes)
    return bytes.error();
  Result<SafetensorsHeader> header = readSafetensorsHeader(
      {reinterpret_cast<const char *>(all.data()), *bytes}, all.size(), name);
  if (!header)
    return header.error();
  dataStart = *bytes;
  list = std::move(header->tensors);
  meta = std::move(header->metadata);
  for (std::size_t i = 0; i < list.size(); ++i)
    index.emplace(list[i].name, i);
  return {};
}

Result<SafetensorsFile>
SafetensorsFile::open(const std::filesystem::path &path) {
  Result<MappedFile> mapped = MappedFile::open(path);
  if (!mapped)
    return mapped.error();
  SafetensorsFile opened;
  opened.name = path.string();
  opened.file = std::move(*mapped);
  if (auto done = opened.readHeader(); !done)
    return done.error();
  return opened;
}

const TensorEntry *SafetensorsFile::find(std::string_view tensor) const {
  auto found = index.find(std::string(tensor));
  return found == index.end() ? nullptr : &list[found->second];
}

std::span<const std::byte>
SafetensorsFile::bytes(const TensorEntry &tensor) const {
  HEDDLE_CHECK(tensor.end <= file.bytes().size() - dataStart,
               "tensor '{}' is of another file", tensor.name);
  return file.bytes().subspan(dataStart + tensor.begin,
                              tensor.end - tensor.begin);
}

std::string
heddle::safetensorsHeader(std::vector<TensorEntry> &list,
                          const std::map<std::string, std::string> &meta) {
  std::uint64_t end = 0;
  for (TensorEntry &tensor : list) {
    std::optional<std::uint64_t> bytes = checkedBytes(tensor);
    HEDDLE_CHECK(bytes, "tensor '{}' is larger than 2^63 bytes", tensor.name);
    tensor.begin = end;
    tensor.end = end += *bytes;
  }
  std::string json = "{";
  if (!meta.empty()) {
    json += "\"__metadata__\":{";
    for (auto &[key, value] : meta)
      json += fmt::format("{}{}:{}", json.ends_with('{') ? "" : ",",
                          jsonString(key), jsonString(value));
    json += '}';
  }
  for (const TensorEntry &tensor : list)
    json += fmt::format(
        "{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
        json.size() == 1 ? "" : ",", jsonString(tensor.name),
        tensorTypeName(tensor.type), fmt::join(tensor.shape, ","), tensor.begin,
        tensor.end);
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');
  std::string header(8, '\0');
  for (int i = 0; i < 8; ++i)
    header[i] = static_cast<char>(json.size() >> (8 * i) & 0xff);
  return header + json;
}

Result<SafetensorsWriter>
SafetensorsWriter::create(const std::filesystem::path &path,
                          std::vector<TensorEntry> tensors,
                          const std::map<std::string, std::string> &metadata) {
  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file)
    return file.error();
  SafetensorsWriter writer(std::move(*file));
  writer.name = path.string();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    bool isNew = writer.index.emplace(tensors[i].name, i).second;
    HEDDLE_CHECK(isNew, "tensor '{}' is given twice", tensors[i].name);
  }
  std::string header = safetensorsHeader(tensors, metadata);
  writer.dataStart = header.size();
  writer.written.resize(tensors.size());
  writer.list = std::move(tensors);
  if (auto done = writer.file.append(header); !done)
    return done.error();
  return writer;
}

Result<void> SafetensorsWriter::write(std::string_view tensor,
                                      std::span<const std::byte> bytes,
                                      std::uint64_t offset) {
  auto found = index.find(std::string(tensor));
  HEDDLE_CHECK(found != index.end(), "no tensor '{}' in {}", tensor, name);
  const TensorEntry &entry = list[found->second];
  HEDDLE_CHECK(offset + bytes.size() <= entry.end - entry.begin,
               "tensor '{}' has {} bytes, written are {} from {}", tensor,
               entry.end - entry.begin, bytes.size(), offset);
  written[found->second] += bytes.size();
  return file.writeAt(
      dataStart + entry.begin + offset,
      {reinterpret_cast<const char *>(bytes.data()), bytes.size()});
}

Result<void> SafetensorsWriter::commit() {
  for (std::size_t i = 0; i < list.size(); ++i)
    if (written[i] < list[i].end - list[i].begin)
      return Error{fmt::format(
          "{}: found {} bytes of tensor '{}', expected {} before the file is "
          "complete",
          name, written[i], list[i].name, list[i].end - list[i].begin)};
  return file.commit();
}
