//===- Compare.h - is one module the same step as another -------*- C++ -*-===//

#ifndef HEDDLE_PASSES_INTERPRET_COMPARE_H
#define HEDDLE_PASSES_INTERPRET_COMPARE_H

#include "passes/Interpret/Values.h"

#include <optional>

namespace heddle::interpret {

/// How far a tensor is from the reference. `relative`: L2 norm of the
/// difference / max(L2 norm of the reference, 1e-6 x norm of all tensors of its
/// kind); `largest`: largest difference of one element.
struct Difference {
  std::string name; // of the instance, as in checkpoints
  double relative = 0;
  double largest = 0;
};

struct CompareOptions {
  Reading reading = Reading::Exact;
  /// Of parameters and, where none is given, of the batch.
  uint64_t seed = 1;
  std::optional<Batch> batch;
  double learningRate = 0.1;
  /// Steps run one after another; what is compared is the last one's.
  int64_t steps = 1;
  /// Number of the first of them, from 1: AdamW's corrections depend on it.
  int64_t firstStep = 1;
};

struct StepComparison {
  double referenceLoss = 0, loss = 0, lossRelative = 0;
  int64_t referenceCount = 0, count = 0;
  double referenceNorm = 0, norm = 0, normRelative = 0;
  /// Before clipping; parameters and AdamW's moments after the step. Each worst
  /// first; a difference that is not a number is the worst.
  std::vector<Difference> gradients, parameters, moments;
  /// States of the candidate whose replicas or padding are not as they must be;
  /// they stand in no list.
  std::vector<std::string> faults;

  /// No fault, equal counts, everything else within `tolerance`.
  bool isEqual(double tolerance) const;
  /// People's text: loss, counts, faults, and the `atMost` worst of each list.
  std::string describe(unsigned atMost = 3) const;
};

/// Runs @step of both modules from equal parameters (`setTestParameters`) on
/// equal batches. The modules may be of any phases, and cut the batch into
/// micro-batches differently. Fails, after a message, where one cannot be run
/// or the candidate lacks a state of the reference.
mlir::FailureOr<StepComparison>
compareSteps(mlir::ModuleOp reference, mlir::ModuleOp candidate,
             const CompareOptions &options = {});

/// The same for machines whose states have been set.
mlir::FailureOr<StepComparison> compareSteps(Machine &reference,
                                             Machine &candidate,
                                             const Batch &batch,
                                             const CompareOptions &options);

/// Difference of two tensors of one shape, `norm` being that of all of its
/// kind.
Difference measureDifference(std::string name, const Tensor &reference,
                             const Tensor &candidate, double norm);

} // namespace heddle::interpret

#endif // HEDDLE_PASSES_INTERPRET_COMPARE_H
