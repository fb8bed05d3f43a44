//===- OpenHf.cpp - A published folder, seen as a checkpoint --------------===//

#include "runtime/checkpoint/Convert.h"

#include "heddle/Support/Document.h"
#include "heddle/Support/Printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>

namespace heddle::checkpoint {

namespace {

bool isPlainName(const std::string &name) {
  return !name.empty() && name[0] != '.' && isPrintable(name) &&
         name.find('/') == std::string::npos;
}

/// Tensor and file of each entry of the index.
Result<std::map<std::string, std::string>> readIndex(const FileSystem &files,
                                                     const std::string &path) {
  Result<std::string> text = readText(files, path, uint64_t(64) << 20);
  if (!text)
    return text.error();
  Result<DocumentValue> value = parseJson(*text, path);
  if (!value)
    return value.error();
  const DocumentValue *map = value->find("weight_map");
  if (!map || !map->isMap())
    return Error{fmt::format("{}: found no map 'weight_map'", path)};
  std::map<std::string, std::string> index;
  for (const DocumentValue::Entry &entry : map->entries) {
    if (entry.value.kind != DocumentValue::Kind::String ||
        !isPlainName(entry.value.text))
      return Error{fmt::format("{}:{}: found {} for '{}', expected the name of "
                               "a file in the folder",
                               path, entry.line, entry.value.describe(),
                               entry.key)};
    index[entry.key] = entry.value.text;
  }
  return index;
}

Result<void> addFile(const FileSystem &files, const std::string &folder,
                     const std::string &name, Manifest &manifest) {
  const std::string path = folder + "/" + name;
  Result<std::unique_ptr<InputFile>> in = files.open(path);
  if (!in)
    return in.error();
  std::byte begin[8] = {};
  const uint64_t size = (*in)->size();
  if (size >= 8)
    if (auto done = (*in)->read(0, begin); !done)
      return done;
  Result<uint64_t> bytes = safetensorsHeaderBytes(begin, size, path);
  if (!bytes)
    return bytes.error();
  std::string header(*bytes, '\0');
  if (auto done = (*in)->read(0, std::as_writable_bytes(std::span(header)));
      !done)
    return done;
  Result<SafetensorsHeader> read = readSafetensorsHeader(header, size, path);
  if (!read)
    return read.error();
  for (const TensorEntry &tensor : read->tensors) {
    if (tensor.elements() == 0)
      return Error{
          fmt::format("{}: tensor '{}' has no elements", path, tensor.name)};
    const Box box = {std::vector<int64_t>(tensor.shape.size(), 0),
                     tensor.shape};
    StateRecord state = {tensor.type,
                         tensor.shape,
                         {{int64_t(manifest.files.size()), tensor.name, box,
                           tensor.begin, tensor.end, 0}}};
    if (!manifest.tensors[tensor.name]
             .emplace("param", std::move(state))
             .second)
      return Error{fmt::format("{}: tensor '{}' is in another file too", path,
                               tensor.name)};
  }
  manifest.files.push_back({name, size, *bytes, 0, 0});
  return {};
}

} // namespace

Result<Checkpoint> openHf(const FileSystem &files, const std::string &folder) {
  Result<std::vector<Entry>> entries = files.list(folder);
  if (!entries)
    return entries.error();
  const std::string indexName = "model.safetensors.index.json";
  std::map<std::string, std::string> index;
  std::set<std::string> names;
  for (const Entry &entry : *entries) {
    if (entry.name.ends_with(".safetensors"))
      names.insert(entry.name);
    if (entry.name == indexName) {
      auto read = readIndex(files, folder + "/" + indexName);
      if (!read)
        return read.error();
      index = std::move(*read);
    }
  }
  if (!index.empty()) {
    names.clear();
    for (const auto &[tensor, file] : index)
      names.insert(file);
  }
  if (names.empty())
    return Error{fmt::format("{}: found no .safetensors", folder)};
  Manifest manifest;
  manifest.progress.optimizer.type = "none"; // nobody has trained it here
  manifest.id = std::string(32, '0');
  manifest.profile = "logical";
  for (const std::string &name : names)
    if (auto done = addFile(files, folder, name, manifest); !done)
      return done.error();
  for (const auto &[tensor, file] : index) {
    const auto at = manifest.tensors.find(tensor);
    if (at == manifest.tensors.end() ||
        manifest.files[size_t(at->second.at("param").extents[0].file)].name !=
            file)
      return Error{fmt::format("{}/{}: tensor '{}' is not in {}", folder,
                               indexName, tensor, file)};
  }
  if (!index.empty() && index.size() != manifest.tensors.size())
    for (const auto &[tensor, states] : manifest.tensors)
      if (!index.contains(tensor))
        return Error{fmt::format(
            "{}/{}: lists no tensor '{}', which is in {}", folder, indexName,
            tensor,
            manifest.files[size_t(states.at("param").extents[0].file)].name)};
  manifest.createdUnixNs =
      std::chrono::duration_cast<std::chrono::nanoseconds>(
          std::chrono::system_clock::now().time_since_epoch())
          .count();
  return Checkpoint::of(files, folder, std::move(manifest));
}

} // namespace heddle::checkpoint
