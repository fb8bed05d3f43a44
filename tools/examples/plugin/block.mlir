// An MLP whose output is scaled per channel before it joins the residual stream.
//
//   heddle-opt --load-dialect-plugin=libHeddleExample.so block.mlir \
//     --autodiff-build-backward --sharding-propagate-layouts --collectives-partition
#mesh = #dist.mesh<["dp" = 2, "tp" = 2]>
#x = #dist.layout<#mesh, [{"dp"}, {}, {}]>
module attributes {dist.mesh = #mesh, dist.values = {block.x = #x, block.delta = #x}} {
  transformer.state @up parameter : tensor<8x4xf32> {dist.layout = #dist.layout<#mesh, [{"tp"}, {}]>, factors = "f d"}
  transformer.state @down parameter : tensor<4x8xf32> {dist.layout = #dist.layout<#mesh, [{}, {"tp"}]>, factors = "d f"}
  transformer.state @scale parameter : tensor<4xf32> {dist.layout = #dist.layout<#mesh, [{}]>, factors = "d"}
  func.func @block(%x: tensor<4x3x4xf32> {transformer.as = "x"},
                   %wu: tensor<8x4xf32> {transformer.as = "wu", transformer.state = @up},
                   %wd: tensor<4x8xf32> {transformer.as = "wd", transformer.state = @down},
                   %scale: tensor<4xf32> {transformer.as = "scale", transformer.state = @scale})
      -> (tensor<4x3x4xf32> {transformer.as = "delta"}) {
    %h = transformer.contract "b s d, f d -> b s f" %x, %wu {as = ["h"]} : (tensor<4x3x4xf32>, tensor<8x4xf32>) -> tensor<4x3x8xf32>
    %m = transformer.activation silu %h {as = ["m"]} : (tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
    %y = transformer.contract "b s f, d f -> b s d" %m, %wd {as = ["y"]} : (tensor<4x3x8xf32>, tensor<4x8xf32>) -> tensor<4x3x4xf32>
    %delta = example.layer_scale %y, %scale {as = ["delta"]} : (tensor<4x3x4xf32>, tensor<4xf32>) -> tensor<4x3x4xf32>
    return %delta : tensor<4x3x4xf32>
  }
}
