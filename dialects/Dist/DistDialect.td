#ifndef HEDDLE_DIST_DIALECT
#define HEDDLE_DIST_DIALECT

include "mlir/IR/OpBase.td"

def Dist_Dialect : Dialect {
  let name = "dist";
  let cppNamespace = "::heddle::dist";
  let summary = "Device meshes, layouts in types, and collectives by axis name";
  let description = [{
    A *mesh* names the ranks by axes. A *layout*, the encoding of a tensor type,
    says per axis whether a value is whole, split, or partial. `reshard` moves a
    value between layouts; the collectives are what a reshard becomes once each
    rank has a program of its own.
  }];
  let useDefaultAttributePrinterParser = 1;
}

#endif // HEDDLE_DIST_DIALECT
