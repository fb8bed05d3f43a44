#ifndef HEDDLE_RT_ATTRS
#define HEDDLE_RT_ATTRS

include "dialects/Rt/RtDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

class Rt_Enum<string name, string description, list<I32EnumCase> cases>
    : I32Enum<name, description, cases> {
  let cppNamespace = "::heddle::rt";
}

class Rt_EnumAttr<EnumInfo enum, string mnemonic> : EnumAttr<Rt_Dialect, enum, mnemonic> {
  let assemblyFormat = "$value";
}

def Rt_MemoryClass : Rt_Enum<"MemoryClass", "what an arena's memory is for", [
  I32EnumCase<"compute", 0>, // device memory
  I32EnumCase<"comm", 1>,    // registered for collectives, equal offsets on all ranks
  I32EnumCase<"host", 2>     // pinned, read by the host
]>;

def Rt_Reduction : Rt_Enum<"Reduction", "how a collective joins the ranks' values", [
  I32EnumCase<"sum", 0>, I32EnumCase<"max", 1>
]>;
def Rt_ReductionAttr : Rt_EnumAttr<Rt_Reduction, "reduction">;

def Rt_Skeleton : Rt_Enum<"Skeleton", "the loop around a kernel's body", [
  I32EnumCase<"elementwise", 0>, // each element by itself
  I32EnumCase<"rowwise", 1>,     // reductions along each row, then each element
  I32EnumCase<"columnwise", 2>,  // a reduction along each column, one result per column
  I32EnumCase<"reduce_all", 3>   // a sum over everything, one result
]>;
def Rt_SkeletonAttr : Rt_EnumAttr<Rt_Skeleton, "skeleton">;

def Rt_OperandKind : Rt_Enum<"OperandKind", "where the element that a kernel's body sees comes from", [
  I32EnumCase<"full", 0>,         // one per row and column
  I32EnumCase<"per_row", 1>,      // one per row
  I32EnumCase<"per_column", 2>,   // one per column
  I32EnumCase<"scalar", 3>,       // one in memory
  I32EnumCase<"gathered", 4>,     // row of a shard of a table, chosen by an index per row; 0 where it is elsewhere
  I32EnumCase<"row_index", 5>,    // the number of the row; no memory
  I32EnumCase<"column_index", 6>, // the number of the column; no memory
  I32EnumCase<"constant", 7>,     // a number given at the launch, as an attribute
  I32EnumCase<"integer", 8>       // a number given at the launch, as an index value
]>;

def Rt_OperandMode : Rt_Enum<"OperandMode", "whether a kernel reads or writes an operand", [
  I32EnumCase<"read", 1, "in">, I32EnumCase<"write", 2, "out">, I32EnumCase<"read_write", 3, "inout">
]>;

class Rt_Attr<string name, string attrMnemonic> : AttrDef<Rt_Dialect, name> {
  let mnemonic = attrMnemonic;
}

def Rt_AxisAttr : Rt_Attr<"Axis", "axis"> {
  let summary = "An axis of the mesh of ranks";
  let parameters = (ins StringRefParameter<>:$name, "int64_t":$size);
  let assemblyFormat = "`<` $name `,` $size `>`";
}

def Rt_ArenaAttr : Rt_Attr<"Arena", "arena"> {
  let summary = "One allocation of a rank, in which buffers have fixed offsets";
  let parameters = (ins StringRefParameter<>:$name, "int64_t":$bytes,
                        DefaultValuedParameter<"MemoryClass", "MemoryClass::compute">:$memory,
                        OptionalArrayRefParameter<"int64_t">:$by_stage);
  let description = [{
    `by_stage` has the size on each pipeline stage where they differ; `bytes` is
    then the largest of them.
  }];
  let builders = [
    AttrBuilder<(ins "::llvm::StringRef":$name, "int64_t":$bytes, "MemoryClass":$memory),
                [{ return $_get($_ctxt, name, bytes, memory, ::llvm::ArrayRef<int64_t>()); }]>
  ];
  let assemblyFormat = "`<` $name `,` $bytes (`,` $memory^)? (`by_stage` ` ` `[` $by_stage^ `]`)? `>`";
  let extraClassDeclaration = [{
    int64_t getBytesAt(int64_t stage) const { return getByStage().empty() ? getBytes() : getByStage()[stage]; }
  }];
}

def Rt_StreamAttr : Rt_Attr<"Stream", "stream"> {
  let summary = "An ordered queue of work";
  let parameters = (ins StringRefParameter<>:$name, DefaultValuedParameter<"bool", "false">:$high);
  let description = [{
    `high` streams go before others where both have work ready.
  }];
  let assemblyFormat = "`<` $name (`,` `high` `=` $high^)? `>`";
}

def Rt_ChannelAttr : Rt_Attr<"Channel", "channel"> {
  let summary = "A one-way queue of messages from each rank to one other";
  let description = [{
    From place i over `axis` to place (i + shift) mod its size, all other places
    equal; one queue per sender, independent of all other queues and of
    collectives.
  }];
  let parameters = (ins StringRefParameter<>:$name, StringRefParameter<>:$axis, "int64_t":$shift);
  let assemblyFormat = "`<` $name `,` $axis `,` $shift `>`";
}

def Rt_OperandAttr : Rt_Attr<"Operand", "operand"> {
  let summary = "One operand of a kernel: name, access, place, element type";
  let parameters = (ins StringRefParameter<>:$name, "OperandMode":$mode, "OperandKind":$kind,
                        "::mlir::Type":$type);
  let assemblyFormat = "`<` $name `,` $mode $kind $type `>`";
  let extraClassDeclaration = [{
    bool reads() const { return getMode() != OperandMode::write; }
    bool writes() const { return getMode() != OperandMode::read; }
    /// Whether a launch gives a buffer for it.
    bool inMemory() const { return getKind() <= OperandKind::gathered; }
    /// How many operands a launch gives for it.
    unsigned getNumLaunched() const {
      return getKind() == OperandKind::gathered ? 3 : getKind() == OperandKind::constant ? 0 : 1;
    }
    /// The type that the body computes with: f32 for every float.
    ::mlir::Type getValueType() const;
  }];
}

#endif // HEDDLE_RT_ATTRS
