//===- Functors.h - Kernels as the emitter writes them, for tests ---------===//

#ifndef HEDDLE_TEST_RUNTIME_FUNCTORS_H
#define HEDDLE_TEST_RUNTIME_FUNCTORS_H

#include "heddle/Runtime/Operands.h"

namespace heddle::test {

/// y = x * rstd * w, and rstd. Operands: x, w, y, rstd.
struct RmsNorm {
  float eps, inverseWidth;
  static constexpr int kPasses = 1;
  static constexpr int kReductions[] = {1};
  template <int P>
  HEDDLE_FN void init(float *s) const {
    s[0] = 0;
  }
  template <int P>
  HEDDLE_FN void accumulate(float *s, int32_t, float x, float, float,
                            float) const {
    s[0] = ::fmaf(x, x, s[0]);
  }
  template <int P>
  HEDDLE_FN void combine(float *s, const float *t) const {
    s[0] += t[0];
  }
  HEDDLE_FN void apply(const float *s, int32_t, float x, float w, float &y,
                       float &rstd) const {
    rstd = math::rsqrt(::fmaf(s[0], inverseWidth, eps));
    y = x * rstd * w;
  }
};

/// Column sums of dy * x * rstd and of dy, added to two gradients.
/// Operands: dy, x, rstd, weight gradient, bias gradient.
struct NormColumns {
  static constexpr int kPasses = 1;
  static constexpr int kReductions[] = {2};
  template <int P>
  HEDDLE_FN void init(float *s) const {
    s[0] = s[1] = 0;
  }
  template <int P>
  HEDDLE_FN void accumulate(float *s, int32_t, float dy, float x, float rstd,
                            float, float) const {
    s[0] = ::fmaf(dy, x * rstd, s[0]);
    s[1] += dy;
  }
  template <int P>
  HEDDLE_FN void combine(float *s, const float *t) const {
    s[0] += t[0];
    s[1] += t[1];
  }
  HEDDLE_FN void apply(const float *s, int32_t, float, float, float,
                       float &weight, float &bias) const {
    weight += s[0];
    bias += s[1];
  }
};

/// h = silu(g) * u.
struct SwiGlu {
  HEDDLE_FN void operator()(float g, float u, float &h) const {
    h = g / (1.0f + math::exp(-g)) * u;
  }
};

/// Row of logits: the maximum, then the sum of exp against it and the label's
/// logit. Operands: logits, label, m, z, picked.
struct CrossEntropy {
  int32_t columns;
  static constexpr int kPasses = 2;
  static constexpr int kReductions[] = {1, 2};
  template <int P>
  HEDDLE_FN void init(float *s) const {
    if constexpr (P == 0)
      s[0] = -math::kInfinity;
    else
      s[1] = s[2] = 0;
  }
  template <int P>
  HEDDLE_FN void accumulate(float *s, int32_t column, float x, int32_t label,
                            float, float, float) const {
    if constexpr (P == 0) {
      s[0] = x > s[0] ? x : s[0];
    } else {
      s[1] += math::exp(x - s[0]);
      s[2] += column == label ? x : 0.0f;
    }
  }
  template <int P>
  HEDDLE_FN void combine(float *s, const float *t) const {
    if constexpr (P == 0) {
      s[0] = t[0] > s[0] ? t[0] : s[0];
    } else {
      s[1] += t[1];
      s[2] += t[2];
    }
  }
  HEDDLE_FN void apply(const float *s, int32_t, float, int32_t, float &m,
                       float &z, float &picked) const {
    m = s[0];
    z = s[1];
    picked = s[2];
  }
};

/// Operands: g, p, m, v, learning rate, both corrections 1 / (1 - beta^step).
struct AdamW {
  float beta1, beta2, eps, decay;
  HEDDLE_FN void operator()(float g, float &p, float &m, float &v, float rate,
                            float correction1, float correction2) const {
    m = ::fmaf(beta1, m, (1.0f - beta1) * g);
    v = ::fmaf(beta2, v, (1.0f - beta2) * (g * g));
    const float step = correction1 * m / (math::sqrt(correction2 * v) + eps);
    p = ::fmaf(-rate, ::fmaf(decay, p, step), p);
  }
};

/// Operands: x, the total that the sum of squares is added to.
struct SumSquares {
  using Value = double;
  HEDDLE_FN double map(float x, double) const { return double(x) * double(x); }
  HEDDLE_FN void apply(double sum, float, double &total) const { total += sum; }
};

/// Operands: labels, the count.
struct CountLabels {
  using Value = int64_t;
  HEDDLE_FN int64_t map(int32_t label, int64_t) const { return label >= 0; }
  HEDDLE_FN void apply(int64_t sum, int32_t, int64_t &count) const {
    count = sum;
  }
};

/// Nothing is reduced: a copy of a row, e.g. of a gathered one.
struct CopyRow {
  static constexpr int kPasses = 0;
  HEDDLE_FN void apply(const float *, int32_t, float x, float &y) const {
    y = x;
  }
};

/// Counts the lanes that take part: what nobody accumulated is not neutral.
struct CountLanes {
  static constexpr int kPasses = 1;
  static constexpr int kReductions[] = {1};
  template <int>
  HEDDLE_FN void init(float *s) const {
    s[0] = 1;
  }
  template <int>
  HEDDLE_FN void accumulate(float *, int32_t, float, float) const {}
  template <int>
  HEDDLE_FN void combine(float *s, const float *t) const {
    s[0] += t[0];
  }
  HEDDLE_FN void apply(const float *s, int32_t, float, float &count) const {
    count = s[0];
  }
};

/// Nothing is reduced, and what the row has once is replaced.
struct ScaleRow {
  static constexpr int kPasses = 0;
  HEDDLE_FN void apply(const float *, int32_t, float x, float &y,
                       float &scale) const {
    y = x * scale;
    scale = scale + 1;
  }
};

} // namespace heddle::test

#endif
