//===- LowerOffload.cpp - the step: saved values on the host => rt --------===//
//
// The stack of a value that the plan names lies on the host. On the device it
// has a few rows, which layers use in turn: forward writes one, which goes to
// the host while later layers compute; backward's come from there while it
// computes with others. All of that is on a stream of its own, in order, so
// that what comes back has gone before.
//
//===----------------------------------------------------------------------===//

#include "passes/Lowering/StepLowering.h"

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

void StepLowering::planOffload(LoopOp loop, Loop &plan) {
  auto names = program.symbols.getOp()->getAttrOfType<ArrayAttr>(kOffloadName);
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
    family.memoryClass = "offloaded";
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
  if (prefetch.fetches.empty())
    return;
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
  Value slot = slotOf(hostRows(), index);
  onEvent(false, prefetch.fetched, slot, hostRows(), kCompute);
  for (const Offloaded &each : prefetch.fetches)
    lowering.bind(each.value, entry(each.rows, slot));
}

LogicalResult StepLowering::checkOffload(func::FuncOp step) {
  auto names = program.symbols.getOp()->getAttrOfType<ArrayAttr>(kOffloadName);
  if (!names)
    return success();
  for (StringRef name : names.getAsValueRange<StringAttr>())
    if (!offloadedValues.contains(name))
      return step.emitError()
             << "offload.saved names \"" << name
             << "\", which no layer saves, or which flows on to the next "
                "layer, or which only some layers save";
  program.offloads = true;
  return success();
}
