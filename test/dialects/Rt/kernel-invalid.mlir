// RUN: heddle-opt %s --split-input-file --verify-diagnostics

// What kernels and their launches may not say, by label.

// kernel C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  // expected-error @below {{operand 'a b' is no identifier of C++}}
  rt.kernel @k elementwise(in %x: full f32, out "a b": full f32) {
    rt.yield %x : f32
  }
  rt.func @step() {
  }
}

// -----

// kernel C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  // expected-error @below {{two operands are called 'x'}}
  rt.kernel @k elementwise(in %x: full f32, out "x": full f32) {
    rt.yield %x : f32
  }
  rt.func @step() {
  }
}

// -----

// kernel C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  // expected-error @below {{operand 'x' is gathered and can only be 'in'}}
  rt.kernel @k rowwise(inout %x: gathered f32) {
    rt.yield %x : f32
  }
  rt.func @step() {
  }
}

// -----

// kernel C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  // expected-error @below {{operand 'c' is a constant and must be f32, got 'i32'}}
  rt.kernel @k elementwise(in %x: full f32, in %c: constant i32, out "y": full f32) {
    rt.yield %x : f32
  }
  rt.func @step() {
  }
}

// -----

// kernel C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  // expected-error @below {{operand 'c' is a number and must be i32, got 'f32'}}
  rt.kernel @k elementwise(in %x: full f32, in %c: column_index f32, out "y": full f32) {
    rt.yield %x : f32
  }
  rt.func @step() {
  }
}

// -----

// kernel C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  // expected-error @below {{operand 'c' must be of a float type, i8, i32 or i64, got 'i16'}}
  rt.kernel @k elementwise(in %x: full f32, in %c: full i16, out "y": full f32) {
    rt.yield %x : f32
  }
  rt.func @step() {
  }
}

// -----

// kernel C3
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.kernel @k elementwise(in %x: full f32, out "y": full f32) {
    // expected-error @below {{the kernel writes 1 operands, got 0 values}}
    rt.yield
  }
  rt.func @step() {
  }
}

// -----

// kernel C3
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.kernel @k elementwise(in %x: full f32, out "y": full i32) {
    // expected-error @below {{operand 'y' needs a value of type 'i32', got 'f32'}}
    rt.yield %x : f32
  }
  rt.func @step() {
  }
}

// -----

// kernel C4
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  // expected-error @below {{writes no operand}}
  rt.kernel @k elementwise(in %x: full f32) {
    rt.yield
  }
  rt.func @step() {
  }
}

// -----

// kernel C4
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  // expected-error @below {{operand 'y' is per_row, which columnwise cannot write}}
  rt.kernel @k columnwise(in %x: full f32, out "y": per_row f32) {
    rt.yield %x : f32
  }
  rt.func @step() {
  }
}

// -----

// kernel C4
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  // expected-error @below {{operand 'w' is per_column, but elementwise knows no rows}}
  rt.kernel @k elementwise(in %x: full f32, in %w: per_column f32, out "y": full f32) {
    rt.yield %x : f32
  }
  rt.func @step() {
  }
}

// -----

// kernel C5
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  // expected-error @below {{elementwise needs no reduction, got 1 rt.reduce and 0 rt.sum}}
  rt.kernel @k elementwise(in %x: full f32, out "y": full f32) {
    %s = rt.reduce [0.0 : f32] -> f32 accumulate {
    ^bb0(%a: f32):
      %n = arith.addf %a, %x : f32
      rt.yield %n : f32
    } combine {
    ^bb0(%a: f32, %b: f32):
      %n = arith.addf %a, %b : f32
      rt.yield %n : f32
    }
    rt.yield %x : f32
  }
  rt.func @step() {
  }
}

// -----

// kernel C5
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  // expected-error @below {{columnwise needs one rt.reduce, got 0 rt.reduce and 0 rt.sum}}
  rt.kernel @k columnwise(in %x: per_column f32, out "y": per_column f32) {
    rt.yield %x : f32
  }
  rt.func @step() {
  }
}

// -----

// kernel C5
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  // expected-error @below {{reduce_all needs one rt.sum, got 0 rt.reduce and 0 rt.sum}}
  rt.kernel @k reduce_all(in %x: scalar f32, out "y": scalar f32) {
    rt.yield %x : f32
  }
  rt.func @step() {
  }
}

// -----

// kernel C5
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  // expected-error @below {{rowwise needs no rt.sum, got 0 rt.reduce and 1 rt.sum}}
  rt.kernel @k rowwise(in %x: full f32, out "y": full f32) {
    %t = rt.sum %x : f32 -> f64
    rt.yield %x : f32
  }
  rt.func @step() {
  }
}

// -----

// kernel C6
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.kernel @k elementwise(in %x: full f32, out "y": full f32) {
    // expected-error @below {{cannot stand in a kernel, which consists of arith and math ops on scalars}}
    %i = rt.rank_index ["tp"]
    rt.yield %x : f32
  }
  rt.func @step() {
  }
}

// -----

// kernel C7
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.kernel @k rowwise(in %x: full f32, out "y": per_row f32) {
    %s = rt.reduce [0.0 : f32] -> f32 accumulate {
    ^bb0(%a: f32):
      %n = arith.addf %a, %x : f32
      rt.yield %n : f32
    } combine {
    ^bb0(%a: f32, %b: f32):
      %n = arith.addf %a, %b : f32
      rt.yield %n : f32
    }
    %z = arith.addf %s, %x : f32
    // expected-error @below {{operand 'y' is written once per reduction, but its value differs along what is reduced}}
    rt.yield %z : f32
  }
  rt.func @step() {
  }
}

// -----

// reduce C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.kernel @k rowwise(in %x: full f32, out "y": per_row f32) {
    // expected-error @below {{needs one identity per result and at least one, got 2 for 1}}
    %s = rt.reduce [0.0 : f32, 0.0 : f32] -> f32 accumulate {
    ^bb0(%a: f32):
      %n = arith.addf %a, %x : f32
      rt.yield %n : f32
    } combine {
    ^bb0(%a: f32, %b: f32):
      %n = arith.addf %a, %b : f32
      rt.yield %n : f32
    }
    rt.yield %s : f32
  }
  rt.func @step() {
  }
}

// -----

// reduce C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.kernel @k rowwise(in %x: full f32, out "y": per_row f32) {
    // expected-error @below {{identity 0 : i32 is not of type 'f32'}}
    %s = rt.reduce [0 : i32] -> f32 accumulate {
    ^bb0(%a: f32):
      %n = arith.addf %a, %x : f32
      rt.yield %n : f32
    } combine {
    ^bb0(%a: f32, %b: f32):
      %n = arith.addf %a, %b : f32
      rt.yield %n : f32
    }
    rt.yield %s : f32
  }
  rt.func @step() {
  }
}

// -----

// reduce C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.kernel @k rowwise(in %x: full f32, out "y": per_row f32) {
    // expected-error @below {{'combine' must take 2 states and yield one}}
    %s = rt.reduce [0.0 : f32] -> f32 accumulate {
    ^bb0(%a: f32):
      %n = arith.addf %a, %x : f32
      rt.yield %n : f32
    } combine {
    ^bb0(%a: f32):
      %n = arith.addf %a, %a : f32
      rt.yield %n : f32
    }
    rt.yield %s : f32
  }
  rt.func @step() {
  }
}

// -----

// reduce C3
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.kernel @k rowwise(in %x: full f32, out "y": per_row f32) {
    // expected-error @below {{'combine' may use nothing from outside}}
    %s = rt.reduce [0.0 : f32] -> f32 accumulate {
    ^bb0(%a: f32):
      %n = arith.addf %a, %x : f32
      rt.yield %n : f32
    } combine {
    ^bb0(%a: f32, %b: f32):
      %n = arith.addf %a, %x : f32
      rt.yield %n : f32
    }
    rt.yield %s : f32
  }
  rt.func @step() {
  }
}

// -----

// sum C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.kernel @k reduce_all(in %x: full f32, out "y": scalar f32) {
    // expected-error @below {{cannot sum 'f32' in 'i64'}}
    %t = rt.sum %x : f32 -> i64
    %y = arith.sitofp %t : i64 to f32
    rt.yield %y : f32
  }
  rt.func @step() {
  }
}

// -----

// kernel_launch C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.kernel @add elementwise(in %a: full f32, in %b: full f32, out "sum": full f32) {
    %y = arith.addf %a, %b : f32
    rt.yield %y : f32
  }
  rt.func @f(%x: !rt.buf<4x8xf32>) {
    // expected-error @below {{the program has no kernel @none}}
    rt.kernel_launch "l" @none rows 1 columns 32 (%x) on "compute" : !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// kernel_launch C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.kernel @add elementwise(in %a: full f32, in %b: full f32, out "sum": full f32) {
    %y = arith.addf %a, %b : f32
    rt.yield %y : f32
  }
  rt.func @f(%x: !rt.buf<4x8xf32>) {
    // expected-error @below {{@add takes 3 operands and 0 constants, got 1 and 0}}
    rt.kernel_launch "l" @add rows 1 columns 32 (%x) on "compute" : !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// kernel_launch C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.kernel @add elementwise(in %a: full f32, in %b: full f32, out "sum": full f32) {
    %y = arith.addf %a, %b : f32
    rt.yield %y : f32
  }
  rt.func @f(%x: !rt.buf<4x8xbf16>, %y: !rt.buf<4x8xf32>, %z: !rt.buf<4x8xf32>) {
    // expected-error @below {{operand 'a' needs a buffer of 'f32', got}}
    rt.kernel_launch "l" @add rows 1 columns 32 (%x, %y, %z) on "compute" : !rt.buf<4x8xbf16>, !rt.buf<4x8xf32>, !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// kernel_launch C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.kernel @rows rowwise(in %x: full f32, in %r: per_row f32, in %c: constant f32, in %n: integer i32, out "y": full f32) {
    %z = arith.addf %x, %r : f32
    rt.yield %z : f32
  }
  rt.func @f(%x: !rt.buf<4x8xf32>, %r: !rt.buf<4xf32>, %n: index, %y: !rt.buf<4x8xf32>) {
    // expected-error @below {{constants must be f32, got 1 : i32}}
    rt.kernel_launch "l" @rows rows 4 columns 8 (%x, %r, %n, %y) constants [1 : i32] on "compute" : !rt.buf<4x8xf32>, !rt.buf<4xf32>, index, !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// kernel_launch C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.kernel @rows rowwise(in %x: full f32, in %r: per_row f32, in %c: constant f32, in %n: integer i32, out "y": full f32) {
    %z = arith.addf %x, %r : f32
    rt.yield %z : f32
  }
  rt.func @f(%x: !rt.buf<4x8xf32>, %r: !rt.buf<4xf32>, %y: !rt.buf<4x8xf32>) {
    // expected-error @below {{operand 'n' is a number, got}}
    rt.kernel_launch "l" @rows rows 4 columns 8 (%x, %r, %r, %y) constants [1.0 : f32] on "compute" : !rt.buf<4x8xf32>, !rt.buf<4xf32>, !rt.buf<4xf32>, !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// kernel_launch C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.kernel @add elementwise(in %a: full f32, in %b: full f32, out "sum": full f32) {
    %y = arith.addf %a, %b : f32
    rt.yield %y : f32
  }
  rt.func @f(%x: !rt.buf<4x8xf32>, %y: !rt.buf<4x8xf32>, %z: !rt.buf<4x8xf32>) {
    // expected-error @below {{operand 'a' is full and needs 16 elements}}
    rt.kernel_launch "l" @add rows 1 columns 16 (%x, %y, %z) on "compute" : !rt.buf<4x8xf32>, !rt.buf<4x8xf32>, !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// kernel_launch C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.kernel @rows rowwise(in %x: full f32, in %r: per_row f32, in %c: constant f32, in %n: integer i32, out "y": full f32) {
    %z = arith.addf %x, %r : f32
    rt.yield %z : f32
  }
  rt.func @f(%x: !rt.buf<4x8xf32>, %r: !rt.buf<5xf32>, %n: index, %y: !rt.buf<4x8xf32>) {
    // expected-error @below {{operand 'r' is per_row and needs 4 elements}}
    rt.kernel_launch "l" @rows rows 4 columns 8 (%x, %r, %n, %y) constants [1.0 : f32] on "compute" : !rt.buf<4x8xf32>, !rt.buf<5xf32>, index, !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// kernel_launch C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.kernel @embed rowwise(in %x: gathered f32, out "y": full f32) {
    rt.yield %x : f32
  }
  rt.func @f(%t: !rt.buf<9xf32>, %i: !rt.buf<4xi32>, %n: index, %y: !rt.buf<4x8xf32>) {
    // expected-error @below {{operand 'x' needs a table with rows of 8 elements}}
    rt.kernel_launch "l" @embed rows 4 columns 8 (%t, %i, %n, %y) on "compute" : !rt.buf<9xf32>, !rt.buf<4xi32>, index, !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// kernel_launch C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.kernel @embed rowwise(in %x: gathered f32, out "y": full f32) {
    rt.yield %x : f32
  }
  rt.func @f(%t: !rt.buf<2x8xf32>, %i: !rt.buf<3xi32>, %n: index, %y: !rt.buf<4x8xf32>) {
    // expected-error @below {{operand 'x' needs an index of 4 i32}}
    rt.kernel_launch "l" @embed rows 4 columns 8 (%t, %i, %n, %y) on "compute" : !rt.buf<2x8xf32>, !rt.buf<3xi32>, index, !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// kernel_launch C3
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.kernel @add elementwise(in %a: full f32, in %b: full f32, out "sum": full f32) {
    %y = arith.addf %a, %b : f32
    rt.yield %y : f32
  }
  rt.func @f(%x: !rt.buf<4x8xf32, strides [16, 1]>, %y: !rt.buf<4x8xf32>, %z: !rt.buf<4x8xf32>) {
    // expected-error @below {{operand 'a' needs a buffer without gaps}}
    rt.kernel_launch "l" @add rows 1 columns 32 (%x, %y, %z) on "compute" : !rt.buf<4x8xf32, strides [16, 1]>, !rt.buf<4x8xf32>, !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// kernel_launch C3
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.kernel @rows rowwise(in %x: full f32, in %r: per_row f32, in %c: constant f32, in %n: integer i32, out "y": full f32) {
    %z = arith.addf %x, %r : f32
    rt.yield %z : f32
  }
  rt.func @f(%x: !rt.buf<2x2x8xf32, strides [64, 24, 1]>, %r: !rt.buf<4xf32>, %n: index, %y: !rt.buf<4x8xf32>) {
    // expected-error @below {{operand 'x' has rows that do not lie at one distance}}
    rt.kernel_launch "l" @rows rows 4 columns 8 (%x, %r, %n, %y) constants [1.0 : f32] on "compute" : !rt.buf<2x2x8xf32, strides [64, 24, 1]>, !rt.buf<4xf32>, index, !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// kernel_launch C3
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.kernel @rows rowwise(in %x: full f32, in %r: per_row f32, in %c: constant f32, in %n: integer i32, out "y": full f32) {
    %z = arith.addf %x, %r : f32
    rt.yield %z : f32
  }
  rt.func @f(%x: !rt.buf<4x8xf32>, %r: !rt.buf<4xf32>, %n: index, %y: !rt.buf<2x2x8xf32, strides [8, 0, 1]>) {
    // expected-error @below {{operand 'y' is written, but several rows share one}}
    rt.kernel_launch "l" @rows rows 4 columns 8 (%x, %r, %n, %y) constants [1.0 : f32] on "compute" : !rt.buf<4x8xf32>, !rt.buf<4xf32>, index, !rt.buf<2x2x8xf32, strides [8, 0, 1]>
  }
  rt.func @step() {
  }
}

// -----

// kernel_launch C4
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.kernel @add elementwise(in %a: full f32, in %b: full f32, out "sum": full f32) {
    %y = arith.addf %a, %b : f32
    rt.yield %y : f32
  }
  rt.func @f(%x: !rt.buf<4x8xf32>, %y: !rt.buf<4x8xf32>) {
    // expected-error @below {{operand 'sum' is a buffer that another operand writes or reads; make them one 'inout'}}
    rt.kernel_launch "l" @add rows 1 columns 32 (%x, %y, %x) on "compute" : !rt.buf<4x8xf32>, !rt.buf<4x8xf32>, !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// kernel_launch C5
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.kernel @add elementwise(in %a: full f32, in %b: full f32, out "sum": full f32) {
    %y = arith.addf %a, %b : f32
    rt.yield %y : f32
  }
  rt.func @f(%x: !rt.buf<4x8xf32>, %y: !rt.buf<4x8xf32>, %z: !rt.buf<4x8xf32>) {
    // expected-error @below {{needs at least one row and column, got 0 x 8}}
    rt.kernel_launch "l" @add rows 0 columns 8 (%x, %y, %z) on "compute" : !rt.buf<4x8xf32>, !rt.buf<4x8xf32>, !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// kernel_launch C5
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.kernel @add elementwise(in %a: full f32, in %b: full f32, out "sum": full f32) {
    %y = arith.addf %a, %b : f32
    rt.yield %y : f32
  }
  rt.func @f(%x: !rt.buf<4x8xf32>, %y: !rt.buf<4x8xf32>, %z: !rt.buf<4x8xf32>) {
    // expected-error @below {{the program has no stream 'comm'}}
    rt.kernel_launch "l" @add rows 1 columns 32 (%x, %y, %z) on "comm" : !rt.buf<4x8xf32>, !rt.buf<4x8xf32>, !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// kernel_launch C6
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.kernel @columns columnwise(in %x: full f32, out "y": per_column f32) {
    %s = rt.reduce [0.0 : f32] -> f32 accumulate {
    ^bb0(%a: f32):
      %n = arith.addf %a, %x : f32
      rt.yield %n : f32
    } combine {
    ^bb0(%a: f32, %b: f32):
      %n = arith.addf %a, %b : f32
      rt.yield %n : f32
    }
    rt.yield %s : f32
  }
  rt.func @f(%x: !rt.buf<4x8xf32>, %y: !rt.buf<8xf32>) {
    // expected-error @below {{needs a workspace of 32 bytes}}
    rt.kernel_launch "l" @columns rows 4 columns 8 (%x, %y) on "compute" : !rt.buf<4x8xf32>, !rt.buf<8xf32>
  }
  rt.func @step() {
  }
}

// -----

// kernel_launch C6
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.kernel @columns columnwise(in %x: full f32, out "y": per_column f32) {
    %s = rt.reduce [0.0 : f32] -> f32 accumulate {
    ^bb0(%a: f32):
      %n = arith.addf %a, %x : f32
      rt.yield %n : f32
    } combine {
    ^bb0(%a: f32, %b: f32):
      %n = arith.addf %a, %b : f32
      rt.yield %n : f32
    }
    rt.yield %s : f32
  }
  rt.func @f(%x: !rt.buf<4x8xf32>, %y: !rt.buf<8xf32>, %w: !rt.buf<4xf32>) {
    // expected-error @below {{needs a workspace of 32 bytes in f32 (columnwise) or i64 (reduce_all)}}
    rt.kernel_launch "l" @columns rows 4 columns 8 (%x, %y) workspace %w on "compute" : !rt.buf<4x8xf32>, !rt.buf<8xf32> : !rt.buf<4xf32>
  }
  rt.func @step() {
  }
}
