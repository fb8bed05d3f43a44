#include "runtime/train/Replicas.h"

#include "heddle/Runtime/Random.h"
#include "runtime/common/Status.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>

namespace heddle::train {

using runtime::State;
using runtime::Tables;

std::vector<Instance> listInstances(const Tables &tables) {
  std::vector<Instance> list;
  for (const State &state : tables.states)
    for (int64_t layer = 0; layer < state.layers; ++layer)
      list.push_back({&state, layer});
  return list;
}

heddle_rt_status digestStates(Rank &rank, std::vector<int64_t> &digests) {
  std::vector<char> bytes;
  digests.clear();
  for (const State &state : rank.tables.states) {
    const Extents extents = extentsOf(rank.tables, rank.rank, state);
    const size_t first = digests.size();
    digests.resize(first + size_t(state.layers), 0);
    int64_t i = 0;
    for (int64_t layer : rank.tables.instancesAt(state, rank.stage)) {
      bytes.resize(size_t(extents.storedElements() * bytesOf(state.dtype)));
      HEDDLE_RT_TRY(rank.download(
          bytes.data(), instancePlace(state, i++, extents, rank.stage),
          int64_t(bytes.size())));
      digests[first + size_t(layer)] =
          int64_t(random::nameHash(bytes.data(), bytes.size()));
    }
  }
  return HEDDLE_RT_OK;
}

std::vector<size_t> outvoted(const std::vector<int64_t> &digests) {
  std::map<int64_t, size_t> votes;
  for (int64_t digest : digests)
    ++votes[digest];
  if (votes.size() <= 1)
    return {};
  const auto most = std::max_element(
      votes.begin(), votes.end(),
      [](const auto &a, const auto &b) { return a.second < b.second; });
  const bool decided = 2 * most->second > digests.size();
  std::vector<size_t> wrong;
  for (size_t i = 0; i < digests.size(); ++i)
    if (!decided || digests[i] != most->first)
      wrong.push_back(i);
  return wrong;
}

namespace {

bool holds(const Tables &tables, int64_t rank, const Instance &instance) {
  const std::vector<int64_t> held =
      tables.instancesAt(*instance.state, tables.stageOf(rank));
  return std::find(held.begin(), held.end(), instance.layer) != held.end();
}

std::string differ(const Instance &instance, int64_t step,
                   const std::vector<int32_t> &ranks,
                   const std::vector<size_t> &wrong) {
  std::vector<int32_t> bad, good;
  for (size_t i = 0; i < ranks.size(); ++i)
    (std::count(wrong.begin(), wrong.end(), i) ? bad : good)
        .push_back(ranks[i]);
  if (good.empty())
    return fmt::format("after step {} the copies of {} on ranks {} differ, and "
                       "no value has most of them: which is right is not known",
                       step, instance.name(), fmt::join(bad, " and "));
  return fmt::format("after step {} the copies of {} differ: rank{} {} {} "
                     "not what most of its copies are (ranks {})",
                     step, instance.name(), bad.size() == 1 ? "" : "s",
                     fmt::join(bad, ", "), bad.size() == 1 ? "has" : "have",
                     fmt::join(good, ", "));
}

} // namespace

heddle_rt_status checkReplicas(Rank &rank, int64_t step) {
  const Tables &tables = rank.tables;
  std::vector<int64_t> own, all;
  HEDDLE_RT_TRY(digestStates(rank, own));
  HEDDLE_RT_TRY(rank.gather(own, all));
  const std::vector<Instance> instances = listInstances(tables);
  for (size_t s = 0; s < own.size(); ++s) {
    std::map<int64_t, std::vector<int32_t>> holders; // by share
    for (int32_t r = 0; r < rank.size; ++r)
      if (holds(tables, r, instances[s]))
        holders[extentsOf(tables, r, *instances[s].state).share()].push_back(r);
    for (const auto &[share, ranks] : holders) {
      std::vector<int64_t> digests;
      for (int32_t r : ranks)
        digests.push_back(all[size_t(r) * own.size() + s]);
      const std::vector<size_t> wrong = outvoted(digests);
      if (!wrong.empty())
        return runtime::fail(HEDDLE_RT_CHECK_FAILED, "{}",
                             differ(instances[s], step, ranks, wrong));
    }
  }
  return HEDDLE_RT_OK;
}

heddle_rt_status
checkNumbers(Rank &rank, int64_t step,
             const std::vector<std::pair<const char *, double>> &numbers) {
  std::vector<int64_t> own, all;
  for (const auto &[name, number] : numbers)
    own.push_back(std::bit_cast<int64_t>(
        std::isnan(number) ? std::numeric_limits<double>::quiet_NaN()
                           : number));
  HEDDLE_RT_TRY(rank.gather(own, all));
  for (size_t n = 0; n < numbers.size(); ++n) {
    std::vector<int64_t> bits;
    for (size_t at = n; at < all.size(); at += own.size())
      bits.push_back(all[at]);
    const std::vector<size_t> wrong = outvoted(bits);
    if (wrong.empty())
      continue;
    const size_t one = wrong.front();
    size_t other = 0;
    while (bits[other] == bits[one] ||
           (wrong.size() < bits.size() &&
            std::count(wrong.begin(), wrong.end(), other)))
      ++other;
    return runtime::fail(
        HEDDLE_RT_CHECK_FAILED,
        "after step {} {} differs: rank {} has {:.9g}, {} {:.9g}", step,
        numbers[n].first, one, std::bit_cast<double>(bits[one]),
        wrong.size() < bits.size() ? "most of the others have"
                                   : fmt::format("rank {} has", other),
        std::bit_cast<double>(bits[other]));
  }
  return HEDDLE_RT_OK;
}

} // namespace heddle::train
