#ifndef HEDDLE_RT_OPS
#define HEDDLE_RT_OPS

include "dialects/Rt/RtInterfaces.td"
include "dialects/Rt/RtTypes.td"
include "mlir/IR/CommonAttrConstraints.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/RegionKindInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/CallInterfaces.td"
include "mlir/Interfaces/FunctionInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Rt_Op<string mnemonic, list<Trait> traits = []> : Op<Rt_Dialect, mnemonic, traits>;

/// A signed 64-bit number; upstream's I64Attr is read as an unsigned one.
def Rt_Int : TypedSignlessIntegerAttrBase<I64, "int64_t", "64-bit integer">;
/// A buffer, printed with its full type: `!rt.buf<4x8xf32>`, not `<4x8xf32>`.
def Rt_Buf : Type<CPred<"::llvm::isa<::heddle::rt::BufType>($_self)">, "buffer", "::heddle::rt::BufType">;
def Rt_AxesAttr : TypedArrayAttrBase<StrAttr, "names of mesh axes">;

//===----------------------------------------------------------------------===//
// The program, its functions, its control flow
//===----------------------------------------------------------------------===//

def Rt_ProgramOp : Rt_Op<"program", [
    IsolatedFromAbove, NoRegionArguments, NoTerminator, SingleBlock, Symbol, SymbolTable,
    HasParent<"::mlir::ModuleOp">]> {
  let summary = "The program of every rank";
  let description = [{
    Declares what functions and queued work name: the mesh, arenas, streams,
    communicators (one per list of axes, in the order in which they are seated)
    and events. Holds kernels and functions. `entry` takes no argument and
    queues one training step; it begins and ends with all streams joined to the
    first stream. `tables` becomes `tables.bin`, with mesh, arenas and
    communicators added: its keys are those of `heddle/Runtime/Tables.h`.

    Constraints: (C1) names of axes, arenas, streams, events are not repeated in
    their list, sizes of axes are at least 1, of arenas not negative; (C2) there
    is a stream; (C3) a communicator names axes of the mesh, each once; (C4)
    `entry` is a function of the program without arguments; (C5) no function
    calls itself, directly or through others.

    ```mlir
    rt.program @two_ranks mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"compute", 4096>, #rt.arena<"comm", 1024, comm>] streams [#rt.stream<"compute">, #rt.stream<"comm", high = true>] communicators [["tp"]] events ["ready", "reduced"] entry @step {
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name,
                       TypedArrayAttrBase<Rt_AxisAttr, "axes">:$mesh,
                       TypedArrayAttrBase<Rt_ArenaAttr, "arenas">:$arenas,
                       TypedArrayAttrBase<Rt_StreamAttr, "streams">:$streams,
                       TypedArrayAttrBase<Rt_AxesAttr, "lists of axes">:$communicators,
                       StrArrayAttr:$events, FlatSymbolRefAttr:$entry,
                       OptionalAttr<DictionaryAttr>:$tables);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $sym_name `mesh` $mesh `arenas` $arenas `streams` $streams `communicators` $communicators
    `events` $events `entry` $entry attr-dict-with-keyword $body
  }];
  let skipDefaultBuilders = 1;
  let builders = [
    OpBuilder<(ins "::llvm::StringRef":$name, "::mlir::ArrayAttr":$mesh, "::mlir::ArrayAttr":$arenas,
                   "::mlir::ArrayAttr":$streams, "::mlir::ArrayAttr":$communicators,
                   "::mlir::ArrayAttr":$events, "::llvm::StringRef":$entry,
                   CArg<"::mlir::DictionaryAttr", "{}">:$tables)>
  ];
  let extraClassDeclaration = [{
    /// Position in the list, or -1.
    int64_t getArenaIndex(::llvm::StringRef name);
    int64_t getStreamIndex(::llvm::StringRef name);
    int64_t getEventIndex(::llvm::StringRef name);
    int64_t getCommunicatorIndex(::mlir::ArrayAttr axes);
    /// Size of an axis, or 0 where there is none of this name.
    int64_t getAxisSize(::llvm::StringRef name);
    /// Product of the sizes of `axes`, all of which are the mesh's.
    int64_t getGroupSize(::mlir::ArrayAttr axes);
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Rt_FuncOp : Rt_Op<"func", [
    IsolatedFromAbove, FunctionOpInterface, SingleBlockImplicitTerminator<"ReturnOp">,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>,
    HasParent<"ProgramOp">]> {
  let summary = "A piece of the step, printed as one C++ function";
  let description = [{
    Arguments are buffers, of which the function sees the addresses, and index
    values. Their names are kept: they become the names of C++ parameters.
    A function returns nothing; it has no frame of its own but the buffers at
    fixed offsets that it declares, so it must not be entered twice at a time.

    Constraints: (C1) arguments are buffers or index; (C2) there is no result,
    and one name per argument, none repeated, each an identifier of C++.

    ```mlir
    rt.func @block_fwd(%x: !rt.buf<4x8xf32>, %layer: index) {
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<FunctionType>:$function_type,
                       StrArrayAttr:$arg_names, OptionalAttr<StrAttr>:$sym_visibility,
                       OptionalAttr<DictArrayAttr>:$arg_attrs, OptionalAttr<DictArrayAttr>:$res_attrs);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let skipDefaultBuilders = 1;
  let builders = [
    OpBuilder<(ins "::llvm::StringRef":$name, "::mlir::TypeRange":$argTypes,
                   "::llvm::ArrayRef<::llvm::StringRef>":$argNames)>
  ];
  let extraClassDeclaration = [{
    ::llvm::ArrayRef<::mlir::Type> getArgumentTypes() { return getFunctionType().getInputs(); }
    ::llvm::ArrayRef<::mlir::Type> getResultTypes() { return getFunctionType().getResults(); }
    ::mlir::Region *getCallableRegion() { return &getBody(); }
  }];
  let hasVerifier = 1;
}

def Rt_ReturnOp : Rt_Op<"return", [Terminator, HasParent<"FuncOp">]> {
  let summary = "The end of a function";
  let assemblyFormat = "attr-dict";
}

def Rt_CallOp : Rt_Op<"call", [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Queue the work of another function";
  let description = [{
    Constraints: (C1) `callee` is a function of the program; (C2) the operands
    have the types of its arguments.

    ```mlir
    rt.call @block_fwd(%x, %layer) : !rt.buf<4x8xf32>, index
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$callee, Variadic<AnyType>:$operands);
  let assemblyFormat = "$callee `(` $operands `)` attr-dict (`:` type($operands)^)?";
}

def Rt_ForOp : Rt_Op<"for", [
    SingleBlockImplicitTerminator<"EndOp">,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "A loop over layers or micro-batches";
  let description = [{
    Runs its body for `lower` <= i < `upper`, upwards, or downwards where
    `reversed`. Its variable's name is the loop's.

    Constraint: (C1) `lower` is at most `upper` and not negative.

    ```mlir
    rt.for %layer = 0 to 2 reversed {
    ```
  }];
  let arguments = (ins StrAttr:$name, Rt_Int:$lower, Rt_Int:$upper, UnitAttr:$reversed);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let skipDefaultBuilders = 1;
  let builders = [
    OpBuilder<(ins "::llvm::StringRef":$name, "int64_t":$lower, "int64_t":$upper,
                   CArg<"bool", "false">:$reversed)>
  ];
  let extraClassDeclaration = [{
    ::mlir::Value getInductionVariable() { return getBody().getArgument(0); }
  }];
  let hasVerifier = 1;
}

def Rt_EndOp : Rt_Op<"end", [Terminator, HasParent<"ForOp">]> {
  let summary = "The end of a loop's body";
  let assemblyFormat = "attr-dict";
}

//===----------------------------------------------------------------------===//
// Places and numbers
//===----------------------------------------------------------------------===//

def Rt_RankIndexOp : Rt_Op<"rank_index", [Pure]> {
  let summary = "Where this rank stands in its group over some axes";
  let description = [{
    The position in the group, times `step` (1 where it is not written): with
    the size of a shard as step, where this rank's shard begins. The last of
    `axes` is the fastest, as in `rt.program`'s communicators. The only op whose
    value differs between ranks.

    Constraint: (C1) `axes` are axes of the mesh, each once.

    ```mlir
    %place = rt.rank_index ["tp"]
    ```
  }];
  let arguments = (ins Rt_AxesAttr:$axes, DefaultValuedAttr<Rt_Int, "1">:$step);
  let results = (outs Index:$result);
  let assemblyFormat = "$axes (`times` $step^)? attr-dict";
  let hasVerifier = 1;
}

def Rt_BufferOp : Rt_Op<"buffer", [Pure, DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "A place in an arena";
  let description = [{
    The byte address is `offset` plus each index times its stride in bytes, from
    the beginning of the arena; so one op is the buffer of every layer and slot.
    `name` is what people call it (`layers.N.x1`), `because` why it exists at
    that place for that long: both are printed into the program and the memory
    report.

    Constraints: (C1) `arena` is one of the program's; (C2) there is one stride
    per index, none negative, and `offset` is not negative; (C3) without
    indices, the buffer lies within the arena; (C4) offset and strides are
    multiples of the element's size; (C5) neither name nor reason is empty.

    ```mlir
    %x = rt.buffer "block.x" because "block input, saved for backward" arena "compute" at 256 + %layer * 128 : !rt.buf<4x8xf32>
    ```
  }];
  let arguments = (ins StrAttr:$name, StrAttr:$reason, StrAttr:$arena, Rt_Int:$offset,
                       Variadic<Index>:$indices, DenseI64ArrayAttr:$strides);
  let results = (outs Rt_Buf:$result);
  let assemblyFormat = [{
    $name `because` $reason `arena` $arena `at` custom<Affine>($offset, $indices, $strides)
    attr-dict `:` custom<Buf>(type($result))
  }];
  let hasVerifier = 1;
}

def Rt_ViewOp : Rt_Op<"view", [Pure]> {
  let summary = "A part of a buffer, or the same elements in another shape";
  let description = [{
    Begins `offset` elements, plus each index times its stride in elements,
    behind the beginning of `source`.

    Constraints: (C1) the element type stays; (C2) there is one stride per
    index, none negative, and `offset` is not negative; (C3) without indices,
    the result lies within `source`.

    ```mlir
    %row = rt.view %x at 0 + %layer * 8 : !rt.buf<4x8xf32> -> !rt.buf<8xf32>
    ```
  }];
  let arguments = (ins Rt_Buf:$source, Rt_Int:$offset, Variadic<Index>:$indices,
                       DenseI64ArrayAttr:$strides);
  let results = (outs Rt_Buf:$result);
  let assemblyFormat = [{
    $source `at` custom<Affine>($offset, $indices, $strides)
    attr-dict `:` custom<Buf>(type($source)) `->` custom<Buf>(type($result))
  }];
  let hasVerifier = 1;
}

include "dialects/Rt/RtKernelOps.td"
include "dialects/Rt/RtWorkOps.td"

#endif // HEDDLE_RT_OPS
