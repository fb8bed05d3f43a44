//===- Norms.cpp - norms over the last dimension --------------------------===//

#include "passes/Interpret/Rank.h"

#include <cmath>

using namespace mlir;
using namespace heddle::interpret;
using namespace heddle::transformer;

/// Mean over i < size of function(i).
template <class Real, class Function>
static Real meanOf(int64_t size, Function function) {
  Real sum = 0;
  for (int64_t i = 0; i < size; ++i)
    sum += function(i);
  return sum / static_cast<Real>(size);
}

static Tensor zerosOf(Value value) {
  return Tensor::zeros(cast<RankedTensorType>(value.getType()));
}

static LogicalResult evaluate(RmsNormOp op, Frame &frame) {
  const Tensor &x = frame.get(op.getInput()), &w = frame.get(op.getWeight());
  Tensor y = zerosOf(op.getResult()), rstd = zerosOf(op.getRstd());
  int64_t size = w.floats.size();
  inArithmeticOf(frame.getReading(op.getResult()), [&](auto zero) {
    using Real = decltype(zero);
    Real epsilon = static_cast<Real>(op.getEpsilon().convertToDouble());
    for (size_t row = 0; row < rstd.floats.size(); ++row) {
      auto at = [&](int64_t i) -> Real { return x.floats[row * size + i]; };
      Real square =
          meanOf<Real>(size, [&](int64_t i) { return at(i) * at(i); });
      Real scale = Real(1) / std::sqrt(square + epsilon);
      rstd.floats[row] = scale;
      for (int64_t i = 0; i < size; ++i)
        y.floats[row * size + i] =
            at(i) * scale * static_cast<Real>(w.floats[i]);
    }
  });
  frame.set(op.getResult(), std::move(y));
  frame.set(op.getRstd(), std::move(rstd));
  return success();
}

static LogicalResult evaluate(RmsNormGradOp op, Frame &frame) {
  const Tensor &dy = frame.get(op.getResultGradient()),
               &x = frame.get(op.getInput()), &w = frame.get(op.getWeight()),
               &rstd = frame.get(op.getRstd());
  Tensor dx = zerosOf(op.getInputGradient()),
         dw = zerosOf(op.getWeightGradient());
  int64_t size = w.floats.size();
  inArithmeticOf(frame.getReading(op.getInputGradient()), [&](auto zero) {
    using Real = decltype(zero);
    for (size_t row = 0; row < rstd.floats.size(); ++row) {
      size_t at = row * size;
      Real scale = rstd.floats[row];
      auto normed = [&](int64_t i) -> Real {
        return static_cast<Real>(x.floats[at + i]) * scale;
      };
      auto weighted = [&](int64_t i) -> Real {
        return static_cast<Real>(dy.floats[at + i]) *
               static_cast<Real>(w.floats[i]);
      };
      Real along = meanOf<Real>(
          size, [&](int64_t i) { return weighted(i) * normed(i); });
      for (int64_t i = 0; i < size; ++i) {
        dx.floats[at + i] = scale * (weighted(i) - normed(i) * along);
        dw.floats[i] = static_cast<Real>(dw.floats[i]) +
                       static_cast<Real>(dy.floats[at + i]) * normed(i);
      }
    }
  });
  frame.set(op.getInputGradient(), std::move(dx));
  frame.set(op.getWeightGradient(), std::move(dw));
  return success();
}

static LogicalResult evaluate(LayerNormOp op, Frame &frame) {
  const Tensor &x = frame.get(op.getInput()), &w = frame.get(op.getWeight()),
               &b = frame.get(op.getBias());
  Tensor y = zerosOf(op.getResult()), means = zerosOf(op.getMean()),
         rstd = zerosOf(op.getRstd());
  int64_t size = w.floats.size();
  inArithmeticOf(frame.getReading(op.getResult()), [&](auto zero) {
    using Real = decltype(zero);
    Real epsilon = static_cast<Real>(op.getEpsilon().convertToDouble());
    for (size_t row = 0; row < rstd.floats.size(); ++row) {
      auto at = [&](int64_t i) -> Real { return x.floats[row * size + i]; };
      Real mean = meanOf<Real>(size, at);
      Real variance = meanOf<Real>(
          size, [&](int64_t i) { return (at(i) - mean) * (at(i) - mean); });
      Real scale = Real(1) / std::sqrt(variance + epsilon);
      means.floats[row] = mean;
      rstd.floats[row] = scale;
      for (int64_t i = 0; i < size; ++i)
        y.floats[row * size + i] =
            (at(i) - mean) * scale * static_cast<Real>(w.floats[i]) +
            static_cast<Real>(b.floats[i]);
    }
  });
  frame.set(op.getResult(), std::move(y));
  frame.set(op.getMean(), std::move(means));
  frame.set(op.getRstd(), std::move(rstd));
  return success();
}

static LogicalResult evaluate(LayerNormGradOp op, Frame &frame) {
  const Tensor &dy = frame.get(op.getResultGradient()),
               &x = frame.get(op.getInput()), &w = frame.get(op.getWeight()),
               &means = frame.get(op.getMean()),
               &rstd = frame.get(op.getRstd());
  Tensor dx = zerosOf(op.getInputGradient()),
         dw = zerosOf(op.getWeightGradient()),
         db = zerosOf(op.getBiasGradient());
  int64_t size = w.floats.size();
  inArithmeticOf(frame.getReading(op.getInputGradient()), [&](auto zero) {
    using Real = decltype(zero);
    for (size_t row = 0; row < rstd.floats.size(); ++row) {
      size_t at = row * size;
      Real scale = rstd.floats[row], mean = means.floats[row];
      auto normed = [&](int64_t i) -> Real {
        return (static_cast<Real>(x.floats[at + i]) - mean) * scale;
      };
      auto weighted = [&](int64_t i) -> Real {
        return static_cast<Real>(dy.floats[at + i]) *
               static_cast<Real>(w.floats[i]);
      };
      Real constant = meanOf<Real>(size, weighted);
      Real along = meanOf<Real>(
          size, [&](int64_t i) { return weighted(i) * normed(i); });
      for (int64_t i = 0; i < size; ++i) {
        Real gradient = dy.floats[at + i];
        dx.floats[at + i] =
            scale * (weighted(i) - constant - normed(i) * along);
        dw.floats[i] = static_cast<Real>(dw.floats[i]) + gradient * normed(i);
        db.floats[i] = static_cast<Real>(db.floats[i]) + gradient;
      }
    }
  });
  frame.set(op.getInputGradient(), std::move(dx));
  frame.set(op.getWeightGradient(), std::move(dw));
  frame.set(op.getBiasGradient(), std::move(db));
  return success();
}

void heddle::interpret::addNorms(Evaluators &evaluators) {
  evaluators.add<RmsNormOp>(evaluate);
  evaluators.add<RmsNormGradOp>(evaluate);
  evaluators.add<LayerNormOp>(evaluate);
  evaluators.add<LayerNormGradOp>(evaluate);
}
