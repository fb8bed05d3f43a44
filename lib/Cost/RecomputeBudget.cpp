#include "BlockForward.h"

#include "heddle/Cost/LiveMemory.h"
#include "heddle/Cost/Traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>

using namespace heddle;
using namespace heddle::detail;

namespace {

/// Of an H100 SXM in bf16: operations per byte of its memory, and bytes of its
/// memory per byte that goes to another device of the node. Only what is
/// cheaper than what depends on them.
constexpr double kOperationsPerByte = 295, kBytesPerSentByte = 7.4;

/// Tries every set of values of a block; it has about twenty.
class BudgetSearch {
public:
  BudgetSearch(const std::vector<BlockOp> &ops,
               const std::vector<SavedValue> &saved, const RankSizes &sizes)
      : sizes(sizes) {
    for (const BlockOp &op : ops)
      add(op);
    for (const SavedValue &value : saved)
      needed.push_back(numbers.at(savedKey(value.name, sizes)));
    findNames(ops);
  }

  /// The cheapest set within \p bytes, of equal ones the one that saves least;
  /// none where no set is within them. `least`: what any set saves at least.
  std::optional<std::vector<std::string>> run(std::int64_t bytes,
                                              std::int64_t &least) {
    std::optional<std::uint64_t> best;
    Outcome found;
    least = std::numeric_limits<std::int64_t>::max();
    for (std::uint64_t set = 0; set < std::uint64_t{1} << names.size(); ++set) {
      const Outcome outcome = evaluate(set);
      least = std::min(least, outcome.saved);
      if (outcome.saved > bytes ||
          (best && std::pair(outcome.cost, outcome.saved) >=
                       std::pair(found.cost, found.saved)))
        continue;
      best = set;
      found = outcome;
    }
    if (!best)
      return std::nullopt;
    std::vector<std::string> values;
    for (std::size_t i = 0; i < names.size(); ++i)
      if (*best >> i & 1)
        values.push_back(names[i]);
    return values;
  }

private:
  struct Outcome {
    double cost = 0; ///< in bytes of memory traffic
    std::int64_t saved = 0;
  };
  struct Op {
    std::vector<std::size_t> reads; ///< values
    double cost = 0;
    std::size_t name = 64; ///< 64: none
  };

  std::size_t numberOf(const std::string &key, std::int64_t bytes) {
    const auto [entry, isNew] = numbers.try_emplace(key, numbers.size());
    if (isNew) {
      valueBytes.push_back(bytes);
      makers.push_back(-1);
    }
    return entry->second;
  }

  void add(const BlockOp &op) {
    Op &made = all.emplace_back();
    for (const std::string &read : op.reads) // what comes in is as large as
      made.reads.push_back(numberOf(read, op.results.front().bytes)); // x1
    double bytes = 0;
    for (const BlockValue &value : op.results) {
      makers[numberOf(value.key, value.bytes)] =
          static_cast<int>(all.size() - 1);
      bytes += static_cast<double>(2 * value.bytes); // written, and read
    }
    made.cost =
        std::max(bytes, (op.products + op.attention) / kOperationsPerByte);
    if (op.moves)
      made.cost +=
          kBytesPerSentByte *
          gatherOrScatterBytes(
              static_cast<double>(op.moves->elements * sizes.formats.compute),
              sizes.ranks(op.moves->axes)) *
          (op.moves->kind == CollectiveKind::AllReduce ? 2 : 1);
  }

  /// Names of ops that lead to something that is saved.
  void findNames(const std::vector<BlockOp> &ops) {
    std::vector<std::size_t> open = needed;
    std::set<int> leading;
    while (!open.empty()) {
      const int maker = makers[open.back()];
      open.pop_back();
      if (maker >= 0 && leading.insert(maker).second)
        open.insert(open.end(), all[maker].reads.begin(),
                    all[maker].reads.end());
    }
    for (int i : leading) {
      const std::string &name = ops[i].results.front().name;
      all[i].name = std::find(names.begin(), names.end(), name) - names.begin();
      if (all[i].name == names.size())
        names.push_back(name);
    }
  }

  Outcome evaluate(std::uint64_t set) {
    Outcome outcome;
    std::uint64_t seen = 0, again = 0;
    stack = needed;
    while (!stack.empty()) {
      const std::size_t value = stack.back();
      stack.pop_back();
      if (seen >> value & 1)
        continue;
      seen |= std::uint64_t{1} << value;
      const int maker = makers[value];
      if (maker < 0 || all[maker].name == 64 || !(set >> all[maker].name & 1)) {
        outcome.saved += valueBytes[value];
      } else if (!(again >> maker & 1)) {
        again |= std::uint64_t{1} << maker;
        outcome.cost += all[maker].cost;
        stack.insert(stack.end(), all[maker].reads.begin(),
                     all[maker].reads.end());
      }
    }
    return outcome;
  }

  const RankSizes &sizes;
  std::map<std::string, std::size_t> numbers; ///< of values, by key
  std::vector<std::int64_t> valueBytes;
  std::vector<int> makers; ///< of values; -1: comes in
  std::vector<Op> all;
  std::vector<std::size_t> needed, stack;
  std::vector<std::string> names;
};

} // namespace

Result<std::vector<std::string>> heddle::detail::valuesWithin(
    std::int64_t bytes, const std::vector<BlockOp> &forward,
    const std::vector<SavedValue> &saved, const RankSizes &sizes) {
  std::int64_t least = 0;
  auto values = BudgetSearch(forward, saved, sizes).run(bytes, least);
  if (!values)
    return Error{fmt::format(
        "plan: recompute: budget_bytes is {}, but a layer saves at least {} "
        "bytes of a micro-batch, where all that can be is computed again",
        bytes, least)};
  return std::move(*values);
}
