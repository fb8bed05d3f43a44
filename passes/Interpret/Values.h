//===- Values.h - parameters and batches to run with ------------*- C++ -*-===//

#ifndef HEDDLE_PASSES_INTERPRET_VALUES_H
#define HEDDLE_PASSES_INTERPRET_VALUES_H

#include "passes/Interpret/Interpret.h"

namespace heddle::interpret {

/// The name of one instance: "{}" replaced by the layer's number.
std::string getInstanceName(transformer::StateOp state, int64_t layer);

/// A parameter's value in tests, of whole type `type`: with n the standard
/// normal of the runtime's generator (seed, name of the instance, flat index in
/// the checkpoint's order), std n for a normal initializer, 0.02 n for zeros
/// (biases), 1 + 0.1 n for ones (norm weights); computed in fp32. Zeros and
/// ones themselves would hide faults.
Tensor makeTestParameter(transformer::StateOp state,
                         mlir::RankedTensorType type, int64_t layer,
                         uint64_t seed);

/// Gives a parameter a value, and its master, if it has one: each in its own
/// format.
mlir::LogicalResult setParameter(Machine &machine,
                                 transformer::StateOp parameter, int64_t layer,
                                 const Tensor &value);

/// Gives every parameter its value of `makeTestParameter`.
mlir::LogicalResult setTestParameters(Machine &machine, uint64_t seed);

/// The sequences of one step, each [sequences, length], in the order in which
/// the reference runs them.
struct Batch {
  Tensor tokens, labels, positions, documents;
};

/// Random tokens below `vocabulary`; labels are the next token, one in eight
/// and the last of each sequence not counted; every second sequence is packed
/// from two documents, whose positions begin at 0.
Batch makeTestBatch(int64_t sequences, int64_t length, int64_t vocabulary,
                    uint64_t seed);

/// What a step reads besides its batch. `step` counts from 1.
struct StepSettings {
  double learningRate = 0.1;
  int64_t step = 1;
  uint64_t seed = 0; ///< of dropout
};

/// By what the loss is scaled where @step of a module asks for it, else 1. The
/// states of gradients are that much larger than the gradients.
double lossScaleOf(mlir::ModuleOp module);

/// An instance of a state as it is without a scale of the loss; fails as
/// Machine::getState does.
mlir::FailureOr<Tensor> getUnscaled(Machine &machine,
                                    transformer::StateOp state, int64_t layer,
                                    std::string *fault = nullptr);

/// The arguments of @step of the machine's module, by name: `batch` cut into
/// its micro-batches in order, learning rate, loss scale, and the corrections
/// of AdamW from its own betas. Fails where the sizes do not fit.
mlir::FailureOr<Inputs> makeStepInputs(const Machine &machine,
                                       const Batch &batch,
                                       StepSettings settings);

/// Micro-batches, sequences of one, length: the whole shape of @step's tokens.
mlir::FailureOr<std::array<int64_t, 3>> getBatchShape(const Machine &machine);

/// The number of tokens that the loss tells apart.
mlir::FailureOr<int64_t> getVocabulary(mlir::ModuleOp module);

} // namespace heddle::interpret

#endif // HEDDLE_PASSES_INTERPRET_VALUES_H
