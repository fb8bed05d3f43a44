//===- ScaledProducts.cpp - which products a recipe scales ----------------===//

#include "passes/Planning/ScaledProducts.h"

#include "dialects/Transformer/Scaling.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::transformer;

namespace {
enum class Role { Activation, Weight, Gradient };
} // namespace

/// The whole parameter that a value is a part of, or the value.
static Value wholeOf(Value value) {
  while (auto split = value.getDefiningOp<SplitTensorsOp>())
    value = split.getInput();
  return value;
}

/// What an operand is: a parameter or a part of one, what forward made, or a
/// gradient, which only backward makes.
static Role roleOf(func::FuncOp function, bool isBackward, Value value) {
  if (auto argument = dyn_cast<BlockArgument>(wholeOf(value))) {
    unsigned number = argument.getArgNumber();
    if (function.getArgAttr(number, kStateName))
      return Role::Weight;
    if (function.getArgAttr(number, kSavedName))
      return Role::Activation;
  }
  return isBackward ? Role::Gradient : Role::Activation;
}

/// The parameter that a product is with, or whose gradient it is; else "".
static StringRef parameterOf(func::FuncOp function, ContractOp op) {
  for (Value operand : {op.getLhs(), op.getRhs()})
    if (auto argument = dyn_cast<BlockArgument>(wholeOf(operand)))
      if (auto state = function.getArgAttrOfType<FlatSymbolRefAttr>(
              argument.getArgNumber(), kStateName))
        return state.getValue();
  Value value = op.getResult();
  while (value.hasOneUse()) {
    OpOperand &use = *value.use_begin();
    if (auto stack = dyn_cast<StackTensorsOp>(use.getOwner())) {
      value = stack.getResult();
      continue;
    }
    auto state = isa<func::ReturnOp>(use.getOwner())
                     ? function.getResultAttrOfType<FlatSymbolRefAttr>(
                           use.getOperandNumber(), kGradientName)
                     : FlatSymbolRefAttr();
    return state ? state.getValue() : "";
  }
  return "";
}

/// Blocks as a contract has them, of operands with these roles.
static void setBlocks(Scaling &scaling, const ScalingRecipe &recipe,
                      const Role (&roles)[2], MLIRContext *context) {
  if (recipe.blockLength == 0)
    return;
  for (Role role : roles)
    scaling.blocks.push_back(role == Role::Weight ? recipe.weightRows() : 1);
  scaling.blocks.push_back(recipe.blockLength);
  scaling.scales =
      recipe.blockScales == "e8m0"   ? Type(Float8E8M0FNUType::get(context))
      : recipe.blockScales == "e4m3" ? Type(Float8E4M3FNType::get(context))
                                     : Type(Float32Type::get(context));
}

void heddle::markScaledProducts(ModuleOp module, const ScalingRecipe &recipe,
                                ArrayRef<std::string> plain) {
  MLIRContext *context = module.getContext();
  auto formatOf = [&](Role role) -> Type {
    std::string_view word = role == Role::Activation ? recipe.activation
                            : role == Role::Weight   ? recipe.weight
                                                     : recipe.gradient;
    if (word == "e2m1")
      return Float4E2M1FNType::get(context);
    if (word == "e4m3")
      return Float8E4M3FNType::get(context);
    return Float8E5M2Type::get(context);
  };
  for (StringRef name : {"block", "block_bwd"}) {
    auto function = module.lookupSymbol<func::FuncOp>(name);
    if (!function)
      continue;
    const bool isBackward = name != "block";
    function.walk([&](ContractOp op) {
      StringRef parameter = parameterOf(function, op);
      if (parameter.empty() || llvm::is_contained(plain, parameter))
        return; // attention's products have no parameter
      const Role roles[] = {roleOf(function, isBackward, op.getLhs()),
                            roleOf(function, isBackward, op.getRhs())};
      Scaling scaling;
      scaling.powerOfTwo = recipe.powerOfTwo;
      for (auto [format, role] : llvm::zip(scaling.formats, roles))
        format = formatOf(role);
      setBlocks(scaling, recipe, roles, context);
      scaling.set(op);
    });
  }
}
