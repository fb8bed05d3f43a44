#include "heddle/Cost/LiveMemory.h"

#include "Frames.h"
#include "Reductions.h"
#include "Storage.h"

#include <algorithm>

using namespace heddle;
using heddle::detail::kFloat;

std::int64_t heddle::stackBytes(std::int64_t bytes, std::int64_t entries) {
  // Nothing is behind the last entry.
  return detail::alignBytes(bytes) * (entries - 1) + bytes;
}

const FramePeak &LiveMemory::peak() const {
  return *std::max_element(frames.begin(), frames.end(),
                           [](const FramePeak &a, const FramePeak &b) {
                             return a.bytes() < b.bytes();
                           });
}

std::int64_t LiveMemory::peakBytes() const {
  return parameters + gradients + optimizer + inputs + outputs + saved +
         peak().bytes();
}

namespace {

/// Collects what backward reads, in the order in which forward makes it.
class Saved {
public:
  Saved(const ModelConfig &model, const RankSizes &sizes)
      : model(model), sizes(sizes), rows(sizes.tokens() * kFloat),
        edgeRows(sizes.edgeTokens() * kFloat) {}

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
      add(name + "_mean", "gradient of the " + which, edgeRows);
    add(name + "_rstd", "gradient of the " + which, edgeRows);
  }

  void attention() {
    const std::int64_t keys = rows * sizes.g * sizes.k;
    const std::int64_t queries = keys * sizes.r;
    if (model.qkNorm) {
      add("q", "input of the queries' norm", queries);
      add("qn_rstd", "gradient of the queries' norm", rows * sizes.g * sizes.r);
      add("k", "input of the keys' norm", keys);
      add("kn_rstd", "gradient of the keys' norm", rows * sizes.g);
    }
    const std::string rotated = model.position == PositionKind::Rope ? "r" : "";
    add("q" + rotated, "gradient of attention", queries);
    add("k" + rotated, "gradient of attention", keys);
    add("v", "gradient of attention", keys);
    add("o", "input of the output projection; gradient of attention", queries);
    add("lse", "gradient of attention", rows * sizes.g * sizes.r);
  }

  const ModelConfig &model;
  const RankSizes &sizes;
  const std::int64_t rows;     ///< bytes of one number per token
  const std::int64_t edgeRows; ///< the same of the tokens between blocks
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

LiveMemory heddle::liveMemory(const ModelConfig &model,
                              const TrainSettings &train,
                              const RankSizes &sizes) {
  constexpr std::int64_t kCount = 8, kIdentifier = 4; // integers
  const bool isAdamW = train.optimizer.kind == OptimizerKind::AdamW;
  const detail::Storage storage(sizes);
  LiveMemory memory;
  memory.parameters = storage.parameters();
  memory.gradients = storage.gradients();
  memory.optimizer = isAdamW ? 2 * storage.optimizer() : 0;
  // Tokens, labels, positions, documents: each one tensor of all micro-batches.
  // Learning rate, bias corrections.
  memory.inputs = 4 * sizes.tokens() * kIdentifier * sizes.microBatches +
                  (isAdamW ? 3 : 1) * kFloat;
  // Masks are drawn from the tokens' numbers and a seed per layer, and one for
  // what stands before the layers.
  if (model.dropout.any())
    memory.inputs += sizes.tokens() * kIdentifier * sizes.microBatches;
  if (model.dropout.embedding > 0)
    memory.inputs += kCount;
  if (model.dropout.attention > 0 || model.dropout.residual > 0)
    memory.inputs += kCount * sizes.layers;
  memory.outputs = kFloat + kCount + kFloat;

  memory.microBatchLoops = detail::peelsLastMicroBatch(sizes) ? 2 : 1;
  memory.savedValues = savedPerLayer(model, sizes);
  for (const SavedValue &value : memory.savedValues)
    memory.saved += stackBytes(value.bytes, value.entries);

  const std::int64_t hidden = sizes.edgeTokens() * sizes.d * kFloat;
  // The loss so far and of this micro-batch; the gradient that goes through
  // the layers. A count that is reduced is in the output, else beside it.
  const std::int64_t carried =
      2 * kFloat + hidden + (sizes.data.empty() ? kCount : 0);
  memory.frames = {detail::headFrame(model, sizes),
                   detail::backwardFrame(model, sizes)};
  memory.frames[0].carriedBytes = carried + hidden; // delta of the last block
  memory.frames[1].carriedBytes = carried;
  const Segment segments[] = {Segment::Head, Segment::Block};
  for (int i : {0, 1}) {
    memory.frames[i].gatheredBytes = storage.gathered(segments[i], i == 1);
    memory.frames[i].bucketBytes = storage.made(segments[i]);
  }
  // Those of the head are waited for behind the first block.
  memory.frames[1].bucketBytes += storage.made(Segment::Head);
  return memory;
}
