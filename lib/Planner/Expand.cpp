#include "Expand.h"

#include <algorithm>
#include <array>

using namespace heddle;
using namespace heddle::detail;

namespace {

/// Ways in which one storage fits: at most one for each kind of recompute.
struct Ways {
  struct Way {
    PointRecompute recompute = PointRecompute::None;
    std::uint32_t offloaded = 0;
    std::vector<std::int64_t> layers;
  };

  void clear() { number = 0; }
  void add(const PlanPoint &plan) {
    list[number].recompute = plan.recompute;
    list[number].offloaded = plan.offloaded;
    list[number++].layers = plan.recomputed;
  }
  bool has(const PlanPoint &plan) const {
    return std::ranges::any_of(all(), [&](const Way &way) {
      return way.recompute == plan.recompute &&
             way.offloaded == plan.offloaded && way.layers == plan.recomputed;
    });
  }
  std::span<const Way> all() const { return {list.data(), number}; }

private:
  std::array<Way, 3> list;
  std::size_t number = 0;
};

/// Numbers on the host only cost time where the same plan fits without.
bool isOnHostOf(const PlanStorage &storage, PlanStorage other) {
  other.offloadsOptimizer = true;
  return storage.offloadsOptimizer && storage == other;
}

} // namespace

/// The plans of one schedule that fit and are of use.
class Expander::Fitting {
public:
  Fitting(Expander &of, const Node &node)
      : of(of), goals(*of.goals), set(node.goals), schedule(node.point),
        plan(node.point), storages(of.space.storages(schedule)),
        left(of.leftByStorages(schedule)), orders(of.space.orders(schedule)),
        bounds(of.times, schedule) {}

  std::vector<Candidate> run();

private:
  struct Order {
    std::size_t index = 0;
    GoalSet left = 0; ///< goals
  };

  bool findOrders();
  bool isAnyFast();
  bool fitLeanest(FitTable &table);
  void keepAll();
  bool isFastWithRoom(GoalSet goals) const;
  void fitStorage(std::size_t storage, FitTable &table);
  void addWays(std::size_t storage);
  void count(GoalSet asked);
  void take(std::size_t order) {
    plan.order = orders[order];
    bounds.take(plan);
  }

  Expander &of;
  const Goals &goals;
  const GoalSet set;
  const PlanPoint &schedule;
  PlanPoint plan;
  const std::vector<PlanStorage> &storages;
  const std::vector<GoalSet> &left; ///< by storage
  const std::vector<std::array<PlanAxis, 4>> &orders;
  ScheduleBound bounds;
  /// With how little recompute the leanest storage fits: no other needs less.
  Ways leanest;
  /// In which ways the last storage that was asked for fits.
  Ways ways, before;
  std::size_t fitted = 0;        ///< of storages, the last one that was
  std::vector<Order> open, fast; ///< of all storages, of one
  std::vector<Candidate> candidates;
};

std::vector<Candidate> Expander::Fitting::run() {
  fitted = storages.size();
  if (!findOrders() || !isAnyFast())
    return {};
  FitTable table(of.memory, schedule);
  if (!fitLeanest(table))
    return {};
  for (std::size_t i = 0; i < storages.size(); ++i) {
    ++of.outcome.counts.storages;
    storages[i].set(plan);
    fast.clear();
    for (const Order &order : open) {
      take(order.index);
      if (isFastWithRoom(order.left & left[i]))
        fast.push_back(order);
    }
    if (!fast.empty())
      fitStorage(i, table);
  }
  std::ranges::stable_sort(candidates, {}, &Candidate::bound);
  return std::move(candidates);
}

/// Orders that are not too slow whatever is stored where.
bool Expander::Fitting::findOrders() {
  for (std::size_t k = 0; k < orders.size(); ++k) {
    plan.order = orders[k];
    const GoalSet asked = goals.leftAt(Depth::Order, plan, set);
    if (asked && bounds.ofAnyStorage(plan) <= goals.limitOf(asked))
      open.push_back({k, asked});
  }
  return !open.empty();
}

/// Whether one storage is fast enough where it fits without recompute.
bool Expander::Fitting::isAnyFast() {
  for (std::size_t i = 0; i < storages.size(); ++i) {
    storages[i].set(plan);
    for (const Order &order : open) {
      take(order.index);
      if (bounds.again(PointRecompute::None, {}) <=
          goals.limitOf(order.left & left[i]))
        return true;
    }
  }
  return false;
}

/// Whether the schedule's plans can be of use, by what the leanest of its
/// storages has to compute again: no other needs less, and none is faster.
bool Expander::Fitting::fitLeanest(FitTable &table) {
  PlanStorage storage = {.shardGroup = plan.dp * plan.cp,
                         .reduce = PlanReduce::EveryMicroBatch,
                         .gather = PlanGather::EveryPass,
                         .offloadsOptimizer = of.fitter.hasHost};
  storage.zeroStage = storage.shardGroup > 1 ? 3 : 0;
  storage.set(plan);
  table.takeOnlyStates(plan);
  of.fitter.fit(table, plan,
                [&](const PlanPoint &fitting) { leanest.add(fitting); });
  std::erase_if(open, [&](const Order &order) {
    plan.order = orders[order.index];
    return std::ranges::none_of(leanest.all(), [&](const Ways::Way &way) {
      plan.recompute = way.recompute;
      plan.recomputed = way.layers;
      plan.offloaded = way.offloaded;
      return bounds.ofAnyStorage(plan) <= goals.limitOf(order.left);
    });
  });
  keepAll();
  return !open.empty();
}

void Expander::Fitting::keepAll() {
  plan.recompute = PointRecompute::None;
  plan.recomputed.clear();
  plan.offloaded = 0;
}

/// Of the storage and order that were taken: what is too slow even where it
/// needs no more room than the leanest need not fit.
bool Expander::Fitting::isFastWithRoom(GoalSet asked) const {
  const double limit = goals.limitOf(asked);
  return std::ranges::any_of(leanest.all(), [&](const Ways::Way &way) {
    return bounds.again(way.recompute, way.layers, way.offloaded) <= limit;
  });
}

void Expander::Fitting::fitStorage(std::size_t storage, FitTable &table) {
  table.take(plan);
  std::swap(ways, before);
  if (goals.ask(set, PlanKey::Offload) || fitted >= storage ||
      !isOnHostOf(storages[storage], storages[fitted]))
    before.clear();
  fitted = storage;
  ways.clear();
  of.fitter.fit(table, plan, [&](PlanPoint &fitting) {
    if (!before.has(fitting))
      ways.add(fitting);
  });
  if (!ways.all().empty())
    addWays(storage);
  keepAll();
}

void Expander::Fitting::addWays(std::size_t storage) {
  for (const Order &order : fast) {
    if (open.size() > 1)
      take(order.index);
    for (const auto &[recompute, offloaded, layers] : ways.all()) {
      plan.recompute = recompute;
      plan.offloaded = offloaded;
      plan.recomputed.assign(layers.begin(), layers.end());
      const GoalSet asked =
          goals.leftAt(Depth::Plan, plan, order.left & left[storage]);
      count(asked);
      const double bound = bounds.again(recompute, layers, offloaded);
      if (bound <= goals.limitOf(asked))
        candidates.push_back({bound, static_cast<std::uint32_t>(storage),
                              static_cast<std::uint16_t>(order.index),
                              recompute, offloaded});
    }
  }
}

void Expander::Fitting::count(GoalSet asked) {
  ++of.outcome.counts.bounded;
  for (std::size_t i = 0; asked; ++i, asked >>= 1)
    of.outcome.bounded[i] += asked & 1;
}

const std::vector<GoalSet> &
Expander::leftByStorages(const PlanPoint &schedule) {
  const std::vector<PlanStorage> &storages = space.storages(schedule);
  std::vector<GoalSet> &list = left[&storages];
  if (list.empty())
    for (const PlanStorage &storage : storages)
      list.push_back(
          goals->leftAt(Depth::Storage, storage.on(schedule), goals->all()));
  return list;
}

//===----------------------------------------------------------------------===//
// One node
//===----------------------------------------------------------------------===//

Outcome Expander::expand(std::unique_ptr<Node> node, Node::Kind kind,
                         double bound, const Goals &given) {
  goals = given;
  outcome = {};
  if (kind == Node::Kind::Mesh)
    expandMesh(*node, bound);
  else if (kind == Node::Kind::Schedule)
    fitSchedule(std::move(node), bound);
  else
    expandFitted(*node);
  return std::move(outcome);
}

void Expander::expandMesh(const Node &mesh, double bound) {
  for (PlanPoint &point : space.schedules(mesh.point)) {
    ++outcome.counts.schedules;
    const GoalSet set = goals->leftAt(Depth::Schedule, point, mesh.goals);
    if (set == 0 || bound > goals->limitOf(set))
      continue;
    const ScheduleBound bounds(times, point);
    double least = std::numeric_limits<double>::infinity();
    for (const auto &order : space.orders(point)) {
      point.order = order;
      least = std::min(least, bounds.ofAnyStorage(point));
    }
    least = std::max(bound, least);
    if (least <= goals->limitOf(set))
      outcome.children.push_back(
          {Node::Kind::Schedule, least,
           std::make_unique<Node>(Node{std::move(point), set})});
  }
}

void Expander::fitSchedule(std::unique_ptr<Node> schedule, double bound) {
  schedule->candidates = Fitting(*this, *schedule).run();
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
    if (candidate.bound > goals->limitOf(fitted.goals))
      return;
    storages[candidate.storage].set(plan);
    plan.order = space.orders(plan)[candidate.order];
    table.take(plan);
    plan.offloaded = 0;
    if (!fitter.take(table, plan, candidate.recompute, candidate.offloaded))
      continue;
    const GoalSet set = goals->metBy(plan, fitted.goals);
    if (candidate.bound <= goals->limitOf(set))
      evaluate(plan, set);
  }
}

void Expander::evaluate(const PlanPoint &plan, GoalSet set) {
  const double limit = goals->limitOf(set);
  const std::optional<double> seconds = times.secondsWithin(plan, limit);
  if (!seconds)
    return;
  ++outcome.counts.evaluations;
  if (*seconds > limit || *seconds == std::numeric_limits<double>::infinity())
    return;
  outcome.costed.push_back(fitter.costed(plan, *seconds));
  goals->take(set, *seconds);
}
