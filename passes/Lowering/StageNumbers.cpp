//===- StageNumbers.cpp - a schedule as tables of numbers -----------------===//

#include "passes/Lowering/StageNumbers.h"

#include "llvm/ADT/STLExtras.h"

using namespace heddle;
using namespace heddle::lowering;
using stage::Part;

StageNumbers::StageNumbers(const stage::StageTable &stages)
    : stages(stages), events(deriveEvents(stages.schedule)) {
  for (int64_t place = 0; place < stages.places(); ++place) {
    addSlots(place);
    addTransfers(place);
    // A chunk without layers has what it carries in a set, and saves nothing.
    auto any = [](int64_t) { return true; };
    auto hasLayers = [&](int64_t chunk) {
      return stages.countOf(place, chunk) > 0;
    };
    assign(place, "sets", Span::ForwardToWeight, any, hasLayers);
    assign(place, "input_sets", Span::ForwardToInput, any, hasLayers);
    assign(place, "kept_sets", Span::InputToWeight, hasLayers, hasLayers);
    // Head and embedding are done with the input gradient.
    for (auto [pool, part] : {std::pair("head_sets", Part::Head),
                              std::pair("embedding_sets", Part::Embedding)}) {
      auto has = [&, part = part](int64_t chunk) {
        return stages.has(part, place, chunk);
      };
      assign(place, pool, Span::ForwardToInput, has, has);
    }
  }
  addChunks();
  pad();
}

std::vector<int64_t> &StageNumbers::row(const std::string &name,
                                        int64_t place) {
  PlaceRows &rows = tables[name];
  rows.resize(stages.places());
  return rows[place];
}

/// Which of the stage's neighbours a slot's result goes to: 1 behind, -1
/// before, 0 none.
static int64_t directionOf(Slot slot) {
  if (slot.kind() == SlotKind::Forward)
    return 1;
  return slot.givesInputGrad() ? -1 : 0;
}

void StageNumbers::addSlots(int64_t place) {
  // Landings of one direction lie one behind the other, chunk after chunk.
  std::vector<int64_t> activations = {0}, gradients = {0};
  for (const auto &chunk : events.landingCounts[place]) {
    activations.push_back(activations.back() + chunk.activations);
    gradients.push_back(gradients.back() + chunk.gradients);
  }
  counts["activation_landings"].push_back(activations.back());
  counts["gradient_landings"].push_back(gradients.back());
  auto landingOf = [&](size_t index, Slot slot) {
    const auto &base =
        slot.kind() == SlotKind::Forward ? activations : gradients;
    return base[slot.chunk()] + events.landings[place][index];
  };
  const std::vector<Slot> &slots = stages.schedule.rows[place];
  int64_t sent[2] = {0, 0};
  for (auto [i, slot] : llvm::enumerate(slots)) {
    int64_t direction = directionOf(slot);
    auto from = direction ? stages.neighbour(place, slot.chunk(), -direction)
                          : std::nullopt;
    auto to = direction ? stages.neighbour(place, slot.chunk(), direction)
                        : std::nullopt;
    bool sends = to && to->rank != place, handsOn = to && to->rank == place;
    row("slots", place).push_back(slot.bits());
    row("runs_forward", place).push_back(slot.kind() == SlotKind::Forward);
    row("runs_backward", place).push_back(slot.givesInputGrad());
    row("runs_weight", place).push_back(slot.endsMicroBatch());
    row("last_input", place).push_back(stages.isLast(place, i, false));
    row("last_weight", place).push_back(stages.isLast(place, i, true));
    row("landings", place).push_back(from ? landingOf(i, slot) : 0);
    row("receives", place).push_back(from && from->rank != place);
    row("sends", place).push_back(sends);
    row("outs", place)
        .push_back(sends ? sent[direction > 0]++ % kOuts : handsOn * kOuts);
    row("hands_on", place).push_back(handsOn);
    anyHandsOn |= handsOn;
    int64_t handed = 0;
    if (handsOn) // what reads it is a slot of this row
      for (auto [k, other] : llvm::enumerate(slots))
        if (directionOf(other) == direction && other.chunk() == to->chunk &&
            other.microBatch() == slot.microBatch())
          handed = landingOf(k, other);
    row("handed_landings", place).push_back(handed);
  }
}

int64_t StageNumbers::channelTo(int64_t from, int64_t to) {
  int64_t shift = (to - from + stages.places()) % stages.places();
  auto known = llvm::find(channelShifts, shift);
  if (known == channelShifts.end())
    known = channelShifts.insert(known, shift);
  return known - channelShifts.begin();
}

void StageNumbers::addTransfers(int64_t place) {
  std::vector<int64_t> &order = row("events", place),
                       &begins = row("batch_begins", place),
                       &transfers = row("transfers", place),
                       &channels = row("transfer_channels", place);
  int64_t batch = -1;
  for (const ScheduleEvent &event : events.rows[place]) {
    if (event.kind == EventKind::Compute) {
      order.push_back(event.slot * 2);
      batch = -1;
      continue;
    }
    if (event.batch != batch || batch < 0) {
      order.push_back(static_cast<int64_t>(begins.size()) * 2 + 1);
      begins.push_back(static_cast<int64_t>(transfers.size()));
      batch = event.batch;
    }
    bool sends = event.kind == EventKind::Send;
    transfers.push_back(event.slot * 4 + sends * 2 + event.isGradient);
    channels.push_back(sends ? channelTo(place, event.peer)
                             : channelTo(event.peer, place));
  }
  begins.push_back(static_cast<int64_t>(transfers.size()));
  row("event_count", place).push_back(static_cast<int64_t>(order.size()));
}

void StageNumbers::assign(int64_t place, const std::string &pool, Span span,
                          llvm::function_ref<bool(int64_t)> takes,
                          llvm::function_ref<bool(int64_t)> keeps) {
  std::map<std::pair<int64_t, int64_t>, int64_t> held;
  std::vector<bool> taken;
  auto take = [&] {
    int64_t number = llvm::find(taken, false) - taken.begin();
    taken.resize(std::max<size_t>(taken.size(), number + 1));
    return number;
  };
  for (Slot slot : stages.schedule.rows[place]) {
    std::pair<int64_t, int64_t> key = {slot.chunk(), slot.microBatch()};
    bool begins = span == Span::InputToWeight
                      ? slot.givesInputGrad()
                      : slot.kind() == SlotKind::Forward;
    bool ends = span == Span::ForwardToInput ? slot.givesInputGrad()
                                             : slot.endsMicroBatch();
    int64_t number = 0;
    if (begins && takes(slot.chunk())) {
      number = take();
      taken[number] = keeps(slot.chunk());
      held[key] = number;
    }
    // Weight slots use nothing that ended with the input gradient.
    if (auto own = held.find(key); own != held.end() && keeps(slot.chunk())) {
      number = own->second;
      if (ends) {
        taken[number] = false;
        held.erase(own);
      }
    }
    row(pool, place).push_back(number);
  }
  counts[pool].push_back(static_cast<int64_t>(taken.size()));
}

void StageNumbers::addChunks() {
  for (int64_t place = 0; place < stages.places(); ++place) {
    row("layers_held", place).push_back(stages.heldBy(place));
    for (Part part : {Part::Embedding, Part::Head, Part::Ends,
                      Part::Predecessor, Part::Successor}) {
      std::string name = stringifyPart(part).str();
      row("has_" + name, place).push_back(stages.has(part, place));
      for (int64_t chunk = 0; chunk < stages.chunks(); ++chunk)
        row("chunk_has_" + name, place)
            .push_back(stages.has(part, place, chunk));
    }
    for (int64_t chunk = 0; chunk < stages.chunks(); ++chunk) {
      row("chunk_layers", place).push_back(stages.countOf(place, chunk));
      row("chunk_begins", place).push_back(stages.firstOf(place, chunk));
    }
  }
}

void StageNumbers::pad() {
  for (auto &[name, rows] : tables) {
    size_t width = 1;
    for (const auto &row : rows)
      width = std::max(width, row.size());
    for (auto &row : rows)
      row.resize(width);
  }
}
