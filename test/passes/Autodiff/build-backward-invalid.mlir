// RUN: heddle-opt %s --autodiff-build-backward --allow-unregistered-dialect --split-input-file --verify-diagnostics

func.func @no_gradient(%x: tensor<4x8xf32> {transformer.as = "x"}) -> (tensor<4xf32> {transformer.as = "m"}) {
  // expected-error @below {{'transformer.row_max' op has no gradient, but @no_gradient needs one: its results depend on its arguments through this op}}
  %m = transformer.row_max %x {as = ["m"]} : (tensor<4x8xf32>) -> tensor<4xf32>
  return %m : tensor<4xf32>
}

// -----

// Off the way from arguments to results an op needs none.
func.func @off_the_way(%x: tensor<4x8xf32> {transformer.as = "x"}) -> (tensor<4x8xf32> {transformer.as = "y"}) {
  %m = transformer.row_max %x {as = ["m"]} : (tensor<4x8xf32>) -> tensor<4xf32>
  %y = transformer.activation silu %x {as = ["y"]} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// -----

func.func @other_result(%x: tensor<4x8xf32> {transformer.as = "x"}, %g: tensor<8xf32> {transformer.as = "g"}) -> (tensor<4xf32> {transformer.as = "r"}) {
  // expected-error @below {{'transformer.rms_norm' op has no gradient for its result 1}}
  %n, %r = transformer.rms_norm %x, %g epsilon 1.000000e-05 {as = ["n", "r"]} : (tensor<4x8xf32>, tensor<8xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)
  return %r : tensor<4xf32>
}

// -----

// expected-error @below {{@no_name has no name (transformer.as) for its argument 0}}
func.func @no_name(%x: tensor<8xf32>) -> (tensor<8xf32> {transformer.as = "y"}) {
  %y = transformer.activation silu %x {as = ["y"]} : (tensor<8xf32>) -> tensor<8xf32>
  return %y : tensor<8xf32>
}

// -----

// expected-error @below {{@blocks has several blocks; a segment has one}}
func.func @blocks(%x: tensor<8xf32> {transformer.as = "x"}) -> tensor<8xf32> {
  "other.branch"()[^bb1] : () -> ()
^bb1:
  return %x : tensor<8xf32>
}

// -----

func.func @loss_and_more(%losses: tensor<4x2xf32> {transformer.as = "losses"}, %labels: tensor<4x2xi32> {transformer.as = "labels"}, %count: tensor<i64> {transformer.as = "count"}) -> (tensor<f32>, tensor<4x2xf32>) {
  // expected-error @below {{'transformer.mean_counted' op must be of the losses of a token_loss with a pick}}
  %loss = transformer.mean_counted %losses, %labels, %count {as = ["loss"]} : (tensor<4x2xf32>, tensor<4x2xi32>, tensor<i64>) -> tensor<f32>
  return %loss, %losses : tensor<f32>, tensor<4x2xf32>
}

// -----

func.func @loss_and_more(%x: tensor<4x2x9xf32> {transformer.as = "x"}, %labels: tensor<4x2xi32> {transformer.as = "labels"}, %count: tensor<i64> {transformer.as = "count"}) -> (tensor<4x2x9xf32>, tensor<f32>) {
  %max = transformer.row_max %x {as = ["max"]} : (tensor<4x2x9xf32>) -> tensor<4x2xf32>
  %sum = transformer.row_sum_exp %x, %max {as = ["sum"]} : (tensor<4x2x9xf32>, tensor<4x2xf32>) -> tensor<4x2xf32>
  %picked = transformer.pick %x, %labels {as = ["picked"]} : (tensor<4x2x9xf32>, tensor<4x2xi32>) -> tensor<4x2xf32>
  %losses = transformer.token_loss %max, %sum, %picked {as = ["losses"]} : (tensor<4x2xf32>, tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<4x2xf32>
  %loss = transformer.mean_counted %losses, %labels, %count {as = ["loss"]} : (tensor<4x2xf32>, tensor<4x2xi32>, tensor<i64>) -> tensor<f32>
  // expected-error @below {{@loss_and_more has a loss, but its result 0 is no mean_counted; a function with a loss returns losses only}}
  return %x, %loss : tensor<4x2x9xf32>, tensor<f32>
}
