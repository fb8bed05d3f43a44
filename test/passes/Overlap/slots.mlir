// Where a step runs slots, reductions go into the last slot of each chunk, which
// adds last to what they reduce.
//
// RUN: heddle-opt %s --overlap-reductions --overlap-bucket-gradients > %t
// RUN: FileCheck %s < %t
//
// Without overlap they stay behind the run, as buckets.
// RUN: sed 's/reductions = true/reductions = false/' %s | heddle-opt --overlap-reductions --overlap-bucket-gradients | FileCheck %s --check-prefix=LATE

// CHECK-LABEL: func.func @step(
// CHECK-NEXT:    stage.run @schedule : () -> () forward {
// CHECK:         } backward {
// CHECK:           stage.where head at %chunk {
// CHECK-NEXT:        transformer.accumulate %{{.*}} into @n.gradient_sum
// CHECK-NEXT:        stage.where last {
// CHECK-NEXT:          dist.bucket
// CHECK-NEXT:            %[[N:.*]] = transformer.load @n.gradient_sum
// CHECK-NEXT:            %[[RN:.*]] = dist.all_reduce %[[N]]
// CHECK-NEXT:            transformer.store %[[RN]] to @n.gradient
// CHECK-NEXT:          }
// CHECK-NEXT:          stage.yield
// CHECK-NEXT:        }
// CHECK-NEXT:        stage.yield
// CHECK-NEXT:      }
// CHECK:           transformer.loop "layer" 2
// CHECK:             %[[HELD:.*]] = stage.layer
// CHECK-NEXT:        transformer.accumulate %{{.*}} into @"l.{}.a.gradient_sum" at %[[HELD]]
// CHECK-NEXT:        stage.where last {
// CHECK-NEXT:          dist.bucket
// CHECK-NEXT:            %[[A:.*]] = transformer.load @"l.{}.a.gradient_sum" at %[[HELD]]
// CHECK-NEXT:            %[[RA:.*]] = dist.all_reduce %[[A]]
// CHECK-NEXT:            transformer.store %[[RA]] to @"l.{}.a.gradient" at %[[HELD]]
// CHECK-NEXT:          }
// CHECK-NEXT:          stage.yield
// CHECK-NEXT:        }
// CHECK-NEXT:        transformer.yield
//
// What both ends share is summed over them first: it stays.
//
// CHECK:         stage.where ends {
// CHECK:           stage.sum_ends
// CHECK-NOT:     dist.
// CHECK-NOT:     transformer.loop
// CHECK:         return

// LATE-LABEL:  func.func @step(
// LATE-NOT:    dist.
// LATE:        stage.where ends
// LATE:        dist.bucket
// LATE:        transformer.loop
// LATE:        dist.bucket

#pod = #dist.mesh<["pp" = 2, "dp" = 2]>
!v = tensor<8xf32>
module attributes {dist.mesh = #pod, dist.overlap = {bucket_bytes = 1000 : i64, order = "backward", reductions = true}} {
  stage.table @schedule micro_batches 2 layers [["0..1"], ["2"]] rows ["F0 F1 D0 D1 O", "F0 D0 F1 D1 O"]
  transformer.state @"l.{}.a" parameter layers 2 : !v
  transformer.state @"l.{}.a.gradient_sum" gradient_sum layers 2 of @"l.{}.a" : !v
  transformer.state @"l.{}.a.gradient" gradient layers 2 of @"l.{}.a" storage @"l.{}.a.gradient_sum" : !v
  transformer.state @n parameter : !v
  transformer.state @n.gradient_sum gradient_sum of @n : !v
  transformer.state @n.gradient gradient of @n storage @n.gradient_sum : !v
  transformer.state @t parameter : !v
  transformer.state @t.gradient_sum gradient_sum of @t : !v
  transformer.state @t.gradient gradient of @t storage @t.gradient_sum : !v

  func.func @step() {
    stage.run @schedule : () -> () forward {
    ^bb0(%chunk: index, %i: index, %x: !v):
      stage.yield send %x : !v
    } backward {
    ^bb0(%chunk: index, %i: index, %d: !v):
      stage.where head at %chunk {
        transformer.accumulate %d into @n.gradient_sum : !v
        stage.yield
      }
      %count = stage.layers at %chunk
      %dx = transformer.loop "layer" 2 up_to %count reversed carry(%d) : (!v) -> !v {
      ^bb0(%l: index, %a: !v):
        %held = stage.layer %l of %chunk
        transformer.accumulate %a into @"l.{}.a.gradient_sum" at %held : !v
        transformer.yield %a : !v
      }
      stage.where embedding at %chunk {
        transformer.accumulate %dx into @t.gradient_sum : !v
        stage.yield
      }
      stage.yield send %dx : !v
    }
    %all = stage.layers
    stage.where ends {
      %t = transformer.load @t.gradient_sum : !v
      %st = dist.all_reduce %t sum on #pod over ["dp"] : !v -> !v
      %both = stage.sum_ends %st : !v
      transformer.store %both to @t.gradient : !v
      stage.yield
    }
    stage.where head {
      %n = transformer.load @n.gradient_sum : !v
      %sn = dist.all_reduce %n sum on #pod over ["dp"] : !v -> !v
      transformer.store %sn to @n.gradient : !v
      stage.yield
    }
    transformer.loop "layer" 2 up_to %all : () -> () {
    ^bb0(%l: index):
      %a = transformer.load @"l.{}.a.gradient_sum" at %l : !v
      %sa = dist.all_reduce %a sum on #pod over ["dp"] : !v -> !v
      transformer.store %sa to @"l.{}.a.gradient" at %l : !v
      transformer.yield
    }
    return
  }
}
