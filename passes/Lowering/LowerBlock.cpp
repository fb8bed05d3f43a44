//===- LowerBlock.cpp - tensors of one block => work on buffers -----------===//

#include "passes/Lowering/Lowering.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::lowering;
using namespace heddle::transformer;

std::string lowering::identifier(StringRef text) {
  std::string result;
  for (char c : text)
    result += llvm::isAlnum(c) || c == '_' ? c : '_';
  if (!result.empty() && llvm::isDigit(result.front()))
    result.insert(0, "_");
  return result;
}

StringRef lowering::nameIn(Location location) {
  if (auto name = dyn_cast<NameLoc>(location))
    return name.getName().getValue();
  if (auto fused = dyn_cast<FusedLoc>(location))
    for (Location part : fused.getLocations())
      if (StringRef name = nameIn(part); !name.empty())
        return name;
  return "";
}

std::string lowering::labelOf(Operation *op) {
  StringRef where = nameIn(op->getLoc());
  StringRef name = op->getNumResults() ? getName(op->getResult(0)) : "";
  std::string label = where.str();
  if (!name.empty())
    label += (label.empty() ? "" : ": ") + name.str();
  return label.empty() ? op->getName().getStringRef().str() : label;
}

//===----------------------------------------------------------------------===//
// Buffers
//===----------------------------------------------------------------------===//

static rt::BufType bufferType(RankedTensorType type) {
  return rt::BufType::get(type.getShape(), type.getElementType());
}

std::string BlockLowering::uniqueName(StringRef name) {
  std::string unique = name.str();
  for (unsigned number = 2; !names.insert(unique).second; ++number)
    unique = name.str() + "." + std::to_string(number);
  return unique;
}

Value BlockLowering::makeBuffer(StringRef name, StringRef reason,
                                RankedTensorType type, StringRef memoryClass) {
  std::string full = uniqueName(scope + "." + name.str());
  auto buffer = rt::BufferOp::create(
      builder, builder.getUnknownLoc(), bufferType(type),
      builder.getStringAttr(full), builder.getStringAttr(reason),
      builder.getStringAttr(kCompute), builder.getI64IntegerAttr(0),
      ValueRange(), builder.getDenseI64ArrayAttr({}));
  buffer->setAttr(kClassName, builder.getStringAttr(memoryClass));
  return buffer;
}

/// Who reads a value, for the reason of its buffer.
static std::string readersOf(Value value) {
  SmallVector<std::string> readers;
  for (Operation *user : value.getUsers())
    if (std::string name = user->getName().stripDialect().str();
        !llvm::is_contained(readers, name) && readers.size() < 3)
      readers.push_back(name);
  return readers.empty() ? "its op writes it"
                         : "read by " + llvm::join(readers, ", ");
}

Value BlockLowering::placeOf(Value value) {
  Value &place = places[value];
  if (!place) {
    StringRef name = getName(value);
    Value made =
        makeBuffer(name.empty() ? "value" : name, readersOf(value),
                   cast<RankedTensorType>(value.getType()), "workspace");
    places[value] = made;
    return made;
  }
  return place;
}

Value BlockLowering::viewAs(Value buffer, ArrayRef<int64_t> shape,
                            ArrayRef<int64_t> strides, int64_t offset) {
  auto type = cast<rt::BufType>(buffer.getType());
  auto viewed = rt::BufType::get(shape, type.getElementType(), strides);
  if (viewed == type && offset == 0)
    return buffer;
  return rt::ViewOp::create(builder, builder.getUnknownLoc(), viewed, buffer,
                            builder.getI64IntegerAttr(offset), ValueRange(),
                            builder.getDenseI64ArrayAttr({}));
}

void BlockLowering::copy(Location location, StringRef label, Value from,
                         Value to) {
  if (from != to)
    rt::CopyOp::create(builder, location, label, from, to, stream);
}

Value BlockLowering::beginOfShard(Location location, dist::ShardAttr shard,
                                  int64_t local) {
  ArrayAttr axes = shard ? shard.getAxes() : builder.getArrayAttr({});
  return rt::RankIndexOp::create(builder, location, builder.getIndexType(),
                                 axes, local);
}

//===----------------------------------------------------------------------===//
// Ops
//===----------------------------------------------------------------------===//

void BlockLowering::forget(Block &block) {
  auto forgetValues = [&](ValueRange values) {
    for (Value value : values) {
      places.erase(value);
      sums.erase(value);
      inPlaceParts.erase(value);
    }
  };
  forgetValues(block.getArguments());
  block.walk([&](Operation *op) {
    forgetValues(op->getResults());
    doneByProducts.erase(op);
    for (Region &region : op->getRegions())
      for (Block &inside : region)
        forgetValues(inside.getArguments());
  });
}

LogicalResult BlockLowering::flush() {
  SmallVector<Operation *> ops;
  std::swap(ops, open);
  return ops.empty() ? success() : launchKernel(*this, ops);
}

bool BlockLowering::isFree(Value value) const {
  Operation *maker = value.getDefiningOp();
  return maker && value.hasOneUse() &&
         maker->getBlock() == value.getUsers().begin()->getBlock() &&
         !places.contains(value) && !sums.contains(value) &&
         !isa<SplitTensorsOp, LoadOp, GetOp, LoopOp>(maker);
}

/// The product that begins a sum of products, if `value` is one: each addend
/// behind it adds itself to the place of the first.
ContractOp BlockLowering::beginOfSum(Value value) const {
  if (!isFree(value))
    return {};
  if (auto product = value.getDefiningOp<ContractOp>())
    return product;
  auto add = value.getDefiningOp<AddOp>();
  return add ? beginOfSum(add) : ContractOp();
}

ContractOp BlockLowering::beginOfSum(AddOp add) const {
  ContractOp first = beginOfSum(add.getLhs());
  auto second = add.getRhs().getDefiningOp<ContractOp>();
  bool isSum =
      first && second && isFree(add.getRhs()) && first->isBeforeInBlock(second);
  return isSum ? first : ContractOp();
}

void BlockLowering::prepare(Block &block) {
  for (Operation &op : llvm::reverse(block)) {
    if (auto add = dyn_cast<AddOp>(op);
        add && !sums.contains(add.getResult()) && beginOfSum(add)) {
      bind(add.getLhs(), placeOf(add.getResult()));
      accumulate(add.getRhs(), placeOf(add.getResult()));
      doneByProducts.insert(add);
    } else if (auto reduce = dyn_cast<dist::AllReduceOp>(op)) {
      if (!sums.contains(reduce.getResult()) && isFree(reduce.getInput()))
        bind(reduce.getInput(), placeOf(reduce.getResult()));
    } else if (auto stack = dyn_cast<StackTensorsOp>(op)) {
      Value sum = sums.lookup(stack.getResult());
      Value whole = sum ? sum : placeOf(stack.getResult());
      for (auto [i, part] : llvm::enumerate(stack.getInputs())) {
        if (!isFree(part))
          continue;
        auto type = cast<RankedTensorType>(part.getType());
        Value slot =
            viewAs(whole, type.getShape(), {}, i * type.getNumElements());
        if (sum)
          accumulate(part, slot);
        else
          bind(part, slot);
        inPlaceParts.insert(part);
      }
    }
  }
}

LogicalResult BlockLowering::lower(Operation *op) {
  if (doneByProducts.contains(op))
    return success();
  if (isKernelOp(op)) {
    if (!open.empty() && !canJoin(open, op) && failed(flush()))
      return failure();
    open.push_back(op);
    if (isa<SumLeadingOp>(op)) // nothing joins a sum along columns
      return flush();
    return success();
  }
  if (failed(flush()))
    return failure();
  awaitOperands(op);
  return beside.contains(op) ? lowerBeside(cast<dist::AllGatherOp>(op))
                             : lowerOther(op);
}

LogicalResult BlockLowering::lowerOther(Operation *op) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<ContractOp>([&](auto o) { return lowerContract(o); })
      .Case<AmaxOp>([&](auto o) { return lowerAmax(o); })
      .Case<HadamardOp>([&](auto o) { return lowerHadamard(o); })
      .Case<QuantizeOp>([&](auto o) { return lowerQuantize(o); })
      .Case<AttentionOp>([&](auto o) { return lowerAttention(o); })
      .Case<AttentionGradOp>([&](auto o) { return lowerAttentionGrad(o); })
      .Case<RopeOp>([&](auto o) { return lowerRope(o); })
      .Case<EmbeddingOp>([&](auto o) { return lowerEmbedding(o); })
      .Case<EmbeddingGradOp>([&](auto o) { return lowerEmbeddingGrad(o); })
      .Case<SplitTensorsOp>([&](auto o) { return lowerSplit(o); })
      .Case<StackTensorsOp>([&](auto o) { return lowerStack(o); })
      .Case<ZerosLikeOp, ZerosOp>([&](auto o) { return lowerZeros(o); })
      .Case<dist::AllReduceOp, dist::ReduceScatterOp, dist::AllGatherOp,
            dist::AllToAllOp, dist::PermuteOp, dist::SliceOp,
            dist::MakePartialOp>([&](auto o) { return lowerCollective(o); })
      .Default([](Operation *other) {
        return other->emitOpError() << "cannot be lowered to work on buffers";
      });
}

void BlockLowering::finishSum(Operation *op, Value value) {
  Value sum = sums.lookup(value);
  if (!sum)
    return;
  auto type = cast<RankedTensorType>(value.getType());
  addBuffers(op->getLoc(), labelOf(op), placeOf(value), sum, type);
}

LogicalResult BlockLowering::lowerSplit(SplitTensorsOp op) {
  Value whole = placeOf(op.getInput());
  for (auto [i, part] : llvm::enumerate(op.getParts())) {
    auto type = cast<RankedTensorType>(part.getType());
    bind(part, viewAs(whole, type.getShape(), {}, i * type.getNumElements()));
  }
  return success();
}

LogicalResult BlockLowering::lowerStack(StackTensorsOp op) {
  Value sum = sums.lookup(op.getResult());
  Value whole = sum ? sum : placeOf(op.getResult());
  for (auto [i, part] : llvm::enumerate(op.getInputs())) {
    if (inPlaceParts.contains(part))
      continue;
    auto type = cast<RankedTensorType>(part.getType());
    Value slot = viewAs(whole, type.getShape(), {}, i * type.getNumElements());
    if (sum)
      addBuffers(op.getLoc(), labelOf(op), placeOf(part), slot, type);
    else
      copy(op.getLoc(), labelOf(op), placeOf(part), slot);
  }
  return success();
}

LogicalResult BlockLowering::lowerZeros(Operation *op) {
  rt::ZeroOp::create(builder, op->getLoc(), labelOf(op),
                     placeOf(op->getResult(0)), stream);
  return success();
}

//===----------------------------------------------------------------------===//
// Attention and rotary positions
//===----------------------------------------------------------------------===//

BlockLowering::AttentionDropout
BlockLowering::attentionDropout(Operation *op, Value query, Value seed,
                                Value tokenNumbers, FloatAttr rate) {
  if (!rate)
    return {};
  ArrayRef<int64_t> shape = cast<RankedTensorType>(query.getType()).getShape();
  dist::ShardAttr heads = dist::getShard(op, "r");
  return {placeOf(seed),
          placeOf(tokenNumbers),
          beginOfShard(op->getLoc(), dist::getShard(op, "g"), shape[2]),
          beginOfShard(op->getLoc(), heads, shape[3]),
          rate,
          builder.getI64IntegerAttr(heads ? heads.getExtent() : shape[3])};
}

LogicalResult BlockLowering::lowerAttention(AttentionOp op) {
  AttentionDropout drop =
      attentionDropout(op, op.getQuery(), op.getSeed(), op.getTokenNumbers(),
                       op.getDropoutAttr());
  rt::AttentionOp::create(
      builder, op.getLoc(), builder.getStringAttr(labelOf(op)),
      placeOf(op.getQuery()), placeOf(op.getKey()), placeOf(op.getValue()),
      placeOf(op.getResult()), placeOf(op.getLse()),
      placeOf(op.getQueryDocuments()), placeOf(op.getKeyDocuments()),
      placeOf(op.getQueryPositions()), placeOf(op.getKeyPositions()), drop.seed,
      drop.tokenNumbers, drop.firstGroup, drop.firstHead,
      builder.getStringAttr(stream),
      builder.getF32FloatAttr(
          static_cast<float>(op.getScale().convertToDouble())),
      builder.getUnitAttr(), op.getWindowAttr(), drop.rate, drop.groupHeads);
  maskPaddedHeads(op);
  return success();
}

LogicalResult BlockLowering::lowerAttentionGrad(AttentionGradOp op) {
  AttentionDropout drop =
      attentionDropout(op, op.getQuery(), op.getSeed(), op.getTokenNumbers(),
                       op.getDropoutAttr());
  rt::AttentionGradOp::create(
      builder, op.getLoc(), builder.getStringAttr(labelOf(op)),
      placeOf(op.getQuery()), placeOf(op.getKey()), placeOf(op.getValue()),
      placeOf(op.getOutput()), placeOf(op.getLse()),
      placeOf(op.getResultGradient()), placeOf(op.getQueryGradient()),
      placeOf(op.getKeyGradient()), placeOf(op.getValueGradient()),
      placeOf(op.getQueryDocuments()), placeOf(op.getKeyDocuments()),
      placeOf(op.getQueryPositions()), placeOf(op.getKeyPositions()), drop.seed,
      drop.tokenNumbers, drop.firstGroup, drop.firstHead,
      builder.getStringAttr(stream),
      builder.getF32FloatAttr(
          static_cast<float>(op.getScale().convertToDouble())),
      builder.getUnitAttr(), op.getWindowAttr(), drop.rate, drop.groupHeads);
  return success();
}

LogicalResult BlockLowering::lowerRope(RopeOp op) {
  rt::RopeOp::create(builder, op.getLoc(), labelOf(op), placeOf(op.getInput()),
                     placeOf(op.getPositions()), placeOf(op.getResult()),
                     builder.getDenseF64ArrayAttr(op.getFrequencies()),
                     op.getInverse(), stream);
  return success();
}

//===----------------------------------------------------------------------===//
// Embedding
//===----------------------------------------------------------------------===//

static int64_t rowsOf(Value table) {
  return cast<RankedTensorType>(table.getType()).getDimSize(0);
}

LogicalResult BlockLowering::lowerEmbedding(EmbeddingOp op) {
  Value first =
      beginOfShard(op.getLoc(), dist::getShard(op, "v"), rowsOf(op.getTable()));
  gatherRows(op.getLoc(), labelOf(op), placeOf(op.getTable()),
             placeOf(op.getIds()), first, placeOf(op.getResult()));
  finishSum(op, op.getResult());
  return success();
}

LogicalResult BlockLowering::lowerEmbeddingGrad(EmbeddingGradOp op) {
  int64_t rows = rowsOf(op.getResult());
  int64_t tokens =
      cast<RankedTensorType>(op.getIds().getType()).getNumElements();
  Value first = beginOfShard(op.getLoc(), dist::getShard(op, "v"), rows);
  Value sorted = makeBuffer(
      "sorted_ids", "tokens by row, for segment_sum",
      RankedTensorType::get({tokens * 4}, builder.getI32Type()), "workspace");
  rt::SegmentSortOp::create(builder, op.getLoc(), labelOf(op) + ": sort",
                            placeOf(op.getIds()), first, rows, sorted, stream);
  Value sum = sums.lookup(op.getResult());
  Value table = sum ? sum : placeOf(op.getResult());
  if (!sum) // rows that no token asks for
    rt::ZeroOp::create(builder, op.getLoc(), labelOf(op), table, stream);
  int64_t columns =
      cast<RankedTensorType>(op.getResult().getType()).getDimSize(1);
  rt::SegmentSumOp::create(
      builder, op.getLoc(), labelOf(op),
      viewAs(placeOf(op.getResultGradient()), {tokens, columns}), sorted, table,
      stream);
  return success();
}
