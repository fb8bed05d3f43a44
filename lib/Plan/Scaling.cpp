#include "heddle/Plan/Scaling.h"

#include "PlanNames.h"

using namespace heddle;

static constexpr ScalingRecipe kRecipes[] = {
    {"current", "e4m3", "e4m3", "e5m2", false},
    {"current_power_of_two", "e4m3", "e4m3", "e5m2", true},
};

std::string detail::readScaling(std::optional<MapReader> &reader,
                                std::string_view recipe) {
  if (recipe != "fp8")
    return "";
  std::vector<std::string> names;
  for (const ScalingRecipe &each : kRecipes)
    names.emplace_back(each.name);
  return reader ? reader->choice("scaling", names, names.front())
                : names.front();
}

const ScalingRecipe *heddle::findScaling(std::string_view name) {
  for (const ScalingRecipe &recipe : kRecipes)
    if (recipe.name == name)
      return &recipe;
  return nullptr;
}

std::string heddle::computeFormat(std::string_view recipe) {
  return std::string(recipe == "fp8" || recipe == "nvfp4" ? "bf16" : recipe);
}
