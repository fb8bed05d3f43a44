// Without a master a parameter is what was updated of it, and nothing else.
//
// RUN: heddle-opt %s --precision-verify-formats | FileCheck %s
// RUN: sed 's/sgd %w, /sgd %other, /' %s | not heddle-opt --precision-verify-formats 2>&1 | FileCheck %s --check-prefix=OWN
// RUN: sed 's/store %w1 to @w/store %other to @w/' %s | not heddle-opt --precision-verify-formats 2>&1 | FileCheck %s --check-prefix=UPDATED
//
// CHECK: transformer.precision
// OWN: 'transformer.sgd' op updates a value that is no parameter
// UPDATED: 'transformer.store' op stores a parameter that is no updated one

module attributes {transformer.precision = {compute = bf16, gradients = f32, reduce = f32}} {
  transformer.state @w parameter : tensor<8x8xbf16>
  func.func @step(%d_w: tensor<8x8xf32>, %other: tensor<8x8xbf16>, %rate: tensor<f32>, %factor: tensor<f32>) {
    %w = transformer.load @w : tensor<8x8xbf16>
    %w1 = transformer.sgd %w, %d_w, %rate, %factor {weight_decay = 0.000000e+00 : f64} : (tensor<8x8xbf16>, tensor<8x8xf32>, tensor<f32>, tensor<f32>) -> tensor<8x8xbf16>
    transformer.store %w1 to @w : tensor<8x8xbf16>
    return
  }
}
