#ifndef HEDDLE_STAGES_PASSES
#define HEDDLE_STAGES_PASSES

include "mlir/Pass/PassBase.td"

def CutStagesPass : Pass<"stages-cut", "::mlir::ModuleOp"> {
  let summary = "Make the loop over micro-batches a run of slots";
  let description = [{
    Takes the loop over micro-batches of `@step` apart: what leads to the last
    layer's result becomes the forward region of a `stage.run`, the rest its
    backward region, with loops over the layers of a chunk instead of all. The
    embedding runs where a chain begins, the head at the begin of backward where
    it ends. Between stages goes the sum of what blocks carry, where backward
    carries one gradient for all of it; of what is whole over axes within a
    stage each rank sends a part, and the receiving stage gathers it.

    Outside of the run, loops over layers become loops over the layers that a
    place holds; what belongs to parameters of embedding or head is done at
    their places alone, and a shared table's gradients are summed over both. Sums
    over all parameters, and the loss, are summed over the places.

    - Expects: `@step` of one rank (`collectives-partition`), a `stage.table`.
    - Leaves: the same step; states with layers have as many as a place holds.
    - Skips: modules without a table.
  }];
  let dependentDialects = ["::heddle::stage::StageDialect"];
}

def SplitBackwardPass : Pass<"stages-split-backward", "::mlir::ModuleOp"> {
  let summary = "Cut backward of a layer into input and weight gradients";
  let description = [{
    Cuts the function of a layer's backward in two: what leads to the gradient of
    its input, which another stage waits for, and the rest. The first stays in the
    backward region of `stage.run` and collects, per layer, what the second reads
    of it (and the gradient that came in, where that is read); the second makes
    the weight region. Results that the first half makes anyway stay with it.
    Head and embedding stay whole.

    - Expects: `stage.run` (`stages-cut`), collectives explicit: what crosses is
      then reduced or gathered already, and neither half does it again.
    - Leaves: the same step; `D` slots run both regions.
    - Skips: modules whose table has no `W` slot.
  }];
  let dependentDialects = ["::heddle::stage::StageDialect"];
}

#endif // HEDDLE_STAGES_PASSES
