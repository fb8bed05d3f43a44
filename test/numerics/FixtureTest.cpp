//===- FixtureTest.cpp - the step against PyTorch's numbers ---------------===//
//
// Loss, every gradient, and what the optimizer makes of them, in fp64, against
// what transformers and PyTorch computed (fixtures/README.md).
//
//===----------------------------------------------------------------------===//

#include "heddle/Support/Safetensors.h"
#include "passes/Autodiff/Passes.h"
#include "passes/Import/Import.h"
#include "passes/Interpret/Values.h"

#include "mlir/Pass/PassManager.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>

using namespace heddle;
using interpret::Machine;
using interpret::Tensor;
using transformer::StateKind;
using transformer::StateOp;

namespace {

constexpr double kTolerance = 1e-12;
constexpr double kRate = 0.1;

/// A fixture's folder, and into how many micro-batches its sequences are cut.
struct Case {
  std::string name;
  int64_t microBatches;
};

std::vector<double> readValues(const SafetensorsFile &file,
                               const TensorEntry &entry) {
  std::span<const std::byte> bytes = file.bytes(entry);
  std::vector<double> values(entry.elements());
  for (size_t i = 0; i < values.size(); ++i) {
    auto read = [&]<class T>(T number) {
      std::memcpy(&number, bytes.data() + i * sizeof(T), sizeof(T));
      return static_cast<double>(number);
    };
    values[i] = entry.type == TensorType::F64   ? read(double())
                : entry.type == TensorType::F32 ? read(float())
                                                : read(int32_t());
  }
  return values;
}

/// The logical tensor of a state from a checkpoint's bytes: logical dimension i
/// is dimension order[i] of the file's, cut into the logical sizes.
std::vector<double> toLogical(StateOp parameter,
                              const std::vector<double> &file) {
  llvm::ArrayRef<int64_t> shape = parameter.getTensorType().getShape();
  llvm::ArrayRef<int64_t> order = *parameter.getFileOrder();
  std::vector<int64_t> sizes(shape.size()), strides(shape.size(), 1);
  for (size_t i = 0; i < shape.size(); ++i)
    sizes[order[i]] = shape[i];
  for (size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * sizes[i];
  std::vector<double> logical(file.size());
  for (size_t flat = 0; flat < logical.size(); ++flat) {
    int64_t rest = flat, from = 0;
    for (size_t i = shape.size(); i-- > 0; rest /= shape[i])
      from += rest % shape[i] * strides[order[i]];
    logical[flat] = file[from];
  }
  return logical;
}

double norm(const std::vector<double> &values) {
  double sum = 0;
  for (double value : values)
    sum += value * value;
  return std::sqrt(sum);
}

class Fixture : public testing::TestWithParam<Case> {
protected:
  void SetUp() override {
    folder = std::filesystem::path(HEDDLE_SOURCE_DIR) /
             "test/numerics/fixtures" / GetParam().name;
    weights = open("weights.safetensors");
    expected = open("expected.safetensors");
    batch = readBatch();
  }

  std::unique_ptr<SafetensorsFile> open(const std::string &name) {
    auto file = SafetensorsFile::open(folder / name);
    EXPECT_TRUE(file) << (file ? "" : file.message());
    return file ? std::make_unique<SafetensorsFile>(std::move(*file)) : nullptr;
  }

  interpret::Batch readBatch() {
    std::unique_ptr<SafetensorsFile> file = open("batch.safetensors");
    const std::vector<int64_t> &shape = file->find("tokens")->shape;
    auto read = [&](const char *name, std::function<int64_t(int64_t)> other) {
      Tensor tensor = Tensor::zeros(Tensor::Kind::Integer, shape);
      const TensorEntry *entry = file->find(name);
      std::vector<double> values =
          entry ? readValues(*file, *entry) : std::vector<double>();
      for (int64_t i = 0; i < tensor.getNumElements(); ++i)
        tensor.integers[i] =
            entry ? static_cast<int64_t>(values[i]) : other(i % shape[1]);
      return tensor;
    };
    auto none = [](int64_t) { return int64_t(0); };
    return {read("tokens", none), read("labels", none),
            read("positions", [](int64_t i) { return i; }),
            read("documents", none)};
  }

  /// The step's module under `optimizer`, its parameters set.
  mlir::FailureOr<Machine> prepare(const OptimizerSettings &optimizer) {
    auto config = readModelConfig(folder / "config.json");
    EXPECT_TRUE(config) << (config ? "" : config.message());
    if (!config)
      return mlir::failure();
    const std::vector<int64_t> &shape = batch.tokens.shape;
    auto made = importModel(context, *config,
                            {shape[0] / GetParam().microBatches, shape[1],
                             GetParam().microBatches});
    if (failed(made))
      return mlir::failure();
    module = std::move(*made);
    setOptimizer(*module, optimizer);
    mlir::PassManager passes(&context);
    passes.addPass(createBuildBackwardPass());
    passes.addPass(createBuildStepPass());
    if (failed(passes.run(*module)))
      return mlir::failure();
    auto machine = Machine::create(*module);
    if (failed(machine))
      return mlir::failure();
    forEachParameter(*machine, [&](StateOp state, int64_t layer) {
      Tensor value = Tensor::ofFloats(state.getTensorType().getShape(),
                                      valueOf(*weights, state, layer));
      EXPECT_TRUE(
          succeeded(machine->setState(state.getSymName(), layer, value)));
    });
    return machine;
  }

  void forEachParameter(Machine &machine,
                        std::function<void(StateOp, int64_t)> body) {
    for (StateOp state : machine.getStates())
      if (state.getKind() == StateKind::Parameter)
        for (int64_t layer = 0; layer < machine.getCount(state); ++layer)
          body(state, layer);
  }

  std::vector<double> valueOf(const SafetensorsFile &file, StateOp state,
                              int64_t layer) {
    std::string name = interpret::getInstanceName(state, layer);
    const TensorEntry *entry = file.find(name);
    EXPECT_NE(entry, nullptr) << name;
    if (!entry)
      return {};
    EXPECT_EQ(entry->shape, std::vector<int64_t>(*state.getFileShape()))
        << name;
    return toLogical(state, readValues(file, *entry));
  }

  /// All numbers of a state that belongs to a parameter: "", ".gradient".
  std::vector<double> read(Machine &machine, StateOp parameter, int64_t layer,
                           const std::string &suffix) {
    auto tensor =
        machine.getState((parameter.getSymName() + suffix).str(), layer);
    EXPECT_TRUE(succeeded(tensor));
    return succeeded(tensor) ? tensor->floats : std::vector<double>();
  }

  /// Runs one step; the results by name.
  std::map<std::string, double> runStep(Machine &machine) {
    std::map<std::string, double> results;
    auto inputs = interpret::makeStepInputs(machine, batch, {kRate, 1});
    EXPECT_TRUE(succeeded(inputs));
    if (failed(inputs))
      return results;
    auto values = machine.run("step", *inputs);
    EXPECT_TRUE(succeeded(values));
    if (succeeded(values))
      for (const interpret::NamedValue &value : *values)
        results[value.name] =
            value.getTensor().isInteger()
                ? static_cast<double>(value.getTensor().integers.front())
                : value.getTensor().floats.front();
    return results;
  }

  double expectedNorm() {
    double squares = 0;
    for (const TensorEntry &entry : expected->tensors())
      if (entry.name != "loss")
        squares += std::pow(norm(readValues(*expected, entry)), 2);
    return std::sqrt(squares);
  }

  std::filesystem::path folder;
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::unique_ptr<SafetensorsFile> weights, expected;
  interpret::Batch batch;
};

/// Difference of two tensors relative to the second.
double relative(const std::vector<double> &found,
                const std::vector<double> &reference, double whole) {
  EXPECT_EQ(found.size(), reference.size());
  if (found.size() != reference.size())
    return 1;
  std::vector<double> difference(found);
  for (size_t i = 0; i < difference.size(); ++i)
    difference[i] -= reference[i];
  return norm(difference) / std::max(norm(reference), 1e-6 * whole);
}

TEST_P(Fixture, LossAndGradientsAreThoseOfPyTorch) {
  auto machine = prepare({.kind = OptimizerKind::Sgd, .lr = kRate});
  ASSERT_TRUE(succeeded(machine));
  std::map<std::string, double> results = runStep(*machine);

  double loss = readValues(*expected, *expected->find("loss")).front();
  EXPECT_NEAR(results["loss"], loss, kTolerance * loss);
  int64_t counted = llvm::count_if(batch.labels.integers,
                                   [](int64_t label) { return label >= 0; });
  EXPECT_EQ(results["count"], counted);
  double whole = expectedNorm();
  EXPECT_NEAR(results["gradient_norm"], whole, kTolerance * whole);

  size_t compared = 0;
  forEachParameter(*machine, [&](StateOp state, int64_t layer) {
    std::vector<double> gradient = valueOf(*expected, state, layer);
    EXPECT_LT(
        relative(read(*machine, state, layer, ".gradient"), gradient, whole),
        kTolerance)
        << interpret::getInstanceName(state, layer);
    std::vector<double> next = valueOf(*weights, state, layer);
    for (size_t i = 0; i < next.size(); ++i)
      next[i] -= kRate * gradient[i];
    EXPECT_LT(relative(read(*machine, state, layer, ""), next, 0), kTolerance)
        << interpret::getInstanceName(state, layer);
    ++compared;
  });
  EXPECT_EQ(compared + 1, expected->tensors().size()); // and the loss
}

TEST_P(Fixture, AdamWClipsAndDecays) {
  OptimizerSettings settings{.kind = OptimizerKind::AdamW,
                             .lr = kRate,
                             .betas = {0.9, 0.95},
                             .eps = 1e-3,
                             .weightDecay = 0.2,
                             .clipNorm = 0.5};
  auto machine = prepare(settings);
  ASSERT_TRUE(succeeded(machine));
  runStep(*machine);

  double factor = std::min(1.0, settings.clipNorm / (expectedNorm() + 1e-6));
  EXPECT_LT(factor, 1) << "the fixture's gradient is too small to be clipped";
  forEachParameter(*machine, [&](StateOp state, int64_t layer) {
    std::string name = interpret::getInstanceName(state, layer);
    bool decays = valueOf(*weights, state, layer).size() > 0 &&
                  name.find("norm") == std::string::npos &&
                  name.find("ln_") == std::string::npos &&
                  !llvm::StringRef(name).ends_with(".bias");
    std::vector<double> gradient = valueOf(*expected, state, layer);
    std::vector<double> next = valueOf(*weights, state, layer);
    for (size_t i = 0; i < next.size(); ++i) {
      double clipped = factor * gradient[i];
      // Both moments begin at zero, so that corrected they are the gradient
      // and its square.
      next[i] = next[i] * (decays ? 1 - kRate * settings.weightDecay : 1) -
                kRate * clipped / (std::abs(clipped) + settings.eps);
    }
    EXPECT_LT(relative(read(*machine, state, layer, ""), next, 0), 1e-8)
        << name;
  });
}

std::string nameOf(const testing::TestParamInfo<Case> &info) {
  std::string name = info.param.name;
  llvm::replace(name, '-', '_');
  return name + "_in_" + std::to_string(info.param.microBatches);
}

INSTANTIATE_TEST_SUITE_P(
    All, Fixture,
    testing::Values(Case{"llama", 1}, Case{"llama", 2}, Case{"llama", 4},
                    Case{"llama-packed", 1}, Case{"llama-rope-scaling", 1},
                    Case{"mistral", 3}, Case{"qwen2", 1}, Case{"qwen2", 3},
                    Case{"qwen3", 2}, Case{"gpt2", 1}, Case{"gpt2", 3}),
    nameOf);

} // namespace
