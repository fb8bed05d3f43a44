//===- EmitProducts.cpp - matrix products => statements -------------------===//

#include "passes/Lowering/EmitFunction.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using llvm::formatv;

namespace heddle::lowering {

static rt::BufType typeOf(Value buffer) {
  return cast<rt::BufType>(buffer.getType());
}

void FunctionPrinter::printGemm(rt::GemmOp op) {
  std::string args = formatv(".name = {0}, .m = {1}, .n = {2}, .k = {3}, .lda "
                             "= {4}, .ldb = {5}, .ldc = {6}",
                             stringLiteral(op.getLabel()), op.getM(), op.getN(),
                             op.getK(), op.getLda(), op.getLdb(), op.getLdc());
  // What is left out is 0.
  if (op.getTransposeA())
    args += ", .transpose_a = 1";
  if (op.getTransposeB())
    args += ", .transpose_b = 1";
  args += ", .alpha = " + floatLiteral(op.getAlpha());
  if (!op.getBeta().isZero())
    args += ", .beta = " + floatLiteral(op.getBeta());
  args += formatv(", .a = {0}, .b = {1}, .c = {2}, .batch = {3}",
                  dtypeName(typeOf(op.getA()).getElementType()),
                  dtypeName(typeOf(op.getB()).getElementType()),
                  dtypeName(typeOf(op.getC()).getElementType()), op.getBatch());
  if (op.getBatch() > 1)
    args += formatv(", .stride_a = {0}, .stride_b = {1}, .stride_c = {2}",
                    op.getStrideA(), op.getStrideB(), op.getStrideC());
  if (!op.getScales().empty())
    args += formatv(", .scale_a = {0}, .scale_b = {1}", get(op.getScales()[0]),
                    get(op.getScales()[1]));
  if (ArrayRef<int64_t> blocks = op.getBlocks(); !blocks.empty())
    args += formatv(
        ", .scales = {0}, .block_a = {1}, .block_b = {2}, .block_k = {3}",
        dtypeName(typeOf(op.getScales()[0]).getElementType()), blocks[0],
        blocks[1], blocks[2]);
  if (op.getScales().size() == 4)
    args += formatv(", .tensor_scale_a = {0}, .tensor_scale_b = {1}",
                    get(op.getScales()[2]), get(op.getScales()[3]));
  statement(op,
            formatv("gemm({0}, {{{1}}, {2}, {3}, {4})", stream(op.getStream()),
                    args, get(op.getA()), get(op.getB()), get(op.getC())));
}

void FunctionPrinter::printAmax(rt::AmaxOp op) {
  rt::BufType input = typeOf(op.getInput());
  statement(op,
            formatv("heddle_rt_amax({0}, {1}, {2}, {3}, {4}, {5})",
                    stream(op.getStream()), stringLiteral(op.getLabel()),
                    get(op.getInput()), input.getNumElements(),
                    dtypeName(input.getElementType()), get(op.getOutput())));
}

void FunctionPrinter::printHadamard(rt::HadamardOp op) {
  rt::BufType input = typeOf(op.getInput());
  statement(op,
            formatv("hadamard({0}, {{.name = {1}, .rows = {2}, .columns = {3}, "
                    ".length = {4}, .signs = {5}u, .dtype = {6}}, {7}, {8})",
                    stream(op.getStream()), stringLiteral(op.getLabel()),
                    op.getRows(),
                    input.getNumElements() / static_cast<int64_t>(op.getRows()),
                    op.getLength(), op.getSigns(),
                    dtypeName(input.getElementType()), get(op.getInput()),
                    get(op.getOutput())));
}

std::string FunctionPrinter::noise(rt::QuantizeOp op) {
  // The runtime has three sizes, the last fastest.
  auto three = [](ArrayRef<int64_t> last, int64_t first) {
    SmallVector<int64_t> all(3 - last.size(), first);
    llvm::append_range(all, last);
    return formatv("{0}, {1}, {2}", all[0], all[1], all[2]).str();
  };
  std::string first;
  for (Value begin : op.getFirstColumns())
    first += (first.empty() ? "" : " + ") + get(begin);
  return formatv(", .seed = {0}, .token_numbers = {1}, .site = {2}u, "
                 ".first_column = {3}, .column_sizes = {{{4}}, "
                 ".column_strides = {{{5}}",
                 get(op.getSeed()), get(op.getTokenNumbers()), *op.getSite(),
                 first, three(op.getColumnSizes(), 1),
                 three(op.getColumnStrides(), 0));
}

void FunctionPrinter::printQuantize(rt::QuantizeOp op) {
  rt::BufType input = typeOf(op.getInput()), codes = typeOf(op.getCodes());
  std::string args =
      formatv(".name = {0}, .rows = {1}, .columns = {2}",
              stringLiteral(op.getLabel()), op.getRows(),
              input.getNumElements() / static_cast<int64_t>(op.getRows()));
  if (op.getTransposed())
    args += ", .transposed = 1";
  if (op.getPowerOfTwo())
    args += ", .power_of_two = 1";
  args +=
      formatv(", .input = {0}, .codes = {1}", dtypeName(input.getElementType()),
              dtypeName(codes.getElementType()));
  if (ArrayRef<int64_t> blocks = op.getBlocks(); !blocks.empty())
    args += formatv(", .scales = {0}, .block_rows = {1}, .block_columns = {2}",
                    dtypeName(typeOf(op.getScale()).getElementType()),
                    blocks[0], blocks[1]);
  if (Value scale = op.getTensorScale())
    args += formatv(", .tensor_scale = {0}", get(scale));
  if (op.getSeed())
    args += noise(op);
  statement(op, formatv("quantize({0}, {{{1}}, {2}, {3}, {4}, {5})",
                        stream(op.getStream()), args, get(op.getInput()),
                        op.getAmax() ? get(op.getAmax()) : "nullptr",
                        get(op.getCodes()), get(op.getScale())));
}

} // namespace heddle::lowering
