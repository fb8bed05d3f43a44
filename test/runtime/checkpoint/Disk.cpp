#include "test/runtime/checkpoint/Disk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

using namespace heddle;
using namespace heddle::checkpoint;
using namespace heddle::test;

namespace heddle::test {

class DiskOutput final : public OutputFile {
public:
  DiskOutput(Disk &disk, std::string path, int inode)
      : disk(disk), path(std::move(path)), inode(inode) {}

  Result<void> write(std::span<const std::byte> bytes) override {
    if (auto done = disk.count(path); !done)
      return done;
    std::string text(reinterpret_cast<const char *>(bytes.data()),
                     bytes.size());
    const uint64_t left =
        disk.capacity ? *disk.capacity - std::min(*disk.capacity, disk.used())
                      : text.size();
    const bool isFull = left < text.size();
    text.resize(std::min<uint64_t>(left, text.size())); // what still fits
    disk.apply({Operation::Write, inode, "", "", -1, text});
    if (isFull)
      return Error{path + ": cannot be written: No space left on device"};
    return {};
  }
  Result<void> sync() override {
    if (auto done = disk.count(path); !done)
      return done;
    disk.apply({Operation::Sync, inode, "", "", -1, ""});
    return {};
  }
  Result<void> close() override { return disk.count(path); }

private:
  Disk &disk;
  std::string path;
  int inode;
};

} // namespace heddle::test

namespace {

class DiskInput final : public InputFile {
public:
  DiskInput(std::string path, const std::string &bytes)
      : path(std::move(path)), bytes(bytes) {}
  uint64_t size() const override { return bytes.size(); }
  Result<void> read(uint64_t offset, std::span<std::byte> to) const override {
    if (offset > bytes.size() || to.size() > bytes.size() - offset)
      return Error{path + ": ends before"};
    memcpy(to.data(), bytes.data() + offset, to.size());
    return {};
  }

private:
  std::string path, bytes;
};

Error cannot(const std::string &path, const char *why) {
  return {fmt::format("{}: cannot be changed: {}", path, why)};
}

} // namespace

std::optional<Disk::Place> Disk::find(const std::string &path) const {
  Place at = {0, "", 0};
  if (path == ".") // where relative paths begin
    return at;
  for (size_t from = 0; from < path.size();) {
    const size_t slash = std::min(path.find('/', from), path.size());
    if (at.inode < 0 || !inodes[size_t(at.inode)].isFolder)
      return std::nullopt;
    at.folder = at.inode;
    at.name = path.substr(from, slash - from);
    const auto &entries = inodes[size_t(at.folder)].entries;
    const auto found = entries.find(at.name);
    at.inode = found == entries.end() ? -1 : found->second;
    from = slash + 1;
  }
  return at;
}

Result<Disk::Place> Disk::place(const std::string &path, bool exists) const {
  const std::optional<Place> at = find(path);
  if (!at || (exists && at->inode < 0))
    return cannot(path, "No such file or directory");
  if (!exists && at->inode >= 0)
    return cannot(path, "File exists");
  return *at;
}

Result<void> Disk::count(const std::string &path) {
  const int64_t number = calls++;
  if (crashAt == number)
    throw Crash();
  if (failAt == number)
    return cannot(path, "Input/output error");
  return {};
}

void Disk::apply(const Operation &operation) {
  log.push_back(operation);
  Inode &inode = inodes[size_t(operation.inode)];
  switch (operation.kind) {
  case Operation::Link:
    inode.entries[operation.name] = operation.child;
    break;
  case Operation::Rename:
    inode.entries[operation.other] = inode.entries.at(operation.name);
    inode.entries.erase(operation.name);
    break;
  case Operation::Unlink:
    inode.entries.erase(operation.name);
    break;
  case Operation::Write:
    inode.bytes += operation.bytes;
    break;
  case Operation::Sync:
  case Operation::SyncFolder:
    break;
  }
}

int Disk::add(const Place &at, bool isFolder) {
  const int child = int(inodes.size());
  inodes.push_back({isFolder, {}, ""});
  apply({Operation::Link, at.folder, at.name, isFolder ? "/" : "", child, ""});
  return child;
}

uint64_t Disk::used() const {
  uint64_t bytes = 0;
  for (const Inode &inode : inodes)
    bytes += inode.bytes.size();
  return bytes;
}

Result<void> Disk::makeFolder(const std::string &path) {
  if (auto done = count(path); !done)
    return done;
  Result<Place> at = place(path, false);
  if (!at)
    return at.error();
  add(*at, true);
  return {};
}

Result<std::unique_ptr<OutputFile>> Disk::create(const std::string &path) {
  if (auto done = count(path); !done)
    return done.error();
  Result<Place> at = place(path, false);
  if (!at)
    return at.error();
  return std::unique_ptr<OutputFile>(
      new DiskOutput(*this, path, add(*at, false)));
}

Result<void> Disk::rename(const std::string &from, const std::string &to) {
  if (Result<Place> at = place(to, false); !at)
    return at.error();
  return replace(from, to);
}

Result<void> Disk::replace(const std::string &from, const std::string &to) {
  if (auto done = count(from); !done)
    return done;
  Result<Place> at = place(from, true);
  if (!at)
    return at.error();
  const std::optional<Place> target = find(to);
  if (!target || target->folder != at->folder)
    return cannot(to, "the disk of this test renames within a folder only");
  apply({Operation::Rename, at->folder, at->name, target->name, -1, ""});
  return {};
}

Result<void> Disk::removeFile(const std::string &path) {
  if (auto done = count(path); !done)
    return done;
  Result<Place> at = place(path, true);
  if (!at)
    return at.error();
  apply({Operation::Unlink, at->folder, at->name, "", -1, ""});
  inodes[size_t(at->inode)].bytes.clear(); // its space is free
  return {};
}

Result<void> Disk::removeFolder(const std::string &path) {
  if (auto done = count(path); !done)
    return done;
  Result<Place> at = place(path, true);
  if (!at)
    return at.error();
  if (!inodes[size_t(at->inode)].entries.empty())
    return cannot(path, "Directory not empty");
  apply({Operation::Unlink, at->folder, at->name, "", -1, ""});
  return {};
}

Result<void> Disk::syncFolder(const std::string &path) {
  if (auto done = count(path); !done)
    return done;
  Result<Place> at = place(path, true);
  if (!at)
    return at.error();
  apply({Operation::SyncFolder, at->inode, "", "", -1, ""});
  return {};
}

Result<std::unique_ptr<InputFile>> Disk::open(const std::string &path) const {
  Result<Place> at = place(path, true);
  if (!at)
    return at.error();
  if (inodes[size_t(at->inode)].isFolder)
    return cannot(path, "Is a directory");
  return std::unique_ptr<InputFile>(
      new DiskInput(path, inodes[size_t(at->inode)].bytes));
}

Result<std::vector<Entry>> Disk::list(const std::string &path) const {
  std::vector<Entry> entries;
  if (const auto at = find(path); at && at->inode >= 0)
    for (const auto &[name, child] : inodes[size_t(at->inode)].entries)
      entries.push_back({name, inodes[size_t(child)].isFolder});
  return entries;
}

Result<uint64_t> Disk::freeBytes(const std::string &) const {
  return capacity ? *capacity - std::min(*capacity, used()) : UINT64_MAX;
}

Result<std::unique_ptr<Lock>> Disk::lock(const std::string &) {
  return std::make_unique<Lock>();
}

void Disk::collect(int folder, const std::string &path,
                   std::map<std::string, std::string *> &to) {
  for (const auto &[name, child] : inodes[size_t(folder)].entries) {
    const std::string below = path.empty() ? name : path + "/" + name;
    if (inodes[size_t(child)].isFolder)
      collect(child, below, to);
    else
      to[below] = &inodes[size_t(child)].bytes;
  }
}

std::map<std::string, std::string *> Disk::files() {
  std::map<std::string, std::string *> all;
  collect(0, "", all);
  return all;
}

Disk Disk::afterPowerLoss(const std::vector<Operation> &log, size_t count,
                          Unflushed data, bool names, std::mt19937 *random) {
  std::map<int, std::vector<const Operation *>> named; // not flushed
  std::map<int, size_t> flushed;                       // bytes of a file
  std::map<int, std::string> written;
  Disk disk;
  const auto grow = [&](int inode, bool isFolder) {
    while (int(disk.inodes.size()) <= inode)
      disk.inodes.emplace_back();
    disk.inodes[size_t(inode)].isFolder = isFolder;
  };
  const auto keep = [&](const Operation &operation) {
    auto &entries = disk.inodes[size_t(operation.inode)].entries;
    if (operation.kind == Operation::Link)
      entries[operation.name] = operation.child;
    else
      entries.erase(operation.name);
    if (operation.kind == Operation::Rename)
      entries[operation.other] = operation.child;
  };
  std::map<int, std::map<std::string, int>> live; // to know what is renamed
  std::vector<Operation> resolved(log.begin(), log.begin() + int64_t(count));
  for (Operation &o : resolved) {
    switch (o.kind) {
    case Operation::Link:
      grow(o.child, o.other == "/");
      live[o.inode][o.name] = o.child;
      named[o.inode].push_back(&o);
      break;
    case Operation::Rename:
      o.child = live[o.inode][o.name];
      live[o.inode].erase(o.name);
      live[o.inode][o.other] = o.child;
      named[o.inode].push_back(&o);
      break;
    case Operation::Unlink:
      live[o.inode].erase(o.name);
      named[o.inode].push_back(&o);
      break;
    case Operation::Write:
      grow(o.inode, false);
      written[o.inode] += o.bytes;
      break;
    case Operation::Sync:
      flushed[o.inode] = written[o.inode].size();
      break;
    case Operation::SyncFolder:
      for (const Operation *name : named[o.inode])
        keep(*name);
      named[o.inode].clear();
      break;
    }
  }
  for (const auto &[folder, operations] : named)
    for (const Operation *name : operations)
      if (random ? (*random)() % 2 == 0 : names)
        keep(*name);
  for (auto &[inode, bytes] : written) {
    const size_t safe = flushed[inode];
    if (data == Unflushed::Lost)
      bytes.resize(safe);
    if (data == Unflushed::Torn && bytes.size() > safe)
      bytes.resize(safe + (bytes.size() - safe) / 2);
    if (data == Unflushed::Zero)
      std::fill(bytes.begin() + int64_t(safe), bytes.end(), '\0');
    disk.inodes[size_t(inode)].bytes = bytes;
  }
  return disk;
}
