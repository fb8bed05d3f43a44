#include "runtime/checkpoint/Convert.h"

#include "runtime/checkpoint/Reshard.h"

#include "heddle/Support/Document.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>

namespace heddle::checkpoint {

namespace {

/// A tensor that is written whole.
struct Whole {
  std::string key, name, role;
  const StateRecord *state;

  uint64_t bytes() const {
    uint64_t n = uint64_t(tensorTypeBytes(state->type));
    for (int64_t size : state->shape)
      n *= uint64_t(size);
    return n;
  }
};
using Wholes = std::vector<Whole>;

/// In the order of names, as many to a file as fit.
std::vector<Wholes> divide(const Wholes &all, uint64_t most) {
  std::vector<Wholes> parts;
  uint64_t bytes = 0;
  for (const Whole &whole : all) {
    if (parts.empty() || bytes + whole.bytes() > most) {
      parts.emplace_back();
      bytes = 0;
    }
    parts.back().push_back(whole);
    bytes += whole.bytes();
  }
  return parts;
}

std::string partName(const std::string &stem, size_t i, size_t count) {
  return count == 1
             ? stem + ".safetensors"
             : fmt::format("{}-{:05}-of-{:05}.safetensors", stem, i + 1, count);
}

/// Copies a tensor, some rows at a time.
Result<void> copyTensor(const Checkpoint &from, const Whole &whole,
                        TensorFile &to) {
  constexpr uint64_t kChunkBytes = uint64_t(64) << 20;
  Box box = {std::vector<int64_t>(whole.state->shape.size(), 0),
             whole.state->shape};
  const int64_t rows = box.size.empty() ? 1 : box.size[0];
  const uint64_t rowBytes = whole.bytes() / uint64_t(rows);
  const auto step = int64_t(
      std::max<uint64_t>(1, kChunkBytes / std::max<uint64_t>(rowBytes, 1)));
  std::vector<std::byte> chunk;
  for (int64_t first = 0; first < rows; first += step) {
    const int64_t count = std::min(step, rows - first);
    if (!box.size.empty()) {
      box.offset[0] = first;
      box.size[0] = count;
    }
    chunk.resize(size_t(rowBytes) * size_t(count));
    if (auto done = from.read(*whole.state, box, chunk); !done)
      return done;
    if (auto done = to.write(chunk); !done)
      return done;
  }
  return {};
}

/// Writes a file of whole tensors, and adds it to the manifest.
Result<void> writeWholes(FileSystem &files, const Checkpoint &from,
                         const std::string &folder, const std::string &name,
                         Wholes wholes, Manifest &manifest) {
  std::stable_sort(
      wholes.begin(), wholes.end(), [](const Whole &a, const Whole &b) {
        return tensorTypeBytes(a.state->type) > tensorTypeBytes(b.state->type);
      });
  std::vector<TensorEntry> entries;
  for (const Whole &whole : wholes)
    entries.push_back({whole.key, whole.state->type, whole.state->shape, 0, 0});
  const std::string header = safetensorsHeader(entries, {{"format", "pt"}});
  Result<TensorFile> to = TensorFile::create(files, folder, name, header);
  if (!to)
    return to.error();
  const auto number = int64_t(manifest.files.size());
  for (size_t i = 0; i < wholes.size(); ++i) {
    const Whole &whole = wholes[i];
    if (auto done = copyTensor(from, whole, *to); !done)
      return done;
    const Box box = {std::vector<int64_t>(whole.state->shape.size(), 0),
                     whole.state->shape};
    manifest.tensors[whole.name][whole.role] = {
        whole.state->type,
        whole.state->shape,
        {{number, whole.key, box, entries[i].begin, entries[i].end,
          to->takeCrc()}}};
  }
  Result<FileRecord> record = to->finish();
  if (!record)
    return record.error();
  manifest.files.push_back(*record);
  return {};
}

/// What another checkpoint of the same moment has of this one.
Manifest copyOf(const Manifest &from, const SaveName &name) {
  Manifest m = from;
  m.id = name.id;
  m.parent = from.id;
  m.step = name.step;
  m.files.clear();
  m.tensors.clear();
  return m;
}

/// Does the work between the two ends of a save.
Result<void> save(FileSystem &files, const SaveName &name, uint64_t bytes,
                  const std::function<Result<void>()> &work) {
  if (auto done = beginSave(files, name, bytes); !done)
    return done;
  Result<void> done = work();
  if (!done)
    abandonSave(files, name);
  return done;
}

uint64_t bytesOf(const Manifest &manifest) {
  uint64_t bytes = 0;
  for (const FileRecord &file : manifest.files)
    bytes += file.bytes;
  return bytes;
}

} // namespace

Result<void> writeLogical(FileSystem &files, const Checkpoint &from,
                          const SaveName &name, uint64_t most) {
  const Manifest &source = from.manifest();
  Wholes model, optim;
  for (const auto &[tensor, states] : source.tensors)
    for (const auto &[role, state] : states)
      if (role == "param")
        model.push_back({tensor, tensor, role, &state});
      else
        optim.push_back({role + "." + tensor, tensor, role, &state});
  return save(files, name, bytesOf(source), [&]() -> Result<void> {
    Manifest manifest = copyOf(source, name);
    manifest.profile = "logical";
    for (const auto &[stem, wholes] :
         {std::pair("model/model", &model), {"optim/optim", &optim}}) {
      const std::vector<Wholes> parts = divide(*wholes, most);
      for (size_t i = 0; i < parts.size(); ++i)
        if (auto done = writeWholes(files, from, name.temporary(),
                                    partName(stem, i, parts.size()), parts[i],
                                    manifest);
            !done)
          return done;
    }
    for (const char *folder : {"/model", "/optim"})
      if (auto done = files.syncFolder(name.temporary() + folder); !done)
        return done;
    return commitFolder(files, name, manifest);
  });
}

namespace {

/// What a rank of the program would copy for saving.
Result<std::vector<std::byte>> copyForRank(const Checkpoint &from,
                                           const runtime::Tables &tables,
                                           const RankPlan &plan) {
  std::vector<std::byte> copy(size_t(plan.copyBytes)), stored;
  Result<ReadPlan> reads = planReads(from.manifest(), tables, plan.rank);
  if (!reads)
    return reads.error();
  std::map<std::pair<const runtime::State *, int64_t>, const Wanted *> byPlace;
  for (const Wanted &wanted : reads->wanted)
    byPlace[{wanted.state, wanted.position}] = &wanted;
  for (const SavedItem &item : plan.items) {
    const Wanted &wanted = *byPlace.at({item.state, item.position});
    if (!wanted.source) // a moment before the first step
      continue;
    if (auto done = readWanted(from, wanted, stored); !done)
      return done.error();
    memcpy(copy.data() + item.offset, stored.data(), stored.size());
  }
  return copy;
}

} // namespace

Result<void> writeSharded(FileSystem &files, const Checkpoint &from,
                          const runtime::Tables &tables, const SaveName &name) {
  if (auto done = checkFits(from.manifest(), tables); !done)
    return done;
  return save(files, name, uint64_t(bytesOfSave(tables)),
              [&]() -> Result<void> {
                std::vector<std::vector<int64_t>> reports;
                for (int64_t rank = 0; rank < tables.ranks(); ++rank) {
                  Result<RankPlan> plan = planRank(tables, rank);
                  if (!plan)
                    return plan.error();
                  const auto copy = copyForRank(from, tables, *plan);
                  if (!copy)
                    return copy.error();
                  auto report = writeRank(files, name, *plan, *copy);
                  if (!report)
                    return report.error();
                  reports.push_back(std::move(*report));
                }
                Manifest manifest = copyOf(from.manifest(), name);
                manifest.profile = "sharded";
                manifest.program = tables.program;
                manifest.mesh = tables.mesh;
                return commitSave(files, name, tables, manifest, reports);
              });
}

//===----------------------------------------------------------------------===//
// Published folders
//===----------------------------------------------------------------------===//

namespace {

Result<void> writeHf(FileSystem &files, const Checkpoint &from,
                     const std::string &folder, const Wholes &wholes,
                     const std::string &config, uint64_t most) {
  Manifest written; // of which only the names and sizes are used
  const std::vector<Wholes> parts = divide(wholes, most);
  std::string map;
  uint64_t bytes = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string name = partName("model", i, parts.size());
    if (auto done = writeWholes(files, from, folder, name, parts[i], written);
        !done)
      return done;
    for (const Whole &whole : parts[i]) {
      map += fmt::format("{}\n    {}: {}", map.empty() ? "" : ",",
                         jsonString(whole.key), jsonString(name));
      bytes += whole.bytes();
    }
  }
  if (parts.size() > 1)
    if (auto done = writeText(
            files, folder + "/model.safetensors.index.json",
            fmt::format("{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},"
                        "\n  \"weight_map\": {{{}\n  }}\n}}\n",
                        bytes, map));
        !done)
      return done;
  if (!config.empty())
    if (auto done = writeText(files, folder + "/config.json", config); !done)
      return done;
  return files.syncFolder(folder);
}

} // namespace

Result<void> exportHf(FileSystem &files, const Checkpoint &from,
                      const std::string &folder,
                      const std::vector<std::string> &roles,
                      const std::string &config, uint64_t most) {
  Wholes wholes;
  for (const auto &[tensor, states] : from.manifest().tensors) {
    const StateRecord *state = nullptr;
    for (const std::string &role : roles)
      if (const auto at = states.find(role); !state && at != states.end())
        state = &at->second;
    if (!state)
      return Error{fmt::format("{}: tensor '{}' has no {}", from.folder(),
                               tensor, roles.front())};
    wholes.push_back({tensor, tensor, "param", state});
  }
  const std::string partial = folder + ".part-" + newId();
  if (auto done = files.makeFolder(partial); !done)
    return done;
  Result<void> done = writeHf(files, from, partial, wholes, config, most);
  if (done)
    done = files.rename(partial, folder);
  if (!done) {
    (void)removeTree(files, partial);
    return done;
  }
  const size_t slash = folder.rfind('/');
  return files.syncFolder(slash == 0 ? "/"
                          : slash == std::string::npos
                              ? "."
                              : folder.substr(0, slash));
}

} // namespace heddle::checkpoint
