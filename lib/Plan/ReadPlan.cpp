#include "heddle/Plan/Plan.h"

#include "PlanNames.h"
#include "PlanRules.h"
#include "TensorForms.h"

#include "heddle/Support/Glob.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace heddle {

namespace {

// More than any machine has, and small enough that products stay exact.
constexpr std::int64_t maxAxis = 1 << 20;
constexpr std::int64_t maxLayers = 1 << 20;

template <std::size_t N>
std::vector<std::string> listOf(const std::string_view (&words)[N]) {
  return std::vector<std::string>(std::begin(words), std::end(words));
}

template <typename Enum, std::size_t N>
std::vector<std::string> listOf(const detail::PlanWord<Enum> (&words)[N]) {
  std::vector<std::string> list;
  for (const detail::PlanWord<Enum> &word : words)
    list.emplace_back(word.word);
  return list;
}

template <typename Enum, std::size_t N>
Enum valueOf(const detail::PlanWord<Enum> (&words)[N],
             const std::string &wanted) {
  for (const detail::PlanWord<Enum> &word : words)
    if (word.word == wanted)
      return word.value;
  return words[0].value; // the reader has recorded the error
}

template <typename Enum, std::size_t N>
Enum readWord(MapReader &reader, std::string_view key,
              const detail::PlanWord<Enum> (&words)[N], Enum byDefault) {
  return valueOf(words, reader.choice(key, listOf(words),
                                      detail::wordOf(words, byDefault)));
}

/// Reads one document into a plan; each function reads one key. Errors collect
/// in the reader.
class PlanReader {
public:
  PlanReader(const Document &document, const ModelConfig *model)
      : reader(document), model(model) {}

  Result<Plan> read();

private:
  void readMesh();
  void readMeshEntry(const DocumentValue &entry);
  void readStages();
  void readStageLayers(MapReader &stages);
  void readSchedule(MapReader &stages);
  PlanPlace readPlace(MapReader &stages, std::string_view key,
                      PlanPlace byDefault);
  void readTensor();
  void addShortForms(MapReader &from, MapReader *inner);
  std::vector<PlanRule> readRules(MapReader &from, std::string_view key);
  void readSplit(MapReader &rule, PlanSplit &split);
  void readFactor(MapReader &rule, const DocumentValue::Entry &entry,
                  PlanSplit &split);
  void readZero();
  void readRecompute();
  void readRecomputeEntry(MapReader &entry);
  void readPrecision();
  void readRest();

  PlanRange readRange(MapReader &from, std::string_view key, int line,
                      const std::string &text);
  PlanRange allLayers() const;
  bool needModel(std::string_view key, const std::string &why);

  MapReader reader;
  const ModelConfig *model;
  Plan plan;
};

void PlanReader::readMeshEntry(const DocumentValue &entry) {
  const std::vector<std::string> axes = listOf(detail::planAxes);
  if (!entry.isList() || entry.items.size() != 2 ||
      entry.items[0].kind != DocumentValue::Kind::String ||
      !entry.items[1].integer)
    return reader.failAt(
        entry.line, "mesh",
        fmt::format("found {}, expected an axis and its size, such as "
                    "[\"tp\", 8]",
                    entry.describe()));
  const std::string &axis = entry.items[0].text;
  const std::int64_t size = *entry.items[1].integer;
  if (std::find(axes.begin(), axes.end(), axis) == axes.end()) {
    auto near = nearestName(axis, axes);
    return reader.failAt(
        entry.line, "mesh",
        fmt::format("unknown axis \"{}\"{}; axes are {}", axis,
                    near ? fmt::format(", did you mean \"{}\"", *near) : "",
                    fmt::join(axes, ", ")));
  }
  for (const auto &[name, other] : plan.mesh)
    if (name == axis)
      return reader.failAt(entry.line, "mesh",
                           fmt::format("axis \"{}\" is there twice", axis));
  if (size < 1 || size > maxAxis)
    return reader.failAt(
        entry.line, "mesh",
        fmt::format("axis \"{}\" has size {}, expected an integer from 1 to {}",
                    axis, size, maxAxis));
  plan.mesh.emplace_back(axis, size);
}

void PlanReader::readMesh() {
  const DocumentValue *mesh = reader.value("mesh");
  if (!mesh || !mesh->isList()) {
    return reader.fail("mesh",
                       fmt::format("found {}, expected a list of [axis, size], "
                                   "outermost first, with pp, dp, cp and tp",
                                   mesh ? mesh->describe() : "nothing"));
  }
  for (const DocumentValue &entry : mesh->items)
    readMeshEntry(entry);
  if (!reader.ok())
    return;
  for (std::string_view axis : {"pp", "dp", "cp", "tp"}) {
    bool isListed =
        std::any_of(plan.mesh.begin(), plan.mesh.end(),
                    [&](const auto &at) { return at.first == axis; });
    if (!isListed)
      return reader.fail(
          "mesh", fmt::format("axis \"{0}\" is missing; a mesh lists pp, "
                              "dp, cp and tp: write [\"{0}\", 1]",
                              axis));
  }
  // Guards every later product of axes.
  std::int64_t ranks = 1;
  for (const auto &[axis, size] : plan.mesh) {
    if (ranks > (std::int64_t{1} << 32) / size)
      return reader.fail("mesh", "more than 2^32 ranks");
    ranks *= size;
  }
}

/// "a..b", "a" or "".
PlanRange PlanReader::readRange(MapReader &from, std::string_view key, int line,
                                const std::string &text) {
  if (text.empty())
    return {};
  auto number = [](std::string_view digits, std::int64_t &value) {
    auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size() &&
           value >= 0 && value < maxLayers;
  };
  PlanRange range;
  const std::size_t dots = text.find("..");
  const std::string_view all = text;
  const bool isRead = dots == std::string::npos
                          ? number(all, range.first) && number(all, range.last)
                          : number(all.substr(0, dots), range.first) &&
                                number(all.substr(dots + 2), range.last);
  if (!isRead || range.last < range.first) {
    from.failAt(line, key,
                fmt::format("found \"{}\", expected layers as \"a..b\" with "
                            "a <= b (both included), \"a\", or \"\" for none",
                            text));
    return {};
  }
  return range;
}

PlanRange PlanReader::allLayers() const {
  PlanRange all{0, -1};
  for (const std::vector<PlanRange> &chunks : plan.stages.layers)
    for (const PlanRange &range : chunks)
      all.last = std::max(all.last, range.last);
  return all;
}

bool PlanReader::needModel(std::string_view key, const std::string &why) {
  if (!model)
    reader.fail(key, why + "; it can be left out only where the model is known "
                           "(write the full form)");
  return model;
}

void PlanReader::readStageLayers(MapReader &stages) {
  const DocumentValue *layers = stages.value("layers");
  if (!layers || !layers->isList() || layers->items.empty())
    return stages.fail(
        "layers",
        fmt::format("found {}, expected one list per rank of pp, each with a "
                    "range of layers per chunk, such as [[\"0..5\"]]",
                    layers ? layers->describe() : "nothing"));
  for (const DocumentValue &row : layers->items) {
    if (!row.isList() || row.items.empty())
      return stages.failAt(
          row.line, "layers",
          fmt::format("found {}, expected a list with a range of layers per "
                      "chunk, such as [\"0..5\"]",
                      row.describe()));
    std::vector<PlanRange> &chunks = plan.stages.layers.emplace_back();
    for (const DocumentValue &range : row.items) {
      if (range.kind != DocumentValue::Kind::String)
        return stages.failAt(
            range.line, "layers",
            fmt::format("found {}, expected layers as a string: \"a..b\", "
                        "\"a\" or \"\"",
                        range.describe()));
      chunks.push_back(readRange(stages, "layers", range.line, range.text));
    }
    if (chunks.size() != plan.stages.layers.front().size())
      return stages.failAt(
          row.line, "layers",
          fmt::format("{} chunks on this rank of pp, {} on the first; all "
                      "ranks have equally many (\"\" for an empty one)",
                      chunks.size(), plan.stages.layers.front().size()));
  }
  const auto rows = static_cast<std::int64_t>(plan.stages.layers.size());
  if (rows != plan.axisSize("pp"))
    stages.fail("layers", fmt::format("{} ranks of pp are listed, mesh has "
                                      "pp = {}",
                                      rows, plan.axisSize("pp")));
}

PlanPlace PlanReader::readPlace(MapReader &stages, std::string_view key,
                                PlanPlace byDefault) {
  std::vector<std::int64_t> place = stages.integers(
      key, {0, maxAxis},
      std::vector<std::int64_t>{byDefault.rank, byDefault.chunk}, 2);
  if (place.size() != 2)
    return byDefault;
  const auto ranks = static_cast<std::int64_t>(plan.stages.layers.size());
  const auto chunks =
      ranks ? static_cast<std::int64_t>(plan.stages.layers[0].size()) : 0;
  if (stages.ok() && (place[0] >= ranks || place[1] >= chunks))
    stages.fail(key, fmt::format("found [{}, {}], expected [rank of pp, chunk] "
                                 "below [{}, {}]",
                                 place[0], place[1], ranks, chunks));
  return {place[0], place[1]};
}

void PlanReader::readSchedule(MapReader &stages) {
  const DocumentValue *schedule = stages.value("schedule");
  if (!schedule)
    return;
  if (schedule->kind == DocumentValue::Kind::String) {
    plan.stages.schedule = readWord(stages, "schedule", detail::scheduleWords,
                                    PlanScheduleKind::None);
    return;
  }
  std::optional<MapReader> inner = stages.map("schedule");
  if (!inner)
    return;
  const bool hasKind = inner->has("kind");
  if (inner->has("table")) {
    if (hasKind)
      inner->fail("kind", "a schedule has a kind or a table, not both");
    plan.stages.schedule = PlanScheduleKind::Table;
    plan.stages.table = inner->strings("table");
    if (inner->ok() && plan.stages.table.size() != plan.stages.layers.size())
      inner->fail("table", fmt::format("{} rows, expected one per rank of pp: "
                                       "{}",
                                       plan.stages.table.size(),
                                       plan.stages.layers.size()));
  } else {
    plan.stages.schedule =
        readWord(*inner, "kind", detail::scheduleWords, PlanScheduleKind::None);
  }
}

void PlanReader::readStages() {
  if (!reader.has("stages")) {
    if (!needModel("stages", "the layers of each stage are not given"))
      return;
    if (plan.axisSize("pp") != 1)
      return reader.fail("stages",
                         fmt::format("not given; with pp = {} it says "
                                     "which layers are where",
                                     plan.axisSize("pp")));
    plan.stages.layers = {{PlanRange{0, model->layers - 1}}};
    return;
  }
  std::optional<MapReader> stages = reader.map("stages");
  if (!stages)
    return;
  // Known even where an error above keeps them from being read.
  for (const char *key : {"embedding", "head", "schedule"})
    stages->know(key);
  readStageLayers(*stages);
  if (stages->ok()) {
    const std::vector<std::vector<PlanRange>> &layers = plan.stages.layers;
    const PlanPlace last{static_cast<std::int64_t>(layers.size()) - 1,
                         static_cast<std::int64_t>(layers[0].size()) - 1};
    plan.stages.embedding = readPlace(*stages, "embedding", {0, 0});
    plan.stages.head = readPlace(*stages, "head", last);
    readSchedule(*stages);
  }
}

void PlanReader::readFactor(MapReader &rule, const DocumentValue::Entry &entry,
                            PlanSplit &split) {
  static const std::vector<std::string> factors = {
      "b", "s", "t", "d", "g",        "r",        "k",       "f",
      "v", "p", "e", "c", "position", "expert_f", "shared_f"};
  static const std::vector<std::string> axes = {
      "dp",       "cp",         "tp", "tp.kv", "tp.copy",
      "dp.shard", "dp.replica", "ep", "edp",   "etp"};
  if (std::find(factors.begin(), factors.end(), entry.key) == factors.end())
    return rule.failAt(entry.line, "split",
                       fmt::format("unknown factor '{}'; factors are {}",
                                   entry.key, fmt::join(factors, ", ")));
  std::vector<const DocumentValue *> items;
  if (entry.value.isList())
    for (const DocumentValue &item : entry.value.items)
      items.push_back(&item);
  else
    items.push_back(&entry.value);
  std::vector<std::string> &list = split[entry.key];
  for (const DocumentValue *item : items) {
    if (item->kind != DocumentValue::Kind::String)
      return rule.failAt(
          item->line, "split",
          fmt::format("factor '{}': found {}, expected a list of "
                      "axes, such as [\"tp\"]",
                      entry.key, item->describe()));
    if (std::find(axes.begin(), axes.end(), item->text) == axes.end()) {
      auto near = nearestName(item->text, axes);
      return rule.failAt(
          item->line, "split",
          fmt::format("unknown axis \"{}\"{}; a tensor can be split over {}",
                      item->text,
                      near ? fmt::format(", did you mean \"{}\"", *near) : "",
                      fmt::join(axes, ", ")));
    }
    for (const auto &[factor, used] : split)
      if (std::find(used.begin(), used.end(), item->text) != used.end())
        return rule.failAt(
            item->line, "split",
            fmt::format("axis \"{}\" is used twice, on factors '{}' and '{}'; "
                        "an axis stands in one place only",
                        item->text, factor, entry.key));
    list.push_back(item->text);
  }
}

void PlanReader::readSplit(MapReader &rule, PlanSplit &split) {
  const DocumentValue *value = rule.value("split");
  if (!value || !value->isMap())
    return rule.fail("split",
                     fmt::format("found {}, expected a map of factor to axes, "
                                 "such as {{\"f\": [\"tp\"]}}, or {{}}",
                                 value ? value->describe() : "nothing"));
  for (const DocumentValue::Entry &entry : value->entries)
    readFactor(rule, entry, split);
}

std::vector<PlanRule> PlanReader::readRules(MapReader &from,
                                            std::string_view key) {
  std::vector<PlanRule> rules;
  for (MapReader &entry : from.maps(key)) {
    PlanRule &rule = rules.emplace_back();
    rule.match = entry.string("match");
    if (Result<Glob> glob = Glob::parse(rule.match); !glob)
      entry.fail("match", glob.message());
    readSplit(entry, rule.split);
  }
  return rules;
}

/// sequence_parallel and save_gathered, at the top or inside `tensor`.
void PlanReader::addShortForms(MapReader &from, MapReader *inner) {
  auto flag = [&](std::string_view key) {
    bool isSet = from.boolean(key, false);
    return (inner && inner->boolean(key, false)) || isSet;
  };
  if (flag("sequence_parallel"))
    for (const char *name : {"block.x", "block.delta"}) {
      const PlanRule *known = detail::lastMatch(plan.tensor.values, name);
      PlanRule rule{name, known ? known->split : PlanSplit()};
      rule.split["s"] = {"cp", "tp"};
      std::erase_if(plan.tensor.values,
                    [&](const PlanRule &old) { return old.match == name; });
      plan.tensor.values.push_back(std::move(rule));
    }
  if (flag("save_gathered"))
    plan.tensor.saved.push_back({"block.n[12]", {{"b", {"dp"}}}});
}

static std::vector<std::string> wordsForTensor() {
  std::vector<std::string> words;
  for (const auto &[word, unused] : detail::tensorForms())
    words.push_back(word);
  return words;
}

void PlanReader::readTensor() {
  std::optional<MapReader> inner;
  const DocumentValue *tensor = reader.value("tensor");
  std::string word = "megatron";
  if (tensor && tensor->kind == DocumentValue::Kind::String)
    word = reader.choice("tensor", wordsForTensor());
  else if (tensor)
    inner = reader.map("tensor");
  if (inner && inner->has("parameters"))
    plan.tensor.parameters = readRules(*inner, "parameters");
  else if (auto form = detail::tensorForms().find(word);
           form != detail::tensorForms().end() &&
           needModel("tensor", "the rules of tensor.parameters are not given"))
    plan.tensor = form->second(*model, plan);
  if (inner && inner->has("values"))
    plan.tensor.values = readRules(*inner, "values");
  else if (plan.tensor.values.empty())
    plan.tensor.values =
        detail::valuesBetweenBlocks(plan.axisSize("cp"), false);
  if (inner)
    plan.tensor.saved = readRules(*inner, "saved");
  addShortForms(reader, inner ? &*inner : nullptr);
}

void PlanReader::readZero() {
  const std::int64_t ranks = plan.axisSize("dp") * plan.axisSize("cp");
  plan.zero.shardGroup = ranks;
  std::optional<MapReader> zero = reader.map("zero");
  if (!zero)
    return;
  plan.zero.stage = zero->integer("stage", {0, 3}, 0);
  plan.zero.shardGroup = zero->integer("shard_group", {1, ranks}, ranks);
  if (zero->ok() && ranks % plan.zero.shardGroup != 0)
    zero->fail("shard_group",
               fmt::format("found {}, expected a divisor of dp x cp = {}",
                           plan.zero.shardGroup, ranks));
  plan.zero.prefetch = zero->integer("prefetch", {0, maxLayers}, 0);
  plan.zero.reduce =
      readWord(*zero, "reduce", detail::reduceWords, PlanReduce::Last);
  plan.zero.gather =
      readWord(*zero, "gather", detail::gatherWords, PlanGather::OncePerStep);
}

void PlanReader::readRecomputeEntry(MapReader &entry) {
  PlanRecompute &result = plan.recompute.emplace_back();
  result.layers = allLayers();
  if (const DocumentValue *layers = entry.value("layers")) {
    if (layers->kind == DocumentValue::Kind::String)
      result.layers = readRange(entry, "layers", layers->line, layers->text);
    else
      entry.fail("layers", fmt::format("found {}, expected layers as a string: "
                                       "\"a..b\" or \"a\"",
                                       layers->describe()));
  }
  std::vector<std::string> given;
  for (const char *key : {"values", "selective", "full", "budget_bytes"})
    if (entry.has(key))
      given.emplace_back(key);
  if (given.size() > 1)
    entry.fail(given[1], fmt::format("'{}' is given too; expected one of "
                                     "values, selective, full, budget_bytes",
                                     given[0]));
  result.values = entry.strings("values", std::vector<std::string>());
  if (entry.boolean("selective", false))
    result.kind = PlanRecomputeKind::Selective;
  if (entry.boolean("full", false))
    result.kind = PlanRecomputeKind::Full;
  result.prune = entry.boolean("prune", true);
  if (!result.prune && result.kind == PlanRecomputeKind::Values)
    entry.fail("prune", "is of what \"full\" and \"selective\" compute; add "
                        "one of them, or leave it out");
  if (entry.has("budget_bytes")) {
    result.kind = PlanRecomputeKind::Budget;
    result.budgetBytes =
        entry.integer("budget_bytes", IntegerRange::nonNegative());
  }
}

void PlanReader::readRecompute() {
  const DocumentValue *value = reader.value("recompute");
  if (value && value->isList() &&
      (value->items.empty() || value->items[0].isMap())) {
    for (MapReader &entry : reader.maps("recompute"))
      readRecomputeEntry(entry);
    return;
  }
  if (value && value->isMap()) {
    if (std::optional<MapReader> entry = reader.map("recompute"))
      readRecomputeEntry(*entry);
    return;
  }
  PlanRecompute all;
  all.layers = allLayers();
  if (value && value->isList()) {
    all.values = reader.strings("recompute");
  } else if (value) {
    std::string word =
        reader.choice("recompute", {"none", "selective", "full"});
    if (word == "selective")
      all.kind = PlanRecomputeKind::Selective;
    if (word == "full")
      all.kind = PlanRecomputeKind::Full;
  }
  plan.recompute.push_back(all);
}

void PlanReader::readPrecision() {
  std::optional<MapReader> inner;
  PlanPrecision &precision = plan.precision;
  const DocumentValue *value = reader.value("precision");
  const std::vector<std::string> recipes = listOf(detail::planRecipes);
  if (value && value->kind == DocumentValue::Kind::String)
    precision.recipe = reader.choice("precision", recipes);
  else if ((inner = reader.map("precision")))
    precision.recipe = inner->choice("recipe", recipes, "fp32");
  precision.compute = computeFormat(precision.recipe);
  detail::readScaling(inner, precision);
  precision.master = precision.recipe == "fp32" ? "none" : "fp32";
  if (!inner)
    return;
  const std::vector<std::string> formats = listOf(detail::planFormats);
  precision.compute = inner->choice("compute", formats, precision.compute);
  precision.master =
      inner->choice("master", listOf(detail::planMasters), precision.master);
  precision.gradients = inner->choice("gradients", formats, "fp32");
  precision.reduce = inner->choice("reduce", formats, "fp32");
  for (MapReader &entry : inner->maps("exceptions")) {
    PlanPrecisionException &exception = precision.exceptions.emplace_back();
    exception.match = entry.string("match");
    if (Result<Glob> glob = Glob::parse(exception.match); !glob)
      entry.fail("match", glob.message());
    exception.compute = entry.choice("compute", formats);
  }
}

void PlanReader::readRest() {
  plan.context = readWord(reader, "context", detail::contextWords, {});
  plan.attention = readWord(reader, "attention", detail::attentionWords, {});
  plan.dropoutMasks = readWord(reader, "dropout_masks", detail::maskWords, {});
  plan.save = readWord(reader, "save", detail::saveWords, {});
  if (std::optional<MapReader> offload = reader.map("offload")) {
    plan.offload.saved = offload->strings("saved", std::vector<std::string>());
    plan.offload.optimizer = offload->boolean("optimizer", false);
  }
  if (std::optional<MapReader> buckets = reader.map("buckets")) {
    plan.buckets.gradientBytes = buckets->integer(
        "gradient_bytes", IntegerRange::positive(), plan.buckets.gradientBytes);
    plan.buckets.order = readWord(*buckets, "order", detail::orderWords,
                                  PlanBucketOrder::Backward);
  }
  const DocumentValue *overlap = reader.value("overlap");
  if (overlap && overlap->kind == DocumentValue::Kind::String) {
    reader.choice("overlap", {"none"});
  } else if (std::optional<MapReader> inner = reader.map("overlap")) {
    plan.overlapMemoryBytes =
        inner->integer("memory_bytes", IntegerRange::nonNegative());
  }
}

Result<Plan> PlanReader::read() {
  plan.version = reader.integer("version", {1, 1}, 1);
  readMesh();
  plan.microBatch = reader.integer("micro_batch", {1, maxAxis}, 1);
  plan.microBatches = reader.integer("micro_batches", {1, maxAxis}, 1);
  reader.know("stages");
  if (reader.ok())
    readStages();
  readTensor();
  readZero();
  readRecompute();
  readRest();
  readPrecision();
  if (Result<void> done = reader.finish(); !done)
    return done.error();
  return plan;
}

} // namespace

Result<Plan> readPlan(const Document &document, const ModelConfig *model) {
  if (!document.root().isMap())
    return Error{fmt::format("{}:{}: found {}, expected a map: a plan",
                             document.file(), document.root().line,
                             document.root().describe())};
  return PlanReader(document, model).read();
}

Result<Plan> readPlan(const std::filesystem::path &path,
                      const ModelConfig *model) {
  Result<Document> document = Document::read(path);
  return document ? readPlan(*document, model) : Result<Plan>(document.error());
}

} // namespace heddle
