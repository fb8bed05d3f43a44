// What the pass needs and does not find is named.
//
// RUN: heddle-opt %s --split-input-file --verify-diagnostics --sharding-propagate-layouts

// expected-error @below {{needs dist.mesh and dist.values; planning writes them}}
module {
}

// -----

#pod = #dist.mesh<["tp" = 4]>
#other = #dist.mesh<["tp" = 2]>
// expected-error @below {{dist.values: "block.x" must be a layout on the module's mesh}}
module attributes {dist.mesh = #pod, dist.values = {block.x = #dist.layout<#other, [{}]>}} {
}

// -----

#pod = #dist.mesh<["tp" = 4]>
module attributes {dist.mesh = #pod, dist.values = {}} {
  // expected-error @below {{argument 'q' of type 'tensor<4xf32>' has no layout; pin it in dist.values}}
  func.func @block(%q: tensor<4xf32> {transformer.as = "q"}) {
    return
  }
}

// -----

#pod = #dist.mesh<["tp" = 4]>
module attributes {dist.mesh = #pod, dist.values = {}} {
  transformer.state @w parameter : tensor<8xf32> {factors = "d"}
  // expected-error @below {{argument w is state @w, which has no layout}}
  func.func @block(%w: tensor<8xf32> {transformer.as = "w", transformer.state = @w}) {
    return
  }
}

// -----

#pod = #dist.mesh<["tp" = 4]>
module attributes {dist.mesh = #pod, dist.values = {q = #dist.layout<#pod, [{}]>}} {
  func.func @block(%q: tensor<8xf32> {transformer.as = "q"}) {
    // expected-error @below {{has no factor rule, so it cannot be given a layout}}
    %y = arith.addf %q, %q : tensor<8xf32>
    return
  }
}
