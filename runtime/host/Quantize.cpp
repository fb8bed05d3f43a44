//===- Quantize.cpp - formats with a scale --------------------------------===//
//
// The largest magnitude does not depend on an order, and each code on nothing
// but its number and that: threads share rows and blocks as they like.
//
//===----------------------------------------------------------------------===//

#include "heddle/Runtime/Random.h"
#include "heddle/Runtime/Scales.h"

#include "runtime/common/GemmCall.h"
#include "runtime/common/QuantizeCall.h"
#include "runtime/host/Context.h"

#include <algorithm>
#include <vector>

using heddle::runtime::countBlocks;
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

/// The input as the matrix that its codes are.
template <class T>
struct Turned {
  const T *input;
  int64_t rows, columns; ///< of the codes
  bool transposed;

  float at(int64_t row, int64_t column) const {
    return heddle::widen(
        input[transposed ? column * rows + row : row * columns + column]);
  }
};

/// Where codes go.
template <class Code>
struct Codes {
  Code *at;
  /// Whether rows of so many share no byte, so that threads may write them.
  static bool areApart(int64_t) { return true; }
  void put(int64_t i, Code code) const { at[i] = code; }
};
template <>
struct Codes<heddle::f4e2m1> {
  uint8_t *at; ///< two a byte
  static bool areApart(int64_t columns) { return columns % 2 == 0; }
  /// The first of a byte is put before the second.
  void put(int64_t i, heddle::f4e2m1 code) const {
    at[i / 2] =
        uint8_t(i % 2 == 0 ? code.bits : at[i / 2] | uint8_t(code.bits << 4));
  }
};

/// What decides how a number is rounded, from where it stands in the input.
struct Noise {
  const int64_t *seed; ///< null: to nearest
  const int32_t *tokenNumbers;
  uint32_t site;
  int64_t first, sizes[3], strides[3];

  uint32_t word(int64_t row, int64_t column) const {
    int64_t place = first;
    for (int dim = 3; dim-- > 0; column /= sizes[dim])
      place += column % sizes[dim] * strides[dim];
    return heddle::random::dropoutWord(
        uint64_t(*seed), site, 0, uint32_t(tokenNumbers[row]), uint32_t(place));
  }
};

template <class T, class Code, class Scale>
struct Quantize {
  static constexpr bool kHasTwoLevels = std::is_same_v<Scale, heddle::f8e4m3>;

  Turned<T> input;
  int64_t blockRows, blockColumns;
  bool powerOfTwo;
  const float *amax; ///< of all, or null
  Codes<Code> codes;
  Scale *scales;
  float *tensorScale; ///< where there are two levels
  Noise noise;

  void run(int threads) const {
    const int64_t down = countBlocks(input.rows, blockRows),
                  across = countBlocks(input.columns, blockColumns);
    std::vector<float> ups(size_t(down * across));
    const float tensorUp = findTensorUp();
#pragma omp parallel for num_threads(threads)
    for (int64_t block = 0; block < down * across; ++block)
      ups[size_t(block)] =
          findUp(block / across, block % across, tensorUp, scales[block]);
    const int writers = Codes<Code>::areApart(input.columns) ? threads : 1;
#pragma omp parallel for num_threads(writers)
    for (int64_t row = 0; row < input.rows; ++row)
      for (int64_t block = 0; block < across; ++block) {
        const float up = ups[size_t(row / blockRows * across + block)];
        for (int64_t column = block * blockColumns; column < endOf(block);
             ++column) {
          Code code;
          round(input.at(row, column) * up, row, column, code);
          codes.put(row * input.columns + column, code);
        }
      }
  }

private:
  void round(float value, int64_t row, int64_t column, Code &code) const {
    if constexpr (kHasTwoLevels)
      if (noise.seed)
        return heddle::narrowAtRandom(value,
                                      input.transposed
                                          ? noise.word(column, row)
                                          : noise.word(row, column),
                                      code);
    heddle::narrow(value, code);
  }
  float findTensorUp() const {
    if constexpr (!kHasTwoLevels)
      return 1;
    const float up = heddle::tensorUpScale(*amax, heddle::largest(Code()));
    *tensorScale = 1.0f / up;
    return up;
  }
  /// What a block is multiplied by, and its scale.
  float findUp(int64_t down, int64_t across, float tensorUp,
               Scale &scale) const {
    const float most =
        amax && !kHasTwoLevels ? *amax : findLargest(down, across);
    if constexpr (kHasTwoLevels)
      return heddle::blockScale(most, tensorUp, heddle::largest(Code()), scale);
    const float up = heddle::upScale(most, heddle::largest(Code()), powerOfTwo);
    heddle::narrow(1.0f / up, scale);
    return up;
  }
  int64_t endOf(int64_t block) const {
    return std::min((block + 1) * blockColumns, input.columns);
  }
  float findLargest(int64_t down, int64_t across) const {
    uint32_t most = 0;
    const int64_t end = std::min((down + 1) * blockRows, input.rows);
    for (int64_t row = down * blockRows; row < end; ++row)
      for (int64_t column = across * blockColumns; column < endOf(across);
           ++column)
        most = std::max(most, heddle::magnitudeBits(input.at(row, column)));
    return heddle::math::fromBits(most);
  }
};

struct Pointers {
  const void *input;
  const float *amax;
  void *codes, *scales;
};

template <class T, class Code, class Scale>
heddle_rt_status queueQuantize(heddle_rt_stream *stream,
                               const heddle_rt_quantize_args &args,
                               const Pointers &at) {
  const bool turns = args.transposed != 0;
  const int64_t rows = turns ? args.columns : args.rows,
                columns = turns ? args.rows : args.columns;
  const bool hasBlocks = args.block_rows > 0;
  const Quantize<T, Code, Scale> work{
      {static_cast<const T *>(at.input), rows, columns, turns},
      hasBlocks ? args.block_rows : std::max<int64_t>(rows, 1),
      hasBlocks ? args.block_columns : std::max<int64_t>(columns, 1),
      args.power_of_two != 0,
      at.amax,
      {static_cast<decltype(Codes<Code>::at)>(at.codes)},
      static_cast<Scale *>(at.scales),
      args.tensor_scale,
      {args.seed,
       args.token_numbers,
       args.site,
       args.first_column,
       {args.column_sizes[0], args.column_sizes[1], args.column_sizes[2]},
       {args.column_strides[0], args.column_strides[1],
        args.column_strides[2]}}};
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
      heddle::runtime::quantizeAccesses(args, at.input, at.amax, at.codes,
                                        at.scales),
      [=] {
        work.run(threads);
        return HEDDLE_RT_OK;
      });
}

template <class T, class Code>
heddle_rt_status quantizeInto(heddle_rt_stream *stream,
                              const heddle_rt_quantize_args &args,
                              const Pointers &at) {
  return args.scales == HEDDLE_RT_F32
             ? queueQuantize<T, Code, float>(stream, args, at)
             : queueQuantize<T, Code, heddle::f8e8m0>(stream, args, at);
}

template <class T>
heddle_rt_status quantizeFrom(heddle_rt_stream *stream,
                              const heddle_rt_quantize_args &args,
                              const Pointers &at) {
  if (args.codes == HEDDLE_RT_F4E2M1)
    return queueQuantize<T, heddle::f4e2m1, heddle::f8e4m3>(stream, args, at);
  return args.codes == HEDDLE_RT_F8E4M3
             ? quantizeInto<T, heddle::f8e4m3>(stream, args, at)
             : quantizeInto<T, heddle::f8e5m2>(stream, args, at);
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
                                    void *codes, void *scale) {
  if (!stream || !args)
    return invalid("heddle_rt_quantize: {} is NULL",
                   stream ? "args" : "stream");
  HEDDLE_RT_TRY(
      heddle::runtime::checkQuantize(*args, input, amax, codes, scale));
  const Pointers at{input, amax, codes, scale};
  if (args->input == HEDDLE_RT_F32)
    return quantizeFrom<float>(stream, *args, at);
  if (args->input == HEDDLE_RT_F16)
    return quantizeFrom<heddle::f16>(stream, *args, at);
  return quantizeFrom<heddle::bf16>(stream, *args, at);
}
