//===- Prediction.cpp - what lib/Cost says of a program -------------------===//

#include "tools/heddle/Prediction.h"

#include "heddle/Cost/Flops.h"
#include "heddle/Cost/LiveMemory.h"
#include "heddle/Cost/Traffic.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <set>

using namespace heddle;
using nlohmann::json;

static json predictRank(const ModelConfig &model, const TrainSettings &train,
                        const RankSizes &sizes) {
  FlopCount flops = stepFlops(model, sizes);
  json axes = json::object();
  for (const auto &[list, use] : trafficByAxes(stepCollectives(sizes)))
    axes[fmt::format("{}", fmt::join(list, ","))] = {{"calls", use.calls},
                                                     {"bytes", use.bytes}};
  return {{"gemm_flops", flops.products},
          {"attention_flops", flops.attention},
          {"axes", axes},
          {"live_peak_bytes", liveMemory(model, train, sizes).peakBytes()}};
}

json tool::predictCost(const ModelConfig &model, const TrainSettings &train,
                       const Plan &plan) {
  Result<std::vector<RankSizes>> places = placeSizes(model, train, plan);
  if (!places)
    return json{
        {"version", 1}, {"computed", false}, {"reason", places.message()}};
  json list = json::array();
  for (const RankSizes &sizes : *places)
    list.push_back(predictRank(model, train, sizes));
  return json{{"version", 1}, {"computed", true}, {"places", list}};
}

/// Sums of the same terms in another order.
static bool isEqual(double a, double b) {
  return std::abs(a - b) <= 1e-12 * std::max(std::abs(a), std::abs(b));
}

/// Bytes sent over a list of axes; 0 where there is no collective over it.
static double bytesOver(const json &axes, const std::string &list) {
  return axes.contains(list) ? axes.at(list).at("bytes").get<double>() : 0;
}

std::string tool::findMisprediction(const json &predicted, const json &trace,
                                    const json &memory) {
  auto differs = [](const std::string &what, double formula, double program) {
    return fmt::format("{}: lib/Cost says {:.17g}, the program has {:.17g}",
                       what, formula, program);
  };
  for (const char *key : {"gemm_flops", "attention_flops"})
    if (!isEqual(predicted.at(key), trace.at(key)))
      return differs(key, predicted.at(key), trace.at(key));
  std::set<std::string> lists;
  for (const json *axes : {&predicted.at("axes"), &trace.at("axes")})
    for (const auto &[list, use] : axes->items())
      lists.insert(list);
  for (const std::string &list : lists) {
    double formula = bytesOver(predicted.at("axes"), list),
           program = bytesOver(trace.at("axes"), list);
    if (!isEqual(formula, program))
      return differs("bytes over " + list, formula, program);
  }
  if (memory.contains("live_peak_bytes") &&
      predicted.at("live_peak_bytes") != 0 &&
      predicted.at("live_peak_bytes") != memory.at("live_peak_bytes"))
    return differs("live bytes at the peak", predicted.at("live_peak_bytes"),
                   memory.at("live_peak_bytes"));
  return "";
}
