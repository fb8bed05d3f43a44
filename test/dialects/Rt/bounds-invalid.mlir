// RUN: heddle-opt %s --split-input-file --verify-diagnostics

// Numbers whose sums and products leave 64 bits: each is refused by itself, none wraps around into one that fits.

// program C1
// expected-error @below {{the mesh has more than 2147483648 ranks}}
rt.program @p mesh [#rt.axis<"dp", 2147483648>, #rt.axis<"tp", 8589934592>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step {
  rt.func @step() {
  }
}

// -----

// program C6
// expected-error @below {{has 65537 stages, expected at most 65536}}
rt.program @p mesh [#rt.axis<"pp", 65537>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step stages "pp" {
  rt.func @step() {
  }
}

// -----

// program C1
// expected-error @below {{arena 'a' has 9223372036854775807 bytes, expected 0 to 1152921504606846976}}
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 9223372036854775807>] streams [#rt.stream<"compute">] communicators [] events [] entry @step {
  rt.func @step() {
  }
}

// -----

// buffer C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step {
  rt.func @step() {
    // expected-error @below {{leads 9223372036854775804 further, expected at most 1152921504606846976}}
    %x = rt.buffer "x" because "y" arena "a" at 9223372036854775804 : !rt.buf<4x8xf32>
  }
}

// -----

// view C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>) {
    // expected-error @below {{leads 4611686018427387904 further}}
    %row = rt.view %x at 4611686018427387904 : !rt.buf<4x8xf32> -> !rt.buf<8xf32>
  }
  rt.func @step() {
  }
}

// -----

// T5
// expected-error @below {{a buffer has at most 9007199254740992 elements}}
module attributes {test.type = !rt.buf<4294967296x4294967296xf32>} {}

// -----

// T5
// expected-error @below {{a buffer has at most 9007199254740992 elements}}
module attributes {test.type = !rt.buf<4294967296x4294967296x0xf32>} {}

// -----

// T5
// expected-error @below {{a buffer spans at most 9007199254740992 elements}}
module attributes {test.type = !rt.buf<4x8xf32, strides [4611686018427387904, 1]>} {}

// -----

// gemm C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %w: !rt.buf<8x8xf32>, %h: !rt.buf<4x8xf32>) {
    // expected-error @below {{a size, ld or stride is 9223372036854775807, expected at most 9007199254740992}}
    rt.gemm "g" %h = %x * %w on "compute" m 4 n 8 k 8 lda 9223372036854775807 ldb 8 ldc 8 : !rt.buf<4x8xf32>, !rt.buf<4x8xf32>, !rt.buf<8x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// gemm C2: rows times ld would be 0
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %w: !rt.buf<8x8xf32>, %h: !rt.buf<4x8xf32>) {
    // expected-error @below {{bytes of a, which has 128}}
    rt.gemm "g" %h = %x * %w on "compute" m 4294967297 n 8 k 8 lda 4294967296 ldb 8 ldc 8 : !rt.buf<4x8xf32>, !rt.buf<4x8xf32>, !rt.buf<8x8xf32>
  }
  rt.func @step() {
  }
}
