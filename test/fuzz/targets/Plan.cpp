#include "heddle/Plan/Plan.h"
#include "heddle/Plan/PlanPoint.h"
#include "heddle/Schedule/CheckStages.h"
#include "test/fuzz/Tree.h"

using namespace heddle;

static const ModelConfig &model() {
  static const ModelConfig config = [] {
    ModelConfig made;
    made.hidden = 64;
    made.layers = 4;
    made.kvHeads = 2;
    made.queryHeadsPerKvHead = 2;
    made.headSize = 16;
    made.ffn = 128;
    made.vocabulary = 96;
    made.maxPositions = 64;
    return made;
  }();
  return config;
}

static TrainSettings settings(const Plan &plan) {
  TrainSettings train;
  train.sequenceLength = 32;
  train.globalBatch = plan.globalBatch();
  train.precision = {"fp32", "bf16", "fp16", "fp8"};
  train.optimizer.lr = 0.1;
  return train;
}

// A plan that is read is written and read again as the same, then checked.
static void run(std::string_view input) {
  const Result<Document> document =
      Document::parse(input, "plan.json", Document::Syntax::Json);
  if (!fuzz::accepted(document))
    return;
  const Result<Plan> plan = readPlan(*document, &model());
  if (!fuzz::accepted(plan))
    return;
  const std::string text = writePlan(*plan);
  const auto written = Document::parse(text, "plan", Document::Syntax::Json);
  fuzz::expect(bool(written), "a plan is written as JSON", text);
  const Result<Plan> again = readPlan(*written);
  fuzz::expect(bool(again), "a plan that is written is read",
               again ? "" : again.message());
  fuzz::expect(*again == *plan, "a plan comes back", text);
  const auto checked = checkPlan(*plan, model(), settings(*plan));
  if (!fuzz::accepted(checked))
    return;
  for (const PlanWarning &warning : *checked)
    fuzz::checkMessage(warning.message);
  if (!fuzz::accepted(checkScheduleText(*plan)))
    return;
  const auto stages = checkStages(*plan);
  if (fuzz::accepted(stages))
    for (const PlanWarning &warning : *stages)
      fuzz::checkMessage(warning.message);
  (void)fuzz::accepted(pointOf(*plan, model()));
}

static fuzz::Announce target{{"Plan", run, fuzz::mutateJson}};
