// Backward of a layer is cut where a table has weight slots: what a stage before
// waits for, and the rest, which reads what the first half keeps per layer. What
// is done to gradients of weights goes with them.
//
// RUN: heddle-opt %s --stages-split-backward > %t
// RUN: FileCheck %s < %t
//
// Nothing is left to split.
// RUN: heddle-opt %t --stages-split-backward | diff %t -
//
// A table without such slots keeps backward whole; so does a module without one.
// RUN: sed 's/B0 W0/D0/g' %s | heddle-opt > %t.whole
// RUN: heddle-opt %t.whole --stages-split-backward | diff %t.whole -

// CHECK-LABEL: func.func @block_bwd_input(
// CHECK-SAME:    transformer.as = "d"
// CHECK-SAME:    -> (tensor<4x8xf32> {transformer.as = "d_x"}, tensor<4x8xf32> {transformer.as = "kept"
// CHECK:         %[[T:.*]] = transformer.add
// CHECK:         %[[DX:.*]] = transformer.contract "b e, e d -> b d"
// CHECK:         return %[[DX]], %[[T]]

// CHECK-LABEL: func.func @block_bwd_weight(
// CHECK-SAME:    %[[KEPT:[^:]*]]: tensor<4x8xf32> {{.*}}transformer.kept = "kept"
// CHECK:         transformer.contract "b e, b d -> e d" %[[KEPT]],
// CHECK-NOT:     "b e, e d -> b d"
// CHECK:         return

// CHECK-LABEL: func.func @step(
// CHECK:         } backward {
// CHECK-NEXT:    ^bb0(%chunk: index, %i: index, %[[D_IN:.*]]: tensor<4x8xf32>, %[[SAVED:.*]]: !transformer.stack<2 x tensor<4x8xf32>>):
// CHECK-NEXT:      stage.layers at %chunk
// CHECK-NEXT:      %[[D:.*]], %[[ALL:.*]] = transformer.loop "layer" 2 up_to %{{.*}} reversed carry(%[[D_IN]])
// CHECK-NOT:         transformer.get
// CHECK:             %[[HALF:.*]]:2 = func.call @block_bwd_input(
// CHECK-NEXT:        transformer.yield %[[HALF]]#0 : {{.*}} collect %[[HALF]]#1
// CHECK:           stage.yield send %[[D]] : tensor<4x8xf32> save %[[ALL]]
// CHECK-NEXT:    } weight {
// CHECK-NEXT:    ^bb0(%[[CHUNK:.*]]: index, %{{.*}}: index, %[[SAVED:.*]]: !transformer.stack<2 x tensor<4x8xf32>>, %[[K:.*]]: !transformer.stack<2 x tensor<4x8xf32>>):
// CHECK-NEXT:      %[[N:.*]] = stage.layers at %[[CHUNK]]
// CHECK-NEXT:      transformer.loop "layer" 2 up_to %[[N]] reversed
// CHECK-NEXT:      ^bb0
// CHECK-NEXT:        %kept = transformer.get %[[K]] at %layer
// CHECK:             transformer.get %[[SAVED]] at %layer
// CHECK:             %[[HELD:.*]] = stage.layer %layer of %[[CHUNK]]
// CHECK-NEXT:        %[[DW:.*]] = func.call @block_bwd_weight(%kept,
// CHECK-NEXT:        %[[R:.*]] = dist.all_reduce %[[DW]] sum
// CHECK-NEXT:        transformer.accumulate %[[R]] into @"l.{}.w.gradient_sum" at %[[HELD]]
// CHECK-NEXT:        transformer.yield
// CHECK-NEXT:      }
// CHECK-NEXT:      stage.yield
// CHECK-NEXT:    }

#pod = #dist.mesh<["pp" = 2, "dp" = 2]>
!x = tensor<4x8xf32>
!w = tensor<8x8xf32>
module {
  stage.table @schedule micro_batches 1 layers [["0..1"], ["2"]] rows ["F0 B0 W0 O", "F0 B0 W0 O"]
  transformer.state @"l.{}.w" parameter layers 2 : !w
  transformer.state @"l.{}.w.gradient_sum" gradient_sum layers 2 of @"l.{}.w" : !w

  func.func @block(%x: !x {transformer.as = "x"}, %w: !w {transformer.as = "w", transformer.state = @"l.{}.w"}) -> (!x {transformer.as = "y"}) {
    %y = transformer.contract "b d, e d -> b e" %x, %w {as = ["y"]} : (!x, !w) -> !x
    return %y : !x
  }
  func.func @block_bwd(%d: !x {transformer.as = "d"}, %w: !w {transformer.as = "w", transformer.state = @"l.{}.w"}, %x: !x {transformer.as = "x"}) -> (!x {transformer.as = "d_x"}, !w {transformer.as = "d_w", transformer.gradient_of = @"l.{}.w"}) {
    %kept = transformer.add %d, %d {as = ["kept"]} : (!x, !x) -> !x
    %dx = transformer.contract "b e, e d -> b d" %kept, %w {as = ["d_x"]} : (!x, !w) -> !x
    %dw = transformer.contract "b e, b d -> e d" %kept, %x {as = ["d_w"]} : (!x, !x) -> !w
    return %dx, %dw : !x, !w
  }
  func.func @step() {
    stage.run @schedule : () -> () forward {
    ^bb0(%chunk: index, %i: index, %x: !x):
      %n = stage.layers at %chunk
      %y, %all_x = transformer.loop "layer" 2 up_to %n carry(%x) : (!x) -> (!x, !transformer.stack<2 x !x>) {
      ^bb0(%layer: index, %a: !x):
        %held = stage.layer %layer of %chunk
        %w = transformer.load @"l.{}.w" at %held {as = ["w"]} : !w
        %b = func.call @block(%a, %w) {as = ["y"]} : (!x, !w) -> !x
        transformer.yield %b : !x collect %a : !x
      }
      stage.yield send %y : !x save %all_x : !transformer.stack<2 x !x>
    } backward {
    ^bb0(%chunk: index, %i: index, %d: !x, %all_x: !transformer.stack<2 x !x>):
      %n = stage.layers at %chunk
      %dx = transformer.loop "layer" 2 up_to %n reversed carry(%d) : (!x) -> !x {
      ^bb0(%layer: index, %a: !x):
        %held = stage.layer %layer of %chunk
        %w = transformer.load @"l.{}.w" at %held {as = ["w"]} : !w
        %x = transformer.get %all_x at %layer {as = ["x"]} : !transformer.stack<2 x !x>
        %g:2 = func.call @block_bwd(%a, %w, %x) {as = ["d_x", "d_w"]} : (!x, !w, !x) -> (!x, !w)
        %all = dist.all_reduce %g#1 sum on #pod over ["dp"] : !w -> !w
        transformer.accumulate %all into @"l.{}.w.gradient_sum" at %held : !w
        transformer.yield %g#0 : !x
      }
      stage.yield send %dx : !x
    }
    return
  }
}
