#include "runtime/train/Replay.h"

#include "runtime/common/Status.h"
#include "runtime/ranks/Inspect.h"
#include "runtime/train/Replicas.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

namespace heddle::train {

using runtime::State;

namespace {

/// Calls `use(place, bytes)` for what the rank stores of each instance.
template <class Use>
heddle_rt_status forEachStored(Rank &rank, Use use) {
  for (const State &state : rank.tables.states) {
    const Extents extents = extentsOf(rank.tables, rank.rank, state);
    const int64_t bytes = extents.storedElements() * bytesOf(state.dtype);
    const auto count = rank.tables.numInstancesAt(state, rank.stage);
    for (int64_t i = 0; i < count; ++i)
      if (bytes > 0)
        HEDDLE_RT_TRY(use(instancePlace(state, i, extents, rank.stage), bytes));
  }
  return HEDDLE_RT_OK;
}

heddle_rt_status save(Rank &rank, std::vector<std::vector<char>> &copies) {
  return forEachStored(rank, [&](const runtime::Place &place, int64_t bytes) {
    copies.emplace_back(size_t(bytes));
    return rank.download(copies.back().data(), place, bytes);
  });
}

heddle_rt_status restore(Rank &rank,
                         const std::vector<std::vector<char>> &copies) {
  size_t next = 0;
  return forEachStored(rank, [&](const runtime::Place &place, int64_t bytes) {
    return rank.upload(place, copies[next++].data(), bytes);
  });
}

/// What a rank did in a step.
struct Seen {
  std::vector<uint64_t> given;  ///< to reductions, in order
  std::vector<int64_t> digests; ///< of states behind it
};

heddle_rt_status runAndSee(Rank &rank,
                           const std::function<heddle_rt_status()> &run,
                           Seen &seen) {
  ranks::Integrity &integrity = ranks::integrityOf(rank.context);
  ranks::Integrity::Look look = integrity.looks();
  look.hashes = true;
  integrity.begin(look);
  HEDDLE_RT_TRY(run());
  HEDDLE_RT_TRY(rank.synchronize());
  seen.given = integrity.hashes;
  look.hashes = false;
  return digestStates(rank, seen.digests);
}

constexpr int64_t kEqual = std::numeric_limits<int64_t>::max();

/// Number of the first reduction that got something else; behind all of them
/// where only states differ.
int64_t firstDifference(const Seen &a, const Seen &b) {
  const auto [at, other] = std::mismatch(a.given.begin(), a.given.end(),
                                         b.given.begin(), b.given.end());
  if (at != a.given.end() || other != b.given.end())
    return at - a.given.begin();
  return a.digests == b.digests ? kEqual : int64_t(a.given.size());
}

} // namespace

heddle_rt_status replayStep(Rank &rank, int64_t step,
                            const std::function<heddle_rt_status()> &first,
                            const std::function<heddle_rt_status()> &again) {
  std::vector<std::vector<char>> before;
  Seen once, twice;
  HEDDLE_RT_TRY(save(rank, before));
  HEDDLE_RT_TRY(runAndSee(rank, first, once));
  HEDDLE_RT_TRY(restore(rank, before));
  HEDDLE_RT_TRY(runAndSee(rank, again, twice));
  std::vector<int64_t> all;
  HEDDLE_RT_TRY(rank.gather({firstDifference(once, twice)}, all));
  const int64_t earliest = *std::min_element(all.begin(), all.end());
  if (earliest == kEqual)
    return HEDDLE_RT_OK;
  std::vector<size_t> ranks;
  for (size_t r = 0; r < all.size(); ++r)
    if (all[r] == earliest)
      ranks.push_back(r);
  return runtime::fail(
      HEDDLE_RT_CHECK_FAILED,
      "step {} was run twice from the same state, and the numbers differ: "
      "first on rank{} {}, from reduction {} of the step on",
      step, ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "), earliest);
}

} // namespace heddle::train
