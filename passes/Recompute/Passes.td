#ifndef HEDDLE_RECOMPUTE_PASSES
#define HEDDLE_RECOMPUTE_PASSES

include "mlir/Pass/PassBase.td"

def ReplaceSavedPass : Pass<"recompute-replace-saved", "::mlir::ModuleOp"> {
  let summary = "Compute values again in backward that forward would save";
  let description = [{
    `transformer.recompute` of the module says per layer which values of a block
    backward computes again. Each argument of backward that is such a value
    becomes a copy of the op of forward that makes it, in a
    `transformer.recompute` in front of the first op that reads it; what that op
    reads is computed again too, where it is listed, else saved instead. So no
    collective is repeated whose result is saved.

    Where input and weight gradients are apart, each half computes what it reads
    and does not find; products, attention and what collectives bring are
    computed by the first half alone, and kept for the second.

    Each distinct choice makes functions of its own. Where layers differ, calls
    become `transformer.call_by_layer`, and what a layer does not save it leaves
    undefined in the loop's stack, which has room for what layers do save.

    - Expects: `@step` of one rank (`collectives-partition`), cut into slots or
      not (`stages-cut`, `stages-split-backward`).
    - Leaves: the same step.
    - Skips: modules without the attribute, or whose lists have no effect.
  }];
  let dependentDialects = ["::heddle::stage::StageDialect"];
}

#endif // HEDDLE_RECOMPUTE_PASSES
