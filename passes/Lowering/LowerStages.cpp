//===- LowerStages.cpp - the step: slots, what passes between stages => rt
//-===//
//
// One loop over the events of a place: a slot, or a batch of transfers. What a
// slot uses (saved sets, where something was received, where it leaves what it
// sends) has a number in a table. Transfers are on a stream of their own; an
// event per buffer orders them with the slots.
//
//===----------------------------------------------------------------------===//

#include "passes/Lowering/StepLowering.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::lowering;
using stage::Part;

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

LogicalResult StepLowering::beginStages(func::FuncOp step) {
  auto module = cast<ModuleOp>(program.symbols.getOp());
  bool runs = step.walk([](stage::RunOp) { return WalkResult::interrupt(); })
                  .wasInterrupted();
  if (!runs)
    return success();
  stages = stage::StageTable::of(module);
  if (!stages)
    return step.emitError() << "runs slots, but there is no stage.table";
  numbers = std::make_unique<StageNumbers>(*stages);
  if (!numbers->fault.empty())
    return step.emitError()
           << "the schedule is too large for the tables of a program: "
           << numbers->fault << "; use fewer micro-batches";
  states.setStages(module, *stages);
  Builder builder(module.getContext());
  program.op.setStagesAttr(builder.getStringAttr(stage::kStageAxis));
  SmallVector<Attribute> channels;
  for (int64_t shift : numbers->channelShifts)
    channels.push_back(rt::ChannelAttr::get(
        module.getContext(), channelName(shift), stage::kStageAxis, shift));
  program.op.setChannelsAttr(builder.getArrayAttr(channels));
  return success();
}

std::string StepLowering::channelName(int64_t shift) {
  if (shift == 1)
    return "to_next";
  if (shift == -1)
    return "to_previous";
  return (shift < 0 ? "back_by_" : "by_") + std::to_string(std::abs(shift));
}

Value StepLowering::number(StringRef table, Value index) {
  if (!program.op.lookupSymbol(table)) {
    SmallVector<int64_t> values;
    for (const auto &row : numbers->rows(table))
      llvm::append_range(values, row);
    OpBuilder begin = OpBuilder::atBlockBegin(&program.op.getBody().front());
    rt::NumbersOp::create(begin, program.op.getLoc(), table, values,
                          begin.getStringAttr(stage::kStageAxis));
  }
  return rt::LookupOp::create(
      builder(), builder().getUnknownLoc(), builder().getIndexType(),
      FlatSymbolRefAttr::get(builder().getContext(), table), index);
}

void StepLowering::lowerNumber(Operation &op) {
  if (auto layers = dyn_cast<stage::LayersOp>(op)) {
    indices[layers.getResult()] =
        layers.getChunk() ? number("chunk_layers", indices[layers.getChunk()])
                          : number("layers_held", Value());
    return;
  }
  auto layer = cast<stage::LayerOp>(op);
  indices[layer.getResult()] =
      sum(number("chunk_begins", indices[layer.getChunk()]),
          indices[layer.getIndex()]);
}

Value StepLowering::constant(int64_t value) {
  return arith::ConstantIndexOp::create(builder(), builder().getUnknownLoc(),
                                        value);
}

Value StepLowering::sum(Value a, Value b) {
  return arith::AddIOp::create(builder(), builder().getUnknownLoc(), a, b);
}

Location StepLowering::named(StringRef name) {
  return NameLoc::get(builder().getStringAttr(name));
}

Value StepLowering::part(const PackedNumber &number, Value entry) {
  Location location = builder().getUnknownLoc();
  if (number.divisor != 1)
    entry = arith::DivSIOp::create(builder(), location, entry,
                                   constant(number.divisor));
  if (!number.isLast())
    entry = arith::RemSIOp::create(builder(), location, entry,
                                   constant(number.modulus));
  if (!number.name.empty())
    entry.getDefiningOp()->setLoc(named(number.name));
  return entry;
}

void StepLowering::inCases(Value selector,
                           ArrayRef<std::pair<int64_t, StringRef>> cases,
                           llvm::function_ref<void(int64_t)> fill) {
  SmallVector<int64_t> values;
  SmallVector<StringRef> labels;
  for (auto [value, label] : cases) {
    values.push_back(value);
    labels.push_back(label);
  }
  auto made = rt::SwitchOp::create(builder(), builder().getUnknownLoc(),
                                   selector, values, labels);
  for (auto [value, region] : llvm::zip(values, made.getCases())) {
    OpBuilder::InsertionGuard guard(builder());
    builder().setInsertionPointToStart(&region.front());
    fill(value);
  }
}

void StepLowering::onEvent(bool records, StringRef name, Value slot,
                           int64_t count, StringRef stream) {
  for (int64_t i = 0; i < count; ++i)
    program.events.insert(builder().getStringAttr(rt::eventInRow(name, i)));
  auto make = [&](auto op) {
    decltype(op)::create(builder(), builder().getUnknownLoc(),
                         builder().getStringAttr(name), slot,
                         builder().getI64IntegerAttr(count),
                         builder().getStringAttr(stream));
  };
  records ? make(rt::RecordOp()) : make(rt::WaitOp());
}

//===----------------------------------------------------------------------===//
// Conditions
//===----------------------------------------------------------------------===//

Value StepLowering::selectorOf(stage::WhereOp where) {
  if (where.getPart() == Part::Last) {
    auto run = where->getParentOfType<stage::RunOp>();
    bool ofWeight = run.getWeight().isAncestor(where->getParentRegion());
    return part(ofWeight ? StageNumbers::kLastWeight : StageNumbers::kLastInput,
                slots.uses);
  }
  std::string name = "has_" + stringifyPart(where.getPart()).str();
  return where.getChunk() ? number("chunk_" + name, indices[where.getChunk()])
                          : number(name, Value());
}

void StepLowering::mayRun(llvm::function_ref<void()> lower) {
  bool wasCommunicating = communicating, didMoveResults = movesResults;
  llvm::StringSet<> movedBefore = moving;
  computeAhead = true;
  lower();
  communicating |= wasCommunicating;
  movesResults |= didMoveResults;
  for (const auto &entry : movedBefore)
    moving.insert(entry.getKey());
  computeAhead = true;
}

LogicalResult StepLowering::lowerWhere(stage::WhereOp where) {
  for (Value result : where.getResults())
    if (!result.use_empty() && !isa<IndexType>(result.getType()))
      lowering.placeOf(result);
  LogicalResult done = success();
  SmallVector<std::pair<int64_t, StringRef>> cases = {
      {1, stringifyPart(where.getPart())}};
  if (!where.getOtherwise().empty())
    cases.push_back({0, "elsewhere"});
  inCases(selectorOf(where), cases, [&](int64_t has) {
    mayRun([&] {
      if (succeeded(done))
        done = lowerBranch(where, has ? where.getBody() : where.getOtherwise());
    });
  });
  return done;
}

LogicalResult StepLowering::lowerBranch(stage::WhereOp where, Region &region) {
  Block &block = region.front();
  ValueRange yielded = stage::WhereOp::getYield(region).getCarried();
  for (auto [value, result] : llvm::zip(yielded, where.getResults()))
    if (value.getParentBlock() == &block && !result.use_empty() &&
        !lowering.isBound(value) && mayBeMadeAt(value))
      lowering.bind(value, lowering.placeOf(result));
  if (failed(lowerBlock(block)))
    return failure();
  for (auto [value, result] : llvm::zip(yielded, where.getResults()))
    if (!result.use_empty() && !value.getDefiningOp<stage::UndefinedOp>())
      moveTo(where.getLoc(), lowering.placeOf(value), lowering.placeOf(result));
  // What a call has returned is written again by its next one.
  if (movesResults)
    join();
  return success();
}

bool StepLowering::mayBeMadeAt(Value value) {
  return !isa<transformer::LoadOp, transformer::GetOp, transformer::LoopOp,
              stage::UndefinedOp>(value.getDefiningOp());
}

//===----------------------------------------------------------------------===//
// Slots
//===----------------------------------------------------------------------===//

LogicalResult StepLowering::lowerRun(stage::RunOp run) {
  join();
  for (auto [init, result] : llvm::zip(run.getInits(), run.getResults())) {
    StringRef name = transformer::getName(result);
    lowering::Family home{
        lowering.uniqueName("step." + (name.empty() ? "carried" : name.str())),
        "carried by the slots", cast<RankedTensorType>(init.getType()),
        "workspace"};
    slots.homes.push_back(home);
    moveTo(run.getLoc(), lowering.placeOf(init), entry(home, Value()));
  }
  makeLandings(run);
  // Nobody has used a buffer yet, so each is free.
  for (StringRef direction : kDirections) {
    releaseAll("free_" + direction.str(), slots.landings[direction].size);
    releaseAll("sent_" + direction.str(), StageNumbers::kOuts);
  }
  LogicalResult done = success();
  auto loop = rt::ForOp::create(builder(), run.getLoc(), "event",
                                OpFoldResult(builder().getI64IntegerAttr(0)),
                                OpFoldResult(number("event_count", Value())));
  {
    OpBuilder::InsertionGuard guard(builder());
    builder().setInsertionPointToStart(&loop.getBody().front());
    Value event = number("events", loop.getInductionVariable());
    SmallVector<std::pair<int64_t, StringRef>> cases = {{0, "slot"}};
    if (!numbers->channelShifts.empty()) // all chunks may be at one place
      cases.push_back({1, "transfers"});
    inCases(part(StageNumbers::kIsBatch, event), cases, [&](int64_t isBatch) {
      if (isBatch)
        lowerTransfers(event);
      else
        done = lowerSlot(run, part(StageNumbers::kEventSlot, event));
    });
  }
  if (!numbers->channelShifts.empty())
    order("transfers_done", kTransfers, kCompute);
  // What one slot has waited for another may have queued since.
  communicating |= !movedEver.empty();
  for (const auto &entry : movedEver)
    moving.insert(entry.getKey());
  for (auto [home, result] : llvm::zip(slots.homes, run.getResults()))
    lowering.bind(result, entry(home, Value()));
  return done;
}

void StepLowering::releaseAll(const std::string &event, int64_t count,
                              StringRef stream) {
  if (count == 0)
    return;
  // Named apart: their numbers may be equal by chance.
  auto loop = rt::ForOp::create(builder(), builder().getUnknownLoc(),
                                event + "_buffer", int64_t(0), count);
  OpBuilder::InsertionGuard guard(builder());
  builder().setInsertionPointToStart(&loop.getBody().front());
  onEvent(true, event, loop.getInductionVariable(), count, stream);
}

void StepLowering::makeLandings(stage::RunOp run) {
  for (bool gradient : {false, true}) {
    StringRef direction = kDirections[gradient];
    Slots::Landing &landing = slots.landings[direction];
    const std::vector<int64_t> &counts =
        numbers->counts.at(direction.str() + "_landings");
    landing.size = *llvm::max_element(counts);
    for (auto [i, value] : llvm::enumerate(run.getReceived(!gradient))) {
      auto type = cast<RankedTensorType>(value.getType());
      int64_t bytes = bytesBetween(type);
      std::string number = i ? "." + std::to_string(i) : "";
      lowering::Family received{"received." + direction.str() + number,
                                "from the neighbouring stage, until its slot",
                                type, "communication", bytes};
      for (int64_t count : counts)
        received.bytesByStage.push_back(bytesOf(type, count));
      lowering::Family out{"sent." + direction.str() + number,
                           "until the neighbouring stage has it", type,
                           "communication", bytes};
      for (int64_t count : numbers->counts.at(direction.str() + "_outs"))
        out.bytesByStage.push_back(bytesOf(type, count));
      landing.received.push_back(received);
      landing.outs.push_back(out);
    }
  }
}

LogicalResult StepLowering::lowerSlot(stage::RunOp run, Value slot) {
  Value bits = number("slots", slot);
  slots.chunk = part(StageNumbers::kChunk, bits);
  slots.microBatch = part(StageNumbers::kMicroBatch, bits);
  slots.uses = number("uses", slot);
  slots.landing = part(StageNumbers::kLanding, slots.uses);
  slots.out = part(StageNumbers::kOut, slots.uses);
  slots.slot = slot;
  slots.sets.clear();
  LogicalResult done = success();
  // A slot that makes both kinds of gradients runs two cases.
  ifUses(StageNumbers::kForward, "forward",
         [&] { done = lowerDirection(run, /*backward=*/false); });
  ifUses(StageNumbers::kBackward, "backward", [&] {
    if (succeeded(done))
      done = lowerDirection(run, /*backward=*/true);
  });
  if (run.getWeight().empty())
    return done;
  ifUses(StageNumbers::kWeight, "weight gradients", [&] {
    if (succeeded(done))
      done = lowerWeight(run);
  });
  return done;
}

void StepLowering::ifUses(const PackedNumber &flag, StringRef label,
                          llvm::function_ref<void()> fill) {
  inCases(part(flag, slots.uses), {{1, label}}, [&](int64_t) { fill(); });
}

LogicalResult StepLowering::lowerWeight(stage::RunOp run) {
  Region &region = run.getWeight();
  slots.sets.clear();
  indices[stage::RunOp::getChunk(region)] = slots.chunk;
  indices[stage::RunOp::getMicroBatch(region)] = slots.microBatch;
  bindSaved(run.getSaved(region), slots.order);
  bindSaved(run.getKept(), slots.kept);
  return lowerBlock(region.front());
}

LogicalResult StepLowering::lowerDirection(stage::RunOp run, bool backward) {
  Region &region = backward ? run.getBackward() : run.getForward();
  StringRef direction = kDirections[backward];
  Slots::Landing &landing = slots.landings[direction];
  indices[stage::RunOp::getChunk(region)] = slots.chunk;
  indices[stage::RunOp::getMicroBatch(region)] = slots.microBatch;
  for (auto [value, family] :
       llvm::zip(run.getReceived(!backward), landing.received))
    lowering.bind(value, entry(family, slots.landing));
  ifUses(StageNumbers::kReceives, "received", [&] {
    onEvent(false, "landed_" + direction.str(), slots.landing, landing.size,
            kCompute);
  });
  ifUses(StageNumbers::kSends, "sends", [&] {
    onEvent(false, "sent_" + direction.str(), slots.out, StageNumbers::kOuts,
            kCompute);
  });
  slots.sets.clear();
  if (backward)
    bindSaved(run.getSaved(region), slots.order);
  stage::YieldOp yield = stage::RunOp::getYield(region);
  for (auto [value, family] : llvm::zip(yield.getSent(), landing.outs))
    lowering.bind(value, entry(family, slots.out));
  bindYielded(run, yield, backward);
  if (failed(lowerBlock(region.front())))
    return failure();
  keepSaved(yield, backward ? slots.kept : slots.order);
  for (auto [value, home] : llvm::zip(yield.getCarried(), slots.homes))
    moveTo(run.getLoc(), lowering.placeOf(value), entry(home, Value()));
  endSlot(landing, direction);
  return success();
}

void StepLowering::endSlot(const Slots::Landing &landing, StringRef direction) {
  ifUses(StageNumbers::kReceives, "received", [&] {
    onEvent(true, "free_" + direction.str(), slots.landing, landing.size,
            kCompute);
  });
  ifUses(StageNumbers::kSends, "sends", [&] {
    onEvent(true, "made_" + direction.str(), slots.out, StageNumbers::kOuts,
            kCompute);
  });
  if (!numbers->anyHandsOn)
    return;
  ifUses(StageNumbers::kHandsOn, "hands on", [&] {
    Value index = number("handed_landings", slots.slot);
    for (auto [out, received] : llvm::zip(landing.outs, landing.received))
      lowering.copy(builder().getUnknownLoc(), "step: to the next stage",
                    entry(out, slots.out), entry(received, index));
  });
}

void StepLowering::bindYielded(stage::RunOp run, stage::YieldOp yield,
                               bool backward) {
  if (backward) {
    for (auto [argument, value, home] :
         llvm::zip(run.getCarried(), yield.getCarried(), slots.homes)) {
      Value place = entry(home, Value());
      lowering.bind(argument, place);
      if (value.getDefiningOp<stage::WhereOp>())
        lowering.bind(value, place);
    }
    return;
  }
  // Stacks get their set where the loop that makes them is planned.
  for (Value value : yield.getSaved())
    if (auto where = value.getDefiningOp<stage::WhereOp>())
      lowering.bind(value, entry(savedFamily(value, where.getPart()), Value()));
}

lowering::Family StepLowering::savedFamily(Value value, Part part) {
  auto type = cast<RankedTensorType>(value.getType());
  StringRef name = transformer::getName(value);
  lowering::Family family{
      lowering.uniqueName("saved." +
                          (name.empty() ? stringifyPart(part) : name).str()),
      "saved from forward for backward", type, "saved"};
  inPool(family, part == Part::Head ? "head_sets" : "embedding_sets",
         std::vector<int64_t>(stages->places(), 1));
  slots.saved[value] = family;
  return family;
}

void StepLowering::inPool(lowering::Family &family, StringRef pool,
                          ArrayRef<int64_t> entries) {
  family.pool = pool;
  family.set = setOf(pool);
  family.setStrides.clear();
  family.bytesByStage.clear();
  for (auto [count, sets] :
       llvm::zip(entries, numbers->counts.at(pool.str()))) {
    family.setStrides.push_back(count * bytesBetween(family.type));
    family.bytesByStage.push_back(bytesOf(family.type, count * sets));
  }
}

Value StepLowering::setOf(StringRef pool) {
  Value &set = slots.sets[pool];
  if (!set) {
    PackedNumber number = StageNumbers::pool(pool);
    set = part(number, this->number(number.table, slots.slot));
  }
  return set;
}

StringRef StepLowering::poolOf(Value stack) {
  for (OpOperand &use : stack.getUses()) {
    auto yield = dyn_cast<stage::YieldOp>(use.getOwner());
    auto run =
        yield ? dyn_cast<stage::RunOp>(yield->getParentOp()) : stage::RunOp();
    if (!run || run.getWeight().empty())
      continue;
    if (yield->getParentRegion() == &run.getBackward())
      return "kept_sets";
    unsigned number = use.getOperandNumber() - yield.getCarried().size() -
                      yield.getSent().size();
    return run.getSaved(run.getWeight())[number].use_empty() ? "input_sets"
                                                             : "sets";
  }
  return "sets";
}

void StepLowering::setOfChunk(lowering::Family &family, Value stack,
                              int64_t more) {
  SmallVector<int64_t> entries;
  for (int64_t place = 0; place < stages->places(); ++place)
    entries.push_back(stages->mostOfChunk(place) + more);
  inPool(family, poolOf(stack), entries);
}

void StepLowering::keepSaved(stage::YieldOp yield,
                             SmallVectorImpl<lowering::Family> &kept) {
  kept.clear();
  for (Value value : yield.getSaved()) {
    bool isStack = isa<transformer::StackType>(value.getType());
    kept.push_back(isStack ? stacks[value] : slots.saved[value]);
  }
}

void StepLowering::bindSaved(Block::BlockArgListType arguments,
                             ArrayRef<lowering::Family> saved) {
  for (auto [argument, value] : llvm::zip(arguments, saved)) {
    if (argument.use_empty())
      continue;
    lowering::Family family = value;
    family.set = setOf(family.pool);
    if (isa<transformer::StackType>(argument.getType()))
      stacks[argument] = family;
    else
      lowering.bind(argument, entry(family, Value()));
  }
}
