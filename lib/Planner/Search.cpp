#include "heddle/Planner/Search.h"

#include "BranchAndBound.h"
#include "Choices.h"

#include <algorithm>
#include <map>
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

/// The fastest of each class.
class Found {
public:
  explicit Found(int top) : top(top) {}

  void add(CostedPlan plan);
  /// A plan that takes longer is none of the best.
  double limit() const { return longest; }
  bool isEmpty() const { return plans.empty(); }
  std::vector<CostedPlan> inOrder();

private:
  const int top;
  std::map<PlanClass, CostedPlan> plans;
  double longest = std::numeric_limits<double>::infinity();
};

} // namespace

void Found::add(CostedPlan plan) {
  auto [entry, isNew] = plans.try_emplace(classOf(plan.point), plan);
  if (!isNew) {
    if (!isFaster(plan, entry->second))
      return;
    entry->second = std::move(plan);
  }
  if (std::ssize(plans) < top)
    return;
  std::vector<double> seconds;
  for (const auto &[unused, each] : plans)
    seconds.push_back(each.seconds);
  std::nth_element(seconds.begin(), seconds.begin() + (top - 1), seconds.end());
  longest = seconds[static_cast<std::size_t>(top - 1)];
}

std::vector<CostedPlan> Found::inOrder() {
  std::vector<CostedPlan> list;
  for (auto &[unused, plan] : plans)
    list.push_back(std::move(plan));
  std::stable_sort(list.begin(), list.end(), isFaster);
  return list;
}

static PlanAnswer search(const PlanProblem &problem, const StepTimes &times,
                         const MemoryEstimator &memory,
                         const SearchOptions &options) {
  Found found(options.top);
  PlansByChoice choices;
  for (const CostedPlan &plan : options.known)
    if (problem.allows(plan.point))
      found.add(plan);
  BranchAndBound solver(
      problem, times, memory,
      Goals({{.isOne = options.top == 1, .limit = found.limit()}}),
      options.mostPlans);
  solver.met = !found.isEmpty();
  solver.found = [&](CostedPlan plan, Goals &goals) {
    choices.add(plan);
    found.add(std::move(plan));
    goals.list.front().limit = found.limit();
    solver.met = 1;
  };
  if (options.progress)
    solver.progress = [&](double first, double lowest) {
      if (found.limit() < std::numeric_limits<double>::infinity())
        options.progress((lowest - first) /
                         std::max(found.limit() - first, 1e-300));
    };
  solver.run();
  PlanAnswer answer;
  answer.counts = solver.counts;
  answer.costed = found.inOrder();
  answer.ofChoices = choices.all();
  const auto told = std::min(std::ssize(answer.costed),
                             static_cast<std::ptrdiff_t>(options.top));
  answer.best.assign(answer.costed.begin(), answer.costed.begin() + told);
  if (answer.fits())
    answer.bestPossible =
        std::min(answer.best.front().seconds, solver.lowestLeft);
  return answer;
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
  PlanAnswer answer = search(problem, times, memory, options);
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
