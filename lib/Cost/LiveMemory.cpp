#include "heddle/Cost/LiveMemory.h"

#include "Frames.h"
#include "Reductions.h"
#include "Storage.h"

#include <algorithm>
#include <map>

using namespace heddle;
using heddle::detail::kFloat;

std::int64_t heddle::stackBytes(std::int64_t bytes, std::int64_t entries) {
  // Nothing is behind the last entry.
  return entries == 0 ? 0 : detail::alignBytes(bytes) * (entries - 1) + bytes;
}

const FramePeak &LiveMemory::peak() const {
  return *std::max_element(frames.begin(), frames.end(),
                           [](const FramePeak &a, const FramePeak &b) {
                             return a.bytes() < b.bytes();
                           });
}

std::int64_t LiveMemory::peakBytes() const {
  return parameters + gradients + optimizer + inputs + outputs + peak().bytes();
}

namespace {

constexpr std::int64_t kCount = 8, kIdentifier = 4; // integers

/// Collects what backward reads, in the order in which forward makes it.
class Saved {
public:
  Saved(const ModelConfig &model, const RankSizes &sizes)
      : model(model), sizes(sizes),
        rows(sizes.tokens() * sizes.formats.compute),
        edgeRows(sizes.edgeTokens() * sizes.formats.compute),
        numbers(sizes.tokens() * kFloat),
        edgeNumbers(sizes.edgeTokens() * kFloat) {}

  std::vector<SavedValue> list() {
    add("x1", "input of the first norm", edgeRows * sizes.d);
    norm(0, "n1", "input of q, k and v", "first norm");
    attention();
    mask("a_dropped_mask");
    // One entry more than layers: a block's output is the next one's input.
    add("x2", "input of the second norm", edgeRows * sizes.d, sizes.layers + 1);
    norm(1, "n2", model.gatedMlp ? "input of gate and up" : "input of up",
         "second norm");
    if (model.gatedMlp)
      add("gate", "gradient of the gated product", rows * sizes.f);
    add("up",
        model.gatedMlp ? "gradient of the gated product"
                       : "gradient of the activation",
        rows * sizes.f);
    add("m", "input of down", rows * sizes.f);
    mask("dn_dropped_mask");
    return std::move(values);
  }

private:
  void add(const std::string &name, const std::string &reason,
           std::int64_t bytes) {
    add(name, reason, bytes, sizes.layers);
  }
  void add(const std::string &name, const std::string &reason,
           std::int64_t bytes, std::int64_t entries) {
    values.push_back({name, reason, bytes, entries});
  }
  void statistic(const std::string &name, const std::string &reason,
                 std::int64_t bytes) {
    add(name, reason, bytes);
    values.back().isStatistic = true;
  }

  void norm(int index, const std::string &name, const std::string &reader,
            const std::string &which) {
    add(name, reader, (sizes.savesGathered[index] ? rows : edgeRows) * sizes.d);
    if (model.normHasBias())
      statistic(name + "_mean", "gradient of the " + which, edgeNumbers);
    statistic(name + "_rstd", "gradient of the " + which, edgeNumbers);
  }

  void attention() {
    const std::int64_t keys = rows * sizes.g * sizes.k;
    const std::int64_t queries = keys * sizes.r;
    if (model.qkNorm) {
      add("q", "input of the queries' norm", queries);
      statistic("qn_rstd", "gradient of the queries' norm",
                numbers * sizes.g * sizes.r);
      add("k", "input of the keys' norm", keys);
      statistic("kn_rstd", "gradient of the keys' norm", numbers * sizes.g);
    }
    const std::string rotated = model.position == PositionKind::Rope ? "r" : "";
    if (sizes.unfusedAttention)
      return matrices("q" + rotated, "k" + rotated, queries, keys);
    add("q" + rotated, "gradient of attention", queries);
    add("k" + rotated, "gradient of attention", keys);
    add("v", "gradient of attention", keys);
    add("o", "input of the output projection; gradient of attention", queries);
    statistic("lse", "gradient of attention", numbers * sizes.g * sizes.r);
  }

  /// What products of attention that is not one kernel read.
  void matrices(const std::string &q, const std::string &k,
                std::int64_t queries, std::int64_t keys) {
    const bool drops = model.dropout.attention > 0;
    const std::int64_t matrix = sizes.probabilities() * sizes.formats.compute;
    add(q, "gradient of keys", queries);
    add(k, "gradient of queries", keys);
    add("v", "gradient of probabilities", keys);
    add("p", drops ? "gradient of scores" : "gradient of scores and values",
        matrix);
    if (drops)
      add("p_dropped", "gradient of values", matrix);
    if (drops && sizes.savesMasks)
      add("p_dropped_mask", "gradient of attention's dropout",
          sizes.probabilities());
    add("o", "input of the output projection", queries);
  }

  /// Of what flows between blocks.
  void mask(const char *name) {
    if (model.dropout.residual > 0 && sizes.savesMasks)
      add(name, "gradient of residual dropout", sizes.edgeTokens() * sizes.d);
  }

  const ModelConfig &model;
  const RankSizes &sizes;
  const std::int64_t rows;     ///< bytes of one element per token
  const std::int64_t edgeRows; ///< the same of the tokens between blocks
  const std::int64_t numbers, edgeNumbers; ///< the same of statistics
  std::vector<SavedValue> values;
};

} // namespace

std::vector<SavedValue> heddle::savedPerLayer(const ModelConfig &model,
                                              const RankSizes &sizes) {
  return Saved(model, sizes).list();
}

std::vector<SavedValue> heddle::masksDrawnAgain(const ModelConfig &model,
                                                const RankSizes &sizes) {
  std::vector<SavedValue> masks;
  const std::int64_t hidden = sizes.edgeTokens() * sizes.d;
  if (model.dropout.embedding > 0)
    masks.push_back({"embedding", "gradient of embedding dropout", hidden, 1});
  if (sizes.savesMasks)
    return masks;
  if (model.dropout.attention > 0)
    masks.push_back({"attention", "gradient of attention",
                     sizes.tokens() * sizes.s * sizes.g * sizes.r,
                     sizes.layers});
  if (model.dropout.residual > 0)
    for (const char *name : {"attention_output", "mlp_output"})
      masks.push_back(
          {name, "gradient of residual dropout", hidden, sizes.layers});
  return masks;
}

/// What the layers of the place save, by name: of each that saves it, and of
/// the second norm's input one entry more where all do, as it flows on.
static std::vector<SavedValue> savedByName(const RankSizes &sizes) {
  std::vector<SavedValue> values;
  for (const LayersUnder &each : sizes.recompute)
    for (const SavedValue &value : each.saved) {
      auto known = std::find_if(
          values.begin(), values.end(),
          [&](const SavedValue &other) { return other.name == value.name; });
      if (known == values.end()) {
        values.push_back(value);
        known = std::prev(values.end());
        known->entries = sizes.savesInput() && value.name == "x2";
      }
      known->entries += each.layers;
    }
  return values;
}

/// Most layers of a chunk of the place under choices that \p has.
template <class Has>
static std::int64_t mostOfChunk(const RankSizes &sizes, Has has) {
  std::int64_t most = 0;
  for (const std::vector<std::int64_t> &counts : sizes.choicesOfChunks) {
    std::int64_t count = 0;
    for (std::size_t i = 0; i < counts.size(); ++i)
      count += has(sizes.recompute[i]) ? counts[i] : 0;
    most = std::max(most, count);
  }
  return most;
}

/// Whether weight gradients of any layer that run apart read what is saved of a
/// value, or comes in.
static bool isReadByWeights(const RankSizes &sizes, const std::string &key) {
  return std::any_of(sizes.recompute.begin(), sizes.recompute.end(),
                     [&](const LayersUnder &each) {
                       if (each.backward.size() < 2)
                         return false;
                       const std::vector<std::string> keys =
                           detail::readOutside(each.backward[1]);
                       const std::vector<BlockValue> kept =
                           detail::keptValues(each);
                       return std::count(keys.begin(), keys.end(), key) > 0 &&
                              std::none_of(kept.begin(), kept.end(),
                                           [&](const BlockValue &value) {
                                             return value.key == key;
                                           });
                     });
}

/// Of all micro-batches in flight, or of them what is on the host. A set has
/// room for any chunk of the place; what only input gradients read is needed
/// until these are made.
static std::int64_t savedBytes(const RankSizes &sizes,
                               const std::vector<SavedValue> &values,
                               bool onHost) {
  const RankStages &stages = sizes.stages;
  std::int64_t bytes = 0;
  for (const SavedValue &value : values) {
    const bool isOffloaded = sizes.isOffloaded(value.name);
    if (onHost && !isOffloaded)
      continue;
    const std::int64_t input = sizes.savesInput() && value.name == "x2";
    const bool isShort =
        stages.splitsBackward &&
        !isReadByWeights(sizes, detail::savedKey(value.name, sizes));
    const std::int64_t entries =
        input + mostOfChunk(sizes, [&](const LayersUnder &each) {
          return each.saves(value.name);
        });
    const std::int64_t all =
        entries * (isShort ? stages.inputSets : stages.sets);
    const bool isInRows = isOffloaded && !onHost && entries > 0;
    bytes += stackBytes(value.bytes, isInRows ? sizes.hostRows : all);
  }
  return bytes;
}

/// What slots of input gradients leave for those of weight gradients.
static std::int64_t keptBytes(const RankSizes &sizes) {
  const std::int64_t sets = sizes.stages.keptSets;
  std::map<std::string, std::int64_t> kept;
  for (const LayersUnder &each : sizes.recompute)
    for (const BlockValue &value : detail::keptValues(each))
      kept[value.key] = value.bytes;
  std::int64_t bytes = 0;
  for (const auto &[key, size] : kept)
    bytes += stackBytes(
        size, sets * mostOfChunk(sizes, [&, &key = key](const auto &each) {
                const std::vector<BlockValue> values = detail::keptValues(each);
                return std::any_of(
                    values.begin(), values.end(),
                    [&](const BlockValue &value) { return value.key == key; });
              }));
  if (isReadByWeights(sizes, "d_out"))
    bytes += stackBytes(
        sizes.edgeTokens() * sizes.d * sizes.formats.compute,
        sets * mostOfChunk(sizes, [](const LayersUnder &) { return true; }));
  return bytes;
}

/// Buffers of what passes between stages.
static std::int64_t passingBytes(const RankSizes &sizes) {
  const RankStages &stages = sizes.stages;
  // Two that sends take in turn, one behind them for a stage of the same place.
  auto outs = [&](const RankStages::Side &side) -> std::int64_t {
    return side.chunks > side.elsewhere
               ? 3
               : std::min<std::int64_t>(2, side.elsewhere *
                                               sizes.microBatchesOfCopy());
  };
  const std::int64_t sent = sizes.sentElements() * sizes.formats.compute;
  std::int64_t bytes = 0;
  for (std::int64_t buffers :
       {stages.activationLandings, stages.gradientLandings, outs(stages.next),
        outs(stages.previous)})
    bytes += stackBytes(sent, buffers);
  return bytes;
}

/// What is filled before each step.
static std::int64_t inputBytes(const ModelConfig &model, bool isAdamW,
                               const RankSizes &sizes) {
  // Tokens, labels, positions, documents: each one tensor of all micro-batches.
  // Learning rate, bias corrections.
  std::int64_t bytes = 4 * sizes.tokens() * kIdentifier * sizes.microBatches +
                       (isAdamW ? 3 : 1) * kFloat;
  if (sizes.formats.delaysScales()) // the step's number
    bytes += kIdentifier;
  // Masks are drawn from the tokens' numbers and a seed per layer, and one for
  // what stands before the layers.
  // What is rounded at random, too.
  const bool isRounded =
      sizes.formats.scaling && sizes.formats.scaling->roundsGradientsAtRandom;
  if (model.dropout.any() || isRounded)
    bytes += sizes.tokens() * kIdentifier * sizes.microBatches;
  if (model.dropout.embedding > 0)
    bytes += kCount;
  if (model.dropout.attention > 0 || model.dropout.residual > 0 || isRounded)
    bytes += kCount *
             (sizes.stages.areCut ? sizes.stages.mostOfPlace : sizes.layers);
  return bytes;
}

namespace {

/// The functions that a place calls, with what is live around each call, and
/// what it does behind them.
class Calls {
public:
  Calls(const ModelConfig &model, const RankSizes &sizes,
        const detail::Storage &storage, const LiveMemory &memory)
      : model(model), sizes(sizes), storage(storage), memory(memory),
        areCut(sizes.stages.areCut),
        hidden(sizes.edgeTokens() * sizes.d * sizes.formats.compute),
        // The loss so far. A count that is reduced is in the output, else
        // beside it.
        lasting(kFloat + (sizes.data.empty() ? kCount : 0)),
        // The last block's delta, and its other result where that is not saved.
        flowing(sizes.savesInput() ? hidden : 2 * hidden) {}

  std::vector<FramePeak> list() {
    if (sizes.stages.hasEmbedding && areCut)
      embedding();
    for (const LayersUnder &each : sizes.recompute)
      if (each.layers > 0)
        block(each);
    if (sizes.stages.hasHead) // with the micro-batch's loss
      add(detail::headFrame(model, sizes),
          hidden + kFloat + (areCut ? 0 : flowing), Segment::Head,
          BlockPass::Backward);
    if (frames.empty()) {
      add({"step", "", 0, 0, 0, 0}, flowing, Segment::Block,
          BlockPass::Forward);
      add({"step", "", 0, 0, 0, 0}, hidden, Segment::Block,
          BlockPass::Backward);
    }
    behindAll();
    return std::move(frames);
  }

private:
  void embedding() {
    add(detail::embeddingFrame(model, sizes, false), flowing,
        Segment::Embedding, BlockPass::Forward);
    add(detail::embeddingFrame(model, sizes, true), hidden, Segment::Embedding,
        BlockPass::Backward);
  }

  void block(const LayersUnder &under) {
    // The largest magnitudes that a function has found.
    const std::array<std::int64_t, 2> found =
        sizes.formats.delaysScales() ? sizes.scaledTensors()
                                     : std::array<std::int64_t, 2>{0, 0};
    add(detail::forwardFrame(model, sizes, under), flowing + found[0] * kFloat,
        Segment::Block, BlockPass::Forward);
    // In slots the loss is added up before. A gradient that is kept as it came
    // in is not written over.
    const bool isSplit = under.backward.size() > 1;
    const std::int64_t gradients =
        isSplit && isReadByWeights(sizes, "d_out") ? 2 * hidden : hidden;
    add(detail::backwardFrame(under, sizes),
        gradients + found[1] * kFloat + (areCut ? 0 : kFloat), Segment::Block,
        BlockPass::Backward);
    if (isSplit)
      add(detail::backwardFrame(under, sizes, 1), 0, Segment::Block,
          BlockPass::Weights);
  }

  /// Reductions of sums, and what the other end has of a shared table's. Behind
  /// slots the loss is in the output.
  void behindAll() {
    FramePeak end{"step", "gradients on their way", 0, lasting, 0, 0};
    if (areCut)
      end.carriedBytes -= kFloat;
    end.bucketBytes = storage.onTheirWay();
    if (end.bucketBytes > 0) {
      frames.push_back(end);
      frames.back().carriedBytes += kCount; // the sum of squares
    }
    end.moment = "gradient of the shared table";
    end.bucketBytes = storage.ofBothEnds();
    if (end.bucketBytes > 0)
      frames.push_back(end);
    end.moment = "numbers of the optimizer from the host";
    end.bucketBytes = 0;
    end.frameBytes = memory.rows;
    end.carriedBytes += kFloat; // by which gradients are multiplied
    if (end.frameBytes > 0)
      frames.push_back(end);
  }

  void add(FramePeak frame, std::int64_t carried, Segment segment,
           BlockPass pass) {
    const bool ofForward = pass == BlockPass::Forward;
    frame.carriedBytes = lasting + memory.passing + carried;
    frame.gatheredBytes = storage.gathered(segment, pass);
    if (!ofForward)
      frame.bucketBytes =
          storage.made(segment, pass) + storage.onTheirWay(segment);
    // Those of the head are waited for behind the first block, and in slots
    // before it.
    if (!areCut && segment == Segment::Block && !ofForward)
      frame.bucketBytes += storage.made(Segment::Head, pass);
    // Without layers, what would be saved goes on in the same slot.
    frame.savedBytes = memory.saved;
    if (sizes.layers == 0 && !ofForward)
      frame.savedBytes -= memory.passed;
    frames.push_back(std::move(frame));
  }

  const ModelConfig &model;
  const RankSizes &sizes;
  const detail::Storage &storage;
  const LiveMemory &memory;
  const bool areCut;
  const std::int64_t hidden, lasting, flowing;
  std::vector<FramePeak> frames;
};

} // namespace

LiveMemory heddle::liveMemory(const ModelConfig &model,
                              const TrainSettings &train,
                              const RankSizes &sizes) {
  const bool isAdamW = train.optimizer.kind == OptimizerKind::AdamW;
  const detail::Storage storage(sizes);
  LiveMemory memory;
  memory.parameters = storage.parameters();
  memory.gradients = storage.gradients();
  memory.masters = sizes.formats.hasMaster ? storage.optimizer() : 0;
  memory.optimizer = (isAdamW ? 2 * storage.optimizer() : 0) + memory.masters;
  const std::int64_t numbers =
      (isAdamW ? 2 : 0) + (sizes.formats.hasMaster ? 1 : 0);
  if (sizes.offloadsOptimizer) {
    memory.offloadedOptimizer = std::exchange(memory.optimizer, 0);
    memory.masters = 0;
    memory.rows = storage.optimizerRows(numbers);
  }
  memory.optimizer += storage.scales();
  memory.inputs = inputBytes(model, isAdamW, sizes);
  memory.outputs = kFloat + kCount + kFloat;

  memory.microBatchLoops = detail::peelsLastMicroBatch(sizes) ? 2 : 1;
  memory.savedValues = savedByName(sizes);
  memory.saved = savedBytes(sizes, memory.savedValues, false);
  memory.offloaded = savedBytes(sizes, memory.savedValues, true);
  memory.passed = sizes.layers == 0 ? memory.saved : 0;
  if (sizes.stages.areCut) {
    memory.passing = passingBytes(sizes);
    // What the last block has made, for the head: x and delta.
    memory.saved +=
        2 * stackBytes(sizes.edgeTokens() * sizes.d * sizes.formats.compute,
                       sizes.stages.headSets);
    memory.saved += keptBytes(sizes);
  }
  memory.frames = Calls(model, sizes, storage, memory).list();
  return memory;
}
