#include "tools/heddle/FamilyLayout.h"
#include "tools/heddle/Report.h"

using namespace heddle;
using namespace heddle::tool;
using json = nlohmann::ordered_json;

/// Where each layer is, in the model's order.
static json layersJson(const PlanPoint &point, const ModelConfig &model) {
  struct Stage {
    std::int64_t place = 0, chunk = 0, again = 0;
  };
  std::vector<Stage> stages(point.layers.size());
  for (std::int64_t rank = 0; rank < point.pp; ++rank) {
    const std::vector<std::int64_t> again = point.recomputedOf(rank);
    for (std::int64_t chunk = 0; chunk < point.chunks; ++chunk)
      stages[static_cast<std::size_t>(point.stageOf(rank, chunk))] = {
          rank, chunk, again[static_cast<std::size_t>(chunk)]};
  }
  json layers = json::array();
  for (std::size_t stage = 0; stage < stages.size(); ++stage)
    for (std::int64_t i = 0; i < point.layers[stage]; ++i)
      layers.push_back(
          {{"place", stages[stage].place},
           {"chunk", stages[stage].chunk},
           {"computed_again", i < stages[stage].again},
           {"experts", model.experts && model.hasExperts(std::ssize(layers))}});
  return layers;
}

static Result<json> parametersJson(const PlanPoint &point, const Plan &plan,
                                   const ModelConfig &model) {
  json list = json::array();
  for (const ParameterFamily &family : parameters(model)) {
    Result<FamilyLayout> layout = familyLayout(plan, model, family);
    if (!layout)
      return layout.error();
    const std::int64_t part = partElements(point, model, family);
    list.push_back({{"name", family.name},
                    {"segment", segmentName(family.segment)},
                    {"letters", splitWords(family.letters)},
                    {"shape", family.shape},
                    {"dims", layout->dims},
                    {"local_shape", layout->local},
                    {"bytes", part * point.computeBytes()},
                    {"runs", shardsOf(point, family)}});
  }
  return list;
}

/// What stands between layers.
static Result<json> valuesJson(const Plan &plan, const ModelConfig &model) {
  json list = json::array();
  for (const char *name : {"block.x", "block.delta"}) {
    Result<std::optional<PlanDims>> dims =
        valueLayout(plan, model, name, "b s d");
    if (!dims)
      return dims.error();
    if (*dims)
      list.push_back(
          {{"name", name}, {"letters", {"b", "s", "d"}}, {"dims", **dims}});
  }
  return list;
}

Result<json> tool::shardingJson(const PlanPoint &point, const Plan &plan,
                                const ModelConfig &model) {
  Result<json> ofParameters = parametersJson(point, plan, model);
  if (!ofParameters)
    return ofParameters.error();
  Result<json> ofValues = valuesJson(plan, model);
  if (!ofValues)
    return ofValues.error();
  return json{{"axes", meshOfPlan(plan, model).axes},
              {"layers", layersJson(point, model)},
              {"parameters", std::move(*ofParameters)},
              {"values", std::move(*ofValues)},
              {"zero", {{"stage", point.zeroStage}, {"axes", zeroAxes(plan)}}}};
}
