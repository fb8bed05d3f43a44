// RUN: heddle-opt %s --split-input-file --verify-diagnostics

// What a program, its functions and its places may not say, by label.

// program C1
// expected-error @below {{has two of arenas called 'a'}}
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1>, #rt.arena<"a", 2>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {

  rt.func @step() {
  }
}

// -----

// program C1
// expected-error @below {{has events without a name}}
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e", ""] entry @step {

  rt.func @step() {
  }
}

// -----

// program C1
// expected-error @below {{axis 'tp' has size 0, expected at least 1}}
rt.program @p mesh [#rt.axis<"tp", 0>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [] events ["e"] entry @step {

  rt.func @step() {
  }
}

// -----

// program C1
// expected-error @below {{arena 'a' has -1 bytes}}
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", -1>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {

  rt.func @step() {
  }
}

// -----

// program C2
// expected-error @below {{has no stream to begin and end its step on}}
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [] communicators [["tp"]] events ["e"] entry @step {

  rt.func @step() {
  }
}

// -----

// program C3
// expected-error @below {{the mesh has no axis 'dp'}}
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["dp"]] events ["e"] entry @step {

  rt.func @step() {
  }
}

// -----

// program C3
// expected-error @below {{names axis 'tp' twice}}
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp", "tp"]] events ["e"] entry @step {

  rt.func @step() {
  }
}

// -----

// program C4
// expected-error @below {{entry @other must be a function of the program without arguments}}
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @other {

  rt.func @step() {
  }
}

// -----

// program C4
// expected-error @below {{entry @other must be a function of the program without arguments}}
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @other {
  rt.func @other(%layer: index) {
  }
  rt.func @step() {
  }
}

// -----

// program C5
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  // expected-error @below {{calls itself}}
  rt.func @f() {
    rt.call @g() 
  }
  rt.func @g() {
    rt.call @f()
  }
  rt.func @step() {
  }
}

// -----

// func C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  // expected-error @below {{arguments must be buffers or index, got 'f32'}}
  rt.func @f(%x: f32) {
  }
  rt.func @step() {
  }
}

// -----

// func C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  // expected-error @below {{argument '0' is no identifier of C++}}
  rt.func @f(%0: index) {
  }
  rt.func @step() {
  }
}

// -----

// func C2: the generic form can say what the other cannot
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  // expected-error @below {{returns nothing, but has 1 results}}
  "rt.func"() <{arg_names = [], function_type = () -> index, sym_name = "f"}> ({
    rt.return
  }) : () -> ()
  rt.func @step() {
  }
}

// -----

// func C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  // expected-error @below {{needs 1 argument names, got 0}}
  "rt.func"() <{arg_names = [], function_type = (index) -> (), sym_name = "f"}> ({
  ^bb0(%x: index):
    rt.return
  }) : () -> ()
  rt.func @step() {
  }
}

// -----

// func C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  // expected-error @below {{two arguments are called 'x'}}
  "rt.func"() <{arg_names = ["x", "x"], function_type = (index, index) -> (), sym_name = "f"}> ({
  ^bb0(%x: index, %y: index):
    rt.return
  }) : () -> ()
  rt.func @step() {
  }
}

// -----

// call C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f() {
    // expected-error @below {{the program has no function @g}}
    rt.call @g()
  }
  rt.func @step() {
  }
}

// -----

// call C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  // expected-note @below {{which are 'index'}}
  rt.func @g(%layer: index) {
  }
  rt.func @f(%x: !rt.buf<4x8xf32>) {
    // expected-error @below {{operands do not have the types of @g's arguments}}
    rt.call @g(%x) : !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// for C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f() {
    // expected-error @below {{runs from 3 to 2, expected 0 <= from <= to}}
    rt.for %i = 3 to 2 {
    }
  }
  rt.func @step() {
  }
}

// -----

// rank_index C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f() {
    // expected-error @below {{the mesh has no axis 'dp'}}
    %i = rt.rank_index ["dp"]
  }
  rt.func @step() {
  }
}

// -----

// buffer C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f() {
    // expected-error @below {{the program has no arena 'b'}}
    %x = rt.buffer "x" because "y" arena "b" at 0 : !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// buffer C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%i: index) {
    // expected-error @below {{stride -4 is negative}}
    %x = rt.buffer "x" because "y" arena "a" at 0 + %i * -4 : !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// buffer C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f() {
    // expected-error @below {{offset -4 is negative}}
    %x = rt.buffer "x" because "y" arena "a" at -4 : !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// buffer C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%i: index) {
    // expected-error @below {{has 1 indices and 0 strides}}
    %x = "rt.buffer"(%i) <{arena = "a", name = "x", offset = 0 : i64, reason = "y", strides = array<i64>}> : (index) -> !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// buffer C3
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f() {
    // expected-error @below {{ends at byte 1028 of arena 'a', which has 1024}}
    %x = rt.buffer "x" because "y" arena "a" at 900 : !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// buffer C4
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f() {
    // expected-error @below {{offset and strides must be multiples of the element's 4 bytes}}
    %x = rt.buffer "x" because "y" arena "a" at 2 : !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// buffer C5
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f() {
    // expected-error @below {{needs a name and a reason}}
    %x = rt.buffer "x" because "" arena "a" at 0 : !rt.buf<4x8xf32>
  }
  rt.func @step() {
  }
}

// -----

// view C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>) {
    // expected-error @below {{changes the element type from 'f32' to 'i32'}}
    %y = rt.view %x at 0 : !rt.buf<4x8xf32> -> !rt.buf<4x8xi32>
  }
  rt.func @step() {
  }
}

// -----

// view C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>) {
    // expected-error @below {{offset -1 is negative}}
    %y = rt.view %x at -1 : !rt.buf<4x8xf32> -> !rt.buf<8xf32>
  }
  rt.func @step() {
  }
}

// -----

// view C3
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f(%x: !rt.buf<4x8xf32>) {
    // expected-error @below {{ends 132 bytes behind the beginning of a buffer of 128}}
    %y = rt.view %x at 25 : !rt.buf<4x8xf32> -> !rt.buf<8xf32>
  }
  rt.func @step() {
  }
}

// -----

// record C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f() {
    // expected-error @below {{the program has no event 'f'}}
    rt.record "f" on "compute"
  }
  rt.func @step() {
  }
}

// -----

// record C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f() {
    // expected-error @below {{the program has no stream 'comm'}}
    rt.record "e" on "comm"
  }
  rt.func @step() {
  }
}

// -----

// record C2: an event of a row is known by its slot alone
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e[0]", "e[1]", "e.1"] entry @step {
  rt.func @f() {
    %slot = arith.constant 1 : index
    rt.record "e" slot %slot of 2 on "compute"
    rt.record "e.1" on "compute"
    // expected-error @below {{names 'e[1]', an event of a row, without its slot}}
    rt.record "e[1]" on "compute"
  }
  rt.func @step() {
  }
}

// -----

// wait C2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e[0]"] entry @step {
  rt.func @f() {
    // expected-error @below {{names 'e[0]', an event of a row, without its slot}}
    rt.wait "e[0]" on "compute"
  }
  rt.func @step() {
  }
}

// -----

// wait C1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  rt.func @f() {
    // expected-error @below {{the program has no event 'f'}}
    rt.wait "f" on "compute"
  }
  rt.func @step() {
  }
}

// -----

// buffer type T1
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  // expected-error @below {{a buffer's element type must be f32,}}
  rt.func @f(%x: !rt.buf<4xi16>) {
  }
  rt.func @step() {
  }
}

// -----

// buffer type T2
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  // expected-error @below {{a buffer's strides must not be negative}}
  rt.func @f(%x: !rt.buf<4xf32, strides [-1]>) {
  }
  rt.func @step() {
  }
}

// -----

// buffer type T3
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  // expected-error @below {{a buffer of rank 2 needs as many strides, got 1}}
  rt.func @f(%x: !rt.buf<4x8xf32, strides [8]>) {
  }
  rt.func @step() {
  }
}

// -----

// buffer type T3
rt.program @p mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">] communicators [["tp"]] events ["e"] entry @step {
  // expected-error @below {{these strides are those of a buffer without gaps; leave them out}}
  rt.func @f(%x: !rt.buf<4x8xf32, strides [8, 1]>) {
  }
  rt.func @step() {
  }
}
