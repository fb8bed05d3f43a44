#include "Storage.h"

#include "Frames.h"

#include <algorithm>

using namespace heddle;
using namespace heddle::detail;

/// Bytes of all entries. With stages the last one is as long as the others:
/// other places have others behind it.
static std::int64_t entryBytes(const RankSizes &sizes, std::int64_t bytes,
                               std::int64_t entries) {
  return sizes.stages.areCut ? alignBytes(bytes) * entries
                             : stackBytes(bytes, entries);
}

/// Bytes of all parameters of which a rank has this many elements.
template <class Elements>
static std::int64_t sum(const RankSizes &sizes, Elements elements) {
  std::int64_t bytes = 0;
  for (const RankParameter &parameter : sizes.parameters)
    bytes += entryBytes(sizes, elements(parameter) * kFloat,
                        parameter.family.layers);
  return bytes;
}

std::int64_t Storage::parameters() const {
  return sum(sizes, [&](const RankParameter &parameter) {
    return storage.parametersInRuns() ? sizes.runElements(parameter)
           : storage.shards.empty()   ? parameter.elements()
                                      : sizes.rowElements(parameter);
  });
}

std::int64_t Storage::optimizer() const {
  return sum(sizes, [&](const RankParameter &parameter) {
    return storage.shards.empty() ? parameter.elements()
                                  : sizes.runElements(parameter);
  });
}

std::int64_t Storage::gradients() const {
  auto bytesOf = [&](const RankParameter &parameter) {
    return sumElements(sizes, parameter) * kFloat;
  };
  std::int64_t bytes = 0;
  std::vector<const RankParameter *> inBuckets;
  for (const Bucket &bucket : ofSums)
    for (const Reduction &member : bucket.members) {
      bytes += alignBytes(bytesOf(*member.parameter)) * bucket.instances;
      inBuckets.push_back(member.parameter);
    }
  for (const RankParameter &parameter : sizes.parameters)
    if (std::find(inBuckets.begin(), inBuckets.end(), &parameter) ==
        inBuckets.end())
      bytes += entryBytes(sizes, bytesOf(parameter), parameter.family.layers);
  return bytes;
}

/// Copies that stay beyond a call, while a segment runs.
std::int64_t Storage::copies(Segment segment) const {
  // Each micro-batch makes them anew, and needs them until it has read them for
  // the last time; the step until the last micro-batch has.
  const bool allStay =
      peelsLastMicroBatch(sizes) || storage.gather == PlanGather::OncePerStep;
  std::int64_t bytes = 0;
  for (const RankParameter &parameter : sizes.parameters)
    if (allStay || parameter.isReadByBackward() ||
        (segment == Segment::Head && parameter.family.segment == segment))
      bytes += sizes.rowElements(parameter) * kFloat * parameter.family.layers;
  return bytes;
}

std::int64_t Storage::gathered(Segment segment, bool ofBackward) const {
  if (!storage.parametersInRuns())
    return 0;
  if (storage.gather != PlanGather::EveryPass)
    return copies(segment);
  std::int64_t bytes = 0;
  for (const RankParameter &parameter : sizes.parameters) {
    const ParameterFamily &family = parameter.family;
    const bool isTied =
        segment == Segment::Head && sizes.isTied && family.argument == "embed";
    if (family.segment != segment && !isTied)
      continue;
    if (ofBackward && !parameter.isReadByBackward())
      continue;
    const std::int64_t slots =
        segment == Segment::Block ? storage.prefetch[ofBackward] + 1 : 1;
    bytes += sizes.rowElements(parameter) * kFloat * slots;
  }
  return bytes;
}

std::int64_t Storage::made(Segment segment) const {
  std::int64_t bytes = 0;
  for (const Bucket &bucket : ofMicroBatches)
    for (const Reduction &member : bucket.members) {
      if (bucket.segment == segment)
        bytes += (storage.sumsInRuns() ? sizes.rowElements(*member.parameter)
                                       : member.parameter->elements()) *
                 kFloat;
    }
  return bytes;
}
