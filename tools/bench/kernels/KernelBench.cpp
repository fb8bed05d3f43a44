//===- KernelBench.cpp - Host kernels against the memory they must move ---===//
//
// Each kernel and each ceiling is measured in one run, launch by launch in
// random turn, on one thread; the best launch of each counts, since other work
// on a machine only slows. Memory is the runtime's, as programs have it. Prints
// GB/s of the bytes that the operation must move, and the part of its ceiling;
// exits with 1 if a part is below its aim.
//
//===----------------------------------------------------------------------===//

#include "heddle/Runtime/Random.h"
#include "heddle/Runtime/Skeletons.h"
#include "test/runtime/Functors.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

using namespace heddle;
using namespace heddle::test;

namespace {

constexpr int64_t kRows = 2048, kColumns = 3888, kElements = kRows * kColumns;

struct Data {
  float *a, *b, *c, *d, *row, *column, *scalars;
  int32_t *labels;

  heddle_rt_status make(heddle_rt_context *context) {
    const std::pair<float **, int64_t> all[] = {
        {&a, kElements}, {&b, kElements},   {&c, kElements},
        {&d, kElements}, {&row, 3 * kRows}, {&column, kColumns},
        {&scalars, 3}};
    uint64_t stream = 0;
    for (const auto &[x, n] : all) {
      if (heddle_rt_status status = alloc(context, n * 4, *x))
        return status;
      random::normalFill(1, ++stream, 0, n, *x);
    }
    for (int64_t i = 0; i < kElements; ++i)
      d[i] *= d[i];
    const float settings[] = {1e-3f, 10.0f, 20.0f};
    std::copy_n(settings, 3, scalars);
    if (heddle_rt_status status = alloc(context, kRows * 4, labels))
      return status;
    std::fill_n(labels, kRows, 7);
    return HEDDLE_RT_OK;
  }

private:
  template <class T>
  static heddle_rt_status alloc(heddle_rt_context *context, int64_t bytes,
                                T *&memory) {
    void *made = nullptr;
    const heddle_rt_status status =
        heddle_rt_alloc(context, HEDDLE_RT_COMPUTE, bytes, "data", &made);
    memory = static_cast<T *>(made);
    return status;
  }
};

float readAll(const float *x) {
  float lanes[kLanes] = {};
  for (int64_t i = 0; i + kLanes <= kElements; i += kLanes)
    for (int l = 0; l < kLanes; ++l)
      lanes[l] += x[i + l];
  return *std::max_element(lanes, lanes + kLanes);
}

heddle_rt_status crossEntropy(heddle_rt_stream *stream, Data &x) {
  return rowwise(stream, "cross entropy", kRows, kColumns,
                 CrossEntropy{int32_t(kColumns)}, in(x.a), inRow(x.labels),
                 outRow(x.row), outRow(x.row + kRows),
                 outRow(x.row + 2 * kRows));
}

struct Measured {
  const char *name;
  double bytesPerElement;
  const char *ceiling; ///< "" for a ceiling
  double aim;
};
const Measured kMeasured[] = {
    {"read", 4, "", 0},
    {"copy", 8, "", 0},
    {"read_modify_write", 24, "", 0},
    {"rms_norm", 8, "copy", 0.80},
    {"swiglu", 12, "copy", 0.80},
    {"adamw", 28, "read_modify_write", 0.80},
    {"cross_entropy", 4, "read", 0.35},
};

heddle_rt_status runOnce(const std::string &name, heddle_rt_stream *stream,
                         Data &x) {
  if (name == "read")
    benchmark::DoNotOptimize(readAll(x.a));
  else if (name == "copy")
    memcpy(x.c, x.a, kElements * 4);
  else if (name == "read_modify_write")
    for (float *updated : {x.b, x.c, x.d}) // those of AdamW
      for (int64_t i = 0; i < kElements; ++i)
        updated[i] += 1.0f;
  else if (name == "rms_norm")
    return rowwise(stream, "norm", kRows, kColumns,
                   RmsNorm{1e-5f, 1.0f / kColumns}, in(x.a), inColumn(x.column),
                   out(x.c), outRow(x.row));
  else if (name == "swiglu")
    return elementwise(stream, "swiglu", kElements, SwiGlu{}, in(x.a), in(x.b),
                       out(x.c));
  else if (name == "adamw")
    return elementwise(stream, "adamw", kElements,
                       AdamW{0.9f, 0.95f, 1e-8f, 0.1f}, in(x.a), inout(x.b),
                       inout(x.c), inout(x.d), inScalar(&x.scalars[0]),
                       inScalar(&x.scalars[1]), inScalar(&x.scalars[2]));
  else
    return crossEntropy(stream, x);
  return HEDDLE_RT_OK;
}

/// Keeps the best rate of each.
class Best : public benchmark::ConsoleReporter {
public:
  std::map<std::string, double> rates;

  void ReportRuns(const std::vector<Run> &runs) override {
    for (const Run &run : runs) {
      const auto found = run.counters.find("bytes_per_second");
      if (run.run_type != Run::RT_Iteration || found == run.counters.end())
        continue;
      double &best = rates[run.run_name.function_name];
      best = std::max(best, double(found->second.value));
    }
  }
};

bool printRatios(std::map<std::string, double> &rates) {
  bool reached = true;
  for (const Measured &m : kMeasured) {
    printf("%-18s %6.1f GB/s", m.name, rates[m.name] / 1e9);
    if (*m.ceiling) {
      const double part = rates[m.name] / rates[m.ceiling];
      printf("  %3.0f %% of %s (aim %.0f)", part * 100, m.ceiling, m.aim * 100);
      reached &= part >= m.aim;
    }
    printf("\n");
  }
  return reached;
}

} // namespace

int main(int argc, char **argv) {
  heddle_rt_options options = {};
  options.mode = HEDDLE_RT_MODE_EAGER;
  options.compute_threads = 1;
  heddle_rt_context *context = nullptr;
  heddle_rt_stream *stream = nullptr;
  if (heddle_rt_init(&options, &context) ||
      heddle_rt_stream_create(context, "compute", 0, &stream)) {
    fprintf(stderr, "%s\n", heddle_rt_last_error());
    return 3;
  }
  Data data;
  if (data.make(context)) {
    fprintf(stderr, "%s\n", heddle_rt_last_error());
    return 3;
  }
  for (const Measured &m : kMeasured)
    benchmark::RegisterBenchmark(
        m.name,
        [&](benchmark::State &state) {
          for (auto _ : state)
            if (runOnce(m.name, stream, data))
              state.SkipWithError(heddle_rt_last_error());
          state.SetBytesProcessed(int64_t(double(state.iterations()) *
                                          m.bytesPerElement * kElements));
        })
        ->UseRealTime()
        ->Iterations(1);
  std::vector<char *> arguments(argv, argv + argc);
  std::string defaults[] = {"--benchmark_repetitions=30",
                            "--benchmark_enable_random_interleaving=true"};
  for (std::string &text : defaults)
    arguments.insert(arguments.begin() + 1, text.data());
  int count = int(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data()))
    return 2;
  Best best;
  benchmark::RunSpecifiedBenchmarks(&best);
  const bool reached = printRatios(best.rates);
  heddle_rt_finalize(context);
  return reached ? 0 : 1;
}
