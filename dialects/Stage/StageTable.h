//===- StageTable.h - a stage.table, read -----------------------*- C++ -*-===//

#ifndef HEDDLE_DIALECTS_STAGE_STAGETABLE_H
#define HEDDLE_DIALECTS_STAGE_STAGETABLE_H

#include "dialects/Stage/Stage.h"
#include "heddle/Schedule/Table.h"

namespace heddle::stage {

/// Which layers each chunk of each place holds, and what runs when.
class StageTable {
public:
  /// Fails with a message where the op's texts cannot be read (C1).
  static mlir::FailureOr<StageTable> read(TableOp op);
  /// The module's only table; none where it has none.
  static std::optional<StageTable> of(mlir::ModuleOp module);

  int64_t places() const { return schedule.ranks(); }
  int64_t chunks() const { return schedule.chunks(); }
  const PlanRange &layersOf(int64_t place, int64_t chunk) const {
    return ranges[place][chunk];
  }
  static int64_t count(const PlanRange &range) {
    return range.last - range.first + 1;
  }
  /// Layers of a chunk, of a place; the most of any.
  int64_t countOf(int64_t place, int64_t chunk) const {
    return count(layersOf(place, chunk));
  }
  /// Of the model.
  int64_t layers() const;
  int64_t heldBy(int64_t place) const;
  int64_t mostOfChunk(int64_t place) const;
  int64_t mostOfChunk() const;
  int64_t mostOfPlace() const;
  /// Position of a chunk's first layer among those of its place, which are in
  /// the model's order: places that hold copies number them alike.
  int64_t firstOf(int64_t place, int64_t chunk) const;
  /// Number of the layer at that position.
  int64_t layerAt(int64_t place, int64_t held) const;
  /// Position of a layer at a place, if the place has it.
  std::optional<int64_t> positionOf(int64_t place, int64_t layer) const;

  bool has(Part part, int64_t place, int64_t chunk) const;
  bool has(Part part, int64_t place) const;
  /// Whether no later slot of a place makes weight (or input) gradients of the
  /// chunk of slot `index`.
  bool isLast(int64_t place, size_t index, bool ofWeight) const;
  /// Place and chunk of the stage behind (`shift` 1) or before (-1).
  std::optional<PlanPlace> neighbour(int64_t place, int64_t chunk,
                                     int64_t shift) const;
  /// The place of an end of a path.
  int64_t placeOfEnd(Part part, int64_t path) const;
  /// Copies of the model.
  int64_t copies() const { return schedule.placement.numPaths(); }

  ScheduleTable schedule;

private:
  explicit StageTable(ScheduleTable schedule) : schedule(std::move(schedule)) {}

  std::vector<std::vector<PlanRange>> ranges; ///< [place][chunk]
};

} // namespace heddle::stage

#endif // HEDDLE_DIALECTS_STAGE_STAGETABLE_H
