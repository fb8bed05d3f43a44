#include "tools/heddle/Inputs.h"

#include "tools/heddle/Offload.h"

#include "heddle/Cost/RankSizes.h"
#include "heddle/Schedule/CheckStages.h"

using namespace heddle;
using namespace heddle::tool;

/// Reads a file where its path is given; the first error stays.
template <class T, class Read>
static void readOptional(const std::string &path, std::optional<T> &to,
                         std::optional<Error> &error, Read read) {
  if (path.empty() || error)
    return;
  Result<T> value = read(path);
  if (value)
    to = std::move(*value);
  else
    error = value.error();
}

Result<Inputs> tool::readInputs(const InputPaths &paths) {
  Result<ModelConfig> model = readModelConfig(paths.model);
  if (!model)
    return model.error();
  Inputs inputs;
  inputs.model = std::move(*model);
  std::optional<Error> error;
  readOptional(paths.cluster, inputs.cluster, error,
               [](const std::string &path) { return readCluster(path); });
  readOptional(paths.train, inputs.train, error,
               [](const std::string &path) { return readTrainSettings(path); });
  readOptional(paths.plan, inputs.plan, error, [&](const std::string &path) {
    return readPlan(path, &inputs.model);
  });
  if (error)
    return *error;
  if (inputs.plan)
    if (Result<void> rows = checkScheduleText(*inputs.plan); !rows)
      return Error{paths.plan + ": " + rows.message()};
  if (inputs.train)
    inputs.model.dropout = effectiveDropout(inputs.model, *inputs.train);
  return inputs;
}

Result<std::vector<std::string>> tool::checkInputs(const Inputs &inputs) {
  Result<std::vector<std::string>> warnings =
      checkTrainSettings(inputs.model, *inputs.train);
  if (!warnings)
    return warnings.error();
  Result<std::vector<PlanWarning>> more =
      checkPlan(*inputs.plan, inputs.model, *inputs.train,
                inputs.cluster ? &*inputs.cluster : nullptr);
  if (!more)
    return more.error();
  Result<std::vector<PlanWarning>> ofStages = checkStages(*inputs.plan);
  if (!ofStages)
    return ofStages.error();
  more->insert(more->end(), ofStages->begin(), ofStages->end());
  if (Result<void> checked =
          checkOffload(inputs.model, *inputs.train, *inputs.plan);
      !checked)
    return checked.error();
  for (const PlanWarning &warning : *more)
    warnings->push_back(warning.message);
  if (std::optional<std::string> warning = offloadWarning(inputs))
    warnings->push_back(*warning);
  return warnings;
}

Result<Plan> tool::oneDevicePlan(const Plan &plan, const ModelConfig &model) {
  // A tensor's scale is of one micro-batch: these are the plan's, in order.
  const bool asDealt = !plan.precision.scaling.empty();
  const std::int64_t ranks = plan.axisSize("dp");
  std::string text = fmt::format(
      R"({{"version": 1, "mesh": [["pp", 1], ["dp", 1], ["cp", 1], ["tp", 1]],)"
      R"( "micro_batch": {}, "micro_batches": {}, "tensor": "megatron"}})",
      asDealt ? plan.microBatch : ranks * plan.microBatch,
      asDealt ? ranks * plan.microBatches : plan.microBatches);
  Result<Document> document =
      Document::parse(text, "one device", Document::Syntax::Json);
  if (!document)
    return document.error();
  Result<Plan> one = readPlan(*document, &model);
  if (one)
    one->precision = plan.precision; // the same rounding
  return one;
}
