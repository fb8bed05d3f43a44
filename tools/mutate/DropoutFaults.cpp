//===- DropoutFaults.cpp - Wrong masks, after Collectives -----------------===//

#include "tools/mutate/Fault.h"

#include "dialects/Transformer/Transformer.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::mutate;
using namespace heddle::transformer;

namespace {

class DropoutFaults {
public:
  std::vector<Fault> find(ModuleOp module) {
    module.walk([&](Operation *op) {
      if (auto drop = dyn_cast<DropoutOp>(op)) {
        findRate(op, "rate");
        findSite(drop);
        findTokens(op, drop.getTokenNumbersMutable());
      } else if (auto attention = dyn_cast<AttentionOp>(op)) {
        findIn(attention);
      } else if (auto gradient = dyn_cast<AttentionGradOp>(op)) {
        findIn(gradient);
      } else if (auto call = dyn_cast<func::CallOp>(op)) {
        findSeed(call);
      }
    });
    return std::move(faults);
  }

private:
  void add(const char *kind, Operation *op, std::function<void()> plant,
           const std::string &how = "") {
    faults.push_back({kind, describe(op) + how, std::move(plant)});
  }

  template <class Op>
  void findIn(Op op) {
    if (!op.getDropoutAttr())
      return;
    findRate(op, "dropout");
    for (OpOperand &numbers : op.getTokenNumbersMutable())
      findTokens(op, numbers);
  }

  /// In forward alone or in backward alone.
  void findRate(Operation *op, StringRef name) {
    double rate = op->getAttrOfType<FloatAttr>(name).getValueAsDouble();
    add("change a dropout's rate", op, [op, name, rate] {
      op->setAttr(name, Builder(op->getContext()).getF64FloatAttr(rate / 2));
    });
  }

  void findSite(DropoutOp drop) {
    if (drop.getSite() == DropoutSite::Attention) // of another rank
      return;
    DropoutSite other = drop.getSite() == DropoutSite::MlpOutput
                            ? DropoutSite::AttentionOutput
                            : DropoutSite::MlpOutput;
    add("drop out as at another place", drop,
        [drop, other]() mutable { drop.setSite(other); });
  }

  /// Positions, documents or tokens in place of the numbers of tokens.
  void findTokens(Operation *op, OpOperand &numbers) {
    auto function = op->getParentOfType<func::FuncOp>();
    for (BlockArgument argument : function.getArguments())
      if (argument != numbers.get() &&
          argument.getType() == numbers.get().getType())
        add(
            "take other numbers for tokens'", op,
            [&numbers, argument] { numbers.set(argument); },
            " from argument " + std::to_string(argument.getArgNumber()));
  }

  /// A layer that draws what another draws.
  void findSeed(func::CallOp call) {
    auto step = call->getParentOfType<func::FuncOp>();
    for (OpOperand &operand : call->getOpOperands()) {
      auto get = operand.get().getDefiningOp<GetOp>();
      auto type = dyn_cast<RankedTensorType>(operand.get().getType());
      if (!get || !type || !type.getElementType().isInteger(64))
        continue;
      for (BlockArgument argument : step.getArguments())
        if (argument.getType() == type)
          add(
              "take another layer's seed", call,
              [&operand, argument] { operand.set(argument); },
              " " + call.getCallee().str());
    }
  }

  std::vector<Fault> faults;
};

} // namespace

std::vector<Fault> mutate::findDropoutFaults(ModuleOp module) {
  return DropoutFaults().find(module);
}
