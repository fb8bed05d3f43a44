// States are stored as the plan says, whatever they are computed with: a
// parameter in runs is gathered for the call that takes it, or kept whole from
// forward to backward, or for the step; a gradient is scattered into runs.
//
// RUN: heddle-opt %s --sharding-keep-gathered --sharding-propagate-layouts --sharding-verify-layouts --collectives-partition --collectives-verify | FileCheck %s
// RUN: sed 's/every_pass/every_micro_batch/' %s | heddle-opt --sharding-keep-gathered | FileCheck %s --check-prefix=KEPT
// RUN: sed 's/every_pass/once_per_step/' %s | heddle-opt --sharding-keep-gathered | FileCheck %s --check-prefix=ONCE
// RUN: sed 's/every_pass/sometimes/' %s | not heddle-opt --sharding-keep-gathered 2>&1 | FileCheck %s --check-prefix=WORD
// RUN: sed 's/parameter = \["dp"\]/parameter = \["ep"\]/' %s | not heddle-opt --sharding-keep-gathered 2>&1 | FileCheck %s --check-prefix=AXIS
//
// WORD: dist.storage: gather must be one of every_pass, every_micro_batch, once_per_step, found "sometimes"
// AXIS: dist.storage: parameter must be a list of axes of the mesh, found ["ep"]

// 15 elements are a row of 32: two runs of 16.
//
// CHECK:      transformer.state @"l.{}.w" parameter layers 2 : tensor<16xf32>
// CHECK:      transformer.state @"l.{}.w.gradient_sum" gradient_sum layers 2 {{.*}}: tensor<16xf32>
// CHECK-LABEL: func.func @step(
// CHECK:         %[[PIECE:.*]] = transformer.load @"l.{}.w" at %{{.*}} : tensor<16xf32>
// CHECK-NEXT:    %[[ROW:.*]] = dist.all_gather %[[PIECE]] on {{.*}} over ["dp"] dim 0 : tensor<16xf32> -> tensor<32xf32>
// CHECK-NEXT:    %[[W:.*]] = dist.from_row %[[ROW]] {{.*}}: tensor<32xf32> -> tensor<5x3xf32>
// CHECK-NEXT:    %[[D:.*]]:2 = func.call @block(%{{.*}}, %[[W]])
// CHECK-NEXT:    %[[ROW:.*]] = dist.to_row %[[D]]#1 : tensor<5x3xf32> -> tensor<32xf32>
// CHECK-NEXT:    %[[PIECE:.*]] = dist.reduce_scatter %[[ROW]] sum on {{.*}} over ["dp"] dim 0 : tensor<32xf32> -> tensor<16xf32>
// CHECK-NEXT:    transformer.accumulate %[[PIECE]] into @"l.{}.w.gradient_sum" at %{{.*}} : tensor<16xf32>
// Its squares are a sum over the ranks that have runs of it.
// CHECK:         %[[SQ:.*]] = transformer.sum_squares
// CHECK:         dist.all_reduce %{{.*}} sum on {{.*}} over ["dp"] : tensor<f64>

// KEPT:       transformer.state @"l.{}.w.gathered" gathered layers 2 of @"l.{}.w" : tensor<5x3xf32>
// KEPT-LABEL: func.func @step(
// KEPT:         transformer.loop "layer"
// KEPT:           %[[W:.*]] = transformer.load @"l.{}.w" at %[[L:[a-z]+]] {as
// KEPT-NEXT:      transformer.store %[[W]] to @"l.{}.w.gathered" at %[[L]]
// KEPT-NEXT:      %[[ALL:.*]] = transformer.load @"l.{}.w.gathered" at %[[L]]
// KEPT-NEXT:      func.call @block(%{{.*}}, %[[ALL]])

// ONCE-LABEL: func.func @step(
// ONCE-NEXT:    transformer.loop "layer" 2 : () -> () {
// ONCE-NEXT:    ^bb0(%[[L:.*]]: index):
// ONCE-NEXT:      %[[W:.*]] = transformer.load @"l.{}.w" at %[[L]]
// ONCE-NEXT:      transformer.store %[[W]] to @"l.{}.w.gathered" at %[[L]]
// ONCE:         transformer.loop "layer" 2 carry
// ONCE:           transformer.load @"l.{}.w.gathered"

#pod = #dist.mesh<["dp" = 2]>
module attributes {dist.mesh = #pod, dist.storage = {data = ["dp"], gather = "every_pass", gradient = ["dp"], gradient_sum = ["dp"], parameter = ["dp"], reduce = "every_micro_batch"},
                   dist.values = {block.x = #dist.layout<#pod, [{"dp"}, {}, {}]>, x = #dist.layout<#pod, [{"dp"}, {}, {}]>}} {
  transformer.state @"l.{}.w" parameter layers 2 : tensor<5x3xf32> {dist.layout = #dist.layout<#pod, [{}, {}]>, factors = "f d"}
  transformer.state @"l.{}.w.gradient_sum" gradient_sum layers 2 of @"l.{}.w" : tensor<5x3xf32>
  transformer.state @"l.{}.w.gradient" gradient layers 2 of @"l.{}.w" storage @"l.{}.w.gradient_sum" : tensor<5x3xf32>

  func.func @block(%x: tensor<4x8x3xf32> {transformer.as = "x"}, %w: tensor<5x3xf32> {transformer.as = "w", transformer.state = @"l.{}.w"})
      -> (tensor<4x8x3xf32> {transformer.as = "x"}, tensor<5x3xf32> {transformer.as = "d_w", transformer.gradient_of = @"l.{}.w"}) {
    %h = transformer.contract "b s d, f d -> b s f" %x, %w {as = ["h"]} : (tensor<4x8x3xf32>, tensor<5x3xf32>) -> tensor<4x8x5xf32>
    %d = transformer.contract "b s f, b s d -> f d" %h, %x {as = ["d_w"]} : (tensor<4x8x5xf32>, tensor<4x8x3xf32>) -> tensor<5x3xf32>
    return %x, %d : tensor<4x8x3xf32>, tensor<5x3xf32>
  }

  func.func @step(%x: tensor<4x8x3xf32> {transformer.as = "x"}) -> (tensor<f64> {transformer.as = "squares"}) {
    %y = transformer.loop "layer" 2 carry(%x) : (tensor<4x8x3xf32>) -> tensor<4x8x3xf32> {
    ^bb0(%l: index, %a: tensor<4x8x3xf32>):
      %w = transformer.load @"l.{}.w" at %l {as = ["w"]} : tensor<5x3xf32>
      %r:2 = func.call @block(%a, %w) : (tensor<4x8x3xf32>, tensor<5x3xf32>) -> (tensor<4x8x3xf32>, tensor<5x3xf32>)
      transformer.accumulate %r#1 into @"l.{}.w.gradient_sum" at %l : tensor<5x3xf32>
      transformer.yield %r#0 : tensor<4x8x3xf32>
    }
    %none = transformer.zeros : tensor<f64>
    %all = transformer.loop "layer" 2 carry(%none) : (tensor<f64>) -> tensor<f64> {
    ^bb0(%l: index, %sum: tensor<f64>):
      %s = transformer.load @"l.{}.w.gradient_sum" at %l : tensor<5x3xf32>
      transformer.store %s to @"l.{}.w.gradient" at %l : tensor<5x3xf32>
      %g = transformer.load @"l.{}.w.gradient" at %l : tensor<5x3xf32>
      %sq = transformer.sum_squares %g : (tensor<5x3xf32>) -> tensor<f64>
      %next = transformer.add %sum, %sq : (tensor<f64>, tensor<f64>) -> tensor<f64>
      transformer.yield %next : tensor<f64>
    }
    return %all : tensor<f64>
  }
}
