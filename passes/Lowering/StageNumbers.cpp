//===- StageNumbers.cpp - a schedule as tables of numbers -----------------===//

#include "passes/Lowering/StageNumbers.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FormatVariadic.h"

#include <cstdlib>

using namespace heddle;
using namespace heddle::lowering;
using stage::Part;

StageNumbers::StageNumbers(const stage::StageTable &stages)
    : stages(stages), events(deriveEvents(stages.schedule)) {
  for (int64_t place = 0; place < stages.places(); ++place) {
    addSlots(place);
    addTransfers(place);
    addPools(place);
  }
  addChunks();
  pad();
}

PackedNumber StageNumbers::pool(llvm::StringRef name) {
  constexpr int64_t first = 1 << 15, second = 1 << 16;
  return llvm::StringSwitch<PackedNumber>(name)
      .Case("sets", {"sets", "set", 1, first})
      .Case("head_sets", {"sets", "head_set", first, second})
      .Case("input_sets", {"split_sets", "input_set", 1, first})
      .Case("kept_sets", {"split_sets", "kept_set", first, second})
      .Default({"embedding_sets", "embedding_set", 1, int64_t(1) << 31});
}

int64_t StageNumbers::packed(const PackedNumber &number, int64_t value) {
  if (value >= number.modulus && fault.empty())
    fault = llvm::formatv("'{0}' in '{1}' is {2}, the largest that fits is {3}",
                          number.name, number.table, value, number.modulus - 1);
  return value * number.divisor;
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
  int64_t sent[2] = {0, 0}, outs[2] = {0, 0};
  for (auto [i, slot] : llvm::enumerate(slots)) {
    int64_t direction = directionOf(slot);
    auto from = direction ? stages.neighbour(place, slot.chunk(), -direction)
                          : std::nullopt;
    auto to = direction ? stages.neighbour(place, slot.chunk(), direction)
                        : std::nullopt;
    bool sends = to && to->rank != place, handsOn = to && to->rank == place;
    packed(kMicroBatch, slot.microBatch());
    row("slots", place).push_back(slot.bits());
    int64_t out = sends ? sent[direction > 0]++ % kOuts : (handsOn ? kOuts : 0);
    if (sends || handsOn)
      outs[direction > 0] = std::max(outs[direction > 0], out + 1);
    row("uses", place)
        .push_back(packed(kForward, slot.kind() == SlotKind::Forward) +
                   packed(kBackward, slot.givesInputGrad()) +
                   packed(kWeight, slot.endsMicroBatch()) +
                   packed(kReceives, from && from->rank != place) +
                   packed(kSends, sends) + packed(kHandsOn, handsOn) +
                   packed(kLastInput, stages.isLast(place, i, false)) +
                   packed(kLastWeight, stages.isLast(place, i, true)) +
                   packed(kOut, out) +
                   packed(kLanding, from ? landingOf(i, slot) : 0));
    anyHandsOn |= handsOn;
    int64_t handed = 0;
    if (handsOn) // what reads it is a slot of this row
      for (auto [k, other] : llvm::enumerate(slots))
        if (directionOf(other) == direction && other.chunk() == to->chunk &&
            other.microBatch() == slot.microBatch())
          handed = landingOf(k, other);
    row("handed_landings", place).push_back(handed);
  }
  counts["gradient_outs"].push_back(outs[0]);
  counts["activation_outs"].push_back(outs[1]);
}

int64_t StageNumbers::shiftTo(int64_t from, int64_t to, bool round) const {
  int64_t shift = to - from, size = stages.places();
  if (2 * std::abs(shift) > size || (size == 2 && round))
    shift -= shift > 0 ? size : -size;
  return shift;
}

int64_t StageNumbers::channelOf(int64_t place, const ScheduleEvent &event) {
  int64_t chunk = stages.schedule.rows[place][event.slot].chunk();
  bool sends = event.kind == EventKind::Send;
  int64_t direction = sends == event.isGradient ? -1 : 1;
  auto peer = stages.neighbour(place, chunk, direction);
  bool round = peer && peer->chunk != chunk;
  int64_t shift = sends ? shiftTo(place, event.peer, round)
                        : shiftTo(event.peer, place, round);
  auto known = llvm::find(channelShifts, shift);
  if (known == channelShifts.end())
    known = channelShifts.insert(known, shift);
  return known - channelShifts.begin();
}

void StageNumbers::addTransfers(int64_t place) {
  std::vector<int64_t> &order = row("events", place),
                       &transfers = row("transfers", place);
  auto isBatchOf = [](const ScheduleEvent &a, const ScheduleEvent &b) {
    return a.kind != EventKind::Compute && b.kind != EventKind::Compute &&
           a.batch == b.batch;
  };
  const std::vector<ScheduleEvent> &all = events.rows[place];
  for (size_t i = 0; i < all.size();) {
    if (all[i].kind == EventKind::Compute) {
      order.push_back(packed(kEventSlot, all[i++].slot));
      continue;
    }
    auto begin = static_cast<int64_t>(transfers.size());
    for (size_t first = i; i < all.size() && isBatchOf(all[first], all[i]); ++i)
      transfers.push_back(
          packed(kTransferType,
                 2 * (all[i].kind == EventKind::Send) + all[i].isGradient) +
          packed(kTransferChannel, channelOf(place, all[i])) +
          packed(kTransferSlot, all[i].slot));
    order.push_back(
        packed(kIsBatch, 1) +
        packed(kBatchSize, static_cast<int64_t>(transfers.size()) - begin) +
        packed(kBatchBegin, begin));
  }
  row("event_count", place).push_back(static_cast<int64_t>(order.size()));
}

void StageNumbers::addPools(int64_t place) {
  // A chunk without layers has what it carries in a set, and saves nothing.
  auto ofLayers = [&](int64_t chunk) {
    return stages.countOf(place, chunk) > 0 ? SetUse::Span
                                            : SetUse::WhileItBegins;
  };
  auto where = [](bool has) { return has ? SetUse::Span : SetUse::None; };
  addPool(place, "sets", SetSpan::ForwardToWeightGrad, ofLayers);
  addPool(place, "input_sets", SetSpan::ForwardToInputGrad, ofLayers);
  addPool(place, "kept_sets", SetSpan::InputGradToWeightGrad,
          [&](int64_t chunk) { return where(stages.countOf(place, chunk)); });
  // Head and embedding are done with the input gradient.
  for (auto [pool, part] : {std::pair("head_sets", Part::Head),
                            std::pair("embedding_sets", Part::Embedding)})
    addPool(place, pool, SetSpan::ForwardToInputGrad,
            [&, part = part](int64_t chunk) {
              return where(stages.has(part, place, chunk));
            });
}

void StageNumbers::addPool(int64_t place, const std::string &pool, SetSpan span,
                           const std::function<SetUse(int64_t chunk)> &useOf) {
  RankSets sets = assignSets(stages.schedule, place, span, useOf);
  PackedNumber part = StageNumbers::pool(pool);
  std::vector<int64_t> &entries = row(part.table.str(), place);
  entries.resize(sets.slots.size());
  for (auto [entry, set] : llvm::zip(entries, sets.slots))
    entry += packed(part, std::max(set, 0));
  counts[pool].push_back(sets.count);
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

void StageNumbers::addAhead(const std::string &name, int64_t depth) {
  for (int64_t place = 0; place < stages.places(); ++place)
    for (int64_t chunk = 0; chunk < stages.chunks(); ++chunk) {
      int64_t layers = stages.countOf(place, chunk),
              ahead = std::min(depth, layers);
      row(name + "_ahead", place).push_back(ahead);
      row(name + "_rest", place).push_back(layers - ahead);
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
