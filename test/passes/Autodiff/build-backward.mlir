// RUN: heddle-opt %s --autodiff-build-backward | FileCheck %s
// RUN: heddle-opt %s --autodiff-build-backward > %t
// RUN: heddle-opt %t --autodiff-build-backward | diff %t -

transformer.state @w parameter : tensor<8x8xf32>
transformer.state @g parameter : tensor<8xf32>
transformer.state @wqk parameter : tensor<2x2x4x8xf32>
transformer.state @head.weight parameter : tensor<9x8xf32>

// What backward reads of forward is a result with its name and its readers; what
// it reads of forward's arguments is an argument again.
//
// CHECK-LABEL: func.func @scale(
// CHECK-SAME:    %[[X:.*]]: tensor<4x8xf32> {transformer.as = "x"}, %[[W:.*]]: tensor<8x8xf32> {transformer.as = "w", transformer.state = @w})
// CHECK-SAME:    -> (tensor<4x8xf32> {transformer.as = "y"}, tensor<4x8xf32> {transformer.as = "m", transformer.reason = "read by activation_grad (d_m)", transformer.saved = "m"})
// CHECK-NEXT:    %m = transformer.contract "b d, f d -> b f" %[[X]], %[[W]]
// CHECK-NEXT:    %y = transformer.activation silu %m
// CHECK-NEXT:    return %y, %m
// CHECK-LABEL: func.func @scale_bwd(
// CHECK-SAME:    %[[M:.*]]: tensor<4x8xf32> {transformer.as = "m", transformer.saved = "m"}, %[[DY:.*]]: tensor<4x8xf32> {transformer.as = "d_y"},
// CHECK-SAME:    %[[X:.*]]: tensor<4x8xf32> {transformer.as = "x"}, %[[W:.*]]: tensor<8x8xf32> {transformer.as = "w", transformer.state = @w})
// CHECK-SAME:    -> (tensor<4x8xf32> {transformer.as = "d_x"}, tensor<8x8xf32> {transformer.as = "d_w", transformer.gradient_of = @w})
// CHECK-NEXT:    %d_m = transformer.activation_grad silu %[[DY]], %[[M]]
// CHECK-NEXT:    %d_x = transformer.contract "b f, f d -> b d" %d_m, %[[W]]
// CHECK-NEXT:    %d_w = transformer.contract "b f, b d -> f d" %d_m, %[[X]]
// CHECK-NEXT:    return %d_x, %d_w
func.func @scale(%x: tensor<4x8xf32> {transformer.as = "x"}, %w: tensor<8x8xf32> {transformer.as = "w", transformer.state = @w}) -> (tensor<4x8xf32> {transformer.as = "y"}) {
  %m = transformer.contract "b d, f d -> b f" %x, %w {as = ["m"]} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %y = transformer.activation silu %m {as = ["y"]} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// Gradients of one value are added, named after the uses they come from. The
// residual itself is not saved: no gradient reads it.
//
// CHECK-LABEL: func.func @residual(
// CHECK-SAME:    -> (tensor<4x8xf32> {transformer.as = "z"}, tensor<4x8xf32> {transformer.as = "m", transformer.reason = "read by activation_grad (d_m_y), activation_grad (d_m_n)", transformer.saved = "m"})
// CHECK-LABEL: func.func @residual_bwd(
// CHECK-SAME:    %[[M:.*]]: tensor<4x8xf32> {transformer.as = "m", transformer.saved = "m"}, %[[DZ:.*]]: tensor<4x8xf32> {transformer.as = "d_z"}, %[[X:.*]]: tensor<4x8xf32> {transformer.as = "x"}, %[[W:.*]]: tensor<8x8xf32> {
// CHECK-NEXT:    %d_m_y = transformer.activation_grad relu %[[DZ]], %[[M]]
// CHECK-NEXT:    %d_m_n = transformer.activation_grad silu %[[DZ]], %[[M]]
// CHECK-NEXT:    %d_m = transformer.add %d_m_y, %d_m_n
// CHECK-NEXT:    %d_x_m = transformer.contract "b f, f d -> b d" %d_m, %[[W]]
// CHECK-NEXT:    %d_w = transformer.contract "b f, b d -> f d" %d_m, %[[X]]
// CHECK-NEXT:    %d_x = transformer.add %[[DZ]], %d_x_m
// CHECK-NEXT:    return %d_x, %d_w
func.func @residual(%x: tensor<4x8xf32> {transformer.as = "x"}, %w: tensor<8x8xf32> {transformer.as = "w", transformer.state = @w}) -> (tensor<4x8xf32> {transformer.as = "z"}) {
  %m = transformer.contract "b d, f d -> b f" %x, %w {as = ["m"]} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %n = transformer.activation silu %m {as = ["n"]} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %y = transformer.activation relu %m {as = ["y"]} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %s = transformer.add %n, %y {as = ["s"]} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %z = transformer.add %x, %s {as = ["z"]} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %z : tensor<4x8xf32>
}

// A value that is returned and read by backward is both; a gradient that would
// have the name of another value gets its own.
//
// CHECK-LABEL: func.func @returned(
// CHECK-SAME:    -> (tensor<4x8xf32> {transformer.as = "x"}, tensor<4x8xf32> {transformer.as = "n"}, tensor<4x8xf32> {transformer.as = "x1", {{.*}}, transformer.saved = "x1"}, tensor<4xf32> {transformer.as = "n_rstd", {{.*}}, transformer.saved = "n_rstd"})
// CHECK:         return %x1, %n, %x1, %n_rstd
// CHECK-LABEL: func.func @returned_bwd(
// CHECK-SAME:    {transformer.as = "x1", transformer.saved = "x1"}, {{[^ ]*}} tensor<4xf32> {transformer.as = "n_rstd", transformer.saved = "n_rstd"}, %[[DX:.*]]: tensor<4x8xf32> {transformer.as = "d_x"}, %[[DN:.*]]: tensor<4x8xf32> {transformer.as = "d_n"}
// CHECK-NEXT:    %d_x1_n, %d_g = transformer.rms_norm_grad %[[DN]]
// CHECK-NEXT:    %d_x1 = transformer.add %[[DX]], %d_x1_n
// CHECK-NEXT:    %d_x.2 = transformer.add %d_x1, %d_x1 {as = ["d_x.2"]}
// CHECK-NEXT:    return %d_x.2, %d_g
func.func @returned(%x: tensor<4x8xf32> {transformer.as = "x"}, %g: tensor<8xf32> {transformer.as = "g", transformer.state = @g}) -> (tensor<4x8xf32> {transformer.as = "x"}, tensor<4x8xf32> {transformer.as = "n"}) {
  %x1 = transformer.add %x, %x {as = ["x1"]} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %n, %n_rstd = transformer.rms_norm %x1, %g epsilon 1.000000e-05 {as = ["n", "n_rstd"]} : (tensor<4x8xf32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
  return %x1, %n : tensor<4x8xf32>, tensor<4x8xf32>
}

// Parts of a parameter are taken again in backward, which has the parameter. The
// gradient of a part that is not used is zero.
//
// CHECK-LABEL: func.func @parts(
// CHECK-SAME:    -> (tensor<4x2x4xf32> {transformer.as = "q"}) {
// CHECK-LABEL: func.func @parts_bwd(
// CHECK-SAME:    %[[DQ:.*]]: tensor<4x2x4xf32> {transformer.as = "d_q"}, %[[X:.*]]: tensor<4x8xf32> {transformer.as = "x"}, %[[W:.*]]: tensor<2x2x4x8xf32> {
// CHECK-NEXT:    %wq, %wk = transformer.split_tensors %[[W]]
// CHECK-NEXT:    %d_x = transformer.contract "b g k, g k d -> b d" %[[DQ]], %wq
// CHECK-NEXT:    %d_wq = transformer.contract "b g k, b d -> g k d" %[[DQ]], %[[X]]
// CHECK-NEXT:    %[[ZEROS:.*]] = transformer.zeros_like %wk
// CHECK-NEXT:    %d_wqk = transformer.stack_tensors %d_wq, %[[ZEROS]]
// CHECK-NEXT:    return %d_x, %d_wqk
func.func @parts(%x: tensor<4x8xf32> {transformer.as = "x"}, %wqk: tensor<2x2x4x8xf32> {transformer.as = "wqk", transformer.state = @wqk}) -> (tensor<4x2x4xf32> {transformer.as = "q"}) {
  %wq, %wk = transformer.split_tensors %wqk {as = ["wq", "wk"]} : (tensor<2x2x4x8xf32>) -> (tensor<2x4x8xf32>, tensor<2x4x8xf32>)
  %q = transformer.contract "b d, g k d -> b g k" %x, %wq {as = ["q"]} : (tensor<4x8xf32>, tensor<2x4x8xf32>) -> tensor<4x2x4xf32>
  return %q : tensor<4x2x4xf32>
}

// Integers have no gradient, zeros pass none on, and what nothing depends on has
// a gradient of zero. The gradient of the zeros is not even taken.
//
// CHECK-LABEL: func.func @unread_bwd(
// CHECK-SAME:    %[[DX:.*]]: tensor<4x8x8xf32> {transformer.as = "d_x"}, %[[IDS:.*]]: tensor<4x8xi32> {transformer.as = "ids"}, %[[W:.*]]: tensor<8xf32> {transformer.as = "w"})
// CHECK-SAME:    -> (tensor<9x8xf32> {transformer.as = "d_table"}, tensor<8xf32> {transformer.as = "d_w"})
// CHECK-NEXT:    %d_table = transformer.embedding_grad %[[IDS]], %[[DX]] {
// CHECK-NEXT:    %d_w = transformer.zeros_like %[[W]]
// CHECK-NEXT:    return %d_table, %d_w
func.func @unread(%ids: tensor<4x8xi32> {transformer.as = "ids"}, %table: tensor<9x8xf32> {transformer.as = "table"}, %w: tensor<8xf32> {transformer.as = "w"}) -> (tensor<4x8x8xf32> {transformer.as = "x"}, tensor<4x8x8xf32> {transformer.as = "delta"}) {
  %x = transformer.embedding %ids, %table {as = ["x"]} : (tensor<4x8xi32>, tensor<9x8xf32>) -> tensor<4x8x8xf32>
  %delta = transformer.zeros_like %x {as = ["delta"]} : (tensor<4x8x8xf32>) -> tensor<4x8x8xf32>
  return %x, %delta : tensor<4x8x8xf32>, tensor<4x8x8xf32>
}

// A loss begins backward itself: one function, which returns the gradients too.
//
// CHECK-LABEL: func.func @head(
// CHECK-SAME:    %[[X:.*]]: tensor<4x2x8xf32> {transformer.as = "x"}, %[[W:.*]]: tensor<9x8xf32> {transformer.as = "w", transformer.state = @head.weight}, %[[LABELS:.*]]: tensor<4x2xi32> {transformer.as = "labels"}, %[[COUNT:.*]]: tensor<i64> {transformer.as = "count"})
// CHECK-SAME:    -> (tensor<f32> {transformer.as = "loss"}, tensor<4x2x8xf32> {transformer.as = "d_x"}, tensor<9x8xf32> {transformer.as = "d_w", transformer.gradient_of = @head.weight})
// CHECK:         %loss = transformer.mean_counted
// CHECK-NEXT:    %d_logits = transformer.loss_grad %logits, %max, %sum, %[[LABELS]], %[[COUNT]]
// CHECK-NEXT:    %d_x = transformer.contract "b s v, v d -> b s d" %d_logits, %[[W]]
// CHECK-NEXT:    %d_w = transformer.contract "b s v, b s d -> v d" %d_logits, %[[X]]
// CHECK-NEXT:    return %loss, %d_x, %d_w
func.func @head(%x: tensor<4x2x8xf32> {transformer.as = "x"}, %w: tensor<9x8xf32> {transformer.as = "w", transformer.state = @head.weight}, %labels: tensor<4x2xi32> {transformer.as = "labels"}, %count: tensor<i64> {transformer.as = "count"}) -> (tensor<f32> {transformer.as = "loss"}) {
  %logits = transformer.contract "b s d, v d -> b s v" %x, %w {as = ["logits"]} : (tensor<4x2x8xf32>, tensor<9x8xf32>) -> tensor<4x2x9xf32>
  %max = transformer.row_max %logits {as = ["max"]} : (tensor<4x2x9xf32>) -> tensor<4x2xf32>
  %sum = transformer.row_sum_exp %logits, %max {as = ["sum"]} : (tensor<4x2x9xf32>, tensor<4x2xf32>) -> tensor<4x2xf32>
  %picked = transformer.pick %logits, %labels {as = ["picked"]} : (tensor<4x2x9xf32>, tensor<4x2xi32>) -> tensor<4x2xf32>
  %losses = transformer.token_loss %max, %sum, %picked {as = ["losses"]} : (tensor<4x2xf32>, tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<4x2xf32>
  %loss = transformer.mean_counted %losses, %labels, %count {as = ["loss"]} : (tensor<4x2xf32>, tensor<4x2xi32>, tensor<i64>) -> tensor<f32>
  return %loss : tensor<f32>
}

// Ops that nothing reads are gone from both.
//
// CHECK-LABEL: func.func @dead(
// CHECK-NEXT:    %y = transformer.activation relu
// CHECK-NEXT:    return %y
// CHECK-LABEL: func.func @dead_bwd(
// CHECK-NEXT:    %d_x = transformer.activation_grad relu
// CHECK-NEXT:    return %d_x
func.func @dead(%x: tensor<8xf32> {transformer.as = "x"}) -> (tensor<8xf32> {transformer.as = "y"}) {
  %n = transformer.activation silu %x {as = ["n"]} : (tensor<8xf32>) -> tensor<8xf32>
  %y = transformer.activation relu %x {as = ["y"]} : (tensor<8xf32>) -> tensor<8xf32>
  return %y : tensor<8xf32>
}

// Every value has a name in the end: what is saved is found by it.
//
// CHECK-LABEL: func.func @unnamed(
// CHECK-SAME:    {transformer.as = "activation", {{.*}}, transformer.saved = "activation"}
// CHECK-NEXT:    %activation = transformer.activation relu
// CHECK-LABEL: func.func @unnamed_bwd(
// CHECK-SAME:    {transformer.as = "activation", transformer.saved = "activation"}, {{[^ ]*}} tensor<8xf32> {transformer.as = "d_result0"}
func.func @unnamed(%x: tensor<8xf32> {transformer.as = "x"}) -> tensor<8xf32> {
  %m = transformer.activation relu %x : (tensor<8xf32>) -> tensor<8xf32>
  %y = transformer.activation silu %m : (tensor<8xf32>) -> tensor<8xf32>
  return %y : tensor<8xf32>
}

// Nothing to differentiate, or nothing to look into.
//
// CHECK-LABEL: func.func @counts(
// CHECK-NEXT:    %n = transformer.count_labels
// CHECK-NEXT:    return %n
// CHECK-NOT:   @counts_bwd
func.func @counts(%labels: tensor<4x2xi32> {transformer.as = "labels"}) -> (tensor<i64> {transformer.as = "n"}) {
  %n = transformer.count_labels %labels {as = ["n"]} : (tensor<4x2xi32>) -> tensor<i64>
  return %n : tensor<i64>
}

// CHECK:       func.func private @elsewhere(tensor<8xf32>) -> tensor<8xf32>
// CHECK-NOT:   @elsewhere_bwd
func.func private @elsewhere(tensor<8xf32>) -> tensor<8xf32>

// A function over stacks is a step, not a segment.
//
// CHECK-LABEL: func.func @over_stacks(
// CHECK-NOT:   @over_stacks_bwd
func.func @over_stacks(%x: !transformer.stack<2 x tensor<8xf32>>, %y: tensor<8xf32>, %i: index) -> tensor<8xf32> {
  %0 = transformer.get %x at %i : !transformer.stack<2 x tensor<8xf32>>
  return %0 : tensor<8xf32>
}
