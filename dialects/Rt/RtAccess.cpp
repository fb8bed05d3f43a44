//===- RtAccess.cpp - the bytes that queued work touches ------------------===//

#include "dialects/Rt/Bounds.h"
#include "dialects/Rt/Rt.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace heddle::rt;

Access heddle::rt::accessWhole(Value buffer, bool reads, bool writes) {
  auto type = cast<BufType>(buffer.getType());
  int64_t run = 1, period = 0;
  bool exact = true;
  SmallVector<int64_t> strides = type.getStrides();
  // From the innermost dimension outwards: first what lies without gaps, then
  // what repeats that run.
  for (size_t i = strides.size(); i-- > 0;) {
    if (type.getShape()[i] == 1)
      continue;
    if (period == 0 && strides[i] == run)
      run *= type.getShape()[i];
    else if (period == 0)
      period = strides[i];
    else
      exact &= strides[i] % period == 0;
  }
  int64_t bytes = type.getElementBytes();
  Access access{buffer, reads, writes, type.getSpanBytes()};
  bool gaps = period > run && exact;
  access.run = gaps ? run * bytes : 1;
  access.period = gaps ? period * bytes : 1;
  return access;
}

/// `rows` rows of `columns` elements, `ld` apart, and `batch` of those.
static Access accessMatrix(Value buffer, bool reads, bool writes, int64_t rows,
                           int64_t columns, int64_t ld, int64_t batch,
                           int64_t stride) {
  auto type = cast<BufType>(buffer.getType());
  int64_t bytes = type.getElementBytes();
  Access access{buffer, reads, writes,
                type.getBytes(product({stride, batch - 1}) +
                              product({ld, rows - 1}) + columns)};
  if (rows == 1) // the products' rows are rows of one matrix
    ld = stride, rows = batch, batch = 1;
  else if (product({stride, batch}) == ld) // side by side: rows of rows
    ld = stride, batch = 1;
  else if (product({stride, batch}) <=
           ld) // a run of the row, between them included
    columns += product({stride, batch - 1}), batch = 1;
  if (columns < ld && (batch == 1 || stride % ld == 0)) {
    access.run = columns * bytes;
    access.period = ld * bytes;
  }
  return access;
}

SmallVector<Access> GemmOp::getAccesses() {
  auto matrix = [&](Value buffer, bool transpose, int64_t rows, int64_t columns,
                    int64_t ld, int64_t stride, bool reads, bool writes) {
    return accessMatrix(buffer, reads, writes, transpose ? columns : rows,
                        transpose ? rows : columns, ld, getBatch(), stride);
  };
  bool adds = !getBeta().isZero();
  SmallVector<Access> accesses = {
      matrix(getA(), getTransposeA(), getM(), getK(), getLda(), getStrideA(),
             true, false),
      matrix(getB(), getTransposeB(), getK(), getN(), getLdb(), getStrideB(),
             true, false),
      matrix(getC(), false, getM(), getN(), getLdc(), getStrideC(), adds,
             true)};
  for (Value scale : getScales())
    accesses.push_back(accessWhole(scale, true, false));
  return accesses;
}

static void accessOptional(SmallVector<Access> &accesses, ValueRange values) {
  for (Value value : values)
    if (value)
      accesses.push_back(accessWhole(value, true, false));
}

SmallVector<Access> AttentionOp::getAccesses() {
  SmallVector<Access> accesses = {
      accessWhole(getQ(), true, false), accessWhole(getK(), true, false),
      accessWhole(getV(), true, false), accessWhole(getO(), false, true),
      accessWhole(getLse(), false, true)};
  accessOptional(accesses,
                 {getQueryDocuments(), getKeyDocuments(), getQueryPositions(),
                  getKeyPositions(), getSeed(), getTokenNumbers()});
  return accesses;
}

SmallVector<Access> AttentionGradOp::getAccesses() {
  SmallVector<Access> accesses;
  for (Value read : {getQ(), getK(), getV(), getO(), getLse(), getGradO()})
    accesses.push_back(accessWhole(read, true, false));
  for (Value written : {getGradQ(), getGradK(), getGradV()})
    accesses.push_back(accessWhole(written, false, true));
  accessOptional(accesses,
                 {getQueryDocuments(), getKeyDocuments(), getQueryPositions(),
                  getKeyPositions(), getSeed(), getTokenNumbers()});
  return accesses;
}

SmallVector<ValueRange> KernelLaunchOp::getGroups(KernelOp kernel) {
  SmallVector<ValueRange> groups;
  ValueRange rest = getArgs();
  for (OperandAttr operand : kernel.getOperandList()) {
    groups.push_back(rest.take_front(operand.getNumLaunched()));
    rest = rest.drop_front(operand.getNumLaunched());
  }
  return groups;
}

SmallVector<Access> KernelLaunchOp::getAccesses() {
  auto kernel =
      SymbolTable::lookupNearestSymbolFrom<KernelOp>(*this, getKernelAttr());
  SmallVector<Access> accesses;
  for (auto [operand, group] :
       llvm::zip(kernel.getOperandList(), getGroups(kernel))) {
    if (!operand.inMemory())
      continue;
    accesses.push_back(
        accessWhole(group[0], operand.reads(), operand.writes()));
    if (operand.getKind() == OperandKind::gathered)
      accesses.push_back(accessWhole(group[1], true, false));
  }
  if (getWorkspace())
    accesses.push_back(accessWhole(getWorkspace(), false, true));
  return accesses;
}

SmallVector<Access> SegmentSortOp::getAccesses() {
  return {accessWhole(getIndex(), true, false),
          accessWhole(getWorkspace(), false, true)};
}

SmallVector<Access> SegmentSumOp::getAccesses() {
  return {accessWhole(getInput(), true, false),
          accessWhole(getWorkspace(), true, false),
          accessWhole(getGradient(), true, true)};
}

template <class Op>
static SmallVector<Access> accessTwo(Op op) {
  return {accessWhole(op.getInput(), true, false),
          accessWhole(op.getOutput(), false, true)};
}

SmallVector<Access> AllReduceOp::getAccesses() { return accessTwo(*this); }
SmallVector<Access> ReduceScatterOp::getAccesses() { return accessTwo(*this); }
SmallVector<Access> AllGatherOp::getAccesses() { return accessTwo(*this); }
SmallVector<Access> AllToAllOp::getAccesses() { return accessTwo(*this); }
SmallVector<Access> PermuteOp::getAccesses() { return accessTwo(*this); }
SmallVector<Access> CopyOp::getAccesses() { return accessTwo(*this); }
SmallVector<Access> SendOp::getAccesses() {
  return {accessWhole(getBuffer(), true, false)};
}
SmallVector<Access> ReceiveOp::getAccesses() {
  return {accessWhole(getBuffer(), false, true)};
}
SmallVector<Access> RopeOp::getAccesses() {
  return {accessWhole(getInput(), true, false),
          accessWhole(getPositions(), true, false),
          accessWhole(getOutput(), false, true)};
}
SmallVector<Access> AmaxOp::getAccesses() { return accessTwo(*this); }
SmallVector<Access> HadamardOp::getAccesses() { return accessTwo(*this); }
SmallVector<Access> QuantizeOp::getAccesses() {
  SmallVector<Access> accesses = {accessWhole(getInput(), true, false),
                                  accessWhole(getCodes(), false, true),
                                  accessWhole(getScale(), false, true)};
  if (getAmax())
    accesses.push_back(accessWhole(getAmax(), true, false));
  if (getTensorScale())
    accesses.push_back(accessWhole(getTensorScale(), false, true));
  accessOptional(accesses, {getSeed(), getTokenNumbers()});
  return accesses;
}
SmallVector<Access> ZeroOp::getAccesses() {
  return {accessWhole(getOutput(), false, true)};
}
SmallVector<Access> PoisonOp::getAccesses() {
  return {accessWhole(getOutput(), false, true)};
}
