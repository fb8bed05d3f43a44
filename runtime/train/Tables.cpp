//===- Tables.cpp - tables.bin, read, checked and written -----------------===//
//
// One list of keys per struct (`describe`) serves reading and writing, so that
// the two cannot differ.
//
//===----------------------------------------------------------------------===//

#include "heddle/Runtime/Tables.h"

#include "heddle/Support/Mirror.h"
#include "heddle/Support/Printable.h"

#include "runtime/train/Cbor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>
#include <type_traits>

namespace heddle::runtime {

namespace {

constexpr std::array<const char *, 7> kDtypes = {"f32", "bf16", "f16", "i32",
                                                 "i64", "f64",  "u8"};
constexpr std::array<int64_t, 7> kDtypeBytes = {4, 2, 2, 4, 8, 8, 1};

//===----------------------------------------------------------------------===//
// The keys. v.need: must be there. v.may: takes the default of the struct.
//===----------------------------------------------------------------------===//

template <class V, class P>
void describePlace(V &v, P &p) {
  v.need("arena", p.arena);
  v.need("offset", p.offset);
  v.need("dtype", p.dtype);
  v.may("by_stage", p.byStage);
}
template <class V, class L>
void describeLayout(V &v, L &l) {
  v.need("shape", l.shape);
  v.need("padded", l.padded);
  v.need("local", l.local);
  v.need("dims", l.dims);
}
template <class V, class S>
void describeState(V &v, S &x) {
  v.need("name", x.name);
  v.need("kind", x.kind);
  v.may("layers", x.layers);
  v.may("held_by", x.heldBy);
  describePlace(v, x);
  describeLayout(v, x.layout);
  v.may("runs", x.layout.runs);
  v.may("row", x.layout.row);
  v.may("in_row", x.inRow);
  v.may("letters", x.letters);
  v.may("layer_stride", x.layerStride);
  v.need("file", x.file);
  v.may("init", x.init);
  v.may("decay", x.decay);
}
template <class V, class T>
void describeScaling(V &v, T &x) {
  v.need("initial", x.initial);
  v.need("growth_interval", x.growthInterval);
  v.need("hysteresis", x.hysteresis);
  v.need("minimum", x.minimum);
}
template <class V, class T>
void describe(V &v, T &x) {
  using S = std::remove_const_t<T>;
  if constexpr (std::is_same_v<S, Arena>) {
    v.need("name", x.name);
    v.need("bytes", x.bytes);
    v.may("by_stage", x.byStage);
  } else if constexpr (std::is_same_v<S, Stages>) {
    v.may("axis", x.axis);
    v.may("layers", x.layers);
  } else if constexpr (std::is_same_v<S, Input>) {
    describePlace(v, x);
    describeLayout(v, x.layout);
  } else if constexpr (std::is_same_v<S, Output>) {
    describePlace(v, x);
  } else if constexpr (std::is_same_v<S, FileForm>) {
    v.need("shape", x.shape);
    v.may("order", x.order);
  } else if constexpr (std::is_same_v<S, Initial>) {
    v.need("type", x.type);
    v.may("std", x.std);
  } else if constexpr (std::is_same_v<S, State>) {
    describeState(v, x);
  } else if constexpr (std::is_same_v<S, Optimizer>) {
    v.need("type", x.type);
    v.need("learning_rate", x.learningRate);
    v.may("betas", x.betas);
    v.may("eps", x.eps);
    v.may("weight_decay", x.weightDecay);
    v.may("clip_norm", x.clipNorm);
  } else if constexpr (std::is_same_v<S, Schedule>) {
    v.may("type", x.type);
    v.may("warmup_steps", x.warmupSteps);
    v.may("steps", x.steps);
    v.may("final_lr", x.finalLr);
  } else if constexpr (std::is_same_v<S, LossScaling>) {
    describeScaling(v, x);
  } else {
    static_assert(std::is_same_v<S, Tables>);
    v.need("version", x.version);
    v.may("program", x.program);
    v.need("mesh", x.mesh);
    v.need("arenas", x.arenas);
    v.may("stages", x.stages);
    v.need("inputs", x.inputs);
    v.need("outputs", x.outputs);
    v.may("communicators", x.communicators);
    v.need("states", x.states);
    v.need("optimizer", x.optimizer);
    v.may("schedule", x.schedule);
    v.may("loss_scaling", x.lossScaling);
    v.need("sequence_length", x.sequenceLength);
    v.need("global_batch", x.globalBatch);
    v.may("micro_batches", x.microBatches);
    v.need("vocabulary_size", x.vocabularySize);
    v.may("seed", x.seed);
    v.may("flops_per_step", x.flopsPerStep);
    v.may("peak_flops_per_device", x.peakFlopsPerDevice);
  }
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

template <class... Arguments>
[[noreturn]] void refuse(fmt::format_string<Arguments...> format,
                         Arguments &&...arguments) {
  throw TablesError(
      printable(fmt::format(format, std::forward<Arguments>(arguments)...)));
}

class Reader {
public:
  Reader(const DocumentValue &map, std::string path)
      : map(map), path(std::move(path)) {
    if (!map.isMap())
      wrong(this->path, map, "a map");
  }

  template <class T>
  void need(const char *key, T &to) {
    const DocumentValue *value = find(key);
    if (!value)
      refuse("key '{}' is missing", path + key);
    read(*value, path + key, to);
  }
  template <class T>
  void may(const char *key, T &to) {
    if (const DocumentValue *value = find(key))
      read(*value, path + key, to);
  }
  void finish() const {
    for (const DocumentValue::Entry &entry : map.entries)
      if (!known.contains(entry.key))
        refuse("key '{}' is unknown: the emitter and this reader are of "
               "different versions",
               path + entry.key);
  }

private:
  const DocumentValue *find(const char *key) {
    known.insert(key);
    return map.find(key);
  }
  [[noreturn]] static void wrong(const std::string &path,
                                 const DocumentValue &value,
                                 const char *expected) {
    refuse("key '{}': found {}, expected {}", path, value.describe(), expected);
  }

  static void read(const DocumentValue &v, const std::string &at, int64_t &to) {
    if (v.kind != DocumentValue::Kind::Number || !v.integer)
      wrong(at, v, "an integer");
    to = *v.integer;
  }
  static void read(const DocumentValue &v, const std::string &at, int32_t &to) {
    int64_t wide = 0;
    read(v, at, wide);
    to = int32_t(wide);
    if (to != wide)
      wrong(at, v, "an integer of 32 bits");
  }
  static void read(const DocumentValue &v, const std::string &at, double &to) {
    if (v.kind != DocumentValue::Kind::Number)
      wrong(at, v, "a number");
    to = v.number;
  }
  static void read(const DocumentValue &v, const std::string &at, bool &to) {
    if (v.kind != DocumentValue::Kind::Bool)
      wrong(at, v, "true or false");
    to = v.boolean;
  }
  static void read(const DocumentValue &v, const std::string &at,
                   std::string &to) {
    if (v.kind != DocumentValue::Kind::String)
      wrong(at, v, "a text");
    to = v.text;
  }
  static void read(const DocumentValue &v, const std::string &at,
                   heddle_rt_dtype &to) {
    std::string name;
    read(v, at, name);
    for (size_t i = 0; i < kDtypes.size(); ++i)
      if (name == kDtypes[i]) {
        to = heddle_rt_dtype(i);
        return;
      }
    wrong(at, v, "a dtype (f32, bf16, f16, i32, i64, f64, u8)");
  }
  template <class A, class B>
  static void read(const DocumentValue &v, const std::string &at,
                   std::pair<A, B> &to) {
    if (!v.isList() || v.items.size() != 2)
      wrong(at, v, "a list of 2");
    read(v.items[0], at, to.first);
    read(v.items[1], at, to.second);
  }
  template <class T>
  static void read(const DocumentValue &v, const std::string &at,
                   std::vector<T> &to) {
    if (!v.isList())
      wrong(at, v, "a list");
    to.resize(v.items.size());
    for (size_t i = 0; i < to.size(); ++i)
      read(v.items[i], fmt::format("{}[{}]", at, i), to[i]);
  }
  template <class T>
  static void read(const DocumentValue &v, const std::string &at,
                   std::map<std::string, T> &to) {
    if (!v.isMap())
      wrong(at, v, "a map");
    for (const DocumentValue::Entry &entry : v.entries)
      read(entry.value, at + "." + entry.key, to[entry.key]);
  }
  template <class T>
    requires std::is_class_v<T>
  static void read(const DocumentValue &v, const std::string &at, T &to) {
    Reader reader(v, at + ".");
    describe(reader, to);
    reader.finish();
  }

  const DocumentValue &map;
  std::string path;
  std::set<std::string> known;
};

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

class Writer {
public:
  template <class T>
  void need(const char *key, const T &value) {
    ++count;
    write(body, std::string(key));
    write(body, value);
  }
  template <class T>
  void may(const char *key, const T &value) {
    need(key, value);
  }
  void finish(std::string &to) const {
    train::appendCborHead(to, train::CborMajor::Map, count);
    to += body;
  }

private:
  template <class T>
  static void write(std::string &to, const T &value) {
    if constexpr (std::is_same_v<T, heddle_rt_dtype>) {
      train::appendCbor(to, std::string(kDtypes[size_t(value)]));
    } else if constexpr (std::is_same_v<T, int32_t>) {
      train::appendCbor(to, int64_t(value));
    } else if constexpr (!std::is_class_v<T> ||
                         std::is_same_v<T, std::string>) {
      train::appendCbor(to, value);
    } else {
      Writer writer;
      describe(writer, value);
      writer.finish(to);
    }
  }
  template <class A, class B>
  static void write(std::string &to, const std::pair<A, B> &value) {
    train::appendCborHead(to, train::CborMajor::Array, 2);
    write(to, value.first);
    write(to, value.second);
  }
  template <class T>
  static void write(std::string &to, const std::vector<T> &value) {
    train::appendCborHead(to, train::CborMajor::Array, value.size());
    for (const T &item : value)
      write(to, item);
  }
  template <class T>
  static void write(std::string &to, const std::map<std::string, T> &value) {
    train::appendCborHead(to, train::CborMajor::Map, value.size());
    for (const auto &[key, item] : value) {
      write(to, key);
      write(to, item);
    }
  }

  std::string body;
  uint64_t count = 0;
};

//===----------------------------------------------------------------------===//
// Checking
//===----------------------------------------------------------------------===//

/// Far above what there is, far below where sums of them overflow.
constexpr int64_t kMost = int64_t(1) << 60;
constexpr int64_t kMostLayers = 1 << 20, kMostRanks = int64_t(1) << 31;

int64_t times(const std::string &what, int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || product > kMost)
    refuse("{}: found sizes {} and {}, expected a product of at most 2^60",
           what, a, b);
  return product;
}

int64_t product(const std::string &what, const std::vector<int64_t> &sizes) {
  int64_t n = 1;
  for (int64_t size : sizes) {
    if (size < 1)
      refuse("{}: found a size of {}, expected at least 1", what, size);
    n = times(what, n, size);
  }
  return n;
}

class Checker {
public:
  explicit Checker(const Tables &tables) : t(tables) {}

  void all() const {
    if (t.version != 1)
      refuse("version is {}, this program reads 1", t.version);
    checkNumbers();
    checkStages();
    for (const Arena &arena : t.arenas) {
      checkByStage("arena " + arena.name, arena.byStage);
      for (int64_t stage = 0; stage < t.numStages(); ++stage)
        if (arena.bytesAt(stage) < 0)
          refuse("arena {}: {} bytes on stage {}", arena.name,
                 arena.bytesAt(stage), stage);
    }
    for (const auto &[name, input] : t.inputs) {
      checkLayout("input " + name, input.layout);
      checkPlaces(
          "input " + name, input,
          times(name, product(name, input.layout.local), bytesOf(input.dtype)));
    }
    for (const auto &[name, output] : t.outputs)
      checkPlaces("output " + name, output, bytesOf(output.dtype));
    if (!t.outputs.contains("loss"))
      refuse("there is no output 'loss'");
    std::set<std::string> seen;
    for (const State &state : t.states) {
      const std::string what = state.kind + " " + state.name;
      if (!seen.insert(what).second)
        refuse("{} is there twice", what);
      checkState(what, state);
    }
    for (const auto &axes : t.communicators)
      checkAxes("communicators", axes, /*orMirrors=*/true);
  }

private:
  static int64_t bytesOf(heddle_rt_dtype dtype) {
    return kDtypeBytes[size_t(dtype)];
  }

  void checkNumbers() const {
    std::set<std::string> axes;
    int64_t ranks = 1;
    for (const auto &[axis, size] : t.mesh) {
      if (size < 1 || !axes.insert(axis).second)
        refuse("mesh axis '{}' of size {} is empty or there twice", axis, size);
      ranks = times("mesh", ranks, size);
      if (ranks > kMostRanks)
        refuse("mesh: found {} ranks, expected at most {}", ranks, kMostRanks);
    }
    const auto positive = [](const char *key, int64_t value) {
      if (value < 1)
        refuse("key '{}': found {}, expected at least 1", key, value);
    };
    positive("sequence_length", t.sequenceLength);
    positive("global_batch", t.globalBatch);
    positive("micro_batches", t.microBatches);
    positive("vocabulary_size", t.vocabularySize);
    if (t.globalBatch % t.microBatches != 0)
      refuse("global_batch {} is no multiple of micro_batches {}",
             t.globalBatch, t.microBatches);
    if (t.schedule.type != "constant" && t.schedule.type != "cosine")
      refuse("schedule.type is '{}', expected constant or cosine",
             t.schedule.type);
  }

  int64_t checkAxes(const std::string &what,
                    const std::vector<std::string> &axes,
                    bool orMirrors = false) const {
    int64_t parts = 1;
    for (const std::string &name : axes) {
      int64_t size = 0;
      for (const auto &[axis, n] : t.mesh)
        if (axis == name)
          size = n;
        else if (orMirrors && axis == mirroredAxis(name) && n % 2 == 0)
          size = 2;
      if (size == 0)
        refuse("{}: the mesh has no axis '{}'", what, name);
      parts = times(what, parts, size);
    }
    return parts;
  }

  void checkLayout(const std::string &what, const Layout &l) const {
    const size_t rank = l.shape.size();
    if (l.padded.size() != rank || l.local.size() != rank ||
        l.dims.size() != rank)
      refuse("{}: shape, padded, local and dims have {}, {}, {} and {} "
             "dimensions, expected the same",
             what, rank, l.padded.size(), l.local.size(), l.dims.size());
    std::set<std::string> used;
    for (size_t i = 0; i < rank; ++i) {
      const int64_t parts = checkAxes(what, l.dims[i]);
      for (const std::string &axis : l.dims[i])
        if (!used.insert(axis).second)
          refuse("{}: axis '{}' cuts twice", what, axis);
      if (l.shape[i] < 1 || l.padded[i] < l.shape[i] || l.local[i] < 1 ||
          times(what, l.local[i], parts) != l.padded[i])
        refuse("{}: dimension {} has shape {}, padded {}, local {} in {} "
               "parts, which do not fit",
               what, i, l.shape[i], l.padded[i], l.local[i], parts);
    }
  }

  /// Bytes that a rank holds of one instance, from its place on.
  int64_t checkRow(const std::string &what, const State &s) const {
    const int64_t block = product(what, s.layout.local);
    const int64_t runs = checkAxes(what, s.layout.runs);
    for (const std::string &axis : s.layout.runs)
      for (const auto &axes : s.layout.dims)
        if (std::find(axes.begin(), axes.end(), axis) != axes.end())
          refuse("{}: axis '{}' cuts twice", what, axis);
    const bool given = s.layout.row != 0;
    if (given && (s.layout.row < block || s.layout.row % runs != 0))
      refuse("{}: a row of {} elements for a block of {} in {} runs", what,
             s.layout.row, block, runs);
    if (!given && (!s.layout.runs.empty() || s.inRow))
      refuse("{}: runs of a row of no elements", what);
    const int64_t elements = !given    ? block
                             : s.inRow ? s.layout.row
                                       : s.layout.row / runs;
    return times(what, elements, bytesOf(s.dtype));
  }

  void checkByStage(const std::string &what,
                    const std::vector<int64_t> &byStage) const {
    if (!byStage.empty() && int64_t(byStage.size()) != t.numStages())
      refuse("{}: by_stage has {} numbers for {} stages", what, byStage.size(),
             t.numStages());
  }

  void checkPlace(const std::string &what, const Place &p, int64_t bytes,
                  int64_t stage) const {
    if (p.arena < 0 || size_t(p.arena) >= t.arenas.size())
      refuse("{}: arena {} of {}", what, p.arena, t.arenas.size());
    checkByStage(what, p.byStage);
    const Arena &arena = t.arenas[size_t(p.arena)];
    if (p.offsetAt(stage) < 0 ||
        bytes > arena.bytesAt(stage) - p.offsetAt(stage))
      refuse("{}: {} bytes at offset {} do not fit arena '{}' of {} bytes",
             what, bytes, p.offsetAt(stage), arena.name, arena.bytesAt(stage));
  }
  void checkPlaces(const std::string &what, const Place &p,
                   int64_t bytes) const {
    for (int64_t stage = 0; stage < t.numStages(); ++stage)
      checkPlace(what, p, bytes, stage);
  }

  void checkStages() const {
    if (t.stages.axis.empty())
      return;
    const int64_t stages = checkAxes("stages.axis", {t.stages.axis});
    if (int64_t(t.stages.layers.size()) != stages)
      refuse("stages.layers lists {} stages, axis '{}' has {}",
             t.stages.layers.size(), t.stages.axis, stages);
  }

  /// That all instances are on stages, and no others.
  void checkHeld(const std::string &what, const State &s) const {
    for (int64_t stage : s.heldBy)
      if (stage < 0 || stage >= t.numStages())
        refuse("{}: held_by names stage {} of {}", what, stage, t.numStages());
    // Where nothing is divided there is no list to check, nor to make.
    if (!s.isByLayer() || t.stages.axis.empty())
      return;
    std::vector<bool> held(size_t(s.layers), false);
    for (int64_t stage = 0; stage < t.numStages(); ++stage)
      for (int64_t layer : t.stages.layers[size_t(stage)]) {
        if (layer < 0 || layer >= s.layers)
          refuse("{}: stage {} holds layer {} of {}", what, stage, layer,
                 s.layers);
        held[size_t(layer)] = true;
      }
    for (int64_t layer = 0; layer < s.layers; ++layer)
      if (!held[size_t(layer)])
        refuse("{}: no stage holds layer {}", what, layer);
  }

  void checkState(const std::string &what, const State &s) const {
    checkLayout(what, s.layout);
    const bool family = s.isByLayer();
    if (s.layers < 1 || s.layers > kMostLayers || (!family && s.layers != 1))
      refuse("{}: {} layers of a name {} '{{}}'", what, s.layers,
             family ? "with" : "without");
    const int64_t bytes = checkRow(what, s);
    if (s.layers > 1 && s.layerStride < bytes)
      refuse("{}: layers of {} bytes lie {} bytes apart", what, bytes,
             s.layerStride);
    checkHeld(what, s);
    for (int64_t stage = 0; stage < t.numStages(); ++stage)
      if (const int64_t held = t.numInstancesAt(s, stage))
        checkPlace(what, s, times(what, held - 1, s.layerStride) + bytes,
                   stage);
    if (s.init.type != "normal" && s.init.type != "zeros" &&
        s.init.type != "ones")
      refuse("{}: initial values '{}', expected normal, zeros or ones", what,
             s.init.type);
    checkFile(what, s);
  }

  static void checkFile(const std::string &what, const State &s) {
    const size_t rank = s.layout.shape.size();
    std::vector<bool> seen(rank, false);
    bool permutation = s.file.order.empty() || s.file.order.size() == rank;
    for (int32_t i : s.file.order) {
      permutation = permutation && i >= 0 && size_t(i) < rank && !seen[i];
      if (permutation)
        seen[i] = true;
    }
    if (!permutation)
      refuse("{}: file.order {} is no permutation of {} dimensions", what,
             fmt::join(s.file.order, " "), rank);
    const int64_t there = product(what, s.file.shape),
                  here = product(what, s.layout.shape);
    if (there != here)
      refuse("{}: file.shape has {} elements, shape {}", what, there, here);
  }

  const Tables &t;
};

} // namespace

Tables decodeTables(std::string_view cbor) {
  const Result<DocumentValue> value = train::decodeCbor(cbor);
  if (!value)
    throw TablesError(value.message());
  Tables tables;
  Reader reader(*value, "");
  describe(reader, tables);
  reader.finish();
  Checker(tables).all();
  return tables;
}

std::string encodeTables(const Tables &tables) {
  std::string bytes;
  Writer writer;
  describe(writer, tables);
  writer.finish(bytes);
  return bytes;
}

} // namespace heddle::runtime
