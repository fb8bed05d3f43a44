#include "heddle/Plan/Scaling.h"

#include "PlanNames.h"

#include "heddle/Support/Glob.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

using namespace heddle;

/// As DelayedScaling of Transformer Engine has it, with `max`
/// (transformer_engine/common/recipe).
static constexpr std::int64_t kAmaxHistory = 1024;
/// A history of a million steps is a mistake, and its places fit an i32.
static constexpr std::int64_t kMostHistory = 1 << 20;

static constexpr ScalingRecipe kRecipes[] = {
    {"fp8", "current", "e4m3", "e4m3", "e5m2", false},
    {"fp8", "current_power_of_two", "e4m3", "e4m3", "e5m2", true},
    {"fp8", "block", "e4m3", "e4m3", "e4m3", false, 128, true, true},
    {"fp8", "block_power_of_two", "e4m3", "e4m3", "e4m3", true, 128, true,
     true},
    {"fp8", "mxfp8", "e4m3", "e4m3", "e4m3", true, 32, false, false, "e8m0"},
    {"nvfp4", "nvfp4", "e2m1", "e2m1", "e2m1", false, 16, true, true, "e4m3",
     true, true},
    {.recipe = "fp8",
     .name = "delayed",
     .activation = "e4m3",
     .weight = "e4m3",
     .gradient = "e5m2",
     .powerOfTwo = false,
     .amaxHistory = kAmaxHistory},
};

static const ScalingRecipe *findScaling(std::string_view name) {
  for (const ScalingRecipe &recipe : kRecipes)
    if (recipe.name == name)
      return &recipe;
  return nullptr;
}

void heddle::setScaling(PlanPrecision &precision, std::string_view name) {
  const ScalingRecipe *recipe = findScaling(name);
  precision.scaling = name;
  precision.blockLength = recipe ? recipe->blockLength : 0;
  precision.amaxHistory = recipe ? recipe->amaxHistory : 0;
  precision.amaxAlgorithm = precision.amaxHistory > 0 ? "max" : "";
}

/// What belongs to scales of earlier steps.
static void readHistory(MapReader &reader, PlanPrecision &precision) {
  precision.amaxHistory =
      reader.integer("amax_history", {1, kMostHistory}, precision.amaxHistory);
  precision.amaxAlgorithm = reader.choice(
      "amax_algorithm", {"max", "most_recent"}, precision.amaxAlgorithm);
  if (!reader.boolean("amax_over_dp", true))
    reader.fail("amax_over_dp",
                "is false, but scales of earlier steps are shared over dp: "
                "with a history of its own each rank of dp would multiply "
                "other codes of one parameter, which no single device does; "
                "scaling \"current\" has scales that dp does not share");
}

void detail::readScaling(std::optional<MapReader> &reader,
                         PlanPrecision &precision) {
  std::vector<std::string> names;
  for (const ScalingRecipe &each : kRecipes)
    if (each.recipe == precision.recipe)
      names.emplace_back(each.name);
  if (names.empty())
    return;
  setScaling(precision, reader ? reader->choice("scaling", names, names.front())
                               : names.front());
  const ScalingRecipe *recipe = findScaling(precision.scaling);
  if (!reader || !recipe)
    return;
  if (recipe->amaxHistory > 0)
    readHistory(*reader, precision);
  if (recipe->blockLength == 0)
    return;
  const std::int64_t length = recipe->blockLength;
  precision.blockLength =
      reader->integer("block_length", IntegerRange::positive(), length);
  if (precision.blockLength != length && !recipe->hasAnyLength)
    reader->fail("block_length",
                 fmt::format("is {}, but scaling \"{}\" has blocks of {}",
                             precision.blockLength, recipe->name, length));
  const auto chosen = static_cast<std::uint64_t>(precision.blockLength);
  if (recipe->mixesTokens && (!std::has_single_bit(chosen) || chosen > 32))
    reader->fail("block_length",
                 fmt::format("is {}, but scaling \"{}\" mixes as many tokens: "
                             "expected 1, 2, 4, 8, 16 or 32",
                             precision.blockLength, recipe->name));
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
  recipe.amaxHistory = precision.amaxHistory;
  recipe.isMostRecent = precision.amaxAlgorithm == "most_recent";
  return recipe;
}

std::vector<std::int64_t> heddle::plainLayers(const Plan &plan,
                                              const ParameterFamily &family) {
  std::vector<std::int64_t> layers;
  for (std::int64_t layer = 0; layer < family.layers; ++layer)
    if (std::ranges::any_of(plan.precision.exceptions, [&](const auto &each) {
          return Glob::isMatch(each.match, family.instanceName(layer));
        }))
      layers.push_back(layer);
  return layers;
}

std::string heddle::computeFormat(std::string_view recipe) {
  return std::string(recipe == "fp8" || recipe == "nvfp4" ? "bf16" : recipe);
}
