#include "tools/heddle/ExplainCost.h"

#include "tools/heddle/Memory.h"

#include "heddle/Cost/Flops.h"
#include "heddle/Cost/LiveMemory.h"
#include "heddle/Cost/Traffic.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

using namespace heddle;
using namespace heddle::tool;
using json = nlohmann::ordered_json;

static const char *kindName(CollectiveKind kind) {
  switch (kind) {
  case CollectiveKind::AllReduce:
    return "all_reduce";
  case CollectiveKind::AllGather:
    return "all_gather";
  case CollectiveKind::ReduceScatter:
    return "reduce_scatter";
  }
  return "";
}

/// The plan with whole sequences between blocks.
static Plan withWholeSequences(Plan plan) {
  for (PlanRule &rule : plan.tensor.values)
    rule.split.erase("s");
  return plan;
}

static json savedJson(const ModelConfig &model, const TrainSettings &train,
                      const Plan &plan, const RankSizes &sizes) {
  std::vector<SavedValue> whole;
  if (auto other = rankSizes(model, train, withWholeSequences(plan)))
    whole = savedPerLayer(model, *other);
  json saved = json::array();
  for (const SavedValue &value : savedPerLayer(model, sizes)) {
    json entry = {
        {"name", value.name}, {"bytes", value.bytes}, {"reason", value.reason}};
    for (const SavedValue &other : whole)
      if (other.name == value.name)
        entry["bytes_whole_sequences"] = other.bytes;
    saved.push_back(entry);
  }
  return saved;
}

/// Masks of dropout are drawn again in backward; what they would take if they
/// were saved.
static json masksJson(const ModelConfig &model, const RankSizes &sizes) {
  json masks = json::array();
  for (const SavedValue &mask : masksDrawnAgain(model, sizes))
    masks.push_back({{"name", mask.name},
                     {"bytes", 0},
                     {"bytes_if_saved", mask.bytes},
                     {"layers", mask.entries}});
  return masks;
}

json tool::costJson(const ModelConfig &model, const TrainSettings &train,
                    const Plan &plan) {
  Result<RankSizes> sizes = rankSizes(model, train, plan);
  if (!sizes)
    return {{"computed", false}, {"reason", sizes.message()}};
  FlopCount flops = stepFlops(model, *sizes);
  json collectives = json::array();
  for (const StepCollective &each : stepCollectives(*sizes))
    collectives.push_back({{"cause", each.cause},
                           {"kind", kindName(each.kind)},
                           {"axes", each.axes},
                           {"calls", each.calls},
                           {"bytes", each.bytes}});
  return {{"computed", true},
          {"gemm_flops", flops.products},
          {"attention_flops", flops.attention},
          {"live_peak_bytes", liveMemory(model, train, *sizes).peakBytes()},
          {"tokens_times_hidden", sizes->tokens() * sizes->d},
          {"saved_per_layer", savedJson(model, train, plan, *sizes)},
          {"dropout_masks", masksJson(model, *sizes)},
          {"collectives", collectives}};
}

static void printSaved(const json &cost) {
  fmt::print("\nsaved by each layer for backward, bytes of a rank and "
             "micro-batch\n");
  fmt::print("  {:10} {:>14} {:>22}  {}\n", "value", "bytes",
             "with whole sequences", "for");
  std::int64_t sum = 0, whole = 0;
  for (const json &value : cost["saved_per_layer"]) {
    const std::int64_t bytes = value["bytes"],
                       other = value.value("bytes_whole_sequences", bytes);
    sum += bytes;
    whole += other;
    fmt::print("  {:10} {:>14} {:>22}  {}\n", value["name"].get<std::string>(),
               bytes, other, value["reason"].get<std::string>());
  }
  // As papers count it: s tokens, b sequences, hidden size h.
  const double unit = cost["tokens_times_hidden"];
  fmt::print("  {:10} {:>14} {:>22}  {:.2f} sbh, {:.2f} sbh\n", "all", sum,
             whole, double(sum) / unit, double(whole) / unit);
}

static void printMasks(const json &masks) {
  if (masks.empty())
    return;
  fmt::print("\nmasks of dropout: 0 bytes, drawn again from seed, layer and "
             "place; saved they would take\n");
  for (const json &mask : masks)
    fmt::print("  {:16} {:>14} in each of {}\n",
               mask["name"].get<std::string>(),
               mask["bytes_if_saved"].get<std::int64_t>(),
               mask["layers"].get<std::int64_t>());
}

void tool::printCost(const json &cost) {
  if (!cost["computed"]) {
    fmt::print("\ncost formulas: not computed: {}\n",
               cost["reason"].get<std::string>());
    return;
  }
  printSaved(cost);
  printMasks(cost["dropout_masks"]);
  fmt::print("\ncollectives of a step, by cost formulas\n");
  fmt::print("  {:44} {:14} {:16} {:>7} {:>16}\n", "cause", "kind", "axes",
             "calls", "bytes sent");
  for (const json &each : cost["collectives"])
    fmt::print(
        "  {:44} {:14} {:16} {:>7} {:>16.0f}\n",
        each["cause"].get<std::string>(), each["kind"].get<std::string>(),
        fmt::format(
            "{}", fmt::join(each["axes"].get<std::vector<std::string>>(), " ")),
        each["calls"].get<std::int64_t>(), each["bytes"].get<double>());
  fmt::print("{:.6g} FLOPs of a rank in products, {:.6g} in attention; {} "
             "live at the peak\n",
             cost["gemm_flops"].get<double>(),
             cost["attention_flops"].get<double>(),
             describeBytes(cost["live_peak_bytes"].get<double>()));
}
