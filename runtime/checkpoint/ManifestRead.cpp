//===- ManifestRead.cpp - manifest.json and COMMIT, read and checked ------===//

#include "runtime/checkpoint/Checksum.h"
#include "runtime/checkpoint/Manifest.h"

#include "heddle/Support/Document.h"
#include "heddle/Support/Printable.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <set>

namespace heddle::checkpoint {

namespace {

bool isHex(std::string_view text, size_t digits) {
  return text.size() == digits &&
         text.find_first_not_of("0123456789abcdef") == text.npos;
}

/// Names of files are below the folder, and cannot lead out of it.
bool isPlain(std::string_view name) {
  const size_t slash = name.find('/');
  const std::string_view file = name.substr(slash + 1);
  return slash != name.npos &&
         (name.substr(0, slash) == "model" ||
          name.substr(0, slash) == "optim") &&
         !file.empty() && file[0] != '.' &&
         file.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "abcdefghijklmnopqrstuvwxyz0123456789._-") ==
             file.npos;
}

/// Typed values of a map, with errors at their keys.
class Fields {
public:
  explicit Fields(MapReader reader) : reader(std::move(reader)) {}

  int64_t number(const char *key) {
    return reader.integer(key, IntegerRange::nonNegative());
  }
  std::string text(const char *key) { return reader.string(key); }
  /// null for a text that is empty.
  std::string textOrNone(const char *key) {
    return reader.has(key) ? reader.string(key) : "";
  }
  std::string hex(const char *key, size_t digits) {
    std::string text = reader.string(key);
    if (!isHex(text, digits))
      reader.fail(key, fmt::format("found \"{}\", expected {} hexadecimal "
                                   "digits",
                                   text, digits));
    return text;
  }
  uint32_t crc(const char *key) {
    const std::string text = hex(key, 8);
    uint32_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value, 16);
    return value;
  }
  double exact(const char *key) {
    const std::string text = reader.string(key);
    char *end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end || !std::isfinite(value))
      reader.fail(key, fmt::format("found \"{}\", expected a number as a "
                                   "hexadecimal float",
                                   text));
    return value;
  }
  /// An absent map has been recorded as an error; what is read is then unused.
  std::optional<Fields> map(const char *key) {
    if (std::optional<MapReader> inner = reader.requiredMap(key))
      return Fields(*inner);
    return std::nullopt;
  }

  MapReader reader;
};

Scaling readScaling(Fields &scaler) {
  Scaling s;
  s.finiteSteps = scaler.number("growth");
  // Below 0 where it halved more than once in a row.
  const int64_t most = IntegerRange::positive().max;
  s.patience = scaler.reader.integer("hysteresis", {-most, most});
  s.scale = scaler.exact("scale");
  s.skippedInRow = scaler.number("skipped_run");
  if (!(s.scale > 0) || !std::isfinite(float(s.scale)) || float(s.scale) == 0)
    scaler.reader.fail("scale", fmt::format("found {}, expected a positive "
                                            "number that a float holds",
                                            s.scale));
  return s;
}

void readProgress(Fields &state, Progress &p) {
  if (auto data = state.map("data")) {
    p.dataBytes = data->number("dataset_nbytes");
    p.globalBatch = data->number("global_batch");
    p.nextSample = data->number("next_sample");
    p.sequenceLength = data->number("sequence_length");
  }
  if (auto history = state.map("history")) {
    p.deviceSeconds = history->number("device_seconds");
    p.interruptions = history->number("interruptions");
  }
  if (auto o = state.map("optimizer")) {
    p.optimizer.betas = {o->exact("beta1"), o->exact("beta2")};
    p.optimizer.clipNorm = o->exact("clip_norm");
    p.optimizer.eps = o->exact("eps");
    p.optimizer.learningRate = o->exact("learning_rate");
    p.carried.skippedSteps = o->number("skipped_steps");
    p.optimizer.type = o->text("type");
    p.optimizer.weightDecay = o->exact("weight_decay");
  }
  if (auto rng = state.map("rng")) {
    rng->reader.choice("kind", {"philox4x32-10"});
    p.seed = rng->reader.integer("seed", {});
  }
  if (state.reader.has("scaler"))
    if (auto scaler = state.map("scaler"))
      p.carried.scaling = readScaling(*scaler);
  if (auto sched = state.map("sched")) {
    p.schedule.finalLr = sched->exact("final_lr");
    p.schedule.steps = sched->number("steps");
    p.schedule.type = sched->text("type");
    p.schedule.warmupSteps = sched->number("warmup_steps");
  }
}

Extent readExtent(Fields fields) {
  Extent e;
  const std::vector<int64_t> bytes =
      fields.reader.integers("b", IntegerRange::nonNegative(), std::nullopt, 2);
  if (bytes.size() == 2) {
    e.begin = uint64_t(bytes[0]);
    e.end = uint64_t(bytes[1]);
  }
  e.crc = fields.crc("crc32c");
  e.file = fields.number("f");
  e.key = fields.text("k");
  e.box.offset = fields.reader.integers("o", IntegerRange::nonNegative());
  e.box.size = fields.reader.integers("s", IntegerRange::positive());
  return e;
}

StateRecord readState(Fields fields) {
  StateRecord state;
  const std::string type = fields.text("dtype");
  if (const auto known = tensorTypeByName(type))
    state.type = *known;
  else
    fields.reader.fail("dtype", fmt::format("found \"{}\", expected one like "
                                            "\"F32\"",
                                            type));
  state.shape = fields.reader.integers("shape", IntegerRange::positive());
  for (MapReader &extent : fields.reader.maps("extents"))
    state.extents.push_back(readExtent(Fields(std::move(extent))));
  return state;
}

void readFiles(Fields &root, std::vector<FileRecord> &files) {
  for (MapReader &each : root.reader.maps("files")) {
    Fields file(std::move(each));
    FileRecord record;
    record.crc = file.crc("crc32c");
    record.headerCrc = file.crc("header_crc32c");
    record.headerBytes = uint64_t(file.number("header_nbytes"));
    record.name = file.text("name");
    record.bytes = uint64_t(file.number("nbytes"));
    if (!isPlain(record.name))
      file.reader.fail("name", "expected model/NAME or optim/NAME of letters, "
                               "digits, '.', '_' and '-'");
    files.push_back(std::move(record));
  }
}

void readTensors(Fields &root, Manifest &m) {
  const DocumentValue *tensors = root.reader.value("tensors");
  std::optional<Fields> all = root.map("tensors");
  if (!tensors || !all)
    return;
  for (const DocumentValue::Entry &tensor : tensors->entries) {
    std::optional<Fields> states = all->map(tensor.key.c_str());
    if (!states)
      continue;
    for (const DocumentValue::Entry &state : tensor.value.entries)
      if (auto fields = states->map(state.key.c_str()))
        m.tensors[tensor.key][state.key] = readState(*fields);
  }
}

void readWriter(Fields &root, Manifest &m) {
  std::optional<Fields> writer = root.map("writer");
  if (!writer)
    return;
  m.program = writer->textOrNone("program");
  const DocumentValue *mesh = writer->reader.value("mesh");
  if (!mesh || !mesh->isList())
    return writer->reader.fail("mesh", "expected a list of [axis, size]");
  for (const DocumentValue &axis : mesh->items) {
    if (!axis.isList() || axis.items.size() != 2 || !axis.items[1].integer ||
        *axis.items[1].integer < 1)
      return writer->reader.fail("mesh", "expected a list of [axis, size]");
    m.mesh.emplace_back(axis.items[0].text, *axis.items[1].integer);
  }
}

/// That extents lie in files side by side, from the first byte to the last.
Result<void> checkPlaces(const Manifest &m, const std::string &path) {
  struct Place {
    uint64_t begin, end;
    const Extent *extent;
  };
  std::vector<std::vector<Place>> places(m.files.size());
  for (const auto &[name, states] : m.tensors)
    for (const auto &[role, state] : states)
      for (const Extent &e : state.extents)
        places[size_t(e.file)].push_back({e.begin, e.end, &e});
  for (size_t f = 0; f < places.size(); ++f) {
    std::sort(places[f].begin(), places[f].end(),
              [](const Place &a, const Place &b) { return a.begin < b.begin; });
    uint64_t end = 0;
    std::set<std::string> keys;
    for (const Place &place : places[f]) {
      if (place.begin != end || !keys.insert(place.extent->key).second)
        return Error{fmt::format("{}: {}: key '{}' at byte {} is there twice, "
                                 "or its bytes do not follow byte {}",
                                 path, m.files[f].name,
                                 printable(place.extent->key), place.begin,
                                 end)};
      end = place.end;
    }
    if (m.files[f].headerBytes + end != m.files[f].bytes)
      return Error{fmt::format("{}: {}: found {} bytes of header and {} of "
                               "tensors, expected {} in all",
                               path, m.files[f].name, m.files[f].headerBytes,
                               end, m.files[f].bytes)};
  }
  return {};
}

Result<void> checkState(const Manifest &m, const std::string &what,
                        const StateRecord &state) {
  std::vector<Box> boxes;
  for (const Extent &e : state.extents)
    boxes.push_back(e.box);
  if (const auto fault = tilingFault(state.shape, boxes))
    return Error{
        fmt::format("{}: {}, expected each element once", what, *fault)};
  for (const Extent &e : state.extents) {
    if (e.file < 0 || e.file >= int64_t(m.files.size()))
      return Error{
          fmt::format("{}: found file {} of {}", what, e.file, m.files.size())};
    int64_t bytes = 0;
    if (__builtin_mul_overflow(e.box.elements(), tensorTypeBytes(state.type),
                               &bytes) ||
        e.end < e.begin || e.end - e.begin != uint64_t(bytes))
      return Error{fmt::format("{}: extent {} has bytes {} to {}, expected {} "
                               "bytes",
                               what, textOf(e.box), e.begin, e.end, bytes)};
  }
  return {};
}

Result<Manifest> readManifest(const DocumentValue &value,
                              const std::string &path) {
  if (!value.isMap())
    return Error{
        fmt::format("{}: found {}, expected a map", path, value.describe())};
  Fields root(MapReader(path, value));
  Manifest m;
  root.reader.choice("format", {"heddle-checkpoint"});
  root.reader.integer("version", {1, 1});
  root.reader.integer("min_reader", {1, 1});
  m.id = root.hex("ckpt_id", 32);
  m.parent = root.textOrNone("parent_ckpt_id");
  m.step = root.number("step");
  // Beyond 2^53, so no number of nonNegative().
  m.createdUnixNs = root.reader.integer("created_unix_ns", {0, INT64_MAX});
  m.profile = root.reader.choice("profile", {"sharded", "logical"});
  const std::string hash = root.hex("model_hash", 64);
  readFiles(root, m.files);
  readTensors(root, m);
  if (auto state = root.map("state"))
    readProgress(*state, m.progress);
  readWriter(root, m);
  if (auto done = root.reader.finish(); !done)
    return done.error();
  if (hash != modelHash(m))
    return Error{fmt::format("{}: key 'model_hash': found {}, expected {} for "
                             "these tensors",
                             path, hash, modelHash(m))};
  return m;
}

} // namespace

Result<void> checkManifest(const Manifest &m, const std::string &path) {
  const Progress &p = m.progress;
  int64_t consumed = 0;
  if (__builtin_mul_overflow(m.step, p.globalBatch, &consumed) ||
      p.nextSample != consumed)
    return Error{fmt::format("{}: key 'state.data.next_sample': found {}, "
                             "expected step {} times global_batch {}",
                             path, p.nextSample, m.step, p.globalBatch)};
  if (p.carried.skippedSteps > m.step)
    return Error{fmt::format("{}: key 'state.optimizer.skipped_steps': found "
                             "{}, expected at most step {}",
                             path, p.carried.skippedSteps, m.step)};
  std::set<std::string> names;
  for (const FileRecord &file : m.files)
    if (!names.insert(file.name).second)
      return Error{fmt::format("{}: file {} is listed twice", path, file.name)};
  for (const auto &[name, states] : m.tensors)
    for (const auto &[role, state] : states)
      if (auto done = checkState(
              m, fmt::format("{}: tensor '{}' ({})", path, name, role), state);
          !done)
        return done;
  return checkPlaces(m, path);
}

Result<Manifest> parseManifest(std::string_view text, const std::string &path) {
  Result<DocumentValue> value = parseJson(text, path);
  if (!value)
    return value.error();
  Result<Manifest> manifest = readManifest(*value, path);
  if (!manifest)
    return manifest.error();
  if (auto done = checkManifest(*manifest, path); !done)
    return done.error();
  return manifest;
}

Result<void> checkCommit(std::string_view line, const std::string &folder,
                         std::string_view text) {
  const std::string end = fmt::format(" {} {}\n", text.size(), sha256(text));
  if (!line.starts_with("heddle-commit 1 ") || !line.ends_with(end))
    return Error{fmt::format("{0}/COMMIT does not vouch for "
                             "{0}/manifest.json, of {1} bytes; one of the two "
                             "is damaged, cut off, or of another checkpoint",
                             folder, text.size())};
  return {};
}

std::optional<int64_t> stepOfFolder(std::string_view name) {
  int64_t step = 0;
  if (!name.starts_with("step-"))
    return std::nullopt;
  const std::string_view digits = name.substr(5);
  const char *end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), end, step);
  if (parsed.ec != std::errc() || parsed.ptr != end || step < 0 ||
      stepFolder(step) != name)
    return std::nullopt;
  return step;
}

} // namespace heddle::checkpoint
