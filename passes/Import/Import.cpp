//===- Import.cpp - states, segments, and what the step needs to know -----===//

#include "passes/Import/Import.h"

#include "dialects/Transformer/Transformer.h"
#include "passes/Import/SegmentBuilder.h"

#include "mlir/IR/Verifier.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace heddle {

using namespace transformer;

/// Where shape and model contradict each other; "" where they do not.
static std::string findContradiction(const ModelConfig &config,
                                     const StepShape &shape) {
  for (auto [what, value] :
       {std::pair("sequences of a micro-batch", shape.sequences),
        std::pair("tokens of a sequence", shape.sequenceLength),
        std::pair("micro-batches", shape.microBatches)})
    if (value < 1)
      return llvm::formatv("the number of {0} must be at least 1, got {1}",
                           what, value);
  if (config.position == PositionKind::Learned &&
      shape.sequenceLength > config.maxPositions)
    return llvm::formatv("a sequence of {0} tokens is longer than the model's "
                         "{1} learned positions",
                         shape.sequenceLength, config.maxPositions);
  return "";
}

static transformer::Initializer initializerOf(heddle::Initializer::Kind kind) {
  switch (kind) {
  case heddle::Initializer::Kind::Normal:
    return transformer::Initializer::Normal;
  case heddle::Initializer::Kind::Ones:
    return transformer::Initializer::Ones;
  case heddle::Initializer::Kind::Zeros:
    return transformer::Initializer::Zeros;
  }
  llvm_unreachable("an initializer of the list");
}

static void createState(OpBuilder &builder, const ParameterFamily &family) {
  MLIRContext *context = builder.getContext();
  Location location = NameLoc::get(builder.getStringAttr(family.name));
  auto type = RankedTensorType::get(family.shape, builder.getF32Type());
  bool perLayer = family.name.find("{}") != std::string::npos;
  auto state = StateOp::create(
      builder, location, family.name, StateKind::Parameter,
      perLayer ? builder.getI64IntegerAttr(family.layers) : IntegerAttr(),
      type);
  state.setFactorsAttr(builder.getStringAttr(family.letters));
  state.setFileOrderAttr(DenseI64ArrayAttr::get(
      context, SmallVector<int64_t>(family.file.order.begin(),
                                    family.file.order.end())));
  state.setFileShapeAttr(DenseI64ArrayAttr::get(context, family.file.shape));
  state.setInitializerAttr(
      InitializerAttr::get(context, initializerOf(family.init.kind)));
  if (family.init.kind == heddle::Initializer::Kind::Normal)
    state.setInitializerStdAttr(builder.getF64FloatAttr(family.init.deviation));
  state.setDecay(family.decay);
}

FailureOr<OwningOpRef<ModuleOp>> importModel(MLIRContext &context,
                                             const ModelConfig &config,
                                             const StepShape &shape) {
  context
      .loadDialect<dist::DistDialect, func::FuncDialect, TransformerDialect>();
  OpBuilder builder(&context);
  Location location = NameLoc::get(builder.getStringAttr(config.name));
  if (std::string problem = findContradiction(config, shape); !problem.empty())
    return emitError(location) << problem;
  OwningOpRef<ModuleOp> module = ModuleOp::create(location);
  module.get()->setAttr(kMicroBatchesName,
                        builder.getI64IntegerAttr(shape.microBatches));
  builder.setInsertionPointToEnd(module->getBody());
  for (const ParameterFamily &family : parameters(config))
    createState(builder, family);
  importer::buildEmbedding(*module, config, shape);
  importer::buildBlock(*module, config, shape);
  importer::buildHead(*module, config, shape);
  if (failed(verify(*module)))
    return failure();
  return module;
}

void setOptimizer(ModuleOp module, const OptimizerSettings &settings) {
  Builder builder(module.getContext());
  NamedAttrList entries;
  auto set = [&](StringRef name, double value) {
    entries.set(name, builder.getF64FloatAttr(value));
  };
  entries.set("kind", builder.getStringAttr(optimizerName(settings.kind)));
  set("weight_decay", settings.weightDecay);
  if (settings.kind == OptimizerKind::AdamW) {
    set("beta1", settings.betas.first);
    set("beta2", settings.betas.second);
    set("epsilon", settings.eps);
  }
  if (settings.clipNorm > 0)
    set("clip_norm", settings.clipNorm);
  module->setAttr(kOptimizerName, entries.getDictionary(module.getContext()));
}

void setLossScaled(ModuleOp module) {
  module->setAttr(kLossScaledName, UnitAttr::get(module.getContext()));
}

} // namespace heddle
