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
    that it computes in, and the parameter is the master rounded; where no
    `master` is named, it updates the parameter, and the update is rounded.

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
    - Leaves: the same step in these formats; a `master` beside each parameter; on
      products that are to be scaled, the axes that cut their operands. Errors: a
      block of scales of which several ranks hold parts.
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
      parameter that is stored but is no rounded master, or, without masters, is
      no updated one.
    - Skips: modules without `transformer.precision`.
  }];
}

def QuantizeProductsPass : Pass<"precision-quantize-products", "::mlir::ModuleOp"> {
  let summary = "Operands of products become codes of 8 or 4 bits with scales";
  let description = [{
    Of each product that carries `transformer.scaled`, on one rank's tensors. An
    operand's largest magnitude is taken over the ranks that hold its parts
    (`transformer.scale_axes`), its codes and scale are made, and the product
    is one of codes in which both operands have last what is summed over: the one
    form that GPUs multiply. So a tensor that two products sum over differently
    is there as codes twice, the second ones turned. Codes live between the kernel
    that makes them and the last product: nothing of them is saved for backward,
    which makes them anew of the same bits. With blocks in the mark nothing is asked of
    other ranks, unless the tensor has a scale, too: each block finds its own in
    `quantize`. Operands of which the mark has signs are mixed by `hadamard` before;
    with a site the left one is rounded at random, by the contract's noise.

    Before:

    ```mlir
    %h = transformer.contract "b s d, f d -> b s f" %n2, %wg {transformer.scale_axes = [[], ["tp"]], transformer.scaled = {formats = [f8E4M3FN, f8E4M3FN]}} : (tensor<2x32x64xbf16>, tensor<48x64xbf16>) -> tensor<2x32x48xbf16>
    ```

    After:

    ```mlir
    %n2_amax = transformer.amax %n2 : (tensor<2x32x64xbf16>) -> tensor<f32>
    %n2_codes, %n2_scale = transformer.quantize %n2, %n2_amax : (tensor<2x32x64xbf16>, tensor<f32>) -> (tensor<2x32x64xf8E4M3FN>, tensor<f32>)
    %wg_amax = transformer.amax %wg : (tensor<48x64xbf16>) -> tensor<f32>
    %wg_most = dist.all_reduce %wg_amax max on #mesh over ["tp"] : tensor<f32> -> tensor<f32>
    %wg_codes, %wg_scale = transformer.quantize %wg, %wg_most : (tensor<48x64xbf16>, tensor<f32>) -> (tensor<48x64xf8E4M3FN>, tensor<f32>)
    %g = transformer.contract "b s d, f d -> b s f" %n2_codes, %wg_codes scaled %n2_scale, %wg_scale : (tensor<2x32x64xf8E4M3FN>, tensor<48x64xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<2x32x48xbf16>
    ```

    - Expects: one rank's tensors; what is computed again in its regions.
    - Leaves: no `transformer.scaled`. Errors: a product whose summed dimensions
      stand neither first nor last in an operand.
    - Skips: modules whose products carry no such mark.
  }];
  let dependentDialects = ["::heddle::dist::DistDialect", "::heddle::transformer::TransformerDialect"];
}

def DelayScalesPass : Pass<"precision-delay-scales", "::mlir::ModuleOp"> {
  let summary = "Scales are made of earlier steps' largest magnitudes";
  let description = [{
    What `transformer.delayed_scaling` asks for. A layer has states: a history of
    the largest magnitudes of each tensor that becomes codes, those that scales of
    this step are made of, and this step's so far. The layer's functions take the
    second and return what they find: forward of activations and parameters, the
    first half of backward of gradients. All micro-batches' count; at the end of
    the step the largest over all ranks that share the layer (those of data and
    copies of the model among them) go into the history, once
    (`transformer.delay_scales`). So nothing is asked of other ranks where codes are
    made, and what is computed again has the scales that it had: they do not change
    within a step.

    Before:

    ```mlir
    %n2_amax = transformer.amax %n2 {transformer.tensor = "n2"} : (tensor<2x32x64xbf16>) -> tensor<f32>
    %n2_most = dist.all_reduce %n2_amax max on #mesh over ["tp"] : tensor<f32> -> tensor<f32>
    %n2_codes, %n2_scale = transformer.quantize %n2, %n2_most : (tensor<2x32x64xbf16>, tensor<f32>) -> (tensor<2x32x64xf8E4M3FN>, tensor<f32>)
    ```

    After, where `%forward_amax` is an argument and `%forward_now` a result:

    ```mlir
    %n2_before, %wg_before = transformer.split_tensors %forward_amax : (tensor<2xf32>) -> (tensor<f32>, tensor<f32>)
    %n2_amax = transformer.amax %n2 : (tensor<2x32x64xbf16>) -> tensor<f32>
    %n2_codes, %n2_scale = transformer.quantize %n2, %n2_before : (tensor<2x32x64xbf16>, tensor<f32>) -> (tensor<2x32x64xf8E4M3FN>, tensor<f32>)
    %forward_now = transformer.stack_tensors %n2_amax, %wg_amax : (tensor<f32>, tensor<f32>) -> tensor<2xf32>
    ```

    - Expects: what `precision-quantize-products` leaves, and a step.
    - Leaves: no `transformer.tensor`; @step has an argument `step`. Errors: no
      parameters of layers, no history, no loop over layers behind the
      clip_factor.
    - Skips: modules without `transformer.delayed_scaling`.
  }];
  let dependentDialects = ["::heddle::dist::DistDialect", "::heddle::transformer::TransformerDialect"];
}

#endif // HEDDLE_PRECISION_PASSES
