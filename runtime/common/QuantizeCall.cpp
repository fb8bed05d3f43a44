#include "runtime/common/QuantizeCall.h"

#include "runtime/common/Dtype.h"
#include "runtime/common/GemmCall.h"

#include <bit>

namespace heddle::runtime {

static bool isScalable(heddle_rt_dtype dtype) {
  return dtype == HEDDLE_RT_F32 || dtype == HEDDLE_RT_BF16 ||
         dtype == HEDDLE_RT_F16;
}

const char *amaxName(const char *name) { return orUnnamed(name, "amax"); }

heddle_rt_status checkAmax(const char *name, const void *input,
                           int64_t elements, heddle_rt_dtype dtype,
                           const float *amax) {
  if (elements < 0)
    return invalid("{}: {} elements", amaxName(name), elements);
  if (!amax || (!input && elements > 0))
    return invalid("{}: input or amax is NULL", amaxName(name));
  if (!isScalable(dtype))
    return invalid("{}: has the largest of f32, bf16 or f16, got {}",
                   amaxName(name), nameOf(dtype));
  return HEDDLE_RT_OK;
}

std::vector<heddle_rt_access> amaxAccesses(const void *input, int64_t elements,
                                           heddle_rt_dtype dtype,
                                           const float *amax) {
  return {{input, elements * bytesOf(dtype), 0}, {amax, sizeof *amax, 1}};
}

const char *hadamardName(const heddle_rt_hadamard_args &args) {
  return orUnnamed(args.name, "hadamard");
}

static bool overlap(const void *a, int64_t bytesOfA, const void *b,
                    int64_t bytesOfB) {
  const auto first = reinterpret_cast<uintptr_t>(a),
             second = reinterpret_cast<uintptr_t>(b);
  return first < second + uint64_t(bytesOfB) &&
         second < first + uint64_t(bytesOfA);
}

heddle_rt_status checkHadamard(const heddle_rt_hadamard_args &args,
                               const void *input, const void *output) {
  const char *name = hadamardName(args);
  if (args.rows < 0 || args.columns < 0)
    return invalid("{}: rows {}, columns {}: a size is negative", name,
                   args.rows, args.columns);
  if (args.length < 1 || args.length > 32 ||
      !std::has_single_bit(uint32_t(args.length)))
    return invalid("{}: mixes {} rows, expected 1, 2, 4, 8, 16 or 32", name,
                   args.length);
  if (args.length < 32 && args.signs >> args.length != 0)
    return invalid("{}: has signs {:#x} for {} rows", name, args.signs,
                   args.length);
  if (!isScalable(args.dtype))
    return invalid("{}: mixes f32, bf16 or f16, got {}", name,
                   nameOf(args.dtype));
  const int64_t bytes = bytesOf(args.dtype, args.rows * args.columns);
  if (bytes > 0 && (!input || !output))
    return invalid("{}: input or output is NULL", name);
  if (overlap(input, bytes, output, bytes))
    return invalid("{}: output overlaps the input", name);
  return HEDDLE_RT_OK;
}

std::vector<heddle_rt_access>
hadamardAccesses(const heddle_rt_hadamard_args &args, const void *input,
                 const void *output) {
  const int64_t bytes = bytesOf(args.dtype, args.rows * args.columns);
  return {{input, bytes, 0}, {output, bytes, 1}};
}

const char *quantizeName(const heddle_rt_quantize_args &args) {
  return orUnnamed(args.name, "quantize");
}

/// Whether a tensor has a scale and its blocks have others.
static bool hasTwoLevels(const heddle_rt_quantize_args &args) {
  return args.scales == HEDDLE_RT_F8E4M3;
}

heddle_rt_status checkQuantize(const heddle_rt_quantize_args &args,
                               const void *input, const float *amax,
                               const void *codes, const void *scale) {
  const char *name = quantizeName(args);
  if (args.rows < 0 || args.columns < 0)
    return invalid("{}: rows {}, columns {}: a size is negative", name,
                   args.rows, args.columns);
  const int64_t elements = args.rows * args.columns;
  if (args.block_rows < 0 || args.block_columns < 0 ||
      (args.block_rows == 0) != (args.block_columns == 0))
    return invalid("{}: blocks of {} x {}: expected two sizes above 0, or 0 "
                   "for one scale",
                   name, args.block_rows, args.block_columns);
  if (!isScalable(args.input) || !isCode(args.codes))
    return invalid("{}: makes f8e4m3, f8e5m2 or f4e2m1 of f32, bf16 or f16, "
                   "got {} of {}",
                   name, nameOf(args.codes), nameOf(args.input));
  const bool hasBlocks = args.block_rows > 0, isOfTwo = hasTwoLevels(args);
  if (hasBlocks && amax && !isOfTwo)
    return invalid("{}: blocks have largest magnitudes of their own, but amax "
                   "is there",
                   name);
  if (((!hasBlocks || isOfTwo) && !amax) || !scale ||
      (elements > 0 && (!input || !codes)))
    return invalid("{}: input, amax, codes or scale is NULL", name);
  const bool isPower =
      args.scales == HEDDLE_RT_F8E8M0 && hasBlocks && args.power_of_two;
  if (isOfTwo
          ? !hasBlocks || !isPacked(args.codes) || args.power_of_two
          : isPacked(args.codes) || (args.scales != HEDDLE_RT_F32 && !isPower))
    return invalid("{}: scales are f32, or of blocks, powers of two, f8e8m0, "
                   "or of blocks of f4e2m1, f8e4m3; got {} of {}",
                   name, nameOf(args.scales), nameOf(args.codes));
  if (isOfTwo != (args.tensor_scale != nullptr))
    return invalid("{}: tensor_scale belongs to scales of f8e4m3, got {}", name,
                   nameOf(args.scales));
  if ((args.seed != nullptr) != (args.token_numbers != nullptr) ||
      (args.seed && !isOfTwo))
    return invalid("{}: rounds at random f4e2m1, with a seed and the tokens' "
                   "numbers, got {}",
                   name, nameOf(args.codes));
  const int64_t *const sizes = args.column_sizes;
  if (args.seed && sizes[0] * sizes[1] * sizes[2] != args.columns)
    return invalid("{}: has {} columns, but their places are {} x {} x {}",
                   name, args.columns, sizes[0], sizes[1], sizes[2]);
  if (overlap(input, elements * bytesOf(args.input), codes,
              bytesOf(args.codes, elements)))
    return invalid("{}: codes overlap the input", name);
  return HEDDLE_RT_OK;
}

std::vector<heddle_rt_access>
quantizeAccesses(const heddle_rt_quantize_args &args, const void *input,
                 const float *amax, const void *codes, const void *scale) {
  const int64_t elements = args.rows * args.columns;
  int64_t scales = 1;
  if (args.block_rows > 0) {
    const int64_t rows = args.transposed ? args.columns : args.rows;
    const int64_t columns = args.transposed ? args.rows : args.columns;
    scales = countBlocks(rows, args.block_rows) *
             countBlocks(columns, args.block_columns);
  }
  std::vector<heddle_rt_access> all = {
      {input, elements * bytesOf(args.input), 0},
      {codes, bytesOf(args.codes, elements), 1},
      {scale, scales * bytesOf(args.scales), 1}};
  if (amax)
    all.push_back({amax, sizeof *amax, 0});
  if (args.tensor_scale)
    all.push_back({args.tensor_scale, sizeof *args.tensor_scale, 1});
  if (args.seed) {
    all.push_back({args.seed, sizeof *args.seed, 0});
    all.push_back({args.token_numbers,
                   args.rows * int64_t(sizeof *args.token_numbers), 0});
  }
  return all;
}

} // namespace heddle::runtime
