// RUN: heddle-opt %s --split-input-file --verify-diagnostics

// What queued work may not say, by label. Launches: kernel-invalid.mlir.

// gemm C3
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf8E4M3FN>, %w: !rt.buf<8x8xf8E5M2>, %h: !rt.buf<4x8xf16>, %s: !rt.buf<f32>) {
    // expected-error @below {{cannot multiply 'f8E4M3FN' by 'f8E5M2' into 'f16'}}
    rt.gemm "g" %h = %x * %w scaled %s, %s : !rt.buf<f32>, !rt.buf<f32> on "compute" m 4 n 8 k 8 lda 8 ldb 8 ldc 8 : !rt.buf<4x8xf16>, !rt.buf<4x8xf8E4M3FN>, !rt.buf<8x8xf8E5M2>
  }
  rt.func @step() {
  }
}

// -----

// quantize C4
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %c: !rt.buf<4x8xf4E2M1FN>, %s: !rt.buf<4x2xf8E4M3FN>, %t: !rt.buf<f32>, %seed: !rt.buf<i64>, %numbers: !rt.buf<4xi32>) {
    %first = rt.rank_index ["tp"]
    // expected-error @below {{rounds codes of f4E2M1FN at random with a seed, a number for each of 4 rows, and places of all columns}}
    rt.quantize "q" %x largest %t : !rt.buf<f32> -> %c, %s of %t : !rt.buf<f32> rows 4 blocks [1, 4] noise %seed, %numbers site 3 sizes [7] strides [1] from %first : !rt.buf<i64>, !rt.buf<4xi32> on "compute" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf4E2M1FN>, !rt.buf<4x2xf8E4M3FN>
  }
  rt.func @step() {
  }
}

// -----

// hadamard C3
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %y: !rt.buf<4x8xf32>) {
    // expected-error @below {{mixes 3 rows with signs 1, expected a power of two up to 32 and as many bits}}
    rt.hadamard "q" %x -> %y rows 4 length 3 signs 1 on "compute" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// gemm C6
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf8E4M3FN>, %w: !rt.buf<8x8xf8E5M2>, %h: !rt.buf<4x8xbf16>, %s: !rt.buf<f32>) {
    // expected-error @below {{needs two scales, f32, got 0}}
    rt.gemm "g" %h = %x * %w on "compute" m 4 n 8 k 8 lda 8 ldb 8 ldc 8 : !rt.buf<4x8xbf16>, !rt.buf<4x8xf8E4M3FN>, !rt.buf<8x8xf8E5M2>
  }
  rt.func @step() {
  }
}

// -----

// gemm C6
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %w: !rt.buf<8x8xf32>, %h: !rt.buf<4x8xf32>, %s: !rt.buf<f32>) {
    // expected-error @below {{needs no scale, got 1}}
    rt.gemm "g" %h = %x * %w scaled %s : !rt.buf<f32> on "compute" m 4 n 8 k 8 lda 8 ldb 8 ldc 8 : !rt.buf<4x8xf32>, !rt.buf<4x8xf32>, !rt.buf<8x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// amax C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xi32>, %s: !rt.buf<f32>) {
    // expected-error @below {{needs f32, bf16 or f16, got 'i32'}}
    rt.amax "a" %x -> %s on "compute" : !rt.buf<4x8xi32> -> !rt.buf<f32>
  }
  rt.func @step() {
  }
}

// -----

// amax C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %s: !rt.buf<2xf32>) {
    // expected-error @below {{needs one f32 as its result, got '!rt.buf<2xf32>'}}
    rt.amax "a" %x -> %s on "compute" : !rt.buf<4x8xf32> -> !rt.buf<2xf32>
  }
  rt.func @step() {
  }
}

// -----

// amax C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %s: !rt.buf<f32>) {
    // expected-error @below {{the program has no stream 'comm'}}
    rt.amax "a" %x -> %s on "comm" : !rt.buf<4x8xf32> -> !rt.buf<f32>
  }
  rt.func @step() {
  }
}

// -----

// quantize C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %c: !rt.buf<4x7xf8E4M3FN>, %s: !rt.buf<f32>) {
    // expected-error @below {{cannot make '!rt.buf<4x7xf8E4M3FN>' of 4 rows of '!rt.buf<4x8xf32>'}}
    rt.quantize "q" %x largest %s : !rt.buf<f32> -> %c, %s rows 4 on "compute" : !rt.buf<4x8xf32> -> !rt.buf<4x7xf8E4M3FN>, !rt.buf<f32>
  }
  rt.func @step() {
  }
}

// -----

// quantize C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %c: !rt.buf<4x8xf8E4M3FN>, %s: !rt.buf<f32>) {
    // expected-error @below {{the program has no stream 'comm'}}
    rt.quantize "q" %x largest %s : !rt.buf<f32> -> %c, %s rows 4 on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf8E4M3FN>, !rt.buf<f32>
  }
  rt.func @step() {
  }
}

// -----

// quantize C3
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %c: !rt.buf<4x8xf4E2M1FN>, %s: !rt.buf<4x2xf32>, %t: !rt.buf<f32>) {
    // expected-error @below {{needs a scale, f8E4M3FN, for each block of a matrix of 4 x 8, got '!rt.buf<4x2xf32>'}}
    rt.quantize "q" %x largest %t : !rt.buf<f32> -> %c, %s of %t : !rt.buf<f32> rows 4 blocks [1, 4] on "compute" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf4E2M1FN>, !rt.buf<4x2xf32>
  }
  rt.func @step() {
  }
}

// -----

// gemm C6
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf4E2M1FN>, %s: !rt.buf<4x2xf8E4M3FN>, %y: !rt.buf<4x4xf32>) {
    // expected-error @below {{needs blocks, with two scales of these and two of tensors, f32, got 2}}
    rt.gemm "g" %y = %x * %x transpose_b scaled %s, %s : !rt.buf<4x2xf8E4M3FN>, !rt.buf<4x2xf8E4M3FN> blocks [1, 1, 4] on "compute" m 4 n 4 k 8 lda 8 ldb 8 ldc 4 : !rt.buf<4x4xf32>, !rt.buf<4x8xf4E2M1FN>, !rt.buf<4x8xf4E2M1FN>
  }
  rt.func @step() {
  }
}

// -----

// quantize C3
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %c: !rt.buf<4x8xf8E4M3FN>, %s: !rt.buf<f32>, %b: !rt.buf<4x2xf8E8M0FNU>) {
    // expected-error @below {{needs either the largest magnitude or blocks}}
    rt.quantize "q" %x -> %c, %s rows 4 on "compute" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf8E4M3FN>, !rt.buf<f32>
  }
  rt.func @step() {
  }
}

// -----

// quantize C3
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %c: !rt.buf<4x8xf8E4M3FN>, %s: !rt.buf<f32>, %b: !rt.buf<4x2xf8E8M0FNU>) {
    // expected-error @below {{needs one f32 as amax and as the tensor's scale}}
    rt.quantize "q" %x largest %s : !rt.buf<f32> -> %c, %b rows 4 on "compute" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf8E4M3FN>, !rt.buf<4x2xf8E8M0FNU>
  }
  rt.func @step() {
  }
}

// -----

// quantize C3
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %c: !rt.buf<4x8xf8E4M3FN>, %s: !rt.buf<f32>, %b: !rt.buf<4x2xf8E8M0FNU>) {
    // expected-error @below {{needs a scale, f32 or f8E8M0FNU, for each block of a matrix of 8 x 4, got '!rt.buf<4x2xf8E8M0FNU>'}}
    rt.quantize "q" %x -> %c, %b rows 4 transposed blocks [1, 2] on "compute" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf8E4M3FN>, !rt.buf<4x2xf8E8M0FNU>
  }
  rt.func @step() {
  }
}

// -----

// gemm C6
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf8E4M3FN>, %w: !rt.buf<8x8xf8E4M3FN>, %y: !rt.buf<4x8xbf16>, %s: !rt.buf<4x2xf32>, %t: !rt.buf<8x2xf8E8M0FNU>) {
    // expected-error @below {{has blocks of scales, so it must be one product of codes with B transposed, and three sizes above 0, got array<i64: 1, 1, 4>}}
    rt.gemm "g" %y = %x * %w scaled %s, %s : !rt.buf<4x2xf32>, !rt.buf<4x2xf32> blocks [1, 1, 4] on "compute" m 4 n 8 k 8 lda 8 ldb 8 ldc 8 : !rt.buf<4x8xbf16>, !rt.buf<4x8xf8E4M3FN>, !rt.buf<8x8xf8E4M3FN>
  }
  rt.func @step() {
  }
}

// -----

// gemm C6
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf8E4M3FN>, %w: !rt.buf<8x8xf8E4M3FN>, %y: !rt.buf<4x8xbf16>, %s: !rt.buf<4x2xf32>, %t: !rt.buf<8x2xf8E8M0FNU>) {
    // expected-error @below {{needs a scale, f32 or f8E8M0FNU, for each block of 4 x 8 and of 8 x 8, got '!rt.buf<4x2xf32>' and '!rt.buf<8x2xf8E8M0FNU>'}}
    rt.gemm "g" %y = %x * %w transpose_b scaled %s, %t : !rt.buf<4x2xf32>, !rt.buf<8x2xf8E8M0FNU> blocks [1, 1, 4] on "compute" m 4 n 8 k 8 lda 8 ldb 8 ldc 8 : !rt.buf<4x8xbf16>, !rt.buf<4x8xf8E4M3FN>, !rt.buf<8x8xf8E4M3FN>
  }
  rt.func @step() {
  }
}

// -----

// gemm C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %w: !rt.buf<8x8xf32>, %h: !rt.buf<4x8xf32>) {
    // expected-error @below {{sizes m, n, k and batch must be at least 1, got 0}}
    rt.gemm "g" %h = %x * %w on "compute" m 0 n 8 k 8 lda 8 ldb 8 ldc 8 : !rt.buf<4x8xf32>, !rt.buf<4x8xf32>, !rt.buf<8x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// gemm C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %w: !rt.buf<8x8xf32>, %h: !rt.buf<4x8xf32>) {
    // expected-error @below {{lda is 4, but a row has 8 elements}}
    rt.gemm "g" %h = %x * %w on "compute" m 4 n 8 k 8 lda 4 ldb 8 ldc 8 : !rt.buf<4x8xf32>, !rt.buf<4x8xf32>, !rt.buf<8x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// gemm C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %w: !rt.buf<8x8xf32>, %h: !rt.buf<4x8xf32>) {
    // expected-error @below {{stride -8 is negative}}
    rt.gemm "g" %h = %x * %w on "compute" m 4 n 8 k 8 lda 8 ldb 8 ldc 8 stride_a -8 : !rt.buf<4x8xf32>, !rt.buf<4x8xf32>, !rt.buf<8x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// gemm C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %w: !rt.buf<8x8xf32>, %h: !rt.buf<4x8xf32>) {
    // expected-error @below {{touches 160 bytes of a, which has 128}}
    rt.gemm "g" %h = %x * %w on "compute" m 5 n 8 k 8 lda 8 ldb 8 ldc 8 : !rt.buf<4x8xf32>, !rt.buf<4x8xf32>, !rt.buf<8x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// gemm C3
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %w: !rt.buf<8x8xbf16>, %h: !rt.buf<4x8xf32>) {
    // expected-error @below {{cannot multiply 'f32' by 'bf16' into 'f32'}}
    rt.gemm "g" %h = %x * %w on "compute" m 4 n 8 k 8 lda 8 ldb 8 ldc 8 : !rt.buf<4x8xf32>, !rt.buf<4x8xf32>, !rt.buf<8x8xbf16>
  }
  rt.func @step() {
  }
}

// -----

// gemm C4
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %w: !rt.buf<8x8xf32>, %h: !rt.buf<4x8xf32>) {
    // expected-error @below {{products of the batch overlap: stride_c is 4}}
    rt.gemm "g" %h = %x * %w on "compute" m 1 n 8 k 8 lda 8 ldb 8 ldc 8 batch 2 stride_a 8 stride_c 4 : !rt.buf<4x8xf32>, !rt.buf<4x8xf32>, !rt.buf<8x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// gemm C5
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %w: !rt.buf<8x8xf32>, %h: !rt.buf<4x8xf32>) {
    // expected-error @below {{the program has no stream 'comm'}}
    rt.gemm "g" %h = %x * %w on "comm" m 4 n 8 k 8 lda 8 ldb 8 ldc 8 : !rt.buf<4x8xf32>, !rt.buf<4x8xf32>, !rt.buf<8x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// attention C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%q: !rt.buf<2x3x2x1x4xf32>, %k: !rt.buf<2x3x1x4xf32>, %v: !rt.buf<2x3x2x4xf32>, %o: !rt.buf<2x3x2x1x4xf32>, %lse: !rt.buf<2x3x2x1xf32>) {
    // expected-error @below {{needs q [b, s, g, r, k] and k, v [b, t, g, k]}}
    rt.attention "a" %q, %k, %v -> %o, %lse on "compute" scale 1.0 : f32 causal : !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x1x4xf32>, !rt.buf<2x3x2x4xf32> -> !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x1xf32>
  }
  rt.func @step() {
  }
}

// -----

// attention C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%q: !rt.buf<2x3x2x1x4xf32>, %k: !rt.buf<2x3x2x4xf32>, %v: !rt.buf<2x5x2x4xf32>, %o: !rt.buf<2x3x2x1x4xf32>, %lse: !rt.buf<2x3x2x1xf32>) {
    // expected-error @below {{sizes of}}
    rt.attention "a" %q, %k, %v -> %o, %lse on "compute" scale 1.0 : f32 causal : !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x4xf32>, !rt.buf<2x5x2x4xf32> -> !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x1xf32>
  }
  rt.func @step() {
  }
}

// -----

// attention C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%q: !rt.buf<2x3x2x1x4xf32>, %k: !rt.buf<2x3x2x4xf32>, %v: !rt.buf<2x3x2x4xf32>, %o: !rt.buf<2x3x2x1x4xf32>, %lse: !rt.buf<2x3x2xf32>) {
    // expected-error @below {{needs lse f32 [b, s, g, r] without gaps}}
    rt.attention "a" %q, %k, %v -> %o, %lse on "compute" scale 1.0 : f32 causal : !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x4xf32>, !rt.buf<2x3x2x4xf32> -> !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2xf32>
  }
  rt.func @step() {
  }
}

// -----

// attention C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%q: !rt.buf<2x3x2x1x4xf32>, %k: !rt.buf<2x3x2x4xf32>, %v: !rt.buf<2x3x2x4xf32>, %o: !rt.buf<2x3x2x1x4xf32, strides [48, 16, 8, 8, 2]>, %lse: !rt.buf<2x3x2x1xf32>) {
    // expected-error @below {{needs one float type and heads whose elements lie side by side}}
    rt.attention "a" %q, %k, %v -> %o, %lse on "compute" scale 1.0 : f32 causal : !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x4xf32>, !rt.buf<2x3x2x4xf32> -> !rt.buf<2x3x2x1x4xf32, strides [48, 16, 8, 8, 2]>, !rt.buf<2x3x2x1xf32>
  }
  rt.func @step() {
  }
}

// -----

// attention C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%q: !rt.buf<2x3x2x1x4xf32>, %k: !rt.buf<2x3x2x4xbf16>, %v: !rt.buf<2x3x2x4xbf16>, %o: !rt.buf<2x3x2x1x4xf32>, %lse: !rt.buf<2x3x2x1xf32>) {
    // expected-error @below {{needs one float type, got}}
    rt.attention "a" %q, %k, %v -> %o, %lse on "compute" scale 1.0 : f32 causal : !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x4xbf16>, !rt.buf<2x3x2x4xbf16> -> !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x1xf32>
  }
  rt.func @step() {
  }
}

// -----

// attention C3
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%q: !rt.buf<2x3x2x1x4xf32>, %k: !rt.buf<2x3x2x4xf32>, %v: !rt.buf<2x3x2x4xf32>, %o: !rt.buf<2x3x2x1x4xf32>, %lse: !rt.buf<2x3x2x1xf32>, %d: !rt.buf<2xi32>) {
    // expected-error @below {{needs one i32 per sequence and position}}
    rt.attention "a" %q, %k, %v -> %o, %lse documents %d, %d : !rt.buf<2xi32>, !rt.buf<2xi32> on "compute" scale 1.0 : f32 causal : !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x4xf32>, !rt.buf<2x3x2x4xf32> -> !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x1xf32>
  }
  rt.func @step() {
  }
}

// -----

// attention C4
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%q: !rt.buf<2x3x2x1x4xf32>, %k: !rt.buf<2x3x2x4xf32>, %v: !rt.buf<2x3x2x4xf32>, %o: !rt.buf<2x3x2x1x4xf32>, %lse: !rt.buf<2x3x2x1xf32>) {
    // expected-error @below {{window -1 is negative}}
    rt.attention "a" %q, %k, %v -> %o, %lse on "compute" scale 1.0 : f32 causal window -1 : !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x4xf32>, !rt.buf<2x3x2x4xf32> -> !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x1xf32>
  }
  rt.func @step() {
  }
}

// -----

// attention C6
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%q: !rt.buf<2x3x2x1x4xf32>, %k: !rt.buf<2x3x2x4xf32>, %v: !rt.buf<2x3x2x4xf32>, %o: !rt.buf<2x3x2x1x4xf32>, %lse: !rt.buf<2x3x2x1xf32>, %seed: !rt.buf<i64>, %d: !rt.buf<2x3xi32>, %few: !rt.buf<2xi32>) {
    %place = rt.rank_index ["tp"]
    // expected-error @below {{with dropout needs a rate of at least 0 and below 1}}
    rt.attention "a" %q, %k, %v -> %o, %lse dropout 1.0 seed %seed tokens %d heads from %place x 1 + %place : !rt.buf<i64>, !rt.buf<2x3xi32> on "compute" scale 1.0 : f32 causal : !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x4xf32>, !rt.buf<2x3x2x4xf32> -> !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x1xf32>
  }
  rt.func @step() {
  }
}

// -----

// attention C6
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%q: !rt.buf<2x3x2x1x4xf32>, %k: !rt.buf<2x3x2x4xf32>, %v: !rt.buf<2x3x2x4xf32>, %o: !rt.buf<2x3x2x1x4xf32>, %lse: !rt.buf<2x3x2x1xf32>, %seed: !rt.buf<i64>, %d: !rt.buf<2x3xi32>, %few: !rt.buf<2xi32>) {
    %place = rt.rank_index ["tp"]
    // expected-error @below {{needs one i64 as seed and one i32 per query token}}
    rt.attention "a" %q, %k, %v -> %o, %lse dropout 0.5 seed %seed tokens %few heads from %place x 1 + %place : !rt.buf<i64>, !rt.buf<2xi32> on "compute" scale 1.0 : f32 causal : !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x4xf32>, !rt.buf<2x3x2x4xf32> -> !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x1xf32>
  }
  rt.func @step() {
  }
}

// -----

// attention C5
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%q: !rt.buf<2x3x2x1x4xf32>, %k: !rt.buf<2x3x2x4xf32>, %v: !rt.buf<2x3x2x4xf32>, %o: !rt.buf<2x3x2x1x4xf32>, %lse: !rt.buf<2x3x2x1xf32>) {
    // expected-error @below {{the program has no stream 'comm'}}
    rt.attention "a" %q, %k, %v -> %o, %lse on "comm" scale 1.0 : f32 causal : !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x4xf32>, !rt.buf<2x3x2x4xf32> -> !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x1xf32>
  }
  rt.func @step() {
  }
}

// -----

// attention_grad C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%q: !rt.buf<2x3x2x1x4xf32>, %k: !rt.buf<2x3x2x4xf32>, %o: !rt.buf<2x3x2x1x4xf32>, %lse: !rt.buf<2x3x2x1xf32>, %dk: !rt.buf<2x5x2x4xf32>) {
    // expected-error @below {{sizes of}}
    rt.attention_grad "a" %q, %k, %k, %o, %lse, %o -> %q, %dk, %k on "compute" scale 1.0 : f32 : !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x4xf32>, !rt.buf<2x3x2x4xf32>, !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x1xf32>, !rt.buf<2x3x2x1x4xf32> -> !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x5x2x4xf32>, !rt.buf<2x3x2x4xf32>
  }
  rt.func @step() {
  }
}

// -----

// rope C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %p: !rt.buf<2xi32>, %y: !rt.buf<4x8xf32>) {
    // expected-error @below {{needs heads of 2 elements}}
    rt.rope "r" %x, %p -> %y frequencies [1.0] on "compute" : !rt.buf<4x8xf32>, !rt.buf<2xi32> -> !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// rope C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %p: !rt.buf<3xi32>, %y: !rt.buf<4x8xf32>) {
    // expected-error @below {{has 4 heads, which are no equal runs for}}
    rt.rope "r" %x, %p -> %y frequencies [1.0, 0.1, 0.01, 0.001] on "compute" : !rt.buf<4x8xf32>, !rt.buf<3xi32> -> !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// rope C3
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %p: !rt.buf<2xi32>, %y: !rt.buf<4x8xf32>) {
    // expected-error @below {{the program has no stream 'comm'}}
    rt.rope "r" %x, %p -> %y frequencies [1.0, 0.1, 0.01, 0.001] on "comm" : !rt.buf<4x8xf32>, !rt.buf<2xi32> -> !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// all_reduce C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %y: !rt.buf<4x8xf32>) {
    // expected-error @below {{the program has no communicator over ["dp"]}}
    rt.all_reduce "c" sum %x -> %y over ["dp"] on "compute" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// all_reduce C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %y: !rt.buf<4x8xf32>) {
    // expected-error @below {{the program has no stream 'comm'}}
    rt.all_reduce "c" sum %x -> %y over ["tp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// all_reduce C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %y: !rt.buf<4x8xbf16>) {
    // expected-error @below {{needs buffers without gaps and of one element type}}
    rt.all_reduce "c" sum %x -> %y over ["tp"] on "compute" : !rt.buf<4x8xf32> -> !rt.buf<4x8xbf16>
  }
  rt.func @step() {
  }
}

// -----

// all_reduce C3
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %y: !rt.buf<8xf32>) {
    // expected-error @below {{over 2 ranks cannot make 8 elements of 32}}
    rt.all_reduce "c" max %x -> %y over ["tp"] on "compute" : !rt.buf<4x8xf32> -> !rt.buf<8xf32>
  }
  rt.func @step() {
  }
}

// -----

// reduce_scatter C3
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %y: !rt.buf<4x8xf32>) {
    // expected-error @below {{over 2 ranks cannot make 32 elements of 32}}
    rt.reduce_scatter "c" sum %x -> %y outer 1 over ["tp"] on "compute" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// reduce_scatter C4
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %y: !rt.buf<2x8xf32>) {
    // expected-error @below {{outer 3 does not divide 16 elements}}
    rt.reduce_scatter "c" sum %x -> %y outer 3 over ["tp"] on "compute" : !rt.buf<4x8xf32> -> !rt.buf<2x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// all_gather C3
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %y: !rt.buf<4x8xf32>) {
    // expected-error @below {{over 2 ranks cannot make 32 elements of 32}}
    rt.all_gather "c" %x -> %y outer 1 over ["tp"] on "compute" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// all_gather C4
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<2x8xf32>, %y: !rt.buf<4x8xf32>) {
    // expected-error @below {{outer 0 does not divide 16 elements}}
    rt.all_gather "c" %x -> %y outer 0 over ["tp"] on "compute" : !rt.buf<2x8xf32> -> !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// all_to_all C3
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %y: !rt.buf<4x8xf32>) {
    // expected-error @below {{over 2 ranks these sizes make 16 elements, but there are 32}}
    rt.all_to_all "c" %x -> %y outer 1 split 1 middle 1 concat 8 inner 1 over ["tp"] on "compute" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// permute C4
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %y: !rt.buf<4x8xf32>) {
    // expected-error @below {{needs 2 sources, got 1}}
    rt.permute "c" %x -> %y from [0] over ["tp"] on "compute" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// permute C4
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %y: !rt.buf<4x8xf32>) {
    // expected-error @below {{source 2 is no rank of a group of 2}}
    rt.permute "c" %x -> %y from [0, 2] over ["tp"] on "compute" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// copy C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %y: !rt.buf<4xf32>) {
    // expected-error @below {{cannot copy}}
    rt.copy "c" %x -> %y on "compute" : !rt.buf<4x8xf32> -> !rt.buf<4xf32>
  }
  rt.func @step() {
  }
}

// -----

// copy C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %y: !rt.buf<4x8xf32>) {
    // expected-error @below {{the program has no stream 'comm'}}
    rt.copy "c" %x -> %y on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// zero C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32, strides [16, 1]>) {
    // expected-error @below {{needs buffers without gaps}}
    rt.zero "z" %x on "compute" : !rt.buf<4x8xf32, strides [16, 1]>
  }
  rt.func @step() {
  }
}

// -----

// zero C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>) {
    // expected-error @below {{the program has no stream 'comm'}}
    rt.zero "z" %x on "comm" : !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// poison C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32, strides [16, 1]>) {
    // expected-error @below {{needs buffers without gaps}}
    rt.poison "z" %x on "compute" : !rt.buf<4x8xf32, strides [16, 1]>
  }
  rt.func @step() {
  }
}

// -----

// poison C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>) {
    // expected-error @below {{the program has no stream 'comm'}}
    rt.poison "z" %x on "comm" : !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// segment_sort C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%i: !rt.buf<4xf32>, %first: index, %w: !rt.buf<16xi32>) {
    // expected-error @below {{needs an index of i32 without gaps}}
    rt.segment_sort "s" %i first %first rows 5 -> %w on "compute" : !rt.buf<4xf32> -> !rt.buf<16xi32>
  }
  rt.func @step() {
  }
}

// -----

// segment_sort C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%i: !rt.buf<4xi32>, %first: index, %w: !rt.buf<8xi32>) {
    // expected-error @below {{needs a workspace of 16 i32}}
    rt.segment_sort "s" %i first %first rows 5 -> %w on "compute" : !rt.buf<4xi32> -> !rt.buf<8xi32>
  }
  rt.func @step() {
  }
}

// -----

// segment_sort C3
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%i: !rt.buf<4xi32>, %first: index, %w: !rt.buf<16xi32>) {
    // expected-error @below {{needs a table of at least one row, got 0}}
    rt.segment_sort "s" %i first %first rows 0 -> %w on "compute" : !rt.buf<4xi32> -> !rt.buf<16xi32>
  }
  rt.func @step() {
  }
}

// -----

// segment_sort C4
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%i: !rt.buf<4xi32>, %first: index, %w: !rt.buf<16xi32>) {
    // expected-error @below {{the program has no stream 'comm'}}
    rt.segment_sort "s" %i first %first rows 5 -> %w on "comm" : !rt.buf<4xi32> -> !rt.buf<16xi32>
  }
  rt.func @step() {
  }
}

// -----

// segment_sum C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32, strides [16, 1]>, %w: !rt.buf<16xi32>, %g: !rt.buf<5x8xf32>) {
    // expected-error @below {{needs buffers of floats without gaps}}
    rt.segment_sum "s" %x, %w -> %g on "compute" : !rt.buf<4x8xf32, strides [16, 1]>, !rt.buf<16xi32> -> !rt.buf<5x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// segment_sum C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %w: !rt.buf<16xi32>, %g: !rt.buf<5x4xf32>) {
    // expected-error @below {{needs input [positions, columns] and gradient [rows, columns]}}
    rt.segment_sum "s" %x, %w -> %g on "compute" : !rt.buf<4x8xf32>, !rt.buf<16xi32> -> !rt.buf<5x4xf32>
  }
  rt.func @step() {
  }
}

// -----

// segment_sum C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %w: !rt.buf<4xi32>, %g: !rt.buf<5x8xf32>) {
    // expected-error @below {{needs a workspace of 16 i32}}
    rt.segment_sum "s" %x, %w -> %g on "compute" : !rt.buf<4x8xf32>, !rt.buf<4xi32> -> !rt.buf<5x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// segment_sum C3
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>, %w: !rt.buf<16xi32>, %g: !rt.buf<5x8xf32>) {
    // expected-error @below {{the program has no stream 'comm'}}
    rt.segment_sum "s" %x, %w -> %g on "comm" : !rt.buf<4x8xf32>, !rt.buf<16xi32> -> !rt.buf<5x8xf32>
  }
  rt.func @step() {
  }
}
