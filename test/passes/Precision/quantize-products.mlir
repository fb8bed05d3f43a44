// Each operand becomes codes once per way of summing: its largest magnitude over
// the ranks that hold its parts, codes, and those turned where what is summed
// over stands first. A region has codes of its own.
//
// RUN: heddle-opt %s --split-input-file --verify-diagnostics --precision-quantize-products | FileCheck %s

#mesh = #dist.mesh<["dp" = 2, "tp" = 2]>

module attributes {dist.mesh = #mesh} {
// CHECK-LABEL: func.func @block(
// CHECK-NEXT:    %n2_amax = transformer.amax %{{.*}}
// CHECK-NEXT:    %n2_codes, %n2_scale = transformer.quantize %{{.*}}, %n2_amax {{.*}}-> (tensor<2x32x64xf8E4M3FN>, tensor<f32>)
// CHECK-NEXT:    %wg_amax = transformer.amax %{{.*}}
// CHECK-NEXT:    %[[WG:.*]] = dist.all_reduce %wg_amax max on #{{.*}} over ["tp"]
// CHECK-NEXT:    %wg_codes, %wg_scale = transformer.quantize %{{.*}}, %[[WG]]
// CHECK-NEXT:    %g = transformer.contract "b s d, f d -> b s f" %n2_codes, %wg_codes scaled %n2_scale, %wg_scale {as = ["g"]} : (tensor<2x32x64xf8E4M3FN>, tensor<48x64xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<2x32x48xbf16>
// CHECK-NEXT:    %wu_amax = transformer.amax %{{.*}}
// CHECK-NEXT:    %[[WU:.*]] = dist.all_reduce
// CHECK-NEXT:    %wu_codes, %wu_scale = transformer.quantize %{{.*}}, %[[WU]] power_of_two
// CHECK-NEXT:    %u = transformer.contract "b s d, f d -> b s f" %n2_codes, %wu_codes scaled %n2_scale, %wu_scale
func.func @block(%n2: tensor<2x32x64xbf16> {transformer.as = "n2"}, %wg: tensor<48x64xbf16> {transformer.as = "wg"}, %wu: tensor<48x64xbf16> {transformer.as = "wu"}) -> (tensor<2x32x48xbf16>, tensor<2x32x48xbf16>) {
  %g = transformer.contract "b s d, f d -> b s f" %n2, %wg {as = ["g"], transformer.scale_axes = [[], ["tp"]], transformer.scaled = {formats = [f8E4M3FN, f8E4M3FN]}} : (tensor<2x32x64xbf16>, tensor<48x64xbf16>) -> tensor<2x32x48xbf16>
  %u = transformer.contract "b s d, f d -> b s f" %n2, %wu {as = ["u"], transformer.scale_axes = [[], ["tp"]], transformer.scaled = {formats = [f8E4M3FN, f8E4M3FN], power_of_two}} : (tensor<2x32x64xbf16>, tensor<48x64xbf16>) -> tensor<2x32x48xbf16>
  return %g, %u : tensor<2x32x48xbf16>, tensor<2x32x48xbf16>
}

// CHECK-LABEL: func.func @block_bwd(
// CHECK-NEXT:    %d_g_amax = transformer.amax %{{.*}}
// CHECK-NEXT:    %[[D:.*]] = dist.all_reduce %d_g_amax max
// CHECK-NEXT:    %d_g_codes, %d_g_scale = transformer.quantize %{{.*}}, %[[D]] {{.*}}-> (tensor<2x32x48xf8E5M2>, tensor<f32>)
// CHECK:         %wg_turned_codes, %wg_turned_scale = transformer.quantize %{{.*}}, %{{.*}} rotate 1 {{.*}}-> (tensor<64x48xf8E4M3FN>, tensor<f32>)
// CHECK-NEXT:    %d_n2 = transformer.contract "b s f, d f -> b s d" %d_g_codes, %wg_turned_codes scaled %d_g_scale, %wg_turned_scale
// CHECK-NEXT:    %d_g_turned_codes, %d_g_turned_scale = transformer.quantize %{{.*}}, %[[D]] rotate 2 {{.*}}-> (tensor<48x2x32xf8E5M2>, tensor<f32>)
// CHECK-NEXT:    %n2_amax = transformer.amax %{{.*}}
// CHECK-NEXT:    %n2_turned_codes, %n2_turned_scale = transformer.quantize %{{.*}}, %n2_amax rotate 2 {{.*}}-> (tensor<64x2x32xf8E4M3FN>, tensor<f32>)
// CHECK-NEXT:    %d_wg = transformer.contract "f b s, d b s -> f d" %d_g_turned_codes, %n2_turned_codes scaled %d_g_turned_scale, %n2_turned_scale {as = ["d_wg"]} : (tensor<48x2x32xf8E5M2>, tensor<64x2x32xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<48x64xf32>
func.func @block_bwd(%d_g: tensor<2x32x48xbf16> {transformer.as = "d_g"}, %n2: tensor<2x32x64xbf16> {transformer.as = "n2"}, %wg: tensor<48x64xbf16> {transformer.as = "wg"}) -> (tensor<2x32x64xbf16>, tensor<48x64xf32>) {
  %d_n2 = transformer.contract "b s f, f d -> b s d" %d_g, %wg {as = ["d_n2"], transformer.scale_axes = [["tp"], ["tp"]], transformer.scaled = {formats = [f8E5M2, f8E4M3FN]}} : (tensor<2x32x48xbf16>, tensor<48x64xbf16>) -> tensor<2x32x64xbf16>
  %d_wg = transformer.contract "b s f, b s d -> f d" %d_g, %n2 {as = ["d_wg"], transformer.scale_axes = [["tp"], []], transformer.scaled = {formats = [f8E5M2, f8E4M3FN]}} : (tensor<2x32x48xbf16>, tensor<2x32x64xbf16>) -> tensor<48x64xf32>
  return %d_n2, %d_wg : tensor<2x32x64xbf16>, tensor<48x64xf32>
}

// CHECK-LABEL: func.func @again(
// CHECK-NEXT:    transformer.recompute
// CHECK:           transformer.amax
// CHECK:           transformer.contract {{.*}} scaled
// CHECK-NEXT:      transformer.yield
// CHECK-NEXT:    }
// CHECK-NEXT:    transformer.amax %{{.*}}
func.func @again(%n2: tensor<2x32x64xbf16> {transformer.as = "n2"}, %wg: tensor<48x64xbf16> {transformer.as = "wg"}, %wu: tensor<48x64xbf16> {transformer.as = "wu"}) -> (tensor<2x32x48xbf16>, tensor<2x32x48xbf16>) {
  %g = transformer.recompute %n2, %wg because "listed: g is not saved (6144 bytes)" : (tensor<2x32x64xbf16>, tensor<48x64xbf16>) -> tensor<2x32x48xbf16> {
  ^bb0(%x: tensor<2x32x64xbf16>, %w: tensor<48x64xbf16>):
    %y = transformer.contract "b s d, f d -> b s f" %x, %w {as = ["g"], transformer.scale_axes = [[], []], transformer.scaled = {formats = [f8E4M3FN, f8E4M3FN]}} : (tensor<2x32x64xbf16>, tensor<48x64xbf16>) -> tensor<2x32x48xbf16>
    transformer.yield %y : tensor<2x32x48xbf16>
  }
  %u = transformer.contract "b s d, f d -> b s f" %n2, %wu {as = ["u"], transformer.scale_axes = [[], []], transformer.scaled = {formats = [f8E4M3FN, f8E4M3FN]}} : (tensor<2x32x64xbf16>, tensor<48x64xbf16>) -> tensor<2x32x48xbf16>
  return %g, %u : tensor<2x32x48xbf16>, tensor<2x32x48xbf16>
}

// Blocks find their scales themselves, so nothing is asked of other ranks; a
// weight turned has the same blocks, as they are square.
//
// CHECK-LABEL: func.func @blocks(
// CHECK-NEXT:    %d_g_codes, %d_g_scale = transformer.quantize %{{.*}} blocks [1, 32] over 1 power_of_two {{.*}} -> (tensor<2x32x48xf8E4M3FN>, tensor<64x2xf8E8M0FNU>)
// CHECK-NEXT:    %wg_turned_codes, %wg_turned_scale = transformer.quantize %{{.*}} rotate 1 blocks [32, 32] over 1 power_of_two {{.*}} -> (tensor<64x48xf8E4M3FN>, tensor<2x2xf8E8M0FNU>)
// CHECK-NEXT:    %d_n2 = transformer.contract "b s f, d f -> b s d" %d_g_codes, %wg_turned_codes scaled %d_g_scale, %wg_turned_scale blocks [1, 32, 32]
// CHECK-NEXT:    %d_g_turned_codes, %d_g_turned_scale = transformer.quantize %{{.*}} rotate 2 blocks [1, 32] over 2 power_of_two {{.*}} -> (tensor<48x2x32xf8E4M3FN>, tensor<48x2xf8E8M0FNU>)
// CHECK-NEXT:    %n2_turned_codes, %n2_turned_scale = transformer.quantize
// CHECK-NEXT:    %d_wg = transformer.contract "f b s, d b s -> f d" %d_g_turned_codes, %n2_turned_codes scaled %d_g_turned_scale, %n2_turned_scale blocks [1, 1, 32]
func.func @blocks(%d_g: tensor<2x32x48xbf16> {transformer.as = "d_g"}, %n2: tensor<2x32x64xbf16> {transformer.as = "n2"}, %wg: tensor<48x64xbf16> {transformer.as = "wg"}) -> (tensor<2x32x64xbf16>, tensor<48x64xf32>) {
  %d_n2 = transformer.contract "b s f, f d -> b s d" %d_g, %wg {as = ["d_n2"], transformer.scaled = {blocks = array<i64: 1, 32, 32>, formats = [f8E4M3FN, f8E4M3FN], power_of_two, scales = f8E8M0FNU}} : (tensor<2x32x48xbf16>, tensor<48x64xbf16>) -> tensor<2x32x64xbf16>
  %d_wg = transformer.contract "b s f, b s d -> f d" %d_g, %n2 {as = ["d_wg"], transformer.scaled = {blocks = array<i64: 1, 1, 32>, formats = [f8E4M3FN, f8E4M3FN], power_of_two, scales = f8E8M0FNU}} : (tensor<2x32x48xbf16>, tensor<2x32x64xbf16>) -> tensor<48x64xf32>
  return %d_n2, %d_wg : tensor<2x32x64xbf16>, tensor<48x64xf32>
}

// Codes of 4 bits: a weight's gradient is of operands that are mixed alike, the
// left one rounded at random, where the rank's part stands in the whole tensor.
//
// CHECK-LABEL: func.func @fours(
// CHECK-NEXT:    %d_g_amax = transformer.amax
// CHECK-NEXT:    %d_g_codes, %d_g_scale, %d_g_tensor_scale = transformer.quantize %{{.*}}, %d_g_amax noise %{{.*}}, %{{.*}} site 5 blocks [1, 16] over 1 shards {q2 = #dist.shard<#{{.*}}, ["tp"], 96>} {{.*}}: (tensor<2x32x48xbf16>, tensor<f32>, tensor<i64>, tensor<2x32xi32>) -> (tensor<2x32x48xf4E2M1FN>, tensor<64x3xf8E4M3FN>, tensor<f32>)
// CHECK-NEXT:    %wg_amax = transformer.amax
// CHECK-NEXT:    %wg_turned_codes, %wg_turned_scale, %wg_turned_tensor_scale = transformer.quantize %{{.*}}, %wg_amax rotate 1 blocks [16, 16] over 1 {as
// CHECK-NEXT:    %d_n2 = transformer.contract "b s f, d f -> b s d" %d_g_codes, %wg_turned_codes scaled %d_g_scale, %wg_turned_scale, %d_g_tensor_scale, %wg_turned_tensor_scale blocks [1, 16, 16] {as = ["d_n2"]}
// CHECK-NEXT:    %d_g_mixed = transformer.hadamard %{{.*}} over 2 length 16 signs 9 {as
// CHECK-NEXT:    %d_g_mixed_amax = transformer.amax %d_g_mixed
// CHECK-NEXT:    %d_g_mixed_turned_codes, %{{.*}}, %{{.*}} = transformer.quantize %d_g_mixed, %d_g_mixed_amax noise %{{.*}}, %{{.*}} site 6 rotate 2 blocks [1, 16] over 2 shards {q2 = #dist.shard
// CHECK-NEXT:    %n2_mixed = transformer.hadamard %{{.*}} over 2 length 16 signs 9 {as
// CHECK-NEXT:    %n2_mixed_amax = transformer.amax %n2_mixed
// CHECK-NEXT:    %n2_mixed_turned_codes, %{{.*}}, %{{.*}} = transformer.quantize %n2_mixed, %n2_mixed_amax rotate 2 blocks [1, 16] over 2 {as
// CHECK-NEXT:    %d_wg = transformer.contract "f b s, d b s -> f d" %d_g_mixed_turned_codes, %n2_mixed_turned_codes
func.func @fours(%d_g: tensor<2x32x48xbf16> {transformer.as = "d_g"}, %n2: tensor<2x32x64xbf16> {transformer.as = "n2"}, %wg: tensor<48x64xbf16> {transformer.as = "wg"}, %seed: tensor<i64>, %numbers: tensor<2x32xi32>) -> (tensor<2x32x64xbf16>, tensor<48x64xf32>) {
  %d_n2 = transformer.contract "b s f, f d -> b s d" %d_g, %wg noise %seed, %numbers shards {f = #dist.shard<#mesh, ["tp"], 96>} {as = ["d_n2"], transformer.scale_axes = [[], []], transformer.scaled = {blocks = array<i64: 1, 16, 16>, formats = [f4E2M1FN, f4E2M1FN], scales = f8E4M3FN, site = 5 : i64}} : (tensor<2x32x48xbf16>, tensor<48x64xbf16>, tensor<i64>, tensor<2x32xi32>) -> tensor<2x32x64xbf16>
  %d_wg = transformer.contract "b s f, b s d -> f d" %d_g, %n2 noise %seed, %numbers shards {f = #dist.shard<#mesh, ["tp"], 96>} {as = ["d_wg"], transformer.scale_axes = [[], []], transformer.scaled = {blocks = array<i64: 1, 1, 16>, formats = [f4E2M1FN, f4E2M1FN], scales = f8E4M3FN, signs = 9 : i64, site = 6 : i64}} : (tensor<2x32x48xbf16>, tensor<2x32x64xbf16>, tensor<i64>, tensor<2x32xi32>) -> tensor<48x64xf32>
  return %d_n2, %d_wg : tensor<2x32x64xbf16>, tensor<48x64xf32>
}

// The pass's own example; what is scaled already is left alone.
func.func @example(%n2: tensor<2x32x64xbf16>, %wg: tensor<48x64xbf16>) -> (tensor<2x32x48xbf16>, tensor<2x32x48xbf16>) {
  %h = transformer.contract "b s d, f d -> b s f" %n2, %wg {transformer.scale_axes = [[], ["tp"]], transformer.scaled = {formats = [f8E4M3FN, f8E4M3FN]}} : (tensor<2x32x64xbf16>, tensor<48x64xbf16>) -> tensor<2x32x48xbf16>
  %n2_amax = transformer.amax %n2 : (tensor<2x32x64xbf16>) -> tensor<f32>
  %n2_codes, %n2_scale = transformer.quantize %n2, %n2_amax : (tensor<2x32x64xbf16>, tensor<f32>) -> (tensor<2x32x64xf8E4M3FN>, tensor<f32>)
  %wg_amax = transformer.amax %wg : (tensor<48x64xbf16>) -> tensor<f32>
  %wg_most = dist.all_reduce %wg_amax max on #mesh over ["tp"] : tensor<f32> -> tensor<f32>
  %wg_codes, %wg_scale = transformer.quantize %wg, %wg_most : (tensor<48x64xbf16>, tensor<f32>) -> (tensor<48x64xf8E4M3FN>, tensor<f32>)
  %g = transformer.contract "b s d, f d -> b s f" %n2_codes, %wg_codes scaled %n2_scale, %wg_scale : (tensor<2x32x64xf8E4M3FN>, tensor<48x64xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<2x32x48xbf16>
  return %g, %h : tensor<2x32x48xbf16>, tensor<2x32x48xbf16>
}
}

// -----

func.func @middle(%x: tensor<2x4x3xbf16>, %w: tensor<5x4xbf16>) -> tensor<2x3x5xbf16> {
  // expected-error @below {{cannot be a product of codes: what "a k b, c k -> a b c" sums over stands neither first nor last in "a k b"}}
  %y = transformer.contract "a k b, c k -> a b c" %x, %w {transformer.scale_axes = [[], []], transformer.scaled = {formats = [f8E4M3FN, f8E4M3FN]}} : (tensor<2x4x3xbf16>, tensor<5x4xbf16>) -> tensor<2x3x5xbf16>
  return %y : tensor<2x3x5xbf16>
}

// -----

func.func @formats(%x: tensor<2x4xbf16>, %w: tensor<5x4xbf16>) -> tensor<2x5xbf16> {
  // expected-error @below {{transformer.scaled needs two formats of 8 bits, or of 4, got {formats = [f8E4M3FN, bf16]}}}
  %y = transformer.contract "a k, c k -> a c" %x, %w {transformer.scale_axes = [[], []], transformer.scaled = {formats = [f8E4M3FN, bf16]}} : (tensor<2x4xbf16>, tensor<5x4xbf16>) -> tensor<2x5xbf16>
  return %y : tensor<2x5xbf16>
}

// -----

func.func @sizes(%x: tensor<2x4xbf16>, %w: tensor<5x4xbf16>) -> tensor<2x5xbf16> {
  // expected-error @below {{transformer.scaled needs blocks of three sizes above 0 and scales of f32 or f8E8M0FNU, got {blocks = array<i64: 1, 0, 4>, formats = [f8E4M3FN, f8E4M3FN], scales = f32}}}
  %y = transformer.contract "a k, c k -> a c" %x, %w {transformer.scaled = {blocks = array<i64: 1, 0, 4>, formats = [f8E4M3FN, f8E4M3FN], scales = f32}} : (tensor<2x4xbf16>, tensor<5x4xbf16>) -> tensor<2x5xbf16>
  return %y : tensor<2x5xbf16>
}
