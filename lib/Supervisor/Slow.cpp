#include "heddle/Supervisor/Slow.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace heddle::supervisor {

namespace {

/// The lower one of two in the middle: of two ranks, the faster is the measure.
double lowerMedian(std::vector<double> values) {
  const auto middle = values.begin() + ptrdiff_t((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// What the deviations of a normal distribution are to their median.
constexpr double kNormal = 1.4826;

} // namespace

std::string SlowRank::text() const {
  return fmt::format("rank {} is slow: in {} of {} windows, steps {} to {}, it "
                     "computed {:.2f} times as long as the median of its role "
                     "({})",
                     rank, windows, of, first, step, factor, role);
}

void SlowRanks::take(const RankView &view, Rank &rank) {
  rank.role = view.role;
  for (const StepTime &time : view.steps) {
    if (time.step <= rank.last)
      continue;
    // The first one warms caches, and takes memory.
    if (rank.last > 0)
      rank.open[time.step] = time.compute;
    rank.last = time.step;
  }
}

/// Closes the next window of a role, if all of its ranks have it whole.
bool SlowRanks::closeWindow(int role) {
  std::map<int, double> times;
  std::map<int64_t, int> count;
  for (auto &[number, rank] : ranks)
    if (rank.role == role) {
      times[number] = 0;
      for (const auto &[at, compute] : rank.open)
        ++count[at];
    }
  if (times.size() < 2)
    return false;
  for (const auto &[at, found] : count) {
    if (found < int(times.size()))
      continue; // of a step that some have not ended, or whose time is lost
    std::vector<double> sums;
    for (auto &[number, sum] : times)
      sums.push_back(sum += ranks[number].open.at(at));
    if (lowerMedian(sums) < limits.seconds)
      continue;
    Role &windows = roles[role];
    windows.firsts.push_back(count.begin()->first);
    if (int(windows.firsts.size()) > limits.windows)
      windows.firsts.pop_front();
    windows.step = at;
    for (auto &[number, sum] : times) {
      auto &open = ranks[number].open;
      open.erase(open.begin(), open.upper_bound(at));
    }
    ++closed;
    judge(times);
    return true;
  }
  return false;
}

void SlowRanks::judge(const std::map<int, double> &times) {
  std::vector<double> values, deviations;
  for (const auto &[number, time] : times)
    values.push_back(time);
  const double median = lowerMedian(values);
  // Of few ranks, one that is slow would be a large part of the spread.
  for (double value : values)
    if (value <= limits.factor * median)
      deviations.push_back(std::abs(value - median));
  const double spread = kNormal * lowerMedian(deviations);
  for (const auto &[number, time] : times) {
    Rank &rank = ranks[number];
    const bool slow = time > limits.factor * median &&
                      time - median > limits.deviations * spread;
    rank.factors.push_back(slow ? time / median : 0);
    if (int(rank.factors.size()) > limits.windows)
      rank.factors.pop_front();
  }
}

SlowRank SlowRanks::describe(int number, const Rank &rank) const {
  const Role &windows = roles.at(rank.role);
  const auto slow = std::count_if(rank.factors.begin(), rank.factors.end(),
                                  [](double factor) { return factor > 0; });
  return {number,
          rank.role,
          std::accumulate(rank.factors.begin(), rank.factors.end(), 0.0) /
              double(std::max<ptrdiff_t>(slow, 1)),
          int(slow),
          int(rank.factors.size()),
          windows.firsts.front(),
          windows.step};
}

std::vector<SlowRank> SlowRanks::look(const std::vector<RankView> &views) {
  std::set<int> present;
  for (const RankView &view : views) {
    if (view.state == Process::Unknown)
      continue;
    take(view, ranks[view.rank]);
    present.insert(view.role);
  }
  std::vector<SlowRank> found;
  for (int role : present)
    while (closeWindow(role))
      for (auto &[number, rank] : ranks) {
        if (rank.role != role)
          continue;
        const SlowRank now = describe(number, rank);
        if (now.windows == 0)
          rank.told = false;
        if (now.windows < limits.needed || rank.told)
          continue;
        rank.told = true;
        found.push_back(now);
      }
  return found;
}

} // namespace heddle::supervisor
