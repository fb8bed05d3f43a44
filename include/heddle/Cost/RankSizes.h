//===- RankSizes.h - What one rank has of a model under a plan --*- C++ -*-===//
//
// The sizes that all formulas of this library are written in, from model,
// settings and plan alone.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_COST_RANKSIZES_H
#define HEDDLE_COST_RANKSIZES_H

#include "heddle/Cost/Recompute.h"
#include "heddle/Model/Parameters.h"
#include "heddle/Model/TrainSettings.h"
#include "heddle/Plan/Plan.h"
#include "heddle/Plan/Scaling.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle {

/// Passes over a block that have a function each: weight gradients have one
/// where their slots run apart.
enum class BlockPass { Forward, Backward, Weights };

/// A parameter family as one rank computes with it.
struct RankParameter {
  ParameterFamily family;
  std::vector<std::int64_t> shape; ///< one instance's part, padding included
  AxisList axes;                   ///< that split it, in mesh order

  /// Whether backward, or weight gradients, of any layer compute something
  /// again that reads it.
  bool isReadAgain[2] = {false, false};

  std::int64_t elements() const; ///< of one instance's part
  /// Whether a function of backward reads it: not where it was added only, but
  /// that is computed again. The head's forward and backward are one function.
  bool isReadByBackward() const;
  /// The same of one pass over its block.
  bool isReadBy(BlockPass pass) const;
};

/// How a rank stores states and reduces gradients.
struct RankStorage {
  std::int64_t stage = 0; ///< of ZeRO; what is in runs over `shards`
  AxisList shards;        ///< axes whose ranks share one copy; none: all whole
  bool reducesEveryMicroBatch = false;
  PlanGather gather = PlanGather::EveryPass;
  bool overlaps = false; ///< buckets, with backward of earlier layers
  /// Layers that each pass gathers ahead, where a chunk has as many and one
  /// more.
  std::int64_t prefetch[3] = {0, 0, 0};
  std::int64_t ahead(BlockPass pass) const {
    return prefetch[static_cast<int>(pass)];
  }
  PlanBuckets buckets;

  bool sumsInRuns() const {
    return stage >= 2 && reducesEveryMicroBatch && !shards.empty();
  }
  bool parametersInRuns() const { return stage >= 3 && !shards.empty(); }
};

/// What a place over pp holds of the chain of stages. Without stages: all.
struct RankStages {
  bool areCut = false;    ///< whether slots of a schedule run
  std::int64_t place = 0; ///< over pp
  bool hasEmbedding = true, hasHead = true;
  /// Of the model: each runs an equal part of the micro-batches, and two ranks
  /// of pp, equally far from its ends, sum the gradients of both.
  std::int64_t copies = 1;
  /// Whether overlap reduces gradients beside slots: of copies only where those
  /// two ranks run theirs in one order.
  bool reducesInSlots = true;
  /// Chunks on one side of which the chain goes on, and of these those where it
  /// does at another place.
  struct Side {
    std::int64_t chunks = 0, elsewhere = 0;
  };
  Side next, previous;
  std::vector<std::int64_t> chunkLayers; ///< of each chunk of the place
  std::int64_t mostOfChunk = 0;          ///< layers, of any chunk of any place
  std::int64_t mostOfPlace = 0;          ///< the same of a place
  /// Whether W slots run apart from B, at any place.
  bool splitsBackward = false;
  /// Sets of what only input gradients read, and of what they leave for weight
  /// gradients.
  std::int64_t inputSets = 1, keptSets = 1;
  /// Most micro-batches in flight at once, over all chunks: saved sets. A chunk
  /// without layers has one while it runs forward.
  std::int64_t sets = 1;
  /// The same for what the head reads.
  std::int64_t headSets = 1;
  /// Buffers that receive.
  std::int64_t activationLandings = 0, gradientLandings = 0;
};

/// Bytes per element of what has no fixed format. Statistics, masters and the
/// optimizer's numbers are fp32.
struct RankFormats {
  std::int64_t compute = 4;   ///< parameters, what is computed, its gradients
  std::int64_t gradients = 4; ///< of parameters, and their sums
  std::int64_t reduce = 4;    ///< these on their way through a reduction
  bool hasMaster = false;     ///< of each parameter, in fp32
  /// How products of layers are of codes of 8 bits, if they are.
  std::optional<ScalingRecipe> scaling;
  /// Parameters, by argument, whose products are not in any layer.
  std::vector<std::string> plain;

  /// Whether products with a parameter are in some layer.
  bool scales(std::string_view argument) const {
    return scaling &&
           std::find(plain.begin(), plain.end(), argument) == plain.end();
  }
  bool delaysScales() const { return scaling && scaling->amaxHistory > 0; }
  bool castsToReduce() const { return gradients != reduce; }
};

/// One rank's share. Sizes are what is computed with: true sizes rounded up to
/// what the plan pads them to, divided by the axes that split them.
struct RankSizes {
  std::int64_t layers = 0;       ///< that the rank's place over pp holds
  std::int64_t microBatches = 0; ///< of a step
  std::int64_t b = 0;            ///< sequences of one micro-batch
  std::int64_t s = 0;            ///< tokens of a sequence
  std::int64_t d = 0;            ///< hidden
  std::int64_t g = 0;            ///< KV heads
  std::int64_t r = 0;            ///< query heads per KV head
  std::int64_t k = 0;            ///< head size
  std::int64_t f = 0;            ///< ffn
  std::int64_t kvHeads = 0;      ///< of the whole model, without padding
  std::int64_t length = 0;       ///< tokens of a sequence, without padding
  std::int64_t embeddingRows = 0, headRows = 0; ///< of the vocabulary

  AxisList data;      ///< axes that deal sequences out
  AxisList sequence;  ///< that cut each sequence between blocks
  AxisList heads;     ///< that split query heads: those of g, then those of r
  AxisList copies;    ///< those of r: KV heads are equal along them
  AxisList ffn;       ///< that split f
  AxisList embedding; ///< that split the rows of the embedding's table
  AxisList head;      ///< that split the logits
  AxisList split;     ///< that split any parameter, in mesh order

  /// Whether attention's matrices are values, and dropout's masks.
  bool unfusedAttention = false, savesMasks = false;
  /// Whether `selective` makes no inputs of products with parameters again.
  bool savesLinearInputs = false;
  /// Saved values that wait for backward on the host, by name, and how many
  /// layers' of each are on the device at a time.
  std::vector<std::string> offloaded;
  std::int64_t hostRows = 0;
  bool offloadsOptimizer = false; ///< its numbers are there too
  bool isOffloaded(std::string_view name) const;
  /// Whether backward finds a block's normed inputs (n1, n2) as its products
  /// read them; else it has parts along `sequence` and gathers them again.
  bool savesGathered[2] = {true, true};

  RankStages stages;
  /// Choices of the model's layers, in the order of the first that has each.
  std::vector<LayersUnder> recompute;
  /// Layers of each choice, by chunk of the place.
  std::vector<std::vector<std::int64_t>> choicesOfChunks;
  /// Whether all layers save the second norm's input, which goes on as it is.
  bool savesInput() const;
  /// Whether the head reads the embedding's table.
  bool isTied = false;
  RankStorage storage;
  RankFormats formats;
  /// As `parameters(model)` has them, those of the place.
  std::vector<RankParameter> parameters;
  std::vector<std::pair<std::string, std::int64_t>> mesh;

  std::int64_t tokens() const { return b * s; } ///< of one micro-batch
  /// Elements of attention's probabilities.
  std::int64_t probabilities() const { return tokens() * s * g * r; }
  /// Those that run through one copy of the model.
  std::int64_t microBatchesOfCopy() const {
    return microBatches / stages.copies;
  }
  /// Of these, what a rank has between blocks.
  std::int64_t edgeTokens() const { return tokens() / ranks(sequence); }
  /// Whether the gradient of values is left as parts of a sum along `copies`:
  /// where all that is made of it (gradients of attention's input and of the
  /// projection, in whole sizes) is smaller than itself, and no product scales
  /// its operands, which takes whole sums. Keys' gradient is
  /// rotated in between.
  bool valuesStayPartial() const;
  /// Axes along which all ranks have what goes from one stage to the next, so
  /// that each sends a part, and the next stage gathers them. None where no
  /// dimension divides.
  AxisList sentInParts() const;
  /// Elements that a rank sends from one stage to the next, or back.
  std::int64_t sentElements() const {
    return edgeTokens() * d / ranks(sentInParts());
  }
  /// Whether any axis splits KV heads.
  bool splitsKvHeads() const { return heads.size() > copies.size(); }
  /// Ranks along a list of axes.
  std::int64_t ranks(const AxisList &axes) const;
  /// Elements of one instance as the row that runs are cut from, and of a run:
  /// a multiple of 16.
  std::int64_t rowElements(const RankParameter &parameter) const;
  std::int64_t runElements(const RankParameter &parameter) const;
  /// Tensors of a layer that become codes: those that forward makes or is
  /// given, and gradients. Inputs of products, and for each its weight and the
  /// gradient of its result.
  std::array<std::int64_t, 2> scaledTensors() const;
  /// Bytes of all that a pass over one block reads, put together.
  std::int64_t unitBytes(BlockPass pass) const;
  /// The parameter of a segment with this short name, or null.
  const RankParameter *find(Segment segment, std::string_view argument) const;
};

/// The shares under \p plan. The formulas know layouts of one form: each of
/// attention, MLP, embedding and head is whole or split column-then-row (heads,
/// ffn, vocabulary); sequences are dealt out over dp; every parameter and saved
/// value is whole along the other factors. Where all of these parts are split
/// over tp, sequences may be cut over tp between blocks, and n1, n2 be saved
/// gathered. An error names the first parameter or rule of another form. With
/// stages: of the ranks at \p place over pp.
Result<RankSizes> rankSizes(const ModelConfig &model,
                            const TrainSettings &train, const Plan &plan,
                            std::int64_t place = 0);

/// The same at each place over pp.
Result<std::vector<RankSizes>> placeSizes(const ModelConfig &model,
                                          const TrainSettings &train,
                                          const Plan &plan);

/// Whether layers save what `offload.saved` names, where formulas know the
/// plan's layouts; else lowering finds out.
Result<void> checkOffload(const ModelConfig &model, const TrainSettings &train,
                          const Plan &plan);

} // namespace heddle

#endif // HEDDLE_COST_RANKSIZES_H
