#include "heddle/Model/ModelConfig.h"
#include "heddle/Model/Parameters.h"
#include "test/fuzz/Tree.h"

#include <cmath>

using namespace heddle;

// What is taken can be counted: sizes are bounded where they are read.
static void run(std::string_view input) {
  const Result<Document> document =
      Document::parse(input, "config.json", Document::Syntax::Json);
  if (!fuzz::accepted(document))
    return;
  const Result<ModelConfig> model = readModelConfig(*document);
  if (!fuzz::accepted(model))
    return;
  fuzz::expect(parameterCount(*model) > 0, "a model has parameters");
  fuzz::expect(activeParameterCount(*model) <= parameterCount(*model),
               "a token goes through at most all parameters");
  fuzz::expect(std::isfinite(modelFlopsPerStep(*model, 1, 1)),
               "FLOPs are a number");
  if (const auto why = whyNotCompiled(*model))
    fuzz::checkMessage(*why);
}

static fuzz::Announce target{{"Model", run, fuzz::mutateJson}};
