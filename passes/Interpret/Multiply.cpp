//===- Multiply.cpp - product of two matrices -----------------------------===//
//
// The one loop of the interpreter in which a model spends its time; a file of
// its own, so that it alone is built with full optimization.
//
//===----------------------------------------------------------------------===//

#include "passes/Interpret/Multiply.h"

#include <algorithm>

// Columns go in strips, so that a strip of c and of b stays in cache when there
// are many.
template <class Real>
static void multiplyStrips(const Real *a, const Real *b, Real *c, int64_t rows,
                           int64_t columns, int64_t inner) {
  constexpr int64_t kStrip = 1024;
  for (int64_t first = 0; first < columns; first += kStrip) {
    int64_t width = std::min(kStrip, columns - first);
    for (int64_t i = 0; i < rows; ++i) {
      Real *target = c + i * columns + first;
      for (int64_t k = 0; k < inner; ++k) {
        Real factor = a[i * inner + k];
        const Real *source = b + k * columns + first;
        for (int64_t j = 0; j < width; ++j)
          target[j] += factor * source[j];
      }
    }
  }
}

void heddle::interpret::multiply(const double *a, const double *b, double *c,
                                 int64_t rows, int64_t columns, int64_t inner) {
  multiplyStrips(a, b, c, rows, columns, inner);
}

void heddle::interpret::multiply(const float *a, const float *b, float *c,
                                 int64_t rows, int64_t columns, int64_t inner) {
  multiplyStrips(a, b, c, rows, columns, inner);
}
