//===- StageTable.cpp - a stage.table, read -------------------------------===//

#include "dialects/Stage/StageTable.h"

using namespace mlir;

namespace heddle::stage {

/// "a..b", "a" or "".
static std::optional<PlanRange> readRange(StringRef text) {
  PlanRange range;
  if (text.empty())
    return range;
  auto [first, last] = text.split("..");
  if (first.getAsInteger(10, range.first) || range.first < 0)
    return std::nullopt;
  range.last = range.first;
  if (text.contains("..") && last.getAsInteger(10, range.last))
    return std::nullopt;
  return range.last < range.first ? std::nullopt : std::optional(range);
}

FailureOr<StageTable> StageTable::read(TableOp op) {
  std::vector<std::string> rows;
  for (StringRef row : op.getRows().getAsValueRange<StringAttr>())
    rows.push_back(row.str());
  if (op.getLayers().empty() || op.getLayers().size() != rows.size())
    return op.emitOpError() << "has layers of " << op.getLayers().size()
                            << " places and slots of " << rows.size();
  size_t chunks = cast<ArrayAttr>(op.getLayers()[0]).size();
  Result<ScheduleTable> schedule =
      readRows(rows, static_cast<int64_t>(chunks), op.getMicroBatches());
  if (!schedule)
    return op.emitOpError()
           << "has slots that cannot be read: " << schedule.error().message;
  StageTable table(std::move(*schedule));
  for (auto place : op.getLayers().getAsRange<ArrayAttr>()) {
    if (place.size() != chunks)
      return op.emitOpError() << "has " << chunks << " chunks at one place and "
                              << place.size() << " at another";
    auto &held = table.ranges.emplace_back();
    for (StringRef text : place.getAsValueRange<StringAttr>()) {
      std::optional<PlanRange> range = readRange(text);
      if (!range)
        return op.emitOpError() << "expected layers \"a..b\", \"a\" or \"\", "
                                << "found \"" << text << "\"";
      held.push_back(*range);
    }
  }
  return table;
}

std::optional<StageTable> StageTable::of(ModuleOp module) {
  for (auto op : module.getOps<TableOp>())
    if (FailureOr<StageTable> table = read(op); succeeded(table))
      return std::move(*table);
  return std::nullopt;
}

int64_t StageTable::layers() const {
  const Placement &placement = schedule.placement;
  int64_t total = 0;
  for (int64_t stage = 0; stage < placement.stages(); ++stage) {
    PlanPlace at = placement.placeOf({0, stage});
    total += countOf(at.rank, at.chunk);
  }
  return total;
}

int64_t StageTable::heldBy(int64_t place) const {
  int64_t held = 0;
  for (int64_t chunk = 0; chunk < chunks(); ++chunk)
    held += countOf(place, chunk);
  return held;
}

int64_t StageTable::firstOf(int64_t place, int64_t chunk) const {
  int64_t first = 0;
  for (int64_t other = 0; other < chunks(); ++other)
    if (layersOf(place, other).first < layersOf(place, chunk).first)
      first += countOf(place, other);
  return first;
}

int64_t StageTable::mostOfChunk(int64_t place) const {
  int64_t most = 0;
  for (int64_t chunk = 0; chunk < chunks(); ++chunk)
    most = std::max(most, countOf(place, chunk));
  return most;
}

int64_t StageTable::mostOfChunk() const {
  int64_t most = 0;
  for (int64_t place = 0; place < places(); ++place)
    most = std::max(most, mostOfChunk(place));
  return most;
}

int64_t StageTable::mostOfPlace() const {
  int64_t most = 0;
  for (int64_t place = 0; place < places(); ++place)
    most = std::max(most, heldBy(place));
  return most;
}

int64_t StageTable::layerAt(int64_t place, int64_t held) const {
  for (int64_t chunk = 0; chunk < chunks(); ++chunk)
    if (int64_t i = held - firstOf(place, chunk);
        i >= 0 && i < countOf(place, chunk))
      return layersOf(place, chunk).first + i;
  llvm_unreachable("the place holds fewer layers");
}

std::optional<int64_t> StageTable::positionOf(int64_t place,
                                              int64_t layer) const {
  for (int64_t chunk = 0; chunk < chunks(); ++chunk)
    if (layersOf(place, chunk).contains(layer))
      return firstOf(place, chunk) + layer - layersOf(place, chunk).first;
  return std::nullopt;
}

bool StageTable::has(Part part, int64_t place, int64_t chunk) const {
  int64_t stage = schedule.placement.at(place, chunk).stage;
  bool first = stage == 0, last = stage + 1 == schedule.placement.stages();
  switch (part) {
  case Part::Embedding:
    return first;
  case Part::Head:
    return last;
  case Part::Ends:
    return first || last;
  case Part::Predecessor:
    return !first;
  case Part::Successor:
    return !last;
  case Part::Last:
    break; // depends on the slot
  }
  llvm_unreachable("not a part of a stage");
}

bool StageTable::has(Part part, int64_t place) const {
  for (int64_t chunk = 0; chunk < chunks(); ++chunk)
    if (has(part, place, chunk))
      return true;
  return false;
}

bool StageTable::isLast(int64_t place, size_t index, bool ofWeight) const {
  const std::vector<Slot> &row = schedule.rows[place];
  auto runs = [&](Slot slot) {
    return slot.chunk() == row[index].chunk() &&
           (ofWeight ? slot.endsMicroBatch() : slot.givesInputGrad());
  };
  return runs(row[index]) &&
         std::none_of(row.begin() + index + 1, row.end(), runs);
}

std::optional<PlanPlace> StageTable::neighbour(int64_t place, int64_t chunk,
                                               int64_t shift) const {
  StageAt at = schedule.placement.at(place, chunk);
  at.stage += shift;
  if (at.stage < 0 || at.stage >= schedule.placement.stages())
    return std::nullopt;
  return schedule.placement.placeOf(at);
}

int64_t StageTable::placeOfEnd(Part part, int64_t path) const {
  int64_t stage = part == Part::Embedding ? 0 : schedule.placement.stages() - 1;
  return schedule.placement.placeOf({path, stage}).rank;
}

} // namespace heddle::stage
