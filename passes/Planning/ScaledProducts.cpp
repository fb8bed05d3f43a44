//===- ScaledProducts.cpp - which products a recipe scales ----------------===//

#include "passes/Planning/ScaledProducts.h"

#include "dialects/Transformer/Scaling.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::transformer;

namespace {
enum class Role { Activation, Weight, Gradient };
} // namespace

/// What an operand is: a parameter or a part of one, what forward made, or a
/// gradient, which only backward makes.
static Role roleOf(func::FuncOp function, bool isBackward, Value value) {
  while (auto split = value.getDefiningOp<SplitTensorsOp>())
    value = split.getInput();
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    unsigned number = argument.getArgNumber();
    if (function.getArgAttr(number, kStateName))
      return Role::Weight;
    if (function.getArgAttr(number, kSavedName))
      return Role::Activation;
  }
  return isBackward ? Role::Gradient : Role::Activation;
}

void heddle::markScaledProducts(ModuleOp module, const ScalingRecipe &recipe) {
  MLIRContext *context = module.getContext();
  auto formatOf = [&](Role role) -> Type {
    std::string_view word = role == Role::Activation ? recipe.activation
                            : role == Role::Weight   ? recipe.weight
                                                     : recipe.gradient;
    if (word == "e4m3")
      return Float8E4M3FNType::get(context);
    return Float8E5M2Type::get(context);
  };
  for (StringRef name : {"block", "block_bwd"}) {
    auto function = module.lookupSymbol<func::FuncOp>(name);
    if (!function)
      continue;
    function.walk([&](ContractOp op) {
      Scaling scaling;
      scaling.powerOfTwo = recipe.powerOfTwo;
      const Value operands[] = {op.getLhs(), op.getRhs()};
      for (auto [format, value] : llvm::zip(scaling.formats, operands))
        format = formatOf(roleOf(function, name != "block", value));
      scaling.set(op);
    });
  }
}
