#ifndef HEDDLE_DIST_OPS
#define HEDDLE_DIST_OPS

include "dialects/Dist/DistAttrs.td"
include "dialects/Dist/DistInterfaces.td"
include "mlir/IR/EnumAttr.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Dist_ReductionSum : I32EnumAttrCase<"Sum", 0, "sum">;
def Dist_ReductionMax : I32EnumAttrCase<"Max", 1, "max">;
def Dist_Reduction : I32EnumAttr<"Reduction", "how partial values become whole",
                                 [Dist_ReductionSum, Dist_ReductionMax]> {
  let cppNamespace = "::heddle::dist";
}

class Dist_Op<string mnemonic, list<Trait> traits = []>
    : Op<Dist_Dialect, mnemonic, traits>;

def Dist_ReshardOp : Dist_Op<"reshard", [Pure]> {
  let summary = "The same value in another layout";
  let description = [{
    Moves a value from the layout of its operand to that of its result; the
    value is the same. Which collectives that takes is found later, by search.
    Why it is needed is part of the location.

    Constraints:

    - (C1) operand and result have the same shape and element type;
    - (C2) both have a layout, on one mesh;
    - (C3) a partial maximum does not become a partial sum, nor the reverse.

    Example:

    ```mlir
    %whole = dist.reshard %part : !part -> !whole
    ```
  }];
  let arguments = (ins AnyStaticShapeTensor:$input);
  let results = (outs AnyStaticShapeTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}

class Dist_CollectiveOp<string mnemonic, list<Trait> traits = []>
    : Dist_Op<mnemonic, !listconcat([Pure], traits)> {
  let results = (outs AnyStaticShapeTensor:$result);
  let hasVerifier = 1;
}

def Dist_AllReduceOp : Dist_CollectiveOp<"all_reduce"> {
  let summary = "Every rank of a group gets the sum or the maximum";
  let description = [{
    Ranks that agree on every axis but `axes` form a group of `n`. Each gets the
    element-by-element sum (or maximum) of the group's inputs, in equal bits.

    Constraints: (C1) every name in `axes` is an axis of `mesh`, and none
    repeats; (C2) the result has the type of the input.

    Bytes sent per rank: `2 (n - 1) / n` of the input.

    ```mlir
    %sum = dist.all_reduce %x sum on #pod over ["tp"] : tensor<8x64xf32> -> tensor<8x64xf32>
    ```
  }];
  let arguments = (ins AnyStaticShapeTensor:$input, Dist_Reduction:$reduction,
                       Dist_MeshAttr:$mesh, StrArrayAttr:$axes);
  let assemblyFormat = "$input $reduction `on` $mesh `over` $axes attr-dict `:` type($input) `->` type($result)";
}

def Dist_ReduceScatterOp : Dist_CollectiveOp<"reduce_scatter"> {
  let summary = "Sum over a group; each rank keeps one slice";
  let description = [{
    Adds the group's inputs element by element and leaves slice `r` of the sum,
    cut along `dim` into `n` equal parts, on the rank whose position in the group
    is `r`. Position in a group follows the order of `axes`: the last one is
    fastest.

    Constraints:

    - (C1) every name in `axes` is an axis of `mesh`, and none repeats;
    - (C2) `dim` is less than the rank of the input;
    - (C3) `n` divides the size of the input along `dim`;
    - (C4) the result has the type of the input with that size divided by `n`.

    Bytes sent per rank: `(n - 1) / n` of the input.

    ```mlir
    %own = dist.reduce_scatter %x sum on #pod over ["tp"] dim 0 : tensor<8x64xf32> -> tensor<2x64xf32>
    ```

    With two ranks and four elements each:

    ```
              rank 0         rank 1
    input     1  2  3  4     10 20 30 40
    result    11 22          33 44
    ```
  }];
  let arguments = (ins AnyStaticShapeTensor:$input, Dist_Reduction:$reduction,
                       Dist_MeshAttr:$mesh, StrArrayAttr:$axes,
                       ConfinedAttr<I64Attr, [IntNonNegative]>:$dim);
  let assemblyFormat = "$input $reduction `on` $mesh `over` $axes `dim` $dim attr-dict `:` type($input) `->` type($result)";
}

def Dist_AllGatherOp : Dist_CollectiveOp<"all_gather"> {
  let summary = "Every rank of a group gets all slices, side by side";
  let description = [{
    The result is the inputs of the group laid side by side along `dim`, in the
    order of their positions in the group.

    Constraints: (C1) and (C2) as `reduce_scatter`; (C4) the result has the type
    of the input with the size along `dim` multiplied by `n`.

    Bytes sent per rank: `(n - 1)` times the input.

    ```mlir
    %all = dist.all_gather %x on #pod over ["tp"] dim 0 : tensor<2x64xf32> -> tensor<8x64xf32>
    ```
  }];
  let arguments = (ins AnyStaticShapeTensor:$input, Dist_MeshAttr:$mesh,
                       StrArrayAttr:$axes,
                       ConfinedAttr<I64Attr, [IntNonNegative]>:$dim);
  let assemblyFormat = "$input `on` $mesh `over` $axes `dim` $dim attr-dict `:` type($input) `->` type($result)";
}

def Dist_AllToAllOp : Dist_CollectiveOp<"all_to_all"> {
  let summary = "Gather one dimension while cutting another";
  let description = [{
    Each rank cuts its input along `to_dim` into `n` parts, sends part `r` to the
    rank at position `r`, and lays what it receives side by side along `dim`.

    Constraints: (C1) as `reduce_scatter`; (C2) `dim` and `to_dim` are different
    dimensions of the input; (C3) `n` divides the size along `to_dim`; (C4) the
    result has the size along `dim` multiplied, along `to_dim` divided by `n`.

    Bytes sent per rank: `(n - 1) / n` of the input.

    ```mlir
    %moved = dist.all_to_all %x on #pod over ["tp"] dim 0 to_dim 1 : tensor<2x64xf32> -> tensor<8x16xf32>
    ```
  }];
  let arguments = (ins AnyStaticShapeTensor:$input, Dist_MeshAttr:$mesh,
                       StrArrayAttr:$axes,
                       ConfinedAttr<I64Attr, [IntNonNegative]>:$dim,
                       ConfinedAttr<I64Attr, [IntNonNegative]>:$toDim);
  let assemblyFormat = "$input `on` $mesh `over` $axes `dim` $dim `to_dim` $toDim attr-dict `:` type($input) `->` type($result)";
}

def Dist_PermuteOp : Dist_CollectiveOp<"permute"> {
  let summary = "Each rank of a group receives the tile of one other";
  let description = [{
    The rank at position `i` of a group over `axes` receives the input of the
    rank at position `sources[i]`.

    Constraints: (C1) every name in `axes` is an axis of `mesh`, and none
    repeats; (C2) `sources` is a permutation of the positions; (C3) the result
    has the element type and the number of elements of the input.

    Bytes sent per rank: the input, 0 where a rank keeps its own tile.

    ```mlir
    %other = dist.permute %x on #pod over ["dp"] from [1, 0] : tensor<8xf32> -> tensor<8xf32>
    ```
  }];
  let arguments = (ins AnyStaticShapeTensor:$input, Dist_MeshAttr:$mesh,
                       StrArrayAttr:$axes, DenseI64ArrayAttr:$sources);
  let assemblyFormat = "$input `on` $mesh `over` $axes `from` $sources attr-dict `:` type($input) `->` type($result)";
}

def Dist_SliceOp : Dist_CollectiveOp<"slice"> {
  let summary = "Each rank of a group keeps its own slice of a whole value";
  let description = [{
    Moves no bytes. Constraints (C1) to (C4) as `reduce_scatter`.

    ```mlir
    %own = dist.slice %sum on #pod over ["tp"] dim 0 : tensor<8x64xf32> -> tensor<2x64xf32>
    ```
  }];
  let arguments = (ins AnyStaticShapeTensor:$input, Dist_MeshAttr:$mesh,
                       StrArrayAttr:$axes,
                       ConfinedAttr<I64Attr, [IntNonNegative]>:$dim);
  let assemblyFormat = "$input `on` $mesh `over` $axes `dim` $dim attr-dict `:` type($input) `->` type($result)";
}

def Dist_MakePartialOp : Dist_CollectiveOp<"make_partial"> {
  let summary = "A whole value as a sum over a group: kept on its first rank, zero elsewhere";
  let description = [{
    Moves no bytes. Constraints (C1) and (C2) as `all_reduce`.

    ```mlir
    %part = dist.make_partial %bias on #pod over ["tp"] : tensor<64xf32> -> tensor<64xf32>
    ```
  }];
  let arguments = (ins AnyStaticShapeTensor:$input, Dist_MeshAttr:$mesh,
                       StrArrayAttr:$axes);
  let assemblyFormat = "$input `on` $mesh `over` $axes attr-dict `:` type($input) `->` type($result)";
}

def Dist_ToRowOp : Dist_Op<"to_row", [Pure]> {
  let summary = "A tensor as one row of elements, filled up with zeros";
  let description = [{
    Moves no bytes: elements stay in row-major order. A row is what runs are cut
    from (`runs` of a layout).

    Constraints: (C1) the result has one dimension, the input's element type and
    at least as many elements as the input.

    ```mlir
    %row = dist.to_row %w : tensor<5x3xf32> -> tensor<16xf32>
    ```
  }];
  let arguments = (ins AnyStaticShapeTensor:$input);
  let results = (outs AnyStaticShapeTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}

def Dist_FromRowOp : Dist_Op<"from_row", [Pure]> {
  let summary = "The tensor that a row begins with";
  let description = [{
    The inverse of `to_row`: what the row was filled up with is dropped.

    Constraints: (C1) as `to_row`, the other way round.

    ```mlir
    %w = dist.from_row %row : tensor<16xf32> -> tensor<5x3xf32>
    ```
  }];
  let arguments = (ins AnyStaticShapeTensor:$input);
  let results = (outs AnyStaticShapeTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}

def Dist_BucketOp : Dist_Op<"bucket", [
    SingleBlock, NoTerminator, NoRegionArguments, RecursiveMemoryEffects]> {
  let summary = "Collectives that go together";
  let description = [{
    What is inside runs as if it stood outside. Its collectives are moved as few
    messages as can be (all-reduces of neighbouring bytes as one), on a stream of
    their own: what follows waits for them only where it touches what they do.
    A bucket of gradients is one range of memory: states with one `bucket`
    attribute lie side by side.

    ```mlir
    dist.bucket "block.0" {
    }
    ```
  }];
  let arguments = (ins StrAttr:$name);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$name attr-dict-with-keyword $body";
}

#endif // HEDDLE_DIST_OPS
