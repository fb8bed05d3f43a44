//===- LowerLoops.cpp - the step: loops => rt -----------------------------===//
//
// What a loop carries has a home that every iteration reads and writes, or,
// where it is saved anyway, the entry that the iteration before has saved.
//
//===----------------------------------------------------------------------===//

#include "passes/Lowering/StepLowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::lowering;
using namespace heddle::transformer;

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

void StepLowering::planLoop(LoopOp loop) {
  Loop plan;
  YieldOp yield = loop.getYield();
  for (Value value : yield.getCollected()) {
    std::string name = getName(value).empty() ? "value" : getName(value).str();
    auto type = cast<RankedTensorType>(value.getType());
    StringRef reason = loop.getReversed()
                           ? "kept from input for weight gradients"
                           : "saved from forward for backward";
    plan.stacks.push_back({lowering.uniqueName("saved." + name), reason.str(),
                           type, "saved", bytesBetween(type)});
  }
  auto isSaved = [&](Value value) {
    return llvm::is_contained(yield.getCollected(), value) &&
           !loop.getReversed() &&
           value.getParentBlock() == &loop.getBody().front() &&
           value.getDefiningOp();
  };
  if (stages) // one entry more where the loop's input is in front of the others
    for (auto [family, value, stack] :
         llvm::zip(plan.stacks, yield.getCollected(), loop.getStacks()))
      setOfChunk(family, stack,
                 llvm::is_contained(yield.getCarried(), value) &&
                     isSaved(value));
  for (auto [family, value, stack] :
       llvm::zip(plan.stacks, yield.getCollected(), loop.getStacks()))
    saveSomeLayers(family, value, stack);
  bool layersDiffer =
      loop.getBody()
          .walk([](CallByLayerOp) { return WalkResult::interrupt(); })
          .wasInterrupted();
  for (Family &family : plan.stacks)
    family.readBySome = layersDiffer && family.positions.empty();
  planOffload(loop, plan);
  for (auto [i, value] : llvm::enumerate(yield.getCarried())) {
    auto collected = llvm::find(yield.getCollected(), value);
    bool saved = isSaved(value);
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
          {lowering.uniqueName("step." + name),
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

bool StepLowering::mayReplace(BlockArgument carried, Value next) {
  Operation *maker = next.getDefiningOp();
  if (!maker || maker->getBlock() != carried.getOwner() ||
      lowering.isBound(next))
    return false;
  for (Operation *user : carried.getUsers())
    if (user->getBlock() != maker->getBlock() || maker->isBeforeInBlock(user))
      return false;
  SmallVector<StringRef> callees = calleesOf(maker);
  if (callees.empty())
    return isKernelOp(maker);
  auto byLayer = dyn_cast<CallByLayerOp>(maker);
  ValueRange operands =
      byLayer ? ValueRange(byLayer.getInputs()) : maker->getOperands();
  return llvm::all_of(callees, [&](StringRef callee) {
    const Signature &signature = signatures.find(callee)->second;
    int written = signature.results[cast<OpResult>(next).getResultNumber()];
    for (auto [i, operand] : llvm::enumerate(operands))
      if (operand == carried &&
          !readsBeforeWriting(signature.lowered, i, written))
        return false;
    return written >= 0;
  });
}

LogicalResult StepLowering::lowerLoop(LoopOp loop) {
  const Loop plan = loops.lookup(loop);
  for (auto [family, init] : llvm::zip(plan.carried, loop.getInits()))
    moveTo(loop.getLoc(), lowering.placeOf(init), entry(family, Value()));
  LogicalResult done = success();
  auto lowerAll = [&] { done = lowerTurns(loop, plan); };
  if (loop.getLimit()) // may be 0
    mayRun(lowerAll);
  else
    lowerAll();
  if (failed(done))
    return failure();
  for (auto [i, result] : llvm::enumerate(loop.getCarriedResults()))
    lowering.bind(result, plan.saved[i] ? lastEntry(loop, plan.carried[i])
                                        : entry(plan.carried[i], Value()));
  for (auto [family, result] : llvm::zip(plan.stacks, loop.getStacks()))
    stacks[result] = family;
  return success();
}

Value StepLowering::lastEntry(LoopOp loop, const Family &family) {
  if (loop.getLimit())
    return entry(family, indices.lookup(loop.getLimit()));
  return entry(family, Value(), loop.getCount());
}

LogicalResult StepLowering::lowerTurns(LoopOp loop, const Loop &plan) {
  Prefetch prefetch = planPrefetch(loop);
  auto number = [&](int64_t turn) -> OpFoldResult {
    return builder().getI64IntegerAttr(loop.getFirst() + turn);
  };
  OpFoldResult begin = number(0), end = number(loop.getCount());
  if (loop.getLimit())
    end = indices.lookup(loop.getLimit());
  releaseRows(plan);
  if (!prefetch.depth)
    return lowerIterations(loop, plan, {begin, end}, prefetch, false);
  // Ahead of all others are so many, `rest` are behind them.
  OpFoldResult ahead = number(prefetch.depth),
               rest = number(loop.getCount() - prefetch.depth);
  if (Value chunk = prefetch.chunk) {
    const std::string &name =
        prefetch.gathers.empty() ? prefetch.fetched : prefetch.gathered;
    numbers->addAhead(name, prefetch.depth);
    ahead = this->number(name + "_ahead", indices.lookup(chunk));
    rest = this->number(name + "_rest", indices.lookup(chunk));
  }
  bool reversed = loop.getReversed();
  gatherFirst(loop, prefetch,
              reversed ? Turns{rest, end} : Turns{begin, ahead});
  bool all = !prefetch.chunk && prefetch.depth == int64_t(loop.getCount());
  if (!all && failed(lowerIterations(
                  loop, plan, reversed ? Turns{ahead, end} : Turns{begin, rest},
                  prefetch, true)))
    return failure();
  return lowerIterations(loop, plan,
                         reversed ? Turns{begin, ahead} : Turns{rest, end},
                         prefetch, false);
}

LogicalResult StepLowering::lowerIterations(LoopOp loop, const Loop &plan,
                                            Turns turns,
                                            const Prefetch &prefetch,
                                            bool gathersNext) {
  YieldOp yield = loop.getYield();
  Block &body = loop.getBody().front();
  auto made = rt::ForOp::create(builder(), loop.getLoc(), loop.getOver(),
                                turns.begin, turns.end, loop.getReversed());
  OpBuilder::InsertionGuard guard(builder());
  builder().setInsertionPointToStart(&made.getBody().front());
  Value index = made.getInductionVariable();
  indices[loop.getIndex()] = index;
  lowering.forget(body);
  bindBody(loop, plan, index);
  if (prefetch.depth || !prefetch.fetches.empty())
    beginIteration(loop, prefetch, index, gathersNext);
  awaitRow(plan, index);
  computeAhead = true; // from the second iteration on
  if (failed(lowerBlock(body)))
    return failure();
  // The next layer touches other gradients, but the results of the same calls.
  if (movesResults || loop.getOver() != "layer")
    join();
  for (auto [i, value] : llvm::enumerate(yield.getCollected()))
    moveTo(loop.getLoc(), lowering.placeOf(value), savedEntry(plan, i, index));
  for (auto [i, value] : llvm::enumerate(yield.getCarried()))
    moveTo(loop.getLoc(), lowering.placeOf(value),
           entry(plan.carried[i], index, plan.saved[i] ? 1 : 0));
  storeRows(loop, plan, index);
  return success();
}

//===----------------------------------------------------------------------===//
// Parameters gathered ahead
//===----------------------------------------------------------------------===//

/// The state whose run of a layer a loop's body gathers for a call; null for
/// other gathers.
static LoadOp gatheredState(dist::AllGatherOp gather, LoopOp loop) {
  auto load = gather.getInput().getDefiningOp<LoadOp>();
  bool isWhole = gather->hasOneUse() &&
                 isa<dist::FromRowOp>(*gather->user_begin()) &&
                 !isa<StoreOp>(*(*gather->user_begin())->user_begin());
  if (!load || !isWhole || !load.getIndex())
    return LoadOp();
  auto layer = load.getIndex().getDefiningOp<stage::LayerOp>();
  Value index = layer ? layer.getIndex() : load.getIndex();
  return index == loop.getIndex() ? load : LoadOp();
}

StepLowering::Prefetch StepLowering::planPrefetch(LoopOp loop) {
  Prefetch prefetch;
  if (loop.getLimit()) {
    auto layers = loop.getLimit().getDefiningOp<stage::LayersOp>();
    prefetch.chunk = layers ? layers.getChunk() : Value();
  }
  // Around the slots no call reads parameters.
  if (!loop.getLimit() || prefetch.chunk)
    planGathers(loop, prefetch);
  planFetches(loop, prefetch);
  return prefetch;
}

void StepLowering::planGathers(LoopOp loop, Prefetch &prefetch) {
  auto module = cast<ModuleOp>(program.symbols.getOp());
  auto overlap = module->getAttrOfType<DictionaryAttr>(dist::kOverlapName);
  auto depth = overlap ? overlap.getAs<IntegerAttr>("prefetch") : IntegerAttr();
  int64_t wanted =
      std::min<int64_t>(depth ? depth.getInt() : 0, loop.getCount() - 1);
  if (wanted < 1)
    return;
  for (auto gather : loop.getBody().getOps<dist::AllGatherOp>()) {
    LoadOp load = gatheredState(gather, loop);
    if (!load)
      continue;
    auto type = cast<RankedTensorType>(gather.getType());
    prefetch.gathers.push_back(gather);
    prefetch.slots.push_back(
        {lowering.uniqueName("gathered." + load.getState().str()),
         "a layer's parameter, gathered ahead", type, "communication",
         bytesBetween(type)});
  }
  if (prefetch.gathers.empty())
    return;
  // As far as the memory goes that may be spent on it.
  int64_t unit = 0;
  for (const Family &rows : prefetch.slots)
    unit += rows.stride;
  auto memory = overlap.getAs<IntegerAttr>("memory_bytes");
  prefetch.depth = std::min(wanted, memory ? memory.getInt() / unit : 0);
  if (prefetch.depth < 1) {
    prefetch.gathers.clear();
    prefetch.slots.clear();
    return;
  }
  if (prefetch.chunk) // places of short chunks need fewer rows
    for (Family &rows : prefetch.slots)
      for (int64_t place = 0; place < stages->places(); ++place)
        rows.bytesByStage.push_back(
            rows.stride *
            std::min(prefetch.depth + 1, stages->mostOfChunk(place)));
  prefetch.gathered = lowering.uniqueName("gathered");
}

Value StepLowering::slotOf(int64_t rows, Value index) {
  Value &slot = rowNumbers[{rows, index.getAsOpaquePointer(),
                            builder().getInsertionBlock()}];
  if (slot)
    return slot;
  Value count = arith::ConstantIndexOp::create(builder(), index.getLoc(), rows);
  slot = arith::RemSIOp::create(builder(), named("slot"), index, count);
  return slot;
}

/// What computed with the rows before has to be done with them.
void StepLowering::freeSlots(const Prefetch &prefetch, bool begins) {
  if (prefetch.freesRows || (begins && !prefetch.fetches.empty()))
    order("row_free", kCompute, kCopies);
  if (prefetch.gathers.empty())
    return;
  if (computeAhead)
    order("slot_free", kCompute, kComm);
  computeAhead = false;
}

void StepLowering::gatherFirst(LoopOp loop, const Prefetch &prefetch,
                               Turns turns) {
  freeSlots(prefetch, /*begins=*/true);
  // Named apart: their number may be equal to another's by chance.
  auto made = rt::ForOp::create(builder(), loop.getLoc(),
                                ("first_" + loop.getOver()).str(), turns.begin,
                                turns.end, loop.getReversed());
  OpBuilder::InsertionGuard guard(builder());
  builder().setInsertionPointToStart(&made.getBody().front());
  gatherFor(prefetch, made.getInductionVariable());
  fetchFor(prefetch, made.getInductionVariable());
}

void StepLowering::gatherFor(const Prefetch &prefetch, Value index) {
  if (prefetch.gathers.empty())
    return;
  Value slot = slotOf(prefetch.depth + 1, index), layer = index;
  if (prefetch.chunk)
    layer = sum(number("chunk_begins", indices.lookup(prefetch.chunk)), index);
  SmallVector<std::pair<Value, Value>> places;
  for (auto [number, gather] : llvm::enumerate(prefetch.gathers)) {
    dist::AllGatherOp op = gather;
    auto load = op.getInput().getDefiningOp<LoadOp>();
    places.emplace_back(states.place(load.getState(), layer),
                        entry(prefetch.slots[number], slot));
  }
  auto group = rt::GroupOp::create(builder(), prefetch.gathers[0]->getLoc());
  OpBuilder inside = OpBuilder::atBlockBegin(&group.getBody().emplaceBlock());
  for (auto [place, gather] : llvm::zip(places, prefetch.gathers)) {
    program.communicators.insert(dist::AllGatherOp(gather).getAxes());
    rt::AllGatherOp::create(inside, gather->getLoc(), labelOf(gather),
                            place.first, place.second, 1,
                            dist::AllGatherOp(gather).getAxes(), kComm);
  }
  onEvent(true, prefetch.gathered, slot, prefetch.depth + 1, kComm);
}

void StepLowering::beginIteration(LoopOp loop, const Prefetch &prefetch,
                                  Value index, bool gathersNext) {
  Location location = loop.getLoc();
  if (!prefetch.gathers.empty()) {
    const int64_t rows = prefetch.depth + 1;
    Value slot = slotOf(rows, index);
    onEvent(false, prefetch.gathered, slot, rows, kCompute);
    for (auto [family, gather] : llvm::zip(prefetch.slots, prefetch.gathers))
      lowering.bind(dist::AllGatherOp(gather).getResult(),
                    states.rowEntry(family, slot));
    ahead.insert(prefetch.gathers.begin(), prefetch.gathers.end());
  }
  awaitFetched(prefetch, index);
  if (!gathersNext)
    return;
  computeAhead = true; // the iteration before
  freeSlots(prefetch, /*begins=*/false);
  Value depth =
      arith::ConstantIndexOp::create(builder(), location, prefetch.depth);
  Value next =
      loop.getReversed()
          ? Value(arith::SubIOp::create(builder(), named("next"), index, depth))
          : arith::AddIOp::create(builder(), named("next"), index, depth);
  gatherFor(prefetch, next);
  fetchFor(prefetch, next);
}

Value StepLowering::savedEntry(const Loop &plan, unsigned stack, Value index) {
  for (const Offloaded &each : plan.offloaded)
    if (each.stack.name == plan.stacks[stack].name)
      return entry(each.rows, slotOf(hostRows(), index));
  return entry(plan.stacks[stack], index);
}

void StepLowering::bindBody(LoopOp loop, const Loop &plan, Value index) {
  YieldOp yield = loop.getYield();
  for (auto [family, argument] : llvm::zip(plan.carried, loop.getCarried()))
    lowering.bind(argument, entry(family, index));
  for (auto [i, value] : llvm::enumerate(yield.getCarried()))
    if (plan.saved[i]
            ? !lowering.isBound(value)
            : mayReplace(cast<BlockArgument>(loop.getCarried()[i]), value))
      lowering.bind(value,
                    entry(plan.carried[i], index, plan.saved[i] ? 1 : 0));
  for (auto [i, value] : llvm::enumerate(yield.getCollected()))
    if (value.getDefiningOp() &&
        value.getParentBlock() == &loop.getBody().front() &&
        !isa<LoadOp, GetOp, LoopOp>(value.getDefiningOp()) &&
        !lowering.isBound(value))
      lowering.bind(value, savedEntry(plan, i, index));
}
