#include "heddle/Planner/Sample.h"

#include "Fitter.h"

#include <algorithm>

using namespace heddle;
using namespace heddle::detail;

/// Of one mesh.
static bool areOneButForTheCut(const PlanPoint &a, const PlanPoint &b) {
  return a.schedule == b.schedule && a.chunks == b.chunks &&
         a.sequenceParallel == b.sequenceParallel && a.context == b.context;
}

void heddle::visitPlans(const PlanProblem &problem,
                        const MemoryEstimator &memory,
                        const std::function<void(const PlanPoint &)> &visit) {
  const PlanSpace space(problem);
  const Fitter fitter(problem, space, memory);
  for (const PlanPoint &mesh : space.meshes()) {
    const std::vector<PlanPoint> schedules = space.schedules(mesh);
    for (std::size_t i = 0; i < schedules.size(); ++i) {
      const auto end = schedules.begin() + static_cast<std::ptrdiff_t>(i);
      if (std::any_of(schedules.begin(), end, [&](const PlanPoint &before) {
            return areOneButForTheCut(before, schedules[i]);
          }))
        continue;
      FitTable table(memory, schedules[i]);
      PlanPoint plan = schedules[i];
      for (const PlanStorage &storage : space.storages(plan)) {
        storage.set(plan);
        table.take(plan);
        fitter.fit(table, plan, [&](PlanPoint &fitted) {
          for (const auto &order : space.orders(fitted)) {
            fitted.order = order;
            visit(fitted);
          }
        });
      }
    }
  }
}

PlanSampler::PlanSampler(const PlanProblem &problem,
                         const MemoryEstimator &memory)
    : problem(problem), memory(memory), space(problem), meshes(space.meshes()) {
}

std::optional<PlanPoint> PlanSampler::draw(std::mt19937_64 &random) const {
  auto oneOf = [&](const auto &list) -> const auto & {
    return list[random() % list.size()];
  };
  constexpr int most = 100000;
  const Fitter fitter(problem, space, memory);
  for (int i = 0; i < most && !meshes.empty(); ++i) {
    const std::vector<PlanPoint> schedules = space.schedules(oneOf(meshes));
    if (schedules.empty())
      continue;
    const PlanPoint &schedule = oneOf(schedules);
    const std::vector<PlanStorage> &storages = space.storages(schedule);
    if (storages.empty())
      continue;
    PlanPoint plan = oneOf(storages).on(schedule);
    FitTable table(memory, schedule);
    table.take(plan);
    std::vector<PlanPoint> ways;
    fitter.fit(table, plan, [&](PlanPoint &way) { ways.push_back(way); });
    if (ways.empty() || space.orders(plan).empty())
      continue;
    plan = oneOf(ways);
    plan.order = oneOf(space.orders(plan));
    return plan;
  }
  return std::nullopt;
}
