#include "tools/heddle/Reasons.h"

#include <fmt/format.h>

using namespace heddle;
using namespace heddle::tool;
using json = nlohmann::ordered_json;

json tool::decisionsJson(const std::vector<PlanDecision> &decisions) {
  json list = json::array();
  for (const PlanDecision &decision : decisions) {
    json one = {{"key", planKeyName(decision.key)},
                {"choice", decision.choice},
                {"runner_up", nullptr},
                {"cost_seconds", nullptr},
                {"cost_bytes", nullptr}};
    if (!decision.runnerUp.empty()) {
      one["runner_up"] = decision.runnerUp;
      one["cost_seconds"] = decision.costSeconds;
      one["cost_bytes"] = decision.costBytes;
      one["runner_up_plan"] = decision.point.text();
    }
    list.push_back(one);
  }
  return list;
}

void tool::printDecisions(const json &decisions) {
  if (decisions.empty())
    return;
  fmt::print("\nwhy: each choice, and what the best plan with another one "
             "costs: seconds of a step, bytes at the peak; below 0: it has the "
             "advantage\n");
  for (const json &decision : decisions) {
    const std::string key = decision["key"], choice = decision["choice"];
    if (decision["runner_up"].is_null())
      fmt::print("  {:13} {:18} nothing else fits\n", key, choice);
    else
      fmt::print("  {:13} {:18} {:18} {:+.3g} s {:+.1f} GiB  {}\n", key, choice,
                 decision["runner_up"].get<std::string>(),
                 decision["cost_seconds"].get<double>(),
                 decision["cost_bytes"].get<double>() / (1 << 30),
                 decision["runner_up_plan"].get<std::string>());
  }
}
