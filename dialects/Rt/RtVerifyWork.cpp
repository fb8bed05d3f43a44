//===- RtVerifyWork.cpp - verifiers of queued work ----------------------===//

#include "dialects/Rt/RtVerifyWork.h"
#include "dialects/Rt/Bounds.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace heddle::rt;

//===----------------------------------------------------------------------===//
// What all work has in common
//===----------------------------------------------------------------------===//

FailureOr<ProgramOp> heddle::rt::verifyStream(WorkOpInterface op) {
  auto program = op->getParentOfType<ProgramOp>();
  if (!program)
    return op->emitOpError() << "must stand in an rt.program";
  if (program.getStreamIndex(op.getStreamName()) < 0)
    return op->emitOpError()
           << "the program has no stream '" << op.getStreamName() << "'";
  return program;
}

LogicalResult heddle::rt::verifyContiguous(Operation *op, Value buffer) {
  if (cast<BufType>(buffer.getType()).isContiguous())
    return success();
  return op->emitOpError() << "needs buffers without gaps, got "
                           << buffer.getType();
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

template <class Op>
static LogicalResult verifyAttention(Op op, ArrayRef<Value> likeQ,
                                     ArrayRef<Value> likeK) {
  BufType q = op.getQ().getType(), k = op.getK().getType(),
          lse = op.getLse().getType();
  ArrayRef<int64_t> qShape = q.getShape(), kShape = k.getShape();
  if (qShape.size() != 5 || kShape.size() != 4 || kShape[0] != qShape[0] ||
      kShape[2] != qShape[2] || kShape[3] != qShape[4]) // C1
    return op.emitOpError()
           << "needs q [b, s, g, r, k] and k, v [b, t, g, k], got " << q
           << " and " << k;
  auto verifyLike = [&](Value value, BufType like) -> LogicalResult {
    auto type = cast<BufType>(value.getType());
    if (type.getShape() != like.getShape()) // C1
      return op.emitOpError()
             << "sizes of " << type << " and " << like << " differ";
    if (type.getElementType() != like.getElementType() ||
        !isa<FloatType>(type.getElementType()) ||
        type.getStrides().back() != 1) // C2
      return op.emitOpError() << "needs one float type and heads whose "
                                 "elements lie side by side, got "
                              << type;
    return success();
  };
  for (Value value : likeQ)
    if (failed(verifyLike(value, q)))
      return failure();
  if (q.getElementType() != k.getElementType()) // C2
    return op.emitOpError()
           << "needs one float type, got " << q << " and " << k;
  for (Value value : likeK)
    if (failed(verifyLike(value, k)))
      return failure();
  if (lse.getShape() != qShape.drop_back() || !lse.getElementType().isF32() ||
      !lse.isContiguous()) // C1
    return op.emitOpError()
           << "needs lse f32 [b, s, g, r] without gaps, got " << lse;
  return success();
}

template <class Op>
static LogicalResult verifyDropout(Op op) { // C6
  bool all = op.getSeed() && op.getTokenNumbers() && op.getFirstGroup() &&
             op.getFirstHead() && op.getGroupHeads();
  bool any = op.getSeed() || op.getTokenNumbers() || op.getFirstGroup() ||
             op.getFirstHead() || op.getGroupHeads();
  if (!op.getDropout())
    return any ? LogicalResult(op.emitOpError()
                               << "has no rate of dropout, but "
                                  "something that dropout reads")
               : success();
  if (double rate = op.getDropout()->convertToDouble();
      !(rate >= 0 && rate < 1) || !all)
    return op.emitOpError()
           << "with dropout needs a rate of at least 0 and below 1, a seed, "
              "the "
              "numbers of the tokens, and the numbers of its heads";
  BufType seed = op.getSeed().getType(),
          tokens = op.getTokenNumbers().getType(), q = op.getQ().getType();
  if (!seed.getElementType().isSignlessInteger(64) ||
      seed.getNumElements() != 1 ||
      !tokens.getElementType().isSignlessInteger(32) ||
      !tokens.isContiguous() ||
      tokens.getNumElements() != q.getShape()[0] * q.getShape()[1])
    return op.emitOpError() << "needs one i64 as seed and one i32 per query "
                               "token, got "
                            << seed << " and " << tokens;
  return success();
}

template <class Op>
static LogicalResult verifyMask(Op op) {
  auto verifyPair = [&](Value queries, Value keys) -> LogicalResult {
    if (!queries != !keys) // C3
      return op.emitOpError() << "needs documents and positions of queries and "
                                 "keys, or of neither";
    for (auto [value, like] : {std::pair(queries, op.getQ().getType()),
                               std::pair(keys, op.getK().getType())}) {
      if (!value)
        continue;
      auto type = cast<BufType>(value.getType());
      if (!type.getElementType().isSignlessInteger(32) ||
          !type.isContiguous() ||
          type.getNumElements() !=
              like.getShape()[0] * like.getShape()[1]) // C3
        return op.emitOpError()
               << "needs one i32 per sequence and position, got " << type
               << " beside " << like;
    }
    return success();
  };
  if (failed(verifyPair(op.getQueryDocuments(), op.getKeyDocuments())) ||
      failed(verifyPair(op.getQueryPositions(), op.getKeyPositions())))
    return failure();
  if (op.getWindow() < 0) // C4
    return op.emitOpError() << "window " << op.getWindow() << " is negative";
  if (failed(verifyDropout(op)))
    return failure();
  return LogicalResult(verifyStream(op)); // C5
}

LogicalResult AttentionOp::verify() {
  if (failed(verifyAttention(*this, {getQ(), getO()}, {getK(), getV()})))
    return failure();
  return verifyMask(*this);
}

LogicalResult AttentionGradOp::verify() {
  if (failed(verifyAttention(*this, {getQ(), getO(), getGradO(), getGradQ()},
                             {getK(), getV(), getGradK(), getGradV()})))
    return failure();
  return verifyMask(*this);
}

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

/// Elements that a launch of `rows` x `columns` needs of an operand.
static int64_t elementsOf(OperandKind kind, int64_t rows, int64_t columns) {
  switch (kind) {
  case OperandKind::full:
    return product({rows, columns});
  case OperandKind::per_row:
    return rows;
  case OperandKind::per_column:
    return columns;
  default:
    return 1;
  }
}

FailureOr<RowForm> heddle::rt::getRowForm(BufType type, int64_t columns) {
  RowForm form;
  if (type.isContiguous())
    return form;
  ArrayRef<int64_t> shape = type.getShape();
  SmallVector<int64_t> strides = type.getStrides();
  size_t left = shape.size();
  int64_t along = 1; // elements of a row, from the innermost dimension on
  while (along < columns && left > 0) {
    --left;
    if (shape[left] != 1 && strides[left] != along)
      return failure();
    along *= shape[left];
  }
  if (along != columns)
    return failure();
  int64_t held = 1, repeated = 1;
  while (left-- > 0) {
    if (shape[left] == 1)
      continue;
    if (strides[left] == 0 && held == 1)
      form.group *= shape[left];
    else if (strides[left] == 0)
      repeated *= shape[left];
    else if (repeated == 1 &&
             (held == 1 || strides[left] == product({form.pitch, held}))) {
      form.pitch = held == 1 ? strides[left] : form.pitch;
      held *= shape[left];
    } else
      return failure();
  }
  form.period = repeated == 1 ? 0 : held;
  return form;
}

/// Checks C3: that rows lie as a launch can say it.
static LogicalResult verifyForm(KernelLaunchOp launch, KernelOp kernel,
                                OperandAttr operand, BufType type) {
  auto complain = [&] {
    return launch.emitOpError() << "operand '" << operand.getName() << "' ";
  };
  bool rows = kernel.getSkeleton() == Skeleton::rowwise ||
              kernel.getSkeleton() == Skeleton::columnwise;
  bool full = operand.getKind() == OperandKind::full,
       perRow = operand.getKind() == OperandKind::per_row;
  if (!rows || !(full || perRow)) {
    if (!type.isContiguous())
      return complain() << "needs a buffer without gaps, got " << type;
    return success();
  }
  FailureOr<RowForm> form = getRowForm(type, full ? launch.getColumns() : 1);
  if (failed(form) || (perRow && form->pitch > 1))
    return complain() << "has rows that do not lie at one distance: " << type;
  if (operand.writes() && (form->group != 1 || form->period != 0))
    return complain() << "is written, but several rows share one: " << type;
  return success();
}

static LogicalResult verifyGathered(KernelLaunchOp launch, OperandAttr operand,
                                    ValueRange group) {
  auto complain = [&] {
    return launch.emitOpError() << "operand '" << operand.getName() << "' ";
  };
  auto table = cast<BufType>(group[0].getType());
  auto index = dyn_cast<BufType>(group[1].getType());
  if (table.getNumElements() % launch.getColumns() != 0) // C2
    return complain() << "needs a table with rows of " << launch.getColumns()
                      << " elements, got " << table;
  if (!index || !index.getElementType().isSignlessInteger(32) ||
      !index.isContiguous() || index.getNumElements() != launch.getRows()) // C2
    return complain() << "needs an index of " << launch.getRows()
                      << " i32, got " << group[1].getType();
  if (!group[2].getType().isIndex()) // C1
    return complain() << "needs the number of its first row, got "
                      << group[2].getType();
  return success();
}

static LogicalResult verifyLaunched(KernelLaunchOp launch, KernelOp kernel,
                                    OperandAttr operand, ValueRange group) {
  auto complain = [&] {
    return launch.emitOpError() << "operand '" << operand.getName() << "' ";
  };
  if (group.empty())
    return success();
  auto type = dyn_cast<BufType>(group[0].getType());
  if (!operand.inMemory()) { // C1
    if (type)
      return complain() << "is a number, got " << type;
    return success();
  }
  if (!type || type.getElementType() != operand.getType()) // C1
    return complain() << "needs a buffer of " << operand.getType() << ", got "
                      << group[0].getType();
  if (failed(verifyForm(launch, kernel, operand, type)))
    return failure();
  if (operand.getKind() == OperandKind::gathered)
    return verifyGathered(launch, operand, group);
  int64_t expected =
      elementsOf(operand.getKind(), launch.getRows(), launch.getColumns());
  if (type.getNumElements() != expected) // C2
    return complain() << "is " << stringifyOperandKind(operand.getKind())
                      << " and needs " << expected << " elements, got " << type;
  return success();
}

static LogicalResult verifyWorkspace(KernelLaunchOp launch, KernelOp kernel) {
  int64_t needed =
      getWorkspaceBytes(kernel, launch.getRows(), launch.getColumns());
  if (!launch.getWorkspace()) { // C6
    if (needed != 0)
      return launch.emitOpError()
             << "needs a workspace of " << needed << " bytes";
    return success();
  }
  auto type = cast<BufType>(launch.getWorkspace().getType());
  bool right = kernel.getSkeleton() == Skeleton::columnwise
                   ? type.getElementType().isF32()
                   : type.getElementType().isSignlessInteger(64);
  if (needed == 0 || type.getSpanBytes() < needed || !right ||
      !type.isContiguous()) // C6
    return launch.emitOpError() << "needs a workspace of " << needed
                                << " bytes in f32 (columnwise) or i64 "
                                << "(reduce_all), got " << type;
  return success();
}

LogicalResult KernelLaunchOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto kernel =
      symbols.lookupNearestSymbolFrom<KernelOp>(*this, getKernelAttr());
  if (!kernel) // C1
    return emitOpError() << "the program has no kernel @" << getKernel();
  size_t values = 0, constants = 0;
  for (OperandAttr operand : kernel.getOperandList()) {
    values += operand.getNumLaunched();
    constants += operand.getKind() == OperandKind::constant;
  }
  if (getArgs().size() != values || getConstants().size() != constants) // C1
    return emitOpError() << "@" << getKernel() << " takes " << values
                         << " operands and " << constants << " constants, got "
                         << getArgs().size() << " and "
                         << getConstants().size();
  DenseSet<Value> written, read;
  for (auto [operand, group] :
       llvm::zip(kernel.getOperandList(), getGroups(kernel))) {
    if (failed(verifyLaunched(*this, kernel, operand, group)))
      return failure();
    for (Value value : group) {
      bool writes = operand.writes(), memory = isa<BufType>(value.getType());
      if (memory &&
          (written.contains(value) || (writes && read.contains(value)))) // C4
        return emitOpError() << "operand '" << operand.getName()
                             << "' is a buffer that another operand writes or "
                             << "reads; make them one 'inout'";
      (writes ? written : read).insert(value);
    }
  }
  return verifyWorkspace(*this, kernel);
}

LogicalResult KernelLaunchOp::verify() {
  if (getRows() < 1 || getColumns() < 1) // C5
    return emitOpError() << "needs at least one row and column, got "
                         << getRows() << " x " << getColumns();
  if (std::max(getRows(), getColumns()) > kMostPlaces) // C5
    return emitOpError() << "has at most " << kMostPlaces
                         << " rows and columns, got " << getRows() << " x "
                         << getColumns();
  for (Attribute constant : getConstants()) {
    auto number = dyn_cast<FloatAttr>(constant);
    if (!number || !number.getType().isF32()) // C1
      return emitOpError() << "constants must be f32, got " << constant;
  }
  return LogicalResult(verifyStream(*this)); // C5
}

LogicalResult SegmentSortOp::verify() {
  BufType index = getIndex().getType(), workspace = getWorkspace().getType();
  if (!index.getElementType().isSignlessInteger(32) ||
      !index.isContiguous()) // C1
    return emitOpError() << "needs an index of i32 without gaps, got " << index;
  if (!workspace.getElementType().isSignlessInteger(32) ||
      !workspace.isContiguous() ||
      workspace.getNumElements() != 4 * index.getNumElements()) // C2
    return emitOpError() << "needs a workspace of "
                         << 4 * index.getNumElements() << " i32, got "
                         << workspace;
  if (getRows() < 1) // C3
    return emitOpError() << "needs a table of at least one row, got "
                         << getRows();
  return LogicalResult(verifyStream(*this)); // C4
}

LogicalResult SegmentSumOp::verify() {
  BufType input = getInput().getType(), gradient = getGradient().getType(),
          workspace = getWorkspace().getType();
  for (BufType type : {input, gradient})
    if (!type.isContiguous() || !isa<FloatType>(type.getElementType())) // C1
      return emitOpError() << "needs buffers of floats without gaps, got "
                           << type;
  if (input.getRank() != 2 || gradient.getRank() != 2 ||
      input.getShape()[1] != gradient.getShape()[1]) // C2
    return emitOpError() << "needs input [positions, columns] and gradient "
                            "[rows, columns], got "
                         << input << " and " << gradient;
  if (!workspace.getElementType().isSignlessInteger(32) ||
      !workspace.isContiguous() ||
      workspace.getNumElements() != 4 * input.getShape()[0]) // C2
    return emitOpError() << "needs a workspace of " << 4 * input.getShape()[0]
                         << " i32, got " << workspace;
  return LogicalResult(verifyStream(*this)); // C3
}

//===----------------------------------------------------------------------===//
// Collectives, copies
//===----------------------------------------------------------------------===//

static LogicalResult verifyPair(Operation *op, BufType input, BufType output) {
  if (!input.isContiguous() || !output.isContiguous() ||
      input.getElementType() != output.getElementType())
    return op->emitOpError()
           << "needs buffers without gaps and of one element type, got "
           << input << " and " << output;
  return success();
}

/// Checks C1 to C3 of a collective; `inputParts` of the input are as many
/// elements as `outputParts` of the output, in units of the group's size.
template <class Op>
static LogicalResult verifyCollective(Op op, bool scatters, bool gathers) {
  FailureOr<ProgramOp> program = verifyStream(op); // C1
  if (failed(program))
    return failure();
  if (program->getCommunicatorIndex(op.getAxes()) < 0) // C1
    return op.emitOpError()
           << "the program has no communicator over " << op.getAxes();
  BufType input = op.getInput().getType(), output = op.getOutput().getType();
  if (failed(verifyPair(op, input, output))) // C2
    return failure();
  int64_t n = program->getGroupSize(op.getAxes());
  if (product({input.getNumElements(), gathers ? n : 1}) !=
      product({output.getNumElements(), scatters ? n : 1})) // C3
    return op.emitOpError()
           << "over " << n << " ranks cannot make " << output.getNumElements()
           << " elements of " << input.getNumElements();
  return success();
}

static LogicalResult verifyOuter(Operation *op, int64_t outer,
                                 BufType smaller) {
  if (outer < 1 || smaller.getNumElements() % outer != 0) // C4
    return op->emitOpError() << "outer " << outer << " does not divide "
                             << smaller.getNumElements() << " elements";
  return success();
}

LogicalResult AllReduceOp::verify() {
  return verifyCollective(*this, false, false);
}

LogicalResult ReduceScatterOp::verify() {
  if (failed(verifyCollective(*this, true, false)))
    return failure();
  return verifyOuter(*this, getOuter(), getOutput().getType());
}

LogicalResult AllGatherOp::verify() {
  if (failed(verifyCollective(*this, false, true)))
    return failure();
  return verifyOuter(*this, getOuter(), getInput().getType());
}

LogicalResult AllToAllOp::verify() {
  if (failed(verifyCollective(*this, false, false)))
    return failure();
  int64_t n = (*this)->getParentOfType<ProgramOp>().getGroupSize(getAxes());
  int64_t elements = product(
      {getOuter(), n, getSplit(), getMiddle(), getConcat(), getInner()});
  if (elements != getInput().getType().getNumElements()) // C3
    return emitOpError() << "over " << n << " ranks these sizes make "
                         << elements << " elements, but there are "
                         << getInput().getType().getNumElements();
  return success();
}

LogicalResult PermuteOp::verify() {
  if (failed(verifyCollective(*this, false, false)))
    return failure();
  int64_t n = (*this)->getParentOfType<ProgramOp>().getGroupSize(getAxes());
  if (int64_t(getSources().size()) != n) // C4
    return emitOpError() << "needs " << n << " sources, got "
                         << getSources().size();
  for (int64_t source : getSources())
    if (source < -1 || source >= n) // C4
      return emitOpError() << "source " << source
                           << " is no rank of a group of " << n;
  return success();
}

template <class Op>
static LogicalResult verifyMessage(Op op) {
  FailureOr<ProgramOp> program = verifyStream(op); // C1
  if (failed(program))
    return failure();
  if (!program->getChannel(op.getChannel())) // C1
    return op.emitOpError()
           << "the program has no channel '" << op.getChannel() << "'";
  return verifyContiguous(op, op.getBuffer()); // C2
}

LogicalResult SendOp::verify() { return verifyMessage(*this); }
LogicalResult ReceiveOp::verify() { return verifyMessage(*this); }

LogicalResult RopeOp::verify() {
  BufType input = getInput().getType(), output = getOutput().getType(),
          positions = getPositions().getType();
  if (failed(verifyPair(*this, input, output))) // C1
    return failure();
  int64_t size = 2 * static_cast<int64_t>(getFrequencies().size());
  if (input.getShape() != output.getShape() || input.getRank() == 0 ||
      size == 0 || input.getShape().back() != size) // C1
    return emitOpError() << "needs heads of " << size << " elements, got "
                         << input << " and " << output;
  if (!positions.isContiguous() ||
      !positions.getElementType().isSignlessInteger(32) ||
      positions.getNumElements() == 0 ||
      input.getNumElements() / size % positions.getNumElements() != 0) // C2
    return emitOpError() << "has " << input.getNumElements() / size
                         << " heads, which are no equal runs for " << positions;
  return LogicalResult(verifyStream(*this)); // C3
}

LogicalResult CopyOp::verify() {
  BufType input = getInput().getType(), output = getOutput().getType();
  if (failed(verifyPair(*this, input, output))) // C1
    return failure();
  if (input.getNumElements() != output.getNumElements()) // C1
    return emitOpError() << "cannot copy " << input << " to " << output;
  return LogicalResult(verifyStream(*this)); // C2
}

template <class Op>
static LogicalResult verifyFill(Op op) {
  if (failed(verifyContiguous(op, op.getOutput()))) // C1
    return failure();
  return LogicalResult(verifyStream(op)); // C2
}

LogicalResult ZeroOp::verify() { return verifyFill(*this); }
LogicalResult PoisonOp::verify() { return verifyFill(*this); }
