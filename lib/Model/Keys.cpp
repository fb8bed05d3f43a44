#include "Keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

using namespace heddle;

static constexpr std::string_view token = "token ids come from the data",
                                  format = "formats come from the plan",
                                  cache = "for generation with a cache",
                                  forward = "what a Python call returns",
                                  sampling = "for generation",
                                  heads =
                                      "for heads other than the language model",
                                  where = "where the file comes from";
static constexpr NeutralKey neutral[] = {
    {"bos_token_id", token},
    {"eos_token_id", token},
    {"pad_token_id", token},
    {"sep_token_id", token},
    {"decoder_start_token_id", token},
    {"tokenizer_class", token},
    {"prefix", token},
    {"torch_dtype", format},
    {"dtype", format},
    {"use_bfloat16", format},
    {"use_cache", cache},
    {"cache_implementation", cache},
    {"output_attentions", forward},
    {"output_hidden_states", forward},
    {"return_dict", forward},
    {"torchscript", forward},
    {"_attn_implementation", "which kernels Python uses"},
    {"_attn_implementation_autoset", "which kernels Python uses"},
    {"attn_implementation", "which kernels Python uses"},
    {"pretraining_tp", "cuts products into parts of equal sum"},
    {"chunk_size_feed_forward", "cuts products into parts"},
    {"max_length", sampling},
    {"min_length", sampling},
    {"do_sample", sampling},
    {"temperature", sampling},
    {"top_k", sampling},
    {"top_p", sampling},
    {"num_beams", sampling},
    {"repetition_penalty", sampling},
    {"task_specific_params", sampling},
    {"summary_activation", heads},
    {"summary_first_dropout", heads},
    {"summary_proj_to_labels", heads},
    {"summary_type", heads},
    {"summary_use_proj", heads},
    {"id2label", heads},
    {"label2id", heads},
    {"num_labels", heads},
    {"problem_type", heads},
    {"finetuning_task", heads},
    {"n_special", "of the first GPT; no code reads it"},
    {"predict_special_tokens", "of the first GPT; no code reads it"},
    {"n_ctx", "an old name of n_positions; no code reads it"},
    {"is_decoder", "a language model of these families is one"},
    {"tie_encoder_decoder", "there is no encoder"},
    {"cross_attention_hidden_size", "there is no cross attention"},
    {"is_llama_config", "says what model_type says"},
    {"transformers.js_config", "for another program"},
    {"transformers_version", where},
    {"_name_or_path", where},
    {"name_or_path", where},
    {"_commit_hash", where},
};

const std::vector<NeutralKey> &heddle::neutralKeys() {
  static const std::vector<NeutralKey> keys(std::begin(neutral),
                                            std::end(neutral));
  return keys;
}

namespace {
/// A key with the one value that these models compute with.
struct FixedKey {
  std::string_view key;
  double value; ///< a number, or a bool as 0 or 1
  bool isBool;
  std::string_view reason;
  std::vector<Family> families;
};
} // namespace

static const std::vector<FixedKey> &fixedKeys() {
  using enum Family;
  static const std::vector<FixedKey> keys = {
      {"is_encoder_decoder",
       0,
       true,
       "encoders are not implemented",
       {Llama, Mistral, Qwen2, Qwen3, Gpt2, Mixtral, Qwen2Moe, Qwen3Moe,
        DeepseekV3}},
      {"add_cross_attention",
       0,
       true,
       "cross attention is not implemented",
       {Llama, Mistral, Qwen2, Qwen3, Gpt2, Mixtral, Qwen2Moe, Qwen3Moe,
        DeepseekV3}},
      {"partial_rotary_factor",
       1,
       false,
       "rotating a part of a head is not implemented",
       {Llama, Mistral, Qwen2, Qwen3, Mixtral, Qwen2Moe, Qwen3Moe}},
      {"rope_interleaved",
       0,
       true,
       "rotating neighbouring elements is not implemented",
       {Llama}},
      {"attention_bias",
       0,
       true,
       "attention of this family has no biases",
       {Mistral, Mixtral, DeepseekV3}},
      {"mlp_bias",
       0,
       true,
       "the MLP of this family has no biases",
       {Mistral, Qwen2, Qwen3, Mixtral, Qwen2Moe, Qwen3Moe}},
      {"moe_layer_freq",
       1,
       false,
       "experts in some of the later layers only are not implemented",
       {DeepseekV3}},
      {"scale_attn_weights",
       1,
       true,
       "attention without its scale is not implemented",
       {Gpt2}},
      {"scale_attn_by_inverse_layer_idx",
       0,
       true,
       "an attention scale per layer is not implemented",
       {Gpt2}},
      {"reorder_and_upcast_attn",
       0,
       true,
       "another order of rounding is not implemented",
       {Gpt2}},
  };
  return keys;
}

/// Keys that say how experts are chosen, scaled and balanced, or how positions
/// beyond the first ones are rotated: what is computed changes with them, its
/// amount does not. They are read when these families are compiled.
static constexpr std::string_view amountKeepingKeys[] = {
    "output_router_logits",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "norm_topk_prob",
    "n_group",
    "topk_group",
    "topk_method",
    "scoring_func",
    "routed_scaling_factor",
    "aux_loss_alpha",
    "seq_aux",
    "ep_size",
    "quantization_config",
    "num_nextn_predict_layers",
};

static bool hasValue(const DocumentValue &found, const FixedKey &fixed) {
  if (fixed.isBool)
    return found.kind == DocumentValue::Kind::Bool &&
           found.boolean == (fixed.value != 0);
  return found.kind == DocumentValue::Kind::Number &&
         found.number == fixed.value;
}

void detail::checkUnreadKeys(MapReader &reader, Family family) {
  for (const NeutralKey &each : neutral)
    reader.know(each.key);
  using enum Family;
  const bool isForPlanning = family == Mixtral || family == Qwen2Moe ||
                             family == Qwen3Moe || family == DeepseekV3;
  for (std::string_view key : amountKeepingKeys)
    if (isForPlanning)
      reader.know(key);
  if (family == DeepseekV3)
    reader.know("rope_scaling");
  for (const FixedKey &fixed : fixedKeys()) {
    if (!std::count(fixed.families.begin(), fixed.families.end(), family))
      continue;
    const DocumentValue *found = reader.value(fixed.key);
    if (!found || hasValue(*found, fixed))
      continue;
    std::string expected = fixed.isBool ? (fixed.value != 0 ? "true" : "false")
                                        : fmt::format("{}", fixed.value);
    reader.fail(fixed.key,
                fmt::format("found {}, expected {}: {}", found->describe(),
                            expected, fixed.reason));
  }
  // Full dumps of old configurations have it, always empty.
  if (const DocumentValue *pruned = reader.value("pruned_heads");
      pruned && !(pruned->isMap() && pruned->entries.empty()))
    reader.fail("pruned_heads", "found heads, expected {}: models without some "
                                "of their heads are not implemented");
}
