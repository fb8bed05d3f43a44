// A module that has its step is left as it is.
//
// RUN: heddle-opt %s > %t
// RUN: heddle-opt %s --autodiff-build-step | diff %t -

func.func @step(%tokens: !transformer.stack<2 x tensor<4x8xi32>> {transformer.as = "tokens"}, %labels: !transformer.stack<2 x tensor<4x8xi32>> {transformer.as = "labels"}, %positions: !transformer.stack<2 x tensor<4x8xi32>> {transformer.as = "positions"}, %documents: !transformer.stack<2 x tensor<4x8xi32>> {transformer.as = "documents"}, %learning_rate: tensor<f32> {transformer.as = "learning_rate"}) -> (tensor<f32> {transformer.as = "loss"}, tensor<i64> {transformer.as = "count"}, tensor<f32> {transformer.as = "gradient_norm"}) {
  %count = transformer.zeros {as = ["count"]} : tensor<i64>
  return %learning_rate, %count, %learning_rate : tensor<f32>, tensor<i64>, tensor<f32>
}
