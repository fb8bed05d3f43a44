#include "EstimateTables.h"

#include "Frames.h"
#include "Reductions.h"
#include "Stages.h"

#include "heddle/Plan/PlanLayout.h"

#include <fmt/format.h>

#include <algorithm>

using namespace heddle;
using namespace heddle::detail;

EstimateTables::EstimateTables(const ModelConfig &model,
                               const TrainSettings &train, bool isHost)
    : model(model), train(train), isHost(isHost), families(parameters(model)) {
  sparseBefore.push_back(0);
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    isSparse.push_back(model.hasExperts(layer));
    sparseBefore.push_back(sparseBefore.back() + isSparse.back());
  }
  for (const ParameterFamily &family : families)
    isReadByBackward.push_back(
        RankParameter{family, {}, {}}.isReadByBackward());
}

std::int64_t EstimateTables::libraries() const {
  constexpr std::int64_t workspace = 32 << 20;
  return isHost ? 0 : 2 * workspace;
}

//===----------------------------------------------------------------------===//
// One micro-batch
//===----------------------------------------------------------------------===//

/// One layer with a plain MLP and plain attention, of the same widths.
static ModelConfig modelOfOne(const ModelConfig &model) {
  ModelConfig standIn = model;
  standIn.layers = 1;
  standIn.experts.reset();
  standIn.latent.reset();
  if (model.experts)
    standIn.family = Family::Llama;
  return standIn;
}

/// A plan of one layer and one sequence.
static PlanPoint pointOfOne(const PlanPoint &point) {
  PlanPoint one;
  one.tp = point.tp;
  one.sequenceParallel = point.sequenceParallel;
  one.layers = {1};
  one.recipe = point.recipe;
  one.scaling = point.scaling;
  one.blockLength = point.blockLength;
  one.attention = point.attention;
  one.dropoutMasks = point.dropoutMasks;
  one.save = point.save;
  one.overlaps = false;
  return one;
}

/// Of choices that decide what values there are.
static std::int64_t formsOf(const PlanPoint &point) {
  return point.blockLength << 9 |
         std::int64_t{point.scaling == "delayed"} << 8 |
         std::int64_t{point.scaling == "mxfp8"} << 7 |
         formatBits(point.recipe) << 3 |
         std::int64_t{point.attention == PlanAttention::Unfused} << 2 |
         std::int64_t{point.dropoutMasks == PlanMasks::Saved} << 1 |
         std::int64_t{point.save == PlanSave::LinearInputs};
}

const PointShape &EstimateTables::shapeOf(const PlanPoint &point) {
  const ShapeKey key = {point.tp,
                        point.cp,
                        point.ep,
                        point.microBatch,
                        point.sequenceParallel,
                        static_cast<std::int64_t>(point.context),
                        formsOf(point),
                        point.overlaps};
  auto found = shapes.find(key);
  if (found == shapes.end())
    found = shapes.emplace(key, makeShape(point)).first;
  return found->second;
}

namespace {
/// One dense layer under one choice, its backward in one function and in two.
class LayerUnder {
public:
  LayerUnder(const ModelConfig &model, const RankSizes &sizes,
             const PlanRecompute &choice)
      : model(model), sizes(sizes),
        edge(sizes.edgeTokens() * sizes.d * sizes.formats.compute) {
    const std::vector<BlockOp> forward = blockForward(model, sizes),
                               backward = blockBackward(model, sizes);
    const std::vector<SavedValue> saved = savedPerLayer(model, sizes);
    whole = layersUnder(choice, forward, {backward}, saved, sizes);
    split = layersUnder(choice, forward, halvesOf(backward), saved, sizes);
    kept = keptValues(split);
    readByInputs = readOutside(split.backward[0]);
    readByWeights = readOutside(split.backward[1]);
  }

  /// Adds what the choice \p bit has of values. Without an MLP: not what one
  /// saves and keeps.
  void addTo(std::map<std::string, LayerValue> &values, Choices bit,
             bool withMlp) const {
    auto find = [&](const std::string &kind, const std::string &key,
                    std::int64_t bytes) -> LayerValue & {
      LayerValue &value = values[kind + key];
      value.bytes = bytes;
      return value;
    };
    for (const SavedValue &each : whole.saved)
      if (withMlp || !isOfMlp(each.name)) {
        LayerValue &value = find("", each.name, each.bytes);
        value.saved |= bit;
        const std::string key = savedKey(each.name, sizes);
        value.forWeights |= isForWeights(key) ? bit : 0;
        value.forInputs |= std::ranges::count(readByInputs, key) > 0 ? bit : 0;
        value.goesOn = each.name == "x2";
        value.bit = *readOffloaded(each.name);
      }
    for (const BlockValue &each : kept)
      if (withMlp || !isOfMlp(each.key))
        find("kept ", each.key, each.bytes).kept |= bit;
    if (isForWeights("d_out"))
      find("kept ", "d_out", edge).kept |= bit;
  }

  LayerFrames frames() const {
    // A block's other result, where it is not saved. A gradient that is kept as
    // it came in is not written over.
    return {forwardFrame(model, sizes, whole).frameBytes +
                (whole.saves("x2") ? 1 : 2) * edge,
            backwardFrame(whole, sizes).frameBytes + edge,
            std::max(backwardFrame(split, sizes).frameBytes +
                         (isForWeights("d_out") ? 2 : 1) * edge,
                     backwardFrame(split, sizes, 1).frameBytes)};
  }

private:
  static bool isOfMlp(const std::string &key) {
    static const std::set<std::string> ofMlp = {"gate", "up",     "m",
                                                "d_m",  "d_gate", "d_up"};
    return ofMlp.count(key) > 0;
  }
  bool isForWeights(const std::string &key) const {
    return std::count(readByWeights.begin(), readByWeights.end(), key) > 0 &&
           std::none_of(kept.begin(), kept.end(), [&](const BlockValue &value) {
             return value.key == key;
           });
  }

  const ModelConfig &model;
  const RankSizes &sizes;
  const std::int64_t edge;
  LayersUnder whole, split;
  std::vector<BlockValue> kept;
  std::vector<std::string> readByInputs, readByWeights;
};
} // namespace

/// What a point may compute again, as a plan says it: of no values.
static constexpr std::pair<PointRecompute, PlanRecomputeKind> kKinds[] = {
    {PointRecompute::None, PlanRecomputeKind::Values},
    {PointRecompute::Selective, PlanRecomputeKind::Selective},
    {PointRecompute::Full, PlanRecomputeKind::Full}};

static PlanRecompute choiceOf(PlanRecomputeKind kind) {
  PlanRecompute choice;
  choice.kind = kind;
  return choice;
}

static StandIn makeStandIn(const ModelConfig &model, const RankSizes &sizes) {
  StandIn made;
  made.sizes = sizes;
  std::map<std::string, LayerValue> dense, withoutMlp;
  for (const auto &[point, kind] : kKinds) {
    const PlanRecompute asked = choiceOf(kind);
    const LayerUnder layer(model, sizes, asked);
    const auto at = static_cast<std::size_t>(point);
    made.dense.frames[at] = made.withoutMlp.frames[at] = layer.frames();
    layer.addTo(dense, choice(point), true);
    layer.addTo(withoutMlp, choice(point), false);
  }
  for (const auto &[name, value] : dense)
    made.dense.values.push_back(value);
  for (const auto &[name, value] : withoutMlp)
    made.withoutMlp.values.push_back(value);
  return made;
}

std::uint32_t LayerShape::mayGoToHost(Choices choices) const {
  std::uint32_t bits = 0;
  for (const LayerValue &value : values)
    bits |= !value.goesOn && (choices & ~value.saved) == 0 ? value.bit : 0;
  return bits;
}

std::uint32_t PointShape::mayGoToHost(Choices choices) const {
  // A kind of layers that there is none of has no values.
  return (plain.values.empty() ? ~0u : plain.mayGoToHost(choices)) &
         (sparse.values.empty() ? ~0u : sparse.mayGoToHost(choices));
}

void LayerShape::sum() {
  auto sumOf = [&](PointRecompute kind) {
    SavedBytes bytes;
    for (const LayerValue &value : values) {
      const bool isSaved = value.saved & choice(kind);
      bytes.all += isSaved ? value.bytes : 0;
      bytes.withNone += isSaved && value.saved & kWithout ? value.bytes : 0;
      bytes.forWeights += value.forWeights & choice(kind) ? value.bytes : 0;
      bytes.kept += value.kept & choice(kind) ? value.bytes : 0;
    }
    return bytes;
  };
  saved.none = sumOf(PointRecompute::None);
  saved.selective = sumOf(PointRecompute::Selective);
  saved.full = sumOf(PointRecompute::Full);
}

const Result<StandIn> &EstimateTables::standInOf(const PlanPoint &point) {
  const PlanPoint plan = pointOfOne(point);
  const std::int64_t length = train.sequenceLength / point.cp;
  // Nothing but the length differs between those that need no padding and have
  // no matrix of a square.
  const bool isWhole =
      length % plan.tp == 0 && plan.attention == PlanAttention::Flash;
  const std::array<std::int64_t, 4> key = {plan.tp, plan.sequenceParallel,
                                           formsOf(plan), isWhole ? 0 : length};
  auto found = standIns.find(key);
  if (found != standIns.end())
    return found->second;
  TrainSettings part = train;
  part.sequenceLength = length;
  part.globalBatch = 1;
  part.precision = {plan.recipe};
  const ModelConfig one = modelOfOne(model);
  const Result<RankSizes> sizes = rankSizes(one, part, planOf(plan, one));
  return standIns
      .emplace(key, sizes ? Result<StandIn>(makeStandIn(one, *sizes))
                          : Result<StandIn>(sizes.error()))
      .first->second;
}

/// Of as many tokens as \p to for each that \p from has.
static void scale(LayerShape &layer, std::int64_t from, std::int64_t to) {
  for (LayerValue &value : layer.values)
    value.bytes = alignBytes(value.bytes * to / from);
  for (LayerFrames &frames : layer.frames)
    for (auto frame :
         {&LayerFrames::forward, &LayerFrames::backward, &LayerFrames::halves})
      frames.*frame = frames.*frame * to / from;
}

PointShape EstimateTables::makeShape(const PlanPoint &point) {
  PointShape shape;
  if (train.sequenceLength % point.cp != 0) {
    shape.fault = fmt::format("sequence_length {} is no multiple of cp {}",
                              train.sequenceLength, point.cp);
    return shape;
  }
  if (point.cp > 1 && point.attention == PlanAttention::Unfused) {
    shape.fault = fmt::format("attention \"unfused\" has the scores of whole "
                              "sequences, cp {} has parts of them",
                              point.cp);
    return shape;
  }
  const Result<StandIn> &standIn = standInOf(point);
  if (!standIn) {
    shape.fault = standIn.message();
    return shape;
  }
  RankSizes sizes = standIn->sizes;
  sizes.s = sizes.s * (train.sequenceLength / point.cp) / sizes.length;
  sizes.length = train.sequenceLength / point.cp;
  sizes.b = point.microBatch;
  shape.headFrame = headFrame(modelOfOne(model), sizes).frameBytes;
  shape.edge = alignBytes(sizes.edgeTokens() * sizes.d * sizes.formats.compute);
  shape.plain = standIn->dense;
  if (model.experts)
    shape.sparse = standIn->withoutMlp;
  for (LayerShape *layer : {&shape.plain, &shape.sparse})
    scale(*layer, standIn->sizes.tokens(), sizes.tokens());
  sizes.storage.overlaps = point.overlaps;
  if (sizes.formats.scaling)
    for (const auto &[at, kind] : kKinds)
      shape.plain.frames[static_cast<std::size_t>(at)] =
          shape.sparse.frames[static_cast<std::size_t>(at)] =
              LayerUnder(modelOfOne(model), sizes, choiceOf(kind)).frames();
  const bool hasNumbers =
      model.dropout.any() ||
      (sizes.formats.scaling && sizes.formats.scaling->roundsGradientsAtRandom);
  shape.inputsPerMicroBatch = sizes.tokens() * 4 * (4 + (hasNumbers ? 1 : 0));
  if (model.latent)
    for (LayerShape *layer : {&shape.plain, &shape.sparse})
      addLatent(*layer, sizes);
  shape.plain.sum();
  if (model.experts)
    addExperts(shape, point, sizes);
  if (point.cp > 1)
    addContext(shape, point, sizes);
  return shape;
}

/// The rest of attention's part is there already.
void EstimateTables::addExperts(PointShape &shape, const PlanPoint &point,
                                const RankSizes &sizes) const {
  const ExpertsConfig &experts = *model.experts;
  const std::int64_t bytes = sizes.formats.compute, tokens = sizes.tokens(),
                     routed = experts.perToken * tokens;
  auto part = [&](std::int64_t width) {
    return (width + point.tp - 1) / point.tp;
  };
  const std::int64_t product = routed * part(experts.ffn) * bytes,
                     shared = tokens * part(experts.sharedFfn) * bytes,
                     dispatched = routed * sizes.d * bytes,
                     returned =
                         dispatched / (point.sequenceParallel ? point.tp : 1),
                     scores = tokens * experts.count * kFloat;
  // n1, n2 and the experts' products are computed again without a product: of
  // gate and up.
  const Choices notFull = kWithout | kSelective;
  for (const LayerValue &value : std::initializer_list<LayerValue>{
           {dispatched, notFull, notFull, kFull},
           {2 * (product + shared), notFull, kSelective, 0},
           {product + shared, kWithout, kWithout, kFull},
           {returned + scores, notFull, 0, 0},
           // Gradients of gate, up and what comes back.
           {2 * (product + shared) + dispatched, 0, 0, kEvery}})
    shape.sparse.values.push_back(value);
  shape.sparse.sum();
  LayerSaved &saved = shape.sparse.saved;
  saved.ofExperts = dispatched + 3 * product + returned;
  const std::int64_t hidden = tokens * sizes.d * bytes,
                     frame = 2 * hidden + 2 * dispatched +
                             3 * (product + shared) + shape.edge;
  for (PointRecompute kind : {PointRecompute::None, PointRecompute::Selective,
                              PointRecompute::Full}) {
    const auto at = static_cast<std::size_t>(kind);
    // What was not saved is there again, of one layer.
    const std::int64_t again = saved.none.all - saved.of(kind).all;
    for (auto side : {&LayerFrames::backward, &LayerFrames::halves})
      shape.sparse.frames[at].*side =
          std::max(shape.plain.frames[at].*side, frame + again);
  }
}

/// What plain attention of the stand-in has and latent attention has not, and
/// the other way round.
void EstimateTables::addLatent(LayerShape &layer,
                               const RankSizes &sizes) const {
  const LatentConfig &latent = *model.latent;
  const std::int64_t bytes = sizes.formats.compute,
                     heads = sizes.tokens() * sizes.g * bytes;
  // Values, and attention's output, are narrower than queries and keys.
  const std::int64_t narrower = heads * (sizes.k - latent.valueSize);
  const std::int64_t norms =
      sizes.tokens() * (latent.queryRank + latent.valueRank) * bytes;
  const std::int64_t ranks = norms + sizes.tokens() * latent.ropeSize * bytes;
  const Choices notFull = kWithout | kSelective;
  for (const LayerValue &value : std::initializer_list<LayerValue>{
           {ranks, notFull, kSelective, 0}, // norms are made again of these
           {norms, kWithout, kWithout, 0},
           {-narrower, notFull, 0, 0},       // values
           {-narrower, notFull, notFull, 0}, // attention's output
           {ranks - narrower, 0, 0, kEvery}})
    layer.values.push_back(value);
}

/// Keys and values of all of the sequence, and their gradients, for one layer.
void EstimateTables::addContext(PointShape &shape, const PlanPoint &point,
                                const RankSizes &sizes) const {
  const std::int64_t keys =
      sizes.tokens() * sizes.g * sizes.k * sizes.formats.compute;
  std::int64_t bytes = 0;
  switch (point.context) {
  case PlanContext::None:
    return;
  case PlanContext::AllGather:
    bytes = 4 * keys * point.cp;
    break;
  case PlanContext::Ring: // what is read and what arrives
    bytes = 8 * keys;
    break;
  case PlanContext::Ulysses: // queries, keys, values and output change places
    bytes = 2 * keys * (1 + sizes.r);
    break;
  }
  for (LayerShape *layer : {&shape.plain, &shape.sparse})
    for (LayerFrames &frames : layer->frames) {
      frames.backward += bytes;
      frames.halves += bytes;
    }
}

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

Result<const std::vector<RankStages> *>
EstimateTables::stagesOf(const PlanPoint &point) {
  if (point.schedule == PlanScheduleKind::DualPipe)
    return Error{fmt::format("a point has layers of one copy of the model, "
                             "schedule \"{}\" has two",
                             scheduleWord(point.schedule))};
  // Sets and buffers do not grow beyond a few rounds over all ranks, beyond two
  // where micro-batches make whole rounds; but with GPipe, which keeps all
  // micro-batches.
  const std::int64_t rest = point.microBatches % point.pp,
                     rounds = (rest ? 4 : 2) * point.pp;
  const std::int64_t microBatches =
      point.microBatches <= rounds || point.schedule == PlanScheduleKind::GPipe
          ? point.microBatches
          : rounds + rest;
  const auto key = std::make_tuple(static_cast<int>(point.schedule), point.pp,
                                   point.chunks, microBatches);
  auto found = schedules.find(key);
  if (found == schedules.end()) {
    Plan plan;
    plan.mesh = {{"pp", point.pp}};
    plan.microBatches = microBatches;
    plan.stages.schedule = point.schedule;
    plan.stages.layers.assign(
        static_cast<std::size_t>(point.pp),
        std::vector<PlanRange>(static_cast<std::size_t>(point.chunks),
                               PlanRange{0, 0}));
    found = schedules.emplace(key, stagesAtAll(plan)).first;
  }
  if (!found->second)
    return found->second.error();
  return &*found->second;
}

HeldByPlace EstimateTables::heldBy(const PlanPoint &point,
                                   std::int64_t place) const {
  HeldByPlace held;
  held.chunks.resize(static_cast<std::size_t>(point.chunks));
  held.recomputed.resize(held.chunks.size());
  held.hasEmbedding = held.hasHead = false;
  const std::int64_t stages = point.pp * point.chunks;
  for (std::int64_t chunk = 0; chunk < point.chunks; ++chunk) {
    const std::int64_t stage = point.stageOf(place, chunk);
    held.hasEmbedding |= stage == 0;
    held.hasHead |= stage + 1 == stages;
    PlaceLayers &layers = held.chunks[static_cast<std::size_t>(chunk)];
    const std::int64_t number = point.layers[static_cast<std::size_t>(stage)];
    if (model.experts) {
      for (std::int64_t i = 0; i < stage; ++i)
        layers.first += point.layers[static_cast<std::size_t>(i)];
      layers.sparse = sparseLayers(layers.first, number);
    }
    layers.plain = number - layers.sparse;
    held.plain += layers.plain;
    held.sparse += layers.sparse;
  }
  std::int64_t again = 0, all = 0;
  for (std::int64_t count : point.recomputed)
    again += count;
  for (std::int64_t count : point.layers)
    all += count;
  if (!point.recomputed.empty())
    held.choices = choice(point.recompute) | (again < all ? kWithout : 0);
  setRecomputed(held, point, place,
                point.recomputed.empty()
                    ? 0
                    : point.recomputed[static_cast<std::size_t>(place)]);
  return held;
}

void EstimateTables::setRecomputed(HeldByPlace &held, const PlanPoint &point,
                                   std::int64_t place,
                                   std::int64_t count) const {
  point.spreadRecomputed(place, count, held.recomputed);
  held.allRecomputed = count;
  if (!model.experts)
    return;
  for (std::size_t chunk = 0; chunk < held.chunks.size(); ++chunk) {
    PlaceLayers &layers = held.chunks[chunk];
    layers.sparseAgain = sparseLayers(
        layers.first, std::min(layers.all(), held.recomputed[chunk]));
  }
}
