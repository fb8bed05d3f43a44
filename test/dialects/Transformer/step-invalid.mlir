// One case per constraint of states and of the ops of the step.
//
// RUN: heddle-opt %s --allow-unregistered-dialect --split-input-file --verify-diagnostics

// expected-error @below {{has {} in its name but no layers}}
transformer.state @"layers.{}.w" parameter : tensor<8xf32>

// -----

// expected-error @below {{has layers but no {} in its name}}
transformer.state @w parameter layers 2 : tensor<8xf32>

// -----

// expected-error @below {{file_order is no permutation of the 2 dimensions}}
transformer.state @w parameter : tensor<4x8xf32> {file_order = array<i64: 0, 0>, file_shape = array<i64: 4, 8>}

// -----

// expected-error @below {{file_order is no permutation of the 2 dimensions}}
transformer.state @w parameter : tensor<4x8xf32> {file_order = array<i64: 0>, file_shape = array<i64: 4, 8>}

// -----

// expected-error @below {{file_shape has 16 elements, the type 32}}
transformer.state @w parameter : tensor<4x8xf32> {file_order = array<i64: 0, 1>, file_shape = array<i64: 2, 8>}

// -----

// expected-error @below {{has one of file_order and file_shape, not both}}
transformer.state @w parameter : tensor<4x8xf32> {file_order = array<i64: 0, 1>}

// -----

// expected-error @below {{refers to @w, which is no state}}
transformer.state @w.gradient gradient of @w : tensor<8xf32>

// -----

transformer.state @w parameter : tensor<8xf32>
// expected-error @below {{refers to @sum, which is no state}}
transformer.state @w.gradient gradient of @w storage @sum : tensor<8xf32>

// -----

// expected-error @below {{a parameter and what belongs to scales have no 'of', any other state has one}}
transformer.state @w.gradient gradient : tensor<8xf32>

// -----

transformer.state @w parameter : tensor<8xf32>
// expected-error @below {{a parameter and what belongs to scales have no 'of', any other state has one}}
transformer.state @v parameter of @w : tensor<8xf32>

// -----

func.func @load_s1() {
  // expected-error @below {{refers to @w, which is no state}}
  %0 = transformer.load @w : tensor<8xf32>
  return
}

// -----

func.func private @w()
func.func @load_s1() {
  // expected-error @below {{refers to @w, which is no state}}
  %0 = transformer.load @w : tensor<8xf32>
  return
}

// -----

transformer.state @w parameter : tensor<8xf32>
func.func @load_s2(%layer: index) {
  // expected-error @below {{gives a layer of @w, which has none}}
  %0 = transformer.load @w at %layer : tensor<8xf32>
  return
}

// -----

transformer.state @"{}.w" parameter layers 2 : tensor<8xf32>
func.func @load_s2() {
  // expected-error @below {{gives no layer of @"{}.w"}}
  %0 = transformer.load @"{}.w" : tensor<8xf32>
  return
}

// -----

transformer.state @w parameter : tensor<8xf32>
func.func @load_s3() {
  // expected-error @below {{has type 'tensor<4xf32>', but state @w is 'tensor<8xf32>'}}
  %0 = transformer.load @w : tensor<4xf32>
  return
}

// -----

func.func @store_s1(%x: tensor<8xf32>) {
  // expected-error @below {{refers to @w, which is no state}}
  transformer.store %x to @w : tensor<8xf32>
  return
}

// -----

transformer.state @w parameter : tensor<8xf32>
func.func @store_s2(%x: tensor<8xf32>, %layer: index) {
  // expected-error @below {{gives a layer of @w, which has none}}
  transformer.store %x to @w at %layer : tensor<8xf32>
  return
}

// -----

transformer.state @w parameter : tensor<8xf32>
func.func @store_s3(%x: tensor<4xf32>) {
  // expected-error @below {{has type 'tensor<4xf32>', but state @w is 'tensor<8xf32>'}}
  transformer.store %x to @w : tensor<4xf32>
  return
}

// -----

func.func @accumulate_s1(%x: tensor<8xf32>) {
  // expected-error @below {{refers to @w, which is no state}}
  transformer.accumulate %x into @w : tensor<8xf32>
  return
}

// -----

transformer.state @"{}.w" parameter layers 2 : tensor<8xf32>
func.func @accumulate_s2(%x: tensor<8xf32>) {
  // expected-error @below {{gives no layer of @"{}.w"}}
  transformer.accumulate %x into @"{}.w" : tensor<8xf32>
  return
}

// -----

// The layout is part of the type: a partial sum is added to a partial sum.
#m = #dist.mesh<["tp" = 2]>
transformer.state @w parameter : tensor<8xf32, #dist.layout<#m, [{}]>>
func.func @accumulate_s3(%x: tensor<8xf32, #dist.layout<#m, [{}], partial = ["tp"]>>) {
  // expected-error @below {{but state @w is}}
  transformer.accumulate %x into @w : tensor<8xf32, #dist.layout<#m, [{}], partial = ["tp"]>>
  return
}

// -----

func.func @zero_s1() {
  // expected-error @below {{refers to @w, which is no state}}
  transformer.zero @w
  return
}

// -----

func.func @loop_c1() {
  // expected-error @below {{must be over "layer" or "micro_batch", got "expert"}}
  transformer.loop "expert" 2 : () -> () {
  ^bb0(%i: index):
    transformer.yield
  }
  return
}

// -----

func.func @loop_c2_no_index() {
  // expected-error @below {{carries 0 values; the body needs an index and 0 arguments, and yields as many}}
  transformer.loop "layer" 2 : () -> () {
    transformer.yield
  }
  return
}

// -----

func.func @loop_c2_yields_less(%x: tensor<8xf32>) {
  // expected-error @below {{carries 1 values; the body needs an index and 1 arguments, and yields as many}}
  %0 = transformer.loop "layer" 2 carry(%x) : (tensor<8xf32>) -> tensor<8xf32> {
  ^bb0(%i: index, %a: tensor<8xf32>):
    transformer.yield
  }
  return
}

// -----

func.func @loop_c2_other_type(%x: tensor<8xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{carries a value of type 'tensor<8xf32>' as 'tensor<8xf32>', 'tensor<4xf32>' and 'tensor<8xf32>'}}
  %0 = transformer.loop "layer" 2 carry(%x) : (tensor<8xf32>) -> tensor<8xf32> {
  ^bb0(%i: index, %a: tensor<8xf32>):
    transformer.yield %y : tensor<4xf32>
  }
  return
}

// -----

func.func @loop_c2_no_yield() {
  // expected-error @below {{must end in a yield}}
  transformer.loop "layer" 2 : () -> () {
  ^bb0(%i: index):
    "other.end"() : () -> ()
  }
  return
}

// -----

func.func @loop_c3_no_stack(%x: tensor<8xf32>) {
  // expected-error @below {{collects 1 values into 0 stacks}}
  transformer.loop "layer" 2 : () -> () {
  ^bb0(%i: index):
    transformer.yield collect %x : tensor<8xf32>
  }
  return
}

// -----

func.func @loop_c3_other_count(%x: tensor<8xf32>) {
  // expected-error @below {{collects 'tensor<8xf32>' into '!transformer.stack<3 x tensor<8xf32>>'}}
  %0 = transformer.loop "layer" 2 : () -> !transformer.stack<3 x tensor<8xf32>> {
  ^bb0(%i: index):
    transformer.yield collect %x : tensor<8xf32>
  }
  return
}

// -----

func.func @loop_c4_collects_from_a_later_index(%x: tensor<8xf32>) {
  // expected-error @below {{begins at 1, so it cannot collect, nor have a limit}}
  %0 = transformer.loop "layer" 2 from 1 : () -> !transformer.stack<2 x tensor<8xf32>> {
  ^bb0(%i: index):
    transformer.yield collect %x : tensor<8xf32>
  }
  return
}

// -----

func.func @loop_c4_later_index_and_limit(%n: index) {
  // expected-error @below {{begins at 1, so it cannot collect, nor have a limit}}
  transformer.loop "layer" 2 from 1 up_to %n : () -> () {
  ^bb0(%i: index):
    transformer.yield
  }
  return
}

// -----

func.func @loop_count() {
  // expected-error @below {{attribute 'count' failed to satisfy constraint}}
  transformer.loop "layer" 0 : () -> () {
  ^bb0(%i: index):
    transformer.yield
  }
  return
}

// -----

func.func @get_c1(%x: !transformer.stack<2 x tensor<8xf32>>, %i: index) {
  // expected-error @below {{the result is an element of the stack}}
  %0 = "transformer.get"(%x, %i) : (!transformer.stack<2 x tensor<8xf32>>, index) -> tensor<4xf32>
  return
}

// -----

func.func @recompute_c1_argument(%x: tensor<8xf32>) {
  // expected-error @below {{needs a body with an argument of the type of each operand, which ends in a yield that collects nothing}}
  %0 = transformer.recompute %x because "test" : (tensor<8xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    transformer.yield %a : tensor<4xf32>
  }
  return
}

// -----

func.func @recompute_c1_collects(%x: tensor<8xf32>) {
  // expected-error @below {{needs a body with an argument of the type of each operand}}
  transformer.recompute %x because "test" : (tensor<8xf32>) -> () {
  ^bb0(%a: tensor<8xf32>):
    transformer.yield collect %a : tensor<8xf32>
  }
  return
}

// -----

func.func @recompute_c2(%x: tensor<8xf32>) {
  // expected-error @below {{yields 'tensor<8xf32>' as results of types 'tensor<4xf32>'}}
  %0 = transformer.recompute %x because "test" : (tensor<8xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<8xf32>):
    transformer.yield %a : tensor<8xf32>
  }
  return
}

// -----

func.func private @other(tensor<4xf32>) -> tensor<4xf32>
func.func @call_by_layer_c1(%x: tensor<8xf32>, %layer: index) {
  // expected-error @below {{calls @other, which is no function of type '(tensor<8xf32>) -> tensor<8xf32>'}}
  %0 = transformer.call_by_layer [@other] at %layer choices [0](%x) : (tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

func.func private @one(tensor<8xf32>) -> tensor<8xf32>
func.func @call_by_layer_c2(%x: tensor<8xf32>, %layer: index) {
  // expected-error @below {{chooses function 1 of 1}}
  %0 = transformer.call_by_layer [@one] at %layer choices [0, 1](%x) : (tensor<8xf32>) -> tensor<8xf32>
  return
}
