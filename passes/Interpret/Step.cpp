//===- Step.cpp - norm of the gradient, clipping, optimizers --------------===//

#include "passes/Interpret/Rank.h"

#include <cmath>

using namespace mlir;
using namespace heddle::interpret;
using namespace heddle::transformer;

static LogicalResult evaluate(SumSquaresOp op, Frame &frame) {
  double sum = 0;
  for (double value : frame.get(op.getInput()).floats)
    sum += value * value;
  frame.set(op.getResult(), Tensor::scalar(sum));
  return success();
}

static LogicalResult evaluate(ClipFactorOp op, Frame &frame) {
  double norm = std::sqrt(frame.get(op.getSum()).floats[0] /
                          static_cast<double>(op.getCopies()));
  const double scale = op.getScale() ? frame.get(op.getScale()).floats[0] : 1;
  norm /= scale;
  double factor = 1;
  if (op.getMaxNorm())
    factor = std::min(1.0, op.getMaxNorm()->convertToDouble() / (norm + 1e-6));
  factor = std::isfinite(norm) ? factor / scale : 0;
  frame.set(op.getNorm(), Tensor::scalar(norm));
  frame.set(op.getFactor(), Tensor::scalar(factor));
  return success();
}

/// A scalar operand, in the arithmetic of the reading.
template <class Real>
static Real numberOf(Frame &frame, Value value) {
  return static_cast<Real>(frame.get(value).floats[0]);
}

template <class Real>
static void updateAdamW(AdamWOp op, Frame &frame, Tensor &parameter, Tensor &m,
                        Tensor &v) {
  const Tensor &gradient = frame.get(op.getGradient());
  Real beta1 = op.getBeta1().convertToDouble(),
       beta2 = op.getBeta2().convertToDouble(),
       epsilon = op.getEpsilon().convertToDouble(),
       decay = op.getWeightDecay().convertToDouble(),
       rate = numberOf<Real>(frame, op.getRate()),
       correction1 = numberOf<Real>(frame, op.getCorrection1()),
       correction2 = numberOf<Real>(frame, op.getCorrection2()),
       factor = numberOf<Real>(frame, op.getFactor());
  for (size_t i = 0; i < gradient.floats.size(); ++i) {
    Real g = static_cast<Real>(gradient.floats[i]) * factor;
    Real m1 = beta1 * static_cast<Real>(m.floats[i]) + (1 - beta1) * g;
    Real v1 = beta2 * static_cast<Real>(v.floats[i]) + (1 - beta2) * g * g;
    m.floats[i] = m1;
    v.floats[i] = v1;
    parameter.floats[i] =
        static_cast<Real>(parameter.floats[i]) * (1 - rate * decay) -
        rate * correction1 * m1 / (std::sqrt(correction2 * v1) + epsilon);
  }
}

/// Whether the gradients are of use: else nothing is updated.
static bool updates(Frame &frame, Value factor) {
  return frame.get(factor).floats[0] != 0;
}

static LogicalResult evaluate(AdamWOp op, Frame &frame) {
  Tensor parameter = frame.get(op.getParameter()), m = frame.get(op.getM()),
         v = frame.get(op.getV());
  if (updates(frame, op.getFactor()))
    inArithmeticOf(frame.getReading(op.getNewParameter()), [&](auto zero) {
      updateAdamW<decltype(zero)>(op, frame, parameter, m, v);
    });
  frame.set(op.getNewParameter(), std::move(parameter));
  frame.set(op.getNewM(), std::move(m));
  frame.set(op.getNewV(), std::move(v));
  return success();
}

static LogicalResult evaluate(SgdOp op, Frame &frame) {
  Tensor parameter = frame.get(op.getParameter());
  const Tensor &gradient = frame.get(op.getGradient());
  if (updates(frame, op.getFactor()))
    inArithmeticOf(frame.getReading(op.getNewParameter()), [&](auto zero) {
      using Real = decltype(zero);
      Real rate = numberOf<Real>(frame, op.getRate()),
           factor = numberOf<Real>(frame, op.getFactor()),
           decay = op.getWeightDecay().convertToDouble();
      for (size_t i = 0; i < gradient.floats.size(); ++i)
        parameter.floats[i] =
            static_cast<Real>(parameter.floats[i]) * (1 - rate * decay) -
            rate * factor * static_cast<Real>(gradient.floats[i]);
    });
  frame.set(op.getNewParameter(), std::move(parameter));
  return success();
}

static LogicalResult evaluate(DelayScalesOp op, Frame &frame) {
  Tensor history = frame.get(op.getHistory()), amax = frame.get(op.getBefore());
  const int64_t steps = history.shape[1],
                place = frame.get(op.getStep()).integers[0] % steps;
  const bool counts = updates(frame, op.getFactor());
  for (auto [i, before] : llvm::enumerate(amax.floats)) {
    const double now = frame.get(op.getNow()).floats[i];
    auto row = MutableArrayRef(history.floats).slice(i * steps, steps);
    if (!counts)
      continue;
    row[place] = std::isfinite(now) ? now : before;
    const double most =
        op.getMostRecent() ? row[place] : *llvm::max_element(row);
    before = most > 0 ? most : before;
  }
  frame.set(op.getNewHistory(), std::move(history));
  frame.set(op.getAmax(), std::move(amax));
  return success();
}

void heddle::interpret::addStep(Evaluators &evaluators) {
  evaluators.add<SumSquaresOp>(evaluate);
  evaluators.add<ClipFactorOp>(evaluate);
  evaluators.add<AdamWOp>(evaluate);
  evaluators.add<SgdOp>(evaluate);
  evaluators.add<DelayScalesOp>(evaluate);
}
