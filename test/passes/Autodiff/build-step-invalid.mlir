// RUN: heddle-opt %s --autodiff-build-step --split-input-file --verify-diagnostics

// expected-error @below {{the module needs the attribute transformer.optimizer = {kind = "adamw" or "sgd", ...}, found "none"}}
module {}

// -----

// expected-error @below {{the module needs the attribute transformer.optimizer = {kind = "adamw" or "sgd", ...}, found {kind = "muon"}}}
module attributes {transformer.optimizer = {kind = "muon"}} {}

// -----

// expected-error @below {{transformer.optimizer of kind "sgd" has no entry "beta1"}}
module attributes {transformer.optimizer = {kind = "sgd", beta1 = 0.9 : f64, weight_decay = 0.0 : f64}} {}

// -----

// expected-error @below {{transformer.optimizer of kind "adamw" needs the number 'epsilon'}}
module attributes {transformer.optimizer = {kind = "adamw", beta1 = 0.9 : f64, beta2 = 0.9 : f64, weight_decay = 0.0 : f64}} {}

// -----

// expected-error @below {{transformer.optimizer of kind "sgd" needs the number 'weight_decay'}}
module attributes {transformer.optimizer = {kind = "sgd", weight_decay = 1 : i64}} {}

// -----

// expected-error @below {{the module needs the attribute transformer.micro_batches, at least 1}}
module attributes {transformer.optimizer = {kind = "sgd", weight_decay = 0.0 : f64}} {}

// -----

// expected-error @below {{the module needs the attribute transformer.micro_batches, at least 1}}
module attributes {transformer.micro_batches = 0 : i64, transformer.optimizer = {kind = "sgd", weight_decay = 0.0 : f64}} {}

// -----

// expected-error @below {{the step needs @embedding_bwd; run autodiff-build-backward on the model's segments first}}
module attributes {transformer.micro_batches = 1 : i64, transformer.optimizer = {kind = "sgd", weight_decay = 0.0 : f64}} {
  func.func @embedding(%tokens: tensor<4x8xi32> {transformer.as = "tokens"}) {
    return
  }
}

// -----

module attributes {transformer.micro_batches = 1 : i64, transformer.optimizer = {kind = "sgd", weight_decay = 0.0 : f64}} {
  transformer.state @embed parameter : tensor<9xf32>
  transformer.state @"{}.w" parameter layers 3 : tensor<8xf32>
  func.func private @embedding(tensor<4x8xi32> {transformer.as = "tokens"}) -> (tensor<8xf32> {transformer.as = "x"})
  func.func private @embedding_bwd(tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<9xf32> {transformer.gradient_of = @embed})
  // expected-error @below {{@block takes no parameter with layers, so the number of layers is not known}}
  func.func private @block(tensor<8xf32> {transformer.as = "x"}, tensor<8xf32> {transformer.as = "w"}) -> (tensor<8xf32> {transformer.as = "x"}, tensor<8xf32> {transformer.as = "m", transformer.saved = "m"})
  func.func private @block_bwd(tensor<8xf32> {transformer.as = "m", transformer.saved = "m"}, tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<8xf32> {transformer.as = "d_x"}, tensor<8xf32> {transformer.as = "d_w", transformer.gradient_of = @"{}.w"})
  func.func private @head(tensor<8xf32> {transformer.as = "x"}, tensor<4x8xi32> {transformer.as = "labels"}, tensor<i64> {transformer.as = "count"}) -> (tensor<f32> {transformer.as = "loss"}, tensor<8xf32> {transformer.as = "d_x"})
}

// -----

module attributes {transformer.micro_batches = 1 : i64, transformer.optimizer = {kind = "sgd", weight_decay = 0.0 : f64}} {
  transformer.state @embed parameter : tensor<9xf32>
  transformer.state @"{}.w" parameter layers 3 : tensor<8xf32>
  func.func private @embedding(tensor<4x8xi32> {transformer.as = "tokens"}) -> (tensor<8xf32> {transformer.as = "x"})
  func.func private @embedding_bwd(tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<9xf32> {transformer.gradient_of = @embed})
  // expected-error @below {{@block takes @other, which is no state}}
  func.func private @block(tensor<8xf32> {transformer.as = "x"}, tensor<8xf32> {transformer.as = "w", transformer.state = @other}) -> (tensor<8xf32> {transformer.as = "x"}, tensor<8xf32> {transformer.as = "m", transformer.saved = "m"})
  func.func private @block_bwd(tensor<8xf32> {transformer.as = "m", transformer.saved = "m"}, tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<8xf32> {transformer.as = "d_x"}, tensor<8xf32> {transformer.as = "d_w", transformer.gradient_of = @"{}.w"})
  func.func private @head(tensor<8xf32> {transformer.as = "x"}, tensor<4x8xi32> {transformer.as = "labels"}, tensor<i64> {transformer.as = "count"}) -> (tensor<f32> {transformer.as = "loss"}, tensor<8xf32> {transformer.as = "d_x"})
}

// -----

module attributes {transformer.micro_batches = 1 : i64, transformer.optimizer = {kind = "sgd", weight_decay = 0.0 : f64}} {
  transformer.state @embed parameter : tensor<9xf32>
  transformer.state @"{}.w" parameter layers 3 : tensor<8xf32>
  // expected-note @below {{the second is this}}
  transformer.state @"{}.v" parameter layers 4 : tensor<8xf32>
  func.func private @embedding(tensor<4x8xi32> {transformer.as = "tokens"}) -> (tensor<8xf32> {transformer.as = "x"})
  func.func private @embedding_bwd(tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<9xf32> {transformer.gradient_of = @embed})
  // expected-error @below {{@block takes parameters of 3 and of 4 layers}}
  func.func private @block(tensor<8xf32> {transformer.as = "x"}, tensor<8xf32> {transformer.as = "w", transformer.state = @"{}.w"}, tensor<8xf32> {transformer.as = "v", transformer.state = @"{}.v"}) -> (tensor<8xf32> {transformer.as = "x"}, tensor<8xf32> {transformer.as = "m", transformer.saved = "m"})
  func.func private @block_bwd(tensor<8xf32> {transformer.as = "m", transformer.saved = "m"}, tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<8xf32> {transformer.as = "d_x"}, tensor<8xf32> {transformer.as = "d_w", transformer.gradient_of = @"{}.w"})
  func.func private @head(tensor<8xf32> {transformer.as = "x"}, tensor<4x8xi32> {transformer.as = "labels"}, tensor<i64> {transformer.as = "count"}) -> (tensor<f32> {transformer.as = "loss"}, tensor<8xf32> {transformer.as = "d_x"})
}

// -----

module attributes {transformer.micro_batches = 1 : i64, transformer.optimizer = {kind = "sgd", weight_decay = 0.0 : f64}} {
  transformer.state @embed parameter : tensor<9xf32>
  transformer.state @"{}.w" parameter layers 3 : tensor<8xf32>
  func.func private @embedding(tensor<4x8xi32> {transformer.as = "tokens"}) -> (tensor<8xf32> {transformer.as = "x"})
  func.func private @embedding_bwd(tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<9xf32> {transformer.gradient_of = @embed})
  // expected-error @below {{@block must return what @embedding returns, by name: x; its result 0 is 'y'}}
  func.func private @block(tensor<8xf32> {transformer.as = "x"}, tensor<8xf32> {transformer.as = "w", transformer.state = @"{}.w"}) -> (tensor<8xf32> {transformer.as = "y"}, tensor<8xf32> {transformer.as = "m", transformer.saved = "m"})
  func.func private @block_bwd(tensor<8xf32> {transformer.as = "m", transformer.saved = "m"}, tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<8xf32> {transformer.as = "d_x"}, tensor<8xf32> {transformer.as = "d_w", transformer.gradient_of = @"{}.w"})
  func.func private @head(tensor<8xf32> {transformer.as = "x"}, tensor<4x8xi32> {transformer.as = "labels"}, tensor<i64> {transformer.as = "count"}) -> (tensor<f32> {transformer.as = "loss"}, tensor<8xf32> {transformer.as = "d_x"})
}

// -----

module attributes {transformer.micro_batches = 1 : i64, transformer.optimizer = {kind = "sgd", weight_decay = 0.0 : f64}} {
  transformer.state @embed parameter : tensor<9xf32>
  transformer.state @"{}.w" parameter layers 3 : tensor<8xf32>
  func.func private @embedding(tensor<4x8xi32> {transformer.as = "tokens"}) -> (tensor<8xf32> {transformer.as = "x"})
  func.func private @embedding_bwd(tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<9xf32> {transformer.gradient_of = @embed})
  // expected-error @below {{@block returns no 'x'}}
  func.func private @block(tensor<8xf32> {transformer.as = "x"}, tensor<8xf32> {transformer.as = "w", transformer.state = @"{}.w"}) -> (tensor<8xf32> {transformer.as = "m", transformer.saved = "m"})
  func.func private @block_bwd(tensor<8xf32> {transformer.as = "m", transformer.saved = "m"}, tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<8xf32> {transformer.as = "d_x"}, tensor<8xf32> {transformer.as = "d_w", transformer.gradient_of = @"{}.w"})
  func.func private @head(tensor<8xf32> {transformer.as = "x"}, tensor<4x8xi32> {transformer.as = "labels"}, tensor<i64> {transformer.as = "count"}) -> (tensor<f32> {transformer.as = "loss"}, tensor<8xf32> {transformer.as = "d_x"})
}

// -----

module attributes {transformer.micro_batches = 1 : i64, transformer.optimizer = {kind = "sgd", weight_decay = 0.0 : f64}} {
  // expected-error @below {{no segment computes the gradient of @embed}}
  transformer.state @embed parameter : tensor<9xf32>
  transformer.state @"{}.w" parameter layers 3 : tensor<8xf32>
  func.func private @embedding(tensor<4x8xi32> {transformer.as = "tokens"}) -> (tensor<8xf32> {transformer.as = "x"})
  func.func private @embedding_bwd(tensor<8xf32> {transformer.as = "d_x"})
  func.func private @block(tensor<8xf32> {transformer.as = "x"}, tensor<8xf32> {transformer.as = "w", transformer.state = @"{}.w"}) -> (tensor<8xf32> {transformer.as = "x"}, tensor<8xf32> {transformer.as = "m", transformer.saved = "m"})
  func.func private @block_bwd(tensor<8xf32> {transformer.as = "m", transformer.saved = "m"}, tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<8xf32> {transformer.as = "d_x"}, tensor<8xf32> {transformer.as = "d_w", transformer.gradient_of = @"{}.w"})
  func.func private @head(tensor<8xf32> {transformer.as = "x"}, tensor<4x8xi32> {transformer.as = "labels"}, tensor<i64> {transformer.as = "count"}) -> (tensor<f32> {transformer.as = "loss"}, tensor<8xf32> {transformer.as = "d_x"})
}

// -----

module attributes {transformer.micro_batches = 1 : i64, transformer.optimizer = {kind = "sgd", weight_decay = 0.0 : f64}} {
  transformer.state @embed parameter : tensor<9xf32>
  transformer.state @"{}.w" parameter layers 3 : tensor<8xf32>
  // expected-error @below {{@embedding takes no tensor 'tokens'}}
  func.func private @embedding(tensor<4x8xi32> {transformer.as = "ids"}) -> (tensor<8xf32> {transformer.as = "x"})
  func.func private @embedding_bwd(tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<9xf32> {transformer.gradient_of = @embed})
  func.func private @block(tensor<8xf32> {transformer.as = "x"}, tensor<8xf32> {transformer.as = "w", transformer.state = @"{}.w"}) -> (tensor<8xf32> {transformer.as = "x"}, tensor<8xf32> {transformer.as = "m", transformer.saved = "m"})
  func.func private @block_bwd(tensor<8xf32> {transformer.as = "m", transformer.saved = "m"}, tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<8xf32> {transformer.as = "d_x"}, tensor<8xf32> {transformer.as = "d_w", transformer.gradient_of = @"{}.w"})
  func.func private @head(tensor<8xf32> {transformer.as = "x"}, tensor<4x8xi32> {transformer.as = "labels"}, tensor<i64> {transformer.as = "count"}) -> (tensor<f32> {transformer.as = "loss"}, tensor<8xf32> {transformer.as = "d_x"})
}

// -----

module attributes {transformer.micro_batches = 1 : i64, transformer.optimizer = {kind = "sgd", weight_decay = 0.0 : f64}} {
  transformer.state @embed parameter : tensor<9xf32>
  transformer.state @"{}.w" parameter layers 3 : tensor<8xf32>
  // expected-error @below {{@embedding takes @"{}.w" of a layer, but is called once per micro-batch}}
  func.func private @embedding(tensor<4x8xi32> {transformer.as = "tokens"}, tensor<8xf32> {transformer.as = "w", transformer.state = @"{}.w"}) -> (tensor<8xf32> {transformer.as = "x"})
  func.func private @embedding_bwd(tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<9xf32> {transformer.gradient_of = @embed})
  func.func private @block(tensor<8xf32> {transformer.as = "x"}, tensor<8xf32> {transformer.as = "w", transformer.state = @"{}.w"}) -> (tensor<8xf32> {transformer.as = "x"}, tensor<8xf32> {transformer.as = "m", transformer.saved = "m"})
  func.func private @block_bwd(tensor<8xf32> {transformer.as = "m", transformer.saved = "m"}, tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<8xf32> {transformer.as = "d_x"}, tensor<8xf32> {transformer.as = "d_w", transformer.gradient_of = @"{}.w"})
  func.func private @head(tensor<8xf32> {transformer.as = "x"}, tensor<4x8xi32> {transformer.as = "labels"}, tensor<i64> {transformer.as = "count"}) -> (tensor<f32> {transformer.as = "loss"}, tensor<8xf32> {transformer.as = "d_x"})
}

// -----

module attributes {transformer.micro_batches = 1 : i64, transformer.optimizer = {kind = "sgd", weight_decay = 0.0 : f64}} {
  transformer.state @embed parameter : tensor<9xf32>
  transformer.state @"{}.w" parameter layers 3 : tensor<8xf32>
  // expected-error @below {{@embedding takes 'images', which the step does not have}}
  func.func private @embedding(tensor<4x8xi32> {transformer.as = "tokens"}, tensor<4x8xi32> {transformer.as = "images"}) -> (tensor<8xf32> {transformer.as = "x"})
  func.func private @embedding_bwd(tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<9xf32> {transformer.gradient_of = @embed})
  func.func private @block(tensor<8xf32> {transformer.as = "x"}, tensor<8xf32> {transformer.as = "w", transformer.state = @"{}.w"}) -> (tensor<8xf32> {transformer.as = "x"}, tensor<8xf32> {transformer.as = "m", transformer.saved = "m"})
  func.func private @block_bwd(tensor<8xf32> {transformer.as = "m", transformer.saved = "m"}, tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<8xf32> {transformer.as = "d_x"}, tensor<8xf32> {transformer.as = "d_w", transformer.gradient_of = @"{}.w"})
  func.func private @head(tensor<8xf32> {transformer.as = "x"}, tensor<4x8xi32> {transformer.as = "labels"}, tensor<i64> {transformer.as = "count"}) -> (tensor<f32> {transformer.as = "loss"}, tensor<8xf32> {transformer.as = "d_x"})
}

// -----

module attributes {transformer.micro_batches = 1 : i64, transformer.optimizer = {kind = "sgd", weight_decay = 0.0 : f64}} {
  transformer.state @embed parameter : tensor<9xf32>
  transformer.state @"{}.w" parameter layers 3 : tensor<8xf32>
  func.func private @embedding(tensor<4x8xi32> {transformer.as = "tokens"}) -> (tensor<8xf32> {transformer.as = "x"})
  func.func private @embedding_bwd(tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<9xf32> {transformer.gradient_of = @embed})
  // expected-error @below {{@block takes 'x' as 'tensor<7xf32>', but the step has 'tensor<8xf32>'}}
  func.func private @block(tensor<7xf32> {transformer.as = "x"}, tensor<8xf32> {transformer.as = "w", transformer.state = @"{}.w"}) -> (tensor<8xf32> {transformer.as = "x"}, tensor<8xf32> {transformer.as = "m", transformer.saved = "m"})
  func.func private @block_bwd(tensor<8xf32> {transformer.as = "m", transformer.saved = "m"}, tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<8xf32> {transformer.as = "d_x"}, tensor<8xf32> {transformer.as = "d_w", transformer.gradient_of = @"{}.w"})
  func.func private @head(tensor<8xf32> {transformer.as = "x"}, tensor<4x8xi32> {transformer.as = "labels"}, tensor<i64> {transformer.as = "count"}) -> (tensor<f32> {transformer.as = "loss"}, tensor<8xf32> {transformer.as = "d_x"})
}

// -----

module attributes {transformer.micro_batches = 1 : i64, transformer.optimizer = {kind = "sgd", weight_decay = 0.0 : f64}} {
  transformer.state @embed parameter : tensor<9xf32>
  transformer.state @"{}.w" parameter layers 3 : tensor<8xf32>
  func.func private @embedding(tensor<4x8xi32> {transformer.as = "tokens"}) -> (tensor<8xf32> {transformer.as = "x"})
  func.func private @embedding_bwd(tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<9xf32> {transformer.gradient_of = @embed})
  func.func private @block(tensor<8xf32> {transformer.as = "x"}, tensor<8xf32> {transformer.as = "w", transformer.state = @"{}.w"}) -> (tensor<8xf32> {transformer.as = "x"}, tensor<8xf32> {transformer.as = "m", transformer.saved = "m"})
  func.func private @block_bwd(tensor<8xf32> {transformer.as = "m", transformer.saved = "m"}, tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<8xf32> {transformer.as = "d_x"}, tensor<8xf32> {transformer.as = "d_w", transformer.gradient_of = @"{}.w"})
  // expected-error @below {{@head returns no 'loss'}}
  func.func private @head(tensor<8xf32> {transformer.as = "x"}, tensor<4x8xi32> {transformer.as = "labels"}, tensor<i64> {transformer.as = "count"}) -> (tensor<f32> {transformer.as = "error"}, tensor<8xf32> {transformer.as = "d_x"})
}

// -----

module attributes {transformer.micro_batches = 1 : i64, transformer.optimizer = {kind = "sgd", weight_decay = 0.0 : f64}} {
  transformer.state @embed parameter : tensor<9xf32>
  transformer.state @"{}.w" parameter layers 3 : tensor<8xf32>
  func.func private @embedding(tensor<4x8xi32> {transformer.as = "tokens"}) -> (tensor<8xf32> {transformer.as = "x"})
  func.func private @embedding_bwd(tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<9xf32> {transformer.gradient_of = @embed})
  func.func private @block(tensor<8xf32> {transformer.as = "x"}, tensor<8xf32> {transformer.as = "w", transformer.state = @"{}.w"}) -> (tensor<8xf32> {transformer.as = "x"}, tensor<8xf32> {transformer.as = "m", transformer.saved = "m"})
  func.func private @block_bwd(tensor<8xf32> {transformer.as = "m", transformer.saved = "m"}, tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<8xf32> {transformer.as = "d_x"}, tensor<8xf32> {transformer.as = "d_w", transformer.gradient_of = @"{}.w"})
  // expected-error @below {{@head returns no 'd_x'}}
  func.func private @head(tensor<8xf32> {transformer.as = "x"}, tensor<4x8xi32> {transformer.as = "labels"}, tensor<i64> {transformer.as = "count"}) -> (tensor<f32> {transformer.as = "loss"})
}

// -----

module attributes {transformer.micro_batches = 1 : i64, transformer.optimizer = {kind = "sgd", weight_decay = 0.0 : f64}} {
  transformer.state @embed parameter : tensor<9xf32>
  transformer.state @"{}.w" parameter layers 3 : tensor<8xf32>
  func.func private @embedding(tensor<4x8xi32> {transformer.as = "tokens"}) -> (tensor<8xf32> {transformer.as = "x"})
  func.func private @embedding_bwd(tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<9xf32> {transformer.gradient_of = @embed})
  func.func private @block(tensor<8xf32> {transformer.as = "x"}, tensor<8xf32> {transformer.as = "w", transformer.state = @"{}.w"}) -> (tensor<8xf32> {transformer.as = "x"}, tensor<8xf32> {transformer.as = "m", transformer.saved = "m"})
  // expected-error @below {{@block_bwd takes 'n', which the step does not have}}
  func.func private @block_bwd(tensor<8xf32> {transformer.as = "n", transformer.saved = "n"}, tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<8xf32> {transformer.as = "d_x"}, tensor<8xf32> {transformer.as = "d_w", transformer.gradient_of = @"{}.w"})
  func.func private @head(tensor<8xf32> {transformer.as = "x"}, tensor<4x8xi32> {transformer.as = "labels"}, tensor<i64> {transformer.as = "count"}) -> (tensor<f32> {transformer.as = "loss"}, tensor<8xf32> {transformer.as = "d_x"})
}

// -----

module attributes {transformer.micro_batches = 1 : i64, transformer.optimizer = {kind = "sgd", weight_decay = 0.0 : f64}} {
  transformer.state @embed parameter : tensor<9xf32>
  transformer.state @"{}.w" parameter layers 3 : tensor<8xf32>
  func.func private @embedding(tensor<4x8xi32> {transformer.as = "tokens"}) -> (tensor<8xf32> {transformer.as = "x"})
  func.func private @embedding_bwd(tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<9xf32> {transformer.gradient_of = @embed})
  func.func private @block(tensor<8xf32> {transformer.as = "x"}, tensor<8xf32> {transformer.as = "w", transformer.state = @"{}.w"}) -> (tensor<8xf32> {transformer.as = "x"}, tensor<8xf32> {transformer.as = "m", transformer.saved = "m"})
  // expected-error @below {{@block_bwd returns no 'd_x'}}
  func.func private @block_bwd(tensor<8xf32> {transformer.as = "m", transformer.saved = "m"}, tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<8xf32> {transformer.as = "d_w", transformer.gradient_of = @"{}.w"})
  func.func private @head(tensor<8xf32> {transformer.as = "x"}, tensor<4x8xi32> {transformer.as = "labels"}, tensor<i64> {transformer.as = "count"}) -> (tensor<f32> {transformer.as = "loss"}, tensor<8xf32> {transformer.as = "d_x"})
}

// -----

module attributes {transformer.micro_batches = 1 : i64, transformer.optimizer = {kind = "sgd", weight_decay = 0.0 : f64}} {
  transformer.state @embed parameter : tensor<9xf32>
  transformer.state @"{}.w" parameter layers 3 : tensor<8xf32>
  // expected-error @below {{@embedding has no name (transformer.as) for its result 0}}
  func.func private @embedding(tensor<4x8xi32> {transformer.as = "tokens"}) -> tensor<8xf32>
  func.func private @embedding_bwd(tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<9xf32> {transformer.gradient_of = @embed})
  func.func private @block(tensor<8xf32> {transformer.as = "x"}, tensor<8xf32> {transformer.as = "w", transformer.state = @"{}.w"}) -> (tensor<8xf32> {transformer.as = "x"}, tensor<8xf32> {transformer.as = "m", transformer.saved = "m"})
  func.func private @block_bwd(tensor<8xf32> {transformer.as = "m", transformer.saved = "m"}, tensor<8xf32> {transformer.as = "d_x"}) -> (tensor<8xf32> {transformer.as = "d_x"}, tensor<8xf32> {transformer.as = "d_w", transformer.gradient_of = @"{}.w"})
  func.func private @head(tensor<8xf32> {transformer.as = "x"}, tensor<4x8xi32> {transformer.as = "labels"}, tensor<i64> {transformer.as = "count"}) -> (tensor<f32> {transformer.as = "loss"}, tensor<8xf32> {transformer.as = "d_x"})
}
