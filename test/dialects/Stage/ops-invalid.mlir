// One case per constraint of each op, and per way to break it.
//
// RUN: heddle-opt %s --allow-unregistered-dialect --split-input-file --verify-diagnostics

// table C1
// expected-error @below {{has layers of 1 places and slots of 2}}
stage.table @schedule micro_batches 1 layers [["0"]] rows ["F0 D0 O", "F0 D0 O"]

// -----

// table C1
// expected-error @below {{has layers of 0 places and slots of 0}}
stage.table @schedule micro_batches 1 layers [] rows []

// -----

// table C1
// expected-error @below {{has 1 chunks at one place and 2 at another}}
stage.table @schedule micro_batches 1 layers [["0"], ["1", "2"]] rows ["F0 D0 O", "F0 D0 O"]

// -----

// table C1
// expected-error @below {{expected layers "a..b", "a" or "", found "first"}}
stage.table @schedule micro_batches 1 layers [["0"], ["first"]] rows ["F0 D0 O", "F0 D0 O"]

// -----

// table C1
// expected-error @below {{expected layers "a..b", "a" or "", found "2..1"}}
stage.table @schedule micro_batches 1 layers [["0..1"], ["2..1"]] rows ["F0 D0 O", "F0 D0 O"]

// -----

// table C1
// expected-error @below {{has slots that cannot be read}}
stage.table @schedule micro_batches 1 layers [["0"]] rows ["F0 X0 O"]

// -----

// table C2: a layer is missing
// expected-error @below {{place 1 chunk 0 is stage 1 and has layers 2; the stages before it end with layer 0}}
stage.table @schedule micro_batches 1 layers [["0"], ["2"]] rows ["F0 D0 O", "F0 D0 O"]

// -----

// table C2: a layer is there twice
// expected-error @below {{place 1 chunk 0 is stage 1 and has layers 1..2; the stages before it end with layer 1}}
stage.table @schedule micro_batches 1 layers [["0..1"], ["1..2"]] rows ["F0 D0 O", "F0 D0 O"]

// -----

// table C2: layers follow the chain, not the places
// expected-error @below {{place 1 chunk 0 is stage 0 and has layers 1; the stages before it end with layer -1}}
stage.table @schedule micro_batches 1 layers [["0"], ["1"]] rows ["@1 F0 D0 O", "@0 F0 D0 O"]

// -----

// table C2: two chains
// expected-error @below {{one chain has 2 layers, another 3}}
stage.table @schedule micro_batches 2 layers [["0", "1..2"], ["1", "0"]] rows ["@0,1' F0 F1/1 D0 D1/1 O", "@1,0' F1/1 F0 D1/1 D0 O"]

// -----

// table C4: copies of a stage are equally far from the two ends
// expected-error @below {{has 2 chains; expected two, whose stages are equally far from the two ends}}
stage.table @schedule micro_batches 2 layers [["0", "0"], ["1", "1"]] rows ["@0,0' F0 F1/1 D0 D1/1 O", "@1,1' F0 F1/1 D0 D1/1 O"]

// -----

// table C4: copies of a stage hold the same layers
// expected-error @below {{has layers 0 in stage 0 of one chain and 0..1 in that of the other}}
stage.table @schedule micro_batches 2 layers [["0", "2"], ["1..2", "0..1"]] rows ["@0,1' F0 F1/1 D0 D1/1 O", "@1,0' F0 F1/1 D0 D1/1 O"]

// -----

// table C3: a slot is missing
// expected-error @below {{rank 1: the input gradient (B or D) of micro-batch 0 on chunk 0 is missing}}
stage.table @schedule micro_batches 1 layers [["0"], ["1"]] rows ["F0 D0 O", "F0 O"]

// -----

// table C3: a place waits for another that waits for it
// expected-error @below {{stuck in a circle of}}
stage.table @schedule micro_batches 2 layers [["0"], ["1"]] rows ["F0 D0 F1 D1 O", "F0 F1 D1 D0 O"]

// -----

// table: a step has micro-batches
// expected-error @below {{attribute 'micro_batches' failed to satisfy constraint}}
stage.table @schedule micro_batches 0 layers [["0"]] rows ["O"]

// -----

func.func @run_c1_forward_receives_what_is_sent(%x: tensor<8xf32>) {
  // expected-error @below {{forward needs arguments ('index', 'index', 'tensor<8xf32>'), and has ('index', 'index')}}
  stage.run @schedule : () -> () forward {
  ^bb0(%chunk: index, %i: index):
    stage.yield send %x : tensor<8xf32>
  } backward {
  ^bb0(%chunk: index, %i: index):
    stage.yield
  }
  return
}

// -----

func.func @run_c1_backward_gets_what_is_carried(%x: tensor<f32>) {
  // expected-error @below {{backward needs arguments ('index', 'index', 'tensor<f32>'), and has ('index', 'index')}}
  %0 = stage.run @schedule carry(%x) : (tensor<f32>) -> tensor<f32> forward {
  ^bb0(%chunk: index, %i: index):
    stage.yield
  } backward {
  ^bb0(%chunk: index, %i: index):
    stage.yield %x : tensor<f32>
  }
  return
}

// -----

func.func @run_c1_backward_gets_what_is_saved(%x: tensor<8xf32>) {
  // expected-error @below {{backward needs arguments ('index', 'index', 'tensor<8xf32>'), and has ('index', 'index', 'tensor<4xf32>')}}
  stage.run @schedule : () -> () forward {
  ^bb0(%chunk: index, %i: index):
    stage.yield save %x : tensor<8xf32>
  } backward {
  ^bb0(%chunk: index, %i: index, %saved: tensor<4xf32>):
    stage.yield
  }
  return
}

// -----

func.func @run_c1_weight_gets_what_both_save(%x: tensor<8xf32>) {
  // expected-error @below {{weight needs arguments ('index', 'index', 'tensor<8xf32>', 'tensor<8xf32>'), and has ('index', 'index', 'tensor<8xf32>')}}
  stage.run @schedule : () -> () forward {
  ^bb0(%chunk: index, %i: index):
    stage.yield save %x : tensor<8xf32>
  } backward {
  ^bb0(%chunk: index, %i: index, %saved: tensor<8xf32>):
    stage.yield save %saved : tensor<8xf32>
  } weight {
  ^bb0(%chunk: index, %i: index, %saved: tensor<8xf32>):
    stage.yield
  }
  return
}

// -----

func.func @run_c1_no_indices() {
  // expected-error @below {{forward needs arguments ('index', 'index'), and has ()}}
  stage.run @schedule : () -> () forward {
    stage.yield
  } backward {
  ^bb0(%chunk: index, %i: index):
    stage.yield
  }
  return
}

// -----

func.func @run_c2_no_yield() {
  // expected-error @below {{needs regions that end in a yield}}
  stage.run @schedule : () -> () forward {
  ^bb0(%chunk: index, %i: index):
    "other.end"() : () -> ()
  } backward {
  ^bb0(%chunk: index, %i: index):
    stage.yield
  }
  return
}

// -----

func.func @run_c2_forward_carries(%x: tensor<f32>) {
  // expected-error @below {{carries ('tensor<f32>'): backward yields those types, forward none, and results have them}}
  %0 = stage.run @schedule carry(%x) : (tensor<f32>) -> tensor<f32> forward {
  ^bb0(%chunk: index, %i: index):
    stage.yield %x : tensor<f32>
  } backward {
  ^bb0(%chunk: index, %i: index, %s: tensor<f32>):
    stage.yield %s : tensor<f32>
  }
  return
}

// -----

func.func @run_c2_backward_yields_less(%x: tensor<f32>) {
  // expected-error @below {{carries ('tensor<f32>'): backward yields those types, forward none, and results have them}}
  %0 = stage.run @schedule carry(%x) : (tensor<f32>) -> tensor<f32> forward {
  ^bb0(%chunk: index, %i: index):
    stage.yield
  } backward {
  ^bb0(%chunk: index, %i: index, %s: tensor<f32>):
    stage.yield
  }
  return
}

// -----

func.func @run_c2_other_results(%x: tensor<f32>) {
  // expected-error @below {{carries ('tensor<f32>'): backward yields those types, forward none, and results have them}}
  %0 = stage.run @schedule carry(%x) : (tensor<f32>) -> tensor<i64> forward {
  ^bb0(%chunk: index, %i: index):
    stage.yield
  } backward {
  ^bb0(%chunk: index, %i: index, %s: tensor<f32>):
    stage.yield %s : tensor<f32>
  }
  return
}

// -----

func.func @run_c2_weight_yields(%x: tensor<8xf32>) {
  // expected-error @below {{weight yields values}}
  stage.run @schedule : () -> () forward {
  ^bb0(%chunk: index, %i: index):
    stage.yield
  } backward {
  ^bb0(%chunk: index, %i: index):
    stage.yield
  } weight {
  ^bb0(%chunk: index, %i: index):
    stage.yield send %x : tensor<8xf32>
  }
  return
}

// -----

func.func @run_c2_saves_for_no_weight(%x: tensor<8xf32>) {
  // expected-error @below {{backward saves values, but there is no weight}}
  stage.run @schedule : () -> () forward {
  ^bb0(%chunk: index, %i: index):
    stage.yield
  } backward {
  ^bb0(%chunk: index, %i: index):
    stage.yield save %x : tensor<8xf32>
  }
  return
}

// -----

func.func @run_c3_no_table() {
  // expected-error @below {{refers to @schedule, which is no table of slots}}
  stage.run @schedule : () -> () forward {
  ^bb0(%chunk: index, %i: index):
    stage.yield
  } backward {
  ^bb0(%chunk: index, %i: index):
    stage.yield
  }
  return
}

// -----

func.func @where_c1_no_otherwise(%chunk: index, %x: tensor<8xf32>) {
  // expected-error @below {{has results, but nothing where it is otherwise}}
  %0 = stage.where head at %chunk -> (tensor<8xf32>) {
    stage.yield %x : tensor<8xf32>
  }
  return
}

// -----

func.func @where_c1_other_types(%chunk: index, %x: tensor<8xf32>, %y: tensor<4xf32>) {
  // expected-error @below {{has results ('tensor<8xf32>'), and yields ('tensor<4xf32>')}}
  %0 = stage.where head at %chunk -> (tensor<8xf32>) {
    stage.yield %x : tensor<8xf32>
  } else {
    stage.yield %y : tensor<4xf32>
  }
  return
}

// -----

func.func @where_c1_sends(%chunk: index, %x: tensor<8xf32>) {
  // expected-error @below {{sends or saves values, which only a run does}}
  stage.where head at %chunk {
    stage.yield send %x : tensor<8xf32>
  }
  return
}

// -----

func.func @where_c1_no_yield(%chunk: index) {
  // expected-error @below {{needs regions that end in a yield}}
  stage.where head at %chunk {
    "other.end"() : () -> ()
  }
  return
}

// -----

func.func @where_c2_in_no_run() {
  // expected-error @below {{asks for a chunk's last slot, but is in no run}}
  stage.where last {
    stage.yield
  }
  return
}

// -----

stage.table @schedule micro_batches 1 layers [["0"]] rows ["F0 D0 O"]
func.func @where_c2_names_a_chunk() {
  stage.run @schedule : () -> () forward {
  ^bb0(%chunk: index, %i: index):
    // expected-error @below {{names a chunk; leave the chunk out}}
    stage.where last at %chunk {
      stage.yield
    }
    stage.yield
  } backward {
  ^bb0(%chunk: index, %i: index):
    stage.yield
  }
  return
}

// -----

func.func @sum_ends_one_type(%x: tensor<8xf32>) {
  // expected-error @below {{failed to verify that all of {input, result} have same type}}
  %0 = "stage.sum_ends"(%x) : (tensor<8xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @yield_of_no_region() {
  // expected-error @below {{expects parent op to be one of 'stage.run, stage.where'}}
  stage.yield
}
