//===- Elementwise.cpp - ops on single elements, stacks, sums -------------===//

#include "passes/Interpret/Places.h"

#include <cmath>
#include <numbers>

using namespace mlir;
using namespace heddle::interpret;
using namespace heddle::transformer;

//===----------------------------------------------------------------------===//
// Activations
//===----------------------------------------------------------------------===//

template <class Real>
static Real sigmoid(Real x) {
  return Real(1) / (Real(1) + std::exp(-x));
}

/// The argument of gelu_tanh's tanh, and its derivative.
template <class Real>
static Real tanhArgument(Real x) {
  return std::sqrt(2 / std::numbers::pi_v<Real>) *
         (x + Real(0.044715) * x * x * x);
}
template <class Real>
static Real tanhArgumentSlope(Real x) {
  return std::sqrt(2 / std::numbers::pi_v<Real>) *
         (1 + 3 * Real(0.044715) * x * x);
}

template <class Real>
static Real activate(Activation kind, Real x) {
  switch (kind) {
  case Activation::Silu:
    return x * sigmoid(x);
  case Activation::GeluTanh:
    return Real(0.5) * x * (1 + std::tanh(tanhArgument(x)));
  case Activation::GeluErf:
    return Real(0.5) * x * (1 + std::erf(x / std::numbers::sqrt2_v<Real>));
  case Activation::Relu:
    return x > 0 ? x : Real(0);
  }
  llvm_unreachable("every activation is above");
}

template <class Real>
static Real activationSlope(Activation kind, Real x) {
  switch (kind) {
  case Activation::Silu: {
    Real s = sigmoid(x);
    return s * (1 + x * (1 - s));
  }
  case Activation::GeluTanh: {
    Real t = std::tanh(tanhArgument(x));
    return Real(0.5) * (1 + t) +
           Real(0.5) * x * (1 - t * t) * tanhArgumentSlope(x);
  }
  case Activation::GeluErf: {
    Real density =
        std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi_v<Real>);
    return Real(0.5) * (1 + std::erf(x / std::numbers::sqrt2_v<Real>)) +
           x * density;
  }
  case Activation::Relu:
    return x > 0 ? Real(1) : Real(0);
  }
  llvm_unreachable("every activation is above");
}

/// Sets `result` to `function` of the elements of the operands, in the
/// arithmetic of the reading; `function` takes an array of them.
template <size_t count, class Function>
static void mapElements(Frame &frame, Value result,
                        const Value (&operands)[count], Function function) {
  const std::vector<double> *inputs[count];
  for (size_t i = 0; i < count; ++i)
    inputs[i] = &frame.get(operands[i]).floats;
  Tensor output = Tensor::zeros(cast<RankedTensorType>(result.getType()));
  inArithmeticOf(frame.getReading(result), [&](auto zero) {
    using Real = decltype(zero);
    for (size_t element = 0; element < output.floats.size(); ++element) {
      std::array<Real, count> x;
      for (size_t i = 0; i < count; ++i)
        x[i] = static_cast<Real>((*inputs[i])[element]);
      output.floats[element] = function(x);
    }
  });
  frame.set(result, std::move(output));
}

/// The rounding is that of every result.
static LogicalResult evaluate(CastOp op, Frame &frame) {
  frame.set(op.getResult(), frame.get(op.getInput()));
  return success();
}

static LogicalResult evaluate(ActivationOp op, Frame &frame) {
  mapElements(frame, op.getResult(), {op.getInput()},
              [&](auto x) { return activate(op.getKind(), x[0]); });
  return success();
}

static LogicalResult evaluate(ActivationGradOp op, Frame &frame) {
  mapElements(
      frame, op.getResult(), {op.getResultGradient(), op.getInput()},
      [&](auto x) { return x[0] * activationSlope(op.getKind(), x[1]); });
  return success();
}

static LogicalResult evaluate(GatedOp op, Frame &frame) {
  mapElements(frame, op.getResult(), {op.getGate(), op.getUp()},
              [&](auto x) { return activate(op.getKind(), x[0]) * x[1]; });
  return success();
}

static LogicalResult evaluate(GatedGradOp op, Frame &frame) {
  Activation kind = op.getKind();
  mapElements(frame, op.getGateGradient(),
              {op.getResultGradient(), op.getGate(), op.getUp()}, [&](auto x) {
                return x[0] * x[2] * activationSlope(kind, x[1]);
              });
  mapElements(frame, op.getUpGradient(), {op.getResultGradient(), op.getGate()},
              [&](auto x) { return x[0] * activate(kind, x[1]); });
  return success();
}

//===----------------------------------------------------------------------===//
// Dropout
//===----------------------------------------------------------------------===//

/// Which elements dropout keeps. At the site of attention's probabilities, `b s
/// g r t`, all heads of a query's token have its number, each a plane.
template <class Op>
static std::vector<bool> findKept(Op op, Frame &frame) {
  const std::vector<int64_t> &tokens = frame.get(op.getTokenNumbers()).integers;
  Mask mask(frame, op.getSeed(), op.getRate().convertToDouble(), op.getSite());
  const Tensor &x = frame.get(op.getInput());
  bool ofHeads = op.getSite() == DropoutSite::Attention;
  Part columns(heddle::dist::getShard(op, ofHeads ? "t" : "d"), x.shape.back(),
               frame);
  int64_t groups = ofHeads ? x.shape[2] : 1,
          perGroup = ofHeads ? x.shape[3] : 1;
  Part group(ofHeads ? heddle::dist::getShard(op, "g")
                     : heddle::dist::ShardAttr(),
             groups, frame);
  Part head(ofHeads ? heddle::dist::getShard(op, "r")
                    : heddle::dist::ShardAttr(),
            perGroup, frame);
  std::vector<bool> kept(x.floats.size());
  for (size_t i = 0; i < kept.size(); ++i) {
    int64_t row = i / columns.size, column = i % columns.size;
    int64_t g = group.first + row / perGroup % groups,
            r = head.first + row % perGroup;
    kept[i] =
        mask.keeps(ofHeads ? g * head.extent + r : 0,
                   tokens[row / (groups * perGroup)], columns.first + column);
  }
  return kept;
}

/// `x` where `keeps(i)`, divided by 1 - rate.
template <class Keeps>
static Tensor keepScaled(Tensor x, double rate, Reading reading, Keeps keeps) {
  inArithmeticOf(reading, [&](auto zero) {
    using Real = decltype(zero);
    Real scale = static_cast<Real>(1 / (1 - rate));
    for (size_t i = 0; i < x.floats.size(); ++i)
      x.floats[i] = keeps(i) ? static_cast<Real>(x.floats[i]) * scale : zero;
  });
  return x;
}

template <class Op>
static void setDropped(Op op, Frame &frame, const std::vector<bool> &kept) {
  frame.set(op.getResult(),
            keepScaled(frame.get(op.getInput()), op.getRate().convertToDouble(),
                       frame.getReading(op.getResult()),
                       [&](size_t i) { return kept[i]; }));
}

static LogicalResult evaluate(DropoutOp op, Frame &frame) {
  setDropped(op, frame, findKept(op, frame));
  return success();
}

static LogicalResult evaluate(DropoutWithMaskOp op, Frame &frame) {
  std::vector<bool> kept = findKept(op, frame);
  setDropped(op, frame, kept);
  frame.set(op.getMask(),
            Tensor::ofIntegers(frame.get(op.getInput()).shape,
                               std::vector<int64_t>(kept.begin(), kept.end())));
  return success();
}

static LogicalResult evaluate(DropoutGradOp op, Frame &frame) {
  const Tensor &mask = frame.get(op.getMask());
  frame.set(op.getResult(),
            keepScaled(frame.get(op.getResultGradient()),
                       op.getRate().convertToDouble(),
                       frame.getReading(op.getResult()),
                       [&](size_t i) { return mask.integers[i] != 0; }));
  return success();
}

//===----------------------------------------------------------------------===//
// Sums, zeros, stacks
//===----------------------------------------------------------------------===//

static LogicalResult evaluate(AddOp op, Frame &frame) {
  frame.set(op.getResult(),
            addTensors(frame.get(op.getLhs()), frame.get(op.getRhs()),
                       frame.getReading(op.getResult())));
  return success();
}

static LogicalResult evaluate(MaximumOp op, Frame &frame) {
  Tensor result = frame.get(op.getLhs());
  for (auto [value, other] :
       llvm::zip(result.floats, frame.get(op.getRhs()).floats))
    value = std::isnan(value) || value > other ? value : other;
  frame.set(op.getResult(), std::move(result));
  return success();
}

static LogicalResult evaluate(BiasAddOp op, Frame &frame) {
  const Tensor &bias = frame.get(op.getBias());
  Tensor repeated = frame.get(op.getInput());
  for (size_t i = 0; i < repeated.floats.size(); ++i)
    repeated.floats[i] = bias.floats[i % bias.floats.size()];
  frame.set(op.getResult(), addTensors(frame.get(op.getInput()), repeated,
                                       frame.getReading(op.getResult())));
  return success();
}

static LogicalResult evaluate(SumLeadingOp op, Frame &frame) {
  const Tensor &input = frame.get(op.getInput());
  Tensor sum = Tensor::zeros(op.getResult().getType());
  inArithmeticOf(frame.getReading(op.getResult()), [&](auto zero) {
    using Real = decltype(zero);
    for (size_t i = 0; i < input.floats.size(); ++i) {
      double &total = sum.floats[i % sum.floats.size()];
      total = static_cast<Real>(total) + static_cast<Real>(input.floats[i]);
    }
  });
  frame.set(op.getResult(), std::move(sum));
  return success();
}

static LogicalResult evaluate(ZerosLikeOp op, Frame &frame) {
  frame.set(op.getResult(), Tensor::zeros(op.getResult().getType()));
  return success();
}

static LogicalResult evaluate(ZerosOp op, Frame &frame) {
  frame.set(op.getResult(), Tensor::zeros(op.getResult().getType()));
  return success();
}

static LogicalResult evaluate(SplitTensorsOp op, Frame &frame) {
  const Tensor &input = frame.get(op.getInput());
  auto next = input.floats.begin();
  for (Value part : op.getParts()) {
    Tensor piece = Tensor::zeros(cast<RankedTensorType>(part.getType()));
    std::copy_n(next, piece.floats.size(), piece.floats.begin());
    next += piece.floats.size();
    frame.set(part, std::move(piece));
  }
  return success();
}

static LogicalResult evaluate(StackTensorsOp op, Frame &frame) {
  Tensor whole = Tensor::zeros(op.getResult().getType());
  auto next = whole.floats.begin();
  for (Value part : op.getInputs())
    next = llvm::copy(frame.get(part).floats, next);
  frame.set(op.getResult(), std::move(whole));
  return success();
}

void heddle::interpret::addElementwise(Evaluators &evaluators) {
  evaluators.add<CastOp>(evaluate);
  evaluators.add<ActivationOp>(evaluate);
  evaluators.add<ActivationGradOp>(evaluate);
  evaluators.add<GatedOp>(evaluate);
  evaluators.add<GatedGradOp>(evaluate);
  evaluators.add<DropoutOp>(evaluate);
  evaluators.add<DropoutWithMaskOp>(evaluate);
  evaluators.add<DropoutGradOp>(evaluate);
  evaluators.add<AddOp>(evaluate);
  evaluators.add<MaximumOp>(evaluate);
  evaluators.add<BiasAddOp>(evaluate);
  evaluators.add<SumLeadingOp>(evaluate);
  evaluators.add<ZerosLikeOp>(evaluate);
  evaluators.add<ZerosOp>(evaluate);
  evaluators.add<SplitTensorsOp>(evaluate);
  evaluators.add<StackTensorsOp>(evaluate);
}
