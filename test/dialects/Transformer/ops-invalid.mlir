// One case per constraint of the ops of the model. Those of factor rules are in
// test/dialects/Dist/factor-rule-invalid.mlir.
//
// RUN: heddle-opt %s --split-input-file --verify-diagnostics

func.func @contract_c1(%x: tensor<4x8xf32>, %w: tensor<16x8xf32>) {
  // expected-error @below {{has letter 'e' in one list only; it must be in two of 'b d, f e -> b f'}}
  %0 = transformer.contract "b d, f e -> b f" %x, %w : (tensor<4x8xf32>, tensor<16x8xf32>) -> tensor<4x16xf32>
  return
}

// -----

func.func @contract_c1(%x: tensor<8x8xf32>, %w: tensor<16x8xf32>) {
  // expected-error @below {{has letter 'd' twice in 'd d'}}
  %0 = transformer.contract "d d, f d -> f" %x, %w : (tensor<8x8xf32>, tensor<16x8xf32>) -> tensor<16xf32>
  return
}

// -----

func.func @contract_c2(%x: tensor<4x8xf8E4M3FN>, %w: tensor<16x8xf8E4M3FN>, %s: tensor<f32>) {
  // expected-error @below {{has 1 scales, expected one of each operand or none}}
  %0 = "transformer.contract"(%x, %w, %s) <{operandSegmentSizes = array<i32: 1, 1, 1, 0, 0>, spec = "b d, f d -> b f"}> : (tensor<4x8xf8E4M3FN>, tensor<16x8xf8E4M3FN>, tensor<f32>) -> tensor<4x16xf32>
  return
}

// -----

func.func @quantize_c1(%x: tensor<4x8xbf16>, %amax: tensor<f32>) {
  // expected-error @below {{cannot rotate a tensor of rank 2 by 2}}
  %c, %s = transformer.quantize %x, %amax rotate 2 : (tensor<4x8xbf16>, tensor<f32>) -> (tensor<4x8xf8E4M3FN>, tensor<f32>)
  return
}

// -----

func.func @quantize_f2(%x: tensor<4x8xbf16>, %amax: tensor<f32>) {
  // expected-error @below {{factor 'q1' has size 8, but dim 0 of result 0 has size 4}}
  %c, %s = "transformer.quantize"(%x, %amax) <{operandSegmentSizes = array<i32: 1, 1, 0, 0>, rotate = 1 : i64}> : (tensor<4x8xbf16>, tensor<f32>) -> (tensor<4x8xf8E4M3FN>, tensor<f32>)
  return
}

// -----

func.func @quantize_c2(%x: tensor<4x8xbf16>, %amax: tensor<bf16>) {
  // expected-error @below {{needs scales of f32, or as powers of two of f8E8M0FNU, or of two levels f8E4M3FN, got 'tensor<4x2xf8E8M0FNU>'}}
  %c, %s = transformer.quantize %x blocks [1, 4] over 1 : (tensor<4x8xbf16>) -> (tensor<4x8xf8E4M3FN>, tensor<4x2xf8E8M0FNU>)
  return
}

// -----

func.func @quantize_c3(%x: tensor<4x8xbf16>, %amax: tensor<bf16>) {
  // expected-error @below {{needs numbers of f32, got 'tensor<bf16>'}}
  %c, %s = transformer.quantize %x, %amax : (tensor<4x8xbf16>, tensor<bf16>) -> (tensor<4x8xf8E4M3FN>, tensor<f32>)
  return
}

// -----

func.func @quantize_c3(%x: tensor<4x8xbf16>) {
  // expected-error @below {{needs either the largest magnitude or blocks}}
  %c, %s = transformer.quantize %x : (tensor<4x8xbf16>) -> (tensor<4x8xf8E4M3FN>, tensor<f32>)
  return
}

// -----

func.func @quantize_c3(%x: tensor<2x4x8xbf16>) {
  // expected-error @below {{has blocks over 1 dimensions of its codes' 3, rotated by 2}}
  %c, %s = transformer.quantize %x rotate 2 blocks [1, 4] over 1 : (tensor<2x4x8xbf16>) -> (tensor<8x2x4xf8E4M3FN>, tensor<8x2xf32>)
  return
}

// -----

func.func @quantize_c3(%x: tensor<4x8xbf16>, %amax: tensor<f32>) {
  // expected-error @below {{needs either the largest magnitude or blocks, or both and a scale of the tensor}}
  %c, %s = transformer.quantize %x, %amax blocks [1, 4] over 1 : (tensor<4x8xbf16>, tensor<f32>) -> (tensor<4x8xf8E4M3FN>, tensor<4x2xf32>)
  return
}

// -----

func.func @quantize_c2(%x: tensor<4x8xbf16>, %amax: tensor<f32>) {
  // expected-error @below {{or of two levels f8E4M3FN, got 'tensor<4x2xf32>'}}
  %c, %s, %t = transformer.quantize %x, %amax blocks [1, 4] over 1 : (tensor<4x8xbf16>, tensor<f32>) -> (tensor<4x8xf4E2M1FN>, tensor<4x2xf32>, tensor<f32>)
  return
}

// -----

func.func @contract_c2(%x: tensor<4x8xf4E2M1FN>, %w: tensor<5x8xf4E2M1FN>, %s: tensor<f32>) {
  // expected-error @below {{has 4 scales, expected one of each operand or none}}
  %y = transformer.contract "a k, c k -> a c" %x, %w scaled %s, %s, %s, %s : (tensor<4x8xf4E2M1FN>, tensor<5x8xf4E2M1FN>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<4x5xbf16>
  return
}

// -----

func.func @quantize_c4(%x: tensor<4x8xbf16>, %amax: tensor<f32>, %seed: tensor<i64>, %numbers: tensor<4xi32>) {
  // expected-error @below {{rounds f4E2M1FN at random, with a site, got 'tensor<4x8xf8E4M3FN>'}}
  %c, %s = transformer.quantize %x, %amax noise %seed, %numbers site 3 : (tensor<4x8xbf16>, tensor<f32>, tensor<i64>, tensor<4xi32>) -> (tensor<4x8xf8E4M3FN>, tensor<f32>)
  return
}

// -----

func.func @hadamard_c1(%x: tensor<4x8xbf16>) {
  // expected-error @below {{mixes rows of 3 dimensions of 2}}
  %y = transformer.hadamard %x over 3 length 4 signs 1 : (tensor<4x8xbf16>) -> tensor<4x8xbf16>
  return
}

// -----

func.func @hadamard_c2(%x: tensor<4x8xbf16>) {
  // expected-error @below {{mixes 4 rows with signs 16, expected a power of two up to 32 and as many bits}}
  %y = transformer.hadamard %x over 1 length 4 signs 16 : (tensor<4x8xbf16>) -> tensor<4x8xbf16>
  return
}

// -----

func.func @quantize_c3(%x: tensor<4x9xbf16>) {
  // expected-error @below {{needs a scale for each of 4 x 3 blocks, got 'tensor<4x2xf32>'}}
  %c, %s = transformer.quantize %x blocks [1, 4] over 1 : (tensor<4x9xbf16>) -> (tensor<4x9xf8E4M3FN>, tensor<4x2xf32>)
  return
}

// -----

func.func @quantize_c3(%x: tensor<4x8xbf16>) {
  // expected-error @below {{needs blocks of two sizes above 0}}
  %c, %s = transformer.quantize %x blocks [1, 0] over 1 : (tensor<4x8xbf16>) -> (tensor<4x8xf8E4M3FN>, tensor<4x2xf32>)
  return
}

// -----

func.func @contract_c3(%x: tensor<4x8xf8E4M3FN>, %w: tensor<16x8xf8E4M3FN>, %s: tensor<4x2xf32>, %t: tensor<3x2xf32>) {
  // expected-error @below {{needs a scale for each of 2 x 2 blocks, got 'tensor<3x2xf32>'}}
  %0 = transformer.contract "b d, f d -> b f" %x, %w scaled %s, %t blocks [1, 8, 4] : (tensor<4x8xf8E4M3FN>, tensor<16x8xf8E4M3FN>, tensor<4x2xf32>, tensor<3x2xf32>) -> tensor<4x16xbf16>
  return
}

// -----

func.func @contract_c3(%x: tensor<8x4xf8E4M3FN>, %w: tensor<16x8xf8E4M3FN>, %s: tensor<4x2xf32>, %t: tensor<2x2xf32>) {
  // expected-error @below {{has blocks, so what is summed over must come last in 'd b'}}
  %0 = transformer.contract "d b, f d -> b f" %x, %w scaled %s, %t blocks [1, 8, 4] : (tensor<8x4xf8E4M3FN>, tensor<16x8xf8E4M3FN>, tensor<4x2xf32>, tensor<2x2xf32>) -> tensor<4x16xbf16>
  return
}

// -----

func.func @contract_c3(%x: tensor<4x8xbf16>, %w: tensor<16x8xbf16>) {
  // expected-error @below {{has blocks, so it needs three sizes and two scales}}
  %0 = transformer.contract "b d, f d -> b f" %x, %w blocks [1, 8, 4] : (tensor<4x8xbf16>, tensor<16x8xbf16>) -> tensor<4x16xbf16>
  return
}

// -----

func.func @add_types(%x: tensor<8xf32>, %y: tensor<8xf64>) {
  // expected-error @below {{requires the same element type for all operands and results}}
  %0 = transformer.add %x, %y : (tensor<8xf32>, tensor<8xf64>) -> tensor<8xf32>
  return
}

// -----

func.func @rope_c1(%x: tensor<4x8x2x5xf32>, %positions: tensor<4x8xi32>) {
  // expected-error @below {{needs an even head size, got 5}}
  %0 = transformer.rope %x, %positions theta 1.000000e+04 : (tensor<4x8x2x5xf32>, tensor<4x8xi32>) -> tensor<4x8x2x5xf32>
  return
}

// -----

func.func @rope_c2(%x: tensor<4x8x2x6xf32>, %positions: tensor<4x8xi32>) {
  // expected-error @below {{needs a theta above 0, got 0.000000e+00 : f64}}
  %0 = transformer.rope %x, %positions theta 0.000000e+00 : (tensor<4x8x2x6xf32>, tensor<4x8xi32>) -> tensor<4x8x2x6xf32>
  return
}

// -----

func.func @attention_window(%q: tensor<4x8x2x2x16xf32>, %k: tensor<4x8x2x16xf32>, %p: tensor<4x8xi32>) {
  // expected-error @below {{attribute 'window' failed to satisfy constraint}}
  %0, %1 = transformer.attention %q, %k, %k, %p, %p, %p, %p scale 2.500000e-01 window -1 : (tensor<4x8x2x2x16xf32>, tensor<4x8x2x16xf32>, tensor<4x8x2x16xf32>, tensor<4x8xi32>, tensor<4x8xi32>, tensor<4x8xi32>, tensor<4x8xi32>) -> (tensor<4x8x2x2x16xf32>, tensor<4x8x2x2xf32>)
  return
}

// -----

func.func @split_tensors_c1(%x: tensor<3x4xf32>) {
  // expected-error @below {{has 2 parts, but the whole is 'tensor<3x4xf32>'}}
  %0, %1 = transformer.split_tensors %x : (tensor<3x4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
  return
}

// -----

// A further dimension of a part has size 1.
func.func @split_tensors_f1(%x: tensor<2x4xf32>) {
  // expected-error @below {{factor 'o0' has size 4, but dim 0 of result 0 has size 2}}
  %0, %1 = transformer.split_tensors %x : (tensor<2x4xf32>) -> (tensor<2x2xf32>, tensor<4xf32>)
  return
}

// -----

func.func @split_tensors_scalar(%x: tensor<f32>) {
  // expected-error @below {{a tensor of rank 0 where the rule has 'p'}}
  %0 = transformer.split_tensors %x : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @stack_tensors_c1(%x: tensor<4xf32>) {
  // expected-error @below {{has 2 parts, but the whole is 'tensor<3x4xf32>'}}
  %0 = transformer.stack_tensors %x, %x : (tensor<4xf32>, tensor<4xf32>) -> tensor<3x4xf32>
  return
}

// -----

func.func @dropout_c1(%x: tensor<4x32x64xf32>, %seed: tensor<i64>, %numbers: tensor<4x32xi32>) {
  // expected-error @below {{drops out at a rate of 1.000000e+00, expected one of at least 0 and below 1}}
  %y = transformer.dropout %x, %seed, %numbers rate 1.0 site mlp_output : (tensor<4x32x64xf32>, tensor<i64>, tensor<4x32xi32>) -> tensor<4x32x64xf32>
  return
}

// -----

func.func @dropout_c1(%x: tensor<4x32x64xf32>, %seed: tensor<i64>, %numbers: tensor<4x32xi32>) {
  // expected-error @below {{drops out at a rate of -1.000000e-01, expected one of at least 0 and below 1}}
  %y = transformer.dropout %x, %seed, %numbers rate -0.1 site embedding : (tensor<4x32x64xf32>, tensor<i64>, tensor<4x32xi32>) -> tensor<4x32x64xf32>
  return
}

// -----

func.func @attention_c1(%q: tensor<1x4x1x1x2xf32>, %k: tensor<1x4x1x2xf32>, %p: tensor<1x4xi32>, %seed: tensor<i64>) {
  // expected-error @below {{drops out at a rate of 1.500000e+00, expected one of at least 0 and below 1}}
  %o, %lse = transformer.attention %q, %k, %k, %p, %p, %p, %p scale 0.5 dropout 1.5(%seed, %p) : (tensor<1x4x1x1x2xf32>, tensor<1x4x1x2xf32>, tensor<1x4x1x2xf32>, tensor<1x4xi32>, tensor<1x4xi32>, tensor<1x4xi32>, tensor<1x4xi32>, tensor<i64>, tensor<1x4xi32>) -> (tensor<1x4x1x1x2xf32>, tensor<1x4x1x1xf32>)
  return
}

// -----

func.func @attention_c1(%q: tensor<1x4x1x1x2xf32>, %k: tensor<1x4x1x2xf32>, %p: tensor<1x4xi32>, %seed: tensor<i64>) {
  // expected-error @below {{has no rate of dropout but a seed and numbers of tokens}}
  %o, %lse = "transformer.attention"(%q, %k, %k, %p, %p, %p, %p, %seed, %p) <{operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 1, 1, 1>, scale = 5.0e-01 : f64}> : (tensor<1x4x1x1x2xf32>, tensor<1x4x1x2xf32>, tensor<1x4x1x2xf32>, tensor<1x4xi32>, tensor<1x4xi32>, tensor<1x4xi32>, tensor<1x4xi32>, tensor<i64>, tensor<1x4xi32>) -> (tensor<1x4x1x1x2xf32>, tensor<1x4x1x1xf32>)
  return
}

// -----

func.func @dropout_with_mask_c1(%x: tensor<4x32x64xf32>, %seed: tensor<i64>, %numbers: tensor<4x32xi32>) {
  // expected-error @below {{drops out at a rate of 2.000000e+00, expected one of at least 0 and below 1}}
  %y, %mask = transformer.dropout_with_mask %x, %seed, %numbers rate 2.0 site mlp_output : (tensor<4x32x64xf32>, tensor<i64>, tensor<4x32xi32>) -> (tensor<4x32x64xf32>, tensor<4x32x64xi8>)
  return
}

// -----

func.func @dropout_grad_c1(%d: tensor<4x32x64xf32>, %mask: tensor<4x32x64xi8>) {
  // expected-error @below {{drops out at a rate of 1.000000e+00, expected one of at least 0 and below 1}}
  %d_x = transformer.dropout_grad %d, %mask rate 1.0 : (tensor<4x32x64xf32>, tensor<4x32x64xi8>) -> tensor<4x32x64xf32>
  return
}

// -----

func.func @probabilities_of_four_dimensions(%x: tensor<4x32x2x64xf32>, %seed: tensor<i64>, %numbers: tensor<4x32xi32>) {
  // expected-error @below {{a tensor of rank 4 where the rule has 'b s g r t'}}
  %y = transformer.dropout %x, %seed, %numbers rate 0.1 site attention : (tensor<4x32x2x64xf32>, tensor<i64>, tensor<4x32xi32>) -> tensor<4x32x2x64xf32>
  return
}
