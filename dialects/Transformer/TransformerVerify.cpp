//===- TransformerVerify.cpp - verifiers, by label ------------------------===//

#include "dialects/Transformer/Transformer.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace heddle::transformer;

/// A scale for each block of a matrix whose rows and columns are dimensions of
/// these sizes.
static LogicalResult verifyScales(Operation *op, Value scale,
                                  ArrayRef<int64_t> rows,
                                  ArrayRef<int64_t> columns,
                                  ArrayRef<int64_t> blocks) {
  if (blocks.size() != 2 ||
      llvm::any_of(blocks, [](int64_t size) { return size < 1; }))
    return op->emitOpError() << "needs blocks of two sizes above 0";
  auto type = cast<RankedTensorType>(scale.getType());
  const int64_t expected[] = {
      llvm::divideCeilSigned(ShapedType::getNumElements(rows), blocks[0]),
      llvm::divideCeilSigned(ShapedType::getNumElements(columns), blocks[1])};
  if (type.getShape() == ArrayRef(expected))
    return success();
  return op->emitOpError() << "needs a scale for each of " << expected[0]
                           << " x " << expected[1] << " blocks, got " << type;
}

static LogicalResult verifyNumbers(Operation *op, ValueRange numbers) {
  for (Value number : numbers)
    if (auto type = cast<RankedTensorType>(number.getType());
        type.getRank() != 0 || !type.getElementType().isF32())
      return op->emitOpError() << "needs numbers of f32, got " << type;
  return success();
}

/// C3
static LogicalResult verifyBlocks(ContractOp op) {
  ArrayRef<int64_t> blocks = op.getBlocks();
  if (blocks.empty())
    return success();
  if (blocks.size() != 3 || op.getScales().empty())
    return op.emitOpError() << "has blocks, so it needs three sizes and two "
                               "scales, or four";
  auto [left, right] = op.getSpec().split("->");
  auto [first, second] = left.split(",");
  const Value operands[] = {op.getLhs(), op.getRhs()};
  SmallVector<StringRef> kept;
  llvm::SplitString(right, kept);
  const StringRef sides[] = {first, second};
  for (auto [i, list] : llvm::enumerate(sides)) {
    SmallVector<StringRef> letters;
    llvm::SplitString(list, letters);
    auto isKept = [&](StringRef letter) {
      return llvm::is_contained(kept, letter);
    };
    size_t rows = llvm::find_if_not(letters, isKept) - letters.begin();
    if (llvm::any_of(ArrayRef(letters).drop_front(rows), isKept))
      return op.emitOpError() << "has blocks, so what is summed over must come "
                                 "last in '"
                              << list.trim() << "'";
    auto shape = cast<RankedTensorType>(operands[i].getType()).getShape();
    if (failed(verifyScales(op, op.getScales()[i], shape.take_front(rows),
                            shape.drop_front(rows), {blocks[i], blocks[2]})))
      return failure();
  }
  return verifyNumbers(op, op.getScales().drop_front(2));
}

static LogicalResult verifyNoise(Operation *op, Value seed, Value numbers) {
  if (!seed == !numbers)
    return success();
  return op->emitOpError() << "needs a seed and numbers of tokens, or neither";
}

LogicalResult ContractOp::verify() {
  auto [left, right] = getSpec().split("->");
  auto [first, second] = left.split(",");
  llvm::StringMap<int> lists; // C1
  for (StringRef list : {first, second, right}) {
    SmallVector<StringRef> letters;
    llvm::SplitString(list, letters);
    llvm::StringSet<> here;
    for (StringRef letter : letters) {
      if (!here.insert(letter).second)
        return emitOpError() << "has letter '" << letter << "' twice in '"
                             << list.trim() << "'";
      ++lists[letter];
    }
  }
  for (const auto &letter : lists)
    if (letter.second < 2)
      return emitOpError() << "has letter '" << letter.first()
                           << "' in one list only; it must be in two of '"
                           << getSpec() << "'";
  if (size_t scales = getScales().size();
      scales != 0 && scales != 2 && (scales != 4 || getBlocks().empty())) // C2
    return emitOpError() << "has " << scales
                         << " scales, expected one of each operand or none";
  if (failed(verifyNoise(*this, getSeed(), getTokenNumbers()))) // C4
    return failure();
  return verifyBlocks(*this);
}

LogicalResult HadamardOp::verify() {
  int64_t rank = cast<RankedTensorType>(getInput().getType()).getRank();
  int64_t over = getOver(), length = getLength(), signs = getSigns();
  if (over < 1 || over > rank) // C1
    return emitOpError() << "mixes rows of " << over << " dimensions of "
                         << rank;
  if (length > 32 || !llvm::isPowerOf2_64(length) || signs >> length != 0) // C2
    return emitOpError() << "mixes " << length << " rows with signs " << signs
                         << ", expected a power of two up to 32 and as many "
                            "bits";
  return success();
}

LogicalResult QuantizeOp::verify() {
  int64_t rank = cast<RankedTensorType>(getInput().getType()).getRank();
  int64_t rotate = getRotate(), over = getOver();
  if (rotate != 0 && rotate >= rank) // C1
    return emitOpError() << "cannot rotate a tensor of rank " << rank << " by "
                         << rotate;
  bool isOfFour = isa<Float4E2M1FNType>(getCodes().getType().getElementType());
  if (failed(verifyNoise(*this, getSeed(), getTokenNumbers())))
    return failure();
  if (getSeed() && (!getSite() || !isOfFour)) // C4
    return emitOpError() << "rounds f4E2M1FN at random, with a site, got "
                         << getCodes().getType();
  Type scale = getScale().getType().getElementType();
  bool isOfTwo = static_cast<bool>(getTensorScale());
  if (isOfTwo ? !isa<Float8E4M3FNType>(scale)
              : !scale.isF32() &&
                    !(getPowerOfTwo() && isa<Float8E8M0FNUType>(scale))) // C2
    return emitOpError() << "needs scales of f32, or as powers of two of "
                            "f8E8M0FNU, or of two levels f8E4M3FN, got "
                         << getScale().getType();
  if (isOfTwo ? !getAmax() || getBlocks().empty() || getPowerOfTwo()
              : static_cast<bool>(getAmax()) != getBlocks().empty()) // C3
    return emitOpError() << "needs either the largest magnitude or blocks, or "
                            "both and a scale of the tensor, which is no power "
                            "of two";
  if (isOfTwo && failed(verifyNumbers(*this, {getAmax(), getTensorScale()})))
    return failure();
  if (getAmax() && !isOfTwo)
    return verifyNumbers(*this, {getAmax(), getScale()}); // C3
  if (over < 1 || over > rank || (rotate != 0 && rotate != over))
    return emitOpError() << "has blocks over " << over
                         << " dimensions of its codes' " << rank // C3
                         << ", rotated by " << rotate;
  ArrayRef<int64_t> codes = getCodes().getType().getShape();
  return verifyScales(*this, getScale(), codes.drop_back(over),
                      codes.take_back(over), getBlocks());
}

LogicalResult RopeOp::verify() {
  int64_t size = cast<RankedTensorType>(getInput().getType()).getShape().back();
  if (size % 2 != 0) // C1
    return emitOpError() << "needs an even head size, got " << size;
  if (!(getTheta().convertToDouble() > 0)) // C2
    return emitOpError() << "needs a theta above 0, got " << getThetaAttr();
  return success();
}

static LogicalResult verifyRate(Operation *op, llvm::APFloat rate) {
  if (double value = rate.convertToDouble(); !(value >= 0 && value < 1))
    return op->emitOpError() << "drops out at a rate of " << value
                             << ", expected one of at least 0 and below 1";
  return success();
}

LogicalResult DropoutOp::verify() { return verifyRate(*this, getRate()); } // C1
LogicalResult DropoutWithMaskOp::verify() {
  return verifyRate(*this, getRate()); // C1
}
LogicalResult DropoutGradOp::verify() {
  return verifyRate(*this, getRate()); // C1
}

template <class Op>
static LogicalResult verifyDropout(Op op) {
  bool drops = op.getDropout().has_value();
  if (static_cast<bool>(op.getSeed()) != drops ||
      static_cast<bool>(op.getTokenNumbers()) != drops) // C1
    return op.emitOpError()
           << "has " << (drops ? "a rate of dropout" : "no rate of dropout")
           << (drops ? " but not" : " but") << " a seed and numbers of tokens";
  return drops ? verifyRate(op, *op.getDropout()) : success();
}

LogicalResult AttentionOp::verify() { return verifyDropout(*this); }
LogicalResult AttentionGradOp::verify() { return verifyDropout(*this); }

static LogicalResult verifyParts(Operation *op, Value whole, size_t parts) {
  auto type = cast<RankedTensorType>(whole.getType());
  if (type.getRank() < 1 ||
      type.getDimSize(0) != static_cast<int64_t>(parts)) // C1
    return op->emitOpError()
           << "has " << parts << " parts, but the whole is " << type;
  return success();
}
LogicalResult SplitTensorsOp::verify() {
  return verifyParts(*this, getInput(), getNumResults());
}
LogicalResult StackTensorsOp::verify() {
  return verifyParts(*this, getResult(), getNumOperands());
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

/// (C2): how files store the whole tensor, which a rank may hold a part of.
static LogicalResult verifyFileShape(StateOp state) {
  auto global = state->getAttrOfType<TypeAttr>(heddle::dist::kGlobalTypeName);
  auto whole = global ? cast<RankedTensorType>(global.getValue())
                      : state.getTensorType();
  SmallVector<int64_t> order(*state.getFileOrder());
  llvm::sort(order);
  bool permutation = static_cast<int64_t>(order.size()) == whole.getRank();
  for (auto [i, dim] : llvm::enumerate(order))
    permutation &= dim == static_cast<int64_t>(i);
  if (!permutation)
    return state.emitOpError() << "file_order is no permutation of the "
                               << whole.getRank() << " dimensions";
  int64_t elements = 1;
  for (int64_t size : state.getFileShapeAttr().asArrayRef())
    elements *= size;
  if (elements != whole.getNumElements())
    return state.emitOpError()
           << "file_shape has " << elements << " elements, the type "
           << whole.getNumElements();
  return success();
}

/// Whether a state belongs to no parameter.
static bool standsAlone(StateKind kind) {
  return kind == StateKind::Parameter || kind == StateKind::Scaling ||
         kind == StateKind::Amax;
}

LogicalResult StateOp::verify() {
  bool perLayer = getSymName().contains("{}");
  if (perLayer != getLayers().has_value()) // C1
    return emitOpError() << (perLayer ? "has {} in its name but no layers"
                                      : "has layers but no {} in its name");
  if (getFileOrder().has_value() != getFileShape().has_value())
    return emitOpError() << "has one of file_order and file_shape, not both";
  if (getFileOrder() && failed(verifyFileShape(*this)))
    return failure();
  for (FlatSymbolRefAttr other : {getOfAttr(), getStorageAttr()}) // C3
    if (other && !SymbolTable::lookupNearestSymbolFrom<StateOp>(*this, other))
      return emitOpError() << "refers to " << other << ", which is no state";
  if (standsAlone(getKind()) == static_cast<bool>(getOf())) // C4
    return emitOpError() << "a parameter and what belongs to scales have no "
                            "'of', any other state has one";
  return success();
}

/// (S1) to (S3). `type` is null where no value is named.
static LogicalResult verifyAccess(Operation *op, FlatSymbolRefAttr name,
                                  Value index, bool indexed, Type type,
                                  SymbolTableCollection &symbols) {
  auto state = symbols.lookupNearestSymbolFrom<StateOp>(op, name);
  if (!state) // S1
    return op->emitOpError() << "refers to " << name << ", which is no state";
  if (indexed &&
      state.getLayers().has_value() != static_cast<bool>(index)) // S2
    return op->emitOpError()
           << (index ? "gives a layer of " : "gives no layer of ") << name
           << (index ? ", which has none" : "");
  if (type && type != state.getType()) // S3
    return op->emitOpError() << "has type " << type << ", but state " << name
                             << " is " << state.getType();
  return success();
}

LogicalResult LoadOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyAccess(*this, getStateAttr(), getIndex(), true, getType(),
                      symbols);
}
LogicalResult StoreOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyAccess(*this, getStateAttr(), getIndex(), true,
                      getValue().getType(), symbols);
}
LogicalResult AccumulateOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyAccess(*this, getStateAttr(), getIndex(), true,
                      getValue().getType(), symbols);
}
LogicalResult ZeroOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyAccess(*this, getStateAttr(), Value(), false, Type(), symbols);
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

LogicalResult LoopOp::verifyRegions() {
  if (getOver() != "layer" && getOver() != "micro_batch") // C1
    return emitOpError() << "must be over \"layer\" or \"micro_batch\", got "
                         << getOverAttr();
  if (!isa<YieldOp>(getBody().front().getTerminator())) // C2
    return emitOpError() << "must end in a yield";
  YieldOp yield = getYield();
  size_t carried = getInits().size();
  bool indexed = getBody().getNumArguments() == carried + 1 &&
                 getIndex().getType().isIndex();
  if (!indexed || yield.getCarried().size() != carried ||
      getNumResults() < carried) // C2
    return emitOpError() << "carries " << carried
                         << " values; the body needs an index and " << carried
                         << " arguments, and yields as many";
  for (auto [init, argument, yielded, result] : llvm::zip(
           getInits(), getCarried(), yield.getCarried(), getCarriedResults()))
    if (init.getType() != argument.getType() ||
        init.getType() != yielded.getType() ||
        init.getType() != result.getType())
      return emitOpError() << "carries a value of type " << init.getType()
                           << " as " << argument.getType() << ", "
                           << yielded.getType() << " and " << result.getType();
  if (getStacks().size() != yield.getCollected().size()) // C3
    return emitOpError() << "collects " << yield.getCollected().size()
                         << " values into " << getStacks().size() << " stacks";
  if (getFirst() > 0 && (!yield.getCollected().empty() || getLimit())) // C4
    return emitOpError() << "begins at " << getFirst()
                         << ", so it cannot collect, nor have a limit";
  for (auto [stack, value] : llvm::zip(getStacks(), yield.getCollected())) {
    auto expected = StackType::get(getContext(), getCount(),
                                   cast<RankedTensorType>(value.getType()));
    if (stack.getType() != expected)
      return emitOpError() << "collects " << value.getType() << " into "
                           << stack.getType();
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Computing again
//===----------------------------------------------------------------------===//

LogicalResult RecomputeOp::verifyRegions() {
  Block &body = getBody().front();
  auto yield = dyn_cast<YieldOp>(body.getTerminator());
  if (!yield || !yield.getCollected().empty() ||
      TypeRange(body.getArgumentTypes()) != getInputs().getTypes()) // C1
    return emitOpError() << "needs a body with an argument of the type of each "
                            "operand, which ends in a yield that collects "
                            "nothing";
  if (yield.getCarried().getTypes() != getResultTypes()) // C2
    return emitOpError() << "yields " << yield.getCarried().getTypes()
                         << " as results of types " << getResultTypes();
  return success();
}

LogicalResult CallByLayerOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto type =
      FunctionType::get(getContext(), getInputs().getTypes(), getResultTypes());
  for (auto name : getCallees().getAsRange<FlatSymbolRefAttr>()) { // C1
    auto callee = symbols.lookupNearestSymbolFrom<func::FuncOp>(*this, name);
    if (!callee || callee.getFunctionType() != type)
      return emitOpError() << "calls " << name << ", which is no function of "
                           << "type " << type;
  }
  for (int64_t choice : getChoices()) // C2
    if (choice < 0 || choice >= static_cast<int64_t>(getCallees().size()))
      return emitOpError() << "chooses function " << choice << " of "
                           << getCallees().size();
  return success();
}
