//===- LowerStep.cpp - the step: states, loops, calls => rt ---------------===//
//
// What a loop carries has a home that every iteration reads and writes, or,
// where it is saved anyway, the entry that the iteration before has saved.
//
//===----------------------------------------------------------------------===//

#include "passes/Lowering/LowerStep.h"

#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::lowering;
using namespace heddle::transformer;

static int64_t strideOf(RankedTensorType type) {
  return llvm::alignTo(type.getNumElements() *
                           llvm::divideCeil(type.getElementTypeBitWidth(), 8),
                       64);
}

static StringRef classOf(StateKind kind) {
  switch (kind) {
  case StateKind::Parameter:
    return "parameters";
  case StateKind::GradientSum:
  case StateKind::Gradient:
    return "gradients";
  case StateKind::AdamM:
  case StateKind::AdamV:
    return "optimizer";
  }
  llvm_unreachable("all kinds of states are handled");
}

/// Whether `function` has read argument `read` for the last time when it first
/// writes argument `written`: then both may be one buffer.
static bool readsBeforeWriting(rt::FuncOp function, unsigned read,
                               unsigned written) {
  auto source = [](Value buffer) {
    while (auto view = buffer.getDefiningOp<rt::ViewOp>())
      buffer = view.getSource();
    return buffer;
  };
  int64_t lastRead = -1, firstWrite = std::numeric_limits<int64_t>::max(),
          position = 0;
  function.walk([&](rt::WorkOpInterface work) {
    ++position;
    for (const rt::Access &access : work.getAccesses()) {
      Value buffer = source(access.buffer);
      if (buffer == function.getBody().getArgument(read))
        lastRead = position;
      if (buffer == function.getBody().getArgument(written) && access.writes)
        firstWrite = std::min(firstWrite, position);
    }
  });
  return lastRead < firstWrite;
}

namespace {

class StepLowering {
public:
  StepLowering(Program &program, const llvm::StringMap<Signature> &signatures,
               OpBuilder builder)
      : program(program), signatures(signatures),
        lowering(program, builder, "step") {}

  LogicalResult run(func::FuncOp step) {
    for (BlockArgument argument : step.getArguments())
      bindInput(argument);
    Block &block = step.getBody().front();
    for (auto [i, value] :
         llvm::enumerate(block.getTerminator()->getOperands()))
      bindOutput(step, i, value);
    if (failed(lowerBlock(block)))
      return failure();
    for (auto [i, value] :
         llvm::enumerate(block.getTerminator()->getOperands()))
      lowering.copy(step.getLoc(), "step: result", lowering.placeOf(value),
                    outputs[i]);
    join();
    return success();
  }

private:
  struct Loop {
    SmallVector<Family> carried, stacks;
    SmallVector<bool> saved; ///< the carried value is an entry of a stack
  };

  //===--------------------------------------------------------------------===//
  // Places
  //===--------------------------------------------------------------------===//

  OpBuilder &builder() { return lowering.getBuilder(); }

  /// Entry `index` of a family, `shift` entries further. One place is one value
  /// in a block, so that a kernel sees that it reads what it writes.
  Value entry(const Family &family, Value index, int64_t shift = 0) {
    int64_t offset = family.offset + shift * family.stride;
    if (!family.stride)
      index = Value();
    Value &known = entries[{family.name, offset, index.getAsOpaquePointer(),
                            builder().getInsertionBlock()}];
    if (known)
      return known;
    auto type =
        rt::BufType::get(family.type.getShape(), family.type.getElementType());
    SmallVector<Value> indices;
    SmallVector<int64_t> strides;
    if (index) {
      indices.push_back(index);
      strides.push_back(family.stride);
    }
    auto buffer = rt::BufferOp::create(
        builder(), builder().getUnknownLoc(), type,
        builder().getStringAttr(family.name),
        builder().getStringAttr(family.reason),
        builder().getStringAttr(kCompute), builder().getI64IntegerAttr(offset),
        indices, builder().getDenseI64ArrayAttr(strides));
    buffer->setAttr(kClassName, builder().getStringAttr(family.memoryClass));
    known = buffer;
    return known;
  }

  std::string uniqueName(const std::string &name) {
    unsigned number = names[name]++;
    return number ? name + "." + std::to_string(number + 1) : name;
  }

  static RankedTensorType tensorOf(Type type) {
    auto stack = dyn_cast<StackType>(type);
    return stack ? stack.getElementType() : cast<RankedTensorType>(type);
  }

  void bindInput(BlockArgument argument) {
    Family family{"inputs." + getName(argument).str(),
                  "filled before each step", tensorOf(argument.getType()),
                  "inputs"};
    if (isa<StackType>(argument.getType())) {
      // Without gaps: the caller sees one tensor of all micro-batches.
      family.stride = family.type.getNumElements() *
                      llvm::divideCeil(family.type.getElementTypeBitWidth(), 8);
      stacks[argument] = family;
    } else {
      lowering.bind(argument, entry(family, Value()));
    }
  }

  void bindOutput(func::FuncOp step, unsigned index, Value value) {
    auto name = step.getResultAttrOfType<StringAttr>(index, kArgumentName);
    std::string text = name ? name.getValue().str() : getName(value).str();
    Family family{"outputs." + text, "read after each step",
                  tensorOf(value.getType()), "outputs"};
    outputs.push_back(entry(family, Value()));
    if (value.getDefiningOp() && !isa<LoopOp>(value.getDefiningOp()) &&
        !lowering.isBound(value))
      lowering.bind(value, outputs.back());
  }

  Family familyOf(StateOp state) {
    StateOp holder = state;
    if (auto storage = state.getStorageAttr())
      if (auto other = program.symbols.lookup<StateOp>(storage.getValue());
          other &&
          strideOf(other.getTensorType()) == strideOf(state.getTensorType()))
        holder = other;
    Family family{holder.getSymName().str(),
                  stringifyStateKind(state.getKind()).str(),
                  state.getTensorType(), classOf(state.getKind())};
    if (state.getLayers())
      family.stride = strideOf(family.type);
    return family;
  }

  Value stateEntry(StringRef name, Value index) {
    return entry(familyOf(program.symbols.lookup<StateOp>(name)),
                 indices.lookup(index));
  }

  static bool sameBuffer(Value a, Value b) {
    auto x = a.getDefiningOp<rt::BufferOp>(),
         y = b.getDefiningOp<rt::BufferOp>();
    return a == b || (x && y && x.getName() == y.getName() &&
                      x.getOffset() == y.getOffset() &&
                      x.getIndices() == y.getIndices() &&
                      x.getStrides() == y.getStrides());
  }

  void moveTo(Location location, Value from, Value to) {
    if (!sameBuffer(from, to))
      lowering.copy(location, "step: copy", from, to);
  }

  //===--------------------------------------------------------------------===//
  // Streams: gradients are reduced on their own
  //===--------------------------------------------------------------------===//

  std::string newEvent(StringRef what) {
    std::string name = uniqueName(what.str());
    program.events.insert(builder().getStringAttr(name));
    return name;
  }

  void order(StringRef event, StringRef before, StringRef after) {
    std::string name = newEvent(event);
    rt::RecordOp::create(builder(), builder().getUnknownLoc(), name, before);
    rt::WaitOp::create(builder(), builder().getUnknownLoc(), name, after);
  }

  /// Work queued from here on sees what the communication stream has done.
  void join() {
    if (communicating)
      order("reduced", kComm, kCompute);
    communicating = false;
  }

  void beginReduction() {
    if (!communicating)
      order("gradients_ready", kCompute, kComm);
    communicating = true;
  }

  /// Whether an op only brings sums of gradients from partial to reduced.
  static bool reducesGradients(Operation &op) {
    if (auto loop = dyn_cast<LoopOp>(op)) {
      auto body = loop.getBody().front().without_terminator();
      return loop.getInits().empty() && llvm::all_of(body, reducesGradients) &&
             llvm::any_of(body, isCollective);
    }
    if (auto load = dyn_cast<LoadOp>(op))
      return llvm::all_of(load->getUsers(),
                          [](Operation *user) { return isCollective(*user); });
    if (isCollective(op)) {
      Operation *source = op.getOperand(0).getDefiningOp();
      return source && (isa<LoadOp>(source) || isCollective(*source)) &&
             reducesGradients(*source);
    }
    if (auto store = dyn_cast<StoreOp>(op)) {
      Operation *source = store.getValue().getDefiningOp();
      return source && isCollective(*source) && reducesGradients(*source);
    }
    return false;
  }

  static bool isCollective(Operation &op) {
    return isa<dist::AllReduceOp, dist::ReduceScatterOp, dist::AllGatherOp,
               dist::AllToAllOp, dist::PermuteOp>(op);
  }

  //===--------------------------------------------------------------------===//
  // Blocks
  //===--------------------------------------------------------------------===//

  /// Gives values the places that they end in, before they are computed.
  void prepare(Block &block) {
    for (Operation &op : block) {
      if (auto loop = dyn_cast<LoopOp>(op))
        planLoop(loop);
      auto store = dyn_cast<StoreOp>(op);
      if (!store || lowering.isBound(store.getValue()))
        continue;
      Operation *maker = store.getValue().getDefiningOp();
      if (maker && maker->getBlock() == &block && !isa<LoadOp, LoopOp>(maker))
        lowering.bind(store.getValue(),
                      stateEntry(store.getState(), store.getIndex()));
    }
    lowering.prepare(block);
  }

  LogicalResult lowerBlock(Block &block) {
    prepare(block);
    for (Operation &op : block.without_terminator())
      if (failed(lowerOp(op)))
        return failure();
    return lowering.flush();
  }

  LogicalResult lowerOp(Operation &op) {
    bool reduces = reducesGradients(op);
    if (!isa<LoopOp>(op) && !isa<dist::FactorRuleOpInterface>(op) &&
        failed(lowering.flush()))
      return failure();
    if (isa<LoopOp>(op) && failed(lowering.flush()))
      return failure();
    if (reduces && !isa<LoadOp>(op))
      beginReduction();
    else if (!reduces && !isa<LoadOp, GetOp, ZerosOp>(op))
      join();
    lowering.collectiveStream = (reduces ? kComm : kCompute).str();
    return llvm::TypeSwitch<Operation *, LogicalResult>(&op)
        .Case<LoopOp>([&](auto loop) { return lowerLoop(loop, reduces); })
        .Case<func::CallOp>([&](auto call) { return lowerCall(call); })
        .Case<LoadOp>([&](auto load) {
          lowering.bind(load.getResult(),
                        stateEntry(load.getState(), load.getIndex()));
          return success();
        })
        .Case<GetOp>([&](auto get) {
          lowering.bind(get.getResult(), entry(stacks[get.getStack()],
                                               indices.lookup(get.getIndex())));
          return success();
        })
        .Case<StoreOp>([&](auto store) {
          moveTo(store.getLoc(), lowering.placeOf(store.getValue()),
                 stateEntry(store.getState(), store.getIndex()));
          return success();
        })
        .Case<AccumulateOp>([&](auto sum) { return lowerAccumulate(sum); })
        .Case<ZeroOp>([&](auto zero) { return lowerZero(zero); })
        .Case<ZerosOp>([&](auto zeros) {
          rt::ZeroOp::create(builder(), zeros.getLoc(), labelOf(zeros),
                             lowering.placeOf(zeros.getResult()), kCompute);
          return success();
        })
        .Default([&](Operation *other) { return lowering.lower(other); });
  }

  LogicalResult lowerZero(ZeroOp zero) {
    auto state = program.symbols.lookup<StateOp>(zero.getState());
    Family family = familyOf(state);
    auto emit = [&](Value index) {
      rt::ZeroOp::create(builder(), zero.getLoc(), "step: zero " + family.name,
                         entry(family, index), kCompute);
    };
    if (!family.stride) {
      emit(Value());
      return success();
    }
    auto loop = rt::ForOp::create(builder(), zero.getLoc(), "layer", 0,
                                  state.getCount());
    OpBuilder::InsertionGuard guard(builder());
    builder().setInsertionPointToStart(&loop.getBody().front());
    emit(loop.getInductionVariable());
    return success();
  }

  /// The call that adds its result to a state itself, or null.
  const Signature *accumulatingCall(Value value) {
    auto call = value.getDefiningOp<func::CallOp>();
    if (!call)
      return nullptr;
    const Signature &signature = signatures.find(call.getCallee())->second;
    return signature.accumulates[cast<OpResult>(value).getResultNumber()]
               ? &signature
               : nullptr;
  }

  LogicalResult lowerAccumulate(AccumulateOp sum) {
    if (!accumulatingCall(sum.getValue()))
      lowering.addBuffers(sum.getLoc(), "step: accumulate",
                          lowering.placeOf(sum.getValue()),
                          stateEntry(sum.getState(), sum.getIndex()),
                          cast<RankedTensorType>(sum.getValue().getType()));
    return success();
  }

  LogicalResult lowerCall(func::CallOp call) {
    const Signature &signature = signatures.find(call.getCallee())->second;
    SmallVector<Value> arguments;
    for (Value operand : call.getOperands())
      arguments.push_back(lowering.placeOf(operand));
    for (auto [i, result] : llvm::enumerate(call.getResults())) {
      if (signature.results[i] < 0)
        continue;
      if (!signature.accumulates[i]) {
        arguments.push_back(lowering.placeOf(result));
        continue;
      }
      auto sum = cast<AccumulateOp>(*result.user_begin());
      arguments.push_back(stateEntry(sum.getState(), sum.getIndex()));
    }
    rt::CallOp::create(builder(), call.getLoc(), call.getCallee(), arguments);
    return success();
  }

  //===--------------------------------------------------------------------===//
  // Loops
  //===--------------------------------------------------------------------===//

  void planLoop(LoopOp loop) {
    Loop plan;
    YieldOp yield = loop.getYield();
    for (Value value : yield.getCollected()) {
      std::string name =
          getName(value).empty() ? "value" : getName(value).str();
      auto type = cast<RankedTensorType>(value.getType());
      plan.stacks.push_back({uniqueName("saved." + name),
                             "saved from forward for backward", type, "saved",
                             strideOf(type)});
    }
    for (auto [i, value] : llvm::enumerate(yield.getCarried())) {
      auto collected = llvm::find(yield.getCollected(), value);
      bool saved = collected != yield.getCollected().end() &&
                   !loop.getReversed() &&
                   value.getParentBlock() == &loop.getBody().front() &&
                   value.getDefiningOp();
      plan.saved.push_back(saved);
      if (saved) { // entry l of the loop's input is what iteration l - 1 saved
        Family &stack = plan.stacks[collected - yield.getCollected().begin()];
        stack.offset = stack.stride;
        plan.carried.push_back(stack);
        plan.carried.back().offset = 0;
      } else {
        std::string name =
            getName(value).empty() ? "carried" : getName(value).str();
        plan.carried.push_back(
            {uniqueName("step." + name),
             "carried by the loop over " + loop.getOver().str(),
             cast<RankedTensorType>(value.getType()), "workspace"});
      }
      Value init = loop.getInits()[i];
      Operation *maker = init.getDefiningOp();
      if (maker && maker->getBlock() == loop->getBlock() && init.hasOneUse() &&
          !isa<LoadOp, GetOp, LoopOp>(maker) && !lowering.isBound(init))
        lowering.bind(init, entry(plan.carried.back(), Value()));
    }
    loops[loop] = std::move(plan);
  }

  /// Whether `next`, what the body makes of `carried`, may be written over it.
  bool mayReplace(BlockArgument carried, Value next) {
    Operation *maker = next.getDefiningOp();
    if (!maker || maker->getBlock() != carried.getOwner() ||
        lowering.isBound(next))
      return false;
    for (Operation *user : carried.getUsers())
      if (user->getBlock() != maker->getBlock() || maker->isBeforeInBlock(user))
        return false;
    auto call = dyn_cast<func::CallOp>(maker);
    if (!call)
      return isKernelOp(maker);
    const Signature &signature = signatures.find(call.getCallee())->second;
    int written = signature.results[cast<OpResult>(next).getResultNumber()];
    for (auto [i, operand] : llvm::enumerate(call.getOperands()))
      if (operand == carried &&
          !readsBeforeWriting(signature.lowered, i, written))
        return false;
    return written >= 0;
  }

  LogicalResult lowerLoop(LoopOp loop, bool reduces) {
    const Loop plan = loops.lookup(loop);
    YieldOp yield = loop.getYield();
    for (auto [family, init] : llvm::zip(plan.carried, loop.getInits()))
      moveTo(loop.getLoc(), lowering.placeOf(init), entry(family, Value()));
    auto made = rt::ForOp::create(builder(), loop.getLoc(), loop.getOver(), 0,
                                  loop.getCount(), loop.getReversed());
    {
      OpBuilder::InsertionGuard guard(builder());
      builder().setInsertionPointToStart(&made.getBody().front());
      Value index = made.getInductionVariable();
      indices[loop.getIndex()] = index;
      bindBody(loop, plan, index);
      if (failed(lowerBlock(loop.getBody().front())))
        return failure();
      if (!reduces) // the next iteration begins with all streams joined
        join();
      for (auto [family, value] : llvm::zip(plan.stacks, yield.getCollected()))
        moveTo(loop.getLoc(), lowering.placeOf(value), entry(family, index));
      for (auto [i, value] : llvm::enumerate(yield.getCarried()))
        moveTo(loop.getLoc(), lowering.placeOf(value),
               entry(plan.carried[i], index, plan.saved[i] ? 1 : 0));
    }
    for (auto [i, result] : llvm::enumerate(loop.getCarriedResults()))
      lowering.bind(result, entry(plan.carried[i], Value(),
                                  plan.saved[i] ? loop.getCount() : 0));
    for (auto [family, result] : llvm::zip(plan.stacks, loop.getStacks()))
      stacks[result] = family;
    return success();
  }

  /// Places of the body's arguments, and of what it yields.
  void bindBody(LoopOp loop, const Loop &plan, Value index) {
    YieldOp yield = loop.getYield();
    for (auto [family, argument] : llvm::zip(plan.carried, loop.getCarried()))
      lowering.bind(argument, entry(family, index));
    for (auto [i, value] : llvm::enumerate(yield.getCarried()))
      if (plan.saved[i]
              ? !lowering.isBound(value)
              : mayReplace(cast<BlockArgument>(loop.getCarried()[i]), value))
        lowering.bind(value,
                      entry(plan.carried[i], index, plan.saved[i] ? 1 : 0));
    for (auto [family, value] : llvm::zip(plan.stacks, yield.getCollected()))
      if (value.getDefiningOp() &&
          value.getParentBlock() == &loop.getBody().front() &&
          !isa<LoadOp, GetOp, LoopOp>(value.getDefiningOp()) &&
          !lowering.isBound(value))
        lowering.bind(value, entry(family, index));
  }

  Program &program;
  const llvm::StringMap<Signature> &signatures;
  BlockLowering lowering;
  std::map<std::tuple<std::string, int64_t, void *, Block *>, Value> entries;
  llvm::DenseMap<Value, Family> stacks;
  llvm::DenseMap<Value, Value> indices;
  llvm::DenseMap<Operation *, Loop> loops;
  llvm::StringMap<unsigned> names;
  SmallVector<Value> outputs;
  bool communicating = false;
};

} // namespace

LogicalResult lowering::lowerStep(Program &program, func::FuncOp step,
                                  const llvm::StringMap<Signature> &signatures,
                                  rt::FuncOp into) {
  OpBuilder builder = OpBuilder::atBlockBegin(&into.getBody().front());
  return StepLowering(program, signatures, builder).run(step);
}
