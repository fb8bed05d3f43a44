#include "heddle/Planner/Search.h"

#include "Fitter.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <thread>
#include <tuple>

using namespace heddle;
using namespace heddle::detail;

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
  Result<double> seconds = times.seconds(point);
  return seconds ? *seconds : std::numeric_limits<double>::infinity();
}

/// One plan of a schedule, as numbers of what it chooses.
struct Candidate {
  double bound = 0;
  std::uint32_t storage = 0; ///< of PlanSpace::storages
  std::uint16_t order = 0;   ///< of PlanSpace::orders
  PointRecompute recompute = PointRecompute::None;
};

/// Ways in which one storage fits: at most one for each kind of recompute.
struct Ways {
  struct Way {
    PointRecompute recompute = PointRecompute::None;
    std::vector<std::int64_t> layers;
  };

  void clear() { number = 0; }
  void add(const PlanPoint &plan) {
    list[number].recompute = plan.recompute;
    list[number++].layers = plan.recomputed;
  }
  bool has(const PlanPoint &plan) const {
    for (std::size_t i = 0; i < number; ++i)
      if (list[i].recompute == plan.recompute &&
          list[i].layers == plan.recomputed)
        return true;
    return false;
  }

  std::array<Way, 3> list;
  std::size_t number = 0;
};

/// A set of plans that share what its point fixes.
struct Node {
  enum class Kind {
    Mesh,     ///< all schedules of a mesh
    Schedule, ///< all storages of a schedule
    Fitted,   ///< those that fit, each with its bound, the lowest first
  };
  PlanPoint point;
  std::vector<Candidate> candidates; ///< of a Fitted one
};

/// A node that waits.
struct Open {
  double bound = 0;
  std::int64_t number = 0; ///< in the order in which they were made
  Node::Kind kind = Node::Kind::Mesh;
  std::unique_ptr<Node> node;

  /// The lowest bound is the next; among equals what is nearer to a plan.
  bool operator<(const Open &other) const {
    return std::tuple(-bound, kind, -number) <
           std::tuple(-other.bound, other.kind, -other.number);
  }
};

/// What a node becomes: other nodes, or plans that were costed.
struct Outcome {
  struct Child {
    Node::Kind kind = Node::Kind::Mesh;
    double bound = 0;
    std::unique_ptr<Node> node;
  };
  std::vector<Child> children;
  std::vector<CostedPlan> costed;
  SearchCounts counts;
};

/// Takes nodes apart. Times and memory keep what they computed, so that each
/// thread has its own; what comes out does not depend on which.
class Expander {
public:
  Expander(const PlanProblem &problem, const StepTimes &times,
           const MemoryEstimator &memory)
      : space(problem), times(times), memory(memory),
        fitter(problem, space, memory) {}

  /// Nothing slower than \p threshold is kept.
  Outcome expand(std::unique_ptr<Node> node, Node::Kind kind, double bound,
                 double threshold);
  const PlanSpace &plans() const { return space; }

private:
  void expandMesh(const Node &mesh, double bound);
  void fitSchedule(std::unique_ptr<Node> schedule, double bound);
  bool mayBeAmongBest(const PlanPoint &schedule, FitTable &table,
                      const ScheduleBound &bounds);
  std::vector<Candidate> candidatesOf(const PlanPoint &schedule);
  void expandFitted(const Node &fitted);
  void evaluate(const PlanPoint &plan);
  void push(Node::Kind kind, double bound, std::unique_ptr<Node> node) {
    if (bound <= threshold)
      outcome.children.push_back({kind, bound, std::move(node)});
  }

  const PlanSpace space;
  const StepTimes &times;
  const MemoryEstimator &memory;
  const Fitter fitter;
  double threshold = 0;
  Outcome outcome;
};

/// Nodes are taken apart so many at a time, whatever the number of threads: the
/// same problem has the same answer.
constexpr std::size_t kBatch = 16;
constexpr unsigned kMostThreads = 4;
/// A search of so few nodes is over before a thread has begun.
constexpr std::int64_t kFew = 256;

class Search {
public:
  Search(const PlanProblem &problem, const StepTimes &times,
         const MemoryEstimator &memory, const SearchOptions &options);

  PlanAnswer run();

private:
  void addMeshes();
  std::vector<Open> nextBatch();
  void expand(std::vector<Open> batch);
  void push(Node::Kind kind, double bound, std::unique_ptr<Node> node);
  Open pop();
  void finish();
  /// A plan that takes longer is none of the best.
  double threshold() const { return limit; }
  void add(CostedPlan plan);
  bool isSpent() const { return answer.counts.bounded >= options.mostPlans; }

  const StepTimes &times;
  const SearchOptions &options;
  std::vector<StepTimes> otherTimes; ///< of threads beside this one
  std::vector<std::unique_ptr<MemoryEstimator>> otherMemories;
  std::vector<std::unique_ptr<Expander>> expanders; ///< one for each thread
  std::map<PlanClass, CostedPlan> found; ///< the fastest of each class
  double limit = std::numeric_limits<double>::infinity();
  std::vector<Open> open;            ///< a heap
  std::int64_t nodes = 0, taken = 0; ///< made, and taken apart
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

void Search::push(Node::Kind kind, double bound, std::unique_ptr<Node> node) {
  if (bound > threshold() || bound == std::numeric_limits<double>::infinity())
    return;
  open.push_back({bound, nodes++, kind, std::move(node)});
  std::push_heap(open.begin(), open.end());
}

Open Search::pop() {
  std::pop_heap(open.begin(), open.end());
  Open top = std::move(open.back());
  open.pop_back();
  return top;
}

//===----------------------------------------------------------------------===//
// One node
//===----------------------------------------------------------------------===//

Outcome Expander::expand(std::unique_ptr<Node> node, Node::Kind kind,
                         double bound, double noSlowerThan) {
  threshold = noSlowerThan;
  outcome = {};
  if (kind == Node::Kind::Mesh)
    expandMesh(*node, bound);
  else if (kind == Node::Kind::Schedule)
    fitSchedule(std::move(node), bound);
  else
    expandFitted(*node);
  return std::move(outcome);
}

void Expander::evaluate(const PlanPoint &plan) {
  if (times.boundOfSlots(plan) > threshold)
    return;
  ++outcome.counts.evaluations;
  const double seconds = secondsOf(times, plan);
  if (seconds <= threshold && seconds < std::numeric_limits<double>::infinity())
    outcome.costed.push_back(fitter.costed(plan, seconds));
}

void Expander::expandMesh(const Node &mesh, double bound) {
  for (PlanPoint &point : space.schedules(mesh.point)) {
    ++outcome.counts.schedules;
    const ScheduleBound bounds(times, point);
    double least = std::numeric_limits<double>::infinity();
    for (const auto &order : space.orders(point)) {
      point.order = order;
      least = std::min(least, bounds.ofAnyStorage(point));
    }
    push(Node::Kind::Schedule, std::max(bound, least),
         std::make_unique<Node>(Node{std::move(point), {}}));
  }
}

/// Whether the plans of a schedule can be among the best, by what the leanest
/// of its storages has to compute again: no other needs less, and none is
/// faster.
bool Expander::mayBeAmongBest(const PlanPoint &schedule, FitTable &table,
                              const ScheduleBound &bounds) {
  PlanPoint plan = schedule;
  PlanStorage leanest = {.shardGroup = plan.dp * plan.cp,
                         .reduce = PlanReduce::EveryMicroBatch,
                         .gather = PlanGather::EveryPass,
                         .offloadsOptimizer = fitter.hasHost};
  leanest.zeroStage = leanest.shardGroup > 1 ? 3 : 0;
  leanest.set(plan);
  table.takeOnlyStates(plan);
  bool may = false;
  fitter.fit(table, plan, [&](PlanPoint &fitted) {
    for (const auto &order : space.orders(schedule)) {
      fitted.order = order;
      may = may || bounds.ofAnyStorage(fitted) <= threshold;
    }
  });
  return may;
}

/// The plans of a schedule that fit and may be among the best.
std::vector<Candidate> Expander::candidatesOf(const PlanPoint &schedule) {
  const std::vector<PlanStorage> &storages = space.storages(schedule);
  const auto &orders = space.orders(schedule);
  std::vector<Candidate> candidates;
  FitTable table(memory, schedule);
  ScheduleBound bounds(times, schedule);
  if (!mayBeAmongBest(schedule, table, bounds))
    return candidates;
  PlanPoint plan = schedule;
  // In which a storage fits, and the one before: numbers on the host only cost
  // time where the same plan fits without, which comes right before.
  Ways ways, before;
  std::vector<std::size_t> fastOrders;
  for (std::size_t i = 0; i < storages.size(); ++i) {
    ++outcome.counts.storages;
    storages[i].set(plan);
    // What is too slow even without recompute need not fit. With offload it is
    // no faster than without: where that was left out, so is this.
    fastOrders.clear();
    for (std::size_t k = 0; k < orders.size(); ++k) {
      plan.order = orders[k];
      bounds.take(plan);
      if (bounds.again(PointRecompute::None, {}) <= threshold)
        fastOrders.push_back(k);
    }
    if (fastOrders.empty())
      continue;
    table.take(plan);
    std::swap(ways, before);
    if (!plan.offloadsOptimizer)
      before.clear();
    ways.clear();
    fitter.fit(table, plan, [&](PlanPoint &fitted) {
      if (!before.has(fitted))
        ways.add(fitted);
    });
    for (std::size_t k : fastOrders) {
      if (ways.number == 0)
        break;
      if (orders.size() > 1) {
        plan.order = orders[k];
        bounds.take(plan);
      }
      for (std::size_t way = 0; way < ways.number; ++way) {
        const auto &[recompute, layers] = ways.list[way];
        ++outcome.counts.bounded;
        const double bound = bounds.again(recompute, layers);
        if (bound <= threshold)
          candidates.push_back({bound, static_cast<std::uint32_t>(i),
                                static_cast<std::uint16_t>(k), recompute});
      }
    }
  }
  std::ranges::stable_sort(candidates, {}, &Candidate::bound);
  return candidates;
}

void Expander::fitSchedule(std::unique_ptr<Node> schedule, double bound) {
  schedule->candidates = candidatesOf(schedule->point);
  if (schedule->candidates.empty())
    return;
  bound = std::max(bound, schedule->candidates.front().bound);
  push(Node::Kind::Fitted, bound, std::move(schedule));
}

void Expander::expandFitted(const Node &fitted) {
  FitTable table(memory, fitted.point);
  const std::vector<PlanStorage> &storages = space.storages(fitted.point);
  PlanPoint plan = fitted.point;
  for (const Candidate &candidate : fitted.candidates) {
    if (candidate.bound > threshold)
      return;
    storages[candidate.storage].set(plan);
    plan.order = space.orders(plan)[candidate.order];
    table.take(plan);
    if (fitter.takeKind(table, plan, candidate.recompute))
      evaluate(plan);
  }
}

//===----------------------------------------------------------------------===//
// All of them
//===----------------------------------------------------------------------===//

Search::Search(const PlanProblem &problem, const StepTimes &times,
               const MemoryEstimator &memory, const SearchOptions &options)
    : times(times), options(options) {
  const unsigned threads =
      std::clamp(std::thread::hardware_concurrency(), 1u, kMostThreads);
  expanders.push_back(std::make_unique<Expander>(problem, times, memory));
  otherTimes.reserve(threads);
  for (unsigned i = 1; i < threads; ++i) {
    otherTimes.push_back(times.another());
    otherMemories.push_back(std::make_unique<MemoryEstimator>(
        problem.model, problem.train, problem.cluster));
    expanders.push_back(std::make_unique<Expander>(problem, otherTimes.back(),
                                                   *otherMemories.back()));
  }
  for (const CostedPlan &plan : options.known)
    if (problem.allows(plan.point))
      add(plan);
}

void Search::addMeshes() {
  const PlanSpace &space = expanders.front()->plans();
  for (PlanPoint &mesh : space.meshes()) {
    ++answer.counts.meshes;
    double bound = std::numeric_limits<double>::infinity();
    for (const auto &order : space.orders(mesh)) {
      mesh.order = order;
      bound = std::min(bound, times.boundOfMesh(mesh));
    }
    mesh.order = PlanPoint().order;
    push(Node::Kind::Mesh, bound,
         std::make_unique<Node>(Node{std::move(mesh), {}}));
  }
}

/// The lowest nodes. Where the search is spent, what was bounded is still
/// costed, and the rest is left.
std::vector<Open> Search::nextBatch() {
  std::vector<Open> batch;
  while (batch.size() < kBatch && !open.empty() &&
         open.front().bound <= threshold()) {
    Open top = pop();
    if (top.kind != Node::Kind::Fitted && isSpent() && !found.empty())
      lowestLeft = std::min(lowestLeft, top.bound);
    else
      batch.push_back(std::move(top));
  }
  return batch;
}

void Search::expand(std::vector<Open> batch) {
  taken += std::ssize(batch);
  std::vector<Outcome> outcomes(batch.size());
  std::atomic<std::size_t> next = 0;
  auto work = [&](Expander &expander) {
    for (std::size_t i = next++; i < batch.size(); i = next++)
      outcomes[i] = expander.expand(std::move(batch[i].node), batch[i].kind,
                                    batch[i].bound, threshold());
  };
  {
    std::vector<std::jthread> threads;
    const std::size_t most =
        taken < kFew ? 1 : std::min(expanders.size(), batch.size());
    for (std::size_t i = 1; i < most; ++i)
      threads.emplace_back([&, i] { work(*expanders[i]); });
    work(*expanders[0]);
  }
  for (std::size_t i = 0; i < batch.size(); ++i) {
    answer.counts.expandedMeshes += batch[i].kind == Node::Kind::Mesh;
    answer.counts.expandedSchedules += batch[i].kind == Node::Kind::Schedule;
    answer.counts.schedules += outcomes[i].counts.schedules;
    answer.counts.storages += outcomes[i].counts.storages;
    answer.counts.bounded += outcomes[i].counts.bounded;
    answer.counts.evaluations += outcomes[i].counts.evaluations;
    for (CostedPlan &plan : outcomes[i].costed)
      add(std::move(plan));
    for (Outcome::Child &child : outcomes[i].children)
      push(child.kind, child.bound, std::move(child.node));
  }
}

PlanAnswer Search::run() {
  addMeshes();
  const double first = open.empty() ? 0 : open.front().bound;
  for (;;) {
    std::vector<Open> batch = nextBatch();
    if (batch.empty())
      break;
    if (options.progress && limit < std::numeric_limits<double>::infinity())
      options.progress((batch.front().bound - first) /
                       std::max(limit - first, 1e-300));
    expand(std::move(batch));
  }
  finish();
  return std::move(answer);
}

void Search::finish() {
  for (auto &[unused, plan] : found)
    answer.costed.push_back(std::move(plan));
  std::stable_sort(answer.costed.begin(), answer.costed.end(), isFaster);
  const auto told = std::min(std::ssize(answer.costed),
                             static_cast<std::ptrdiff_t>(options.top));
  answer.best.assign(answer.costed.begin(), answer.costed.begin() + told);
  if (answer.fits())
    answer.bestPossible = std::min(answer.best.front().seconds, lowestLeft);
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

/// \p costed: the fastest first.
static std::vector<CostedPlan> frontOf(const std::vector<CostedPlan> &costed,
                                       const StepTimes &slowLink,
                                       double within) {
  std::vector<CostedPlan> front;
  for (CostedPlan plan : costed) {
    if (plan.seconds > within)
      break;
    // A slower link makes no plan faster: what is beaten even so is.
    plan.slowLinkSeconds = std::max(plan.seconds, slowLink.bound(plan.point));
    auto isBeaten = [&](const CostedPlan &other) {
      return dominates(other, plan);
    };
    if (std::ranges::any_of(front, isBeaten))
      continue;
    plan.slowLinkSeconds = secondsOf(slowLink, plan.point);
    if (std::ranges::any_of(front, isBeaten))
      continue;
    std::erase_if(
        front, [&](const CostedPlan &other) { return dominates(plan, other); });
    front.push_back(std::move(plan));
  }
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
  answer.front = frontOf(answer.costed, *slowLink,
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
    for (const PlanPoint &schedule : space.schedules(mesh)) {
      FitTable table(memory, schedule);
      for (const PlanStorage &storage : space.storages(schedule)) {
        PlanPoint plan = storage.on(schedule);
        table.take(plan);
        fitter.fit(table, plan, [&](PlanPoint &fitted) {
          for (const auto &order : space.orders(fitted)) {
            fitted.order = order;
            const double seconds = secondsOf(times, fitted);
            if (seconds < std::numeric_limits<double>::infinity())
              all.push_back(fitter.costed(fitted, seconds));
          }
        });
      }
    }
  std::stable_sort(all.begin(), all.end(), isFaster);
  return all;
}
