//===- MlpMain.cpp - Runs the program of Mlp.mlir.in beside plain loops ---===//
//
// Linked with an emitted program by EmitTest. Usage: RANKS NUMBERS; says what
// differs and exits with 1.
//
//===----------------------------------------------------------------------===//

#include "heddle/Runtime/Program.h"
#include "runtime/ranks/RunRanks.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

constexpr int kTokens = 4, kWidth = 8, kFfn = 16, kLayers = 2;

/// The whole model, filled alike on every rank.
struct Model {
  std::vector<float> up, down, norm, x;
  Model() {
    auto fill = [](std::vector<float> &values, size_t size, int salt) {
      for (size_t i = 0; i < size; ++i)
        values.push_back(float(int((i * 37 + size_t(salt) * 11) % 23) - 11) /
                         16.0f);
    };
    fill(up, kLayers * kFfn * kWidth, 1);
    fill(down, kLayers * kWidth * kFfn, 2);
    fill(norm, kLayers * kWidth, 3);
    fill(x, kTokens * kWidth, 4);
  }
};

/// The input of each layer and the last one's output, by plain loops.
std::vector<double> reference(const Model &model, double &squares) {
  std::vector<double> x(model.x.begin(), model.x.end());
  squares = 0;
  for (int layer = 0; layer < kLayers; ++layer) {
    std::vector<double> next = x;
    for (int t = 0; t < kTokens; ++t) {
      double sum = 0;
      for (int d = 0; d < kWidth; ++d)
        sum += x[t * kWidth + d] * x[t * kWidth + d];
      const double rstd = 1 / std::sqrt(sum / kWidth + 1e-5);
      for (int f = 0; f < kFfn; ++f) {
        double h = 0;
        for (int d = 0; d < kWidth; ++d)
          h += x[t * kWidth + d] * rstd * model.norm[layer * kWidth + d] *
               model.up[(layer * kFfn + f) * kWidth + d];
        h = h / (1 + std::exp(-h)) * (1 + f / 8.0);
        for (int d = 0; d < kWidth; ++d)
          next[t * kWidth + d] +=
              h * model.down[(layer * kWidth + d) * kFfn + f];
      }
    }
    x = next;
    for (double value : x)
      squares += value * value;
  }
  return x;
}

bool isClose(const char *what, double found, double expected) {
  if (std::abs(found - expected) <= 1e-5 * (1 + std::abs(expected)))
    return true;
  std::fprintf(stderr, "%s: found %.9g, expected %.9g\n", what, found,
               expected);
  return false;
}

/// Puts this rank's shard of the model into its arena, at the offsets that
/// Mlp.mlir.in gives.
void load(const Model &model, int rank, int ranks, char *arena) {
  const int own = kFfn / ranks;
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int f = 0; f < own; ++f)
      std::memcpy(arena + layer * 512 + f * kWidth * 4,
                  &model.up[size_t(layer * kFfn + rank * own + f) * kWidth],
                  kWidth * 4);
    for (int d = 0; d < kWidth; ++d)
      std::memcpy(arena + 1024 + layer * 512 + d * own * 4,
                  &model.down[size_t((layer * kWidth + d) * kFfn + rank * own)],
                  size_t(own) * 4);
    std::memcpy(arena + 2048 + layer * 32, &model.norm[size_t(layer * kWidth)],
                kWidth * 4);
  }
  std::memcpy(arena + 2112, model.x.data(), kTokens * kWidth * 4);
}

bool check(const Model &model, const char *arena) {
  double squares = 0;
  const std::vector<double> expected = reference(model, squares);
  float found[kTokens * kWidth], range[kWidth], total = 0;
  std::memcpy(found, arena + 2368, sizeof found);
  std::memcpy(range, arena + 2912, sizeof range);
  std::memcpy(&total, arena + 2896, sizeof total);
  bool ok = isClose("squares", total, squares);
  for (int i = 0; i < kTokens * kWidth; ++i)
    ok &= isClose("output", found[i], expected[size_t(i)]);
  for (int d = 0; d < kWidth; ++d) {
    double high = -1e30, low = 1e30;
    for (int t = 0; t < kTokens; ++t) {
      high = std::max(high, expected[size_t(t * kWidth + d)]);
      low = std::min(low, expected[size_t(t * kWidth + d)]);
    }
    ok &= isClose("range", range[d], high - low);
  }
  return ok;
}

heddle_rt_status runRank(const Model &model, const std::string &numbers,
                         heddle_rt_context *context) {
  int32_t rank = 0, ranks = 0;
  if (heddle_rt_status status = heddle_rt_rank(context, &rank, &ranks))
    return status;
  heddle_program *program = nullptr;
  if (heddle_rt_status status = heddle_program_create(
          context, numbers.data(), int64_t(numbers.size()), &program))
    return status;
  void *arena = nullptr;
  int64_t bytes = 0;
  heddle_rt_status status = heddle_program_arena(program, 0, &arena, &bytes);
  // Two steps: the second begins where the first left its events and buffers.
  for (int step = 0; step < 2 && !status; ++step) {
    load(model, rank, ranks, static_cast<char *>(arena));
    status = heddle_program_step(program);
    if (!status)
      status = heddle_rt_stream_synchronize(heddle_program_stream(program));
    if (!status && (bytes != 4096 || !check(model, static_cast<char *>(arena))))
      status = heddle_rt_launch_failed("mlp", "differs from plain loops");
  }
  heddle_program_destroy(program);
  return status;
}

} // namespace

int main(int argc, char **argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 1;
  std::ifstream file(argc > 2 ? argv[2] : "", std::ios::binary);
  const std::string numbers(std::istreambuf_iterator<char>(file), {});
  const Model model;
  heddle_rt_options options = {};
  const auto result =
      heddle::ranks::runRanks(ranks, options, [&](heddle_rt_context *context) {
        return runRank(model, numbers, context);
      });
  if (!result)
    std::fprintf(stderr, "rank %d: %s\n", result.rank, result.message.c_str());
  return result ? 0 : 1;
}
