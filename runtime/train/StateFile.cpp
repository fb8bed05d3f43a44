//===- StateFile.cpp - All ranks write one safetensors file ---------------===//
//
// The first rank writes the header beside the file's place; then every rank
// writes its share where it belongs; then the first renames. So nothing stands
// under the name before it is complete, and no rank holds a whole tensor.
//
//===----------------------------------------------------------------------===//

#include "runtime/train/States.h"

#include "runtime/common/Status.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <unistd.h>

namespace heddle::train {

using runtime::State;

namespace {

/// Where everything goes; the same on every rank.
struct Plan {
  struct Part {
    const State *state;
    int64_t instance;
    int64_t offset; ///< in the file
    float scale;    ///< what the values are divided by
  };
  std::string header; ///< with its size before it
  std::vector<Part> parts;
  int64_t scalarsAt = 0;
};

Plan planFile(const runtime::Tables &tables,
              const std::vector<SavedKind> &kinds,
              const std::vector<ScalarTensor> &scalars) {
  Plan plan;
  std::vector<TensorEntry> entries;
  for (const auto &[kind, prefix, scale] : kinds)
    for (const State &state : tables.states)
      for (int64_t i = 0; state.kind == kind && i < state.layers; ++i) {
        plan.parts.push_back({&state, i, 0, float(scale)});
        entries.push_back({prefix + state.instanceName(i), TensorType::F32,
                           state.file.shape, 0, 0});
      }
  for (const ScalarTensor &scalar : scalars)
    entries.push_back({scalar.name, scalar.type, {}, 0, 0});
  plan.header = safetensorsHeader(entries, {{"format", "pt"}});
  const auto start = int64_t(plan.header.size());
  for (size_t i = 0; i < plan.parts.size(); ++i)
    plan.parts[i].offset = start + int64_t(entries[i].begin);
  // The scalars are the last ones.
  plan.scalarsAt = start;
  if (!plan.parts.empty())
    plan.scalarsAt += int64_t(entries[plan.parts.size() - 1].end);
  return plan;
}

class File {
public:
  File(const std::string &path, int flags)
      : path(path), descriptor(::open(path.c_str(), flags, 0644)) {}
  ~File() {
    if (descriptor >= 0)
      ::close(descriptor);
  }
  File(const File &) = delete;
  File &operator=(const File &) = delete;

  heddle_rt_status opened() const {
    return descriptor >= 0 ? HEDDLE_RT_OK : failed("open");
  }
  heddle_rt_status write(const void *from, int64_t bytes, int64_t offset) {
    const char *next = static_cast<const char *>(from);
    while (bytes > 0) {
      const ssize_t done = ::pwrite(descriptor, next, size_t(bytes), offset);
      if (done < 0 && errno == EINTR)
        continue;
      if (done <= 0)
        return failed("write");
      next += done;
      offset += done;
      bytes -= done;
    }
    return HEDDLE_RT_OK;
  }
  heddle_rt_status flush() {
    return ::fsync(descriptor) == 0 ? HEDDLE_RT_OK : failed("flush");
  }

private:
  heddle_rt_status failed(const char *what) const {
    return runtime::invalid("{}: cannot {}: {}", path, what, strerror(errno));
  }

  std::string path;
  int descriptor;
};

/// Writes those elements of run `r` that the rank stores, neighbours together.
heddle_rt_status writePieces(const Extents &extents, int64_t r,
                             const std::vector<float> &stored, int64_t offset,
                             File &file) {
  std::vector<float> piece;
  int64_t first = 0;
  heddle_rt_status status = HEDDLE_RT_OK;
  const auto flush = [&] {
    if (!piece.empty() && status == HEDDLE_RT_OK)
      status = file.write(piece.data(), int64_t(piece.size()) * 4,
                          offset + (extents.runStart(r) + first) * 4);
    piece.clear();
  };
  extents.visitStored(r, [&](int64_t element, int64_t place) {
    if (element != first + int64_t(piece.size()))
      flush();
    if (piece.empty())
      first = element;
    piece.push_back(stored[size_t(place)]);
  });
  flush();
  return status;
}

/// Where an instance lies on a stage that writes it: the first one that has it.
/// None on others.
std::optional<int64_t> positionToWrite(const runtime::Tables &tables,
                                       const Plan::Part &part, int64_t stage) {
  for (int64_t s = 0; s <= stage; ++s) {
    const std::vector<int64_t> held = tables.instancesAt(*part.state, s);
    const auto found = std::find(held.begin(), held.end(), part.instance);
    if (found != held.end())
      return s == stage ? std::optional(found - held.begin()) : std::nullopt;
  }
  return std::nullopt;
}

heddle_rt_status writeShare(Rank &rank, const Plan &plan, File &file) {
  std::vector<float> stored, run;
  for (const Plan::Part &part : plan.parts) {
    const State &state = *part.state;
    const Extents extents = extentsOf(rank.tables, rank.rank, state);
    const auto position = positionToWrite(rank.tables, part, rank.stage);
    if (!extents.first() || !position)
      continue;
    run.resize(size_t(extents.runElements()));
    HEDDLE_RT_TRY(downloadStored(rank, state, *position, extents, stored));
    if (part.scale != 1)
      for (float &value : stored)
        value /= part.scale;
    for (int64_t r = 0; r < extents.runCount(); ++r) {
      if (extents.storesRun()) {
        HEDDLE_RT_TRY(writePieces(extents, r, stored, part.offset, file));
        continue;
      }
      extents.fromBlock(r, stored.data(), run.data());
      HEDDLE_RT_TRY(file.write(run.data(), extents.runElements() * 4,
                               part.offset + extents.runStart(r) * 4));
    }
  }
  return HEDDLE_RT_OK;
}

} // namespace

heddle_rt_status writeStates(Rank &rank, const std::string &path,
                             const std::vector<SavedKind> &kinds,
                             const std::vector<ScalarTensor> &scalars) {
  const Plan plan = planFile(rank.tables, kinds, scalars);
  const std::string partial = path + ".partial";
  if (rank.rank == 0) {
    File file(partial, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC);
    HEDDLE_RT_TRY(file.opened());
    HEDDLE_RT_TRY(
        file.write(plan.header.data(), int64_t(plan.header.size()), 0));
    int64_t at = plan.scalarsAt;
    for (const ScalarTensor &scalar : scalars) {
      HEDDLE_RT_TRY(
          file.write(scalar.bytes.data(), int64_t(scalar.bytes.size()), at));
      at += int64_t(scalar.bytes.size());
    }
  }
  HEDDLE_RT_TRY(rank.barrier());
  {
    File file(partial, O_WRONLY | O_CLOEXEC);
    HEDDLE_RT_TRY(file.opened());
    HEDDLE_RT_TRY(writeShare(rank, plan, file));
    HEDDLE_RT_TRY(file.flush());
  }
  HEDDLE_RT_TRY(rank.barrier());
  if (rank.rank == 0 && ::rename(partial.c_str(), path.c_str()) != 0)
    return runtime::invalid("{}: cannot rename to {}: {}", partial, path,
                            strerror(errno));
  return HEDDLE_RT_OK;
}

} // namespace heddle::train
