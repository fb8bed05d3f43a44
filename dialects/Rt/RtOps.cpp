//===- RtOps.cpp - builders, parsing, printing ----------------------------===//

#include "dialects/Rt/Rt.h"

#include "mlir/IR/Builders.h"
#include "mlir/Interfaces/FunctionImplementation.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace heddle::rt;

//===----------------------------------------------------------------------===//
// Affine addresses: offset + %i * stride + ...
//===----------------------------------------------------------------------===//

static ParseResult
parseAffine(OpAsmParser &parser, IntegerAttr &offset,
            SmallVectorImpl<OpAsmParser::UnresolvedOperand> &indices,
            DenseI64ArrayAttr &strides) {
  int64_t first = 0;
  SmallVector<int64_t> list;
  if (parser.parseInteger(first))
    return failure();
  while (succeeded(parser.parseOptionalPlus()))
    if (parser.parseOperand(indices.emplace_back()) || parser.parseStar() ||
        parser.parseInteger(list.emplace_back()))
      return failure();
  offset = parser.getBuilder().getI64IntegerAttr(first);
  strides = parser.getBuilder().getDenseI64ArrayAttr(list);
  return success();
}

static void printAffine(OpAsmPrinter &printer, Operation *, IntegerAttr offset,
                        OperandRange indices, DenseI64ArrayAttr strides) {
  printer << offset.getInt();
  for (auto [index, stride] : llvm::zip(indices, strides.asArrayRef()))
    printer << " + " << index << " * " << stride;
}

// Types of buffers in full: `!rt.buf<4x8xf32>`, not `<4x8xf32>`.
static ParseResult parseBuf(OpAsmParser &parser, Type &type) {
  return parser.parseType(type);
}
static void printBuf(OpAsmPrinter &printer, Operation *, Type type) {
  printer << type;
}

//===----------------------------------------------------------------------===//
// rt.program
//===----------------------------------------------------------------------===//

void ProgramOp::build(OpBuilder &builder, OperationState &state, StringRef name,
                      ArrayAttr mesh, ArrayAttr arenas, ArrayAttr streams,
                      ArrayAttr communicators, ArrayAttr events,
                      StringRef entry, DictionaryAttr tables) {
  Properties &properties = state.getOrAddProperties<Properties>();
  properties.sym_name = builder.getStringAttr(name);
  properties.mesh = mesh;
  properties.arenas = arenas;
  properties.streams = streams;
  properties.communicators = communicators;
  properties.events = events;
  properties.entry = FlatSymbolRefAttr::get(builder.getContext(), entry);
  properties.tables = tables;
  state.addRegion()->emplaceBlock();
}

template <class Element>
static int64_t indexOf(ArrayAttr list, StringRef name) {
  for (auto [i, entry] : llvm::enumerate(list.getAsRange<Element>()))
    if (entry.getName() == name)
      return i;
  return -1;
}

int64_t ProgramOp::getArenaIndex(StringRef name) {
  return indexOf<ArenaAttr>(getArenas(), name);
}

int64_t ProgramOp::getStreamIndex(StringRef name) {
  return indexOf<StreamAttr>(getStreams(), name);
}

int64_t ProgramOp::getEventIndex(StringRef name) {
  for (auto [i, event] : llvm::enumerate(getEvents()))
    if (cast<StringAttr>(event).getValue() == name)
      return i;
  return -1;
}

int64_t ProgramOp::getCommunicatorIndex(ArrayAttr axes) {
  auto found = llvm::find(getCommunicators(), axes);
  return found == getCommunicators().end() ? -1
                                           : found - getCommunicators().begin();
}

int64_t ProgramOp::getAxisSize(StringRef name) {
  for (AxisAttr axis : getMesh().getAsRange<AxisAttr>())
    if (axis.getName() == name)
      return axis.getSize();
  return 0;
}

int64_t ProgramOp::getGroupSize(ArrayAttr axes) {
  int64_t size = 1;
  for (StringRef axis : axes.getAsValueRange<StringAttr>())
    size *= getAxisSize(axis);
  return size;
}

//===----------------------------------------------------------------------===//
// rt.func
//===----------------------------------------------------------------------===//

void FuncOp::build(OpBuilder &builder, OperationState &state, StringRef name,
                   TypeRange argTypes, ArrayRef<StringRef> argNames) {
  Properties &properties = state.getOrAddProperties<Properties>();
  properties.sym_name = builder.getStringAttr(name);
  properties.function_type =
      TypeAttr::get(builder.getFunctionType(argTypes, {}));
  properties.arg_names = builder.getStrArrayAttr(argNames);
  Block &body = state.addRegion()->emplaceBlock();
  for (Type type : argTypes)
    body.addArgument(type, state.location);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToEnd(&body);
  ReturnOp::create(builder, state.location);
}

/// The name that the text gives a value: `%x` is "x".
static StringAttr nameOf(OpAsmParser &parser,
                         const OpAsmParser::UnresolvedOperand &value) {
  return parser.getBuilder().getStringAttr(value.name.drop_front());
}

ParseResult FuncOp::parse(OpAsmParser &parser, OperationState &state) {
  Properties &properties = state.getOrAddProperties<Properties>();
  SmallVector<OpAsmParser::Argument> arguments;
  if (parser.parseSymbolName(properties.sym_name) ||
      parser.parseArgumentList(arguments, AsmParser::Delimiter::Paren,
                               /*allowType=*/true))
    return failure();
  SmallVector<Type> types;
  SmallVector<Attribute> names;
  for (const OpAsmParser::Argument &argument : arguments) {
    types.push_back(argument.type);
    names.push_back(nameOf(parser, argument.ssaName));
  }
  properties.function_type =
      TypeAttr::get(parser.getBuilder().getFunctionType(types, {}));
  properties.arg_names = parser.getBuilder().getArrayAttr(names);
  Region *body = state.addRegion();
  if (parser.parseOptionalAttrDictWithKeyword(state.attributes) ||
      parser.parseRegion(*body, arguments))
    return failure();
  ensureTerminator(*body, parser.getBuilder(), state.location);
  return success();
}

void FuncOp::print(OpAsmPrinter &printer) {
  printer << ' ';
  printer.printSymbolName(getSymName());
  printer << '(';
  llvm::interleaveComma(
      getBody().getArguments(), printer,
      [&](BlockArgument argument) { printer.printRegionArgument(argument); });
  printer << ')';
  printer.printOptionalAttrDictWithKeyword(
      (*this)->getAttrs(),
      {getSymNameAttrName(), getFunctionTypeAttrName(), getArgNamesAttrName()});
  printer << ' ';
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false,
                      /*printBlockTerminators=*/false);
}

void FuncOp::getAsmBlockArgumentNames(Region &region,
                                      OpAsmSetValueNameFn setName) {
  for (auto [argument, name] : llvm::zip(region.getArguments(), getArgNames()))
    setName(argument, cast<StringAttr>(name).getValue());
}

//===----------------------------------------------------------------------===//
// rt.for, rt.buffer
//===----------------------------------------------------------------------===//

void ForOp::build(OpBuilder &builder, OperationState &state, StringRef name,
                  int64_t lower, int64_t upper, bool reversed) {
  Properties &properties = state.getOrAddProperties<Properties>();
  properties.name = builder.getStringAttr(name);
  properties.lower = builder.getI64IntegerAttr(lower);
  properties.upper = builder.getI64IntegerAttr(upper);
  if (reversed)
    properties.reversed = builder.getUnitAttr();
  state.addRegion()->emplaceBlock().addArgument(builder.getIndexType(),
                                                state.location);
  ensureTerminator(*state.regions.front(), builder, state.location);
}

ParseResult ForOp::parse(OpAsmParser &parser, OperationState &state) {
  Properties &properties = state.getOrAddProperties<Properties>();
  OpAsmParser::Argument variable;
  int64_t lower = 0, upper = 0;
  if (parser.parseArgument(variable) || parser.parseEqual() ||
      parser.parseInteger(lower) || parser.parseKeyword("to") ||
      parser.parseInteger(upper))
    return failure();
  Builder &builder = parser.getBuilder();
  variable.type = builder.getIndexType();
  properties.name = nameOf(parser, variable.ssaName);
  properties.lower = builder.getI64IntegerAttr(lower);
  properties.upper = builder.getI64IntegerAttr(upper);
  if (succeeded(parser.parseOptionalKeyword("reversed")))
    properties.reversed = builder.getUnitAttr();
  Region *body = state.addRegion();
  if (parser.parseRegion(*body, variable) ||
      parser.parseOptionalAttrDictWithKeyword(state.attributes))
    return failure();
  ensureTerminator(*body, builder, state.location);
  return success();
}

void ForOp::print(OpAsmPrinter &printer) {
  printer << ' ' << getInductionVariable() << " = " << getLower() << " to "
          << getUpper() << (getReversed() ? " reversed " : " ");
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false,
                      /*printBlockTerminators=*/false);
  printer.printOptionalAttrDictWithKeyword(
      (*this)->getAttrs(), {getNameAttrName(), getLowerAttrName(),
                            getUpperAttrName(), getReversedAttrName()});
}

void ForOp::getAsmBlockArgumentNames(Region &region,
                                     OpAsmSetValueNameFn setName) {
  if (region.getNumArguments() == 1)
    setName(region.getArgument(0), getName());
}

void BufferOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setName(getResult(), getName().rsplit('.').second.empty()
                           ? getName()
                           : getName().rsplit('.').second);
}

#define GET_OP_CLASSES
#include "dialects/Rt/RtOps.cpp.inc"
