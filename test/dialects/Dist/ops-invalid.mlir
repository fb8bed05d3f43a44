// One case per constraint of each op.
//
// RUN: heddle-opt %s --split-input-file --verify-diagnostics

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @reshard_c1(%x: tensor<8xf32, #dist.layout<#pod, [{"tp"}]>>) {
  // expected-error @below {{only the layout may change}}
  %0 = dist.reshard %x : tensor<8xf32, #dist.layout<#pod, [{"tp"}]>> -> tensor<16xf32, #dist.layout<#pod, [{}]>>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @reshard_c2(%x: tensor<8xf32>) {
  // expected-error @below {{needs a layout on both sides, on one mesh}}
  %0 = dist.reshard %x : tensor<8xf32> -> tensor<8xf32, #dist.layout<#pod, [{}]>>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
#other = #dist.mesh<["dp" = 4, "tp" = 2]>
func.func @reshard_c2(%x: tensor<8xf32, #dist.layout<#other, [{}]>>) {
  // expected-error @below {{needs a layout on both sides, on one mesh}}
  %0 = dist.reshard %x : tensor<8xf32, #dist.layout<#other, [{}]>> -> tensor<8xf32, #dist.layout<#pod, [{}]>>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @reshard_c3(%x: tensor<8xf32, #dist.layout<#pod, [{}], partial_max = ["tp"]>>) {
  // expected-error @below {{cannot turn a maximum over "tp" into a sum}}
  %0 = dist.reshard %x : tensor<8xf32, #dist.layout<#pod, [{}], partial_max = ["tp"]>> -> tensor<8xf32, #dist.layout<#pod, [{}], partial = ["tp"]>>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @reshard_c3(%x: tensor<8xf32, #dist.layout<#pod, [{}], partial = ["tp"]>>) {
  // expected-error @below {{cannot turn a sum over "tp" into a maximum}}
  %0 = dist.reshard %x : tensor<8xf32, #dist.layout<#pod, [{}], partial = ["tp"]>> -> tensor<8xf32, #dist.layout<#pod, [{}], partial_max = ["tp"]>>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @all_reduce_c1(%x: tensor<8x64xf32>) {
  // expected-error @below {{axis "cp" is not in the mesh}}
  %0 = dist.all_reduce %x sum on #pod over ["cp"] : tensor<8x64xf32> -> tensor<8x64xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @all_reduce_c1(%x: tensor<8x64xf32>) {
  // expected-error @below {{axis "tp" is named twice}}
  %0 = dist.all_reduce %x sum on #pod over ["tp", "tp"] : tensor<8x64xf32> -> tensor<8x64xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @all_reduce_c2(%x: tensor<8x64xf32>) {
  // expected-error @below {{result must be 'tensor<8x64xf32>', got 'tensor<8x32xf32>'}}
  %0 = dist.all_reduce %x sum on #pod over ["tp"] : tensor<8x64xf32> -> tensor<8x32xf32>
  return
}

// -----

// The mirror of an axis that cannot be halved.
#pod = #dist.mesh<["dp" = 2, "pp" = 3]>
func.func @all_reduce_c1(%x: tensor<8x64xf32>) {
  // expected-error @below {{axis "pp.mirror" is not in the mesh}}
  %0 = dist.all_reduce %x sum on #pod over ["pp.mirror"] : tensor<8x64xf32> -> tensor<8x64xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "pp" = 4]>
func.func @all_reduce_c1(%x: tensor<8x64xf32>) {
  // expected-error @below {{axis "pp.mirror" is named twice}}
  %0 = dist.all_reduce %x sum on #pod over ["pp", "pp.mirror"] : tensor<8x64xf32> -> tensor<8x64xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @reduce_scatter_c1(%x: tensor<8x64xf32>) {
  // expected-error @below {{axis "cp" is not in the mesh}}
  %0 = dist.reduce_scatter %x sum on #pod over ["cp"] dim 0 : tensor<8x64xf32> -> tensor<2x64xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @reduce_scatter_c1(%x: tensor<8x64xf32>) {
  // expected-error @below {{axis "tp" is named twice}}
  %0 = dist.reduce_scatter %x sum on #pod over ["tp", "tp"] dim 0 : tensor<8x64xf32> -> tensor<2x64xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @reduce_scatter_c2(%x: tensor<8x64xf32>) {
  // expected-error @below {{dim 2 is out of range for a tensor of rank 2}}
  %0 = dist.reduce_scatter %x sum on #pod over ["tp"] dim 2 : tensor<8x64xf32> -> tensor<2x64xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @reduce_scatter_c3(%x: tensor<6xf32>) {
  // expected-error @below {{cannot cut dim 0 of size 6 into 4 equal slices}}
  %0 = dist.reduce_scatter %x sum on #pod over ["tp"] dim 0 : tensor<6xf32> -> tensor<2xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @reduce_scatter_c4(%x: tensor<8x64xf32>) {
  // expected-error @below {{result must be 'tensor<2x64xf32>', got 'tensor<4x64xf32>'}}
  %0 = dist.reduce_scatter %x sum on #pod over ["tp"] dim 0 : tensor<8x64xf32> -> tensor<4x64xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @slice_c1(%x: tensor<8x64xf32>) {
  // expected-error @below {{axis "cp" is not in the mesh}}
  %0 = dist.slice %x on #pod over ["cp"] dim 0 : tensor<8x64xf32> -> tensor<2x64xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @slice_c1(%x: tensor<8x64xf32>) {
  // expected-error @below {{axis "tp" is named twice}}
  %0 = dist.slice %x on #pod over ["tp", "tp"] dim 0 : tensor<8x64xf32> -> tensor<2x64xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @slice_c2(%x: tensor<8x64xf32>) {
  // expected-error @below {{dim 2 is out of range for a tensor of rank 2}}
  %0 = dist.slice %x on #pod over ["tp"] dim 2 : tensor<8x64xf32> -> tensor<2x64xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @slice_c3(%x: tensor<6xf32>) {
  // expected-error @below {{cannot cut dim 0 of size 6 into 4 equal slices}}
  %0 = dist.slice %x on #pod over ["tp"] dim 0 : tensor<6xf32> -> tensor<2xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @slice_c4(%x: tensor<8x64xf32>) {
  // expected-error @below {{result must be 'tensor<2x64xf32>', got 'tensor<4x64xf32>'}}
  %0 = dist.slice %x on #pod over ["tp"] dim 0 : tensor<8x64xf32> -> tensor<4x64xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @all_gather_c1(%x: tensor<2x64xf32>) {
  // expected-error @below {{axis "cp" is not in the mesh}}
  %0 = dist.all_gather %x on #pod over ["cp"] dim 0 : tensor<2x64xf32> -> tensor<8x64xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @all_gather_c1(%x: tensor<2x64xf32>) {
  // expected-error @below {{axis "tp" is named twice}}
  %0 = dist.all_gather %x on #pod over ["tp", "tp"] dim 0 : tensor<2x64xf32> -> tensor<8x64xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @all_gather_c2(%x: tensor<2x64xf32>) {
  // expected-error @below {{dim 2 is out of range for a tensor of rank 2}}
  %0 = dist.all_gather %x on #pod over ["tp"] dim 2 : tensor<2x64xf32> -> tensor<8x64xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @all_gather_c4(%x: tensor<2x64xf32>) {
  // expected-error @below {{result must be 'tensor<8x64xf32>', got 'tensor<4x64xf32>'}}
  %0 = dist.all_gather %x on #pod over ["tp"] dim 0 : tensor<2x64xf32> -> tensor<4x64xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @all_to_all_c1(%x: tensor<2x64xf32>) {
  // expected-error @below {{axis "cp" is not in the mesh}}
  %0 = dist.all_to_all %x on #pod over ["cp"] dim 0 to_dim 1 : tensor<2x64xf32> -> tensor<8x16xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @all_to_all_c1(%x: tensor<2x64xf32>) {
  // expected-error @below {{axis "tp" is named twice}}
  %0 = dist.all_to_all %x on #pod over ["tp", "tp"] dim 0 to_dim 1 : tensor<2x64xf32> -> tensor<8x16xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @all_to_all_c2(%x: tensor<2x64xf32>) {
  // expected-error @below {{dim and to_dim are both 0}}
  %0 = dist.all_to_all %x on #pod over ["tp"] dim 0 to_dim 0 : tensor<2x64xf32> -> tensor<8x16xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @all_to_all_c2(%x: tensor<2x64xf32>) {
  // expected-error @below {{dim 2 is out of range for a tensor of rank 2}}
  %0 = dist.all_to_all %x on #pod over ["tp"] dim 2 to_dim 0 : tensor<2x64xf32> -> tensor<8x16xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @all_to_all_c2(%x: tensor<2x64xf32>) {
  // expected-error @below {{dim 3 is out of range for a tensor of rank 2}}
  %0 = dist.all_to_all %x on #pod over ["tp"] dim 0 to_dim 3 : tensor<2x64xf32> -> tensor<8x16xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @all_to_all_c3(%x: tensor<2x6xf32>) {
  // expected-error @below {{cannot cut dim 1 of size 6 into 4 equal slices}}
  %0 = dist.all_to_all %x on #pod over ["tp"] dim 0 to_dim 1 : tensor<2x6xf32> -> tensor<8x2xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @all_to_all_c4(%x: tensor<2x64xf32>) {
  // expected-error @below {{result must be 'tensor<8x16xf32>', got 'tensor<8x32xf32>'}}
  %0 = dist.all_to_all %x on #pod over ["tp"] dim 0 to_dim 1 : tensor<2x64xf32> -> tensor<8x32xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @permute_c1(%x: tensor<8xf32>) {
  // expected-error @below {{axis "cp" is not in the mesh}}
  %0 = dist.permute %x on #pod over ["cp"] from [0, 1] : tensor<8xf32> -> tensor<8xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @permute_c1(%x: tensor<8xf32>) {
  // expected-error @below {{axis "tp" is named twice}}
  %0 = dist.permute %x on #pod over ["tp", "tp"] from [0, 1] : tensor<8xf32> -> tensor<8xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @permute_c2(%x: tensor<8xf32>) {
  // expected-error @below {{sources must be a permutation of the 2 positions of a group}}
  %0 = dist.permute %x on #pod over ["dp"] from [0] : tensor<8xf32> -> tensor<8xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @permute_c2(%x: tensor<8xf32>) {
  // expected-error @below {{sources must be a permutation of the 2 positions of a group}}
  %0 = dist.permute %x on #pod over ["dp"] from [1, 1] : tensor<8xf32> -> tensor<8xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @permute_c2(%x: tensor<8xf32>) {
  // expected-error @below {{sources must be a permutation of the 2 positions of a group}}
  %0 = dist.permute %x on #pod over ["dp"] from [0, 2] : tensor<8xf32> -> tensor<8xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @permute_c3(%x: tensor<8xf32>) {
  // expected-error @below {{cannot turn 'tensor<8xf32>' into 'tensor<4xf32>'}}
  %0 = dist.permute %x on #pod over ["dp"] from [1, 0] : tensor<8xf32> -> tensor<4xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @make_partial_c1(%x: tensor<8xf32>) {
  // expected-error @below {{axis "cp" is not in the mesh}}
  %0 = dist.make_partial %x on #pod over ["cp"] : tensor<8xf32> -> tensor<8xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @make_partial_c1(%x: tensor<8xf32>) {
  // expected-error @below {{axis "tp" is named twice}}
  %0 = dist.make_partial %x on #pod over ["tp", "tp"] : tensor<8xf32> -> tensor<8xf32>
  return
}

// -----

#pod = #dist.mesh<["dp" = 2, "tp" = 4]>
func.func @make_partial_c2(%x: tensor<8xf32>) {
  // expected-error @below {{result must be 'tensor<8xf32>', got 'tensor<4xf32>'}}
  %0 = dist.make_partial %x on #pod over ["tp"] : tensor<8xf32> -> tensor<4xf32>
  return
}

// -----

func.func @to_row_c1(%x: tensor<5x3xf32>) {
  // expected-error @below {{'tensor<14xf32>' is no row that begins with 'tensor<5x3xf32>'}}
  %0 = dist.to_row %x : tensor<5x3xf32> -> tensor<14xf32>
  return
}

// -----

func.func @from_row_c1(%x: tensor<4x4xf32>) {
  // expected-error @below {{'tensor<4x4xf32>' is no row that begins with 'tensor<5x3xf32>'}}
  %0 = dist.from_row %x : tensor<4x4xf32> -> tensor<5x3xf32>
  return
}
