// A plan pins a value of a block, and saves another one otherwise than forward
// has it: both are reshards that the type shows, and a remark says what each
// costs and which two decisions force it.
//
// RUN: heddle-opt %s --sharding-propagate-layouts --sharding-verify-layouts | FileCheck %s
// RUN: heddle-opt %s --sharding-propagate-layouts --collectives-partition --remarks-filter=collectives \
// RUN:   --remark-format=emitRemark 2>&1 | FileCheck %s --check-prefix=REMARK

// The product is split by its weight and moved behind; the gathered input is
// saved as its reader has it.
//
// CHECK-DAG:     #[[EDGE:layout[0-9]*]] = #dist.layout<#mesh, [{"dp"}, {"tp"}, {}]>
// CHECK-DAG:     #[[WHOLE:layout[0-9]*]] = #dist.layout<#mesh, [{"dp"}, {}, {}]>
// CHECK-LABEL:   func.func @block(
// CHECK:           %[[N:.*]], %{{.*}} = transformer.rms_norm
// CHECK-NEXT:      %[[ALL:.*]] = dist.reshard %[[N]] {{.*}} -> tensor<4x8x12xf32, #[[WHOLE]]>
// CHECK-NEXT:      %[[M:.*]] = transformer.contract "b s d, f d -> b s f" %[[ALL]]
// CHECK-NEXT:      %[[PINNED:.*]] = dist.reshard %[[M]] {{.*}} -> tensor<4x8x16xf32, #[[EDGE]]>
// CHECK-NEXT:      %[[DELTA:.*]] = transformer.contract "b s f, d f -> b s d" %[[PINNED]]
// CHECK-NEXT:      return %{{.*}}, %[[DELTA]], %[[ALL]]

// REMARK:      LowerReshard | Category:collectives | Bytes=384, From="[{"dp"}, {"tp"}, {}]"
// REMARK-SAME: Made="rms_norm 'n': dimension 0 over dp ('x'), dimension 1 over tp ('x')"
// REMARK-SAME: Remark=all_gather, To="[{"dp"}, {}, {}]", Value='n'
// REMARK-SAME: Wanted="contract 'm': s whole, since it has f over tp (parameter 'wu')"
// REMARK:      LowerReshard | Category:collectives | Bytes=256, From="[{"dp"}, {}, {"tp"}]"
// REMARK-SAME: Made="contract 'm': b over dp (the plan pins 'm'), f over tp (parameter 'wu')"
// REMARK-SAME: Remark=all_to_all, To="[{"dp"}, {"tp"}, {}]", Value='m', Wanted="pinned by the plan"
#pod = #dist.mesh<["dp" = 2, "tp" = 2]>
#x = #dist.layout<#pod, [{"dp"}, {"tp"}, {}]>
#whole = #dist.layout<#pod, [{"dp"}, {}, {}]>
#column = #dist.layout<#pod, [{"tp"}, {}]>
#copy = #dist.layout<#pod, [{}]>
#copies = #dist.layout<#pod, [{}, {}]>
module attributes {dist.mesh = #pod, dist.values = {block.x = #x, block.delta = #x, block.m = #x}, dist.saved = {block.n = #whole}} {
  transformer.state @norm parameter : tensor<12xf32> {dist.layout = #copy, factors = "d"}
  transformer.state @up parameter : tensor<16x12xf32> {dist.layout = #column, factors = "f d"}
  transformer.state @down parameter : tensor<12x16xf32> {dist.layout = #copies, factors = "d f"}
  func.func @block(%x: tensor<4x8x12xf32> {transformer.as = "x"},
                   %gain: tensor<12xf32> {transformer.as = "gain", transformer.state = @norm},
                   %wu: tensor<16x12xf32> {transformer.as = "wu", transformer.state = @up},
                   %wd: tensor<12x16xf32> {transformer.as = "wd", transformer.state = @down})
      -> (tensor<4x8x12xf32> {transformer.as = "x"}, tensor<4x8x12xf32> {transformer.as = "delta"}, tensor<4x8x12xf32> {transformer.saved = "n"}) {
    %n, %rstd = transformer.rms_norm %x, %gain epsilon 1.000000e-05 {as = ["n", "rstd"]} : (tensor<4x8x12xf32>, tensor<12xf32>) -> (tensor<4x8x12xf32>, tensor<4x8xf32>)
    %m = transformer.contract "b s d, f d -> b s f" %n, %wu {as = ["m"]} : (tensor<4x8x12xf32>, tensor<16x12xf32>) -> tensor<4x8x16xf32>
    %delta = transformer.contract "b s f, d f -> b s d" %m, %wd {as = ["delta"]} : (tensor<4x8x16xf32>, tensor<12x16xf32>) -> tensor<4x8x12xf32>
    return %x, %delta, %n : tensor<4x8x12xf32>, tensor<4x8x12xf32>, tensor<4x8x12xf32>
  }
}
