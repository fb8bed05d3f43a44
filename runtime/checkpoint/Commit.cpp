//===- Commit.cpp - The first rank's part of a save -----------------------===//

#include "runtime/checkpoint/Checksum.h"
#include "runtime/checkpoint/Save.h"

#include <fmt/format.h>

#include <algorithm>

namespace heddle::checkpoint {

namespace {

/// Adds what a rank has written to the manifest.
Result<void> addRank(const SaveName &name, const RankPlan &plan,
                     const std::vector<int64_t> &report, Manifest &manifest) {
  size_t next = 0;
  for (const SavedFile &file : plan.files) {
    if (next + 2 + file.extents.size() > report.size())
      return Error{fmt::format("the report of rank {} has {} numbers, which "
                               "are too few",
                               plan.rank, report.size())};
    std::vector<TensorEntry> entries;
    const std::string header = headerOf(name, plan, file, entries);
    FileRecord record;
    record.name = file.name;
    record.headerBytes = header.size();
    record.bytes = header.size() + (entries.empty() ? 0 : entries.back().end);
    record.headerCrc = uint32_t(report[next]);
    record.crc = uint32_t(report[next + 1]);
    next += 2;
    if (record.headerCrc != crc32c(bytesOf(header)))
      return Error{fmt::format("{}/{}: rank {} wrote another header than was "
                               "planned",
                               name.temporary(), file.name, plan.rank)};
    for (size_t i = 0; i < file.extents.size(); ++i) {
      const SavedExtent &e = file.extents[i];
      StateRecord &state = manifest.tensors[e.name][e.role];
      state.type = e.type;
      state.shape = e.shape;
      state.extents.push_back({int64_t(manifest.files.size()), e.key,
                               e.piece.box, entries[i].begin, entries[i].end,
                               uint32_t(report[next++])});
    }
    manifest.files.push_back(std::move(record));
  }
  return {};
}

/// What a run leaves when it ends, none of which is a checkpoint.
bool isLeftOver(const std::string &name) {
  return name.starts_with(".tmp-") || name.starts_with(".trash-") ||
         name.starts_with(".latest-");
}

/// For people. It can be behind, so nothing reads it.
Result<void> writeLatest(FileSystem &files, const SaveName &name) {
  const std::string partial = name.root + "/.latest-" + name.id;
  Result<std::unique_ptr<OutputFile>> file = files.create(partial);
  if (!file)
    return file.error();
  if (auto done = (*file)->write(bytesOf(stepFolder(name.step) + "\n")); !done)
    return done;
  if (auto done = (*file)->close(); !done)
    return done;
  return files.replace(partial, name.root + "/LATEST");
}

} // namespace

Result<void> beginSave(FileSystem &files, const SaveName &name,
                       uint64_t bytes) {
  Result<std::vector<Entry>> entries = files.list(name.root);
  if (!entries)
    return entries.error();
  for (const Entry &entry : *entries)
    if (entry.name == stepFolder(name.step))
      return Error{fmt::format("{}: is there already, expected no checkpoint "
                               "of this step",
                               name.final())};
  Result<uint64_t> left = files.freeBytes(name.root);
  if (!left)
    return left.error();
  if (*left < bytes)
    return Error{fmt::format("{}: found {} bytes free, expected {} for a "
                             "checkpoint; free some, or keep fewer (--keep)",
                             name.root, *left, bytes)};
  for (const char *folder : {"", "/model", "/optim"})
    if (auto done = files.makeFolder(name.temporary() + folder); !done)
      return done;
  return {};
}

void abandonSave(FileSystem &files, const SaveName &name) {
  (void)removeTree(files, name.temporary());
}

Result<void> commitFolder(FileSystem &files, const SaveName &name,
                          const Manifest &manifest) {
  const std::string folder = name.temporary();
  if (auto done = checkManifest(manifest, folder + "/manifest.json"); !done)
    return done;
  const std::string text = manifestText(manifest);
  if (auto done = writeText(files, folder + "/manifest.json", text); !done)
    return done;
  if (auto done =
          writeText(files, folder + "/COMMIT", commitText(manifest, text));
      !done)
    return done;
  if (auto done = files.syncFolder(folder); !done)
    return done;
  if (auto done = files.rename(folder, name.final()); !done)
    return done;
  return files.syncFolder(name.root);
}

Result<void> commitSave(FileSystem &files, const SaveName &name,
                        const runtime::Tables &tables, Manifest manifest,
                        const std::vector<std::vector<int64_t>> &reports) {
  manifest.id = name.id;
  manifest.step = name.step;
  for (int64_t rank = 0; rank < tables.ranks(); ++rank) {
    Result<RankPlan> plan = planRank(tables, rank);
    if (!plan)
      return plan.error();
    if (auto done = addRank(name, *plan, reports[size_t(rank)], manifest);
        !done)
      return done;
  }
  if (auto done = commitFolder(files, name, manifest); !done)
    return done;
  // It is committed; nothing depends on this.
  (void)writeLatest(files, name);
  return {};
}

Result<void> prepareRoot(FileSystem &files, const std::string &root) {
  Result<std::vector<Entry>> entries = files.list(root);
  if (!entries)
    return entries.error();
  for (const Entry &entry : *entries)
    if (isLeftOver(entry.name))
      if (auto done = entry.isFolder
                          ? removeTree(files, root + "/" + entry.name)
                          : files.removeFile(root + "/" + entry.name);
          !done)
        return done;
  return {};
}

Result<void> removeOld(FileSystem &files, const std::string &root, int64_t keep,
                       const std::vector<int64_t> &validSteps) {
  std::vector<int64_t> steps = validSteps;
  std::sort(steps.rbegin(), steps.rend());
  std::vector<std::string> trash;
  for (size_t i = size_t(keep); i < steps.size(); ++i) {
    trash.push_back(
        fmt::format("{}/.trash-{}-{}", root, stepFolder(steps[i]), newId()));
    if (auto done =
            files.rename(root + "/" + stepFolder(steps[i]), trash.back());
        !done)
      return done;
  }
  // A name that came back after a power loss would stand over missing files.
  if (!trash.empty())
    if (auto done = files.syncFolder(root); !done)
      return done;
  for (const std::string &folder : trash)
    if (auto done = removeTree(files, folder); !done)
      return done;
  return {};
}

} // namespace heddle::checkpoint
