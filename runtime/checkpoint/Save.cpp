#include "runtime/checkpoint/Save.h"

#include "runtime/checkpoint/Checksum.h"

#include "heddle/Support/Document.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <random>

namespace heddle::checkpoint {

using runtime::State;
using runtime::Tables;

namespace {

std::optional<TensorType> typeOf(heddle_rt_dtype dtype) {
  switch (dtype) {
  case HEDDLE_RT_F32:
    return TensorType::F32;
  case HEDDLE_RT_BF16:
    return TensorType::BF16;
  case HEDDLE_RT_F16:
    return TensorType::F16;
  default:
    return std::nullopt;
  }
}

/// By instance: stages that hold it, and where it lies there.
using Holders = std::vector<std::vector<std::pair<int64_t, int64_t>>>;

Holders holdersOf(const Tables &tables, const State &state) {
  Holders holders(size_t(state.layers));
  for (int64_t stage = 0; stage < tables.numStages(); ++stage) {
    int64_t position = 0;
    for (int64_t instance : tables.instancesAt(state, stage))
      holders[size_t(instance)].emplace_back(stage, position++);
  }
  return holders;
}

/// Larger elements first, then by name, as the format's own writer has them.
void sortExtents(SavedFile &file) {
  std::sort(file.extents.begin(), file.extents.end(),
            [](const SavedExtent &a, const SavedExtent &b) {
              return std::pair(-tensorTypeBytes(a.type), a.key) <
                     std::pair(-tensorTypeBytes(b.type), b.key);
            });
}

/// Adds what a rank writes of one instance.
void addInstance(RankPlan &plan, const State &state, int64_t instance,
                 int64_t position, const Share &share) {
  const TensorType type = *typeOf(state.dtype);
  const int64_t bytes = share.stored * tensorTypeBytes(type);
  plan.items.push_back({&state, position, plan.copyBytes, bytes});
  const bool isModel = state.kind == "parameter";
  const std::string name = state.instanceName(instance);
  for (size_t i = 0; i < share.pieces.size(); ++i) {
    const std::string file =
        fmt::format("{}/rank-{:05}{}.safetensors", isModel ? "model" : "optim",
                    plan.rank, i == 0 ? "" : fmt::format(".{}", i));
    auto at = std::find_if(plan.files.begin(), plan.files.end(),
                           [&](const SavedFile &f) { return f.name == file; });
    if (at == plan.files.end())
      at = plan.files.insert(at, {file, {}});
    at->extents.push_back({isModel ? name : state.kind + "." + name, name,
                           roleOf(state.kind), type, state.file.shape,
                           share.pieces[i], plan.copyBytes});
  }
  // Each copy begins where any element may.
  plan.copyBytes += (bytes + 7) / 8 * 8;
}

} // namespace

Result<RankPlan> planRank(const Tables &tables, int64_t rank) {
  RankPlan plan;
  plan.rank = rank;
  const int64_t stage = tables.stageOf(rank);
  int64_t number = 0; // of the instance, over all states
  for (const State &state : tables.states) {
    if (state.kind == "gradient")
      continue;
    if (!typeOf(state.dtype))
      return Error{fmt::format("tables.bin: {} {}: a state of this dtype "
                               "cannot be saved",
                               state.kind, state.name)};
    Result<Share> share = shareOf(tables, rank, state);
    if (!share)
      return share.error();
    const Holders holders = holdersOf(tables, state);
    for (int64_t i = 0; i < state.layers; ++i, ++number) {
      const auto &held = holders[size_t(i)];
      // Who writes goes round over all that have it.
      const int64_t turn = number % (int64_t(held.size()) * share->replicas);
      const auto [at, position] = held[size_t(turn / share->replicas)];
      if (at == stage && turn % share->replicas == share->replica &&
          !share->pieces.empty())
        addInstance(plan, state, i, position, *share);
    }
  }
  for (SavedFile &file : plan.files)
    sortExtents(file);
  return plan;
}

int64_t bytesOfSave(const Tables &tables) {
  int64_t bytes = 0;
  for (const State &state : tables.states) {
    int64_t elements = state.layers;
    for (int64_t size : state.file.shape)
      elements *= size;
    if (const auto type = typeOf(state.dtype); type && state.kind != "gradient")
      bytes += elements * tensorTypeBytes(*type);
  }
  return bytes;
}

std::string SaveName::temporary() const {
  return fmt::format("{}/.tmp-{}-{}", root, stepFolder(step), id);
}
std::string SaveName::final() const {
  return fmt::format("{}/{}", root, stepFolder(step));
}

std::string newId() {
  std::random_device source;
  std::string id;
  for (int i = 0; i < 4; ++i)
    id += fmt::format("{:08x}", source());
  return id;
}

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

Result<TensorFile> TensorFile::create(FileSystem &files,
                                      const std::string &folder,
                                      const std::string &name,
                                      std::string_view header, int attempt) {
  TensorFile to;
  to.files = &files;
  to.path = folder + "/" + name;
  to.partial = fmt::format("{}.part{}", to.path, attempt);
  Result<std::unique_ptr<OutputFile>> file = files.create(to.partial);
  if (!file)
    return file.error();
  to.file = std::move(*file);
  to.record.name = name;
  if (auto done = to.write(bytesOf(header)); !done) {
    to.giveUp();
    return done.error();
  }
  to.record.headerBytes = header.size();
  to.record.headerCrc = to.takeCrc();
  return to;
}

void TensorFile::giveUp() {
  file.reset();
  (void)files->removeFile(partial);
}

Result<void> TensorFile::write(std::span<const std::byte> bytes) {
  record.crc = crc32c(bytes, record.crc);
  extentCrc = crc32c(bytes, extentCrc);
  record.bytes += bytes.size();
  return file->write(bytes);
}

uint32_t TensorFile::takeCrc() { return std::exchange(extentCrc, 0); }

Result<FileRecord> TensorFile::finish() {
  if (auto done = file->sync(); !done)
    return done.error();
  if (auto done = file->close(); !done)
    return done.error();
  if (auto done = files->rename(partial, path); !done)
    return done.error();
  return record;
}

namespace {

/// What readers of other projects want.
std::map<std::string, std::string>
metadataOf(const SaveName &name, const RankPlan &plan, const SavedFile &file) {
  std::string offsets, shapes;
  for (const SavedExtent &e : file.extents) {
    const char *separator = offsets.empty() ? "" : ",";
    offsets +=
        fmt::format("{}{}:{{\"saved_offsets\":[{}]}}", separator,
                    jsonString(e.key), fmt::join(e.piece.box.offset, ","));
    shapes += fmt::format("{}{}:[{}]", separator, jsonString(e.key),
                          fmt::join(e.shape, ","));
  }
  return {{"format", "pt"},
          {"DCP_VERSION", "1.0"},
          {"DCP_SHARDING_INFO", "{" + offsets + "}"},
          {"ckpt_id", name.id},
          {"step", std::to_string(name.step)},
          {"writer_rank", std::to_string(plan.rank)},
          {"global_shapes", "{" + shapes + "}"}};
}

/// Bytes that are brought into order at once.
constexpr int64_t kChunkBytes = int64_t(4) << 20;

Result<void> writeExtent(TensorFile &to, const SavedExtent &e,
                         std::span<const std::byte> copy) {
  const int64_t width = tensorTypeBytes(e.type);
  const int64_t rowBytes = e.piece.box.elements() / e.piece.rows() * width;
  const int64_t rows = std::max<int64_t>(1, kChunkBytes / rowBytes);
  std::vector<std::byte> chunk;
  for (int64_t first = 0; first < e.piece.rows(); first += rows) {
    const int64_t count = std::min(rows, e.piece.rows() - first);
    chunk.resize(size_t(count * rowBytes));
    e.piece.gather(copy.data() + e.offset, width, first, count, chunk.data());
    if (auto done = to.write(chunk); !done)
      return done;
  }
  return {};
}

/// The file's part of the report.
Result<std::vector<int64_t>>
writeSavedFile(FileSystem &files, const SaveName &name, const RankPlan &plan,
               const SavedFile &file, std::span<const std::byte> copy,
               int attempt) {
  std::vector<TensorEntry> entries;
  Result<TensorFile> to =
      TensorFile::create(files, name.temporary(), file.name,
                         headerOf(name, plan, file, entries), attempt);
  if (!to)
    return to.error();
  std::vector<int64_t> crcs;
  for (const SavedExtent &e : file.extents) {
    if (auto done = writeExtent(*to, e, copy); !done) {
      to->giveUp();
      return done.error();
    }
    crcs.push_back(to->takeCrc());
  }
  Result<FileRecord> record = to->finish();
  if (!record) {
    to->giveUp();
    return record.error();
  }
  crcs.insert(crcs.begin(), {record->headerCrc, record->crc});
  return crcs;
}

} // namespace

std::string headerOf(const SaveName &name, const RankPlan &plan,
                     const SavedFile &file, std::vector<TensorEntry> &entries) {
  entries.clear();
  for (const SavedExtent &e : file.extents)
    entries.push_back({e.key, e.type, e.piece.box.size, 0, 0});
  return safetensorsHeader(entries, metadataOf(name, plan, file));
}

Result<std::vector<int64_t>> writeRank(FileSystem &files, const SaveName &name,
                                       const RankPlan &plan,
                                       std::span<const std::byte> copy) {
  std::vector<int64_t> report;
  for (const SavedFile &file : plan.files) {
    Result<std::vector<int64_t>> own =
        writeSavedFile(files, name, plan, file, copy, 0);
    if (!own)
      own = writeSavedFile(files, name, plan, file, copy, 1);
    if (!own)
      return own.error();
    report.insert(report.end(), own->begin(), own->end());
  }
  for (const char *folder : {"model", "optim"})
    if (auto done = files.syncFolder(name.temporary() + "/" + folder); !done)
      return done.error();
  return report;
}

} // namespace heddle::checkpoint
