//===- Configs.h - Small configurations for tests ---------------*- C++ -*-===//

#ifndef HEDDLE_TEST_LIB_MODEL_CONFIGS_H
#define HEDDLE_TEST_LIB_MODEL_CONFIGS_H

#include "heddle/Model/ModelConfig.h"

#include <gtest/gtest.h>

#include <string>

namespace heddle::test {

/// The keys that every family but gpt2 needs, on lines 1 to 4; `more` begins
/// on line 5.
inline std::string ropeConfig(const std::string &family,
                              const std::string &more = "") {
  return "{\"model_type\": \"" + family +
         "\",\n"
         "\"hidden_size\": 32, \"intermediate_size\": 48,\n"
         "\"num_hidden_layers\": 2, \"num_attention_heads\": 4,\n"
         "\"vocab_size\": 96" +
         (more.empty() ? "" : ",\n" + more) + "}";
}

/// The same for gpt2.
inline std::string gpt2Config(const std::string &more = "") {
  return "{\"model_type\": \"gpt2\",\n"
         "\"n_embd\": 32, \"n_positions\": 64,\n"
         "\"n_layer\": 2, \"n_head\": 4,\n"
         "\"vocab_size\": 96" +
         (more.empty() ? "" : ",\n" + more) + "}";
}

inline Result<ModelConfig> parseConfig(const std::string &text) {
  Result<Document> document =
      Document::parse(text, "tiny.json", Document::Syntax::Json);
  if (!document)
    return document.error();
  return readModelConfig(*document);
}

inline ModelConfig accept(const std::string &text) {
  Result<ModelConfig> config = parseConfig(text);
  EXPECT_TRUE(config) << text << "\n" << (config ? "" : config.message());
  return config ? *config : ModelConfig();
}

/// The message, without "tiny.json:".
inline std::string refuse(const std::string &text) {
  Result<ModelConfig> config = parseConfig(text);
  EXPECT_FALSE(config) << text;
  if (config)
    return "accepted";
  const std::string start = "tiny.json:";
  return config.message().starts_with(start)
             ? config.message().substr(start.size())
             : config.message();
}

} // namespace heddle::test

#endif
