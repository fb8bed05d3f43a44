//===- RtOps.cpp - builders, parsing, printing ----------------------------===//

#include "dialects/Rt/Rt.h"
#include "heddle/Support/Mirror.h"

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
                      StringRef entry, DictionaryAttr tables,
                      ArrayAttr channels, StringRef stages) {
  Properties &properties = state.getOrAddProperties<Properties>();
  properties.sym_name = builder.getStringAttr(name);
  properties.mesh = mesh;
  properties.arenas = arenas;
  properties.streams = streams;
  properties.communicators = communicators;
  properties.events = events;
  properties.entry = FlatSymbolRefAttr::get(builder.getContext(), entry);
  properties.tables = tables;
  properties.channels = channels;
  if (!stages.empty())
    properties.stages = builder.getStringAttr(stages);
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

ChannelAttr ProgramOp::getChannel(StringRef name) {
  if (getChannels())
    for (auto channel : getChannels()->getAsRange<ChannelAttr>())
      if (channel.getName() == name)
        return channel;
  return {};
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
    size *= getMirroredAxis(axis).empty() ? getAxisSize(axis) : 2;
  return size;
}

StringRef ProgramOp::getMirroredAxis(StringRef name) {
  StringRef axis = heddle::mirroredAxis(name);
  bool isMirror = getAxisSize(name) == 0 && !axis.empty() &&
                  getAxisSize(axis) > 0 && getAxisSize(axis) % 2 == 0;
  return isMirror ? axis : StringRef();
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
// rt.for, rt.switch
//===----------------------------------------------------------------------===//

void ForOp::build(OpBuilder &builder, OperationState &state, StringRef name,
                  int64_t lower, int64_t upper, bool reversed) {
  build(builder, state, name, OpFoldResult(builder.getI64IntegerAttr(lower)),
        OpFoldResult(builder.getI64IntegerAttr(upper)), reversed);
}

void ForOp::build(OpBuilder &builder, OperationState &state, StringRef name,
                  OpFoldResult lower, OpFoldResult upper, bool reversed) {
  Properties &properties = state.getOrAddProperties<Properties>();
  properties.name = builder.getStringAttr(name);
  auto take = [&](OpFoldResult bound, IntegerAttr &constant, int32_t &values) {
    values = isa<Value>(bound);
    if (values)
      state.addOperands(cast<Value>(bound));
    else
      constant = cast<IntegerAttr>(cast<Attribute>(bound));
  };
  take(lower, properties.lower, properties.operandSegmentSizes[0]);
  take(upper, properties.upper, properties.operandSegmentSizes[1]);
  if (reversed)
    properties.reversed = builder.getUnitAttr();
  state.addRegion()->emplaceBlock().addArgument(builder.getIndexType(),
                                                state.location);
  ensureTerminator(*state.regions.front(), builder, state.location);
}

/// A bound of a loop: an integer or an index value, which `values` counts.
static ParseResult parseBound(OpAsmParser &parser, OperationState &state,
                              IntegerAttr &constant, int32_t &values) {
  int64_t number = 0;
  OptionalParseResult parsed = parser.parseOptionalInteger(number);
  if (parsed.has_value()) {
    constant = parser.getBuilder().getI64IntegerAttr(number);
    return *parsed;
  }
  OpAsmParser::UnresolvedOperand value;
  values = 1;
  return failure(parser.parseOperand(value) ||
                 parser.resolveOperand(value,
                                       parser.getBuilder().getIndexType(),
                                       state.operands));
}

ParseResult ForOp::parse(OpAsmParser &parser, OperationState &state) {
  Properties &properties = state.getOrAddProperties<Properties>();
  OpAsmParser::Argument variable;
  if (parser.parseArgument(variable) || parser.parseEqual() ||
      parseBound(parser, state, properties.lower,
                 properties.operandSegmentSizes[0]) ||
      parser.parseKeyword("to") ||
      parseBound(parser, state, properties.upper,
                 properties.operandSegmentSizes[1]))
    return failure();
  Builder &builder = parser.getBuilder();
  variable.type = builder.getIndexType();
  properties.name = nameOf(parser, variable.ssaName);
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
  auto printBound = [&](std::optional<int64_t> constant, Value value) {
    if (value)
      printer << value;
    else
      printer << *constant;
  };
  printer << ' ' << getInductionVariable() << " = ";
  printBound(getLower(), getLowerValue());
  printer << " to ";
  printBound(getUpper(), getUpperValue());
  printer << (getReversed() ? " reversed " : " ");
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false,
                      /*printBlockTerminators=*/false);
  printer.printOptionalAttrDictWithKeyword(
      (*this)->getAttrs(),
      {getNameAttrName(), getLowerAttrName(), getUpperAttrName(),
       getReversedAttrName(), getOperandSegmentSizesAttrName()});
}

std::optional<int64_t> ForOp::getLargestUpper() {
  if (getUpper())
    return getUpper();
  auto lookup = getUpperValue().getDefiningOp<LookupOp>();
  auto table = lookup ? SymbolTable::lookupNearestSymbolFrom<NumbersOp>(
                            *this, lookup.getTableAttr())
                      : NumbersOp();
  if (!table)
    return std::nullopt;
  return *llvm::max_element(table.getValues());
}

void ForOp::getAsmBlockArgumentNames(Region &region,
                                     OpAsmSetValueNameFn setName) {
  if (region.getNumArguments() == 1)
    setName(region.getArgument(0), getName());
}

void SwitchOp::build(OpBuilder &builder, OperationState &state, Value selector,
                     ArrayRef<int64_t> values, ArrayRef<StringRef> labels) {
  Properties &properties = state.getOrAddProperties<Properties>();
  state.addOperands(selector);
  properties.values = builder.getDenseI64ArrayAttr(values);
  properties.labels = builder.getStrArrayAttr(labels);
  for (size_t i = 0; i < values.size(); ++i)
    ensureTerminator(*state.addRegion(), builder, state.location);
}

ParseResult SwitchOp::parse(OpAsmParser &parser, OperationState &state) {
  Properties &properties = state.getOrAddProperties<Properties>();
  Builder &builder = parser.getBuilder();
  OpAsmParser::UnresolvedOperand selector;
  if (parser.parseOperand(selector) ||
      parser.resolveOperand(selector, builder.getIndexType(), state.operands) ||
      parser.parseLBrace())
    return failure();
  SmallVector<int64_t> values;
  SmallVector<Attribute> labels;
  while (succeeded(parser.parseOptionalKeyword("case"))) {
    std::string label;
    if (parser.parseInteger(values.emplace_back()) ||
        parser.parseString(&label) || parser.parseRegion(*state.addRegion()))
      return failure();
    labels.push_back(builder.getStringAttr(label));
    ensureTerminator(*state.regions.back(), builder, state.location);
  }
  properties.values = builder.getDenseI64ArrayAttr(values);
  properties.labels = builder.getArrayAttr(labels);
  return failure(parser.parseRBrace() ||
                 parser.parseOptionalAttrDictWithKeyword(state.attributes));
}

void SwitchOp::print(OpAsmPrinter &printer) {
  printer << ' ' << getSelector() << " {";
  for (auto [i, value] : llvm::enumerate(getValues())) {
    printer.printNewline();
    printer << "case " << value << ' ' << getLabels()[i] << ' ';
    printer.printRegion(getCases()[i], /*printEntryBlockArgs=*/false,
                        /*printBlockTerminators=*/false);
  }
  printer.printNewline();
  printer << '}';
  printer.printOptionalAttrDictWithKeyword(
      (*this)->getAttrs(), {getValuesAttrName(), getLabelsAttrName()});
}

//===----------------------------------------------------------------------===//
// Places and numbers
//===----------------------------------------------------------------------===//

int64_t NumbersOp::getNumRows() {
  if (!getAxis())
    return 1;
  return (*this)->getParentOfType<ProgramOp>().getAxisSize(*getAxis());
}

void LookupOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setName(getResult(), getTable());
}

SmallVector<int64_t> BufferOp::getPlaceAt(int64_t stage) {
  if (std::optional<ArrayRef<int64_t>> rows = getByStage()) {
    size_t width = getStrides().size() + 1;
    return SmallVector<int64_t>(rows->slice(stage * width, width));
  }
  SmallVector<int64_t> place = {getOffset()};
  place.append(getStrides().begin(), getStrides().end());
  return place;
}

void BufferOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setName(getResult(), getName().rsplit('.').second.empty()
                           ? getName()
                           : getName().rsplit('.').second);
}

#define GET_OP_CLASSES
#include "dialects/Rt/RtOps.cpp.inc"
