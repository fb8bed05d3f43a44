//===- LowerToRt.cpp - the program of one rank as rt ----------------------===//
//
// What the pass promises is written once, in Passes.td.
//
//===----------------------------------------------------------------------===//

#include "dialects/Stage/Stage.h"
#include "dialects/Transformer/MergeValues.h"
#include "passes/Lowering/LowerStep.h"
#include "passes/Lowering/Passes.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::lowering;
using namespace heddle::transformer;

namespace heddle {
#define GEN_PASS_DEF_LOWERTORTPASS
#include "passes/Lowering/Passes.h.inc"
} // namespace heddle

//===----------------------------------------------------------------------===//
// Segments
//===----------------------------------------------------------------------===//

/// Which results calls use, and which of them they only add to states.
static void readCalls(ModuleOp module, llvm::StringMap<Signature> &signatures) {
  module.walk([&](Operation *call) {
    for (StringRef callee : calleesOf(call)) {
      Signature &signature = signatures.find(callee)->second;
      for (auto [i, result] : llvm::enumerate(call->getResults())) {
        if (result.use_empty())
          continue;
        signature.results[i] = 0;
        if (!result.hasOneUse() || !isa<AccumulateOp>(*result.user_begin()))
          signature.accumulates[i] = false;
      }
    }
  });
}

static void nameArguments(func::FuncOp function,
                          SmallVectorImpl<std::string> &names,
                          const Signature &signature) {
  llvm::StringMap<unsigned> seen;
  auto add = [&](StringRef name) {
    std::string text = identifier(name.empty() ? "value" : name);
    unsigned number = seen[text]++;
    names.push_back(number ? text + "_" + std::to_string(number + 1) : text);
  };
  for (BlockArgument argument : function.getArguments())
    add(getName(argument));
  Operation *end = function.getBody().front().getTerminator();
  for (auto [i, value] : llvm::enumerate(end->getOperands()))
    if (signature.results[i] >= 0)
      add(getName(value));
}

/// Whether the plan lets communication run beside computing.
static bool overlaps(ModuleOp module) {
  auto given = module->getAttrOfType<DictionaryAttr>(dist::kOverlapName);
  auto reductions = given ? given.getAs<BoolAttr>("reductions") : BoolAttr();
  return reductions && reductions.getValue();
}

static LogicalResult lowerSegment(Program &program, Signature &signature) {
  func::FuncOp function = signature.function;
  Operation *end = function.getBody().front().getTerminator();
  SmallVector<Type> types;
  auto addType = [&](Value value) {
    auto type = cast<RankedTensorType>(value.getType());
    types.push_back(rt::BufType::get(type.getShape(), type.getElementType()));
  };
  for (BlockArgument argument : function.getArguments())
    addType(argument);
  for (auto [i, value] : llvm::enumerate(end->getOperands()))
    if (signature.results[i] >= 0) {
      signature.results[i] = types.size();
      addType(value);
    }
  SmallVector<std::string> names;
  nameArguments(function, names, signature);
  OpBuilder atProgram = OpBuilder::atBlockEnd(&program.op.getBody().front());
  signature.lowered =
      rt::FuncOp::create(atProgram, function.getLoc(), function.getSymName(),
                         types, llvm::to_vector_of<StringRef>(names));
  Block &body = signature.lowered.getBody().front();
  BlockLowering lowering(program, OpBuilder::atBlockBegin(&body),
                         function.getSymName());
  for (auto [i, argument] : llvm::enumerate(function.getArguments()))
    lowering.bind(argument, body.getArgument(i));
  SmallVector<std::pair<Value, Value>> copies; // what has a place already
  for (auto [i, value] : llvm::enumerate(end->getOperands())) {
    if (signature.results[i] < 0)
      continue;
    Value place = body.getArgument(signature.results[i]);
    if (signature.accumulates[i])
      lowering.accumulate(value, place);
    else if (lowering.isBound(value))
      copies.emplace_back(value, place);
    else
      lowering.bind(value, place);
  }
  if (overlaps(function->getParentOfType<ModuleOp>()))
    lowering.gatherEarly(function.getBody().front());
  lowering.prepare(function.getBody().front());
  for (Operation &op : function.getBody().front().without_terminator())
    if (!isa<stage::UndefinedOp>(op) && failed(lowering.lower(&op)))
      return failure();
  if (failed(lowering.flush()))
    return failure();
  for (auto [value, place] : copies)
    lowering.copy(function.getLoc(), "saved: " + getName(value).str(),
                  lowering.placeOf(value), place);
  return success();
}

/// What is computed again becomes ops of its block: nothing merges them with
/// others from here on. Labels say what they are.
static void inlineRecomputed(func::FuncOp function) {
  for (auto op : llvm::to_vector(function.getBody().getOps<RecomputeOp>())) {
    Block &body = op.getBody().front();
    for (auto [argument, input] :
         llvm::zip(body.getArguments(), op.getInputs()))
      argument.replaceAllUsesWith(input);
    Operation *yield = body.getTerminator();
    for (auto [result, value] :
         llvm::zip(op.getResults(), yield->getOperands()))
      result.replaceAllUsesWith(value);
    yield->erase();
    for (Operation &inside : body)
      inside.setLoc(NameLoc::get(
          StringAttr::get(op.getContext(),
                          ("again, " + nameIn(inside.getLoc())).str()),
          inside.getLoc()));
    op->getBlock()->getOperations().splice(op->getIterator(),
                                           body.getOperations());
    op.erase();
  }
}

//===----------------------------------------------------------------------===//
// The program
//===----------------------------------------------------------------------===//

/// Larger than any arena: Memory writes the size that it needs.
static constexpr int64_t kUnplacedBytes = int64_t(1) << 60;

static ArrayAttr streamsOf(OpBuilder &builder, bool gathersBeside,
                           bool transfers, bool offloads) {
  SmallVector<Attribute> streams;
  auto add = [&](StringRef name, bool high) {
    streams.push_back(rt::StreamAttr::get(builder.getContext(), name, high));
  };
  add(kCompute, false);
  add(kComm, true);
  if (gathersBeside)
    add(kGather, true);
  if (transfers)
    add(kTransfers, true);
  if (offloads)
    add(kCopies, true);
  return builder.getArrayAttr(streams);
}

static rt::ProgramOp makeProgram(ModuleOp module, dist::MeshAttr mesh) {
  MLIRContext *context = module.getContext();
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  SmallVector<Attribute> axes;
  for (auto [name, size] :
       llvm::zip(mesh.getNames(), mesh.getSizes().asArrayRef()))
    axes.push_back(
        rt::AxisAttr::get(context, cast<StringAttr>(name).getValue(), size));
  SmallVector<Attribute> arenas = {rt::ArenaAttr::get(
      context, kCompute, kUnplacedBytes, rt::MemoryClass::compute)};
  if (module->hasAttr(kOffloadName))
    arenas.push_back(rt::ArenaAttr::get(context, kHost, kUnplacedBytes,
                                        rt::MemoryClass::host));
  return rt::ProgramOp::create(
      builder, module.getLoc(), "program", builder.getArrayAttr(axes),
      builder.getArrayAttr(arenas),
      streamsOf(builder, /*gathersBeside=*/false, /*transfers=*/false,
                /*offloads=*/false),
      builder.getArrayAttr({}), builder.getArrayAttr({}), "step");
}

namespace heddle {
namespace {

struct LowerToRtPass : impl::LowerToRtPassBase<LowerToRtPass> {
  LogicalResult lower(ModuleOp module) {
    auto step = module.lookupSymbol<func::FuncOp>("step");
    auto mesh = module->getAttrOfType<dist::MeshAttr>(dist::kMeshName);
    if (!step || !mesh)
      return module.emitError() << "needs a function @step and dist.mesh";
    for (auto function : module.getOps<func::FuncOp>())
      if (function.isExternal())
        return function.emitError()
               << "has no body, so there is nothing to lower";
    for (auto function : module.getOps<func::FuncOp>())
      inlineRecomputed(function);
    Program program(module);
    mergeResults(module, program.symbols);
    mergeCarried(module);
    program.mesh = mesh;
    program.op = makeProgram(module, mesh);

    llvm::StringMap<Signature> signatures;
    SmallVector<StringRef> order;
    for (auto function : module.getOps<func::FuncOp>())
      if (function != step) {
        Signature signature;
        signature.function = function;
        signature.results.assign(function.getNumResults(), -1);
        signature.accumulates.assign(function.getNumResults(), true);
        signatures[function.getSymName()] = signature;
        order.push_back(function.getSymName());
      }
    readCalls(module, signatures);
    for (StringRef name : order)
      if (failed(lowerSegment(program, signatures.find(name)->second)))
        return failure();
    OpBuilder atProgram = OpBuilder::atBlockEnd(&program.op.getBody().front());
    auto into = rt::FuncOp::create(atProgram, step.getLoc(), "step",
                                   TypeRange(), ArrayRef<StringRef>());
    if (failed(lowerStep(program, step, signatures, into)))
      return failure();
    program.op.setCommunicatorsAttr(
        atProgram.getArrayAttr(program.communicators.getArrayRef()));
    program.op.setStreamsAttr(streamsOf(atProgram, program.gathersBeside,
                                        program.op.getStages().has_value(),
                                        program.offloads));
    program.op.setEventsAttr(
        atProgram.getArrayAttr(program.events.getArrayRef()));
    step.erase();
    for (StringRef name : order)
      signatures.find(name)->second.function.erase();
    return success();
  }

  void runOnOperation() override {
    if (failed(lower(getOperation())))
      signalPassFailure();
  }
};

} // namespace
} // namespace heddle
