#include "Reductions.h"

#include "heddle/Support/Mirror.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

using namespace heddle;
using namespace heddle::detail;

std::int64_t detail::alignBytes(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

static AxisList without(const AxisList &axes, const AxisList &others) {
  AxisList rest;
  for (const std::string &axis : axes)
    if (std::find(others.begin(), others.end(), axis) == others.end())
      rest.push_back(axis);
  return rest;
}

static AxisList operator+(AxisList axes, const AxisList &more) {
  axes.insert(axes.end(), more.begin(), more.end());
  return axes;
}

bool Reduction::moves() const {
  return std::any_of(steps.begin(), steps.end(),
                     [](const ReductionStep &step) { return step.kind; });
}

std::string Reduction::text() const {
  std::string text;
  for (const ReductionStep &step : steps)
    text +=
        fmt::format("{}({}) ", step.kind ? static_cast<int>(*step.kind) : -1,
                    fmt::join(step.axes, ", "));
  return text;
}

AxisList detail::copyAxes(const RankSizes &sizes,
                          const RankParameter &parameter) {
  const std::string &name = parameter.family.argument,
                    &letters = parameter.family.letters;
  AxisList axes;
  // Made of tokens that are cut: norms, what is added behind a reduction,
  // learned positions.
  if (letters == "d" || letters == "position d")
    axes = sizes.sequence;
  if (parameter.family.segment != Segment::Block)
    return axes;
  if (name == "gq")
    return axes + sizes.heads;
  if (name == "gk")
    return axes + without(sizes.heads, sizes.copies);
  if ((name == "wv" || name == "bv") && sizes.valuesStayPartial())
    return axes + sizes.copies;
  return axes;
}

namespace {

class Finder {
public:
  explicit Finder(const RankSizes &sizes)
      : sizes(sizes), storage(sizes.storage) {}

  std::vector<Bucket> run() {
    if (storage.reducesEveryMicroBatch && !sizes.data.empty())
      ofMicroBatches();
    ofSums();
    return std::move(buckets);
  }

  /// From the sum over micro-batches to the gradient.
  Reduction ofSum(const RankParameter &parameter) const;

private:
  /// From what one micro-batch adds to the sum.
  Reduction ofMicroBatch(const RankParameter &parameter) const;
  void ofMicroBatches();
  void ofSums();
  using List = std::vector<const RankParameter *>;
  /// The parameters of a block, by the half of backward that makes their
  /// gradients.
  std::pair<List, List> halves() const;
  /// The parameters of one segment, or of all but blocks.
  std::vector<const RankParameter *> of(std::optional<Segment> segment) const;
  /// Closes buckets of what stands together.
  void add(std::vector<Reduction> unit, const Bucket &form);

  const RankSizes &sizes;
  const RankStorage &storage;
  std::vector<Bucket> buckets;
};

} // namespace

Reduction Finder::ofMicroBatch(const RankParameter &parameter) const {
  Reduction reduction{&parameter, {}};
  if (storage.sumsInRuns())
    reduction.steps.push_back({CollectiveKind::ReduceScatter, storage.shards,
                               sizes.rowElements(parameter)});
  else
    reduction.steps.push_back(
        {CollectiveKind::AllReduce, sizes.data, parameter.elements()});
  return reduction;
}

Reduction Finder::ofSum(const RankParameter &parameter) const {
  Reduction reduction{&parameter, {}};
  const std::int64_t run = sizes.runElements(parameter);
  std::int64_t elements = storage.sumsInRuns() ? run : parameter.elements();
  auto reduce = [&](const AxisList &axes) {
    if (!axes.empty())
      reduction.steps.push_back({CollectiveKind::AllReduce, axes, elements});
  };
  AxisList copies = copyAxes(sizes, parameter), data;
  if (!storage.reducesEveryMicroBatch)
    data = sizes.data;
  else if (storage.sumsInRuns())
    data = without(sizes.data, storage.shards);
  // Over copies first, so that sums over data have one group and order.
  if (!data.empty()) {
    reduce(copies);
    copies = {};
  }
  if (!storage.shards.empty() && !storage.sumsInRuns()) {
    if (storage.reducesEveryMicroBatch)
      reduction.steps.push_back({std::nullopt, storage.shards, 0});
    else
      reduction.steps.push_back({CollectiveKind::ReduceScatter, storage.shards,
                                 sizes.rowElements(parameter)});
    data = without(data, storage.shards);
    elements = run;
  }
  reduce(data + copies);
  if (sizes.stages.copies > 1)
    reduce({mirrorOf("pp")});
  return reduction;
}

std::vector<const RankParameter *>
Finder::of(std::optional<Segment> segment) const {
  std::vector<const RankParameter *> list;
  for (const RankParameter &parameter : sizes.parameters)
    if (segment ? parameter.family.segment == *segment
                : parameter.family.segment != Segment::Block)
      list.push_back(&parameter);
  return list;
}

void Finder::add(std::vector<Reduction> unit, const Bucket &form) {
  std::erase_if(unit, [](const Reduction &each) { return !each.moves(); });
  if (storage.buckets.order == PlanBucketOrder::Backward)
    std::reverse(unit.begin(), unit.end());
  std::vector<std::string> texts;
  for (const Reduction &reduction : unit)
    if (std::string text = reduction.text();
        std::find(texts.begin(), texts.end(), text) == texts.end())
      texts.push_back(text);
  for (const std::string &text : texts) {
    Bucket bucket = form;
    std::int64_t bytes = 0;
    auto close = [&] {
      if (!bucket.members.empty())
        buckets.push_back(std::exchange(bucket, form));
      bytes = 0;
    };
    for (const Reduction &reduction : unit) {
      if (reduction.text() != text)
        continue;
      bucket.members.push_back(reduction);
      const RankParameter &parameter = *reduction.parameter;
      bytes += sizes.formats.gradients * (form.ofSums && storage.sumsInRuns()
                                              ? sizes.runElements(parameter)
                                              : parameter.elements());
      if (bytes >= storage.buckets.gradientBytes)
        close();
    }
    close();
  }
}

/// Where W slots run apart, norms' gradients come with those of their inputs.
std::pair<Finder::List, Finder::List> Finder::halves() const {
  List first, weights;
  for (const RankParameter *parameter : of(Segment::Block)) {
    const char kind = parameter->family.argument.front();
    const bool isOfNorm = kind == 'g' || kind == 'h';
    (isOfNorm || !sizes.stages.splitsBackward ? first : weights)
        .push_back(parameter);
  }
  return {first, weights};
}

/// Each call's results, when it has made them.
void Finder::ofMicroBatches() {
  auto addCall = [&](std::vector<const RankParameter *> made, Segment segment,
                     std::int64_t layers,
                     BlockPass pass = BlockPass::Backward) {
    std::vector<Reduction> unit;
    for (const RankParameter *parameter : made)
      unit.push_back(ofMicroBatch(*parameter));
    Bucket form;
    form.segment = segment;
    form.pass = pass;
    form.instances = layers;
    form.times = sizes.microBatchesOfCopy();
    add(unit, form);
  };
  const auto [block, weights] = halves();
  addCall(block, Segment::Block, sizes.layers);
  addCall(weights, Segment::Block, sizes.layers, BlockPass::Weights);
  if (sizes.stages.hasHead) {
    std::vector<const RankParameter *> head = of(Segment::Head);
    if (sizes.isTied)
      head.push_back(sizes.find(Segment::Embedding, "embed"));
    addCall(head, Segment::Head, 1);
  }
  if (sizes.stages.hasEmbedding)
    addCall(of(Segment::Embedding), Segment::Embedding, 1);
}

/// After the last micro-batch, or in it as soon as they are complete.
void Finder::ofSums() {
  auto addUnit = [&](const std::vector<const RankParameter *> &parameters,
                     std::int64_t layers, bool isHidden) {
    std::vector<Reduction> unit;
    for (const RankParameter *parameter : parameters)
      unit.push_back(ofSum(*parameter));
    Bucket form;
    form.instances = layers;
    form.ofSums = true;
    form.isHidden = isHidden;
    add(unit, form);
  };
  const bool overlaps = storage.overlaps && sizes.stages.reducesInSlots;
  // Those that each micro-batch reduces are complete apart.
  const auto [block, weights] = storage.reducesEveryMicroBatch && overlaps
                                    ? halves()
                                    : std::pair(of(Segment::Block), List());
  addUnit(block, sizes.layers, overlaps);
  addUnit(weights, sizes.layers, overlaps);
  if (overlaps) {
    addUnit(of(Segment::Head), 1, true);
    std::vector<const RankParameter *> embedding = of(Segment::Embedding);
    // The other end of the chain has a part of the table's gradient.
    if (sizes.stages.areCut && sizes.isTied)
      if (const RankParameter *table =
              sizes.find(Segment::Embedding, "embed")) {
        std::erase(embedding, table);
        addUnit({table}, 1, false);
      }
    addUnit(embedding, 1, false);
  } else if (sizes.stages.areCut) { // done where they are, each for itself
    for (const RankParameter *parameter : of(std::nullopt))
      addUnit({parameter}, 1, false);
  } else {
    addUnit(of(std::nullopt), 1, false);
  }
}

std::vector<Bucket> detail::gradientBuckets(const RankSizes &sizes) {
  return Finder(sizes).run();
}

/// Whether chunks of both ends of a chain add to a sum.
static bool isOfBothEnds(const RankSizes &sizes, const Bucket &bucket) {
  return bucket.ofSums && sizes.stages.areCut && sizes.isTied &&
         bucket.members.front().parameter->family.argument == "embed";
}

bool detail::isSummedOverEnds(const RankSizes &sizes, const Bucket &bucket) {
  return isOfBothEnds(sizes, bucket) && sizes.stages.copies == 1;
}

bool detail::isBesideSlots(const RankSizes &sizes, const Bucket &bucket) {
  return bucket.ofSums && sizes.storage.overlaps &&
         sizes.stages.reducesInSlots && !isOfBothEnds(sizes, bucket);
}

bool detail::isReducedAsRange(const RankSizes &sizes, const Bucket &bucket) {
  return bucket.ofSums && !sizes.formats.castsToReduce() &&
         !isSummedOverEnds(sizes, bucket) &&
         bucket.members.front().steps.front().kind == CollectiveKind::AllReduce;
}

bool detail::peelsLastMicroBatch(const RankSizes &sizes) {
  if (!sizes.storage.overlaps || sizes.microBatches == 1 || sizes.stages.areCut)
    return false;
  const std::vector<Bucket> buckets = gradientBuckets(sizes);
  return std::any_of(buckets.begin(), buckets.end(),
                     [](const Bucket &bucket) { return bucket.ofSums; });
}

std::int64_t detail::sumElements(const RankSizes &sizes,
                                 const RankParameter &parameter) {
  if (sizes.storage.sumsInRuns())
    return sizes.runElements(parameter);
  return sizes.storage.shards.empty() ? parameter.elements()
                                      : sizes.rowElements(parameter);
}
