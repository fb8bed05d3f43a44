// RUN: heddle-opt %s --lowering-verify-order --split-input-file --verify-diagnostics

// Right: one event each way. The buffer comes round in every iteration.
rt.program @right mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">, #rt.stream<"comm">] communicators [["tp"]] events ["ready", "reduced"] entry @step {
  rt.func @step() {
    %x = rt.buffer "x" because "input" arena "a" at 0 : !rt.buf<4x8xf32>
    %w = rt.buffer "w" because "weight" arena "a" at 128 : !rt.buf<8x8xf32>
    %h = rt.buffer "h" because "sum" arena "a" at 384 : !rt.buf<4x8xf32>
    rt.for %layer = 0 to 3 {
      rt.gemm "down" %h = %x * %w on "compute" m 4 n 8 k 8 lda 8 ldb 8 ldc 8 : !rt.buf<4x8xf32>, !rt.buf<4x8xf32>, !rt.buf<8x8xf32>
      rt.record "ready" on "compute"
      rt.wait "ready" on "comm"
      rt.all_reduce "down" sum %h -> %h over ["tp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
      rt.record "reduced" on "comm"
      rt.wait "reduced" on "compute"
      rt.copy "next" %h -> %x on "compute" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
    }
  }
}

// -----

rt.program @no_event_before mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">, #rt.stream<"comm">] communicators [["tp"]] events ["start", "reduced"] entry @step {
  rt.func @step() {
    %x = rt.buffer "x" because "input" arena "a" at 0 : !rt.buf<4x8xf32>
    %w = rt.buffer "w" because "weight" arena "a" at 128 : !rt.buf<8x8xf32>
    // expected-note @below {{bytes 384 to 512 of arena 'a', buffer 'h'}}
    %h = rt.buffer "h" because "sum" arena "a" at 384 : !rt.buf<4x8xf32>
    rt.record "start" on "compute"
    rt.wait "start" on "comm"
    // expected-note @below {{record an event on 'compute' behind this, and wait for it on 'comm'}}
    rt.gemm "down" %h = %x * %w on "compute" m 4 n 8 k 8 lda 8 ldb 8 ldc 8 : !rt.buf<4x8xf32>, !rt.buf<4x8xf32>, !rt.buf<8x8xf32>
    // expected-error @below {{'sum' on stream 'comm' reads what 'down' on stream 'compute' writes; no event orders them}}
    rt.all_reduce "sum" sum %h -> %h over ["tp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
    rt.record "reduced" on "comm"
    rt.wait "reduced" on "compute"
  }
}

// -----

// The event back is missing: the second iteration overwrites what is still being
// reduced. Seen only where the loop comes round.
rt.program @reused_too_early mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">, #rt.stream<"comm">] communicators [["tp"]] events ["ready", "reduced"] entry @step {
  rt.func @step() {
    %x = rt.buffer "x" because "input" arena "a" at 0 : !rt.buf<4x8xf32>
    %w = rt.buffer "w" because "weight" arena "a" at 128 : !rt.buf<8x8xf32>
    // expected-note @below {{buffer 'h'}}
    %h = rt.buffer "h" because "sum" arena "a" at 384 : !rt.buf<4x8xf32>
    rt.for %layer = 0 to 2 {
      // expected-error @below {{'down' on stream 'compute' writes what 'sum' on stream 'comm' writes; no event orders them}}
      rt.gemm "down" %h = %x * %w on "compute" m 4 n 8 k 8 lda 8 ldb 8 ldc 8 : !rt.buf<4x8xf32>, !rt.buf<4x8xf32>, !rt.buf<8x8xf32>
      rt.record "ready" on "compute"
      rt.wait "ready" on "comm"
      // expected-note @below {{record an event on 'comm' behind this, and wait for it on 'compute'}}
      rt.all_reduce "sum" sum %h -> %h over ["tp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
    }
    rt.record "reduced" on "comm"
    rt.wait "reduced" on "compute"
  }
}

// -----

// Two buffers that take turns hide the fault until the third iteration.
rt.program @reused_in_the_third mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">, #rt.stream<"comm">] communicators [["tp"]] events ["ready", "reduced"] entry @step {
  rt.func @turn(%h: !rt.buf<4x8xf32>) {
    // expected-error @below {{'fill' on stream 'compute' writes what 'sum' on stream 'comm' writes}}
    rt.zero "fill" %h on "compute" : !rt.buf<4x8xf32>
    rt.record "ready" on "compute"
    rt.wait "ready" on "comm"
    // expected-note @below {{record an event on 'comm'}}
    rt.all_reduce "sum" sum %h -> %h over ["tp"] on "comm" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
  }
  rt.func @step() {
    rt.for %pair = 0 to 2 {
      // expected-note @below {{buffer 'even'}}
      %even = rt.buffer "even" because "sum" arena "a" at 0 : !rt.buf<4x8xf32>
      %odd = rt.buffer "odd" because "sum" arena "a" at 128 : !rt.buf<4x8xf32>
      rt.call @turn(%even) : !rt.buf<4x8xf32>
      rt.call @turn(%odd) : !rt.buf<4x8xf32>
    }
    rt.record "reduced" on "comm"
    rt.wait "reduced" on "compute"
  }
}

// -----

// Column slices of one buffer do not meet, whatever lies between their ends.
rt.program @slices mesh [] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">, #rt.stream<"copy">] communicators [] events ["start", "done"] entry @step {
  rt.func @step() {
    %qkv = rt.buffer "qkv" because "projections" arena "a" at 0 : !rt.buf<4x16xf32>
    %w = rt.buffer "w" because "weight" arena "a" at 256 : !rt.buf<8x8xf32>
    %x = rt.buffer "x" because "input" arena "a" at 512 : !rt.buf<4x8xf32>
    %q = rt.view %qkv at 0 : !rt.buf<4x16xf32> -> !rt.buf<4x8xf32, strides [16, 1]>
    %k = rt.view %qkv at 8 : !rt.buf<4x16xf32> -> !rt.buf<4x8xf32, strides [16, 1]>
    rt.record "start" on "compute"
    rt.wait "start" on "copy"
    rt.gemm "q" %q = %x * %w on "compute" m 4 n 8 k 8 lda 8 ldb 8 ldc 16 : !rt.buf<4x8xf32, strides [16, 1]>, !rt.buf<4x8xf32>, !rt.buf<8x8xf32>
    rt.gemm "k" %k = %x * %w on "copy" m 4 n 8 k 8 lda 8 ldb 8 ldc 16 : !rt.buf<4x8xf32, strides [16, 1]>, !rt.buf<4x8xf32>, !rt.buf<8x8xf32>
    rt.record "done" on "copy"
    rt.wait "done" on "compute"
  }
}

// -----

rt.program @before_the_step mesh [] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">, #rt.stream<"copy">] communicators [] events ["done"] entry @step {
  rt.func @step() {
    %x = rt.buffer "x" because "input" arena "a" at 0 : !rt.buf<4x8xf32>
    // expected-error @below {{'early' on stream 'copy' may run before the step begins}}
    rt.zero "early" %x on "copy" : !rt.buf<4x8xf32>
    rt.record "done" on "copy"
    rt.wait "done" on "compute"
  }
}

// -----

rt.program @after_the_step mesh [] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">, #rt.stream<"copy">] communicators [] events ["start"] entry @step {
  rt.func @step() {
    %x = rt.buffer "x" because "input" arena "a" at 0 : !rt.buf<4x8xf32>
    rt.record "start" on "compute"
    rt.wait "start" on "copy"
    // expected-error @below {{stream 'copy' still has 'late' when the step ends}}
    rt.zero "late" %x on "copy" : !rt.buf<4x8xf32>
  }
}

// -----

rt.program @other_step mesh [] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">, #rt.stream<"copy">] communicators [] events ["done"] entry @step {
  rt.func @step() {
    // expected-error @below {{waits for event 'done', which this step has not recorded; no event may cross a step}}
    rt.wait "done" on "compute"
  }
}

// -----

rt.program @redundant mesh [] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">, #rt.stream<"copy">] communicators [] events ["start"] entry @step {
  rt.func @step() {
    rt.record "start" on "compute"
    rt.wait "start" on "copy"
    // expected-remark @below {{waits for event 'start', which orders nothing that is not ordered already}}
    rt.wait "start" on "copy"
  }
}

// -----

// Ranks that address by their place are walked one by one: rank 1 is at fault.
rt.program @by_rank mesh [#rt.axis<"tp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">, #rt.stream<"copy">] communicators [] events ["start", "done"] entry @step {
  rt.func @step() {
    %place = rt.rank_index ["tp"]
    %x = rt.buffer "x" because "input" arena "a" at 128 : !rt.buf<4x8xf32>
    // expected-note @below {{bytes 128 to 256 of arena 'a', buffer 'own'}}
    %own = rt.buffer "own" because "a shard" arena "a" at 0 + %place * 128 : !rt.buf<4x8xf32>
    rt.record "start" on "compute"
    rt.wait "start" on "copy"
    // expected-note @below {{record an event on 'compute'}}
    rt.zero "x" %x on "compute" : !rt.buf<4x8xf32>
    // expected-error @below {{'own' on stream 'copy' writes what 'x' on stream 'compute' writes}}
    rt.zero "own" %own on "copy" : !rt.buf<4x8xf32>
    rt.record "done" on "copy"
    rt.wait "done" on "compute"
  }
}

// -----

// Only the middle stage of three runs the case that lacks an event; found on
// that stage, in the slot that its row of the table names.
rt.program @stages mesh [#rt.axis<"pp", 3>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">, #rt.stream<"comm">] communicators [] events ["start", "ready", "end"] entry @step channels [#rt.channel<"to_next", "pp", 1>] stages "pp" {
  rt.numbers @slots [0, 0, 0, 1, 0, 0] over "pp"
  rt.func @step() {
    // expected-note @below {{bytes 0 to 128 of arena 'a', buffer 'x'}}
    %x = rt.buffer "x" because "input" arena "a" at 0 : !rt.buf<4x8xf32>
    rt.record "start" on "compute"
    rt.wait "start" on "comm"
    rt.for %slot = 0 to 2 {
      %kind = rt.lookup @slots[%slot]
      rt.switch %kind {
      case 0 "ordered" {
        rt.zero "x" %x on "compute" : !rt.buf<4x8xf32>
        rt.record "ready" on "compute"
        rt.wait "ready" on "comm"
        rt.group {
          rt.send "send x" %x over "to_next" on "comm" : !rt.buf<4x8xf32>
        }
        rt.record "end" on "comm"
        rt.wait "end" on "compute"
      }
      case 1 "without an event" {
        // expected-note @below {{record an event on 'compute' behind this, and wait for it on 'comm'}}
        rt.zero "x" %x on "compute" : !rt.buf<4x8xf32>
        // expected-error @below {{'send x' on stream 'comm' reads what 'x' on stream 'compute' writes; no event orders them}}
        rt.send "send x" %x over "to_next" on "comm" : !rt.buf<4x8xf32>
        rt.record "end" on "comm"
        rt.wait "end" on "compute"
      }
      }
    }
  }
}

// -----

// What is received is written by the stream that receives.
rt.program @received mesh [#rt.axis<"pp", 2>] arenas [#rt.arena<"a", 1024>] streams [#rt.stream<"compute">, #rt.stream<"comm">] communicators [] events ["start", "end"] entry @step channels [#rt.channel<"to_next", "pp", 1>] stages "pp" {
  rt.func @step() {
    // expected-note @below {{buffer 'x'}}
    %x = rt.buffer "x" because "input" arena "a" at 0 : !rt.buf<4x8xf32>
    %y = rt.buffer "y" because "input" arena "a" at 128 : !rt.buf<4x8xf32>
    rt.record "start" on "compute"
    rt.wait "start" on "comm"
    // expected-note @below {{record an event on 'comm' behind this, and wait for it on 'compute'}}
    rt.receive "receive x" %x over "to_next" on "comm" : !rt.buf<4x8xf32>
    // expected-error @below {{'read x' on stream 'compute' reads what 'receive x' on stream 'comm' writes; no event orders them}}
    rt.copy "read x" %x -> %y on "compute" : !rt.buf<4x8xf32> -> !rt.buf<4x8xf32>
    rt.record "end" on "comm"
    rt.wait "end" on "compute"
  }
}
