//===- RtKernel.cpp - kernels: builders, parsing, verifiers ---------------===//

#include "dialects/Rt/Bounds.h"
#include "dialects/Rt/Rt.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace heddle::rt;

//===----------------------------------------------------------------------===//
// Builders
//===----------------------------------------------------------------------===//

void KernelOp::build(OpBuilder &builder, OperationState &state, StringRef name,
                     Skeleton skeleton, ArrayRef<OperandAttr> operands) {
  Properties &properties = state.getOrAddProperties<Properties>();
  properties.sym_name = builder.getStringAttr(name);
  properties.skeleton = SkeletonAttr::get(builder.getContext(), skeleton);
  properties.kernel_operands = builder.getArrayAttr(
      SmallVector<Attribute>(operands.begin(), operands.end()));
  Block &body = state.addRegion()->emplaceBlock();
  for (OperandAttr operand : operands)
    if (operand.reads())
      body.addArgument(operand.getValueType(), state.location);
}

void ReduceOp::build(OpBuilder &builder, OperationState &state,
                     ArrayRef<TypedAttr> identity) {
  state.getOrAddProperties<Properties>().identity = builder.getArrayAttr(
      SmallVector<Attribute>(identity.begin(), identity.end()));
  Block &accumulate = state.addRegion()->emplaceBlock();
  Block &combine = state.addRegion()->emplaceBlock();
  for (TypedAttr value : identity) {
    state.addTypes(value.getType());
    accumulate.addArgument(value.getType(), state.location);
  }
  for (int side = 0; side < 2; ++side)
    for (TypedAttr value : identity)
      combine.addArgument(value.getType(), state.location);
}

SmallVector<OperandAttr> KernelOp::getOperandList() {
  return llvm::to_vector(getKernelOperands().getAsRange<OperandAttr>());
}

Value KernelOp::getArgumentOf(unsigned i) {
  SmallVector<OperandAttr> operands = getOperandList();
  if (!operands[i].reads())
    return {};
  return getBody().getArgument(
      llvm::count_if(ArrayRef(operands).take_front(i),
                     [](OperandAttr o) { return o.reads(); }));
}

//===----------------------------------------------------------------------===//
// Text: @name rowwise(in %x: full f32, out "y": per_row f32) { ... }
//===----------------------------------------------------------------------===//

static ParseResult
parseOperand(OpAsmParser &parser, SmallVectorImpl<Attribute> &operands,
             SmallVectorImpl<OpAsmParser::Argument> &arguments) {
  StringRef modeWord, kindWord;
  SMLoc at = parser.getCurrentLocation();
  if (parser.parseKeyword(&modeWord))
    return failure();
  std::optional<OperandMode> mode = symbolizeOperandMode(modeWord);
  if (!mode)
    return parser.emitError(at)
           << "expected 'in', 'out' or 'inout', got '" << modeWord << "'";
  std::string name;
  OpAsmParser::Argument argument;
  if (*mode == OperandMode::write ? parser.parseString(&name)
                                  : parser.parseArgument(argument))
    return failure();
  if (parser.parseColon())
    return failure();
  at = parser.getCurrentLocation();
  Type type;
  if (parser.parseKeyword(&kindWord) || parser.parseType(type))
    return failure();
  std::optional<OperandKind> kind = symbolizeOperandKind(kindWord);
  if (!kind)
    return parser.emitError(at) << "'" << kindWord << "' is no kind of operand";
  if (*mode != OperandMode::write)
    name = argument.ssaName.name.drop_front().str();
  auto operand =
      OperandAttr::get(parser.getContext(), name, *mode, *kind, type);
  operands.push_back(operand);
  if (operand.reads()) {
    argument.type = operand.getValueType();
    arguments.push_back(argument);
  }
  return success();
}

ParseResult KernelOp::parse(OpAsmParser &parser, OperationState &state) {
  Properties &properties = state.getOrAddProperties<Properties>();
  StringRef skeletonWord;
  if (parser.parseSymbolName(properties.sym_name))
    return failure();
  SMLoc at = parser.getCurrentLocation();
  if (parser.parseKeyword(&skeletonWord))
    return failure();
  std::optional<Skeleton> skeleton = symbolizeSkeleton(skeletonWord);
  if (!skeleton)
    return parser.emitError(at) << "'" << skeletonWord << "' is no skeleton";
  SmallVector<Attribute> operands;
  SmallVector<OpAsmParser::Argument> arguments;
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, [&] {
        return parseOperand(parser, operands, arguments);
      }))
    return failure();
  properties.skeleton = SkeletonAttr::get(parser.getContext(), *skeleton);
  properties.kernel_operands = parser.getBuilder().getArrayAttr(operands);
  return failure(parser.parseOptionalAttrDictWithKeyword(state.attributes) ||
                 parser.parseRegion(*state.addRegion(), arguments));
}

void KernelOp::print(OpAsmPrinter &printer) {
  printer << ' ';
  printer.printSymbolName(getSymName());
  printer << ' ' << stringifySkeleton(getSkeleton()) << '(';
  unsigned next = 0;
  llvm::interleaveComma(getOperandList(), printer, [&](OperandAttr operand) {
    printer << stringifyOperandMode(operand.getMode()) << ' ';
    if (operand.reads())
      printer << getBody().getArgument(next++);
    else
      printer << '"' << operand.getName() << '"';
    printer << ": " << stringifyOperandKind(operand.getKind()) << ' '
            << operand.getType();
  });
  printer << ')';
  printer.printOptionalAttrDictWithKeyword(
      (*this)->getAttrs(), {getSymNameAttrName(), getSkeletonAttrName(),
                            getKernelOperandsAttrName()});
  printer << ' ';
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

void KernelOp::getAsmBlockArgumentNames(Region &region,
                                        OpAsmSetValueNameFn setName) {
  unsigned next = 0;
  for (OperandAttr operand : getOperandList())
    if (operand.reads() && next < region.getNumArguments())
      setName(region.getArgument(next++), operand.getName());
}

//===----------------------------------------------------------------------===//
// Verifiers
//===----------------------------------------------------------------------===//

static LogicalResult verifyOperand(KernelOp kernel, OperandAttr operand) {
  auto complain = [&] {
    return kernel.emitOpError() << "operand '" << operand.getName() << "' ";
  };
  OperandKind kind = operand.getKind();
  bool isFloat = isa<FloatType>(operand.getType());
  if (operand.writes() &&
      (!operand.inMemory() || kind == OperandKind::gathered)) // C2
    return complain() << "is " << stringifyOperandKind(kind)
                      << " and can only be 'in'";
  if (kind == OperandKind::constant && !operand.getType().isF32()) // C2
    return complain() << "is a constant and must be f32, got "
                      << operand.getType();
  if (!operand.inMemory() && kind != OperandKind::constant &&
      !operand.getType().isSignlessInteger(32)) // C2
    return complain() << "is a number and must be i32, got "
                      << operand.getType();
  if (!isFloat && !operand.getType().isSignlessInteger(8) &&
      !operand.getType().isSignlessInteger(32) &&
      !operand.getType().isSignlessInteger(64)) // C2
    return complain() << "must be of a float type, i8, i32 or i64, got "
                      << operand.getType();
  return success();
}

/// Whether a skeleton can have an operand of this kind at all.
static bool canSee(Skeleton skeleton, OperandKind kind) {
  if (skeleton == Skeleton::rowwise || skeleton == Skeleton::columnwise)
    return true;
  return kind != OperandKind::per_row && kind != OperandKind::per_column &&
         kind != OperandKind::gathered && kind != OperandKind::row_index;
}

/// Whether a skeleton can write an operand of this kind.
static bool canWrite(Skeleton skeleton, OperandKind kind) {
  switch (skeleton) {
  case Skeleton::elementwise:
    return kind == OperandKind::full;
  case Skeleton::rowwise:
    return kind == OperandKind::full || kind == OperandKind::per_row;
  case Skeleton::columnwise:
    return kind == OperandKind::per_column;
  case Skeleton::reduce_all:
    return kind == OperandKind::scalar;
  }
  llvm_unreachable("not a skeleton");
}

LogicalResult KernelOp::verify() {
  llvm::StringSet<> names;
  SmallVector<Type> read;
  bool writes = false;
  for (OperandAttr operand : getOperandList()) {
    if (!isIdentifier(operand.getName())) // C1
      return emitOpError() << "operand '" << operand.getName()
                           << "' is no identifier of C++";
    if (!names.insert(operand.getName()).second) // C1
      return emitOpError() << "two operands are called '" << operand.getName()
                           << "'";
    if (failed(verifyOperand(*this, operand)))
      return failure();
    if (!canSee(getSkeleton(), operand.getKind())) // C4
      return emitOpError() << "operand '" << operand.getName() << "' is "
                           << stringifyOperandKind(operand.getKind())
                           << ", but " << stringifySkeleton(getSkeleton())
                           << " knows no rows";
    if (operand.writes() && !canWrite(getSkeleton(), operand.getKind())) // C4
      return emitOpError() << "operand '" << operand.getName() << "' is "
                           << stringifyOperandKind(operand.getKind())
                           << ", which " << stringifySkeleton(getSkeleton())
                           << " cannot write";
    writes |= operand.writes();
    if (operand.reads())
      read.push_back(operand.getValueType());
  }
  if (!writes) // C4
    return emitOpError() << "writes no operand";
  if (!llvm::equal(getBody().getArgumentTypes(), read)) // C3
    return emitOpError() << "its block must have one argument per operand "
                            "read, of the type it computes with";
  return success();
}

/// Whether operands of this kind differ along what the skeleton reduces.
static bool differs(Skeleton skeleton, OperandKind kind) {
  switch (kind) {
  case OperandKind::full:
  case OperandKind::gathered:
    return true;
  case OperandKind::per_row:
  case OperandKind::row_index:
    return skeleton != Skeleton::rowwise;
  case OperandKind::per_column:
  case OperandKind::column_index:
    return skeleton == Skeleton::rowwise || skeleton == Skeleton::reduce_all;
  default:
    return false;
  }
}

/// What, but through a reduction, depends on operands that differ along what is
/// reduced.
static DenseSet<Value> findDiffering(KernelOp kernel) {
  DenseSet<Value> differing;
  SmallVector<OperandAttr> operands = kernel.getOperandList();
  for (unsigned i = 0; i < operands.size(); ++i)
    if (operands[i].reads() &&
        differs(kernel.getSkeleton(), operands[i].getKind()))
      differing.insert(kernel.getArgumentOf(i));
  for (Operation &op : kernel.getBody().front())
    if (!isa<ReduceOp, SumOp>(op) &&
        llvm::any_of(op.getOperands(),
                     [&](Value v) { return differing.contains(v); }))
      differing.insert(op.result_begin(), op.result_end());
  return differing;
}

static LogicalResult verifyResults(KernelOp kernel, YieldOp yield) {
  SmallVector<OperandAttr> written = llvm::filter_to_vector(
      kernel.getOperandList(), [](OperandAttr o) { return o.writes(); });
  if (written.size() != yield.getNumOperands()) // C3
    return yield.emitOpError()
           << "the kernel writes " << written.size() << " operands, got "
           << yield.getNumOperands() << " values";
  DenseSet<Value> differing = findDiffering(kernel);
  for (auto [operand, value] : llvm::zip(written, yield.getOperands())) {
    if (value.getType() != operand.getValueType()) // C3
      return yield.emitOpError()
             << "operand '" << operand.getName() << "' needs a value of type "
             << operand.getValueType() << ", got " << value.getType();
    if (operand.getKind() != OperandKind::full &&
        differing.contains(value)) // C7
      return yield.emitOpError()
             << "operand '" << operand.getName() << "' is written once per "
             << "reduction, but its value differs along what is reduced";
  }
  return success();
}

/// Checks that the kernel has the reductions its skeleton runs.
static LogicalResult verifyReductions(KernelOp kernel) {
  int64_t reduces = llvm::range_size(kernel.getOps<ReduceOp>());
  int64_t sums = llvm::range_size(kernel.getOps<SumOp>());
  auto expect = [&](StringRef expected) {
    return kernel.emitOpError() << stringifySkeleton(kernel.getSkeleton())
                                << " needs " << expected << ", got " << reduces
                                << " rt.reduce and " << sums << " rt.sum"; // C5
  };
  switch (kernel.getSkeleton()) {
  case Skeleton::elementwise:
    return reduces + sums ? LogicalResult(expect("no reduction")) : success();
  case Skeleton::rowwise:
    return sums ? LogicalResult(expect("no rt.sum")) : success();
  case Skeleton::columnwise:
    return reduces != 1 || sums ? LogicalResult(expect("one rt.reduce"))
                                : success();
  case Skeleton::reduce_all:
    return sums != 1 || reduces ? LogicalResult(expect("one rt.sum"))
                                : success();
  }
  llvm_unreachable("not a skeleton");
}

LogicalResult KernelOp::verifyRegions() {
  WalkResult result = getBody().walk([&](Operation *op) {
    if (isa<ReduceOp, SumOp, RandomOp, YieldOp>(op) ||
        isa<arith::ArithDialect, math::MathDialect>(op->getDialect()))
      return WalkResult::advance();
    op->emitOpError() << "cannot stand in a kernel, which consists of arith "
                         "and math ops on scalars"; // C6
    return WalkResult::interrupt();
  });
  if (result.wasInterrupted() || failed(verifyReductions(*this)))
    return failure();
  auto yield = dyn_cast<YieldOp>(getBody().front().getTerminator());
  if (!yield) // C3
    return emitOpError() << "must end with rt.yield";
  return verifyResults(*this, yield);
}

LogicalResult SumOp::verify() {
  if (isa<FloatType>(getValue().getType()) !=
      isa<FloatType>(getResult().getType())) // C1
    return emitOpError() << "cannot sum " << getValue().getType() << " in "
                         << getResult().getType();
  return success();
}

int64_t heddle::rt::getWorkspaceBytes(KernelOp kernel, int64_t rows,
                                      int64_t columns) {
  // Fixed by the order of sums that the runtime's skeletons promise; the
  // emitter holds them against heddle/Runtime/Operands.h.
  constexpr int64_t reduceChunk = 16384, rowChunk = 64;
  if (kernel.getSkeleton() == Skeleton::reduce_all)
    return (product({rows, columns}) + reduceChunk - 1) / reduceChunk * 8;
  if (kernel.getSkeleton() != Skeleton::columnwise)
    return 0;
  int64_t states = (*kernel.getOps<ReduceOp>().begin()).getNumResults();
  return product({(rows + rowChunk - 1) / rowChunk, columns, states, 4});
}

LogicalResult ReduceOp::verify() {
  if (getIdentity().size() != getNumResults() || getNumResults() == 0) // C1
    return emitOpError()
           << "needs one identity per result and at least one, got "
           << getIdentity().size() << " for " << getNumResults();
  for (auto [identity, type] : llvm::zip(getIdentity(), getResultTypes())) {
    auto typed = dyn_cast<TypedAttr>(identity);
    if (!typed || typed.getType() != type) // C1
      return emitOpError() << "identity " << identity << " is not of type "
                           << type;
  }
  return success();
}

static LogicalResult verifyStates(ReduceOp op, Region &region, StringRef name,
                                  unsigned sides) {
  SmallVector<Type> expected;
  for (unsigned side = 0; side < sides; ++side)
    llvm::append_range(expected, op.getResultTypes());
  auto yield = dyn_cast<YieldOp>(region.front().getTerminator());
  if (!llvm::equal(region.getArgumentTypes(), expected) || !yield ||
      !llvm::equal(yield.getOperandTypes(), op.getResultTypes())) // C2
    return op.emitOpError()
           << "'" << name << "' must take " << sides
           << (sides == 1 ? " state" : " states") << " and yield one";
  return success();
}

LogicalResult ReduceOp::verifyRegions() {
  if (failed(verifyStates(*this, getAccumulate(), "accumulate", 1)) ||
      failed(verifyStates(*this, getCombine(), "combine", 2)))
    return failure();
  WalkResult result = getCombine().walk([&](Operation *op) {
    for (Value operand : op->getOperands())
      if (!getCombine().isAncestor(operand.getParentRegion())) // C3
        return WalkResult(emitOpError()
                          << "'combine' may use nothing from outside");
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}
