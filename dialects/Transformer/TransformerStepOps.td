#ifndef HEDDLE_TRANSFORMER_STEP_OPS
#define HEDDLE_TRANSFORMER_STEP_OPS

include "dialects/Transformer/TransformerDialect.td"

//===----------------------------------------------------------------------===//
// States: what lives from step to step
//===----------------------------------------------------------------------===//

def Transformer_StateOp : Transformer_Op<"state", [Symbol]> {
  let summary = "A named tensor, or one per layer, that lives from step to step";
  let description = [{
    A parameter, a gradient, or optimizer state, its master copy in a wider format
    among them. With `layers` there is one
    instance per layer and the name has `{}` where the layer's number goes.
    Parameters carry the names of Hugging Face checkpoints. `of` names the
    parameter that another state belongs to; `storage` a state whose bytes this
    one may use, its value being dead by the time this one is written.

    `file_shape` and `file_order` say how a checkpoint stores a parameter:
    row-major, of `file_shape`; that shape, cut into the logical sizes, has logical
    dimension i as its dimension `file_order[i]`.
    `factors` names the dimensions. `decay`: weight decay applies.

    Constraints: (C1) the name has `{}` where and only where there are `layers`;
    (C2) `file_order` is a permutation of the dimensions and `file_shape` has as
    many elements as the type; (C3) `of` and `storage` name states; (C4) every
    state has `of` that is no parameter and does not belong to scales.

    ```mlir
    transformer.state @"model.layers.{}.mlp.up_proj.weight" parameter layers 6 : tensor<96x64xf32> {decay, factors = "f d", file_order = array<i64: 0, 1>, file_shape = array<i64: 96, 64>, initializer = 2 : i32, initializer_std = 2.000000e-02 : f64}
    transformer.state @"model.layers.{}.mlp.up_proj.weight.gradient_sum" gradient_sum layers 6 of @"model.layers.{}.mlp.up_proj.weight" : tensor<96x64xf32>
    transformer.state @"model.layers.{}.mlp.up_proj.weight.gradient" gradient layers 6 of @"model.layers.{}.mlp.up_proj.weight" storage @"model.layers.{}.mlp.up_proj.weight.gradient_sum" : tensor<96x64xf32>
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, Transformer_StateKind:$kind,
                       OptionalAttr<ConfinedAttr<I64Attr, [IntPositive]>>:$layers,
                       OptionalAttr<FlatSymbolRefAttr>:$of, OptionalAttr<FlatSymbolRefAttr>:$storage,
                       TypeAttrOf<Transformer_Tensor>:$type,
                       OptionalAttr<StrAttr>:$factors,
                       OptionalAttr<DenseI64ArrayAttr>:$file_order,
                       OptionalAttr<DenseI64ArrayAttr>:$file_shape,
                       OptionalAttr<Transformer_Initializer>:$initializer,
                       OptionalAttr<F64Attr>:$initializer_std, UnitAttr:$decay);
  let builders = [OpBuilder<(ins "::llvm::StringRef":$name, "::heddle::transformer::StateKind":$kind, "::mlir::IntegerAttr":$layers,
                                 "::mlir::RankedTensorType":$type, CArg<"::mlir::FlatSymbolRefAttr", "{}">:$of,
                                 CArg<"::mlir::FlatSymbolRefAttr", "{}">:$storage), [{
    build($_builder, $_state, $_builder.getStringAttr(name), StateKindAttr::get($_builder.getContext(), kind), layers, of,
          storage, ::mlir::TypeAttr::get(type), {}, {}, {}, {}, {}, {});
  }]>];
  let assemblyFormat = "$sym_name $kind (`layers` $layers^)? (`of` $of^)? (`storage` $storage^)? `:` $type attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::RankedTensorType getTensorType() { return ::mlir::cast<::mlir::RankedTensorType>(getType()); }
    /// Number of instances: layers, or 1.
    int64_t getCount() { return getLayers().value_or(1); }
  }];
}

class Transformer_StateAccessOp<string mnemonic, list<Trait> traits = []>
    : Transformer_Op<mnemonic, !listconcat([DeclareOpInterfaceMethods<SymbolUserOpInterface>], traits)>;

def Transformer_LoadOp : Transformer_StateAccessOp<"load", [MemoryEffects<[MemRead]>]> {
  let summary = "The value of a state";
  let description = [{
    Constraints of all ops on states: (S1) the name is a state's; (S2) an index is
    given where and only where the state has layers; (S3) the type is the state's.

    ```mlir
    %w = transformer.load @"model.layers.{}.mlp.up_proj.weight" at %layer : tensor<96x64xf32>
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$state, Optional<Index>:$index);
  let results = (outs Transformer_Tensor:$result);
  let assemblyFormat = "$state (`at` $index^)? attr-dict `:` type($result)";
}

def Transformer_StoreOp : Transformer_StateAccessOp<"store", [MemoryEffects<[MemWrite]>]> {
  let summary = "Gives a state a new value";
  let description = [{
    ```mlir
    transformer.store %new to @model.norm.weight : tensor<64xf32>
    ```
  }];
  let arguments = (ins Transformer_Tensor:$value, FlatSymbolRefAttr:$state, Optional<Index>:$index);
  let assemblyFormat = "$value `to` $state (`at` $index^)? attr-dict `:` type($value)";
}

def Transformer_AccumulateOp : Transformer_StateAccessOp<"accumulate", [MemoryEffects<[MemRead, MemWrite]>]> {
  let summary = "Adds to a state";
  let description = [{
    A partial sum is added to a partial sum over the same axes: (S3) sees to it.

    ```mlir
    transformer.accumulate %d_w into @model.norm.weight.gradient_sum : tensor<64xf32>
    ```
  }];
  let arguments = (ins Transformer_Tensor:$value, FlatSymbolRefAttr:$state, Optional<Index>:$index);
  let assemblyFormat = "$value `into` $state (`at` $index^)? attr-dict `:` type($value)";
}

def Transformer_ZeroOp : Transformer_StateAccessOp<"zero", [MemoryEffects<[MemWrite]>]> {
  let summary = "Sets all instances of a state to zero";
  let description = [{
    ```mlir
    transformer.zero @model.norm.weight.gradient_sum
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$state);
  let assemblyFormat = "$state attr-dict";
}

//===----------------------------------------------------------------------===//
// Loops over layers and micro-batches
//===----------------------------------------------------------------------===//

def Transformer_LoopOp : Transformer_Op<"loop", [
    RecursiveMemoryEffects, SingleBlock, AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "Repeats its body for each layer or micro-batch";
  let description = [{
    Runs the body for `count` indices from `from` on (0 where it is not given), or
    downwards with `reversed`. With `up_to`, `count` is the most that there can be, and
    indices are those below that number. The body's arguments are the index and the carried values; it yields the next
    carried values and the values to collect. Results are the last carried values,
    then one stack per collected value: entry i is what iteration i collected, and
    undefined where there was none.

    Constraints: (C1) `over` is "layer" or "micro_batch"; (C2) carried values have
    one type in operands, arguments, yield and results; (C3) the results after
    them are stacks of `count` of the collected types; (C4) with `from`, nothing is
    collected, and there is no `up_to`.

    ```mlir
    %y, %all = transformer.loop "layer" 6 carry(%x) : (tensor<4x8xf32>) -> (tensor<4x8xf32>, !transformer.stack<6 x tensor<4x8xf32>>) {
    ^bb0(%layer: index, %a: tensor<4x8xf32>):
      %b = transformer.add %a, %a : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
      transformer.yield %b : tensor<4x8xf32> collect %a : tensor<4x8xf32>
    }
    ```
  }];
  let arguments = (ins StrAttr:$over, ConfinedAttr<I64Attr, [IntPositive]>:$count,
                       UnitAttr:$reversed, Variadic<AnyType>:$inits,
                       OptionalAttr<ConfinedAttr<I64Attr, [IntPositive]>>:$from,
                       Optional<Index>:$limit);
  let results = (outs Variadic<AnyType>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $over $count (`from` $from^)? (`up_to` $limit^)? (`reversed` $reversed^)? (`carry` `(` $inits^ `)`)? attr-dict
    `:` functional-type($inits, $results) $body
  }];
  let hasRegionVerifier = 1; // looks at the terminator, so ops inside come first
  let extraClassDeclaration = [{
    int64_t getFirst() { return getFrom().value_or(0); }
    ::mlir::Value getIndex() { return getBody().front().getArgument(0); }
    ::mlir::Block::BlockArgListType getCarried() { return getBody().front().getArguments().drop_front(); }
    ::heddle::transformer::YieldOp getYield();
    ::mlir::ResultRange getCarriedResults() { return getResults().take_front(getInits().size()); }
    ::mlir::ResultRange getStacks() { return getResults().drop_front(getInits().size()); }
  }];
}

def Transformer_YieldOp : Transformer_Op<"yield", [
    Pure, Terminator, ParentOneOf<["LoopOp", "RecomputeOp"]>, AttrSizedOperandSegments]> {
  let summary = "Ends the body of a loop, or what is computed again";
  let description = [{ See `loop` and `recompute`. }];
  let arguments = (ins Variadic<AnyType>:$carried, Variadic<Transformer_Tensor>:$collected);
  let assemblyFormat = "($carried^ `:` type($carried))? (`collect` $collected^ `:` type($collected))? attr-dict";
}

def Transformer_GetOp : Transformer_Op<"get", [
    Pure, TypesMatchWith<"the result is an element of the stack", "stack", "result",
                         "::mlir::cast<StackType>($_self).getElementType()">]> {
  let summary = "One entry of a stack";
  let description = [{
    Constraints: (C1) the result is an element of the stack.

    ```mlir
    %t = transformer.get %tokens at %i : !transformer.stack<2 x tensor<4x8xi32>>
    ```
  }];
  let arguments = (ins Transformer_StackType:$stack, Index:$index);
  let results = (outs Transformer_Tensor:$result);
  let assemblyFormat = "$stack `at` $index attr-dict `:` type($stack)";
}

//===----------------------------------------------------------------------===//
// Computing again instead of saving
//===----------------------------------------------------------------------===//

def Transformer_RecomputeOp : Transformer_Op<"recompute", [
    RecursiveMemoryEffects, IsolatedFromAbove, SingleBlock]> {
  let summary = "What forward has computed and not saved, once more";
  let description = [{
    Runs its body on the operands; results are what it yields. It says which ops
    of backward are forward's, and why they are there, and keeps them apart from
    others until passes/Lowering: nothing merges them with forward's again. A
    mask of dropout is a function of its seed, so it is drawn again as it was.

    Constraints: (C1) the body has an argument of the type of each operand, and
    collects nothing; (C2) it yields values of the results' types.

    ```mlir
    %m = transformer.recompute %gate, %up because "listed: frees m (49152 bytes)" : (tensor<4x32x96xf32>, tensor<4x32x96xf32>) -> tensor<4x32x96xf32> {
    ^bb0(%a: tensor<4x32x96xf32>, %b: tensor<4x32x96xf32>):
      %again = transformer.gated silu %a, %b : (tensor<4x32x96xf32>, tensor<4x32x96xf32>) -> tensor<4x32x96xf32>
      transformer.yield %again : tensor<4x32x96xf32>
    }
    ```
  }];
  let arguments = (ins Variadic<Transformer_Tensor>:$inputs, StrAttr:$reason);
  let results = (outs Variadic<Transformer_Tensor>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$inputs `because` $reason attr-dict `:` functional-type($inputs, $results) $body";
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    ::heddle::transformer::YieldOp getYield();
  }];
}

def Transformer_CallByLayerOp : Transformer_Op<"call_by_layer", [
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Calls one of several functions, which one depends on the layer";
  let description = [{
    `choices` says for each layer of the model which of the functions it calls;
    `layer` is what a state's instance of that layer is asked for with. All
    functions have one type. What one of them has no use for it does not read;
    what it does not make is undefined.

    Constraints: (C1) callees are functions of the type of the call; (C2) each
    choice is the number of one.

    ```mlir
    %y = transformer.call_by_layer [@block, @block.1] at %layer choices [0, 1, 0](%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
    ```
  }];
  let arguments = (ins TypedArrayAttrBase<FlatSymbolRefAttr, "functions">:$callees, Index:$layer,
                       DenseI64ArrayAttr:$choices, Variadic<Transformer_Tensor>:$inputs);
  let results = (outs Variadic<Transformer_Tensor>:$results);
  let assemblyFormat = "$callees `at` $layer `choices` $choices `(` $inputs `)` attr-dict `:` functional-type($inputs, $results)";
}

//===----------------------------------------------------------------------===//
// The end of a step
//===----------------------------------------------------------------------===//

def Transformer_ZerosOp : Transformer_Op<"zeros", [Pure]> {
  let summary = "A number that is zero: where sums over micro-batches begin";
  let description = [{
    ```mlir
    %sum = transformer.zeros : tensor<f32>
    ```
  }];
  let results = (outs Transformer_Tensor:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
}

def Transformer_SumSquaresOp : Transformer_RuleOp<"sum_squares", "... -> ; sum ..."> {
  let summary = "Sum of the squares of all elements, in fp64";
  let description = [{
    Splitting an axis makes the result partial over it, so each logical element
    counts once in the reduced sum; padding is zero.

    ```mlir
    %sq = transformer.sum_squares %g : (tensor<96x64xf32>) -> tensor<f64>
    ```
  }];
  let arguments = (ins Transformer_Float:$input);
  let results = (outs RankedTensorOf<[F64]>:$result);
  let assemblyFormat = "$input attr-dict `:` functional-type(operands, results)";
}

def Transformer_ClipFactorOp : Transformer_ComputedRuleOp<"clip_factor"> {
  let summary = "The gradient's norm, and the factor that clips it";
  let description = [{
    From the sum of squares: norm = sqrt(sum); factor = min(1, max_norm / (norm +
    1e-6)), or 1 where `max_norm` is not given. With `copies` every square is so
    many times in the sum: norm = sqrt(sum / copies). With `scaled` the gradients
    are that much larger than they should be: the norm is divided by it, and so
    is the factor.

    Where the norm is no finite number the factor is 0, and the optimizers leave
    everything as it is: one decision for all ranks, since the sum is over all.

    ```mlir
    %norm, %factor = transformer.clip_factor %sq max_norm 1.000000e+00 : (tensor<f64>) -> (tensor<f32>, tensor<f32>)
    %n, %f = transformer.clip_factor %sq scaled %scale max_norm 1.000000e+00 : (tensor<f64>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
    ```
  }];
  let arguments = (ins RankedTensorOf<[F64]>:$sum, Optional<Transformer_Float>:$scale, OptionalAttr<F64Attr>:$maxNorm,
                       DefaultValuedAttr<ConfinedAttr<I64Attr, [IntPositive]>, "1">:$copies);
  let results = (outs Transformer_Float:$norm, Transformer_Float:$factor);
  let assemblyFormat = [{
    $sum (`scaled` $scale^)? (`max_norm` $maxNorm^)? (`copies` $copies^)? attr-dict `:` functional-type(operands, results)
  }];
}

// An optimizer's update of one parameter. `getCoupledFactors` says which
// dimensions it couples: none for an elementwise one.
class Transformer_UpdateOp<string mnemonic, string rule>
    : Transformer_RuleOp<mnemonic, rule> {
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}

def Transformer_AdamWOp : Transformer_UpdateOp<"adamw", "..., ..., ..., ..., , , , -> ..., ..., ..."> {
  let summary = "AdamW: one step of the parameter and its two moments";
  let description = [{
    With g = gradient x factor: m' = beta1 m + (1 - beta1) g; v' = beta2 v + (1 -
    beta2) g^2; parameter' = parameter (1 - rate x weight_decay) - rate x
    correction1 m' / (sqrt(correction2 v') + epsilon), where `correction` i is 1 /
    (1 - beta_i^step), computed by the caller in fp64. A factor of 0 leaves all
    three as they are. Elementwise: it couples no dimension.

    ```mlir
    %w1, %m1, %v1 = transformer.adamw %w, %g, %m, %v, %rate, %c1, %c2, %factor {beta1 = 9.000000e-01 : f64, beta2 = 9.500000e-01 : f64, epsilon = 1.000000e-08 : f64, weight_decay = 1.000000e-01 : f64} : (tensor<96x64xf32>, tensor<96x64xf32>, tensor<96x64xf32>, tensor<96x64xf32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> (tensor<96x64xf32>, tensor<96x64xf32>, tensor<96x64xf32>)
    ```
  }];
  let arguments = (ins Transformer_Float:$parameter, Transformer_Float:$gradient, Transformer_Float:$m,
                       Transformer_Float:$v, Transformer_Float:$rate, Transformer_Float:$correction1,
                       Transformer_Float:$correction2, Transformer_Float:$factor,
                       F64Attr:$beta1, F64Attr:$beta2, F64Attr:$epsilon, F64Attr:$weight_decay);
  let results = (outs Transformer_Float:$newParameter, Transformer_Float:$newM, Transformer_Float:$newV);
}

def Transformer_SgdOp : Transformer_UpdateOp<"sgd", "..., ..., , -> ..."> {
  let summary = "Gradient descent";
  let description = [{
    parameter (1 - rate x weight_decay) - rate x factor x gradient; the parameter
    where the factor is 0. Couples no dimension.

    ```mlir
    %w2 = transformer.sgd %w, %g, %rate, %factor {weight_decay = 0.000000e+00 : f64} : (tensor<96x64xf32>, tensor<96x64xf32>, tensor<f32>, tensor<f32>) -> tensor<96x64xf32>
    ```
  }];
  let arguments = (ins Transformer_Float:$parameter, Transformer_Float:$gradient, Transformer_Float:$rate,
                       Transformer_Float:$factor, F64Attr:$weight_decay);
  let results = (outs Transformer_Float:$newParameter);
}

def Transformer_DelayScalesOp : Transformer_RuleOp<"delay_scales", "t h, t, t, , -> t h, t; whole h"> {
  let summary = "A step's largest magnitudes go into their history";
  let description = [{
    `history` has per tensor those of the last steps, in no order: this step's
    takes the place `step` modulo their number, so that of the oldest. `amax` is
    what scales of the next step are made of: the largest of the history, or with
    `most_recent` this step's. A magnitude that is no finite number is left out:
    `before`, what this step's scales were made of, stands for it. Where all of a
    history is 0, `amax` stays as it was.

    Where the factor is 0 the step is passed over, and both are as they were.

    ```mlir
    %h1, %amax1 = transformer.delay_scales %h, %now, %amax, %step, %factor : (tensor<7x16xf32>, tensor<7xf32>, tensor<7xf32>, tensor<i32>, tensor<f32>) -> (tensor<7x16xf32>, tensor<7xf32>)
    ```
  }];
  let arguments = (ins Transformer_Float:$history, Transformer_Float:$now, Transformer_Float:$before,
                       Transformer_Integer:$step, Transformer_Float:$factor, UnitAttr:$most_recent);
  let results = (outs Transformer_Float:$newHistory, Transformer_Float:$amax);
  let assemblyFormat = "operands (`most_recent` $most_recent^)? attr-dict `:` functional-type(operands, results)";
}

#endif // HEDDLE_TRANSFORMER_STEP_OPS
