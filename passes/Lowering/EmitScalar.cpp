//===- EmitScalar.cpp - arith and math on scalars as C++ ------------------===//

#include "passes/Lowering/EmitScalar.h"

#include "passes/Lowering/EmitText.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using llvm::formatv;

namespace heddle::lowering {

static std::string literal(TypedAttr attribute) {
  if (auto number = dyn_cast<FloatAttr>(attribute)) {
    std::string text = floatLiteral(number.getValue());
    return text[0] == '-' ? "(" + text + ")" : text;
  }
  auto number = cast<IntegerAttr>(attribute);
  if (number.getType().isInteger(1))
    return number.getValue().isZero() ? "false" : "true";
  std::string text = std::to_string(number.getInt());
  // The least numbers are no literals: C++ reads a minus and a number too
  // large.
  if (number.getValue().isMinSignedValue())
    text = formatv("({0} - 1)", number.getInt() + 1);
  return text[0] == '-' ? "(" + text + ")" : text;
}

/// C++ of the ops that are an operator between two operands.
static StringRef infix(Operation *op) {
  return llvm::StringSwitch<StringRef>(op->getName().getStringRef())
      .Cases({"arith.addf", "arith.addi"}, "+")
      .Cases({"arith.subf", "arith.subi"}, "-")
      .Cases({"arith.mulf", "arith.muli"}, "*")
      .Cases({"arith.divf", "arith.divsi"}, "/")
      .Case("arith.remsi", "%")
      .Case("arith.andi", "&")
      .Case("arith.ori", "|")
      .Case("arith.xori", "^")
      .Default("");
}

/// C++ of the ops that are a call; float only.
static StringRef call(Operation *op) {
  return llvm::StringSwitch<StringRef>(op->getName().getStringRef())
      .Case("math.exp", "math::exp")
      .Case("math.log", "math::log")
      .Case("math.sqrt", "math::sqrt")
      .Case("math.rsqrt", "math::rsqrt")
      .Case("math.tanh", "math::tanh")
      .Case("math.erf", "math::erf")
      .Case("math.sin", "math::sin")
      .Case("math.cos", "math::cos")
      .Case("math.absf", "::fabsf")
      .Case("math.floor", "::floorf")
      .Case("math.ceil", "::ceilf")
      .Case("math.fma", "::fmaf")
      .Case("math.copysign", "::copysignf")
      .Case("arith.maximumf", "kernels::maximum")
      .Case("arith.minimumf", "kernels::minimum")
      .Cases({"arith.maxnumf", "math.maxnumf"}, "::fmaxf")
      .Cases({"arith.minnumf", "math.minnumf"}, "::fminf")
      .Default("");
}

static std::string compareFloats(arith::CmpFPredicate predicate,
                                 const std::string &a, const std::string &b) {
  using P = arith::CmpFPredicate;
  switch (predicate) {
  case P::AlwaysFalse:
    return "false";
  case P::AlwaysTrue:
    return "true";
  case P::OEQ:
    return formatv("({0} == {1})", a, b);
  case P::OGT:
    return formatv("({0} > {1})", a, b);
  case P::OGE:
    return formatv("({0} >= {1})", a, b);
  case P::OLT:
    return formatv("({0} < {1})", a, b);
  case P::OLE:
    return formatv("({0} <= {1})", a, b);
  case P::ONE:
    return formatv("({0} < {1} || {0} > {1})", a, b);
  case P::ORD:
    return formatv("({0} == {0} && {1} == {1})", a, b);
  case P::UEQ:
    return formatv("!({0} < {1} || {0} > {1})", a, b);
  case P::UGT:
    return formatv("!({0} <= {1})", a, b);
  case P::UGE:
    return formatv("!({0} < {1})", a, b);
  case P::ULT:
    return formatv("!({0} >= {1})", a, b);
  case P::ULE:
    return formatv("!({0} > {1})", a, b);
  case P::UNE:
    return formatv("({0} != {1})", a, b);
  case P::UNO:
    return formatv("({0} != {0} || {1} != {1})", a, b);
  }
  llvm_unreachable("not a predicate");
}

static std::string compareIntegers(arith::CmpIOp op, const std::string &a,
                                   const std::string &b) {
  using P = arith::CmpIPredicate;
  StringRef type =
      op.getLhs().getType().isInteger(64) ? "uint64_t" : "uint32_t";
  auto plain = [&](StringRef sign) {
    return formatv("({0} {1} {2})", a, sign, b).str();
  };
  auto cast = [&](StringRef sign) {
    return formatv("({0}({1}) {2} {0}({3}))", type, a, sign, b).str();
  };
  switch (op.getPredicate()) {
  case P::eq:
    return plain("==");
  case P::ne:
    return plain("!=");
  case P::slt:
    return plain("<");
  case P::sle:
    return plain("<=");
  case P::sgt:
    return plain(">");
  case P::sge:
    return plain(">=");
  case P::ult:
    return cast("<");
  case P::ule:
    return cast("<=");
  case P::ugt:
    return cast(">");
  case P::uge:
    return cast(">=");
  }
  llvm_unreachable("not a predicate");
}

static bool isNarrowFloat(Type type) {
  return isa<FloatType>(type) && type.getIntOrFloatBitWidth() < 32;
}

static bool isConversion(Operation *op) {
  return isa<arith::ExtFOp, arith::TruncFOp, arith::SIToFPOp, arith::FPToSIOp,
             arith::ExtSIOp, arith::ExtUIOp, arith::TruncIOp,
             arith::IndexCastOp>(op);
}

std::string withoutParentheses(const std::string &text) {
  if (text.empty() || text.front() != '(')
    return text;
  // Only where the first parenthesis closes at the end.
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    depth += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
    if (depth == 0)
      return i + 1 == text.size() ? text.substr(1, text.size() - 2) : text;
  }
  return text;
}

FailureOr<std::string> emitScalarOp(Operation *op,
                                    ArrayRef<std::string> operands) {
  if (op->getNumResults() != 1 ||
      !op->getResult(0).getType().isIntOrIndexOrFloat())
    return op->emitOpError()
           << "has no form in C++: it does not make one scalar";
  if (auto constant = dyn_cast<arith::ConstantOp>(op))
    return literal(cast<TypedAttr>(constant.getValue()));
  if (StringRef sign = infix(op); !sign.empty())
    return formatv("({0} {1} {2})", operands[0], sign, operands[1]).str();
  if (StringRef name = call(op);
      !name.empty() && op->getResult(0).getType().isF32())
    return formatv(
               "{0}({1})", name,
               llvm::join(llvm::map_range(operands, withoutParentheses), ", "))
        .str();
  if (auto random = dyn_cast<rt::RandomOp>(op))
    return formatv("int32_t(random::dropoutWord(uint64_t({1}), {0}, {4}, "
                   "uint32_t({2}), uint32_t({3})))",
                   random.getSite(), withoutParentheses(operands[0]),
                   withoutParentheses(operands[1]),
                   withoutParentheses(operands[2]),
                   random.getPlane()
                       ? "uint32_t(" + withoutParentheses(operands[3]) + ")"
                       : std::string("0"))
        .str();
  // Between these two a number of a narrow format is a float.
  if (isa<arith::TruncFOp>(op) && isNarrowFloat(op->getResult(0).getType()))
    return formatv("kernels::rounded<{0}>({1})",
                   elementType(op->getResult(0).getType()),
                   withoutParentheses(operands[0]))
        .str();
  if (isa<arith::ExtFOp>(op) && isNarrowFloat(op->getOperand(0).getType()))
    return operands[0];
  if (isConversion(op))
    return formatv("{0}({1})", valueType(op->getResult(0).getType()),
                   withoutParentheses(operands[0]))
        .str();
  if (isa<arith::NegFOp>(op))
    return "(-" + operands[0] + ")";
  if (isa<arith::MaxSIOp, arith::MinSIOp>(op))
    return formatv("({0} {1} {2} ? {0} : {2})", operands[0],
                   isa<arith::MaxSIOp>(op) ? ">" : "<", operands[1])
        .str();
  if (isa<arith::SelectOp>(op))
    return formatv("({0} ? {1} : {2})", operands[0], operands[1], operands[2])
        .str();
  if (auto compare = dyn_cast<arith::CmpFOp>(op))
    return compareFloats(compare.getPredicate(), operands[0], operands[1]);
  if (auto compare = dyn_cast<arith::CmpIOp>(op))
    return compareIntegers(compare, operands[0], operands[1]);
  return op->emitOpError()
         << "has no form in C++; the emitter knows arith and the math ops of "
         << "heddle/Runtime/Math.h, on f32 and integers";
}

//===----------------------------------------------------------------------===//
// Bodies
//===----------------------------------------------------------------------===//

/// Whether an expression is written where it is used, not declared.
static bool isInlined(Operation *op, const std::string &text, unsigned uses) {
  return isa<arith::ConstantOp>(op) || (uses == 1 && text.size() <= 40);
}

std::string ScalarBody::getBare(Value value) const {
  return withoutParentheses(get(value));
}

LogicalResult ScalarBody::declare(Operation *op, unsigned uses) {
  SmallVector<std::string> operands;
  for (Value operand : op->getOperands())
    operands.push_back(get(operand));
  FailureOr<std::string> text = emitScalarOp(op, operands);
  if (failed(text))
    return failure();
  Value result = op->getResult(0);
  bind(result, *text);
  if (isInlined(op, *text, uses))
    return success();
  std::string name = fresh();
  os.indent(indent) << "const " << valueType(result.getType()) << ' ' << name
                    << " = " << getBare(result) << ";\n";
  bind(result, name);
  declared.insert(name);
  return success();
}

LogicalResult ScalarBody::need(ArrayRef<Value> roots) {
  llvm::SetVector<Operation *> ops;
  std::function<void(Value)> visit = [&](Value value) {
    Operation *op = value.getDefiningOp();
    if (isBound(value) || !op || ops.contains(op))
      return;
    for (Value operand : op->getOperands())
      visit(operand);
    ops.insert(op);
  };
  llvm::DenseMap<Value, unsigned> uses;
  for (Value root : roots) {
    visit(root);
    ++uses[root];
  }
  for (Operation *op : ops)
    for (Value operand : op->getOperands())
      ++uses[operand];
  for (Operation *op : ops)
    if (failed(declare(op, uses[op->getResult(0)])))
      return failure();
  return success();
}

LogicalResult ScalarBody::hold(ArrayRef<Value> roots) {
  if (failed(need(roots)))
    return failure();
  for (Value root : roots) {
    if (declared.contains(get(root))) // a constant already
      continue;
    std::string name = fresh();
    os.indent(indent) << "const " << valueType(root.getType()) << ' ' << name
                      << " = " << getBare(root) << ";\n";
    bind(root, name);
    declared.insert(name);
  }
  return success();
}

} // namespace heddle::lowering
