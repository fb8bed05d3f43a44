// What differs between pipeline stages is data: the text asks for it by name.
//
// RUN: heddle-translate --emit-program %s | FileCheck %s
//
// What EmitTest runs is right to the checks as well.
//
// RUN: sed -e 's/@PP@/2/' -e 's/@BYTES@/1024/' -e 's/@KINDS@/0, 0, 1, 1, 0, 0, 1, 1/' -e 's/@MICRO_BATCHES@/0, 1, 0, 1, 0, 1, 0, 1/' -e 's/@LAYERS@/1, 2/' -e 's/@FIRST@/1, 0/' -e 's/@LAST@/0, 1/' -e 's/@SLOTS@/4/' -e 's/@X@/640/' -e 's/@PLACES@/640, 128, 512, 128/' %S/Stages.mlir.in > %t.mlir
// RUN: heddle-opt %t.mlir --lowering-verify-order --lowering-verify-arenas --lowering-verify-launches -o /dev/null

rt.program @stages mesh [#rt.axis<"pp", 3>, #rt.axis<"tp", 2>] arenas [#rt.arena<"compute", 4096 by_stage [4096, 2048, 1024]>] streams [#rt.stream<"compute">, #rt.stream<"comm">] communicators [["tp"], ["pp", "tp"]] events [] entry @step channels [#rt.channel<"to_next", "pp", 1>, #rt.channel<"to_last", "pp", -1>] stages "pp" {
  // CHECK: enum : int32_t {
  // CHECK-NEXT: kPpRanks, // ranks along pp
  // CHECK-NEXT: kTpRanks, // ranks along tp
  // CHECK-NEXT: kSlotEnd, // behind the last slot of a loop
  // CHECK: kComputeBytes = 0, // size of the arena
  // CHECK-NEXT: kSaved = 1, // saved: of a micro-batch; 4x8xf32, + set * stride

  // CHECK: struct heddle_program {
  // CHECK: heddle_rt_comm *tp, *pp_tp;
  // CHECK-NEXT: heddle_rt_comm *to_next_out, *to_next_in; // from place i over pp to i + 1, around the end
  // CHECK-NEXT: heddle_rt_comm *to_last_out, *to_last_in; // from place i over pp to i + -1, around the end
  // CHECK: std::vector<int32_t> kind; // what each slot does
  // CHECK-NEXT: std::vector<int32_t> set;
  // CHECK-NEXT: std::vector<int32_t> layers;
  rt.numbers @kind [0, 1, 2, 1, 0, 1] over "pp" loc("what each slot does")
  rt.numbers @set [0, 1, 0, 0, 1, 1] over "pp"
  rt.numbers @layers [5]

  rt.func @block(%x: !rt.buf<4x8xf32>) {
    rt.all_reduce "down" sum %x -> %x over ["tp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
  }
  rt.func @outer(%x: !rt.buf<4x8xf32>) {
    rt.call @norm(%x) : !rt.buf<4x8xf32>
  }
  rt.func @norm(%x: !rt.buf<4x8xf32>) {
    rt.all_reduce "norm" sum %x -> %x over ["pp", "tp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
  }

  rt.func @step() {
    %layers = rt.lookup @layers
    // CHECK: const int64_t layers = p.layers[0];
    // CHECK-NEXT: for (int64_t slot = 0; slot < p.n[kSlotEnd]; ++slot) {
    rt.for %slot = 0 to 2 {
      %kind = rt.lookup @kind[%slot]
      %set = rt.lookup @set[%slot]
      // CHECK-NEXT: const int64_t kind = p.kind[slot];
      // CHECK-NEXT: const int64_t set = p.set[slot];
      // CHECK-NEXT: float *const saved = at<float>(p.computeArena, p.place[kSaved] + set * p.place[kSaved + 1]);
      %x = rt.buffer "saved" because "of a micro-batch" arena "compute" at 0 + %set * 128 by_stage [0, 128, 128, 256, 0, 128] : !rt.buf<4x8xf32>
      // CHECK-NEXT: switch (kind) {
      // CHECK-NEXT: case 0: { // forward
      // CHECK-NEXT: TRY(heddle_rt_receive(p.to_next_in, p.comm, saved, 32, HEDDLE_RT_F32, kSender));
      // CHECK-NEXT: for (int64_t layer = kind; layer < layers; ++layer) {
      // CHECK-NEXT: TRY(heddle_rt_zero(p.compute, saved, 128));
      // CHECK-NEXT: }
      // CHECK-NEXT: TRY(heddle_rt_send(p.to_next_out, p.comm, saved, 32, HEDDLE_RT_F32, kReceiver));
      // CHECK-NEXT: break;
      // CHECK-NEXT: }
      // CHECK-NEXT: case 2: { // backward
      // CHECK-NEXT: if (set == 1) { // the second one
      // CHECK-NEXT: // gradient of the input
      // CHECK-NEXT: TRY(heddle_rt_send(p.to_last_out
      // CHECK-NEXT: }
      // CHECK-NEXT: break;
      // CHECK-NEXT: }
      // CHECK-NEXT: }
      rt.switch %kind {
      case 0 "forward" {
        rt.receive "x" %x over "to_next" on "comm" : !rt.buf<4x8xf32>
        rt.for %layer = %kind to %layers {
          rt.zero "x" %x on "compute" : !rt.buf<4x8xf32>
        }
        rt.send "x" %x over "to_next" on "comm" : !rt.buf<4x8xf32>
      }
      case 2 "backward" {
        rt.switch %set {
        case 1 "the second one" {
          rt.send "g" %x over "to_last" on "comm" : !rt.buf<4x8xf32> loc("gradient of the input")
        }
        }
      }
      }
      // What a stage calls alone may be a CUDA graph; collectives with other stages want all ranks to call alike.
      //
      // CHECK-NEXT: TRY(graph<block>("block", HEDDLE_RT_GRAPH_SLOT, p.compute, p, saved));
      // CHECK-NEXT: TRY(outer(p, saved));
      rt.call @block(%x) : !rt.buf<4x8xf32>
      rt.call @outer(%x) : !rt.buf<4x8xf32>
    }
  }
  // CHECK: const int64_t ppPlace = rank / p.n[kTpRanks] % p.n[kPpRanks];
  // CHECK: numbers.readPlaces(ppPlace, p.place);
  // CHECK-NEXT: p.kind = numbers.readRow(0, ppPlace);
  // CHECK-NEXT: p.set = numbers.readRow(1, ppPlace);
  // CHECK-NEXT: p.layers = numbers.readRow(2, 0);
  // CHECK: TRY(openChannel(context, rank, {.axis = "pp", .size = int32_t(p.n[kPpRanks]), .below = int32_t(p.n[kTpRanks]),
  // CHECK-NEXT: .shift = 1}, &p.to_next_out, &p.to_next_in));
  // CHECK: .shift = -1}, &p.to_last_out, &p.to_last_in));
  // CHECK: return graph<step>("step", HEDDLE_RT_GRAPH_STEP, program->compute, *program);
}
