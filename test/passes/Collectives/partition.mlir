// Whole tensors become what one rank holds; a reshard becomes the cheapest
// collectives, and what it is for stays in the location.
//
// RUN: heddle-opt %s --split-input-file --collectives-partition --collectives-verify | FileCheck %s

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
#part = #dist.layout<#pod, [{}, {}], partial = ["tp"]>
#whole = #dist.layout<#pod, [{}, {}]>
#rows = #dist.layout<#pod, [{"tp"}, {}]>
#columns = #dist.layout<#pod, [{}, {"tp"}]>

// CHECK-DAG: #[[POD:mesh.*]] = #dist.mesh<["dp" = 2, "tp" = 4]>

// CHECK-LABEL: func.func @reduce(
// CHECK-SAME:    tensor<8x64xf32> {dist.global = tensor<8x64xf32>, dist.layout = #dist.layout<#[[POD]], [{}, {}], partial = ["tp"]>}
func.func @reduce(%part: tensor<8x64xf32, #part>) -> tensor<8x64xf32, #whole> {
  // CHECK-NEXT: dist.all_reduce %{{.*}} sum on #[[POD]] over ["tp"] : tensor<8x64xf32> -> tensor<8x64xf32>
  // CHECK-NEXT: return
  %whole = dist.reshard %part : tensor<8x64xf32, #part> -> tensor<8x64xf32, #whole>
  return %whole : tensor<8x64xf32, #whole>
}

// CHECK-LABEL: func.func @scatter(
func.func @scatter(%part: tensor<8x64xf32, #part>) -> tensor<8x64xf32, #rows> {
  // CHECK-NEXT: dist.reduce_scatter %{{.*}} sum on #[[POD]] over ["tp"] dim 0 : tensor<8x64xf32> -> tensor<2x64xf32>
  // CHECK-NEXT: return
  %own = dist.reshard %part : tensor<8x64xf32, #part> -> tensor<8x64xf32, #rows>
  return %own : tensor<8x64xf32, #rows>
}

// CHECK-LABEL: func.func @move(
// CHECK-SAME:    tensor<2x64xf32> {dist.global = tensor<8x64xf32>
func.func @move(%rows: tensor<8x64xf32, #rows>) -> tensor<8x64xf32, #columns> {
  // CHECK-NEXT: dist.all_to_all %{{.*}} on #[[POD]] over ["tp"] {{.*}} : tensor<2x64xf32> -> tensor<8x16xf32>
  // CHECK-NEXT: return
  %columns = dist.reshard %rows : tensor<8x64xf32, #rows> -> tensor<8x64xf32, #columns>
  return %columns : tensor<8x64xf32, #columns>
}

// Nothing moves where each rank has what it needs.
//
// CHECK-LABEL: func.func @cut(
func.func @cut(%whole: tensor<8x64xf32, #whole>) -> tensor<8x64xf32, #rows> {
  // CHECK-NEXT: dist.slice %{{.*}} on #[[POD]] over ["tp"] dim 0 : tensor<8x64xf32> -> tensor<2x64xf32>
  // CHECK-NEXT: return
  %rows = dist.reshard %whole : tensor<8x64xf32, #whole> -> tensor<8x64xf32, #rows>
  return %rows : tensor<8x64xf32, #rows>
}

// What is one rank's already stays as it is.
//
// CHECK-LABEL: func.func @local(
func.func @local(%part: tensor<8x64xf32>) -> tensor<8x64xf32> {
  // CHECK-NEXT: dist.all_reduce
  // CHECK-NEXT: return
  %whole = dist.all_reduce %part sum on #pod over ["tp"] : tensor<8x64xf32> -> tensor<8x64xf32>
  return %whole : tensor<8x64xf32>
}

// -----

// A table of which each rank holds some rows: the lookup must know which, and that
// the last row is padding. What it misses is zero, so the sum over ranks is right.
//
// CHECK-LABEL: func.func @embedding(
// CHECK-SAME:    tensor<64x8xf32> {dist.global = tensor<255x8xf32>
// CHECK-NEXT:    %[[X:.*]] = transformer.embedding {{.*}} shards {v = #dist.shard<#{{.*}}, ["tp"], 255>} {{.*}} -> tensor<4x32x8xf32>
// CHECK-NEXT:    dist.all_reduce %[[X]] sum
#pod = #dist.mesh<["tp" = 4]>
#ids = #dist.layout<#pod, [{}, {}]>
#table = #dist.layout<#pod, [{"tp"} padded 256, {}]>
#part = #dist.layout<#pod, [{}, {}, {}], partial = ["tp"]>
#whole = #dist.layout<#pod, [{}, {}, {}]>
func.func @embedding(%tokens: tensor<4x32xi32, #ids>, %table: tensor<255x8xf32, #table>) -> tensor<4x32x8xf32, #whole> {
  %part = transformer.embedding %tokens, %table : (tensor<4x32xi32, #ids>, tensor<255x8xf32, #table>) -> tensor<4x32x8xf32, #part>
  %x = dist.reshard %part : tensor<4x32x8xf32, #part> -> tensor<4x32x8xf32, #whole>
  return %x : tensor<4x32x8xf32, #whole>
}
