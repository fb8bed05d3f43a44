// Functions that have their backward, and backward itself, are left as they are.
//
// RUN: heddle-opt %s > %t
// RUN: heddle-opt %s --autodiff-build-backward | diff %t -

transformer.state @w parameter : tensor<8x8xf32>

func.func @scale(%x: tensor<4x8xf32> {transformer.as = "x"}, %w: tensor<8x8xf32> {transformer.as = "w", transformer.state = @w}) -> (tensor<4x8xf32> {transformer.as = "y"}, tensor<4x8xf32> {transformer.as = "m", transformer.saved = "m"}) {
  %m = transformer.contract "b d, f d -> b f" %x, %w {as = ["m"]} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %y = transformer.activation silu %m {as = ["y"]} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y, %m : tensor<4x8xf32>, tensor<4x8xf32>
}

func.func @scale_bwd(%m: tensor<4x8xf32> {transformer.as = "m", transformer.saved = "m"}, %d_y: tensor<4x8xf32> {transformer.as = "d_y"}, %x: tensor<4x8xf32> {transformer.as = "x"}, %w: tensor<8x8xf32> {transformer.as = "w", transformer.state = @w}) -> (tensor<4x8xf32> {transformer.as = "d_x"}, tensor<8x8xf32> {transformer.as = "d_w", transformer.gradient_of = @w}) {
  %d_m = transformer.activation_grad silu %d_y, %m {as = ["d_m"]} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %d_x = transformer.contract "b f, f d -> b d" %d_m, %w {as = ["d_x"]} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %d_w = transformer.contract "b f, b d -> f d" %d_m, %x {as = ["d_w"]} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
  return %d_x, %d_w : tensor<4x8xf32>, tensor<8x8xf32>
}

// A head that returns gradients.
func.func @head(%x: tensor<4x8xf32> {transformer.as = "x"}, %w: tensor<8x8xf32> {transformer.as = "w", transformer.state = @w}) -> (tensor<8x8xf32> {transformer.as = "d_w", transformer.gradient_of = @w}) {
  return %w : tensor<8x8xf32>
}
