//===- Rope.cpp - rotary positions ----------------------------------------===//
//
// The sines of one position serve all heads of it. Angles are reduced in fp64,
// so that far positions are as exact as near ones.
//
//===----------------------------------------------------------------------===//

#include "heddle/Runtime/Formats.h"

#include "runtime/common/RopeCall.h"
#include "runtime/host/Context.h"

#include <cmath>
#include <vector>

using heddle::runtime::invalid;

namespace {

/// What the queued work keeps: frequencies are the caller's only during the
/// call.
template <class T>
struct Rope {
  int64_t positions, heads, half;
  bool inverse;
  std::vector<double> frequencies;
  const T *input;
  const int32_t *position;
  T *output;

  void turn(int64_t p, std::vector<float> &cosine,
            std::vector<float> &sine) const {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = double(position[p]) * frequencies[size_t(i)];
      cosine[size_t(i)] = float(std::cos(angle));
      sine[size_t(i)] = float(inverse ? -std::sin(angle) : std::sin(angle));
    }
    for (int64_t h = 0; h < heads; ++h) {
      const T *x = input + (p * heads + h) * 2 * half;
      T *y = output + (p * heads + h) * 2 * half;
#pragma omp simd
      for (int64_t i = 0; i < half; ++i) {
        const float c = cosine[size_t(i)], s = sine[size_t(i)];
        const float a = heddle::widen(x[i]), b = heddle::widen(x[i + half]);
        heddle::narrow(a * c - b * s, y[i]);
        heddle::narrow(b * c + a * s, y[i + half]);
      }
    }
  }

  void run(int threads) const {
#pragma omp parallel num_threads(threads)
    {
      std::vector<float> cosine(static_cast<size_t>(half)),
          sine(static_cast<size_t>(half));
#pragma omp for
      for (int64_t p = 0; p < positions; ++p)
        turn(p, cosine, sine);
    }
  }
};

template <class T>
heddle_rt_status queueRope(heddle_rt_stream *stream, const char *name,
                           const heddle_rt_rope_args &args, const void *input,
                           const int32_t *positions, void *output) {
  const int64_t half = args.head_size / 2;
  Rope<T> rope{args.positions,
               args.heads,
               half,
               args.inverse != 0,
               {args.frequencies, args.frequencies + half},
               static_cast<const T *>(input),
               positions,
               static_cast<T *>(output)};
  const std::vector<heddle_rt_access> accesses =
      heddle::runtime::ropeAccesses(args, input, positions, output);
  const heddle::runtime::Trace::Call call{
      "rope", name, stream->late, -1, 0, args.dtype, 0, 0};
  const int threads = stream->context->computeThreads;
  return heddle::host::queueWork(stream, call, accesses,
                                 [rope = std::move(rope), threads] {
                                   rope.run(threads);
                                   return HEDDLE_RT_OK;
                                 });
}

} // namespace

heddle_rt_status heddle_rt_rope(heddle_rt_stream *stream,
                                const heddle_rt_rope_args *args,
                                const void *input, const int32_t *positions,
                                void *output) {
  if (!stream || !args)
    return invalid("heddle_rt_rope: {} is NULL", stream ? "args" : "stream");
  HEDDLE_RT_TRY(heddle::runtime::checkRope(*args, input, positions, output));
  const char *name = heddle::runtime::ropeName(*args);
  if (heddle::runtime::ropeElements(*args) == 0)
    return heddle::host::openFor(stream, name);
  if (args->dtype == HEDDLE_RT_F32)
    return queueRope<float>(stream, name, *args, input, positions, output);
  if (args->dtype == HEDDLE_RT_F16)
    return queueRope<heddle::f16>(stream, name, *args, input, positions,
                                  output);
  return queueRope<heddle::bf16>(stream, name, *args, input, positions, output);
}
