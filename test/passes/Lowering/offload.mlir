// The stack of a value that the plan names lies on the host. Forward writes one
// of two rows on the device, which goes there on a stream of its own; backward
// computes with one row while the next comes back into the other.
//
// RUN: heddle-opt %s --lowering-lower-to-rt | FileCheck %s
// RUN: heddle-opt %s --lowering-lower-to-rt --memory-place-buffers --lowering-verify-order --lowering-verify-arenas --lowering-verify-launches | FileCheck %s
// RUN: sed 's/\["m"\]/["m", "y"]/' %s | not heddle-opt --lowering-lower-to-rt 2>&1 | FileCheck %s --check-prefix=NONE

// CHECK:       arenas [#rt.arena<"compute", {{[0-9]+}}>, #rt.arena<"host", {{[0-9]+}}, host>]
// CHECK-SAME:  streams [#rt.stream<"compute">, #rt.stream<"comm", high = true>, #rt.stream<"copies", high = true>]
// CHECK:       rt.func @step
// CHECK:         rt.for %stored_buffer = 0 to 2
// CHECK:           rt.record "stored" slot %stored_buffer of 2 on "copies"
// CHECK:         rt.for %layer = 0 to 3 {
// CHECK:           rt.wait "stored" slot [[SLOT:%.+]] of 2 on "compute"
// CHECK:           rt.call @fwd(
// CHECK:           rt.record "saved" on "compute"
// CHECK-NEXT:      rt.wait "saved" on "copies"
// CHECK:           rt.buffer "saved.m" because {{.*}} arena "host"
// CHECK:           rt.copy "to the host: m" {{.*}} on "copies"
// CHECK-NEXT:      rt.record "stored" slot {{.*}} of 2 on "copies"
// The last layer's row first, then each layer's beside the one before.
// CHECK:         rt.record "row_free" on "compute"
// CHECK-NEXT:    rt.wait "row_free" on "copies"
// CHECK-NEXT:    rt.for %first_layer = 2 to 3 reversed {
// CHECK:           rt.copy "from the host: m{{.*}}" {{.*}} on "copies"
// CHECK-NEXT:      rt.record "fetched" slot {{.*}} of 2 on "copies"
// CHECK:         rt.for %layer = 1 to 3 reversed {
// CHECK:           rt.wait "fetched" slot {{.*}} of 2 on "compute"
// CHECK:           rt.copy "from the host: m{{.*}}" {{.*}} on "copies"
// CHECK:           rt.call @bwd(
// CHECK:         rt.for %layer = 0 to 1 reversed {
// CHECK:           rt.wait "fetched" slot {{.*}} of 2 on "compute"
// CHECK-NOT:       rt.copy
// CHECK:           rt.call @bwd(

// NONE: offload.saved names "y", which no layer saves, or which flows on to the next layer, or which only some layers save
#pod = #dist.mesh<["dp" = 1]>
module attributes {dist.mesh = #pod, transformer.offload = {saved = ["m"]}} {
  func.func @fwd(%x: tensor<16xf32> {transformer.as = "x"}) -> (tensor<16xf32>, tensor<16xf32>) {
    %m = transformer.activation silu %x {as = ["m"]} : (tensor<16xf32>) -> tensor<16xf32>
    %y = transformer.add %x, %m {as = ["y"]} : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
    return %y, %m : tensor<16xf32>, tensor<16xf32>
  }
  func.func @bwd(%d: tensor<16xf32> {transformer.as = "d"}, %m: tensor<16xf32> {transformer.as = "m"}) -> tensor<16xf32> {
    %e = transformer.activation_grad silu %d, %m {as = ["e"]} : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
    return %e : tensor<16xf32>
  }

  func.func @step(%x: tensor<16xf32> {transformer.as = "x"}) -> (tensor<16xf32> {transformer.as = "d"}) {
    %y, %saved = transformer.loop "layer" 3 carry(%x) : (tensor<16xf32>) -> (tensor<16xf32>, !transformer.stack<3 x tensor<16xf32>>) {
    ^bb0(%l: index, %a: tensor<16xf32>):
      %r:2 = func.call @fwd(%a) {as = ["y", "m"]} : (tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>)
      transformer.yield %r#0 : tensor<16xf32> collect %r#1 : tensor<16xf32>
    }
    %d = transformer.loop "layer" 3 reversed carry(%y) : (tensor<16xf32>) -> tensor<16xf32> {
    ^bb0(%l: index, %b: tensor<16xf32>):
      %m = transformer.get %saved at %l {as = ["m"]} : !transformer.stack<3 x tensor<16xf32>>
      %e = func.call @bwd(%b, %m) {as = ["e"]} : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32>
      transformer.yield %e : tensor<16xf32>
    }
    return %d : tensor<16xf32>
  }
}
