// Masks are drawn where they are used: one word per element in a kernel, heads
// numbered in the whole model in attention. The same text is CUDA.
//
// RUN: heddle-translate --emit-program %s | FileCheck %s

rt.program @drops mesh [#rt.axis<"kv", 2>, #rt.axis<"copy", 2>] arenas [#rt.arena<"compute", 65536>] streams [#rt.stream<"compute">] communicators [["kv"], ["copy"]] events [] entry @step {
  rt.kernel @drop_add rowwise(in %x: full f32, in %seed: scalar i64, in %token: per_row i32, in %y: full bf16, out "z": full f32, in %column: column_index i32) {
    %word = rt.random 3 of %seed at %token, %column
    %threshold = arith.constant 0x40000000 : i32
    %keeps = arith.cmpi uge, %word, %threshold : i32
    %scale = arith.constant 1.5 : f32
    %scaled = arith.mulf %scale, %x : f32
    %zero = arith.constant 0.0 : f32
    %dropped = arith.select %keeps, %scaled, %zero : f32
    %z = arith.addf %dropped, %y : f32
    rt.yield %z : f32
  }

  rt.func @step() {
    %x = rt.buffer "x" because "input" arena "compute" at 0 : !rt.buf<2x4x2x3x8xf32>
    %k = rt.buffer "k" because "input" arena "compute" at 4096 : !rt.buf<2x4x2x8xf32>
    %o = rt.buffer "o" because "output" arena "compute" at 8192 : !rt.buf<2x4x2x3x8xf32>
    %lse = rt.buffer "lse" because "output" arena "compute" at 16384 : !rt.buf<2x4x2x3xf32>
    %seed = rt.buffer "seed" because "input" arena "compute" at 20480 : !rt.buf<i64>
    %tokens = rt.buffer "tokens" because "input" arena "compute" at 20544 : !rt.buf<2x4xi32>
    %narrow = rt.buffer "narrow" because "input" arena "compute" at 24576 : !rt.buf<8x48xbf16>
    %group = rt.rank_index ["kv"] times 2
    %head = rt.rank_index ["copy"] times 3
    // CHECK: TRY(attention(p.compute, {.name = "mix",
    // CHECK: .dropout = 0.25, .seed = seed, .token_numbers = tokens,
    // CHECK-NEXT: .first_head = (p.kv_place * 2) * 6 + (p.copy_place * 3), .group_heads = 6}, x, k, k, o, lse));
    rt.attention "mix" %x, %k, %k -> %o, %lse dropout 0.25 seed %seed tokens %tokens heads from %group x 6 + %head : !rt.buf<i64>, !rt.buf<2x4xi32> on "compute" scale 0.5 : f32 causal : !rt.buf<2x4x2x3x8xf32>, !rt.buf<2x4x2x8xf32>, !rt.buf<2x4x2x8xf32> -> !rt.buf<2x4x2x3x8xf32>, !rt.buf<2x4x2x3xf32>
    %rows = rt.view %o at 0 : !rt.buf<2x4x2x3x8xf32> -> !rt.buf<8x48xf32>
    %out = rt.view %x at 0 : !rt.buf<2x4x2x3x8xf32> -> !rt.buf<8x48xf32>
    // CHECK: TRY(rowwise(p.compute, "drop", 8, 48, kernels::DropAdd{}, in(o), inScalar(seed), inRow(tokens), in(narrow), out(x),
    // CHECK-NEXT: columnIndex(p.kv_place * 2)));
    rt.kernel_launch "drop" @drop_add rows 8 columns 48 (%rows, %seed, %tokens, %narrow, %out, %group) on "compute" : !rt.buf<8x48xf32>, !rt.buf<i64>, !rt.buf<2x4xi32>, !rt.buf<8x48xbf16>, !rt.buf<8x48xf32>, index
  }

  // CHECK: #include "heddle/Runtime/Random.h"
  // CHECK: struct DropAdd {
  // CHECK: int32_t(random::dropoutWord(uint64_t(seed), 3, 0, uint32_t(token), uint32_t(column_)))
}
