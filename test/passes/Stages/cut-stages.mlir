// A small step, as Collectives leaves one, becomes that of a place.
//
// RUN: heddle-opt %s --stages-cut > %t
// RUN: FileCheck %s < %t
// RUN: FileCheck %s --check-prefix=REST < %t
//
// Text grows neither with layers nor with places and chunks.
// RUN: sed 's/"layer" 3/"layer" 97/; s/layers 3/layers 97/; s/stack<3 x/stack<97 x/; s/\[\["0..1"\], \["2"\]\]/[["0..1", "3..90"], ["2", "91..96"]]/; s|"F0 F1 D0 D1 O", "F0 D0 F1 D1 O"|"F0..1 F0..1/1 D0..1/1 D0..1 O", "F0..1 F0..1/1 D0..1/1 D0..1 O"|' %s | heddle-opt --stages-cut | wc -l > %t.many
// RUN: wc -l < %t | diff %t.many -
//
// One place has all that is summed, and both ends; nothing moves.
// RUN: sed 's/"pp" = 2/"pp" = 1/; s/"tp" = 2/"tp" = 1/; s/\[\["0..1"\], \["2"\]\]/[["0..2"]]/; s/"F0 F1 D0 D1 O", //' %s | heddle-opt --stages-cut | FileCheck %s --check-prefix=ONE
//
// Eight ranks cut the vectors of the tokens, for which no sequence is long enough; three cut nothing.
// RUN: sed 's/"tp" = 2/"tp" = 8/' %s | heddle-opt --stages-cut | FileCheck %s --check-prefix=DIM
// RUN: sed 's/"tp" = 2/"tp" = 3/' %s | heddle-opt --stages-cut | FileCheck %s --check-prefix=UNCUT
//
// Ends add in the format that gradients are reduced in, also where a reduction has left one in it.
// RUN: sed 's/dist.mesh = #pod/dist.mesh = #pod, transformer.precision = {reduce = bf16}/' %s > %t.reduce
// RUN: heddle-opt %t.reduce --stages-cut | FileCheck %s --check-prefix=FORMAT
// RUN: sed 's|transformer.store %ts to @table.gradient : !t|%tw = transformer.cast %ts : !t -> tensor<16x8xbf16> %tk = transformer.cast %tw : tensor<16x8xbf16> -> !t transformer.store %tk to @table.gradient : !t|' %t.reduce | heddle-opt --stages-cut | FileCheck %s --check-prefix=FORMAT
// RUN: sed 's/"pp" = 2/"pp" = 1/; s/"tp" = 2/"tp" = 1/; s/\[\["0..1"\], \["2"\]\]/[["0..2"]]/; s/"F0 F1 D0 D1 O", //' %t.reduce | heddle-opt --stages-cut | FileCheck %s --check-prefix=ONE
//
// Two copies of the model: gradients are summed over both, and count once. A place has both ends, so that is the sum over
// them too; what the embedding would gather for the head is of another micro-batch.
// RUN: sed 's/\[\["0..1"\], \["2"\]\]/[["0..1", "2"], ["2", "0..1"]]/; s|"F0 F1 D0 D1 O", "F0 D0 F1 D1 O"|"@0,1'"'"' F0 F1/1 D0 D1/1 O", "@1,0'"'"' F0 F1/1 D0 D1/1 O"|' %s > %t.copies
// RUN: heddle-opt %t.copies --stages-cut | FileCheck %s --check-prefix=COPIES
//
// Copies whose ends are at four places: a shared table would need a sum over all of them.
// RUN: sed 's/"pp" = 2/"pp" = 4/; s/\[\["0..1"\], \["2"\]\]/[["0..2", ""], ["", ""], ["", ""], ["", "0..2"]]/; s|rows \[.*\]|rows ["@0,2'"'"' S", "@1,3'"'"' S", "@3,1'"'"' S", "@2,0'"'"' S"]|; s|S"|F0 F1/1 D0 D1/1 O"|g' %s | not heddle-opt --stages-cut 2>&1 | FileCheck %s --check-prefix=APART
//
// Without a table nothing happens.
// RUN: sed '/stage.table/d' %s | heddle-opt > %t.none
// RUN: heddle-opt %t.none --stages-cut | diff %t.none -

// A place has room for as many layers as any holds.
//
// CHECK:       transformer.state @table parameter : tensor<16x8xf32>
// CHECK:       transformer.state @"l.{}.w" parameter layers 2 :
// CHECK:       transformer.state @"l.{}.w.gradient" gradient layers 2 of

// CHECK-LABEL: func.func @step(
// CHECK-SAME:    %[[TOKENS:[^:]*]]: !transformer.stack<2 x tensor<2x4xi32>>, %[[LABELS:[^:]*]]: !transformer.stack<2 x tensor<2x4xi32>>, %[[SEEDS:[^:]*]]: !transformer.stack<2 x tensor<i64>>
// CHECK-NEXT:    %[[ALL:.*]] = stage.layers{{$}}
// CHECK-NEXT:    stage.where ends {
// CHECK-NEXT:      transformer.zero @table.gradient_sum
// CHECK-NEXT:      stage.yield
// CHECK-NEXT:    }
// CHECK-NEXT:    stage.where head {
// CHECK-NEXT:      transformer.zero @norm.gradient_sum
// CHECK-NEXT:      stage.yield
// CHECK-NEXT:    }
// CHECK-NEXT:    transformer.zero @"l.{}.w.gradient_sum"
// CHECK-NEXT:    %[[NONE:.*]] = transformer.zeros

// Forward: what came in is whole again on the ranks of the stage; the sum of
// what blocks carry goes on, a part from each rank.
//
// CHECK-NEXT:    %[[SLOTS:.*]] = stage.run @schedule carry(%[[NONE]]) : (tensor<f32>) -> tensor<f32> forward {
// CHECK-NEXT:    ^bb0(%chunk: index, %i: index, %[[IN:.*]]: tensor<2x2x8xf32>):
// CHECK-NEXT:      %[[IDS:.*]] = transformer.get %[[TOKENS]] at %i
// CHECK-NEXT:      %[[X:.*]]:2 = stage.where embedding at %chunk
// CHECK-NEXT:        %[[TABLE:.*]] = transformer.load @table
// CHECK-NEXT:        %[[Y:.*]]:2 = func.call @embedding(%[[IDS]], %[[TABLE]])
// CHECK-NEXT:        stage.yield %[[Y]]#0, %[[Y]]#1
// CHECK-NEXT:      } else {
// CHECK-NEXT:        %[[WHOLE:.*]] = dist.all_gather %[[IN]] on #mesh over ["tp"] dim 1
// CHECK-NEXT:        %[[NO_DELTA:.*]] = transformer.zeros_like %[[WHOLE]]
// CHECK-NEXT:        stage.yield %[[WHOLE]], %[[NO_DELTA]]
// CHECK-NEXT:      }
// CHECK-NEXT:      %[[COUNT:.*]] = stage.layers at %chunk
// CHECK-NEXT:      %[[Z:.*]]:3 = transformer.loop "layer" 2 up_to %[[COUNT]] carry(%[[X]]#0, %[[X]]#1)
// CHECK-NEXT:      ^bb0(%layer: index, %[[A:.*]]: tensor<2x4x8xf32>, %{{.*}}: tensor<2x4x8xf32>):
// CHECK-NEXT:        %[[HELD:.*]] = stage.layer %layer of %chunk
// CHECK-NEXT:        transformer.load @"l.{}.w" at %[[HELD]]
// CHECK-NEXT:        transformer.get %[[SEEDS]] at %[[HELD]]
// CHECK-NEXT:        func.call @block(
// CHECK-NEXT:        transformer.yield {{.*}} collect %[[A]]
// CHECK-NEXT:      }
// CHECK-NEXT:      %[[OUT:.*]] = stage.where successor at %chunk
// CHECK-NEXT:        %sent = transformer.add %[[Z]]#0, %[[Z]]#1
// CHECK-NEXT:        %[[PART:.*]] = dist.slice %sent on #mesh over ["tp"] dim 1
// CHECK-NEXT:        stage.yield %[[PART]]
// CHECK-NEXT:      } else {
// CHECK-NEXT:        %[[NOTHING:.*]] = stage.undefined
// CHECK-NEXT:        stage.yield %[[NOTHING]]
// CHECK-NEXT:      }
// CHECK-NEXT:      %[[LAST:.*]]:2 = stage.where head at %chunk
// CHECK-NEXT:        stage.yield %[[Z]]#0, %[[Z]]#1
// CHECK-NEXT:      } else {
// CHECK-COUNT-2:     stage.undefined
// CHECK-NEXT:        stage.yield
// CHECK-NEXT:      }
// CHECK-NEXT:      stage.yield send %[[OUT]] : tensor<2x2x8xf32> save %[[Z]]#2, %[[LAST]]#0, %[[LAST]]#1
// CHECK-NEXT:    } backward {

// Backward: the head's loss is added where the head is; what a chunk has saved
// is numbered within the chunk, states within the place.
//
// CHECK-NEXT:    ^bb0(%chunk: index, %i: index, %[[LOSS:.*]]: tensor<f32>, %[[D_IN:.*]]: tensor<2x2x8xf32>, %[[SAVED:.*]]: !transformer.stack<2 x tensor<2x4x8xf32>>, %[[HX:.*]]: tensor<2x4x8xf32>, %[[HD:.*]]: tensor<2x4x8xf32>):
// CHECK-NEXT:      %[[LS:.*]] = transformer.get %[[LABELS]] at %i
// CHECK-NEXT:      %[[IDS2:.*]] = transformer.get %[[TOKENS]] at %i
// CHECK-NEXT:      %[[D:.*]]:2 = stage.where head at %chunk -> (tensor<f32>, tensor<2x4x8xf32>) {
// CHECK-NEXT:        transformer.load @norm
// CHECK-NEXT:        transformer.load @table
// CHECK-NEXT:        %[[H:.*]]:5 = func.call @head(%[[HX]], %[[HD]], {{.*}}, %[[LS]])
// CHECK-NEXT:        transformer.accumulate {{.*}} into @norm.gradient_sum
// CHECK-NEXT:        transformer.accumulate {{.*}} into @table.gradient_sum
// CHECK-NEXT:        %[[AFTER:.*]] = transformer.add %[[LOSS]], %[[H]]#0
// CHECK-NEXT:        stage.yield %[[AFTER]], %[[H]]#1
// CHECK-NEXT:      } else {
// CHECK-NEXT:        %[[D_WHOLE:.*]] = dist.all_gather %[[D_IN]] on #mesh over ["tp"] dim 1
// CHECK-NEXT:        stage.yield %[[LOSS]], %[[D_WHOLE]]
// CHECK-NEXT:      }
// CHECK-NEXT:      %[[COUNT2:.*]] = stage.layers at %chunk
// CHECK-NEXT:      %[[DX:.*]] = transformer.loop "layer" 2 up_to %[[COUNT2]] reversed carry(%[[D]]#1)
// CHECK-NEXT:      ^bb0
// CHECK-NEXT:        %[[HELD2:.*]] = stage.layer %layer of %chunk
// CHECK-NEXT:        transformer.load @"l.{}.w" at %[[HELD2]]
// CHECK-NEXT:        transformer.get %[[SEEDS]] at %[[HELD2]]
// CHECK-NEXT:        transformer.get %[[SAVED]] at %layer
// CHECK-NEXT:        func.call @block_bwd(
// CHECK-NEXT:        transformer.accumulate {{.*}} into @"l.{}.w.gradient_sum" at %[[HELD2]]
// CHECK-NEXT:        transformer.yield
// CHECK-NEXT:      }
// CHECK-NEXT:      stage.where embedding at %chunk {
// CHECK-NEXT:        %[[DT:.*]] = func.call @embedding_bwd(%[[DX]], %[[IDS2]])
// CHECK-NEXT:        transformer.accumulate %[[DT]] into @table.gradient_sum
// CHECK-NEXT:        stage.yield
// CHECK-NEXT:      }
// CHECK-NEXT:      %[[D_OUT:.*]] = stage.where predecessor at %chunk
// CHECK-NEXT:        %[[D_PART:.*]] = dist.slice %[[DX]] on #mesh over ["tp"] dim 1
// CHECK-NEXT:        stage.yield %[[D_PART]]
// CHECK-NEXT:      } else {
// CHECK-NEXT:        stage.undefined
// CHECK-NEXT:        stage.yield
// CHECK-NEXT:      }
// CHECK-NEXT:      stage.yield %[[D]]#0 : tensor<f32> send %[[D_OUT]]
// CHECK-NEXT:    }

// FORMAT:        %[[KEPT:.*]] = transformer.load @table.gradient_sum
// FORMAT-NEXT:   %[[OWN:.*]] = transformer.cast %[[KEPT]] {{.*}}: tensor<16x8xf32> -> tensor<16x8xbf16>
// FORMAT-NEXT:   %[[BOTH:.*]] = stage.sum_ends %[[OWN]] : tensor<16x8xbf16>
// FORMAT-NEXT:   %[[SUM:.*]] = transformer.cast %[[BOTH]] {{.*}}: tensor<16x8xbf16> -> tensor<16x8xf32>
// FORMAT-NEXT:   transformer.store %[[SUM]] to @table.gradient

// The shared table is summed over both ends and counts once in the norm; loss
// and norm are summed over all places.
//
// REST:        %[[SLOTS:.*]] = stage.run @schedule
// REST:        %[[ALL_LOSS:.*]] = dist.all_reduce %[[SLOTS]] sum on #mesh over ["pp"]
// REST-NEXT:   %[[ZERO:.*]] = transformer.zeros : tensor<f64>
// REST-NEXT:   stage.where ends {
// REST-NEXT:     %[[OWN:.*]] = transformer.load @table.gradient_sum
// REST-NEXT:     %[[BOTH:.*]] = stage.sum_ends %[[OWN]]
// REST-NEXT:     transformer.store %[[BOTH]] to @table.gradient
// REST-NEXT:     stage.yield
// REST-NEXT:   }
// REST-NEXT:   stage.where head {
// REST-NEXT:     transformer.load @norm.gradient_sum
// REST-NEXT:     transformer.store {{.*}} to @norm.gradient
// REST-NEXT:     stage.yield
// REST-NEXT:   }
// REST-NEXT:   %[[Q1:.*]] = stage.where embedding -> (tensor<f64>) {
// REST-NEXT:     transformer.load @table.gradient
// REST-NEXT:     %[[Q:.*]] = transformer.sum_squares
// REST-NEXT:     %[[S:.*]] = transformer.add %[[ZERO]], %[[Q]]
// REST-NEXT:     stage.yield %[[S]]
// REST-NEXT:   } else {
// REST-NEXT:     stage.yield %[[ZERO]]
// REST-NEXT:   }
// REST-NEXT:   %[[Q2:.*]] = stage.where head -> (tensor<f64>) {
// REST:        } else {
// REST-NEXT:     stage.yield %[[Q1]]
// REST-NEXT:   }
// REST-NEXT:   %[[SQUARES:.*]] = transformer.loop "layer" 2 up_to %{{.*}} carry(%[[Q2]])
// REST:        %[[NORM:.*]] = dist.all_reduce %[[SQUARES]] sum on #mesh over ["pp"]
// REST-NEXT:   %[[CLIP:.*]]:2 = transformer.clip_factor %[[NORM]]
// REST-NEXT:   stage.where ends {
// REST:          transformer.store {{.*}} to @table :
// REST:        stage.where head {
// REST:          transformer.store {{.*}} to @norm :
// REST:        transformer.loop "layer" 2 up_to %{{.*}} : () -> () {
// REST:          transformer.store {{.*}} to @"l.{}.w" at %layer
// REST:        return %[[ALL_LOSS]], %[[CLIP]]#0

// COPIES:      transformer.state @"l.{}.w" parameter layers 3 :
// COPIES:      stage.run
// COPIES-NOT:  stage.sum_ends
// COPIES:        stage.where ends {
// COPIES-NEXT:     %[[OWN:.*]] = transformer.load @table.gradient_sum
// COPIES-NEXT:     %[[BOTH:.*]] = dist.all_reduce %[[OWN]] sum on #mesh over ["pp.mirror"]
// COPIES-NEXT:     transformer.store %[[BOTH]] to @table.gradient
// COPIES:        stage.where head {
// COPIES-NEXT:     transformer.load @norm.gradient_sum
// COPIES-NEXT:     dist.all_reduce {{.*}} over ["pp.mirror"]
// COPIES-NEXT:     transformer.store {{.*}} to @norm.gradient
// COPIES:        %[[OF_LAYER:.*]] = transformer.load @"l.{}.w.gradient_sum"
// COPIES-NEXT:   %[[OF_BOTH:.*]] = dist.all_reduce %[[OF_LAYER]] sum on #mesh over ["pp.mirror"]
// COPIES-NEXT:   transformer.store %[[OF_BOTH]] to @"l.{}.w.gradient"
// COPIES:        %[[NORM:.*]] = dist.all_reduce {{.*}} over ["pp"]
// COPIES-NEXT:   transformer.clip_factor %[[NORM]] max_norm 1.000000e+00 copies 2

// APART: embedding and head share parameters, and place 0 has one end of a copy of the model only; let each such place have both

// ONE:         transformer.state @"l.{}.w" parameter layers 3 :
// ONE:         func.func @step(
// ONE-NOT:     {{dist\.|transformer.cast}}
// ONE:         transformer.loop "layer" 3 up_to
// ONE-NOT:     {{dist\.|transformer.cast}}
// ONE:         return

// DIM:         dist.all_gather {{.*}} dim 2 : tensor<2x4x1xf32> -> tensor<2x4x8xf32>
// DIM:         dist.slice {{.*}} dim 2 : tensor<2x4x8xf32> -> tensor<2x4x1xf32>

// UNCUT-LABEL: func.func @step(
// UNCUT-NOT:   over ["tp"]
// UNCUT:       stage.yield send %{{.*}} : tensor<2x4x8xf32> save

#pod = #dist.mesh<["pp" = 2, "dp" = 1, "tp" = 2]>
#whole = #dist.layout<#pod, [{"dp"}, {}, {}]>
!ids = tensor<2x4xi32>
!x = tensor<2x4x8xf32>
!t = tensor<16x8xf32>
!w = tensor<8xf32>
module attributes {dist.mesh = #pod} {
  stage.table @schedule micro_batches 2 layers [["0..1"], ["2"]] rows ["F0 F1 D0 D1 O", "F0 D0 F1 D1 O"]
  transformer.state @table parameter : !t
  transformer.state @table.gradient_sum gradient_sum of @table : !t
  transformer.state @table.gradient gradient of @table : !t
  transformer.state @norm parameter : !w
  transformer.state @norm.gradient_sum gradient_sum of @norm : !w
  transformer.state @norm.gradient gradient of @norm : !w
  transformer.state @"l.{}.w" parameter layers 3 : !w
  transformer.state @"l.{}.w.gradient_sum" gradient_sum layers 3 of @"l.{}.w" : !w
  transformer.state @"l.{}.w.gradient" gradient layers 3 of @"l.{}.w" : !w

  func.func @embedding(%tokens: !ids, %table: !t {transformer.state = @table}) -> (!x {dist.layout = #whole}, !x {dist.layout = #whole}) {
    %x = transformer.embedding %tokens, %table : (!ids, !t) -> !x
    %delta = transformer.zeros_like %x : (!x) -> !x
    return %x, %delta : !x, !x
  }
  func.func @embedding_bwd(%d: !x, %tokens: !ids) -> !t {
    %dt = transformer.embedding_grad %tokens, %d : (!ids, !x) -> !t
    return %dt : !t
  }
  func.func @block(%x: !x, %delta: !x, %seed: tensor<i64>, %w: !w) -> (!x, !x) {
    %sum = transformer.add %x, %delta : (!x, !x) -> !x
    return %sum, %delta : !x, !x
  }
  func.func @block_bwd(%d: !x, %seed: tensor<i64>, %w: !w, %x: !x) -> (!x, !x, !w) {
    %dx = transformer.add %d, %d : (!x, !x) -> !x
    return %dx, %dx, %w : !x, !x, !w
  }
  func.func @head(%x: !x, %delta: !x, %norm: !w {transformer.state = @norm}, %table: !t {transformer.state = @table}, %labels: !ids) -> (tensor<f32>, !x, !x, !w, !t) {
    %loss = transformer.zeros : tensor<f32>
    %d = transformer.add %x, %delta : (!x, !x) -> !x
    return %loss, %d, %d, %norm, %table : tensor<f32>, !x, !x, !w, !t
  }

  func.func @step(%tokens: !transformer.stack<2 x !ids>, %labels: !transformer.stack<2 x !ids>, %seeds: !transformer.stack<3 x tensor<i64>> {transformer.as = "layer_dropout_seeds"}, %rate: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
    transformer.zero @table.gradient_sum
    transformer.zero @norm.gradient_sum
    transformer.zero @"l.{}.w.gradient_sum"
    %none = transformer.zeros : tensor<f32>
    %loss = transformer.loop "micro_batch" 2 carry(%none) : (tensor<f32>) -> tensor<f32> {
    ^bb0(%i: index, %before: tensor<f32>):
      %ids = transformer.get %tokens at %i : !transformer.stack<2 x !ids>
      %t0 = transformer.load @table : !t
      %b:2 = func.call @embedding(%ids, %t0) : (!ids, !t) -> (!x, !x)
      %y:3 = transformer.loop "layer" 3 carry(%b#0, %b#1) : (!x, !x) -> (!x, !x, !transformer.stack<3 x !x>) {
      ^bb0(%l: index, %x: !x, %delta: !x):
        %w = transformer.load @"l.{}.w" at %l : !w
        %seed = transformer.get %seeds at %l : !transformer.stack<3 x tensor<i64>>
        %c:2 = func.call @block(%x, %delta, %seed, %w) : (!x, !x, tensor<i64>, !w) -> (!x, !x)
        transformer.yield %c#0, %c#1 : !x, !x collect %x : !x
      }
      %ls = transformer.get %labels at %i : !transformer.stack<2 x !ids>
      %n = transformer.load @norm : !w
      %t1 = transformer.load @table : !t
      %h:5 = func.call @head(%y#0, %y#1, %n, %t1, %ls) : (!x, !x, !w, !t, !ids) -> (tensor<f32>, !x, !x, !w, !t)
      transformer.accumulate %h#3 into @norm.gradient_sum : !w
      transformer.accumulate %h#4 into @table.gradient_sum : !t
      %after = transformer.add %before, %h#0 : (tensor<f32>, tensor<f32>) -> tensor<f32>
      %d:2 = transformer.loop "layer" 3 reversed carry(%h#1, %h#2) : (!x, !x) -> (!x, !x) {
      ^bb0(%l: index, %dx: !x, %dd: !x):
        %w = transformer.load @"l.{}.w" at %l : !w
        %seed = transformer.get %seeds at %l : !transformer.stack<3 x tensor<i64>>
        %x = transformer.get %y#2 at %l : !transformer.stack<3 x !x>
        %g:3 = func.call @block_bwd(%dx, %seed, %w, %x) : (!x, tensor<i64>, !w, !x) -> (!x, !x, !w)
        transformer.accumulate %g#2 into @"l.{}.w.gradient_sum" at %l : !w
        transformer.yield %g#0, %g#1 : !x, !x
      }
      %dt = func.call @embedding_bwd(%d#0, %ids) : (!x, !ids) -> !t
      transformer.accumulate %dt into @table.gradient_sum : !t
      transformer.yield %after : tensor<f32>
    }
    %zero = transformer.zeros : tensor<f64>
    %ts = transformer.load @table.gradient_sum : !t
    transformer.store %ts to @table.gradient : !t
    %ns = transformer.load @norm.gradient_sum : !w
    transformer.store %ns to @norm.gradient : !w
    %tr = transformer.load @table.gradient : !t
    %q0 = transformer.sum_squares %tr : (!t) -> tensor<f64>
    %q1 = transformer.add %zero, %q0 : (tensor<f64>, tensor<f64>) -> tensor<f64>
    %nr = transformer.load @norm.gradient : !w
    %qn = transformer.sum_squares %nr : (!w) -> tensor<f64>
    %q2 = transformer.add %q1, %qn : (tensor<f64>, tensor<f64>) -> tensor<f64>
    %q = transformer.loop "layer" 3 carry(%q2) : (tensor<f64>) -> tensor<f64> {
    ^bb0(%l: index, %sum: tensor<f64>):
      %ws = transformer.load @"l.{}.w.gradient_sum" at %l : !w
      transformer.store %ws to @"l.{}.w.gradient" at %l : !w
      %q3 = transformer.sum_squares %ws : (!w) -> tensor<f64>
      %next = transformer.add %sum, %q3 : (tensor<f64>, tensor<f64>) -> tensor<f64>
      transformer.yield %next : tensor<f64>
    }
    %gradient_norm, %factor = transformer.clip_factor %q max_norm 1.0 : (tensor<f64>) -> (tensor<f32>, tensor<f32>)
    %t = transformer.load @table : !t
    %tg = transformer.load @table.gradient : !t
    %t2 = transformer.sgd %t, %tg, %rate, %factor {weight_decay = 0.0 : f64} : (!t, !t, tensor<f32>, tensor<f32>) -> !t
    transformer.store %t2 to @table : !t
    %m = transformer.load @norm : !w
    %mg = transformer.load @norm.gradient : !w
    %m2 = transformer.sgd %m, %mg, %rate, %factor {weight_decay = 0.0 : f64} : (!w, !w, tensor<f32>, tensor<f32>) -> !w
    transformer.store %m2 to @norm : !w
    transformer.loop "layer" 3 : () -> () {
    ^bb0(%l: index):
      %w = transformer.load @"l.{}.w" at %l : !w
      %wg = transformer.load @"l.{}.w.gradient" at %l : !w
      %w2 = transformer.sgd %w, %wg, %rate, %factor {weight_decay = 0.0 : f64} : (!w, !w, tensor<f32>, tensor<f32>) -> !w
      transformer.store %w2 to @"l.{}.w" at %l : !w
      transformer.yield
    }
    return %loss, %gradient_norm : tensor<f32>, tensor<f32>
  }
}
