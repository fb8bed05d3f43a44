//===- EmitKernels.cpp - rt.kernel => functors and instantiations ---------===//

#include "passes/Lowering/Emit.h"

#include "passes/Lowering/EmitScalar.h"
#include "passes/Lowering/EmitText.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <set>

using namespace mlir;
using llvm::formatv;

namespace heddle::lowering {
namespace {

/// What every file with functors begins with: beside Math.h, the functions that
/// `arith` has and C++ has not.
constexpr StringLiteral kPrelude = R"(namespace kernels {

using namespace heddle;

// NaN wins, so that a fault stays visible.
HEDDLE_FN float maximum(float a, float b) { return a > b || a != a ? a : b; }
HEDDLE_FN float minimum(float a, float b) { return a < b || a != a ? a : b; }
// As T stores it.
template <class T> HEDDLE_FN float rounded(float v) { T stored; narrow(v, stored); return widen(stored); }

} // namespace kernels
)";

/// The skeletons as step.cpp sees them: their bodies are in kernels.cpp.
constexpr StringLiteral kSkeletons = R"(
namespace heddle { // defined in heddle/Runtime/Skeletons.h
template <class F, class... O>
heddle_rt_status elementwise(heddle_rt_stream *stream, const char *name, int64_t n, F f, O... o);
template <class F, class... O>
heddle_rt_status rowwise(heddle_rt_stream *stream, const char *name, int64_t rows, int64_t columns, F f, O... o);
template <class F, class... O>
heddle_rt_status columnwise(heddle_rt_stream *stream, const char *name, int64_t rows, int64_t columns, F f,
                            float *workspace, O... o);
template <class F, class... O>
heddle_rt_status reduceAll(heddle_rt_stream *stream, const char *name, int64_t n, F f, void *workspace, O... o);
} // namespace heddle
)";

/// The generator's header, for functors that draw.
std::string includeRandom(StringRef functors) {
  return functors.contains("random::")
             ? "#include \"heddle/Runtime/Random.h\"\n"
             : "";
}

StringRef skeletonName(rt::Skeleton skeleton) {
  switch (skeleton) {
  case rt::Skeleton::elementwise:
    return "elementwise";
  case rt::Skeleton::rowwise:
    return "rowwise";
  case rt::Skeleton::columnwise:
    return "columnwise";
  case rt::Skeleton::reduce_all:
    return "reduceAll";
  }
  llvm_unreachable("not a skeleton");
}

bool isMember(rt::OperandAttr operand) {
  return operand.getKind() == rt::OperandKind::constant ||
         operand.getKind() == rt::OperandKind::integer;
}

/// "Operand<const float, Read, Full>": the type of a launch's operand.
std::string launchedType(rt::OperandAttr operand) {
  StringRef element = elementType(operand.getType());
  switch (operand.getKind()) {
  case rt::OperandKind::gathered:
    return formatv("Gathered<{0}>", element);
  case rt::OperandKind::row_index:
    return "Index<true>";
  case rt::OperandKind::column_index:
    return "Index<false>";
  default:
    break;
  }
  StringRef mode = !operand.writes() ? "Read"
                   : operand.reads() ? "ReadWrite"
                                     : "Write";
  StringRef shape = operand.getKind() == rt::OperandKind::full      ? "Full"
                    : operand.getKind() == rt::OperandKind::per_row ? "PerRow"
                    : operand.getKind() == rt::OperandKind::per_column
                        ? "PerColumn"
                        : "Scalar";
  return formatv("Operand<{0}{1}, {2}, {3}>", operand.writes() ? "" : "const ",
                 element, mode, shape);
}

/// Prints one kernel's functor.
class FunctorPrinter {
public:
  FunctorPrinter(rt::KernelOp kernel, llvm::raw_ostream &os)
      : kernel(kernel), operands(kernel.getOperandList()), os(os),
        reductions(llvm::to_vector(kernel.getOps<rt::ReduceOp>())) {
    Namer namer;
    for (rt::OperandAttr operand : operands)
      names.push_back(namer.give(operand.getName()));
  }

  LogicalResult print();

private:
  /// The parameters that stand for operands; written ones as references where
  /// `writes`, nameless where this function does not use them.
  std::string parameters(bool writes, bool onlyScalars = false) const;
  /// Binds operands, and the reductions before `pass`, to their names.
  void bindOperands(ScalarBody &body, unsigned pass) const;
  LogicalResult printPasses();
  LogicalResult printAccumulate(unsigned pass);
  LogicalResult printCombine(unsigned pass);
  void printInit(unsigned pass);
  LogicalResult printMap();
  /// Assigns what the kernel yields.
  LogicalResult printOutputs(ScalarBody &body, StringRef signature);
  unsigned firstState(unsigned pass) const;

  rt::KernelOp kernel;
  SmallVector<rt::OperandAttr> operands;
  llvm::raw_ostream &os;
  SmallVector<rt::ReduceOp> reductions;
  SmallVector<std::string> names; ///< of operands, as parameters or members
};

std::string FunctorPrinter::parameters(bool writes, bool onlyScalars) const {
  SmallVector<std::string> list;
  for (auto [operand, name] : llvm::zip(operands, names)) {
    if (isMember(operand))
      continue;
    bool named = writes ? operand.writes() || operand.reads() : operand.reads();
    named &= !onlyScalars || operand.getKind() == rt::OperandKind::scalar;
    std::string text = valueType(operand.getValueType()).str();
    if (writes && operand.writes())
      text += " &" + name;
    else if (named)
      text += " " + name;
    list.push_back(text);
  }
  return llvm::join(list, ", ");
}

unsigned FunctorPrinter::firstState(unsigned pass) const {
  unsigned first = 0;
  for (rt::ReduceOp reduction : ArrayRef(reductions).take_front(pass))
    first += reduction.getNumResults();
  return first;
}

void FunctorPrinter::bindOperands(ScalarBody &body, unsigned pass) const {
  for (unsigned i = 0; i < operands.size(); ++i)
    if (Value argument = rt::KernelOp(kernel).getArgumentOf(i))
      body.bind(argument, names[i]);
  for (unsigned before = 0; before < pass; ++before)
    for (auto [k, state] :
         llvm::enumerate(rt::ReduceOp(reductions[before]).getResults()))
      body.bind(state, formatv("s[{0}]", firstState(before) + k));
}

void FunctorPrinter::printInit(unsigned pass) {
  for (auto [k, identity] : llvm::enumerate(reductions[pass].getIdentity()))
    os << formatv("      s[{0}] = {1};\n", firstState(pass) + k,
                  floatLiteral(cast<FloatAttr>(identity).getValue()));
}

LogicalResult FunctorPrinter::printAccumulate(unsigned pass) {
  ScalarBody body(os, 6);
  bindOperands(body, pass);
  Block &block = reductions[pass].getAccumulate().front();
  for (auto [k, argument] : llvm::enumerate(block.getArguments()))
    body.bind(argument, formatv("s[{0}]", firstState(pass) + k));
  SmallVector<Value> states(block.getTerminator()->getOperands());
  // With several states, none may be assigned while another still reads it.
  if (failed(states.size() > 1 ? body.hold(states) : body.need(states)))
    return failure();
  for (auto [k, state] : llvm::enumerate(states))
    os << formatv("      s[{0}] = {1};\n", firstState(pass) + k,
                  body.getBare(state));
  return success();
}

LogicalResult FunctorPrinter::printCombine(unsigned pass) {
  ScalarBody body(os, 6);
  Block &block = reductions[pass].getCombine().front();
  unsigned states = reductions[pass].getNumResults(), first = firstState(pass);
  for (unsigned k = 0; k < states; ++k) {
    body.bind(block.getArgument(k), formatv("s[{0}]", first + k));
    body.bind(block.getArgument(states + k), formatv("t[{0}]", first + k));
  }
  SmallVector<Value> joined(block.getTerminator()->getOperands());
  if (failed(joined.size() > 1 ? body.hold(joined) : body.need(joined)))
    return failure();
  for (auto [k, state] : llvm::enumerate(joined))
    os << formatv("      s[{0}] = {1};\n", first + k, body.getBare(state));
  return success();
}

LogicalResult FunctorPrinter::printPasses() {
  os << formatv("  static constexpr int kPasses = {0};\n", reductions.size());
  if (reductions.empty())
    return success();
  os << "  static constexpr int kReductions[] = {"
     << llvm::join(llvm::map_range(reductions,
                                   [](rt::ReduceOp r) {
                                     return std::to_string(r.getNumResults());
                                   }),
                   ", ")
     << "};\n";
  auto forEachPass = [&](StringRef signature, auto print) -> LogicalResult {
    os << "  template <int P>\n  HEDDLE_FN void " << signature << " const {\n";
    for (unsigned pass = 0; pass < reductions.size(); ++pass) {
      os << formatv("    if constexpr (P == {0}) {{\n", pass);
      if (failed(print(pass)))
        return failure();
      os << "    }\n";
    }
    os << "  }\n";
    return success();
  };
  auto init = [&](unsigned pass) { return printInit(pass), success(); };
  std::string accumulate =
      formatv("accumulate(float *s, int32_t, {0})", parameters(false));
  return failure(
      failed(forEachPass("init(float *s)", init)) ||
      failed(forEachPass(
          accumulate, [&](unsigned pass) { return printAccumulate(pass); })) ||
      failed(forEachPass("combine(float *s, const float *t)",
                         [&](unsigned pass) { return printCombine(pass); })));
}

LogicalResult FunctorPrinter::printMap() {
  rt::SumOp sum = *kernel.getOps<rt::SumOp>().begin();
  StringRef value = valueType(sum.getResult().getType());
  os << formatv("  using Value = {0};\n  HEDDLE_FN Value map({1}) const {{\n",
                value, parameters(false));
  ScalarBody body(os, 4);
  bindOperands(body, 0);
  if (failed(body.need({sum.getValue()})))
    return failure();
  os << formatv("    return Value({0});\n  }\n", body.getBare(sum.getValue()));
  return success();
}

LogicalResult FunctorPrinter::printOutputs(ScalarBody &body,
                                           StringRef signature) {
  SmallVector<Value> values(
      kernel.getBody().front().getTerminator()->getOperands());
  SmallVector<std::string> written;
  for (auto [operand, name] : llvm::zip(operands, names))
    if (operand.writes())
      written.push_back(name);
  // With several outputs, an inout one may not be assigned while it is read.
  if (failed(values.size() > 1 ? body.hold(values) : body.need(values)))
    return failure();
  for (auto [name, value] : llvm::zip(written, values))
    os << formatv("    {0} = {1};\n", name, body.getBare(value));
  return success();
}

LogicalResult FunctorPrinter::print() {
  os << "struct " << functorName(kernel) << " {\n";
  for (auto [operand, name] : llvm::zip(operands, names))
    if (isMember(operand))
      os << "  " << valueType(operand.getValueType()) << ' ' << name << ";\n";
  std::string signature;
  switch (kernel.getSkeleton()) {
  case rt::Skeleton::elementwise:
    signature = formatv("operator()({0})", parameters(true));
    break;
  case rt::Skeleton::rowwise:
  case rt::Skeleton::columnwise:
    if (failed(printPasses()))
      return failure();
    signature = formatv("apply(const float *{0}, int32_t, {1})",
                        reductions.empty() ? "" : "s", parameters(true));
    break;
  case rt::Skeleton::reduce_all:
    if (failed(printMap()))
      return failure();
    signature = formatv("apply(Value total, {0})",
                        parameters(true, /*onlyScalars=*/true));
    break;
  }
  os << "  HEDDLE_FN void " << signature << " const {\n";
  ScalarBody body(os, 4);
  bindOperands(body, reductions.size());
  for (auto sum : kernel.getOps<rt::SumOp>())
    body.bind(sum.getResult(), "total");
  if (failed(printOutputs(body, signature)))
    return failure();
  os << "  }\n};\n";
  return success();
}

/// "heddle_rt_status elementwise(heddle_rt_stream *, ..., kernels::Add, ...)".
std::string launchSignature(rt::KernelOp kernel) {
  rt::Skeleton skeleton = kernel.getSkeleton();
  bool rows =
      skeleton == rt::Skeleton::rowwise || skeleton == rt::Skeleton::columnwise;
  std::string text = formatv("heddle_rt_status {0}(heddle_rt_stream *, const "
                             "char *, int64_t, {1}kernels::{2}",
                             skeletonName(skeleton), rows ? "int64_t, " : "",
                             functorName(kernel));
  if (skeleton == rt::Skeleton::columnwise)
    text += ", float *";
  if (skeleton == rt::Skeleton::reduce_all)
    text += ", void *";
  for (rt::OperandAttr operand : kernel.getOperandList())
    if (!isMember(operand))
      text += ", " + launchedType(operand);
  return text + ")";
}

/// Segment ops are functions of the runtime's own; what is compiled once per
/// pair of formats is a function around them.
std::string segmentSignature(StringRef input, StringRef gradient) {
  return formatv(
      "heddle_rt_status segmentSum(heddle_rt_stream *stream, const char *name, "
      "int64_t n, int64_t columns, "
      "int64_t rows, const int32_t *sorted, const {0} *from, {1} *gradient)",
      input, gradient);
}
constexpr StringLiteral kSortSignature =
    "heddle_rt_status segmentSort(heddle_rt_stream *stream, const char *name, "
    "int64_t n, const int32_t *index, "
    "int64_t first, int64_t rows, int32_t *workspace)";

void emitSegments(rt::ProgramOp program, std::string &declarations,
                  std::string &definitions) {
  std::set<std::string> signatures;
  bool sorts = false;
  for (rt::FuncOp func : reachableFunctions(program))
    func.getBody().walk([&](Operation *op) {
      sorts |= isa<rt::SegmentSortOp>(op);
      if (auto sum = dyn_cast<rt::SegmentSumOp>(op))
        signatures.insert(segmentSignature(
            elementType(sum.getInput().getType().getElementType()),
            elementType(sum.getGradient().getType().getElementType())));
    });
  if (sorts) {
    declarations += wrap((kSortSignature + ";").str(), 0) + "\n";
    definitions += (kSortSignature + " {\n  return heddle::segmentSort(stream, "
                                     "name, n, index, first, rows, "
                                     "workspace);\n}\n")
                       .str();
  }
  for (const std::string &signature : signatures) {
    declarations += wrap(signature + ";", 0) + "\n";
    definitions += signature + " {\n  return heddle::segmentSum(stream, name, "
                               "n, columns, rows, sorted, in(from), "
                               "inout(gradient));\n}\n";
  }
}

} // namespace

FailureOr<KernelsText> emitKernels(rt::ProgramOp program) {
  KernelsText text;
  std::string functors, externs, instantiations, segments, segmentBodies;
  for (rt::KernelOp kernel : launchedKernels(program)) {
    std::string functor;
    llvm::raw_string_ostream os(functor);
    if (failed(FunctorPrinter(kernel, os).print()))
      return failure();
    std::string signature = launchSignature(kernel);
    // Where it came from is no part of a unit: equal kernels of two models
    // share an object.
    std::string words = locationWords(kernel.getLoc());
    functors += "\n" + (words.empty() ? "" : "// " + words + "\n") + functor;
    externs += wrap("extern template " + signature + ";", 0) + "\n";
    instantiations += wrap("template " + signature + ";", 0) + "\n";
    text.units.push_back(
        {functorName(kernel),
         includeRandom(functor) +
             "#include \"heddle/Runtime/Skeletons.h\"\n\n" + kPrelude.str() +
             "\nnamespace kernels {\n\n" + functor +
             "\n} // namespace kernels\n\nnamespace heddle {\ntemplate " +
             signature + ";\n} // namespace heddle\n"});
  }
  emitSegments(program, segments, segmentBodies);
  StringRef name = program.getSymName();
  text.header = formatv("// Kernels of program {0}: functors on values, and "
                        "the launches that kernels.cpp\n"
                        "// instantiates. Generated by heddle.\n\n#ifndef "
                        "HEDDLE_PROGRAM_KERNELS_H\n#define "
                        "HEDDLE_PROGRAM_KERNELS_H\n\n#include "
                        "\"heddle/Runtime/Operands.h\"\n",
                        name)
                    .str() +
                includeRandom(functors) + kSkeletons.str() + "\n" +
                kPrelude.str() + "\nnamespace kernels {\n" + functors +
                (segments.empty() ? "" : "\n" + segments) +
                "\n} // namespace kernels\n\nnamespace heddle {\n" + externs +
                "} // namespace heddle\n\n#endif\n";
  text.source = formatv("// Instantiates the kernels of program {0}. Generated "
                        "by heddle.\n\n#include "
                        "\"heddle/Runtime/Skeletons.h\"\n\n#include "
                        "\"kernels.h\"\n\nnamespace heddle {{\n",
                        name)
                    .str() +
                instantiations + "} // namespace heddle\n";
  if (!segmentBodies.empty()) {
    std::string body = "namespace kernels {\n\nusing namespace heddle;\n\n" +
                       segmentBodies + "\n} // namespace kernels\n";
    text.source += "\n" + body;
    text.units.push_back(
        {"Segments", "#include \"heddle/Runtime/Skeletons.h\"\n\n" + body});
  }
  return text;
}

} // namespace heddle::lowering
