#ifndef HEDDLE_MEMORY_PASSES
#define HEDDLE_MEMORY_PASSES

include "mlir/Pass/PassBase.td"

def PlaceBuffersPass : Pass<"memory-place-buffers", "::mlir::ModuleOp"> {
  let summary = "An offset for every buffer, in arenas of fixed size";
  let description = [{
    All `rt.buffer`s of one name are one object of memory. Parameters, gradients,
    optimizer state, inputs and outputs live from step to step and come first.
    What the step saves and computes is packed by lifetime; the temporaries of the
    functions it calls share one frame behind that, each function packed by
    lifetime.

    With `apart` nothing shares bytes with anything: ranges that such a program
    touches tell objects apart.

    - Expects: `lowering-lower-to-rt` has run; buffers may have been placed before.
    - Leaves: final offsets and the size of the arena; `getMemoryReport` then says
      live bytes at the peak, arena bytes, and every object with its reason.
    - Skips: nothing.
  }];
  let options = [
    Option<"apart", "apart", "bool", "false", "Each object has bytes of its own">,
  ];
}

#endif // HEDDLE_MEMORY_PASSES
