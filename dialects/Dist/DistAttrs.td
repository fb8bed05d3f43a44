#ifndef HEDDLE_DIST_ATTRS
#define HEDDLE_DIST_ATTRS

include "dialects/Dist/DistDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/CommonAttrConstraints.td"
include "mlir/IR/TensorEncoding.td"
include "mlir/IR/EnumAttr.td"

class Dist_Attr<string name, string attrMnemonic, list<Trait> traits = []>
    : AttrDef<Dist_Dialect, name, traits> {
  let mnemonic = attrMnemonic;
}

def Dist_MeshAttr : Dist_Attr<"Mesh", "mesh"> {
  let summary = "The ranks, named by axes; the outermost axis first";
  let description = [{
    Rank numbers count the axes like digits: the last axis is the fastest.

    ```mlir
    #pod = #dist.mesh<["dp" = 2, "tp" = 4]>
    ```

    A collective may also be over `a.mirror`, where axis a has an even size: the
    two ranks that stand equally far from the two ends of a, all other places
    equal.

    Constraints: (M1) names are not empty and none repeats; (M2) sizes are at
    least 1.
  }];
  let parameters = (ins "::mlir::ArrayAttr":$names, "::mlir::DenseI64ArrayAttr":$sizes);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Number of ranks.
    int64_t getNumRanks() const;
    /// Position of an axis, or -1.
    int64_t getIndex(::llvm::StringRef axis) const;
    /// Whether ranks can be grouped over that: an axis, or the mirror of one.
    bool hasGroups(::llvm::StringRef axis) const;
    /// Ranks of a group over that.
    int64_t getSize(::llvm::StringRef axis) const;
    /// Product of the sizes of `axes` (StringAttr each).
    int64_t getGroupSize(::mlir::ArrayAttr axes) const;
    /// Where `rank` stands on each axis, in the order of the mesh.
    ::llvm::SmallVector<int64_t> getCoordinates(int64_t rank) const;
    /// Position of `rank` in its group over `axes`: the last of `axes` is the
    /// fastest.
    int64_t getGroupIndex(int64_t rank, ::mlir::ArrayAttr axes) const;
    /// The ranks of the group of `rank` over `axes`, by their position.
    ::llvm::SmallVector<int64_t> getGroup(int64_t rank, ::mlir::ArrayAttr axes) const;
  }];
}

def Dist_LayoutAttr : Dist_Attr<"Layout", "layout", [
    DeclareAttrInterfaceMethods<VerifiableTensorEncoding, ["verifyEncoding"]>]> {
  let summary = "Where the parts of a tensor are: the encoding of its type";
  let description = [{
    Per dimension the axes that cut it, outermost first; `padded N` where the
    dimension is stored as N elements, those behind its size being zero. The
    value is the sum over the axes in `partial`, the maximum over those in
    `partial_max`. All ranks along an axis that stands nowhere hold the same
    bits. Axes of size 1 may stand anywhere and mean nothing.

    `runs` is a layout of storage: what the dimensions leave to a rank, as one
    row of elements, is cut into equal runs over these axes, the last of them
    filled up with zeros. A run has a multiple of 16 elements, so that it begins
    where vectors of any format may begin. It is how optimizer state, gradients and parameters
    are sharded over data parallelism: no dimension has to divide, and only
    elementwise ops can compute on it.

    ```mlir
    !own = tensor<4x32x64xf32, #dist.layout<#pod, [{"dp"}, {}, {"tp"} ]>>
    !sum = tensor<4x50257xf32, #dist.layout<#pod, [{}, {} padded 50260], partial = ["dp", "tp"]>>
    !run = tensor<96x64xf32, #dist.layout<#pod, [{"tp"}, {} ], runs = ["dp"]>>
    ```

    Constraints: (L1) one entry per dimension; (L2) every axis is one of the
    mesh; (L3) an axis stands in one place only; (L4) the stored size is at
    least the size and the axes of a dimension cut it into equal parts.
  }];
  let parameters = (ins "MeshAttr":$mesh, "::mlir::ArrayAttr":$dims,
                        "::mlir::DenseI64ArrayAttr":$padded, "::mlir::ArrayAttr":$partial,
                        "::mlir::ArrayAttr":$partialMax, "::mlir::ArrayAttr":$runs);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let builders = [
    // Whole everywhere.
    AttrBuilderWithInferredContext<(ins "MeshAttr":$mesh, "int64_t":$rank)>,
    // Cut by dimensions alone.
    AttrBuilderWithInferredContext<(ins "MeshAttr":$mesh, "::mlir::ArrayAttr":$dims,
                                        "::mlir::DenseI64ArrayAttr":$padded)>
  ];
  let extraClassDeclaration = [{
    /// Elements of a run are a multiple of this.
    static constexpr int64_t kRunMultiple = 16;

    int64_t getRank() const { return getDims().size(); }
    /// The same but for one part.
    LayoutAttr withPartial(::mlir::ArrayAttr partial) const;
    LayoutAttr withPartialMax(::mlir::ArrayAttr partialMax) const;
    LayoutAttr withRuns(::mlir::ArrayAttr runs) const;
    /// Reduced: partial over nothing.
    LayoutAttr reduced() const;
    /// Elements of one rank's part of a tensor of this shape as a row, before
    /// it is cut into runs; without runs the part itself.
    int64_t getRowElements(::llvm::ArrayRef<int64_t> shape) const;
    ::mlir::ArrayAttr getAxes(int64_t dim) const;
    /// Stored size of a dimension whose true size is `size`.
    int64_t getStoredSize(int64_t dim, int64_t size) const;
    bool isPartial() const { return !getPartial().empty() || !getPartialMax().empty(); }
    /// Short form for messages: `[{"dp"}, {} ], partial = ["tp"]`.
    std::string getShortForm() const;
  }];
}

def Dist_ShardAttr : Dist_Attr<"Shard", "shard"> {
  let summary = "Which part of a factor a rank's operands hold";
  let description = [{
    Per-rank ops that must know where their part of a factor begins carry one per
    factor (`shards`): the part of a rank begins at (position of the rank in its group over `axes`)
    x (local size); elements from `extent` on are padding.

    ```mlir
    #part = #dist.shard<#pod, ["tp"], 251>
    ```
  }];
  let parameters = (ins "MeshAttr":$mesh, "::mlir::ArrayAttr":$axes, "int64_t":$extent);
  let assemblyFormat = "`<` $mesh `,` $axes `,` $extent `>`";
}

def Dist_ShardsAttr : DictionaryAttrBase<
    CPred<"::heddle::dist::isShards($_self)">,
    "the part that a rank holds, by factor"> {
  let storageType = "::mlir::DictionaryAttr";
  let returnType = "::mlir::DictionaryAttr";
}

#endif // HEDDLE_DIST_ATTRS
