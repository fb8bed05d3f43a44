// RUN: heddle-translate --import-model %source/test/numerics/fixtures/llama/config.json --sequences=4 --sequence-length=32 --micro-batches=2 | heddle-opt > %t
// RUN: FileCheck %s < %t
//
// What is printed can be read again.
// RUN: heddle-opt %t | diff %t -
//
// Every op says which module of the checkpoint it comes from, and its segment.
// RUN: heddle-translate --import-model %source/test/numerics/fixtures/llama/config.json --mlir-print-debuginfo --mlir-pretty-debuginfo --mlir-print-local-scope | FileCheck %s --check-prefix=LOCATION

// Parameters are states, named as in the checkpoint, once for all layers.
//
// CHECK:      module attributes {transformer.micro_batches = 2 : i64} {
// CHECK-NEXT:   transformer.state @model.embed_tokens.weight parameter : tensor<61x24xf32> {decay, factors = "v d", file_order = array<i64: 0, 1>, file_shape = array<i64: 61, 24>, initializer = 2 : i32, initializer_std = 2.000000e-02 : f64}
// CHECK-NEXT:   transformer.state @"model.layers.{}.input_layernorm.weight" parameter layers 2 : tensor<24xf32> {factors = "d", file_order = array<i64: 0>, file_shape = array<i64: 24>, initializer = 1 : i32}
// CHECK-NEXT:   transformer.state @"model.layers.{}.self_attn.q_proj.weight" parameter layers 2 : tensor<2x2x6x24xf32> {decay, factors = "g r k d", file_order = array<i64: 0, 1, 2, 3>, file_shape = array<i64: 24, 24>,
// CHECK:        transformer.state @lm_head.weight parameter : tensor<61x24xf32>

// Nothing has been added to the residual yet.
//
// CHECK-LABEL:  func.func @embedding(
// CHECK-SAME:     %[[TOKENS:.*]]: tensor<4x32xi32> {transformer.as = "tokens"}, %[[EMBED:.*]]: tensor<61x24xf32> {transformer.as = "embed", transformer.state = @model.embed_tokens.weight})
// CHECK-SAME:     -> (tensor<4x32x24xf32> {transformer.as = "x"}, tensor<4x32x24xf32> {transformer.as = "delta"})
// CHECK-NEXT:     %x = transformer.embedding %[[TOKENS]], %[[EMBED]]
// CHECK-NEXT:     %delta = transformer.zeros_like %x
// CHECK-NEXT:     return %x, %delta

// The residual is added at the beginning, so that the add is next to the norm.
//
// CHECK-LABEL:  func.func @block(
// CHECK-SAME:     %[[X:.*]]: tensor<4x32x24xf32> {transformer.as = "x"}, %[[DELTA:.*]]: tensor<4x32x24xf32> {transformer.as = "delta"}, %[[P:.*]]: tensor<4x32xi32> {transformer.as = "positions"}, %[[DOCS:.*]]: tensor<4x32xi32> {transformer.as = "documents"},
// CHECK-SAME:     %[[G1:.*]]: tensor<24xf32> {transformer.as = "g1", transformer.state = @"model.layers.{}.input_layernorm.weight"}, %[[WQ:.*]]: tensor<2x2x6x24xf32> {transformer.as = "wq", {{.*}}}, %[[WK:.*]]: tensor<2x6x24xf32> {transformer.as = "wk", {{.*}}}, %[[WV:.*]]: tensor<2x6x24xf32> {transformer.as = "wv", {{.*}}}, %[[WO:.*]]: tensor<24x2x2x6xf32> {transformer.as = "wo", {{.*}}}, %[[G2:.*]]: tensor<24xf32> {transformer.as = "g2", {{.*}}}, %[[WG:.*]]: tensor<40x24xf32> {transformer.as = "wg", {{.*}}}, %[[WU:.*]]: tensor<40x24xf32> {transformer.as = "wu", {{.*}}}, %[[WD:.*]]: tensor<24x40xf32> {transformer.as = "wd", transformer.state = @"model.layers.{}.mlp.down_proj.weight"})
// CHECK-SAME:     -> (tensor<4x32x24xf32> {transformer.as = "x"}, tensor<4x32x24xf32> {transformer.as = "delta"})
// CHECK-NEXT:     %x1 = transformer.add %[[X]], %[[DELTA]]
// CHECK-NEXT:     %n1, %n1_rstd = transformer.rms_norm %x1, %[[G1]] epsilon 1.000000e-05
// CHECK-NEXT:     %q = transformer.contract "b s d, g r k d -> b s g r k" %n1, %[[WQ]]
// CHECK-NEXT:     %k = transformer.contract "b s d, g k d -> b s g k" %n1, %[[WK]]
// CHECK-NEXT:     %v = transformer.contract "b s d, g k d -> b s g k" %n1, %[[WV]]
// CHECK-NEXT:     %qr = transformer.rope %q, %[[P]] theta 1.000000e+04 {
// CHECK-NEXT:     %kr = transformer.rope %k, %[[P]] theta 1.000000e+04 {
// CHECK-NEXT:     %o, %lse = transformer.attention %qr, %kr, %v, %[[P]], %[[P]], %[[DOCS]], %[[DOCS]] scale 0.40824829046386307 {
// CHECK-NEXT:     %a = transformer.contract "b s g r k, d g r k -> b s d" %o, %[[WO]]
// CHECK-NEXT:     %x2 = transformer.add %x1, %a
// CHECK-NEXT:     %n2, %n2_rstd = transformer.rms_norm %x2, %[[G2]] epsilon 1.000000e-05
// CHECK-NEXT:     %gate = transformer.contract "b s d, f d -> b s f" %n2, %[[WG]]
// CHECK-NEXT:     %up = transformer.contract "b s d, f d -> b s f" %n2, %[[WU]]
// CHECK-NEXT:     %m = transformer.gated silu %gate, %up
// CHECK-NEXT:     %dn = transformer.contract "b s f, d f -> b s d" %m, %[[WD]]
// CHECK-NEXT:     return %x2, %dn

// CHECK-LABEL:  func.func @head(
// CHECK-SAME:     %[[X:.*]]: tensor<4x32x24xf32> {transformer.as = "x"}, %[[DELTA:.*]]: tensor<4x32x24xf32> {transformer.as = "delta"}, %[[G:.*]]: tensor<24xf32> {transformer.as = "g", transformer.state = @model.norm.weight}, %[[W:.*]]: tensor<61x24xf32> {transformer.as = "lm_head", transformer.state = @lm_head.weight}, %[[LABELS:.*]]: tensor<4x32xi32> {transformer.as = "labels"}, %[[COUNT:.*]]: tensor<i64> {transformer.as = "count"})
// CHECK-SAME:     -> (tensor<f32> {transformer.as = "loss"})
// CHECK-NEXT:     %y = transformer.add %[[X]], %[[DELTA]]
// CHECK-NEXT:     %n, %n_rstd = transformer.rms_norm %y, %[[G]]
// CHECK-NEXT:     %logits = transformer.contract "b s d, v d -> b s v" %n, %[[W]]
// CHECK-NEXT:     %max = transformer.row_max %logits
// CHECK-NEXT:     %sum = transformer.row_sum_exp %logits, %max
// CHECK-NEXT:     %picked = transformer.pick %logits, %[[LABELS]]
// CHECK-NEXT:     %losses = transformer.token_loss %max, %sum, %picked
// CHECK-NEXT:     %loss = transformer.mean_counted %losses, %[[LABELS]], %[[COUNT]]
// CHECK-NEXT:     return %loss

// LOCATION: transformer.state @model.embed_tokens.weight {{.*}} "model.embed_tokens.weight"
// LOCATION: transformer.add {{.*}} "model.layers.N"("block")
// LOCATION: transformer.contract {{.*}} "model.layers.N.self_attn.q_proj"("block")
// LOCATION: transformer.attention {{.*}} "model.layers.N.self_attn"("block")
// LOCATION: transformer.gated {{.*}} "model.layers.N.mlp"("block")
// LOCATION: transformer.contract {{.*}} "model.layers.N.mlp.down_proj"("block")
// LOCATION: transformer.rms_norm {{.*}} "model.norm"("head")
// LOCATION: transformer.mean_counted {{.*}} "lm_head"("head")
