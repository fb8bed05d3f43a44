//===- HeadBodies.cpp - probabilities and dropout in a kernel -------------===//
//
// What may have to know which head of the whole model a row is.
//
//===----------------------------------------------------------------------===//

#include "passes/Lowering/Scalars.h"

#include "heddle/Runtime/Random.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::lowering;
using namespace heddle::transformer;

using Values = SmallVector<Value>;

/// Query heads of each KV head that an op's rows are, and these of the whole
/// model.
static std::pair<int64_t, int64_t> headsPerGroup(Operation *op) {
  int64_t here =
      cast<RankedTensorType>(op->getOperand(0).getType()).getDimSize(3);
  dist::ShardAttr shard = dist::getShard(op, "r");
  return {here, shard ? shard.getExtent() : here};
}

static bool hasPaddedHeads(Operation *op) {
  auto [here, whole] = headsPerGroup(op);
  dist::ShardAttr shard = dist::getShard(op, "r");
  return shard && shard.getMesh().getGroupSize(shard.getAxes()) * here > whole;
}

bool lowering::needsHeads(Operation *op) {
  if (auto drop = dyn_cast<DropoutOp>(op))
    return drop.getSite() == DropoutSite::Attention;
  if (auto drop = dyn_cast<DropoutWithMaskOp>(op))
    return drop.getSite() == DropoutSite::Attention;
  return isa<ProbabilitiesOp>(op) && hasPaddedHeads(op);
}

template <class OpType>
static Value integers(BodyBuilder &body, Value a, Value b) {
  return OpType::create(body.builder, body.location, a, b);
}

/// The number of the row's query head among those of its KV head.
static Value headOfRow(Operation *op, BodyBuilder &body) {
  Value here = body.integer(headsPerGroup(op).first);
  return integers<arith::AddIOp>(
      body, body.firstHead, integers<arith::RemSIOp>(body, body.row, here));
}

/// The number of the row's query head in the whole model.
static Value planeOfRow(Operation *op, BodyBuilder &body) {
  auto [here, whole] = headsPerGroup(op);
  int64_t groups =
      cast<RankedTensorType>(op->getOperand(0).getType()).getDimSize(2);
  Value group = integers<arith::RemSIOp>(
      body, integers<arith::DivSIOp>(body, body.row, body.integer(here)),
      body.integer(groups));
  group = integers<arith::AddIOp>(body, body.firstGroup, group);
  return integers<arith::AddIOp>(
      body, integers<arith::MulIOp>(body, group, body.integer(whole)),
      headOfRow(op, body));
}

/// softmax of the scores of the keys that the row's query sees.
static Values probabilities(ProbabilitiesOp op, ArrayRef<Scalar> v,
                            BodyBuilder &body) {
  auto both = [&](Value a, Value b) {
    return integers<arith::AndIOp>(body, a, b);
  };
  Value distance = integers<arith::SubIOp>(body, v[1].value, v[2].value);
  Value sees =
      both(compare(body, arith::CmpIPredicate::eq, v[3].value, v[4].value),
           compare(body, arith::CmpIPredicate::sge, distance, body.integer(0)));
  if (op.getWindow() > 0)
    sees = both(sees, compare(body, arith::CmpIPredicate::slt, distance,
                              body.integer(op.getWindow())));
  if (hasPaddedHeads(op))
    sees =
        both(sees, compare(body, arith::CmpIPredicate::slt, headOfRow(op, body),
                           body.integer(headsPerGroup(op).second)));
  Scalar score = op.getScale().convertToDouble() * v[0];
  Scalar seen = where(sees, score, -std::numeric_limits<double>::infinity());
  Scalar largest{&body, body.reduce({seen.value}, /*maximum=*/true).front()};
  Scalar power = where(sees, exp(score - largest), 0);
  Scalar sum{&body, body.reduce({power.value}).front()};
  return {where(sees, power / sum, 0)};
}

static Values probabilitiesGrad(ProbabilitiesGradOp op, ArrayRef<Scalar> v,
                                BodyBuilder &body) {
  Scalar along{&body, body.reduce({v[0] * v[1]}).front()};
  return {op.getScale().convertToDouble() * v[1] * (v[0] - along)};
}

//===----------------------------------------------------------------------===//
// Dropout
//===----------------------------------------------------------------------===//

/// An element stays where its random word is not below the threshold.
template <class Op>
static Value keeps(Op op, ArrayRef<Scalar> v, BodyBuilder &body) {
  Value plane = needsHeads(op) ? planeOfRow(op, body) : Value();
  Value word = rt::RandomOp::create(
      body.builder, body.location, body.builder.getI32Type(),
      body.builder.getI32IntegerAttr(static_cast<int32_t>(op.getSite())),
      v[1].value, v[2].value, body.column, plane);
  return compare(body, arith::CmpIPredicate::uge, word,
                 body.integer(static_cast<int32_t>(random::dropoutThreshold(
                     op.getRate().convertToDouble()))));
}

/// \p x where it is kept, so much larger as others are dropped.
static Scalar keepScaled(Value keeps, Scalar x, llvm::APFloat rate) {
  return where(keeps, 1 / (1 - rate.convertToDouble()) * x, 0);
}

static Values dropout(DropoutOp op, ArrayRef<Scalar> v, BodyBuilder &body) {
  return {keepScaled(keeps(op, v, body), v[0], op.getRate())};
}

static Values dropoutWithMask(DropoutWithMaskOp op, ArrayRef<Scalar> v,
                              BodyBuilder &body) {
  Value kept = keeps(op, v, body);
  return {keepScaled(kept, v[0], op.getRate()),
          arith::ExtUIOp::create(body.builder, body.location,
                                 body.builder.getI32Type(), kept)};
}

static Values dropoutGrad(DropoutGradOp op, ArrayRef<Scalar> v,
                          BodyBuilder &body) {
  Value kept =
      compare(body, arith::CmpIPredicate::ne, v[1].value, body.integer(0));
  return {keepScaled(kept, v[0], op.getRate())};
}

Values lowering::buildHeadBody(Operation *op, ArrayRef<Value> operands,
                               BodyBuilder &body) {
  SmallVector<Scalar> v;
  for (Value operand : operands)
    v.push_back({&body, operand});
  return llvm::TypeSwitch<Operation *, Values>(op)
      .Case<DropoutOp>([&](auto drop) { return dropout(drop, v, body); })
      .Case<DropoutWithMaskOp>(
          [&](auto drop) { return dropoutWithMask(drop, v, body); })
      .Case<DropoutGradOp>(
          [&](auto drop) { return dropoutGrad(drop, v, body); })
      .Case<ProbabilitiesOp>([&](auto p) { return probabilities(p, v, body); })
      .Case<ProbabilitiesGradOp>(
          [&](auto p) { return probabilitiesGrad(p, v, body); })
      .Default([](Operation *) -> Values {
        llvm_unreachable("dropout or probabilities");
      });
}
