//===- RtVerifyProducts.cpp - verifiers of products and their codes -------===//

#include "dialects/Rt/Bounds.h"
#include "dialects/Rt/RtVerifyWork.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace heddle::rt;

static bool isCode(Type type) {
  return isa<Float8E4M3FNType, Float8E5M2Type, Float4E2M1FNType>(type);
}

/// Whether codes of it have scales of two levels.
static bool hasTwoLevels(Type type) { return isa<Float4E2M1FNType>(type); }

/// Whether a buffer is one f32.
static bool isNumber(Value buffer) {
  auto type = cast<BufType>(buffer.getType());
  return type.getNumElements() == 1 && type.getElementType().isF32();
}

/// Whether a buffer has a scale for each block of a matrix of so many rows and
/// columns, whose codes are of type `codes`.
static bool hasScales(Value buffer, Type codes, int64_t rows, int64_t columns,
                      int64_t blockRows, int64_t blockColumns) {
  auto type = cast<BufType>(buffer.getType());
  Type element = type.getElementType();
  bool fits = hasTwoLevels(codes)
                  ? isa<Float8E4M3FNType>(element)
                  : element.isF32() || isa<Float8E8M0FNUType>(element);
  return fits && type.isContiguous() &&
         type.getNumElements() ==
             product({llvm::divideCeilSigned(rows, blockRows),
                      llvm::divideCeilSigned(columns, blockColumns)});
}

static StringRef scaleFormats(Type codes) {
  return hasTwoLevels(codes) ? "f8E4M3FN" : "f32 or f8E8M0FNU";
}

static bool areBlocks(ArrayRef<int64_t> sizes, size_t expected) {
  return sizes.size() == expected &&
         llvm::all_of(sizes, [](int64_t size) { return size > 0; });
}

static LogicalResult verifyInput(WorkOpInterface op, Value input) {
  Type element = cast<BufType>(input.getType()).getElementType();
  if (!element.isF32() && !element.isBF16() && !element.isF16()) // C1
    return op->emitOpError() << "needs f32, bf16 or f16, got " << element;
  if (failed(verifyContiguous(op, input))) // C1
    return failure();
  return LogicalResult(verifyStream(op)); // C2
}

LogicalResult AmaxOp::verify() {
  if (!isNumber(getOutput())) // C1
    return emitOpError() << "needs one f32 as its result, got "
                         << getOutput().getType();
  return verifyInput(*this, getInput());
}

LogicalResult HadamardOp::verify() {
  BufType input = getInput().getType();
  if (getOutput().getType() != input || getRows() < 1 ||
      input.getNumElements() % getRows() != 0) // C1
    return emitOpError() << "cannot mix " << getRows() << " rows of " << input
                         << " into " << getOutput().getType();
  if (getLength() < 1 || getLength() > 32 ||
      !llvm::isPowerOf2_64(getLength()) || getSigns() < 0 ||
      getSigns() >> getLength() != 0) // C3
    return emitOpError() << "mixes " << getLength() << " rows with signs "
                         << getSigns()
                         << ", expected a power of two up to 32 and as many "
                            "bits";
  return verifyInput(*this, getInput());
}

/// C4
static LogicalResult verifyNoise(QuantizeOp op) {
  Value seed = op.getSeed(), numbers = op.getTokenNumbers();
  if (!seed && !numbers)
    return success();
  auto isOf = [](Value value, unsigned width, int64_t elements) {
    auto type = value ? cast<BufType>(value.getType()) : BufType();
    return type && type.getElementType().isSignlessInteger(width) &&
           type.isContiguous() && type.getNumElements() == elements;
  };
  ArrayRef<int64_t> sizes = op.getColumnSizes();
  int64_t columns = 1;
  for (int64_t size : sizes)
    columns = product({columns, size});
  bool fits = isOf(seed, 64, 1) && isOf(numbers, 32, op.getRows()) &&
              op.getSite() && sizes.size() <= 3 &&
              op.getColumnStrides().size() == sizes.size() &&
              product({columns, static_cast<int64_t>(op.getRows())}) ==
                  op.getInput().getType().getNumElements() &&
              hasTwoLevels(op.getCodes().getType().getElementType());
  if (fits)
    return success();
  return op.emitOpError() << "rounds codes of f4E2M1FN at random with a seed, "
                             "a number for each of "
                          << op.getRows() << " rows, and places of all columns";
}

LogicalResult QuantizeOp::verify() {
  BufType input = getInput().getType(), codes = getCodes().getType();
  if (!isCode(codes.getElementType()) || !codes.isContiguous() ||
      codes.getNumElements() != input.getNumElements() || getRows() < 1 ||
      input.getNumElements() % getRows() != 0) // C1
    return emitOpError() << "cannot make " << codes << " of " << getRows()
                         << " rows of " << input;
  Type format = codes.getElementType();
  bool isOfTwo = hasTwoLevels(format), hasBlocks = !getBlocks().empty();
  if (isOfTwo
          ? !getAmax() || !hasBlocks || !getTensorScale()
          : getTensorScale() || static_cast<bool>(getAmax()) == hasBlocks) // C3
    return emitOpError() << "needs "
                         << (isOfTwo ? "the largest magnitude, blocks and a "
                                       "scale of the tensor"
                                     : "either the largest magnitude or "
                                       "blocks, and no scale beside them")
                         << " for codes of " << format;
  Value number = isOfTwo ? getTensorScale() : getScale();
  if (getAmax() && (!isNumber(getAmax()) || !isNumber(number))) // C3
    return emitOpError() << "needs one f32 as amax and as the tensor's scale";
  if (ArrayRef<int64_t> blocks = getBlocks(); !blocks.empty()) {
    int64_t rows = getRows(), columns = input.getNumElements() / rows;
    if (getTransposed())
      std::swap(rows, columns);
    if (!areBlocks(blocks, 2) ||
        !hasScales(getScale(), format, rows, columns, blocks[0],
                   blocks[1])) // C3
      return emitOpError() << "needs a scale, " << scaleFormats(format)
                           << ", for each block of a matrix of " << rows
                           << " x " << columns << ", got "
                           << getScale().getType();
  }
  if (failed(verifyNoise(*this)))
    return failure();
  return verifyInput(*this, getInput());
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

/// C6
static LogicalResult verifyScales(GemmOp op, bool narrow) {
  OperandRange scales = op.getScales();
  ArrayRef<int64_t> blocks = op.getBlocks();
  Type codes = op.getA().getType().getElementType();
  if (narrow && hasTwoLevels(codes)) {
    if (op.getLda() != op.getK() || op.getLdb() != op.getK())
      return op.emitOpError() << "has codes of 4 bits, which lie without gaps, "
                                 "but rows of "
                              << op.getK() << " are " << op.getLda() << " and "
                              << op.getLdb() << " apart";
    if (scales.size() != 4 || blocks.empty() ||
        !llvm::all_of(scales.drop_front(2), isNumber))
      return op.emitOpError() << "needs blocks, with two scales of these and "
                                 "two of tensors, f32, got "
                              << scales.size();
  } else if (scales.size() != (narrow ? 2 : 0) ||
             (blocks.empty() && !llvm::all_of(scales, isNumber))) {
    return op.emitOpError()
           << "needs " << (narrow ? "two scales, f32" : "no scale") << ", got "
           << scales.size();
  }
  if (blocks.empty())
    return success();
  if (!narrow || op.getTransposeA() || !op.getTransposeB() ||
      op.getBatch() != 1 || !areBlocks(blocks, 3))
    return op.emitOpError()
           << "has blocks of scales, so it must be one product "
              "of codes with B transposed, and three sizes "
              "above 0, got "
           << op.getBlocksAttr();
  auto formatOf = [](Value scale) {
    return cast<BufType>(scale.getType()).getElementType();
  };
  if (hasScales(scales[0], codes, op.getM(), op.getK(), blocks[0], blocks[2]) &&
      hasScales(scales[1], codes, op.getN(), op.getK(), blocks[1], blocks[2]) &&
      formatOf(scales[0]) == formatOf(scales[1]))
    return success();
  return op.emitOpError() << "needs a scale, " << scaleFormats(codes)
                          << ", for each block of " << op.getM() << " x "
                          << op.getK() << " and of " << op.getN() << " x "
                          << op.getK() << ", got " << scales[0].getType()
                          << " and " << scales[1].getType();
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
  for (int64_t size : {getM(), getN(), getK(), getBatch(), getLda(), getLdb(),
                       getLdc(), getStrideA(), getStrideB(), getStrideC()})
    if (size > kMostPlaces) // C1
      return emitOpError() << "a size, ld or stride is " << size
                           << ", expected at most " << kMostPlaces;
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
  bool narrow = isCode(a) && isCode(b) && hasTwoLevels(a) == hasTwoLevels(b);
  if (narrow ? !c.isBF16() && !c.isF32()
             : a != b || !isa<FloatType>(a) || (c != a && !c.isF32())) // C3
    return emitOpError() << "cannot multiply " << a << " by " << b << " into "
                         << c;
  if (failed(verifyScales(*this, narrow)))
    return failure();
  // Whole products one behind the other, or the rows of one between those of
  // the next.
  int64_t whole = product({getM() - 1, getLdc()}) + getN();
  bool apart = getStrideC() >= whole ||
               (getStrideC() >= getN() &&
                product({getStrideC(), getBatch()}) <= getLdc());
  if (getBatch() > 1 && !apart) // C4
    return emitOpError() << "products of the batch overlap: stride_c is "
                         << getStrideC();
  return success();
}
