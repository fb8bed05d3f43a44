//===- CodesTest.cpp - codes of the interpreter are the runtime's ---------===//
//
// Both are written by themselves; of the same numbers they make the same bits.
//
//===----------------------------------------------------------------------===//

#include "test/passes/Interpret/Harness.h"

#include "heddle/Runtime/Random.h"
#include "heddle/Runtime/Scales.h"
#include "runtime/common/Status.h"
#include "runtime/ranks/RunRanks.h"

#include <functional>

using namespace mlir;
using namespace heddle;
using namespace heddle::interpret;

namespace {

using CodesTest = InterpretTest;

/// Queues one call on the host's runtime, and expects it to succeed.
void onHost(const std::function<heddle_rt_status(heddle_rt_stream *)> &call) {
  const auto result = ranks::runRanks(1, {}, [&](heddle_rt_context *context) {
    heddle_rt_stream *stream = nullptr;
    HEDDLE_RT_TRY(heddle_rt_stream_create(context, "s", 0, &stream));
    HEDDLE_RT_TRY(call(stream));
    return heddle_rt_stream_synchronize(stream);
  });
  EXPECT_TRUE(result) << result.message;
}

std::vector<float> toFloats(const Tensor &tensor) {
  return {tensor.floats.begin(), tensor.floats.end()};
}

template <class Code>
void expectCodes(const Tensor &found, const std::vector<uint8_t> &expected,
                 bool arePacked) {
  for (size_t i = 0; i < found.floats.size(); ++i) {
    const uint8_t bits = !arePacked ? expected[i]
                         : i % 2    ? uint8_t(expected[i / 2] >> 4)
                                    : uint8_t(expected[i / 2] & 0xfu);
    ASSERT_EQ(found.floats[i], widen(Code{bits})) << i;
  }
}

/// 2 x 24 tokens of 3 x 7 numbers; some far from the others.
struct Case {
  std::string rotate;
  int64_t blockRows;
  bool isRandom;
};

class Fours : public CodesTest, public testing::WithParamInterface<Case> {};

TEST_P(Fours, AreTheRuntimes) {
  const auto &[rotate, blockRows, isRandom] = GetParam();
  const bool turns = !rotate.empty();
  const int64_t tokens = 48, columns = 21;
  Tensor x = random({2, 24, 3, 7});
  for (size_t i = 0; i < 60; ++i)
    x.floats[i] *= i < 30 ? 1e-3 : 1e-7;
  for (double &value : x.floats)
    value = float(value);
  const std::vector<float> input = toFloats(x);
  std::vector<int32_t> numbers;
  for (int32_t i = 0; i < tokens; ++i)
    numbers.push_back(1000 - 3 * i);
  const int64_t rows = turns ? columns : tokens,
                summed = turns ? tokens : columns;
  const int64_t scalesDown = (rows + blockRows - 1) / blockRows,
                scalesAcross = (summed + 15) / 16;
  const std::string codes =
      turns ? "tensor<3x7x2x24xf4E2M1FN>" : "tensor<2x24x3x7xf4E2M1FN>";
  const std::string scales = "tensor<" + std::to_string(scalesDown) + "x" +
                             std::to_string(scalesAcross) + "xf8E4M3FN>";
  const std::string noise = isRandom ? "noise %seed, %numbers site 77 " : "";
  const std::string noiseTypes =
      isRandom ? ", tensor<i64>, tensor<2x24xi32>" : "";
  const std::string text =
      "func.func @f(%x: tensor<2x24x3x7xf32>, %amax: tensor<f32>, %seed: "
      "tensor<i64>, %numbers: tensor<2x24xi32>) -> (" +
      codes + ", " + scales + R"(, tensor<f32>) {
    %c, %s, %t = transformer.quantize %x, %amax )" +
      noise + rotate + "blocks [" + std::to_string(blockRows) +
      ", 16] over 2 : (tensor<2x24x3x7xf32>, tensor<f32>" + noiseTypes +
      ") -> (" + codes + ", " + scales + R"(, tensor<f32>)
    return %c, %s, %t : )" +
      codes + ", " + scales + ", tensor<f32>\n}";
  const float amax = 4;
  const int64_t seed = 0x123456789abcdef;
  const std::vector<Tensor> found =
      run(parse(text),
          {x, Tensor::scalar(amax), integers({}, {seed}),
           integers({2, 24}, {numbers.begin(), numbers.end()})},
          Reading::Rounded);
  ASSERT_EQ(found.size(), 3u) << messages;

  heddle_rt_quantize_args args{};
  args.name = "fours";
  args.rows = tokens, args.columns = columns, args.transposed = turns;
  args.input = HEDDLE_RT_F32, args.codes = HEDDLE_RT_F4E2M1;
  args.scales = HEDDLE_RT_F8E4M3;
  args.block_rows = blockRows, args.block_columns = 16;
  float tensorScale = 0;
  args.tensor_scale = &tensorScale;
  if (isRandom) {
    args.seed = &seed, args.token_numbers = numbers.data(), args.site = 77;
    const int64_t sizes[] = {1, 3, 7}, strides[] = {0, 7, 1};
    std::copy(sizes, sizes + 3, args.column_sizes);
    std::copy(strides, strides + 3, args.column_strides);
  }
  std::vector<uint8_t> bytes(size_t(tokens * columns + 1) / 2),
      scaleBytes(size_t(scalesDown * scalesAcross));
  onHost([&](heddle_rt_stream *stream) {
    return heddle_rt_quantize(stream, &args, input.data(), &amax, bytes.data(),
                              scaleBytes.data());
  });
  expectCodes<f4e2m1>(found[0], bytes, true);
  expectCodes<f8e4m3>(found[1], scaleBytes, false);
  EXPECT_EQ(found[2].floats[0], tensorScale);
}

INSTANTIATE_TEST_SUITE_P(
    Codes, Fours,
    testing::Values(Case{"", 1, false}, Case{"rotate 2 ", 1, false},
                    Case{"", 16, false}, Case{"rotate 2 ", 16, false},
                    Case{"", 1, true}, Case{"rotate 2 ", 1, true}));

TEST_F(CodesTest, MixedRowsAreTheRuntimes) {
  for (const int64_t length : {1, 2, 8, 16, 32}) {
    const auto signs = int64_t(0xb5c3a96eu & ((uint64_t(1) << length) - 1));
    Tensor x = random({3, 13, 5});
    for (double &value : x.floats)
      value = float(value);
    const std::vector<Tensor> found =
        run(parseFunction(
                "(%x: tensor<3x13x5xf32>) -> tensor<3x13x5xf32> {\n  %y = "
                "transformer.hadamard %x over 2 length " +
                std::to_string(length) + " signs " + std::to_string(signs) +
                " : (tensor<3x13x5xf32>) -> tensor<3x13x5xf32>\n  return %y : "
                "tensor<3x13x5xf32>\n}"),
            {x}, Reading::Rounded);
    ASSERT_EQ(found.size(), 1u) << messages;
    const std::vector<float> input = toFloats(x);
    std::vector<float> output(input.size());
    heddle_rt_hadamard_args args{
        "mix", 39, 5, int32_t(length), uint32_t(signs), HEDDLE_RT_F32};
    onHost([&](heddle_rt_stream *stream) {
      return heddle_rt_hadamard(stream, &args, input.data(), output.data());
    });
    EXPECT_EQ(toFloats(found[0]), output) << length;
  }
}

// [1, 2, 3, 4] with signs + - + -: sums of 1, -2, 3, -4 by Sylvester's rows.
TEST_F(CodesTest, RowsAreMixedBySylvestersMatrix) {
  expectNear(runFloats(R"((%x: tensor<5x1xf32>) -> tensor<5x1xf32> {
    %y = transformer.hadamard %x over 1 length 4 signs 10 : (tensor<5x1xf32>) -> tensor<5x1xf32>
    return %y : tensor<5x1xf32>
  })",
                       {floats({5, 1}, {1, 2, 3, 4, 9})}),
             {-1, 5, 0, -2, 9});
}

// The mean of what a number is rounded to is the number, also below the first
// and in each of the distances that numbers have.
TEST_F(CodesTest, RoundingAtRandomHasTheNumberAsItsMean) {
  const int64_t draws = 20000;
  for (const float value : {0.1f, -0.2f, 0.45f, 0.7f, 1.1f, -1.4f, 2.3f, 3.9f,
                            4.2f, -5.5f, 0.0f, 1.5f, 6.0f}) {
    double sum = 0;
    for (int64_t i = 0; i < draws; ++i) {
      f4e2m1 code;
      narrowAtRandom(value, random::wordAt(7, 0, uint64_t(i)), code);
      const double got = widen(code);
      ASSERT_LE(std::abs(got - value), 2.0);
      sum += got;
    }
    // A deviation of at most 1, over the root of 20,000.
    EXPECT_NEAR(sum / draws, value, 0.03) << value;
  }
  for (const float value : {7.5f, 6.4f, 1e30f}) {
    f4e2m1 code;
    narrowAtRandom(value, 0, code);
    EXPECT_EQ(widen(code), 6);
    narrowAtRandom(-value, 0xffffffffu, code);
    EXPECT_EQ(widen(code), -6);
  }
}

} // namespace
