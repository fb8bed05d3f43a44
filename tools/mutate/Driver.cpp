//===- Driver.cpp - Runs an emitted program and looks at what it leaves ---===//
//
// The main that programs are linked with, here and in test/runtime. Steps are
// queued one behind the other without waiting, so that what a step leaves
// undone meets the next one. Ranks are threads.
//
// The arguments are PROGRAM TABLES NUMBERS STEPS and one of
//
// - write FILE: states after the steps, run eagerly;
// - compare FILE: 1: some state differs by more than rounding;
// - late FILE SEEDS: how many of the seeds differ in a bit;
// - check: 1: the happens-before check complains.
//
// Exit code 0, 1 as said, 3: something else failed.
//
//===----------------------------------------------------------------------===//

#include "runtime/ranks/RunRanks.h"
#include "runtime/train/Rank.h"
#include "runtime/train/States.h"

#include "heddle/Runtime/Random.h"
#include "heddle/Support/Files.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

using namespace heddle;
using namespace heddle::train;

namespace {

/// What one rank holds after the steps: outputs, then the blocks of parameters
/// and gradients.
using Blocks = std::vector<std::vector<float>>;

#define TRY(call)                                                              \
  if (heddle_rt_status status = (call))                                        \
  return status

/// What decides which elements this step drops: of layer -1 outside of layers.
uint64_t seedOf(int64_t layer) { return random::dropoutSeed(1, 1, layer); }

/// Of token `i` of the step. Ranks and micro-batches have different numbers of
/// labels that count, and sequences of two documents that differ in where the
/// second one begins.
int64_t valueAt(const std::string &name, int64_t i,
                const runtime::Tables &tables) {
  const int64_t token = i * 7 % tables.vocabularySize;
  if (name == "tokens")
    return token;
  if (name == "labels")
    return i < 4 || i % 5 == 1 ? -100 : (token + 7) % tables.vocabularySize;
  const int64_t place = i % tables.sequenceLength,
                second = 2 + i / tables.sequenceLength % 3;
  if (name == "positions")
    return place < second ? place : place - second;
  if (name == "documents")
    return place >= second;
  return name == "token_numbers" ? i : 0;
}

heddle_rt_status setInputs(Rank &rank) {
  for (const auto &[name, input] : rank.tables.inputs) {
    if (name == "dropout_seed" || name == "layer_dropout_seeds") {
      std::vector<uint64_t> seeds;
      if (name == "dropout_seed")
        seeds.push_back(seedOf(-1));
      else
        for (int64_t layer :
             rank.tables.layersAt(rank.stage, elementsOf(input.layout.local)))
          seeds.push_back(seedOf(layer));
      if (!seeds.empty())
        TRY(rank.upload(input, seeds.data(), int64_t(seeds.size()) * 8));
      continue;
    }
    if (input.layout.shape.empty()) {
      const float one = name == "learning_rate" ? 0.5f : 1.0f;
      TRY(rank.upload(input, &one, sizeof one));
      continue;
    }
    std::vector<int32_t> whole(size_t(elementsOf(input.layout.shape)));
    for (size_t i = 0; i < whole.size(); ++i)
      whole[i] = int32_t(valueAt(name, int64_t(i), rank.tables));
    const Extents extents(rank.tables.mesh, rank.rank, input.layout,
                          {input.layout.shape, {}});
    std::vector<int32_t> block(size_t(extents.blockElements()),
                               name == "labels" ? -100 : 0);
    for (int64_t r = 0; r < extents.runCount(); ++r)
      extents.toBlock(r, whole.data() + extents.runStart(r), block.data());
    TRY(rank.upload(input, block.data(), int64_t(block.size()) * 4));
  }
  return HEDDLE_RT_OK;
}

/// Test values are as small as trained ones; in a tiny model that leaves logits
/// of a thousandth, where a wrong sum of them hides behind rounding.
heddle_rt_status enlargeParameters(Rank &rank) {
  std::vector<float> stored;
  for (const runtime::State &state : rank.tables.states) {
    const Extents extents = extentsOf(rank.tables, rank.rank, state);
    const size_t held = rank.tables.instancesAt(state, rank.stage).size();
    // A parameter and its master stay equal, but for rounding.
    if (state.kind != "parameter" && state.kind != "master")
      continue;
    for (size_t i = 0; i < held; ++i) {
      TRY(downloadStored(rank, state, int64_t(i), extents, stored));
      for (float &value : stored)
        value *= 4;
      TRY(uploadStored(rank, state, int64_t(i), extents, stored));
    }
  }
  return HEDDLE_RT_OK;
}

heddle_rt_status readBlocks(Rank &rank, Blocks &blocks) {
  blocks.clear();
  for (const auto &[name, output] : rank.tables.outputs)
    if (output.dtype == HEDDLE_RT_F32) {
      blocks.emplace_back(1);
      TRY(rank.download(blocks.back().data(), output, 4));
    }
  for (const runtime::State &state : rank.tables.states) {
    const Extents extents = extentsOf(rank.tables, rank.rank, state);
    const size_t held = rank.tables.instancesAt(state, rank.stage).size();
    for (size_t i = 0; i < held; ++i)
      if (state.kind == "parameter" || state.kind == "gradient")
        TRY(downloadStored(rank, state, int64_t(i), extents,
                           blocks.emplace_back()));
  }
  return HEDDLE_RT_OK;
}

/// tables.bin and numbers.bin.
struct Files {
  runtime::Tables tables;
  std::string numbers;
};

struct Outcome {
  ranks::RunResult result;
  std::vector<float> values;  ///< of all ranks
  std::vector<size_t> blocks; ///< where each block ends in them
};

Outcome run(const Files &files, int64_t steps,
            const heddle_rt_options &options) {
  const runtime::Tables &tables = files.tables;
  std::vector<Blocks> ranks(static_cast<size_t>(tables.ranks()));
  Outcome outcome;
  outcome.result = ranks::runRanks(
      int(tables.ranks()), options, [&](heddle_rt_context *context) {
        Rank rank(context, tables, files.numbers);
        TRY(rank.create());
        TRY(fillStates(rank, nullptr, /*testInit=*/true));
        TRY(enlargeParameters(rank));
        TRY(setInputs(rank));
        for (int64_t step = 0; step < steps; ++step)
          TRY(rank.step());
        TRY(rank.synchronize());
        return readBlocks(rank, ranks[size_t(rank.rank)]);
      });
  for (const Blocks &blocks : ranks)
    for (const auto &block : blocks) {
      outcome.values.insert(outcome.values.end(), block.begin(), block.end());
      outcome.blocks.push_back(outcome.values.size());
    }
  return outcome;
}

/// Of the blocks, the largest difference relative to the block's norm, which
/// counts as at least a millionth of all blocks' norm.
double farthest(const Outcome &found, const std::vector<float> &expected) {
  double all = 0, worst = 0;
  for (float value : expected)
    all += double(value) * value;
  size_t i = 0;
  for (size_t end : found.blocks) {
    double difference = 0, norm = 0;
    for (; i < end; ++i) {
      difference += std::pow(double(found.values[i]) - expected[i], 2);
      norm += std::pow(double(expected[i]), 2);
    }
    const double relative =
        std::sqrt(difference) /
        std::max({std::sqrt(norm), 1e-6 * std::sqrt(all), 1e-30});
    if (!(relative <= worst))
      worst = std::isnan(relative) ? HUGE_VAL : relative;
  }
  return worst;
}

int fail(const std::string &message) {
  fmt::print(stderr, "{}\n", message);
  return 3;
}

int failed(const Outcome &outcome) {
  return fail(
      fmt::format("rank {}: {}", outcome.result.rank, outcome.result.message));
}

int check(const Files &files, int64_t steps, heddle_rt_options options) {
  options.mode = HEDDLE_RT_MODE_EAGER;
  options.checking = HEDDLE_RT_CHOICE_ON;
  const Outcome outcome = run(files, steps, options);
  if (outcome.result)
    return 0;
  fmt::print("{}\n", outcome.result.message);
  return outcome.result.status == HEDDLE_RT_CHECK_FAILED ? 1 : 3;
}

int late(const Files &files, int64_t steps, heddle_rt_options options,
         const std::vector<float> &expected, int64_t seeds) {
  options.mode = HEDDLE_RT_MODE_LATE;
  int64_t different = 0;
  for (int64_t seed = 1; seed <= seeds; ++seed) {
    options.seed = uint64_t(seed);
    const Outcome outcome = run(files, steps, options);
    if (!outcome.result)
      return failed(outcome);
    different += outcome.values.size() != expected.size() ||
                 std::memcmp(outcome.values.data(), expected.data(),
                             expected.size() * sizeof(float)) != 0;
  }
  fmt::print("{} of {}\n", different, seeds);
  return 0;
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 5)
    return fail(
        "usage: PROGRAM TABLES NUMBERS STEPS write|compare|late|check ...");
  const std::string mode = argv[4], file = argc > 5 ? argv[5] : "";
  const int64_t steps = std::atoll(argv[3]);
  Result<std::string> bytes = readFile(argv[1]);
  if (!bytes)
    return fail(bytes.message());
  Result<std::string> numbers = readFile(argv[2]);
  if (!numbers)
    return fail(numbers.message());
  const Files files = {runtime::decodeTables(*bytes), *numbers};
  heddle_rt_options options = {};
  options.timeout_seconds = 60;
  options.checking = HEDDLE_RT_CHOICE_OFF;
  if (mode == "check")
    return check(files, steps, options);

  std::vector<float> expected;
  if (mode != "write") {
    Result<std::string> kept = readFile(file);
    if (!kept)
      return fail(kept.message());
    expected.resize(kept->size() / sizeof(float));
    std::memcpy(expected.data(), kept->data(), kept->size());
  }
  if (mode == "late")
    return late(files, steps, options, expected,
                argc > 6 ? std::atoll(argv[6]) : 1);
  options.mode = HEDDLE_RT_MODE_EAGER;
  const Outcome outcome = run(files, steps, options);
  if (!outcome.result)
    return failed(outcome);
  if (mode == "write") {
    auto written = writeFile(
        file, std::string(reinterpret_cast<const char *>(outcome.values.data()),
                          outcome.values.size() * sizeof(float)));
    return written ? 0 : fail(written.message());
  }
  if (outcome.values.size() != expected.size())
    return fail("the programs have other states");
  const double relative = farthest(outcome, expected);
  fmt::print("{:.3g}\n", relative);
  return relative <= 1e-5 ? 0 : 1;
}
