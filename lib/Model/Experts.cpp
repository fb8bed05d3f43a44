#include "Experts.h"

#include <fmt/format.h>

#include <algorithm>

using namespace heddle;
using namespace heddle::detail;

bool ModelConfig::hasExperts(std::int64_t layer) const {
  return experts && layer >= experts->denseLayers &&
         (layer + 1) % experts->everyLayers == 0 &&
         std::count(experts->mlpOnlyLayers.begin(),
                    experts->mlpOnlyLayers.end(), layer) == 0;
}

std::vector<std::int64_t> ModelConfig::layersWhere(bool haveExperts) const {
  std::vector<std::int64_t> found;
  for (std::int64_t layer = 0; layer < layers; ++layer)
    if (hasExperts(layer) == haveExperts)
      found.push_back(layer);
  return found;
}

std::optional<std::string> heddle::whyNotCompiled(const ModelConfig &model) {
  if (!model.experts && !model.latent)
    return std::nullopt;
  return fmt::format(
      "model family {} is read for planning only: {} not compiled yet; `heddle "
      "plan` and `heddle explain MODEL` take it, the families that are "
      "compiled are llama, mistral, qwen2, qwen3, gpt2",
      familyName(model.family),
      model.latent ? "layers with experts and latent attention are"
                   : "layers with experts are");
}

/// Sizes of the routed experts, under each family's keys.
static void readRouted(MapReader &reader, Family family,
                       ExpertsConfig &experts) {
  const bool isMixtral = family == Family::Mixtral,
             isDeepseek = family == Family::DeepseekV3;
  const char *count = isMixtral    ? "num_local_experts"
                      : isDeepseek ? "n_routed_experts"
                                   : "num_experts";
  experts.count = reader.integer(count, countRange);
  experts.perToken = reader.integer("num_experts_per_tok", countRange);
  if (!isMixtral)
    experts.ffn = reader.integer("moe_intermediate_size", widthRange);
  if (reader.ok() && experts.perToken > experts.count)
    reader.fail("num_experts_per_tok",
                fmt::format("found {}, expected at most {} {}",
                            experts.perToken, count, experts.count));
}

static void readSparseLayers(MapReader &reader, ModelConfig &config) {
  ExpertsConfig &experts = *config.experts;
  experts.everyLayers = reader.integer("decoder_sparse_step", countRange, 1);
  std::vector<std::int64_t> none;
  if (!reader.has("mlp_only_layers"))
    return;
  experts.mlpOnlyLayers =
      reader.integers("mlp_only_layers",
                      {0, std::max<std::int64_t>(config.layers - 1, 0)}, none);
  std::sort(experts.mlpOnlyLayers.begin(), experts.mlpOnlyLayers.end());
}

void heddle::detail::readExperts(MapReader &reader, ModelConfig &config) {
  switch (config.family) {
  case Family::Mixtral:
    config.experts.emplace();
    readRouted(reader, config.family, *config.experts);
    config.experts->ffn = config.ffn;
    return;
  case Family::Qwen2Moe:
    config.experts.emplace();
    readRouted(reader, config.family, *config.experts);
    config.experts->sharedFfn =
        reader.integer("shared_expert_intermediate_size", widthRange);
    config.experts->sharedGate = true;
    return readSparseLayers(reader, config);
  case Family::Qwen3Moe:
    config.experts.emplace();
    readRouted(reader, config.family, *config.experts);
    return readSparseLayers(reader, config);
  case Family::DeepseekV3:
    config.experts.emplace();
    readRouted(reader, config.family, *config.experts);
    config.experts->sharedFfn =
        config.experts->ffn *
        reader.integer("n_shared_experts", {0, countRange.max}, 1);
    config.experts->routerBias = true;
    config.experts->denseLayers =
        reader.integer("first_k_dense_replace", {0, countRange.max}, 3);
    return;
  default:
    return;
  }
}

void heddle::detail::readLatent(MapReader &reader, ModelConfig &config) {
  LatentConfig &latent = config.latent.emplace();
  config.kvHeads = reader.integer("num_attention_heads", countRange);
  latent.queryRank =
      reader.optionalInteger("q_lora_rank", widthRange).value_or(0);
  latent.valueRank = reader.integer("kv_lora_rank", widthRange);
  latent.plainSize = reader.integer("qk_nope_head_dim", countRange);
  latent.ropeSize = reader.integer("qk_rope_head_dim", countRange);
  latent.valueSize = reader.integer("v_head_dim", countRange);
  config.headSize = latent.plainSize + latent.ropeSize;
  // Every query head has keys and values of its own.
  if (reader.has("num_key_value_heads") &&
      reader.integer("num_key_value_heads", countRange) != config.kvHeads)
    reader.fail("num_key_value_heads",
                fmt::format("expected num_attention_heads {}: latent attention "
                            "has keys and values for each head",
                            config.kvHeads));
  if (reader.ok() && latent.ropeSize % 2 != 0)
    reader.fail("qk_rope_head_dim",
                fmt::format("found {}, expected an even one: rotary positions "
                            "turn pairs",
                            latent.ropeSize));
}
