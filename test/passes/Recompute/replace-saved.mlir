// What is saved becomes what is computed again, of one choice for all layers or
// of several; what cannot be asked for.
//
// RUN: heddle-opt %s --recompute-replace-saved | FileCheck %s
// RUN: sed 's/values = \["n"\]/full/' %s | heddle-opt --recompute-replace-saved | FileCheck %s --check-prefix=FULL
// RUN: sed 's/first = 0 : i64, last = 2 : i64, values = \["n"\]/first = 1 : i64, last = 1 : i64, full/' %s | heddle-opt --recompute-replace-saved | FileCheck %s --check-prefix=MIXED
//
// Nothing is asked for, or nothing that is saved: nothing happens.
// RUN: sed 's/transformer.recompute = .*\]} {/transformer.micro_batches = 1} {/' %s | heddle-opt > %t.none
// RUN: heddle-opt %t.none --recompute-replace-saved | diff %t.none -
// RUN: sed 's/values = \["n"\]/values = []/' %s | heddle-opt > %t.empty
// RUN: heddle-opt %t.empty --recompute-replace-saved | diff %t.empty -
//
// RUN: sed 's/\["n"\]/["n", "k"]/' %s | not heddle-opt --recompute-replace-saved 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: sed 's/last = 2/last = 3/' %s | not heddle-opt --recompute-replace-saved 2>&1 | FileCheck %s --check-prefix=LAYERS
// RUN: sed 's/values = \["n"\]/all/' %s | not heddle-opt --recompute-replace-saved 2>&1 | FileCheck %s --check-prefix=NOTHING
// RUN: sed 's/@block_bwd/@other/g' %s | not heddle-opt --recompute-replace-saved 2>&1 | FileCheck %s --check-prefix=NONE

// UNKNOWN: error: plan: recompute: a block has no value "k" to compute again; values are n, n_rstd, h, m, y
// LAYERS: error: transformer.recompute has an entry that is not of layers 0 to 2: {first = 0 : i64, last = 3 : i64
// NOTHING: error: transformer.recompute has an entry with none of values, selective and full
// NONE: error: has no loops over layers that call @block and its backward, so nothing can be computed again

// The norm is repeated in front of what reads it; what only it gave, its
// statistic, is not saved either.
//
// CHECK-LABEL: func.func @block(
// CHECK:         return %y, %h :
// CHECK-LABEL: func.func @block_bwd(
// CHECK-SAME:    %[[H:[^:]*]]: tensor<2x4x8xf32> {transformer.as = "h", transformer.saved = "h"}, %[[DY:[^:]*]]: tensor<2x4x8xf32> {transformer.as = "d_x"}, %[[X:[^:]*]]: tensor<2x4x8xf32> {transformer.as = "x"}, %[[G:[^:]*]]: tensor<8xf32>
// CHECK-NEXT:    %d_h = transformer.activation_grad gelu_tanh %[[DY]], %[[H]]
// CHECK-NEXT:    %d_n = transformer.contract
// CHECK-NEXT:    %n, %n_rstd = transformer.recompute %[[X]], %[[G]] because "listed: n, n_rstd are not saved (288 bytes)"
// CHECK-NEXT:    ^bb0(%[[A:.*]]: tensor<2x4x8xf32>, %[[B:.*]]: tensor<8xf32>):
// CHECK-NEXT:      %[[N:.*]], %[[R:.*]] = transformer.rms_norm %[[A]], %[[B]] epsilon 1.000000e-05
// CHECK-NEXT:      transformer.yield %[[N]], %[[R]]
// CHECK-NEXT:    }
// CHECK-NEXT:    %d_w = transformer.contract "b s e, b s d -> e d" %d_h, %n
// CHECK-NEXT:    transformer.rms_norm_grad %d_n, %[[X]], %[[G]], %n_rstd
// CHECK-LABEL: func.func @step(
// CHECK:           %[[Y:.*]], %[[HS:.*]], %[[XS:.*]] = transformer.loop "layer" 3 carry
// CHECK:             %[[Z:.*]]:2 = func.call @block(
// CHECK-NEXT:        transformer.yield %[[Z]]#0 : tensor<2x4x8xf32> collect %[[Z]]#1, %{{.*}} :
// CHECK:           transformer.loop "layer" 3 reversed
// CHECK-NEXT:      ^bb0(%layer: index, %[[D:.*]]: tensor<2x4x8xf32>):
// CHECK:             %[[H2:.*]] = transformer.get %[[HS]] at %layer
// CHECK-NEXT:        %[[X2:.*]] = transformer.get %[[XS]] at %layer
// CHECK-NEXT:        func.call @block_bwd(%[[H2]], %[[D]], %[[X2]],

// Of the block's input, and what others are made of stays in the region.
//
// FULL-LABEL: func.func @block(
// FULL:         return %y :
// FULL-LABEL: func.func @block_bwd(
// FULL-NEXT:    %n, %n_rstd, %h = transformer.recompute {{.*}} because "full: n, n_rstd, h are not saved (544 bytes)"
// FULL-NEXT:    ^bb0
// FULL-NEXT:      %[[N:.*]], %[[R:.*]] = transformer.rms_norm
// FULL-NEXT:      %[[H:.*]] = transformer.contract "b s d, e d -> b s e" %[[N]]
// FULL-NEXT:      transformer.yield %[[N]], %[[R]], %[[H]]

// One layer saves less: it has functions of its own, of the type of the others'.
//
// MIXED-LABEL: func.func @block_saving(
// MIXED:         return %y, %n, %n_rstd, %h :
// MIXED-LABEL: func.func @block_recomputing(
// MIXED-COUNT-3: stage.undefined
// MIXED-LABEL: func.func @block_bwd_recomputing(
// MIXED-NEXT:    transformer.recompute
// MIXED-LABEL: func.func @block_bwd_saving(
// MIXED-NOT:     transformer.recompute
// MIXED-LABEL: func.func @step(
// MIXED:           transformer.call_by_layer [@block_saving, @block_recomputing] at %layer choices [0, 1, 0](
// MIXED:           transformer.call_by_layer [@block_bwd_saving, @block_bwd_recomputing] at %layer choices [0, 1, 0](
// MIXED-NEXT:      transformer.accumulate

// What is made of what goes from block to block alone is not free, unless it is saved.
//
// RUN: sed 's/values = \["n"\]/selective/' %s | heddle-opt --recompute-replace-saved | FileCheck %s --check-prefix=FREE
// FREE-NOT: transformer.recompute %

// Layers whose products a recipe leaves as they are have functions of their own,
// whether something is computed again or not; marks are those of the layer.
//
// RUN: sed 's/\(contract .*\) {as/\1 {transformer.scaled = {formats = [f8E4M3FN, f8E4M3FN], plain_layers = array<i64: 2>}, as/; s/transformer.recompute = .*\]} {/transformer.micro_batches = 1} {/' %s | heddle-opt --recompute-replace-saved | FileCheck %s --check-prefix=PLAIN
// PLAIN-LABEL: func.func @block_saving(
// PLAIN:         transformer.contract {{.*}} {as = ["h"], transformer.scaled = {formats = [f8E4M3FN, f8E4M3FN]}}
// PLAIN-LABEL: func.func @block_saving_plain(
// PLAIN:         transformer.contract {{.*}} {as = ["h"]} :
// PLAIN:         return %y, %n, %n_rstd, %h :
// PLAIN-LABEL: func.func @block_bwd_saving_plain(
// PLAIN-NOT:     transformer.scaled
// PLAIN-LABEL: func.func @block_bwd_saving(
// PLAIN-COUNT-2: transformer.scaled = {formats = [f8E4M3FN, f8E4M3FN]}}
// PLAIN-LABEL: func.func @step(
// PLAIN:           transformer.call_by_layer [@block_saving, @block_saving_plain] at %layer choices [0, 0, 1](
// PLAIN:           transformer.call_by_layer [@block_bwd_saving, @block_bwd_saving_plain] at %layer choices [0, 0, 1](
//
// RUN: sed 's/\(contract .*\) {as/\1 {transformer.scaled = {formats = [f8E4M3FN, f8E4M3FN], plain_layers = array<i64: 2>}, as/; s/values = ..n../full/' %s | heddle-opt --recompute-replace-saved | FileCheck %s --check-prefix=AGAIN
// AGAIN-LABEL: func.func @block_bwd_recomputing_plain(
// AGAIN:         transformer.recompute
// AGAIN-NOT:     transformer.scaled
// AGAIN-LABEL: func.func @block_bwd_recomputing(
// AGAIN:         transformer.recompute
// AGAIN:           transformer.contract {{.*}} {as = ["h"], transformer.scaled = {formats = [f8E4M3FN, f8E4M3FN]}}

!x = tensor<2x4x8xf32>
!r = tensor<2x4xf32>
!g = tensor<8xf32>
!w = tensor<8x8xf32>
!c = !transformer.stack<3 x tensor<2x4x8xf32>>
module attributes {transformer.recompute = [{first = 0 : i64, last = 2 : i64, values = ["n"]}]} {
  transformer.state @"l.{}.g" parameter layers 3 : !g
  transformer.state @"l.{}.g.sum" gradient_sum layers 3 of @"l.{}.g" : !g
  transformer.state @"l.{}.w" parameter layers 3 : !w
  transformer.state @"l.{}.w.sum" gradient_sum layers 3 of @"l.{}.w" : !w
  func.func @block(%x: !x {transformer.as = "x"}, %g: !g {transformer.as = "g", transformer.state = @"l.{}.g"}, %w: !w {transformer.as = "w", transformer.state = @"l.{}.w"}) -> (!x {transformer.as = "x"}, !x {transformer.as = "n", transformer.saved = "n"}, !r {transformer.as = "n_rstd", transformer.saved = "n_rstd"}, !x {transformer.as = "h", transformer.saved = "h"}) {
    %n, %rstd = transformer.rms_norm %x, %g epsilon 1.000000e-05 {as = ["n", "n_rstd"]} : (!x, !g) -> (!x, !r)
    %h = transformer.contract "b s d, e d -> b s e" %n, %w {as = ["h"]} : (!x, !w) -> !x
    %m = transformer.activation gelu_tanh %h {as = ["m"]} : (!x) -> !x
    %y = transformer.add %x, %m {as = ["y"]} : (!x, !x) -> !x
    return %y, %n, %rstd, %h : !x, !x, !r, !x
  }
  func.func @block_bwd(%n: !x {transformer.as = "n", transformer.saved = "n"}, %rstd: !r {transformer.as = "n_rstd", transformer.saved = "n_rstd"}, %h: !x {transformer.as = "h", transformer.saved = "h"}, %dy: !x {transformer.as = "d_x"}, %x: !x {transformer.as = "x"}, %g: !g {transformer.as = "g", transformer.state = @"l.{}.g"}, %w: !w {transformer.as = "w", transformer.state = @"l.{}.w"}) -> (!x {transformer.as = "d_x"}, !g {transformer.as = "d_g", transformer.gradient_of = @"l.{}.g"}, !w {transformer.as = "d_w", transformer.gradient_of = @"l.{}.w"}) {
    %dh = transformer.activation_grad gelu_tanh %dy, %h {as = ["d_h"]} : (!x, !x) -> !x
    %dn = transformer.contract "b s e, e d -> b s d" %dh, %w {as = ["d_n"]} : (!x, !w) -> !x
    %dw = transformer.contract "b s e, b s d -> e d" %dh, %n {as = ["d_w"]} : (!x, !x) -> !w
    %d, %dg = transformer.rms_norm_grad %dn, %x, %g, %rstd {as = ["d_xn", "d_g"]} : (!x, !x, !g, !r) -> (!x, !g)
    %dx = transformer.add %dy, %d {as = ["d_x"]} : (!x, !x) -> !x
    return %dx, %dg, %dw : !x, !g, !w
  }
  func.func @step(%x: !x) {
    transformer.loop "micro_batch" 2 : () -> () {
    ^bb0(%i: index):
      %y, %xs, %ns, %rs, %hs = transformer.loop "layer" 3 carry(%x) : (!x) -> (!x, !c, !c, !transformer.stack<3 x tensor<2x4xf32>>, !c) {
      ^bb0(%l: index, %a: !x):
        %g = transformer.load @"l.{}.g" at %l : !g
        %w = transformer.load @"l.{}.w" at %l : !w
        %z:4 = func.call @block(%a, %g, %w) : (!x, !g, !w) -> (!x, !x, !r, !x)
        transformer.yield %z#0 : !x collect %a, %z#1, %z#2, %z#3 : !x, !x, !r, !x
      }
      %d = transformer.loop "layer" 3 reversed carry(%y) : (!x) -> !x {
      ^bb0(%l: index, %b: !x):
        %n = transformer.get %ns at %l : !c
        %r = transformer.get %rs at %l : !transformer.stack<3 x tensor<2x4xf32>>
        %h = transformer.get %hs at %l : !c
        %a = transformer.get %xs at %l : !c
        %g = transformer.load @"l.{}.g" at %l : !g
        %w = transformer.load @"l.{}.w" at %l : !w
        %e:3 = func.call @block_bwd(%n, %r, %h, %b, %a, %g, %w) : (!x, !r, !x, !x, !x, !g, !w) -> (!x, !g, !w)
        transformer.accumulate %e#1 into @"l.{}.g.sum" at %l : !g
        transformer.accumulate %e#2 into @"l.{}.w.sum" at %l : !w
        transformer.yield %e#0 : !x
      }
      transformer.yield
    }
    return
  }
}
