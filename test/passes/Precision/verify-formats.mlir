// Each broken promise of precision-set-formats is an error.
//
// RUN: heddle-opt %s --precision-verify-formats | FileCheck %s
// RUN: sed 's/@w.master master of @w : tensor<8x8xf32>/@w.master master of @w : tensor<8x8xf16>/; s/load @w.master : tensor<8x8xf32>/load @w.master : tensor<8x8xf16>/; s/sgd %w_master, %d_w, %rate, %factor {weight_decay = 0.000000e+00 : f64} : (tensor<8x8xf32>/sgd %w_master, %d_w, %rate, %factor {weight_decay = 0.000000e+00 : f64} : (tensor<8x8xf16>/; s/store %w1 to @w.master : tensor<8x8xf32>/store %h to @w.master : tensor<8x8xf16>/' %s | not heddle-opt --precision-verify-formats 2>&1 | FileCheck %s --check-prefix=STATE
// RUN: sed 's/(tensor<4x8xbf16>, tensor<4xf32>)$/(tensor<4x8xbf16>, tensor<4xbf16>)/' %s | not heddle-opt --precision-verify-formats 2>&1 | FileCheck %s --check-prefix=STATISTIC
// RUN: sed 's/-> tensor<4x8xbf16> \/\/ y/-> tensor<4x8xf32>/' %s | not heddle-opt --precision-verify-formats 2>&1 | FileCheck %s --check-prefix=COMPUTE
// RUN: sed 's/-> tensor<8x8xf32> \/\/ d_w/-> tensor<8x8xbf16>/; s/return %d_w : tensor<8x8xf32>/return %d_w : tensor<8x8xbf16>/; s/(tensor<8x8xf32> {transformer.gradient_of/(tensor<8x8xbf16> {transformer.gradient_of/' %s | not heddle-opt --precision-verify-formats 2>&1 | FileCheck %s --check-prefix=GRADIENT
// RUN: sed 's/reduce = f32/reduce = bf16/' %s | not heddle-opt --precision-verify-formats 2>&1 | FileCheck %s --check-prefix=REDUCE
// RUN: sed 's/reduce = f32/reduce = bf16/; s/dist.all_reduce %d sum .*$/stage.sum_ends %d : tensor<8x8xf32>/' %s | not heddle-opt --precision-verify-formats 2>&1 | FileCheck %s --check-prefix=ENDS
// RUN: sed '/store %w1 to @w.master/d' %s | not heddle-opt --precision-verify-formats 2>&1 | FileCheck %s --check-prefix=KEPT
// RUN: sed 's/store %w1_rounded to @w/store %old to @w/' %s | not heddle-opt --precision-verify-formats 2>&1 | FileCheck %s --check-prefix=STORED
// RUN: sed 's/load @w.master : tensor<8x8xf32>/load @w.gradient : tensor<8x8xf32>/' %s | not heddle-opt --precision-verify-formats 2>&1 | FileCheck %s --check-prefix=MASTER
// RUN: sed 's/part> -> tensor<8x8xf32, #part>/part> -> tensor<8x8xf16, #part>/' %s | not heddle-opt --precision-verify-formats 2>&1 | FileCheck %s --check-prefix=PARTIAL
//
// STATE: 'transformer.state' op is a master in 'f16'; the plan keeps these in 'f32'
// STATISTIC: 'transformer.rms_norm' op makes 'rstd' in 'bf16'; statistics are in 'f32'
// COMPUTE: 'transformer.contract' op makes 'y' in 'f32'; the plan computes in 'bf16'
// GRADIENT: 'func.return' op returns the gradient 'd_w' in 'bf16'; the plan keeps these in 'f32'
// REDUCE: 'dist.all_reduce' op reduces a gradient of @w.gradient in 'f32'; the plan names 'bf16'
// ENDS: 'stage.sum_ends' op reduces a gradient of @w.gradient in 'f32'; the plan names 'bf16'
// KEPT: 'transformer.sgd' op does not store the master @w.master
// STORED: 'transformer.store' op stores a parameter that is no rounded master
// MASTER: 'transformer.sgd' op updates a value that is no master
// PARTIAL: 'transformer.cast' op casts a partial sum ([{}, {}], partial = ["dp"]) to 'f16'; the plan names 'f32' for what is reduced

#pod = #dist.mesh<["dp" = 2]>
#part = #dist.layout<#pod, [{}, {}], partial = ["dp"]>
// CHECK: transformer.precision
module attributes {transformer.precision = {compute = bf16, gradients = f32, master = f32, reduce = f32}} {
  transformer.state @w parameter : tensor<8x8xbf16>
  transformer.state @w.master master of @w : tensor<8x8xf32>
  transformer.state @w.gradient gradient of @w : tensor<8x8xf32>

  func.func @norm(%x: tensor<4x8xbf16>, %g: tensor<8xbf16>) {
    %n, %rstd = transformer.rms_norm %x, %g epsilon 1.000000e-05 {as = ["n", "rstd"]} : (tensor<4x8xbf16>, tensor<8xbf16>) -> (tensor<4x8xbf16>, tensor<4xf32>)
    return
  }
  func.func @product(%x: tensor<4x8xbf16>, %w: tensor<8x8xbf16>) {
    %y = transformer.contract "t d, f d -> t f" %x, %w {as = ["y"]} : (tensor<4x8xbf16>, tensor<8x8xbf16>) -> tensor<4x8xbf16> // y
    return
  }
  func.func @product_bwd(%x: tensor<4x8xbf16>, %d_y: tensor<4x8xbf16>) -> (tensor<8x8xf32> {transformer.gradient_of = @w}) {
    %d_w = transformer.contract "t f, t d -> f d" %d_y, %x {as = ["d_w"]} : (tensor<4x8xbf16>, tensor<4x8xbf16>) -> tensor<8x8xf32> // d_w
    return %d_w : tensor<8x8xf32>
  }
  func.func @step(%p: tensor<8x8xf32, #part>, %d: tensor<8x8xf32>, %old: tensor<8x8xbf16>, %h: tensor<8x8xf16>, %rate: tensor<f32>, %factor: tensor<f32>) {
    %part = transformer.cast %p : tensor<8x8xf32, #part> -> tensor<8x8xf32, #part>
    %sum = dist.all_reduce %d sum on #pod over ["dp"] : tensor<8x8xf32> -> tensor<8x8xf32>
    transformer.store %sum to @w.gradient : tensor<8x8xf32>
    %d_w = transformer.load @w.gradient : tensor<8x8xf32>
    %w_master = transformer.load @w.master : tensor<8x8xf32>
    %w1 = transformer.sgd %w_master, %d_w, %rate, %factor {weight_decay = 0.000000e+00 : f64} : (tensor<8x8xf32>, tensor<8x8xf32>, tensor<f32>, tensor<f32>) -> tensor<8x8xf32>
    %w1_rounded = transformer.cast %w1 : tensor<8x8xf32> -> tensor<8x8xbf16>
    transformer.store %w1 to @w.master : tensor<8x8xf32>
    transformer.store %w1_rounded to @w : tensor<8x8xbf16>
    return
  }
}
