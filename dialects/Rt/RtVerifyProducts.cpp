//===- RtVerifyProducts.cpp - verifiers of products and their codes -------===//

#include "dialects/Rt/RtVerifyWork.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace heddle::rt;

static bool isCode(Type type) {
  return isa<Float8E4M3FNType, Float8E5M2Type>(type);
}

/// Whether a buffer is one f32.
static bool isNumber(Value buffer) {
  auto type = cast<BufType>(buffer.getType());
  return type.getNumElements() == 1 && type.getElementType().isF32();
}

static LogicalResult verifyScaled(WorkOpInterface op, Value input,
                                  std::initializer_list<Value> numbers) {
  Type element = cast<BufType>(input.getType()).getElementType();
  if (!element.isF32() && !element.isBF16() && !element.isF16()) // C1
    return op->emitOpError() << "needs f32, bf16 or f16, got " << element;
  if (!llvm::all_of(numbers, isNumber)) // C1
    return op->emitOpError() << "needs one f32 as amax and as scale";
  if (failed(verifyContiguous(op, input))) // C1
    return failure();
  return LogicalResult(verifyStream(op)); // C2
}

LogicalResult AmaxOp::verify() {
  return verifyScaled(*this, getInput(), {getOutput()});
}

LogicalResult QuantizeOp::verify() {
  BufType input = getInput().getType(), codes = getCodes().getType();
  if (!isCode(codes.getElementType()) || !codes.isContiguous() ||
      codes.getNumElements() != input.getNumElements() || getRows() < 1 ||
      input.getNumElements() % getRows() != 0) // C1
    return emitOpError() << "cannot make " << codes << " of " << getRows()
                         << " rows of " << input;
  return verifyScaled(*this, getInput(), {getAmax(), getScale()});
}

static LogicalResult verifyMatrix(GemmOp op, StringRef name,
                                  const Access &access, int64_t ld,
                                  int64_t columns) {
  if (ld < columns) // C1
    return op.emitOpError() << "ld" << name << " is " << ld
                            << ", but a row has " << columns << " elements";
  int64_t span = cast<BufType>(access.buffer.getType()).getSpanBytes();
  if (access.span > span) // C2
    return op.emitOpError() << "touches " << access.span << " bytes of " << name
                            << ", which has " << span;
  return success();
}

LogicalResult GemmOp::verify() {
  if (failed(verifyStream(*this))) // C5
    return failure();
  for (int64_t size : {getM(), getN(), getK(), getBatch()})
    if (size < 1) // C1
      return emitOpError() << "sizes m, n, k and batch must be at least 1, got "
                           << size;
  for (int64_t stride : {getStrideA(), getStrideB(), getStrideC()})
    if (stride < 0) // C1
      return emitOpError() << "stride " << stride << " is negative";
  SmallVector<Access> accesses = getAccesses();
  if (failed(verifyMatrix(*this, "a", accesses[0], getLda(),
                          getTransposeA() ? getM() : getK())) ||
      failed(verifyMatrix(*this, "b", accesses[1], getLdb(),
                          getTransposeB() ? getK() : getN())) ||
      failed(verifyMatrix(*this, "c", accesses[2], getLdc(), getN())))
    return failure();
  Type a = getA().getType().getElementType(),
       b = getB().getType().getElementType(),
       c = getC().getType().getElementType();
  bool narrow = isCode(a) && isCode(b);
  if (narrow ? !c.isBF16() && !c.isF32()
             : a != b || !isa<FloatType>(a) || (c != a && !c.isF32())) // C3
    return emitOpError() << "cannot multiply " << a << " by " << b << " into "
                         << c;
  if (getScales().size() != (narrow ? 2 : 0) ||
      !llvm::all_of(getScales(), isNumber)) // C6
    return emitOpError() << "needs "
                         << (narrow ? "two scales, f32" : "no scale")
                         << ", got " << getScales().size();
  // Whole products one behind the other, or the rows of one between those of
  // the next.
  int64_t whole = (getM() - 1) * getLdc() + getN();
  bool apart = getStrideC() >= whole || (getStrideC() >= getN() &&
                                         getStrideC() * getBatch() <= getLdc());
  if (getBatch() > 1 && !apart) // C4
    return emitOpError() << "products of the batch overlap: stride_c is "
                         << getStrideC();
  return success();
}
