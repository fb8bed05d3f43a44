#include "heddle/Plan/Scaling.h"

#include "PlanNames.h"

#include "heddle/Model/Parameters.h"
#include "heddle/Support/Glob.h"

#include <algorithm>

#include <fmt/format.h>

using namespace heddle;

static constexpr ScalingRecipe kRecipes[] = {
    {"fp8", "current", "e4m3", "e4m3", "e5m2", false},
    {"fp8", "current_power_of_two", "e4m3", "e4m3", "e5m2", true},
    {"fp8", "block", "e4m3", "e4m3", "e4m3", false, 128, true, true},
    {"fp8", "block_power_of_two", "e4m3", "e4m3", "e4m3", true, 128, true,
     true},
    {"fp8", "mxfp8", "e4m3", "e4m3", "e4m3", true, 32, false, false, "e8m0"},
    {"nvfp4", "nvfp4", "e2m1", "e2m1", "e2m1", false, 16, true, true, "e4m3"},
};

static const ScalingRecipe *findScaling(std::string_view name) {
  for (const ScalingRecipe &recipe : kRecipes)
    if (recipe.name == name)
      return &recipe;
  return nullptr;
}

void detail::readScaling(std::optional<MapReader> &reader,
                         PlanPrecision &precision) {
  std::vector<std::string> names;
  for (const ScalingRecipe &each : kRecipes)
    if (each.recipe == precision.recipe)
      names.emplace_back(each.name);
  if (names.empty())
    return;
  precision.scaling =
      reader ? reader->choice("scaling", names, names.front()) : names.front();
  const ScalingRecipe *recipe = findScaling(precision.scaling);
  if (!recipe || recipe->blockLength == 0)
    return;
  const std::int64_t length = recipe->blockLength;
  precision.blockLength = length;
  if (!reader)
    return;
  precision.blockLength =
      reader->integer("block_length", IntegerRange::positive(), length);
  if (precision.blockLength != length && !recipe->hasAnyLength)
    reader->fail("block_length",
                 fmt::format("is {}, but scaling \"{}\" has blocks of {}",
                             precision.blockLength, recipe->name, length));
}

void heddle::setDefaultScaling(PlanPrecision &precision) {
  std::optional<MapReader> none;
  detail::readScaling(none, precision);
}

std::optional<ScalingRecipe> heddle::scalingOf(const PlanPrecision &precision) {
  const ScalingRecipe *found = findScaling(precision.scaling);
  if (!found)
    return std::nullopt;
  ScalingRecipe recipe = *found;
  if (recipe.blockLength > 0)
    recipe.blockLength = precision.blockLength;
  return recipe;
}

std::vector<std::string> heddle::plainParameters(const Plan &plan,
                                                 const ModelConfig &model) {
  std::vector<std::string> names;
  for (const ParameterFamily &family : parameters(model)) {
    const std::string first = family.instanceName(0);
    if (std::ranges::any_of(plan.precision.exceptions, [&](const auto &each) {
          return Glob::isMatch(each.match, first);
        }))
      names.push_back(family.name);
  }
  return names;
}

std::string heddle::computeFormat(std::string_view recipe) {
  return std::string(recipe == "fp8" || recipe == "nvfp4" ? "bf16" : recipe);
}
