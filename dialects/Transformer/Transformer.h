//===- Transformer.h - the model and its step as ops ------------*- C++ -*-===//
//
// The one header of the transformer dialect.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_DIALECTS_TRANSFORMER_TRANSFORMER_H
#define HEDDLE_DIALECTS_TRANSFORMER_TRANSFORMER_H

#include "dialects/Dist/Dist.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"

#include "dialects/Transformer/TransformerDialect.h.inc"
#include "dialects/Transformer/TransformerEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/Transformer/TransformerAttrs.h.inc"

#define GET_TYPEDEF_CLASSES
#include "dialects/Transformer/TransformerTypes.h.inc"

namespace heddle::transformer {

class YieldOp;

/// Attribute of an op: the names of its results, one string each.
inline constexpr llvm::StringLiteral kNamesName = "as";
/// Attribute of a function's argument or result: its name.
inline constexpr llvm::StringLiteral kArgumentName = "transformer.as";
/// Attribute of an argument: the state that it is an instance of.
inline constexpr llvm::StringLiteral kStateName = "transformer.state";
/// Attribute of a result of forward and an argument of backward: the name under
/// which a value is saved, equal on both sides.
inline constexpr llvm::StringLiteral kSavedName = "transformer.saved";
/// The same of a value that the half of backward which makes gradients of
/// inputs keeps for the half which makes those of weights.
inline constexpr llvm::StringLiteral kKeptName = "transformer.kept";
/// Attribute of a result: the parameter state that it is the gradient of.
inline constexpr llvm::StringLiteral kGradientName = "transformer.gradient_of";

/// Names of the arguments that dropout reads: the numbers of the tokens in the
/// batch of the whole step, and the seed of the layer's masks in this step (of
/// @step: of what stands outside the layers).
inline constexpr llvm::StringLiteral kTokenNumbers = "token_numbers";
inline constexpr llvm::StringLiteral kDropoutSeed = "dropout_seed";
/// Argument of @step: one seed per layer.
inline constexpr llvm::StringLiteral kLayerDropoutSeeds = "layer_dropout_seeds";

/// Argument of @step: its number, from 1.
inline constexpr llvm::StringLiteral kStep = "step";

/// Attributes of a state: it lies in a range of memory with others of this
/// bucket, at this place among them.
inline constexpr llvm::StringLiteral kBucketName = "transformer.bucket";
inline constexpr llvm::StringLiteral kBucketIndexName =
    "transformer.bucket_index";

/// Attribute of a state whose module was lowered, a dictionary: "object" (the
/// object of memory that holds it), "offset" (bytes from its begin), "stride"
/// (bytes between layers), "elements" (that are stored there).
inline constexpr llvm::StringLiteral kPlaceName = "transformer.place";

/// Attribute of a saved result: the ops of backward that read it.
inline constexpr llvm::StringLiteral kReasonName = "transformer.reason";
/// Attribute of a module: micro-batches per step, i64.
inline constexpr llvm::StringLiteral kMicroBatchesName =
    "transformer.micro_batches";
/// Attribute of a module, a dictionary: `kind` ("adamw" or "sgd"),
/// `weight_decay`, for adamw `beta1`, `beta2` and `epsilon`, and `clip_norm`
/// where the gradient's norm has a limit. All numbers are f64.
inline constexpr llvm::StringLiteral kOptimizerName = "transformer.optimizer";

/// Attribute of a module, a dictionary of types: the formats that a plan names.
/// "compute" (parameters, activations and their gradients), "master" (what the
/// optimizer updates), "gradients" (their sums), "reduce" (gradients on their
/// way through a reduction over ranks). Absent: all is f32.
inline constexpr llvm::StringLiteral kPrecisionName = "transformer.precision";

/// Attribute of a module, a dictionary: what is kept in host memory. "saved",
/// an array of names, of values from forward to backward; "optimizer", a unit,
/// masters and what the optimizer has of parameters. Absent: nothing.
inline constexpr llvm::StringLiteral kOffloadName = "transformer.offload";

/// Attribute of a module, a unit: the step takes a number (f32) by which the
/// loss is multiplied where backward begins, and gradients with it. Behind them
/// `clip_factor` divides it out.
inline constexpr llvm::StringLiteral kLossScaledName =
    "transformer.loss_scaled";
/// The name of that number among the step's arguments and the head's.
inline constexpr llvm::StringLiteral kLossScale = "loss_scale";

/// Attribute of a module, an array of dictionaries: what backward computes
/// again of layers `first` to `last` (i64) instead of reading what forward
/// saved. Each has one of `values` (names, strings), `selective` and `full`
/// (units); `whole` (unit) beside one of these two: also what no op reads;
/// `linear_inputs` (unit): `selective` repeats no inputs of products with
/// parameters. Of several for a layer the last one counts. Absent: nothing.
inline constexpr llvm::StringLiteral kRecomputeName = "transformer.recompute";

/// The functions that an op calls: one of a call, several of a call by layer,
/// none of others.
llvm::SmallVector<llvm::StringRef> calleesOf(mlir::Operation *op);

/// The name of a value, "" where it has none.
llvm::StringRef getName(mlir::Value value);

/// Names the results of `op`.
void setNames(mlir::Operation *op, llvm::ArrayRef<std::string> names);

/// Makes the SSA names of an op's results those in its attribute `as`.
void nameResults(mlir::Operation *op, mlir::OpAsmSetValueNameFn setName);

/// Number of (query, key) pairs that attention computes in one sequence: with
/// positions 0, 1, ... key j is seen by query i where j <= i and i - j < window
/// (window 0: no limit). `queries` = `keys` = sequence length.
int64_t countAttentionPairs(int64_t queries, int64_t keys, int64_t window);

} // namespace heddle::transformer

#define GET_OP_CLASSES
#include "dialects/Transformer/TransformerOps.h.inc"

namespace heddle::transformer {

/// Where backward begins: builds the gradient of the step's loss by the logits
/// of the loss that `mean` averages. Returns the logits and their gradient,
/// which is `scale` times as large where one is given.
mlir::FailureOr<std::pair<mlir::Value, mlir::Value>>
buildLossGradient(mlir::OpBuilder &builder, MeanCountedOp mean,
                  mlir::Value scale);

} // namespace heddle::transformer

#endif // HEDDLE_DIALECTS_TRANSFORMER_TRANSFORMER_H
