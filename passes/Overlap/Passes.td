#ifndef HEDDLE_OVERLAP_PASSES
#define HEDDLE_OVERLAP_PASSES

include "mlir/Pass/PassBase.td"

def OverlapReductionsPass : Pass<"overlap-reductions", "::mlir::ModuleOp"> {
  let summary = "Reduce gradients while backward still runs";
  let description = [{
    Sums of gradients are complete after the last micro-batch. This pass takes that
    micro-batch out of the loop, and moves the reduction of each gradient from the
    end of the step to where the last contribution to it has been added: in the
    layer of a block, behind the head, behind the embedding. What follows in
    backward then no longer stands behind it. Where the step runs slots
    (`stage.run`), a reduction moves into the last slot of each chunk instead.

    - Expects: `@step` of one rank (`collectives-partition`); `dist.overlap` on the
      module with `reductions = true`.
    - Leaves: the same step; each gradient is still reduced once.
    - Skips: modules without; gradients that nothing reduces.
  }];
}

def BucketGradientsPass : Pass<"overlap-bucket-gradients", "::mlir::ModuleOp"> {
  let summary = "Put reductions of gradients that stand together into buckets";
  let description = [{
    Reductions of gradients that stand beside each other become one `dist.bucket`,
    closed where its bytes on this rank reach `bucket_bytes` of `dist.overlap`, at
    the edge of a call, and where the next reduction goes over other axes or in
    other steps. The sums of gradients of a bucket get one `bucket` attribute, by
    which they lie side by side in memory, in the order of `order` ("backward":
    as backward computes them, last parameters first; "forward").

    - Expects: `@step` of one rank.
    - Leaves: the same step; every collective on a gradient is in a bucket.
    - Skips: gradients that nothing reduces.
  }];
}

#endif // HEDDLE_OVERLAP_PASSES
