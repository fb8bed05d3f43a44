//===- VerifyAnswer.cpp - Is it equal, in words and as JSON ---------------===//

#include "tools/heddle/Verify.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

using namespace heddle;
using namespace heddle::tool;
using interpret::Difference;
using json = nlohmann::ordered_json;

double Pair::relative() const {
  return plan == reference ? 0
                           : std::fabs(plan - reference) / std::fabs(reference);
}

static bool areWithin(const std::vector<Difference> &list, double tolerance,
                      const std::set<std::string> &unjudged = {}) {
  return std::all_of(list.begin(), list.end(), [&](const Difference &each) {
    return each.relative <= tolerance || // false for NaN
           (unjudged.count(each.name) && std::isfinite(each.relative));
  });
}

bool VerifyAnswer::isEqual() const {
  return faults.empty() && count.plan == count.reference &&
         std::all_of(losses.begin(), losses.end(),
                     [&](const Pair &loss) {
                       return loss.relative() <= lossTolerance;
                     }) &&
         norm.relative() <= gradientTolerance &&
         areWithin(gradients, gradientTolerance) &&
         areWithin(parameters, parameterTolerance, unjudged);
}

std::string VerifyAnswer::describe(unsigned atMost) const {
  std::string text = fmt::format("{:>14} {:>16} {:>16} {:>10} {:>10}\n", "",
                                 "plan", "one device", "relative", "allowed");
  auto row = [&](const std::string &name, const Pair &pair, double tolerance) {
    text += fmt::format("{:>14} {:16.9g} {:16.9g} {:10.2e} {:10.0e}\n", name,
                        pair.plan, pair.reference, pair.relative(), tolerance);
  };
  for (size_t i = 0; i < losses.size(); ++i)
    row(losses.size() == 1 ? "loss" : fmt::format("loss {}", i + 1), losses[i],
        lossTolerance);
  row("gradient norm", norm, gradientTolerance);
  row("counted labels", count, 0);
  for (const std::string &fault : faults)
    text += fmt::format("fault: {}\n", fault);
  for (auto [kind, list, tolerance] :
       {std::tuple("gradient", &gradients, gradientTolerance),
        std::tuple("parameter", &parameters, parameterTolerance)}) {
    text += fmt::format("\n{:56} {:>10} {:>10}   allowed {:.0e}\n",
                        fmt::format("{}, worst of {}", kind, list->size()),
                        "relative", "largest", tolerance);
    for (const Difference &each : *list) {
      if (&each - list->data() == atMost)
        break;
      text += fmt::format("{:56} {:10.2e} {:10.2e}{}\n", each.name,
                          each.relative, each.largest,
                          each.relative <= tolerance ? ""
                          : list == &parameters && unjudged.count(each.name)
                              ? "   its gradient is rounding"
                              : "   differs");
    }
  }
  if (firstDifferentPhase)
    text +=
        fmt::format("\nfirst phase that differs: {}\n", *firstDifferentPhase);
  return text + (isEqual() ? "\nequal\n" : "\nnot equal\n");
}

static json listJson(const std::vector<Difference> &list) {
  json result = json::array();
  for (const Difference &each : list)
    result.push_back({{"name", each.name},
                      {"relative", each.relative},
                      {"largest", each.largest}});
  return result;
}

static json pairJson(const Pair &pair) {
  return {{"plan", pair.plan}, {"reference", pair.reference}};
}

std::string VerifyAnswer::json() const {
  nlohmann::ordered_json loss = pairJson(losses.front());
  loss["relative"] = losses.front().relative();
  nlohmann::ordered_json steps = nlohmann::ordered_json::array();
  for (const Pair &each : losses)
    steps.push_back({{"loss", pairJson(each)}});
  nlohmann::ordered_json answer = {{"equal", isEqual()},
                                   {"mode", mode},
                                   {"loss", loss},
                                   {"gradient_norm", pairJson(norm)},
                                   {"counted_labels", int64_t(count.plan)},
                                   {"steps", steps},
                                   {"gradients", listJson(gradients)},
                                   {"parameters", listJson(parameters)},
                                   {"replicas_equal", faults.empty()},
                                   {"faults", faults},
                                   {"tolerance",
                                    {{"loss", lossTolerance},
                                     {"gradient", gradientTolerance},
                                     {"parameter", parameterTolerance}}},
                                   {"first_different_phase", nullptr}};
  if (firstDifferentPhase)
    answer["first_different_phase"] = *firstDifferentPhase;
  return answer.dump();
}
