#include "runtime/train/States.h"

#include "heddle/Runtime/Formats.h"
#include "heddle/Runtime/Random.h"

#include "runtime/common/Status.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>

namespace heddle::train {

using runtime::State;
using runtime::Tables;

Result<Weights> Weights::open(const std::string &path) {
  Weights weights;
  weights.path = path;
  std::vector<std::filesystem::path> paths = {path};
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    paths.clear();
    for (const auto &entry : std::filesystem::directory_iterator(path, ignored))
      if (entry.path().extension() == ".safetensors")
        paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    if (paths.empty())
      return Error{fmt::format("{}: the folder has no .safetensors", path)};
  }
  for (const auto &each : paths) {
    Result<SafetensorsFile> file = SafetensorsFile::open(each);
    if (!file)
      return file.error();
    weights.files.push_back(std::move(*file));
  }
  return weights;
}

Weights::Found Weights::find(const std::string &name) const {
  for (const SafetensorsFile &file : files)
    if (const TensorEntry *tensor = file.find(name))
      return {&file, tensor};
  return {};
}

Result<void> Weights::check(const Tables &tables) const {
  for (const State &state : tables.states) {
    if (state.kind != "parameter")
      continue;
    for (int64_t i = 0; i < state.layers; ++i) {
      const std::string name = state.instanceName(i);
      const Found found = find(name);
      if (!found.tensor)
        return Error{fmt::format("{}: there is no tensor '{}'", path, name)};
      if (found.tensor->shape != state.file.shape)
        return Error{fmt::format("{}: {}: found shape [{}], expected [{}]",
                                 found.file->path(), name,
                                 fmt::join(found.tensor->shape, ", "),
                                 fmt::join(state.file.shape, ", "))};
      const TensorType type = found.tensor->type;
      if (type != TensorType::F32 && type != TensorType::BF16 &&
          type != TensorType::F16)
        return Error{fmt::format("{}: {}: found {}, expected F32, BF16 or F16",
                                 found.file->path(), name,
                                 tensorTypeName(type))};
    }
  }
  return {};
}

std::vector<std::string> Weights::unused(const Tables &tables) const {
  std::set<std::string> used;
  for (const State &state : tables.states)
    for (int64_t i = 0; state.kind == "parameter" && i < state.layers; ++i)
      used.insert(state.instanceName(i));
  std::vector<std::string> rest;
  for (const SafetensorsFile &file : files)
    for (const TensorEntry &tensor : file.tensors())
      if (!used.contains(tensor.name))
        rest.push_back(tensor.name);
  return rest;
}

namespace {

template <class T>
void widenRun(const std::byte *bytes, int64_t first, int64_t count, float *to) {
  for (int64_t i = 0; i < count; ++i) {
    T value;
    memcpy(&value, bytes + (first + i) * int64_t(sizeof(T)), sizeof(T));
    to[i] = float(widen(value));
  }
}

void readRun(const Weights::Found &found, int64_t first, int64_t count,
             float *to) {
  const std::byte *bytes = found.file->bytes(*found.tensor).data();
  switch (found.tensor->type) {
  case TensorType::BF16:
    return widenRun<bf16>(bytes, first, count, to);
  case TensorType::F16:
    return widenRun<f16>(bytes, first, count, to);
  default:
    return widenRun<float>(bytes, first, count, to);
  }
}

/// A master begins as its parameter does, in its own format.
bool isParameter(const State &state) {
  return state.kind == "parameter" || state.kind == "master";
}

/// values = mean + std * normal.
struct Distribution {
  float mean, std;
};
Distribution distributionOf(const State &state, bool testInit) {
  const bool random = testInit && isParameter(state);
  if (state.init.type == "normal")
    return {0, float(state.init.std)};
  if (state.init.type == "ones")
    return {1, random ? 0.1f : 0.0f};
  return {0, random ? 0.02f : 0.0f};
}

void drawRun(const Distribution &d, uint64_t seed, uint64_t stream,
             int64_t first, int64_t count, float *to) {
  if (d.std == 0)
    return std::fill_n(to, count, d.mean), void();
  random::normalFill(seed, stream, uint64_t(first), count, to);
  for (int64_t i = 0; i < count; ++i)
    to[i] = ::fmaf(d.std, to[i], d.mean);
}

template <class T>
std::vector<T> narrowed(const float *values, int64_t count) {
  std::vector<T> to(static_cast<size_t>(count));
  for (size_t i = 0; i < to.size(); ++i)
    narrow(values[i], to[i]);
  return to;
}

/// Writes `count` values to a place of the rank.
heddle_rt_status uploadValues(Rank &rank, const State &state,
                              const runtime::Place &place, const float *from,
                              int64_t count) {
  switch (state.dtype) {
  case HEDDLE_RT_F32:
    return rank.upload(place, from, count * 4);
  case HEDDLE_RT_BF16:
    return rank.upload(place, narrowed<bf16>(from, count).data(), count * 2);
  case HEDDLE_RT_F16:
    return rank.upload(place, narrowed<f16>(from, count).data(), count * 2);
  default:
    return runtime::invalid("{} {}: a state of this dtype cannot be filled",
                            state.kind, state.name);
  }
}

template <class T>
heddle_rt_status downloadAs(Rank &rank, const runtime::Place &place,
                            std::vector<float> &values) {
  std::vector<T> raw(values.size());
  HEDDLE_RT_TRY(
      rank.download(raw.data(), place, int64_t(raw.size() * sizeof(T))));
  for (size_t i = 0; i < raw.size(); ++i)
    values[i] = float(widen(raw[i]));
  return HEDDLE_RT_OK;
}
} // namespace

heddle_rt_status downloadStored(Rank &rank, const State &state, int64_t i,
                                const Extents &extents,
                                std::vector<float> &stored) {
  const runtime::Place place = instancePlace(state, i, extents, rank.stage);
  stored.resize(size_t(extents.storedElements()));
  switch (state.dtype) {
  case HEDDLE_RT_F32: // as it is: tensors may be as large as memory allows
    return rank.download(stored.data(), place, int64_t(stored.size() * 4));
  case HEDDLE_RT_BF16:
    return downloadAs<bf16>(rank, place, stored);
  case HEDDLE_RT_F16:
    return downloadAs<f16>(rank, place, stored);
  default:
    return runtime::invalid("{} {}: a state of this dtype cannot be written",
                            state.kind, state.name);
  }
}

heddle_rt_status uploadStored(Rank &rank, const State &state, int64_t i,
                              const Extents &extents,
                              const std::vector<float> &stored) {
  return uploadValues(rank, state, instancePlace(state, i, extents, rank.stage),
                      stored.data(), int64_t(stored.size()));
}

heddle_rt_status withInfinity(Rank &rank,
                              const std::function<heddle_rt_status()> &step) {
  for (const State &state : rank.tables.states) {
    const Extents extents = extentsOf(rank.tables, rank.rank, state);
    if (state.kind != "parameter" || extents.storedElements() == 0 ||
        rank.tables.numInstancesAt(state, rank.stage) == 0)
      continue;
    std::vector<float> before;
    HEDDLE_RT_TRY(downloadStored(rank, state, 0, extents, before));
    // All of it: a step may not read the embedding of one token.
    HEDDLE_RT_TRY(uploadStored(
        rank, state, 0, extents,
        std::vector<float>(before.size(),
                           std::numeric_limits<float>::infinity())));
    HEDDLE_RT_TRY(step());
    HEDDLE_RT_TRY(rank.synchronize());
    return uploadStored(rank, state, 0, extents, before);
  }
  return step();
}

namespace {
/// Draws or reads what the rank stores of one instance, named so.
void makeStored(const Rank &rank, const Extents &extents,
                const std::string &name, const Weights::Found &found,
                const Distribution &distribution, std::vector<float> &block) {
  const int64_t end = extents.storedBegin() + extents.storedElements();
  block.assign(size_t(std::max(extents.blockElements(), end)), 0);
  std::vector<float> run(size_t(extents.runElements()));
  const uint64_t stream = random::nameHash(name);
  for (int64_t r = 0; r < extents.runCount(); ++r) {
    const int64_t first = extents.runStart(r);
    if (found.tensor)
      readRun(found, first, extents.runElements(), run.data());
    else
      drawRun(distribution, uint64_t(rank.tables.seed), stream, first,
              extents.runElements(), run.data());
    extents.toBlock(r, run.data(), block.data());
  }
}
} // namespace

heddle_rt_status fillStates(Rank &rank, const Weights *weights, bool testInit) {
  std::vector<float> block;
  for (const State &state : rank.tables.states) {
    const Extents extents = extentsOf(rank.tables, rank.rank, state);
    const Distribution distribution = distributionOf(state, testInit);
    int64_t i = 0;
    for (int64_t layer : rank.tables.instancesAt(state, rank.stage)) {
      const std::string name = state.instanceName(layer);
      Weights::Found found;
      if (weights && isParameter(state))
        found = weights->find(name);
      makeStored(rank, extents, name, found, distribution, block);
      HEDDLE_RT_TRY(uploadValues(
          rank, state, instancePlace(state, i++, extents, rank.stage),
          block.data() + extents.storedBegin(), extents.storedElements()));
    }
  }
  return HEDDLE_RT_OK;
}

} // namespace heddle::train
