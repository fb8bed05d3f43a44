//===- bench.cu - Rates of kernels against ceilings of the same machine ---===//
//
// Prints a line of JSON per measurement: name, value, unit, the ceiling it is
// held to and the fraction of it. Ceilings are measured in the same run.
//
//===----------------------------------------------------------------------===//

#include "heddle/Runtime/Skeletons.h"
#include "heddle/Runtime/heddle_rt.h"
#include "test/runtime/Functors.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

using namespace heddle;
using namespace heddle::test;

namespace {

heddle_rt_context *context = nullptr;
heddle_rt_stream *stream = nullptr;

void must(heddle_rt_status status) {
  if (status == HEDDLE_RT_OK)
    return;
  std::fprintf(stderr, "error: %s\n", heddle_rt_last_error());
  std::exit(1);
}

template <class T>
T *allocate(int64_t elements) {
  void *memory = nullptr;
  must(heddle_rt_alloc(context, HEDDLE_RT_COMPUTE,
                       elements * int64_t(sizeof(T)), "bench", &memory));
  must(heddle_rt_zero(stream, memory, elements * int64_t(sizeof(T))));
  return static_cast<T *>(memory);
}

/// Seconds of one call, the median of several runs of many.
double secondsOf(const std::function<heddle_rt_status()> &call) {
  using Clock = std::chrono::steady_clock;
  constexpr int kRuns = 7, kCalls = 10;
  must(call());
  must(heddle_rt_stream_synchronize(stream));
  std::vector<double> runs;
  for (int run = 0; run < kRuns; ++run) {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kCalls; ++i)
      must(call());
    must(heddle_rt_stream_synchronize(stream));
    runs.push_back(std::chrono::duration<double>(Clock::now() - start).count() /
                   kCalls);
  }
  std::nth_element(runs.begin(), runs.begin() + kRuns / 2, runs.end());
  return runs[kRuns / 2];
}

void tell(const char *name, double value, const char *unit, double ceiling) {
  std::printf("{\"name\": \"%s\", \"value\": %.4g, \"unit\": \"%s\", "
              "\"ceiling\": %.4g, \"fraction\": %.3f}\n",
              name, value, unit, ceiling, value / ceiling);
  std::fflush(stdout);
}

void measureBandwidth() {
  constexpr int64_t rows = 8192, columns = 8192, n = rows * columns;
  auto *a = allocate<float>(n), *b = allocate<float>(n);
  auto *c = allocate<float>(n), *d = allocate<float>(n);
  auto *scalars = allocate<float>(4);
  auto *labels = allocate<int32_t>(rows);
  auto *narrow = reinterpret_cast<bf16 *>(a),
       *other = reinterpret_cast<bf16 *>(b);
  auto *third = reinterpret_cast<bf16 *>(c);
  auto *workspace =
      allocate<float>(columnwiseWorkspace(rows, columns, 2) / 4 + 1024);
  const double copied = 8.0 * n;
  const double ceiling =
      copied / secondsOf([&] { return heddle_rt_copy(stream, b, a, 4 * n); }) /
      1e9;
  tell("copy", ceiling, "GB/s", ceiling);
  const auto rate = [&](const char *name, double bytes,
                        const std::function<heddle_rt_status()> &call) {
    tell(name, bytes / secondsOf(call) / 1e9, "GB/s", ceiling);
  };
  rate("swiglu bf16", 6.0 * n, [&] {
    return elementwise(stream, "swiglu", n, SwiGlu{}, in(narrow), in(other),
                       out(third));
  });
  rate("adamw f32", 28.0 * n, [&] {
    return elementwise(stream, "adamw", n, AdamW{0.9f, 0.95f, 1e-8f, 0.1f},
                       in(a), inout(b), inout(c), inout(d), inScalar(scalars),
                       inScalar(scalars + 1), inScalar(scalars + 2));
  });
  rate("rms norm f32", 8.0 * n, [&] {
    return rowwise(stream, "norm", rows, columns,
                   RmsNorm{1e-5f, 1.0f / float(columns)}, in(a), inColumn(b),
                   out(c), outRow(d));
  });
  rate("rms norm bf16", 4.0 * n, [&] {
    return rowwise(stream, "norm", rows, columns,
                   RmsNorm{1e-5f, 1.0f / float(columns)}, in(narrow),
                   inColumn(d), out(third), outRow(d + columns));
  });
  rate("cross entropy f32", 4.0 * n, [&] {
    return rowwise(stream, "cross entropy", rows, columns,
                   CrossEntropy{int32_t(columns)}, in(a), inRow(labels),
                   outRow(d), outRow(d + rows), outRow(d + 2 * rows));
  });
  rate("norm gradient, columns", 8.0 * n, [&] {
    return columnwise(stream, "columns", rows, columns, NormColumns{},
                      workspace, in(a), in(b), inRow(d), inoutColumn(c),
                      inoutColumn(c + columns));
  });
  for (float *memory : {a, b, c, d})
    must(heddle_rt_free(context, memory));
}

/// Against the data sheet's dense rate (docs.nvidia.com, H100 SXM): no product
/// of this machine can be asked for without cuBLASLt.
void measureProducts() {
  constexpr double kDense = 989e12;
  for (const int64_t size : {4096, 8192}) {
    auto *a = allocate<bf16>(size * size), *b = allocate<bf16>(size * size);
    auto *c = allocate<bf16>(size * size);
    heddle_rt_gemm_args args = {};
    args.name = "product";
    args.m = args.n = args.k = args.lda = args.ldb = args.ldc = size;
    args.transpose_b = 1;
    args.alpha = 1;
    args.a = args.b = args.c = HEDDLE_RT_BF16;
    args.batch = 1;
    const double seconds =
        secondsOf([&] { return heddle_rt_gemm(stream, &args, a, b, c); });
    const double flops = 2.0 * double(size) * double(size) * double(size);
    char name[64];
    std::snprintf(name, sizeof name, "product bf16 %lld", (long long)size);
    tell(name, flops / seconds / 1e12, "TFLOP/s", kDense / 1e12);
    for (bf16 *memory : {a, b, c})
      must(heddle_rt_free(context, memory));
  }
}

void measureAttention() {
  constexpr double kDense = 989e12;
  constexpr int64_t s = 4096, groups = 8, heads = 4, size = 128;
  const int64_t qs = s * groups * heads * size, ks = s * groups * size;
  auto *q = allocate<bf16>(qs), *o = allocate<bf16>(qs);
  auto *k = allocate<bf16>(ks), *v = allocate<bf16>(ks);
  auto *lse = allocate<float>(s * groups * heads);
  heddle_rt_attention_args args = {};
  args.name = "attention";
  args.dtype = HEDDLE_RT_BF16;
  args.batch = 1;
  args.queries = args.keys = s;
  args.groups = groups;
  args.heads = heads;
  args.head_size = size;
  const heddle_rt_attention_strides wide = {qs, groups * heads * size,
                                            heads * size, size};
  const heddle_rt_attention_strides few = {ks, groups * size, size, size};
  args.q = args.o = args.grad_q = args.grad_o = wide;
  args.k = args.v = args.grad_k = args.grad_v = few;
  args.scale = 0.088f;
  args.causal = 1;
  const double seconds = secondsOf(
      [&] { return heddle_rt_attention(stream, &args, q, k, v, o, lse); });
  const double flops = 2.0 * double(s) * double(s) * size * groups * heads;
  tell("attention bf16 4096 causal", flops / seconds / 1e12, "TFLOP/s",
       kDense / 1e12);
}

} // namespace

int main() {
  must(heddle_rt_init(nullptr, &context));
  must(heddle_rt_stream_create(context, "bench", 0, &stream));
  measureBandwidth();
  measureProducts();
  measureAttention();
  must(heddle_rt_finalize(context));
  return 0;
}
