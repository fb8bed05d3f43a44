#include "heddle/Schedule/Table.h"

#include <algorithm>

#include <fmt/format.h>

namespace heddle {

namespace {

Result<void> checkSizes(std::int64_t ranks, std::int64_t chunks) {
  if (ranks < 1 || ranks > Placement::maxRanks)
    return Error{fmt::format("schedule: {} ranks, expected 1 to {}", ranks,
                             Placement::maxRanks)};
  if (chunks < 1 || chunks > Slot::maxChunks)
    return Error{fmt::format("schedule: {} chunks per rank, expected 1 to {}",
                             chunks, Slot::maxChunks)};
  if (ranks * chunks > Placement::maxPlaces)
    return Error{
        fmt::format("schedule: {} ranks of {} chunks are {} stages, at "
                    "most {} are possible",
                    ranks, chunks, ranks * chunks, Placement::maxPlaces)};
  return {};
}

/// A map of the right size, filled by `stageOf`.
template <typename StageOf>
std::vector<std::vector<StageAt>> mapOf(std::int64_t ranks, std::int64_t chunks,
                                        StageOf stageOf) {
  std::vector<std::vector<StageAt>> map(static_cast<std::size_t>(ranks));
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
      map[static_cast<std::size_t>(rank)].push_back(stageOf(rank, chunk));
  return map;
}

} // namespace

Result<Placement>
Placement::of(const std::vector<std::vector<StageAt>> &stageOfPlace) {
  const std::int64_t ranks = static_cast<std::int64_t>(stageOfPlace.size());
  const std::int64_t chunks =
      ranks ? static_cast<std::int64_t>(stageOfPlace.front().size()) : 0;
  if (Result<void> done = checkSizes(ranks, chunks); !done)
    return done.error();
  std::int64_t numPaths = 1;
  for (const std::vector<StageAt> &row : stageOfPlace) {
    if (static_cast<std::int64_t>(row.size()) != chunks)
      return Error{fmt::format("schedule: placement: {} chunks on one rank and "
                               "{} on another, expected as many on each",
                               chunks, row.size())};
    for (const StageAt &stage : row)
      numPaths = std::max(numPaths, stage.path + 1);
  }
  const std::int64_t stages = ranks * chunks / numPaths;
  if (stages * numPaths != ranks * chunks)
    return Error{fmt::format("schedule: placement: {} stages cannot be {} "
                             "paths of equal length",
                             ranks * chunks, numPaths)};
  Placement placement;
  placement.numRanks = ranks;
  placement.numChunks = chunks;
  placement.paths.assign(
      static_cast<std::size_t>(numPaths),
      std::vector<PlanPlace>(static_cast<std::size_t>(stages), {-1, 0}));
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const StageAt stage = stageOfPlace[static_cast<std::size_t>(rank)]
                                        [static_cast<std::size_t>(chunk)];
      if (stage.path < 0 || stage.stage < 0 || stage.stage >= stages)
        return Error{fmt::format("schedule: placement: rank {} chunk {} holds "
                                 "stage {}, expected 0 to {}",
                                 rank, chunk, stage.stage, stages - 1)};
      PlanPlace &place = placement.paths[static_cast<std::size_t>(stage.path)]
                                        [static_cast<std::size_t>(stage.stage)];
      if (place.rank >= 0)
        return Error{fmt::format("schedule: placement: stage {} is on rank {} "
                                 "and on rank {}, expected on one",
                                 stage.stage, place.rank, rank)};
      place = {rank, chunk};
      placement.stageOfPlace.push_back(stage);
    }
  return placement;
}

Result<Placement> Placement::cyclic(std::int64_t ranks, std::int64_t chunks) {
  if (Result<void> done = checkSizes(ranks, chunks); !done)
    return done.error();
  return of(mapOf(ranks, chunks, [&](std::int64_t rank, std::int64_t chunk) {
    return StageAt{0, chunk * ranks + rank};
  }));
}

Result<Placement> Placement::backAndForth(std::int64_t ranks,
                                          std::int64_t chunks) {
  if (Result<void> done = checkSizes(ranks, chunks); !done)
    return done.error();
  return of(mapOf(ranks, chunks, [&](std::int64_t rank, std::int64_t chunk) {
    return StageAt{0, chunk * ranks + (chunk % 2 ? ranks - 1 - rank : rank)};
  }));
}

Result<Placement> Placement::twoWays(std::int64_t ranks) {
  if (Result<void> done = checkSizes(ranks, 2); !done)
    return done.error();
  return of(mapOf(ranks, 2, [&](std::int64_t rank, std::int64_t chunk) {
    return StageAt{chunk, chunk ? ranks - 1 - rank : rank};
  }));
}

Result<Placement> Placement::of(PlanScheduleKind kind, std::int64_t ranks,
                                std::int64_t chunks) {
  switch (kind) {
  case PlanScheduleKind::None:
  case PlanScheduleKind::GPipe:
  case PlanScheduleKind::OneFOneB:
  case PlanScheduleKind::Interleaved1F1B:
  case PlanScheduleKind::ZbH1:
  case PlanScheduleKind::ZbH2:
  case PlanScheduleKind::Table:
    return cyclic(ranks, chunks);
  case PlanScheduleKind::ZbV:
  case PlanScheduleKind::VHalf:
  case PlanScheduleKind::VMin:
  case PlanScheduleKind::DualPipeV:
    return backAndForth(ranks, chunks);
  case PlanScheduleKind::DualPipe:
    return twoWays(ranks);
  }
  return Error{"schedule: unknown kind"};
}

bool Placement::isCyclic() const {
  for (std::int64_t rank = 0; rank < numRanks; ++rank)
    for (std::int64_t chunk = 0; chunk < numChunks; ++chunk)
      if (at(rank, chunk) != StageAt{0, chunk * numRanks + rank})
        return false;
  return true;
}

bool Placement::isMirrored() const {
  if (numPaths() != 2 || numRanks % 2)
    return false;
  for (std::int64_t stage = 0; stage < stages(); ++stage)
    if (placeOf({1, stage}).rank != numRanks - 1 - placeOf({0, stage}).rank)
      return false;
  return true;
}

bool ScheduleTable::isMirrored() const {
  if (!placement.isMirrored())
    return false;
  const auto isMirrorOf = [&](std::int64_t rank, Slot slot, Slot other) {
    if (slot.kind() != other.kind())
      return false;
    if (slot.kind() == SlotKind::Optimizer)
      return true;
    const StageAt at = placement.at(rank, slot.chunk());
    return placement.at(ranks() - 1 - rank, other.chunk()) ==
               StageAt{1 - at.path, at.stage} &&
           (slot.microBatch() + microBatches / 2) % microBatches ==
               other.microBatch();
  };
  for (std::int64_t rank = 0; rank < ranks() / 2; ++rank) {
    const std::vector<Slot>
        &row = rows[static_cast<std::size_t>(rank)],
        &other = rows[static_cast<std::size_t>(ranks() - 1 - rank)];
    if (!std::equal(row.begin(), row.end(), other.begin(), other.end(),
                    [&](Slot a, Slot b) { return isMirrorOf(rank, a, b); }))
      return false;
  }
  return true;
}

} // namespace heddle
