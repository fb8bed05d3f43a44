#include "heddle/Planner/Conflict.h"

#include "heddle/Planner/Space.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

using namespace heddle;

static constexpr double gib = 1024.0 * 1024.0 * 1024.0;

namespace {

struct Leanest {
  std::optional<PlanPoint> point;
  std::int64_t bytes = std::numeric_limits<std::int64_t>::max();
};

/// Asks questions about variants of one problem.
class ConflictFinder {
public:
  ConflictFinder(const PlanProblem &problem, const StepTimes &times,
                 const MemoryEstimator &memory)
      : problem(problem), times(times), memory(memory) {}

  PlanConflict find();

private:
  static Leanest leanestOf(const PlanProblem &variant,
                           const MemoryEstimator &memory);
  bool fits(const PlanProblem &variant) const {
    return leanestOf(variant, memory).bytes <=
           variant.cluster.planBytesPerDevice();
  }
  std::vector<PlanDemand> smallestConflict() const;
  void relaxDemands(PlanConflict &conflict) const;
  void relaxCluster(PlanConflict &conflict) const;
  void relaxSettings(PlanConflict &conflict) const;

  const PlanProblem &problem;
  const StepTimes &times;
  const MemoryEstimator &memory;
};

} // namespace

/// The plan that needs least memory: the smallest micro-batch of each mesh, as
/// much recompute as is allowed.
Leanest ConflictFinder::leanestOf(const PlanProblem &variant,
                                  const MemoryEstimator &memory) {
  const PlanSpace space(variant);
  const std::vector<PointRecompute> kinds = space.recomputes();
  Leanest least;
  if (kinds.empty())
    return least;
  std::optional<PlanPoint> last;
  for (const PlanPoint &mesh : space.meshes()) {
    // Micro-batches of a mesh follow each other, the smallest first.
    PlanPoint axes = mesh;
    axes.microBatch = axes.microBatches = 1;
    if (last && *last == axes)
      continue;
    last = axes;
    for (const PlanPoint &schedule : space.schedules(mesh)) {
      FitTable table(memory, schedule);
      for (const PlanStorage &storage : space.storages(schedule)) {
        PlanPoint point = storage.on(schedule);
        table.take(point);
        const std::optional<std::int64_t> bytes =
            table.leastBytes(kinds.back());
        if (!bytes || *bytes >= least.bytes)
          continue;
        point.recompute = kinds.back();
        if (kinds.back() != PointRecompute::None)
          for (std::int64_t rank = 0; rank < point.pp; ++rank)
            point.recomputed.push_back(point.layersOf(rank));
        least = {point, *bytes};
      }
    }
  }
  return least;
}

/// Sets of one demand, then of two, and so on.
std::vector<PlanDemand> ConflictFinder::smallestConflict() const {
  const std::size_t all = problem.demands.size();
  for (std::size_t size = 0; size < all; ++size) {
    std::vector<bool> chosen(all, false);
    std::fill(chosen.begin(),
              chosen.begin() + static_cast<std::ptrdiff_t>(size), true);
    do {
      PlanProblem variant = problem;
      variant.demands.clear();
      for (std::size_t i = 0; i < all; ++i)
        if (chosen[i])
          variant.demands.push_back(problem.demands[i]);
      if (!fits(variant))
        return variant.demands;
    } while (std::prev_permutation(chosen.begin(), chosen.end()));
  }
  return problem.demands;
}

/// Each demand given up alone, those of one wish together.
void ConflictFinder::relaxDemands(PlanConflict &conflict) const {
  constexpr std::int64_t mostPlans = 5000;
  for (std::size_t i = 0; i < problem.demands.size(); ++i) {
    const PlanDemand &given = problem.demands[i];
    if (i > 0 && !given.wish.empty() &&
        given.wish == problem.demands[i - 1].wish)
      continue;
    PlanProblem variant = problem;
    variant.demands.clear();
    for (std::size_t j = 0; j < problem.demands.size(); ++j)
      if (j != i &&
          (given.wish.empty() || problem.demands[j].wish != given.wish))
        variant.demands.push_back(problem.demands[j]);
    if (!fits(variant))
      continue;
    const PlanAnswer answer = findPlans(variant, times, nullptr, memory,
                                        {.top = 1, .mostPlans = mostPlans});
    if (answer.fits())
      conflict.relaxations.push_back(
          {fmt::format("without {}: {}",
                       given.wish.empty() ? given.text() : given.wish,
                       answer.best.front().point.text()),
           answer.best.front().seconds});
  }
  std::stable_sort(conflict.relaxations.begin(), conflict.relaxations.end(),
                   [](const Relaxation &a, const Relaxation &b) {
                     return a.seconds < b.seconds;
                   });
}

/// More nodes, or devices with more memory.
void ConflictFinder::relaxCluster(PlanConflict &conflict) const {
  if (conflict.leanest) {
    const double needed =
        static_cast<double>(conflict.leastBytes +
                            problem.cluster.memoryReserveBytes) /
        gib;
    conflict.relaxations.push_back(
        {fmt::format("devices with {:.1f} GiB ({:.1f} for the plan, {:.1f} "
                     "reserved)",
                     needed, static_cast<double>(conflict.leastBytes) / gib,
                     static_cast<double>(problem.cluster.memoryReserveBytes) /
                         gib),
         0});
  }
  constexpr std::int64_t most = 64;
  for (std::int64_t times = 2; times <= most; times *= 2) {
    PlanProblem variant = problem;
    variant.cluster.nodes *= times;
    variant.cluster.links.back().nodes *= times;
    if (!fits(variant))
      continue;
    conflict.relaxations.push_back(
        {fmt::format("{} nodes ({} devices) instead of {}",
                     variant.cluster.nodes, variant.cluster.devices(),
                     problem.cluster.nodes),
         0});
    return;
  }
}

void ConflictFinder::relaxSettings(PlanConflict &conflict) const {
  constexpr std::int64_t shortest = 128;
  for (std::int64_t length = problem.train.sequenceLength / 2;
       length >= shortest; length /= 2) {
    PlanProblem variant = problem;
    variant.train.sequenceLength = length;
    const MemoryEstimator shorter(variant.model, variant.train,
                                  variant.cluster);
    if (leanestOf(variant, shorter).bytes >
        variant.cluster.planBytesPerDevice())
      continue;
    conflict.relaxations.push_back(
        {fmt::format("sequences of {} tokens instead of {}", length,
                     problem.train.sequenceLength),
         0});
    return;
  }
}

PlanConflict ConflictFinder::find() {
  PlanConflict conflict;
  const Leanest least = leanestOf(problem, memory);
  conflict.leanest = least.point;
  conflict.leastBytes = least.point ? least.bytes : 0;
  conflict.capacity = problem.cluster.planBytesPerDevice();
  conflict.demands = smallestConflict();
  relaxDemands(conflict);
  relaxCluster(conflict);
  relaxSettings(conflict);
  return conflict;
}

std::vector<std::string> PlanConflict::lines() const {
  std::vector<std::string> names;
  for (const PlanDemand &demand : demands)
    names.push_back(demand.text());
  std::vector<std::string> lines;
  const std::string who =
      demands.empty() ? "no plan"
                      : fmt::format("no plan with {}", fmt::join(names, ", "));
  if (leanest)
    lines.push_back(fmt::format(
        "{} fits: the leanest needs {:.1f} GiB ({} bytes) of a device's budget "
        "of {:.1f} ({}), {} bytes too many: {}",
        who, static_cast<double>(leastBytes) / gib, leastBytes,
        static_cast<double>(capacity) / gib, capacity, leastBytes - capacity,
        leanest->text()));
  else
    lines.push_back(fmt::format(
        "{} is there: the numbers do not go together (ranks are pp x dp x cp x "
        "tp, dp divides global_batch, heads split over tp)",
        who));
  for (const Relaxation &each : relaxations)
    lines.push_back(each.seconds > 0
                        ? fmt::format("possible {}, {:.3g} s a step", each.text,
                                      each.seconds)
                        : fmt::format("possible with {}", each.text));
  return lines;
}

PlanConflict heddle::explainConflict(const PlanProblem &problem,
                                     const StepTimes &times,
                                     const MemoryEstimator &memory) {
  return ConflictFinder(problem, times, memory).find();
}
