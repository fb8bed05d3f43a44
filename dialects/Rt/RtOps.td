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

    One text serves all pipeline stages: `stages` names the axis whose places
    they are. What differs between them is data: `rt.numbers`, and the
    `by_stage` of buffers and arenas. `channels` join the stages.

    Constraints: (C1) names of axes, arenas, streams, events, channels are not
    repeated in their list, sizes of axes are at least 1 and make no more than
    2^31 ranks, arenas have 0 to 2^60 bytes; (C2) there is a stream; (C3) a communicator names axes of the
    mesh, or mirrors of such, each once; (C4) `entry` is a function of the program without
    arguments; (C5) no function calls itself, directly or through others; (C6)
    `stages`, at most 65536, and the axis of a channel are axes of the mesh, and a channel's
    shift leads to another place; (C7) the `by_stage` of an arena has a size for
    each stage, the largest of which is its `bytes`.

    ```mlir
    rt.program @stages mesh [#rt.axis<"pp", 2>, #rt.axis<"tp", 2>] arenas [#rt.arena<"compute", 4096 by_stage [4096, 2048]>] streams [#rt.stream<"compute">, #rt.stream<"comm">] communicators [] events [] entry @step channels [#rt.channel<"to_next", "pp", 1>] stages "pp" {
    rt.program @two_ranks mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"compute", 4096>, #rt.arena<"comm", 1024, comm>] streams [#rt.stream<"compute">, #rt.stream<"comm", high = true>] communicators [["tp"]] events ["ready", "reduced"] entry @step {
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name,
                       TypedArrayAttrBase<Rt_AxisAttr, "axes">:$mesh,
                       TypedArrayAttrBase<Rt_ArenaAttr, "arenas">:$arenas,
                       TypedArrayAttrBase<Rt_StreamAttr, "streams">:$streams,
                       TypedArrayAttrBase<Rt_AxesAttr, "lists of axes">:$communicators,
                       StrArrayAttr:$events, FlatSymbolRefAttr:$entry,
                       OptionalAttr<TypedArrayAttrBase<Rt_ChannelAttr, "channels">>:$channels,
                       OptionalAttr<StrAttr>:$stages,
                       OptionalAttr<DictionaryAttr>:$tables);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $sym_name `mesh` $mesh `arenas` $arenas `streams` $streams `communicators` $communicators
    `events` $events `entry` $entry (`channels` $channels^)? (`stages` $stages^)?
    attr-dict-with-keyword $body
  }];
  let skipDefaultBuilders = 1;
  let builders = [
    OpBuilder<(ins "::llvm::StringRef":$name, "::mlir::ArrayAttr":$mesh, "::mlir::ArrayAttr":$arenas,
                   "::mlir::ArrayAttr":$streams, "::mlir::ArrayAttr":$communicators,
                   "::mlir::ArrayAttr":$events, "::llvm::StringRef":$entry,
                   CArg<"::mlir::DictionaryAttr", "{}">:$tables,
                   CArg<"::mlir::ArrayAttr", "{}">:$channels, CArg<"::llvm::StringRef", "{}">:$stages)>
  ];
  let extraClassDeclaration = [{
    /// Position in the list, or -1.
    int64_t getArenaIndex(::llvm::StringRef name);
    int64_t getStreamIndex(::llvm::StringRef name);
    int64_t getEventIndex(::llvm::StringRef name);
    int64_t getCommunicatorIndex(::mlir::ArrayAttr axes);
    /// Size of an axis, or 0 where there is none of this name.
    int64_t getAxisSize(::llvm::StringRef name);
    /// The channel of this name, or null.
    ChannelAttr getChannel(::llvm::StringRef name);
    /// How many pipeline stages there are; 1 where no axis is said to be theirs.
    int64_t getNumStages() { return getStages() ? getAxisSize(*getStages()) : 1; }
    /// The axis, of even size, that `name` is the mirror of
    /// (heddle/Support/Mirror.h), or "".
    ::llvm::StringRef getMirroredAxis(::llvm::StringRef name);
    /// Product of the sizes of `axes`: of those of the mesh, or two ranks.
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
    AttrSizedOperandSegments, SingleBlockImplicitTerminator<"EndOp">,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "A loop over layers or micro-batches";
  let description = [{
    Runs its body for `lower` <= i < `upper`, upwards, or downwards where
    `reversed`; not at all where `upper` is not above `lower`. A bound is a
    constant or a value. Its variable's name is the loop's.

    Constraints: (C1) constants are not negative, and the lower one is at most
    the upper one; (C2) each bound is a constant or a value.

    ```mlir
    rt.for %layer = 0 to 2 reversed {
    rt.for %layer = %begin to %end {
    ```
  }];
  let arguments = (ins StrAttr:$name, OptionalAttr<Rt_Int>:$lower, OptionalAttr<Rt_Int>:$upper,
                       Optional<Index>:$lower_value, Optional<Index>:$upper_value, UnitAttr:$reversed);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let skipDefaultBuilders = 1;
  let builders = [
    OpBuilder<(ins "::llvm::StringRef":$name, "int64_t":$lower, "int64_t":$upper,
                   CArg<"bool", "false">:$reversed)>,
    /// A bound is an IntegerAttr or an index value.
    OpBuilder<(ins "::llvm::StringRef":$name, "::mlir::OpFoldResult":$lower,
                   "::mlir::OpFoldResult":$upper, CArg<"bool", "false">:$reversed)>
  ];
  let extraClassDeclaration = [{
    ::mlir::Value getInductionVariable() { return getBody().getArgument(0); }
    /// How often it runs its body, where its bounds are constants.
    ::std::optional<int64_t> getConstantCount() {
      if (!getLower() || !getUpper())
        return ::std::nullopt;
      return *getUpper() - *getLower();
    }
    /// The upper bound: a constant, or the largest number of the table that it
    /// is looked up in. Nothing where it is another value.
    ::std::optional<int64_t> getLargestUpper();
  }];
  let hasVerifier = 1;
}

def Rt_SwitchOp : Rt_Op<"switch", [SingleBlockImplicitTerminator<"EndOp">]> {
  let summary = "Run the case of a number";
  let description = [{
    Runs the region whose value is the selector's, and nothing where there is
    none. Labels say what a case is; they are printed into the program.

    Constraints: (C1) there is a case; no value stands twice; (C2) each case has
    a label that is not empty, and no block arguments.

    ```mlir
    rt.switch %kind {
    case 0 "forward" {
    ```
  }];
  let arguments = (ins Index:$selector, DenseI64ArrayAttr:$values, StrArrayAttr:$labels);
  let regions = (region VariadicRegion<SizedRegion<1>>:$cases);
  let hasCustomAssemblyFormat = 1;
  let skipDefaultBuilders = 1;
  let builders = [
    /// Makes the cases' blocks; what is in them is the caller's.
    OpBuilder<(ins "::mlir::Value":$selector, "::llvm::ArrayRef<int64_t>":$values,
                   "::llvm::ArrayRef<::llvm::StringRef>":$labels)>
  ];
  let extraClassDeclaration = [{
    ::llvm::StringRef getLabel(unsigned i) {
      return ::llvm::cast<::mlir::StringAttr>(getLabels()[i]).getValue();
    }
  }];
  let hasVerifier = 1;
}

def Rt_EndOp : Rt_Op<"end", [Terminator, ParentOneOf<["ForOp", "SwitchOp"]>]> {
  let summary = "The end of a loop's body or of a case";
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

def Rt_NumbersOp : Rt_Op<"numbers", [Symbol, HasParent<"ProgramOp">]> {
  let summary = "A table of numbers";
  let description = [{
    One row per place over `axis`, all of one width, or one row for all ranks.
    What a schedule says is such a table: the text of the program does not
    depend on it.

    Constraints: (C1) `axis` is one of the mesh; (C2) there are numbers, and
    they make rows of one width; (C3) each fits into 32 bits with a sign.

    ```mlir
    rt.numbers @slots [0, 1, 2, 1, 0, 2] over "pp"
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, DenseI64ArrayAttr:$values, OptionalAttr<StrAttr>:$axis);
  let assemblyFormat = "$sym_name $values (`over` $axis^)? attr-dict";
  let extraClassDeclaration = [{
    int64_t getNumRows();
    int64_t getWidth() { return getValues().size() / getNumRows(); }
    /// The row of a place over the axis.
    ::llvm::ArrayRef<int64_t> getRow(int64_t place) {
      return getAxis() ? getValues().slice(place * getWidth(), getWidth()) : getValues();
    }
  }];
  let hasVerifier = 1;
}

def Rt_LookupOp : Rt_Op<"lookup", [
    Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "A number of this rank's row of a table";
  let description = [{
    Constraints: (C1) `table` is an `rt.numbers` of the program; (C2) without an
    index, its rows have one number; (C3) an index that is a constant is that of
    one.

    ```mlir
    %kind = rt.lookup @slots[%slot]
    %layers = rt.lookup @layers
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$table, Optional<Index>:$index);
  let results = (outs Index:$result);
  let assemblyFormat = "$table (`[` $index^ `]`)? attr-dict";
}

def Rt_BufferOp : Rt_Op<"buffer", [Pure, DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "A place in an arena";
  let description = [{
    The byte address is `offset` plus each index times its stride in bytes, from
    the beginning of the arena; so one op is the buffer of every layer and slot.
    `name` is what people call it (`layers.N.x1`), `because` why it exists at
    that place for that long: both are printed into the program and the memory
    report.

    Where the buffer lies elsewhere on each pipeline stage, `by_stage` has, for
    each stage, its offset and its strides.

    Constraints: (C1) `arena` is one of the program's; (C2) there is one stride
    per index, strides and `offset` are of 0 to 2^60; (C3) without
    indices, the buffer lies within the arena; (C4) offset and strides are
    multiples of the element's size; (C5) neither name nor reason is empty; (C6)
    `by_stage` has a row for each of the program's stages, the first of which is
    `offset` and `strides`; (C2) to (C4) hold for each.

    ```mlir
    %x = rt.buffer "block.x" because "block input, saved for backward" arena "compute" at 256 + %layer * 128 : !rt.buf<4x8xf32>
    %y = rt.buffer "block.y" because "on two stages" arena "compute" at 0 + %layer * 128 by_stage [0, 128, 64, 256] : !rt.buf<4x8xf32>
    ```
  }];
  let arguments = (ins StrAttr:$name, StrAttr:$reason, StrAttr:$arena, Rt_Int:$offset,
                       Variadic<Index>:$indices, DenseI64ArrayAttr:$strides,
                       OptionalAttr<DenseI64ArrayAttr>:$by_stage);
  let results = (outs Rt_Buf:$result);
  let builders = [OpBuilder<(ins "::mlir::Type":$type, "::mlir::StringAttr":$name, "::mlir::StringAttr":$reason,
                                 "::mlir::StringAttr":$arena, "::mlir::IntegerAttr":$offset,
                                 "::mlir::ValueRange":$indices, "::mlir::DenseI64ArrayAttr":$strides), [{
    build($_builder, $_state, type, name, reason, arena, offset, indices, strides, ::mlir::DenseI64ArrayAttr());
  }]>];
  let assemblyFormat = [{
    $name `because` $reason `arena` $arena `at` custom<Affine>($offset, $indices, $strides)
    (`by_stage` $by_stage^)? attr-dict `:` custom<Buf>(type($result))
  }];
  let extraClassDeclaration = [{
    /// Offset and strides, in this order, on a pipeline stage.
    ::llvm::SmallVector<int64_t> getPlaceAt(int64_t stage);
  }];
  let hasVerifier = 1;
}

def Rt_ViewOp : Rt_Op<"view", [Pure]> {
  let summary = "A part of a buffer, or the same elements in another shape";
  let description = [{
    Begins `offset` elements, plus each index times its stride in elements,
    behind the beginning of `source`.

    Constraints: (C1) the element type stays; (C2) there is one stride per
    index, strides and `offset` are of 0 to 2^53; (C3) without indices,
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
