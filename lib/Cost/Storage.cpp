#include "Storage.h"

#include "BlockForward.h"

#include "heddle/Cost/LiveMemory.h"

#include <algorithm>
#include <set>

using namespace heddle;
using namespace heddle::detail;

/// Bytes of all entries. With stages the last one is as long as the others:
/// other places have others behind it.
static std::int64_t entryBytes(const RankSizes &sizes, std::int64_t bytes,
                               std::int64_t entries) {
  return sizes.stages.areCut ? alignBytes(bytes) * entries
                             : stackBytes(bytes, entries);
}

/// Bytes of all parameters of which a rank has this many elements, each of
/// `size` bytes.
template <class Elements>
static std::int64_t sum(const RankSizes &sizes, std::int64_t size,
                        Elements elements) {
  std::int64_t bytes = 0;
  for (const RankParameter &parameter : sizes.parameters)
    bytes +=
        entryBytes(sizes, elements(parameter) * size, parameter.family.layers);
  return bytes;
}

std::int64_t Storage::parameters() const {
  return sum(sizes, sizes.formats.compute, [&](const RankParameter &parameter) {
    return storage.parametersInRuns() ? sizes.runElements(parameter)
           : storage.shards.empty()   ? parameter.elements()
                                      : sizes.rowElements(parameter);
  });
}

std::int64_t Storage::optimizer() const {
  return sum(sizes, kFloat, [&](const RankParameter &parameter) {
    return optimizerElements(parameter);
  });
}

std::int64_t Storage::scales() const {
  if (!sizes.formats.delaysScales())
    return 0;
  std::int64_t bytes = 0;
  for (const std::int64_t tensors : sizes.scaledTensors())
    // The history, what scales are made of, this step's.
    for (const std::int64_t each :
         {sizes.formats.scaling->amaxHistory, std::int64_t{1}, std::int64_t{1}})
      bytes += entryBytes(sizes, tensors * each * kFloat, sizes.layers);
  return bytes;
}

std::int64_t Storage::optimizerElements(const RankParameter &parameter) const {
  return storage.shards.empty() ? parameter.elements()
                                : sizes.runElements(parameter);
}

std::int64_t Storage::optimizerRows(std::int64_t numbers) const {
  std::int64_t most = 0, before = 0;
  for (const RankParameter &parameter : sizes.parameters) {
    const bool isOfLayers = parameter.family.segment == Segment::Block;
    const std::int64_t one = stackBytes(kFloat * optimizerElements(parameter),
                                        isOfLayers ? sizes.hostRows : 1);
    most = std::max(most, before + numbers * one);
    before = numbers * one;
  }
  return most;
}

std::int64_t Storage::gradients() const {
  auto bytesOf = [&](const RankParameter &parameter) {
    return sumElements(sizes, parameter) * sizes.formats.gradients;
  };
  std::int64_t bytes = 0;
  std::vector<const RankParameter *> inBuckets;
  for (const Bucket &bucket : ofSums) {
    for (const Reduction &member : bucket.members) {
      bytes += alignBytes(bytesOf(*member.parameter)) * bucket.instances;
      inBuckets.push_back(member.parameter);
    }
    const std::int64_t last = bytesOf(*bucket.members.back().parameter);
    if (!sizes.stages.areCut &&
        !isReducedAsRange(sizes, bucket)) // nothing is behind the last one
      bytes -= alignBytes(last) - last;
  }
  for (const RankParameter &parameter : sizes.parameters)
    if (std::find(inBuckets.begin(), inBuckets.end(), &parameter) ==
        inBuckets.end())
      bytes += entryBytes(sizes, bytesOf(parameter), parameter.family.layers);
  return bytes;
}

/// Whether a copy that stays beyond a call is there while another one runs.
bool Storage::isThere(const RankParameter &parameter, Segment segment,
                      BlockPass pass) const {
  // Each micro-batch makes them anew, and needs them until it has read them for
  // the last time; the step until the last micro-batch has. In slots the copies
  // that several read are those of all of them.
  if (peelsLastMicroBatch(sizes) || storage.gather == PlanGather::OncePerStep ||
      parameter.isReadByBackward())
    return true;
  const RankStages &stages = sizes.stages;
  const bool ofForward = pass == BlockPass::Forward;
  if (sizes.isTied && parameter.family.argument == "embed" &&
      (segment == Segment::Head ||
       (stages.areCut ? stages.hasEmbedding && stages.hasHead : ofForward)))
    return true;
  return parameter.family.segment == segment &&
         (segment == Segment::Head || ofForward);
}

std::int64_t Storage::copies(Segment segment, BlockPass pass) const {
  std::int64_t bytes = 0;
  for (const RankParameter &parameter : sizes.parameters)
    if (isThere(parameter, segment, pass))
      bytes += entryBytes(sizes,
                          sizes.rowElements(parameter) * sizes.formats.compute,
                          parameter.family.layers);
  return bytes;
}

std::int64_t Storage::gathered(Segment segment, BlockPass pass) const {
  if (!storage.parametersInRuns())
    return 0;
  if (storage.gather != PlanGather::EveryPass)
    return copies(segment, pass);
  if (segment == Segment::Embedding && pass != BlockPass::Forward)
    return 0;
  std::int64_t bytes = 0;
  for (const RankParameter &parameter : sizes.parameters) {
    const ParameterFamily &family = parameter.family;
    const bool isTied =
        segment == Segment::Head && sizes.isTied && family.argument == "embed";
    if (family.segment != segment && !isTied)
      continue;
    if (segment == Segment::Block && !parameter.isReadBy(pass))
      continue;
    const std::int64_t row =
        sizes.rowElements(parameter) * sizes.formats.compute;
    const std::int64_t ahead = storage.ahead(pass);
    if (segment != Segment::Block || ahead == 0)
      bytes += row;
    else // a place of short chunks has no more than they need
      bytes += entryBytes(
          sizes, row,
          std::min(ahead + 1,
                   *std::max_element(sizes.stages.chunkLayers.begin(),
                                     sizes.stages.chunkLayers.end())));
  }
  return bytes;
}

std::int64_t Storage::made(Segment segment, BlockPass pass) const {
  std::int64_t bytes = 0;
  for (const Bucket &bucket : ofMicroBatches)
    for (const Reduction &member : bucket.members) {
      if (bucket.segment != segment || bucket.pass != pass)
        continue;
      // A row, unless the row is what it is cast to.
      const bool isRow = storage.sumsInRuns() && !sizes.formats.castsToReduce();
      bytes += (isRow ? sizes.rowElements(*member.parameter)
                      : member.parameter->elements()) *
               sizes.formats.gradients;
    }
  return bytes;
}

/// Elements of a gradient that is cast, as the row that runs are cut from where
/// it is one.
static std::int64_t castElements(const RankSizes &sizes, const Bucket &bucket,
                                 const Reduction &member) {
  const bool becomesRow = std::any_of(
      member.steps.begin(), member.steps.end(), [](const ReductionStep &step) {
        return !step.kind || *step.kind == CollectiveKind::ReduceScatter;
      });
  if (becomesRow)
    return sizes.rowElements(*member.parameter);
  return bucket.ofSums && sizes.storage.sumsInRuns()
             ? sizes.runElements(*member.parameter)
             : member.parameter->elements();
}

std::int64_t Storage::onTheirWay() const {
  if (!sizes.formats.castsToReduce())
    return 0;
  std::int64_t most = 0;
  for (const std::vector<Bucket> *buckets : {&ofSums, &ofMicroBatches})
    for (const Bucket &bucket : *buckets) {
      if (isSummedOverEnds(sizes, bucket))
        continue; // each cast has a place of its own
      std::int64_t bytes = 0;
      for (const Reduction &member : bucket.members)
        bytes = alignBytes(bytes) +
                castElements(sizes, bucket, member) * sizes.formats.reduce;
      most = std::max(most, bytes);
    }
  return most;
}

std::int64_t Storage::ofBothEnds() const {
  const RankParameter *table = sizes.find(Segment::Embedding, "embed");
  if (!sizes.stages.areCut || !sizes.isTied || !table ||
      sizes.stages.copies > 1 ||
      sizes.stages.hasEmbedding == sizes.stages.hasHead)
    return 0;
  const std::int64_t elements =
      storage.shards.empty() ? table->elements() : sizes.runElements(*table);
  std::int64_t places = 1;
  for (const Bucket &bucket : ofSums)
    if (isSummedOverEnds(sizes, bucket) &&
        bucket.members.front().steps.back().kind == CollectiveKind::AllReduce)
      places = 2;
  std::int64_t bytes = places * elements * sizes.formats.reduce;
  if (sizes.formats.castsToReduce()) // this one's, on its way
    bytes +=
        sizes.formats.reduce * (storage.shards.empty() || storage.sumsInRuns()
                                    ? elements
                                    : sizes.rowElements(*table));
  return bytes;
}

bool Storage::isInSlotsOfSeveral() const {
  std::set<Segment> segments;
  for (const Bucket &bucket : ofMicroBatches)
    segments.insert(bucket.segment);
  for (const Bucket &bucket : ofSums)
    if (isBesideSlots(sizes, bucket))
      segments.insert(bucket.members.front().parameter->family.segment);
  return sizes.stages.areCut && segments.size() > 1;
}

std::int64_t Storage::onTheirWay(Segment segment) const {
  const bool inEachMicroBatch = !ofMicroBatches.empty();
  // One range of memory for all buckets: it is live between the first use and
  // the last, where these are in one iteration of the loop over micro-batches.
  // Which slot is the first or last to use it is not known.
  const bool around =
      isInSlotsOfSeveral() ||
      (inEachMicroBatch &&
       (peelsLastMicroBatch(sizes) || (!storage.overlaps && !ofSums.empty())));
  const bool behindHead = inEachMicroBatch || storage.overlaps;
  return segment == Segment::Head ? (around ? onTheirWay() : 0)
                                  : (behindHead ? onTheirWay() : 0);
}
