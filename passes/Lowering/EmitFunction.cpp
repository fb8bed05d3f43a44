//===- EmitFunction.cpp - rt.func => a C++ function -----------------------===//

#include "passes/Lowering/EmitFunction.h"

#include "passes/Lowering/EmitScalar.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using llvm::formatv;

namespace heddle::lowering {

static rt::BufType typeOf(Value buffer) {
  return cast<rt::BufType>(buffer.getType());
}

std::string FunctionPrinter::number(Operation *op, int64_t constant) const {
  StringRef name = names.numbers.nameOf(op);
  return name.empty() ? std::to_string(constant)
                      : formatv("p.n[{0}]", name).str();
}

std::string FunctionPrinter::bytes(Operation *op, Value buffer) const {
  rt::BufType type = typeOf(buffer);
  if (names.numbers.nameOf(op).empty())
    return std::to_string(type.getBytes(type.getNumElements()));
  return formatv("{0} * {1}", number(op, 0), type.getElementBytes());
}

std::string FunctionPrinter::stream(StringRef name) const {
  return "p." +
         names.streams[rt::ProgramOp(names.program).getStreamIndex(name)];
}

template <class Op>
std::string FunctionPrinter::event(Op op) const {
  if (!op.getSlot())
    return "p." + names.events.lookup(op.getEvent());
  return formatv("p.{0}[{1}]", names.eventRows.lookup(op.getEvent()),
                 withoutParentheses(get(op.getSlot())));
}

std::string FunctionPrinter::communicator(ArrayAttr axes) const {
  return "p." + names.communicators[rt::ProgramOp(names.program)
                                        .getCommunicatorIndex(axes)];
}

std::string FunctionPrinter::add(rt::ViewOp view) const {
  std::string text = get(view.getSource());
  if (view.getOffset() != 0)
    text += formatv(" + {0}", view.getOffset());
  for (auto [index, stride] : llvm::zip(view.getIndices(), view.getStrides()))
    text += formatv(" + {0} * {1}", get(index), number(view, stride));
  return text;
}

//===----------------------------------------------------------------------===//
// The function
//===----------------------------------------------------------------------===//

LogicalResult FunctionPrinter::print() {
  std::string parameters = "[[maybe_unused]] heddle_program &p";
  for (auto [argument, name] :
       llvm::zip(func.getBody().getArguments(), func.getArgNames())) {
    std::string local = locals.give(cast<StringAttr>(name).getValue());
    expressions[argument] = local;
    std::string type = "int64_t ";
    if (auto buffer = dyn_cast<rt::BufType>(argument.getType()))
      type = (elementType(buffer.getElementType()) + " *").str();
    parameters += ", " +
                  std::string(argument.use_empty() ? "[[maybe_unused]] " : "") +
                  type + local;
  }
  os << "\n";
  std::string words = locationWords(func.getLoc());
  if (!words.empty())
    os << "// " << words << "\n";
  os << wrap(formatv("static heddle_rt_status {0}({1}) {{",
                     names.functions.lookup(func.getSymName()), parameters)
                 .str(),
             0)
     << "\n";
  if (failed(printBlock(func.getBody().front())))
    return failure();
  os << "  return HEDDLE_RT_OK;\n}\n";
  return success();
}

LogicalResult FunctionPrinter::printBlock(Block &block) {
  for (Operation &op : block)
    if (failed(printOp(op)))
      return failure();
  return success();
}

void FunctionPrinter::comment(Operation *op) {
  std::string words = locationWords(op->getLoc());
  if (words.empty() || words == lastComment)
    return;
  lastComment = words;
  os.indent(indent) << "// " << words << "\n";
}

void FunctionPrinter::statement(Operation *op, const std::string &call) {
  comment(op);
  os << wrap("TRY(" + call + ");", indent) << "\n";
}

LogicalResult FunctionPrinter::printOp(Operation &op) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(&op)
      .Case([&](rt::BufferOp buffer) { return printBuffer(buffer), success(); })
      .Case([&](rt::ViewOp view) {
        expressions[view] = add(view);
        return success();
      })
      .Case([&](rt::RankIndexOp index) {
        expressions[index] = "p." + names.places.lookup(index.getAxes());
        if (index.getStep() != 1)
          expressions[index] += " * " + number(index, index.getStep());
        return success();
      })
      .Case([&](rt::ForOp loop) { return printFor(loop); })
      .Case([&](rt::SwitchOp cases) { return printSwitch(cases); })
      .Case([&](rt::LookupOp lookup) { return printLookup(lookup), success(); })
      .Case<rt::SendOp, rt::ReceiveOp>(
          [&](auto message) { return printMessage(message), success(); })
      .Case([&](rt::GroupOp group) {
        statement(group, "heddle_rt_group_begin(p." + names.context + ")");
        if (failed(printBlock(group.getBody().front())))
          return failure();
        statement(group, "heddle_rt_group_end(p." + names.context + ")");
        return success();
      })
      .Case([&](rt::GemmOp gemm) { return printGemm(gemm), success(); })
      .Case([&](rt::AmaxOp amax) { return printAmax(amax), success(); })
      .Case([&](rt::HadamardOp mix) { return printHadamard(mix), success(); })
      .Case([&](rt::QuantizeOp quantize) {
        return printQuantize(quantize), success();
      })
      .Case([&](rt::AttentionOp attention) {
        return printAttention(attention), success();
      })
      .Case([&](rt::AttentionGradOp attention) {
        return printAttention(attention), success();
      })
      .Case([&](rt::KernelLaunchOp launch) {
        return printLaunch(launch), success();
      })
      .Case([&](rt::RopeOp rope) { return printRope(rope), success(); })
      .Case([&](rt::SegmentSortOp sort) {
        return printSegments(sort), success();
      })
      .Case([&](rt::SegmentSumOp sum) { return printSegments(sum), success(); })
      .Case<rt::ReturnOp, rt::EndOp>([](auto) { return success(); })
      .Case<rt::AllReduceOp, rt::ReduceScatterOp, rt::AllGatherOp,
            rt::AllToAllOp, rt::PermuteOp>(
          [&](auto collective) { return printCollective(collective); })
      .Default([&](Operation *other) { return printOther(other); });
}

void FunctionPrinter::printBuffer(rt::BufferOp op) {
  if (op->use_empty())
    return;
  // The last word of "layers.N.attention.q" is enough within a function.
  std::string name = locals.give(op.getName().rsplit('.').second.empty()
                                     ? op.getName()
                                     : op.getName().rsplit('.').second);
  StringRef type = elementType(op.getType().getElementType());
  StringRef arena =
      names.arenas[rt::ProgramOp(names.program).getArenaIndex(op.getArena())];
  StringRef place = names.numbers.placeOf(op);
  std::string offset = formatv("p.place[{0}]", place);
  for (auto [i, index] : llvm::enumerate(op.getIndices()))
    offset += formatv(" + {0} * p.place[{1} + {2}]", get(index), place, i + 1);
  os << wrap(formatv("{0} *const {1} = at<{0}>(p.{2}, {3});", type, name, arena,
                     offset)
                 .str(),
             indent)
     << "\n";
  expressions[op] = name;
}

LogicalResult FunctionPrinter::printFor(rt::ForOp op) {
  std::string name = locals.give(op.getName());
  expressions[op.getInductionVariable()] = name;
  comment(op);
  auto bound = [&](Value value, StringRef count) -> std::string {
    if (value)
      return withoutParentheses(get(value));
    return count.empty() ? "0" : formatv("p.n[{0}]", count).str();
  };
  std::string lower = bound(op.getLowerValue(), names.numbers.lowerOf(op)),
              upper = bound(op.getUpperValue(), names.numbers.upperOf(op));
  StringRef form = op.getReversed()
                       ? "for (int64_t {0} = {2}; {0}-- > {1};) {{\n"
                       : "for (int64_t {0} = {1}; {0} < {2}; ++{0}) {{\n";
  os.indent(indent) << formatv(form.data(), name, lower, upper);
  indent += 2;
  LogicalResult printed = printBlock(op.getBody().front());
  indent -= 2;
  os.indent(indent) << "}\n";
  return printed;
}

LogicalResult FunctionPrinter::printSwitch(rt::SwitchOp op) {
  comment(op);
  std::string selector = withoutParentheses(get(op.getSelector()));
  bool isOne = op.getValues().size() == 1;
  if (!isOne)
    os.indent(indent) << formatv("switch ({0}) {{\n", selector);
  for (auto [i, value] : llvm::enumerate(op.getValues())) {
    std::string head = isOne ? formatv("if ({0} == {1})", selector, value).str()
                             : formatv("case {0}:", value).str();
    os.indent(indent) << head << " { // " << op.getLabel(i) << "\n";
    lastComment.clear();
    indent += 2;
    if (failed(printBlock(op.getCases()[i].front())))
      return failure();
    if (!isOne)
      os.indent(indent) << "break;\n";
    indent -= 2;
    os.indent(indent) << "}\n";
  }
  if (!isOne)
    os.indent(indent) << "}\n";
  lastComment.clear();
  return success();
}

void FunctionPrinter::printLookup(rt::LookupOp op) {
  if (op->use_empty())
    return;
  expressions[op] =
      formatv("p.{0}[{1}]", names.tables.lookup(op.getTable()),
              op.getIndex() ? withoutParentheses(get(op.getIndex())) : "0");
  printLocal(op, op.getTable());
}

void FunctionPrinter::printLocal(Value value, StringRef wish) {
  std::string name = locals.give(wish);
  os.indent(indent) << formatv("const int64_t {0} = {1};\n", name,
                               withoutParentheses(get(value)));
  expressions[value] = name;
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

/// "{batch, sequence, group, head}": distances of [b, s, g, r, k] or [b, t, g,
/// k].
static std::string attentionStrides(Value buffer) {
  SmallVector<int64_t> strides = typeOf(buffer).getStrides();
  int64_t head = strides.size() == 5 ? strides[3] : 0;
  return formatv("{{{0}, {1}, {2}, {3}}", strides[0], strides[1], strides[2],
                 head);
}

template <class Op>
void FunctionPrinter::printAttention(Op op) {
  constexpr bool isGrad = std::is_same_v<Op, rt::AttentionGradOp>;
  ArrayRef<int64_t> q = typeOf(op.getQ()).getShape(),
                    k = typeOf(op.getK()).getShape();
  std::string args = formatv(
      ".name = {0}, .dtype = {1}, .batch = {2}, .queries = {3}, .keys = {4}, "
      ".groups = {5}, .heads = {6}, "
      ".head_size = {7}, .q = {8}, .k = {9}, .v = {10}, .o = {11}",
      stringLiteral(op.getLabel()),
      dtypeName(typeOf(op.getQ()).getElementType()), q[0], q[1], k[1], q[2],
      q[3], q[4], attentionStrides(op.getQ()), attentionStrides(op.getK()),
      attentionStrides(op.getV()), attentionStrides(op.getO()));
  if constexpr (isGrad)
    args += formatv(
        ", .grad_q = {0}, .grad_k = {1}, .grad_v = {2}, .grad_o = {3}",
        attentionStrides(op.getGradQ()), attentionStrides(op.getGradK()),
        attentionStrides(op.getGradV()), attentionStrides(op.getGradO()));
  args +=
      formatv(", .scale = {0}, .causal = {1}, .window = {2}",
              floatLiteral(op.getScale()), int(op.getCausal()), op.getWindow());
  if (op.getQueryDocuments())
    args += formatv(", .query_documents = {0}, .key_documents = {1}",
                    get(op.getQueryDocuments()), get(op.getKeyDocuments()));
  if (op.getQueryPositions())
    args += formatv(", .query_positions = {0}, .key_positions = {1}",
                    get(op.getQueryPositions()), get(op.getKeyPositions()));
  if (op.getDropout()) {
    auto index = [&](Value value) { return "(" + get(value) + ")"; };
    args += formatv(", .dropout = {0}, .seed = {1}, .token_numbers = {2}, "
                    ".first_head = {3} * {4} + {5}, .group_heads = {4}",
                    floatLiteral(*op.getDropout()), get(op.getSeed()),
                    get(op.getTokenNumbers()), index(op.getFirstGroup()),
                    *op.getGroupHeads(), index(op.getFirstHead()));
  }
  std::string operands =
      formatv("{0}, {1}, {2}, {3}, {4}", get(op.getQ()), get(op.getK()),
              get(op.getV()), get(op.getO()), get(op.getLse()));
  if constexpr (isGrad)
    operands +=
        formatv(", {0}, {1}, {2}, {3}", get(op.getGradO()), get(op.getGradQ()),
                get(op.getGradK()), get(op.getGradV()));
  statement(op, formatv("{0}({1}, {{{2}}, {3})",
                        isGrad ? "attentionGrad" : "attention",
                        stream(op.getStream()), args, operands));
}

void FunctionPrinter::printRope(rt::RopeOp op) {
  SmallVector<std::string> frequencies;
  for (double frequency : op.getFrequencies())
    frequencies.push_back(floatLiteral(APFloat(frequency)));
  int64_t positions = typeOf(op.getPositions()).getNumElements();
  int64_t heads = typeOf(op.getInput()).getNumElements() /
                  (2 * frequencies.size()) / positions;
  statement(op,
            formatv("rope({0}, {1}, {2}, {3}, {{{4}}, {5}, {6}, {7}, {8}, {9})",
                    stream(op.getStream()), stringLiteral(op.getLabel()),
                    positions, heads, llvm::join(frequencies, ", "),
                    op.getInverse() ? "true" : "false",
                    dtypeName(typeOf(op.getInput()).getElementType()),
                    get(op.getInput()), get(op.getPositions()),
                    get(op.getOutput())));
}

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

std::string FunctionPrinter::launchOperand(rt::KernelLaunchOp op,
                                           rt::OperandAttr operand,
                                           ValueRange group) {
  switch (operand.getKind()) {
  case rt::OperandKind::row_index:
    return formatv("rowIndex({0})", get(group[0]));
  case rt::OperandKind::column_index:
    return formatv("columnIndex({0})", get(group[0]));
  case rt::OperandKind::gathered:
    return formatv("gathered({0}, {1}, {2}, {3})", get(group[0]), get(group[1]),
                   get(group[2]),
                   typeOf(group[0]).getNumElements() / op.getColumns());
  default:
    break;
  }
  StringRef shape = operand.getKind() == rt::OperandKind::per_row ? "Row"
                    : operand.getKind() == rt::OperandKind::per_column
                        ? "Column"
                    : operand.getKind() == rt::OperandKind::scalar ? "Scalar"
                                                                   : "";
  std::string text =
      formatv("{0}{1}({2})", rt::stringifyOperandMode(operand.getMode()), shape,
              get(group[0]));
  bool full = operand.getKind() == rt::OperandKind::full;
  if (!full && operand.getKind() != rt::OperandKind::per_row)
    return text;
  // The verifier has seen that there is a form.
  rt::RowForm form =
      *rt::getRowForm(typeOf(group[0]), full ? op.getColumns() : 1);
  if (full && form.pitch != 0 && form.pitch != op.getColumns())
    text += formatv(".pitched({0})", form.pitch);
  if (form.group != 1)
    text += formatv(".grouped({0})", form.group);
  if (form.period != 0)
    text += formatv(".repeated({0})", form.period);
  return text;
}

void FunctionPrinter::printLaunch(rt::KernelLaunchOp op) {
  auto kernel =
      rt::ProgramOp(names.program).lookupSymbol<rt::KernelOp>(op.getKernel());
  SmallVector<std::string> members, operands;
  auto constant = op.getConstants().getAsRange<FloatAttr>().begin();
  for (auto [operand, group] :
       llvm::zip(kernel.getOperandList(), op.getGroups(kernel))) {
    if (operand.getKind() == rt::OperandKind::constant)
      members.push_back(floatLiteral((*constant++).getValue()));
    else if (operand.getKind() == rt::OperandKind::integer)
      members.push_back(formatv("int32_t({0})", get(group[0])));
    else
      operands.push_back(launchOperand(op, operand, group));
  }
  bool byRows = kernel.getSkeleton() == rt::Skeleton::rowwise ||
                kernel.getSkeleton() == rt::Skeleton::columnwise;
  StringRef skeleton = kernel.getSkeleton() == rt::Skeleton::reduce_all
                           ? "reduceAll"
                           : rt::stringifySkeleton(kernel.getSkeleton());
  std::string size =
      byRows ? formatv("{0}, {1}", op.getRows(), op.getColumns()).str()
             : number(op, op.getRows() * op.getColumns());
  std::string workspace =
      op.getWorkspace() ? ", " + get(op.getWorkspace()) : "";
  statement(op,
            formatv("{0}({1}, {2}, {3}, kernels::{4}{{{5}}{6}, {7})", skeleton,
                    stream(op.getStream()), stringLiteral(op.getLabel()), size,
                    functorName(kernel), llvm::join(members, ", "), workspace,
                    llvm::join(operands, ", ")));
}

void FunctionPrinter::printSegments(rt::SegmentSortOp op) {
  statement(op,
            formatv("kernels::segmentSort({0}, {1}, {2}, {3}, {4}, {5}, {6})",
                    stream(op.getStream()), stringLiteral(op.getLabel()),
                    typeOf(op.getIndex()).getNumElements(), get(op.getIndex()),
                    get(op.getFirst()), op.getRows(), get(op.getWorkspace())));
}

void FunctionPrinter::printSegments(rt::SegmentSumOp op) {
  ArrayRef<int64_t> from = typeOf(op.getInput()).getShape();
  statement(
      op, formatv("kernels::segmentSum({0}, {1}, {2}, {3}, {4}, {5}, {6}, {7})",
                  stream(op.getStream()), stringLiteral(op.getLabel()), from[0],
                  from[1], typeOf(op.getGradient()).getShape()[0],
                  get(op.getWorkspace()), get(op.getInput()),
                  get(op.getGradient())));
}

//===----------------------------------------------------------------------===//
// Collectives and the rest
//===----------------------------------------------------------------------===//

static StringRef reductionName(rt::Reduction reduction) {
  return reduction == rt::Reduction::sum ? "HEDDLE_RT_SUM" : "HEDDLE_RT_MAX";
}

LogicalResult FunctionPrinter::printCollective(Operation *op) {
  // What they begin with: "tp, compute, input, output".
  auto head = [&](auto collective) {
    return formatv("{0}, {1}, {2}, {3}", communicator(collective.getAxes()),
                   stream(collective.getStream()), get(collective.getInput()),
                   get(collective.getOutput()))
        .str();
  };
  auto dtype = [](auto collective) {
    return dtypeName(typeOf(collective.getInput()).getElementType());
  };
  std::string call =
      llvm::TypeSwitch<Operation *, std::string>(op)
          .Case([&](rt::AllReduceOp reduce) -> std::string {
            return formatv(
                "heddle_rt_all_reduce({0}, {1}, {2}, {3})", head(reduce),
                number(reduce, typeOf(reduce.getInput()).getNumElements()),
                dtype(reduce), reductionName(reduce.getReduction()));
          })
          .Case([&](rt::ReduceScatterOp scatter) -> std::string {
            return formatv(
                "heddle_rt_reduce_scatter({0}, {1}, {2}, {3}, {4})",
                head(scatter), scatter.getOuter(),
                number(scatter, typeOf(scatter.getOutput()).getNumElements() /
                                    scatter.getOuter()),
                dtype(scatter), reductionName(scatter.getReduction()));
          })
          .Case([&](rt::AllGatherOp gather) -> std::string {
            return formatv(
                "heddle_rt_all_gather({0}, {1}, {2}, {3})", head(gather),
                gather.getOuter(),
                number(gather, typeOf(gather.getInput()).getNumElements() /
                                   gather.getOuter()),
                dtype(gather));
          })
          .Case([&](rt::AllToAllOp all) -> std::string {
            return formatv("allToAll({0}, {{.outer = {1}, .split = {2}, "
                           ".middle = {3}, .concat = {4}, .inner = {5}, "
                           ".split_first = {6}}, {7})",
                           head(all), all.getOuter(), all.getSplit(),
                           all.getMiddle(), all.getConcat(), all.getInner(),
                           int(all.getSplitFirst()), dtype(all));
          })
          .Case([&](rt::PermuteOp permute) -> std::string {
            auto sources = llvm::map_range(permute.getSources(), [](int64_t s) {
              return std::to_string(s);
            });
            return formatv(
                "permute({0}, {1}, {2}, {{{3}})", head(permute),
                number(permute, typeOf(permute.getInput()).getNumElements()),
                dtype(permute), llvm::join(sources, ", "));
          });
  return statement(op, call), success();
}

void FunctionPrinter::printMessage(rt::SendOp op) {
  statement(op, formatv("heddle_rt_send(p.{0}, {1}, {2}, {3}, {4}, kReceiver)",
                        names.channels.lookup(op.getChannel()).first,
                        stream(op.getStream()), get(op.getBuffer()),
                        number(op, typeOf(op.getBuffer()).getNumElements()),
                        dtypeName(typeOf(op.getBuffer()).getElementType())));
}

void FunctionPrinter::printMessage(rt::ReceiveOp op) {
  statement(op, formatv("heddle_rt_receive(p.{0}, {1}, {2}, {3}, {4}, kSender)",
                        names.channels.lookup(op.getChannel()).second,
                        stream(op.getStream()), get(op.getBuffer()),
                        number(op, typeOf(op.getBuffer()).getNumElements()),
                        dtypeName(typeOf(op.getBuffer()).getElementType())));
}

std::string FunctionPrinter::callText(rt::CallOp call) {
  std::string operands = "p";
  for (Value operand : call.getOperands())
    operands += ", " + get(operand);
  std::string callee = names.functions.lookup(call.getCallee());
  rt::ProgramOp program = names.program;
  // What the step calls is a slot's function.
  if (func.getSymName() != program.getEntry() ||
      !queuesAlikeInStage(program, call.getCallee()))
    return formatv("{0}({1})", callee, operands);
  return formatv("graph<{0}>({1}, HEDDLE_RT_GRAPH_SLOT, p.{2}, {3})", callee,
                 stringLiteral(callee), names.streams[0], operands);
}

LogicalResult FunctionPrinter::printOther(Operation *op) {
  if (isa<arith::ArithDialect>(op->getDialect())) {
    if (!names.numbers.nameOf(op).empty()) {
      expressions[op->getResult(0)] = number(op, 0);
      return success();
    }
    SmallVector<std::string> operands;
    for (Value operand : op->getOperands())
      operands.push_back(get(operand));
    FailureOr<std::string> text = emitScalarOp(op, operands);
    if (succeeded(text))
      expressions[op->getResult(0)] = *text;
    auto name = dyn_cast<NameLoc>(op->getLoc());
    if (name && succeeded(text) && op->getNumOperands() && !op->use_empty())
      printLocal(op->getResult(0), name.getName());
    return text;
  }
  std::string call =
      llvm::TypeSwitch<Operation *, std::string>(op)
          .Case([&](rt::CallOp call) { return callText(call); })
          .Case([&](rt::CopyOp copy) -> std::string {
            return formatv("heddle_rt_copy({0}, {1}, {2}, {3})",
                           stream(copy.getStream()), get(copy.getOutput()),
                           get(copy.getInput()), bytes(copy, copy.getInput()));
          })
          .Case([&](rt::ZeroOp zero) -> std::string {
            return formatv("heddle_rt_zero({0}, {1}, {2})",
                           stream(zero.getStream()), get(zero.getOutput()),
                           bytes(zero, zero.getOutput()));
          })
          .Case([&](rt::PoisonOp poison) -> std::string {
            return formatv("heddle_rt_poison({0}, {1}, {2})",
                           stream(poison.getStream()), get(poison.getOutput()),
                           bytes(poison, poison.getOutput()));
          })
          .Case([&](rt::RecordOp record) -> std::string {
            return formatv("heddle_rt_event_record({0}, {1})", event(record),
                           stream(record.getStream()));
          })
          .Case([&](rt::WaitOp wait) -> std::string {
            return formatv("heddle_rt_stream_wait({0}, {1})",
                           stream(wait.getStream()), event(wait));
          })
          .Default([](Operation *) { return std::string(); });
  if (call.empty())
    return op->emitOpError() << "has no form in C++";
  return statement(op, call), success();
}

} // namespace heddle::lowering
