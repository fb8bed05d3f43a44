#include "tools/heddle/Weights.h"

#include "heddle/Runtime/Formats.h"
#include "heddle/Support/Safetensors.h"
#include "passes/Interpret/Values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

namespace fs = std::filesystem;
using namespace heddle;
using namespace heddle::tool;
using interpret::Machine;
using interpret::Tensor;
using transformer::StateKind;
using transformer::StateOp;

namespace {
/// How a state stands in a checkpoint.
struct FileLayout {
  std::vector<int64_t> shape;
  std::vector<int64_t> indices; ///< of each element of the logical tensor
};
} // namespace

/// The parameter whose file form a state has: a gradient's is its parameter's.
static StateOp findParameter(Machine &machine, StateOp state) {
  if (!state.getOf())
    return state;
  for (StateOp other : machine.getStates())
    if (other.getSymName() == *state.getOf())
      return other;
  return state;
}

static FileLayout layoutOf(Machine &machine, StateOp given) {
  StateOp state = findParameter(machine, given);
  llvm::ArrayRef<int64_t> shape = machine.getWholeType(state).getShape();
  std::vector<int64_t> order(shape.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = int64_t(i);
  if (state.getFileOrder())
    order = state.getFileOrder()->vec();
  FileLayout layout;
  layout.shape = state.getFileShape() ? state.getFileShape()->vec()
                                      : std::vector<int64_t>(shape);
  layout.indices = {0};
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    int64_t stride = 1;
    for (size_t other = 0; other < shape.size(); ++other)
      if (order[other] > order[dim])
        stride *= shape[other];
    std::vector<int64_t> longer;
    longer.reserve(layout.indices.size() * shape[dim]);
    for (int64_t index : layout.indices)
      for (int64_t i = 0; i < shape[dim]; ++i)
        longer.push_back(index + i * stride);
    layout.indices = std::move(longer);
  }
  return layout;
}

template <class T>
static std::vector<double> widenAll(std::span<const std::byte> bytes) {
  std::vector<double> values(bytes.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = double(widen(value));
  }
  return values;
}

static Result<std::vector<double>> readFloats(const SafetensorsFile &file,
                                              const TensorEntry &entry) {
  switch (entry.type) {
  case TensorType::F32:
    return widenAll<float>(file.bytes(entry));
  case TensorType::F64:
    return widenAll<double>(file.bytes(entry));
  case TensorType::BF16:
    return widenAll<bf16>(file.bytes(entry));
  case TensorType::F16:
    return widenAll<f16>(file.bytes(entry));
  default:
    return Error{fmt::format("{}: {}: found {}, expected F32, F64, BF16 or F16",
                             file.path(), entry.name,
                             tensorTypeName(entry.type))};
  }
}

static Result<std::vector<SafetensorsFile>> openAll(const std::string &path) {
  std::vector<fs::path> paths = {path};
  std::error_code error;
  if (fs::is_directory(path, error)) {
    paths.clear();
    for (const auto &entry : fs::directory_iterator(path, error))
      if (entry.path().extension() == ".safetensors")
        paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    if (paths.empty())
      return Error{
          fmt::format("{}: found no .safetensors in the folder", path)};
  }
  std::vector<SafetensorsFile> files;
  for (const fs::path &each : paths) {
    Result<SafetensorsFile> file = SafetensorsFile::open(each);
    if (!file)
      return file.error();
    files.push_back(std::move(*file));
  }
  return files;
}

static Result<void> loadOne(Machine &machine, StateOp state, int64_t layer,
                            const std::vector<SafetensorsFile> &files,
                            const std::string &path) {
  std::string name = interpret::getInstanceName(state, layer);
  for (const SafetensorsFile &file : files) {
    const TensorEntry *entry = file.find(name);
    if (!entry)
      continue;
    FileLayout layout = layoutOf(machine, state);
    if (entry->shape != layout.shape)
      return Error{fmt::format("{}: {}: found shape [{}], expected [{}]",
                               file.path(), name, fmt::join(entry->shape, ", "),
                               fmt::join(layout.shape, ", "))};
    Result<std::vector<double>> values = readFloats(file, *entry);
    if (!values)
      return values.error();
    Tensor tensor = Tensor::zeros(machine.getWholeType(state));
    for (size_t i = 0; i < layout.indices.size(); ++i)
      tensor.floats[i] = (*values)[layout.indices[i]];
    if (failed(interpret::setParameter(machine, state, layer, tensor)))
      return Error{fmt::format("cannot set {}", name)};
    return {};
  }
  return Error{fmt::format(
      "{}: there is no tensor {}, a parameter of the model", path, name)};
}

Result<void> tool::loadParameters(Machine &machine, const std::string &path) {
  Result<std::vector<SafetensorsFile>> files = openAll(path);
  if (!files)
    return files.error();
  for (StateOp state : machine.getStates())
    for (int64_t layer = 0; state.getKind() == StateKind::Parameter &&
                            layer < machine.getCount(state);
         ++layer)
      if (auto ok = loadOne(machine, state, layer, *files, path); !ok)
        return ok;
  return {};
}

namespace {
/// One instance of a state and its name in the file.
struct Instance {
  StateOp state;
  int64_t layer;
  std::string name;
};
} // namespace

static std::vector<Instance>
listInstances(Machine &machine, const std::vector<StateKind> &kinds) {
  std::vector<Instance> instances;
  for (StateKind kind : kinds)
    for (StateOp state : machine.getStates())
      for (int64_t layer = 0;
           state.getKind() == kind && layer < machine.getCount(state); ++layer)
        instances.push_back({state, layer,
                             (kind == StateKind::Gradient ? "gradient." : "") +
                                 interpret::getInstanceName(
                                     findParameter(machine, state), layer)});
  return instances;
}

static Result<void> saveOne(Machine &machine, const Instance &instance,
                            SafetensorsWriter &writer) {
  StateOp state = instance.state;
  auto value = interpret::getUnscaled(machine, state, instance.layer);
  if (failed(value))
    return Error{fmt::format("{} has no one value", instance.name)};
  FileLayout layout = layoutOf(machine, state);
  std::vector<float> values(layout.indices.size());
  for (size_t i = 0; i < values.size(); ++i)
    values[layout.indices[i]] = float(value->floats[i]);
  return writer.write(instance.name,
                      std::as_bytes(std::span<const float>(values)));
}

Result<void>
tool::saveStates(Machine &machine, const std::vector<StateKind> &kinds,
                 const std::vector<std::pair<std::string, double>> &scalars,
                 const std::string &path) {
  std::vector<Instance> instances = listInstances(machine, kinds);
  std::vector<TensorEntry> entries;
  for (const Instance &instance : instances)
    entries.push_back({instance.name, TensorType::F32,
                       layoutOf(machine, instance.state).shape});
  for (const auto &[name, value] : scalars)
    entries.push_back({name, TensorType::F64, {}});
  Result<SafetensorsWriter> writer = SafetensorsWriter::create(path, entries);
  if (!writer)
    return writer.error();
  for (const Instance &instance : instances)
    if (auto ok = saveOne(machine, instance, *writer); !ok)
      return ok;
  for (const auto &[name, value] : scalars)
    if (auto ok = writer->write(
            name, std::as_bytes(std::span<const double>(&value, 1)));
        !ok)
      return ok;
  return writer->commit();
}
