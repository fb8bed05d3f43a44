// One case per constraint that holds for every op with a factor rule.
//
// RUN: heddle-opt %s --split-input-file --verify-diagnostics

// F1: dimensions as many as the rule has.
func.func @f1(%x: tensor<4x8xf32>, %w: tensor<16x8xf32>) {
  // expected-error @below {{a tensor of rank 2 where the rule has 'b s d'}}
  %0 = transformer.contract "b s d, f d -> b s f" %x, %w : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x2x16xf32>
  return
}

// -----

// F1: `...` is the same everywhere.
func.func @f1(%x: tensor<4x8xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{'...' stands for 2 and for 1 dimensions}}
  %0 = transformer.gated silu %x, %y : (tensor<4x8xf32>, tensor<4xf32>) -> tensor<4x8xf32>
  return
}

// -----

// F2: one size.
func.func @f2(%x: tensor<4x8xf32>, %w: tensor<16x6xf32>) {
  // expected-error @below {{factor 'd' has size 8, but dim 1 of operand 1 has size 6}}
  %0 = transformer.contract "b d, f d -> b f" %x, %w : (tensor<4x8xf32>, tensor<16x6xf32>) -> tensor<4x16xf32>
  return
}

// -----

// F2: one size, in results too.
func.func @f2(%x: tensor<4x8xf32>, %w: tensor<16x8xf32>) {
  // expected-error @below {{factor 'f' has size 16, but dim 1 of result 0 has size 8}}
  %0 = transformer.contract "b d, f d -> b f" %x, %w : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x8xf32>
  return
}

// -----

// F2: one stored size.
#m = #dist.mesh<["dp" = 2, "tp" = 4]>
!x = tensor<5x7xf32, #dist.layout<#m, [{}, {"tp"} padded 8]>>
!w = tensor<3x7xf32, #dist.layout<#m, [{}, {"tp"} padded 12]>>
!y = tensor<5x3xf32, #dist.layout<#m, [{}, {}], partial = ["tp"]>>
func.func @f2(%x: !x, %w: !w) {
  // expected-error @below {{factor 'd' is stored as 8, but dim 1 of operand 1 as 12}}
  %0 = transformer.contract "b d, f d -> b f" %x, %w : (!x, !w) -> !y
  return
}

// -----

// F3
#m = #dist.mesh<["dp" = 2, "tp" = 4]>
!x = tensor<4x8xf32, #dist.layout<#m, [{}, {"tp"}]>>
!w = tensor<16x8xf32, #dist.layout<#m, [{}, {}]>>
!y = tensor<4x16xf32, #dist.layout<#m, [{}, {}], partial = ["tp"]>>
func.func @f3(%x: !x, %w: !w) {
  // expected-error @below {{factor 'd' is split over {"tp"} in one operand and over {} in operand 1 dim 1}}
  %0 = transformer.contract "b d, f d -> b f" %x, %w : (!x, !w) -> !y
  return
}

// -----

// F4: an axis cuts one factor.
#m = #dist.mesh<["dp" = 2, "tp" = 4]>
!x = tensor<4x8xf32, #dist.layout<#m, [{"tp"}, {}]>>
!w = tensor<16x8xf32, #dist.layout<#m, [{"tp"}, {}]>>
!y = tensor<4x16xf32, #dist.layout<#m, [{"tp"}, {}]>>
func.func @f4(%x: !x, %w: !w) {
  // expected-error @below {{axis "tp" splits two factors, 'b' and 'f'}}
  %0 = transformer.contract "b d, f d -> b f" %x, %w : (!x, !w) -> !y
  return
}

// -----

// F4: a factor that is needed whole.
#m = #dist.mesh<["dp" = 2, "tp" = 4]>
!x = tensor<4x8xf32, #dist.layout<#m, [{}, {"tp"}]>>
!w = tensor<8xf32, #dist.layout<#m, [{"tp"}]>>
!r = tensor<4xf32, #dist.layout<#m, [{}]>>
func.func @f4(%x: !x, %w: !w) {
  // expected-error @below {{needs factor 'd' whole, but it is split over {"tp"} in operand 0 dim 1}}
  %0, %1 = transformer.rms_norm %x, %w epsilon 1.000000e-05 : (!x, !w) -> (!x, !r)
  return
}

// -----

// F5: not linear.
#m = #dist.mesh<["dp" = 2, "tp" = 4]>
!p = tensor<4x8xf32, #dist.layout<#m, [{}, {}], partial = ["tp"]>>
func.func @f5(%x: !p) {
  // expected-error @below {{is not linear in operand 0, which is a partial sum over {"tp"}; reduce it first (dist.reshard)}}
  %0 = transformer.activation silu %x : (!p) -> !p
  return
}

// -----

// F5: linear in one operand, and partial in the other.
#m = #dist.mesh<["dp" = 2, "tp" = 4]>
!w = tensor<4x8xf32, #dist.layout<#m, [{}, {}]>>
!p = tensor<4x8xf32, #dist.layout<#m, [{}, {}], partial = ["tp"]>>
func.func @f5(%d: !w, %x: !p) {
  // expected-error @below {{is not linear in operand 1}}
  %0 = transformer.activation_grad silu %d, %x : (!w, !p) -> !w
  return
}

// -----

// F5: a sum of a partial and a whole value.
#m = #dist.mesh<["dp" = 2, "tp" = 4]>
!w = tensor<4x8xf32, #dist.layout<#m, [{}, {}]>>
!p = tensor<4x8xf32, #dist.layout<#m, [{}, {}], partial = ["tp"]>>
func.func @f5(%x: !p, %y: !w) {
  // expected-error @below {{adds a partial sum over {"tp"} and one over {}; the whole one would be counted once per rank}}
  %0 = transformer.add %x, %y : (!p, !w) -> !p
  return
}

// -----

// F5: a product of two partial values.
#m = #dist.mesh<["dp" = 2, "tp" = 4]>
!p = tensor<4x8xf32, #dist.layout<#m, [{}, {}], partial = ["tp"]>>
!q = tensor<6x8xf32, #dist.layout<#m, [{}, {}], partial = ["tp"]>>
!y = tensor<4x6xf32, #dist.layout<#m, [{}, {}], partial = ["tp"]>>
func.func @f5(%x: !p, %y: !q) {
  // expected-error @below {{two operands are partial sums over "tp"; their product is not a sum}}
  %0 = transformer.contract "b d, f d -> b f" %x, %y : (!p, !q) -> !y
  return
}

// -----

// F5: a partial maximum goes nowhere.
#m = #dist.mesh<["dp" = 2, "tp" = 4]>
!x = tensor<4xf32, #dist.layout<#m, [{}], partial_max = ["tp"]>>
func.func @f5(%x: !x) {
  // expected-error @below {{operand 0 is a partial maximum over {"tp"}; reduce it first (dist.reshard)}}
  %0 = transformer.add %x, %x : (!x, !x) -> !x
  return
}

// -----

// F6: a sum over a factor that is split is partial.
#m = #dist.mesh<["dp" = 2, "tp" = 4]>
!x = tensor<4x8xf32, #dist.layout<#m, [{"dp"}, {"tp"}]>>
!w = tensor<16x8xf32, #dist.layout<#m, [{}, {"tp"}]>>
!y = tensor<4x16xf32, #dist.layout<#m, [{"dp"}, {}]>>
func.func @f6(%x: !x, %w: !w) {
  // expected-error @below {{result 0 must have layout [{"dp"}, {}], partial = ["tp"], got [{"dp"}, {}]}}
  %0 = transformer.contract "b d, f d -> b f" %x, %w : (!x, !w) -> !y
  return
}

// -----

// F6: no layout in, none out.
#m = #dist.mesh<["dp" = 2, "tp" = 4]>
!y = tensor<4x8xf32, #dist.layout<#m, [{}, {}]>>
func.func @f6(%x: tensor<4x8xf32>) {
  // expected-error @below {{result 0 must have layout none, got [{}, {}]}}
  %0 = transformer.activation silu %x : (tensor<4x8xf32>) -> !y
  return
}

// -----

// F6: a maximum over a factor that is split is a partial maximum.
#m = #dist.mesh<["dp" = 2, "tp" = 4]>
!x = tensor<4x8xf32, #dist.layout<#m, [{}, {"tp"}]>>
!y = tensor<4xf32, #dist.layout<#m, [{}]>>
func.func @f6(%x: !x) {
  // expected-error @below {{result 0 must have layout [{}], partial_max = ["tp"], got [{}]}}
  %0 = transformer.row_max %x : (!x) -> !y
  return
}

// -----

// A size that is not known has no shards.
func.func @factor_f1_dynamic(%x: tensor<?xf32>) -> tensor<?xf32> {
  // expected-error @below {{an op with a factor rule has ranked tensors of static shape only}}
  %0 = transformer.add %x, %x : (tensor<?xf32>, tensor<?xf32>) -> tensor<?xf32>
  return %0 : tensor<?xf32>
}

// -----

// F7: an op is told its part of what it asks for.
#m = #dist.mesh<["tp" = 2]>
func.func @f7(%ids: tensor<4x32xi32>, %table: tensor<8x16xf32>) {
  // expected-error @below {{has a shard of 'd', which is no factor whose position it needs}}
  %0 = transformer.embedding %ids, %table shards {d = #dist.shard<#m, ["tp"], 32>} : (tensor<4x32xi32>, tensor<8x16xf32>) -> tensor<4x32x16xf32>
  return
}

// -----

// F8: runs of a row have no dimensions that an op could treat in its own way.
#m = #dist.mesh<["dp" = 2]>
!x = tensor<4x8xf32, #dist.layout<#m, [{}, {}], runs = ["dp"]>>
!y = tensor<4xf32, #dist.layout<#m, [{}]>>
func.func @f8_dimensions(%x: !x) {
  // expected-error @below {{has a tensor in runs over {"dp"}, but a result with other dimensions}}
  %0 = transformer.row_max %x : (!x) -> !y
  return
}

// -----

// F8: all tensors in the same runs.
#m = #dist.mesh<["dp" = 2]>
!x = tensor<4x8xf32, #dist.layout<#m, [{}, {}], runs = ["dp"]>>
!whole = tensor<4x8xf32, #dist.layout<#m, [{}, {}]>>
func.func @f8_operands(%x: !x, %y: !whole) {
  // expected-error @below {{has a tensor in runs over {"dp"}, but operand 1 is in runs over {}}}
  %0 = transformer.add %x, %y : (!x, !whole) -> !x
  return
}

// -----

// F4: a factor that no operand has is cut as the result says, but by no axis
// that cuts another one.
#m = #dist.mesh<["tp" = 2]>
!ids = tensor<4x32xi32, #dist.layout<#m, [{}, {"tp"}]>>
!x = tensor<4x32x16xf32, #dist.layout<#m, [{}, {"tp"}, {}]>>
!table = tensor<8x16xf32, #dist.layout<#m, [{"tp"}, {}]>>
func.func @f4_made(%ids: !ids, %x: !x) {
  // expected-error @below {{axis "tp" splits two factors, 's' and 'v'}}
  %0 = transformer.embedding_grad %ids, %x : (!ids, !x) -> !table
  return
}

// -----

// F6: what else the result's layout says follows from the operands.
#m = #dist.mesh<["dp" = 2, "tp" = 2]>
!ids = tensor<4x32xi32, #dist.layout<#m, [{"dp"}, {}]>>
!x = tensor<4x32x16xf32, #dist.layout<#m, [{"dp"}, {}, {}]>>
!table = tensor<8x16xf32, #dist.layout<#m, [{"tp"}, {}]>>
func.func @f6_made(%ids: !ids, %x: !x) {
  // expected-error @below {{result 0 must have layout [{"tp"}, {}], partial = ["dp"], got [{"tp"}, {}]}}
  %0 = transformer.embedding_grad %ids, %x : (!ids, !x) -> !table
  return
}
