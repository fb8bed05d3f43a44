// What is computed is bf16, statistics are f32, gradients are what the plan
// says; the optimizer updates a master, and the parameter is the master rounded.
//
// RUN: heddle-opt %s --precision-set-formats --precision-verify-formats | FileCheck %s
// RUN: sed 's/gradients = bf16/gradients = f32/' %s | heddle-opt --precision-set-formats --precision-verify-formats | FileCheck %s --check-prefix=WIDE
//
// Without a master the optimizer updates the parameter, in its own format.
// RUN: sed 's/, master = f32//' %s | heddle-opt --precision-set-formats --precision-verify-formats | FileCheck %s --check-prefix=ALONE
//
// Without formats nothing changes.
// RUN: sed 's/transformer.precision/transformer.other/' %s | heddle-opt --precision-set-formats --precision-verify-formats > %t
// RUN: sed 's/transformer.precision/transformer.other/' %s | heddle-opt | diff - %t
//
// RUN: sed 's/reduce = f32/reduce = i32/' %s | not heddle-opt --precision-set-formats 2>&1 | FileCheck %s --check-prefix=TYPE
// RUN: sed 's/transformer.load @w {as = \["w"\]}/transformer.load @w.gradient {as = ["w"]}/' %s | not heddle-opt --precision-set-formats 2>&1 | FileCheck %s --check-prefix=OTHER
//
// TYPE: transformer.precision needs float types as compute, gradients, reduce and, where there is one, master, found {compute = bf16
// OTHER: 'transformer.sgd' op updates a value that is no parameter's, so it has no master

// CHECK:      transformer.state @w parameter : tensor<8x8xbf16>
// CHECK-NEXT: transformer.state @w.master master of @w : tensor<8x8xf32>
// CHECK:      transformer.state @w.gradient_sum gradient_sum of @w : tensor<8x8xbf16>
// CHECK:      transformer.state @w.gradient gradient of @w storage @w.gradient_sum : tensor<8x8xbf16>
// CHECK-LABEL: func.func @block(
// CHECK-SAME:    %[[X:.*]]: tensor<4x8xbf16> {transformer.as = "x"}, %[[G:.*]]: tensor<8xbf16> {transformer.as = "g"}, %{{.*}}: tensor<8x8xbf16>
// CHECK-SAME:    -> (tensor<4x8xbf16> {transformer.as = "y"}, tensor<4x8xbf16> {transformer.saved = "n"}, tensor<4xf32> {transformer.saved = "rstd"})
// CHECK-NEXT:    transformer.rms_norm %[[X]], %[[G]] {{.*}} -> (tensor<4x8xbf16>, tensor<4xf32>)
// CHECK-NEXT:    transformer.contract {{.*}} (tensor<4x8xbf16>, tensor<8x8xbf16>) -> tensor<4x8xbf16>
// CHECK-LABEL: func.func @block_bwd(
// CHECK-SAME:    %{{.*}}: tensor<4xf32> {transformer.as = "rstd", transformer.saved = "rstd"}
// CHECK-SAME:    -> (tensor<4x8xbf16> {transformer.as = "d_x"}, tensor<8x8xbf16> {transformer.gradient_of = @w})
// CHECK:         %d_w = transformer.contract {{.*}} (tensor<4x8xbf16>, tensor<4x8xbf16>) -> tensor<8x8xbf16>
// CHECK-LABEL: func.func @step(
// CHECK:         transformer.loop "micro_batch" 2 carry(%no_loss, %x) {{.*}} : (tensor<f32>, tensor<4x8xbf16>) -> (tensor<f32>, tensor<4x8xbf16>)
// CHECK:           transformer.accumulate %{{.*}} into @w.gradient_sum : tensor<8x8xbf16>
// CHECK:         %w_master = transformer.load @w.master {as = ["w_master"]} : tensor<8x8xf32>
// CHECK-NEXT:    %w1 = transformer.sgd %w_master, %{{.*}} : (tensor<8x8xf32>, tensor<8x8xbf16>, tensor<f32>, tensor<f32>) -> tensor<8x8xf32>
// CHECK-NEXT:    %w1_rounded = transformer.cast %w1 {as = ["w1_rounded"]} : tensor<8x8xf32> -> tensor<8x8xbf16>
// CHECK-NEXT:    transformer.store %w1 to @w.master : tensor<8x8xf32>
// CHECK-NEXT:    transformer.store %w1_rounded to @w : tensor<8x8xbf16>

// WIDE:       transformer.state @w.gradient_sum gradient_sum of @w : tensor<8x8xf32>
// WIDE:       %d_w = transformer.contract {{.*}} (tensor<4x8xbf16>, tensor<4x8xbf16>) -> tensor<8x8xf32>
// WIDE:       transformer.accumulate %{{.*}} into @w.gradient_sum : tensor<8x8xf32>

// ALONE-NOT:  master
// ALONE:      %w1 = transformer.sgd %w, %{{.*}} : (tensor<8x8xbf16>, tensor<8x8xbf16>, tensor<f32>, tensor<f32>) -> tensor<8x8xbf16>
// ALONE-NEXT: transformer.store %w1 to @w : tensor<8x8xbf16>

module attributes {transformer.precision = {compute = bf16, gradients = bf16, master = f32, reduce = f32}} {
  transformer.state @x parameter : tensor<4x8xf32>
  transformer.state @g parameter : tensor<8xf32>
  transformer.state @w parameter : tensor<8x8xf32>
  transformer.state @w.gradient_sum gradient_sum of @w : tensor<8x8xf32>
  transformer.state @w.gradient gradient of @w storage @w.gradient_sum : tensor<8x8xf32>

  func.func @block(%x: tensor<4x8xf32> {transformer.as = "x"}, %g: tensor<8xf32> {transformer.as = "g"}, %w: tensor<8x8xf32> {transformer.as = "w", transformer.state = @w})
      -> (tensor<4x8xf32> {transformer.as = "y"}, tensor<4x8xf32> {transformer.saved = "n"}, tensor<4xf32> {transformer.saved = "rstd"}) {
    %n, %rstd = transformer.rms_norm %x, %g epsilon 1.000000e-05 {as = ["n", "rstd"]} : (tensor<4x8xf32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
    %y = transformer.contract "t d, f d -> t f" %n, %w {as = ["y"]} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    return %y, %n, %rstd : tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xf32>
  }
  func.func @block_bwd(%x: tensor<4x8xf32> {transformer.as = "x"}, %g: tensor<8xf32> {transformer.as = "g"}, %w: tensor<8x8xf32> {transformer.as = "w", transformer.state = @w},
                       %n: tensor<4x8xf32> {transformer.as = "n", transformer.saved = "n"}, %rstd: tensor<4xf32> {transformer.as = "rstd", transformer.saved = "rstd"}, %d_y: tensor<4x8xf32> {transformer.as = "d_y"})
      -> (tensor<4x8xf32> {transformer.as = "d_x"}, tensor<8x8xf32> {transformer.gradient_of = @w}) {
    %d_n = transformer.contract "t f, f d -> t d" %d_y, %w {as = ["d_n"]} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
    %d_w = transformer.contract "t f, t d -> f d" %d_y, %n {as = ["d_w"]} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
    %d_x, %d_g = transformer.rms_norm_grad %d_n, %x, %g, %rstd {as = ["d_x", "d_g"]} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<8xf32>, tensor<4xf32>) -> (tensor<4x8xf32>, tensor<8xf32>)
    return %d_x, %d_w : tensor<4x8xf32>, tensor<8x8xf32>
  }
  func.func @step(%rate: tensor<f32> {transformer.as = "learning_rate"}, %factor: tensor<f32> {transformer.as = "factor"}) -> (tensor<f32> {transformer.as = "loss"}) {
    %x = transformer.load @x {as = ["x"]} : tensor<4x8xf32>
    %g = transformer.load @g {as = ["g"]} : tensor<8xf32>
    %no_loss = transformer.zeros {as = ["no_loss"]} : tensor<f32>
    %loss:2 = transformer.loop "micro_batch" 2 carry(%no_loss, %x) {as = ["loss", "a"]} : (tensor<f32>, tensor<4x8xf32>) -> (tensor<f32>, tensor<4x8xf32>) {
    ^bb0(%i: index, %sum: tensor<f32>, %a: tensor<4x8xf32>):
      %w = transformer.load @w {as = ["w.2"]} : tensor<8x8xf32>
      %y:3 = func.call @block(%a, %g, %w) : (tensor<4x8xf32>, tensor<8xf32>, tensor<8x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xf32>)
      %d:2 = func.call @block_bwd(%a, %g, %w, %y#1, %y#2, %y#0) : (tensor<4x8xf32>, tensor<8xf32>, tensor<8x8xf32>, tensor<4x8xf32>, tensor<4xf32>, tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<8x8xf32>)
      transformer.accumulate %d#1 into @w.gradient_sum : tensor<8x8xf32>
      transformer.yield %sum, %d#0 : tensor<f32>, tensor<4x8xf32>
    }
    %all = transformer.load @w.gradient_sum : tensor<8x8xf32>
    transformer.store %all to @w.gradient : tensor<8x8xf32>
    %w = transformer.load @w {as = ["w"]} : tensor<8x8xf32>
    %d_w = transformer.load @w.gradient : tensor<8x8xf32>
    %w1 = transformer.sgd %w, %d_w, %rate, %factor {as = ["w1"], weight_decay = 0.000000e+00 : f64} : (tensor<8x8xf32>, tensor<8x8xf32>, tensor<f32>, tensor<f32>) -> tensor<8x8xf32>
    transformer.store %w1 to @w : tensor<8x8xf32>
    return %loss#0 : tensor<f32>
  }
}
