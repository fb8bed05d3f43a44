//===- BuildStep.cpp - the training step as rolled loops ------------------===//
//
// What the pass promises is written once, in Passes.td.
//
//===----------------------------------------------------------------------===//

#include "passes/Autodiff/Passes.h"
#include "passes/Autodiff/StepBuilder.h"

using namespace mlir;

namespace heddle {
#define GEN_PASS_DEF_BUILDSTEPPASS
#include "passes/Autodiff/Passes.h.inc"
} // namespace heddle

namespace heddle {
namespace {

using namespace transformer;
using autodiff::StepBuilder;

struct BuildStepPass : impl::BuildStepPassBase<BuildStepPass> {
  void runOnOperation() override {
    if (getOperation().lookupSymbol("step"))
      return;
    FailureOr<StepBuilder> builder = StepBuilder::get(getOperation());
    if (failed(builder) || failed(builder->build()))
      signalPassFailure();
  }
};

} // namespace
} // namespace heddle
