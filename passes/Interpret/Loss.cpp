//===- Loss.cpp - embedding and cross entropy -----------------------------===//

#include "passes/Interpret/Places.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace heddle::interpret;
using namespace heddle::transformer;

/// Fails where an id of `ids` is no row of the factor; negative ones pass where
/// `negative` says so.
static LogicalResult checkIds(Operation *op, const Tensor &ids,
                              const Part &part, bool negative, Frame &frame) {
  for (auto [i, id] : llvm::enumerate(ids.integers))
    if (id >= part.extent || (id < 0 && !negative))
      return frame.fail(op, "reads number " + llvm::Twine(id) + " (element " +
                                llvm::Twine(i) + ") of " +
                                llvm::Twine(part.extent) + "; expected 0 to " +
                                llvm::Twine(part.extent - 1));
  return success();
}

static LogicalResult evaluate(EmbeddingOp op, Frame &frame) {
  const Tensor &ids = frame.get(op.getIds()), &table = frame.get(op.getTable());
  Part part(heddle::dist::getShard(op, "v"), table.shape[0], frame);
  if (failed(checkIds(op, ids, part, false, frame)))
    return failure();
  Tensor result = Tensor::zeros(op.getResult().getType());
  int64_t width = table.shape[1];
  for (auto [token, id] : llvm::enumerate(ids.integers))
    if (int64_t row = part.find(id); row >= 0)
      std::copy_n(table.floats.begin() + row * width, width,
                  result.floats.begin() + token * width);
  frame.set(op.getResult(), std::move(result));
  return success();
}

static LogicalResult evaluate(EmbeddingGradOp op, Frame &frame) {
  const Tensor &ids = frame.get(op.getIds()),
               &dy = frame.get(op.getResultGradient());
  Tensor result = Tensor::zeros(op.getResult().getType());
  Part part(heddle::dist::getShard(op, "v"), result.shape[0], frame);
  if (failed(checkIds(op, ids, part, false, frame)))
    return failure();
  int64_t width = result.shape[1];
  inArithmeticOf(frame.getReading(op.getResult()), [&](auto zero) {
    using Real = decltype(zero);
    for (auto [token, id] : llvm::enumerate(ids.integers)) {
      int64_t row = part.find(id);
      for (int64_t i = 0; row >= 0 && i < width; ++i) {
        double &sum = result.floats[row * width + i];
        sum = static_cast<Real>(sum) +
              static_cast<Real>(dy.floats[token * width + i]);
      }
    }
  });
  frame.set(op.getResult(), std::move(result));
  return success();
}

static LogicalResult evaluate(RowMaxOp op, Frame &frame) {
  const Tensor &x = frame.get(op.getInput());
  Part part(heddle::dist::getShard(op, "v"), x.shape.back(), frame);
  Tensor result = Tensor::zeros(op.getResult().getType());
  for (auto [row, largest] : llvm::enumerate(result.floats)) {
    largest = -std::numeric_limits<double>::infinity();
    for (int64_t i = 0; i < part.getTrueSize(); ++i)
      largest = std::max(largest, x.floats[row * part.size + i]);
  }
  frame.set(op.getResult(), std::move(result));
  return success();
}

static LogicalResult evaluate(RowSumExpOp op, Frame &frame) {
  const Tensor &x = frame.get(op.getInput()), &max = frame.get(op.getMax());
  Part part(heddle::dist::getShard(op, "v"), x.shape.back(), frame);
  Tensor result = Tensor::zeros(op.getResult().getType());
  inArithmeticOf(frame.getReading(op.getResult()), [&](auto zero) {
    using Real = decltype(zero);
    for (auto [row, total] : llvm::enumerate(result.floats)) {
      Real sum = 0, largest = max.floats[row];
      for (int64_t i = 0; i < part.getTrueSize(); ++i)
        sum += std::exp(static_cast<Real>(x.floats[row * part.size + i]) -
                        largest);
      total = sum;
    }
  });
  frame.set(op.getResult(), std::move(result));
  return success();
}

static LogicalResult evaluate(PickOp op, Frame &frame) {
  const Tensor &x = frame.get(op.getInput()),
               &labels = frame.get(op.getLabels());
  Part part(heddle::dist::getShard(op, "v"), x.shape.back(), frame);
  if (failed(checkIds(op, labels, part, true, frame)))
    return failure();
  Tensor result = Tensor::zeros(op.getResult().getType());
  for (auto [row, label] : llvm::enumerate(labels.integers))
    if (int64_t at = part.find(label); at >= 0)
      result.floats[row] = x.floats[row * part.size + at];
  frame.set(op.getResult(), std::move(result));
  return success();
}

static LogicalResult evaluate(TokenLossOp op, Frame &frame) {
  const Tensor &max = frame.get(op.getMax()), &sum = frame.get(op.getSum()),
               &picked = frame.get(op.getPicked());
  Tensor result = Tensor::zeros(op.getResult().getType());
  inArithmeticOf(frame.getReading(op.getResult()), [&](auto zero) {
    using Real = decltype(zero);
    for (size_t i = 0; i < result.floats.size(); ++i)
      result.floats[i] = static_cast<Real>(max.floats[i]) +
                         std::log(static_cast<Real>(sum.floats[i])) -
                         static_cast<Real>(picked.floats[i]);
  });
  frame.set(op.getResult(), std::move(result));
  return success();
}

static LogicalResult evaluate(CountLabelsOp op, Frame &frame) {
  int64_t count = llvm::count_if(frame.get(op.getLabels()).integers,
                                 [](int64_t label) { return label >= 0; });
  frame.set(op.getResult(), Tensor::ofIntegers({}, {count}));
  return success();
}

static LogicalResult evaluate(MeanCountedOp op, Frame &frame) {
  const Tensor &losses = frame.get(op.getLosses()),
               &labels = frame.get(op.getLabels());
  int64_t count = frame.get(op.getCount()).integers[0];
  double mean = inArithmeticOf(
      frame.getReading(op.getResult()), [&](auto zero) -> double {
        using Real = decltype(zero);
        Real sum = 0;
        for (size_t i = 0; i < losses.floats.size(); ++i)
          if (labels.integers[i] >= 0)
            sum += static_cast<Real>(losses.floats[i]);
        return count == 0 ? Real(0) : sum / static_cast<Real>(count);
      });
  frame.set(op.getResult(), Tensor::scalar(mean));
  return success();
}

static LogicalResult evaluate(LossGradOp op, Frame &frame) {
  const Tensor &x = frame.get(op.getLogits()), &max = frame.get(op.getMax()),
               &sum = frame.get(op.getSum()),
               &labels = frame.get(op.getLabels());
  int64_t count = frame.get(op.getCount()).integers[0];
  Part part(heddle::dist::getShard(op, "v"), x.shape.back(), frame);
  if (failed(checkIds(op, labels, part, true, frame)))
    return failure();
  Tensor result = Tensor::zeros(op.getResult().getType());
  double scale = op.getScale() ? frame.get(op.getScale()).floats[0] : 1;
  inArithmeticOf(frame.getReading(op.getResult()), [&](auto zero) {
    using Real = decltype(zero);
    for (auto [row, label] : llvm::enumerate(labels.integers)) {
      if (label < 0 || count == 0)
        continue;
      Real largest = max.floats[row], total = sum.floats[row];
      int64_t target = part.find(label);
      for (int64_t i = 0; i < part.getTrueSize(); ++i) {
        Real share = std::exp(static_cast<Real>(x.floats[row * part.size + i]) -
                              largest) /
                     total;
        result.floats[row * part.size + i] =
            (share - Real(i == target ? 1 : 0)) / static_cast<Real>(count) *
            static_cast<Real>(scale);
      }
    }
  });
  frame.set(op.getResult(), std::move(result));
  return success();
}

void heddle::interpret::addLoss(Evaluators &evaluators) {
  evaluators.add<EmbeddingOp>(evaluate);
  evaluators.add<EmbeddingGradOp>(evaluate);
  evaluators.add<RowMaxOp>(evaluate);
  evaluators.add<RowSumExpOp>(evaluate);
  evaluators.add<PickOp>(evaluate);
  evaluators.add<TokenLossOp>(evaluate);
  evaluators.add<CountLabelsOp>(evaluate);
  evaluators.add<MeanCountedOp>(evaluate);
  evaluators.add<LossGradOp>(evaluate);
}
