//===- StagesMain.cpp - Runs the program of Stages.mlir.in ----------------===//
//
// Linked with an emitted program by EmitTest. Usage: RANKS NUMBERS
// MICRO_BATCHES LAYERS...: layers of each stage. Says what differs from plain
// loops and exits with 1.
//
//===----------------------------------------------------------------------===//

#include "heddle/Runtime/Program.h"
#include "runtime/common/Status.h"
#include "runtime/ranks/RunRanks.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace {

constexpr int kElements = 32;

struct Model {
  std::string numbers;
  int microBatches = 0;
  std::vector<int> layers; ///< of each stage
};

float inputAt(int microBatch, int i) { return float(microBatch + i % 5); }

/// What the last stage passes on and the first one gets back.
void reference(const Model &model, int microBatch, int i, float &out,
               float &back) {
  std::vector<float> inputs;
  out = inputAt(microBatch, i);
  for (int layers : model.layers) {
    inputs.push_back(out);
    for (int layer = 0; layer < layers; ++layer)
      out = 2 * out + 1;
  }
  back = out;
  for (size_t stage = model.layers.size(); stage-- > 0;)
    for (int layer = 0; layer < model.layers[stage]; ++layer)
      back = 2 * back + inputs[stage];
}

heddle_rt_status check(const Model &model, int stage, const float *out) {
  const bool first = stage == 0;
  const bool last = stage + 1 == int(model.layers.size());
  for (int m = 0; m < model.microBatches && (first || last); ++m)
    for (int i = 0; i < kElements; ++i) {
      float expected = 0, back = 0;
      reference(model, m, i, expected, back);
      expected = first ? back : expected;
      const float found = out[m * kElements + i];
      if (found == expected)
        continue;
      std::fprintf(stderr, "stage %d, micro-batch %d: found %g, expected %g\n",
                   stage, m, double(found), double(expected));
      return heddle_rt_launch_failed("stages", "differ from plain loops");
    }
  return HEDDLE_RT_OK;
}

heddle_rt_status runRank(const Model &model, heddle_rt_context *context) {
  int32_t rank = 0, ranks = 0;
  HEDDLE_RT_TRY(heddle_rt_rank(context, &rank, &ranks));
  heddle_program *program = nullptr;
  HEDDLE_RT_TRY(heddle_program_create(context, model.numbers.data(),
                                      int64_t(model.numbers.size()), &program));
  void *arena = nullptr;
  int64_t bytes = 0;
  HEDDLE_RT_TRY(heddle_program_arena(program, 0, &arena, &bytes));
  // y and g, what goes out, what comes in: as EmitTest lays them out. The first
  // stage has its inputs one buffer further in than the others.
  float *out = static_cast<float *>(arena) + 2 * kElements;
  float *in = out + (model.microBatches + (rank < 2)) * kElements;
  heddle_rt_status status = HEDDLE_RT_OK;
  for (int step = 0; step < 2 && !status; ++step) {
    for (int i = 0; rank < 2 && i < model.microBatches * kElements; ++i)
      in[i] = inputAt(i / kElements, i % kElements);
    status = heddle_program_step(program);
    if (!status)
      status = heddle_rt_stream_synchronize(heddle_program_stream(program));
    if (!status)
      status = check(model, rank / 2, out);
  }
  heddle_program_destroy(program);
  return status;
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 5)
    return 1;
  std::ifstream file(argv[2], std::ios::binary);
  Model model{std::string(std::istreambuf_iterator<char>(file), {}),
              std::atoi(argv[3]),
              {}};
  for (int i = 4; i < argc; ++i)
    model.layers.push_back(std::atoi(argv[i]));
  heddle_rt_options options = {};
  options.timeout_seconds = 20;
  const auto result = heddle::ranks::runRanks(
      std::atoi(argv[1]), options,
      [&](heddle_rt_context *context) { return runRank(model, context); });
  if (!result)
    std::fprintf(stderr, "rank %d: %s\n", result.rank, result.message.c_str());
  return result ? 0 : 1;
}
