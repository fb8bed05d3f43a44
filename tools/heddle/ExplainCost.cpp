#include "tools/heddle/ExplainCost.h"

#include "tools/heddle/Memory.h"

#include "heddle/Cost/Flops.h"
#include "heddle/Cost/LiveMemory.h"
#include "heddle/Cost/Traffic.h"
#include "heddle/Model/Parameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

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
  case CollectiveKind::AllToAll:
    return "all_to_all";
  case CollectiveKind::Send:
    return "send";
  }
  return "";
}

/// The plan with whole sequences between blocks.
static Plan withWholeSequences(Plan plan) {
  for (PlanRule &rule : plan.tensor.values)
    rule.split.erase("s");
  return plan;
}

/// What a layer of a choice saves, item by item.
static json savedJson(const LayersUnder &layers,
                      const std::vector<SavedValue> &whole) {
  json saved = json::array();
  for (const SavedValue &value : layers.saved) {
    json entry = {{"name", value.name},
                  {"bytes", value.bytes},
                  {"reason", value.reason},
                  {"statistic", value.isStatistic}};
    for (const SavedValue &other : whole)
      if (other.name == value.name)
        entry["bytes_whole_sequences"] = other.bytes;
    saved.push_back(entry);
  }
  return saved;
}

static std::string choiceText(const PlanRecompute &choice) {
  switch (choice.kind) {
  case PlanRecomputeKind::Values:
    return choice.values.empty()
               ? "nothing"
               : fmt::format("{}", fmt::join(choice.values, " "));
  case PlanRecomputeKind::Selective:
    return choice.prune ? "selective" : "selective, what nothing reads too";
  case PlanRecomputeKind::Full:
    return choice.prune ? "full" : "full, what nothing reads too";
  case PlanRecomputeKind::Budget:
    return fmt::format("what fits into {} bytes", choice.budgetBytes);
  }
  return "";
}

static std::int64_t bytesOf(const std::vector<SavedValue> &values) {
  std::int64_t bytes = 0;
  for (const SavedValue &value : values)
    bytes += value.bytes;
  return bytes;
}

static std::int64_t statisticsOf(std::vector<SavedValue> values) {
  std::erase_if(values,
                [](const SavedValue &value) { return !value.isStatistic; });
  return bytesOf(values);
}

/// Per choice: its layers, what one saves and what it does not, and what that
/// costs in one micro-batch.
static json recomputeJson(const ModelConfig &model, const TrainSettings &train,
                          const Plan &plan, const RankSizes &sizes) {
  std::vector<SavedValue> whole;
  if (auto other = rankSizes(model, train, withWholeSequences(plan)))
    whole = savedPerLayer(model, *other);
  const std::vector<SavedValue> all = savedPerLayer(model, sizes);
  json list = json::array();
  for (const LayersUnder &layers : sizes.recompute) {
    json freed = json::array(), again = json::array();
    for (const SavedValue &value : all)
      if (!layers.saves(value.name))
        freed.push_back({{"name", value.name}, {"bytes", value.bytes}});
    for (const BlockOp &op : layers.again)
      again.push_back({{"value", op.results.front().name},
                       {"flops", op.products + op.attention},
                       {"moves", op.moves ? op.moves->cause : ""}});
    list.push_back({{"choice", choiceText(layers.choice)},
                    {"layers", layers.layers},
                    {"saved", savedJson(layers, whole)},
                    {"saved_bytes", bytesOf(layers.saved)},
                    {"statistics_bytes", statisticsOf(layers.saved)},
                    {"saved_bytes_without", bytesOf(all)},
                    {"not_saved", freed},
                    {"again", again},
                    {"flops", flopsAgain(layers).total()}});
  }
  return list;
}

/// What a micro-batch of one layer takes, as modelFlopsPerStep counts it:
/// attention over the whole square, or the window's part of it.
static double asModelFlops(const FlopCount &count, const ModelConfig &model,
                           const RankSizes &sizes) {
  const std::int64_t seen =
      std::min(model.slidingWindow.value_or(sizes.length), sizes.length);
  const std::int64_t pairs = attentionPairs(sizes.length, model.slidingWindow);
  return count.products + count.attention *
                              static_cast<double>(sizes.length * seen) /
                              static_cast<double>(pairs);
}

/// What publications count of what is computed again under a choice that is not
/// "full": of core attention its forward and backward.
static FlopCount publishedAgain(const LayersUnder &layers) {
  FlopCount counted = flopsAgain(layers);
  counted.attention *= 3;
  for (const BlockOp &op : layers.again)
    if (op.makesScores) // two products forward, four backward
      counted.products += 5 * op.products;
    else if (op.readsProbabilities)
      counted.products -= op.products;
  return counted;
}

/// What computing again adds to model FLOPs, and what publications count for
/// the same choice: all of a layer's forward for "full", and for core attention
/// its forward and backward (Korthikanti et al. 2022: 12 b s^2 h in place of
/// the 4 that run).
static json addedFlopsJson(const ModelConfig &model, const Plan &plan,
                           const std::vector<RankSizes> &places) {
  double again = 0, published = 0;
  bool isFull = false;
  for (const RankSizes &sizes : places)
    for (const LayersUnder &layers : sizes.recompute) {
      std::int64_t times = layers.layers * sizes.microBatchesOfCopy();
      for (const auto &[axis, ranks] : sizes.mesh)
        times *= ranks;
      const double each =
          static_cast<double>(times) / static_cast<double>(places.size());
      FlopCount counted = flopsAgain(layers);
      again += each * asModelFlops(counted, model, sizes);
      isFull |= layers.choice.kind == PlanRecomputeKind::Full;
      if (layers.choice.kind == PlanRecomputeKind::Full)
        counted = layerFlops(model, sizes).forward;
      else
        counted = publishedAgain(layers);
      published += each * asModelFlops(counted, model, sizes);
    }
  const double all =
      modelFlopsPerStep(model, plan.globalBatch(), places.front().length);
  return {{"fraction_of_model_flops", again / all},
          {"published_fraction", published / all},
          {"counts", isFull
                         ? "all of a layer's forward, also what nothing reads"
                         : "forward and backward of core attention, of "
                           "which no more than forward runs again"}};
}

/// Scores' softmax, and with dropout what is left of it: of one layer and
/// micro-batch. Attention is one kernel and never writes them.
static json neverWrittenJson(const ModelConfig &model, const Plan &plan,
                             const RankSizes &sizes) {
  if (sizes.unfusedAttention)
    return json::array();
  const std::int64_t elementBytes = plan.precision.compute == "fp32" ? 4 : 2;
  const std::int64_t bytes =
      sizes.tokens() * sizes.s * sizes.g * sizes.r * elementBytes;
  json list = {{{"name", "probabilities"}, {"bytes_if_saved", bytes}}};
  if (model.dropout.attention > 0)
    list.push_back(
        {{"name", "probabilities_dropped"}, {"bytes_if_saved", bytes}});
  return list;
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

/// Model states of a rank, and what is live of them beside that at the peak.
static json statesJson(const LiveMemory &memory, const Plan &plan) {
  const FramePeak &peak = memory.peak();
  return {{"parameters", memory.parameters},
          {"gradients", memory.gradients},
          {"optimizer", memory.optimizer},
          {"masters", memory.masters},
          {"gathered", peak.gatheredBytes},
          {"bucket", peak.bucketBytes},
          {"formats",
           {{"parameters", plan.precision.compute},
            {"gradients", plan.precision.gradients},
            {"optimizer", "fp32"},
            {"masters", "fp32"},
            {"gathered", plan.precision.compute},
            {"bucket", plan.precision.reduce}}}};
}

/// Bytes sent per list of axes and kind of collective, largest first.
static json volumesJson(const std::vector<StepCollective> &collectives) {
  std::map<std::pair<AxisList, CollectiveKind>, AxisTraffic> volumes;
  for (const StepCollective &each : collectives) {
    AxisTraffic &volume = volumes[{each.axes, each.kind}];
    volume.calls += each.calls;
    volume.bytes += each.bytes;
  }
  json result = json::array();
  for (const auto &[key, volume] : volumes)
    result.push_back({{"axes", key.first},
                      {"kind", kindName(key.second)},
                      {"calls", volume.calls},
                      {"bytes", volume.bytes}});
  std::stable_sort(result.begin(), result.end(),
                   [](const json &a, const json &b) {
                     return a["bytes"].get<double>() > b["bytes"].get<double>();
                   });
  return result;
}

/// How many of the bytes sent have work to hide behind that does not wait for
/// them: reductions in backward, parameters gathered ahead.
static json hiddenJson(const std::vector<StepCollective> &collectives) {
  double all = 0, hidden = 0;
  for (const StepCollective &each : collectives) {
    all += each.bytes;
    hidden += each.hiddenBytes();
  }
  return {{"bytes", hidden},
          {"of_bytes", all},
          {"share", all > 0 ? hidden / all : 0}};
}

/// The figures of a rank.
static json rankJson(const ModelConfig &model, const TrainSettings &train,
                     const Plan &plan, const RankSizes &sizes) {
  FlopCount flops = stepFlops(model, sizes);
  const LiveMemory memory = liveMemory(model, train, sizes);
  const json recompute = recomputeJson(model, train, plan, sizes);
  double again = 0;
  for (const LayersUnder &layers : sizes.recompute)
    again += flopsAgain(layers).total() *
             static_cast<double>(layers.layers * sizes.microBatchesOfCopy());
  const std::vector<StepCollective> list = stepCollectives(sizes);
  json collectives = json::array();
  for (const StepCollective &each : list)
    collectives.push_back({{"cause", each.cause},
                           {"kind", kindName(each.kind)},
                           {"axes", each.axes},
                           {"calls", each.calls},
                           {"bytes", each.bytes},
                           {"hidden_bytes", each.hiddenBytes()}});
  return {{"computed", true},
          {"gemm_flops", flops.products},
          {"attention_flops", flops.attention},
          {"live_peak_bytes", memory.peakBytes()},
          {"states", statesJson(memory, plan)},
          {"volumes", volumesJson(list)},
          {"hidden", hiddenJson(list)},
          {"tokens_times_hidden", sizes.tokens() * sizes.d},
          {"flops_again", again},
          {"saved_per_layer", recompute.front()["saved"]},
          {"recompute", recompute},
          {"dropout_masks", masksJson(model, sizes)},
          {"never_written", neverWrittenJson(model, plan, sizes)},
          {"collectives", collectives}};
}

/// Of the whole model, what a place over pp holds.
static json holdsJson(const Plan &plan, const RankSizes &sizes) {
  json layers = json::array();
  for (const PlanRange &range : plan.stages.layers[sizes.stages.place])
    layers.push_back(range.text());
  std::int64_t parameters = 0;
  for (const RankParameter &parameter : sizes.parameters)
    parameters += parameter.family.totalElements();
  return {{"place", sizes.stages.place},
          {"layers", layers},
          {"number_of_layers", sizes.layers},
          {"embedding", sizes.stages.hasEmbedding},
          {"head", sizes.stages.hasHead},
          {"parameters", parameters},
          {"in_flight", sizes.stages.sets}};
}

json tool::costJson(const ModelConfig &model, const TrainSettings &train,
                    const Plan &plan) {
  Result<std::vector<RankSizes>> places = placeSizes(model, train, plan);
  if (!places)
    return {{"computed", false}, {"reason", places.message()}};
  const json added = addedFlopsJson(model, plan, *places);
  if (!places->front().stages.areCut) {
    json rank = rankJson(model, train, plan, places->front());
    rank["added_flops"] = added;
    return rank;
  }
  json list = json::array();
  for (const RankSizes &sizes : *places) {
    list.push_back(holdsJson(plan, sizes));
    list.back().update(rankJson(model, train, plan, sizes));
  }
  return {{"computed", true}, {"added_flops", added}, {"places", list}};
}

static void printSaved(const json &cost, const json &layers) {
  fmt::print("\nsaved by each {}for backward, bytes of a rank and "
             "micro-batch\n",
             cost["recompute"].size() == 1
                 ? std::string("layer ")
                 : fmt::format("of {} layers that compute again: {}; ",
                               layers["layers"].get<std::int64_t>(),
                               layers["choice"].get<std::string>()));
  fmt::print("  {:10} {:>14} {:>22}  {}\n", "value", "bytes",
             "with whole sequences", "for");
  std::int64_t sum = 0, whole = 0;
  for (const json &value : layers["saved"]) {
    const std::int64_t bytes = value["bytes"],
                       other = value.value("bytes_whole_sequences", bytes);
    sum += bytes;
    whole += other;
    fmt::print("  {:10} {:>14} {:>22}  {}\n", value["name"].get<std::string>(),
               bytes, other, value["reason"].get<std::string>());
  }
  const std::int64_t statistics = layers["statistics_bytes"];
  // As papers count it: s tokens, b sequences, hidden size h.
  const double unit = cost["tokens_times_hidden"];
  fmt::print("  {:10} {:>14} {:>22}  {:.2f} sbh, {:.2f} sbh\n", "all", sum,
             whole, double(sum) / unit, double(whole) / unit);
  fmt::print(
      "  {:10} {:>14} {:>22}  numbers in fp32; without them {:.2f} sbh\n",
      "statistics", statistics, "", double(sum - statistics) / unit);
}

/// What a layer computes again, and what it does not save for that.
static void printAgain(const json &layers) {
  if (layers["again"].empty())
    return;
  std::vector<std::string> freed, again;
  for (const json &value : layers["not_saved"])
    freed.push_back(fmt::format("{} {}", value["name"].get<std::string>(),
                                value["bytes"].get<std::int64_t>()));
  for (const json &op : layers["again"])
    again.push_back(op["moves"] == ""
                        ? op["value"].get<std::string>()
                        : fmt::format("{} ({})", op["value"].get<std::string>(),
                                      op["moves"].get<std::string>()));
  const double before = layers["saved_bytes_without"],
               after = layers["saved_bytes"];
  fmt::print(
      "  computed again ({}): {}; {:.6g} FLOPs of a layer and "
      "micro-batch\n  not saved: {}; {:.1f} % less than the {:.0f} bytes "
      "of all\n",
      layers["choice"].get<std::string>(), fmt::join(again, ", "),
      layers["flops"].get<double>(), fmt::join(freed, ", "),
      100 * (1 - after / before), before);
}

static void printMasks(const json &masks) {
  if (masks.empty())
    return;
  fmt::print("\nmasks of dropout: 0 bytes, drawn again from "
             "seed, layer and "
             "place; saved they would take\n");
  for (const json &mask : masks)
    fmt::print("  {:16} {:>14} in each of {}\n",
               mask["name"].get<std::string>(),
               mask["bytes_if_saved"].get<std::int64_t>(),
               mask["layers"].get<std::int64_t>());
}

static void printStates(const json &states) {
  fmt::print("\nstates of a rank, bytes\n");
  const std::pair<const char *, const char *> lines[] = {
      {"parameters", ""},
      {"gradients", ""},
      {"optimizer", ""},
      {"masters", "of the optimizer's: what parameters are rounded from"},
      {"gathered", "whole parameters, at the peak"},
      {"bucket", "gradients on their way to be reduced, at the peak"}};
  for (auto [name, note] : lines)
    fmt::print("  {:10} {:>16} {:>12}  {:4}  {}\n", name,
               states[name].get<std::int64_t>(),
               describeBytes(states[name].get<double>()),
               states["formats"][name].get<std::string>(), note);
}

static std::string axesText(const json &entry) {
  return fmt::format(
      "{}", fmt::join(entry["axes"].get<std::vector<std::string>>(), " "));
}

static void printVolumes(const json &cost) {
  if (cost["volumes"].empty())
    return;
  fmt::print("\nsent by a rank in a step\n");
  for (const json &volume : cost["volumes"])
    fmt::print("  {:24} {:14} {:>7} calls {:>18.0f} bytes\n", axesText(volume),
               volume["kind"].get<std::string>(),
               volume["calls"].get<std::int64_t>(),
               volume["bytes"].get<double>());
  const json &hidden = cost["hidden"];
  fmt::print("{:.1f} % of these bytes have independent work to hide behind "
             "(reductions in backward, parameters gathered ahead); all other "
             "work waits for the rest\n",
             100 * hidden["share"].get<double>());
}

static std::string peakText(const json &cost) {
  const double bytes = cost["live_peak_bytes"];
  return bytes > 0 ? describeBytes(bytes) : "not known";
}

static void printPlace(const json &place) {
  const json &states = place["states"];
  double within = 0, others = 0;
  for (const json &each : place["collectives"])
    (each["kind"] == "send" ? others : within) += each["bytes"].get<double>();
  std::vector<std::string> layers;
  for (const json &range : place["layers"])
    layers.push_back(range == "" ? "-" : range.get<std::string>());
  fmt::print(
      "  {:>5} {:>6} {:4} {:>14} {:>10} {:>10} {:>10} {:>10} {:>9} {:>10}  "
      "{}\n",
      place["place"].get<std::int64_t>(),
      place["number_of_layers"].get<std::int64_t>(),
      fmt::format("{}{}", place["embedding"] ? "E" : "",
                  place["head"] ? "H" : ""),
      place["parameters"].get<std::int64_t>(),
      describeBytes(states["parameters"].get<double>() +
                    states["gradients"].get<double>() +
                    states["optimizer"].get<double>()),
      fmt::format("{:.4g}", place["gemm_flops"].get<double>() +
                                place["attention_flops"].get<double>()),
      describeBytes(others), describeBytes(within),
      place["in_flight"].get<std::int64_t>(), peakText(place),
      fmt::join(layers, " "));
}

/// A line for each place over pp, then the details of the fullest.
static void printPlaces(const json &places) {
  fmt::print("\nplaces over pp: what a rank of each has and does in a step\n");
  fmt::print(
      "  {:>5} {:>6} {:4} {:>14} {:>10} {:>10} {:>10} {:>10} {:>9} {:>10}  "
      "{}\n",
      "place", "layers", "ends", "parameters", "states", "FLOPs", "sent on",
      "sent here", "in flight", "live peak", "layers of chunks");
  for (const json &place : places)
    printPlace(place);
  fmt::print("  E: embedding, H: head; parameters: of the whole model; sent "
             "on: to stages at other places; sent here: in collectives; in "
             "flight: micro-batches, over all chunks\n");
  const json &fullest = *std::max_element(
      places.begin(), places.end(), [](const json &a, const json &b) {
        return a["live_peak_bytes"] < b["live_peak_bytes"];
      });
  fmt::print("\nplace {} in detail, the fullest (--json has all)\n",
             fullest["place"].get<std::int64_t>());
  tool::printCost(fullest);
}

static void printAdded(const json &added) {
  const double fraction = added["fraction_of_model_flops"],
               published = added["published_fraction"];
  if (fraction == 0)
    return;
  fmt::print("computing again adds {:.2f} % to model FLOPs, attention over the "
             "whole square as these count it",
             100 * fraction);
  if (std::abs(published - fraction) > 1e-3 * published)
    fmt::print("; published figures for that are {:.2f} %: they count {}",
               100 * published, added["counts"].get<std::string>());
  fmt::print("\n");
}

void tool::printCost(const json &cost) {
  if (!cost["computed"]) {
    fmt::print("\ncost formulas: not computed: {}\n",
               cost["reason"].get<std::string>());
    return;
  }
  if (cost.contains("places")) {
    printPlaces(cost["places"]);
    printAdded(cost["added_flops"]);
    return;
  }
  printStates(cost["states"]);
  printVolumes(cost);
  for (const json &layers : cost["recompute"])
    if (layers["layers"] > 0) {
      printSaved(cost, layers);
      printAgain(layers);
    }
  printMasks(cost["dropout_masks"]);
  fmt::print("\ncollectives of a step, by cost formulas\n");
  fmt::print("  {:44} {:14} {:16} {:>7} {:>16}\n", "cause", "kind", "axes",
             "calls", "bytes sent");
  for (const json &each : cost["collectives"])
    fmt::print("  {:44} {:14} {:16} {:>7} {:>16.0f}\n",
               each["cause"].get<std::string>(),
               each["kind"].get<std::string>(), axesText(each),
               each["calls"].get<std::int64_t>(), each["bytes"].get<double>());
  const double products = cost["gemm_flops"],
               attention = cost["attention_flops"], again = cost["flops_again"];
  fmt::print("{:.6g} FLOPs of a rank in products, {:.6g} in attention; {} "
             "live at the peak\n",
             products, attention, peakText(cost));
  if (again > 0)
    fmt::print(
        "{:.6g} of these FLOPs, +{:.2f} %, are computed again: they count "
        "in HFU and not in MFU\n",
        again, 100 * again / (products + attention - again));
  if (cost.contains("added_flops"))
    printAdded(cost["added_flops"]);
}
