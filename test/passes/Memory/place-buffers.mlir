// Where buffers lie, by the loops and cases that a stage runs.
//
// RUN: heddle-opt %s --split-input-file --memory-place-buffers | FileCheck %s
// RUN: heddle-opt %s --split-input-file --memory-place-buffers=apart=true | FileCheck %s --check-prefix=APART

// The first stage runs no layer: it has no room for the weights, nor for the
// frame of @block. The second has 2 x 64 bytes of weights, 128 of its slots and
// 128 of the frame, in which two temporaries share bytes if they may.
// CHECK: rt.program @stages
// CHECK-SAME: #rt.arena<"compute", 384 by_stage [64, 384]>
// APART: rt.program @stages
// APART-SAME: #rt.arena<"compute", 512 by_stage [128, 512]>
rt.program @stages mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"compute", 4096>] streams [#rt.stream<"compute">] communicators [] events [] entry @step stages "pp" {
  rt.numbers @layers [0, 2] over "pp"
  rt.numbers @kind [0, 1, 0, 1] over "pp"
  rt.numbers @has_first [1, 0] over "pp"

  rt.func @block(%w: !rt.buf<16xf32>, %x: !rt.buf<16xf32>) {
    // CHECK: rt.buffer "block.t" {{.*}} at 0 by_stage [0, 256]
    // APART: rt.buffer "block.t" {{.*}} at 0 by_stage [0, 256]
    %t = rt.buffer "block.t" because "in between" arena "compute" at 0 {memory_class = "workspace"} : !rt.buf<32xf32>
    rt.zero "t" %t on "compute" : !rt.buf<32xf32>
    // CHECK: rt.buffer "block.u" {{.*}} at 0 by_stage [0, 256]
    // APART: rt.buffer "block.u" {{.*}} at 0 by_stage [0, 384]
    %u = rt.buffer "block.u" because "later" arena "compute" at 0 {memory_class = "workspace"} : !rt.buf<32xf32>
    rt.zero "u" %u on "compute" : !rt.buf<32xf32>
    rt.copy "x" %x -> %w on "compute" : !rt.buf<16xf32> -> !rt.buf<16xf32>
  }

  rt.func @step() {
    %layers = rt.lookup @layers
    %has_first = rt.lookup @has_first
    rt.for %slot = 0 to 2 {
      %kind = rt.lookup @kind[%slot]
      rt.switch %kind {
      // The write stands in a case that a slot may not run: what the slot before
      // has left may be read, so the value keeps its place for all slots.
      case 0 "forward" {
        // CHECK: rt.buffer "x" {{.*}} at 0 by_stage [0, 128]
        // APART: rt.buffer "x" {{.*}} at 0 by_stage [0, 128]
        %x = rt.buffer "x" because "forward" arena "compute" at 0 {memory_class = "workspace"} : !rt.buf<16xf32>
        rt.switch %has_first {
        case 1 "first" {
          rt.zero "first" %x on "compute" : !rt.buf<16xf32>
        }
        }
        rt.for %layer = 0 to %layers {
          %w = rt.buffer "w" because "weight" arena "compute" at 0 + %layer * 64 {memory_class = "parameters"} : !rt.buf<16xf32>
          rt.call @block(%w, %x) : !rt.buf<16xf32>, !rt.buf<16xf32>
        }
      }
      case 1 "backward" {
        // CHECK: rt.buffer "d" {{.*}} at 0 by_stage [0, 192]
        // APART: rt.buffer "d" {{.*}} at 64 by_stage [64, 192]
        %d = rt.buffer "d" because "backward" arena "compute" at 0 {memory_class = "workspace"} : !rt.buf<16xf32>
        rt.zero "d" %d on "compute" : !rt.buf<16xf32>
        rt.copy "read" %d -> %d on "compute" : !rt.buf<16xf32> -> !rt.buf<16xf32>
      }
      }
    }
  }
}
