//===- RtDialect.cpp - registration, attributes, types --------------------===//

#include "dialects/Rt/Bounds.h"
#include "dialects/Rt/Rt.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace heddle::rt;

#include "dialects/Rt/RtDialect.cpp.inc"
#include "dialects/Rt/RtEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/Rt/RtAttrs.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "dialects/Rt/RtTypes.cpp.inc"

#include "dialects/Rt/RtInterfaces.cpp.inc"

void RtDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/Rt/RtAttrs.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialects/Rt/RtTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/Rt/RtOps.cpp.inc"
      >();
}

Type OperandAttr::getValueType() const {
  Builder builder(getContext());
  if (isa<FloatType>(getType()) && !getType().isF64())
    return builder.getF32Type();
  return getType().isInteger(8) ? builder.getI32Type() : getType();
}

//===----------------------------------------------------------------------===//
// Buffers
//===----------------------------------------------------------------------===//

static SmallVector<int64_t> contiguousStrides(ArrayRef<int64_t> shape) {
  SmallVector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

BufType BufType::get(ArrayRef<int64_t> shape, Type elementType,
                     ArrayRef<int64_t> strides) {
  if (llvm::equal(contiguousStrides(shape), strides))
    strides = {};
  return Base::get(elementType.getContext(), shape, elementType, strides);
}

SmallVector<int64_t> BufType::getStrides() const {
  if (isContiguous())
    return contiguousStrides(getShape());
  return SmallVector<int64_t>(getExplicitStrides());
}

int64_t BufType::getNumElements() const {
  int64_t elements = 1;
  for (int64_t size : getShape())
    elements *= size;
  return elements;
}

int64_t BufType::getElementBytes() const { return getBytes(1); }

int64_t BufType::getBytes(int64_t elements) const {
  return llvm::divideCeilSigned(
      elements * getElementType().getIntOrFloatBitWidth(), 8);
}

int64_t BufType::getSpanBytes() const {
  if (getNumElements() == 0)
    return 0;
  int64_t last = 0;
  for (auto [size, stride] : llvm::zip(getShape(), getStrides()))
    last += (size - 1) * stride;
  return getBytes(last + 1);
}

Type BufType::parse(AsmParser &parser) {
  SmallVector<int64_t> shape, strides;
  Type elementType;
  if (parser.parseLess() ||
      parser.parseDimensionList(shape, /*allowDynamic=*/false) ||
      parser.parseType(elementType))
    return {};
  if (succeeded(parser.parseOptionalComma())) {
    if (parser.parseKeyword("strides") ||
        parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, [&] {
          return parser.parseInteger(strides.emplace_back());
        }))
      return {};
  }
  if (parser.parseGreater())
    return {};
  return getChecked([&] { return parser.emitError(parser.getNameLoc()); },
                    parser.getContext(), shape, elementType, strides);
}

void BufType::print(AsmPrinter &printer) const {
  printer << "<";
  printer.printDimensionList(getShape());
  printer << (getShape().empty() ? "" : "x") << getElementType();
  if (!isContiguous())
    printer << ", strides ["
            << llvm::join(
                   llvm::map_range(getExplicitStrides(),
                                   [](int64_t s) { return std::to_string(s); }),
                   ", ")
            << "]";
  printer << ">";
}

/// Whether a buffer's elements and what lies between them can be counted.
static bool isCountable(ArrayRef<int64_t> shape, ArrayRef<int64_t> strides) {
  int64_t elements = 1, span = 1, between;
  for (int64_t size : shape)
    if (llvm::MulOverflow(elements, std::max<int64_t>(size, 1), elements) ||
        elements > kMostPlaces)
      return false;
  for (auto [size, stride] : llvm::zip(shape, strides))
    if (llvm::MulOverflow(std::max<int64_t>(size, 1), stride, between) ||
        between > kMostPlaces || (span += between) > kMostPlaces)
      return false;
  return true;
}

LogicalResult BufType::verify(function_ref<InFlightDiagnostic()> emitError,
                              ArrayRef<int64_t> shape, Type elementType,
                              ArrayRef<int64_t> strides) {
  if (!elementType.isF32() && !elementType.isF64() && !elementType.isBF16() &&
      !elementType.isF16() &&
      !isa<Float8E4M3FNType, Float8E5M2Type, Float8E8M0FNUType,
           Float4E2M1FNType>(elementType) &&
      !elementType.isSignlessInteger(8) && !elementType.isSignlessInteger(32) &&
      !elementType.isSignlessInteger(64)) // T1
    return emitError() << "a buffer's element type must be f32, f64, bf16, "
                          "f16, f8E4M3FN, f8E5M2, f8E8M0FNU, f4E2M1FN, "
                          "i8, i32 or i64, got "
                       << elementType;
  if (llvm::any_of(shape, [](int64_t size) { return size < 0; })) // T2
    return emitError() << "a buffer's sizes must be static";
  if (!isCountable(shape, {})) // T5
    return emitError() << "a buffer has at most " << kMostPlaces << " elements";
  if (strides.empty())
    return success();
  if (isa<Float4E2M1FNType>(elementType)) // T4
    return emitError() << "elements of 4 bits lie without gaps, two a byte";
  if (llvm::any_of(strides, [](int64_t stride) { return stride < 0; })) // T2
    return emitError() << "a buffer's strides must not be negative";
  if (strides.size() != shape.size()) // T3
    return emitError() << "a buffer of rank " << shape.size()
                       << " needs as many strides, got " << strides.size();
  if (!isCountable(shape, strides)) // T5
    return emitError() << "a buffer spans at most " << kMostPlaces
                       << " elements";
  if (llvm::equal(contiguousStrides(shape), strides)) // T3
    return emitError() << "these strides are those of a buffer without gaps; "
                          "leave them out";
  return success();
}

bool heddle::rt::isIdentifier(StringRef name) {
  return !name.empty() && !llvm::isDigit(name[0]) &&
         llvm::all_of(name,
                      [](char c) { return llvm::isAlnum(c) || c == '_'; });
}
