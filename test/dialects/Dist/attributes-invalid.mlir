// One case per constraint of meshes (M) and layouts (L).
//
// RUN: heddle-opt %s --split-input-file --verify-diagnostics

// M1: a name is not empty.
// expected-error @below {{an axis of a mesh needs a name}}
#m = #dist.mesh<["" = 2]>

// -----

// M1: a name stands once.
// expected-error @below {{axis "tp" is in the mesh twice}}
#m = #dist.mesh<["tp" = 2, "tp" = 4]>

// -----

// M2
// expected-error @below {{axis "tp" must have a size of at least 1, got 0}}
#m = #dist.mesh<["tp" = 0]>

// -----

// M2: the number of ranks is an integer.
// expected-error @below {{the mesh has more ranks than an integer can count}}
#m = #dist.mesh<["dp" = 4611686018427387904, "tp" = 4]>

// -----

// L1
#m = #dist.mesh<["dp" = 2, "tp" = 4]>
// expected-error @below {{layout of 1 dimensions on a tensor of rank 2}}
func.func private @l1(tensor<4x8xf32, #dist.layout<#m, [{"dp"}]>>)

// -----

// L2
#m = #dist.mesh<["dp" = 2, "tp" = 4]>
// expected-error @below {{axis "pp" is not in the mesh}}
func.func private @l2(tensor<4x8xf32, #dist.layout<#m, [{"pp"}, {}]>>)

// -----

// L3: in two dimensions.
#m = #dist.mesh<["dp" = 2, "tp" = 4]>
// expected-error @below {{axis "tp" is used twice: dim 0 and dim 1}}
func.func private @l3(tensor<4x8xf32, #dist.layout<#m, [{"tp"}, {"tp"}]>>)

// -----

// L3: in a dimension and partial.
#m = #dist.mesh<["dp" = 2, "tp" = 4]>
// expected-error @below {{axis "tp" is used twice: dim 0 and partial}}
func.func private @l3(tensor<4x8xf32, #dist.layout<#m, [{"tp"}, {}], partial = ["tp"]>>)

// -----

// L4: parts are equal.
#m = #dist.mesh<["dp" = 2, "tp" = 4]>
// expected-error @below {{dim 0 of size 50257 cannot be cut into 4 equal shards; write 'padded 50260'}}
func.func private @l4(tensor<50257xf32, #dist.layout<#m, [{"tp"}]>>)

// -----

// L4: the stored size holds the true one.
#m = #dist.mesh<["dp" = 2, "tp" = 4]>
// expected-error @below {{dim 0 of size 9 cannot be stored as 8}}
func.func private @l4(tensor<9xf32, #dist.layout<#m, [{"tp"} padded 8]>>)

// -----

// What is no layout at all.
#m = #dist.mesh<["dp" = 2, "tp" = 4]>
// expected-error @below {{expected 'partial', 'partial_max' or 'runs', found 'local'}}
func.func private @key(tensor<4xf32, #dist.layout<#m, [{}], local = ["tp"]>>)

// -----

// L3: an axis that cuts a dimension cuts no runs.
#m = #dist.mesh<["dp" = 2, "tp" = 4]>
// expected-error @below {{axis "tp" is used twice: dim 0 and runs}}
func.func private @l3(tensor<8xf32, #dist.layout<#m, [{"tp"}], runs = ["tp"]>>)
