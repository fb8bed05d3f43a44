// RUN: heddle-opt %s --lowering-verify-launches --split-input-file --verify-diagnostics

// Right: all ranks run one text, groups cross each other.
rt.program @one_text mesh [#rt.axis<"dp", 2>, #rt.axis<"tp", 3>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"comm">] communicators [["tp"], ["dp"]] events [] entry @step {
  rt.func @layer(%x: !rt.buf<4x8xf32>) {
    rt.all_reduce "down" sum %x -> %x over ["tp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
    rt.all_reduce "grad" sum %x -> %x over ["dp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
  }
  rt.func @step() {
    %x = rt.buffer "x" because "input" arena "a" at 0 : !rt.buf<4x8xf32>
    rt.for %layer = 0 to 3 {
      rt.call @layer(%x) : !rt.buf<4x8xf32>
    }
  }
}

// -----

// The second stage sums the norm first: seen in the second iteration alone.
module {
  rt.program @first mesh [#rt.axis<"pp", 2>, #rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"comm">] communicators [["pp"], ["pp", "tp"]] events [] entry @step {
    rt.func @step() {
      %x = rt.buffer "x" because "input" arena "a" at 0 : !rt.buf<4x8xf32>
      rt.for %layer = 0 to 2 {
        // expected-error @below {{ranks would wait for each other for ever: 2 of them launch collectives of different groups in orders that go round; let all ranks launch them in one order}}
        // expected-note @below {{rank 0 launches all_reduce sum of 32 f32 'grad' over ["pp"] before all_reduce sum of 32 f32 'norm' over ["pp", "tp"]}}
        rt.all_reduce "grad" sum %x -> %x over ["pp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
      }
      rt.all_reduce "norm" sum %x -> %x over ["pp", "tp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
    }
  }
  rt.program @second mesh [#rt.axis<"pp", 2>, #rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"comm">] communicators [["pp"], ["pp", "tp"]] events [] entry @step {
    rt.func @step() {
      %x = rt.buffer "x" because "input" arena "a" at 0 : !rt.buf<4x8xf32>
      rt.all_reduce "grad" sum %x -> %x over ["pp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
      // expected-note @below {{rank 2 launches all_reduce sum of 32 f32 'norm' over ["pp", "tp"] before all_reduce sum of 32 f32 'last grad' over ["pp"]}}
      rt.all_reduce "norm" sum %x -> %x over ["pp", "tp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
      rt.all_reduce "last grad" sum %x -> %x over ["pp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
    }
  }
}

// -----

// Grouped, they may be launched in any order.
module {
  rt.program @first mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"comm">] communicators [["pp"]] events [] entry @step {
    rt.func @step() {
      %x = rt.buffer "x" because "input" arena "a" at 0 : !rt.buf<4x8xf32>
      %y = rt.buffer "y" because "input" arena "a" at 128 : !rt.buf<4x8xf32>
      rt.group {
        rt.all_reduce "x" sum %x -> %x over ["pp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
        rt.all_reduce "y" sum %y -> %y over ["pp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
      }
    }
  }
  rt.program @second mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"comm">] communicators [["pp"]] events [] entry @step {
    rt.func @step() {
      %x = rt.buffer "x" because "input" arena "a" at 0 : !rt.buf<4x8xf32>
      %y = rt.buffer "y" because "input" arena "a" at 128 : !rt.buf<4x8xf32>
      rt.group {
        rt.all_reduce "y" sum %y -> %y over ["pp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
        rt.all_reduce "x" sum %x -> %x over ["pp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
      }
    }
  }
}

// -----

module {
  rt.program @first mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"comm">] communicators [["pp"]] events [] entry @step {
    rt.func @step() {
      %x = rt.buffer "x" because "input" arena "a" at 0 : !rt.buf<4x8xf32>
      // expected-note @below {{on rank 0}}
      rt.all_reduce "grad" sum %x -> %x over ["pp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
    }
  }
  rt.program @second mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"comm">] communicators [["pp"]] events [] entry @step {
    rt.func @step() {
      %x = rt.buffer "x" because "input" arena "a" at 0 : !rt.buf<4x8xf32>
      // expected-error @below {{launch 1 over ["pp"] is all_reduce sum of 32 f32 'grad' on rank 0, but on rank 1 all_reduce max of 32 f32 'grad'; members of a group have to launch the same, in one order}}
      rt.all_reduce "grad" max %x -> %x over ["pp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
    }
  }
}

// -----

module {
  rt.program @first mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"comm">] communicators [["pp"]] events [] entry @step {
    rt.func @step() {
      %x = rt.buffer "x" because "input" arena "a" at 0 : !rt.buf<4x8xf32>
      rt.for %layer = 0 to 2 {
        // expected-error @below {{launch 2 over ["pp"] is all_reduce sum of 32 f32 'grad' on rank 0, but on rank 1 there is none}}
        rt.all_reduce "grad" sum %x -> %x over ["pp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
      }
    }
  }
  rt.program @second mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"comm">] communicators [["pp"]] events [] entry @step {
    rt.func @step() {
      %x = rt.buffer "x" because "input" arena "a" at 0 : !rt.buf<4x8xf32>
      rt.all_reduce "grad" sum %x -> %x over ["pp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
    }
  }
}

// -----

module {
  // expected-error @below {{one of 2 programs, which are those of the places on axis 'pp' of one mesh; its mesh has 0}}
  rt.program @first mesh [#rt.axis<"dp", 2>] arenas [] streams [#rt.stream<"comm">] communicators [] events [] entry @step {
    rt.func @step() {
    }
  }
  rt.program @second mesh [#rt.axis<"dp", 2>] arenas [] streams [#rt.stream<"comm">] communicators [] events [] entry @step {
    rt.func @step() {
    }
  }
}
