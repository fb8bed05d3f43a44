#ifndef HEDDLE_PRECISION_PASSES
#define HEDDLE_PRECISION_PASSES

include "mlir/Pass/PassBase.td"

def SetFormatsPass : Pass<"precision-set-formats", "::mlir::ModuleOp"> {
  let summary = "Give every value the format that the plan names";
  let description = [{
    `transformer.precision` of the module names four formats. Parameters,
    activations, what is saved and their gradients get `compute`; statistics (of
    norms, softmax and loss) and the loss stay f32; gradients of parameters and
    their sums get `gradients`. Where that is not the format that a reduction of
    gradients is to travel in, `reduce`, a cast stands before the reduction and
    one behind it. The optimizer updates a state of kind `master`, in the layout
    that it computes in, and the parameter is the master rounded.

    Before:

    ```mlir
    %w1 = transformer.sgd %w, %d_w, %rate, %factor {as = ["w1"], weight_decay = 0.000000e+00 : f64} : (tensor<8x8xf32>, tensor<8x8xf32>, tensor<f32>, tensor<f32>) -> tensor<8x8xf32>
    ```

    After:

    ```mlir
    %w_master = transformer.load @w.master : tensor<8x8xf32>
    %w1 = transformer.sgd %w_master, %d_w, %rate, %factor {weight_decay = 0.000000e+00 : f64} : (tensor<8x8xf32>, tensor<8x8xf32>, tensor<f32>, tensor<f32>) -> tensor<8x8xf32>
    %w1_rounded = transformer.cast %w1 : tensor<8x8xf32> -> tensor<8x8xbf16>
    ```

    - Expects: f32 everywhere; `@step` and its segments, with layouts or without.
    - Leaves: the same step in these formats; a `master` beside each parameter.
    - Skips: modules without `transformer.precision`.
  }];
  let dependentDialects = ["::heddle::transformer::TransformerDialect"];
}

def VerifyFormatsPass : Pass<"precision-verify-formats", "::mlir::ModuleOp"> {
  let summary = "Formats are those that the plan names, where it names them";
  let description = [{
    - Expects: what `precision-set-formats` leaves, on whole tensors or on one
      rank's.
    - Leaves: the module as it is. Errors: a state that has not the format of its
      kind; a statistic that is not f32; another result of a segment that has
      neither the format to compute in nor, as a parameter's gradient, that of
      gradients; a gradient that is reduced in another format than `reduce`; a
      partial sum that is cast to a format that no reduction is named to have; a
      parameter that is stored but is no rounded master.
    - Skips: modules without `transformer.precision`.
  }];
}

#endif // HEDDLE_PRECISION_PASSES
