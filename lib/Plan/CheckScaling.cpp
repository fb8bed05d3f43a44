// What must hold of a plan whose formats need scales.

#include "PlanRules.h"
#include "Refusals.h"

#include "heddle/Plan/Scaling.h"
#include "heddle/Support/Glob.h"

#include <algorithm>

using namespace heddle;
using namespace heddle::detail;

/// Whether products with it are scaled: matrices of a layer.
static bool isScaled(const ParameterFamily &family) {
  return family.segment == Segment::Block && family.shape.size() > 1 &&
         std::ranges::count(splitWords(family.letters), "d") == 1;
}

static Result<void> checkException(const PlanPrecisionException &exception,
                                   const PlanPrecision &precision,
                                   const ModelConfig &model) {
  if (exception.compute != precision.compute)
    return notSupported(
        fmt::format("precision.exceptions: compute \"{}\" of \"{}\"",
                    exception.compute, exception.match),
        fmt::format("set it to \"{}\", what recipe \"{}\" computes in",
                    precision.compute, precision.recipe));
  bool isUsed = false;
  std::vector<std::string> names;
  for (const ParameterFamily &family : parameters(model)) {
    if (!isScaled(family))
      continue;
    names.push_back(family.instanceName(0));
    for (std::int64_t layer = 0; layer < family.layers; ++layer)
      isUsed |= Glob::isMatch(exception.match, family.instanceName(layer));
  }
  if (!isUsed)
    return refuse("precision.exceptions: \"{}\" matches no parameter whose "
                  "products are scaled; these are, of layer 0: {}",
                  exception.match, fmt::join(names, ", "));
  return {};
}

/// A block's numbers lie on one rank: else its scale would depend on the plan.
/// A matrix has rows and columns of the factors on both sides of its `d`.
static Result<void> checkBlocks(const Plan &plan, const ModelConfig &model,
                                const ParameterFamily &family,
                                std::int64_t length) {
  const ReshardMesh mesh = meshOfPlan(plan, model);
  Result<PlanDims> dims = parameterLayout(plan, model, family);
  if (!dims)
    return {}; // checkParameterRules says why
  const std::map<std::string, std::int64_t> padded = paddedSizes(plan, model);
  const std::vector<std::string> factors = splitWords(family.letters);
  std::int64_t run = 1;
  bool isCut = false;
  std::string side;
  for (std::size_t dim = factors.size(); dim-- > 0;) {
    if (dim + 1 < factors.size() &&
        (factors[dim] == "d") != (factors[dim + 1] == "d"))
      run = 1, isCut = false, side.clear();
    run *= padded.at(factors[dim]);
    side = factors[dim] + (side.empty() ? "" : " ") + side;
    std::int64_t ranks = 1;
    for (const std::string &axis : (*dims)[dim])
      for (const auto &[name, size] : mesh.axes)
        ranks *= name == axis ? size : 1;
    if (ranks == 1 || isCut)
      continue;
    isCut = true;
    run /= ranks;
    if (run % length != 0)
      return refuse(
          "precision recipe \"{}\" with scaling \"{}\": a scale belongs to {} "
          "numbers along '{}' of \"{}\", but each of {} ranks of {} holds {} "
          "of them, no whole blocks; cut it over fewer ranks, or set "
          "precision.recipe to \"fp8\" with scaling \"current\"",
          plan.precision.recipe, plan.precision.scaling, length, side,
          family.instanceName(0), ranks, fmt::join((*dims)[dim], ", "), run);
    run *= ranks;
  }
  return {};
}

Result<void> detail::checkScaling(const Plan &plan, const ModelConfig &model,
                                  std::int64_t length) {
  const PlanPrecision &precision = plan.precision;
  const std::optional<ScalingRecipe> recipe = scalingOf(precision);
  if (!recipe && !precision.exceptions.empty())
    return notSupported(
        fmt::format("precision.exceptions in recipe \"{}\"", precision.recipe),
        "leave them empty");
  if (!recipe)
    return {};
  if (paddedLength(plan, model, length) != length)
    return notSupported(
        fmt::format("precision recipe \"{}\" with sequence_length {} stored as "
                    "{} where sequences are cut (what is padding would count "
                    "in scales)",
                    precision.recipe, length,
                    paddedLength(plan, model, length)),
        "choose a multiple of tp, or set sequence_parallel to false");
  for (const PlanPrecisionException &exception : precision.exceptions)
    if (Result<void> done = checkException(exception, precision, model); !done)
      return done;
  for (const ParameterFamily &family : parameters(model))
    if (recipe->blockLength > 0 && isScaled(family) &&
        std::ssize(plainLayers(plan, family)) < family.layers)
      if (Result<void> done =
              checkBlocks(plan, model, family, recipe->blockLength);
          !done)
        return done;
  return {};
}
