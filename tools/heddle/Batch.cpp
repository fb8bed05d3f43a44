#include "tools/heddle/Batch.h"

#include "heddle/Support/Document.h"
#include "heddle/Support/Safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

using namespace heddle;
using namespace heddle::tool;
using interpret::Tensor;

namespace {

constexpr int64_t kNotCounted = -100;

/// What a file has of tokens, labels, mask, documents and positions.
using Columns = std::map<std::string, Tensor>;
constexpr const char *kNames[] = {"tokens", "labels", "mask", "documents",
                                  "positions"};

} // namespace

template <class T>
static std::vector<int64_t> widen(std::span<const std::byte> bytes) {
  std::vector<int64_t> values(bytes.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = int64_t(value);
  }
  return values;
}

static std::optional<std::vector<int64_t>>
readIntegers(TensorType type, std::span<const std::byte> bytes) {
  switch (type) {
  case TensorType::Bool:
  case TensorType::U8:
    return widen<uint8_t>(bytes);
  case TensorType::U16:
    return widen<uint16_t>(bytes);
  case TensorType::I32:
    return widen<int32_t>(bytes);
  case TensorType::U32:
    return widen<uint32_t>(bytes);
  case TensorType::I64:
    return widen<int64_t>(bytes);
  default:
    return std::nullopt;
  }
}

static Result<Columns> readSafetensors(const std::string &path) {
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file)
    return file.error();
  Columns columns;
  for (const char *name : kNames) {
    const TensorEntry *entry = file->find(name);
    if (!entry)
      continue;
    if (entry->shape.size() != 2)
      return Error{fmt::format("{}: {}: found {} dimensions, expected [n, s]",
                               path, name, entry->shape.size())};
    auto values = readIntegers(entry->type, file->bytes(*entry));
    if (!values)
      return Error{
          fmt::format("{}: {}: found {}, expected I32, I64, U32, U16 or U8",
                      path, name, tensorTypeName(entry->type))};
    columns[name] = Tensor::ofIntegers(entry->shape, std::move(*values));
  }
  return columns;
}

static Result<Tensor> readLists(const std::string &path, const char *name,
                                const DocumentValue &value) {
  auto fail = [&](const DocumentValue &found, const char *expected) {
    return Error{fmt::format("{}:{}: {}: found {}, expected {}", path,
                             found.line, name, found.describe(), expected)};
  };
  if (!value.isList() || value.items.empty())
    return fail(value, "a list of lists");
  std::vector<int64_t> values;
  size_t length = value.items.front().items.size();
  for (const DocumentValue &row : value.items) {
    if (!row.isList() || row.items.size() != length || length == 0)
      return fail(row, "a list as long as the first one");
    for (const DocumentValue &item : row.items) {
      if (!item.integer)
        return fail(item, "an integer");
      values.push_back(*item.integer);
    }
  }
  return Tensor::ofIntegers({int64_t(value.items.size()), int64_t(length)},
                            std::move(values));
}

static Result<Columns> readJson(const std::string &path) {
  Result<Document> document = Document::read(path);
  if (!document)
    return document.error();
  if (!document->root().isMap())
    return Error{fmt::format("{}:{}: found {}, expected a map with 'tokens'",
                             path, document->root().line,
                             document->root().describe())};
  Columns columns;
  for (const DocumentValue::Entry &entry : document->root().entries) {
    auto known = std::find(std::begin(kNames), std::end(kNames), entry.key);
    if (known == std::end(kNames))
      return Error{fmt::format("{}:{}: key '{}' is unknown, expected tokens, "
                               "labels, mask, documents or positions",
                               path, entry.line, entry.key)};
    Result<Tensor> tensor = readLists(path, *known, entry.value);
    if (!tensor)
      return tensor.error();
    columns[*known] = std::move(*tensor);
  }
  return columns;
}

/// Fills in what the file leaves out.
static BatchFile settle(Columns &columns, int64_t sequences, int64_t length) {
  BatchFile batch{sequences, length, {}};
  Tensor none = Tensor::zeros(Tensor::Kind::Integer, {sequences, length});
  auto take = [&](const char *name) {
    auto found = columns.find(name);
    return found == columns.end() ? none : std::move(found->second);
  };
  const bool hasLabels = columns.count("labels"),
             hasMask = columns.count("mask"),
             hasPositions = columns.count("positions");
  batch.whole = {take("tokens"), take("labels"), take("positions"),
                 take("documents")};
  Tensor mask = take("mask");
  for (int64_t i = 0; i < sequences * length; ++i) {
    int64_t &label = batch.whole.labels.integers[i];
    if (!hasLabels)
      label = i % length + 1 < length ? batch.whole.tokens.integers[i + 1]
                                      : kNotCounted;
    if (hasMask && mask.integers[i] == 0)
      label = kNotCounted;
    if (!hasPositions)
      batch.whole.positions.integers[i] = i % length;
  }
  return batch;
}

Result<BatchFile> tool::readBatch(const std::string &path) {
  std::string extension = std::filesystem::path(path).extension().string();
  if (extension != ".json" && extension != ".safetensors")
    return Error{fmt::format("{}: found a file '{}', expected .safetensors or "
                             ".json",
                             path, extension)};
  Result<Columns> columns =
      extension == ".json" ? readJson(path) : readSafetensors(path);
  if (!columns)
    return columns.error();
  if (!columns->count("tokens"))
    return Error{fmt::format("{}: there is no 'tokens'", path)};
  std::vector<int64_t> shape = columns->at("tokens").shape;
  if (shape[0] == 0 || shape[1] == 0)
    return Error{fmt::format("{}: tokens: found no sequence", path)};
  for (const auto &[name, tensor] : *columns)
    if (tensor.shape != shape)
      return Error{fmt::format("{}: {}: found {} x {}, expected {} x {} as "
                               "tokens has",
                               path, name, tensor.shape[0], tensor.shape[1],
                               shape[0], shape[1])};
  return settle(*columns, shape[0], shape[1]);
}

Result<void> tool::checkBatch(const BatchFile &batch, int64_t vocabulary,
                              const std::string &path) {
  for (auto [name, tensor] : {std::pair("token", &batch.whole.tokens),
                              std::pair("label", &batch.whole.labels)})
    for (int64_t i = 0; i < tensor->getNumElements(); ++i) {
      int64_t value = tensor->integers[i];
      if (value >= 0 && value < vocabulary)
        continue;
      if (value == kNotCounted && tensor == &batch.whole.labels)
        continue;
      return Error{fmt::format("{}: {} {} in sequence {} at position {}, "
                               "expected 0 to {} (the vocabulary)",
                               path, name, value, i / batch.length,
                               i % batch.length, vocabulary - 1)};
    }
  return {};
}

int64_t BatchFile::steps(int64_t globalBatch) const {
  return (sequences + globalBatch - 1) / globalBatch;
}

interpret::Batch BatchFile::step(int64_t step, int64_t globalBatch) const {
  int64_t first = (step - 1) * globalBatch;
  int64_t present = std::clamp<int64_t>(sequences - first, 0, globalBatch);
  auto cut = [&](const Tensor &from, int64_t absent) {
    std::vector<int64_t> values(globalBatch * length, absent);
    std::copy_n(from.integers.begin() + first * length, present * length,
                values.begin());
    return Tensor::ofIntegers({globalBatch, length}, std::move(values));
  };
  interpret::Batch batch = {cut(whole.tokens, 0),
                            cut(whole.labels, kNotCounted),
                            cut(whole.positions, 0), cut(whole.documents, 0)};
  for (int64_t i = present * length; i < globalBatch * length; ++i)
    batch.positions.integers[i] = i % length;
  return batch;
}

int64_t tool::countLabels(const interpret::Batch &batch) {
  return std::count_if(batch.labels.integers.begin(),
                       batch.labels.integers.end(),
                       [](int64_t label) { return label >= 0; });
}

Result<void> tool::writeBatch(const interpret::Batch &batch,
                              const std::string &path) {
  const std::pair<const char *, const Tensor *> columns[] = {
      {"tokens", &batch.tokens},
      {"labels", &batch.labels},
      {"positions", &batch.positions},
      {"documents", &batch.documents}};
  std::vector<TensorEntry> entries;
  for (const auto &[name, tensor] : columns)
    entries.push_back({name, TensorType::I64, tensor->shape});
  Result<SafetensorsWriter> writer = SafetensorsWriter::create(path, entries);
  if (!writer)
    return writer.error();
  for (const auto &[name, tensor] : columns)
    if (auto ok = writer->write(
            name, std::as_bytes(std::span<const int64_t>(tensor->integers)));
        !ok)
      return ok;
  return writer->commit();
}
