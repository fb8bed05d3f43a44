// What the other families have beyond Llama. The whole step of each is compared
// with PyTorch in test/numerics.
//
// RUN: heddle-translate --import-model %source/test/numerics/fixtures/qwen2/config.json | FileCheck %s --check-prefix=QWEN2
// RUN: heddle-translate --import-model %source/test/numerics/fixtures/qwen3/config.json | FileCheck %s --check-prefix=QWEN3
// RUN: heddle-translate --import-model %source/test/numerics/fixtures/mistral/config.json | FileCheck %s --check-prefix=MISTRAL
// RUN: heddle-translate --import-model %source/test/numerics/fixtures/llama-rope-scaling/config.json | FileCheck %s --check-prefix=SCALING
// RUN: heddle-translate --import-model %source/test/numerics/fixtures/gpt2/config.json | FileCheck %s --check-prefix=GPT2

// Biases on q, k and v; the head reads the embedding's table.
//
// QWEN2-NOT:   @lm_head.weight
// QWEN2-LABEL: func.func @block(
// QWEN2:         %q_product = transformer.contract
// QWEN2-NEXT:    %q = transformer.bias_add %q_product, %{{.*}} : (tensor<1x16x2x2x6xf32>, tensor<2x2x6xf32>)
// QWEN2-NEXT:    %k_product = transformer.contract
// QWEN2-NEXT:    %k = transformer.bias_add %k_product, %{{.*}} : (tensor<1x16x2x6xf32>, tensor<2x6xf32>)
// QWEN2-NEXT:    %v_product = transformer.contract
// QWEN2-NEXT:    %v = transformer.bias_add %v_product
// QWEN2-NEXT:    %qr = transformer.rope %q
// QWEN2:         %a = transformer.contract
// QWEN2-NEXT:    %x2 = transformer.add %x1, %a
// QWEN2-LABEL: func.func @head(
// QWEN2-SAME:    %[[EMBED:[^ ]*]]: tensor<101x24xf32> {transformer.as = "embed", transformer.state = @model.embed_tokens.weight}, %{{[^ ]*}}: tensor<1x16xi32> {transformer.as = "labels"}
// QWEN2:         %logits = transformer.contract "b s d, v d -> b s v" %n, %[[EMBED]]

// Norms over the head size between projection and rotation.
//
// QWEN3-LABEL: func.func @block(
// QWEN3-SAME:    %[[GQ:[^ ]*]]: tensor<10xf32> {transformer.as = "gq", transformer.state = @"model.layers.{}.self_attn.q_norm.weight"}, %[[GK:[^ ]*]]: tensor<10xf32> {transformer.as = "gk"
// QWEN3:         %qn, %qn_rstd = transformer.rms_norm %q, %[[GQ]] epsilon 9.9999999999999995E-7 {
// QWEN3-SAME:      : (tensor<1x16x2x2x10xf32>, tensor<10xf32>) -> (tensor<1x16x2x2x10xf32>, tensor<1x16x2x2xf32>)
// QWEN3-NEXT:    %kn, %kn_rstd = transformer.rms_norm %k, %[[GK]]
// QWEN3-NEXT:    %qr = transformer.rope %qn
// QWEN3-NEXT:    %kr = transformer.rope %kn

// MISTRAL:       transformer.attention {{.*}} scale 0.40824829046386307 window 7 {

// SCALING:       %qr = transformer.rope %q, %{{.*}} theta 1.000000e+04 scaling <factor = 8.000000e+00 : f64, lowFrequencyFactor = 1.000000e+00 : f64, highFrequencyFactor = 4.000000e+00 : f64, originalContext = 64>
// SCALING-NEXT:  %kr = transformer.rope %k, %{{.*}} scaling <factor = 8.000000e+00 : f64

// Learned positions are what is added to the embedding first. The fused
// parameter is taken apart; no rotation; biases and LayerNorm everywhere.
//
// GPT2:        transformer.state @"transformer.h.{}.attn.c_attn.weight" parameter layers 2 : tensor<3x4x6x24xf32> {decay, factors = "p g k d", file_order = array<i64: 1, 2, 3, 0>, file_shape = array<i64: 24, 72>
// GPT2-LABEL:  func.func @embedding(
// GPT2-SAME:     %[[TOKENS:.*]]: tensor<1x16xi32> {transformer.as = "tokens"}, %[[P:.*]]: tensor<1x16xi32> {transformer.as = "positions"}, %[[WTE:.*]]: tensor<131x24xf32> {{{.*}}, transformer.state = @transformer.wte.weight}, %[[WPE:.*]]: tensor<40x24xf32> {{{.*}}, transformer.state = @transformer.wpe.weight})
// GPT2-NEXT:     %x = transformer.embedding %[[TOKENS]], %[[WTE]]
// GPT2-NEXT:     %delta = transformer.embedding %[[P]], %[[WPE]]
// GPT2-LABEL:  func.func @block(
// GPT2-NOT:      transformer.rope
// GPT2:          %n1, %n1_mean, %n1_rstd = transformer.layer_norm %x1
// GPT2-NEXT:     %wq, %wk, %wv = transformer.split_tensors %{{.*}} : (tensor<3x4x6x24xf32>) -> (tensor<4x1x6x24xf32>, tensor<4x6x24xf32>, tensor<4x6x24xf32>)
// GPT2-NEXT:     %bq, %bk, %bv = transformer.split_tensors %{{.*}} : (tensor<3x4x6xf32>) -> (tensor<4x1x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>)
// GPT2-NEXT:     %q_product = transformer.contract "b s d, g r k d -> b s g r k" %n1, %wq
// GPT2-NEXT:     %q = transformer.bias_add %q_product, %bq
// GPT2:          %o, %lse = transformer.attention %q, %k, %v
// GPT2-NEXT:     %a_product = transformer.contract
// GPT2-NEXT:     %a = transformer.bias_add %a_product
// GPT2-NEXT:     %x2 = transformer.add %x1, %a
// GPT2-NEXT:     %n2, %n2_mean, %n2_rstd = transformer.layer_norm %x2
// GPT2-NEXT:     %up_product = transformer.contract
// GPT2-NEXT:     %up = transformer.bias_add %up_product
// GPT2-NEXT:     %m = transformer.activation gelu_tanh %up
// GPT2-NEXT:     %dn_product = transformer.contract
// GPT2-NEXT:     %dn = transformer.bias_add %dn_product
// GPT2-LABEL:  func.func @head(
// GPT2:          %n, %n_mean, %n_rstd = transformer.layer_norm %y
