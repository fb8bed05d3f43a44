// Every op of the dialect, in the form in which it is printed, survives being
// printed and read again; so do the examples of the reference.
//
// RUN: heddle-opt %s | heddle-opt | FileCheck %s

// CHECK-LABEL: func.func @contract(
// CHECK-NEXT:    {{.*}} = transformer.contract "b s d, g r k d -> b s g r k" {{%[^ ,:)]+}}, {{%[^ ,:)]+}} : (tensor<4x32x64xf32>, tensor<2x2x16x64xf32>) -> tensor<4x32x2x2x16xf32>
func.func @contract(%n1: tensor<4x32x64xf32>, %wq: tensor<2x2x16x64xf32>) {
  %q = transformer.contract "b s d, g r k d -> b s g r k" %n1, %wq : (tensor<4x32x64xf32>, tensor<2x2x16x64xf32>) -> tensor<4x32x2x2x16xf32>
  return
}

// CHECK-LABEL: func.func @scaled(
// CHECK-NEXT:    {{.*}} = transformer.amax {{%[^ ,:)]+}} : (tensor<4x32x64xbf16>) -> tensor<f32>
// CHECK-NEXT:    {{.*}} = transformer.quantize {{%[^ ,:)]+}}, {{%[^ ,:)]+}} : (tensor<4x32x64xbf16>, tensor<f32>) -> (tensor<4x32x64xf8E4M3FN>, tensor<f32>)
// CHECK-NEXT:    {{.*}} = transformer.quantize {{%[^ ,:)]+}}, {{%[^ ,:)]+}} rotate 2 : (tensor<4x32x64xbf16>, tensor<f32>) -> (tensor<64x4x32xf8E4M3FN>, tensor<f32>)
// CHECK-NEXT:    {{.*}} = transformer.quantize {{%[^ ,:)]+}}, {{%[^ ,:)]+}} power_of_two : (tensor<4x32x64xbf16>, tensor<f32>) -> (tensor<4x32x64xf8E5M2>, tensor<f32>)
// CHECK-NEXT:    {{.*}} = transformer.contract "b s d, f d -> b s f" {{%[^ ,:)]+}}, {{%[^ ,:)]+}} scaled {{%[^ ,:)]+}}, {{%[^ ,:)]+}} : (tensor<4x32x64xf8E4M3FN>, tensor<96x64xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<4x32x96xbf16>
func.func @scaled(%n2: tensor<4x32x64xbf16>, %wu_codes: tensor<96x64xf8E4M3FN>, %wu_scale: tensor<f32>) {
  %n2_amax = transformer.amax %n2 : (tensor<4x32x64xbf16>) -> tensor<f32>
  %n2_codes, %n2_scale = transformer.quantize %n2, %n2_amax : (tensor<4x32x64xbf16>, tensor<f32>) -> (tensor<4x32x64xf8E4M3FN>, tensor<f32>)
  %n2_turned, %n2_scale2 = transformer.quantize %n2, %n2_amax rotate 2 : (tensor<4x32x64xbf16>, tensor<f32>) -> (tensor<64x4x32xf8E4M3FN>, tensor<f32>)
  %d, %d_scale = transformer.quantize %n2, %n2_amax power_of_two : (tensor<4x32x64xbf16>, tensor<f32>) -> (tensor<4x32x64xf8E5M2>, tensor<f32>)
  %u = transformer.contract "b s d, f d -> b s f" %n2_codes, %wu_codes scaled %n2_scale, %wu_scale : (tensor<4x32x64xf8E4M3FN>, tensor<96x64xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<4x32x96xbf16>
  return
}

// CHECK-LABEL: func.func @scaled_by_blocks(
// CHECK-NEXT:    {{.*}} = transformer.quantize {{%[^ ,:)]+}} blocks [1, 32] over 1 : (tensor<4x32x64xbf16>) -> (tensor<4x32x64xf8E4M3FN>, tensor<128x2xf32>)
// CHECK-NEXT:    {{.*}} = transformer.contract "b s d, f d -> b s f" {{%[^ ,:)]+}}, {{%[^ ,:)]+}} scaled {{%[^ ,:)]+}}, {{%[^ ,:)]+}} blocks [1, 48, 32] : (tensor<4x32x64xf8E4M3FN>, tensor<96x64xf8E4M3FN>, tensor<128x2xf32>, tensor<2x2xf32>) -> tensor<4x32x96xbf16>
func.func @scaled_by_blocks(%n2: tensor<4x32x64xbf16>, %wu_codes: tensor<96x64xf8E4M3FN>, %wu_scales: tensor<2x2xf32>) {
  %n2_codes, %n2_scales = transformer.quantize %n2 blocks [1, 32] over 1 : (tensor<4x32x64xbf16>) -> (tensor<4x32x64xf8E4M3FN>, tensor<128x2xf32>)
  %v = transformer.contract "b s d, f d -> b s f" %n2_codes, %wu_codes scaled %n2_scales, %wu_scales blocks [1, 48, 32] : (tensor<4x32x64xf8E4M3FN>, tensor<96x64xf8E4M3FN>, tensor<128x2xf32>, tensor<2x2xf32>) -> tensor<4x32x96xbf16>
  return
}

// CHECK-LABEL: func.func @turned_blocks(
// CHECK-NEXT:    {{.*}} = transformer.quantize {{%[^ ,:)]+}} rotate 2 blocks [1, 32] over 2 power_of_two : (tensor<4x32x64xbf16>) -> (tensor<64x4x32xf8E4M3FN>, tensor<64x4xf8E8M0FNU>)
func.func @turned_blocks(%n2: tensor<4x32x64xbf16>) {
  %n2_blocks, %n2_scales = transformer.quantize %n2 rotate 2 blocks [1, 32] over 2 power_of_two : (tensor<4x32x64xbf16>) -> (tensor<64x4x32xf8E4M3FN>, tensor<64x4xf8E8M0FNU>)
  return
}

// CHECK-LABEL: func.func @scaled_at_two_levels(
// CHECK-NEXT:    {{.*}} = transformer.quantize {{%[^ ,:)]+}}, {{%[^ ,:)]+}} blocks [1, 16] over 1 : (tensor<4x32x64xbf16>, tensor<f32>) -> (tensor<4x32x64xf4E2M1FN>, tensor<128x4xf8E4M3FN>, tensor<f32>)
// CHECK-NEXT:    {{.*}} = transformer.contract "b s d, f d -> b s f" {{%[^ ,:)]+}}, {{%[^ ,:)]+}} scaled {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}} blocks [1, 16, 16] : (tensor<4x32x64xf4E2M1FN>, tensor<96x64xf4E2M1FN>, tensor<128x4xf8E4M3FN>, tensor<6x4xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<4x32x96xbf16>
func.func @scaled_at_two_levels(%n2: tensor<4x32x64xbf16>, %n2_amax: tensor<f32>, %wu_codes: tensor<96x64xf4E2M1FN>, %wu_scales: tensor<6x4xf8E4M3FN>) {
  %n2_four, %n2_of_blocks, %n2_of_all = transformer.quantize %n2, %n2_amax blocks [1, 16] over 1 : (tensor<4x32x64xbf16>, tensor<f32>) -> (tensor<4x32x64xf4E2M1FN>, tensor<128x4xf8E4M3FN>, tensor<f32>)
  %u = transformer.contract "b s d, f d -> b s f" %n2_four, %wu_codes scaled %n2_of_blocks, %wu_scales, %n2_of_all, %n2_of_all blocks [1, 16, 16] : (tensor<4x32x64xf4E2M1FN>, tensor<96x64xf4E2M1FN>, tensor<128x4xf8E4M3FN>, tensor<6x4xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<4x32x96xbf16>
  return
}

// CHECK-LABEL: func.func @mixed_and_rounded_at_random(
// CHECK-NEXT:    {{.*}} = transformer.hadamard {{%[^ ,:)]+}} over 2 length 16 signs 21930 : (tensor<4x32x64xbf16>) -> tensor<4x32x64xbf16>
// CHECK-NEXT:    {{.*}} = transformer.quantize {{%[^ ,:)]+}}, {{%[^ ,:)]+}} noise {{%[^ ,:)]+}}, {{%[^ ,:)]+}} site 2147483653 blocks [1, 16] over 1 : (tensor<4x32x64xbf16>, tensor<f32>, tensor<i64>, tensor<4x32xi32>) -> (tensor<4x32x64xf4E2M1FN>, tensor<128x4xf8E4M3FN>, tensor<f32>)
// CHECK-NEXT:    {{.*}} = transformer.contract "b s f, f d -> b s d" {{%[^ ,:)]+}}, {{%[^ ,:)]+}} noise {{%[^ ,:)]+}}, {{%[^ ,:)]+}} : (tensor<4x32x64xbf16>, tensor<64x8xbf16>, tensor<i64>, tensor<4x32xi32>) -> tensor<4x32x8xbf16>
func.func @mixed_and_rounded_at_random(%n2: tensor<4x32x64xbf16>, %n2_amax: tensor<f32>, %w: tensor<64x8xbf16>, %seed: tensor<i64>, %numbers: tensor<4x32xi32>) {
  %n2_mixed = transformer.hadamard %n2 over 2 length 16 signs 21930 : (tensor<4x32x64xbf16>) -> tensor<4x32x64xbf16>
  %d_codes, %d_of_blocks, %d_of_all = transformer.quantize %n2, %n2_amax noise %seed, %numbers site 2147483653 blocks [1, 16] over 1 : (tensor<4x32x64xbf16>, tensor<f32>, tensor<i64>, tensor<4x32xi32>) -> (tensor<4x32x64xf4E2M1FN>, tensor<128x4xf8E4M3FN>, tensor<f32>)
  %d = transformer.contract "b s f, f d -> b s d" %n2, %w noise %seed, %numbers : (tensor<4x32x64xbf16>, tensor<64x8xbf16>, tensor<i64>, tensor<4x32xi32>) -> tensor<4x32x8xbf16>
  return
}

// CHECK-LABEL: func.func @add(
// CHECK-NEXT:    {{.*}} = transformer.add {{%[^ ,:)]+}}, {{%[^ ,:)]+}} : (tensor<4x32x64xf32>, tensor<4x32x64xf32>) -> tensor<4x32x64xf32>
func.func @add(%x: tensor<4x32x64xf32>, %delta: tensor<4x32x64xf32>) {
  %x1 = transformer.add %x, %delta : (tensor<4x32x64xf32>, tensor<4x32x64xf32>) -> tensor<4x32x64xf32>
  return
}

// CHECK-LABEL: func.func @maximum(
// CHECK-NEXT:    {{.*}} = transformer.maximum {{%[^ ,:)]+}}, {{%[^ ,:)]+}} : (tensor<7xf32>, tensor<7xf32>) -> tensor<7xf32>
func.func @maximum(%a: tensor<7xf32>, %b: tensor<7xf32>) {
  %most = transformer.maximum %a, %b : (tensor<7xf32>, tensor<7xf32>) -> tensor<7xf32>
  return
}

// CHECK-LABEL: func.func @delay_scales(
// CHECK-NEXT:    {{.*}} = transformer.delay_scales {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}} : (tensor<7x16xf32>, tensor<7xf32>, tensor<7xf32>, tensor<i32>, tensor<f32>) -> (tensor<7x16xf32>, tensor<7xf32>)
// CHECK-NEXT:    {{.*}} = transformer.delay_scales {{.*}} most_recent : (tensor<7x16xf32>
func.func @delay_scales(%h: tensor<7x16xf32>, %now: tensor<7xf32>, %amax: tensor<7xf32>, %step: tensor<i32>, %factor: tensor<f32>) {
  %h1, %amax1 = transformer.delay_scales %h, %now, %amax, %step, %factor : (tensor<7x16xf32>, tensor<7xf32>, tensor<7xf32>, tensor<i32>, tensor<f32>) -> (tensor<7x16xf32>, tensor<7xf32>)
  %h2, %amax2 = transformer.delay_scales %h, %now, %amax, %step, %factor most_recent : (tensor<7x16xf32>, tensor<7xf32>, tensor<7xf32>, tensor<i32>, tensor<f32>) -> (tensor<7x16xf32>, tensor<7xf32>)
  return
}

// CHECK-LABEL: func.func @cast(
// CHECK-NEXT:    {{.*}} = transformer.cast {{%[^ ,:)]+}} : tensor<96x64xf32> -> tensor<96x64xbf16>
func.func @cast(%w: tensor<96x64xf32>) {
  %wb = transformer.cast %w : tensor<96x64xf32> -> tensor<96x64xbf16>
  return
}

// CHECK-LABEL: func.func @bias_add(
// CHECK-NEXT:    {{.*}} = transformer.bias_add {{%[^ ,:)]+}}, {{%[^ ,:)]+}} : (tensor<4x32x2x16xf32>, tensor<2x16xf32>) -> tensor<4x32x2x16xf32>
func.func @bias_add(%k: tensor<4x32x2x16xf32>, %bk: tensor<2x16xf32>) {
  %qb = transformer.bias_add %k, %bk : (tensor<4x32x2x16xf32>, tensor<2x16xf32>) -> tensor<4x32x2x16xf32>
  return
}

// CHECK-LABEL: func.func @sum_leading(
// CHECK-NEXT:    {{.*}} = transformer.sum_leading {{%[^ ,:)]+}} : (tensor<4x32x2x16xf32>) -> tensor<2x16xf32>
func.func @sum_leading(%d_k: tensor<4x32x2x16xf32>) {
  %d_bk = transformer.sum_leading %d_k : (tensor<4x32x2x16xf32>) -> tensor<2x16xf32>
  return
}

// CHECK-LABEL: func.func @zeros_like(
// CHECK-NEXT:    {{.*}} = transformer.zeros_like {{%[^ ,:)]+}} : (tensor<4x32x64xf32>) -> tensor<4x32x64xf32>
func.func @zeros_like(%x: tensor<4x32x64xf32>) {
  %zeros = transformer.zeros_like %x : (tensor<4x32x64xf32>) -> tensor<4x32x64xf32>
  return
}

// CHECK-LABEL: func.func @activation(
// CHECK-NEXT:    {{.*}} = transformer.activation gelu_tanh {{%[^ ,:)]+}} : (tensor<4x32x96xf32>) -> tensor<4x32x96xf32>
func.func @activation(%h: tensor<4x32x96xf32>) {
  %m = transformer.activation gelu_tanh %h : (tensor<4x32x96xf32>) -> tensor<4x32x96xf32>
  return
}

// CHECK-LABEL: func.func @activation_grad(
// CHECK-NEXT:    {{.*}} = transformer.activation_grad gelu_tanh {{%[^ ,:)]+}}, {{%[^ ,:)]+}} : (tensor<4x32x96xf32>, tensor<4x32x96xf32>) -> tensor<4x32x96xf32>
func.func @activation_grad(%d_m: tensor<4x32x96xf32>, %h: tensor<4x32x96xf32>) {
  %d_h = transformer.activation_grad gelu_tanh %d_m, %h : (tensor<4x32x96xf32>, tensor<4x32x96xf32>) -> tensor<4x32x96xf32>
  return
}

// CHECK-LABEL: func.func @gated(
// CHECK-NEXT:    {{.*}} = transformer.gated silu {{%[^ ,:)]+}}, {{%[^ ,:)]+}} : (tensor<4x32x96xf32>, tensor<4x32x96xf32>) -> tensor<4x32x96xf32>
func.func @gated(%gate: tensor<4x32x96xf32>, %up: tensor<4x32x96xf32>) {
  %gm = transformer.gated silu %gate, %up : (tensor<4x32x96xf32>, tensor<4x32x96xf32>) -> tensor<4x32x96xf32>
  return
}

// CHECK-LABEL: func.func @gated_grad(
// CHECK-NEXT:    {{.*}} = transformer.gated_grad silu {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}} : (tensor<4x32x96xf32>, tensor<4x32x96xf32>, tensor<4x32x96xf32>) -> (tensor<4x32x96xf32>, tensor<4x32x96xf32>)
func.func @gated_grad(%d_m: tensor<4x32x96xf32>, %gate: tensor<4x32x96xf32>, %up: tensor<4x32x96xf32>) {
  %d_gate, %d_up = transformer.gated_grad silu %d_m, %gate, %up : (tensor<4x32x96xf32>, tensor<4x32x96xf32>, tensor<4x32x96xf32>) -> (tensor<4x32x96xf32>, tensor<4x32x96xf32>)
  return
}

// CHECK-LABEL: func.func @rms_norm(
// CHECK-NEXT:    {{.*}} = transformer.rms_norm {{%[^ ,:)]+}}, {{%[^ ,:)]+}} epsilon 1.000000e-05 : (tensor<4x32x64xf32>, tensor<64xf32>) -> (tensor<4x32x64xf32>, tensor<4x32xf32>)
func.func @rms_norm(%x: tensor<4x32x64xf32>, %g1: tensor<64xf32>) {
  %n1, %rstd1 = transformer.rms_norm %x, %g1 epsilon 1.000000e-05 : (tensor<4x32x64xf32>, tensor<64xf32>) -> (tensor<4x32x64xf32>, tensor<4x32xf32>)
  return
}

// CHECK-LABEL: func.func @rms_norm_grad(
// CHECK-NEXT:    {{.*}} = transformer.rms_norm_grad {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}} : (tensor<4x32x64xf32>, tensor<4x32x64xf32>, tensor<64xf32>, tensor<4x32xf32>) -> (tensor<4x32x64xf32>, tensor<64xf32>)
func.func @rms_norm_grad(%d_n1: tensor<4x32x64xf32>, %x: tensor<4x32x64xf32>, %g1: tensor<64xf32>, %rstd1: tensor<4x32xf32>) {
  %d_x, %d_g1 = transformer.rms_norm_grad %d_n1, %x, %g1, %rstd1 : (tensor<4x32x64xf32>, tensor<4x32x64xf32>, tensor<64xf32>, tensor<4x32xf32>) -> (tensor<4x32x64xf32>, tensor<64xf32>)
  return
}

// CHECK-LABEL: func.func @layer_norm(
// CHECK-NEXT:    {{.*}} = transformer.layer_norm {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}} epsilon 1.000000e-05 : (tensor<4x32x64xf32>, tensor<64xf32>, tensor<64xf32>) -> (tensor<4x32x64xf32>, tensor<4x32xf32>, tensor<4x32xf32>)
func.func @layer_norm(%x: tensor<4x32x64xf32>, %g2: tensor<64xf32>, %h2: tensor<64xf32>) {
  %n2, %mean2, %rstd2 = transformer.layer_norm %x, %g2, %h2 epsilon 1.000000e-05 : (tensor<4x32x64xf32>, tensor<64xf32>, tensor<64xf32>) -> (tensor<4x32x64xf32>, tensor<4x32xf32>, tensor<4x32xf32>)
  return
}

// CHECK-LABEL: func.func @layer_norm_grad(
// CHECK-NEXT:    {{.*}} = transformer.layer_norm_grad {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}} : (tensor<4x32x64xf32>, tensor<4x32x64xf32>, tensor<64xf32>, tensor<4x32xf32>, tensor<4x32xf32>) -> (tensor<4x32x64xf32>, tensor<64xf32>, tensor<64xf32>)
func.func @layer_norm_grad(%d_n2: tensor<4x32x64xf32>, %x: tensor<4x32x64xf32>, %g2: tensor<64xf32>, %mean2: tensor<4x32xf32>, %rstd2: tensor<4x32xf32>) {
  %d_x2, %d_g2, %d_h2 = transformer.layer_norm_grad %d_n2, %x, %g2, %mean2, %rstd2 : (tensor<4x32x64xf32>, tensor<4x32x64xf32>, tensor<64xf32>, tensor<4x32xf32>, tensor<4x32xf32>) -> (tensor<4x32x64xf32>, tensor<64xf32>, tensor<64xf32>)
  return
}

// CHECK-LABEL: func.func @rope(
// CHECK-NEXT:    {{.*}} = transformer.rope {{%[^ ,:)]+}}, {{%[^ ,:)]+}} theta 1.000000e+04 : (tensor<4x32x2x2x16xf32>, tensor<4x32xi32>) -> tensor<4x32x2x2x16xf32>
func.func @rope(%q: tensor<4x32x2x2x16xf32>, %positions: tensor<4x32xi32>) {
  %qr = transformer.rope %q, %positions theta 1.000000e+04 : (tensor<4x32x2x2x16xf32>, tensor<4x32xi32>) -> tensor<4x32x2x2x16xf32>
  return
}

// CHECK-LABEL: func.func @dropout(
// CHECK-NEXT:    {{.*}} = transformer.dropout {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}} rate 1.000000e-01 site mlp_output : (tensor<4x32x64xf32>, tensor<i64>, tensor<4x32xi32>) -> tensor<4x32x64xf32>
func.func @dropout(%x: tensor<4x32x64xf32>, %seed: tensor<i64>, %numbers: tensor<4x32xi32>) {
  %y = transformer.dropout %x, %seed, %numbers rate 1.000000e-01 site mlp_output : (tensor<4x32x64xf32>, tensor<i64>, tensor<4x32xi32>) -> tensor<4x32x64xf32>
  return
}

// CHECK-LABEL: func.func @dropout_with_mask(
// CHECK-NEXT:    {{.*}} = transformer.dropout_with_mask {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}} rate 1.000000e-01 site mlp_output : (tensor<4x32x64xf32>, tensor<i64>, tensor<4x32xi32>) -> (tensor<4x32x64xf32>, tensor<4x32x64xi8>)
// CHECK-NEXT:    {{.*}} = transformer.dropout_grad {{%[^ ,:)]+}}, {{%[^ ,:)]+}} rate 1.000000e-01 : (tensor<4x32x64xf32>, tensor<4x32x64xi8>) -> tensor<4x32x64xf32>
func.func @dropout_with_mask(%x: tensor<4x32x64xf32>, %d_y: tensor<4x32x64xf32>, %seed: tensor<i64>, %numbers: tensor<4x32xi32>) {
  %y, %mask = transformer.dropout_with_mask %x, %seed, %numbers rate 1.000000e-01 site mlp_output : (tensor<4x32x64xf32>, tensor<i64>, tensor<4x32xi32>) -> (tensor<4x32x64xf32>, tensor<4x32x64xi8>)
  %d_x = transformer.dropout_grad %d_y, %mask rate 1.000000e-01 : (tensor<4x32x64xf32>, tensor<4x32x64xi8>) -> tensor<4x32x64xf32>
  return
}

// CHECK-LABEL: func.func @probabilities(
// CHECK-NEXT:    {{.*}} = transformer.probabilities {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}} scale 2.500000e-01 window 16 : (
// CHECK-NEXT:    {{.*}} = transformer.dropout {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}} rate 1.000000e-01 site attention : (tensor<4x32x2x2x32xf32>, tensor<i64>, tensor<4x32xi32>) -> tensor<4x32x2x2x32xf32>
// CHECK-NEXT:    {{.*}} = transformer.probabilities_grad {{%[^ ,:)]+}}, {{%[^ ,:)]+}} scale 2.500000e-01 : (tensor<4x32x2x2x32xf32>, tensor<4x32x2x2x32xf32>) -> tensor<4x32x2x2x32xf32>
func.func @probabilities(%scores: tensor<4x32x2x2x32xf32>, %d_p: tensor<4x32x2x2x32xf32>, %positions: tensor<4x32xi32>, %documents: tensor<4x32xi32>, %seed: tensor<i64>, %numbers: tensor<4x32xi32>) {
  %p = transformer.probabilities %scores, %positions, %positions, %documents, %documents scale 2.500000e-01 window 16 : (tensor<4x32x2x2x32xf32>, tensor<4x32xi32>, tensor<4x32xi32>, tensor<4x32xi32>, tensor<4x32xi32>) -> tensor<4x32x2x2x32xf32>
  %dropped = transformer.dropout %p, %seed, %numbers rate 1.000000e-01 site attention : (tensor<4x32x2x2x32xf32>, tensor<i64>, tensor<4x32xi32>) -> tensor<4x32x2x2x32xf32>
  %d_scores = transformer.probabilities_grad %d_p, %p scale 2.500000e-01 : (tensor<4x32x2x2x32xf32>, tensor<4x32x2x2x32xf32>) -> tensor<4x32x2x2x32xf32>
  return
}

// CHECK-LABEL: func.func @attention_with_dropout(
// CHECK-NEXT:    {{.*}} = transformer.attention {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}} scale 2.500000e-01 dropout 1.000000e-01({{%[^ ,:)]+}}, {{%[^ ,:)]+}}) : (
// CHECK-NEXT:    {{.*}} = transformer.attention_grad {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}} scale 2.500000e-01 window 4 dropout 1.000000e-01({{%[^ ,:)]+}}, {{%[^ ,:)]+}}) : (
func.func @attention_with_dropout(%q: tensor<4x32x2x2x16xf32>, %k: tensor<4x32x2x16xf32>, %positions: tensor<4x32xi32>, %seed: tensor<i64>, %numbers: tensor<4x32xi32>) {
  %o, %lse = transformer.attention %q, %k, %k, %positions, %positions, %positions, %positions scale 2.500000e-01 dropout 1.000000e-01(%seed, %numbers) : (tensor<4x32x2x2x16xf32>, tensor<4x32x2x16xf32>, tensor<4x32x2x16xf32>, tensor<4x32xi32>, tensor<4x32xi32>, tensor<4x32xi32>, tensor<4x32xi32>, tensor<i64>, tensor<4x32xi32>) -> (tensor<4x32x2x2x16xf32>, tensor<4x32x2x2xf32>)
  %d_q, %d_k, %d_v = transformer.attention_grad %o, %q, %k, %k, %o, %lse, %positions, %positions, %positions, %positions scale 2.500000e-01 window 4 dropout 1.000000e-01(%seed, %numbers) : (tensor<4x32x2x2x16xf32>, tensor<4x32x2x2x16xf32>, tensor<4x32x2x16xf32>, tensor<4x32x2x16xf32>, tensor<4x32x2x2x16xf32>, tensor<4x32x2x2xf32>, tensor<4x32xi32>, tensor<4x32xi32>, tensor<4x32xi32>, tensor<4x32xi32>, tensor<i64>, tensor<4x32xi32>) -> (tensor<4x32x2x2x16xf32>, tensor<4x32x2x16xf32>, tensor<4x32x2x16xf32>)
  return
}

// CHECK-LABEL: func.func @attention(
// CHECK-NEXT:    {{.*}} = transformer.attention {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}} scale 2.500000e-01 window 16 : (tensor<4x32x2x2x16xf32>, tensor<4x32x2x16xf32>, tensor<4x32x2x16xf32>, tensor<4x32xi32>, tensor<4x32xi32>, tensor<4x32xi32>, tensor<4x32xi32>) -> (tensor<4x32x2x2x16xf32>, tensor<4x32x2x2xf32>)
func.func @attention(%qr: tensor<4x32x2x2x16xf32>, %kr: tensor<4x32x2x16xf32>, %v: tensor<4x32x2x16xf32>, %positions: tensor<4x32xi32>, %documents: tensor<4x32xi32>) {
  %o, %lse = transformer.attention %qr, %kr, %v, %positions, %positions, %documents, %documents scale 2.500000e-01 window 16 : (tensor<4x32x2x2x16xf32>, tensor<4x32x2x16xf32>, tensor<4x32x2x16xf32>, tensor<4x32xi32>, tensor<4x32xi32>, tensor<4x32xi32>, tensor<4x32xi32>) -> (tensor<4x32x2x2x16xf32>, tensor<4x32x2x2xf32>)
  return
}

// CHECK-LABEL: func.func @attention_grad(
// CHECK-NEXT:    {{.*}} = transformer.attention_grad {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}} scale 2.500000e-01 window 16 : (tensor<4x32x2x2x16xf32>, tensor<4x32x2x2x16xf32>, tensor<4x32x2x16xf32>, tensor<4x32x2x16xf32>, tensor<4x32x2x2x16xf32>, tensor<4x32x2x2xf32>, tensor<4x32xi32>, tensor<4x32xi32>, tensor<4x32xi32>, tensor<4x32xi32>) -> (tensor<4x32x2x2x16xf32>, tensor<4x32x2x16xf32>, tensor<4x32x2x16xf32>)
func.func @attention_grad(%d_o: tensor<4x32x2x2x16xf32>, %qr: tensor<4x32x2x2x16xf32>, %kr: tensor<4x32x2x16xf32>, %v: tensor<4x32x2x16xf32>, %o: tensor<4x32x2x2x16xf32>, %lse: tensor<4x32x2x2xf32>, %positions: tensor<4x32xi32>, %documents: tensor<4x32xi32>) {
  %d_qr, %d_kr, %d_v = transformer.attention_grad %d_o, %qr, %kr, %v, %o, %lse, %positions, %positions, %documents, %documents scale 2.500000e-01 window 16 : (tensor<4x32x2x2x16xf32>, tensor<4x32x2x2x16xf32>, tensor<4x32x2x16xf32>, tensor<4x32x2x16xf32>, tensor<4x32x2x2x16xf32>, tensor<4x32x2x2xf32>, tensor<4x32xi32>, tensor<4x32xi32>, tensor<4x32xi32>, tensor<4x32xi32>) -> (tensor<4x32x2x2x16xf32>, tensor<4x32x2x16xf32>, tensor<4x32x2x16xf32>)
  return
}

// CHECK-LABEL: func.func @embedding(
// CHECK-NEXT:    {{.*}} = transformer.embedding {{%[^ ,:)]+}}, {{%[^ ,:)]+}} : (tensor<4x32xi32>, tensor<251x64xf32>) -> tensor<4x32x64xf32>
func.func @embedding(%tokens: tensor<4x32xi32>, %table: tensor<251x64xf32>) {
  %e = transformer.embedding %tokens, %table : (tensor<4x32xi32>, tensor<251x64xf32>) -> tensor<4x32x64xf32>
  return
}

// CHECK-LABEL: func.func @embedding_grad(
// CHECK-NEXT:    {{.*}} = transformer.embedding_grad {{%[^ ,:)]+}}, {{%[^ ,:)]+}} : (tensor<4x32xi32>, tensor<4x32x64xf32>) -> tensor<251x64xf32>
func.func @embedding_grad(%tokens: tensor<4x32xi32>, %d_e: tensor<4x32x64xf32>) {
  %d_table = transformer.embedding_grad %tokens, %d_e : (tensor<4x32xi32>, tensor<4x32x64xf32>) -> tensor<251x64xf32>
  return
}

// CHECK-LABEL: func.func @row_max(
// CHECK-NEXT:    {{.*}} = transformer.row_max {{%[^ ,:)]+}} : (tensor<4x32x251xf32>) -> tensor<4x32xf32>
func.func @row_max(%logits: tensor<4x32x251xf32>) {
  %max = transformer.row_max %logits : (tensor<4x32x251xf32>) -> tensor<4x32xf32>
  return
}

// CHECK-LABEL: func.func @row_sum_exp(
// CHECK-NEXT:    {{.*}} = transformer.row_sum_exp {{%[^ ,:)]+}}, {{%[^ ,:)]+}} : (tensor<4x32x251xf32>, tensor<4x32xf32>) -> tensor<4x32xf32>
func.func @row_sum_exp(%logits: tensor<4x32x251xf32>, %max: tensor<4x32xf32>) {
  %sum = transformer.row_sum_exp %logits, %max : (tensor<4x32x251xf32>, tensor<4x32xf32>) -> tensor<4x32xf32>
  return
}

// CHECK-LABEL: func.func @pick(
// CHECK-NEXT:    {{.*}} = transformer.pick {{%[^ ,:)]+}}, {{%[^ ,:)]+}} : (tensor<4x32x251xf32>, tensor<4x32xi32>) -> tensor<4x32xf32>
func.func @pick(%logits: tensor<4x32x251xf32>, %labels: tensor<4x32xi32>) {
  %picked = transformer.pick %logits, %labels : (tensor<4x32x251xf32>, tensor<4x32xi32>) -> tensor<4x32xf32>
  return
}

// CHECK-LABEL: func.func @token_loss(
// CHECK-NEXT:    {{.*}} = transformer.token_loss {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}} : (tensor<4x32xf32>, tensor<4x32xf32>, tensor<4x32xf32>) -> tensor<4x32xf32>
func.func @token_loss(%max: tensor<4x32xf32>, %sum: tensor<4x32xf32>, %picked: tensor<4x32xf32>) {
  %losses = transformer.token_loss %max, %sum, %picked : (tensor<4x32xf32>, tensor<4x32xf32>, tensor<4x32xf32>) -> tensor<4x32xf32>
  return
}

// CHECK-LABEL: func.func @count_labels(
// CHECK-NEXT:    {{.*}} = transformer.count_labels {{%[^ ,:)]+}} : (tensor<4x32xi32>) -> tensor<i64>
func.func @count_labels(%labels: tensor<4x32xi32>) {
  %n = transformer.count_labels %labels : (tensor<4x32xi32>) -> tensor<i64>
  return
}

// CHECK-LABEL: func.func @mean_counted(
// CHECK-NEXT:    {{.*}} = transformer.mean_counted {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}} : (tensor<4x32xf32>, tensor<4x32xi32>, tensor<i64>) -> tensor<f32>
func.func @mean_counted(%losses: tensor<4x32xf32>, %labels: tensor<4x32xi32>, %count: tensor<i64>) {
  %loss = transformer.mean_counted %losses, %labels, %count : (tensor<4x32xf32>, tensor<4x32xi32>, tensor<i64>) -> tensor<f32>
  return
}

// CHECK-LABEL: func.func @loss_grad(
// CHECK-NEXT:    {{.*}} = transformer.loss_grad {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}} : (tensor<4x32x251xf32>, tensor<4x32xf32>, tensor<4x32xf32>, tensor<4x32xi32>, tensor<i64>) -> tensor<4x32x251xf32>
func.func @loss_grad(%logits: tensor<4x32x251xf32>, %max: tensor<4x32xf32>, %sum: tensor<4x32xf32>, %labels: tensor<4x32xi32>, %count: tensor<i64>) {
  %d_logits = transformer.loss_grad %logits, %max, %sum, %labels, %count : (tensor<4x32x251xf32>, tensor<4x32xf32>, tensor<4x32xf32>, tensor<4x32xi32>, tensor<i64>) -> tensor<4x32x251xf32>
  return
}

// CHECK-LABEL: func.func @loss_grad_scaled(
// CHECK-NEXT:    {{.*}} = transformer.loss_grad {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}} scaled {{%[^ ,:)]+}} : (tensor<4x32x251xf32>, tensor<4x32xf32>, tensor<4x32xf32>, tensor<4x32xi32>, tensor<i64>, tensor<f32>) -> tensor<4x32x251xf32>
func.func @loss_grad_scaled(%logits: tensor<4x32x251xf32>, %max: tensor<4x32xf32>, %sum: tensor<4x32xf32>, %labels: tensor<4x32xi32>, %count: tensor<i64>, %scale: tensor<f32>) {
  %d_scaled = transformer.loss_grad %logits, %max, %sum, %labels, %count scaled %scale : (tensor<4x32x251xf32>, tensor<4x32xf32>, tensor<4x32xf32>, tensor<4x32xi32>, tensor<i64>, tensor<f32>) -> tensor<4x32x251xf32>
  return
}

// CHECK-LABEL: func.func @sum_squares(
// CHECK-NEXT:    {{.*}} = transformer.sum_squares {{%[^ ,:)]+}} : (tensor<96x64xf32>) -> tensor<f64>
func.func @sum_squares(%g: tensor<96x64xf32>) {
  %sq = transformer.sum_squares %g : (tensor<96x64xf32>) -> tensor<f64>
  return
}

// CHECK-LABEL: func.func @clip_factor(
// CHECK-NEXT:    {{.*}} = transformer.clip_factor {{%[^ ,:)]+}} max_norm 1.000000e+00 : (tensor<f64>) -> (tensor<f32>, tensor<f32>)
func.func @clip_factor(%sq: tensor<f64>) {
  %norm, %factor = transformer.clip_factor %sq max_norm 1.000000e+00 : (tensor<f64>) -> (tensor<f32>, tensor<f32>)
  return
}

// CHECK-LABEL: func.func @clip_factor_scaled(
// CHECK-NEXT:    {{.*}} = transformer.clip_factor {{%[^ ,:)]+}} scaled {{%[^ ,:)]+}} max_norm 1.000000e+00 : (tensor<f64>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
func.func @clip_factor_scaled(%sq: tensor<f64>, %scale: tensor<f32>) {
  %n, %f = transformer.clip_factor %sq scaled %scale max_norm 1.000000e+00 : (tensor<f64>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
  return
}

// CHECK-LABEL: func.func @adamw(
// CHECK-NEXT:    {{.*}} = 1.000000e-01 : f64} : (tensor<96x64xf32>, tensor<96x64xf32>, tensor<96x64xf32>, tensor<96x64xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<96x64xf32>, tensor<96x64xf32>, tensor<96x64xf32>)
func.func @adamw(%w: tensor<96x64xf32>, %g: tensor<96x64xf32>, %m: tensor<96x64xf32>, %v: tensor<96x64xf32>, %rate: tensor<f32>, %c1: tensor<f32>, %c2: tensor<f32>, %factor: tensor<f32>) {
  %w1, %m1, %v1 = transformer.adamw %w, %g, %m, %v, %rate, %c1, %c2, %factor {beta1 = 9.000000e-01 : f64, beta2 = 9.500000e-01 : f64, epsilon = 1.000000e-08 : f64, weight_decay = 1.000000e-01 : f64} : (tensor<96x64xf32>, tensor<96x64xf32>, tensor<96x64xf32>, tensor<96x64xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<96x64xf32>, tensor<96x64xf32>, tensor<96x64xf32>)
  return
}

// CHECK-LABEL: func.func @sgd(
// CHECK-NEXT:    {{.*}} = 0.000000e+00 : f64} : (tensor<96x64xf32>, tensor<96x64xf32>, tensor<f32>, tensor<f32>) -> tensor<96x64xf32>
func.func @sgd(%w: tensor<96x64xf32>, %g: tensor<96x64xf32>, %rate: tensor<f32>, %factor: tensor<f32>) {
  %w2 = transformer.sgd %w, %g, %rate, %factor {weight_decay = 0.000000e+00 : f64} : (tensor<96x64xf32>, tensor<96x64xf32>, tensor<f32>, tensor<f32>) -> tensor<96x64xf32>
  return
}

// CHECK-LABEL: func.func @split_tensors(
// CHECK-NEXT:    {{.*}} = transformer.split_tensors {{%[^ ,:)]+}} : (tensor<2x4x16x64xf32>) -> (tensor<4x1x16x64xf32>, tensor<4x16x64xf32>)
func.func @split_tensors(%wqk: tensor<2x4x16x64xf32>) {
  %wq, %wk = transformer.split_tensors %wqk : (tensor<2x4x16x64xf32>) -> (tensor<4x1x16x64xf32>, tensor<4x16x64xf32>)
  return
}

// CHECK-LABEL: func.func @stack_tensors(
// CHECK-NEXT:    {{.*}} = transformer.stack_tensors {{%[^ ,:)]+}}, {{%[^ ,:)]+}} : (tensor<4x1x16x64xf32>, tensor<4x16x64xf32>) -> tensor<2x4x16x64xf32>
func.func @stack_tensors(%d_wq: tensor<4x1x16x64xf32>, %d_wk: tensor<4x16x64xf32>) {
  %d_wqk = transformer.stack_tensors %d_wq, %d_wk : (tensor<4x1x16x64xf32>, tensor<4x16x64xf32>) -> tensor<2x4x16x64xf32>
  return
}

// CHECK-LABEL: func.func @rope_scaled(
// CHECK-NEXT:    {{.*}} = 8192> inverse : (tensor<4x32x2x2x16xf32>, tensor<4x32xi32>) -> tensor<4x32x2x2x16xf32>
func.func @rope_scaled(%q: tensor<4x32x2x2x16xf32>, %positions: tensor<4x32xi32>) {
  %qr = transformer.rope %q, %positions theta 5.000000e+05 scaling <factor = 8.000000e+00 : f64, lowFrequencyFactor = 1.000000e+00 : f64, highFrequencyFactor = 4.000000e+00 : f64, originalContext = 8192> inverse : (tensor<4x32x2x2x16xf32>, tensor<4x32xi32>) -> tensor<4x32x2x2x16xf32>
  return
}

// CHECK-LABEL: func.func @attention_without_window(
// CHECK-NEXT:    {{.*}} = transformer.attention {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}} scale 2.500000e-01 : (tensor<4x32x2x2x16xf32>, tensor<4x32x2x16xf32>, tensor<4x32x2x16xf32>, tensor<4x32xi32>, tensor<4x32xi32>, tensor<4x32xi32>, tensor<4x32xi32>) -> (tensor<4x32x2x2x16xf32>, tensor<4x32x2x2xf32>)
func.func @attention_without_window(%qr: tensor<4x32x2x2x16xf32>, %kr: tensor<4x32x2x16xf32>, %v: tensor<4x32x2x16xf32>, %positions: tensor<4x32xi32>, %documents: tensor<4x32xi32>) {
  %o, %lse = transformer.attention %qr, %kr, %v, %positions, %positions, %documents, %documents scale 2.500000e-01 : (tensor<4x32x2x2x16xf32>, tensor<4x32x2x16xf32>, tensor<4x32x2x16xf32>, tensor<4x32xi32>, tensor<4x32xi32>, tensor<4x32xi32>, tensor<4x32xi32>) -> (tensor<4x32x2x2x16xf32>, tensor<4x32x2x2xf32>)
  return
}

// CHECK-LABEL: func.func @clip_factor_without_limit(
// CHECK-NEXT:    {{.*}} = transformer.clip_factor {{%[^ ,:)]+}} : (tensor<f64>) -> (tensor<f32>, tensor<f32>)
func.func @clip_factor_without_limit(%sq: tensor<f64>) {
  %norm, %factor = transformer.clip_factor %sq : (tensor<f64>) -> (tensor<f32>, tensor<f32>)
  return
}

// CHECK-LABEL: func.func @activation_silu(
// CHECK-NEXT:    {{.*}} = transformer.activation silu {{%[^ ,:)]+}} : (tensor<4x32x96xf32>) -> tensor<4x32x96xf32>
func.func @activation_silu(%h: tensor<4x32x96xf32>) {
  %m = transformer.activation silu %h : (tensor<4x32x96xf32>) -> tensor<4x32x96xf32>
  return
}

// CHECK-LABEL: func.func @activation_gelu_erf(
// CHECK-NEXT:    {{.*}} = transformer.activation gelu_erf {{%[^ ,:)]+}} : (tensor<4x32x96xf32>) -> tensor<4x32x96xf32>
func.func @activation_gelu_erf(%h: tensor<4x32x96xf32>) {
  %m = transformer.activation gelu_erf %h : (tensor<4x32x96xf32>) -> tensor<4x32x96xf32>
  return
}

// CHECK-LABEL: func.func @activation_relu(
// CHECK-NEXT:    {{.*}} = transformer.activation relu {{%[^ ,:)]+}} : (tensor<4x32x96xf32>) -> tensor<4x32x96xf32>
func.func @activation_relu(%h: tensor<4x32x96xf32>) {
  %m = transformer.activation relu %h : (tensor<4x32x96xf32>) -> tensor<4x32x96xf32>
  return
}

// A rank that holds a part of the vocabulary says which.
//
#pod = #dist.mesh<["dp" = 2, "tp" = 4]>

// CHECK-LABEL: func.func @embedding_of_a_part(
// CHECK-NEXT:    {{.*}} = transformer.embedding {{%[^ ,:)]+}}, {{%[^ ,:)]+}} shards {v = #dist.shard<#mesh, ["tp"], 251>} : (tensor<4x32xi32>, tensor<251x64xf32>) -> tensor<4x32x64xf32>
func.func @embedding_of_a_part(%tokens: tensor<4x32xi32>, %table: tensor<251x64xf32>) {
  %e = transformer.embedding %tokens, %table shards {v = #dist.shard<#pod, ["tp"], 251>} : (tensor<4x32xi32>, tensor<251x64xf32>) -> tensor<4x32x64xf32>
  return
}

// CHECK-LABEL: func.func @embedding_grad_of_a_part(
// CHECK-NEXT:    {{.*}} = transformer.embedding_grad {{%[^ ,:)]+}}, {{%[^ ,:)]+}} shards {v = #dist.shard<#mesh, ["tp"], 251>} : (tensor<4x32xi32>, tensor<4x32x64xf32>) -> tensor<251x64xf32>
func.func @embedding_grad_of_a_part(%tokens: tensor<4x32xi32>, %d_e: tensor<4x32x64xf32>) {
  %d_table = transformer.embedding_grad %tokens, %d_e shards {v = #dist.shard<#pod, ["tp"], 251>} : (tensor<4x32xi32>, tensor<4x32x64xf32>) -> tensor<251x64xf32>
  return
}

// CHECK-LABEL: func.func @row_max_of_a_part(
// CHECK-NEXT:    {{.*}} = transformer.row_max {{%[^ ,:)]+}} shards {v = #dist.shard<#mesh, ["tp"], 251>} : (tensor<4x32x251xf32>) -> tensor<4x32xf32>
func.func @row_max_of_a_part(%logits: tensor<4x32x251xf32>) {
  %max = transformer.row_max %logits shards {v = #dist.shard<#pod, ["tp"], 251>} : (tensor<4x32x251xf32>) -> tensor<4x32xf32>
  return
}

// CHECK-LABEL: func.func @row_sum_exp_of_a_part(
// CHECK-NEXT:    {{.*}} = transformer.row_sum_exp {{%[^ ,:)]+}}, {{%[^ ,:)]+}} shards {v = #dist.shard<#mesh, ["tp"], 251>} : (tensor<4x32x251xf32>, tensor<4x32xf32>) -> tensor<4x32xf32>
func.func @row_sum_exp_of_a_part(%logits: tensor<4x32x251xf32>, %max: tensor<4x32xf32>) {
  %sum = transformer.row_sum_exp %logits, %max shards {v = #dist.shard<#pod, ["tp"], 251>} : (tensor<4x32x251xf32>, tensor<4x32xf32>) -> tensor<4x32xf32>
  return
}

// CHECK-LABEL: func.func @pick_of_a_part(
// CHECK-NEXT:    {{.*}} = transformer.pick {{%[^ ,:)]+}}, {{%[^ ,:)]+}} shards {v = #dist.shard<#mesh, ["tp"], 251>} : (tensor<4x32x251xf32>, tensor<4x32xi32>) -> tensor<4x32xf32>
func.func @pick_of_a_part(%logits: tensor<4x32x251xf32>, %labels: tensor<4x32xi32>) {
  %picked = transformer.pick %logits, %labels shards {v = #dist.shard<#pod, ["tp"], 251>} : (tensor<4x32x251xf32>, tensor<4x32xi32>) -> tensor<4x32xf32>
  return
}

// CHECK-LABEL: func.func @loss_grad_of_a_part(
// CHECK-NEXT:    {{.*}} = transformer.loss_grad {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}}, {{%[^ ,:)]+}} shards {v = #dist.shard<#mesh, ["tp"], 251>} : (tensor<4x32x251xf32>, tensor<4x32xf32>, tensor<4x32xf32>, tensor<4x32xi32>, tensor<i64>) -> tensor<4x32x251xf32>
func.func @loss_grad_of_a_part(%logits: tensor<4x32x251xf32>, %max: tensor<4x32xf32>, %sum: tensor<4x32xf32>, %labels: tensor<4x32xi32>, %count: tensor<i64>) {
  %d_logits = transformer.loss_grad %logits, %max, %sum, %labels, %count shards {v = #dist.shard<#pod, ["tp"], 251>} : (tensor<4x32x251xf32>, tensor<4x32xf32>, tensor<4x32xf32>, tensor<4x32xi32>, tensor<i64>) -> tensor<4x32x251xf32>
  return
}

// CHECK: transformer.state @"model.layers.{}.mlp.up_proj.weight" parameter layers 6 : tensor<96x64xf32> {decay, factors = "f d", file_order = array<i64: 0, 1>, file_shape = array<i64: 96, 64>, initializer = 2 : i32, initializer_std = 2.000000e-02 : f64}
transformer.state @"model.layers.{}.mlp.up_proj.weight" parameter layers 6 : tensor<96x64xf32> {decay, factors = "f d", file_order = array<i64: 0, 1>, file_shape = array<i64: 96, 64>, initializer = 2 : i32, initializer_std = 2.000000e-02 : f64}
// CHECK: transformer.state @"model.layers.{}.mlp.up_proj.weight.gradient_sum" gradient_sum layers 6 of @"model.layers.{}.mlp.up_proj.weight" : tensor<96x64xf32>
transformer.state @"model.layers.{}.mlp.up_proj.weight.gradient_sum" gradient_sum layers 6 of @"model.layers.{}.mlp.up_proj.weight" : tensor<96x64xf32>
// CHECK: transformer.state @"model.layers.{}.mlp.up_proj.weight.gradient" gradient layers 6 of @"model.layers.{}.mlp.up_proj.weight" storage @"model.layers.{}.mlp.up_proj.weight.gradient_sum" : tensor<96x64xf32>
transformer.state @"model.layers.{}.mlp.up_proj.weight.gradient" gradient layers 6 of @"model.layers.{}.mlp.up_proj.weight" storage @"model.layers.{}.mlp.up_proj.weight.gradient_sum" : tensor<96x64xf32>
// CHECK: transformer.state @"model.layers.{}.mlp.up_proj.weight.adam_m" adam_m layers 6 of @"model.layers.{}.mlp.up_proj.weight" : tensor<96x64xf32>
transformer.state @"model.layers.{}.mlp.up_proj.weight.adam_m" adam_m layers 6 of @"model.layers.{}.mlp.up_proj.weight" : tensor<96x64xf32>
// CHECK: transformer.state @"model.layers.{}.mlp.up_proj.weight.adam_v" adam_v layers 6 of @"model.layers.{}.mlp.up_proj.weight" : tensor<96x64xf32>
transformer.state @"model.layers.{}.mlp.up_proj.weight.adam_v" adam_v layers 6 of @"model.layers.{}.mlp.up_proj.weight" : tensor<96x64xf32>
// CHECK: transformer.state @model.norm.weight parameter : tensor<64xf32> {initializer = 1 : i32}
transformer.state @model.norm.weight parameter : tensor<64xf32> {initializer = 1 : i32}
// CHECK: transformer.state @model.norm.bias parameter : tensor<64xf32> {initializer = 0 : i32}
transformer.state @model.norm.bias parameter : tensor<64xf32> {initializer = 0 : i32}
// CHECK: transformer.state @model.norm.weight.gradient_sum gradient_sum of @model.norm.weight : tensor<64xf32>
transformer.state @model.norm.weight.gradient_sum gradient_sum of @model.norm.weight : tensor<64xf32>

// CHECK-LABEL: func.func @states(
func.func @states(%layer: index, %new: tensor<64xf32>, %d_w: tensor<64xf32>) {
  // CHECK-NEXT: {{.*}} = transformer.load @"model.layers.{}.mlp.up_proj.weight" at {{%[^ ,:)]+}} : tensor<96x64xf32>
  %w = transformer.load @"model.layers.{}.mlp.up_proj.weight" at %layer : tensor<96x64xf32>
  // CHECK-NEXT: transformer.store {{%[^ ,:)]+}} to @model.norm.weight : tensor<64xf32>
  transformer.store %new to @model.norm.weight : tensor<64xf32>
  // CHECK-NEXT: transformer.accumulate {{%[^ ,:)]+}} into @model.norm.weight.gradient_sum : tensor<64xf32>
  transformer.accumulate %d_w into @model.norm.weight.gradient_sum : tensor<64xf32>
  // CHECK-NEXT: transformer.zero @model.norm.weight.gradient_sum
  transformer.zero @model.norm.weight.gradient_sum
  // CHECK-NEXT: {{.*}} = transformer.load @model.norm.weight : tensor<64xf32>
  %norm = transformer.load @model.norm.weight : tensor<64xf32>
  // CHECK-NEXT: transformer.store {{%[^ ,:)]+}} to @"model.layers.{}.mlp.up_proj.weight" at {{%[^ ,:)]+}} : tensor<96x64xf32>
  transformer.store %w to @"model.layers.{}.mlp.up_proj.weight" at %layer : tensor<96x64xf32>
  // CHECK-NEXT: transformer.accumulate {{%[^ ,:)]+}} into @"model.layers.{}.mlp.up_proj.weight.gradient_sum" at {{%[^ ,:)]+}} : tensor<96x64xf32>
  transformer.accumulate %w into @"model.layers.{}.mlp.up_proj.weight.gradient_sum" at %layer : tensor<96x64xf32>
  return
}

// CHECK-LABEL: func.func @loop(
func.func @loop(%x: tensor<4x8xf32>) {
  // CHECK-NEXT: %0:2 = transformer.loop "layer" 6 carry(%arg0) : (tensor<4x8xf32>) -> (tensor<4x8xf32>, !transformer.stack<6 x tensor<4x8xf32>>) {
  // CHECK-NEXT: ^bb0(%layer: index, %arg1: tensor<4x8xf32>):
  // CHECK-NEXT:   %1 = transformer.add %arg1, %arg1 : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  // CHECK-NEXT:   transformer.yield %1 : tensor<4x8xf32> collect %arg1 : tensor<4x8xf32>
  // CHECK-NEXT: }
  %y, %all = transformer.loop "layer" 6 carry(%x) : (tensor<4x8xf32>) -> (tensor<4x8xf32>, !transformer.stack<6 x tensor<4x8xf32>>) {
  ^bb0(%layer: index, %a: tensor<4x8xf32>):
    %b = transformer.add %a, %a : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
    transformer.yield %b : tensor<4x8xf32> collect %a : tensor<4x8xf32>
  }
  return
}

// CHECK-LABEL: func.func @loop_without_values(
func.func @loop_without_values(%tokens: !transformer.stack<2 x tensor<4x8xi32>>) {
  // CHECK-NEXT: transformer.loop "micro_batch" 2 reversed : () -> () {
  transformer.loop "micro_batch" 2 reversed : () -> () {
  // CHECK-NEXT: ^bb0(%i: index):
  ^bb0(%i: index):
    // CHECK-NEXT: {{.*}} = transformer.get %arg0 at %i : <2 x tensor<4x8xi32>>
    %t = transformer.get %tokens at %i : !transformer.stack<2 x tensor<4x8xi32>>
    // CHECK-NEXT: transformer.yield
    transformer.yield
  }
  return
}

// CHECK-LABEL: func.func @loop_up_to(
func.func @loop_up_to(%x: tensor<4x8xf32>, %n: index) {
  // CHECK-NEXT: %0:2 = transformer.loop "layer" 6 up_to %arg1 reversed carry(%arg0) : (tensor<4x8xf32>) -> (tensor<4x8xf32>, !transformer.stack<6 x tensor<4x8xf32>>) {
  %y, %all = transformer.loop "layer" 6 up_to %n reversed carry(%x) : (tensor<4x8xf32>) -> (tensor<4x8xf32>, !transformer.stack<6 x tensor<4x8xf32>>) {
  ^bb0(%layer: index, %a: tensor<4x8xf32>):
    transformer.yield %a : tensor<4x8xf32> collect %a : tensor<4x8xf32>
  }
  return
}

// CHECK-LABEL: func.func @loop_from(
func.func @loop_from() {
  // CHECK-NEXT: transformer.loop "micro_batch" 1 from 3 : () -> () {
  transformer.loop "micro_batch" 1 from 3 : () -> () {
  ^bb0(%i: index):
    transformer.yield
  }
  return
}

// CHECK-LABEL: func.func @zeros(
func.func @zeros() {
  // CHECK-NEXT: {{.*}} = transformer.zeros : tensor<f32>
  %sum = transformer.zeros : tensor<f32>
  return
}

// CHECK-LABEL: func.func private @stack(
// CHECK-SAME:    !transformer.stack<126 x tensor<4x32x64xf32>>
!saved = !transformer.stack<126 x tensor<4x32x64xf32>>
func.func private @stack(!saved)

// Names are those that the attribute gives.
//
// CHECK-LABEL: func.func @names(
// CHECK-NEXT:    %n1, %n1_rstd = transformer.rms_norm
// CHECK-SAME:      {as = ["n1", "n1_rstd"]}
func.func @names(%x: tensor<4x8xf32>, %w: tensor<8xf32>) {
  %0, %1 = transformer.rms_norm %x, %w epsilon 1.000000e-05 {as = ["n1", "n1_rstd"]} : (tensor<4x8xf32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
  return
}

// CHECK-LABEL: func.func @recompute(
// CHECK-NEXT:    %0 = transformer.recompute {{%[^ ,:)]+}}, {{%[^ ,:)]+}} because "listed: frees m (49152 bytes)" : (tensor<4x32x96xf32>, tensor<4x32x96xf32>) -> tensor<4x32x96xf32> {
// CHECK-NEXT:    ^bb0(%[[A:.*]]: tensor<4x32x96xf32>, %[[B:.*]]: tensor<4x32x96xf32>):
// CHECK-NEXT:      %[[AGAIN:.*]] = transformer.gated silu %[[A]], %[[B]]
// CHECK-NEXT:      transformer.yield %[[AGAIN]] : tensor<4x32x96xf32>
// CHECK-NEXT:    }
func.func @recompute(%gate: tensor<4x32x96xf32>, %up: tensor<4x32x96xf32>) {
  %m = transformer.recompute %gate, %up because "listed: frees m (49152 bytes)" : (tensor<4x32x96xf32>, tensor<4x32x96xf32>) -> tensor<4x32x96xf32> {
  ^bb0(%a: tensor<4x32x96xf32>, %b: tensor<4x32x96xf32>):
    %again = transformer.gated silu %a, %b : (tensor<4x32x96xf32>, tensor<4x32x96xf32>) -> tensor<4x32x96xf32>
    transformer.yield %again : tensor<4x32x96xf32>
  }
  return
}

func.func @block(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  return %x : tensor<4x8xf32>
}
func.func @block.1(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  return %x : tensor<4x8xf32>
}
// CHECK-LABEL: func.func @call_by_layer(
// CHECK-NEXT:    %0 = transformer.call_by_layer [@block, @block.1] at %arg1 choices [0, 1, 0](%arg0) : (tensor<4x8xf32>) -> tensor<4x8xf32>
func.func @call_by_layer(%x: tensor<4x8xf32>, %layer: index) {
  %y = transformer.call_by_layer [@block, @block.1] at %layer choices [0, 1, 0](%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return
}
