// RUN: heddle-opt %s --autodiff-build-backward --autodiff-build-step > %t.sgd
// RUN: FileCheck %s < %t.sgd
//
// A second run adds nothing.
// RUN: heddle-opt %t.sgd --autodiff-build-step | diff %t.sgd -
//
// The text does not grow with layers or micro-batches.
// RUN: sed 's/layers 3/layers 96/; s/micro_batches = 2/micro_batches = 64/' %s | heddle-opt --autodiff-build-backward --autodiff-build-step | wc -l > %t.many
// RUN: wc -l < %t.sgd | diff %t.many -
//
// RUN: sed 's/kind = "sgd", weight_decay = 0.0 : f64/kind = "adamw", beta1 = 0.5 : f64, beta2 = 0.75 : f64, epsilon = 0.125 : f64, weight_decay = 0.25 : f64, clip_norm = 2.0 : f64/' %s | heddle-opt --autodiff-build-backward --autodiff-build-step | FileCheck %s --check-prefix=ADAMW

// Gradients have their sum as storage.
//
// CHECK:      transformer.state @embed parameter : tensor<9x8xf32> {decay}
// CHECK-NEXT: transformer.state @embed.gradient_sum gradient_sum of @embed : tensor<9x8xf32>
// CHECK-NEXT: transformer.state @embed.gradient gradient of @embed storage @embed.gradient_sum : tensor<9x8xf32>
// CHECK-NEXT: transformer.state @"layers.{}.w" parameter layers 3 : tensor<8x8xf32>
// CHECK-NEXT: transformer.state @"layers.{}.w.gradient_sum" gradient_sum layers 3 of @"layers.{}.w" : tensor<8x8xf32>
// CHECK-NEXT: transformer.state @"layers.{}.w.gradient" gradient layers 3 of @"layers.{}.w" storage @"layers.{}.w.gradient_sum" : tensor<8x8xf32>
// CHECK-NOT:  adam

// CHECK-LABEL: func.func @step(
// CHECK-SAME:    %[[TOKENS:.*]]: !transformer.stack<2 x tensor<4x8xi32>> {transformer.as = "tokens"}, %[[LABELS:.*]]: !transformer.stack<2 x tensor<4x8xi32>> {transformer.as = "labels"}, %{{.*}}: !transformer.stack<2 x tensor<4x8xi32>> {transformer.as = "positions"}, %{{.*}}: !transformer.stack<2 x tensor<4x8xi32>> {transformer.as = "documents"}, %[[RATE:.*]]: tensor<f32> {transformer.as = "learning_rate"})
// CHECK-SAME:    -> (tensor<f32> {transformer.as = "loss"}, tensor<i64> {transformer.as = "count"}, tensor<f32> {transformer.as = "gradient_norm"})

// The labels of all micro-batches are counted before the first loss.
//
// CHECK-NEXT:    %no_count = transformer.zeros
// CHECK-NEXT:    %count = transformer.loop "micro_batch" 2 carry(%no_count)
// CHECK-NEXT:    ^bb0(%i: index, %[[N:.*]]: tensor<i64>):
// CHECK-NEXT:      %[[L:.*]] = transformer.get %[[LABELS]] at %i
// CHECK-NEXT:      %counted = transformer.count_labels %[[L]]
// CHECK-NEXT:      %count_sum = transformer.add %[[N]], %counted
// CHECK-NEXT:      transformer.yield %count_sum
// CHECK-NEXT:    }
// CHECK-NEXT:    transformer.zero @embed.gradient_sum
// CHECK-NEXT:    transformer.zero @"layers.{}.w.gradient_sum"

// Forward collects what backward reads: the saved `m`, and `x`, which goes in.
//
// CHECK-NEXT:    %no_loss = transformer.zeros
// CHECK-NEXT:    %[[LOSS:.*]] = transformer.loop "micro_batch" 2 carry(%no_loss)
// CHECK-NEXT:    ^bb0(%i: index, %[[LOSSES:.*]]: tensor<f32>):
// CHECK-NEXT:      %[[T:.*]] = transformer.get %[[TOKENS]] at %i
// CHECK-NEXT:      %[[L:.*]] = transformer.get %[[LABELS]] at %i
// CHECK-NEXT:      %embed = transformer.load @embed
// CHECK-NEXT:      %[[X0:.*]] = func.call @embedding(%[[T]], %embed)
// CHECK-NEXT:      %[[X:.*]], %all_x, %all_m = transformer.loop "layer" 3 carry(%[[X0]])
// CHECK-NEXT:      ^bb0(%layer: index, %[[XI:.*]]: tensor<4x8x8xf32>):
// CHECK-NEXT:        %w = transformer.load @"layers.{}.w" at %layer
// CHECK-NEXT:        %[[Y:.*]]:2 = func.call @block(%[[XI]], %w)
// CHECK-NEXT:        transformer.yield %[[Y]]#0 : tensor<4x8x8xf32> collect %[[XI]], %[[Y]]#1
// CHECK-NEXT:      }

// The tied table gets two gradients, added in one state.
//
// CHECK-NEXT:      %[[EMBED:.*]] = transformer.load @embed
// CHECK-NEXT:      %[[H:.*]]:3 = func.call @head(%[[X]], %[[EMBED]], %[[L]], %count)
// CHECK-NEXT:      transformer.accumulate %[[H]]#2 into @embed.gradient_sum
// CHECK-NEXT:      %[[DX:.*]] = transformer.loop "layer" 3 reversed carry(%[[H]]#1)
// CHECK-NEXT:      ^bb0(%layer: index, %[[DXI:.*]]: tensor<4x8x8xf32>):
// CHECK-NEXT:        %[[M:.*]] = transformer.get %all_m at %layer
// CHECK-NEXT:        %[[XI:.*]] = transformer.get %all_x at %layer
// CHECK-NEXT:        %[[W:.*]] = transformer.load @"layers.{}.w" at %layer
// CHECK-NEXT:        %[[D:.*]]:2 = func.call @block_bwd(%[[M]], %[[DXI]], %[[XI]], %[[W]])
// CHECK-NEXT:        transformer.accumulate %[[D]]#1 into @"layers.{}.w.gradient_sum" at %layer
// CHECK-NEXT:        transformer.yield %[[D]]#0
// CHECK-NEXT:      }
// CHECK-NEXT:      %[[DE:.*]] = func.call @embedding_bwd(%[[DX]], %[[T]])
// CHECK-NEXT:      transformer.accumulate %[[DE]] into @embed.gradient_sum
// CHECK-NEXT:      %loss_sum = transformer.add %[[LOSSES]], %[[H]]#0
// CHECK-NEXT:      transformer.yield %loss_sum
// CHECK-NEXT:    }

// Sums become gradients once, behind the last micro-batch.
//
// CHECK-NEXT:    %[[S:.*]] = transformer.load @embed.gradient_sum
// CHECK-NEXT:    transformer.store %[[S]] to @embed.gradient
// CHECK-NEXT:    transformer.loop "layer" 3 : () -> () {
// CHECK-NEXT:    ^bb0(%layer: index):
// CHECK-NEXT:      %[[S:.*]] = transformer.load @"layers.{}.w.gradient_sum" at %layer
// CHECK-NEXT:      transformer.store %[[S]] to @"layers.{}.w.gradient" at %layer
// CHECK-NEXT:      transformer.yield
// CHECK-NEXT:    }

// Each parameter counts once in the norm, tied or not.
//
// CHECK-NEXT:    %no_squares = transformer.zeros {{.*}} : tensor<f64>
// CHECK-NEXT:    %[[G:.*]] = transformer.load @embed.gradient
// CHECK-NEXT:    %[[SQ:.*]] = transformer.sum_squares %[[G]]
// CHECK-NEXT:    %[[SUM:.*]] = transformer.add %no_squares, %[[SQ]]
// CHECK-NEXT:    %[[ALL:.*]] = transformer.loop "layer" 3 carry(%[[SUM]])
// CHECK-NEXT:    ^bb0(%layer: index, %[[SUM:.*]]: tensor<f64>):
// CHECK-NEXT:      %[[G:.*]] = transformer.load @"layers.{}.w.gradient" at %layer
// CHECK-NEXT:      %[[SQ:.*]] = transformer.sum_squares %[[G]]
// CHECK-NEXT:      %[[SUM2:.*]] = transformer.add %[[SUM]], %[[SQ]]
// CHECK-NEXT:      transformer.yield %[[SUM2]]
// CHECK-NEXT:    }
// CHECK-NEXT:    %gradient_norm, %clip_factor = transformer.clip_factor %[[ALL]] {

// CHECK-NEXT:    %[[P:.*]] = transformer.load @embed
// CHECK-NEXT:    %[[G:.*]] = transformer.load @embed.gradient
// CHECK-NEXT:    %[[NEXT:.*]] = transformer.sgd %[[P]], %[[G]], %[[RATE]], %clip_factor
// CHECK-NEXT:    transformer.store %[[NEXT]] to @embed
// CHECK-NEXT:    transformer.loop "layer" 3 : () -> () {
// CHECK-NEXT:    ^bb0(%layer: index):
// CHECK-NEXT:      %[[P:.*]] = transformer.load @"layers.{}.w" at %layer
// CHECK-NEXT:      %[[G:.*]] = transformer.load @"layers.{}.w.gradient" at %layer
// CHECK-NEXT:      %[[NEXT:.*]] = transformer.sgd %[[P]], %[[G]], %[[RATE]], %clip_factor
// CHECK-NEXT:      transformer.store %[[NEXT]] to @"layers.{}.w" at %layer
// CHECK-NEXT:      transformer.yield
// CHECK-NEXT:    }
// CHECK-NEXT:    return %[[LOSS]], %count, %gradient_norm

// AdamW has two states more, two inputs more, and decays what is to decay.
//
// ADAMW:       transformer.state @embed.adam_m adam_m of @embed : tensor<9x8xf32>
// ADAMW-NEXT:  transformer.state @embed.adam_v adam_v of @embed : tensor<9x8xf32>
// ADAMW:       transformer.state @"layers.{}.w.adam_m" adam_m layers 3 of @"layers.{}.w" : tensor<8x8xf32>
// ADAMW-NEXT:  transformer.state @"layers.{}.w.adam_v" adam_v layers 3 of @"layers.{}.w" : tensor<8x8xf32>
// ADAMW-LABEL: func.func @step(
// ADAMW-SAME:    %[[RATE:[^ ]*]]: tensor<f32> {transformer.as = "learning_rate"}, %[[C1:.*]]: tensor<f32> {transformer.as = "bias_correction1"}, %[[C2:.*]]: tensor<f32> {transformer.as = "bias_correction2"})
// ADAMW:         %gradient_norm, %clip_factor = transformer.clip_factor %{{.*}} max_norm 2.000000e+00
// ADAMW-NEXT:    %[[P:.*]] = transformer.load @embed
// ADAMW-NEXT:    %[[G:.*]] = transformer.load @embed.gradient
// ADAMW-NEXT:    %[[M:.*]] = transformer.load @embed.adam_m
// ADAMW-NEXT:    %[[V:.*]] = transformer.load @embed.adam_v
// ADAMW-NEXT:    %[[P2:.*]], %[[M2:.*]], %[[V2:.*]] = transformer.adamw %[[P]], %[[G]], %[[M]], %[[V]], %[[RATE]], %[[C1]], %[[C2]], %clip_factor {
// ADAMW-SAME:      beta1 = 5.000000e-01 : f64, beta2 = 7.500000e-01 : f64, epsilon = 1.250000e-01 : f64, weight_decay = 2.500000e-01 : f64}
// ADAMW-NEXT:    transformer.store %[[P2]] to @embed
// ADAMW-NEXT:    transformer.store %[[M2]] to @embed.adam_m
// ADAMW-NEXT:    transformer.store %[[V2]] to @embed.adam_v
// ADAMW-NEXT:    transformer.loop "layer" 3
// ADAMW:           transformer.adamw
// ADAMW-SAME:        weight_decay = 0.000000e+00 : f64

module attributes {transformer.micro_batches = 2 : i64, transformer.optimizer = {kind = "sgd", weight_decay = 0.0 : f64}} {
  transformer.state @embed parameter : tensor<9x8xf32> {decay}
  transformer.state @"layers.{}.w" parameter layers 3 : tensor<8x8xf32>

  func.func @embedding(%tokens: tensor<4x8xi32> {transformer.as = "tokens"}, %embed: tensor<9x8xf32> {transformer.as = "embed", transformer.state = @embed}) -> (tensor<4x8x8xf32> {transformer.as = "x"}) {
    %x = transformer.embedding %tokens, %embed {as = ["x"]} : (tensor<4x8xi32>, tensor<9x8xf32>) -> tensor<4x8x8xf32>
    return %x : tensor<4x8x8xf32>
  }
  func.func @block(%x: tensor<4x8x8xf32> {transformer.as = "x"}, %w: tensor<8x8xf32> {transformer.as = "w", transformer.state = @"layers.{}.w"}) -> (tensor<4x8x8xf32> {transformer.as = "x"}) {
    %m = transformer.contract "b s d, f d -> b s f" %x, %w {as = ["m"]} : (tensor<4x8x8xf32>, tensor<8x8xf32>) -> tensor<4x8x8xf32>
    %y = transformer.activation silu %m {as = ["y"]} : (tensor<4x8x8xf32>) -> tensor<4x8x8xf32>
    return %y : tensor<4x8x8xf32>
  }
  func.func @head(%x: tensor<4x8x8xf32> {transformer.as = "x"}, %embed: tensor<9x8xf32> {transformer.as = "embed", transformer.state = @embed}, %labels: tensor<4x8xi32> {transformer.as = "labels"}, %count: tensor<i64> {transformer.as = "count"}) -> (tensor<f32> {transformer.as = "loss"}) {
    %logits = transformer.contract "b s d, v d -> b s v" %x, %embed {as = ["logits"]} : (tensor<4x8x8xf32>, tensor<9x8xf32>) -> tensor<4x8x9xf32>
    %max = transformer.row_max %logits {as = ["max"]} : (tensor<4x8x9xf32>) -> tensor<4x8xf32>
    %sum = transformer.row_sum_exp %logits, %max {as = ["sum"]} : (tensor<4x8x9xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
    %picked = transformer.pick %logits, %labels {as = ["picked"]} : (tensor<4x8x9xf32>, tensor<4x8xi32>) -> tensor<4x8xf32>
    %losses = transformer.token_loss %max, %sum, %picked {as = ["losses"]} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
    %loss = transformer.mean_counted %losses, %labels, %count {as = ["loss"]} : (tensor<4x8xf32>, tensor<4x8xi32>, tensor<i64>) -> tensor<f32>
    return %loss : tensor<f32>
  }
}
