// Everything rt can say, through text and the generic form.
//
// RUN: heddle-opt %s | heddle-opt | FileCheck %s
// RUN: heddle-opt %s --mlir-print-op-generic | heddle-opt | FileCheck %s
// RUN: heddle-opt %s --verify-roundtrip | FileCheck %s

// CHECK: !rt.buf<2x32x64xf32>
// CHECK: !rt.buf<64x32xf32, strides [96, 1]>
module attributes {test.types = [
!rt.buf<2x32x64xf32>,
!rt.buf<64x32xf32, strides [96, 1]>
]} {

// CHECK: rt.program @two_ranks mesh [#rt.axis<"tp", 2>]
// CHECK-SAME: streams [#rt.stream<"compute">, #rt.stream<"comm", high = true>]
rt.program @two_ranks mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"compute", 4096>, #rt.arena<"comm", 1024, comm>] streams [#rt.stream<"compute">, #rt.stream<"comm", high = true>] communicators [["tp"]] events ["ready", "reduced"] entry @step {

  // CHECK: rt.kernel @rms_norm rowwise(in %x: full f32, in %w: per_column f32, in %eps: constant f32, in %inverse: constant f32, out "y": full f32, out "rstd": per_row f32) {
  rt.kernel @rms_norm rowwise(in %x: full f32, in %w: per_column f32, in %eps: constant f32, in %inverse: constant f32, out "y": full f32, out "rstd": per_row f32) {
    // CHECK-NEXT: %[[SUM:.*]] = rt.reduce [0.000000e+00 : f32] -> f32 accumulate {
    %sum = rt.reduce [0.0 : f32] -> f32 accumulate {
    ^bb0(%s: f32):
      %square = arith.mulf %x, %x : f32
      %next = arith.addf %s, %square : f32
      rt.yield %next : f32
    } combine {
    ^bb0(%a: f32, %b: f32):
      %both = arith.addf %a, %b : f32
      rt.yield %both : f32
    }
    %mean = arith.mulf %sum, %inverse : f32
    %safe = arith.addf %mean, %eps : f32
    %rstd = math.rsqrt %safe : f32
    %normal = arith.mulf %x, %rstd : f32
    %y = arith.mulf %normal, %w : f32
    rt.yield %y, %rstd : f32, f32
  }

  // CHECK: rt.kernel @drop rowwise(
  rt.kernel @drop rowwise(inout %x: full f32, in %seed: scalar i64, in %token: per_row i32, in %column: column_index i32) {
    // CHECK-NEXT: %[[WORD:.*]] = rt.random 3 of %seed at %token, %column
    %word = rt.random 3 of %seed at %token, %column
    %half = arith.constant 0 : i32
    %keep = arith.cmpi sge, %word, %half : i32
    %zero = arith.constant 0.0 : f32
    %y = arith.select %keep, %x, %zero : f32
    rt.yield %y : f32
  }

  // CHECK: rt.kernel @drop_heads rowwise(
  rt.kernel @drop_heads rowwise(in %seed: scalar i64, in %token: per_row i32, in %head: per_row i32, in %column: column_index i32, out "mask": full i8) {
    // CHECK-NEXT: rt.random 1 of %seed at %token, %column plane %head
    %word = rt.random 1 of %seed at %token, %column plane %head
    rt.yield %word : i32
  }

  // CHECK: rt.kernel @softmax rowwise(inout %x: full f32) {
  rt.kernel @softmax rowwise(inout %x: full f32) {
    %max = rt.reduce [0xFF800000 : f32] -> f32 accumulate {
    ^bb0(%s: f32):
      %next = arith.maximumf %s, %x : f32
      rt.yield %next : f32
    } combine {
    ^bb0(%a: f32, %b: f32):
      %both = arith.maximumf %a, %b : f32
      rt.yield %both : f32
    }
    %below = arith.subf %x, %max : f32
    %exp = math.exp %below : f32
    %sum = rt.reduce [0.0 : f32] -> f32 accumulate {
    ^bb0(%s: f32):
      %next = arith.addf %s, %exp : f32
      rt.yield %next : f32
    } combine {
    ^bb0(%a: f32, %b: f32):
      %both = arith.addf %a, %b : f32
      rt.yield %both : f32
    }
    %y = arith.divf %exp, %sum : f32
    rt.yield %y : f32
  }

  // CHECK: rt.kernel @sum_rows columnwise(in %x: full f32, inout %total: per_column f32) {
  rt.kernel @sum_rows columnwise(in %x: full f32, inout %total: per_column f32) {
    %sum = rt.reduce [0.0 : f32] -> f32 accumulate {
    ^bb0(%s: f32):
      %next = arith.addf %s, %x : f32
      rt.yield %next : f32
    } combine {
    ^bb0(%a: f32, %b: f32):
      %both = arith.addf %a, %b : f32
      rt.yield %both : f32
    }
    %y = arith.addf %total, %sum : f32
    rt.yield %y : f32
  }

  // CHECK: rt.kernel @squares reduce_all(in %x: full f32, out "total": scalar f32) {
  rt.kernel @squares reduce_all(in %x: full f32, out "total": scalar f32) {
    %square = arith.mulf %x, %x : f32
    // CHECK: rt.sum %{{.*}} : f32 -> f64
    %total = rt.sum %square : f32 -> f64
    %narrow = arith.truncf %total : f64 to f32
    rt.yield %narrow : f32
  }

  // CHECK: rt.kernel @embed rowwise(in %row: gathered f32, out "x": full f32) {
  rt.kernel @embed rowwise(in %row: gathered f32, out "x": full f32) {
    rt.yield %row : f32
  }

  // CHECK: rt.kernel @mask elementwise(in %c: column_index i32, in %n: integer i32, inout %x: full f32) {
  rt.kernel @mask elementwise(in %c: column_index i32, in %n: integer i32, inout %x: full f32) {
    %zero = arith.constant 0.0 : f32
    %inside = arith.cmpi slt, %c, %n : i32
    %y = arith.select %inside, %x, %zero : f32
    rt.yield %y : f32
  }

  // CHECK: rt.kernel @add_rows rowwise(in %x: full f32, in %by_group: per_row f32, in %by_period: per_row f32, out "y": full f32) {
  rt.kernel @add_rows rowwise(in %x: full f32, in %by_group: per_row f32, in %by_period: per_row f32, out "y": full f32) {
    %0 = arith.addf %x, %by_group : f32
    %1 = arith.addf %0, %by_period : f32
    rt.yield %1 : f32
  }

  // CHECK: rt.func @block_fwd(%x: !rt.buf<4x8xf32>, %layer: index) {
  rt.func @block_fwd(%x: !rt.buf<4x8xf32>, %layer: index) {
    // CHECK-NEXT: %w = rt.buffer "layers.N.w" because "parameter" arena "compute" at 256 + %layer * 512 : !rt.buf<16x8xf32>
    %w = rt.buffer "layers.N.w" because "parameter" arena "compute" at 256 + %layer * 512 : !rt.buf<16x8xf32>
    %h = rt.buffer "h" because "frame" arena "compute" at 1280 : !rt.buf<4x16xf32>
    // CHECK: rt.gemm "block.up" %h = %x * %w transpose_b on "compute" m 4 n 16 k 8 lda 8 ldb 8 ldc 16 : !rt.buf<4x16xf32>, !rt.buf<4x8xf32>, !rt.buf<16x8xf32>
    rt.gemm "block.up" %h = %x * %w transpose_b on "compute" m 4 n 16 k 8 lda 8 ldb 8 ldc 16 : !rt.buf<4x16xf32>, !rt.buf<4x8xf32>, !rt.buf<16x8xf32>
    %q = rt.view %h at 0 : !rt.buf<4x16xf32> -> !rt.buf<4x2x8xf32>
    %s = rt.buffer "s" because "frame" arena "compute" at 1536 : !rt.buf<2x4x4xf32>
    // CHECK: alpha 5.000000e-01 : f32 batch 2 stride_a 8 stride_b 8 stride_c 16
    rt.gemm "block.scores" %s = %q * %q transpose_b on "compute" m 4 n 4 k 8 lda 16 ldb 16 ldc 4 alpha 5.000000e-01 : f32 batch 2 stride_a 8 stride_b 8 stride_c 16 : !rt.buf<2x4x4xf32>, !rt.buf<4x2x8xf32>, !rt.buf<4x2x8xf32>
    %n = rt.buffer "n" because "frame" arena "compute" at 1664 : !rt.buf<4x8xf32>
    %rstd = rt.buffer "rstd" because "frame" arena "compute" at 1792 : !rt.buf<4xf32>
    %g = rt.buffer "g" because "frame" arena "compute" at 1808 : !rt.buf<8xf32>
    // CHECK: rt.kernel_launch "block.norm" @rms_norm rows 4 columns 8 (%x, %g, %n, %rstd) constants [9.99999974E-6 : f32, 1.250000e-01 : f32] on "compute"
    rt.kernel_launch "block.norm" @rms_norm rows 4 columns 8 (%x, %g, %n, %rstd) constants [9.99999974E-6 : f32, 1.250000e-01 : f32] on "compute" : !rt.buf<4x8xf32>, !rt.buf<8xf32>, !rt.buf<4x8xf32>, !rt.buf<4xf32>
    %room = rt.buffer "room" because "workspace" arena "compute" at 1840 : !rt.buf<8xf32>
    // CHECK: rt.kernel_launch "block.norm" @sum_rows rows 4 columns 8 (%x, %g) workspace %room on "compute"
    rt.kernel_launch "block.norm" @sum_rows rows 4 columns 8 (%x, %g) workspace %room on "compute" : !rt.buf<4x8xf32>, !rt.buf<8xf32> : !rt.buf<8xf32>
    // Four rows: two sequences of two positions.
    %per_sequence = rt.view %rstd at 0 : !rt.buf<4xf32> -> !rt.buf<2x2xf32, strides [1, 0]>
    %per_position = rt.view %rstd at 2 : !rt.buf<4xf32> -> !rt.buf<2x2xf32, strides [0, 1]>
    // CHECK: rt.kernel_launch "add" @add_rows {{.*}} : !rt.buf<4x8xf32>, !rt.buf<2x2xf32, strides [1, 0]>, !rt.buf<2x2xf32, strides [0, 1]>, !rt.buf<4x8xf32>
    rt.kernel_launch "add" @add_rows rows 4 columns 8 (%x, %per_sequence, %per_position, %n) on "compute" : !rt.buf<4x8xf32>, !rt.buf<2x2xf32, strides [1, 0]>, !rt.buf<2x2xf32, strides [0, 1]>, !rt.buf<4x8xf32>
    %row = rt.view %x at 0 + %layer * 8 : !rt.buf<4x8xf32> -> !rt.buf<8xf32>
    // CHECK: rt.copy "row" %{{.*}} -> %g on "compute" : !rt.buf<8xf32> -> !rt.buf<8xf32>
    rt.copy "row" %row -> %g on "compute" : !rt.buf<8xf32> -> !rt.buf<8xf32>
  }

  // CHECK: rt.func @embedding(%tokens: !rt.buf<4xi32>, %table: !rt.buf<5x8xf32>) {
  rt.func @embedding(%tokens: !rt.buf<4xi32>, %table: !rt.buf<5x8xf32>) {
    %x = rt.buffer "x" because "block input" arena "compute" at 0 : !rt.buf<4x8xf32>
    // CHECK: %[[PLACE:.*]] = rt.rank_index ["tp"]
    %place = rt.rank_index ["tp"]
    %size = arith.constant 5 : index
    %first = arith.muli %place, %size : index
    // CHECK: rt.kernel_launch "embedding" @embed rows 4 columns 8 (%table, %tokens, %{{.*}}, %x) on "compute" : !rt.buf<5x8xf32>, !rt.buf<4xi32>, index, !rt.buf<4x8xf32>
    rt.kernel_launch "embedding" @embed rows 4 columns 8 (%table, %tokens, %first, %x) on "compute" : !rt.buf<5x8xf32>, !rt.buf<4xi32>, index, !rt.buf<4x8xf32>
    %sorted = rt.buffer "sorted" because "positions by token" arena "compute" at 2048 : !rt.buf<16xi32>
    // CHECK: rt.segment_sort "embedding.sort" %tokens first %{{.*}} rows 5 -> %sorted on "compute" : !rt.buf<4xi32> -> !rt.buf<16xi32>
    rt.segment_sort "embedding.sort" %tokens first %first rows 5 -> %sorted on "compute" : !rt.buf<4xi32> -> !rt.buf<16xi32>
    // CHECK: rt.segment_sum "embedding.grad" %x, %sorted -> %table on "compute" : !rt.buf<4x8xf32>, !rt.buf<16xi32> -> !rt.buf<5x8xf32>
    rt.segment_sum "embedding.grad" %x, %sorted -> %table on "compute" : !rt.buf<4x8xf32>, !rt.buf<16xi32> -> !rt.buf<5x8xf32>
    %z = rt.buffer "z" because "turned by position" arena "compute" at 2112 : !rt.buf<4x8xf32>
    // CHECK: rt.rope "block.q" %x, %tokens -> %z frequencies [1.000000e+00, 1.000000e-02, 1.000000e-04, 1.000000e-06] on "compute" : !rt.buf<4x8xf32>, !rt.buf<4xi32> -> !rt.buf<4x8xf32>
    rt.rope "block.q" %x, %tokens -> %z frequencies [1.000000e+00, 1.000000e-02, 1.000000e-04, 1.000000e-06] on "compute" : !rt.buf<4x8xf32>, !rt.buf<4xi32> -> !rt.buf<4x8xf32>
  }

  // CHECK-LABEL: rt.func @scaled
  rt.func @scaled(%x: !rt.buf<4x8xbf16>, %u: !rt.buf<4x16xbf16>, %weight: !rt.buf<16x8xf8E4M3FN>, %t: !rt.buf<f32>, %most: !rt.buf<f32>, %scale: !rt.buf<f32>, %s: !rt.buf<f32>, %turned: !rt.buf<8x4xf8E4M3FN>, %codes: !rt.buf<4x8xf8E4M3FN>, %many: !rt.buf<4x2xf8E8M0FNU>, %few: !rt.buf<2x2xf8E8M0FNU>) {
    // CHECK: rt.quantize "block.n2" %x -> %codes, %many rows 4 blocks [1, 5] power_of_two on "compute" : !rt.buf<4x8xbf16> -> !rt.buf<4x8xf8E4M3FN>, !rt.buf<4x2xf8E8M0FNU>
    rt.quantize "block.n2" %x -> %codes, %many rows 4 blocks [1, 5] power_of_two on "compute" : !rt.buf<4x8xbf16> -> !rt.buf<4x8xf8E4M3FN>, !rt.buf<4x2xf8E8M0FNU>
    // CHECK: rt.gemm "block.up" %u = %codes * %weight transpose_b scaled %many, %few : !rt.buf<4x2xf8E8M0FNU>, !rt.buf<2x2xf8E8M0FNU> blocks [1, 8, 5] on "compute" m 4
    rt.gemm "block.up" %u = %codes * %weight transpose_b scaled %many, %few : !rt.buf<4x2xf8E8M0FNU>, !rt.buf<2x2xf8E8M0FNU> blocks [1, 8, 5] on "compute" m 4 n 16 k 8 lda 8 ldb 8 ldc 16 : !rt.buf<4x16xbf16>, !rt.buf<4x8xf8E4M3FN>, !rt.buf<16x8xf8E4M3FN>
    // CHECK: rt.amax "block.n2" %x -> %most on "compute" : !rt.buf<4x8xbf16> -> !rt.buf<f32>
    rt.amax "block.n2" %x -> %most on "compute" : !rt.buf<4x8xbf16> -> !rt.buf<f32>
    // CHECK: rt.quantize "block.n2" %x largest %most : !rt.buf<f32> -> %turned, %scale rows 4 transposed on "compute" : !rt.buf<4x8xbf16> -> !rt.buf<8x4xf8E4M3FN>, !rt.buf<f32>
    rt.quantize "block.n2" %x largest %most : !rt.buf<f32> -> %turned, %scale rows 4 transposed on "compute" : !rt.buf<4x8xbf16> -> !rt.buf<8x4xf8E4M3FN>, !rt.buf<f32>
    // CHECK: rt.quantize "block.n2" %x largest %most : !rt.buf<f32> -> %codes, %s rows 1 power_of_two on "compute"
    rt.quantize "block.n2" %x largest %most : !rt.buf<f32> -> %codes, %s rows 1 power_of_two on "compute" : !rt.buf<4x8xbf16> -> !rt.buf<4x8xf8E4M3FN>, !rt.buf<f32>
    // CHECK: rt.gemm "block.up" %u = %codes * %weight transpose_b scaled %s, %t : !rt.buf<f32>, !rt.buf<f32> on "compute" m 4 n 16 k 8 lda 8 ldb 8 ldc 16 : !rt.buf<4x16xbf16>, !rt.buf<4x8xf8E4M3FN>, !rt.buf<16x8xf8E4M3FN>
    rt.gemm "block.up" %u = %codes * %weight transpose_b scaled %s, %t : !rt.buf<f32>, !rt.buf<f32> on "compute" m 4 n 16 k 8 lda 8 ldb 8 ldc 16 : !rt.buf<4x16xbf16>, !rt.buf<4x8xf8E4M3FN>, !rt.buf<16x8xf8E4M3FN>
  }

  // CHECK-LABEL: rt.func @scaled_at_two_levels
  rt.func @scaled_at_two_levels(%x: !rt.buf<4x8xbf16>, %u: !rt.buf<4x16xbf16>, %most: !rt.buf<f32>, %four: !rt.buf<4x8xf4E2M1FN>, %weight: !rt.buf<16x8xf4E2M1FN>, %of_x: !rt.buf<4x1xf8E4M3FN>, %of_w: !rt.buf<1x1xf8E4M3FN>, %s: !rt.buf<f32>, %t: !rt.buf<f32>) {
    // CHECK: rt.quantize "block.n2" %x largest %most : !rt.buf<f32> -> %four, %of_x of %s : !rt.buf<f32> rows 4 blocks [1, 16] on "compute" : !rt.buf<4x8xbf16> -> !rt.buf<4x8xf4E2M1FN>, !rt.buf<4x1xf8E4M3FN>
    rt.quantize "block.n2" %x largest %most : !rt.buf<f32> -> %four, %of_x of %s : !rt.buf<f32> rows 4 blocks [1, 16] on "compute" : !rt.buf<4x8xbf16> -> !rt.buf<4x8xf4E2M1FN>, !rt.buf<4x1xf8E4M3FN>
    // CHECK: rt.gemm "block.up" %u = %four * %weight transpose_b scaled %of_x, %of_w, %s, %t : !rt.buf<4x1xf8E4M3FN>, !rt.buf<1x1xf8E4M3FN>, !rt.buf<f32>, !rt.buf<f32> blocks [1, 16, 16] on "compute"
    rt.gemm "block.up" %u = %four * %weight transpose_b scaled %of_x, %of_w, %s, %t : !rt.buf<4x1xf8E4M3FN>, !rt.buf<1x1xf8E4M3FN>, !rt.buf<f32>, !rt.buf<f32> blocks [1, 16, 16] on "compute" m 4 n 16 k 8 lda 8 ldb 8 ldc 16 : !rt.buf<4x16xbf16>, !rt.buf<4x8xf4E2M1FN>, !rt.buf<16x8xf4E2M1FN>
  }

  // CHECK-LABEL: rt.func @mixed_and_rounded_at_random
  rt.func @mixed_and_rounded_at_random(%x: !rt.buf<4x8xbf16>, %tall: !rt.buf<32x8xbf16>, %mixed: !rt.buf<32x8xbf16>, %most: !rt.buf<f32>, %four: !rt.buf<4x8xf4E2M1FN>, %of_x: !rt.buf<4x1xf8E4M3FN>, %s: !rt.buf<f32>, %seed: !rt.buf<i64>, %numbers: !rt.buf<4xi32>) {
    // CHECK: rt.hadamard "block.n2" %tall -> %mixed rows 32 length 16 signs 21930 on "compute" : !rt.buf<32x8xbf16> -> !rt.buf<32x8xbf16>
    rt.hadamard "block.n2" %tall -> %mixed rows 32 length 16 signs 21930 on "compute" : !rt.buf<32x8xbf16> -> !rt.buf<32x8xbf16>
    %first = rt.rank_index ["tp"] times 8
    // CHECK: rt.quantize "block.d_n2" %x largest %most : !rt.buf<f32> -> %four, %of_x of %s : !rt.buf<f32> rows 4 blocks [1, 16] noise %seed, %numbers site 2147483653 sizes [8] strides [1] from %{{.*}} : !rt.buf<i64>, !rt.buf<4xi32> on "compute" : !rt.buf<4x8xbf16> -> !rt.buf<4x8xf4E2M1FN>, !rt.buf<4x1xf8E4M3FN>
    rt.quantize "block.d_n2" %x largest %most : !rt.buf<f32> -> %four, %of_x of %s : !rt.buf<f32> rows 4 blocks [1, 16] noise %seed, %numbers site 2147483653 sizes [8] strides [1] from %first : !rt.buf<i64>, !rt.buf<4xi32> on "compute" : !rt.buf<4x8xbf16> -> !rt.buf<4x8xf4E2M1FN>, !rt.buf<4x1xf8E4M3FN>
  }

  // CHECK-LABEL: rt.func @scaled_by_blocks
  rt.func @scaled_by_blocks(%x: !rt.buf<4x8xbf16>, %u: !rt.buf<4x16xbf16>, %weight: !rt.buf<16x8xf8E4M3FN>, %codes: !rt.buf<4x8xf8E4M3FN>, %many: !rt.buf<4x2xf32>, %few: !rt.buf<2x2xf32>) {
    // CHECK: rt.quantize "block.n2" %x -> %codes, %many rows 4 blocks [1, 4] on "compute" : !rt.buf<4x8xbf16> -> !rt.buf<4x8xf8E4M3FN>, !rt.buf<4x2xf32>
    rt.quantize "block.n2" %x -> %codes, %many rows 4 blocks [1, 4] on "compute" : !rt.buf<4x8xbf16> -> !rt.buf<4x8xf8E4M3FN>, !rt.buf<4x2xf32>
    // CHECK: rt.gemm "block.up" %u = %codes * %weight transpose_b scaled %many, %few : !rt.buf<4x2xf32>, !rt.buf<2x2xf32> blocks [1, 8, 4] on "compute" m 4
    rt.gemm "block.up" %u = %codes * %weight transpose_b scaled %many, %few : !rt.buf<4x2xf32>, !rt.buf<2x2xf32> blocks [1, 8, 4] on "compute" m 4 n 16 k 8 lda 8 ldb 8 ldc 16 : !rt.buf<4x16xbf16>, !rt.buf<4x8xf8E4M3FN>, !rt.buf<16x8xf8E4M3FN>
  }

  rt.func @attention(%seed: !rt.buf<i64>, %q: !rt.buf<2x3x2x1x4xf32>, %k: !rt.buf<2x3x2x4xf32>, %v: !rt.buf<2x3x2x4xf32>, %o: !rt.buf<2x3x2x1x4xf32>, %lse: !rt.buf<2x3x2x1xf32>, %d: !rt.buf<2x3xi32>, %dq: !rt.buf<2x3x2x1x4xf32>, %dk: !rt.buf<2x3x2x4xf32>, %dv: !rt.buf<2x3x2x4xf32>, %do: !rt.buf<2x3x2x1x4xf32>) {
    // CHECK: rt.attention "block.attention" %q, %k, %v -> %o, %lse on "compute" scale 5.000000e-01 : f32 causal :
    rt.attention "block.attention" %q, %k, %v -> %o, %lse on "compute" scale 5.000000e-01 : f32 causal : !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x4xf32>, !rt.buf<2x3x2x4xf32> -> !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x1xf32>
    // CHECK: documents %d, %d : !rt.buf<2x3xi32>, !rt.buf<2x3xi32> on "compute" scale 5.000000e-01 : f32 causal window 2 :
    rt.attention "block.attention" %q, %k, %v -> %o, %lse documents %d, %d : !rt.buf<2x3xi32>, !rt.buf<2x3xi32> on "compute" scale 5.000000e-01 : f32 causal window 2 : !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x4xf32>, !rt.buf<2x3x2x4xf32> -> !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x1xf32>
    %group = rt.rank_index ["tp"]
    // CHECK: -> %o, %lse dropout 1.000000e-01 seed %seed tokens %d heads from %{{.*}} x 1 + %{{.*}} : !rt.buf<i64>, !rt.buf<2x3xi32> on "compute" scale 5.000000e-01 : f32 causal :
    rt.attention "block.attention" %q, %k, %v -> %o, %lse dropout 1.000000e-01 seed %seed tokens %d heads from %group x 1 + %group : !rt.buf<i64>, !rt.buf<2x3xi32> on "compute" scale 5.000000e-01 : f32 causal : !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x4xf32>, !rt.buf<2x3x2x4xf32> -> !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x1xf32>
    // CHECK: rt.attention_grad "block.attention" %q, %k, %v, %o, %lse, %do -> %dq, %dk, %dv on "compute"
    rt.attention_grad "block.attention" %q, %k, %v, %o, %lse, %do -> %dq, %dk, %dv on "compute" scale 5.000000e-01 : f32 causal : !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x4xf32>, !rt.buf<2x3x2x4xf32>, !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x1xf32>, !rt.buf<2x3x2x1x4xf32> -> !rt.buf<2x3x2x1x4xf32>, !rt.buf<2x3x2x4xf32>, !rt.buf<2x3x2x4xf32>
  }

  // CHECK: rt.func @step() {
  rt.func @step() {
    // CHECK: rt.for %layer = 0 to 2 reversed {
    rt.for %layer = 0 to 2 reversed {
      // CHECK-NEXT: %x = rt.buffer "block.x" because "block input, saved for backward" arena "compute" at 256 + %layer * 128 : !rt.buf<4x8xf32>
      %x = rt.buffer "block.x" because "block input, saved for backward" arena "compute" at 256 + %layer * 128 : !rt.buf<4x8xf32>
      // CHECK-NEXT: rt.call @block_fwd(%x, %layer) : !rt.buf<4x8xf32>, index
      rt.call @block_fwd(%x, %layer) : !rt.buf<4x8xf32>, index
    }
    %h = rt.buffer "partial" because "sum over tp" arena "comm" at 0 : !rt.buf<4x8xf32>
    %x = rt.buffer "whole" because "gathered over tp" arena "comm" at 128 : !rt.buf<4x8xf32>
    %y = rt.buffer "part" because "scattered over tp" arena "comm" at 256 : !rt.buf<2x8xf32>
    %z = rt.buffer "other" because "received" arena "comm" at 384 : !rt.buf<4x8xf32>
    %heads = rt.view %z at 0 : !rt.buf<4x8xf32> -> !rt.buf<2x16xf32>
    // CHECK: rt.record "ready" on "compute"
    rt.record "ready" on "compute"
    // CHECK-NEXT: rt.wait "ready" on "comm"
    rt.wait "ready" on "comm"
    // CHECK-NEXT: rt.all_reduce "block.down" sum %partial -> %partial over ["tp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
    rt.all_reduce "block.down" sum %h -> %h over ["tp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
    // CHECK-NEXT: rt.reduce_scatter "block.down" sum %whole -> %part outer 1 over ["tp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<2x8xf32>
    rt.reduce_scatter "block.down" sum %x -> %y outer 1 over ["tp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<2x8xf32>
    // CHECK-NEXT: rt.all_gather "block.x" %part -> %whole outer 1 over ["tp"] on "comm" : !rt.buf<2x8xf32> -> !rt.buf<4x8xf32>
    rt.all_gather "block.x" %y -> %x outer 1 over ["tp"] on "comm" : !rt.buf<2x8xf32> -> !rt.buf<4x8xf32>
    // CHECK-NEXT: rt.all_to_all "block.heads" %whole -> %{{.*}} outer 1 split 2 middle 1 concat 8 inner 1 split_first over ["tp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<2x16xf32>
    rt.all_to_all "block.heads" %x -> %heads outer 1 split 2 middle 1 concat 8 inner 1 split_first over ["tp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<2x16xf32>
    // CHECK-NEXT: rt.permute "block.swap" %whole -> %other from [1, 0] over ["tp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
    rt.permute "block.swap" %x -> %z from [1, 0] over ["tp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
    // CHECK-NEXT: rt.record "reduced" on "comm"
    rt.record "reduced" on "comm"
    rt.wait "reduced" on "compute"
    // CHECK: rt.copy "block.keep" %whole -> %other on "compute"
    rt.copy "block.keep" %x -> %z on "compute" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
    // CHECK-NEXT: rt.zero "gradients" %whole on "compute" : !rt.buf<4x8xf32>
    rt.zero "gradients" %x on "compute" : !rt.buf<4x8xf32>
    // CHECK-NEXT: rt.poison "block.x is dead" %whole on "compute" : !rt.buf<4x8xf32>
    rt.poison "block.x is dead" %x on "compute" : !rt.buf<4x8xf32>
  }
}

// Events that are used in turn; collectives that are one piece of work.
// CHECK: rt.program @in_turn
rt.program @in_turn mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"compute", 4096>] streams [#rt.stream<"compute">, #rt.stream<"comm", high = true>] communicators [["tp"]] events ["gathered[0]", "gathered[1]"] entry @step {
  rt.func @step() {
    // CHECK: rt.group {
    rt.group {
    }
    // CHECK: rt.record "gathered" slot %{{.*}} of 2 on "comm"
    %slot = arith.constant 1 : index
    rt.record "gathered" slot %slot of 2 on "comm"
    // CHECK-NEXT: rt.wait "gathered" slot %{{.*}} of 2 on "compute"
    rt.wait "gathered" slot %slot of 2 on "compute"
  }
}

// Stages of a pipeline: one text, with tables of numbers and channels.
// CHECK: rt.program @stages mesh [#rt.axis<"pp", 2>, #rt.axis<"tp", 2>] arenas [#rt.arena<"compute", 4096 by_stage [4096, 2048]>] streams [#rt.stream<"compute">, #rt.stream<"comm">] communicators [] events [] entry @step channels [#rt.channel<"to_next", "pp", 1>] stages "pp" {
rt.program @stages mesh [#rt.axis<"pp", 2>, #rt.axis<"tp", 2>] arenas [#rt.arena<"compute", 4096 by_stage [4096, 2048]>] streams [#rt.stream<"compute">, #rt.stream<"comm">] communicators [] events [] entry @step channels [#rt.channel<"to_next", "pp", 1>] stages "pp" {
  // CHECK: rt.numbers @slots [0, 1, 2, 1, 0, 2] over "pp"
  rt.numbers @slots [0, 1, 2, 1, 0, 2] over "pp"
  // CHECK: rt.numbers @layers [4]
  rt.numbers @layers [4]
  rt.func @step() {
    // CHECK: rt.for %slot = 0 to 3 {
    rt.for %slot = 0 to 3 {
      // CHECK-NEXT: %[[KIND:.*]] = rt.lookup @slots[%slot]
      %kind = rt.lookup @slots[%slot]
      // CHECK-NEXT: rt.switch %[[KIND]] {
      // CHECK-NEXT: case 0 "forward" {
      rt.switch %kind {
      case 0 "forward" {
        // CHECK: %[[COUNT:.*]] = rt.lookup @layers
        %layers = rt.lookup @layers
        // CHECK-NEXT: rt.for %layer = 0 to %[[COUNT]] {
        rt.for %layer = 0 to %layers {
          // CHECK-NEXT: %y = rt.buffer "block.y" because "on two stages" arena "compute" at 0 + %layer * 128 by_stage [0, 128, 64, 256] : !rt.buf<4x8xf32>
          %y = rt.buffer "block.y" because "on two stages" arena "compute" at 0 + %layer * 128 by_stage [0, 128, 64, 256] : !rt.buf<4x8xf32>
          // CHECK-NEXT: rt.group {
          rt.group {
            // CHECK-NEXT: rt.send "block.y" %y over "to_next" on "comm" : !rt.buf<4x8xf32>
            rt.send "block.y" %y over "to_next" on "comm" : !rt.buf<4x8xf32>
          }
        }
      }
      // CHECK: case 2 "backward" {
      // CHECK-NEXT: }
      // CHECK-NEXT: }
      case 2 "backward" {
      }
      }
    }
    %last = arith.constant 2 : index
    %begin = rt.lookup @slots[%last]
    %end = rt.lookup @layers
    // CHECK: rt.for %layer = %{{.*}} to %{{.*}} {
    rt.for %layer = %begin to %end {
    }
    // CHECK: rt.for %layer = %{{.*}} to 2 reversed {
    rt.for %layer = %begin to 2 reversed {
    }
    %x = rt.buffer "block.x" because "received" arena "compute" at 256 : !rt.buf<4x8xf32>
    // CHECK: rt.receive "block.x" %x over "to_next" on "comm" : !rt.buf<4x8xf32>
    rt.receive "block.x" %x over "to_next" on "comm" : !rt.buf<4x8xf32>
    // CHECK-NEXT: rt.send "block.x" %x over "to_next" on "comm" : !rt.buf<4x8xf32>
    rt.send "block.x" %x over "to_next" on "comm" : !rt.buf<4x8xf32>
  }
}

}
