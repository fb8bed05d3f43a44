#include "heddle/Cost/RankSizes.h"

#include "BlockForward.h"
#include "Reductions.h"
#include "Stages.h"

#include "heddle/Cost/LiveMemory.h"
#include "heddle/Plan/PlanLayout.h"
#include "heddle/Support/Check.h"
#include "heddle/Support/Mirror.h"
#include "heddle/Support/Printable.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <sstream>

using namespace heddle;

std::int64_t RankParameter::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1},
                         std::multiplies<>());
}

bool RankParameter::isReadByBackward() const {
  const bool isBias = family.argument[0] == 'b' || family.argument[0] == 'h';
  return family.segment == Segment::Block &&
         (!isBias || isReadAgain[0] || isReadAgain[1]);
}

bool RankParameter::isReadBy(BlockPass pass) const {
  const bool isBias = family.argument[0] == 'b' || family.argument[0] == 'h';
  return pass == BlockPass::Forward    ? true
         : pass == BlockPass::Backward ? !isBias || isReadAgain[0]
                                       : isReadAgain[1];
}

std::int64_t RankSizes::ranks(const AxisList &axes) const {
  std::int64_t product = 1;
  for (const std::string &axis : axes) {
    product *= mirroredAxis(axis).empty() ? 1 : 2;
    for (const auto &[name, size] : mesh)
      product *= name == axis ? size : 1;
  }
  return product;
}

std::int64_t RankSizes::rowElements(const RankParameter &parameter) const {
  return heddle::rowElements(parameter.elements(), ranks(storage.shards));
}

std::int64_t RankSizes::runElements(const RankParameter &parameter) const {
  return rowElements(parameter) / ranks(storage.shards);
}

std::int64_t RankSizes::unitBytes(BlockPass pass) const {
  std::int64_t bytes = 0;
  for (const RankParameter &parameter : parameters)
    if (parameter.family.segment == Segment::Block && parameter.isReadBy(pass))
      bytes += detail::alignBytes(rowElements(parameter) * formats.compute);
  return bytes;
}

bool RankSizes::savesInput() const {
  return std::all_of(recompute.begin(), recompute.end(),
                     [](const LayersUnder &each) { return each.saves("x2"); });
}

bool RankSizes::isOffloaded(std::string_view name) const {
  return std::find(offloaded.begin(), offloaded.end(), name) != offloaded.end();
}

AxisList RankSizes::sentInParts() const {
  AxisList axes;
  for (const auto &[axis, size] : mesh)
    if (size > 1 && axis != "pp" &&
        std::find(data.begin(), data.end(), axis) == data.end() &&
        std::find(sequence.begin(), sequence.end(), axis) == sequence.end())
      axes.push_back(axis);
  for (std::int64_t size : {s / ranks(sequence), b, d})
    if (size % ranks(axes) == 0)
      return axes;
  return {};
}

bool RankSizes::valuesStayPartial() const {
  return !formats.scales("wv") && !copies.empty() && d < kvHeads * k &&
         d < b * length * ranks(data);
}

const RankParameter *RankSizes::find(Segment segment,
                                     std::string_view argument) const {
  for (const RankParameter &parameter : parameters)
    if (parameter.family.segment == segment &&
        parameter.family.argument == argument)
      return &parameter;
  return nullptr;
}

namespace {

/// Reads the plan's layouts, and holds them to the form that is known.
class Reader {
public:
  Reader(const ModelConfig &model, const TrainSettings &train, const Plan &plan,
         std::int64_t place)
      : model(model), train(train), plan(plan), place(place),
        padded(paddedSizes(plan, model)) {
    sizes.mesh = meshOfPlan(plan, model).axes;
  }

  Result<RankSizes> read();
  /// What each layer saves, and all that it depends on.
  Result<void> readChoices();
  Result<void> readOffload();

private:
  void readStorage();
  void readFormats();
  std::vector<std::string> plainIn(std::int64_t layer) const;
  Result<void> readParameters();
  Result<void> readValues();
  Result<void> readSaved(const PlanDims &whole);
  Result<void> checkForm();
  Result<void> checkAxes(const RankParameter &parameter);
  void setSizes();
  void keepPlace();
  Result<void> readRecompute();

  /// Axes of one factor in the first parameter of a segment that has it.
  AxisList axesOf(Segment segment, std::string_view argument,
                  std::string_view letter) const;

  const ModelConfig &model;
  const TrainSettings &train;
  const Plan &plan;
  const std::int64_t place;
  const std::map<std::string, std::int64_t> padded;
  std::vector<std::map<std::string, AxisList>> splits; // of each parameter
  RankSizes sizes;
};

} // namespace

static std::vector<std::string> words(const std::string &text) {
  std::istringstream stream(text);
  std::vector<std::string> result;
  for (std::string word; stream >> word;)
    result.push_back(word);
  return result;
}

void Reader::readFormats() {
  auto bytesOf = [](const std::string &format) {
    return format == "fp32" ? 4 : 2; // of those that checkPlan lets through
  };
  sizes.formats.compute = bytesOf(plan.precision.compute);
  sizes.formats.gradients = bytesOf(plan.precision.gradients);
  sizes.formats.reduce = bytesOf(plan.precision.reduce);
  sizes.formats.hasMaster = plan.precision.master != "none";
  sizes.formats.scaling = scalingOf(plan.precision);
  for (const ParameterFamily &family : parameters(model))
    if (std::ssize(plainLayers(plan, family)) == family.layers)
      sizes.formats.plain.push_back(family.argument);
}

/// Whose products a layer leaves as they are.
std::vector<std::string> Reader::plainIn(std::int64_t layer) const {
  std::vector<std::string> plain;
  for (const ParameterFamily &family : parameters(model))
    if (std::ranges::count(plainLayers(plan, family), layer))
      plain.push_back(family.argument);
  return plain;
}

void Reader::readStorage() {
  auto present = [&](const std::vector<std::string> &axes) {
    AxisList list;
    for (const std::string &axis : axes)
      if (sizes.ranks({axis}) > 1)
        list.push_back(axis);
    return list;
  };
  sizes.data = present(dataAxes(plan));
  RankStorage &storage = sizes.storage;
  storage.stage = plan.zero.stage;
  storage.shards = present(zeroAxes(plan));
  storage.reducesEveryMicroBatch =
      plan.zero.reduce == PlanReduce::EveryMicroBatch;
  storage.gather = plan.zero.gather;
  storage.overlaps = plan.overlapMemoryBytes.has_value();
  storage.buckets = plan.buckets;
}

Result<void> Reader::readParameters() {
  for (const ParameterFamily &family : parameters(model)) {
    Result<PlanDims> dims = parameterLayout(plan, model, family);
    if (!dims)
      return dims.error();
    RankParameter parameter{family, {}, {}};
    std::map<std::string, AxisList> &split = splits.emplace_back();
    const std::vector<std::string> letters = words(family.letters);
    for (std::size_t dim = 0; dim < letters.size(); ++dim) {
      split[letters[dim]] = (*dims)[dim];
      parameter.shape.push_back(padded.at(letters[dim]) /
                                sizes.ranks((*dims)[dim]));
    }
    for (const auto &[axis, size] : sizes.mesh)
      for (const AxisList &axes : *dims)
        if (std::count(axes.begin(), axes.end(), axis))
          parameter.axes.push_back(axis);
    sizes.parameters.push_back(std::move(parameter));
  }
  for (const auto &[axis, size] : sizes.mesh)
    if (std::any_of(sizes.parameters.begin(), sizes.parameters.end(),
                    [&, &axis = axis](const RankParameter &parameter) {
                      return std::count(parameter.axes.begin(),
                                        parameter.axes.end(), axis) > 0;
                    }))
      sizes.split.push_back(axis);
  return {};
}

Result<void> Reader::readValues() {
  AxisList allOfTp;
  for (const auto &[axis, size] : sizes.mesh)
    if (axis.starts_with("tp") && size > 1)
      allOfTp.push_back(axis);
  const PlanDims whole = {sizes.data, {}, {}}, cut = {sizes.data, allOfTp, {}};
  for (const char *name : {"block.x", "block.delta"}) {
    Result<std::optional<PlanDims>> dims =
        valueLayout(plan, model, name, "b s d");
    if (!dims)
      return dims.error();
    if (*dims && **dims == cut)
      sizes.sequence = allOfTp;
    if (*dims && **dims != (sizes.sequence.empty() ? whole : cut))
      return Error{fmt::format(
          "cost formulas know block.x and block.delta split along b over dp "
          "and both or none along s over all of tp, found axes [{}] on the "
          "factors b, s, d of {}",
          fmt::join(**dims, "], ["), name)};
  }
  for (const PlanRule &rule : plan.tensor.values)
    if (rule.match != "block.x" && rule.match != "block.delta")
      return Error{fmt::format("cost formulas know no rule of tensor.values "
                               "but for block.x and block.delta, found \"{}\"",
                               rule.match)};
  return readSaved(whole);
}

Result<void> Reader::readSaved(const PlanDims &whole) {
  PlanDims cut = whole;
  cut[1] = sizes.sequence;
  for (const PlanRule &rule : plan.tensor.saved)
    if (rule.match != "block.n[12]" && rule.match != "block.n1" &&
        rule.match != "block.n2")
      return Error{fmt::format("cost formulas know no rule of tensor.saved but "
                               "for block.n1 and block.n2, found \"{}\"",
                               rule.match)};
  for (int i : {0, 1}) {
    const char *name = i == 0 ? "block.n1" : "block.n2";
    Result<std::optional<PlanDims>> dims =
        savedLayout(plan, model, name, "b s d");
    if (!dims)
      return dims.error();
    const PlanDims layout = *dims ? **dims : cut;
    if (layout != whole && layout != cut)
      return Error{fmt::format(
          "cost formulas know {} saved as it is computed or gathered, found "
          "axes [{}] on its factors b, s, d in tensor.saved",
          name, fmt::join(layout, "], ["))};
    sizes.savesGathered[i] = layout == whole;
  }
  return {};
}

AxisList Reader::axesOf(Segment segment, std::string_view argument,
                        std::string_view letter) const {
  for (std::size_t i = 0; i < sizes.parameters.size(); ++i) {
    const ParameterFamily &family = sizes.parameters[i].family;
    auto found = splits[i].find(std::string(letter));
    if (family.segment == segment && family.argument == argument &&
        found != splits[i].end())
      return found->second;
  }
  return {};
}

static std::int64_t divide(std::int64_t size, std::int64_t ranks) {
  HEDDLE_CHECK(size % ranks == 0, "{} over {} ranks", size, ranks);
  return size / ranks;
}

void Reader::setSizes() {
  const Segment headOf =
      model.tiedEmbeddings ? Segment::Embedding : Segment::Head;
  const char *headName = model.tiedEmbeddings ? "embed" : "lm_head";
  const AxisList kv = axesOf(Segment::Block, "wo", "g");
  sizes.copies = axesOf(Segment::Block, "wo", "r");
  sizes.heads = kv;
  sizes.heads.insert(sizes.heads.end(), sizes.copies.begin(),
                     sizes.copies.end());
  sizes.ffn = axesOf(Segment::Block, "wd", "f");
  sizes.embedding = axesOf(Segment::Embedding, "embed", "v");
  sizes.head = axesOf(headOf, headName, "v");

  sizes.isTied = model.tiedEmbeddings;
  sizes.microBatches = plan.microBatches;
  sizes.b = plan.microBatch;
  sizes.length = train.sequenceLength;
  sizes.s = paddedLength(plan, model, train.sequenceLength);
  sizes.d = model.hidden;
  sizes.k = model.headSize;
  sizes.kvHeads = model.kvHeads;
  sizes.g = divide(padded.at("g"), sizes.ranks(kv));
  sizes.r = divide(padded.at("r"), sizes.ranks(sizes.copies));
  sizes.f = divide(padded.at("f"), sizes.ranks(sizes.ffn));
  sizes.embeddingRows = divide(padded.at("v"), sizes.ranks(sizes.embedding));
  sizes.headRows = divide(padded.at("v"), sizes.ranks(sizes.head));
}

/// A factor is split as everywhere else: heads over `heads`, ffn over `ffn`.
Result<void> Reader::checkAxes(const RankParameter &parameter) {
  const std::size_t index = &parameter - sizes.parameters.data();
  const AxisList kv(sizes.heads.begin(),
                    sizes.heads.end() - std::ssize(sizes.copies));
  for (const auto &[letter, axes] : splits[index]) {
    AxisList wanted;
    if (letter == "g")
      wanted = kv;
    else if (letter == "r")
      wanted = sizes.copies;
    else if (letter == "f")
      wanted = sizes.ffn;
    else if (letter == "v")
      wanted = parameter.family.segment == Segment::Head ? sizes.head
                                                         : sizes.embedding;
    if (axes != wanted)
      return Error{fmt::format(
          "cost formulas know layouts that split heads, ffn and vocabulary "
          "alike in all parameters of a segment: \"{}\" has its factor {} over "
          "[{}], expected [{}]",
          parameter.family.instanceName(0), letter, fmt::join(axes, ", "),
          fmt::join(wanted, ", "))};
  }
  return {};
}

Result<void> Reader::checkForm() {
  for (const AxisList *part :
       {&sizes.heads, &sizes.ffn, &sizes.embedding, &sizes.head})
    if (!sizes.sequence.empty() && *part != sizes.sequence)
      return Error{fmt::format(
          "cost formulas know sequences cut over tp where heads, ffn and "
          "vocabulary are split over all of tp, found one of them over [{}]",
          fmt::join(*part, ", "))};
  // Keys and values of one part of the sequence each, gathered for attention.
  if (!sizes.sequence.empty() && !sizes.copies.empty() &&
      !sizes.splitsKvHeads())
    return Error{fmt::format(
        "cost formulas know sequences cut over tp where tp splits the KV heads "
        "too, found {} KV head{} for tp = {}",
        model.kvHeads, model.kvHeads == 1 ? "" : "s", plan.axisSize("tp"))};
  for (const RankParameter &parameter : sizes.parameters)
    if (Result<void> checked = checkAxes(parameter); !checked)
      return checked.error();
  return {};
}

/// Of several entries for a layer the last one counts.
Result<void> Reader::readRecompute() {
  const std::vector<BlockOp> forward = detail::blockForward(model, sizes);
  const std::vector<BlockOp> whole = detail::blockBackward(model, sizes);
  std::vector<std::vector<BlockOp>> backward = {whole};
  if (sizes.stages.splitsBackward)
    backward = detail::halvesOf(whole);
  const std::vector<SavedValue> saved = savedPerLayer(model, sizes);
  using Asked = std::pair<PlanRecompute, std::vector<std::string>>;
  std::vector<Asked> asked;
  std::vector<std::size_t> choices; // by layer
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    PlanRecompute choice;
    for (const PlanRecompute &entry : plan.recompute)
      if (entry.layers.contains(layer))
        choice = entry;
    choice.layers = {};
    std::size_t number = 0;
    const Asked ask = {choice, plainIn(layer)};
    while (number < asked.size() && asked[number] != ask)
      ++number;
    if (number == sizes.recompute.size()) {
      PlanRecompute chosen = choice;
      if (choice.kind == PlanRecomputeKind::Budget) {
        auto values =
            detail::valuesWithin(choice.budgetBytes, forward, saved, sizes);
        if (!values)
          return values.error();
        chosen.values = *values;
      }
      sizes.recompute.push_back(
          detail::layersUnder(chosen, forward, backward, saved, sizes));
      sizes.recompute.back().plain = ask.second;
      asked.push_back(ask);
    }
    choices.push_back(number);
  }
  for (const PlanRange &range : plan.stages.layers[place]) {
    std::vector<std::int64_t> counts(sizes.recompute.size());
    for (std::int64_t layer = range.first; layer <= range.last; ++layer)
      ++counts[choices[static_cast<std::size_t>(layer)]];
    for (std::size_t number = 0; number < counts.size(); ++number)
      sizes.recompute[number].layers += counts[number];
    sizes.choicesOfChunks.push_back(std::move(counts));
  }
  for (const LayersUnder &each : sizes.recompute)
    for (std::size_t half = 0; half < each.backward.size(); ++half)
      for (const BlockOp &op : each.backward[half])
        for (const std::string &name : op.parameters)
          for (RankParameter &parameter : sizes.parameters)
            parameter.isReadAgain[half] |=
                parameter.family.segment == Segment::Block &&
                parameter.family.argument == name;
  return {};
}

/// What flows on to the next layer is needed on the device.
Result<void> Reader::readOffload() {
  std::vector<std::string> names;
  for (const SavedValue &value : sizes.recompute.front().saved)
    if (value.name != "x2" &&
        std::all_of(
            sizes.recompute.begin(), sizes.recompute.end(),
            [&](const LayersUnder &each) { return each.saves(value.name); }))
      names.push_back(value.name);
  for (const std::string &name : plan.offload.saved)
    if (std::find(names.begin(), names.end(), name) == names.end())
      return Error{fmt::format(
          "offload.saved: found \"{}\", expected values that all layers save "
          "for backward, and that do not flow on to the next layer: {}",
          printable(name), fmt::join(names, ", "))};
  sizes.offloaded = plan.offload.saved;
  sizes.offloadsOptimizer = plan.offload.optimizer;
  sizes.hostRows = std::max<std::int64_t>(layersAhead(plan, model), 1) + 1;
  return {};
}

/// Drops what other places hold.
void Reader::keepPlace() {
  for (RankParameter &parameter : sizes.parameters)
    if (parameter.family.segment == Segment::Block)
      parameter.family.layers = sizes.layers;
  const RankStages &stages = sizes.stages;
  std::erase_if(sizes.parameters, [&](const RankParameter &parameter) {
    switch (parameter.family.segment) {
    case Segment::Embedding:
      return !stages.hasEmbedding && !(stages.hasHead && sizes.isTied &&
                                       parameter.family.argument == "embed");
    case Segment::Block:
      return sizes.layers == 0;
    case Segment::Head:
      return !stages.hasHead;
    }
    return false;
  });
}

Result<void> Reader::readChoices() {
  Result<RankStages> stages = detail::stagesAt(plan, place);
  if (!stages)
    return stages.error();
  sizes.stages = *stages;
  for (const PlanRange &range : plan.stages.layers[place])
    sizes.layers += detail::numberOf(range);
  sizes.unfusedAttention = plan.attention == PlanAttention::Unfused;
  sizes.savesMasks = plan.dropoutMasks == PlanMasks::Saved;
  sizes.savesLinearInputs = plan.save == PlanSave::LinearInputs;
  readStorage();
  readFormats();
  if (Result<void> done = readParameters(); !done)
    return done.error();
  if (Result<void> done = readValues(); !done)
    return done.error();
  setSizes();
  return readRecompute();
}

Result<RankSizes> Reader::read() {
  if (Result<void> done = readChoices(); !done)
    return done.error();
  if (Result<void> done = readOffload(); !done)
    return done.error();
  const RankStages &cut = sizes.stages;
  const std::int64_t longest = cut.areCut ? cut.mostOfChunk : sizes.layers;
  if (plan.overlapMemoryBytes) // as far as the memory goes
    for (BlockPass pass :
         {BlockPass::Forward, BlockPass::Backward, BlockPass::Weights})
      if (const std::int64_t unit = sizes.unitBytes(pass); unit > 0)
        sizes.storage.prefetch[static_cast<int>(pass)] = std::min(
            {plan.zero.prefetch, std::max<std::int64_t>(longest - 1, 0),
             *plan.overlapMemoryBytes / unit});
  if (Result<void> done = checkForm(); !done)
    return done.error();
  keepPlace();
  return std::move(sizes);
}

Result<RankSizes> heddle::rankSizes(const ModelConfig &model,
                                    const TrainSettings &train,
                                    const Plan &plan, std::int64_t place) {
  if (Result<std::vector<PlanWarning>> checked = checkPlan(plan, model, train);
      !checked)
    return checked.error();
  HEDDLE_CHECK(place >= 0 && place < plan.axisSize("pp"), "place {} of pp = {}",
               place, plan.axisSize("pp"));
  return Reader(model, train, plan, place).read();
}

Result<void> heddle::checkOffload(const ModelConfig &model,
                                  const TrainSettings &train,
                                  const Plan &plan) {
  Reader reader(model, train, plan, 0);
  if (plan.offload.saved.empty() || !reader.readChoices())
    return {};
  return reader.readOffload();
}

Result<std::vector<RankSizes>> heddle::placeSizes(const ModelConfig &model,
                                                  const TrainSettings &train,
                                                  const Plan &plan) {
  std::vector<RankSizes> places;
  for (std::int64_t place = 0; place < plan.axisSize("pp"); ++place) {
    Result<RankSizes> sizes = rankSizes(model, train, plan, place);
    if (!sizes)
      return sizes.error();
    places.push_back(std::move(*sizes));
  }
  return places;
}
