#ifndef HEDDLE_PASSES_AUTODIFF_PASSES
#define HEDDLE_PASSES_AUTODIFF_PASSES

include "mlir/Pass/PassBase.td"

def BuildBackwardPass : Pass<"autodiff-build-backward", "::mlir::ModuleOp"> {
  let summary = "Give each segment its backward, and show what is saved for it";
  let description = [{
    Reverse mode over `GradientOpInterface`: the gradient of `v` is `d_v`, several
    gradients of one value are added. A segment becomes two functions, forward and
    backward; what the second needs of the first is a named result of it, with the
    ops that read it as the reason. A segment that ends in a loss stays one
    function, which also returns the gradients.

    Before:

    ```mlir
    func.func @scale(%x: tensor<4x8xf32> {transformer.as = "x"}, %w: tensor<8x8xf32> {transformer.as = "w", transformer.state = @w}) -> (tensor<4x8xf32> {transformer.as = "y"}) {
    ```

    After:

    ```mlir
    func.func @scale_bwd(%m: tensor<4x8xf32> {transformer.as = "m", transformer.saved = "m"}, %d_y: tensor<4x8xf32> {transformer.as = "d_y"}, %x: tensor<4x8xf32> {transformer.as = "x"}, %w: tensor<8x8xf32> {transformer.as = "w", transformer.state = @w}) -> (tensor<4x8xf32> {transformer.as = "d_x"}, tensor<8x8xf32> {transformer.as = "d_w", transformer.gradient_of = @w}) {
    ```

    - Expects: functions of one block, with named arguments and results.
    - Leaves: each function that has float arguments and float results beside a
      function `<name>_bwd`, or returning its gradients; names unique in each.
      Values nobody reads are gone.
    - Skips: functions that have been treated, that have a stack among their
      arguments, or nothing to differentiate. An op between arguments and results
      that has no gradient is an error.
  }];
  let dependentDialects = ["::heddle::transformer::TransformerDialect"];
}

def BuildStepPass : Pass<"autodiff-build-step", "::mlir::ModuleOp"> {
  let summary = "Write the whole training step as rolled loops";
  let description = [{
    `@step` counts the labels of all micro-batches, runs forward and backward of
    each, adds the gradients up in states, and updates the parameters. Its text
    does not grow with layers or micro-batches.

    Before:

    ```mlir
    module attributes {transformer.micro_batches = 2 : i64, transformer.optimizer = {kind = "sgd", weight_decay = 0.0 : f64}} {
    ```

    After, besides: per parameter the states of its gradient and of the optimizer, and

    ```mlir
    func.func @step(%tokens: !transformer.stack<2 x tensor<4x8xi32>> {transformer.as = "tokens"}, %labels: !transformer.stack<2 x tensor<4x8xi32>> {transformer.as = "labels"}, %positions: !transformer.stack<2 x tensor<4x8xi32>> {transformer.as = "positions"}, %documents: !transformer.stack<2 x tensor<4x8xi32>> {transformer.as = "documents"}, %learning_rate: tensor<f32> {transformer.as = "learning_rate"}) -> (tensor<f32> {transformer.as = "loss"}, tensor<i64> {transformer.as = "count"}, tensor<f32> {transformer.as = "gradient_norm"}) {
    ```

    - Expects: `@embedding`, `@block` and `@head` with their backward
      (`autodiff-build-backward` has run), `transformer.micro_batches` and
      `transformer.optimizer` on the module.
    - Leaves: `@step`; gradients are accumulated in `<parameter>.gradient_sum`,
      moved once to `<parameter>.gradient` after the last micro-batch, and only
      then measured and used. Weight decay stands only at parameters with `decay`.
    - Skips: a module that has `@step`.
  }];
  let dependentDialects = ["::heddle::transformer::TransformerDialect"];
}

#endif // HEDDLE_PASSES_AUTODIFF_PASSES
