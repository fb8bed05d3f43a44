// Layouts follow from what is pinned: column and row parallelism of an MLP are
// what the factor rule of `contract` gives, with one reduction where the residual
// stream needs the sum; with a split sequence, a gather and a scatter instead.
//
// RUN: heddle-opt %s --split-input-file --sharding-propagate-layouts --sharding-verify-layouts --collectives-partition --collectives-verify | FileCheck %s
// RUN: heddle-opt %s --split-input-file --sharding-propagate-layouts | FileCheck %s --check-prefix=LAYOUT

// The weights decide: f over tp in between, and the sum over f is partial.
//
// LAYOUT-LABEL: func.func @block(
// LAYOUT:         transformer.contract "b s d, f d -> b s f" {{.*}} -> tensor<4x8x16xf32, #[[SPLIT:.*]]>
// LAYOUT:         %[[M:.*]] = transformer.gated silu
// LAYOUT:         %[[SUM:.*]] = transformer.contract "b s f, d f -> b s d" %[[M]]{{.*}} -> tensor<4x8x12xf32, #[[PARTIAL:.*]]>
// LAYOUT-NEXT:    dist.reshard %[[SUM]] {{.*}}tensor<4x8x12xf32, #[[PARTIAL]]> -> tensor<4x8x12xf32, #[[X:.*]]>

// CHECK-LABEL: func.func @block(
// CHECK-SAME:    tensor<2x8x12xf32>
// CHECK-NEXT:    %{{.*}} = transformer.contract "b s d, f d -> b s f" {{.*}} -> tensor<2x8x4xf32>
// CHECK-NEXT:    %{{.*}} = transformer.contract "b s d, f d -> b s f" {{.*}} -> tensor<2x8x4xf32>
// CHECK-NEXT:    %{{.*}} = transformer.gated silu
// CHECK-NEXT:    %[[SUM:.*]] = transformer.contract "b s f, d f -> b s d" {{.*}} -> tensor<2x8x12xf32>
// CHECK-NEXT:    %[[WHOLE:.*]] = dist.all_reduce %[[SUM]] sum on #{{.*}} over ["tp"]
// CHECK-NEXT:    return %{{.*}}, %[[WHOLE]]
#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
#x = #dist.layout<#pod, [{"dp"}, {}, {}]>
#column = #dist.layout<#pod, [{"tp"}, {}]>
#row = #dist.layout<#pod, [{}, {"tp"}]>
module attributes {dist.mesh = #pod, dist.values = {block.x = #x, block.delta = #x}} {
  transformer.state @gate parameter : tensor<16x12xf32> {dist.layout = #column, factors = "f d"}
  transformer.state @up parameter : tensor<16x12xf32> {dist.layout = #column, factors = "f d"}
  transformer.state @down parameter : tensor<12x16xf32> {dist.layout = #row, factors = "d f"}
  func.func @block(%x: tensor<4x8x12xf32> {transformer.as = "x"},
                   %wg: tensor<16x12xf32> {transformer.as = "wg", transformer.state = @gate},
                   %wu: tensor<16x12xf32> {transformer.as = "wu", transformer.state = @up},
                   %wd: tensor<12x16xf32> {transformer.as = "wd", transformer.state = @down})
      -> (tensor<4x8x12xf32> {transformer.as = "x"}, tensor<4x8x12xf32> {transformer.as = "delta"}) {
    %g = transformer.contract "b s d, f d -> b s f" %x, %wg : (tensor<4x8x12xf32>, tensor<16x12xf32>) -> tensor<4x8x16xf32>
    %u = transformer.contract "b s d, f d -> b s f" %x, %wu : (tensor<4x8x12xf32>, tensor<16x12xf32>) -> tensor<4x8x16xf32>
    %m = transformer.gated silu %g, %u : (tensor<4x8x16xf32>, tensor<4x8x16xf32>) -> tensor<4x8x16xf32>
    %delta = transformer.contract "b s f, d f -> b s d" %m, %wd : (tensor<4x8x16xf32>, tensor<12x16xf32>) -> tensor<4x8x12xf32>
    return %x, %delta : tensor<4x8x12xf32>, tensor<4x8x12xf32>
  }
}

// -----

// The residual stream is split over tp by sequence: what was one all_reduce is
// one all_gather, shared by both products, and one reduce_scatter. The norm runs on
// a part of the sequence.
//
// CHECK-LABEL: func.func @block(
// CHECK-SAME:    tensor<2x2x12xf32>
// CHECK-NEXT:    %[[N:.*]]:2 = transformer.rms_norm {{.*}} -> (tensor<2x2x12xf32>, tensor<2x2xf32>)
// CHECK-NEXT:    %[[ALL:.*]] = dist.all_gather %[[N]]#0 on #{{.*}} over ["tp"] dim 1 {{.*}} -> tensor<2x8x12xf32>
// CHECK-NEXT:    %{{.*}} = transformer.contract "b s d, f d -> b s f" %[[ALL]]
// CHECK-NEXT:    %{{.*}} = transformer.contract "b s d, f d -> b s f" %[[ALL]]
// CHECK-NEXT:    %{{.*}} = transformer.gated silu
// CHECK-NEXT:    %[[SUM:.*]] = transformer.contract "b s f, d f -> b s d"
// CHECK-NEXT:    %[[OWN:.*]] = dist.reduce_scatter %[[SUM]] sum on #{{.*}} over ["tp"] dim 1 {{.*}} -> tensor<2x2x12xf32>
// CHECK-NEXT:    return %{{.*}}, %[[OWN]]
#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
#x = #dist.layout<#pod, [{"dp"}, {"tp"}, {}]>
#column = #dist.layout<#pod, [{"tp"}, {}]>
#row = #dist.layout<#pod, [{}, {"tp"}]>
#copy = #dist.layout<#pod, [{}]>
module attributes {dist.mesh = #pod, dist.values = {block.x = #x, block.delta = #x}} {
  transformer.state @norm parameter : tensor<12xf32> {dist.layout = #copy, factors = "d"}
  transformer.state @gate parameter : tensor<16x12xf32> {dist.layout = #column, factors = "f d"}
  transformer.state @up parameter : tensor<16x12xf32> {dist.layout = #column, factors = "f d"}
  transformer.state @down parameter : tensor<12x16xf32> {dist.layout = #row, factors = "d f"}
  func.func @block(%x: tensor<4x8x12xf32> {transformer.as = "x"},
                   %gain: tensor<12xf32> {transformer.as = "gain", transformer.state = @norm},
                   %wg: tensor<16x12xf32> {transformer.as = "wg", transformer.state = @gate},
                   %wu: tensor<16x12xf32> {transformer.as = "wu", transformer.state = @up},
                   %wd: tensor<12x16xf32> {transformer.as = "wd", transformer.state = @down})
      -> (tensor<4x8x12xf32> {transformer.as = "x"}, tensor<4x8x12xf32> {transformer.as = "delta"}) {
    %n, %rstd = transformer.rms_norm %x, %gain epsilon 1.000000e-05 : (tensor<4x8x12xf32>, tensor<12xf32>) -> (tensor<4x8x12xf32>, tensor<4x8xf32>)
    %g = transformer.contract "b s d, f d -> b s f" %n, %wg : (tensor<4x8x12xf32>, tensor<16x12xf32>) -> tensor<4x8x16xf32>
    %u = transformer.contract "b s d, f d -> b s f" %n, %wu : (tensor<4x8x12xf32>, tensor<16x12xf32>) -> tensor<4x8x16xf32>
    %m = transformer.gated silu %g, %u : (tensor<4x8x16xf32>, tensor<4x8x16xf32>) -> tensor<4x8x16xf32>
    %delta = transformer.contract "b s f, d f -> b s d" %m, %wd : (tensor<4x8x16xf32>, tensor<12x16xf32>) -> tensor<4x8x12xf32>
    return %x, %delta : tensor<4x8x12xf32>, tensor<4x8x12xf32>
  }
}

// -----

// A bias after a row-parallel product: a copy of it may not be added to each part
// of a sum, so it is added after the reduction or made a part itself.
//
// CHECK-LABEL: func.func @block(
// CHECK:         %[[SUM:.*]] = transformer.contract "b s f, d f -> b s d"
// CHECK-NEXT:    %[[WHOLE:.*]] = dist.all_reduce %[[SUM]] sum
// CHECK-NEXT:    %{{.*}} = transformer.bias_add %[[WHOLE]]
#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
#x = #dist.layout<#pod, [{"dp"}, {}, {}]>
#row = #dist.layout<#pod, [{}, {"tp"}]>
#copy = #dist.layout<#pod, [{}]>
module attributes {dist.mesh = #pod, dist.values = {block.x = #x, block.delta = #x, m = #dist.layout<#pod, [{"dp"}, {}, {"tp"}]>}} {
  transformer.state @down parameter : tensor<12x16xf32> {dist.layout = #row, factors = "d f"}
  transformer.state @bias parameter : tensor<12xf32> {dist.layout = #copy, factors = "d"}
  func.func @block(%m: tensor<4x8x16xf32> {transformer.as = "m"},
                   %wd: tensor<12x16xf32> {transformer.as = "wd", transformer.state = @down},
                   %b: tensor<12xf32> {transformer.as = "b", transformer.state = @bias})
      -> (tensor<4x8x12xf32> {transformer.as = "delta"}) {
    %sum = transformer.contract "b s f, d f -> b s d" %m, %wd : (tensor<4x8x16xf32>, tensor<12x16xf32>) -> tensor<4x8x12xf32>
    %delta = transformer.bias_add %sum, %b : (tensor<4x8x12xf32>, tensor<12xf32>) -> tensor<4x8x12xf32>
    return %delta : tensor<4x8x12xf32>
  }
}

// -----

// The rows of a table's gradient are cut and stored as the parameter is, though
// no operand has them: backward does not need the table.
//
// LAYOUT-LABEL: func.func @embedding_bwd(
// LAYOUT:         transformer.embedding_grad {{.*}} -> tensor<9x12xf32, #[[TABLE:.*]]>
// LAYOUT-NEXT:    return

// CHECK-LABEL: func.func @embedding_bwd(
// CHECK:         transformer.embedding_grad %{{.*}}, %{{.*}} shards {v = #dist.shard<#{{.*}}, ["tp"], 9>} {{.*}} -> tensor<3x12xf32>
#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
#x = #dist.layout<#pod, [{"dp"}, {}, {}]>
#ids = #dist.layout<#pod, [{"dp"}, {}]>
#rows = #dist.layout<#pod, [{"tp"} padded 12, {}]>
module attributes {dist.mesh = #pod, dist.values = {block.x = #x, block.delta = #x, tokens = #ids}} {
  transformer.state @table parameter : tensor<9x12xf32> {dist.layout = #rows, factors = "v d"}
  func.func @embedding_bwd(%d_x: tensor<4x8x12xf32> {transformer.as = "d_x"}, %tokens: tensor<4x8xi32> {transformer.as = "tokens"})
      -> (tensor<9x12xf32> {transformer.as = "d_table", transformer.gradient_of = @table}) {
    %d_table = transformer.embedding_grad %tokens, %d_x : (tensor<4x8xi32>, tensor<4x8x12xf32>) -> tensor<9x12xf32>
    return %d_table : tensor<9x12xf32>
  }
}
