//===- PredictionTest.cpp - a recording against lib/Cost ------------------===//

#include "tools/heddle/Prediction.h"

#include <gtest/gtest.h>

using heddle::tool::findMisprediction;
using nlohmann::json;

namespace {

json prediction() {
  return {{"gemm_flops", 800.0},
          {"attention_flops", 30.0},
          {"axes", {{"dp", {{"calls", 2}, {"bytes", 64.0}}}}},
          {"live_peak_bytes", 4096}};
}

json recording() {
  return {{"gemm_flops", 800.0},
          {"attention_flops", 30.0},
          {"axes", {{"dp", {{"calls", 2}, {"bytes", 64.0}}}}}};
}

const json kMemory = {{"live_peak_bytes", 4096}};

TEST(Prediction, AgreesWithEqualFigures) {
  EXPECT_EQ(findMisprediction(prediction(), recording(), kMemory), "");
}

TEST(Prediction, NamesEachFigureThatDiffers) {
  json more = recording();
  more["gemm_flops"] = 801.0;
  EXPECT_EQ(findMisprediction(prediction(), more, kMemory),
            "gemm_flops: lib/Cost says 800, the program has 801");
  json unforeseen = recording();
  unforeseen["axes"]["tp"] = {{"calls", 1}, {"bytes", 8.0}};
  EXPECT_EQ(findMisprediction(prediction(), unforeseen, kMemory),
            "bytes over tp: lib/Cost says 0, the program has 8");
  json silent = recording();
  silent["axes"] = json::object();
  EXPECT_EQ(findMisprediction(prediction(), silent, kMemory),
            "bytes over dp: lib/Cost says 64, the program has 0");
  EXPECT_EQ(
      findMisprediction(prediction(), recording(), {{"live_peak_bytes", 4097}}),
      "live bytes at the peak: lib/Cost says 4096, the program has 4097");
}

} // namespace
