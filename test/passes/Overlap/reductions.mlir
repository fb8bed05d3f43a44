// Reductions of gradients go to where their sums are complete, in the last
// micro-batch, and those of one layer become one bucket.
//
// RUN: heddle-opt %s --overlap-reductions --overlap-bucket-gradients > %t
// RUN: FileCheck %s < %t
//
// Nothing grows with micro-batches or layers.
// RUN: sed 's/"micro_batch" 4/"micro_batch" 400/; s/layers 3/layers 96/; s/"layer" 3/"layer" 96/' %s | heddle-opt --overlap-reductions --overlap-bucket-gradients | wc -l > %t.many
// RUN: wc -l < %t | diff %t.many -
//
// A bucket is closed when it has its bytes: a gradient as large as that fills one.
// RUN: sed 's/bucket_bytes = 1000/bucket_bytes = 64/' %s | heddle-opt --overlap-reductions --overlap-bucket-gradients | FileCheck %s --check-prefix=SMALL
//
// Forward order, and no overlap: behind everything, once.
// RUN: sed 's/reductions = true/reductions = false/; s/order = "backward"/order = "forward"/' %s | heddle-opt --overlap-reductions --overlap-bucket-gradients | FileCheck %s --check-prefix=LATE

// CHECK:      transformer.state @"l.{}.a.gradient_sum" {{.*}}transformer.bucket = "bucket.0", transformer.bucket_index = 1
// CHECK:      transformer.state @"l.{}.b.gradient_sum" {{.*}}transformer.bucket = "bucket.0", transformer.bucket_index = 0
// CHECK-LABEL: func.func @step(
// CHECK-NEXT:    %[[Y:.*]] = transformer.loop "micro_batch" 3 carry(%{{.*}})
// CHECK-NOT:     dist.
// CHECK:         transformer.loop "micro_batch" 1 from 3 carry(%[[Y]])
// CHECK:           transformer.loop "layer" 3 reversed
// CHECK-NEXT:      ^bb0(%[[LAYER:.*]]: index,
// CHECK-NEXT:        func.call @bwd
// CHECK-NEXT:        transformer.accumulate
// CHECK-NEXT:        transformer.accumulate
// CHECK-NEXT:        dist.bucket "bucket.0" {
// CHECK-NEXT:          %[[B:.*]] = transformer.load @"l.{}.b.gradient_sum" at %[[LAYER]]
// CHECK-NEXT:          %[[A:.*]] = transformer.load @"l.{}.a.gradient_sum" at %[[LAYER]]
// CHECK-NEXT:          %[[SB:.*]] = dist.all_reduce %[[B]]
// CHECK-NEXT:          %[[SA:.*]] = dist.all_reduce %[[A]]
// CHECK-NEXT:          transformer.store %[[SB]] to @"l.{}.b.gradient" at %[[LAYER]]
// CHECK-NEXT:          transformer.store %[[SA]] to @"l.{}.a.gradient" at %[[LAYER]]
// CHECK-NEXT:        }
// CHECK-NEXT:        transformer.yield
// CHECK-NOT:     transformer.loop
// CHECK:         return

// SMALL:      transformer.state @"l.{}.a.gradient_sum" {{.*}}transformer.bucket = "bucket.1", transformer.bucket_index = 0
// SMALL:      transformer.state @"l.{}.b.gradient_sum" {{.*}}transformer.bucket = "bucket.0", transformer.bucket_index = 0
// SMALL:      dist.bucket "bucket.0" {
// SMALL-NEXT:   transformer.load @"l.{}.b.gradient_sum"
// SMALL:      dist.bucket "bucket.1" {
// SMALL-NEXT:   transformer.load @"l.{}.a.gradient_sum"

// LATE:       transformer.state @"l.{}.a.gradient_sum" {{.*}}transformer.bucket_index = 0
// LATE:       transformer.state @"l.{}.b.gradient_sum" {{.*}}transformer.bucket_index = 1
// LATE:       transformer.loop "micro_batch" 4
// LATE-NOT:   dist.
// LATE:       transformer.loop "layer" 3 : () -> ()
// LATE-NEXT:  ^bb0
// LATE-NEXT:    dist.bucket "bucket.0" {

#pod = #dist.mesh<["dp" = 2]>
module attributes {dist.mesh = #pod, dist.overlap = {bucket_bytes = 1000 : i64, order = "backward", reductions = true}} {
  transformer.state @"l.{}.a" parameter layers 3 : tensor<8xf32>
  transformer.state @"l.{}.a.gradient_sum" gradient_sum layers 3 of @"l.{}.a" : tensor<8xf32>
  transformer.state @"l.{}.a.gradient" gradient layers 3 of @"l.{}.a" storage @"l.{}.a.gradient_sum" : tensor<8xf32>
  transformer.state @"l.{}.b" parameter layers 3 : tensor<16xf32>
  transformer.state @"l.{}.b.gradient_sum" gradient_sum layers 3 of @"l.{}.b" : tensor<16xf32>
  transformer.state @"l.{}.b.gradient" gradient layers 3 of @"l.{}.b" storage @"l.{}.b.gradient_sum" : tensor<16xf32>

  func.func private @bwd(tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<16xf32>)

  func.func @step(%x: tensor<8xf32>) -> tensor<8xf32> {
    %y = transformer.loop "micro_batch" 4 carry(%x) : (tensor<8xf32>) -> tensor<8xf32> {
    ^bb0(%i: index, %m: tensor<8xf32>):
      %d = transformer.loop "layer" 3 reversed carry(%m) : (tensor<8xf32>) -> tensor<8xf32> {
      ^bb0(%l: index, %b: tensor<8xf32>):
        %r:3 = func.call @bwd(%b) : (tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<16xf32>)
        transformer.accumulate %r#1 into @"l.{}.a.gradient_sum" at %l : tensor<8xf32>
        transformer.accumulate %r#2 into @"l.{}.b.gradient_sum" at %l : tensor<16xf32>
        transformer.yield %r#0 : tensor<8xf32>
      }
      transformer.yield %d : tensor<8xf32>
    }
    transformer.loop "layer" 3 : () -> () {
    ^bb0(%l: index):
      %a = transformer.load @"l.{}.a.gradient_sum" at %l : tensor<8xf32>
      %sa = dist.all_reduce %a sum on #pod over ["dp"] : tensor<8xf32> -> tensor<8xf32>
      transformer.store %sa to @"l.{}.a.gradient" at %l : tensor<8xf32>
      %b = transformer.load @"l.{}.b.gradient_sum" at %l : tensor<16xf32>
      %sb = dist.all_reduce %b sum on #pod over ["dp"] : tensor<16xf32> -> tensor<16xf32>
      transformer.store %sb to @"l.{}.b.gradient" at %l : tensor<16xf32>
      transformer.yield
    }
    return %y : tensor<8xf32>
  }
}
