//===- Quantize.cpp - formats with a scale --------------------------------===//
//
// The largest magnitude does not depend on an order, and each code on nothing
// but its number and amax: threads share rows as they like.
//
//===----------------------------------------------------------------------===//

#include "heddle/Runtime/Scales.h"

#include "runtime/common/QuantizeCall.h"
#include "runtime/host/Context.h"

#include <algorithm>

using heddle::runtime::invalid;
using heddle::runtime::Trace;

namespace {

template <class T>
float findLargest(const T *input, int64_t elements, int threads) {
  uint32_t most = 0;
#pragma omp parallel for simd reduction(max : most) num_threads(threads)
  for (int64_t i = 0; i < elements; ++i)
    most = std::max(most, heddle::magnitudeBits(heddle::widen(input[i])));
  return heddle::math::fromBits(most);
}

template <class T>
heddle_rt_status queueAmax(heddle_rt_stream *stream, const char *name,
                           heddle_rt_dtype dtype, const T *input,
                           int64_t elements, float *amax) {
  const Trace::Call call{"amax", name, stream->late, -1, 0, dtype, 0, 0};
  const int threads = stream->context->computeThreads;
  return heddle::host::queueWork(
      stream, call, heddle::runtime::amaxAccesses(input, elements, dtype, amax),
      [=] {
        *amax = findLargest(input, elements, threads);
        return HEDDLE_RT_OK;
      });
}

template <class T, class Code>
struct Quantize {
  int64_t rows, columns;
  bool transposed, powerOfTwo;
  const T *input;
  const float *amax;
  Code *codes;
  float *scale;

  void run(int threads) const {
    const float up =
        heddle::upScale(*amax, heddle::largest(Code()), powerOfTwo);
    *scale = 1.0f / up;
    // A row of codes at a time: rows of the input, or its columns.
    const int64_t outer = transposed ? columns : rows,
                  inner = transposed ? rows : columns;
    const int64_t outerStep = transposed ? 1 : columns,
                  innerStep = transposed ? columns : 1;
#pragma omp parallel for num_threads(threads)
    for (int64_t i = 0; i < outer; ++i)
      for (int64_t j = 0; j < inner; ++j)
        heddle::narrow(heddle::widen(input[i * outerStep + j * innerStep]) * up,
                       codes[i * inner + j]);
  }
};

template <class T, class Code>
heddle_rt_status
queueQuantize(heddle_rt_stream *stream, const heddle_rt_quantize_args &args,
              const void *input, const float *amax, void *codes, float *scale) {
  const Quantize<T, Code> work{args.rows,
                               args.columns,
                               args.transposed != 0,
                               args.power_of_two != 0,
                               static_cast<const T *>(input),
                               amax,
                               static_cast<Code *>(codes),
                               scale};
  const Trace::Call call{"quantize",
                         heddle::runtime::quantizeName(args),
                         stream->late,
                         -1,
                         0,
                         args.codes,
                         0,
                         0};
  const int threads = stream->context->computeThreads;
  return heddle::host::queueWork(
      stream, call,
      heddle::runtime::quantizeAccesses(args, input, amax, codes, scale), [=] {
        work.run(threads);
        return HEDDLE_RT_OK;
      });
}

template <class T>
heddle_rt_status
quantizeFrom(heddle_rt_stream *stream, const heddle_rt_quantize_args &args,
             const void *input, const float *amax, void *codes, float *scale) {
  return args.codes == HEDDLE_RT_F8E4M3
             ? queueQuantize<T, heddle::f8e4m3>(stream, args, input, amax,
                                                codes, scale)
             : queueQuantize<T, heddle::f8e5m2>(stream, args, input, amax,
                                                codes, scale);
}

} // namespace

heddle_rt_status heddle_rt_amax(heddle_rt_stream *stream, const char *name,
                                const void *input, int64_t elements,
                                heddle_rt_dtype dtype, float *amax) {
  if (!stream)
    return invalid("heddle_rt_amax: stream is NULL");
  HEDDLE_RT_TRY(heddle::runtime::checkAmax(name, input, elements, dtype, amax));
  const char *label = heddle::runtime::amaxName(name);
  if (dtype == HEDDLE_RT_F32)
    return queueAmax(stream, label, dtype, static_cast<const float *>(input),
                     elements, amax);
  if (dtype == HEDDLE_RT_F16)
    return queueAmax(stream, label, dtype,
                     static_cast<const heddle::f16 *>(input), elements, amax);
  return queueAmax(stream, label, dtype,
                   static_cast<const heddle::bf16 *>(input), elements, amax);
}

heddle_rt_status heddle_rt_quantize(heddle_rt_stream *stream,
                                    const heddle_rt_quantize_args *args,
                                    const void *input, const float *amax,
                                    void *codes, float *scale) {
  if (!stream || !args)
    return invalid("heddle_rt_quantize: {} is NULL",
                   stream ? "args" : "stream");
  HEDDLE_RT_TRY(
      heddle::runtime::checkQuantize(*args, input, amax, codes, scale));
  if (args->input == HEDDLE_RT_F32)
    return quantizeFrom<float>(stream, *args, input, amax, codes, scale);
  if (args->input == HEDDLE_RT_F16)
    return quantizeFrom<heddle::f16>(stream, *args, input, amax, codes, scale);
  return quantizeFrom<heddle::bf16>(stream, *args, input, amax, codes, scale);
}
