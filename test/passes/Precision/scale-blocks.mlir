// A block that has a scale lies on one rank: the numbers of a side of an
// operand's matrix that a rank holds in a row are whole blocks, also where
// padding fills them. Ranks of data have tensors of their own.
//
// RUN: heddle-opt %s --split-input-file --verify-diagnostics --precision-set-formats | FileCheck %s

#mesh = #dist.mesh<["dp" = 2, "tp" = 2]>
#tokens = #dist.layout<#mesh, [{"dp"}, {}, {}]>
#middle = #dist.layout<#mesh, [{"dp"}, {}, {"tp"} padded 32]>
#weight = #dist.layout<#mesh, [{"tp"} padded 32, {}]>
#formats = {compute = bf16, master = f32, gradients = f32, reduce = f32}
module attributes {dist.mesh = #mesh, dist.storage = {data = ["dp"]}, transformer.precision = #formats} {
// CHECK-LABEL: func.func @block(
// CHECK:         transformer.contract {{.*}}transformer.scaled = {blocks = array<i64: 16, 16, 16>
// CHECK-NOT:     transformer.scale_axes
func.func @block(%x: tensor<2x3x48xf32, #tokens> {transformer.as = "x"}, %w: tensor<30x48xf32, #weight> {transformer.as = "w"}) -> tensor<2x3x30xf32, #middle> {
  %y = transformer.contract "b s d, f d -> b s f" %x, %w {as = ["y"], transformer.scaled = {blocks = array<i64: 16, 16, 16>, formats = [f8E4M3FN, f8E4M3FN], scales = f32}} : (tensor<2x3x48xf32, #tokens>, tensor<30x48xf32, #weight>) -> tensor<2x3x30xf32, #middle>
  return %y : tensor<2x3x30xf32, #middle>
}
}

// -----

#mesh = #dist.mesh<["dp" = 2, "tp" = 2]>
#tokens = #dist.layout<#mesh, [{"dp"}, {}, {}]>
#middle = #dist.layout<#mesh, [{"dp"}, {}, {"tp"}]>
#weight = #dist.layout<#mesh, [{"tp"}, {}]>
#formats = {compute = bf16, master = f32, gradients = f32, reduce = f32}
module attributes {dist.mesh = #mesh, dist.storage = {data = ["dp"]}, transformer.precision = #formats} {
func.func @block(%x: tensor<2x3x48xf32, #tokens> {transformer.as = "x"}, %w: tensor<24x48xf32, #weight> {transformer.as = "w"}) -> tensor<2x3x24xf32, #middle> {
  // expected-error @below {{has a scale for each 16 numbers of 'w', but a rank holds 12 of them in a row; cut it so that ranks hold whole blocks, or set precision.recipe to "fp8" with scaling "current"}}
  %y = transformer.contract "b s d, f d -> b s f" %x, %w {as = ["y"], transformer.scaled = {blocks = array<i64: 1, 16, 16>, formats = [f8E4M3FN, f8E4M3FN], scales = f32}} : (tensor<2x3x48xf32, #tokens>, tensor<24x48xf32, #weight>) -> tensor<2x3x24xf32, #middle>
  return %y : tensor<2x3x24xf32, #middle>
}
}

// -----

// Tokens that tp cuts are parts of one tensor, and so are blocks over them.
#mesh = #dist.mesh<["dp" = 2, "tp" = 2]>
#tokens = #dist.layout<#mesh, [{"dp"}, {"tp"}, {}]>
#gradient = #dist.layout<#mesh, [{}, {}], partial = ["dp", "tp"]>
#formats = {compute = bf16, master = f32, gradients = f32, reduce = f32}
module attributes {dist.mesh = #mesh, dist.storage = {data = ["dp"]}, transformer.precision = #formats} {
func.func @block_bwd(%dy: tensor<4x24x8xf32, #tokens> {transformer.as = "dy"}, %x: tensor<4x24x48xf32, #tokens> {transformer.as = "x"}) -> tensor<8x48xf32, #gradient> {
  // expected-error @below {{has a scale for each 8 numbers of 'dy', but a rank holds 12 of them in a row}}
  %d = transformer.contract "b s f, b s d -> f d" %dy, %x {as = ["d"], transformer.scaled = {blocks = array<i64: 1, 1, 8>, formats = [f8E4M3FN, f8E4M3FN], scales = f32}} : (tensor<4x24x8xf32, #tokens>, tensor<4x24x48xf32, #tokens>) -> tensor<8x48xf32, #gradient>
  return %d : tensor<8x48xf32, #gradient>
}
}
