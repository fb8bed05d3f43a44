#include "heddle/Planner/Search.h"

#include "heddle/Planner/Space.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>
#include <tuple>

using namespace heddle;

namespace {

/// What makes two plans different (PlanAnswer::best).
using PlanClass = std::tuple<std::string, std::int64_t, std::int64_t,
                             std::int64_t, std::int64_t, std::int64_t,
                             std::int64_t, int, std::int64_t, std::int64_t>;

PlanClass classOf(const PlanPoint &point) {
  return {point.recipe,     point.pp,
          point.dp,         point.cp,
          point.tp,         point.ep,
          point.microBatch, static_cast<int>(point.schedule),
          point.chunks,     point.zeroStage};
}

bool isFaster(const CostedPlan &a, const CostedPlan &b) {
  return a.seconds < b.seconds;
}

/// Infinite where there is no such schedule.
double secondsOf(const StepTimes &times, const PlanPoint &point) {
  Result<StepTime> step = times.simulate(point);
  return step ? step->seconds : std::numeric_limits<double>::infinity();
}

/// A set of plans that share what its point fixes.
struct Node {
  enum class Kind {
    Mesh,     ///< all schedules of a mesh
    Schedule, ///< all storages of a schedule
    Fitted,   ///< the same; its bound knows what memory asks for at least
  };
  double bound = 0;
  std::int64_t number = 0; ///< in the order in which they were made
  Kind kind = Kind::Mesh;
  PlanPoint point;

  /// The lowest bound is the next; among equals what is nearer to a plan.
  bool operator<(const Node &other) const {
    return std::tuple(-bound, kind, -number) <
           std::tuple(-other.bound, other.kind, -other.number);
  }
};

/// Fits points into memory: the choices that follow from it.
class Fitter {
public:
  Fitter(const PlanProblem &problem, const PlanSpace &space,
         const MemoryEstimator &memory)
      : memory(memory), recomputes(space.recomputes()),
        capacity(problem.cluster.planBytesPerDevice()),
        hasHost(problem.cluster.hostLinkBytesPerSecond.has_value()) {}

  /// The ways in which a point fits, the cheapest first: without recompute
  /// where it can, else with as little of each kind as it takes. A demand for a
  /// kind of recompute is one for all layers.
  std::vector<PlanPoint> fit(const PlanPoint &point) const {
    std::vector<PlanPoint> list;
    for (PointRecompute kind : recomputes) {
      PlanPoint fitted = point;
      fitted.recompute = kind;
      if (mayKeep() ? !memory.recomputeToFit(fitted, capacity)
                    : !fitsWithAll(fitted))
        continue;
      list.push_back(std::move(fitted));
      if (list.back().recompute == PointRecompute::None)
        break;
    }
    return list;
  }

  CostedPlan costed(const PlanPoint &point, double seconds) const {
    CostedPlan plan;
    plan.point = point;
    plan.seconds = seconds;
    if (auto peak = memory.peak(point)) {
      plan.peakBytes = peak->first;
      plan.fullestPlace = peak->second;
      plan.headRoom = capacity - peak->first;
    }
    return plan;
  }

  /// Whether plans may do without recompute.
  bool mayKeep() const {
    return !recomputes.empty() && recomputes.front() == PointRecompute::None;
  }
  const MemoryEstimator &memory;
  const std::vector<PointRecompute> recomputes;
  const std::int64_t capacity;
  const bool hasHost;

private:
  bool fitsWithAll(PlanPoint &point) const {
    point.recomputed.clear();
    for (std::int64_t rank = 0; rank < point.pp; ++rank)
      point.recomputed.push_back(point.layersOf(rank));
    auto peak = memory.peak(point);
    return peak && peak->first <= capacity;
  }
};

/// Bounds of the plans of one schedule that know how much recompute memory asks
/// for at least.
class ScheduleBounds {
public:
  ScheduleBounds(const Fitter &fitter, const StepTimes &times,
                 const PlanPoint &schedule)
      : fitter(fitter), times(times), schedule(schedule) {
    for (PointRecompute kind : fitter.recomputes)
      floors.emplace_back(fitter.memory, schedule, kind);
  }

  /// Of all its storages: of the one that needs least.
  double ofAll() {
    PlanPoint leanest = schedule;
    leanest.shardGroup = schedule.dp * schedule.cp;
    leanest.zeroStage = leanest.shardGroup > 1 ? 3 : 0;
    leanest.reduce = PlanReduce::EveryMicroBatch;
    leanest.gather = PlanGather::EveryPass;
    leanest.offloadsOptimizer = fitter.hasHost;
    return of(leanest);
  }

  /// Of one storage.
  double of(const PlanPoint &storage) {
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < floors.size(); ++i) {
      auto layers = floors[i].layersOf(storage, fitter.capacity);
      if (!layers)
        continue;
      if (!fitter.mayKeep())
        for (std::size_t rank = 0; rank < layers->size(); ++rank)
          (*layers)[rank] = schedule.layersOf(static_cast<std::int64_t>(rank));
      least = std::min(least, with(fitter.recomputes[i], std::move(*layers)));
    }
    return least;
  }

  /// With so many layers computed again.
  double with(PointRecompute kind, std::vector<std::int64_t> layers) {
    auto [entry, isNew] = known.try_emplace({kind, std::move(layers)}, 0.0);
    if (isNew) {
      PlanPoint point = schedule;
      point.recompute = kind;
      point.recomputed = entry->first.second;
      entry->second = times.boundOfSchedule(point);
    }
    return entry->second;
  }

private:
  const Fitter &fitter;
  const StepTimes &times;
  const PlanPoint &schedule;
  std::vector<RecomputeFloor> floors; ///< of each kind
  std::map<std::pair<PointRecompute, std::vector<std::int64_t>>, double> known;
};

class Search {
public:
  Search(const PlanProblem &problem, const StepTimes &times,
         const MemoryEstimator &memory, const SearchOptions &options)
      : space(problem), fitter(problem, space, memory), times(times),
        options(options) {}

  PlanAnswer run();
  const std::map<PlanClass, CostedPlan> &costed() const { return found; }
  const Fitter &fits() const { return fitter; }

private:
  void expandMesh(const Node &mesh);
  void fitSchedule(const Node &schedule);
  void expandSchedule(const PlanPoint &schedule);
  void evaluate(const PlanPoint &point);
  void push(Node::Kind kind, double bound, PlanPoint point);
  /// A plan that takes longer is none of the best.
  double threshold() const { return limit; }
  void add(CostedPlan plan);
  bool isSpent() const { return answer.counts.bounded >= options.mostPlans; }

  const PlanSpace space;
  const Fitter fitter;
  const StepTimes &times;
  const SearchOptions &options;
  std::map<PlanClass, CostedPlan> found; ///< the fastest of each class
  double limit = std::numeric_limits<double>::infinity();
  std::priority_queue<Node> open;
  std::int64_t nodes = 0;
  /// The lowest bound of what was left when the search was spent.
  double lowestLeft = std::numeric_limits<double>::infinity();
  PlanAnswer answer;
};

} // namespace

void Search::add(CostedPlan plan) {
  auto [entry, isNew] = found.try_emplace(classOf(plan.point), plan);
  if (!isNew) {
    if (!isFaster(plan, entry->second))
      return;
    entry->second = std::move(plan);
  }
  if (std::ssize(found) < options.top)
    return;
  std::vector<double> seconds;
  for (const auto &[unused, each] : found)
    seconds.push_back(each.seconds);
  std::nth_element(seconds.begin(), seconds.begin() + (options.top - 1),
                   seconds.end());
  limit = seconds[static_cast<std::size_t>(options.top - 1)];
}

void Search::push(Node::Kind kind, double bound, PlanPoint point) {
  if (bound <= threshold() && bound < std::numeric_limits<double>::infinity())
    open.push({bound, nodes++, kind, std::move(point)});
}

void Search::evaluate(const PlanPoint &point) {
  for (const auto &order : space.orders(point)) {
    PlanPoint placed = point;
    placed.order = order;
    ++answer.counts.bounded;
    if (times.bound(placed) > threshold() ||
        times.boundOfSlots(placed) > threshold())
      continue;
    ++answer.counts.evaluations;
    const double seconds = secondsOf(times, placed);
    if (seconds < std::numeric_limits<double>::infinity())
      add(fitter.costed(placed, seconds));
  }
}

void Search::expandMesh(const Node &mesh) {
  ++answer.counts.expandedMeshes;
  for (PlanPoint &point : space.schedules(mesh.point)) {
    ++answer.counts.schedules;
    const double bound = std::max(mesh.bound, times.boundOfSchedule(point));
    push(Node::Kind::Schedule, bound, std::move(point));
  }
}

/// What memory asks for at least makes the bound sharper.
void Search::fitSchedule(const Node &schedule) {
  const double bound = ScheduleBounds(fitter, times, schedule.point).ofAll();
  push(Node::Kind::Fitted, std::max(schedule.bound, bound), schedule.point);
}

/// Whether the same plan fits without numbers on the host, which only cost time
/// there. It comes right before.
static bool isInVain(PlanPoint point, const std::vector<PlanPoint> &before) {
  if (!point.offloadsOptimizer)
    return false;
  point.offloadsOptimizer = false;
  return std::find(before.begin(), before.end(), point) != before.end();
}

void Search::expandSchedule(const PlanPoint &schedule) {
  ++answer.counts.expandedSchedules;
  ScheduleBounds bounds(fitter, times, schedule);
  std::vector<PlanPoint> kept; // of the storage before
  for (const PlanPoint &storage : space.storages(schedule)) {
    ++answer.counts.storages;
    if (bounds.of(storage) > threshold())
      continue;
    if (isSpent()) {
      lowestLeft = std::min(lowestLeft, bounds.ofAll());
      return;
    }
    std::vector<PlanPoint> fitted = fitter.fit(storage);
    for (const PlanPoint &point : fitted)
      if (bounds.with(point.recompute, point.recomputed) <= threshold() &&
          !isInVain(point, kept))
        evaluate(point);
    kept = std::move(fitted);
  }
}

PlanAnswer Search::run() {
  for (PlanPoint &mesh : space.meshes()) {
    ++answer.counts.meshes;
    const double bound = times.boundOfMesh(mesh);
    push(Node::Kind::Mesh, bound, std::move(mesh));
  }
  const double first = open.empty() ? 0 : open.top().bound;
  while (!open.empty() && open.top().bound <= threshold()) {
    if (isSpent()) {
      lowestLeft = std::min(lowestLeft, open.top().bound);
      break;
    }
    const Node node = open.top();
    open.pop();
    if (options.progress && limit < std::numeric_limits<double>::infinity())
      options.progress((node.bound - first) / std::max(limit - first, 1e-300));
    switch (node.kind) {
    case Node::Kind::Mesh:
      expandMesh(node);
      break;
    case Node::Kind::Schedule:
      fitSchedule(node);
      break;
    case Node::Kind::Fitted:
      expandSchedule(node.point);
      break;
    }
  }
  for (const auto &[unused, plan] : found)
    answer.best.push_back(plan);
  std::stable_sort(answer.best.begin(), answer.best.end(), isFaster);
  if (std::ssize(answer.best) > options.top)
    answer.best.resize(static_cast<std::size_t>(options.top));
  if (answer.fits())
    answer.bestPossible = std::min(answer.best.front().seconds, lowestLeft);
  return std::move(answer);
}

//===----------------------------------------------------------------------===//
// The front
//===----------------------------------------------------------------------===//

/// Whether a is at least as good as b in all and better in one.
static bool dominates(const CostedPlan &a, const CostedPlan &b) {
  const bool isNowhereWorse = a.seconds <= b.seconds &&
                              a.headRoom >= b.headRoom &&
                              a.slowLinkSeconds <= b.slowLinkSeconds;
  return isNowhereWorse && (a.seconds < b.seconds || a.headRoom > b.headRoom ||
                            a.slowLinkSeconds < b.slowLinkSeconds);
}

static std::vector<CostedPlan>
frontOf(const std::map<PlanClass, CostedPlan> &found, const StepTimes &slowLink,
        double within) {
  std::vector<CostedPlan> near;
  for (const auto &[unused, plan] : found)
    if (plan.seconds <= within) {
      near.push_back(plan);
      near.back().slowLinkSeconds = secondsOf(slowLink, plan.point);
    }
  std::vector<CostedPlan> front;
  for (const CostedPlan &plan : near)
    if (std::none_of(near.begin(), near.end(), [&](const CostedPlan &other) {
          return dominates(other, plan);
        }))
      front.push_back(plan);
  std::stable_sort(front.begin(), front.end(), isFaster);
  return front;
}

Cluster heddle::withSlowLink(Cluster cluster) {
  cluster.links.back().bytesPerSecond *= 0.9;
  return cluster;
}

PlanAnswer heddle::findPlans(const PlanProblem &problem, const StepTimes &times,
                             const StepTimes *slowLink,
                             const MemoryEstimator &memory,
                             const SearchOptions &options) {
  Search search(problem, times, memory, options);
  PlanAnswer answer = search.run();
  if (!slowLink || !answer.fits())
    return answer;
  for (CostedPlan &plan : answer.best)
    plan.slowLinkSeconds = secondsOf(*slowLink, plan.point);
  answer.front = frontOf(search.costed(), *slowLink,
                         answer.best.front().seconds * options.frontWithin);
  return answer;
}

std::vector<CostedPlan> heddle::bruteForce(const PlanProblem &problem,
                                           const StepTimes &times,
                                           const MemoryEstimator &memory) {
  const PlanSpace space(problem);
  const Fitter fitter(problem, space, memory);
  std::vector<CostedPlan> all;
  for (const PlanPoint &mesh : space.meshes())
    for (const PlanPoint &schedule : space.schedules(mesh))
      for (const PlanPoint &storage : space.storages(schedule))
        for (const PlanPoint &fitted : fitter.fit(storage))
          for (const auto &order : space.orders(fitted)) {
            PlanPoint point = fitted;
            point.order = order;
            const double seconds = secondsOf(times, point);
            if (seconds < std::numeric_limits<double>::infinity())
              all.push_back(fitter.costed(point, seconds));
          }
  std::stable_sort(all.begin(), all.end(), isFaster);
  return all;
}
