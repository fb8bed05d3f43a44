#ifndef HEDDLE_TRANSFORMER_MATH_OPS
#define HEDDLE_TRANSFORMER_MATH_OPS

include "dialects/Dist/DistAttrs.td"
include "dialects/Transformer/TransformerDialect.td"

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

def Transformer_ContractOp : Transformer_ComputedRuleOp<"contract", [HasGradient, HasCost, AttrSizedOperandSegments]> {
  let summary = "Product of two tensors, summed over the letters the result lacks";
  let description = [{
    The spec is an einsum of two operands and its own factor rule. Both gradients
    of a contract are contracts. Operands that are codes of `quantize` come with
    their two scales, by which products of codes are multiplied. With `blocks` [x,
    y, length] scales belong to blocks: of x rows of the left operand, y of the
    right one and `length` numbers that are summed over, where an operand is the
    matrix of its letters that are kept and those that are summed, its last.
    Operands whose scales are of two levels come with those of both blocks, then
    of both tensors.

    `noise` decides how a gradient, the left operand, is rounded where a recipe makes codes of it at random: a seed and
    the numbers of the tokens, its first two dimensions (`quantize`). The op rounds nothing; its gradients have the same.

    Constraints: (C1) every letter of the spec stands in at least two of its
    three lists, and in none of them twice; (C2) there are two scales or none,
    or with `blocks` four; (C3) with `blocks`, three numbers above 0, the letters that are summed come
    last in both operands, and scales are matrices of a number per block, the
    third and fourth numbers; without, they are numbers; (C4) `noise` is a seed
    and numbers of tokens.

    ```mlir
    %q = transformer.contract "b s d, g r k d -> b s g r k" %n1, %wq : (tensor<4x32x64xf32>, tensor<2x2x16x64xf32>) -> tensor<4x32x2x2x16xf32>
    %u = transformer.contract "b s d, f d -> b s f" %n2_codes, %wu_codes scaled %n2_scale, %wu_scale : (tensor<4x32x64xf8E4M3FN>, tensor<96x64xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<4x32x96xbf16>
    %v = transformer.contract "b s d, f d -> b s f" %n2_codes, %wu_codes scaled %n2_scales, %wu_scales blocks [1, 48, 32] : (tensor<4x32x64xf8E4M3FN>, tensor<96x64xf8E4M3FN>, tensor<128x2xf32>, tensor<2x2xf32>) -> tensor<4x32x96xbf16>
    ```
  }];
  let arguments = (ins StrAttr:$spec, Transformer_Float:$lhs, Transformer_Float:$rhs,
                       Variadic<Transformer_Float>:$scales,
                       Optional<Transformer_Count>:$seed, Optional<Transformer_Integer>:$tokenNumbers,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$blocks, OptionalAttr<Dist_ShardsAttr>:$shards);
  let results = (outs Transformer_Float:$result);
  let assemblyFormat = "$spec $lhs `,` $rhs (`scaled` $scales^)? (`blocks` $blocks^)? (`noise` $seed^ `,` $tokenNumbers)? (`shards` $shards^)? attr-dict `:` functional-type(operands, results)";
  let builders = [
    OpBuilder<(ins "::mlir::Type":$result, "::llvm::StringRef":$spec, "::mlir::Value":$lhs, "::mlir::Value":$rhs,
                   CArg<"::mlir::Value", "{}">:$seed, CArg<"::mlir::Value", "{}">:$tokenNumbers), [{
      build($_builder, $_state, result, $_builder.getStringAttr(spec), lhs, rhs, ::mlir::ValueRange(), seed, tokenNumbers,
            $_builder.getDenseI64ArrayAttr({}), ::mlir::DictionaryAttr());
    }]>,
    OpBuilder<(ins "::mlir::Type":$result, "::llvm::StringRef":$spec, "::mlir::Value":$lhs, "::mlir::Value":$rhs,
                   "::mlir::ValueRange":$scales, "::llvm::ArrayRef<int64_t>":$blocks), [{
      build($_builder, $_state, result, $_builder.getStringAttr(spec), lhs, rhs, scales, ::mlir::Value(), ::mlir::Value(),
            $_builder.getDenseI64ArrayAttr(blocks), ::mlir::DictionaryAttr());
    }]>];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Formats that need a scale
//===----------------------------------------------------------------------===//

def Transformer_AmaxOp : Transformer_RuleOp<"amax", "... -> ; max ..."> {
  let summary = "The largest magnitude of a tensor";
  let description = [{
    Of a tensor that is cut, each rank's is a partial maximum. A NaN wins.

    ```mlir
    %n2_amax = transformer.amax %n2 : (tensor<4x32x64xbf16>) -> tensor<f32>
    ```
  }];
  let arguments = (ins Transformer_Float:$input);
  let results = (outs Transformer_Float:$result);
  let assemblyFormat = "$input attr-dict `:` functional-type(operands, results)";
}

def Transformer_HadamardOp : Transformer_ComputedRuleOp<"hadamard"> {
  let summary = "Mixes the numbers that a product sums over by a Hadamard matrix with signs";
  let description = [{
    The input is a matrix whose rows are its first `over` dimensions. Of each `length` rows in turn the result has
    H S x / sqrt(`length`) in each column: H is Sylvester's Hadamard matrix, S has -1 on its diagonal where `signs` has a
    bit, the lowest for the first row. Rows that are left over stay. It is orthogonal, so a product that sums over these
    rows of two tensors that are mixed alike is what it was, but for rounding, and a number that is far larger than the
    others of its column is spread over `length` of them. An op of one rank's program.

    Constraints: (C1) `over` is at least 1 and at most the rank; (C2) `length` is
    1, 2, 4, 8, 16 or 32, and `signs` has no bits above as many.

    ```mlir
    %n2_mixed = transformer.hadamard %n2 over 2 length 16 signs 21930 : (tensor<4x32x64xbf16>) -> tensor<4x32x64xbf16>
    ```
  }];
  let arguments = (ins Transformer_Float:$input, ConfinedAttr<I64Attr, [IntNonNegative]>:$over,
                       ConfinedAttr<I64Attr, [IntPositive]>:$length, ConfinedAttr<I64Attr, [IntNonNegative]>:$signs);
  let results = (outs Transformer_Float:$result);
  let assemblyFormat = "$input `over` $over `length` $length `signs` $signs attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Transformer_QuantizeOp : Transformer_ComputedRuleOp<"quantize", [AttrSizedOperandSegments]> {
  let summary = "Codes of a narrow format, and the scales that they are to be multiplied by";
  let description = [{
    With `up` = the format's largest number / `amax`, as large as fp32 has it
    (with `power_of_two` the power of two below): each code is `input` x `up`,
    rounded to nearest even and at most the largest number, the scale 1 / `up`.
    `up` is 1 where `amax` is 0; where it is no finite number the scale is NaN,
    so that a fault of the input stays visible. Dimension `rotate` of the input
    is the codes' first, the ones before it are their last: products of narrow
    formats want what they sum over last in both operands. The gradient of
    rounding is the identity.

    Without `blocks` there is one scale, and `amax` is given: of which ranks it
    is the largest is decided in front of the op. With `blocks` [rows, columns]
    `over` n, codes are a matrix, its columns their last n dimensions; each block
    of it has a scale, from its own largest magnitude, in a matrix of as many
    numbers as there are blocks. Those at the matrix' ends may be smaller.

    With both, scales are of two levels: with up = 448 x the codes' largest number / `amax` (1 and NaN as above) the
    tensor's is 1 / up, the third result; that of a block is its own largest magnitude x up / the codes' largest number,
    rounded to f8E4M3FN; and its numbers are multiplied by up / that scale, or by 0 where it is 0.

    With `noise` codes of f4E2M1FN are rounded down or up at random, so that their mean is the number: by a word of the
    seed, the site, the number of the token, of which the input's first dimensions have one each, and the place in the
    others of the whole tensor (heddle/Runtime/Random.h). So it does not matter how a tensor is cut.

    These are ops of one rank's program.

    Constraints: (C1) `rotate` is a dimension of the input, or 0; (C2) scales
    are f32, or where they are powers of two f8E8M0FNU, or of two levels
    f8E4M3FN; (C3) `amax`, f32, is there and the scale a number, or `blocks`, two
    numbers above 0, which are over as many dimensions as `rotate`, if that is not
    0, and scales fit; or all of these and a third result, f32, a number; (C4) `noise`, where it is, is a seed, numbers of
    tokens and a site, for codes of f4E2M1FN. By the factor rule codes have the input's sizes, rotated.

    ```mlir
    %n2_codes, %n2_scale = transformer.quantize %n2, %n2_amax : (tensor<4x32x64xbf16>, tensor<f32>) -> (tensor<4x32x64xf8E4M3FN>, tensor<f32>)
    %n2_turned, %n2_scale2 = transformer.quantize %n2, %n2_amax rotate 2 : (tensor<4x32x64xbf16>, tensor<f32>) -> (tensor<64x4x32xf8E4M3FN>, tensor<f32>)
    %n2_blocks, %n2_scales = transformer.quantize %n2 rotate 2 blocks [1, 32] over 2 power_of_two : (tensor<4x32x64xbf16>) -> (tensor<64x4x32xf8E4M3FN>, tensor<64x4xf8E8M0FNU>)
    %n2_four, %n2_of_blocks, %n2_of_all = transformer.quantize %n2, %n2_amax blocks [1, 16] over 1 : (tensor<4x32x64xbf16>, tensor<f32>) -> (tensor<4x32x64xf4E2M1FN>, tensor<128x4xf8E4M3FN>, tensor<f32>)
    %d_codes, %d_of_blocks, %d_of_all = transformer.quantize %n2, %n2_amax noise %seed, %numbers site 2147483653 blocks [1, 16] over 1 : (tensor<4x32x64xbf16>, tensor<f32>, tensor<i64>, tensor<4x32xi32>) -> (tensor<4x32x64xf4E2M1FN>, tensor<128x4xf8E4M3FN>, tensor<f32>)
    ```
  }];
  let arguments = (ins Transformer_Float:$input, Optional<Transformer_Float>:$amax,
                       Optional<Transformer_Count>:$seed, Optional<Transformer_Integer>:$tokenNumbers,
                       OptionalAttr<I64Attr>:$site,
                       DefaultValuedAttr<ConfinedAttr<I64Attr, [IntNonNegative]>, "0">:$rotate,
                       DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$blocks, DefaultValuedAttr<ConfinedAttr<I64Attr, [IntNonNegative]>, "0">:$over,
                       UnitAttr:$power_of_two, OptionalAttr<Dist_ShardsAttr>:$shards);
  let results = (outs Transformer_Float:$codes, Transformer_Float:$scale, Optional<Transformer_Float>:$tensor_scale);
  let assemblyFormat = "$input (`,` $amax^)? (`noise` $seed^ `,` $tokenNumbers `site` $site)? (`rotate` $rotate^)? (`blocks` $blocks^)? (`over` $over^)? (`power_of_two` $power_of_two^)? (`shards` $shards^)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Sums, biases and other elementwise ops
//===----------------------------------------------------------------------===//

def Transformer_AddOp : Transformer_RuleOp<"add", "..., ... -> ...; additive", [HasGradient, SameOperandsAndResultElementType]> {
  let summary = "Sum of two tensors of one shape";
  let description = [{
    ```mlir
    %x1 = transformer.add %x, %delta : (tensor<4x32x64xf32>, tensor<4x32x64xf32>) -> tensor<4x32x64xf32>
    ```
  }];
  let arguments = (ins Transformer_Tensor:$lhs, Transformer_Tensor:$rhs);
  let results = (outs Transformer_Tensor:$result);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` functional-type(operands, results)";
  let builders = [OpBuilder<(ins "::mlir::Value":$lhs, "::mlir::Value":$rhs), [{
    build($_builder, $_state, lhs.getType(), lhs, rhs);
  }]>];
}

def Transformer_MaximumOp : Transformer_RuleOp<"maximum", "..., ... -> ...", [SameOperandsAndResultElementType]> {
  let summary = "The larger one, element by element";
  let description = [{
    A NaN wins.

    ```mlir
    %most = transformer.maximum %a, %b : (tensor<7xf32>, tensor<7xf32>) -> tensor<7xf32>
    ```
  }];
  let arguments = (ins Transformer_Float:$lhs, Transformer_Float:$rhs);
  let results = (outs Transformer_Float:$result);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}

def Transformer_CastOp : Transformer_RuleOp<"cast", "... -> ...; linear 0"> {
  let summary = "The same values in another format";
  let description = [{
    Each element rounded to the nearest one of the result's format, ties to even.
    Why it is needed is part of the location. Linear: a partial sum may be cast
    where a plan names the format that its reduction travels in, and nowhere else
    (`precision-verify-formats`).

    ```mlir
    %wb = transformer.cast %w : tensor<96x64xf32> -> tensor<96x64xbf16>
    ```
  }];
  let arguments = (ins Transformer_Float:$input);
  let results = (outs Transformer_Float:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
}

def Transformer_BiasAddOp : Transformer_ComputedRuleOp<"bias_add", [HasGradient]> {
  let summary = "Adds a bias to the last dimensions";
  let description = [{
    Additive: where the product is a partial sum, the bias is made partial first,
    so that it is counted once.

    ```mlir
    %qb = transformer.bias_add %k, %bk : (tensor<4x32x2x16xf32>, tensor<2x16xf32>) -> tensor<4x32x2x16xf32>
    ```
  }];
  let arguments = (ins Transformer_Float:$input, Transformer_Float:$bias);
  let results = (outs Transformer_Float:$result);
  let assemblyFormat = "$input `,` $bias attr-dict `:` functional-type(operands, results)";
  let builders = [OpBuilder<(ins "::mlir::Value":$input, "::mlir::Value":$bias), [{
    build($_builder, $_state, input.getType(), input, bias);
  }]>];
}

def Transformer_SumLeadingOp : Transformer_ComputedRuleOp<"sum_leading"> {
  let summary = "Sums over all dimensions but the last ones: the gradient of a bias";
  let description = [{
    ```mlir
    %d_bk = transformer.sum_leading %d_k : (tensor<4x32x2x16xf32>) -> tensor<2x16xf32>
    ```
  }];
  let arguments = (ins Transformer_Float:$input);
  let results = (outs Transformer_Float:$result);
  let assemblyFormat = "$input attr-dict `:` functional-type(operands, results)";
}

def Transformer_ZerosLikeOp : Transformer_RuleOp<"zeros_like", "... -> ...", [HasGradient]> {
  let summary = "Zeros in the shape of a tensor";
  let description = [{
    Not linear on purpose: zeros of a partial sum would be reduced.

    ```mlir
    %zeros = transformer.zeros_like %x : (tensor<4x32x64xf32>) -> tensor<4x32x64xf32>
    ```
  }];
  let arguments = (ins Transformer_Float:$like);
  let results = (outs Transformer_Float:$result);
  let assemblyFormat = "$like attr-dict `:` functional-type(operands, results)";
  let builders = [OpBuilder<(ins "::mlir::Value":$like), [{
    build($_builder, $_state, like.getType(), like);
  }]>];
}

def Transformer_ActivationOp : Transformer_RuleOp<"activation", "... -> ...", [HasGradient]> {
  let summary = "An elementwise nonlinearity";
  let description = [{
    `silu` is x / (1 + exp(-x)); `gelu_tanh` 0.5 x (1 + tanh(sqrt(2/pi) (x +
    0.044715 x^3))); `gelu_erf` 0.5 x (1 + erf(x / sqrt 2)); `relu` max(x, 0).
    All give 0 for 0, so padding stays zero.

    ```mlir
    %m = transformer.activation gelu_tanh %h : (tensor<4x32x96xf32>) -> tensor<4x32x96xf32>
    ```
  }];
  let arguments = (ins Transformer_Activation:$kind, Transformer_Float:$input);
  let results = (outs Transformer_Float:$result);
  let assemblyFormat = "$kind $input attr-dict `:` functional-type(operands, results)";
  let builders = [OpBuilder<(ins "::heddle::transformer::Activation":$kind, "::mlir::Value":$input), [{
    build($_builder, $_state, input.getType(), kind, input);
  }]>];
}

def Transformer_ActivationGradOp : Transformer_RuleOp<"activation_grad", "..., ... -> ...; linear 0"> {
  let summary = "d_result times the activation's derivative at the input";
  let description = [{
    ```mlir
    %d_h = transformer.activation_grad gelu_tanh %d_m, %h : (tensor<4x32x96xf32>, tensor<4x32x96xf32>) -> tensor<4x32x96xf32>
    ```
  }];
  let arguments = (ins Transformer_Activation:$kind, Transformer_Float:$resultGradient, Transformer_Float:$input);
  let results = (outs Transformer_Float:$result);
  let assemblyFormat = "$kind $resultGradient `,` $input attr-dict `:` functional-type(operands, results)";
}

def Transformer_GatedOp : Transformer_RuleOp<"gated", "..., ... -> ...", [HasGradient]> {
  let summary = "activation(gate) * up: the middle of a gated MLP";
  let description = [{
    One op, so that backward needs the two inputs and no third tensor.

    ```mlir
    %gm = transformer.gated silu %gate, %up : (tensor<4x32x96xf32>, tensor<4x32x96xf32>) -> tensor<4x32x96xf32>
    ```
  }];
  let arguments = (ins Transformer_Activation:$kind, Transformer_Float:$gate, Transformer_Float:$up);
  let results = (outs Transformer_Float:$result);
  let assemblyFormat = "$kind $gate `,` $up attr-dict `:` functional-type(operands, results)";
  let builders = [OpBuilder<(ins "::heddle::transformer::Activation":$kind, "::mlir::Value":$gate, "::mlir::Value":$up), [{
    build($_builder, $_state, gate.getType(), kind, gate, up);
  }]>];
}

def Transformer_GatedGradOp : Transformer_RuleOp<"gated_grad", "..., ..., ... -> ..., ...; linear 0"> {
  let summary = "Gradients of gate and up";
  let description = [{
    ```mlir
    %d_gate, %d_up = transformer.gated_grad silu %d_m, %gate, %up : (tensor<4x32x96xf32>, tensor<4x32x96xf32>, tensor<4x32x96xf32>) -> (tensor<4x32x96xf32>, tensor<4x32x96xf32>)
    ```
  }];
  let arguments = (ins Transformer_Activation:$kind, Transformer_Float:$resultGradient, Transformer_Float:$gate, Transformer_Float:$up);
  let results = (outs Transformer_Float:$gateGradient, Transformer_Float:$upGradient);
  let assemblyFormat = "$kind $resultGradient `,` $gate `,` $up attr-dict `:` functional-type(operands, results)";
}

class Transformer_DropoutBase<string mnemonic, list<Trait> traits>
    : Transformer_ComputedRuleOp<mnemonic, traits> {
  let arguments = (ins Transformer_Float:$input, Transformer_Count:$seed, Transformer_Integer:$tokenNumbers,
                       F64Attr:$rate, Transformer_DropoutSite:$site, OptionalAttr<Dist_ShardsAttr>:$shards);
  let assemblyFormat = "$input `,` $seed `,` $tokenNumbers `rate` $rate `site` $site (`shards` $shards^)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Transformer_DropoutOp : Transformer_DropoutBase<"dropout", [HasGradient]> {
  let summary = "Drops elements at random; the others are divided by 1 - rate";
  let description = [{
    Whether an element is dropped is a function of the seed, the site, the
    number of its token in the step's batch and its place in the whole
    last dimension (heddle/Runtime/Random.h). So the mask is the same however the
    tensor is cut, and the gradient is dropout of the gradient with the same
    operands: no mask is stored. Linear: every rank of a partial sum draws one
    mask. At the site `attention` the input is probabilities `b s g r t`, and the
    number of the query head in the whole model counts too.

    Constraints: (C1) the rate is at least 0 and below 1.

    ```mlir
    %y = transformer.dropout %x, %seed, %numbers rate 1.000000e-01 site mlp_output : (tensor<4x32x64xf32>, tensor<i64>, tensor<4x32xi32>) -> tensor<4x32x64xf32>
    ```
  }];
  let results = (outs Transformer_Float:$result);
  let builders = [OpBuilder<(ins "::mlir::Value":$input, "::mlir::Value":$seed, "::mlir::Value":$tokenNumbers,
                                 "::mlir::FloatAttr":$rate, "::heddle::transformer::DropoutSite":$site), [{
    build($_builder, $_state, input.getType(), input, seed, tokenNumbers, rate,
          DropoutSiteAttr::get($_builder.getContext(), site), ::mlir::DictionaryAttr());
  }]>];
}

def Transformer_DropoutWithMaskOp : Transformer_DropoutBase<"dropout_with_mask", [HasGradient]> {
  let summary = "The same, with the mask as a value that backward reads";
  let description = [{
    The mask has a byte per element, 1 where it is kept. Not linear: the mask is
    a value of its own, and no sum.

    Constraints: (C1) the rate is at least 0 and below 1.

    ```mlir
    %y, %mask = transformer.dropout_with_mask %x, %seed, %numbers rate 1.000000e-01 site mlp_output : (tensor<4x32x64xf32>, tensor<i64>, tensor<4x32xi32>) -> (tensor<4x32x64xf32>, tensor<4x32x64xi8>)
    ```
  }];
  let results = (outs Transformer_Float:$result, Transformer_Mask:$mask);
}

def Transformer_DropoutGradOp : Transformer_RuleOp<"dropout_grad", "..., ... -> ...; linear 0"> {
  let summary = "The gradient where a mask keeps, divided by 1 - rate; else 0";
  let description = [{
    Constraints: (C1) the rate is at least 0 and below 1.

    ```mlir
    %d_x = transformer.dropout_grad %d_y, %mask rate 1.000000e-01 : (tensor<4x32x64xf32>, tensor<4x32x64xi8>) -> tensor<4x32x64xf32>
    ```
  }];
  let arguments = (ins Transformer_Float:$resultGradient, Transformer_Mask:$mask, F64Attr:$rate);
  let results = (outs Transformer_Float:$result);
  let assemblyFormat = "$resultGradient `,` $mask `rate` $rate attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Norms
//===----------------------------------------------------------------------===//

def Transformer_RmsNormOp : Transformer_RuleOp<"rms_norm", "... d, d -> ... d, ...; whole d", [HasGradient]> {
  let summary = "x / sqrt(mean(x^2) + epsilon) * weight, over the last dimension";
  let description = [{
    The second result is 1 / sqrt(mean(x^2) + epsilon), which backward reads.

    ```mlir
    %n1, %rstd1 = transformer.rms_norm %x, %g1 epsilon 1.000000e-05 : (tensor<4x32x64xf32>, tensor<64xf32>) -> (tensor<4x32x64xf32>, tensor<4x32xf32>)
    ```
  }];
  let arguments = (ins Transformer_Float:$input, Transformer_Float:$weight, F64Attr:$epsilon);
  let results = (outs Transformer_Float:$result, Transformer_Float:$rstd);
  let assemblyFormat = "$input `,` $weight `epsilon` $epsilon attr-dict `:` functional-type(operands, results)";
}

def Transformer_RmsNormGradOp : Transformer_RuleOp<"rms_norm_grad",
    "... d, ... d, d, ... -> ... d, d; whole d; sum ...; linear 0"> {
  let summary = "Gradients of input and weight";
  let description = [{
    Operands: gradient of the result, input, weight, rstd.

    ```mlir
    %d_x, %d_g1 = transformer.rms_norm_grad %d_n1, %x, %g1, %rstd1 : (tensor<4x32x64xf32>, tensor<4x32x64xf32>, tensor<64xf32>, tensor<4x32xf32>) -> (tensor<4x32x64xf32>, tensor<64xf32>)
    ```
  }];
  let arguments = (ins Transformer_Float:$resultGradient, Transformer_Float:$input,
                       Transformer_Float:$weight, Transformer_Float:$rstd);
  let results = (outs Transformer_Float:$inputGradient, Transformer_Float:$weightGradient);
  let assemblyFormat = "$resultGradient `,` $input `,` $weight `,` $rstd attr-dict `:` functional-type(operands, results)";
}

def Transformer_LayerNormOp : Transformer_RuleOp<"layer_norm", "... d, d, d -> ... d, ..., ...; whole d", [HasGradient]> {
  let summary = "(x - mean) / sqrt(variance + epsilon) * weight + bias, over the last dimension";
  let description = [{
    Also gives mean and 1 / sqrt(variance + epsilon), which backward reads. The
    variance divides by the number of elements.

    ```mlir
    %n2, %mean2, %rstd2 = transformer.layer_norm %x, %g2, %h2 epsilon 1.000000e-05 : (tensor<4x32x64xf32>, tensor<64xf32>, tensor<64xf32>) -> (tensor<4x32x64xf32>, tensor<4x32xf32>, tensor<4x32xf32>)
    ```
  }];
  let arguments = (ins Transformer_Float:$input, Transformer_Float:$weight, Transformer_Float:$bias, F64Attr:$epsilon);
  let results = (outs Transformer_Float:$result, Transformer_Float:$mean, Transformer_Float:$rstd);
  let assemblyFormat = "$input `,` $weight `,` $bias `epsilon` $epsilon attr-dict `:` functional-type(operands, results)";
}

def Transformer_LayerNormGradOp : Transformer_RuleOp<"layer_norm_grad",
    "... d, ... d, d, ..., ... -> ... d, d, d; whole d; sum ...; linear 0"> {
  let summary = "Gradients of input, weight and bias";
  let description = [{
    Operands: gradient of the result, input, weight, mean, rstd.

    ```mlir
    %d_x2, %d_g2, %d_h2 = transformer.layer_norm_grad %d_n2, %x, %g2, %mean2, %rstd2 : (tensor<4x32x64xf32>, tensor<4x32x64xf32>, tensor<64xf32>, tensor<4x32xf32>, tensor<4x32xf32>) -> (tensor<4x32x64xf32>, tensor<64xf32>, tensor<64xf32>)
    ```
  }];
  let arguments = (ins Transformer_Float:$resultGradient, Transformer_Float:$input, Transformer_Float:$weight,
                       Transformer_Float:$mean, Transformer_Float:$rstd);
  let results = (outs Transformer_Float:$inputGradient, Transformer_Float:$weightGradient, Transformer_Float:$biasGradient);
  let assemblyFormat = "$resultGradient `,` $input `,` $weight `,` $mean `,` $rstd attr-dict `:` functional-type(operands, results)";
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

def Transformer_RopeOp : Transformer_RuleOp<"rope", "b s ... k, b s -> b s ... k; whole k; linear 0", [HasGradient]> {
  let summary = "Rotates pairs of a head's elements by angles that grow with the position";
  let description = [{
    Elements i and i + k/2 of a head are a pair, turned by position x frequency i;
    frequency i is `theta^(-2 i / k)`, changed by `scaling` where it is given.
    `inverse` turns back: the gradient.

    Constraints: (C1) the head size is even; (C2) `theta` is positive.

    ```mlir
    %qr = transformer.rope %q, %positions theta 1.000000e+04 : (tensor<4x32x2x2x16xf32>, tensor<4x32xi32>) -> tensor<4x32x2x2x16xf32>
    ```
  }];
  let arguments = (ins Transformer_Float:$input, Transformer_Integer:$positions, F64Attr:$theta,
                       OptionalAttr<Transformer_Llama3ScalingAttr>:$scaling, UnitAttr:$inverse);
  let results = (outs Transformer_Float:$result);
  let assemblyFormat = "$input `,` $positions `theta` $theta (`scaling` $scaling^)? (`inverse` $inverse^)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
  let builders = [OpBuilder<(ins "::mlir::Value":$input, "::mlir::Value":$positions, "::mlir::FloatAttr":$theta,
                                 "::heddle::transformer::Llama3ScalingAttr":$scaling, "bool":$inverse), [{
    build($_builder, $_state, input.getType(), input, positions, theta, scaling,
          inverse ? $_builder.getUnitAttr() : ::mlir::UnitAttr());
  }]>];
  let extraClassDeclaration = [{
    /// Radians per position, one per pair (head size / 2 of them).
    ::llvm::SmallVector<double> getFrequencies();
  }];
}

class Transformer_AttentionBase<string mnemonic, list<Trait> traits>
    : Transformer_ComputedRuleOp<mnemonic, !listconcat([HasCost, AttrSizedOperandSegments], traits)> {
  dag positionArguments = (ins Transformer_Integer:$queryPositions, Transformer_Integer:$keyPositions,
                       Transformer_Integer:$queryDocuments, Transformer_Integer:$keyDocuments,
                       Optional<Transformer_Count>:$seed, Optional<Transformer_Integer>:$tokenNumbers,
                       F64Attr:$scale, DefaultValuedAttr<ConfinedAttr<I64Attr, [IntNonNegative]>, "0">:$window,
                       OptionalAttr<F64Attr>:$dropout, OptionalAttr<Dist_ShardsAttr>:$shards);
  let hasVerifier = 1;
}

def Transformer_AttentionOp : Transformer_AttentionBase<"attention", [HasGradient]> {
  let summary = "Causal grouped-query attention";
  let description = [{
    Query i sees key j where both are of one document, position j is at most
    position i and, with a `window` above 0, position i minus position j is less
    than it. The second result is the logarithm of the sum of exponentials per
    query, which backward reads. Query heads that are padding give zero: their
    keys and values are those of the KV head, which need not be zero. Tokens that
    are padding are of a document of their own, so that no query sees them.

    With `dropout`, probabilities are dropped as elements are by `dropout` (site
    `attention`): by the number of the query's token, the number of
    the query head in the whole model, and the place of the key.

    Constraints: (C1) a seed and the numbers of tokens are there where and only
    where `dropout` is, a rate of at least 0 and below 1.

    ```mlir
    %o, %lse = transformer.attention %qr, %kr, %v, %positions, %positions, %documents, %documents scale 2.500000e-01 window 16 : (tensor<4x32x2x2x16xf32>, tensor<4x32x2x16xf32>, tensor<4x32x2x16xf32>, tensor<4x32xi32>, tensor<4x32xi32>, tensor<4x32xi32>, tensor<4x32xi32>) -> (tensor<4x32x2x2x16xf32>, tensor<4x32x2x2xf32>)
    ```
  }];
  let arguments = !con((ins Transformer_Float:$query, Transformer_Float:$key, Transformer_Float:$value), positionArguments);
  let results = (outs Transformer_Float:$result, Transformer_Float:$lse);
  let assemblyFormat = "$query `,` $key `,` $value `,` $queryPositions `,` $keyPositions `,` $queryDocuments `,` $keyDocuments `scale` $scale (`window` $window^)? (`dropout` $dropout^ `(` $seed `,` $tokenNumbers `)`)? (`shards` $shards^)? attr-dict `:` functional-type(operands, results)";
}

def Transformer_AttentionGradOp : Transformer_AttentionBase<"attention_grad", []> {
  let summary = "Gradients of query, key and value";
  let description = [{
    Operands: gradient of the result, query, key, value, result, lse, positions,
    documents. The gradients of key and value are summed over the query heads of a
    KV head, and over queries. With `dropout` the mask of forward is drawn again.

    ```mlir
    %d_qr, %d_kr, %d_v = transformer.attention_grad %d_o, %qr, %kr, %v, %o, %lse, %positions, %positions, %documents, %documents scale 2.500000e-01 window 16 : (tensor<4x32x2x2x16xf32>, tensor<4x32x2x2x16xf32>, tensor<4x32x2x16xf32>, tensor<4x32x2x16xf32>, tensor<4x32x2x2x16xf32>, tensor<4x32x2x2xf32>, tensor<4x32xi32>, tensor<4x32xi32>, tensor<4x32xi32>, tensor<4x32xi32>) -> (tensor<4x32x2x2x16xf32>, tensor<4x32x2x16xf32>, tensor<4x32x2x16xf32>)
    ```
  }];
  let arguments = !con((ins Transformer_Float:$resultGradient, Transformer_Float:$query, Transformer_Float:$key,
                        Transformer_Float:$value, Transformer_Float:$output, Transformer_Float:$lse), positionArguments);
  let results = (outs Transformer_Float:$queryGradient, Transformer_Float:$keyGradient, Transformer_Float:$valueGradient);
  let assemblyFormat = "$resultGradient `,` $query `,` $key `,` $value `,` $output `,` $lse `,` $queryPositions `,` $keyPositions `,` $queryDocuments `,` $keyDocuments `scale` $scale (`window` $window^)? (`dropout` $dropout^ `(` $seed `,` $tokenNumbers `)`)? (`shards` $shards^)? attr-dict `:` functional-type(operands, results)";
}

def Transformer_ProbabilitiesOp : Transformer_RuleOp<"probabilities",
    "b s g r t, b s, b t, b s, b t -> b s g r t; whole t; padded t; position r", [HasGradient]> {
  let summary = "Attention's probabilities from the products of queries and keys";
  let description = [{
    softmax of `scale` times the scores of the keys that a query sees, 0 for all
    others. Who sees whom is as in `attention`, of which this is the middle: a
    product of queries and keys stands in front of it, one with the values
    behind it. Query heads that are padding have no probabilities.

    ```mlir
    %p = transformer.probabilities %scores, %positions, %positions, %documents, %documents scale 2.500000e-01 window 16 : (tensor<4x32x2x2x32xf32>, tensor<4x32xi32>, tensor<4x32xi32>, tensor<4x32xi32>, tensor<4x32xi32>) -> tensor<4x32x2x2x32xf32>
    ```
  }];
  let arguments = (ins Transformer_Float:$scores,
                       Transformer_Integer:$queryPositions, Transformer_Integer:$keyPositions,
                       Transformer_Integer:$queryDocuments, Transformer_Integer:$keyDocuments,
                       F64Attr:$scale, DefaultValuedAttr<ConfinedAttr<I64Attr, [IntNonNegative]>, "0">:$window,
                       OptionalAttr<Dist_ShardsAttr>:$shards);
  let results = (outs Transformer_Float:$result);
  let assemblyFormat = "$scores `,` $queryPositions `,` $keyPositions `,` $queryDocuments `,` $keyDocuments `scale` $scale (`window` $window^)? (`shards` $shards^)? attr-dict `:` functional-type(operands, results)";
}

def Transformer_ProbabilitiesGradOp : Transformer_RuleOp<"probabilities_grad",
    "b s g r t, b s g r t -> b s g r t; whole t; padded t; linear 0"> {
  let summary = "Gradient of the scores, from that of the probabilities and these";
  let description = [{
    `scale` p (d_p - sum of d_p p over the keys).

    ```mlir
    %d_scores = transformer.probabilities_grad %d_p, %p scale 2.500000e-01 : (tensor<4x32x2x2x32xf32>, tensor<4x32x2x2x32xf32>) -> tensor<4x32x2x2x32xf32>
    ```
  }];
  let arguments = (ins Transformer_Float:$resultGradient, Transformer_Float:$probabilities, F64Attr:$scale);
  let results = (outs Transformer_Float:$result);
  let assemblyFormat = "$resultGradient `,` $probabilities `scale` $scale attr-dict `:` functional-type(operands, results)";
}

def Transformer_SplitTensorsOp : Transformer_ComputedRuleOp<"split_tensors", [HasGradient]> {
  let summary = "The entries of the first dimension, each as a tensor";
  let description = [{
    How a parameter that a checkpoint stores fused is taken apart. A result may
    have further dimensions of size 1 (queries have one for the query heads per
    KV head); its elements are the entry's, in order.

    Constraints: (C1) there are as many results as the first dimension has
    entries.

    ```mlir
    %wq, %wk = transformer.split_tensors %wqk : (tensor<2x4x16x64xf32>) -> (tensor<4x1x16x64xf32>, tensor<4x16x64xf32>)
    ```
  }];
  let arguments = (ins Transformer_Float:$input);
  let results = (outs Variadic<Transformer_Float>:$parts);
  let assemblyFormat = "$input attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Transformer_StackTensorsOp : Transformer_ComputedRuleOp<"stack_tensors"> {
  let summary = "Tensors along a new first dimension";
  let description = [{
    The reverse of `split_tensors`: an operand may have further dimensions of size
    1. Constraints: (C1) the first dimension of the result has as many entries as
    there are operands.

    ```mlir
    %d_wqk = transformer.stack_tensors %d_wq, %d_wk : (tensor<4x1x16x64xf32>, tensor<4x16x64xf32>) -> tensor<2x4x16x64xf32>
    ```
  }];
  let arguments = (ins Variadic<Transformer_Float>:$inputs);
  let results = (outs Transformer_Float:$result);
  let assemblyFormat = "$inputs attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

#endif // HEDDLE_TRANSFORMER_MATH_OPS
