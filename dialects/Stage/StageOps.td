#ifndef HEDDLE_STAGE_OPS
#define HEDDLE_STAGE_OPS

include "dialects/Stage/StageDialect.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/CommonAttrConstraints.td"

class Stage_Op<string mnemonic, list<Trait> traits = []> : Op<Stage_Dialect, mnemonic, traits>;

def Stage_TableOp : Stage_Op<"table", [Symbol]> {
  let summary = "Who holds which layers, and the order of every place's slots";
  let description = [{
    `layers`: per place and chunk the layers `"a..b"`, `"a"` or `""`. `rows`: per
    place its slots in the text of `heddle/Schedule/Table.h`: `F` forward, `B`
    input gradient, `W` weight gradient, `D` both, `O` the optimizer, each with
    its micro-batch and, behind `/`, its chunk where that is not 0; in front of
    them the stages of its chunks, where chunk c of place r is not stage
    c x places + r.

    Constraints: (C1) rows can be read, `layers` has an entry per row, and as
    many chunks in each; (C2) every chain has every layer once, in order; (C3)
    the slots can be run in that order (`verifySchedule`); (C4) where there are
    several chains there are two, each a copy of the model, and the places of a
    stage's copies are equally far from the two ends and hold the same layers.

    ```mlir
    stage.table @schedule micro_batches 2 layers [["0..1"], ["2"]] rows ["F0 F1 D0 D1 O", "F0 D0 F1 D1 O"]
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name,
                       ConfinedAttr<I64Attr, [IntPositive]>:$micro_batches,
                       TypedArrayAttrBase<StrArrayAttr, "ranges of layers by place and chunk">:$layers,
                       StrArrayAttr:$rows);
  let assemblyFormat = "$sym_name `micro_batches` $micro_batches `layers` $layers `rows` $rows attr-dict";
  let hasVerifier = 1;
}

def Stage_RunOp : Stage_Op<"run", [RecursiveMemoryEffects,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "Runs a place's slots in the order of the table";
  let description = [{
    Each slot runs a region: `F` forward, `D` backward (or, where there is
    `weight`, backward and then weight), `B` backward, `W` weight (or, where
    there is none, nothing). Arguments of

    - forward: chunk, micro-batch, what the stage before sends;
    - backward: chunk, micro-batch, carried values, what the stage behind sends,
      what forward saved of this chunk and micro-batch;
    - weight: chunk, micro-batch, what forward saved, what backward saved.

    What a region sends goes to the next (forward) or previous (backward) stage
    of the chain. The first stage of a chain gets nothing from before, and what
    it sends back is dropped; the last one likewise. Where nothing is sent, what
    is received is undefined. Results are the carried values after the last slot.

    Constraints: (C1) arguments have the types that follow from what is sent,
    saved and carried; (C2) all regions end in a yield; only backward carries,
    weight neither carries, nor sends, nor saves; (C3) the symbol is a table's.

    ```mlir
    %sum = stage.run @schedule carry(%loss) : (tensor<f32>) -> tensor<f32> forward {
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$table, Variadic<AnyType>:$inits);
  let results = (outs Variadic<AnyType>:$results);
  let regions = (region SizedRegion<1>:$forward, SizedRegion<1>:$backward, MaxSizedRegion<1>:$weight);
  let assemblyFormat = [{
    $table (`carry` `(` $inits^ `)`)? `:` functional-type($inits, $results)
    `forward` $forward `backward` $backward (`weight` $weight^)? attr-dict
  }];
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    static ::heddle::stage::YieldOp getYield(::mlir::Region &region);
    /// Number of values that a region sends: of forward, or of backward.
    unsigned getNumSent(bool forward);
    /// Arguments of a region, by what they are.
    static ::mlir::Value getChunk(::mlir::Region &region) { return region.getArgument(0); }
    static ::mlir::Value getMicroBatch(::mlir::Region &region) { return region.getArgument(1); }
    ::mlir::Block::BlockArgListType getReceived(bool forward);
    ::mlir::Block::BlockArgListType getCarried();
    /// What backward or weight gets of what forward saved.
    ::mlir::Block::BlockArgListType getSaved(::mlir::Region &region);
    /// What weight gets of what backward saved.
    ::mlir::Block::BlockArgListType getKept();
  }];
}

def Stage_WhereOp : Stage_Op<"where", [RecursiveMemoryEffects]> {
  let summary = "Does something at the places, or in the chunks, that have a part";
  let description = [{
    Runs the first region where the chunk has the part, elsewhere the second, if
    there is one. Without a chunk: at places one of whose chunks has it. `last`,
    in a region of `run`: in the last slot that runs this region for the chunk of
    the slot that runs.

    Constraints: (C1) both regions end in a yield of the types of the results,
    and of nothing else; with results, there is a second one; (C2) `last` stands
    in a region of `run` and names no chunk.

    ```mlir
    %x = stage.where embedding at %chunk -> (tensor<4x8xf32>) {
    ```
  }];
  let arguments = (ins Stage_Part:$part, Optional<Index>:$chunk);
  let results = (outs Variadic<AnyType>:$results);
  let regions = (region SizedRegion<1>:$body, MaxSizedRegion<1>:$otherwise);
  let assemblyFormat = [{
    $part (`at` $chunk^)? (`->` `(` type($results)^ `)`)? $body (`else` $otherwise^)? attr-dict
  }];
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    static ::heddle::stage::YieldOp getYield(::mlir::Region &region);
  }];
}

def Stage_UndefinedOp : Stage_Op<"undefined", [Pure]> {
  let summary = "A value that nothing may look at";
  let description = [{
    What a place has of a value that only another one makes.

    ```mlir
    %nothing = stage.undefined : tensor<4x8xf32>
    ```
  }];
  let results = (outs AnyType:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}

def Stage_YieldOp : Stage_Op<"yield", [
    Pure, Terminator, ParentOneOf<["RunOp", "WhereOp"]>, AttrSizedOperandSegments]> {
  let summary = "Ends a region of `run` or `where`";
  let arguments = (ins Variadic<AnyType>:$carried, Variadic<AnyType>:$sent, Variadic<AnyType>:$saved);
  let assemblyFormat = [{
    ($carried^ `:` type($carried))? (`send` $sent^ `:` type($sent))? (`save` $saved^ `:` type($saved))? attr-dict
  }];
}

def Stage_LayersOp : Stage_Op<"layers", [Pure]> {
  let summary = "Number of layers of a chunk, or of this place";
  let description = [{
    ```mlir
    %n = stage.layers at %chunk
    ```
  }];
  let arguments = (ins Optional<Index>:$chunk);
  let results = (outs Index:$result);
  let assemblyFormat = "(`at` $chunk^)? attr-dict";
}

def Stage_LayerOp : Stage_Op<"layer", [Pure]> {
  let summary = "Which of this place's layers layer i of a chunk is";
  let description = [{
    Layers of a place are in the model's order.

    ```mlir
    %held = stage.layer %i of %chunk
    ```
  }];
  let arguments = (ins Index:$index, Index:$chunk);
  let results = (outs Index:$result);
  let assemblyFormat = "$index `of` $chunk attr-dict";
}

def Stage_SumEndsOp : Stage_Op<"sum_ends", [AllTypesMatch<["input", "result"]>]> {
  let summary = "The sum of what the two ends of a chain have";
  let description = [{
    For a parameter that embedding and head share: both ends send theirs to the
    other and add them in the order of the chain, so that both have equal bits.
    Where both are at one place, the result is the operand. May stand only where
    the place has one of the ends.

    ```mlir
    %sum = stage.sum_ends %gradient : tensor<9x8xf32>
    ```
  }];
  let arguments = (ins AnyStaticShapeTensor:$input);
  let results = (outs AnyStaticShapeTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input)";
}

#endif // HEDDLE_STAGE_OPS
