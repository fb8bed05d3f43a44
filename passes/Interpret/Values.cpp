//===- Values.cpp - parameters and batches to run with --------------------===//

#include "passes/Interpret/Values.h"

#include "heddle/Runtime/Random.h"

#include <cmath>
#include <numeric>

using namespace mlir;
using namespace heddle;
using namespace heddle::interpret;
using transformer::Initializer;
using transformer::StateKind;
using transformer::StateOp;

std::string heddle::interpret::getInstanceName(StateOp state, int64_t layer) {
  std::string name = state.getSymName().str();
  if (size_t at = name.find("{}"); at != std::string::npos)
    name.replace(at, 2, std::to_string(layer));
  return name;
}

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

/// For each element in the order of the tensor, its flat index in the order of
/// the checkpoint, where dimension i of the tensor is dimension `order[i]`.
static std::vector<int64_t> fileIndices(ArrayRef<int64_t> shape,
                                        ArrayRef<int64_t> order) {
  SmallVector<int64_t> strides(shape.size(), 1);
  for (size_t dim = 0; dim < shape.size(); ++dim)
    for (size_t other = 0; other < shape.size(); ++other)
      if (order[other] > order[dim])
        strides[dim] *= shape[other];
  std::vector<int64_t> indices(1, 0);
  for (auto [size, step] : llvm::zip(shape, strides)) {
    std::vector<int64_t> longer;
    for (int64_t index : indices)
      for (int64_t i = 0; i < size; ++i)
        longer.push_back(index + i * step);
    indices = std::move(longer);
  }
  return indices;
}

Tensor heddle::interpret::makeTestParameter(StateOp state,
                                            RankedTensorType type,
                                            int64_t layer, uint64_t seed) {
  float mean = 0, deviation = 0.02f;
  Initializer initializer =
      state.getInitializer().value_or(Initializer::Normal);
  if (initializer == Initializer::Ones) {
    mean = 1;
    deviation = 0.1f;
  } else if (initializer == Initializer::Normal && state.getInitializerStd()) {
    deviation =
        static_cast<float>(state.getInitializerStd()->convertToDouble());
  }
  Tensor value = Tensor::zeros(type);
  SmallVector<int64_t> order =
      state.getFileOrder()
          ? SmallVector<int64_t>(*state.getFileOrder())
          : llvm::to_vector(llvm::seq<int64_t>(0, type.getRank()));
  uint64_t stream = random::nameHash(getInstanceName(state, layer));
  std::vector<int64_t> indices = fileIndices(type.getShape(), order);
  for (size_t i = 0; i < indices.size(); ++i)
    value.floats[i] =
        mean + deviation * random::normalAt(seed, stream, indices[i]);
  return value;
}

LogicalResult heddle::interpret::setParameter(Machine &machine,
                                              StateOp parameter, int64_t layer,
                                              const Tensor &value) {
  for (StateOp state : machine.getStates()) {
    bool isMaster = state.getKind() == StateKind::Master &&
                    state.getOf() == parameter.getSymName();
    if ((isMaster || state == parameter) &&
        failed(machine.setState(state.getSymName(), layer, value)))
      return failure();
  }
  return success();
}

LogicalResult heddle::interpret::setTestParameters(Machine &machine,
                                                   uint64_t seed) {
  for (StateOp state : machine.getStates()) {
    if (state.getKind() != StateKind::Parameter)
      continue;
    RankedTensorType type = machine.getWholeType(state);
    for (int64_t layer = 0; layer < machine.getCount(state); ++layer)
      if (failed(setParameter(machine, state, layer,
                              makeTestParameter(state, type, layer, seed))))
        return failure();
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Batches
//===----------------------------------------------------------------------===//

Batch heddle::interpret::makeTestBatch(int64_t sequences, int64_t length,
                                       int64_t vocabulary, uint64_t seed) {
  SmallVector<int64_t> shape = {sequences, length};
  Tensor none = Tensor::zeros(Tensor::Kind::Integer, shape);
  Batch batch = {none, none, none, none};
  uint64_t stream = random::nameHash(std::string("test batch"));
  uint64_t drawn = 0;
  auto draw = [&](int64_t below) -> int64_t {
    return random::wordAt(seed, stream, drawn++) % below;
  };
  for (int64_t &token : batch.tokens.integers)
    token = draw(vocabulary);
  for (int64_t i = 0; i < sequences; ++i) {
    int64_t second = i % 2 == 1 && length > 1 ? 1 + draw(length - 1) : length;
    for (int64_t s = 0; s < length; ++s) {
      int64_t at = i * length + s;
      bool last = s + 1 == length || s + 1 == second;
      batch.labels.integers[at] =
          last || draw(8) == 0 ? -100 : batch.tokens.integers[at + 1];
      batch.positions.integers[at] = s < second ? s : s - second;
      batch.documents.integers[at] = s < second ? 0 : 1;
    }
  }
  // Padding of the vocabulary begins behind its last entry: one label is that.
  auto counted = llvm::find_if(batch.labels.integers,
                               [](int64_t label) { return label >= 0; });
  if (counted != batch.labels.integers.end()) {
    *counted = vocabulary - 1;
    batch.tokens.integers[counted - batch.labels.integers.begin() + 1] =
        vocabulary - 1;
  }
  return batch;
}

/// `tensor` [m b, s] as m entries of [b, s].
static std::vector<Tensor> cutBatch(const Tensor &tensor,
                                    std::array<int64_t, 3> shape) {
  auto [count, sequences, length] = shape;
  std::vector<Tensor> entries;
  for (int64_t i = 0; i < count; ++i) {
    auto first = tensor.integers.begin() + i * sequences * length;
    entries.push_back(Tensor::ofIntegers({sequences, length},
                                         {first, first + sequences * length}));
  }
  return entries;
}

static FailureOr<func::FuncOp> findStep(const Machine &machine) {
  ModuleOp module = machine.getModule();
  auto step = module.lookupSymbol<func::FuncOp>("step");
  if (!step)
    return module.emitOpError() << "has no function @step to run";
  return step;
}

FailureOr<std::array<int64_t, 3>>
heddle::interpret::getBatchShape(const Machine &machine) {
  FailureOr<func::FuncOp> step = findStep(machine);
  if (failed(step))
    return failure();
  for (unsigned i = 0; i < step->getNumArguments(); ++i) {
    auto stack =
        dyn_cast<transformer::StackType>(getWholeArgumentType(*step, i));
    if (getArgumentName(*step, i) == "tokens" && stack &&
        stack.getElementType().getRank() == 2)
      return std::array<int64_t, 3>{stack.getCount(),
                                    stack.getElementType().getDimSize(0),
                                    stack.getElementType().getDimSize(1)};
  }
  return step->emitOpError()
         << "has no argument 'tokens' that is a stack of [sequences, length]";
}

FailureOr<int64_t> heddle::interpret::getVocabulary(ModuleOp module) {
  int64_t vocabulary = 0;
  module.walk([&](transformer::PickOp op) {
    dist::ShardAttr shard = dist::getShard(op, "v");
    vocabulary =
        shard ? shard.getExtent() : op.getInput().getType().getShape().back();
  });
  if (!vocabulary)
    return module.emitOpError() << "has no transformer.pick, so no vocabulary";
  return vocabulary;
}

/// 1 / (1 - beta^step) of AdamW's beta number `which`.
static FailureOr<double> findCorrection(ModuleOp module, int which,
                                        int64_t step) {
  std::optional<double> beta;
  module.walk([&](transformer::AdamWOp op) {
    beta = (which == 1 ? op.getBeta1() : op.getBeta2()).convertToDouble();
  });
  if (!beta)
    return module.emitOpError()
           << "takes bias corrections, but has no transformer.adamw";
  return 1 / (1 - std::pow(*beta, static_cast<double>(step)));
}

/// A power of two that no rounding of fp16 hides.
static constexpr double kLossScale = 1024;

double heddle::interpret::lossScaleOf(ModuleOp module) {
  auto step = module.lookupSymbol<func::FuncOp>("step");
  for (unsigned i = 0; step && i < step.getNumArguments(); ++i)
    if (getArgumentName(step, i) == transformer::kLossScale.str())
      return kLossScale;
  return 1;
}

FailureOr<Tensor> heddle::interpret::getUnscaled(Machine &machine,
                                                 transformer::StateOp state,
                                                 int64_t layer,
                                                 std::string *fault) {
  FailureOr<Tensor> tensor = machine.getState(state.getSymName(), layer, fault);
  if (succeeded(tensor) && state.getKind() == transformer::StateKind::Gradient)
    for (double &value : tensor->floats)
      value /= lossScaleOf(machine.getModule());
  return tensor;
}

static Tensor makeSeed(const StepSettings &settings, int64_t layer) {
  uint64_t seed = random::dropoutSeed(settings.seed, settings.step, layer);
  return Tensor::ofIntegers({}, {static_cast<int64_t>(seed)});
}

FailureOr<Inputs> heddle::interpret::makeStepInputs(const Machine &machine,
                                                    const Batch &batch,
                                                    StepSettings settings) {
  FailureOr<func::FuncOp> step = findStep(machine);
  FailureOr<std::array<int64_t, 3>> shape = getBatchShape(machine);
  if (failed(step) || failed(shape))
    return failure();
  std::vector<int64_t> expected = {(*shape)[0] * (*shape)[1], (*shape)[2]};
  std::map<std::string, const Tensor *> sequences = {
      {"tokens", &batch.tokens},
      {"labels", &batch.labels},
      {"positions", &batch.positions},
      {"documents", &batch.documents}};
  Inputs inputs;
  for (unsigned i = 0; i < step->getNumArguments(); ++i) {
    std::string name = getArgumentName(*step, i);
    if (auto found = sequences.find(name); found != sequences.end()) {
      if (!found->second->isInteger() || found->second->shape != expected)
        return step->emitOpError()
               << "takes " << expected[0] << " sequences of " << expected[1]
               << " for '" << name << "', got " << describe(*found->second);
      inputs[name] = cutBatch(*found->second, *shape);
    } else if (name == transformer::kTokenNumbers) {
      Tensor numbers = Tensor::zeros(Tensor::Kind::Integer, expected);
      std::iota(numbers.integers.begin(), numbers.integers.end(), 0);
      inputs[name] = cutBatch(numbers, *shape);
    } else if (name == transformer::kDropoutSeed) {
      inputs[name] = {makeSeed(settings, -1)};
    } else if (name == transformer::kLayerDropoutSeeds) {
      for (int64_t layer = 0; layer < machine.countLayers(); ++layer)
        inputs[name].push_back(makeSeed(settings, layer));
    } else if (name == transformer::kLossScale) {
      inputs[name] = {Tensor::scalar(lossScaleOf(machine.getModule()))};
    } else if (name == transformer::kStep) {
      inputs[name] = {Tensor::ofIntegers({}, {settings.step})};
    } else if (name == "learning_rate") {
      inputs[name] = {Tensor::scalar(settings.learningRate)};
    } else if (name == "bias_correction1" || name == "bias_correction2") {
      FailureOr<double> correction =
          findCorrection(machine.getModule(), name.back() - '0', settings.step);
      if (failed(correction))
        return failure();
      inputs[name] = {Tensor::scalar(*correction)};
    } else {
      return step->emitOpError()
             << "has an argument '" << name << "' that no setting gives";
    }
  }
  return inputs;
}
