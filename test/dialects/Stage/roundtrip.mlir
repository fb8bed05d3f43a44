// Every op prints as documented, and parses back to the same text.
//
// RUN: heddle-opt %s | heddle-opt | FileCheck %s
// RUN: heddle-opt %s --mlir-print-op-generic | heddle-opt | FileCheck %s

// CHECK: stage.table @schedule micro_batches 2 layers {{\[}}["0..1"], ["2"]] rows ["F0 F1 D0 D1 O", "F0 D0 F1 D1 O"]
stage.table @schedule micro_batches 2 layers [["0..1"], ["2"]] rows ["F0 F1 D0 D1 O", "F0 D0 F1 D1 O"]

// Two chunks, forth and back; a stage may have no layers.
//
// CHECK: stage.table @forth_and_back micro_batches 1 layers {{\[}}["0", "3..4"], ["1..2", ""]] rows ["@0,3 F0 F0/1 B0/1 B0 W0 W0/1 O", "@1,2 F0 F0/1 D0/1 D0 O"]
stage.table @forth_and_back micro_batches 1 layers [["0", "3..4"], ["1..2", ""]] rows ["@0,3 F0 F0/1 B0/1 B0 W0 W0/1 O", "@1,2 F0 F0/1 D0/1 D0 O"]

// CHECK-LABEL: func.func @run(
// CHECK-NEXT:    %0 = stage.run @schedule carry(%arg0) : (tensor<f32>) -> tensor<f32> forward {
// CHECK-NEXT:    ^bb0(%chunk: index, %i: index, %arg1: tensor<4x8xf32>):
// CHECK-NEXT:      stage.yield send %arg1 : tensor<4x8xf32> save %arg1 : tensor<4x8xf32>
// CHECK-NEXT:    } backward {
// CHECK-NEXT:    ^bb0(%chunk: index, %i: index, %arg1: tensor<f32>, %arg2: tensor<4x8xf32>, %arg3: tensor<4x8xf32>):
// CHECK-NEXT:      stage.yield %arg1 : tensor<f32> send %arg2 : tensor<4x8xf32>
// CHECK-NEXT:    }
func.func @run(%loss: tensor<f32>) {
  %sum = stage.run @schedule carry(%loss) : (tensor<f32>) -> tensor<f32> forward {
  ^bb0(%chunk: index, %i: index, %x: tensor<4x8xf32>):
    stage.yield send %x : tensor<4x8xf32> save %x : tensor<4x8xf32>
  } backward {
  ^bb0(%chunk: index, %i: index, %s: tensor<f32>, %dx: tensor<4x8xf32>, %x: tensor<4x8xf32>):
    stage.yield %s : tensor<f32> send %dx : tensor<4x8xf32>
  }
  return
}

// CHECK-LABEL: func.func @run_with_weight(
// CHECK-NEXT:    stage.run @schedule : () -> () forward {
// CHECK-NEXT:    ^bb0(%chunk: index, %i: index, %arg0: tensor<4x8xf32>):
// CHECK-NEXT:      stage.yield send %arg0 : tensor<4x8xf32> save %arg0 : tensor<4x8xf32>
// CHECK-NEXT:    } backward {
// CHECK-NEXT:    ^bb0(%chunk: index, %i: index, %arg0: tensor<4x8xf32>, %arg1: tensor<4x8xf32>):
// CHECK-NEXT:      stage.yield send %arg0 : tensor<4x8xf32> save %arg0 : tensor<4x8xf32>
// CHECK-NEXT:    } weight {
// CHECK-NEXT:    ^bb0(%chunk: index, %i: index, %arg0: tensor<4x8xf32>, %arg1: tensor<4x8xf32>):
// CHECK-NEXT:      stage.where last {
// CHECK-NEXT:        stage.yield
// CHECK-NEXT:      }
// CHECK-NEXT:      stage.yield
// CHECK-NEXT:    }
func.func @run_with_weight() {
  stage.run @schedule : () -> () forward {
  ^bb0(%chunk: index, %i: index, %x: tensor<4x8xf32>):
    stage.yield send %x : tensor<4x8xf32> save %x : tensor<4x8xf32>
  } backward {
  ^bb0(%chunk: index, %i: index, %dx: tensor<4x8xf32>, %x: tensor<4x8xf32>):
    stage.yield send %dx : tensor<4x8xf32> save %dx : tensor<4x8xf32>
  } weight {
  ^bb0(%chunk: index, %i: index, %x: tensor<4x8xf32>, %dx: tensor<4x8xf32>):
    stage.where last {
      stage.yield
    }
    stage.yield
  }
  return
}

// CHECK-LABEL: func.func @where(
func.func @where(%chunk: index, %y: tensor<4x8xf32>) {
  // CHECK-NEXT: %0 = stage.where embedding at %arg0 -> (tensor<4x8xf32>) {
  // CHECK-NEXT:   stage.yield %arg1 : tensor<4x8xf32>
  // CHECK-NEXT: } else {
  // CHECK-NEXT:   %1 = stage.undefined : tensor<4x8xf32>
  // CHECK-NEXT:   stage.yield %1 : tensor<4x8xf32>
  // CHECK-NEXT: }
  %x = stage.where embedding at %chunk -> (tensor<4x8xf32>) {
    stage.yield %y : tensor<4x8xf32>
  } else {
    %nothing = stage.undefined : tensor<4x8xf32>
    stage.yield %nothing : tensor<4x8xf32>
  }
  // CHECK-NEXT: stage.where head at %arg0 {
  // CHECK-NEXT:   stage.yield
  // CHECK-NEXT: }
  stage.where head at %chunk {
    stage.yield
  }
  // CHECK-NEXT: stage.where ends {
  stage.where ends {
    stage.yield
  }
  // CHECK: stage.where predecessor at %arg0 {
  stage.where predecessor at %chunk {
    stage.yield
  }
  // CHECK: stage.where successor at %arg0 {
  stage.where successor at %chunk {
    stage.yield
  }
  return
}

// CHECK-LABEL: func.func @layers(
func.func @layers(%i: index, %chunk: index) {
  // CHECK-NEXT: {{.*}} = stage.layers at %arg1
  %n = stage.layers at %chunk
  // CHECK-NEXT: {{.*}} = stage.layers{{$}}
  %all = stage.layers
  // CHECK-NEXT: {{.*}} = stage.layer %arg0 of %arg1
  %held = stage.layer %i of %chunk
  return
}

// CHECK-LABEL: func.func @sum_ends(
func.func @sum_ends(%gradient: tensor<9x8xf32>) {
  // CHECK-NEXT: {{.*}} = stage.sum_ends %arg0 : tensor<9x8xf32>
  %sum = stage.sum_ends %gradient : tensor<9x8xf32>
  return
}
