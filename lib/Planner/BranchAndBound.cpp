#include "BranchAndBound.h"

#include <algorithm>
#include <atomic>
#include <thread>

using namespace heddle;
using namespace heddle::detail;

/// Nodes are taken apart so many at a time, whatever the number of threads: the
/// same problem has the same answer.
static constexpr std::size_t kBatch = 64;
static constexpr unsigned kMostThreads = 4;
/// A search of so few nodes is over before a thread has begun.
static constexpr std::int64_t kFew = 256;

//===----------------------------------------------------------------------===//
// Threads
//===----------------------------------------------------------------------===//

Workers::Workers(std::size_t others) {
  for (std::size_t i = 0; i < others; ++i)
    threads.emplace_back([this, i] { serve(i + 1); });
}

Workers::~Workers() {
  work = nullptr;
  ++rounds;
  rounds.notify_all();
}

void Workers::serve(std::size_t number) {
  for (std::uint32_t round = 0;; ++round) {
    rounds.wait(round);
    if (!work)
      return;
    (*work)(number);
    if (--busy == 0)
      busy.notify_one();
  }
}

void Workers::run(const std::function<void(std::size_t)> &given) {
  work = &given;
  busy = static_cast<std::uint32_t>(threads.size());
  ++rounds;
  rounds.notify_all();
  given(0);
  while (const std::uint32_t left = busy)
    busy.wait(left);
}

//===----------------------------------------------------------------------===//
// Nodes
//===----------------------------------------------------------------------===//

BranchAndBound::BranchAndBound(const PlanProblem &problem,
                               const StepTimes &times,
                               const MemoryEstimator &memory, Goals given,
                               std::int64_t mostPlans)
    : times(times), goals(std::move(given)), mostPlans(mostPlans) {
  const unsigned threads =
      std::clamp(std::thread::hardware_concurrency(), 1u, kMostThreads);
  for (unsigned i = 0; i < threads; ++i)
    expanders.push_back(std::make_unique<Expander>(problem, times.ofThread(i),
                                                   memory.ofThread(i)));
}

void BranchAndBound::push(Node::Kind kind, double bound,
                          std::unique_ptr<Node> node) {
  if (bound == std::numeric_limits<double>::infinity() ||
      bound > goals.limitOf(node->goals))
    return;
  open.push_back({bound, nodes++, kind, std::move(node)});
  std::push_heap(open.begin(), open.end());
}

Open BranchAndBound::pop() {
  std::pop_heap(open.begin(), open.end());
  Open top = std::move(open.back());
  open.pop_back();
  return top;
}

void BranchAndBound::addMesh(PlanPoint mesh) {
  const GoalSet set = goals.leftAt(Depth::Mesh, mesh, goals.all());
  if (set == 0)
    return;
  double bound = std::numeric_limits<double>::infinity();
  for (const auto &order : expanders.front()->plans().orders(mesh)) {
    mesh.order = order;
    bound = std::min(bound, times.boundOfMesh(mesh));
  }
  mesh.order = PlanPoint().order;
  push(Node::Kind::Mesh, bound,
       std::make_unique<Node>(Node{std::move(mesh), set}));
}

/// The lowest nodes. Where a goal is spent, what was bounded is still costed,
/// and the rest is left.
std::vector<Open> BranchAndBound::nextBatch() {
  std::vector<Open> batch;
  const double longest = goals.limitOf(goals.all());
  while (batch.size() < kBatch && !open.empty() &&
         open.front().bound <= longest) {
    Open top = pop();
    if (top.bound > goals.limitOf(top.node->goals))
      continue;
    if (top.kind != Node::Kind::Fitted &&
        top.bound > goals.limitOf(top.node->goals & ~spent))
      lowestLeft = std::min(lowestLeft, top.bound);
    else
      batch.push_back(std::move(top));
  }
  return batch;
}

void BranchAndBound::spend(const std::array<std::int64_t, Goals::most> &plans) {
  for (std::size_t i = 0; i < plansOf.size(); ++i) {
    plansOf[i] += plans[i];
    if (plansOf[i] >= mostPlans)
      spent |= met & GoalSet{1} << i;
  }
}

void BranchAndBound::expand(std::vector<Open> batch) {
  taken += std::ssize(batch);
  std::vector<Outcome> outcomes(batch.size());
  std::atomic<std::size_t> next = 0;
  const auto work = [&](std::size_t thread) {
    for (std::size_t i = next++; i < batch.size(); i = next++)
      outcomes[i] = expanders[thread]->expand(
          std::move(batch[i].node), batch[i].kind, batch[i].bound, goals);
  };
  if (!workers && taken >= kFew)
    workers = std::make_unique<Workers>(expanders.size() - 1);
  if (workers && batch.size() > 1)
    workers->run(work);
  else
    work(0);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    counts.expandedMeshes += batch[i].kind == Node::Kind::Mesh;
    counts.expandedSchedules += batch[i].kind == Node::Kind::Schedule;
    counts.schedules += outcomes[i].counts.schedules;
    counts.storages += outcomes[i].counts.storages;
    counts.bounded += outcomes[i].counts.bounded;
    counts.evaluations += outcomes[i].counts.evaluations;
    for (CostedPlan &plan : outcomes[i].costed)
      found(std::move(plan), goals);
    spend(outcomes[i].bounded);
    for (Outcome::Child &child : outcomes[i].children)
      push(child.kind, child.bound, std::move(child.node));
  }
}

void BranchAndBound::expandAll() {
  const double first = open.empty() ? 0 : open.front().bound;
  for (;;) {
    std::vector<Open> batch = nextBatch();
    if (batch.empty())
      return;
    if (progress)
      progress(first, batch.front().bound);
    expand(std::move(batch));
  }
}

static bool isMeshOf(const PlanPoint &mesh, const PlanPoint &point) {
  auto numbersOf = [](const PlanPoint &of) {
    return std::tie(of.pp, of.dp, of.cp, of.tp, of.ep, of.microBatch,
                    of.microBatches, of.recipe, of.gradients, of.reduceFormat,
                    of.attention, of.dropoutMasks, of.save);
  };
  return numbersOf(mesh) == numbersOf(point);
}

void BranchAndBound::run(const PlanPoint *near) {
  std::vector<PlanPoint> meshes = expanders.front()->plans().meshes();
  counts.meshes = std::ssize(meshes);
  if (near) {
    const auto isNear = [&](const PlanPoint &mesh) {
      return isMeshOf(mesh, *near);
    };
    for (const PlanPoint &mesh : meshes)
      if (isNear(mesh))
        addMesh(mesh);
    expandAll();
    std::erase_if(meshes, isNear);
  }
  for (PlanPoint &mesh : meshes)
    addMesh(std::move(mesh));
  expandAll();
}
