//===- Pipelines.cpp - the whole compilation, in order --------------------===//
//
// Read top to bottom; it is the compiler.
//
//===----------------------------------------------------------------------===//

#include "passes/Pipelines/Pipelines.h"

#include "dialects/Transformer/Transformer.h"
#include "heddle/Plan/Scaling.h"
#include "passes/Autodiff/Passes.h"
#include "passes/Collectives/Passes.h"
#include "passes/Import/Import.h"
#include "passes/Lowering/Passes.h"
#include "passes/Memory/Passes.h"
#include "passes/Overlap/Passes.h"
#include "passes/Planning/ApplyPlan.h"
#include "passes/Planning/WriteTables.h"
#include "passes/Precision/Passes.h"
#include "passes/Recompute/Passes.h"
#include "passes/Sharding/Passes.h"
#include "passes/Stages/Passes.h"

#include "mlir/Pass/PassManager.h"

using namespace mlir;
using namespace heddle;

std::string heddle::phaseName(Phase phase) {
  static constexpr const char *kNames[] = {
      "import", "autodiff",  "sharding", "precision", "collectives",
      "stages", "recompute", "overlap",  "lowering",  "memory"};
  std::string number = std::to_string(static_cast<int>(phase) + 1);
  return std::string(2 - number.size(), '0') + number + "-" +
         kNames[static_cast<int>(phase)];
}

/// The forward functions of the model's segments, on whole tensors.
static FailureOr<OwningOpRef<ModuleOp>> import(MLIRContext &context,
                                               const CompileInput &input) {
  StepShape shape;
  shape.sequences = input.plan.axisSize("dp") * input.plan.microBatch;
  shape.sequenceLength = input.train.sequenceLength;
  shape.microBatches = input.plan.microBatches;
  shape.unfusedAttention = input.plan.attention == PlanAttention::Unfused;
  shape.savesMasks = input.plan.dropoutMasks == PlanMasks::Saved;
  const std::optional<ScalingRecipe> scaling = scalingOf(input.plan.precision);
  shape.hasNoise = scaling && scaling->roundsGradientsAtRandom;
  FailureOr<OwningOpRef<ModuleOp>> module =
      importModel(context, input.model, shape);
  if (succeeded(module))
    setOptimizer(**module, input.train.optimizer);
  if (succeeded(module) && input.plan.precision.scalesLoss())
    setLossScaled(**module);
  return module;
}

static void addPasses(Phase phase, PassManager &passes) {
  switch (phase) {
  case Phase::Import:
    break;
  case Phase::Autodiff:
    // Backward functions beside forward ones; then the step, as loops.
    passes.addPass(createBuildBackwardPass());
    passes.addPass(createBuildStepPass());
    break;
  case Phase::Sharding:
    // Copies of parameters that stay whole for longer than a call.
    passes.addPass(createKeepGatheredPass());
    // A layout in every type, of the plan's pins; no rule, no compilation.
    passes.addPass(createPropagateLayoutsPass());
    passes.addPass(createVerifyLayoutsPass());
    break;
  case Phase::Precision:
    // Formats other than f32, masters of parameters, casts around reductions.
    passes.addPass(createSetFormatsPass());
    passes.addPass(createVerifyFormatsPass());
    break;
  case Phase::Collectives:
    // One rank's program, with explicit collectives.
    passes.addPass(createPartitionPass());
    passes.addPass(createVerifyCollectivesPass());
    break;
  case Phase::Stages:
    // Slots of a schedule, where the plan has stages.
    passes.addPass(createCutStagesPass());
    // Weight gradients apart from input gradients, where the schedule asks.
    passes.addPass(createSplitBackwardPass());
    break;
  case Phase::Recompute:
    // What backward computes again instead of reading what forward saved.
    passes.addPass(createReplaceSavedPass());
    // Operands of narrow products become codes, where each product stands;
    // their scales are made of states where the plan delays them.
    passes.addPass(createQuantizeProductsPass());
    passes.addPass(createDelayScalesPass());
    break;
  case Phase::Overlap:
    // Gradients are reduced beside backward, those that go together as one.
    passes.addPass(createOverlapReductionsPass());
    passes.addPass(createBucketGradientsPass());
    break;
  case Phase::Lowering:
    // Buffers, kernels, products, streams and events.
    passes.addPass(createLowerToRtPass());
    break;
  case Phase::Memory:
    // An offset for every buffer.
    passes.addPass(createPlaceBuffersPass());
    // Proofs that know neither Lowering nor Memory: no two launches touch the
    // same bytes unordered, no live buffers overlap, no ranks wait for ever.
    passes.addPass(createVerifyOrderPass());
    passes.addPass(createVerifyArenasPass());
    passes.addPass(createVerifyLaunchesPass());
    break;
  }
}

static LogicalResult runPhase(Phase phase, ModuleOp module,
                              const CompileInput &input) {
  if (phase == Phase::Sharding &&
      failed(applyPlan(module, input.plan, input.model, input.train)))
    return failure();
  PassManager passes(module.getContext());
  addPasses(phase, passes);
  if (failed(passes.run(module)))
    return failure();
  // What the train main must know of the program: places, layouts, settings.
  return phase == Phase::Memory
             ? writeTables(module, input.plan, input.model, input.train)
             : success();
}

FailureOr<OwningOpRef<ModuleOp>>
heddle::compileUpTo(MLIRContext &context, const CompileInput &input, Phase last,
                    const PhaseObserver &observer) {
  FailureOr<OwningOpRef<ModuleOp>> module = import(context, input);
  if (failed(module))
    return failure();
  for (Phase phase : kPhases) {
    if (phase > last)
      break;
    if (failed(runPhase(phase, **module, input)))
      return failure();
    if (observer)
      observer(phase, **module);
  }
  return module;
}
