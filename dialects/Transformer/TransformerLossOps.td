#ifndef HEDDLE_TRANSFORMER_LOSS_OPS
#define HEDDLE_TRANSFORMER_LOSS_OPS

include "dialects/Transformer/TransformerDialect.td"

//===----------------------------------------------------------------------===//
// Embedding and loss
//===----------------------------------------------------------------------===//

def Transformer_EmbeddingOp : Transformer_RuleOp<"embedding",
    "b s, v d -> b s d; sum v; position v; linear 1", [HasGradient]> {
  let summary = "Rows of a table";
  let description = [{
    A rank that holds a part of the rows gives zero for the others, so the result
    is a partial sum. Rows outside the table are never asked for.

    ```mlir
    %e = transformer.embedding %tokens, %table : (tensor<4x32xi32>, tensor<251x64xf32>) -> tensor<4x32x64xf32>
    ```
  }];
  let arguments = (ins Transformer_Integer:$ids, Transformer_Float:$table, OptionalAttr<Dist_ShardsAttr>:$shards);
  let results = (outs Transformer_Float:$result);
  let assemblyFormat = "$ids `,` $table (`shards` $shards^)? attr-dict `:` functional-type(operands, results)";
}

def Transformer_EmbeddingGradOp : Transformer_RuleOp<"embedding_grad",
    "b s, b s d -> v d; sum b s; position v; linear 1"> {
  let summary = "Sums the gradients of each row's uses";
  let description = [{
    The result says how many rows there are, and which of them a rank has: the
    table is no operand, so backward does not gather it.

    ```mlir
    %d_table = transformer.embedding_grad %tokens, %d_e : (tensor<4x32xi32>, tensor<4x32x64xf32>) -> tensor<251x64xf32>
    ```
  }];
  let arguments = (ins Transformer_Integer:$ids, Transformer_Float:$resultGradient,
                       OptionalAttr<Dist_ShardsAttr>:$shards);
  let results = (outs Transformer_Float:$result);
  let assemblyFormat = "$ids `,` $resultGradient (`shards` $shards^)? attr-dict `:` functional-type(operands, results)";
}

def Transformer_RowMaxOp : Transformer_RuleOp<"row_max", "... v -> ...; max v; position v"> {
  let summary = "Maximum of each row";
  let description = [{
    ```mlir
    %max = transformer.row_max %logits : (tensor<4x32x251xf32>) -> tensor<4x32xf32>
    ```
  }];
  let arguments = (ins Transformer_Float:$input, OptionalAttr<Dist_ShardsAttr>:$shards);
  let results = (outs Transformer_Float:$result);
  let assemblyFormat = "$input (`shards` $shards^)? attr-dict `:` functional-type(operands, results)";
}

def Transformer_RowSumExpOp : Transformer_RuleOp<"row_sum_exp", "... v, ... -> ...; sum v; position v"> {
  let summary = "Sum over each row of exp(x - max)";
  let description = [{
    ```mlir
    %sum = transformer.row_sum_exp %logits, %max : (tensor<4x32x251xf32>, tensor<4x32xf32>) -> tensor<4x32xf32>
    ```
  }];
  let arguments = (ins Transformer_Float:$input, Transformer_Float:$max, OptionalAttr<Dist_ShardsAttr>:$shards);
  let results = (outs Transformer_Float:$result);
  let assemblyFormat = "$input `,` $max (`shards` $shards^)? attr-dict `:` functional-type(operands, results)";
}

def Transformer_PickOp : Transformer_RuleOp<"pick", "... v, ... -> ...; sum v; position v; linear 0"> {
  let summary = "The logit of each label; 0 where the label is not counted";
  let description = [{
    ```mlir
    %picked = transformer.pick %logits, %labels : (tensor<4x32x251xf32>, tensor<4x32xi32>) -> tensor<4x32xf32>
    ```
  }];
  let arguments = (ins Transformer_Float:$input, Transformer_Integer:$labels, OptionalAttr<Dist_ShardsAttr>:$shards);
  let results = (outs Transformer_Float:$result);
  let assemblyFormat = "$input `,` $labels (`shards` $shards^)? attr-dict `:` functional-type(operands, results)";
}

def Transformer_TokenLossOp : Transformer_RuleOp<"token_loss", "..., ..., ... -> ..."> {
  let summary = "max + log(sum) - picked: the cross entropy of each token";
  let description = [{
    ```mlir
    %losses = transformer.token_loss %max, %sum, %picked : (tensor<4x32xf32>, tensor<4x32xf32>, tensor<4x32xf32>) -> tensor<4x32xf32>
    ```
  }];
  let arguments = (ins Transformer_Float:$max, Transformer_Float:$sum, Transformer_Float:$picked);
  let results = (outs Transformer_Float:$result);
  let assemblyFormat = "$max `,` $sum `,` $picked attr-dict `:` functional-type(operands, results)";
}

def Transformer_CountLabelsOp : Transformer_RuleOp<"count_labels", "b s -> ; sum b s"> {
  let summary = "Number of labels that are counted: those that are not negative";
  let description = [{
    ```mlir
    %n = transformer.count_labels %labels : (tensor<4x32xi32>) -> tensor<i64>
    ```
  }];
  let arguments = (ins Transformer_Integer:$labels);
  let results = (outs Transformer_Count:$result);
  let assemblyFormat = "$labels attr-dict `:` functional-type(operands, results)";
}

def Transformer_MeanCountedOp : Transformer_RuleOp<"mean_counted", "b s, b s, -> ; sum b s; linear 0"> {
  let summary = "Sum of the losses of counted labels, divided by the count of the whole step";
  let description = [{
    Added over micro-batches and ranks it is the mean; with a count of 0 it is 0.

    ```mlir
    %loss = transformer.mean_counted %losses, %labels, %count : (tensor<4x32xf32>, tensor<4x32xi32>, tensor<i64>) -> tensor<f32>
    ```
  }];
  let arguments = (ins Transformer_Float:$losses, Transformer_Integer:$labels, Transformer_Count:$count);
  let results = (outs Transformer_Float:$result);
  let assemblyFormat = "$losses `,` $labels `,` $count attr-dict `:` functional-type(operands, results)";
}

def Transformer_LossGradOp : Transformer_ComputedRuleOp<"loss_grad"> {
  let summary = "Gradient of the step's loss by the logits";
  let description = [{
    (exp(logit - max) / sum - [label]) / count for counted labels, else 0; 0 in
    padding and where the count is 0. With `scaled` that much larger, so that
    gradients of narrow range do not vanish; everything behind it is linear, and
    `clip_factor` divides it out.

    ```mlir
    %d_logits = transformer.loss_grad %logits, %max, %sum, %labels, %count : (tensor<4x32x251xf32>, tensor<4x32xf32>, tensor<4x32xf32>, tensor<4x32xi32>, tensor<i64>) -> tensor<4x32x251xf32>
    %d_scaled = transformer.loss_grad %logits, %max, %sum, %labels, %count scaled %scale : (tensor<4x32x251xf32>, tensor<4x32xf32>, tensor<4x32xf32>, tensor<4x32xi32>, tensor<i64>, tensor<f32>) -> tensor<4x32x251xf32>
    ```
  }];
  let arguments = (ins Transformer_Float:$logits, Transformer_Float:$max, Transformer_Float:$sum,
                       Transformer_Integer:$labels, Transformer_Count:$count,
                       Optional<Transformer_Float>:$scale, OptionalAttr<Dist_ShardsAttr>:$shards);
  let results = (outs Transformer_Float:$result);
  let assemblyFormat = "$logits `,` $max `,` $sum `,` $labels `,` $count (`scaled` $scale^)? (`shards` $shards^)? attr-dict `:` functional-type(operands, results)";
}

#endif // HEDDLE_TRANSFORMER_LOSS_OPS
