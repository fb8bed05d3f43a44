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

static LogicalResult evaluate(DropoutOp op, Frame &frame) {
  const std::vector<int64_t> &tokens = frame.get(op.getTokenNumbers()).integers;
  double rate = op.getRate().convertToDouble();
  Mask mask(frame, op.getSeed(), rate, op.getSite());
  Tensor y = frame.get(op.getInput());
  Part columns(heddle::dist::getShard(op, "d"), y.shape.back(), frame);
  inArithmeticOf(frame.getReading(op.getResult()), [&](auto zero) {
    using Real = decltype(zero);
    Real scale = static_cast<Real>(1 / (1 - rate));
    for (size_t i = 0; i < y.floats.size(); ++i) {
      int64_t row = i / columns.size, column = i % columns.size;
      bool keeps = mask.keeps(0, tokens[row], columns.first + column);
      y.floats[i] = keeps ? static_cast<Real>(y.floats[i]) * scale : zero;
    }
  });
  frame.set(op.getResult(), std::move(y));
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
  evaluators.add<AddOp>(evaluate);
  evaluators.add<BiasAddOp>(evaluate);
  evaluators.add<SumLeadingOp>(evaluate);
  evaluators.add<ZerosLikeOp>(evaluate);
  evaluators.add<ZerosOp>(evaluate);
  evaluators.add<SplitTensorsOp>(evaluate);
  evaluators.add<StackTensorsOp>(evaluate);
}
