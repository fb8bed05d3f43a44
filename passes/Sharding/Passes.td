#ifndef HEDDLE_SHARDING_PASSES
#define HEDDLE_SHARDING_PASSES

include "mlir/Pass/PassBase.td"

def KeepGatheredPass : Pass<"sharding-keep-gathered", "::mlir::ModuleOp"> {
  let summary = "Keep parameters that are stored in runs whole for a while";
  let description = [{
    A parameter in runs is gathered for each call that takes it: that is what
    propagation makes of it, once in forward and once in backward. Where
    `dist.storage` asks to gather once per micro-batch or once per step, each
    parameter gets a second state, its whole copy, of kind `gathered`: it is filled
    in front of the first call of a micro-batch, or at the begin of the step, and
    calls read it.

    - Expects: `@step` of passes/Autodiff, `dist.storage`.
    - Leaves: the same step, in which calls load `@NAME.gathered`.
    - Skips: modules without parameters in runs.
  }];
}

def PropagateLayoutsPass : Pass<"sharding-propagate-layouts", "::mlir::ModuleOp"> {
  let summary = "Give every value a layout, from what the plan pins";
  let description = [{
    One walk over the functions in order, one op at a time, by factor rules alone;
    no parallelism has a case of its own. Per op each factor takes its axes from
    the first of: what the plan pins; a parameter; for the gradient of a
    parameter, that parameter; the other operands in order. Operands that have
    another layout get one `dist.reshard` per value and layout, shared by later
    uses; results get the layout that follows.

    A partial sum is reduced where an op is not linear in it, or where it would
    not become smaller; a gradient that has to be reduced is reduced to the layout
    of its forward value.

    - Expects: `dist.mesh` on the module; `dist.layout` on states of parameters
      and optimizers; `dist.values` on the module, from names (`block.x`,
      `tokens`) to layouts: at least the edges of segments and the inputs of the
      step (written by passes/Planning).
    - Leaves: a layout in every tensor type of every function, and in the types of
      states. `x`, `delta` and their gradients are never partial at a segment's
      edge; gradients of parameters are partial as they come.
    - Skips: nothing; an op without a factor rule is an error.
  }];
  let dependentDialects = ["::heddle::dist::DistDialect"];
}

def VerifyLayoutsPass : Pass<"sharding-verify-layouts", "::mlir::ModuleOp"> {
  let summary = "No op touches a layout that it knows nothing of";
  let description = [{
    - Expects: layouts in types.
    - Leaves: the module as it is. An op without a factor rule that has a tensor
      with a layout is an error, as is a partial sum that leaves or enters a
      segment in place of `x`, `delta` or their gradients.
  }];
}

#endif // HEDDLE_SHARDING_PASSES
