//===- ScaledProducts.cpp - which products a recipe scales ----------------===//

#include "passes/Planning/ScaledProducts.h"

#include "dialects/Transformer/Scaling.h"
#include "heddle/Runtime/Random.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringSet.h"

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

/// Layers that have a parameter.
static int64_t countOf(ModuleOp module, StringRef parameter) {
  return module.lookupSymbol<StateOp>(parameter).getCount();
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

namespace {

/// Names of the tensors that become codes, by the function that makes them: a
/// parameter, or what forward saved, is forward's in backward too.
class TensorNames {
public:
  explicit TensorNames(ModuleOp module) {
    auto forward = module.lookupSymbol<func::FuncOp>("block");
    Operation *end =
        forward ? forward.getBody().front().getTerminator() : nullptr;
    for (unsigned i = 0; end && i < end->getNumOperands(); ++i)
      if (auto name = forward.getResultAttrOfType<StringAttr>(i, kSavedName))
        saved[name] = end->getOperand(i);
  }

  std::string of(func::FuncOp function, bool isBackward, Value value) {
    if (Value same = inForward(function, isBackward, value)) {
      value = same;
      isBackward = false;
    }
    std::string &known = names[value];
    if (!known.empty())
      return known;
    known = getName(value).str();
    for (unsigned number = 2; !taken.insert(known).second; ++number)
      known = getName(value).str() + "." + std::to_string(number);
    (isBackward ? backward : forward).push_back(known);
    return known;
  }

  DictionaryAttr describe(const ScalingRecipe &recipe, Builder builder) const {
    NamedAttrList entries;
    entries.set("history", builder.getI64IntegerAttr(recipe.amaxHistory));
    if (recipe.isMostRecent)
      entries.set("most_recent", builder.getUnitAttr());
    entries.set("forward", builder.getStrArrayAttr(
                               llvm::to_vector_of<StringRef>(forward)));
    entries.set("backward", builder.getStrArrayAttr(
                                llvm::to_vector_of<StringRef>(backward)));
    return entries.getDictionary(builder.getContext());
  }

private:
  /// The value of forward that one of either function is; null for what only
  /// backward makes.
  Value inForward(func::FuncOp function, bool isBackward, Value value) {
    if (auto argument = dyn_cast<BlockArgument>(wholeOf(value)))
      if (auto state = function.getArgAttrOfType<FlatSymbolRefAttr>(
              argument.getArgNumber(), kStateName)) {
        auto part = dyn_cast<OpResult>(value);
        unsigned number = part ? part.getResultNumber() : 0;
        return parameters.try_emplace({state.getAttr(), number}, value)
            .first->second;
      }
    if (!isBackward)
      return value;
    auto argument = dyn_cast<BlockArgument>(value);
    auto name = argument ? function.getArgAttrOfType<StringAttr>(
                               argument.getArgNumber(), kSavedName)
                         : StringAttr();
    return name ? saved.lookup(name) : Value();
  }

  llvm::DenseMap<StringAttr, Value> saved;
  /// By the parameter, and which part of it.
  llvm::DenseMap<std::pair<StringAttr, unsigned>, Value> parameters;
  llvm::DenseMap<Value, std::string> names;
  llvm::StringSet<> taken;
  SmallVector<std::string> forward, backward;
};

} // namespace

static void dropNoise(ContractOp op) {
  op.getSeedMutable().clear();
  op.getTokenNumbersMutable().clear();
}

/// One vector of signs for all of a training (arXiv:2509.25149 found no gain in
/// more): bit i is that of token i of each group.
static int64_t signsOf(std::uint64_t seed, std::int64_t length) {
  const std::uint32_t word =
      random::wordAt(seed, random::nameHash(std::string_view("hadamard")), 0);
  return static_cast<int64_t>(word & ((std::uint64_t(1) << length) - 1));
}

void heddle::markScaledProducts(
    ModuleOp module, const ScalingRecipe &recipe,
    const llvm::StringMap<std::vector<std::int64_t>> &plain,
    std::uint64_t seed) {
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
  const bool isDelayed = recipe.amaxHistory > 0;
  TensorNames tensors(module);
  for (StringRef name : {"block", "block_bwd"}) {
    auto function = module.lookupSymbol<func::FuncOp>(name);
    if (!function)
      continue;
    const bool isBackward = name != "block";
    function.walk([&](ContractOp op) {
      StringRef parameter = parameterOf(function, op);
      const std::vector<std::int64_t> layers = plain.lookup(parameter);
      bool isScaled =
          !parameter.empty() &&
          static_cast<int64_t>(layers.size()) != countOf(module, parameter);
      if (!isScaled || !isBackward || !recipe.roundsGradientsAtRandom)
        dropNoise(op);
      if (parameter.empty())
        return; // attention's products
      SmallVector<std::string, 2> names;
      for (Value operand : {op.getLhs(), op.getRhs()})
        if (isDelayed) // of all, so that exceptions change no state's shape
          names.push_back(tensors.of(function, isBackward, operand));
      if (!isScaled)
        return;
      const Role roles[] = {roleOf(function, isBackward, op.getLhs()),
                            roleOf(function, isBackward, op.getRhs())};
      Scaling scaling;
      scaling.powerOfTwo = recipe.powerOfTwo;
      for (auto [format, role] : llvm::zip(scaling.formats, roles))
        format = formatOf(role);
      scaling.tensors = names;
      scaling.plainLayers.assign(layers.begin(), layers.end());
      setBlocks(scaling, recipe, roles, context);
      bool isOfWeight = !llvm::is_contained(roles, Role::Weight);
      if (recipe.mixesTokens && isOfWeight)
        scaling.signs = signsOf(seed, recipe.blockLength);
      if (op.getSeed()) {
        assert(roles[0] == Role::Gradient);
        scaling.site = random::roundingSite(random::nameHash(
            parameter.str() + (isOfWeight ? " gradient" : " input")));
      }
      scaling.set(op);
    });
  }
  if (isDelayed)
    module->setAttr(kDelayedName, tensors.describe(recipe, Builder(context)));
}
