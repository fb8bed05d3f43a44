// Each broken promise of the family is found.
//
// RUN: heddle-opt %s --split-input-file --verify-diagnostics --collectives-verify

#pod = #dist.mesh<["tp" = 4]>
!rows = tensor<8xf32, #dist.layout<#pod, [{"tp"}]>>
!whole = tensor<8xf32, #dist.layout<#pod, [{}]>>
func.func @left(%x: !rows) {
  // expected-error @below {{is left; it moves data without saying how}}
  // expected-error @below {{has a layout in a type; it should be one rank's}}
  %y = dist.reshard %x : !rows -> !whole
  return
}

// -----

#pod = #dist.mesh<["tp" = 4]>
!rows = tensor<8xf32, #dist.layout<#pod, [{"tp"}]>>
func.func @typed(%x: !rows) -> !rows {
  // expected-error @below {{has a layout in a type; it should be one rank's}}
  return %x : !rows
}
