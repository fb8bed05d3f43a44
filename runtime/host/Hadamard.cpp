//===- Hadamard.cpp - rows mixed by a Hadamard matrix ---------------------===//
//
// Sums of each group are made in the order that the header says, so that
// threads may share groups as they like.
//
//===----------------------------------------------------------------------===//

#include "heddle/Runtime/Formats.h"

#include "runtime/common/QuantizeCall.h"
#include "runtime/host/Context.h"

#include <cmath>
#include <vector>

using heddle::runtime::invalid;
using heddle::runtime::Trace;

namespace {

template <class T>
struct Hadamard {
  int64_t rows, columns, length;
  uint32_t signs;
  const T *input;
  T *output;

  void run(int threads) const {
    const int64_t groups = rows / length;
#pragma omp parallel for num_threads(threads)
    for (int64_t group = 0; group < groups; ++group)
      mix(group * length);
    for (int64_t i = groups * length * columns; i < rows * columns; ++i)
      output[i] = input[i];
  }

private:
  void mix(int64_t first) const {
    std::vector<float> sums(size_t(length * columns));
    for (int64_t row = 0; row < length; ++row)
      for (int64_t column = 0; column < columns; ++column) {
        const float value =
            heddle::widen(input[(first + row) * columns + column]);
        sums[size_t(row * columns + column)] =
            signs >> row & 1u ? -value : value;
      }
    for (int64_t apart = 1; apart < length; apart *= 2)
      for (int64_t row = 0; row < length; ++row)
        if ((row & apart) == 0)
          for (int64_t column = 0; column < columns; ++column) {
            float &a = sums[size_t(row * columns + column)],
                  &b = sums[size_t((row + apart) * columns + column)];
            const float sum = a + b, difference = a - b;
            a = sum, b = difference;
          }
    const auto scale = float(1 / std::sqrt(double(length)));
    for (int64_t i = 0; i < length * columns; ++i)
      heddle::narrow(sums[size_t(i)] * scale, output[first * columns + i]);
  }
};

template <class T>
heddle_rt_status queueHadamard(heddle_rt_stream *stream,
                               const heddle_rt_hadamard_args &args,
                               const void *input, void *output) {
  const Hadamard<T> work{args.rows,
                         args.columns,
                         args.length,
                         args.signs,
                         static_cast<const T *>(input),
                         static_cast<T *>(output)};
  const Trace::Call call{"hadamard",
                         heddle::runtime::hadamardName(args),
                         stream->late,
                         -1,
                         0,
                         args.dtype,
                         0,
                         0};
  const int threads = stream->context->computeThreads;
  return heddle::host::queueWork(
      stream, call, heddle::runtime::hadamardAccesses(args, input, output),
      [=] {
        work.run(threads);
        return HEDDLE_RT_OK;
      });
}

} // namespace

heddle_rt_status heddle_rt_hadamard(heddle_rt_stream *stream,
                                    const heddle_rt_hadamard_args *args,
                                    const void *input, void *output) {
  if (!stream || !args)
    return invalid("heddle_rt_hadamard: {} is NULL",
                   stream ? "args" : "stream");
  HEDDLE_RT_TRY(heddle::runtime::checkHadamard(*args, input, output));
  if (args->dtype == HEDDLE_RT_F32)
    return queueHadamard<float>(stream, *args, input, output);
  if (args->dtype == HEDDLE_RT_F16)
    return queueHadamard<heddle::f16>(stream, *args, input, output);
  return queueHadamard<heddle::bf16>(stream, *args, input, output);
}
