// Gradients that lie side by side are reduced as one range, on a stream of their
// own, under a name that says which they are.
//
// RUN: heddle-opt %s --split-input-file --verify-diagnostics --lowering-lower-to-rt | FileCheck %s

// CHECK-LABEL: rt.func @step
// CHECK:         rt.for %layer = 0 to 3 reversed {
// CHECK:           rt.call @bwd
// CHECK:           rt.record "gradients_ready" on "compute"
// CHECK-NEXT:      rt.wait "gradients_ready" on "comm"
// CHECK:           rt.all_reduce "2 gradients: b_gradient_sum to a_gradient_sum" sum %[[BUCKET:.*]] -> %[[BUCKET]] over ["dp"] on "comm" : !rt.buf<32xf32> -> !rt.buf<32xf32>
#pod = #dist.mesh<["dp" = 2]>
module attributes {dist.mesh = #pod} {
  transformer.state @"l.{}.a" parameter layers 3 : tensor<8xf32>
  transformer.state @"l.{}.a.gradient_sum" gradient_sum layers 3 of @"l.{}.a" : tensor<8xf32> {transformer.bucket = "bucket.0", transformer.bucket_index = 1 : i64}
  transformer.state @"l.{}.a.gradient" gradient layers 3 of @"l.{}.a" storage @"l.{}.a.gradient_sum" : tensor<8xf32>
  transformer.state @"l.{}.b" parameter layers 3 : tensor<8xf32>
  transformer.state @"l.{}.b.gradient_sum" gradient_sum layers 3 of @"l.{}.b" : tensor<8xf32> {transformer.bucket = "bucket.0", transformer.bucket_index = 0 : i64}
  transformer.state @"l.{}.b.gradient" gradient layers 3 of @"l.{}.b" storage @"l.{}.b.gradient_sum" : tensor<8xf32>

  func.func @bwd(%d: tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
    %x = transformer.activation silu %d {as = ["x"]} : (tensor<8xf32>) -> tensor<8xf32>
    %a = transformer.activation relu %d {as = ["d_a"]} : (tensor<8xf32>) -> tensor<8xf32>
    %b = transformer.activation gelu_erf %d {as = ["d_b"]} : (tensor<8xf32>) -> tensor<8xf32>
    return %x, %a, %b : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
  }

  func.func @step(%x: tensor<8xf32> {transformer.as = "x"}) -> (tensor<8xf32> {transformer.as = "y"}) {
    %y = transformer.loop "layer" 3 reversed carry(%x) : (tensor<8xf32>) -> tensor<8xf32> {
    ^bb0(%l: index, %b: tensor<8xf32>):
      %r:3 = func.call @bwd(%b) : (tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>)
      transformer.accumulate %r#1 into @"l.{}.a.gradient_sum" at %l : tensor<8xf32>
      transformer.accumulate %r#2 into @"l.{}.b.gradient_sum" at %l : tensor<8xf32>
      dist.bucket "bucket.0" {
        %lb = transformer.load @"l.{}.b.gradient_sum" at %l {as = ["b_gradient_sum"]} : tensor<8xf32>
        %la = transformer.load @"l.{}.a.gradient_sum" at %l {as = ["a_gradient_sum"]} : tensor<8xf32>
        %sb = dist.all_reduce %lb sum on #pod over ["dp"] {as = ["b_gradient_sum"]} : tensor<8xf32> -> tensor<8xf32>
        %sa = dist.all_reduce %la sum on #pod over ["dp"] {as = ["a_gradient_sum"]} : tensor<8xf32> -> tensor<8xf32>
        transformer.store %sb to @"l.{}.b.gradient" at %l : tensor<8xf32>
        transformer.store %sa to @"l.{}.a.gradient" at %l : tensor<8xf32>
      }
      transformer.yield %r#0 : tensor<8xf32>
    }
    return %y : tensor<8xf32>
  }
}

// -----

#pod = #dist.mesh<["dp" = 2]>
module attributes {dist.mesh = #pod} {
  // expected-error @below {{has no body, so there is nothing to lower}}
  func.func private @bwd(tensor<8xf32>) -> tensor<8xf32>
  func.func @step(%x: tensor<8xf32>) -> tensor<8xf32> {
    %y = func.call @bwd(%x) : (tensor<8xf32>) -> tensor<8xf32>
    return %y : tensor<8xf32>
  }
}
