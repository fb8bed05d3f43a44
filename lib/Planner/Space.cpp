#include "heddle/Planner/Space.h"

#include "heddle/Plan/PlanLayout.h"

#include <algorithm>
#include <numeric>
#include <set>

using namespace heddle;

static constexpr std::int64_t mostSequences = 64, mostChunks = 16;

static std::vector<std::int64_t> divisorsOf(std::int64_t number) {
  std::vector<std::int64_t> divisors;
  for (std::int64_t i = 1; i * i <= number; ++i)
    if (number % i == 0) {
      divisors.push_back(i);
      if (i * i < number)
        divisors.push_back(number / i);
    }
  std::sort(divisors.begin(), divisors.end());
  return divisors;
}

//===----------------------------------------------------------------------===//
// Meshes
//===----------------------------------------------------------------------===//

/// Whether heads fall on tp without padding.
static bool splitsEvenly(const ModelConfig &model, std::int64_t tp) {
  const HeadSplit heads =
      splitHeads(model.kvHeads, model.queryHeadsPerKvHead, tp);
  return heads.paddedG * heads.paddedR ==
         model.kvHeads * model.queryHeadsPerKvHead;
}

static bool isDemanded(const PlanProblem &problem, PlanKey key) {
  return std::any_of(problem.demands.begin(), problem.demands.end(),
                     [&](const PlanDemand &demand) {
                       return demand.key == key && !demand.isForbidden;
                     });
}

PlanSpace::PlanSpace(const PlanProblem &problem) : problem(problem) {
  for (const PlanDemand &demand : problem.demands)
    isAsked[static_cast<std::size_t>(demand.key)] = true;
}

void PlanSpace::addMicroBatches(const PlanPoint &mesh,
                                std::vector<PlanPoint> &to) const {
  const std::int64_t ofRank = problem.train.globalBatch / mesh.dp;
  for (std::int64_t size : divisorsOf(ofRank)) {
    const std::int64_t count = ofRank / size;
    if ((size > mostSequences && !isDemanded(problem, PlanKey::MicroBatch)) ||
        !allows(PlanKey::MicroBatch, size) ||
        !allows(PlanKey::MicroBatches, count))
      continue;
    for (const std::string &recipe : problem.train.precision) {
      if (!problem.allows(PlanKey::Precision, recipe))
        continue;
      PlanPoint point = mesh;
      point.microBatch = size;
      point.microBatches = count;
      point.recipe = recipe;
      addGradientFormats(point, to);
    }
  }
}

/// fp32; bf16 where it is asked for and the settings list it.
void PlanSpace::addGradientFormats(PlanPoint point,
                                   std::vector<PlanPoint> &to) const {
  const std::vector<std::string> &listed = problem.train.precision;
  auto formatsOf = [&](PlanKey key) {
    std::vector<std::string> formats = {"fp32"};
    if (isDemanded(problem, key) && point.recipe != "fp32" &&
        std::find(listed.begin(), listed.end(), "bf16") != listed.end())
      formats.push_back("bf16");
    return formats;
  };
  for (const std::string &sums : formatsOf(PlanKey::Gradients))
    for (const std::string &moved : formatsOf(PlanKey::ReduceFormat)) {
      point.gradients = sums;
      point.reduceFormat = moved;
      if (allows(point, PlanKey::Gradients) &&
          allows(point, PlanKey::ReduceFormat))
        addSaved(point, to);
    }
}

/// Least; more where it is asked for.
void PlanSpace::addSaved(PlanPoint point, std::vector<PlanPoint> &to) const {
  const auto number = [&](PlanKey key) {
    return isDemanded(problem, key) ? 2 : 1;
  };
  for (int attention = 0; attention < number(PlanKey::Attention); ++attention)
    for (int masks = 0; masks < number(PlanKey::DropoutMasks); ++masks)
      for (int save = 0; save < number(PlanKey::Save); ++save) {
        point.attention = static_cast<PlanAttention>(attention);
        point.dropoutMasks = static_cast<PlanMasks>(masks);
        point.save = static_cast<PlanSave>(save);
        // Dropout within a kernel has no mask to save.
        const bool hasNone = point.attention == PlanAttention::Flash &&
                             point.dropoutMasks == PlanMasks::Saved &&
                             problem.model.dropout.attention > 0;
        if (!hasNone && allows(point, PlanKey::Attention) &&
            allows(point, PlanKey::DropoutMasks) &&
            allows(point, PlanKey::Save))
          to.push_back(point);
      }
}

std::vector<PlanPoint> PlanSpace::meshesOf(std::int64_t ranks) const {
  const ModelConfig &model = problem.model;
  std::vector<PlanPoint> list;
  for (std::int64_t tp : divisorsOf(ranks)) {
    if (!allows(PlanKey::Tp, tp) ||
        (!splitsEvenly(model, tp) && !isDemanded(problem, PlanKey::Tp)))
      continue;
    for (std::int64_t cp : divisorsOf(ranks / tp)) {
      if (!allows(PlanKey::Cp, cp) ||
          (cp > 1 && problem.train.sequenceLength % (2 * cp) != 0))
        continue;
      for (std::int64_t pp : divisorsOf(ranks / tp / cp)) {
        const std::int64_t dp = ranks / tp / cp / pp;
        if (pp > model.layers || problem.train.globalBatch % dp != 0 ||
            !allows(PlanKey::Pp, pp) || !allows(PlanKey::Dp, dp))
          continue;
        const std::int64_t experts =
            model.experts ? std::gcd(model.experts->count, dp * cp) : 1;
        for (std::int64_t ep : divisorsOf(experts))
          if (allows(PlanKey::Ep, ep))
            addMicroBatches({.pp = pp, .dp = dp, .cp = cp, .tp = tp, .ep = ep},
                            list);
      }
    }
  }
  return list;
}

std::vector<PlanPoint> PlanSpace::meshes() const {
  for (std::int64_t ranks = problem.cluster.devices(); ranks > 0; --ranks)
    if (std::vector<PlanPoint> list = meshesOf(ranks); !list.empty())
      return list;
  return {};
}

//===----------------------------------------------------------------------===//
// Schedules
//===----------------------------------------------------------------------===//

double heddle::headInLayers(const ModelConfig &model,
                            std::int64_t sequenceLength) {
  const double all = modelFlopsPerStep(model, 1, sequenceLength);
  const double head = 6.0 * static_cast<double>(model.hidden) *
                      static_cast<double>(model.vocabulary) *
                      static_cast<double>(sequenceLength);
  return head / ((all - head) / static_cast<double>(model.layers));
}

std::vector<std::int64_t> heddle::cutLayers(std::int64_t layers,
                                            const PlanPoint &point,
                                            double headLayers) {
  const std::int64_t stages = point.pp * point.chunks;
  std::vector<std::int64_t> cut(static_cast<std::size_t>(stages), 0);
  std::vector<double> load(static_cast<std::size_t>(stages), 0.0);
  load.back() = headLayers;
  // One after the other to the stage with least. Among equals the first one,
  // which has fewer micro-batches to wait for.
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += 1;
    ++cut[static_cast<std::size_t>(least - load.begin())];
  }
  return cut;
}

/// Cuts of the layers into a point's stages, each once.
const std::vector<std::vector<std::int64_t>> &
PlanSpace::layersOf(const PlanPoint &cut) const {
  std::vector<std::vector<std::int64_t>> &list = cuts[cut.pp * cut.chunks];
  if (list.empty())
    for (double head :
         {0.0, headInLayers(problem.model, problem.train.sequenceLength)}) {
      std::vector<std::int64_t> layers =
          cutLayers(problem.model.layers, cut, head);
      if (std::find(list.begin(), list.end(), layers) == list.end())
        list.push_back(std::move(layers));
    }
  return list;
}

/// Schedules with their chunks and layers.
std::vector<PlanPoint> PlanSpace::cutsOf(const PlanPoint &mesh) const {
  using enum PlanScheduleKind;
  const std::int64_t layers = problem.model.layers;
  const bool anyOther = isDemanded(problem, PlanKey::Schedule);
  std::vector<PlanPoint> list;
  auto add = [&](PlanScheduleKind kind, std::int64_t chunks) {
    PlanPoint point = mesh;
    point.schedule = kind;
    point.chunks = chunks;
    if (!allows(point, PlanKey::Schedule) || !allows(point, PlanKey::Chunks))
      return;
    for (const std::vector<std::int64_t> &cut : layersOf(point)) {
      point.layers = cut;
      list.push_back(point);
    }
  };
  if (mesh.pp == 1) {
    add(None, 1);
    return list;
  }
  add(OneFOneB, 1);
  add(ZbH1, 1);
  if (anyOther) {
    add(GPipe, 1);
    add(ZbH2, 1);
  }
  const std::int64_t most =
      isDemanded(problem, PlanKey::Chunks) ? layers : mostChunks;
  // The last stage may have the head alone, and the first the embedding.
  for (std::int64_t chunks = 2;
       chunks <= most && mesh.pp * chunks <= layers + 2; ++chunks)
    add(Interleaved1F1B, chunks);
  if (2 * mesh.pp <= layers) {
    add(ZbV, 2);
    for (PlanScheduleKind kind : {VHalf, VMin, DualPipeV})
      if (anyOther && (kind != DualPipeV || mesh.microBatches >= 2 * mesh.pp))
        add(kind, 2);
  }
  return list;
}

void PlanSpace::addTensor(const PlanPoint &cut,
                          std::vector<PlanPoint> &to) const {
  std::vector<PlanContext> contexts = {PlanContext::None};
  if (cut.cp > 1) {
    contexts = {PlanContext::AllGather, PlanContext::Ring};
    const HeadSplit heads = splitHeads(
        problem.model.kvHeads, problem.model.queryHeadsPerKvHead, cut.tp);
    if (heads.paddedG / heads.kv % cut.cp == 0)
      contexts.push_back(PlanContext::Ulysses);
  }
  for (PlanContext context : contexts)
    for (bool sequence : {true, false}) {
      PlanPoint point = cut;
      point.context = context;
      point.sequenceParallel = sequence;
      if ((sequence && cut.tp == 1) ||
          !allows(point, PlanKey::SequenceParallel) ||
          !allows(point, PlanKey::Context))
        continue;
      to.push_back(std::move(point));
    }
}

std::vector<PlanPoint> PlanSpace::schedules(const PlanPoint &mesh) const {
  std::vector<PlanPoint> list;
  for (const PlanPoint &cut : cutsOf(mesh))
    addTensor(cut, list);
  return list;
}

//===----------------------------------------------------------------------===//
// Storages
//===----------------------------------------------------------------------===//

void PlanStorage::set(PlanPoint &point) const {
  point.zeroStage = zeroStage;
  point.shardGroup = shardGroup;
  point.prefetch = prefetch;
  point.reduce = reduce;
  point.gather = gather;
  point.offloadsOptimizer = offloadsOptimizer;
}

/// More than one layer of some stage, so that one can be gathered ahead.
static bool areDeep(const PlanPoint &schedule) {
  return *std::max_element(schedule.layers.begin(), schedule.layers.end()) > 1;
}

std::vector<PlanStorage>
PlanSpace::makeStorages(const PlanPoint &schedule) const {
  const std::int64_t ranks = schedule.dp * schedule.cp;
  std::vector<PlanStorage> list;
  auto add = [&](PlanStorage storage) {
    // One block ahead, where blocks are gathered one by one.
    const bool isAhead = storage.zeroStage == 3 &&
                         storage.gather == PlanGather::EveryPass &&
                         areDeep(schedule);
    storage.prefetch = isAhead ? 1 : 0;
    for (const PlanDemand &demand : problem.demands)
      if (demand.key == PlanKey::Prefetch && !demand.isForbidden && isAhead)
        storage.prefetch = std::stoll(demand.values.front());
    for (bool offloads : {false, true}) {
      storage.offloadsOptimizer = offloads;
      const PlanPoint point = storage.on(schedule);
      if ((!offloads || problem.cluster.hostLinkBytesPerSecond) &&
          std::ranges::all_of(std::array{PlanKey::Zero, PlanKey::ShardGroup,
                                         PlanKey::Reduce, PlanKey::Gather,
                                         PlanKey::Prefetch, PlanKey::Offload},
                              [&](PlanKey key) { return allows(point, key); }))
        list.push_back(storage);
    }
  };
  add({.zeroStage = 0, .shardGroup = ranks});
  const bool isOne = schedule.microBatches == 1;
  for (std::int64_t group : divisorsOf(ranks)) {
    if (group == 1)
      continue;
    add({.zeroStage = 1, .shardGroup = group});
    add({.zeroStage = 2,
         .shardGroup = group,
         .reduce = PlanReduce::EveryMicroBatch});
    for (PlanReduce reduce : {PlanReduce::EveryMicroBatch, PlanReduce::Last}) {
      if (isOne && reduce == PlanReduce::Last)
        continue;
      for (PlanGather gather :
           {PlanGather::OncePerStep, PlanGather::EveryMicroBatch,
            PlanGather::EveryPass})
        if (!isOne || gather != PlanGather::OncePerStep)
          add({.zeroStage = 3,
               .shardGroup = group,
               .reduce = reduce,
               .gather = gather});
    }
  }
  return list;
}

const std::vector<PlanStorage> &
PlanSpace::storages(const PlanPoint &schedule) const {
  const auto [entry, isNew] =
      zeros.try_emplace({schedule.dp * schedule.cp, schedule.microBatches == 1,
                         areDeep(schedule)});
  if (isNew)
    entry->second = makeStorages(schedule);
  return entry->second;
}

std::vector<PointRecompute> PlanSpace::recomputes() const {
  std::vector<PointRecompute> kinds;
  for (auto [kind, name] : {std::pair{PointRecompute::None, "none"},
                            std::pair{PointRecompute::Selective, "selective"},
                            std::pair{PointRecompute::Full, "full"}})
    if (problem.allows(PlanKey::Recompute, name))
      kinds.push_back(kind);
  return kinds;
}

/// What is left without axes of one rank says whether two orders are one.
static std::vector<PlanAxis> presentOf(const PlanPoint &mesh,
                                       const std::array<PlanAxis, 4> &order) {
  std::vector<PlanAxis> present;
  for (PlanAxis axis : order)
    if (mesh.size(axis) > 1)
      present.push_back(axis);
  return present;
}

std::vector<std::array<PlanAxis, 4>>
PlanSpace::makeOrders(const PlanPoint &mesh) const {
  using enum PlanAxis;
  static constexpr std::array<PlanAxis, 4> searched[] = {
      {Pp, Dp, Cp, Tp}, {Dp, Pp, Cp, Tp}, {Pp, Cp, Dp, Tp}, {Pp, Dp, Tp, Cp}};
  std::vector<std::array<PlanAxis, 4>> all(std::begin(searched),
                                           std::end(searched));
  if (isDemanded(problem, PlanKey::Order)) {
    std::array<PlanAxis, 4> order = searched[0];
    for (all.clear();
         all.empty() || std::next_permutation(order.begin(), order.end());)
      all.push_back(order);
  }
  PlanPoint point = mesh;
  auto isAllowed = [&](const std::array<PlanAxis, 4> &order) {
    point.order = order;
    return problem.allows(PlanKey::Order, choiceOf(point, PlanKey::Order));
  };
  // Where one is forbidden, so are those that are the same.
  std::set<std::vector<PlanAxis>> seen;
  if (!isDemanded(problem, PlanKey::Order))
    for (const auto &order : all)
      if (!isAllowed(order))
        seen.insert(presentOf(mesh, order));
  std::vector<std::array<PlanAxis, 4>> list;
  for (const auto &order : all)
    if (isAllowed(order) && seen.insert(presentOf(mesh, order)).second)
      list.push_back(order);
  return list;
}

const std::vector<std::array<PlanAxis, 4>> &
PlanSpace::orders(const PlanPoint &mesh) const {
  const std::size_t present = (mesh.pp > 1) | (mesh.dp > 1) << 1 |
                              (mesh.cp > 1) << 2 | (mesh.tp > 1) << 3;
  std::vector<std::array<PlanAxis, 4>> &list = ordersOf[present];
  if (list.empty())
    list = makeOrders(mesh);
  return list;
}
