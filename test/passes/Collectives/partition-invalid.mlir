// RUN: heddle-opt %s --split-input-file --verify-diagnostics --collectives-partition

#pod = #dist.mesh<["tp" = 4]>
#plain = #dist.layout<#pod, [{}]>
#padded = #dist.layout<#pod, [{"tp"} padded 12]>
func.func @grow(%x: tensor<10xf32, #plain>) {
  // expected-error @below {{dim 0 of size 10 is stored as 10 on one side and as 12 on the other; a reshard cannot change padding}}
  %y = dist.reshard %x : tensor<10xf32, #plain> -> tensor<10xf32, #padded>
  return
}
