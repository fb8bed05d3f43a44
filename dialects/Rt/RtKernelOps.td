#ifndef HEDDLE_RT_KERNEL_OPS
#define HEDDLE_RT_KERNEL_OPS

// Included by RtOps.td: kernels, what an emitted functor is made from.

def Rt_KernelOp : Rt_Op<"kernel", [
    IsolatedFromAbove, Symbol, SingleBlock,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>,
    HasParent<"ProgramOp">]> {
  let summary = "A small function on fp32 values, and the loop around it";
  let description = [{
    The body computes, from one element of every operand that is read, the
    element of every operand that is written. It is written as if for one
    element; `rt.reduce` in it stands for a reduction along the row (`rowwise`)
    or the column (`columnwise`), `rt.sum` for a sum over everything
    (`reduce_all`). They may use all that stands before them, and run in turn:
    what they read is computed again for each element.

    Block arguments are the operands that are read, in order; results those
    that are written, in order: an `inout` operand is both. Floats of every
    format are f32 in the body; an i8 or `integer` is i32, as are row and column
    numbers.

    Constraints: (C1) operands have different names, identifiers of C++; (C2)
    what is not in memory is `in`, a `constant` f32, other numbers i32; a
    gathered operand is `in`; (C3) arguments and results have the value types of
    the operands; (C4) there is a written operand, and what is written is: full
    (elementwise), full or per_row (rowwise), per_column (columnwise), scalar
    (reduce_all); elementwise and reduce_all do not know rows: their operands
    are full, scalar, column_index or numbers; (C5) columnwise has one
    `rt.reduce`, rowwise any number, reduce_all one `rt.sum`, elementwise none;
    (C6) the body consists of `arith` and `math` ops on scalars, of `rt.random`,
    and of these reductions; (C7) a value written per row, per column or as a scalar
    depends, but through a reduction, on no operand that differs along what is
    reduced.

    ```mlir
    rt.kernel @rms_norm rowwise(in %x: full f32, in %w: per_column f32, in %eps: constant f32, in %inverse: constant f32, out "y": full f32, out "rstd": per_row f32) {
      %sum = rt.reduce [0.0 : f32] -> f32 accumulate {
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, Rt_SkeletonAttr:$skeleton,
                       TypedArrayAttrBase<Rt_OperandAttr, "operands">:$kernel_operands);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let skipDefaultBuilders = 1;
  let builders = [
    /// Makes the block with its arguments; the body is the caller's.
    OpBuilder<(ins "::llvm::StringRef":$name, "Skeleton":$skeleton,
                   "::llvm::ArrayRef<OperandAttr>":$operands)>
  ];
  let extraClassDeclaration = [{
    ::llvm::SmallVector<OperandAttr> getOperandList();
    /// The block argument that stands for operand `i`, or null where it is only written.
    ::mlir::Value getArgumentOf(unsigned i);
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Rt_ReduceOp : Rt_Op<"reduce", [
    HasParent<"KernelOp">, RecursiveMemoryEffects, SingleBlock]> {
  let summary = "One reduction pass of a kernel";
  let description = [{
    Starts each lane's state from `identity`, lets `accumulate` add one element
    to it, and joins lanes with `combine`. The order of the joins is the
    skeleton's, the same on every backend.

    Constraints: (C1) one identity per result, each f32; (C2)
    `accumulate` takes one state and yields one; `combine` takes two and yields
    one; (C3) `combine` reads nothing from outside.

    ```mlir
    %max = rt.reduce [0xFF800000 : f32] -> f32 accumulate {
    ```
  }];
  let arguments = (ins ArrayAttr:$identity);
  let results = (outs Variadic<F32>:$states);
  let regions = (region SizedRegion<1>:$accumulate, SizedRegion<1>:$combine);
  let assemblyFormat = [{
    $identity `->` type($states) `accumulate` $accumulate `combine` $combine attr-dict
  }];
  let skipDefaultBuilders = 1;
  let builders = [
    /// Makes both blocks with their arguments; the bodies are the caller's.
    OpBuilder<(ins "::llvm::ArrayRef<::mlir::TypedAttr>":$identity)>
  ];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Rt_SumOp : Rt_Op<"sum", [HasParent<"KernelOp">, Pure]> {
  let summary = "The sum of a value over all elements of a launch";
  let description = [{
    Added up in the result's type, in the skeleton's order.

    Constraint: (C1) a float is summed in f32 or f64, an integer in i64.

    ```mlir
    %total = rt.sum %square : f32 -> f64
    ```
  }];
  let arguments = (ins AnyTypeOf<[F32, I32, I64]>:$value);
  let results = (outs AnyTypeOf<[F32, F64, I64]>:$result);
  let assemblyFormat = "$value attr-dict `:` type($value) `->` type($result)";
  let hasVerifier = 1;
}

def Rt_RandomOp : Rt_Op<"random", [Pure]> {
  let summary = "32 random bits, a function of seed, site, row and column alone";
  let description = [{
    The word of the counter-based generator (heddle/Runtime/Random.h) that says
    whether dropout `site` of the model drops this element; of attention's,
    `plane` is the number of the head.

    ```mlir
    %word = rt.random 3 of %seed at %token, %column
    %word = rt.random 1 of %seed at %token, %column plane %head
    ```
  }];
  let arguments = (ins I32Attr:$site, I64:$seed, I32:$row, I32:$column, Optional<I32>:$plane);
  let results = (outs I32:$word);
  let assemblyFormat = "$site `of` $seed `at` $row `,` $column (`plane` $plane^)? attr-dict";
}

def Rt_YieldOp : Rt_Op<"yield", [
    Pure, Terminator, ParentOneOf<["KernelOp", "ReduceOp"]>]> {
  let summary = "What a kernel writes, or the new state of a reduction";
  let arguments = (ins Variadic<AnyType>:$operands);
  let assemblyFormat = "attr-dict ($operands^ `:` type($operands))?";
}

#endif // HEDDLE_RT_KERNEL_OPS
