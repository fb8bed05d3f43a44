// RUN: heddle-opt %s --lowering-verify-arenas --split-input-file --verify-diagnostics

// Right: `b` takes the place of `a` when that was read for the last time; all
// layers of a state are one object with each of them.
rt.program @right mesh [] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step {
  rt.func @step() {
    %all = rt.buffer "layers.N.grad" because "gradient" arena "a" at 512 : !rt.buf<2x8xf32>
    rt.zero "zero" %all on "compute" : !rt.buf<2x8xf32>
    rt.for %layer = 0 to 2 {
      %grad = rt.buffer "layers.N.grad" because "gradient" arena "a" at 512 + %layer * 32 : !rt.buf<8xf32>
      %a = rt.buffer "a" because "first" arena "a" at 0 {memory_class = "workspace"} : !rt.buf<8xf32>
      %b = rt.buffer "b" because "second" arena "a" at 16 {memory_class = "workspace"} : !rt.buf<8xf32>
      rt.copy "a" %grad -> %a on "compute" : !rt.buf<8xf32> -> !rt.buf<8xf32>
      rt.copy "read a" %a -> %grad on "compute" : !rt.buf<8xf32> -> !rt.buf<8xf32>
      rt.copy "b" %grad -> %b on "compute" : !rt.buf<8xf32> -> !rt.buf<8xf32>
      rt.copy "read b" %b -> %grad on "compute" : !rt.buf<8xf32> -> !rt.buf<8xf32>
    }
  }
}

// -----

rt.program @overlap mesh [] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step {
  rt.func @step() {
    // expected-note @below {{at bytes 0 to 32}}
    %a = rt.buffer "a" because "first" arena "a" at 0 : !rt.buf<8xf32>
    // expected-note @below {{at bytes 16 to 48}}
    %b = rt.buffer "b" because "second" arena "a" at 16 : !rt.buf<8xf32>
    %c = rt.buffer "c" because "third" arena "a" at 64 : !rt.buf<8xf32>
    rt.zero "make a" %a on "compute" : !rt.buf<8xf32>
    // expected-note @below {{by 'make b'}}
    rt.zero "make b" %b on "compute" : !rt.buf<8xf32>
    // expected-error @below {{'use a' reads buffer 'a', but its bytes from 16 of arena 'a' were written as 'b'}}
    rt.copy "use a" %a -> %c on "compute" : !rt.buf<8xf32> -> !rt.buf<8xf32>
  }
}

// -----

// A stride that is too small: two layers of one name overlap.
rt.program @stride mesh [] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step {
  rt.func @step() {
    %c = rt.buffer "c" because "third" arena "a" at 512 : !rt.buf<8xf32>
    rt.for %layer = 0 to 2 {
      // expected-note @below {{at bytes 16 to 48}}
      %x = rt.buffer "layers.N.x" because "saved" arena "a" at 0 + %layer * 16 : !rt.buf<8xf32>
      // expected-note @below {{by 'make'}}
      rt.zero "make" %x on "compute" : !rt.buf<8xf32>
    }
    rt.for %layer = 0 to 2 {
      // expected-note @below {{at bytes 0 to 32}}
      %x = rt.buffer "layers.N.x" because "saved" arena "a" at 0 + %layer * 16 : !rt.buf<8xf32>
      // expected-error @below {{'use' reads buffer 'layers.N.x', but its bytes from 16}}
      rt.copy "use" %x -> %c on "compute" : !rt.buf<8xf32> -> !rt.buf<8xf32>
    }
  }
}

// -----

// The weight is gone when the next step reads it.
rt.program @next_step mesh [] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step {
  rt.func @step() {
    // expected-note @below {{at bytes 0 to 32}}
    %w = rt.buffer "w" because "parameter" arena "a" at 0 : !rt.buf<8xf32>
    // expected-note @below {{at bytes 0 to 32}}
    %t = rt.buffer "t" because "temporary" arena "a" at 0 : !rt.buf<8xf32>
    %c = rt.buffer "c" because "third" arena "a" at 64 : !rt.buf<8xf32>
    // expected-error @below {{'use w' reads buffer 'w', but its bytes from 0 of arena 'a' were written as 't' in the step before}}
    rt.copy "use w" %w -> %c on "compute" : !rt.buf<8xf32> -> !rt.buf<8xf32>
    // expected-note @below {{by 'make t'}}
    rt.zero "make t" %t on "compute" : !rt.buf<8xf32>
  }
}

// -----

rt.program @unwritten mesh [] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step {
  rt.func @step() {
    %t = rt.buffer "t" because "temporary" arena "a" at 0 {memory_class = "workspace"} : !rt.buf<8xf32>
    %c = rt.buffer "c" because "third" arena "a" at 64 : !rt.buf<8xf32>
    // expected-error @below {{'use' reads buffer 't', which nothing has written in this step}}
    rt.copy "use" %t -> %c on "compute" : !rt.buf<8xf32> -> !rt.buf<8xf32>
  }
}

// -----

rt.program @outside_arena mesh [] arenas [#rt.arena<"a", 64>] streams [#rt.stream<"compute">] communicators [] events [] entry @step {
  rt.func @step() {
    rt.for %layer = 0 to 3 {
      // expected-error @below {{buffer 'x' lies at bytes 64 to 96 of arena 'a', which has 64}}
      %x = rt.buffer "x" because "saved" arena "a" at 0 + %layer * 32 : !rt.buf<8xf32>
      rt.zero "make" %x on "compute" : !rt.buf<8xf32>
    }
  }
}

// -----

rt.program @outside_buffer mesh [] arenas [#rt.arena<"a", 256>] streams [#rt.stream<"compute">] communicators [] events [] entry @step {
  rt.func @step() {
    // expected-note @below {{the buffer}}
    %x = rt.buffer "x" because "saved" arena "a" at 0 : !rt.buf<2x8xf32>
    rt.for %row = 0 to 3 {
      %part = rt.view %x at 0 + %row * 8 : !rt.buf<2x8xf32> -> !rt.buf<8xf32>
      // expected-error @below {{'make' touches bytes 64 to 96, but buffer 'x' has 0 to 64}}
      rt.zero "make" %part on "compute" : !rt.buf<8xf32>
    }
  }
}

// -----

// Right: places by stage, an arena that is smaller where less is needed, bounds
// from a table.
rt.program @stages mesh [#rt.axis<"pp", 3>, #rt.axis<"tp", 2>] arenas [#rt.arena<"a", 640 by_stage [640, 256, 384]>] streams [#rt.stream<"compute">] communicators [] events [] entry @step stages "pp" {
  rt.numbers @layers [3, 1, 2] over "pp"
  rt.func @step() {
    %layers = rt.lookup @layers
    %sum = rt.buffer "sum" because "all layers" arena "a" at 512 by_stage [512, 128, 256] : !rt.buf<4x8xf32>
    rt.zero "sum" %sum on "compute" : !rt.buf<4x8xf32>
    rt.for %layer = 0 to %layers {
      %x = rt.buffer "x" because "of a layer" arena "a" at 0 + %layer * 128 by_stage [0, 128, 0, 0, 0, 128] : !rt.buf<4x8xf32>
      rt.zero "x" %x on "compute" : !rt.buf<4x8xf32>
      rt.copy "x" %x -> %sum on "compute" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
    }
  }
}

// -----

// On the middle stage alone, a layer too many is looked up.
rt.program @too_many mesh [#rt.axis<"pp", 3>] arenas [#rt.arena<"a", 640 by_stage [640, 256, 384]>] streams [#rt.stream<"compute">] communicators [] events [] entry @step stages "pp" {
  rt.numbers @layers [3, 3, 2] over "pp"
  rt.func @step() {
    %layers = rt.lookup @layers
    rt.for %layer = 0 to %layers {
      // expected-error @below {{buffer 'x' lies at bytes 256 to 384 of arena 'a', which has 256}}
      %x = rt.buffer "x" because "of a layer" arena "a" at 0 + %layer * 128 : !rt.buf<4x8xf32>
      rt.zero "x" %x on "compute" : !rt.buf<4x8xf32>
    }
  }
}

// -----

// On the middle stage alone, one buffer lies on another that is still read.
rt.program @overlap mesh [#rt.axis<"pp", 3>] arenas [#rt.arena<"a", 256>] streams [#rt.stream<"compute">] communicators [] events [] entry @step stages "pp" {
  rt.func @step() {
    // expected-note @below {{at bytes 0 to 128}}
    %x = rt.buffer "x" because "first" arena "a" at 128 by_stage [128, 0, 128] : !rt.buf<4x8xf32>
    // expected-note @below {{at bytes 0 to 128}}
    %y = rt.buffer "y" because "second" arena "a" at 0 : !rt.buf<4x8xf32>
    rt.zero "x" %x on "compute" : !rt.buf<4x8xf32>
    // expected-note @below {{by 'y'}}
    rt.zero "y" %y on "compute" : !rt.buf<4x8xf32>
    // expected-error @below {{'copy' reads buffer 'x', but its bytes from 0 of arena 'a' were written as 'y'}}
    rt.copy "copy" %x -> %y on "compute" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
  }
}

// -----

// Three micro-batches, two of them in flight: what one saves is read before its
// set is used again.
rt.program @sets mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 256>] streams [#rt.stream<"compute">] communicators [] events [] entry @step stages "pp" {
  rt.numbers @sets [0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0] over "pp"
  rt.numbers @saves [1, 1, 0, 1, 0, 0, 1, 1, 0, 1, 0, 0] over "pp"
  rt.func @step() {
    %c = rt.buffer "c" because "what is read" arena "a" at 64 : !rt.buf<8xf32>
    rt.for %slot = 0 to 6 {
      %set = rt.lookup @sets[%slot]
      %saves = rt.lookup @saves[%slot]
      %x = rt.buffer "x" because "saved" arena "a" at 0 + %set * 32 {memory_class = "saved"} : !rt.buf<8xf32>
      rt.switch %saves {
      case 1 "forward" {
        rt.zero "forward" %x on "compute" : !rt.buf<8xf32>
      }
      case 0 "backward" {
        rt.copy "backward" %x -> %c on "compute" : !rt.buf<8xf32> -> !rt.buf<8xf32>
      }
      }
    }
  }
}

// -----

// At the second place the third micro-batch takes a set one slot too early.
rt.program @set_too_early mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 256>] streams [#rt.stream<"compute">] communicators [] events [] entry @step stages "pp" {
  rt.numbers @sets [0, 1, 0, 0, 1, 0, 0, 1, 0, 1, 1, 1] over "pp"
  rt.numbers @saves [1, 1, 0, 1, 0, 0, 1, 1, 0, 1, 0, 0] over "pp"
  rt.func @step() {
    %c = rt.buffer "c" because "what is read" arena "a" at 64 : !rt.buf<8xf32>
    rt.for %slot = 0 to 6 {
      %set = rt.lookup @sets[%slot]
      %saves = rt.lookup @saves[%slot]
      %x = rt.buffer "x" because "saved" arena "a" at 0 + %set * 32 {memory_class = "saved"} : !rt.buf<8xf32>
      rt.switch %saves {
      case 1 "forward" {
        // expected-note @below {{by 'forward'}}
        // expected-error @below {{'forward' writes bytes from 32 of arena 'a', where buffer 'x' holds what is saved and nobody has read}}
        rt.zero "forward" %x on "compute" : !rt.buf<8xf32>
      }
      case 0 "backward" {
        rt.copy "backward" %x -> %c on "compute" : !rt.buf<8xf32> -> !rt.buf<8xf32>
      }
      }
    }
  }
}
