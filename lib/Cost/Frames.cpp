// A value of a function lives from the kernel that makes it to the last one
// that reads it. What the caller gave a place is none of the frame.

#include "Frames.h"

#include "Ends.h"

#include <algorithm>
#include <map>

using namespace heddle;
using namespace heddle::detail;

namespace {

class Frame {
public:
  Frame(const std::vector<BlockOp> &ops, const std::set<std::string> &outside)
      : ops(ops), outside(outside) {
    findPlaces();
    for (std::size_t i = 0; i < ops.size(); ++i) {
      for (const std::string &key : ops[i].reads)
        last[placeOf(key)] = i;
      for (const BlockValue &value : ops[i].results)
        last[placeOf(value.key)] = i;
    }
  }

  FramePeak run(std::string function) {
    peak.function = std::move(function);
    for (std::size_t first = 0; first < ops.size();) {
      std::size_t end = first + 1;
      while (end < ops.size() && joins(first, end))
        ++end;
      launch(first, end);
      first = end;
    }
    return std::move(peak);
  }

private:
  /// What is all-reduced and read by nobody else is reduced in place.
  void findPlaces() {
    std::map<std::string, int> readers;
    for (const BlockOp &op : ops)
      for (const std::string &key : op.reads)
        ++readers[key];
    for (auto op = ops.rbegin(); op != ops.rend(); ++op)
      if (op->moves && op->moves->kind == CollectiveKind::AllReduce &&
          readers[op->reads.front()] == 1 && !outside.count(op->reads.front()))
        places[op->reads.front()] = placeOf(op->results.front().key);
  }
  const std::string &placeOf(const std::string &key) const {
    const auto place = places.find(key);
    return place == places.end() ? key : place->second;
  }

  /// Whether one kernel holds ops from \p first to \p next.
  bool joins(std::size_t first, std::size_t next) const {
    if (!ops[next - 1].fuses || !ops[next].fuses)
      return false;
    for (std::size_t i = first; i < next; ++i)
      for (const BlockValue &value : ops[i].results)
        if (std::count(ops[next].reads.begin(), ops[next].reads.end(),
                       value.key))
          return true;
    return false;
  }

  void launch(std::size_t first, std::size_t end) {
    std::int64_t written = 0, temporary = 0;
    for (std::size_t i = first; i < end; ++i) {
      temporary += ops[i].temporary;
      for (const BlockValue &value : ops[i].results) {
        const std::string &place = placeOf(value.key);
        const bool isWithinKernel = ops[i].fuses && last.at(place) < end;
        if (!outside.count(place) && !isWithinKernel &&
            live.emplace(place, value.bytes).second)
          written += value.bytes;
      }
    }
    sum += written + temporary;
    if (sum > peak.frameBytes) {
      peak.frameBytes = sum;
      const BlockOp &op = ops[end - 1];
      peak.moment = op.moment.empty() && !op.results.empty()
                        ? op.results.front().name
                        : op.moment;
    }
    sum -= temporary;
    for (auto value = live.begin(); value != live.end();)
      if (last.at(value->first) < end) {
        sum -= value->second;
        value = live.erase(value);
      } else {
        ++value;
      }
  }

  const std::vector<BlockOp> &ops;
  const std::set<std::string> &outside;
  std::map<std::string, std::string> places; ///< of what is reduced in place
  std::map<std::string, std::size_t> last;   ///< op that touches a place
  std::map<std::string, std::int64_t> live;  ///< bytes
  std::int64_t sum = 0;
  FramePeak peak;
};

} // namespace

FramePeak detail::framePeak(const std::string &function,
                            const std::vector<BlockOp> &ops,
                            const std::set<std::string> &outside) {
  return Frame(ops, outside).run(function);
}

FramePeak detail::headFrame(const ModelConfig &model, const RankSizes &sizes) {
  return framePeak("head", headOps(model, sizes), {});
}

std::vector<BlockValue> detail::keptValues(const LayersUnder &under) {
  std::vector<BlockValue> kept;
  if (under.backward.size() < 2)
    return kept;
  const std::vector<std::string> read = readOutside(under.backward[1]);
  for (const BlockOp &op : under.backward[0])
    for (const BlockValue &value : op.results)
      if (std::count(read.begin(), read.end(), value.key))
        kept.push_back(value);
  return kept;
}

FramePeak detail::backwardFrame(const LayersUnder &under,
                                const RankSizes &sizes, std::size_t half) {
  std::set<std::string> outside = {"d_x"};
  for (const BlockValue &value : keptValues(under))
    outside.insert(value.key);
  return framePeak("block_bwd",
                   withScales(under.backward[half], under.plain, sizes),
                   outside);
}

FramePeak detail::forwardFrame(const ModelConfig &model, const RankSizes &sizes,
                               const LayersUnder &under) {
  const std::vector<BlockOp> ops = blockForward(model, sizes);
  // What goes on to the next block, and what is saved.
  std::set<std::string> outside = {"x2", ops.back().results.front().key};
  for (const std::vector<BlockOp> &function : under.backward)
    for (const std::string &key : readOutside(function))
      outside.insert(key);
  return framePeak("block", withScales(ops, under.plain, sizes), outside);
}

FramePeak detail::embeddingFrame(const ModelConfig &model,
                                 const RankSizes &sizes, bool isBackward) {
  return isBackward
             ? framePeak("embedding_bwd", embeddingGradOps(model, sizes), {})
             : framePeak("embedding", embeddingOps(model, sizes), {"x"});
}
