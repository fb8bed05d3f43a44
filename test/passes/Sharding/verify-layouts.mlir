// The check of what the family leaves finds what is planted.
//
// RUN: heddle-opt %s --split-input-file --verify-diagnostics --sharding-verify-layouts

#pod = #dist.mesh<["tp" = 4]>
!part = tensor<8xf32, #dist.layout<#pod, [{"tp"}]>>
func.func @block(%q: !part) {
  // expected-error @below {{has no factor rule, but a tensor with a layout}}
  %y = arith.addf %q, %q : !part
  return
}

// -----

#pod = #dist.mesh<["tp" = 4]>
!sum = tensor<4x8x12xf32, #dist.layout<#pod, [{}, {}, {}], partial = ["tp"]>>
// expected-error @below {{argument 0 is partial}}
func.func @block(%x: !sum {transformer.as = "x"}) {
  return
}

// -----

// The gradient of a parameter may leave as it comes: it is reduced after the last
// micro-batch. That of the residual stream may not.
#pod = #dist.mesh<["dp" = 4]>
!x = tensor<4x8x12xf32, #dist.layout<#pod, [{"dp"}, {}, {}]>>
!sum = tensor<3x2x12xf32, #dist.layout<#pod, [{}, {}, {}], partial = ["dp"]>>
func.func @weight_bwd(%x: !x, %d: tensor<4x8x3x2xf32, #dist.layout<#pod, [{"dp"}, {}, {}, {}]>>) -> (!sum {transformer.gradient_of = @w}) {
  %d_w = transformer.contract "b s g k, b s d -> g k d" %d, %x : (tensor<4x8x3x2xf32, #dist.layout<#pod, [{"dp"}, {}, {}, {}]>>, !x) -> !sum
  return %d_w : !sum
}
// expected-error @below {{result 0 is partial}}
func.func @stream_bwd(%x: !x, %d: tensor<4x8x3x2xf32, #dist.layout<#pod, [{"dp"}, {}, {}, {}]>>) -> !sum {
  %d_w = transformer.contract "b s g k, b s d -> g k d" %d, %x : (tensor<4x8x3x2xf32, #dist.layout<#pod, [{"dp"}, {}, {}, {}]>>, !x) -> !sum
  return %d_w : !sum
}
