//===- SkeletonCompare.h - CUDA's skeletons against the host's ------------===//
//
// For a test on the double and a program on a GPU, which nvcc compiles: nothing
// of fmt, in which it finds constants that it takes for none.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_TEST_RUNTIME_SKELETONCOMPARE_H
#define HEDDLE_TEST_RUNTIME_SKELETONCOMPARE_H

#include <cuda_runtime.h>

#include "test/runtime/SkeletonCases.h"

#include <cmath>
#include <random>
#include <string>
#include <vector>

/// HostSkeletons.cpp
void runHostSkeleton(int which, int64_t rows, int64_t columns, int64_t shift,
                     char *arena);

namespace heddle::test {

/// Numbers everywhere, and labels that are rows, columns or none.
inline std::vector<char> filled(const SkeletonArena &a, uint64_t seed) {
  std::vector<char> bytes(size_t(a.bytes), char(0x5a));
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  const auto fill = [&](int64_t at, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const float value = normal(random);
      memcpy(bytes.data() + at + 4 * i, &value, 4);
    }
  };
  const int64_t n = a.rows * a.columns;
  for (const int64_t at : {a.x, a.y, a.z})
    fill(at, n);
  fill(a.weight, a.columns), fill(a.bias, a.columns);
  for (const int64_t at : {a.one, a.two, a.three})
    fill(at, a.rows);
  for (int64_t i = 0; i < 2 * n; ++i) { // a second moment is not negative
    const float value = std::abs(normal(random));
    memcpy(bytes.data() + a.wide + 4 * i, &value, 4);
  }
  for (int64_t i = 0; i < n; ++i)
    for (const int64_t at : {a.p, a.q}) {
      bf16 value;
      narrow(normal(random), value);
      memcpy(bytes.data() + at + 2 * i, &value, 2);
    }
  const int64_t most = std::min(a.rows, a.columns);
  for (int64_t i = 0; i < a.rows; ++i) {
    const auto label = int32_t(int64_t(random() % uint64_t(most + 1)) - 1);
    memcpy(bytes.data() + a.labels + 4 * i, &label, 4);
  }
  const float scalars[] = {0.01f, 10.0f, 20.0f, 0.0f};
  memcpy(bytes.data() + a.scalars, scalars, sizeof scalars);
  const double total = 3;
  memcpy(bytes.data() + a.scalars + 16, &total, 8);
  return bytes;
}

/// The arena after one launch on the device.
inline heddle_rt_status onDevice(heddle_rt_context *context,
                                 heddle_rt_stream *stream, int which,
                                 const SkeletonArena &a,
                                 std::vector<char> &bytes) {
  void *memory = nullptr;
  heddle_rt_status status =
      heddle_rt_alloc(context, HEDDLE_RT_COMPUTE, a.bytes, "arena", &memory);
  auto *arena = static_cast<char *>(memory);
  if (status == HEDDLE_RT_OK)
    status = heddle_rt_copy(stream, arena, bytes.data(), a.bytes);
  if (status == HEDDLE_RT_OK)
    status = runSkeleton(which, stream, a, arena);
  if (status == HEDDLE_RT_OK)
    status = heddle_rt_copy(stream, bytes.data(), arena, a.bytes);
  if (status == HEDDLE_RT_OK)
    status = heddle_rt_stream_synchronize(stream);
  return status == HEDDLE_RT_OK ? heddle_rt_free(context, memory) : status;
}

/// Tails of every kind; rows for more and for fewer blocks than there are.
struct SkeletonShape {
  int64_t rows, columns, shift;
};
inline std::vector<SkeletonShape> skeletonShapes() {
  std::vector<SkeletonShape> all = {{1, 1, 0},    {3, 5, 0},     {2, 31, 1},
                                    {5, 33, 0},   {4, 255, 0},   {4, 256, 0},
                                    {40, 257, 3}, {2, 1024, 0},  {3, 1025, 1},
                                    {130, 64, 0}, {33, 2048, 0}, {2, 8200, 0}};
  std::mt19937 random(5);
  for (int i = 0; i < 12; ++i)
    all.push_back({int64_t(1 + random() % 90), int64_t(1 + random() % 700),
                   int64_t(random() % 3 == 0 ? random() % 8 : 0)});
  return all;
}

/// One launch on a device of `context` and on the host: "" where all bytes are
/// equal, else where they differ, or why it failed.
inline std::string compareSkeleton(heddle_rt_context *context,
                                   heddle_rt_stream *stream, int which,
                                   const SkeletonShape &shape, uint64_t seed) {
  const SkeletonArena a(shape.rows, shape.columns, shape.shift);
  std::vector<char> host = filled(a, seed), device = host;
  runHostSkeleton(which, shape.rows, shape.columns, shape.shift, host.data());
  if (onDevice(context, stream, which, a, device) != HEDDLE_RT_OK)
    return heddle_rt_last_error();
  for (int64_t i = 0; i < a.used; ++i)
    if (host[size_t(i)] != device[size_t(i)])
      return "case " + std::to_string(which) + ", " +
             std::to_string(shape.rows) + " x " +
             std::to_string(shape.columns) + ", shifted by " +
             std::to_string(shape.shift) + ": byte " + std::to_string(i) +
             " differs";
  return "";
}

} // namespace heddle::test

#endif
