#include "runtime/checkpoint/Checkpoint.h"

#include "heddle/Support/Printable.h"
#include "runtime/checkpoint/Checksum.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <set>

namespace heddle::checkpoint {

namespace {

/// Bytes that are read at once.
constexpr uint64_t kChunkBytes = uint64_t(4) << 20;

/// Checksum of `count` bytes from `offset` on; `whole` goes on with them.
Result<uint32_t> crcOf(const InputFile &in, uint64_t offset, uint64_t count,
                       uint32_t &whole) {
  std::vector<std::byte> chunk;
  uint32_t crc = 0;
  while (count > 0) {
    chunk.resize(size_t(std::min(count, kChunkBytes)));
    if (auto done = in.read(offset, chunk); !done)
      return done.error();
    crc = crc32c(chunk, crc);
    whole = crc32c(chunk, whole);
    offset += chunk.size();
    count -= chunk.size();
  }
  return crc;
}

} // namespace

std::string Checkpoint::nameOf(const Held &held) {
  return fmt::format("tensor '{}' ({})", *held.tensor, *held.role);
}

Result<Checkpoint> Checkpoint::open(const FileSystem &files,
                                    std::string folder) {
  Checkpoint c;
  c.files = &files;
  c.path = std::move(folder);
  const std::string manifest = c.path + "/manifest.json";
  const std::string commit = c.path + "/COMMIT";
  Result<std::string> text = readText(files, manifest);
  if (!text)
    return text.error();
  Result<std::string> line = readText(files, commit, 4096);
  if (!line)
    return line.error();
  if (auto done = checkCommit(*line, c.path, *text); !done)
    return done.error();
  Result<Manifest> read = parseManifest(*text, manifest);
  if (!read)
    return read.error();
  c.contents = std::move(*read);
  if (*line != commitText(c.contents, *text))
    return Error{fmt::format("{}: is of another checkpoint than {}: found "
                             "'{}', expected '{}'",
                             commit, manifest, printable(*line),
                             printable(commitText(c.contents, *text)))};
  const std::string name = c.path.substr(c.path.rfind('/') + 1);
  if (const auto step = stepOfFolder(name); step && *step != c.contents.step)
    return Error{fmt::format("{}: is the checkpoint of step {}", c.path,
                             c.contents.step)};
  Checkpoint found = of(files, std::move(c.path), std::move(c.contents));
  found.commit = std::move(*line);
  return found;
}

Result<void> Checkpoint::checkSame() const {
  if (commit.empty())
    return {};
  const std::string name = path + "/COMMIT";
  Result<std::string> line = readText(*files, name, 4096);
  if (!line)
    return line.error();
  if (*line != commit)
    return Error{fmt::format("{}: another checkpoint has taken its place while "
                             "this one was read; start again",
                             name)};
  return {};
}

Checkpoint Checkpoint::of(const FileSystem &files, std::string folder,
                          Manifest manifest) {
  Checkpoint c;
  c.files = &files;
  c.path = std::move(folder);
  c.contents = std::move(manifest);
  c.byFile.resize(c.contents.files.size());
  for (const auto &[tensor, states] : c.contents.tensors)
    for (const auto &[role, state] : states)
      for (const Extent &e : state.extents)
        c.byFile[size_t(e.file)].push_back({&tensor, &role, &state, &e});
  for (std::vector<Held> &held : c.byFile)
    std::sort(held.begin(), held.end(), [](const Held &a, const Held &b) {
      return a.extent->begin < b.extent->begin;
    });
  return c;
}

Result<void> Checkpoint::checkHeader(size_t f, const InputFile &in) const {
  const FileRecord &record = contents.files[f];
  const std::string name = path + "/" + record.name;
  const auto damaged = [&](const std::string &why) {
    return Error{fmt::format("{}: the header is damaged: {}", name, why)};
  };
  // Its size first: a manifest could name one that no memory has.
  std::byte begin[8] = {};
  if (record.bytes >= sizeof begin)
    if (auto done = in.read(0, begin); !done)
      return done;
  Result<uint64_t> bytes = safetensorsHeaderBytes(begin, record.bytes, name);
  if (!bytes)
    return damaged(bytes.message());
  if (*bytes != record.headerBytes)
    return damaged(
        fmt::format("found {} bytes, expected {}", *bytes, record.headerBytes));
  std::string header(*bytes, '\0');
  if (auto done = in.read(0, std::as_writable_bytes(std::span(header))); !done)
    return done;
  if (const uint32_t crc = crc32c(bytesOf(header)); crc != record.headerCrc)
    return damaged(fmt::format("found CRC-32C {:08x}, expected {:08x}", crc,
                               record.headerCrc));
  Result<SafetensorsHeader> read =
      readSafetensorsHeader(header, record.bytes, name);
  if (!read)
    return read.error();
  std::map<std::string, const TensorEntry *> byKey;
  for (const TensorEntry &entry : read->tensors)
    byKey[entry.name] = &entry;
  for (const Held &held : byFile[f]) {
    const Extent &e = *held.extent;
    const auto at = byKey.find(e.key);
    if (at == byKey.end() || at->second->type != held.state->type ||
        at->second->shape != e.box.size || at->second->begin != e.begin ||
        at->second->end != e.end)
      return Error{fmt::format("{}: {}: header and manifest.json differ at key "
                               "'{}'",
                               name, nameOf(held), printable(e.key))};
  }
  if (byFile[f].size() != byKey.size())
    return Error{fmt::format("{}: found {} keys, expected {}", name,
                             byKey.size(), byFile[f].size())};
  return {};
}

Result<void> Checkpoint::verifyFile(size_t f) const {
  const FileRecord &record = contents.files[f];
  const std::string name = path + "/" + record.name;
  Result<std::unique_ptr<InputFile>> in = files->open(name);
  if (!in)
    return in.error();
  if ((*in)->size() != record.bytes) {
    std::string cut;
    for (const Held &held : byFile[f])
      if (record.headerBytes + held.extent->end > (*in)->size() && cut.empty())
        cut = "; " + nameOf(held) + " is the first that is cut off";
    return Error{fmt::format("{}: found {} bytes, expected {}{}", name,
                             (*in)->size(), record.bytes, cut)};
  }
  if (auto done = checkHeader(f, **in); !done)
    return done;
  uint32_t whole = 0;
  if (auto crc = crcOf(**in, 0, record.headerBytes, whole); !crc)
    return crc.error();
  std::vector<std::string> damaged;
  for (const Held &held : byFile[f]) {
    const Extent *e = held.extent;
    Result<uint32_t> crc =
        crcOf(**in, record.headerBytes + e->begin, e->end - e->begin, whole);
    if (!crc)
      return crc.error();
    if (*crc != e->crc)
      damaged.push_back(fmt::format("{}: found CRC-32C {:08x}, expected {:08x}",
                                    nameOf(held), *crc, e->crc));
  }
  if (!damaged.empty())
    return Error{fmt::format("{}: {}; the data is damaged", name,
                             fmt::join(damaged, ", "))};
  if (whole != record.crc)
    return Error{fmt::format("{}: found CRC-32C {:08x} of the file, expected "
                             "{:08x}",
                             name, whole, record.crc)};
  return {};
}

Result<void> Checkpoint::verify() const {
  std::set<std::string> known;
  for (size_t f = 0; f < contents.files.size(); ++f) {
    known.insert(contents.files[f].name);
    if (auto done = verifyFile(f); !done)
      return done;
  }
  for (const char *folder : {"model", "optim"}) {
    Result<std::vector<Entry>> entries = files->list(path + "/" + folder);
    if (!entries)
      return entries.error();
    for (const Entry &entry : *entries)
      if (entry.name.ends_with(".safetensors") &&
          !known.contains(std::string(folder) + "/" + entry.name))
        return Error{fmt::format("{}/{}/{}: manifest.json does not list it",
                                 path, folder, entry.name)};
  }
  return {};
}

namespace {

/// A part that an extent has and a box wants, as lines of elements that are
/// neighbours in both.
class Lines {
public:
  Lines(const Box &part, const Box &extent, const Box &box)
      : size(part.size), from(size.size(), 1), into(size.size(), 1) {
    const size_t n = size.size();
    for (size_t d = n; d-- > 1;) {
      from[d - 1] = from[d] * extent.size[d];
      into[d - 1] = into[d] * box.size[d];
    }
    for (outer = n; outer > 0;) {
      --outer;
      length *= size[outer];
      if (size[outer] != extent.size[outer] || size[outer] != box.size[outer])
        break;
    }
    for (size_t d = 0; d < n; ++d) {
      start += (part.offset[d] - extent.offset[d]) * from[d];
      place += (part.offset[d] - box.offset[d]) * into[d];
      if (d < outer)
        count *= size[d];
    }
  }

  /// First element of line `i`, in the extent and in the box.
  std::pair<int64_t, int64_t> at(int64_t i) const {
    std::pair<int64_t, int64_t> line = {start, place};
    for (size_t d = outer; d-- > 0;) {
      line.first += i % size[d] * from[d];
      line.second += i % size[d] * into[d];
      i /= size[d];
    }
    return line;
  }
  /// Elements of the extent from one line to the next.
  int64_t step() const { return outer > 0 ? from[outer - 1] : length; }

  int64_t count = 1, length = 1;

private:
  const std::vector<int64_t> &size;
  std::vector<int64_t> from, into; ///< elements behind one step along each
  size_t outer;                    ///< dimensions before this number lines
  int64_t start = 0, place = 0;
};

} // namespace

Result<void> Checkpoint::readPart(const Extent &extent, int64_t width,
                                  const Box &part, const Box &box,
                                  std::span<std::byte> to) const {
  const FileRecord &record = contents.files[size_t(extent.file)];
  Result<std::unique_ptr<InputFile>> in = files->open(path + "/" + record.name);
  if (!in)
    return in.error();
  const Lines lines(part, extent.box, box);
  const auto bytes = size_t(lines.length * width);
  // Lines that are cut out of longer ones are read with what lies between,
  // unless that is most of it.
  const bool apart = lines.count == 1 || bytes >= kChunkBytes / 64 ||
                     lines.step() / lines.length > 64;
  std::vector<std::byte> chunk;
  uint64_t have = 0; // where the chunk begins
  const uint64_t base = record.headerBytes + extent.begin;
  for (int64_t i = 0; i < lines.count; ++i) {
    const auto [source, target] = lines.at(i);
    const uint64_t offset = uint64_t(source * width);
    std::byte *const line = to.data() + target * width;
    if (apart) {
      if (auto done = (*in)->read(base + offset, {line, bytes}); !done)
        return done;
      continue;
    }
    if (offset < have || offset + bytes > have + chunk.size()) {
      have = offset;
      chunk.resize(
          size_t(std::min(kChunkBytes, extent.end - extent.begin - offset)));
      if (auto done = (*in)->read(base + offset, chunk); !done)
        return done;
    }
    memcpy(line, chunk.data() + (offset - have), bytes);
  }
  return {};
}

Result<void> Checkpoint::read(const StateRecord &state, const Box &box,
                              std::span<std::byte> to) const {
  for (const Extent &extent : state.extents)
    if (const std::optional<Box> part = overlap(extent.box, box))
      if (auto done =
              readPart(extent, tensorTypeBytes(state.type), *part, box, to);
          !done)
        return done;
  return {};
}

Result<std::vector<int64_t>> listSteps(const FileSystem &files,
                                       const std::string &root) {
  Result<std::vector<Entry>> entries = files.list(root);
  if (!entries)
    return entries.error();
  std::vector<int64_t> steps;
  for (const Entry &entry : *entries)
    if (const auto step = stepOfFolder(entry.name))
      steps.push_back(*step);
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

Result<std::optional<Checkpoint>>
findNewest(const FileSystem &files, const std::string &root,
           const std::function<Result<void>(const Checkpoint &)> &isRight,
           const Warn &warn) {
  Result<std::vector<int64_t>> steps = listSteps(files, root);
  if (!steps)
    return steps.error();
  for (int64_t step : *steps) {
    Result<Checkpoint> found =
        Checkpoint::open(files, root + "/" + stepFolder(step));
    Result<void> right = found ? isRight(*found) : found.error();
    if (right)
      return std::optional(std::move(*found));
    warn(fmt::format("the checkpoint of step {} is left out: {}", step,
                     right.message()));
  }
  if (!steps->empty())
    return Error{fmt::format("{}: none of {} checkpoints is whole; nothing "
                             "was started, so that no one takes a new run "
                             "for the old one",
                             root, steps->size())};
  return std::optional<Checkpoint>();
}

} // namespace heddle::checkpoint
