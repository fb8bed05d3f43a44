//===- Reductions.cpp - how one gradient is reduced -----------------------===//

#include "passes/Overlap/Reductions.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::overlap;
using namespace heddle::transformer;

static bool isCollective(Operation *op) {
  return isa<dist::AllReduceOp, dist::ReduceScatterOp, dist::AllGatherOp,
             dist::AllToAllOp, dist::PermuteOp>(op);
}

/// Whether an op can stand between the gradient and where it is stored.
static bool isStep(Operation *op) {
  return isCollective(op) || isa<dist::ToRowOp, dist::FromRowOp, dist::SliceOp,
                                 dist::MakePartialOp, CastOp>(op);
}

Operation *Reduction::call() const {
  for (Operation *op : ops)
    if (isStep(op)) {
      Operation *maker = op->getOperand(0).getDefiningOp();
      return calleesOf(maker).empty() ? nullptr : maker;
    }
  return nullptr;
}

std::string Reduction::text() const {
  std::string text;
  for (Operation *op : ops) {
    if (!text.empty())
      text += ' ';
    text += op->getName().stripDialect();
    if (auto axes = op->getAttrOfType<ArrayAttr>("axes"))
      text += "(" + llvm::join(axes.getAsValueRange<StringAttr>(), ", ") + ")";
  }
  return text;
}

/// The state of the sum that an op stores a gradient of; null for others.
static StateOp sumOf(Operation *op, const SymbolTable &symbols) {
  StringRef name;
  if (auto store = dyn_cast<StoreOp>(op))
    name = store.getState();
  else if (auto accumulate = dyn_cast<AccumulateOp>(op))
    name = accumulate.getState();
  else
    return {};
  auto state = symbols.lookup<StateOp>(name);
  if (state.getKind() == StateKind::Gradient)
    return symbols.lookup<StateOp>(state.getStorage().value_or(name));
  return state.getKind() == StateKind::GradientSum ? state : StateOp();
}

SmallVector<Reduction> overlap::findReductions(Block &block,
                                               const SymbolTable &symbols) {
  SmallVector<Reduction> found;
  for (Operation &op : block) {
    StateOp sum = sumOf(&op, symbols);
    if (!sum)
      continue;
    Reduction reduction;
    reduction.sum = sum;
    Operation *maker = op.getOperand(0).getDefiningOp();
    Value source = op.getOperand(0);
    bool moves = false;
    reduction.ops.push_back(&op);
    while (maker && maker->getBlock() == &block && isStep(maker)) {
      moves |= isCollective(maker);
      reduction.ops.push_back(maker);
      source = maker->getOperand(0);
      maker = source.getDefiningOp();
    }
    if (!moves)
      continue;
    if (auto load = dyn_cast_or_null<LoadOp>(maker))
      reduction.ops.push_back(load);
    std::reverse(reduction.ops.begin(), reduction.ops.end());
    auto type = cast<RankedTensorType>(source.getType());
    reduction.bytes = type.getNumElements() *
                      llvm::divideCeil(type.getElementTypeBitWidth(), 8);
    found.push_back(std::move(reduction));
  }
  return found;
}

Settings Settings::read(ModuleOp module) {
  Settings settings;
  auto given = module->getAttrOfType<DictionaryAttr>(dist::kOverlapName);
  if (!given)
    return settings;
  if (auto reductions = given.getAs<BoolAttr>("reductions"))
    settings.reductions = reductions.getValue();
  if (auto bytes = given.getAs<IntegerAttr>("bucket_bytes"))
    settings.bucketBytes = bytes.getInt();
  if (auto order = given.getAs<StringAttr>("order"))
    settings.backward = order != "forward";
  return settings;
}
