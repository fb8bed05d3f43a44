#ifndef HEDDLE_COLLECTIVES_PASSES
#define HEDDLE_COLLECTIVES_PASSES

include "mlir/Pass/PassBase.td"

def PartitionPass : Pass<"collectives-partition", "::mlir::ModuleOp"> {
  let summary = "Whole tensors with layouts become the program of one rank";
  let description = [{
    Every tensor takes the shape that one rank holds; every `dist.reshard` becomes
    the cheapest sequence of collectives by bytes (lib/Plan/Reshard), each with
    the reshard's cause in its location and a remark of its bytes in category
    `collectives`; an op that must know which part of a factor it has gets
    `shard`.

    Before:

    ```mlir
    %whole = dist.reshard %part : tensor<8x64xf32, #part> -> tensor<8x64xf32, #whole>
    ```

    After:

    ```mlir
    %whole = dist.all_reduce %part sum on #pod over ["tp"] : tensor<8x64xf32> -> tensor<8x64xf32>
    ```

    - Expects: a layout in every tensor type (`sharding-propagate-layouts`).
    - Leaves: no layout in a type and no reshard; `dist.layout` and `dist.global`
      (the whole type) on arguments and results of functions and on states.
    - Skips: nothing; a reshard that would change a stored size is an error.
  }];
  let dependentDialects = ["::heddle::dist::DistDialect"];
}

def VerifyCollectivesPass : Pass<"collectives-verify", "::mlir::ModuleOp"> {
  let summary = "Nothing moves data silently";
  let description = [{
    - Expects: `collectives-partition` has run.
    - Leaves: the module as it is. A layout in a type, a reshard, or an op that
      works on a part of a factor without saying which is an error.
  }];
}

#endif // HEDDLE_COLLECTIVES_PASSES
