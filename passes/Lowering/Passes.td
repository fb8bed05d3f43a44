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
    - Skips: nothing; a contraction of which no loops over matrix products can be made is an error.
  }];
  let dependentDialects = ["::heddle::rt::RtDialect", "::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
}

def VerifyOrderPass : Pass<"lowering-verify-order", "::mlir::ModuleOp"> {
  let summary = "No two pieces of work that touch the same bytes are unordered";
  let description = [{
    Walks the step with concrete numbers for layers, micro-batches and, where
    addresses depend on it, ranks, keeping a vector clock per stream. An error
    names both parties and the event that is missing. The same for work that may
    run before the step begins or after it ends, and for a wait for an event that
    this step has not recorded. A wait that never orders anything is a warning.

    Example:

    ```mlir
    rt.gemm "down" %h = %x * %w on "compute" m 4 n 8 k 8 lda 8 ldb 8 ldc 8 : !rt.buf<4x8xf32>, !rt.buf<4x8xf32>, !rt.buf<8x8xf32>
    rt.all_reduce "down" sum %h -> %h over ["tp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
    ```

    is refused: 'down' on stream 'comm' writes what 'down' on stream 'compute'
    writes; no event orders them.

    - Expects: buffers have their offsets.
    - Leaves: the module as it is.
    - Skips: nothing.
  }];
}

def VerifyArenasPass : Pass<"lowering-verify-arenas", "::mlir::ModuleOp"> {
  let summary = "Buffers lie in their arena and on no buffer that is alive";
  let description = [{
    Walks two steps in program order. Each byte remembers which buffer it was
    last written as; who reads it must be the same one: of the same name, and one
    within the other. So a buffer placed on another that is still to be read is
    an error at that read, and names both. Buffers whose `memory_class` is
    "saved", "workspace" or "communication" must be written before they are read,
    and what is saved must be read before it is written anew: two micro-batches
    that hold one set of saved values at once are an error.
    Every access lies in its buffer, every buffer in its arena.

    Independent of what places buffers: it knows no lifetimes but those that
    accesses show.

    - Expects: buffers have their offsets.
    - Leaves: the module as it is.
    - Skips: order across streams, which `lowering-verify-order` checks.
  }];
}

def VerifyLaunchesPass : Pass<"lowering-verify-launches", "::mlir::ModuleOp"> {
  let summary = "No ranks wait for each other's collectives for ever";
  let description = [{
    Kernels of one communicator block those of others: where one rank launches A
    before B and another one B before A, both wait for ever. So members of a
    group must launch the same in one order, and the orders of all ranks, taken
    together, must not go round. Walks collectives and messages of all
    iterations; those of one `rt.group` have no order among themselves. An error names a smallest
    cycle, launch by launch, or the first launch in which two members differ.

    All ranks run one text; what they launch differs by `rt.switch` and by
    bounds of loops, so a rank of each stage is walked.

    Example: one of two stages has

    ```mlir
    rt.all_reduce "grad" sum %x -> %x over ["pp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
    rt.all_reduce "norm" sum %x -> %x over ["pp", "tp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
    ```

    and the other one has them the other way round: ranks would wait for each
    other for ever. So would two stages that both send first.

    - Expects: nothing.
    - Leaves: the module as it is.
    - Skips: streams and events, which order work of one rank only.
  }];
}

#endif // HEDDLE_LOWERING_PASSES
