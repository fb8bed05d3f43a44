//===- Multiply.h - product of two matrices ---------------------*- C++ -*-===//

#ifndef HEDDLE_PASSES_INTERPRET_MULTIPLY_H
#define HEDDLE_PASSES_INTERPRET_MULTIPLY_H

#include <cstdint>

namespace heddle::interpret {

/// c[i, j] += sum over k of a[i, k] b[k, j], added in the order of k; all three
/// row by row, a of `rows` x `inner`, b of `inner` x `columns`.
void multiply(const double *a, const double *b, double *c, int64_t rows,
              int64_t columns, int64_t inner);
void multiply(const float *a, const float *b, float *c, int64_t rows,
              int64_t columns, int64_t inner);

} // namespace heddle::interpret

#endif // HEDDLE_PASSES_INTERPRET_MULTIPLY_H
