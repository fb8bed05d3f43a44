// A layer's functions take what scales are made of and return what they find;
// the step keeps the larger and advances the history once. What is computed
// again takes the same scales and finds nothing.
//
// RUN: heddle-opt %s --precision-delay-scales | FileCheck %s
// RUN: sed 's/history = 4/history = 0/' %s | not heddle-opt --precision-delay-scales 2>&1 | FileCheck %s --check-prefix=HISTORY
// RUN: sed 's/loop "layer" 3 /loop "micro_batch" 3 /' %s | not heddle-opt --precision-delay-scales 2>&1 | FileCheck %s --check-prefix=LOOP
// RUN: sed 's/backward = \["d_g"\], //' %s | not heddle-opt --precision-delay-scales 2>&1 | FileCheck %s --check-prefix=NAMES
// RUN: sed 's/transformer.delayed_scaling = .*} {$/transformer.micro_batches = 1} {/' %s | heddle-opt > %t.none
// RUN: heddle-opt %t.none --precision-delay-scales | diff %t.none -
//
// HISTORY: error: needs parameters of layers and a history of at least one step to delay scales, found {{.*}}history = 0
// LOOP: error: has no loop over layers behind a clip_factor in which scales could be updated
// NAMES: error: has no tensors of backward whose scales to delay

// CHECK-DAG:   transformer.state @"block.{}.forward.amax_history" scaling layers 3 : tensor<2x4xf32> {dist.global = tensor<2x4xf32>
// CHECK-DAG:   transformer.state @"block.{}.forward.amax" scaling layers 3 : tensor<2xf32>
// CHECK-DAG:   transformer.state @"block.{}.backward.amax_now" amax layers 3 : tensor<1xf32>

// CHECK-LABEL: func.func @block(
// CHECK-SAME:    %[[ALL:[^:]*]]: tensor<2xf32> {dist.global = tensor<2xf32>, dist.layout = #{{.*}}, transformer.as = "forward_amax"}
// CHECK-NEXT:    %n2_before, %wg_before = transformer.split_tensors %[[ALL]]
// CHECK-NEXT:    %[[N:.*]] = transformer.amax
// CHECK-NEXT:    transformer.quantize %{{.*}}, %n2_before
// CHECK-NEXT:    %[[W:.*]] = transformer.amax
// CHECK-NEXT:    transformer.quantize %{{.*}}, %wg_before
// CHECK-NEXT:    transformer.contract
// CHECK-NEXT:    %forward_now = transformer.stack_tensors %[[N]], %[[W]] {
// CHECK-NEXT:    return %{{.*}}, %forward_now :

// CHECK-LABEL: func.func @block_bwd(
// CHECK-DAG:     %d_g_before = transformer.split_tensors
// CHECK-DAG:     %n2_before, %wg_before = transformer.split_tensors
// CHECK:         %[[D:.*]] = transformer.amax
// CHECK-NEXT:    transformer.quantize %{{.*}}, %d_g_before {{.*}} -> (tensor<2x32x48xf8E5M2>
// CHECK-NEXT:    transformer.recompute %{{.*}}, %n2_before because
// CHECK-NEXT:    ^bb0(%{{.*}}: tensor<2x32x64xbf16>, %[[IN:.*]]: tensor<f32>):
// CHECK-NEXT:      transformer.quantize %{{.*}}, %[[IN]]
// CHECK-NEXT:      transformer.yield
// CHECK-NEXT:    }
// CHECK-NEXT:    transformer.quantize %{{.*}}, %wg_before
// CHECK-NOT:     transformer.amax
// CHECK:         %backward_now = transformer.stack_tensors %[[D]] {

// CHECK-LABEL: func.func @step(
// CHECK-SAME:    %[[STEP:[^:]*]]: tensor<i32> {dist.global = tensor<i32>, dist.layout = #{{.*}}, transformer.as = "step"}
// CHECK:         transformer.zero @"block.{}.forward.amax_now"
// CHECK-NEXT:    transformer.zero @"block.{}.backward.amax_now"
// CHECK:           %forward_amax = transformer.load @"block.{}.forward.amax" at %[[L:.*]] {
// CHECK-NEXT:      %[[Y:.*]]:2 = func.call @block(%{{.*}}, %{{.*}}, %forward_amax)
// CHECK-NEXT:      %[[SOFAR:.*]] = transformer.load @"block.{}.forward.amax_now" at %[[L]]
// CHECK-NEXT:      %[[MOST:.*]] = transformer.maximum %[[SOFAR]], %[[Y]]#1
// CHECK-NEXT:      transformer.store %[[MOST]] to @"block.{}.forward.amax_now" at %[[L]]
// CHECK:           func.call @block_bwd(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}})
// CHECK:         transformer.clip_factor
// CHECK-NEXT:    transformer.loop "layer" 3
// CHECK-NEXT:    ^bb0(%[[I:.*]]: index):
// CHECK-NEXT:      %forward_now = transformer.load @"block.{}.forward.amax_now" at %[[I]]
// CHECK-NEXT:      %[[R:.*]] = dist.all_reduce %forward_now max on #{{.*}} over ["dp", "tp"]
// CHECK:           %forward_history_next, %forward_next = transformer.delay_scales %forward_history, %[[R]], %forward_before, %[[STEP]], %clip_factor {
// CHECK-NEXT:      transformer.store %forward_history_next to @"block.{}.forward.amax_history" at %[[I]]
// CHECK-NEXT:      transformer.store %forward_next to @"block.{}.forward.amax" at %[[I]]
// CHECK:           dist.all_reduce %backward_now max

#mesh = #dist.mesh<["dp" = 2, "tp" = 2]>
module attributes {dist.mesh = #mesh, transformer.delayed_scaling = {backward = ["d_g"], forward = ["n2", "wg"], history = 4 : i64}} {
transformer.state @"l.{}.wg" parameter layers 3 : tensor<48x64xbf16>
func.func @block(%n2: tensor<2x32x64xbf16> {transformer.as = "n2"}, %wg: tensor<48x64xbf16> {transformer.as = "wg", transformer.state = @"l.{}.wg"}) -> (tensor<2x32x48xbf16> {transformer.as = "g"}) {
  %n2_amax = transformer.amax %n2 {transformer.tensor = "n2"} : (tensor<2x32x64xbf16>) -> tensor<f32>
  %n2_most = dist.all_reduce %n2_amax max on #mesh over ["tp"] : tensor<f32> -> tensor<f32>
  %n2_codes, %n2_scale = transformer.quantize %n2, %n2_most : (tensor<2x32x64xbf16>, tensor<f32>) -> (tensor<2x32x64xf8E4M3FN>, tensor<f32>)
  %wg_amax = transformer.amax %wg {transformer.tensor = "wg"} : (tensor<48x64xbf16>) -> tensor<f32>
  %wg_codes, %wg_scale = transformer.quantize %wg, %wg_amax : (tensor<48x64xbf16>, tensor<f32>) -> (tensor<48x64xf8E4M3FN>, tensor<f32>)
  %g = transformer.contract "b s d, f d -> b s f" %n2_codes, %wg_codes scaled %n2_scale, %wg_scale : (tensor<2x32x64xf8E4M3FN>, tensor<48x64xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<2x32x48xbf16>
  return %g : tensor<2x32x48xbf16>
}
func.func @block_bwd(%d_g: tensor<2x32x48xbf16> {transformer.as = "d_g"}, %n2: tensor<2x32x64xbf16> {transformer.as = "n2"}, %wg: tensor<48x64xbf16> {transformer.as = "wg", transformer.state = @"l.{}.wg"}) -> (tensor<2x32x64xbf16> {transformer.as = "d_n2"}) {
  %d_amax = transformer.amax %d_g {transformer.tensor = "d_g"} : (tensor<2x32x48xbf16>) -> tensor<f32>
  %d_codes, %d_scale = transformer.quantize %d_g, %d_amax : (tensor<2x32x48xbf16>, tensor<f32>) -> (tensor<2x32x48xf8E5M2>, tensor<f32>)
  %again, %again_scale = transformer.recompute %n2 because "full" : (tensor<2x32x64xbf16>) -> (tensor<2x32x64xf8E4M3FN>, tensor<f32>) {
  ^bb0(%x: tensor<2x32x64xbf16>):
    %x_amax = transformer.amax %x {transformer.tensor = "n2"} : (tensor<2x32x64xbf16>) -> tensor<f32>
    %c, %s = transformer.quantize %x, %x_amax : (tensor<2x32x64xbf16>, tensor<f32>) -> (tensor<2x32x64xf8E4M3FN>, tensor<f32>)
    transformer.yield %c, %s : tensor<2x32x64xf8E4M3FN>, tensor<f32>
  }
  %wg_amax = transformer.amax %wg {transformer.tensor = "wg"} : (tensor<48x64xbf16>) -> tensor<f32>
  %wg_codes, %wg_scale = transformer.quantize %wg, %wg_amax rotate 1 : (tensor<48x64xbf16>, tensor<f32>) -> (tensor<64x48xf8E4M3FN>, tensor<f32>)
  %d_n2 = transformer.contract "b s f, d f -> b s d" %d_codes, %wg_codes scaled %d_scale, %wg_scale : (tensor<2x32x48xf8E5M2>, tensor<64x48xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<2x32x64xbf16>
  return %d_n2 : tensor<2x32x64xbf16>
}
func.func @step(%x: tensor<2x32x64xbf16>, %dy: tensor<2x32x48xbf16>, %sq: tensor<f64>) {
  transformer.loop "layer" 3 : () -> () {
  ^bb0(%l: index):
    %wg = transformer.load @"l.{}.wg" at %l : tensor<48x64xbf16>
    %g = func.call @block(%x, %wg) : (tensor<2x32x64xbf16>, tensor<48x64xbf16>) -> tensor<2x32x48xbf16>
    transformer.yield
  }
  transformer.loop "layer" 3 reversed : () -> () {
  ^bb0(%l: index):
    %wg = transformer.load @"l.{}.wg" at %l : tensor<48x64xbf16>
    %d = func.call @block_bwd(%dy, %x, %wg) : (tensor<2x32x48xbf16>, tensor<2x32x64xbf16>, tensor<48x64xbf16>) -> tensor<2x32x64xbf16>
    transformer.yield
  }
  %norm, %clip_factor = transformer.clip_factor %sq {as = ["norm", "clip_factor"]} : (tensor<f64>) -> (tensor<f32>, tensor<f32>)
  return
}

// The pass's own example; what the pass leaves.
func.func @example(%n2: tensor<2x32x64xbf16>, %wg_amax: tensor<f32>, %forward_amax: tensor<2xf32>) -> tensor<2xf32> {
  %n2_before, %wg_before = transformer.split_tensors %forward_amax : (tensor<2xf32>) -> (tensor<f32>, tensor<f32>)
  %n2_amax = transformer.amax %n2 : (tensor<2x32x64xbf16>) -> tensor<f32>
  %n2_codes, %n2_scale = transformer.quantize %n2, %n2_before : (tensor<2x32x64xbf16>, tensor<f32>) -> (tensor<2x32x64xf8E4M3FN>, tensor<f32>)
  %forward_now = transformer.stack_tensors %n2_amax, %wg_amax : (tensor<f32>, tensor<f32>) -> tensor<2xf32>
  return %forward_now : tensor<2xf32>
}
}
