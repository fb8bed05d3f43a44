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

// The second stage sums the norm first, in the second iteration alone.
rt.program @go_round mesh [#rt.axis<"pp", 2>, #rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"comm">] communicators [["pp"], ["pp", "tp"]] events [] entry @step stages "pp" {
  rt.numbers @kinds [0, 0, 1, 0, 1, 0] over "pp"
  rt.func @step() {
    %x = rt.buffer "x" because "input" arena "a" at 0 : !rt.buf<4x8xf32>
    rt.for %slot = 0 to 3 {
      %kind = rt.lookup @kinds[%slot]
      rt.switch %kind {
      case 0 "gradients" {
        // expected-error @below {{ranks would wait for each other for ever: 2 of them launch collectives of different groups in orders that go round; let all ranks launch them in one order}}
        // expected-note @below {{rank 0 launches all_reduce sum of 32 f32 'grad' over ["pp"] before all_reduce sum of 32 f32 'norm' over ["pp", "tp"]}}
        rt.all_reduce "grad" sum %x -> %x over ["pp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
      }
      case 1 "norm" {
        // expected-note @below {{rank 2 launches all_reduce sum of 32 f32 'norm' over ["pp", "tp"] before all_reduce sum of 32 f32 'grad' over ["pp"]}}
        rt.all_reduce "norm" sum %x -> %x over ["pp", "tp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
      }
      }
    }
  }
}

// -----

// Right: places 0 and 3 are one group, 1 and 2 another, with another order.
rt.program @mirrors mesh [#rt.axis<"pp", 4>, #rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"comm">] communicators [["pp.mirror"]] events [] entry @step stages "pp" {
  rt.numbers @kinds [0, 1, 1, 0] over "pp"
  rt.func @step() {
    %x = rt.buffer "x" because "input" arena "a" at 0 : !rt.buf<4x8xf32>
    %y = rt.buffer "y" because "input" arena "a" at 128 : !rt.buf<4x4xf32>
    %kind = rt.lookup @kinds
    rt.switch %kind {
    case 0 "outer" {
      rt.all_reduce "x" sum %x -> %x over ["pp.mirror"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
      rt.all_reduce "y" sum %y -> %y over ["pp.mirror"] on "comm" : !rt.buf<4x4xf32> -> !rt.buf<4x4xf32>
    }
    case 1 "inner" {
      rt.all_reduce "y" sum %y -> %y over ["pp.mirror"] on "comm" : !rt.buf<4x4xf32> -> !rt.buf<4x4xf32>
      rt.all_reduce "x" sum %x -> %x over ["pp.mirror"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
    }
    }
  }
}

// -----

rt.program @mirrors_differ mesh [#rt.axis<"pp", 4>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"comm">] communicators [["pp.mirror"]] events [] entry @step stages "pp" {
  rt.numbers @kinds [0, 0, 1, 1] over "pp"
  rt.func @step() {
    %x = rt.buffer "x" because "input" arena "a" at 0 : !rt.buf<4x8xf32>
    %kind = rt.lookup @kinds
    rt.switch %kind {
    case 0 "sum" {
      // expected-note @below {{on rank 1}}
      rt.all_reduce "x" sum %x -> %x over ["pp.mirror"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
    }
    case 1 "maximum" {
      // expected-error @below {{launch 1 over ["pp.mirror"] is all_reduce sum of 32 f32 'x' over ["pp.mirror"] on rank 1, but on rank 2 all_reduce max of 32 f32 'x' over ["pp.mirror"]; members of a group have to launch the same, in one order}}
      rt.all_reduce "x" max %x -> %x over ["pp.mirror"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
    }
    }
  }
}

// -----

// Grouped, they may be launched in any order.
rt.program @grouped mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"comm">] communicators [] events [] entry @step channels [#rt.channel<"to_next", "pp", 1>] stages "pp" {
  rt.func @step() {
    %x = rt.buffer "x" because "input" arena "a" at 0 : !rt.buf<4x8xf32>
    %y = rt.buffer "y" because "input" arena "a" at 128 : !rt.buf<4x8xf32>
    rt.group {
      rt.send "x" %x over "to_next" on "comm" : !rt.buf<4x8xf32>
      rt.receive "y" %y over "to_next" on "comm" : !rt.buf<4x8xf32>
    }
  }
}

// -----

// Both send first, and neither receives.
rt.program @both_send mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"comm">] communicators [] events [] entry @step channels [#rt.channel<"to_next", "pp", 1>] stages "pp" {
  rt.func @step() {
    %x = rt.buffer "x" because "input" arena "a" at 0 : !rt.buf<4x8xf32>
    %y = rt.buffer "y" because "input" arena "a" at 128 : !rt.buf<4x8xf32>
    // expected-error @below {{2 of them launch}}
    // expected-note @below {{rank 0 launches send of 32 f32 'x' over "to_next" before receive of 32 f32 'y' over "to_next"}}
    // expected-note @below {{rank 1 launches send of 32 f32 'x' over "to_next" before receive of 32 f32 'y' over "to_next"}}
    rt.send "x" %x over "to_next" on "comm" : !rt.buf<4x8xf32>
    rt.receive "y" %y over "to_next" on "comm" : !rt.buf<4x8xf32>
  }
}

// -----

// The last of three stages has no next one, but sends.
rt.program @sends_more mesh [#rt.axis<"pp", 3>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"comm">] communicators [] events [] entry @step channels [#rt.channel<"to_next", "pp", 1>] stages "pp" {
  rt.numbers @receives [0, 1, 1] over "pp"
  rt.numbers @sends [1, 1, 1] over "pp"
  rt.func @step() {
    %x = rt.buffer "x" because "input" arena "a" at 0 : !rt.buf<4x8xf32>
    %receives = rt.lookup @receives
    %sends = rt.lookup @sends
    rt.for %i = 0 to %receives {
      rt.receive "x" %x over "to_next" on "comm" : !rt.buf<4x8xf32>
    }
    rt.for %k = 0 to %sends {
      // expected-error @below {{launch 1 over to_next is send of 32 f32 'x' over "to_next" on rank 2, but on rank 0 there is none}}
      rt.send "x" %x over "to_next" on "comm" : !rt.buf<4x8xf32>
    }
  }
}

// -----

rt.program @maximum mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"comm">] communicators [["pp"]] events [] entry @step stages "pp" {
  rt.func @step() {
    %x = rt.buffer "x" because "input" arena "a" at 0 : !rt.buf<4x8xf32>
    %stage = rt.rank_index ["pp"]
    rt.switch %stage {
    case 0 "first" {
      // expected-note @below {{on rank 0}}
      rt.all_reduce "grad" sum %x -> %x over ["pp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
    }
    case 1 "last" {
      // expected-error @below {{launch 1 over ["pp"] is all_reduce sum of 32 f32 'grad' over ["pp"] on rank 0, but on rank 1 all_reduce max of 32 f32 'grad' over ["pp"]; members of a group have to launch the same, in one order}}
      rt.all_reduce "grad" max %x -> %x over ["pp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
    }
    }
  }
}

// -----

rt.program @out_of_table mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"comm">] communicators [] events [] entry @step stages "pp" {
  rt.numbers @kinds [0, 0, 1, 0] over "pp"
  rt.func @step() {
    rt.for %slot = 0 to 3 {
      // expected-error @below {{reads number 2 of a row of 2 on rank 0}}
      %kind = rt.lookup @kinds[%slot]
    }
  }
}
