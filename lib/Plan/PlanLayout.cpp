#include "heddle/Plan/PlanLayout.h"

#include "PlanRules.h"

#include "heddle/Support/Glob.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <fmt/format.h>

namespace heddle {

using detail::splitWords;

static std::int64_t roundUp(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

HeadSplit splitHeads(std::int64_t g, std::int64_t r, std::int64_t tp) {
  HeadSplit best;
  for (std::int64_t kv = tp; kv >= 1; --kv) {
    if (tp % kv != 0)
      continue;
    HeadSplit split{kv, tp / kv, roundUp(g, kv), roundUp(r, tp / kv)};
    // Larger kv come first and win among equals.
    if (kv == tp || split.paddedG * split.paddedR < best.paddedG * best.paddedR)
      best = split;
    if (r == 1)
      break;
  }
  return best;
}

static HeadSplit headSplitOf(const Plan &plan, const ModelConfig &model) {
  return splitHeads(model.kvHeads, model.queryHeadsPerKvHead,
                    plan.axisSize("tp"));
}

/// Whether states are sharded over a part of dp, the other parts holding
/// copies.
static bool splitsData(const Plan &plan) {
  return plan.zero.stage > 0 && plan.zero.shardGroup > 1 &&
         plan.zero.shardGroup < plan.axisSize("dp");
}

std::vector<std::string> dataAxes(const Plan &plan) {
  if (splitsData(plan))
    return {"dp.replica", "dp.shard"};
  return {"dp"};
}

std::int64_t layersAhead(const Plan &plan, const ModelConfig &model) {
  return plan.overlapMemoryBytes
             ? std::min(plan.zero.prefetch,
                        std::max<std::int64_t>(model.layers - 1, 0))
             : 0;
}

std::vector<std::string> zeroAxes(const Plan &plan) {
  if (plan.zero.stage == 0 || plan.zero.shardGroup == 1)
    return {};
  return {dataAxes(plan).back()};
}

ReshardMesh meshOfPlan(const Plan &plan, const ModelConfig &model) {
  const HeadSplit heads = headSplitOf(plan, model);
  ReshardMesh mesh;
  for (const auto &[axis, size] : plan.mesh) {
    if (axis == "tp" && heads.copy > 1) {
      mesh.axes.emplace_back("tp.kv", heads.kv);
      mesh.axes.emplace_back("tp.copy", heads.copy);
    } else if (axis == "dp" && splitsData(plan)) {
      mesh.axes.emplace_back("dp.replica", size / plan.zero.shardGroup);
      mesh.axes.emplace_back("dp.shard", plan.zero.shardGroup);
    } else {
      mesh.axes.emplace_back(axis, size);
    }
  }
  return mesh;
}

static std::int64_t sizeIn(const ReshardMesh &mesh, const std::string &axis) {
  for (const auto &[name, size] : mesh.axes)
    if (name == axis)
      return size;
  return 1;
}

namespace detail {

const PlanRule *lastMatch(const std::vector<PlanRule> &rules,
                          std::string_view name) {
  for (auto rule = rules.rbegin(); rule != rules.rend(); ++rule) {
    if (Glob::isMatch(rule->match, name))
      return &*rule;
  }
  return nullptr;
}

std::vector<std::string> splitWords(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  for (char c : text) {
    if (c != ' ') {
      word += c;
    } else if (!word.empty()) {
      words.push_back(word);
      word.clear();
    }
  }
  if (!word.empty())
    words.push_back(word);
  return words;
}

/// The mesh axes that one axis of a rule stands for on \p factor.
static std::vector<std::string> meshAxes(const std::string &axis,
                                         const std::string &factor,
                                         const Plan &plan,
                                         const HeadSplit &heads) {
  const bool isRefined = heads.copy > 1;
  if (axis == "dp")
    return dataAxes(plan);
  if (axis == "tp" && isRefined)
    return factor == "g" ? std::vector<std::string>{"tp.kv"}
                         : std::vector<std::string>{"tp.kv", "tp.copy"};
  if (axis == "tp.kv" && !isRefined)
    return {"tp"};
  if (axis == "tp.copy" && !isRefined)
    return {};
  return {axis};
}

PlanSplit meshSplit(const PlanSplit &split, const Plan &plan,
                    const ModelConfig &model) {
  const HeadSplit heads = headSplitOf(plan, model);
  PlanSplit result;
  for (const auto &[factor, axes] : split)
    for (const std::string &axis : axes)
      for (const std::string &meshAxis : meshAxes(axis, factor, plan, heads))
        result[factor].push_back(meshAxis);
  auto onHeads = split.find("g");
  if (heads.copy > 1 && onHeads != split.end() &&
      std::count(onHeads->second.begin(), onHeads->second.end(), "tp"))
    result["r"].push_back("tp.copy");
  return result;
}

std::string axisFault(const PlanRule &rule, const Plan &plan,
                      const ModelConfig &model) {
  std::set<std::string> known;
  std::vector<std::string> names;
  for (const auto &[axis, size] : meshOfPlan(plan, model).axes)
    if (axis != "pp") { // its ranks hold other layers
      known.insert(axis);
      names.push_back(axis);
    }
  for (const auto &[factor, axes] : meshSplit(rule.split, plan, model))
    for (const std::string &axis : axes)
      if (!known.count(axis))
        return fmt::format(
            "rule \"{}\" splits factor '{}' over axis \"{}\", "
            "but in this mesh a tensor can be split over {} only",
            rule.match, factor, axis, fmt::join(names, ", "));
  return "";
}

} // namespace detail

/// The rule's split on a tensor with the factors \p letters. \p what names the
/// tensor in messages.
static Result<PlanDims> dimsOf(const Plan &plan, const ModelConfig &model,
                               const PlanRule &rule, const std::string &what,
                               std::string_view letters) {
  const std::vector<std::string> factors = splitWords(letters);
  for (const auto &[factor, axes] : rule.split) {
    if (!axes.empty() &&
        std::find(factors.begin(), factors.end(), factor) == factors.end())
      return Error{fmt::format(
          "rule \"{}\" splits factor '{}' of {}, which has the factors {}; "
          "name one of these, or give it a rule of its own after this one",
          rule.match, factor, what, letters)};
  }
  if (std::string fault = detail::axisFault(rule, plan, model); !fault.empty())
    return Error{fault};
  const ReshardMesh mesh = meshOfPlan(plan, model);
  const PlanSplit split = detail::meshSplit(rule.split, plan, model);
  PlanDims dims;
  std::map<std::string, std::string> placeOf;
  for (const std::string &factor : factors) {
    std::vector<std::string> &axes = dims.emplace_back();
    auto found = split.find(factor);
    if (found == split.end())
      continue;
    for (const std::string &axis : found->second) {
      auto [place, isNew] = placeOf.emplace(axis, factor);
      if (!isNew)
        return Error{fmt::format(
            "rule \"{}\" uses axis \"{}\" twice for {}: on factor '{}' and on "
            "'{}'; an axis stands in one place only",
            rule.match, axis, what, place->second, factor)};
      if (sizeIn(mesh, axis) > 1)
        axes.push_back(axis);
    }
  }
  return dims;
}

/// Whether a rule may match one layer's name and not another's: the digits of a
/// layer's number are taken by '*' alone where a pattern has no sign for one.
static bool mayTellLayersApart(const PlanRule &rule) {
  const std::string &match = rule.match;
  const bool hasRange = match.find('[') != std::string::npos &&
                        match.find_first_of("!-") != std::string::npos;
  return hasRange || match.find_first_of("0123456789?") != std::string::npos;
}

/// Those rules that layers must be held against one by one, where \p first is
/// the last that matches layer 0.
static std::vector<const PlanRule *>
rulesForLayers(const std::vector<PlanRule> &rules, const PlanRule *first) {
  std::vector<const PlanRule *> asked;
  for (const PlanRule &rule : rules)
    if (&rule == first || mayTellLayersApart(&rule > first ? rule : *first))
      asked.push_back(&rule);
  return asked;
}

Result<PlanDims> parameterLayout(const Plan &plan, const ModelConfig &model,
                                 const ParameterFamily &family) {
  const std::string first = family.instanceName(0);
  const PlanRule *rule = detail::lastMatch(plan.tensor.parameters, first);
  if (!rule)
    return Error{fmt::format(
        "no rule of tensor.parameters matches parameter \"{}\"; add one, for "
        "example {{\"match\": \"{}\", \"split\": {{}}}} to keep it whole",
        first, first)};
  const std::vector<const PlanRule *> asked =
      rulesForLayers(plan.tensor.parameters, rule);
  const bool areAllAlike = asked.size() == 1 && !mayTellLayersApart(*rule);
  for (std::int64_t layer = areAllAlike ? family.layers : 1;
       layer < family.layers; ++layer) {
    const std::string name = family.instanceName(layer);
    const auto last =
        std::find_if(asked.rbegin(), asked.rend(), [&](const PlanRule *each) {
          return Glob::isMatch(each->match, name);
        });
    const PlanRule *other = last == asked.rend() ? nullptr : *last;
    if (!other || (other != rule && other->split != rule->split))
      return Error{fmt::format(
          "parameters \"{}\" and \"{}\" are split differently (rule \"{}\" and "
          "{}); layers of different layouts are not supported yet",
          first, name, rule->match,
          other ? fmt::format("\"{}\"", other->match) : "none")};
  }
  return dimsOf(plan, model, *rule, fmt::format("parameter \"{}\"", first),
                family.letters);
}

static Result<std::optional<PlanDims>>
layoutFrom(const std::vector<PlanRule> &rules, const Plan &plan,
           const ModelConfig &model, std::string_view name,
           std::string_view letters) {
  const PlanRule *rule = detail::lastMatch(rules, name);
  if (!rule)
    return std::optional<PlanDims>();
  Result<PlanDims> dims =
      dimsOf(plan, model, *rule, fmt::format("value \"{}\"", name), letters);
  if (!dims)
    return dims.error();
  return std::optional<PlanDims>(*dims);
}

Result<std::optional<PlanDims>> valueLayout(const Plan &plan,
                                            const ModelConfig &model,
                                            std::string_view name,
                                            std::string_view letters) {
  return layoutFrom(plan.tensor.values, plan, model, name, letters);
}

Result<std::optional<PlanDims>> savedLayout(const Plan &plan,
                                            const ModelConfig &model,
                                            std::string_view name,
                                            std::string_view letters) {
  return layoutFrom(plan.tensor.saved, plan, model, name, letters);
}

std::map<std::string, std::int64_t> factorSizes(const Plan &plan,
                                                const ModelConfig &model) {
  std::map<std::string, std::int64_t> sizes;
  for (const ParameterFamily &family : parameters(model)) {
    const std::vector<std::string> factors = splitWords(family.letters);
    for (std::size_t dim = 0; dim < factors.size(); ++dim)
      sizes[factors[dim]] = family.shape[dim];
  }
  sizes["b"] = plan.axisSize("dp") * plan.microBatch;
  // GPT-2's parameters have no r, its queries have one of size 1.
  sizes["r"] = model.queryHeadsPerKvHead;
  return sizes;
}

std::int64_t paddedLength(const Plan &plan, const ModelConfig &model,
                          std::int64_t length) {
  const ReshardMesh mesh = meshOfPlan(plan, model);
  std::int64_t multiple = 1;
  for (const std::vector<PlanRule> *rules :
       {&plan.tensor.values, &plan.tensor.saved})
    for (const PlanRule &rule : *rules) {
      const PlanSplit split = detail::meshSplit(rule.split, plan, model);
      std::int64_t ranks = 1;
      if (auto found = split.find("s"); found != split.end())
        for (const std::string &axis : found->second)
          ranks *= sizeIn(mesh, axis);
      multiple = std::lcm(multiple, ranks);
    }
  return roundUp(length, multiple);
}

std::map<std::string, std::int64_t> paddedSizes(const Plan &plan,
                                                const ModelConfig &model) {
  const ReshardMesh mesh = meshOfPlan(plan, model);
  std::map<std::string, std::int64_t> multiples;
  auto count = [&](const std::string &factor,
                   const std::vector<std::string> &axes) {
    std::int64_t ranks = 1;
    for (const std::string &axis : axes)
      ranks *= sizeIn(mesh, axis);
    std::int64_t &multiple = multiples.emplace(factor, 1).first->second;
    multiple = std::lcm(multiple, ranks);
  };
  for (const ParameterFamily &family : parameters(model)) {
    Result<PlanDims> dims = parameterLayout(plan, model, family);
    if (!dims)
      continue; // checkPlan says why
    const std::vector<std::string> factors = splitWords(family.letters);
    for (std::size_t dim = 0; dim < factors.size(); ++dim)
      count(factors[dim], (*dims)[dim]);
  }
  for (const std::vector<PlanRule> *rules :
       {&plan.tensor.values, &plan.tensor.saved})
    for (const PlanRule &rule : *rules)
      for (const auto &[factor, axes] :
           detail::meshSplit(rule.split, plan, model))
        count(factor, axes);
  std::map<std::string, std::int64_t> sizes = factorSizes(plan, model);
  for (auto &[factor, size] : sizes) {
    auto found = multiples.find(factor);
    if (found != multiples.end())
      size = roundUp(size, found->second);
  }
  return sizes;
}

std::int64_t partElements(const Plan &plan, const ModelConfig &model,
                          const ParameterFamily &family) {
  const ReshardMesh mesh = meshOfPlan(plan, model);
  const std::map<std::string, std::int64_t> padded = paddedSizes(plan, model);
  const std::vector<std::string> factors = splitWords(family.letters);
  Result<PlanDims> dims = parameterLayout(plan, model, family);
  std::int64_t elements = 1;
  for (std::size_t dim = 0; dim < factors.size(); ++dim) {
    elements *= padded.at(factors[dim]);
    for (const std::string &axis : (*dims)[dim])
      elements /= sizeIn(mesh, axis);
  }
  return elements;
}

std::int64_t rowElements(std::int64_t elements, std::int64_t ranks) {
  constexpr std::int64_t runMultiple = 16;
  return roundUp(elements, runMultiple * ranks);
}

} // namespace heddle
