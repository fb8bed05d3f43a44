#include "FitTimes.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

using namespace heddle;
using namespace heddle::detail;

namespace {

using Numbers = std::vector<double>;
/// Logarithms of predicted over measured times.
using Residuals = std::function<Numbers(const Numbers &)>;

double squares(const Numbers &values) {
  return std::inner_product(values.begin(), values.end(), values.begin(), 0.0);
}

/// Solves A x = b in place by elimination; A is symmetric and positive.
Numbers solve(std::vector<Numbers> a, Numbers b) {
  const std::size_t n = b.size();
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t row = i + 1; row < n; ++row) {
      const double factor = a[row][i] / a[i][i];
      for (std::size_t k = i; k < n; ++k)
        a[row][k] -= factor * a[i][k];
      b[row] -= factor * b[i];
    }
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t k = i + 1; k < n; ++k)
      b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
  return b;
}

/// Logarithms of positive numbers that make the squares of \p residuals least:
/// Levenberg and Marquardt's damped Gauss-Newton steps.
Numbers minimize(Numbers start, const Residuals &residuals) {
  for (double &each : start)
    each = std::log(each);
  auto valuesAt = [&](Numbers at) {
    for (double &each : at)
      each = std::exp(each);
    return residuals(at);
  };
  Numbers at = start, values = valuesAt(at);
  const std::size_t n = at.size();
  double damping = 1e-2;
  for (int step = 0; step < 500 && damping < 1e12; ++step) {
    std::vector<Numbers> slopes; // of each number
    for (std::size_t i = 0; i < n; ++i) {
      Numbers moved = at;
      moved[i] += 1e-5;
      slopes.push_back(valuesAt(moved));
      for (std::size_t k = 0; k < values.size(); ++k)
        slopes[i][k] = (slopes[i][k] - values[k]) / 1e-5;
    }
    std::vector<Numbers> matrix(n, Numbers(n));
    Numbers side(n);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j)
        matrix[i][j] = std::inner_product(slopes[i].begin(), slopes[i].end(),
                                          slopes[j].begin(), 0.0);
      matrix[i][i] += damping * (matrix[i][i] + 1e-9);
      side[i] = -std::inner_product(slopes[i].begin(), slopes[i].end(),
                                    values.begin(), 0.0);
    }
    Numbers next = solve(matrix, side);
    for (std::size_t i = 0; i < n; ++i) // at most a factor of e
      next[i] = at[i] + std::clamp(next[i], -1.0, 1.0);
    const Numbers tried = valuesAt(next);
    const bool isBetter = squares(tried) < squares(values);
    damping *= isBetter ? 0.3 : 4;
    if (isBetter)
      at = next, values = tried;
  }
  for (double &each : at)
    each = std::exp(each);
  return at;
}

double real(std::int64_t value) { return static_cast<double>(value); }

} // namespace

ProductSurface
heddle::detail::fitProducts(const std::vector<MeasuredProduct> &times,
                            std::string_view format, double processors,
                            double secondsPerByte) {
  auto surfaceOf = [](const Numbers &x) {
    return ProductSurface{x[0], x[1], x[2], x[3], 0};
  };
  const Numbers start = {1e-11, 50, 0.01, 1e-6};
  return surfaceOf(minimize(start, [&](const Numbers &x) {
    Numbers apart;
    for (const MeasuredProduct &each : times)
      if (each.format == format) {
        Product product{real(each.m), real(each.n), real(each.k)};
        product.format = *productFormat(format);
        product.resultBytes = product.format == ProductFormat::Fp32 ? 4 : 2;
        apart.push_back(std::log(
            productSeconds(surfaceOf(x), product, processors, secondsPerByte) /
            each.seconds));
      }
    return apart;
  }));
}

AttentionSurface
heddle::detail::fitAttention(const std::vector<MeasuredAttention> &times,
                             double processors) {
  auto surfaceOf = [](const Numbers &x) {
    // Masked or not is not told apart: all are causal.
    return AttentionSurface{x[0], x[1], x[2], 0, x[3], x[4], 0};
  };
  const Numbers start = {1e-11, 10, 10, 1e-6, 2.5};
  return surfaceOf(minimize(start, [&](const Numbers &x) {
    Numbers apart;
    const AttentionSurface surface = surfaceOf(x);
    for (const MeasuredAttention &each : times) {
      const double s = real(each.queries);
      const Attention attention{real(each.heads), s, s * (s + 1) / 2,
                                real(each.headSize)};
      const double work = attentionWork(surface, attention, processors);
      apart.push_back(std::log((surface.launch + work) / each.forwardSeconds));
      apart.push_back(std::log((surface.launch + surface.backward * work) /
                               each.backwardSeconds));
    }
    return apart;
  }));
}

std::pair<double, double>
heddle::detail::fitMemory(const std::vector<MeasuredMemory> &times) {
  const Numbers found = minimize({1e-6, 1e-10}, [&](const Numbers &x) {
    Numbers apart;
    for (const MeasuredMemory &each : times)
      apart.push_back(
          std::log((x[0] + x[1] * real(each.bytes)) / each.seconds));
    return apart;
  });
  return {found[0], found[1]};
}
