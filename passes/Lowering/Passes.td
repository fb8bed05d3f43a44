#ifndef HEDDLE_LOWERING_PASSES
#define HEDDLE_LOWERING_PASSES

include "mlir/Pass/PassBase.td"

def LowerToRtPass : Pass<"lowering-lower-to-rt", "::mlir::ModuleOp"> {
  let summary = "The program of one rank: tensors become buffers, ops queued work";
  let description = [{
    Each segment becomes one function on buffers, the step one with loops.
    Contractions become matrix products; neighbouring elementwise and row-wise ops
    one kernel. Gradients are added to their sums where they are computed; what a
    loop carries keeps one home, or the entry that the iteration before has
    saved. Gradients are reduced on a stream of their own.

    Buffers have no offsets yet: all `rt.buffer`s of one name are one object, with
    `memory_class` saying what its bytes are for; `memory-place-buffers` places
    them.

    - Expects: `collectives-partition` has run; functions for segments, `@step`.
    - Leaves: one `rt.program` beside the `transformer.state`s.
    - Skips: nothing; a contraction that is not one matrix product is an error.
  }];
  let dependentDialects = ["::heddle::rt::RtDialect", "::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
}

#endif // HEDDLE_LOWERING_PASSES
