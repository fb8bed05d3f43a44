// What cannot be cut, and why.
//
// RUN: heddle-opt %s --split-input-file --verify-diagnostics --stages-cut

module {
  stage.table @schedule micro_batches 1 layers [["0"]] rows ["F0 D0 O"]
  // expected-error @below {{has no loop over micro-batches to cut}}
  func.func @step(%tokens: !transformer.stack<1 x tensor<4xi32>>) {
    transformer.loop "micro_batch" 1 : () -> () {
    ^bb0(%i: index):
      %t = transformer.get %tokens at %i : !transformer.stack<1 x tensor<4xi32>>
      transformer.yield
    }
    return
  }
}

// -----

module {
  // expected-error @below {{has 2 micro-batches, and the step 3}}
  stage.table @schedule micro_batches 2 layers [["0"]] rows ["F0 D0 F1 D1 O"]
  func.func @f() {
    return
  }
  func.func @step() {
    transformer.loop "micro_batch" 3 : () -> () {
    ^bb0(%i: index):
      func.call @f() : () -> ()
      transformer.yield
    }
    return
  }
}

// -----

module {
  stage.table @schedule micro_batches 1 layers [["0"]] rows ["F0 D0 O"]
  func.func @block(%x: tensor<4xf32>) -> tensor<4xf32> {
    %y = transformer.add %x, %x : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    return %y : tensor<4xf32>
  }
  func.func @step(%x: tensor<4xf32>) {
    // expected-error @below {{needs a loop over layers forward and one backward}}
    transformer.loop "micro_batch" 1 : () -> () {
    ^bb0(%i: index):
      %y = transformer.loop "layer" 1 carry(%x) : (tensor<4xf32>) -> tensor<4xf32> {
      ^bb0(%l: index, %a: tensor<4xf32>):
        %b = func.call @block(%a) : (tensor<4xf32>) -> tensor<4xf32>
        transformer.yield %b : tensor<4xf32>
      }
      transformer.yield
    }
    return
  }
}

// -----

// One value on, two back.

module {
  stage.table @schedule micro_batches 1 layers [["0"]] rows ["F0 D0 O"]
  func.func @block(%x: tensor<4xf32>) -> tensor<4xf32> {
    %y = transformer.add %x, %x : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    return %y : tensor<4xf32>
  }
  func.func @step(%x: tensor<4xf32>, %z: tensor<4xf32>) {
    // expected-error @below {{carries 1 values forward and 2 gradients backward}}
    transformer.loop "micro_batch" 1 : () -> () {
    ^bb0(%i: index):
      %y = transformer.loop "layer" 1 carry(%x) : (tensor<4xf32>) -> tensor<4xf32> {
      ^bb0(%l: index, %a: tensor<4xf32>):
        %b = func.call @block(%a) : (tensor<4xf32>) -> tensor<4xf32>
        transformer.yield %b : tensor<4xf32>
      }
      %d:2 = transformer.loop "layer" 1 reversed carry(%y, %z) : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
      ^bb0(%l: index, %a: tensor<4xf32>, %c: tensor<4xf32>):
        %b = func.call @block(%a) : (tensor<4xf32>) -> tensor<4xf32>
        transformer.yield %b, %c : tensor<4xf32>, tensor<4xf32>
      }
      transformer.yield
    }
    return
  }
}
