#include "PlanRules.h"

#include "heddle/Support/Glob.h"

#include <algorithm>

namespace heddle {

static const std::vector<PlanRule> &rulesOfAllFamilies() {
  // Every matrix between two reductions is split along the factor that the
  // second one sums: column then row. What is added after a reduction (biases
  // of row-parallel products) or is a function of the whole row (norms) stays
  // whole.
  static const std::vector<PlanRule> rules = {
      {"model.embed_tokens.weight", {{"v", {"tp"}}}},
      {"model.layers.*.self_attn.[qkvo]_proj.weight", {{"g", {"tp"}}}},
      {"model.layers.*.self_attn.[qkv]_proj.bias", {{"g", {"tp"}}}},
      {"model.layers.*.self_attn.o_proj.bias", {}},
      {"model.layers.*.mlp.*_proj.weight", {{"f", {"tp"}}}},
      {"model.layers.*.mlp.[gu]*_proj.bias", {{"f", {"tp"}}}},
      {"model.layers.*.mlp.down_proj.bias", {}},
      {"*norm.weight", {}},
      {"*wte.weight", {{"v", {"tp"}}}},
      {"*wpe.weight", {}},
      {"*.attn.c_attn.*", {{"g", {"tp"}}}},
      {"*.attn.c_proj.weight", {{"g", {"tp"}}}},
      {"*.attn.c_proj.bias", {}},
      {"*.mlp.c_fc.*", {{"f", {"tp"}}}},
      {"*.mlp.c_proj.weight", {{"f", {"tp"}}}},
      {"*.mlp.c_proj.bias", {}},
      {"*ln_?.*", {}},
      // Routers choose for whole tokens; experts are dealt out over ep.
      {"*.gate.weight", {}},
      {"*.gate.e_score_correction_bias", {}},
      {"*.experts.*", {{"e", {"ep"}}, {"expert_f", {"tp"}}}},
      {"*.shared_expert*_proj.weight", {{"shared_f", {"tp"}}}},
      {"*.shared_expert_gate.weight", {}},
      {"*.self_attn.*_a_proj*", {}},
      {"*.self_attn.*_b_proj.weight", {{"g", {"tp"}}}},
      {"lm_head.weight", {{"v", {"tp"}}}},
  };
  return rules;
}

std::vector<PlanRule> detail::valuesBetweenBlocks(std::int64_t cp,
                                                  bool sequenceParallel) {
  PlanSplit between = {{"b", {"dp"}}};
  if (sequenceParallel)
    between["s"] = {"cp", "tp"};
  else if (cp > 1)
    between["s"] = {"cp"};
  return {{"block.x", between}, {"block.delta", between}};
}

std::vector<PlanRule> megatronRules(const ModelConfig &model) {
  std::vector<PlanRule> needed;
  const std::vector<ParameterFamily> families = parameters(model);
  for (const PlanRule &rule : rulesOfAllFamilies()) {
    Result<Glob> glob = Glob::parse(rule.match);
    if (glob && std::any_of(families.begin(), families.end(),
                            [&](const ParameterFamily &family) {
                              return glob->matches(family.instanceName(0));
                            }))
      needed.push_back(rule);
  }
  return needed;
}

} // namespace heddle
