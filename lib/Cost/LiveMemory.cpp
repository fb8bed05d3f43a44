#include "heddle/Cost/LiveMemory.h"

#include "Frames.h"
#include "Reductions.h"
#include "Storage.h"

#include <algorithm>

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
  if (!isPeakKnown)
    return 0;
  return parameters + gradients + optimizer + inputs + outputs + saved +
         peak().bytes();
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

  void norm(int index, const std::string &name, const std::string &reader,
            const std::string &which) {
    add(name, reader, (sizes.savesGathered[index] ? rows : edgeRows) * sizes.d);
    if (model.normHasBias())
      add(name + "_mean", "gradient of the " + which, edgeNumbers);
    add(name + "_rstd", "gradient of the " + which, edgeNumbers);
  }

  void attention() {
    const std::int64_t keys = rows * sizes.g * sizes.k;
    const std::int64_t queries = keys * sizes.r;
    if (model.qkNorm) {
      add("q", "input of the queries' norm", queries);
      add("qn_rstd", "gradient of the queries' norm",
          numbers * sizes.g * sizes.r);
      add("k", "input of the keys' norm", keys);
      add("kn_rstd", "gradient of the keys' norm", numbers * sizes.g);
    }
    const std::string rotated = model.position == PositionKind::Rope ? "r" : "";
    add("q" + rotated, "gradient of attention", queries);
    add("k" + rotated, "gradient of attention", keys);
    add("v", "gradient of attention", keys);
    add("o", "input of the output projection; gradient of attention", queries);
    add("lse", "gradient of attention", numbers * sizes.g * sizes.r);
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

/// Of all micro-batches in flight. A set has room for any chunk of the place.
static std::int64_t savedBytes(const RankSizes &sizes,
                               const std::vector<SavedValue> &values) {
  std::int64_t bytes = 0;
  for (const SavedValue &value : values) {
    const std::int64_t input = sizes.savesInput() && value.name == "x2";
    std::int64_t most = 0;
    for (const std::vector<std::int64_t> &counts : sizes.choicesOfChunks) {
      std::int64_t count = input;
      for (std::size_t i = 0; i < counts.size(); ++i)
        count += sizes.recompute[i].saves(value.name) ? counts[i] : 0;
      most = std::max(most, count);
    }
    bytes += stackBytes(value.bytes, most * sizes.stages.sets);
  }
  return bytes;
}

/// What slots hold beside their saved sets: buffers of what passes between
/// stages, beside \p carried.
static void addSlots(LiveMemory &memory, const RankSizes &sizes,
                     std::int64_t carried) {
  const RankStages &stages = sizes.stages;
  const std::int64_t hidden =
      sizes.edgeTokens() * sizes.d * sizes.formats.compute;
  // Two that sends take in turn, one behind them for a stage of the same place.
  auto outs = [&](const RankStages::Side &side) -> std::int64_t {
    return side.chunks > side.elsewhere
               ? 3
               : std::min<std::int64_t>(2, side.elsewhere *
                                               sizes.microBatchesOfCopy());
  };
  const std::int64_t sent = sizes.sentElements() * sizes.formats.compute;
  for (std::int64_t buffers :
       {stages.activationLandings, stages.gradientLandings, outs(stages.next),
        outs(stages.previous)})
    memory.passing += stackBytes(sent, buffers);
  // What the last block has made, for the head: x and delta.
  memory.saved += 2 * stackBytes(hidden, stages.headSets);
  memory.frames[0].carriedBytes = carried + kFloat; // the micro-batch's loss
  memory.frames[1].carriedBytes = carried;
  for (FramePeak &frame : memory.frames)
    frame.carriedBytes += memory.passing;
}

/// What is filled before each step.
static std::int64_t inputBytes(const ModelConfig &model, bool isAdamW,
                               const RankSizes &sizes) {
  // Tokens, labels, positions, documents: each one tensor of all micro-batches.
  // Learning rate, bias corrections.
  std::int64_t bytes = 4 * sizes.tokens() * kIdentifier * sizes.microBatches +
                       (isAdamW ? 3 : 1) * kFloat;
  // Masks are drawn from the tokens' numbers and a seed per layer, and one for
  // what stands before the layers.
  if (model.dropout.any())
    bytes += sizes.tokens() * kIdentifier * sizes.microBatches;
  if (model.dropout.embedding > 0)
    bytes += kCount;
  if (model.dropout.attention > 0 || model.dropout.residual > 0)
    bytes += kCount *
             (sizes.stages.areCut ? sizes.stages.mostOfPlace : sizes.layers);
  return bytes;
}

/// Whether the formulas follow what a place with layers or the head has.
static bool knowsPeak(const RankSizes &sizes) {
  // Slots that read copies of parameters longer keep them in saved sets.
  const bool keepsCopies = sizes.storage.parametersInRuns() &&
                           sizes.storage.gather != PlanGather::EveryPass;
  const bool repeatsAll =
      std::any_of(sizes.recompute.begin(), sizes.recompute.end(),
                  [](const LayersUnder &each) { return !each.choice.prune; });
  // The sum of a bias that nothing reads again is not followed.
  const bool addsBias = sizes.find(Segment::Block, "bd") != nullptr;
  return !(repeatsAll && (addsBias || !sizes.sequence.empty())) &&
         !sizes.stages.splitsBackward && !(sizes.stages.areCut && keepsCopies);
}

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
  memory.inputs = inputBytes(model, isAdamW, sizes);
  memory.outputs = kFloat + kCount + kFloat;

  memory.microBatchLoops = detail::peelsLastMicroBatch(sizes) ? 2 : 1;
  memory.savedValues = savedByName(sizes);
  memory.saved = savedBytes(sizes, memory.savedValues);

  const std::int64_t hidden =
      sizes.edgeTokens() * sizes.d * sizes.formats.compute;
  // The loss so far; the gradient that goes through the layers. A count that
  // is reduced is in the output, else beside it.
  const std::int64_t carried =
      kFloat + hidden + (sizes.data.empty() ? kCount : 0);
  memory.frames = {detail::headFrame(model, sizes), FramePeak()};
  for (const LayersUnder &each : sizes.recompute)
    if (FramePeak frame = detail::backwardFrame(model, sizes, each);
        each.layers > 0 && frame.frameBytes > memory.frames[1].frameBytes)
      memory.frames[1] = frame;
  // The last block's delta, and its other result where that is not saved.
  const std::int64_t flowing = sizes.savesInput() ? hidden : 2 * hidden;
  if (sizes.stages.areCut) {
    addSlots(memory, sizes, carried);
  } else {
    memory.frames[0].carriedBytes =
        carried + kFloat + flowing; // and this micro-batch's loss
    memory.frames[1].carriedBytes = carried + kFloat;
  }
  const Segment segments[] = {Segment::Head, Segment::Block};
  for (int i : {0, 1}) {
    memory.frames[i].gatheredBytes = storage.gathered(segments[i], i == 1);
    memory.frames[i].bucketBytes =
        storage.made(segments[i]) + storage.onTheirWay(segments[i]);
  }
  // Those of the head are waited for behind the first block, and in slots
  // before it.
  if (!sizes.stages.areCut)
    memory.frames[1].bucketBytes += storage.made(Segment::Head);
  std::erase_if(memory.frames, [&](const FramePeak &frame) {
    return frame.function == "head" ? !sizes.stages.hasHead : sizes.layers == 0;
  });
  if (memory.frames.empty())
    memory.frames.push_back({"embedding", "", 0, carried, 0, 0});
  memory.isPeakKnown =
      memory.frames.front().function != "embedding" && knowsPeak(sizes);
  return memory;
}
