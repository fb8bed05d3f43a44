//===- RecomputeFaults.cpp - Wrong values computed again, after Recompute -===//

#include "tools/mutate/Fault.h"

#include "dialects/Transformer/Transformer.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::mutate;
using namespace heddle::transformer;

namespace {

class RecomputeFaults {
public:
  std::vector<Fault> find(ModuleOp module) {
    module.walk([&](Operation *op) {
      if (auto again = dyn_cast<RecomputeOp>(op)) {
        findInputs(again);
        findYielded(again);
      } else if (auto call = dyn_cast<CallByLayerOp>(op)) {
        findChoices(call);
      } else if (auto loop = dyn_cast<LoopOp>(op);
                 loop && module->hasAttr(kRecomputeName)) {
        findCollected(loop);
      }
    });
    return std::move(faults);
  }

private:
  void add(const char *kind, Operation *op, std::function<void()> plant,
           const std::string &how) {
    faults.push_back({kind, describe(op) + how, std::move(plant)});
  }

  /// What is computed again begins with another value.
  void findInputs(RecomputeOp again) {
    auto function = again->getParentOfType<func::FuncOp>();
    for (OpOperand &input : again->getOpOperands())
      for (BlockArgument argument : function.getArguments())
        if (argument.getType() == input.get().getType() &&
            !llvm::is_contained(again.getInputs(), argument))
          add(
              "compute again from another value", again,
              [&input, argument] { input.set(argument); },
              " operand " + std::to_string(input.getOperandNumber()) +
                  " from argument " + std::to_string(argument.getArgNumber()));
  }

  /// Another of the values that a region makes.
  void findYielded(RecomputeOp again) {
    YieldOp yield = again.getYield();
    for (OpOperand &value : yield->getOpOperands())
      for (Operation &op : again.getBody().front().without_terminator())
        for (Value other : op.getResults())
          if (other != value.get() && other.getType() == value.get().getType())
            add(
                "yield another value that is computed again", again,
                [&value, other] { value.set(other); },
                " result " + std::to_string(value.getOperandNumber()) + " as " +
                    getName(other).str());
  }

  /// A layer calls another function than it should, forward or backward.
  void findChoices(CallByLayerOp call) {
    SmallVector<int64_t> choices(call.getChoices());
    auto callees = static_cast<int64_t>(call.getCallees().size());
    for (size_t layer = 0; layer < choices.size(); ++layer) {
      SmallVector<int64_t> other = choices;
      other[layer] = (other[layer] + 1) % callees;
      add(
          "another layer's function", call,
          [call, other]() mutable { call.setChoices(other); },
          " layer " + std::to_string(layer));
    }
  }

  /// A layer saves another value of the type.
  void findCollected(LoopOp loop) {
    YieldOp yield = loop.getYield();
    for (auto [i, value] : llvm::enumerate(yield.getCollected()))
      for (auto [k, other] : llvm::enumerate(yield.getCollected()))
        if (i < k && value != other && value.getType() == other.getType())
          add(
              "save another value", loop,
              [yield, i = i, other = other]() mutable {
                yield.getCollectedMutable()[i].set(other);
              },
              " " + std::to_string(i) + " as " + std::to_string(k));
  }

  std::vector<Fault> faults;
};

} // namespace

std::vector<Fault> mutate::findRecomputeFaults(ModuleOp module) {
  return RecomputeFaults().find(module);
}
