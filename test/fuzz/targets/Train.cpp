#include "heddle/Model/TrainSettings.h"
#include "test/fuzz/Tree.h"

#include <cmath>

using namespace heddle;

static void run(std::string_view input) {
  const Result<Document> document =
      Document::parse(input, "train.yaml", Document::Syntax::Yaml);
  if (!fuzz::accepted(document))
    return;
  const Result<TrainSettings> train = readTrainSettings(*document);
  if (!fuzz::accepted(train))
    return;
  for (const int64_t step : {int64_t(1), int64_t(1000), int64_t(1) << 40})
    fuzz::expect(
        std::isfinite(learningRate(train->optimizer, train->schedule, step)),
        "a learning rate is a number");
  const auto fits = checkTrainSettings(ModelConfig(), *train);
  if (fuzz::accepted(fits))
    for (const std::string &warning : *fits)
      fuzz::checkMessage(warning);
}

static fuzz::Announce target{{"Train", run, fuzz::mutateYaml}};
