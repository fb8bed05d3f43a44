//===- States.h - Parameters and optimizer states: in, out, compared ------===//

#ifndef RUNTIME_TRAIN_STATES_H
#define RUNTIME_TRAIN_STATES_H

#include "heddle/Support/Safetensors.h"

#include "runtime/train/Rank.h"

#include <functional>
#include <string>
#include <vector>

namespace heddle::train {

/// A file of weights, or all files of a folder.
class Weights {
public:
  static Result<Weights> open(const std::string &path);

  /// A tensor and the file it is in; null if there is none.
  struct Found {
    const SafetensorsFile *file = nullptr;
    const TensorEntry *tensor = nullptr;
  };
  Found find(const std::string &name) const;
  /// Every parameter of `tables` is there, in its file form, as floats.
  Result<void> check(const runtime::Tables &tables) const;
  /// Tensors of the files that no parameter has.
  std::vector<std::string> unused(const runtime::Tables &tables) const;

private:
  std::string path;
  std::vector<SafetensorsFile> files;
};

/// Fills all states of the rank: parameters from `weights` (null: by their
/// initial values, with random ones everywhere if `testInit`), the others by
/// their initial values; padding is zero.
heddle_rt_status fillStates(Rank &rank, const Weights *weights, bool testInit);

/// Reads what the rank stores of the `i`-th instance of its stage.
heddle_rt_status downloadStored(Rank &rank, const runtime::State &state,
                                int64_t i, const Extents &extents,
                                std::vector<float> &stored);

/// Writes it, in the state's format.
heddle_rt_status uploadStored(Rank &rank, const runtime::State &state,
                              int64_t i, const Extents &extents,
                              const std::vector<float> &stored);

/// Runs `step` with infinities all over the first parameter that the rank
/// stores any of, which is afterwards as it was before.
heddle_rt_status withInfinity(Rank &rank,
                              const std::function<heddle_rt_status()> &step);

struct ScalarTensor {
  std::string name;
  TensorType type;
  std::string bytes;
};
/// States of one kind in a file: their HF name with `prefix` before it, and by
/// what their values are divided.
struct SavedKind {
  std::string kind, prefix;
  double scale = 1;
};
/// Writes one safetensors file of all states of `kinds`, as f32 in their file
/// form, and `scalars`. Each rank writes its own share in place, of replicas
/// the first one. Collective.
heddle_rt_status writeStates(Rank &rank, const std::string &path,
                             const std::vector<SavedKind> &kinds,
                             const std::vector<ScalarTensor> &scalars);

} // namespace heddle::train

#endif
