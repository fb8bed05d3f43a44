//===- Attention.cpp - rotary positions and attention ---------------------===//

#include "passes/Interpret/Places.h"

#include <cmath>
#include <limits>
#include <numbers>

using namespace mlir;
using namespace heddle::interpret;
using namespace heddle::transformer;

//===----------------------------------------------------------------------===//
// Rope
//===----------------------------------------------------------------------===//

// Computed here once more than in the dialect, so that the reference does not
// lean on what lowering reads.
static double frequencyOf(RopeOp op, int64_t pair, int64_t headSize) {
  double frequency = 1 / std::pow(op.getTheta().convertToDouble(),
                                  2.0 * static_cast<double>(pair) /
                                      static_cast<double>(headSize));
  if (!op.getScaling())
    return frequency;
  Llama3ScalingAttr scaling = *op.getScaling();
  double turns = static_cast<double>(scaling.getOriginalContext()) * frequency /
                 (2 * std::numbers::pi);
  double low = scaling.getLowFrequencyFactor().getValueAsDouble();
  double high = scaling.getHighFrequencyFactor().getValueAsDouble();
  double kept = std::clamp((turns - low) / (high - low), 0.0, 1.0);
  double stretched = frequency / scaling.getFactor().getValueAsDouble();
  return kept * frequency + (1 - kept) * stretched;
}

static LogicalResult evaluate(RopeOp op, Frame &frame) {
  const Tensor &x = frame.get(op.getInput()),
               &positions = frame.get(op.getPositions());
  int64_t size = x.shape.back(), half = size / 2;
  int64_t tokens = positions.integers.size();
  int64_t heads = tokens * size == 0 ? 0 : x.getNumElements() / (tokens * size);
  std::vector<double> frequencies;
  for (int64_t pair = 0; pair < half; ++pair)
    frequencies.push_back(frequencyOf(op, pair, size));
  Tensor y = x;
  inArithmeticOf(frame.getReading(op.getResult()), [&](auto zero) {
    using Real = decltype(zero);
    for (int64_t token = 0; token < tokens; ++token)
      for (int64_t pair = 0; pair < half; ++pair) {
        double angle = static_cast<double>(positions.integers[token]) *
                       frequencies[pair] * (op.getInverse() ? -1 : 1);
        Real cosine = std::cos(angle), sine = std::sin(angle);
        for (int64_t head = 0; head < heads; ++head) {
          int64_t at = (token * heads + head) * size + pair;
          Real first = x.floats[at], second = x.floats[at + half];
          y.floats[at] = first * cosine - second * sine;
          y.floats[at + half] = second * cosine + first * sine;
        }
      }
  });
  frame.set(op.getResult(), std::move(y));
  return success();
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

namespace {
/// What attention and its gradient share: sizes, offsets, who sees whom.
struct Heads {
  template <class Op>
  Heads(Op op, Frame &frame)
      : queryPositions(frame.get(op.getQueryPositions()).integers),
        keyPositions(frame.get(op.getKeyPositions()).integers),
        queryDocuments(frame.get(op.getQueryDocuments()).integers),
        keyDocuments(frame.get(op.getKeyDocuments()).integers),
        window(op.getWindow()) {
    const std::vector<int64_t> &q = frame.get(op.getQuery()).shape;
    sequences = q[0], queries = q[1], groups = q[2], perGroup = q[3],
    size = q[4];
    keys = frame.get(op.getKey()).shape[1];
    if (!op.getSeed())
      return;
    double rate = op.getDropout()->convertToDouble();
    mask.emplace(frame, op.getSeed(), rate, DropoutSite::Attention);
    scaleKept = 1 / (1 - rate);
    tokens = &frame.get(op.getTokenNumbers()).integers;
    Part group(heddle::dist::getShard(op, "g"), groups, frame),
        head(heddle::dist::getShard(op, "r"), perGroup, frame);
    firstHead = group.first * head.extent + head.first;
    wholePerGroup = head.extent;
  }

  /// Offset of a query's first element, and of a key's or value's.
  int64_t query(int64_t b, int64_t s, int64_t g, int64_t r) const {
    return row(b, s, g, r) * size;
  }
  int64_t key(int64_t b, int64_t t, int64_t g) const {
    return ((b * keys + t) * groups + g) * size;
  }
  /// Offset of a query's number, such as its lse.
  int64_t row(int64_t b, int64_t s, int64_t g, int64_t r) const {
    return ((b * queries + s) * groups + g) * perGroup + r;
  }

  bool sees(int64_t b, int64_t s, int64_t t) const {
    int64_t query = b * queries + s, key = b * keys + t;
    int64_t distance = queryPositions[query] - keyPositions[key];
    return queryDocuments[query] == keyDocuments[key] && distance >= 0 &&
           (window == 0 || distance < window);
  }

  /// What dropout multiplies the probability of key `t` by.
  double keep(int64_t b, int64_t s, int64_t g, int64_t r, int64_t t) const {
    if (!mask)
      return 1;
    int64_t head = firstHead + g * wholePerGroup + r;
    return mask->keeps(head, (*tokens)[b * queries + s], t) ? scaleKept : 0;
  }

  /// Calls `body(b, s, g, r)` for every query.
  template <class Body>
  void forEachQuery(Body body) const {
    for (int64_t b = 0; b < sequences; ++b)
      for (int64_t s = 0; s < queries; ++s)
        for (int64_t g = 0; g < groups; ++g)
          for (int64_t r = 0; r < perGroup; ++r)
            body(b, s, g, r);
  }

  const std::vector<int64_t> &queryPositions, &keyPositions, &queryDocuments,
      &keyDocuments;
  int64_t window;
  int64_t sequences, queries, groups, perGroup, size, keys;
  // Dropout; heads are numbered in the whole model.
  std::optional<Mask> mask;
  const std::vector<int64_t> *tokens = nullptr;
  double scaleKept = 1;
  int64_t firstHead = 0, wholePerGroup = 0;
};
} // namespace

template <class Real>
static Real dot(const std::vector<double> &a, int64_t atA,
                const std::vector<double> &b, int64_t atB, int64_t size) {
  Real sum = 0;
  for (int64_t i = 0; i < size; ++i)
    sum += static_cast<Real>(a[atA + i]) * static_cast<Real>(b[atB + i]);
  return sum;
}

/// Adds `factor` times a run of `x` to a run of `y`.
template <class Real>
static void addScaled(std::vector<double> &y, int64_t atY, Real factor,
                      const std::vector<double> &x, int64_t atX, int64_t size) {
  for (int64_t i = 0; i < size; ++i)
    y[atY + i] =
        static_cast<Real>(y[atY + i]) + factor * static_cast<Real>(x[atX + i]);
}

template <class Real>
static void attend(AttentionOp op, Frame &frame, Tensor &result, Tensor &lse) {
  Heads heads(op, frame);
  const auto &q = frame.get(op.getQuery()).floats,
             &k = frame.get(op.getKey()).floats,
             &v = frame.get(op.getValue()).floats;
  Real scale = static_cast<Real>(op.getScale().convertToDouble());
  std::vector<Real> scores(heads.keys);
  // The others are padding and stay zero.
  int64_t counted = Part(heddle::dist::getShard(op, "r"), heads.perGroup, frame)
                        .getTrueSize();
  heads.forEachQuery([&](int64_t b, int64_t s, int64_t g, int64_t r) {
    if (r >= counted)
      return;
    Real largest = -std::numeric_limits<Real>::infinity(), sum = 0;
    for (int64_t t = 0; t < heads.keys; ++t) {
      if (!heads.sees(b, s, t))
        continue;
      scores[t] = scale * dot<Real>(q, heads.query(b, s, g, r), k,
                                    heads.key(b, t, g), heads.size);
      largest = std::max(largest, scores[t]);
    }
    for (int64_t t = 0; t < heads.keys; ++t)
      if (heads.sees(b, s, t))
        sum += std::exp(scores[t] - largest);
    // A query that sees no key: its result stays zero.
    lse.floats[heads.row(b, s, g, r)] =
        sum > 0 ? largest + std::log(sum) : largest;
    for (int64_t t = 0; t < heads.keys; ++t)
      if (heads.sees(b, s, t))
        addScaled<Real>(result.floats, heads.query(b, s, g, r),
                        std::exp(scores[t] - largest) / sum *
                            static_cast<Real>(heads.keep(b, s, g, r, t)),
                        v, heads.key(b, t, g), heads.size);
  });
}

static LogicalResult evaluate(AttentionOp op, Frame &frame) {
  Tensor result = Tensor::zeros(op.getResult().getType()),
         lse = Tensor::zeros(op.getLse().getType());
  inArithmeticOf(frame.getReading(op.getResult()), [&](auto zero) {
    attend<decltype(zero)>(op, frame, result, lse);
  });
  frame.set(op.getResult(), std::move(result));
  frame.set(op.getLse(), std::move(lse));
  return success();
}

template <class Real>
static void attendBackward(AttentionGradOp op, Frame &frame, Tensor &dq,
                           Tensor &dk, Tensor &dv) {
  Heads heads(op, frame);
  const auto &dy = frame.get(op.getResultGradient()).floats,
             &q = frame.get(op.getQuery()).floats,
             &k = frame.get(op.getKey()).floats,
             &v = frame.get(op.getValue()).floats,
             &y = frame.get(op.getOutput()).floats,
             &lse = frame.get(op.getLse()).floats;
  Real scale = static_cast<Real>(op.getScale().convertToDouble());
  heads.forEachQuery([&](int64_t b, int64_t s, int64_t g, int64_t r) {
    int64_t query = heads.query(b, s, g, r);
    Real along = dot<Real>(dy, query, y, query, heads.size);
    for (int64_t t = 0; t < heads.keys; ++t) {
      if (!heads.sees(b, s, t))
        continue;
      int64_t key = heads.key(b, t, g);
      Real score = scale * dot<Real>(q, query, k, key, heads.size);
      Real weight =
          std::exp(score - static_cast<Real>(lse[heads.row(b, s, g, r)]));
      Real keep = static_cast<Real>(heads.keep(b, s, g, r, t));
      Real d =
          weight * (keep * dot<Real>(dy, query, v, key, heads.size) - along);
      addScaled<Real>(dv.floats, key, keep * weight, dy, query, heads.size);
      addScaled<Real>(dq.floats, query, d * scale, k, key, heads.size);
      addScaled<Real>(dk.floats, key, d * scale, q, query, heads.size);
    }
  });
}

static LogicalResult evaluate(AttentionGradOp op, Frame &frame) {
  Tensor dq = Tensor::zeros(op.getQueryGradient().getType()),
         dk = Tensor::zeros(op.getKeyGradient().getType()),
         dv = Tensor::zeros(op.getValueGradient().getType());
  inArithmeticOf(frame.getReading(op.getQueryGradient()), [&](auto zero) {
    attendBackward<decltype(zero)>(op, frame, dq, dk, dv);
  });
  frame.set(op.getQueryGradient(), std::move(dq));
  frame.set(op.getKeyGradient(), std::move(dk));
  frame.set(op.getValueGradient(), std::move(dv));
  return success();
}

//===----------------------------------------------------------------------===//
// Probabilities
//===----------------------------------------------------------------------===//

static LogicalResult evaluate(ProbabilitiesOp op, Frame &frame) {
  const Tensor &scores = frame.get(op.getScores());
  const auto &queryPositions = frame.get(op.getQueryPositions()).integers,
             &keyPositions = frame.get(op.getKeyPositions()).integers,
             &queryDocuments = frame.get(op.getQueryDocuments()).integers,
             &keyDocuments = frame.get(op.getKeyDocuments()).integers;
  int64_t queries = scores.shape[1], perGroup = scores.shape[3],
          heads = scores.shape[2] * perGroup, keys = scores.shape[4],
          window = op.getWindow();
  int64_t counted =
      Part(heddle::dist::getShard(op, "r"), perGroup, frame).getTrueSize();
  Tensor result = Tensor::zeros(op.getResult().getType());
  inArithmeticOf(frame.getReading(op.getResult()), [&](auto zero) {
    using Real = decltype(zero);
    Real scale = static_cast<Real>(op.getScale().convertToDouble());
    for (int64_t row = 0; row * keys < scores.getNumElements(); ++row) {
      int64_t query = row / heads, firstKey = query / queries * keys;
      std::vector<int64_t> seen; // those that are padding have none
      for (int64_t t = 0; t < keys && row % perGroup < counted; ++t) {
        int64_t distance = queryPositions[query] - keyPositions[firstKey + t];
        if (queryDocuments[query] == keyDocuments[firstKey + t] &&
            distance >= 0 && (window == 0 || distance < window))
          seen.push_back(row * keys + t);
      }
      Real largest = -std::numeric_limits<Real>::infinity(), sum = 0;
      for (int64_t at : seen)
        largest =
            std::max(largest, scale * static_cast<Real>(scores.floats[at]));
      for (int64_t at : seen)
        sum += std::exp(scale * static_cast<Real>(scores.floats[at]) - largest);
      for (int64_t at : seen)
        result.floats[at] =
            std::exp(scale * static_cast<Real>(scores.floats[at]) - largest) /
            sum;
    }
  });
  frame.set(op.getResult(), std::move(result));
  return success();
}

static LogicalResult evaluate(ProbabilitiesGradOp op, Frame &frame) {
  const Tensor &dp = frame.get(op.getResultGradient()),
               &p = frame.get(op.getProbabilities());
  int64_t keys = p.shape.back();
  Tensor result = Tensor::zeros(op.getResult().getType());
  inArithmeticOf(frame.getReading(op.getResult()), [&](auto zero) {
    using Real = decltype(zero);
    Real scale = static_cast<Real>(op.getScale().convertToDouble());
    for (int64_t row = 0; row < p.getNumElements(); row += keys) {
      Real along = dot<Real>(dp.floats, row, p.floats, row, keys);
      for (int64_t at = row; at < row + keys; ++at)
        result.floats[at] = scale * static_cast<Real>(p.floats[at]) *
                            (static_cast<Real>(dp.floats[at]) - along);
    }
  });
  frame.set(op.getResult(), std::move(result));
  return success();
}

void heddle::interpret::addAttention(Evaluators &evaluators) {
  evaluators.add<RopeOp>(evaluate);
  evaluators.add<AttentionOp>(evaluate);
  evaluators.add<AttentionGradOp>(evaluate);
  evaluators.add<ProbabilitiesOp>(evaluate);
  evaluators.add<ProbabilitiesGradOp>(evaluate);
}
