#include "tools/heddle/Measure.h"

#include "heddle/Runtime/heddle_rt.h"
#include "runtime/ranks/RunRanks.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <mutex>

using namespace heddle;
using namespace heddle::tool;

namespace {

constexpr std::int64_t kMiB = 1 << 20;

/// One rank's seat: buffers, a stream, the group of all, and what it measured.
class Bench {
public:
  Bench(heddle_rt_context *context, const MeasureOptions &options)
      : context(context), options(options) {}

  heddle_rt_status run();
  MeasuredTimes times;

private:
  using Work = std::function<heddle_rt_status()>;
  heddle_rt_status prepare();
  heddle_rt_status timed(const Work &work, double &seconds);
  heddle_rt_status products();
  heddle_rt_status attention();
  heddle_rt_status memory();
  heddle_rt_status collectives();
  heddle_rt_status collective(const std::string &kind, heddle_rt_comm *comm,
                              std::int64_t ranks, std::int64_t bytes);

  heddle_rt_context *context;
  const MeasureOptions &options;
  heddle_rt_stream *stream = nullptr;
  heddle_rt_comm *all = nullptr;
  std::int64_t bufferBytes = 0;
  std::int32_t rank = 0, size = 1;
  void *buffers[4] = {};
  float *one = nullptr; ///< for barriers
};

} // namespace

#define HEDDLE_TRY(call)                                                       \
  if (heddle_rt_status status = (call))                                        \
  return status

heddle_rt_status Bench::prepare() {
  HEDDLE_TRY(heddle_rt_rank(context, &rank, &size));
  HEDDLE_TRY(heddle_rt_stream_create(context, "compute", 0, &stream));
  HEDDLE_TRY(heddle_rt_comm_split(context, 0, rank, size, "all", &all));
  bufferBytes = 32 * kMiB / options.shrink;
  for (void *&buffer : buffers) {
    HEDDLE_TRY(heddle_rt_alloc(context, HEDDLE_RT_COMPUTE, bufferBytes,
                               "measured", &buffer));
    // Ordinary numbers: zeros and denormals have other times.
    for (std::int64_t i = 0; i < bufferBytes / 4; ++i)
      static_cast<float *>(buffer)[i] =
          1e-3f * static_cast<float>(1 + i % 1009);
  }
  void *memory = nullptr;
  HEDDLE_TRY(
      heddle_rt_alloc(context, HEDDLE_RT_COMPUTE, 64, "barrier", &memory));
  one = static_cast<float *>(memory);
  *one = 0;
  return HEDDLE_RT_OK;
}

/// The best of all repetitions, since other work on a machine only slows, after
/// one that is not counted. All ranks begin together.
heddle_rt_status Bench::timed(const Work &work, double &seconds) {
  using Clock = std::chrono::steady_clock;
  seconds = std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i <= options.repetitions; ++i) {
    HEDDLE_TRY(heddle_rt_all_reduce(all, stream, one, one, 1, HEDDLE_RT_F32,
                                    HEDDLE_RT_SUM));
    HEDDLE_TRY(heddle_rt_stream_synchronize(stream));
    const Clock::time_point start = Clock::now();
    HEDDLE_TRY(work());
    HEDDLE_TRY(heddle_rt_stream_synchronize(stream));
    const double took =
        std::chrono::duration<double>(Clock::now() - start).count();
    if (i > 0)
      seconds = std::min(seconds, std::max(1e-9, took));
  }
  return HEDDLE_RT_OK;
}

heddle_rt_status Bench::products() {
  struct Shape {
    std::int64_t m, n, k;
  };
  static constexpr Shape shapes[] = {
      {64, 64, 64},     {128, 128, 128},  {256, 256, 256},  {512, 512, 512},
      {512, 512, 2048}, {512, 2048, 512}, {2048, 512, 512}, {1024, 1024, 1024},
      {64, 1024, 256},  {1024, 64, 1024}, {256, 1024, 1024}};
  for (const auto &[format, dtype] :
       {std::pair{"fp32", HEDDLE_RT_F32}, {"bf16", HEDDLE_RT_BF16}})
    for (Shape shape : shapes) {
      for (std::int64_t *each : {&shape.m, &shape.n, &shape.k})
        *each = std::max<std::int64_t>(8, *each / options.shrink);
      heddle_rt_gemm_args args = {};
      args.name = "product";
      args.m = shape.m;
      args.n = args.ldb = args.ldc = shape.n;
      args.k = args.lda = shape.k;
      args.alpha = 1;
      args.a = args.b = args.c = dtype;
      args.batch = 1;
      double seconds = 0;
      HEDDLE_TRY(timed(
          [&] {
            return heddle_rt_gemm(stream, &args, buffers[0], buffers[1],
                                  buffers[2]);
          },
          seconds));
      times.products.push_back({format, shape.m, shape.n, shape.k, seconds});
    }
  return HEDDLE_RT_OK;
}

heddle_rt_status Bench::attention() {
  for (const auto &[heads, queries, headSize] : {std::tuple{8, 64, 64},
                                                 {8, 128, 64},
                                                 {8, 256, 64},
                                                 {4, 512, 64},
                                                 {4, 256, 128},
                                                 {8, 256, 32}}) {
    heddle_rt_attention_args args = {};
    const std::int64_t s = std::max<std::int64_t>(16, queries / options.shrink);
    args.name = "attention";
    args.dtype = HEDDLE_RT_F32;
    args.batch = 1;
    args.queries = args.keys = s;
    args.groups = heads;
    args.heads = 1;
    args.head_size = headSize;
    const std::int64_t token = std::int64_t{heads} * headSize;
    args.q = args.k = args.v = args.o = args.grad_q = args.grad_k =
        args.grad_v = args.grad_o = {s * token, token, headSize, headSize};
    args.scale = 1 / std::sqrt(static_cast<float>(headSize));
    args.causal = 1;
    const std::int64_t elements = s * token;
    auto *floats = static_cast<float *>(buffers[0]);
    float *q = floats, *k = q + elements, *v = k + elements;
    float *o = static_cast<float *>(buffers[1]), *lse = o + elements;
    auto *grads = static_cast<float *>(buffers[2]);
    float *const gradO = static_cast<float *>(buffers[3]);
    MeasuredAttention found{heads, s, headSize, 0, 0};
    HEDDLE_TRY(timed(
        [&] { return heddle_rt_attention(stream, &args, q, k, v, o, lse); },
        found.forwardSeconds));
    HEDDLE_TRY(timed(
        [&] {
          return heddle_rt_attention_grad(stream, &args, q, k, v, o, lse, gradO,
                                          grads, grads + elements,
                                          grads + 2 * elements);
        },
        found.backwardSeconds));
    times.attention.push_back(found);
  }
  return HEDDLE_RT_OK;
}

/// Copies: half of the bytes are read, half written.
heddle_rt_status Bench::memory() {
  for (std::int64_t bytes = 4096; bytes <= bufferBytes; bytes *= 4) {
    double seconds = 0;
    HEDDLE_TRY(timed(
        [&] { return heddle_rt_copy(stream, buffers[1], buffers[0], bytes); },
        seconds));
    times.memory.push_back({2 * bytes, seconds});
  }
  return HEDDLE_RT_OK;
}

heddle_rt_status Bench::collective(const std::string &kind,
                                   heddle_rt_comm *comm, std::int64_t ranks,
                                   std::int64_t bytes) {
  const std::int64_t elements = bytes / 4, slice = elements / ranks;
  const heddle_rt_all_to_all_shape shape = {1, 1, 1, 1, slice, 1};
  double seconds = 0;
  HEDDLE_TRY(timed(
      [&]() -> heddle_rt_status {
        if (!comm)
          return HEDDLE_RT_OK;
        if (kind == "all_reduce")
          return heddle_rt_all_reduce(comm, stream, buffers[0], buffers[1],
                                      elements, HEDDLE_RT_F32, HEDDLE_RT_SUM);
        if (kind == "all_gather")
          return heddle_rt_all_gather(comm, stream, buffers[0], buffers[1], 1,
                                      slice, HEDDLE_RT_F32);
        if (kind == "reduce_scatter")
          return heddle_rt_reduce_scatter(comm, stream, buffers[0], buffers[1],
                                          1, slice, HEDDLE_RT_F32,
                                          HEDDLE_RT_SUM);
        return heddle_rt_all_to_all(comm, stream, buffers[0], buffers[1],
                                    &shape, HEDDLE_RT_F32);
      },
      seconds));
  times.collectives.push_back({kind, ranks, slice * ranks * 4, seconds});
  return HEDDLE_RT_OK;
}

/// Over 2, 4, ... ranks and all of them.
heddle_rt_status Bench::collectives() {
  std::vector<std::int32_t> sizes;
  for (std::int32_t ranks = 2; ranks < size; ranks *= 2)
    sizes.push_back(ranks);
  if (size > 1)
    sizes.push_back(size);
  for (std::int32_t ranks : sizes) {
    heddle_rt_comm *comm = nullptr;
    HEDDLE_TRY(heddle_rt_comm_split(context, rank < ranks ? 0 : -1,
                                    std::min(rank, ranks - 1), ranks,
                                    "measured", &comm));
    for (const char *kind :
         {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"})
      for (std::int64_t bytes = 4096; bytes <= bufferBytes / 2; bytes *= 4)
        HEDDLE_TRY(collective(kind, comm, ranks, bytes));
  }
  return HEDDLE_RT_OK;
}

heddle_rt_status Bench::run() {
  HEDDLE_TRY(prepare());
  HEDDLE_TRY(products());
  HEDDLE_TRY(attention());
  HEDDLE_TRY(memory());
  return collectives();
}

#undef HEDDLE_TRY

/// The longest message of a row is never quicker than a shorter one by more
/// than the noise that a reader takes.
static void straighten(std::vector<MeasuredCollective> &times) {
  for (std::size_t i = 1; i < times.size(); ++i)
    if (times[i].kind == times[i - 1].kind &&
        times[i].ranks == times[i - 1].ranks)
      times[i].seconds = std::max(times[i].seconds, times[i - 1].seconds);
}

Result<Device> heddle::tool::measureHost(const MeasureOptions &options) {
  MeasuredTimes times;
  std::mutex lock;
  heddle_rt_options runtime = {};
  runtime.mode = HEDDLE_RT_MODE_EAGER;
  const ranks::RunResult done =
      ranks::runRanks(static_cast<int>(options.ranks), runtime,
                      [&](heddle_rt_context *context) {
                        Bench bench(context, options);
                        const heddle_rt_status status = bench.run();
                        std::int32_t rank = 0, size = 0;
                        heddle_rt_rank(context, &rank, &size);
                        if (rank == 0) {
                          const std::scoped_lock held(lock);
                          times = std::move(bench.times);
                        }
                        return status;
                      });
  if (!done)
    return Error{"measuring failed: " + done.message};
  straighten(times.collectives);
  Device device = *deviceByName("host");
  device.multiprocessors = 1; // of one rank
  for (const MeasuredProduct &each : times.products)
    device.peakFlops[each.format] = std::max(
        device.peak(each.format),
        2.0 * static_cast<double>(each.m * each.n * each.k) / each.seconds);
  for (const MeasuredMemory &each : times.memory)
    device.memoryBytesPerSecond =
        static_cast<double>(each.bytes) / each.seconds; // of the longest
  device.measured = std::make_shared<const MeasuredTimes>(std::move(times));
  return device;
}
