#ifndef HEDDLE_RT_TYPES
#define HEDDLE_RT_TYPES

include "dialects/Rt/RtAttrs.td"

def Rt_BufType : TypeDef<Rt_Dialect, "Buf"> {
  let mnemonic = "buf";
  let summary = "A place in an arena: shape, element type, strides";
  let description = [{
    The elements of a buffer lie row-major and without gaps, unless `strides`
    says, in elements, how far apart two neighbours of each dimension are.

    ```mlir
    !rt.buf<2x32x64xf32>
    !rt.buf<64x32xf32, strides [96, 1]>
    ```

    Elements of f4E2M1FN share bytes, two each, the first in the low bits.

    Constraints: (T1) the element type is f32, f64, bf16, f16, f8E4M3FN, f8E5M2,
    f8E8M0FNU, f4E2M1FN, i8, i32 or i64; (T2) sizes are static and not negative, strides not negative; (T3) there is one stride
    per dimension, and none is written where they say what is true without them; (T4) f4E2M1FN has
    none; (T5) no more than 2^53 elements are there, or lie from the first to the last.
  }];
  let parameters = (ins ArrayRefParameter<"int64_t">:$shape, "::mlir::Type":$elementType,
                        OptionalArrayRefParameter<"int64_t">:$explicitStrides);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// A type with these strides, written only where they say something.
    static BufType get(::llvm::ArrayRef<int64_t> shape, ::mlir::Type elementType,
                       ::llvm::ArrayRef<int64_t> strides = {});
    int64_t getRank() const { return getShape().size(); }
    bool isContiguous() const { return getExplicitStrides().empty(); }
    /// In elements, one per dimension.
    ::llvm::SmallVector<int64_t> getStrides() const;
    int64_t getNumElements() const;
    /// 1 where elements share bytes.
    int64_t getElementBytes() const;
    /// Of so many elements side by side.
    int64_t getBytes(int64_t elements) const;
    /// Bytes from the first element's first to the last element's last.
    int64_t getSpanBytes() const;
  }];
}

#endif // HEDDLE_RT_TYPES
