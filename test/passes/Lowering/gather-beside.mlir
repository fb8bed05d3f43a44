// With overlap a gather that only products read is queued in front of the product
// before them, on a stream of its own, and waited for behind it.
//
// RUN: heddle-opt %s --lowering-lower-to-rt | FileCheck %s
// RUN: heddle-opt %s --lowering-lower-to-rt --memory-place-buffers --lowering-verify-order --lowering-verify-arenas --lowering-verify-launches | FileCheck %s
// RUN: sed 's/reductions = true/reductions = false/' %s | heddle-opt --lowering-lower-to-rt | FileCheck %s --check-prefix=ALONE

// CHECK:       streams [#rt.stream<"compute">, #rt.stream<"comm", high = true>, #rt.stream<"gather", high = true>]
// CHECK:       rt.func @bwd
// CHECK:         rt.record "bwd.n.ready" on "compute"
// CHECK-NEXT:    rt.wait "bwd.n.ready" on "gather"
// CHECK:         rt.all_gather {{.*}} on "gather"
// CHECK-NEXT:    rt.record "bwd.n.gathered" on "gather"
// CHECK-NEXT:    rt.gemm "d_n"
// CHECK-NEXT:    rt.wait "bwd.n.gathered" on "compute"
// CHECK-NEXT:    rt.gemm "d_w"
// CHECK-NEXT:    rt.gemm "d_w2"
// What a kernel reads, and what the product makes, is gathered where it stands.
// CHECK:         rt.all_gather {{.*}} on "compute"
// CHECK:         rt.all_gather {{.*}} on "compute"
// CHECK-NOT:     "gather"

// ALONE-NOT: "gather"
#pod = #dist.mesh<["tp" = 2]>
module attributes {dist.mesh = #pod, dist.overlap = {reductions = true}} {
  func.func @bwd(%d: tensor<4x8xf32> {transformer.as = "d"}, %w: tensor<8x6xf32> {transformer.as = "w"}, %n: tensor<2x6xf32> {transformer.as = "n"}, %e: tensor<16x8xf32> {transformer.as = "e"})
      -> (tensor<4x6xf32>, tensor<8x6xf32>, tensor<8x6xf32>, tensor<4x6xf32>, tensor<8x6xf32>) {
    %d_n = transformer.contract "t f, f d -> t d" %d, %w {as = ["d_n"]} : (tensor<4x8xf32>, tensor<8x6xf32>) -> tensor<4x6xf32>
    %all = dist.all_gather %n on #pod over ["tp"] dim 0 {as = ["n"]} : tensor<2x6xf32> -> tensor<4x6xf32>
    %d_w = transformer.contract "t f, t d -> f d" %d, %all {as = ["d_w"]} : (tensor<4x8xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
    %d_w2 = transformer.contract "t f, t d -> f d" %d, %all {as = ["d_w2"]} : (tensor<4x8xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
    %again = dist.all_gather %n on #pod over ["tp"] dim 0 {as = ["again"]} : tensor<2x6xf32> -> tensor<4x6xf32>
    %act = transformer.activation silu %again {as = ["act"]} : (tensor<4x6xf32>) -> tensor<4x6xf32>
    %part = transformer.contract "t f, t d -> f d" %d, %act {as = ["part"]} : (tensor<4x8xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
    %whole = dist.all_gather %part on #pod over ["tp"] dim 0 {as = ["whole"]} : tensor<8x6xf32> -> tensor<16x6xf32>
    %last = transformer.contract "g d, g f -> f d" %whole, %e {as = ["last"]} : (tensor<16x6xf32>, tensor<16x8xf32>) -> tensor<8x6xf32>
    return %d_n, %d_w, %d_w2, %act, %last : tensor<4x6xf32>, tensor<8x6xf32>, tensor<8x6xf32>, tensor<4x6xf32>, tensor<8x6xf32>
  }

  func.func @step(%d: tensor<4x8xf32> {transformer.as = "d"}, %w: tensor<8x6xf32> {transformer.as = "w"}, %n: tensor<2x6xf32> {transformer.as = "n"}, %e: tensor<16x8xf32> {transformer.as = "e"})
      -> (tensor<4x6xf32> {transformer.as = "d_n"}, tensor<8x6xf32> {transformer.as = "d_w"}, tensor<8x6xf32> {transformer.as = "d_w2"}, tensor<4x6xf32> {transformer.as = "act"}, tensor<8x6xf32> {transformer.as = "last"}) {
    %r:5 = func.call @bwd(%d, %w, %n, %e) : (tensor<4x8xf32>, tensor<8x6xf32>, tensor<2x6xf32>, tensor<16x8xf32>) -> (tensor<4x6xf32>, tensor<8x6xf32>, tensor<8x6xf32>, tensor<4x6xf32>, tensor<8x6xf32>)
    return %r#0, %r#1, %r#2, %r#3, %r#4 : tensor<4x6xf32>, tensor<8x6xf32>, tensor<8x6xf32>, tensor<4x6xf32>, tensor<8x6xf32>
  }
}
