#include "runtime/train/Data.h"

#include "heddle/Runtime/Random.h"
#include "heddle/Support/Document.h"
#include "heddle/Support/Files.h"
#include "heddle/Support/Safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

namespace heddle::train {

namespace {

constexpr int32_t kNotCounted = -100;

/// A file of tokens of 1, 2 or 4 bytes.
class Stream final : public Data {
public:
  static Result<std::unique_ptr<Data>>
  open(const std::string &path, const DataShape &shape, int64_t width) {
    Result<MappedFile> file = MappedFile::open(path);
    if (!file)
      return file.error();
    const int64_t bytes = int64_t(file->bytes().size());
    if (bytes % width != 0)
      return Error{fmt::format("{}: {} bytes are no whole number of tokens of "
                               "{} bytes; --token-bytes says their size",
                               path, bytes, width)};
    if (bytes / width < shape.length)
      return Error{fmt::format("{}: found {} tokens, expected at least the {} "
                               "of one sequence",
                               path, bytes / width, shape.length)};
    auto stream = std::unique_ptr<Stream>(new Stream(path, shape));
    stream->file = std::move(*file);
    stream->width = width;
    stream->tokens = bytes / width;
    return std::unique_ptr<Data>(std::move(stream));
  }

private:
  using Data::Data;

  int64_t token(int64_t at) const {
    const std::byte *bytes = file.bytes().data() + at * width;
    uint32_t value = 0;
    for (int64_t i = 0; i < width; ++i)
      value |= uint32_t(bytes[i]) << (8 * i);
    return value;
  }

  Result<void> read(int64_t step, int64_t i, Sequence to) const override {
    const random::Block drawn =
        random::philox({{uint32_t(i), uint32_t(i >> 32), uint32_t(step),
                         uint32_t(step >> 32)}},
                       uint32_t(shape.seed), uint32_t(shape.seed >> 32));
    const uint64_t word = uint64_t(drawn.words[1]) << 32 | drawn.words[0];
    const int64_t first = int64_t(word % uint64_t(tokens - shape.length + 1));
    for (int64_t j = 0; j < shape.length; ++j) {
      const int64_t value = token(first + j);
      if (value >= shape.vocabulary)
        return Error{fmt::format("{}: token {} at place {}, expected less than "
                                 "the vocabulary's {}",
                                 path, value, first + j, shape.vocabulary)};
      to.tokens[j] = int32_t(value);
      if (j > 0)
        to.labels[j - 1] = int32_t(value);
    }
    return {};
  }

  MappedFile file;
  int64_t width = 1, tokens = 0;
};

/// Batches in memory: columns [n, length].
class Batches final : public Data {
public:
  struct Columns {
    int64_t sequences = 0;
    std::vector<int32_t> tokens;
    std::vector<int32_t> labels, mask, documents, positions; ///< may be empty
  };

  Batches(std::string path, const DataShape &shape, Columns columns)
      : Data(std::move(path), shape), columns(std::move(columns)) {}

private:
  Result<void> read(int64_t step, int64_t i, Sequence to) const override {
    const int64_t windows =
        (columns.sequences + shape.sequences - 1) / shape.sequences;
    const int64_t sequence = (step - 1) % windows * shape.sequences + i;
    if (sequence >= columns.sequences)
      return {};
    const int64_t first = sequence * shape.length, n = shape.length;
    for (int64_t j = 0; j < n; ++j) {
      const int32_t token = columns.tokens[first + j];
      if (token < 0 || token >= shape.vocabulary)
        return outside("token", token, sequence, j);
      to.tokens[j] = token;
    }
    for (int64_t j = 0; j < n; ++j) {
      int32_t label = columns.labels.empty()
                          ? (j + 1 < n ? to.tokens[j + 1] : kNotCounted)
                          : columns.labels[first + j];
      if (label != kNotCounted && (label < 0 || label >= shape.vocabulary))
        return outside("label", label, sequence, j);
      if (!columns.mask.empty() && columns.mask[first + j] == 0)
        label = kNotCounted;
      to.labels[j] = label;
    }
    if (!columns.documents.empty())
      std::copy_n(columns.documents.data() + first, n, to.documents);
    if (!columns.positions.empty())
      std::copy_n(columns.positions.data() + first, n, to.positions);
    return {};
  }

  Columns columns;
};

struct Field {
  const char *name;
  std::vector<int32_t> Batches::Columns::*column;
};
const Field kFields[] = {{"tokens", &Batches::Columns::tokens},
                         {"labels", &Batches::Columns::labels},
                         {"mask", &Batches::Columns::mask},
                         {"documents", &Batches::Columns::documents},
                         {"positions", &Batches::Columns::positions}};

Result<void> checkSize(const std::string &path, const char *name,
                       int64_t sequences, int64_t length,
                       const DataShape &shape, int64_t &known) {
  if (length != shape.length)
    return Error{fmt::format("{}: {}: found sequences of {} , expected the "
                             "{} of sequence_length",
                             path, name, length, shape.length)};
  if (sequences == 0)
    return Error{fmt::format("{}: {}: found no sequence", path, name)};
  if (known != 0 && known != sequences)
    return Error{fmt::format("{}: {}: found {} sequences, expected {} as in "
                             "tokens",
                             path, name, sequences, known)};
  known = sequences;
  return {};
}

template <class T>
void widenTo(std::span<const std::byte> bytes, std::vector<int32_t> &to) {
  to.resize(bytes.size() / sizeof(T));
  for (size_t i = 0; i < to.size(); ++i) {
    T value;
    memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    // What does not fit stands for itself as a number no vocabulary has.
    to[i] = std::in_range<int32_t>(value) ? int32_t(value) : -1;
  }
}

Result<Batches::Columns> readSafetensors(const std::string &path,
                                         const DataShape &shape) {
  Result<SafetensorsFile> file = SafetensorsFile::open(path);
  if (!file)
    return file.error();
  Batches::Columns columns;
  for (const Field &field : kFields) {
    const TensorEntry *tensor = file->find(field.name);
    if (!tensor && field.column == &Batches::Columns::tokens)
      return Error{fmt::format("{}: there is no tensor 'tokens'", path)};
    if (!tensor)
      continue;
    if (tensor->shape.size() != 2)
      return Error{fmt::format("{}: {}: found {} dimensions, expected [n, s]",
                               path, field.name, tensor->shape.size())};
    if (auto ok = checkSize(path, field.name, tensor->shape[0],
                            tensor->shape[1], shape, columns.sequences);
        !ok)
      return ok.error();
    std::vector<int32_t> &to = columns.*field.column;
    const auto bytes = file->bytes(*tensor);
    switch (tensor->type) {
    case TensorType::Bool:
    case TensorType::U8:
      widenTo<uint8_t>(bytes, to);
      break;
    case TensorType::U16:
      widenTo<uint16_t>(bytes, to);
      break;
    case TensorType::I32:
      widenTo<int32_t>(bytes, to);
      break;
    case TensorType::U32:
      widenTo<uint32_t>(bytes, to);
      break;
    case TensorType::I64:
      widenTo<int64_t>(bytes, to);
      break;
    default:
      return Error{fmt::format("{}: {}: found {}, expected I32, I64, U32, U16 "
                               "or U8",
                               path, field.name, tensorTypeName(tensor->type))};
    }
  }
  return columns;
}

Result<void> readList(const std::string &path, const char *name,
                      const DocumentValue &value, const DataShape &shape,
                      int64_t &known, std::vector<int32_t> &to) {
  if (!value.isList())
    return Error{fmt::format("{}:{}: {}: found {}, expected a list of lists",
                             path, value.line, name, value.describe())};
  for (const DocumentValue &row : value.items) {
    if (!row.isList())
      return Error{fmt::format("{}:{}: {}: found {}, expected a list", path,
                               row.line, name, row.describe())};
    int64_t any = 0;
    if (auto ok =
            checkSize(path, name, 1, int64_t(row.items.size()), shape, any);
        !ok)
      return ok.error();
    for (const DocumentValue &item : row.items) {
      if (!item.integer || !std::in_range<int32_t>(*item.integer))
        return Error{fmt::format("{}:{}: {}: found {}, expected an integer of "
                                 "32 bits",
                                 path, item.line, name, item.describe())};
      to.push_back(int32_t(*item.integer));
    }
  }
  return checkSize(path, name, int64_t(value.items.size()), shape.length, shape,
                   known);
}

Result<Batches::Columns> readJson(const std::string &path,
                                  const DataShape &shape) {
  Result<std::string> text = readFile(path);
  if (!text)
    return text.error();
  Result<DocumentValue> root = parseJson(*text, path);
  if (!root)
    return root.error();
  if (!root->isMap() || !root->find("tokens"))
    return Error{fmt::format("{}:{}: found {}, expected a map with 'tokens'",
                             path, root->line, root->describe())};
  for (const DocumentValue::Entry &entry : root->entries)
    if (std::none_of(std::begin(kFields), std::end(kFields),
                     [&](const Field &f) { return entry.key == f.name; }))
      return Error{fmt::format("{}:{}: key '{}' is unknown, expected tokens, "
                               "labels, mask, documents or positions",
                               path, entry.line, entry.key)};
  Batches::Columns columns;
  for (const Field &field : kFields)
    if (const DocumentValue *value = root->find(field.name))
      if (auto ok = readList(path, field.name, *value, shape, columns.sequences,
                             columns.*field.column);
          !ok)
        return ok.error();
  return columns;
}

} // namespace

Error Data::outside(const char *what, int64_t value, int64_t sequence,
                    int64_t position) const {
  return Error{fmt::format("{}: {} {} in sequence {} at position {}, expected "
                           "0 to {} (the vocabulary)",
                           path, what, value, sequence, position,
                           shape.vocabulary - 1)};
}

Result<std::unique_ptr<Data>> Data::open(const std::string &path,
                                         const DataShape &shape) {
  const std::string extension = std::filesystem::path(path).extension();
  if (extension == ".safetensors" || extension == ".json") {
    Result<Batches::Columns> columns = extension == ".json"
                                           ? readJson(path, shape)
                                           : readSafetensors(path, shape);
    if (!columns)
      return columns.error();
    return std::unique_ptr<Data>(
        std::make_unique<Batches>(path, shape, std::move(*columns)));
  }
  const int64_t needed = shape.vocabulary <= 65536 ? 2 : 4;
  return Stream::open(path, shape,
                      extension != ".bin"     ? 1
                      : shape.tokenBytes != 0 ? shape.tokenBytes
                                              : needed);
}

Result<void> Data::fill(int64_t step, Batch &batch) const {
  const size_t n = size_t(shape.sequences * shape.length);
  batch.tokens.assign(n, 0);
  batch.labels.assign(n, kNotCounted);
  batch.documents.assign(n, 0);
  batch.positions.resize(n);
  for (size_t i = 0; i < n; ++i)
    batch.positions[i] = int32_t(int64_t(i) % shape.length);
  for (int64_t i = 0; i < shape.sequences; ++i) {
    const int64_t at = i * shape.length;
    if (auto ok =
            read(step, i,
                 {batch.tokens.data() + at, batch.labels.data() + at,
                  batch.documents.data() + at, batch.positions.data() + at});
        !ok)
      return ok;
  }
  batch.counted = std::count_if(batch.labels.begin(), batch.labels.end(),
                                [](int32_t label) { return label >= 0; });
  return {};
}

} // namespace heddle::train
