//===- TransformerGradients.cpp - reverse mode of each op -----------------===//
//
// Every gradient is built from ordinary ops; none has a kind of its own.
//
//===----------------------------------------------------------------------===//

#include "dialects/Transformer/Transformer.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace heddle::transformer;

using Values = SmallVector<Value>;

/// Whether only the first result of `op` has a gradient; says so where not.
static bool checkFirstOnly(Operation *op, ArrayRef<Value> gradients) {
  for (auto [index, gradient] : llvm::enumerate(gradients))
    if (gradient && index > 0) {
      op->emitOpError() << "has no gradient for its result " << index;
      return false;
    }
  return true;
}

Values ContractOp::buildGradient(OpBuilder &builder,
                                 ArrayRef<Value> gradients) {
  auto [left, right] = getSpec().split("->");
  auto [first, second] = left.split(",");
  auto spec = [&](StringRef other, StringRef result) {
    return (right.trim() + ", " + other.trim() + " -> " + result.trim()).str();
  };
  Value lhs = ContractOp::create(builder, getLoc(), getLhs().getType(),
                                 spec(second, first), gradients[0], getRhs(),
                                 getSeed(), getTokenNumbers());
  Value rhs = ContractOp::create(builder, getLoc(), getRhs().getType(),
                                 spec(first, second), gradients[0], getLhs(),
                                 getSeed(), getTokenNumbers());
  Values all = {lhs, rhs};
  all.resize(getNumOperands());
  return all;
}

Values AddOp::buildGradient(OpBuilder &, ArrayRef<Value> gradients) {
  return {gradients[0], gradients[0]};
}

Values BiasAddOp::buildGradient(OpBuilder &builder, ArrayRef<Value> gradients) {
  return {gradients[0],
          SumLeadingOp::create(builder, getLoc(), getBias().getType(),
                               gradients[0])};
}

Values ZerosLikeOp::buildGradient(OpBuilder &, ArrayRef<Value>) {
  return {Value()};
}

Values ActivationOp::buildGradient(OpBuilder &builder,
                                   ArrayRef<Value> gradients) {
  return {ActivationGradOp::create(builder, getLoc(), getType(), getKind(),
                                   gradients[0], getInput())};
}

Values GatedOp::buildGradient(OpBuilder &builder, ArrayRef<Value> gradients) {
  auto both = GatedGradOp::create(builder, getLoc(), getGate().getType(),
                                  getUp().getType(), getKind(), gradients[0],
                                  getGate(), getUp());
  return {both.getGateGradient(), both.getUpGradient()};
}

Values DropoutOp::buildGradient(OpBuilder &builder, ArrayRef<Value> gradients) {
  return {DropoutOp::create(builder, getLoc(), gradients[0], getSeed(),
                            getTokenNumbers(), getRateAttr(), getSite()),
          Value(), Value()};
}

Values DropoutWithMaskOp::buildGradient(OpBuilder &builder,
                                        ArrayRef<Value> gradients) {
  if (!checkFirstOnly(*this, gradients))
    return {};
  return {DropoutGradOp::create(builder, getLoc(), getInput().getType(),
                                gradients[0], getMask(), getRateAttr()),
          Value(), Value()};
}

Values RmsNormOp::buildGradient(OpBuilder &builder, ArrayRef<Value> gradients) {
  if (!checkFirstOnly(*this, gradients))
    return {};
  auto both = RmsNormGradOp::create(builder, getLoc(), getInput().getType(),
                                    getWeight().getType(), gradients[0],
                                    getInput(), getWeight(), getRstd());
  return {both.getInputGradient(), both.getWeightGradient()};
}

Values LayerNormOp::buildGradient(OpBuilder &builder,
                                  ArrayRef<Value> gradients) {
  if (!checkFirstOnly(*this, gradients))
    return {};
  auto all = LayerNormGradOp::create(builder, getLoc(), getInput().getType(),
                                     getWeight().getType(), getBias().getType(),
                                     gradients[0], getInput(), getWeight(),
                                     getMean(), getRstd());
  return {all.getInputGradient(), all.getWeightGradient(),
          all.getBiasGradient()};
}

Values RopeOp::buildGradient(OpBuilder &builder, ArrayRef<Value> gradients) {
  return {RopeOp::create(builder, getLoc(), gradients[0], getPositions(),
                         getThetaAttr(), getScalingAttr(), !getInverse()),
          Value()};
}

Values AttentionOp::buildGradient(OpBuilder &builder,
                                  ArrayRef<Value> gradients) {
  if (!checkFirstOnly(*this, gradients))
    return {};
  auto all = AttentionGradOp::create(
      builder, getLoc(), getQuery().getType(), getKey().getType(),
      getValue().getType(), gradients[0], getQuery(), getKey(), getValue(),
      getResult(), getLse(), getQueryPositions(), getKeyPositions(),
      getQueryDocuments(), getKeyDocuments(), getSeed(), getTokenNumbers(),
      getScaleAttr(), getWindowAttr(), getDropoutAttr(), getShardsAttr());
  Values result = {all.getQueryGradient(), all.getKeyGradient(),
                   all.getValueGradient()};
  result.resize(getNumOperands()); // what says who sees whom has none
  return result;
}

Values ProbabilitiesOp::buildGradient(OpBuilder &builder,
                                      ArrayRef<Value> gradients) {
  Values result = {
      ProbabilitiesGradOp::create(builder, getLoc(), getScores().getType(),
                                  gradients[0], getResult(), getScaleAttr())};
  result.resize(getNumOperands()); // what says who sees whom has none
  return result;
}

Values SplitTensorsOp::buildGradient(OpBuilder &builder,
                                     ArrayRef<Value> gradients) {
  Values parts;
  for (auto [part, gradient] : llvm::zip(getParts(), gradients))
    parts.push_back(gradient ? gradient
                             : ZerosLikeOp::create(builder, getLoc(), part));
  return {
      StackTensorsOp::create(builder, getLoc(), getInput().getType(), parts)};
}

Values EmbeddingOp::buildGradient(OpBuilder &builder,
                                  ArrayRef<Value> gradients) {
  return {Value(),
          EmbeddingGradOp::create(builder, getLoc(), getTable().getType(),
                                  getIds(), gradients[0], getShardsAttr())};
}

FailureOr<std::pair<Value, Value>>
heddle::transformer::buildLossGradient(OpBuilder &builder, MeanCountedOp mean,
                                       Value scale) {
  auto loss = mean.getLosses().getDefiningOp<TokenLossOp>();
  auto pick = loss ? loss.getPicked().getDefiningOp<PickOp>() : PickOp();
  if (!pick)
    return mean.emitOpError()
           << "must be of the losses of a token_loss with a pick";
  Value logits = pick.getInput();
  Value gradient =
      LossGradOp::create(builder, mean.getLoc(), logits.getType(), logits,
                         loss.getMax(), loss.getSum(), mean.getLabels(),
                         mean.getCount(), scale, pick.getShardsAttr());
  return std::pair(logits, gradient);
}
