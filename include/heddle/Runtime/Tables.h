//===- Tables.h - What the train main knows of a program: tables.bin ------===//
//
// Written by the emitter, read by runtime/train. Everything that depends on the
// model is here; the train main has no model knowledge.
//
// The file is one CBOR map. Every field below is a key of the same spelling in
// snake_case (`sequenceLength` -> "sequence_length"); a struct is a map, a
// vector an array, a pair an array of two. A field without a default must be
// there; unknown keys are an error, so that writer and reader cannot drift
// apart. Absent optional fields take the default written here.
// encodeTables() writes what decodeTables() reads.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_RUNTIME_TABLES_H
#define HEDDLE_RUNTIME_TABLES_H

#include "heddle/Runtime/heddle_rt.h"

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::runtime {

/// A tables.bin that cannot be used: which key, what was found, what was
/// expected.
struct TablesError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Where a value lies on a rank: `offset` bytes into arena `arena`, as
/// heddle_program_arena numbers them. The same on every rank of a stage.
struct Place {
  int32_t arena = 0;
  int64_t offset = 0;
  std::vector<int64_t> byStage = {}; ///< offsets, where stages differ

  int64_t offsetAt(int64_t stage) const {
    return byStage.empty() ? offset : byStage[size_t(stage)];
  }
};

/// Pipeline stages: the places over an axis of the mesh, each of which holds
/// some of the layers. All ranks run one program.
struct Stages {
  std::string axis; ///< empty: there are no stages
  /// Numbers of the layers that each stage holds, in the order in which they
  /// lie there.
  std::vector<std::vector<int64_t>> layers;
};

/// How a whole tensor is cut over ranks. Dimension i has `shape[i]` true
/// elements, is padded at its end to `padded[i]`, and cut into equal blocks
/// over `dims[i]`, axes of the mesh, outermost first; a rank holds
/// `local[i] = padded[i] / product of the sizes of dims[i]`. Over axes that
/// no dimension names the value is replicated.
///
/// A state may be stored as a row of `row` elements: its block, filled up with
/// zeros. Over the axes of `runs`, if there are any, the row is cut into equal
/// runs, and a rank holds one of them in place of its block.
struct Layout {
  std::vector<int64_t> shape;
  std::vector<int64_t> padded;
  std::vector<int64_t> local;
  std::vector<std::vector<std::string>> dims;
  std::vector<std::string> runs = {};
  int64_t row = 0; ///< 0: the block, not filled up
};

/// An input, filled by the train main before each step. The names it knows:
///
/// | name | dtype | whole shape | value |
/// | --- | --- | --- | --- |
/// | tokens | i32 | m x b x s | token ids; 0 in absent sequences |
/// | labels | i32 | m x b x s | -100 where not counted |
/// | documents | i32 | m x b x s | document number of each token; default 0 |
/// | positions | i32 | m x b x s | default 0, 1, 2, ... along s |
/// | token_numbers | i32 | m x b x s | 0, 1, 2, ... over the global batch |
/// | dropout_seed | i64 | scalar | of the step, Random.h: layer -1 |
/// | layer_dropout_seeds | i64 | layers | of each layer of the stage |
/// | learning_rate | f32 | scalar | by the schedule |
/// | step | i32 | scalar | 1 in the first step |
/// | bias_correction1, bias_correction2 | f32 | scalar | 1 / (1 - beta^t), t
/// is the step less those before it whose gradients overflowed |
/// | loss_scale | f32 | scalar | by what gradients are larger than they are |
///
/// m is micro_batches, b = global_batch / m (over all of dp), s is
/// sequence_length; `[j, i, :]` is sequence j * b + i of the global batch.
/// Padding of tokens is 0, of labels -100, of the others 0. A scalar has an
/// empty shape; layers are those of the stage with most.
struct Input : Place {
  heddle_rt_dtype dtype = HEDDLE_RT_F32;
  Layout layout; ///< its four keys stand in the same map as offset and dtype
};

/// A scalar that the program leaves after each step, equal on all ranks.
/// Known: "loss" (f32; required), "count" (i64; counted labels of the step),
/// "gradient_norm" (f32; before clipping).
struct Output : Place {
  heddle_rt_dtype dtype = HEDDLE_RT_F32;
};

struct Arena {
  std::string name;
  int64_t bytes = 0;                 ///< the most of any stage
  std::vector<int64_t> byStage = {}; ///< where stages differ

  int64_t bytesAt(int64_t stage) const {
    return byStage.empty() ? bytes : byStage[size_t(stage)];
  }
};

/// How the tensor stands in a checkpoint: a row-major tensor of `shape`. It is
/// the logical tensor with its dimensions permuted, then merged: cut `shape`
/// into the sizes s, where s[order[i]] = logical shape[i]; logical dimension i
/// is then dimension order[i] of that cut tensor.
/// Example, GPT-2's c_attn: logical [3, g, k, d], file [d, 3*g*k],
/// order [1, 2, 3, 0]. Empty `order`: the identity.
struct FileForm {
  std::vector<int64_t> shape;
  std::vector<int32_t> order;
};

/// Initial values. "normal": std * n, "zeros", "ones". n is
/// normalAt(seed, nameHash(name of the layer's tensor), flat index in the FILE
/// form), of Random.h: no layout shows in it. With --test-init parameters that
/// are "zeros" become 0.02 n and "ones" 1 + 0.1 n.
struct Initial {
  std::string type = "zeros";
  double std = 0;
};

/// A named state: one tensor per layer (or one in all).
struct State : Place {
  std::string name; ///< HF name; "{}" stands for the layer number
  /// "parameter", "gradient", "adam_m", "adam_v", ... States of one name are
  /// the same tensor's. At the end of a step a gradient is the whole sum over
  /// the global batch (reduced; before clipping).
  std::string kind;
  int64_t layers = 1; ///< instances; 1 where the name has no "{}"
  /// Where the name has no "{}": stages that hold it; empty: all.
  std::vector<int64_t> heldBy;
  heddle_rt_dtype dtype = HEDDLE_RT_F32;
  Layout layout;           ///< of one instance; keys in the same map
  bool inRow = false;      ///< `offset` is that of the whole row
  std::string letters;     ///< factor letters of shape, e.g. "g r k d"
  int64_t layerStride = 0; ///< bytes from one instance to the next
  FileForm file;
  Initial init;
  bool decay = false; ///< weight decay applies (information; kernels have it)

  /// Whether there is an instance for each layer.
  bool isByLayer() const { return name.find("{}") != std::string::npos; }
  /// The name of instance `i`: "{}" replaced by i.
  std::string instanceName(int64_t i) const;
};

struct Optimizer {
  std::string type; ///< "sgd", "adamw"
  double learningRate = 0;
  std::pair<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weightDecay = 0;
  double clipNorm = 0; ///< 0: no clipping
};

/// learning rate of step t (from 1). During the first `warmupSteps`
/// lr * t / warmupSteps; then "constant": lr; "cosine": from lr to finalLr
/// along half a cosine that ends at step `steps`, finalLr afterwards.
struct Schedule {
  std::string type = "constant";
  int64_t warmupSteps = 0;
  int64_t steps = 0;
  double finalLr = 0;
};

/// How the input `loss_scale` changes (TrainSettings.h, LossScaleSettings).
struct LossScaling {
  double initial = 65536;
  int64_t growthInterval = 2000;
  int64_t hysteresis = 1;
  double minimum = 1;
};

struct Tables {
  int64_t version = 1;
  std::string program; ///< name for people: model and plan
  std::vector<std::pair<std::string, int64_t>> mesh; ///< outermost first
  std::vector<Arena> arenas;
  Stages stages;
  std::map<std::string, Input> inputs;
  std::map<std::string, Output> outputs;
  std::vector<std::vector<std::string>> communicators; ///< lists of axes
  std::vector<State> states;
  Optimizer optimizer;
  Schedule schedule;
  LossScaling lossScaling; ///< of programs with that input
  int64_t sequenceLength = 0;
  int64_t globalBatch = 0; ///< sequences of one step
  int64_t microBatches = 1;
  int64_t vocabularySize = 0;
  int64_t seed = 1;
  double flopsPerStep = 0;       ///< of the model, all ranks; for MFU
  double peakFlopsPerDevice = 0; ///< 0: unknown, no MFU is shown

  int64_t ranks() const; ///< product of the mesh
  int64_t numStages() const;
  int64_t stageOf(int64_t rank) const;
  /// Of `layers` layers those that a stage holds, in the order in which they
  /// lie.
  std::vector<int64_t> layersAt(int64_t stage, int64_t layers) const;
  /// Instances of a state that a stage holds, likewise; how many they are.
  std::vector<int64_t> instancesAt(const State &state, int64_t stage) const;
  int64_t numInstancesAt(const State &state, int64_t stage) const;
};

/// A rank's place on each axis of the mesh, outermost first.
inline std::vector<int64_t>
coordinatesOf(const std::vector<std::pair<std::string, int64_t>> &mesh,
              int64_t rank) {
  std::vector<int64_t> at(mesh.size());
  for (size_t i = mesh.size(); i-- > 0;) {
    at[i] = rank % mesh[i].second;
    rank /= mesh[i].second;
  }
  return at;
}

/// Reads and checks: sizes agree, axes exist and no layout names one twice,
/// padded sizes divide, places lie in their arenas on each stage, every layer
/// is on a stage, names are not repeated.
/// \throws TablesError
Tables decodeTables(std::string_view cbor);
std::string encodeTables(const Tables &tables);

} // namespace heddle::runtime

#endif
