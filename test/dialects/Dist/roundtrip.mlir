// Every op and attribute of the dialect survives being printed and read again;
// so do the examples of the reference. Meshes and layouts are printed once, as
// aliases.
//
// RUN: heddle-opt %s | heddle-opt | FileCheck %s

// CHECK-DAG: #[[POD:mesh.*]] = #dist.mesh<["dp" = 2, "tp" = 4]>
// CHECK-DAG: #[[OWN:layout.*]] = #dist.layout<#[[POD]], [{"dp"}, {}, {"tp"}]>
// CHECK-DAG: #[[SUM:layout.*]] = #dist.layout<#[[POD]], [{}, {} padded 50260], partial = ["dp", "tp"]>
// CHECK-DAG: #[[MAX:layout.*]] = #dist.layout<#[[POD]], [{"dp"}], partial_max = ["tp"]>
// CHECK-DAG: #[[BOTH:layout.*]] = #dist.layout<#[[POD]], [{"tp", "dp"} padded 24]>
// CHECK-DAG: #[[PIECE:layout.*]] = #dist.layout<#[[POD]], [{"tp"}, {}], runs = ["dp"]>
#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
!run = tensor<96x64xf32, #dist.layout<#pod, [{"tp"}, {} ], runs = ["dp"]>>
!own = tensor<4x32x64xf32, #dist.layout<#pod, [{"dp"}, {}, {"tp"} ]>>
!sum = tensor<4x50257xf32, #dist.layout<#pod, [{}, {} padded 50260], partial = ["dp", "tp"]>>
!max = tensor<8xf32, #dist.layout<#pod, [{"dp"}], partial_max = ["tp"]>>
!both = tensor<17xf32, #dist.layout<#pod, [{"tp", "dp"} padded 24]>>
!part = tensor<8x8xf32, #dist.layout<#pod, [{}, {}], partial = ["tp"]>>
!whole = tensor<8x8xf32, #dist.layout<#pod, [{"tp"}, {}]>>
#part = #dist.shard<#pod, ["tp"], 251>

// CHECK-LABEL: func.func private @layouts(
// CHECK-SAME:    tensor<4x32x64xf32, #[[OWN]]>
// CHECK-SAME:    tensor<4x50257xf32, #[[SUM]]>
// CHECK-SAME:    tensor<8xf32, #[[MAX]]>
// CHECK-SAME:    tensor<17xf32, #[[BOTH]]>
// CHECK-SAME:    {dist.part = #dist.shard<#[[POD]], ["tp"], 251>}
func.func private @layouts(!own, !sum, !max, !both {dist.part = #part})

// CHECK: func.func private @runs(tensor<96x64xf32, #[[PIECE]]>)
func.func private @runs(!run)

// CHECK-LABEL: func.func @rows(
func.func @rows(%w: tensor<5x3xf32>) {
  // CHECK-NEXT: dist.to_row %{{.*}} : tensor<5x3xf32> -> tensor<16xf32>
  %row = dist.to_row %w : tensor<5x3xf32> -> tensor<16xf32>
  return
}

// CHECK-LABEL: func.func @buckets(
func.func @buckets(%row: tensor<16xf32>) {
  // CHECK-NEXT: dist.bucket "block.0" {
  // CHECK-NEXT:   dist.from_row %{{.*}} : tensor<16xf32> -> tensor<5x3xf32>
  dist.bucket "block.0" {
    %w = dist.from_row %row : tensor<16xf32> -> tensor<5x3xf32>
  }
  return
}

// CHECK-LABEL: func.func @reshard(
func.func @reshard(%part: !part) {
  // CHECK-NEXT: dist.reshard %{{.*}} : tensor<8x8xf32, #{{.*}}> -> tensor<8x8xf32, #{{.*}}>
  %whole = dist.reshard %part : !part -> !whole
  return
}

// CHECK-LABEL: func.func @all_reduce(
func.func @all_reduce(%x: tensor<8x64xf32>) {
  // CHECK-NEXT: dist.all_reduce %{{.*}} sum on #[[POD]] over ["tp"] : tensor<8x64xf32> -> tensor<8x64xf32>
  %sum = dist.all_reduce %x sum on #pod over ["tp"] : tensor<8x64xf32> -> tensor<8x64xf32>
  // CHECK-NEXT: dist.all_reduce %{{.*}} max on #[[POD]] over ["tp", "dp"] : tensor<8x64xf32> -> tensor<8x64xf32>
  %max = dist.all_reduce %x max on #pod over ["tp", "dp"] : tensor<8x64xf32> -> tensor<8x64xf32>
  // CHECK-NEXT: dist.all_reduce %{{.*}} sum on #[[POD]] over ["tp.mirror"] : tensor<8x64xf32> -> tensor<8x64xf32>
  %both = dist.all_reduce %x sum on #pod over ["tp.mirror"] : tensor<8x64xf32> -> tensor<8x64xf32>
  return
}

// CHECK-LABEL: func.func @reduce_scatter(
func.func @reduce_scatter(%x: tensor<8x64xf32>) {
  // CHECK-NEXT: dist.reduce_scatter %{{.*}} sum on #[[POD]] over ["tp"] dim 0 : tensor<8x64xf32> -> tensor<2x64xf32>
  %own = dist.reduce_scatter %x sum on #pod over ["tp"] dim 0 : tensor<8x64xf32> -> tensor<2x64xf32>
  return
}

// CHECK-LABEL: func.func @all_gather(
func.func @all_gather(%x: tensor<2x64xf32>) {
  // CHECK-NEXT: dist.all_gather %{{.*}} on #[[POD]] over ["tp"] dim 0 : tensor<2x64xf32> -> tensor<8x64xf32>
  %all = dist.all_gather %x on #pod over ["tp"] dim 0 : tensor<2x64xf32> -> tensor<8x64xf32>
  return
}

// CHECK-LABEL: func.func @all_to_all(
func.func @all_to_all(%x: tensor<2x64xf32>) {
  // CHECK-NEXT: dist.all_to_all %{{.*}} on #[[POD]] over ["tp"] dim 0 to_dim 1 : tensor<2x64xf32> -> tensor<8x16xf32>
  %moved = dist.all_to_all %x on #pod over ["tp"] dim 0 to_dim 1 : tensor<2x64xf32> -> tensor<8x16xf32>
  return
}

// CHECK-LABEL: func.func @permute(
func.func @permute(%x: tensor<8xf32>) {
  // CHECK-NEXT: dist.permute %{{.*}} on #[[POD]] over ["dp"] from [1, 0] : tensor<8xf32> -> tensor<8xf32>
  %other = dist.permute %x on #pod over ["dp"] from [1, 0] : tensor<8xf32> -> tensor<8xf32>
  return
}

// CHECK-LABEL: func.func @slice(
func.func @slice(%sum: tensor<8x64xf32>) {
  // CHECK-NEXT: dist.slice %{{.*}} on #[[POD]] over ["tp"] dim 0 : tensor<8x64xf32> -> tensor<2x64xf32>
  %own = dist.slice %sum on #pod over ["tp"] dim 0 : tensor<8x64xf32> -> tensor<2x64xf32>
  return
}

// CHECK-LABEL: func.func @make_partial(
func.func @make_partial(%bias: tensor<64xf32>) {
  // CHECK-NEXT: dist.make_partial %{{.*}} on #[[POD]] over ["tp"] : tensor<64xf32> -> tensor<64xf32>
  %part = dist.make_partial %bias on #pod over ["tp"] : tensor<64xf32> -> tensor<64xf32>
  return
}
