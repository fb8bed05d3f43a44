// RUN: heddle-opt %s --split-input-file --verify-diagnostics

// What pipeline stages may not say, by label.

// program C1
// expected-error @below {{has two of channels called 'next'}}
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "pp", 1>, #rt.channel<"next", "pp", 1>] stages "pp" {
  rt.func @step() {
  }
}

// -----

// program C6
// expected-error @below {{stages are over axis 'dp', which the mesh does not have}}
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "pp", 1>] stages "dp" {
  rt.func @step() {
  }
}

// -----

// program C6
// expected-error @below {{leads from each place to the one 1 further over axis 'dp' of size 0}}
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "dp", 1>] stages "pp" {
  rt.func @step() {
  }
}

// -----

// program C6
// expected-error @below {{leads from each place to the one -2 further over axis 'pp' of size 2}}
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "pp", -2>] stages "pp" {
  rt.func @step() {
  }
}

// -----

// program C7
// expected-error @below {{has sizes by stage 1024; expected 2, none negative, the largest of them its bytes}}
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024 by_stage [1024]>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "pp", 1>] stages "pp" {
  rt.func @step() {
  }
}

// -----

// program C7
// expected-error @below {{has sizes by stage 512, 256; expected 2}}
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024 by_stage [512, 256]>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "pp", 1>] stages "pp" {
  rt.func @step() {
  }
}

// -----

// for C1
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "pp", 1>] stages "pp" {
  rt.func @f(%x: !rt.buf<4x8xf32>, %i: index) {
    // expected-error @below {{runs from -1 to -1, expected 0 <= from <= to}}
    rt.for %j = -1 to %i {
    }
  }
  rt.func @step() {
  }
}

// -----

// for C2
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "pp", 1>] stages "pp" {
  rt.func @f(%x: !rt.buf<4x8xf32>, %i: index) {
    // expected-error @below {{needs a constant or a value, not both}}
    "rt.for"(%i) <{lower = 0 : i64, name = "j", operandSegmentSizes = array<i32: 1, 0>, upper = 2 : i64}> ({
    ^bb0(%j: index):
      rt.end
    }) : (index) -> ()
  }
  rt.func @step() {
  }
}

// -----

// switch C1
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "pp", 1>] stages "pp" {
  rt.func @f(%x: !rt.buf<4x8xf32>, %i: index) {
    // expected-error @below {{needs a label and a region for each of at least one case}}
    rt.switch %i {
    }
  }
  rt.func @step() {
  }
}

// -----

// switch C1
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "pp", 1>] stages "pp" {
  rt.func @f(%x: !rt.buf<4x8xf32>, %i: index) {
    // expected-error @below {{has two cases of 3}}
    rt.switch %i {
    case 3 "forward" {
    }
    case 3 "backward" {
    }
    }
  }
  rt.func @step() {
  }
}

// -----

// switch C2
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "pp", 1>] stages "pp" {
  rt.func @f(%x: !rt.buf<4x8xf32>, %i: index) {
    // expected-error @below {{case 3 needs a label}}
    rt.switch %i {
    case 3 "" {
    }
    }
  }
  rt.func @step() {
  }
}

// -----

// switch C2
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "pp", 1>] stages "pp" {
  rt.func @f(%x: !rt.buf<4x8xf32>, %i: index) {
    // expected-error @below {{case 3 has block arguments}}
    "rt.switch"(%i) <{labels = ["forward"], values = array<i64: 3>}> ({
    ^bb0(%j: index):
      rt.end
    }) : (index) -> ()
  }
  rt.func @step() {
  }
}

// -----

// numbers C1
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "pp", 1>] stages "pp" {
  // expected-error @below {{the mesh has no axis 'dp'}}
  rt.numbers @n [1, 2] over "dp"
  rt.func @step() {
  }
}

// -----

// numbers C2
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "pp", 1>] stages "pp" {
  // expected-error @below {{has 3 numbers, which are no 2 rows of one width}}
  rt.numbers @n [1, 2, 3] over "pp"
  rt.func @step() {
  }
}

// -----

// numbers C2
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "pp", 1>] stages "pp" {
  // expected-error @below {{has 0 numbers, which are no 1 rows of one width}}
  rt.numbers @n []
  rt.func @step() {
  }
}

// -----

// numbers C3
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "pp", 1>] stages "pp" {
  // expected-error @below {{number 2147483648 does not fit into 32 bits}}
  rt.numbers @n [2147483648]
  rt.func @step() {
  }
}

// -----

// lookup C1
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "pp", 1>] stages "pp" {
  rt.numbers @n [1, 2, 3, 4] over "pp"
  rt.func @f(%x: !rt.buf<4x8xf32>, %i: index) {
    // expected-error @below {{the program has no numbers @m}}
    %n = rt.lookup @m[%i]
  }
  rt.func @step() {
  }
}

// -----

// lookup C2
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "pp", 1>] stages "pp" {
  rt.numbers @n [1, 2, 3, 4] over "pp"
  rt.func @f(%x: !rt.buf<4x8xf32>, %i: index) {
    // expected-error @below {{needs an index: a row of @n has 2 numbers}}
    %n = rt.lookup @n
  }
  rt.func @step() {
  }
}

// -----

// lookup C3
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "pp", 1>] stages "pp" {
  rt.numbers @n [1, 2, 3, 4] over "pp"
  rt.func @f(%x: !rt.buf<4x8xf32>, %i: index) {
    %two = arith.constant 2 : index
    // expected-error @below {{number 2 of @n, whose rows have 2}}
    %n = rt.lookup @n[%two]
  }
  rt.func @step() {
  }
}

// -----

// buffer C6
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "pp", 1>] stages "pp" {
  rt.func @f(%x: !rt.buf<4x8xf32>, %i: index) {
    // expected-error @below {{by_stage needs 2 rows of 1 numbers, the first of them as written behind 'at'; got 1 numbers}}
    %y = rt.buffer "y" because "y" arena "a" at 0 by_stage [0] : !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// buffer C6
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "pp", 1>] stages "pp" {
  rt.func @f(%x: !rt.buf<4x8xf32>, %i: index) {
    // expected-error @below {{by_stage needs 2 rows of 1 numbers}}
    %y = rt.buffer "y" because "y" arena "a" at 0 by_stage [64, 0] : !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// buffer C6
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "pp", 1>] stages "pp" {
  rt.func @f(%x: !rt.buf<4x8xf32>, %i: index) {
    // expected-error @below {{by_stage needs 2 rows of 2 numbers}}
    %y = rt.buffer "y" because "y" arena "a" at 0 + %i * 128 by_stage [0, 256, 0, 128] : !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// buffer C2
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "pp", 1>] stages "pp" {
  rt.func @f(%x: !rt.buf<4x8xf32>, %i: index) {
    // expected-error @below {{stride -8 is negative}}
    %y = rt.buffer "y" because "y" arena "a" at 0 + %i * 128 by_stage [0, 128, 0, -8] : !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// buffer C3: a stage that does not use it may have a smaller arena
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024 by_stage [1024, 512]>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "pp", 1>] stages "pp" {
  rt.func @f(%x: !rt.buf<4x8xf32>, %i: index) {
    // expected-error @below {{ends at byte 1152 of arena 'a', which has 1024}}
    %y = rt.buffer "y" because "y" arena "a" at 0 by_stage [0, 1024] : !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// buffer C4
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "pp", 1>] stages "pp" {
  rt.func @f(%x: !rt.buf<4x8xf32>, %i: index) {
    // expected-error @below {{offset and strides must be multiples of the element}}
    %y = rt.buffer "y" because "y" arena "a" at 0 by_stage [0, 2] : !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// send C1
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "pp", 1>] stages "pp" {
  rt.func @f(%x: !rt.buf<4x8xf32>, %i: index) {
    // expected-error @below {{the program has no channel 'back'}}
    rt.send "x" %x over "back" on "compute" : !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// send C1
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "pp", 1>] stages "pp" {
  rt.func @f(%x: !rt.buf<4x8xf32>, %i: index) {
    // expected-error @below {{the program has no stream 'comm'}}
    rt.send "x" %x over "next" on "comm" : !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// receive C1
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "pp", 1>] stages "pp" {
  rt.func @f(%x: !rt.buf<4x8xf32>, %i: index) {
    // expected-error @below {{the program has no channel 'back'}}
    rt.receive "x" %x over "back" on "compute" : !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// receive C2
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "pp", 1>] stages "pp" {
  rt.func @f(%x: !rt.buf<4x8xf32>, %i: index) {
    %y = rt.view %x at 0 : !rt.buf<4x8xf32> -> !rt.buf<4x4xf32, strides [8, 1]>
    // expected-error @below {{needs buffers without gaps}}
    rt.receive "x" %y over "next" on "compute" : !rt.buf<4x4xf32, strides [8, 1]>
  }
  rt.func @step() {
  }
}

// -----

// group C1
rt.program @p mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events [] entry @step channels [#rt.channel<"next", "pp", 1>] stages "pp" {
  rt.func @f(%x: !rt.buf<4x8xf32>, %i: index) {
    rt.group {
      // expected-error @below {{is no collective and no message, so it cannot be in a group}}
      rt.zero "x" %x on "compute" : !rt.buf<4x8xf32>
    }
  }
  rt.func @step() {
  }
}
