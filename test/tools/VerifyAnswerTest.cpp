//===- VerifyAnswerTest.cpp - What is called equal, and what is not -------===//

#include "tools/heddle/CompareFiles.h"
#include "tools/heddle/Memory.h"
#include "tools/heddle/Verify.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

using namespace heddle;
using namespace heddle::tool;

namespace {

VerifyAnswer equalAnswer() {
  VerifyAnswer answer;
  answer.mode = "program";
  answer.losses = {{2.0, 2.0}};
  answer.norm = {1.5, 1.5};
  answer.count = {7, 7};
  answer.gradients = {{"w", 5e-5, 1e-7}};
  answer.parameters = {{"w", 5e-6, 1e-8}};
  answer.lossTolerance = answer.parameterTolerance = 1e-5;
  answer.gradientTolerance = 1e-4;
  return answer;
}

TEST(VerifyAnswer, EachDifferenceCounts) {
  EXPECT_TRUE(equalAnswer().isEqual());
  auto differs = [](auto change) {
    VerifyAnswer answer = equalAnswer();
    change(answer);
    return !answer.isEqual();
  };
  EXPECT_TRUE(differs([](auto &a) { a.losses.push_back({2.0, 2.1}); }));
  EXPECT_TRUE(differs([](auto &a) { a.losses[0].plan = NAN; }));
  EXPECT_TRUE(differs([](auto &a) { a.norm.plan = 3; }));
  EXPECT_TRUE(differs([](auto &a) { a.count.plan = 6; }));
  EXPECT_TRUE(differs([](auto &a) { a.gradients[0].relative = 2e-4; }));
  EXPECT_TRUE(differs([](auto &a) { a.gradients[0].relative = NAN; }));
  EXPECT_TRUE(differs([](auto &a) { a.parameters[0].relative = 2e-5; }));
  EXPECT_TRUE(differs([](auto &a) { a.faults = {"replicas differ"}; }));
}

TEST(VerifyAnswer, AParameterThatIsNotJudgedMustStillBeANumber) {
  VerifyAnswer answer = equalAnswer();
  answer.parameters[0].relative = 1e-2;
  answer.unjudged = {"w"};
  EXPECT_TRUE(answer.isEqual());
  answer.parameters[0].relative = NAN;
  EXPECT_FALSE(answer.isEqual());
}

class Files : public testing::Test {
protected:
  void SetUp() override {
    folder = testing::TempDir() + "verify-" + std::to_string(getpid());
    std::filesystem::create_directories(folder);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  /// A file of two gradients and one parameter.
  SafetensorsFile write(const char *name, std::vector<float> large,
                        std::vector<float> small) {
    std::string path = folder + "/" + name;
    std::vector<TensorEntry> entries = {
        {"w", TensorType::F32, {2}},
        {"gradient.w", TensorType::F32, {int64_t(large.size())}},
        {"gradient.b", TensorType::F32, {int64_t(small.size())}}};
    auto writer = SafetensorsWriter::create(path, entries);
    EXPECT_TRUE(bool(writer));
    std::vector<float> parameter = {1, 2};
    for (auto [tensor, values] :
         {std::pair("w", &parameter), std::pair("gradient.w", &large),
          std::pair("gradient.b", &small)})
      EXPECT_TRUE(bool(writer->write(
          tensor, std::as_bytes(std::span<const float>(*values)))));
    EXPECT_TRUE(bool(writer->commit()));
    auto file = SafetensorsFile::open(path);
    EXPECT_TRUE(bool(file));
    return std::move(*file);
  }

  std::string folder;
};

TEST_F(Files, RelativeIsToTheTensorOrToAMillionthOfAll) {
  SafetensorsFile reference = write("a", {3, 4}, {0});
  SafetensorsFile candidate = write("b", {3, 4.5}, {1e-6f});
  auto list = compareFiles(reference, candidate, TensorKind::Gradient);
  ASSERT_TRUE(bool(list));
  ASSERT_EQ(list->size(), 2u);
  // |1e-6| / (1e-6 x 5), |0.5| / 5
  EXPECT_EQ((*list)[0].name, "b");
  EXPECT_NEAR((*list)[0].relative, 0.2, 1e-6);
  EXPECT_EQ((*list)[1].name, "w");
  EXPECT_NEAR((*list)[1].relative, 0.1, 1e-6);
  EXPECT_NEAR((*list)[1].largest, 0.5, 1e-6);
  auto parameters = compareFiles(reference, candidate, TensorKind::Parameter);
  ASSERT_TRUE(bool(parameters));
  ASSERT_EQ(parameters->size(), 1u);
  EXPECT_EQ((*parameters)[0].relative, 0);
  EXPECT_EQ(findNegligible(reference, TensorKind::Gradient, 1e-6),
            std::set<std::string>{"b"});
}

TEST_F(Files, NotANumberIsTheWorstAndAnotherShapeIsRefused) {
  SafetensorsFile reference = write("a", {3, 4}, {1});
  SafetensorsFile candidate = write("b", {3, NAN}, {9});
  auto list = compareFiles(reference, candidate, TensorKind::Gradient);
  ASSERT_TRUE(bool(list));
  EXPECT_EQ((*list)[0].name, "w");
  EXPECT_TRUE(std::isnan((*list)[0].relative));
  SafetensorsFile other = write("c", {3, 4, 5}, {1});
  auto refused = compareFiles(reference, other, TensorKind::Gradient);
  ASSERT_FALSE(bool(refused));
  EXPECT_NE(refused.message().find("gradient.w: found [3]"), std::string::npos)
      << refused.message();
}

TEST(Memory, EachByteOfTheArenaIsInOneClass) {
  MemoryReport report;
  report.arenaBytes = 100;
  auto object = [](const char *memoryClass, int64_t offset, int64_t bytes) {
    MemoryObject made;
    made.memoryClass = memoryClass;
    made.offset = offset;
    made.bytes = bytes;
    return made;
  };
  report.objects = {object("parameters", 0, 10), object("saved", 20, 30),
                    object("workspace", 40, 60), object("workspace", 45, 10)};
  auto bytes = bytesByClass(report);
  EXPECT_EQ(bytes["parameters"], 10);
  EXPECT_EQ(bytes["saved"], 30);
  EXPECT_EQ(bytes["workspace"], 50);
  int64_t sum = 0;
  for (const auto &[name, each] : bytes)
    sum += each;
  EXPECT_EQ(sum, 90); // 10 to 20 is a hole
}

TEST(Memory, ObjectsOfOtherStagesTakeNothing) {
  MemoryReport report;
  report.objects = {{"x", "saved", "step", "read", 64, 128},
                    {"w", "parameters", "step", "weight", 128, 0}};
  // As many as a model has, all at one place.
  for (int i = 0; i < 64; ++i)
    report.objects.push_back({"y", "saved", "step", "elsewhere", 0, 128});
  auto bytes = bytesByClass(report);
  EXPECT_EQ(bytes["saved"], 64);
  EXPECT_EQ(bytes["parameters"], 128);
}

} // namespace
