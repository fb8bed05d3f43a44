//===- Example.cpp - A plug-in: an op of one's own, a strategy of one's own
//===//
//
// Loaded with --load-dialect-plugin. README.md says what each part is for.
//
//===----------------------------------------------------------------------===//

#include "dialects/Dist/Dist.h"
#include "heddle/Plan/TensorForms.h"
#include "passes/Interpret/Rank.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Tools/Plugins/DialectPlugin.h"

#include "ExampleDialect.h.inc"

#define GET_OP_CLASSES
#include "ExampleOps.h.inc"

#include "ExampleDialect.cpp.inc"

#define GET_OP_CLASSES
#include "ExampleOps.cpp.inc"

using namespace mlir;
using namespace example;
using heddle::interpret::Frame;
using heddle::interpret::Tensor;

//===----------------------------------------------------------------------===//
// The op
//===----------------------------------------------------------------------===//

// Partial sums pass through a scaling; so tp's sum behind a row-parallel
// product may be taken behind it.
std::string LayerScaleOp::getFactorRule() {
  return "... d, d -> ... d; linear 0";
}

SmallVector<Value> LayerScaleOp::buildGradient(OpBuilder &builder,
                                               ArrayRef<Value> gradients) {
  return {LayerScaleOp::create(builder, getLoc(), getInput().getType(),
                               gradients[0], getScale()),
          LayerScaleGradOp::create(builder, getLoc(), getScale().getType(),
                                   gradients[0], getInput())};
}

// Where sequences or tokens are cut, each rank has a part of the sum.
std::string LayerScaleGradOp::getFactorRule() {
  return "... d, ... d -> d; sum ...; linear 0";
}

//===----------------------------------------------------------------------===//
// Its meaning
//===----------------------------------------------------------------------===//

static LogicalResult evaluate(LayerScaleOp op, Frame &frame) {
  Tensor result = frame.get(op.getInput());
  const Tensor &scale = frame.get(op.getScale());
  for (auto [i, value] : llvm::enumerate(result.floats))
    value *= scale.floats[i % scale.floats.size()];
  frame.set(op.getResult(), std::move(result));
  return success();
}

static LogicalResult evaluate(LayerScaleGradOp op, Frame &frame) {
  const Tensor &gradient = frame.get(op.getResultGradient()),
               &input = frame.get(op.getInput());
  Tensor result = Tensor::zeros(op.getResult().getType());
  heddle::interpret::inArithmeticOf(
      frame.getReading(op.getResult()), [&](auto zero) {
        using Real = decltype(zero); // double, or what sums are rounded to
        for (auto [i, value] : llvm::enumerate(input.floats)) {
          double &sum = result.floats[i % result.floats.size()];
          sum = Real(sum) + Real(value) * Real(gradient.floats[i]);
        }
      });
  frame.set(op.getResult(), std::move(result));
  return success();
}

namespace {
struct Meanings : heddle::interpret::EvaluatorInterface {
  using EvaluatorInterface::EvaluatorInterface;
  void addTo(heddle::interpret::Evaluators &evaluators) const override {
    evaluators.add<LayerScaleOp>(evaluate);
    evaluators.add<LayerScaleGradOp>(evaluate);
  }
};
} // namespace

void ExampleDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "ExampleOps.cpp.inc"
      >();
  addInterfaces<Meanings>();
}

//===----------------------------------------------------------------------===//
// The strategy
//===----------------------------------------------------------------------===//

/// `tensor: mlp_only`: of megatron's rules those that split the MLP. Attention,
/// embedding and head are computed alike on all ranks of tp.
static heddle::PlanTensor mlpOnly(const heddle::ModelConfig &model,
                                  const heddle::Plan &) {
  heddle::PlanTensor tensor;
  for (heddle::PlanRule rule : heddle::megatronRules(model)) {
    if (!rule.split.count("f"))
      rule.split.clear();
    tensor.parameters.push_back(rule);
  }
  return tensor;
}

//===----------------------------------------------------------------------===//
// The plug-in
//===----------------------------------------------------------------------===//

extern "C" LLVM_ATTRIBUTE_WEAK DialectPluginLibraryInfo
mlirGetDialectPluginInfo() {
  return {MLIR_PLUGIN_API_VERSION, "HeddleExample", "1",
          [](DialectRegistry *registry) {
            registry->insert<ExampleDialect>();
            if (auto added = heddle::addTensorForm("mlp_only", mlpOnly); !added)
              llvm::report_fatal_error(llvm::StringRef(added.message()));
          }};
}
