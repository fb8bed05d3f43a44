#include "heddle/Cost/Traffic.h"

#include "BlockForward.h"
#include "Reductions.h"

#include "heddle/Support/Mirror.h"

#include <fmt/format.h>

#include <algorithm>

using namespace heddle;

double heddle::gatherOrScatterBytes(double bytes, std::int64_t ranks) {
  const double n = static_cast<double>(ranks);
  return bytes * (n - 1) / n;
}

double heddle::allReduceBytes(double bytes, std::int64_t ranks) {
  return 2 * gatherOrScatterBytes(bytes, ranks);
}

std::map<AxisList, AxisTraffic>
heddle::trafficByAxes(const std::vector<StepCollective> &collectives) {
  std::map<AxisList, AxisTraffic> result;
  for (const StepCollective &collective : collectives) {
    AxisTraffic &entry = result[collective.axes];
    entry.calls += collective.calls;
    entry.bytes += collective.bytes;
  }
  return result;
}

namespace {

constexpr std::int64_t kFloat = 4, kWide = 8;

/// The list of a step's reductions, written down phase by phase.
class List {
public:
  List(const RankSizes &sizes, Messages messages)
      : sizes(sizes), messages(messages),
        blocks(sizes.layers * sizes.microBatchesOfCopy()),
        places(sizes.ranks({"pp"}) > 1 ? AxisList{"pp"} : AxisList{}) {}

  std::vector<StepCollective> build() {
    add("count of labels", sizes.data, 1, 1, kWide);
    forward();
    if (sizes.stages.hasHead)
      head();
    backward();
    again();
    scales();
    add("loss, of the last stage", places, 1, 1, kFloat);
    add("loss", sizes.data, 1, 1, kFloat);
    const std::size_t first = list.size();
    gradients();
    parameters();
    for (std::size_t i = first; i < list.size(); ++i)
      list[i].isOfStates = true;
    add("gradient norm", normAxes(), 1, 1, kWide);
    add("gradient norm, of all stages", places, 1, 1, kWide);
    return std::move(list);
  }

private:
  void add(const std::string &cause, const AxisList &axes, std::int64_t calls,
           std::int64_t elements, std::int64_t elementBytes,
           CollectiveKind kind = CollectiveKind::AllReduce) {
    if (axes.empty())
      return;
    const double whole = static_cast<double>(elements * elementBytes);
    const std::int64_t ranks = sizes.ranks(axes);
    const double each = kind == CollectiveKind::Send ? whole
                        : kind == CollectiveKind::AllReduce
                            ? allReduceBytes(whole, ranks)
                            : gatherOrScatterBytes(whole, ranks);
    list.push_back({kind, cause, axes, calls, elements, elementBytes,
                    each * static_cast<double>(calls)});
  }
  /// What goes from a stage to one beside it: sent where that is elsewhere, put
  /// together of its parts where it comes from \p from, wherever that is.
  void pass(const char *what, const RankStages::Side &to,
            const RankStages::Side &from) {
    const std::int64_t m = sizes.microBatchesOfCopy();
    if (from.chunks > 0)
      add(fmt::format("{}, received in parts", what), sizes.sentInParts(),
          from.chunks * m, hiddenElements(), sizes.formats.compute,
          CollectiveKind::AllGather);
    if (to.elsewhere > 0)
      add(fmt::format("{}, to a stage elsewhere", what), places,
          to.elsewhere * m, sizes.sentElements(), sizes.formats.compute,
          CollectiveKind::Send);
  }
  /// A sum of \p axes of what flows between blocks: whole, or each its part.
  void sum(const std::string &cause, const AxisList &axes, std::int64_t calls) {
    add(cause, axes, calls, hiddenElements(), sizes.formats.compute,
        sizes.sequence.empty() ? CollectiveKind::AllReduce
                               : CollectiveKind::ReduceScatter);
  }
  /// Where sequences are cut, what a product reads along all of them.
  void gather(const std::string &cause, std::int64_t calls) {
    add(cause, sizes.sequence, calls, hiddenElements(), sizes.formats.compute,
        CollectiveKind::AllGather);
  }

  /// The same in backward for the gradient of a weight: with overlap beside
  /// the product in front of it, the gradient of the input.
  void gatherAgain(int input, const std::string &cause) {
    gather(cause, blocks);
    if (sizes.storage.overlaps && !sizes.sequence.empty())
      for (const LayersUnder &each : sizes.recompute)
        if (detail::gathersBeside(each).count(input == 0 ? "n1 again"
                                                         : "n2 again"))
          list.back().hiddenCalls += each.layers * sizes.microBatchesOfCopy();
  }

  void forward();
  void head();
  void backward();
  void again();
  void scales();
  void gradients();
  void gradients(const detail::Bucket &bucket);
  void parameters();
  AxisList normAxes() const;

  std::int64_t hiddenElements() const { return sizes.tokens() * sizes.d; }
  std::int64_t keyElements() const {
    return sizes.tokens() * sizes.g * sizes.k;
  }
  const RankSizes &sizes;
  const Messages messages;
  const std::int64_t blocks; ///< calls of a block in one step
  const AxisList places;     ///< over which stages lie; none where one has all
  std::vector<StepCollective> list;
};

} // namespace

void List::forward() {
  // A rank has rows of the table for some of the tokens, zeros for the others.
  if (sizes.stages.hasEmbedding)
    sum("embedding", sizes.embedding, sizes.microBatchesOfCopy());
  pass("activation", sizes.stages.next, sizes.stages.previous);
  gather("attention input", blocks);
  sum("attention output", sizes.heads, blocks);
  gather("MLP input", blocks);
  sum("MLP output", sizes.ffn, blocks);
}

void List::head() {
  gather("head input", sizes.microBatchesOfCopy());
  // Of each row of logits: its maximum, the sum of exponentials, the label's.
  add("row maximum", sizes.head, sizes.microBatchesOfCopy(), sizes.tokens(),
      kFloat);
  add("row sum", sizes.head, sizes.microBatchesOfCopy(), sizes.tokens(),
      kFloat);
  add("picked logit", sizes.head, sizes.microBatchesOfCopy(), sizes.tokens(),
      kFloat);
  sum("gradient of head input", sizes.head, sizes.microBatchesOfCopy());
}

void List::backward() {
  pass("gradient", sizes.stages.previous, sizes.stages.next);
  gather("gradient of MLP output", blocks);
  if (!sizes.savesGathered[1])
    gatherAgain(1, "MLP input, again");
  sum("gradient of MLP input", sizes.ffn, blocks);
  gather("gradient of attention output", blocks);
  // Each rank has the gradient of its query heads only.
  add("gradient of keys", sizes.copies, blocks, keyElements(),
      sizes.formats.compute);
  if (!sizes.valuesStayPartial())
    add("gradient of values", sizes.copies, blocks, keyElements(),
        sizes.formats.compute);
  else if (!sizes
                .splitsKvHeads()) // its sum with the keys' part, which is whole
    add("values' part of attention input's gradient", sizes.copies, blocks,
        hiddenElements(), sizes.formats.compute);
  if (!sizes.savesGathered[0])
    gatherAgain(0, "attention input, again");
  sum("gradient of attention input", sizes.heads, blocks);
  if (sizes.stages.hasEmbedding)
    gather("gradient of embedding", sizes.microBatchesOfCopy());
}

/// What backward computes again, and moves.
void List::again() {
  for (const LayersUnder &each : sizes.recompute) {
    const std::set<std::string> beside = detail::gathersBeside(each);
    for (const BlockOp &op : each.again) {
      const auto &moves = op.moves;
      if (!moves)
        continue;
      add(moves->cause + ", computed again", moves->axes,
          each.layers * sizes.microBatchesOfCopy(), moves->elements,
          sizes.formats.compute, moves->kind);
      if (sizes.storage.overlaps && beside.count(op.results.front().key))
        list.back().hiddenCalls = list.back().calls;
    }
  }
}

/// Largest magnitudes that ranks with parts of one tensor share.
void List::scales() {
  if (!sizes.formats.scaling)
    return;
  auto count = [&](const std::vector<BlockOp> &ops, const LayersUnder &under) {
    for (const BlockOp &op : detail::withScales(ops, under.plain, sizes))
      if (op.moves && op.moves->elements == 1)
        add(op.moves->cause, op.moves->axes,
            under.layers * sizes.microBatchesOfCopy(), 1, kFloat);
  };
  for (const LayersUnder &each : sizes.recompute) {
    if (each.layers == 0)
      continue;
    count(each.forward, each);
    for (const std::vector<BlockOp> &ops : each.backward)
      count(ops, each);
  }
  if (!sizes.formats.delaysScales())
    return;
  AxisList axes;
  for (const auto &[axis, ranks] : sizes.mesh)
    if (axis != "pp" && ranks > 1)
      axes.push_back(axis);
  for (const std::int64_t tensors : sizes.scaledTensors())
    for (const AxisList &over :
         {axes,
          sizes.stages.copies > 1 ? AxisList{mirrorOf("pp")} : AxisList()})
      add("largest of a step's tensors", over, sizes.layers, tensors, kFloat);
}

/// "gradients of block: wd to g1".
static std::string causeOf(const detail::Bucket &bucket) {
  const ParameterFamily &first = bucket.members.front().parameter->family,
                        &last = bucket.members.back().parameter->family;
  std::string cause = fmt::format("gradients of {}: {}",
                                  segmentName(first.segment), first.argument);
  return bucket.members.size() == 1 ? cause : cause + " to " + last.argument;
}

void List::gradients() {
  for (const detail::Bucket &bucket : detail::gradientBuckets(sizes))
    gradients(bucket);
  if (sizes.isTied && sizes.stages.hasEmbedding != sizes.stages.hasHead) {
    const RankParameter &table = *sizes.find(Segment::Embedding, "embed");
    add("gradient of the tied table, to its other place", places, 1,
        sizes.storage.shards.empty() ? table.elements()
                                     : sizes.runElements(table),
        sizes.formats.reduce, CollectiveKind::Send);
  }
}

void List::gradients(const detail::Bucket &bucket) {
  const std::int64_t calls = bucket.instances * bucket.times;
  const std::string cause = causeOf(bucket);
  // Sums that lie side by side are reduced in place as one range.
  bool isRange = bucket.ofSums && messages == Messages::Buckets &&
                 !sizes.formats.castsToReduce() &&
                 !detail::isSummedOverEnds(sizes, bucket);
  const std::int64_t size = sizes.formats.reduce;
  const std::size_t before = list.size();
  for (std::size_t i = 0; i < bucket.members.front().steps.size(); ++i) {
    const auto [kind, axes, unused] = bucket.members.front().steps[i];
    if (!kind) {
      isRange = false;
      continue;
    }
    isRange &= *kind == CollectiveKind::AllReduce;
    std::int64_t range = 0;
    for (const detail::Reduction &member : bucket.members) {
      range += detail::alignBytes(
          detail::sumElements(sizes, *member.parameter) * size);
      if (!isRange)
        add(cause, axes, calls, member.steps[i].elements, size, *kind);
    }
    if (isRange)
      add(cause, axes, calls, range / size, size);
  }
  if (bucket.isHidden)
    for (std::size_t i = before; i < list.size(); ++i)
      list[i].hiddenCalls = list[i].calls;
}

/// Parameters that are stored in runs, put together where they are read; or
/// those that were updated in runs, once.
void List::parameters() {
  const RankStorage &storage = sizes.storage;
  for (const RankParameter &parameter : sizes.parameters) {
    const ParameterFamily &family = parameter.family;
    const std::string &name = family.argument;
    const bool isBlock = family.segment == Segment::Block;
    std::int64_t reads = sizes.microBatchesOfCopy();
    if (isBlock)
      for (BlockPass pass : {BlockPass::Backward, BlockPass::Weights})
        reads += parameter.isReadBy(pass) ? sizes.microBatchesOfCopy() : 0;
    // A tied table is read by the head too, which may be at another place.
    if (name == "embed" && sizes.isTied && sizes.stages.hasEmbedding &&
        sizes.stages.hasHead)
      reads += sizes.microBatchesOfCopy();
    const bool isRead =
        storage.parametersInRuns() && storage.gather == PlanGather::EveryPass;
    if (!isRead)
      reads = storage.parametersInRuns() &&
                      storage.gather == PlanGather::EveryMicroBatch
                  ? sizes.microBatchesOfCopy()
                  : 1;
    add(storage.parametersInRuns() ? "parameter " + family.name
                                   : "updated " + family.name,
        storage.shards, reads * family.layers, sizes.rowElements(parameter),
        sizes.formats.compute, CollectiveKind::AllGather);
    if (!isRead || !isBlock)
      continue;
    for (BlockPass pass : // but for a chunk's first layers
         {BlockPass::Forward, BlockPass::Backward, BlockPass::Weights})
      if (const std::int64_t depth = storage.ahead(pass);
          depth > 0 && parameter.isReadBy(pass))
        for (const std::int64_t layers : sizes.stages.chunkLayers)
          list.back().hiddenCalls += sizes.microBatchesOfCopy() *
                                     std::max<std::int64_t>(layers - depth, 0);
  }
}

/// Axes that split any parameter or cut it into runs: each rank has the squares
/// of its own part.
AxisList List::normAxes() const {
  auto has = [](const AxisList &axes, const std::string &axis) {
    return std::find(axes.begin(), axes.end(), axis) != axes.end();
  };
  AxisList axes;
  for (const auto &[axis, size] : sizes.mesh)
    if (has(sizes.storage.shards, axis) || has(sizes.split, axis))
      axes.push_back(axis);
  return axes;
}

std::vector<StepCollective> heddle::stepCollectives(const RankSizes &sizes,
                                                    Messages messages) {
  return List(sizes, messages).build();
}
