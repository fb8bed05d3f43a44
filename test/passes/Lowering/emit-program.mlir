// What statements become: names, offsets, operands, comments.
//
// RUN: heddle-translate --emit-program %s | FileCheck %s

rt.program @small mesh [#rt.axis<"dp", 2>, #rt.axis<"tp", 4>] arenas [#rt.arena<"compute", 65536>, #rt.arena<"comm", 1024, comm>] streams [#rt.stream<"compute">, #rt.stream<"comm", high = true>] communicators [["tp"], ["dp"], ["dp", "tp"]] events ["ready", "reduced"] entry @step {
  // CHECK: // Program small, one training step of each rank (dp x tp).

  // Names for all that is in numbers.bin, in the order in which they are met.
  // CHECK: constexpr uint64_t kNumbersKey = 0x
  // CHECK: enum : int32_t {
  // CHECK-NEXT: kDpRanks, // ranks along dp
  // CHECK-NEXT: kTpRanks, // ranks along tp
  // CHECK-NEXT: kLayerBegin, // the first layer of a loop
  // CHECK-NEXT: kLayerEnd, // behind the last layer of a loop
  // CHECK-NEXT: kNumCounts
  // CHECK: enum : int32_t {
  // CHECK-NEXT: // Arena compute (compute)
  // CHECK-NEXT: kComputeBytes = 0, // size of the arena
  // CHECK-NEXT: kModelLayersNWeight = 2, // model.layers.N.weight: parameter; 16x8xf32, + layer * stride
  // CHECK-NEXT: kX = 4, // x: input; 4x8xf32
  // CHECK: // Arena comm (comm)
  // CHECK-NEXT: kCommBytes = 1, // size of the arena
  // CHECK-NEXT: kSum = 5, // sum: reduced over tp; 4x8xf32

  // CHECK: struct heddle_program {
  // CHECK-NEXT: heddle_rt_stream *compute, *comm;
  // CHECK-NEXT: heddle_rt_event *ready, *reduced;
  // CHECK-NEXT: heddle_rt_comm *tp, *dp, *dp_tp;
  // CHECK-NEXT: char *computeArena, *commArena;
  // CHECK-NEXT: int64_t tp_place; // this rank's place over tp
  // CHECK-NEXT: int64_t n[kNumCounts], place[kNumPlaces];

  rt.kernel @add elementwise(in %a: full f32, in %b: full bf16, inout %c: full f32) {
    %0 = arith.addf %a, %b : f32
    %1 = arith.addf %c, %0 : f32
    rt.yield %1 : f32
  }
  rt.kernel @scale rowwise(in %x: full f32, in %r: per_row f32, in %c: constant f32, in %n: integer i32, in %j: column_index i32, out "y": full f32) {
    %0 = arith.mulf %x, %r : f32
    %1 = arith.mulf %0, %c : f32
    %in = arith.cmpi slt, %j, %n : i32
    %2 = arith.select %in, %1, %c : f32
    rt.yield %2 : f32
  }
  rt.kernel @embed rowwise(in %row: gathered f32, out "x": full f32) {
    rt.yield %row : f32
  }

  // A C++ word as a name gets a mark.
  // CHECK: static heddle_rt_status block([[MU:.*]] heddle_program &p, float *x, float *do_, int64_t layer) {
  rt.func @block(%x: !rt.buf<4x8xf32>, %do: !rt.buf<4x8xf32>, %layer: index) {
    // CHECK-NEXT: float *const weight = at<float>(p.computeArena,
    // CHECK-NEXT: p.place[kModelLayersNWeight] + layer * p.place[kModelLayersNWeight + 1]);
    %w = rt.buffer "model.layers.N.weight" because "parameter" arena "compute" at 256 + %layer * 512 : !rt.buf<16x8xf32>
    // CHECK: // linear, model.layers.N.up
    // CHECK-NEXT: TRY(gemm(p.compute, {.name = "up", .m = 4, .n = 8, .k = 8, .lda = 8, .ldb = 8, .ldc = 8, .transpose_b = 1,
    // CHECK-NEXT: .alpha = 0.5f, .beta = 1.0f, .a = HEDDLE_RT_F32, .b = HEDDLE_RT_F32, .c = HEDDLE_RT_F32, .batch = 1}, x,
    // CHECK-NEXT: weight + 64, do_));
    %half = rt.view %w at 64 : !rt.buf<16x8xf32> -> !rt.buf<8x8xf32>
    rt.gemm "up" %do = %x * %half transpose_b on "compute" m 4 n 8 k 8 lda 8 ldb 8 ldc 8 alpha 0.5 : f32 beta 1.0 : f32 : !rt.buf<4x8xf32>, !rt.buf<4x8xf32>, !rt.buf<8x8xf32> loc("linear, model.layers.N.up")
  }

  rt.func @step() {
    %x = rt.buffer "x" because "input" arena "compute" at 4096 : !rt.buf<4x8xf32>
    %sum = rt.buffer "sum" because "reduced over tp" arena "comm" at 0 : !rt.buf<4x8xf32>
    %b = rt.buffer "b" because "input" arena "compute" at 8192 : !rt.buf<4x8xbf16>
    %r = rt.buffer "r" because "input" arena "compute" at 8448 : !rt.buf<4xf32>
    %table = rt.buffer "table" because "parameter" arena "compute" at 9216 : !rt.buf<5x8xf32>
    %tokens = rt.buffer "tokens" because "input" arena "compute" at 9472 : !rt.buf<4xi32>
    // CHECK: for (int64_t layer = p.n[kLayerEnd]; layer-- > p.n[kLayerBegin];) {
    // What a step calls may be a CUDA graph, with what it is called with as its key.
    // CHECK-NEXT: TRY(graph<block>("block", HEDDLE_RT_GRAPH_SLOT, p.compute, p, x, sum, layer));
    // CHECK-NEXT: }
    rt.for %layer = 1 to 3 reversed {
      rt.call @block(%x, %sum, %layer) : !rt.buf<4x8xf32>, !rt.buf<4x8xf32>, index
    }
    // CHECK: // all_reduce over tp; the residual add needs the whole sum
    // CHECK-NEXT: TRY(heddle_rt_event_record(p.ready, p.compute));
    // CHECK-NEXT: TRY(heddle_rt_stream_wait(p.comm, p.ready));
    // CHECK-NEXT: TRY(heddle_rt_all_reduce(p.tp, p.comm, sum, sum, 32, HEDDLE_RT_F32, HEDDLE_RT_SUM));
    rt.record "ready" on "compute" loc(fused["all_reduce over tp", "the residual add needs the whole sum"])
    rt.wait "ready" on "comm" loc(fused["all_reduce over tp", "the residual add needs the whole sum"])
    rt.all_reduce "sum" sum %sum -> %sum over ["tp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32> loc(fused["all_reduce over tp", "the residual add needs the whole sum"])
    rt.record "reduced" on "comm" loc(fused["all_reduce over tp", "the residual add needs the whole sum"])
    rt.wait "reduced" on "compute" loc(fused["all_reduce over tp", "the residual add needs the whole sum"])
    // CHECK: TRY(elementwise(p.compute, "add", 32, kernels::Add{}, in(x), in(b), inout(sum)));
    rt.kernel_launch "add" @add rows 4 columns 8 (%x, %b, %sum) on "compute" : !rt.buf<4x8xf32>, !rt.buf<4x8xbf16>, !rt.buf<4x8xf32>
    %place = rt.rank_index ["tp"] times 5
    %n = arith.constant 7 : index
    // CHECK: TRY(rowwise(p.compute, "scale", 4, 8, kernels::Scale{0.25f, int32_t(7)}, in(x), inRow(r).grouped(2),
    // CHECK-NEXT: columnIndex(p.tp_place * 5), out(sum)));
    %pairs = rt.view %r at 0 : !rt.buf<4xf32> -> !rt.buf<2x2xf32, strides [1, 0]>
    rt.kernel_launch "scale" @scale rows 4 columns 8 (%x, %pairs, %n, %place, %sum) constants [0.25 : f32] on "compute" : !rt.buf<4x8xf32>, !rt.buf<2x2xf32, strides [1, 0]>, index, index, !rt.buf<4x8xf32>
    // CHECK: TRY(rowwise(p.compute, "embed", 4, 8, kernels::Embed{}, gathered(table, tokens, p.tp_place * 5, 5), out(x)));
    rt.kernel_launch "embed" @embed rows 4 columns 8 (%table, %tokens, %place, %x) on "compute" : !rt.buf<5x8xf32>, !rt.buf<4xi32>, index, !rt.buf<4x8xf32>
    // CHECK: kernels::segmentSort
    %sorted = rt.buffer "sorted" because "positions by token" arena "compute" at 9728 : !rt.buf<16xi32>
    rt.segment_sort "sort" %tokens first %place rows 5 -> %sorted on "compute" : !rt.buf<4xi32> -> !rt.buf<16xi32>
    rt.segment_sum "grad" %x, %sorted -> %table on "compute" : !rt.buf<4x8xf32>, !rt.buf<16xi32> -> !rt.buf<5x8xf32>
  }

  // Ranks count with tp fastest.
  // CHECK: const int64_t dpPlace = rank / p.n[kTpRanks] % p.n[kDpRanks];
  // CHECK-NEXT: const int64_t tpPlace = rank % p.n[kTpRanks];
  // CHECK-NEXT: numbers.readPlaces(0, p.place);
  // CHECK: TRY(heddle_rt_comm_split(context, dpPlace, tpPlace, p.n[kTpRanks], "tp", &p.tp));
  // CHECK-NEXT: TRY(heddle_rt_comm_split(context, tpPlace, dpPlace, p.n[kDpRanks], "dp", &p.dp));
  // CHECK-NEXT: TRY(heddle_rt_comm_split(context, 0, dpPlace * p.n[kTpRanks] + tpPlace, p.n[kDpRanks] * p.n[kTpRanks], "dp,tp",
  // CHECK-NEXT: &p.dp_tp));
  // CHECK: TRY(heddle_rt_alloc(context, HEDDLE_RT_COMPUTE, p.place[kComputeBytes], "compute", &memory));

  // CHECK: struct Add {
  // CHECK-NEXT: HEDDLE_FN void operator()(float a, float b, float &c) const {
  // CHECK-NEXT: c = c + (a + b);
  // CHECK: struct Scale {
  // CHECK-NEXT: float c;
  // CHECK-NEXT: int32_t n;
  // CHECK-NEXT: static constexpr int kPasses = 0;
  // CHECK-NEXT: HEDDLE_FN void apply(const float *, int32_t, float x, float r, int32_t j, float &y) const {
  // CHECK-NEXT: y = (j < n) ? ((x * r) * c) : c;
  // CHECK: extern template heddle_rt_status elementwise(heddle_rt_stream *, const char *, int64_t, kernels::Add,
}
