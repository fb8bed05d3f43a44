//===- LowerOffload.cpp - the step: what lies on the host => rt -----------===//
//
// The stack of a saved value that the plan names lies on the host, and all that
// the optimizer has of parameters, if the plan says so. On the device each has
// a few rows, which layers use in turn: forward writes one, which goes to the
// host while later layers compute; what backward and the optimizer read comes
// from there while they compute with others. All of that is on a stream of its
// own, in order, so that what comes back has gone before.
//
//===----------------------------------------------------------------------===//

#include "passes/Lowering/StepLowering.h"

#include "heddle/Support/Printable.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::lowering;
using namespace heddle::transformer;

int64_t StepLowering::hostRows() {
  auto module = cast<ModuleOp>(program.symbols.getOp());
  auto overlap = module->getAttrOfType<DictionaryAttr>(dist::kOverlapName);
  auto depth = overlap ? overlap.getAs<IntegerAttr>("prefetch") : IntegerAttr();
  return std::max<int64_t>(depth ? depth.getInt() : 0, 1) + 1;
}

/// What the plan names of saved values; null where it names nothing at all.
static ArrayAttr namesOf(Program &program) {
  auto offload =
      program.symbols.getOp()->getAttrOfType<DictionaryAttr>(kOffloadName);
  return offload ? offload.getAs<ArrayAttr>("saved") : ArrayAttr();
}

void StepLowering::planOffload(LoopOp loop, Loop &plan) {
  ArrayAttr names = namesOf(program);
  if (!names || loop.getReversed())
    return;
  ValueRange collected = loop.getYield().getCollected();
  for (auto [family, value] : llvm::zip(plan.stacks, collected)) {
    StringRef name = getName(value);
    bool flowsOn = llvm::is_contained(loop.getYield().getCarried(), value);
    if (!llvm::is_contained(names.getAsValueRange<StringAttr>(), name) ||
        flowsOn || !family.positions.empty())
      continue;
    Family rows{lowering.uniqueName("rows." + name.str()),
                "saved values on the way to the host and back", family.type,
                "saved", bytesBetween(family.type)};
    rows.bytesByStage.assign(stages ? stages->places() : 1,
                             bytesOf(family.type, hostRows()));
    family.arena = kHost;
    hostRowsOf[family.name] = rows;
    offloadedValues.insert(name);
    plan.offloaded.push_back({value, family, rows});
  }
  if (!plan.offloaded.empty())
    plan.stored = lowering.uniqueName("stored");
}

void StepLowering::releaseRows(const Loop &plan) {
  if (!plan.offloaded.empty())
    releaseAll(plan.stored, hostRows(), kCopies);
}

void StepLowering::awaitRow(const Loop &plan, Value index) {
  if (!plan.offloaded.empty())
    onEvent(false, plan.stored, slotOf(hostRows(), index), hostRows(),
            kCompute);
}

void StepLowering::storeRows(LoopOp loop, const Loop &plan, Value index) {
  if (plan.offloaded.empty())
    return;
  order("saved", kCompute, kCopies);
  Value slot = slotOf(hostRows(), index);
  for (const Offloaded &each : plan.offloaded)
    rt::CopyOp::create(
        builder(), loop.getLoc(), "to the host: " + getName(each.value).str(),
        entry(each.rows, slot), entry(each.stack, index), kCopies);
  onEvent(true, plan.stored, slot, hostRows(), kCopies);
}

void StepLowering::planFetches(LoopOp loop, Prefetch &prefetch) {
  for (auto get : loop.getBody().getOps<GetOp>()) {
    const Family &stack = stacks[get.getStack()];
    auto rows = hostRowsOf.find(stack.name);
    if (rows != hostRowsOf.end())
      prefetch.fetches.push_back({get.getResult(), stack, rows->second});
  }
  prefetch.freesRows = !prefetch.fetches.empty();
  for (auto load : loop.getBody().getOps<LoadOp>())
    if (StateOp state = stateOnHost(load.getState()))
      prefetch.fetches.push_back(
          {load.getResult(), states.familyOf(state), rowsOfState(state)});
  if (prefetch.fetches.empty())
    return;
  // How many layers there are in a loop around slots is a number of the place.
  if (!loop.getLimit() || prefetch.chunk)
    prefetch.depth = std::max<int64_t>(prefetch.depth, 1);
  prefetch.fetched = lowering.uniqueName("fetched");
}

void StepLowering::fetchFor(const Prefetch &prefetch, Value index) {
  if (prefetch.fetches.empty())
    return;
  Value slot = slotOf(hostRows(), index);
  for (const Offloaded &each : prefetch.fetches)
    rt::CopyOp::create(builder(), each.value.getLoc(),
                       "from the host: " + getName(each.value).str(),
                       entry(each.stack, index), entry(each.rows, slot),
                       kCopies);
  onEvent(true, prefetch.fetched, slot, hostRows(), kCopies);
}

void StepLowering::awaitFetched(const Prefetch &prefetch, Value index) {
  if (prefetch.fetches.empty())
    return;
  if (!prefetch.depth) {
    freeSlots(prefetch, /*begins=*/true);
    fetchFor(prefetch, index);
  }
  Value slot = slotOf(hostRows(), index);
  onEvent(false, prefetch.fetched, slot, hostRows(), kCompute);
  for (const Offloaded &each : prefetch.fetches)
    lowering.bind(each.value, entry(each.rows, slot));
}

StateOp StepLowering::stateOnHost(StringRef name) {
  auto state = program.symbols.lookup<StateOp>(name);
  return states.isOnHost(state) ? state : StateOp();
}

lowering::Family StepLowering::rowsOfState(StateOp state) {
  Family &rows = hostRowsOf[state.getSymName()];
  if (!rows.name.empty())
    return rows;
  const Family family = states.familyOf(state);
  rows = {lowering.uniqueName("rows." + family.name),
          "optimizer's numbers on the way to the host and back", family.type,
          "workspace", family.stride};
  if (rows.stride)
    rows.bytesByStage.assign(stages ? stages->places() : 1,
                             bytesOf(rows.type, hostRows()));
  return rows;
}

template <class Access>
bool StepLowering::isOnHostBeside(Access access, bool behind) {
  auto next = [&](Operation *op) {
    return behind ? op->getNextNode() : op->getPrevNode();
  };
  for (Operation *op = next(access); isa_and_nonnull<Access>(op); op = next(op))
    if (stateOnHost(cast<Access>(op).getState()))
      return true;
  return false;
}

void StepLowering::fetchState(LoadOp load) {
  if (!stateOnHost(load.getState()))
    return;
  if (!isOnHostBeside(load, /*behind=*/false)) // others had the bytes before
    order("row_free", kCompute, kCopies);
  rt::CopyOp::create(builder(), load.getLoc(),
                     "from the host: " + load.getState().str(),
                     states.place(load.getState(), Value()),
                     stateEntry(load.getState(), Value()), kCopies);
  if (!isOnHostBeside(load, /*behind=*/true))
    order("fetched", kCopies, kCompute);
}

void StepLowering::sendState(StoreOp store) {
  if (!stateOnHost(store.getState()))
    return;
  sendsStates = true;
  Value index = store.getIndex();
  if (!isOnHostBeside(store, /*behind=*/false)) // one kernel made both
    order("updated", kCompute, kCopies);
  rt::CopyOp::create(
      builder(), store.getLoc(), "to the host: " + store.getState().str(),
      stateEntry(store.getState(), index),
      states.place(store.getState(), index ? indices.lookup(index) : Value()),
      kCopies);
}

LogicalResult StepLowering::checkOffload(func::FuncOp step) {
  ArrayAttr names = namesOf(program);
  if (!names)
    return success();
  for (StringRef name : names.getAsValueRange<StringAttr>())
    if (!offloadedValues.contains(name))
      return step.emitError()
             << "offload.saved names \"" << printable(name)
             << "\", which no layer saves, or which flows on to the next "
                "layer, or which only some layers save";
  program.offloads = true;
  return success();
}
