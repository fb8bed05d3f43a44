#ifndef HEDDLE_STAGE_DIALECT
#define HEDDLE_STAGE_DIALECT

include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/RegionKindInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Stage_Dialect : Dialect {
  let name = "stage";
  let cppNamespace = "::heddle::stage";
  let summary = "Pipeline stages: who holds which layers, and in which order micro-batches pass";
  let description = [{
    A *place* is a position over the mesh axis `pp`. A place holds *chunks* of
    layers; a chunk of a place is a *stage*. A *chain* is the order in which a
    micro-batch passes stages: the first has the embedding, the last the head.
    All ranks run one program; what differs between places is in the table.
  }];
  let dependentDialects = ["::heddle::transformer::TransformerDialect"];
}

def Stage_Part : I32EnumAttr<"Part", "what a stage has, or a place in one of its stages", [
  I32EnumAttrCase<"Embedding", 0, "embedding">, // the first stage of a chain
  I32EnumAttrCase<"Head", 1, "head">,           // the last one
  I32EnumAttrCase<"Ends", 2, "ends">,           // either of the two
  I32EnumAttrCase<"Predecessor", 3, "predecessor">,
  I32EnumAttrCase<"Successor", 4, "successor">,
  // The slot that is running is the last of the chunk to run this region.
  I32EnumAttrCase<"Last", 5, "last">]> {
  let cppNamespace = "::heddle::stage";
}

#endif // HEDDLE_STAGE_DIALECT
