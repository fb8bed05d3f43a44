// All public configurations of test/cases/hf_configs: accepted with the
// parameter count of its README's table, or refused by the family's name.

#include "heddle/Model/Parameters.h"
#include "heddle/Support/Files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

using namespace heddle;
using testing::HasSubstr;

static std::filesystem::path folder() {
  return std::filesystem::path(HEDDLE_SOURCE_DIR) / "test/cases/hf_configs";
}

/// Name to count (0 where the cell is empty), from the README's table.
static std::map<std::string, std::int64_t> readTable() {
  std::map<std::string, std::int64_t> table;
  std::istringstream lines(*readFile(folder() / "README.md"));
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> cells;
    std::istringstream rest(line);
    for (std::string cell; std::getline(rest, cell, '|');)
      cells.push_back(cell);
    if (cells.size() < 7)
      continue;
    std::erase(cells[1], ' ');
    std::erase_if(cells[5], [](char c) { return c < '0' || c > '9'; });
    if (std::filesystem::exists(folder() / (cells[1] + ".json")))
      table[cells[1]] = cells[5].empty() ? 0 : std::stoll(cells[5]);
  }
  return table;
}

TEST(PublicConfigs, AreAcceptedWithTheirCountOrRefusedByName) {
  const std::set<std::string> families = {
      "llama",   "mistral",   "qwen2",     "qwen3",      "gpt2",
      "mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v3"};
  auto table = readTable();
  // The table has no formula for these two; worked out below.
  table["qwen2-moe-a2.7b"] = 14315784192;
  table["qwen3-30b-a3b"] = 30532122624;
  EXPECT_EQ(table.size(), 43u);
  int accepted = 0;
  for (auto &[name, count] : table) {
    SCOPED_TRACE(name);
    std::filesystem::path path = folder() / (name + ".json");
    std::string type = Document::read(path)->root().find("model_type")->text;
    Result<ModelConfig> config = readModelConfig(path);
    if (families.contains(type)) {
      ASSERT_TRUE(config) << config.message();
      EXPECT_EQ(parameterCount(*config), count);
      EXPECT_EQ(config->name, name);
      ++accepted;
    } else {
      ASSERT_FALSE(config);
      EXPECT_THAT(config.message(),
                  HasSubstr("key 'model_type': found \"" + type + "\""));
    }
  }
  EXPECT_EQ(accepted, 27);
}

TEST(PublicConfigs, HaveTheirPropertiesRead) {
  auto read = [](const std::string &name) {
    return *readModelConfig(folder() / (name + ".json"));
  };
  ModelConfig big = read("llama-3.1-405b");
  EXPECT_EQ(big.layers, 126);
  EXPECT_EQ(big.kvHeads, 8);
  EXPECT_EQ(big.queryHeadsPerKvHead, 16);
  EXPECT_EQ(big.rope.scaling, RopeScaling::Llama3);
  EXPECT_EQ(big.rope.theta, 500000);
  EXPECT_EQ(read("llama-3.2-1b").rope.factor, 32);
  EXPECT_TRUE(read("llama-3.2-1b").tiedEmbeddings);
  EXPECT_EQ(read("mistral-7b-v0.1").slidingWindow, 4096);
  EXPECT_EQ(read("mistral-7b-v0.3").slidingWindow, std::nullopt);
  EXPECT_EQ(read("qwen2-0.5b").slidingWindow, std::nullopt);
  EXPECT_TRUE(read("qwen2.5-72b").qkvBias);
  EXPECT_TRUE(read("qwen3-32b").qkNorm);
  EXPECT_EQ(read("qwen3-32b").headSize, 128);
  EXPECT_TRUE(read("gpt2-xl").dropout.any());
  EXPECT_EQ(read("smollm-360m").kvHeads, 5);
}

TEST(Examples, ModelsAreRead) {
  int count = 0;
  for (auto &file : std::filesystem::directory_iterator(
           std::filesystem::path(HEDDLE_SOURCE_DIR) /
           "tools/examples/models")) {
    Result<ModelConfig> config = readModelConfig(file.path());
    EXPECT_TRUE(config) << config.message();
    ++count;
  }
  EXPECT_GE(count, 2);
}

TEST(Examples, ModelsHaveTheSizesTheirNamesSay) {
  std::filesystem::path models =
      std::filesystem::path(HEDDLE_SOURCE_DIR) / "tools/examples/models";
  EXPECT_NEAR(1.0 * parameterCount(*readModelConfig(models / "llama-10m.json")),
              10e6, 1e6);
  EXPECT_NEAR(1.0 * parameterCount(*readModelConfig(models / "gpt3-175b.json")),
              175e9, 1e9);
}
