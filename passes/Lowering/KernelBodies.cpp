//===- KernelBodies.cpp - scalar meaning of the ops in a kernel -----------===//

#include "passes/Lowering/KernelBodies.h"

#include "passes/Lowering/Scalars.h"

#include "llvm/ADT/TypeSwitch.h"

#include <numbers>

using namespace mlir;
using namespace heddle;
using namespace heddle::lowering;
using namespace heddle::transformer;

using Values = SmallVector<Value>;

//===----------------------------------------------------------------------===//
// Small arithmetic
//===----------------------------------------------------------------------===//

Value BodyBuilder::constant(double value) {
  return arith::ConstantOp::create(builder, location,
                                   builder.getF32FloatAttr(value));
}

Value BodyBuilder::integer(int64_t value) {
  return arith::ConstantOp::create(builder, location,
                                   builder.getI32IntegerAttr(value));
}

Values BodyBuilder::reduce(ArrayRef<Value> terms, bool maximum) {
  SmallVector<TypedAttr> identity(
      terms.size(),
      builder.getF32FloatAttr(maximum ? -std::numeric_limits<float>::infinity()
                                      : 0.0f));
  auto op =
      rt::ReduceOp::create(builder, location, ArrayRef<TypedAttr>(identity));
  auto join = [&](Block &block, ValueRange left, ValueRange right) {
    OpBuilder inside = OpBuilder::atBlockEnd(&block);
    Values joined;
    for (auto [a, b] : llvm::zip(left, right))
      joined.push_back(
          maximum
              ? arith::MaximumFOp::create(inside, location, a, b).getResult()
              : arith::AddFOp::create(inside, location, a, b).getResult());
    rt::YieldOp::create(inside, location, joined);
  };
  Block &accumulate = op.getAccumulate().front(),
        &combine = op.getCombine().front();
  join(accumulate, accumulate.getArguments(), terms);
  join(combine, combine.getArguments().take_front(terms.size()),
       combine.getArguments().drop_front(terms.size()));
  return Values(op.getStates());
}

//===----------------------------------------------------------------------===//
// Activations
//===----------------------------------------------------------------------===//

static constexpr double kGeluCubic = 0.044715;
static const double kSqrtTwoOverPi = std::sqrt(2 / std::numbers::pi);

static Scalar larger(Scalar a, Scalar b) {
  return make<arith::MaximumFOp>(a, b);
}

static Scalar sigmoid(Scalar x) { return 1.0 / (exp(negate(x)) + 1.0); }

static Scalar activate(Activation kind, Scalar x) {
  switch (kind) {
  case Activation::Silu:
    return x * sigmoid(x);
  case Activation::GeluTanh:
    return 0.5 * x *
           (tanh(kSqrtTwoOverPi * (x + kGeluCubic * x * x * x)) + 1.0);
  case Activation::GeluErf:
    return 0.5 * x * (erf(std::numbers::sqrt2 / 2 * x) + 1.0);
  case Activation::Relu:
    return larger(x, {x.body, x.body->constant(0)});
  }
  llvm_unreachable("all activations are handled");
}

static Scalar derivative(Activation kind, Scalar x) {
  switch (kind) {
  case Activation::Silu: {
    Scalar s = sigmoid(x);
    return s * (x * (1.0 - s) + 1.0);
  }
  case Activation::GeluTanh: {
    Scalar t = tanh(kSqrtTwoOverPi * (x + kGeluCubic * x * x * x));
    Scalar inner = kSqrtTwoOverPi * (3 * kGeluCubic * x * x + 1.0);
    return 0.5 * (t + 1.0) + 0.5 * x * (1.0 - t * t) * inner;
  }
  case Activation::GeluErf: {
    double density = 1 / std::sqrt(2 * std::numbers::pi);
    return 0.5 * (erf(std::numbers::sqrt2 / 2 * x) + 1.0) +
           x * (density * exp(-0.5 * x * x));
  }
  case Activation::Relu: {
    Value positive = arith::CmpFOp::create(x.body->builder, x.body->location,
                                           arith::CmpFPredicate::OGT, x.value,
                                           x.body->constant(0));
    return select(positive, {x.body, x.body->constant(1)},
                  {x.body, x.body->constant(0)});
  }
  }
  llvm_unreachable("all activations are handled");
}

//===----------------------------------------------------------------------===//
// Bodies
//===----------------------------------------------------------------------===//

static Values rmsNorm(RmsNormOp op, ArrayRef<Scalar> v, BodyBuilder &body) {
  Scalar sum{&body, body.reduce({v[0] * v[0]}).front()};
  Scalar mean = (1.0 / static_cast<double>(body.columns)) * sum;
  Scalar rstd = 1.0 / sqrt(mean + op.getEpsilon().convertToDouble());
  return {v[0] * rstd * v[1], rstd};
}

static Values rmsNormGrad(ArrayRef<Scalar> v, BodyBuilder &body) {
  Scalar g = v[0] * v[2], x = v[1], rstd = v[3];
  Scalar sum{&body, body.reduce({g * x}).front()};
  Scalar mean = (1.0 / static_cast<double>(body.columns)) * sum;
  return {rstd * (g - x * (rstd * rstd * mean))};
}

static Values layerNorm(LayerNormOp op, ArrayRef<Scalar> v, BodyBuilder &body) {
  double inverse = 1.0 / static_cast<double>(body.columns);
  Scalar mean = inverse * Scalar{&body, body.reduce({v[0]}).front()};
  Scalar centered = v[0] - mean;
  Scalar variance =
      inverse * Scalar{&body, body.reduce({centered * centered}).front()};
  Scalar rstd = 1.0 / sqrt(variance + op.getEpsilon().convertToDouble());
  return {centered * rstd * v[1] + v[2], mean, rstd};
}

static Values layerNormGrad(ArrayRef<Scalar> v, BodyBuilder &body) {
  double inverse = 1.0 / static_cast<double>(body.columns);
  Scalar g = v[0] * v[2], rstd = v[4], normal = (v[1] - v[3]) * rstd;
  Values sums = body.reduce({g, g * normal});
  Scalar first{&body, sums[0]}, second{&body, sums[1]};
  return {rstd * (g - inverse * first - normal * (inverse * second))};
}

dist::ShardAttr lowering::getColumnShard(Operation *op) {
  FailureOr<dist::FactorRule> rule = dist::getFactorRule(op);
  if (failed(rule) || rule->operands.empty() || rule->operands[0].empty())
    return {};
  return dist::getShard(op, rule->factors[rule->operands[0].back()].name);
}

bool lowering::hasPaddedColumns(Operation *op) {
  dist::ShardAttr shard = getColumnShard(op);
  int64_t columns =
      cast<RankedTensorType>(op->getOperand(0).getType()).getShape().back();
  return shard && shard.getMesh().getGroupSize(shard.getAxes()) * columns >
                      shard.getExtent();
}

/// Whether this column is one of the factor, not padding; null where all are.
static Value insideFactor(Operation *op, BodyBuilder &body) {
  if (!hasPaddedColumns(op))
    return {};
  return compare(body, arith::CmpIPredicate::slt, body.column,
                 body.integer(getColumnShard(op).getExtent()));
}

static Values rowMax(RowMaxOp op, ArrayRef<Scalar> v, BodyBuilder &body) {
  Scalar x = where(insideFactor(op, body), v[0],
                   -std::numeric_limits<double>::infinity());
  return body.reduce({x.value}, /*maximum=*/true);
}

static Values rowSumExp(RowSumExpOp op, ArrayRef<Scalar> v, BodyBuilder &body) {
  Scalar x = where(insideFactor(op, body), exp(v[0] - v[1]), 0);
  return body.reduce({x.value});
}

static Values pick(ArrayRef<Scalar> v, BodyBuilder &body) {
  Value isLabel =
      compare(body, arith::CmpIPredicate::eq, body.column, v[1].value);
  return body.reduce({where(isLabel, v[0], 0).value});
}

static Value isCounted(Scalar label) {
  return compare(*label.body, arith::CmpIPredicate::sge, label.value,
                 label.body->integer(0));
}

/// 1 / count, or 0 where nothing is counted.
static Scalar inverseCount(Scalar count) {
  BodyBuilder &body = *count.body;
  Scalar number{&body, arith::SIToFPOp::create(body.builder, body.location,
                                               body.builder.getF32Type(),
                                               count.value)};
  return where(compare(arith::CmpFPredicate::OGT, number, 0), 1.0 / number, 0);
}

static Values lossGrad(LossGradOp op, ArrayRef<Scalar> v, BodyBuilder &body) {
  Scalar p = exp(v[0] - v[1]) / v[2];
  Value isLabel =
      compare(body, arith::CmpIPredicate::eq, body.column, v[3].value);
  Scalar gradient =
      (p - where(isLabel, {&body, body.constant(1)}, 0)) * inverseCount(v[4]);
  if (op.getScale())
    gradient = gradient * v[5];
  return {
      where(insideFactor(op, body), where(isCounted(v[3]), gradient, 0), 0)};
}

static Value sumAll(BodyBuilder &body, Value term, Type type) {
  return rt::SumOp::create(body.builder, body.location, type, term);
}

static Values meanCounted(ArrayRef<Scalar> v, BodyBuilder &body) {
  Value sum =
      sumAll(body, where(isCounted(v[1]), v[0], 0), body.builder.getF32Type());
  return {Scalar{&body, sum} * inverseCount(v[2])};
}

static Values countLabels(ArrayRef<Scalar> v, BodyBuilder &body) {
  Value one = arith::ExtUIOp::create(
      body.builder, body.location, body.builder.getI32Type(), isCounted(v[0]));
  return {sumAll(body, one, body.builder.getI64Type())};
}

static Values clipFactor(ClipFactorOp op, ArrayRef<Scalar> v,
                         BodyBuilder &body) {
  Scalar sum{&body,
             arith::TruncFOp::create(body.builder, body.location,
                                     body.builder.getF32Type(), v[0].value)};
  if (op.getCopies() > 1)
    sum = 1.0 / static_cast<double>(op.getCopies()) * sum;
  Scalar norm = sqrt(sum), factor{&body, body.constant(1)};
  if (op.getScale())
    norm = norm / v[1];
  if (op.getMaxNorm()) {
    Scalar limited = op.getMaxNorm()->convertToDouble() / (norm + 1e-6);
    factor.value = arith::MinimumFOp::create(body.builder, body.location,
                                             limited.value, factor.value);
  }
  if (op.getScale())
    factor = factor / v[1];
  // Infinity and what is no number differ from themselves less themselves.
  Scalar rest = norm - norm;
  return {norm, where(compare(arith::CmpFPredicate::OEQ, rest, 0), factor, 0)};
}

/// What an optimizer leaves: \p next, or \p before where the factor is 0.
static Scalar updated(Scalar factor, Scalar next, Scalar before) {
  return select(compare(arith::CmpFPredicate::UNE, factor, 0), next, before);
}

static Values adamW(AdamWOp op, ArrayRef<Scalar> v, BodyBuilder &body) {
  double beta1 = op.getBeta1().convertToDouble(),
         beta2 = op.getBeta2().convertToDouble();
  Scalar w = v[0], rate = v[4], g = v[1] * v[7];
  Scalar m = beta1 * v[2] + (1 - beta1) * g;
  Scalar s = beta2 * v[3] + (1 - beta2) * g * g;
  Scalar step = v[5] * m / (sqrt(v[6] * s) + op.getEpsilon().convertToDouble());
  Scalar decayed = w * (1.0 - op.getWeightDecay().convertToDouble() * rate);
  return {updated(v[7], decayed - rate * step, w), updated(v[7], m, v[2]),
          updated(v[7], s, v[3])};
}

static Values sgd(SgdOp op, ArrayRef<Scalar> v, BodyBuilder &body) {
  Scalar decayed = v[0] * (1.0 - op.getWeightDecay().convertToDouble() * v[2]);
  return {updated(v[3], decayed - v[2] * v[3] * v[1], v[0])};
}

/// What infinity and what is no number are not: equal to 0 less themselves.
static Value isFinite(Scalar x) {
  return compare(arith::CmpFPredicate::OEQ, x - x, 0);
}

static Values delayScales(DelayScalesOp op, ArrayRef<Scalar> v,
                          BodyBuilder &body) {
  Scalar before = v[2], now = select(isFinite(v[1]), v[1], before);
  Value place = arith::RemSIOp::create(body.builder, body.location, v[3].value,
                                       body.integer(body.columns));
  Value isPlace = compare(body, arith::CmpIPredicate::eq, body.column, place);
  Scalar history = select(isPlace, updated(v[4], now, v[0]), v[0]);
  Scalar counts = op.getMostRecent() ? where(isPlace, history, 0) : history;
  Scalar most{&body, body.reduce({counts.value}, /*maximum=*/true).front()};
  Value isKnown = compare(arith::CmpFPredicate::OGT, most, 0);
  return {history, updated(v[4], select(isKnown, most, before), before)};
}

static Value addAny(BodyBuilder &body, Value a, Value b) {
  if (isa<FloatType>(a.getType()))
    return arith::AddFOp::create(body.builder, body.location, a, b);
  return arith::AddIOp::create(body.builder, body.location, a, b);
}

Values lowering::buildBody(Operation *op, ArrayRef<Value> operands,
                           BodyBuilder &body) {
  SmallVector<Scalar> v;
  for (Value operand : operands)
    v.push_back({&body, operand});
  return llvm::TypeSwitch<Operation *, Values>(op)
      .Case<AddOp>([&](auto) { return Values{addAny(body, v[0], v[1])}; })
      .Case<MaximumOp>([&](auto) { return Values{larger(v[0], v[1])}; })
      // Operands convert where they are read and written.
      .Case<CastOp>([&](auto) { return Values{v[0]}; })
      .Case<BiasAddOp>([&](auto) { return Values{v[0] + v[1]}; })
      .Case<ActivationOp>(
          [&](auto a) { return Values{activate(a.getKind(), v[0])}; })
      .Case<ActivationGradOp>(
          [&](auto a) { return Values{v[0] * derivative(a.getKind(), v[1])}; })
      .Case<GatedOp>(
          [&](auto a) { return Values{activate(a.getKind(), v[0]) * v[1]}; })
      .Case<GatedGradOp>([&](auto a) {
        return Values{v[0] * v[2] * derivative(a.getKind(), v[1]),
                      v[0] * activate(a.getKind(), v[1])};
      })
      .Case<DropoutOp, DropoutWithMaskOp, DropoutGradOp, ProbabilitiesOp,
            ProbabilitiesGradOp>(
          [&](auto o) { return buildHeadBody(o, operands, body); })
      .Case<RmsNormOp>([&](auto norm) { return rmsNorm(norm, v, body); })
      .Case<RmsNormGradOp>([&](auto) { return rmsNormGrad(v, body); })
      .Case<LayerNormOp>([&](auto norm) { return layerNorm(norm, v, body); })
      .Case<LayerNormGradOp>([&](auto) { return layerNormGrad(v, body); })
      .Case<RowMaxOp>([&](auto max) { return rowMax(max, v, body); })
      .Case<RowSumExpOp>([&](auto sum) { return rowSumExp(sum, v, body); })
      .Case<PickOp>([&](auto) { return pick(v, body); })
      .Case<TokenLossOp>([&](auto) { return Values{v[0] + log(v[1]) - v[2]}; })
      .Case<LossGradOp>([&](auto grad) { return lossGrad(grad, v, body); })
      .Case<MeanCountedOp>([&](auto) { return meanCounted(v, body); })
      .Case<CountLabelsOp>([&](auto) { return countLabels(v, body); })
      .Case<SumSquaresOp>([&](auto) {
        return Values{sumAll(body, v[0] * v[0], body.builder.getF64Type())};
      })
      .Case<ClipFactorOp>([&](auto clip) { return clipFactor(clip, v, body); })
      .Case<AdamWOp>([&](auto update) { return adamW(update, v, body); })
      .Case<SgdOp>([&](auto update) { return sgd(update, v, body); })
      .Case<DelayScalesOp>(
          [&](auto delay) { return delayScales(delay, v, body); })
      .Default([](Operation *) -> Values {
        llvm_unreachable("an op with a form has a body");
      });
}

Values lowering::buildColumnTerms(Operation *op, ArrayRef<Value> operands,
                                  BodyBuilder &body) {
  SmallVector<Scalar> v;
  for (Value operand : operands)
    v.push_back({&body, operand});
  return llvm::TypeSwitch<Operation *, Values>(op)
      .Case<RmsNormGradOp>([&](auto) { return Values{v[0] * v[1] * v[3]}; })
      .Case<LayerNormGradOp>(
          [&](auto) { return Values{v[0] * ((v[1] - v[3]) * v[4]), v[0]}; })
      .Case<SumLeadingOp>([&](auto) { return Values{v[0]}; })
      .Default([](Operation *) -> Values {
        llvm_unreachable("an op without sums of columns");
      });
}

//===----------------------------------------------------------------------===//
// Forms
//===----------------------------------------------------------------------===//

static int64_t elementsOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getNumElements();
}

static int64_t lastOf(Value value) {
  ArrayRef<int64_t> shape = cast<RankedTensorType>(value.getType()).getShape();
  return shape.empty() ? 1 : shape.back();
}

/// Rows are all dimensions of `like` but the last `columns` elements.
static KernelForm formOf(Value like, int64_t columns, ArrayRef<Role> operands,
                         ArrayRef<Role> results) {
  KernelForm form;
  form.columns = columns;
  form.rows = elementsOf(like) / columns;
  form.operands.assign(operands.begin(), operands.end());
  form.results.assign(results.begin(), results.end());
  return form;
}

/// Everything is full but operands that are numbers.
static KernelForm elementwiseForm(Operation *op) {
  KernelForm form;
  form.flexible = true;
  Value largest = op->getOperand(0);
  form.columns = lastOf(largest);
  form.rows = elementsOf(largest) / form.columns;
  bool numbers = elementsOf(largest) == 1;
  for (Value operand : op->getOperands())
    form.operands.push_back(!numbers && elementsOf(operand) == 1 ? Role::Scalar
                                                                 : Role::Full);
  form.results.assign(op->getNumResults(), Role::Full);
  return form;
}

/// The form of dropout and of attention's probabilities.
static std::optional<KernelForm> formOfHeads(Operation *op) {
  using enum Role;
  return llvm::TypeSwitch<Operation *, std::optional<KernelForm>>(op)
      .Case<DropoutOp, DropoutWithMaskOp>([&](auto drop) {
        bool ofHeads = drop.getSite() == DropoutSite::Attention;
        SmallVector<Role> results(drop->getNumResults(), Full);
        return formOf(drop.getInput(), lastOf(drop.getInput()),
                      {Full, Scalar, ofHeads ? PerRows : PerRow}, results);
      })
      .Case<ProbabilitiesOp>([&](auto p) {
        return formOf(p.getScores(), lastOf(p.getScores()),
                      {Full, PerRows, FullPerRows, PerRows, FullPerRows},
                      {Full});
      })
      .Case<ProbabilitiesGradOp>([&](auto p) {
        return formOf(p.getProbabilities(), lastOf(p.getProbabilities()),
                      {Full, Full}, {Full});
      })
      .Default([](Operation *) { return std::nullopt; });
}

std::optional<KernelForm> lowering::getKernelForm(Operation *op) {
  using enum Role;
  return llvm::TypeSwitch<Operation *, std::optional<KernelForm>>(op)
      .Case<AddOp, MaximumOp, CastOp, ActivationOp, ActivationGradOp, GatedOp,
            GatedGradOp, DropoutGradOp, TokenLossOp, ClipFactorOp, AdamWOp,
            SgdOp>([&](auto) { return elementwiseForm(op); })
      .Case<DelayScalesOp>([&](auto delay) {
        return formOf(delay.getHistory(), lastOf(delay.getHistory()),
                      {Full, PerRow, PerRow, Scalar, Scalar}, {Full, PerRow});
      })
      .Case<BiasAddOp>([&](auto add) {
        return formOf(add.getInput(), elementsOf(add.getBias()),
                      {Full, PerColumn}, {Full});
      })
      .Case<RmsNormOp>([&](auto norm) {
        return formOf(norm.getInput(), lastOf(norm.getInput()),
                      {Full, PerColumn}, {Full, PerRow});
      })
      .Case<RmsNormGradOp>([&](auto norm) {
        return formOf(norm.getInput(), lastOf(norm.getInput()),
                      {Full, Full, PerColumn, PerRow}, {Full});
      })
      .Case<LayerNormOp>([&](auto norm) {
        return formOf(norm.getInput(), lastOf(norm.getInput()),
                      {Full, PerColumn, PerColumn}, {Full, PerRow, PerRow});
      })
      .Case<LayerNormGradOp>([&](auto norm) {
        return formOf(norm.getInput(), lastOf(norm.getInput()),
                      {Full, Full, PerColumn, PerRow, PerRow}, {Full});
      })
      .Case<RowMaxOp>([&](auto max) {
        return formOf(max.getInput(), lastOf(max.getInput()), {Full}, {PerRow});
      })
      .Case<RowSumExpOp, PickOp>([&](auto sum) {
        return formOf(sum.getInput(), lastOf(sum.getInput()), {Full, PerRow},
                      {PerRow});
      })
      .Case<LossGradOp>([&](auto grad) {
        SmallVector<Role> roles = {Full, PerRow, PerRow, PerRow, Scalar};
        roles.append(grad.getScale() ? 1 : 0, Scalar);
        return formOf(grad.getLogits(), lastOf(grad.getLogits()), roles,
                      {Full});
      })
      .Case<MeanCountedOp, CountLabelsOp, SumSquaresOp>(
          [&](auto) -> std::optional<KernelForm> {
            KernelForm form = formOf(
                op->getOperand(0), elementsOf(op->getOperand(0)), {}, {Scalar});
            form.reducesAll = true;
            // The count is a number, also beside a single label.
            for (Value operand : op->getOperands()) {
              auto type = cast<RankedTensorType>(operand.getType());
              bool isNumber =
                  operand != op->getOperand(0) && type.getRank() == 0;
              form.operands.push_back(isNumber ? Scalar : Full);
            }
            return form;
          })
      .Default([](Operation *other) { return formOfHeads(other); });
}
