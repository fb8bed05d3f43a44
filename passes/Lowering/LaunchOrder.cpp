//===- LaunchOrder.cpp - Do ranks' collectives wait for each other? -------===//

#include "passes/Lowering/LaunchOrder.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

using namespace heddle::lowering;

namespace {

constexpr int64_t kNowhere = std::numeric_limits<int64_t>::max();

/// One launch of all its members that have a sequence.
struct Meeting {
  size_t communicator, position;
  int32_t operation;             ///< the first of those equal to it
  int32_t missing;               ///< members that have not come yet
  std::vector<LaunchPlace> when; ///< `rank` is an index into the sequences
};

//===----------------------------------------------------------------------===//
// Who meets whom
//===----------------------------------------------------------------------===//

/// Pairs up the launches of all ranks, communicator by communicator.
class Matching {
public:
  explicit Matching(const LaunchProgram &program) : program(program) {
    for (size_t i = 0; i < program.ranks.size(); ++i)
      indexOf[program.ranks[i].rank] = i;
    nameOperations();
  }

  std::optional<LaunchMismatch> run() {
    for (size_t rank = 0; rank < program.ranks.size(); ++rank) {
      of.emplace_back().reserve(program.ranks[rank].launches.size());
      for (size_t i = 0; i < program.ranks[rank].launches.size(); ++i)
        if (auto mismatch = add(rank, i))
          return mismatch;
    }
    for (const Meeting &meeting : meetings)
      if (meeting.missing > 0)
        return LaunchMismatch{meeting.communicator,
                              meeting.position,
                              outside(meeting.when[0]),
                              {absentFrom(meeting), {}}};
    return {};
  }

  std::vector<Meeting> meetings;
  /// Per rank and launch, its meeting.
  std::vector<std::vector<int32_t>> of;

private:
  /// Where the launches of one communicator, or from one rank of it to another,
  /// come one after the other.
  struct Channel {
    std::vector<int64_t> members; ///< indices of those with a sequence
    std::vector<int32_t> meetings;
    std::vector<size_t> done; ///< per sequence
  };

  /// Equal operations get one number; a send is what its receiver does.
  void nameOperations() {
    std::map<std::tuple<std::string, int64_t, std::string>, int32_t> names;
    for (const LaunchOperation &operation : program.operations) {
      const bool isPair = isTransfer(operation);
      operations.push_back(
          names
              .try_emplace({isPair ? "transfer" : operation.kind,
                            operation.elements, operation.dtype},
                           int32_t(names.size()))
              .first->second);
    }
  }

  static bool isTransfer(const LaunchOperation &operation) {
    return operation.kind == "send" || operation.kind == "receive";
  }

  Channel &channelOf(size_t rank, const Launch &launch) {
    std::pair<int64_t, int64_t> way = {-1, -1};
    const std::string &kind = program.operations[launch.operation].kind;
    if (kind == "send")
      way = {program.ranks[rank].rank, launch.peer};
    else if (kind == "receive")
      way = {launch.peer, program.ranks[rank].rank};
    auto [entry, isNew] =
        channels.try_emplace({launch.communicator, way.first, way.second});
    if (isNew)
      open(entry->second,
           way.first < 0 ? program.communicators[launch.communicator].members
                         : std::vector<int64_t>{way.first, way.second});
    return entry->second;
  }

  void open(Channel &channel, const std::vector<int64_t> &members) {
    channel.done.resize(program.ranks.size());
    for (int64_t member : members)
      if (auto found = indexOf.find(member); found != indexOf.end())
        channel.members.push_back(int64_t(found->second));
  }

  std::optional<LaunchMismatch> add(size_t rank, size_t number) {
    const Launch &launch = program.ranks[rank].launches[number];
    Channel &channel = channelOf(rank, launch);
    const LaunchPlace place = {int64_t(rank), number};
    const size_t position = channel.done[rank]++;
    if (position == channel.meetings.size()) {
      // Whoever came before has no launch here.
      channel.meetings.push_back(int32_t(meetings.size()));
      meetings.push_back({launch.communicator,
                          position,
                          operations[launch.operation],
                          int32_t(channel.members.size()),
                          {}});
    }
    const int32_t id = channel.meetings[position];
    Meeting &meeting = meetings[size_t(id)];
    if (meeting.operation != operations[launch.operation])
      return LaunchMismatch{launch.communicator, position,
                            outside(meeting.when[0]), outside(place)};
    meeting.when.push_back(place);
    --meeting.missing;
    of[rank].push_back(id);
    return {};
  }

  LaunchPlace outside(const LaunchPlace &place) const {
    return {program.ranks[size_t(place.rank)].rank, place.launch};
  }

  int64_t absentFrom(const Meeting &meeting) const {
    const Launch &launch = program.ranks[size_t(meeting.when[0].rank)]
                               .launches[*meeting.when[0].launch];
    if (isTransfer(program.operations[launch.operation]))
      return launch.peer;
    for (int64_t member : program.communicators[meeting.communicator].members)
      if (auto found = indexOf.find(member);
          found != indexOf.end() &&
          std::none_of(meeting.when.begin(), meeting.when.end(),
                       [&](const LaunchPlace &place) {
                         return place.rank == int64_t(found->second);
                       }))
        return member;
    return -1;
  }

  const LaunchProgram &program;
  std::map<int64_t, size_t> indexOf;
  std::vector<int32_t> operations;
  std::map<std::tuple<size_t, int64_t, int64_t>, Channel> channels;
};

//===----------------------------------------------------------------------===//
// Who waits for whom
//===----------------------------------------------------------------------===//

/// Runs all ranks, each to where it waits for ever.
class Waiting {
public:
  Waiting(const LaunchProgram &program, std::vector<Meeting> &meetings,
          const std::vector<std::vector<int32_t>> &of)
      : program(program), meetings(meetings), of(of),
        at(program.ranks.size(), 0), open(program.ranks.size(), 0) {
    for (Meeting &meeting : meetings)
      meeting.missing = int32_t(meeting.when.size());
  }

  /// Whether all ranks came to their end.
  bool run() {
    for (size_t rank = 0; rank < at.size(); ++rank)
      begin(rank);
    while (!over.empty()) {
      const Meeting &meeting = meetings[size_t(over.back())];
      over.pop_back();
      for (const LaunchPlace &place : meeting.when)
        if (--open[size_t(place.rank)] == 0)
          begin(size_t(place.rank));
    }
    return std::all_of(open.begin(), open.end(),
                       [](int64_t left) { return left == 0; });
  }

private:
  /// The rank's next step: all launches of one group.
  void begin(size_t rank) {
    const std::vector<Launch> &launches = program.ranks[rank].launches;
    const size_t first = at[rank];
    for (; at[rank] < launches.size() &&
           launches[at[rank]].step == launches[first].step;
         ++at[rank]) {
      ++open[rank];
      const int32_t id = of[rank][at[rank]];
      if (--meetings[size_t(id)].missing == 0)
        over.push_back(id);
    }
  }

  const LaunchProgram &program;
  std::vector<Meeting> &meetings;
  const std::vector<std::vector<int32_t>> &of;
  std::vector<size_t> at;    ///< per rank, behind the step that it waits in
  std::vector<int64_t> open; ///< launches of that step that are not over
  std::vector<int32_t> over; ///< meetings to tell their members of
};

//===----------------------------------------------------------------------===//
// The smallest cycle
//===----------------------------------------------------------------------===//

/// Looks for a cycle among meetings that were never over. Along a link a rank
/// goes from one launch to any later one, so what can be reached on a rank is
/// all from some step on: a search keeps one step per rank.
class CycleSearch {
public:
  CycleSearch(const LaunchProgram &program,
              const std::vector<Meeting> &meetings)
      : program(program), meetings(meetings), ways(program.ranks.size()) {
    for (size_t id = 0; id < meetings.size(); ++id)
      if (meetings[id].missing > 0)
        addWays(int32_t(id));
    for (auto &ofRank : ways)
      for (auto &[unused, list] : ofRank)
        keepEarliest(list);
  }

  std::vector<LaunchLink> run() {
    int32_t best = -1;
    size_t links = program.ranks.size() + 1; // a rank is in no cycle twice
    for (size_t id = 0; id < meetings.size() && links > 2; ++id)
      if (meetings[id].missing > 0)
        if (const size_t found = search(int32_t(id), links); found < links) {
          links = found;
          best = int32_t(id);
        }
    if (best < 0)
      return {};
    search(best, links + 1);
    return trace(best);
  }

private:
  /// From a launch at `step` or later of one rank the earliest launch of
  /// another one that can be met.
  struct Way {
    int64_t step, there;
    int32_t meeting;
  };
  /// What is reached on a rank, and at which meeting the search came to it.
  struct Reached {
    int64_t step = kNowhere;
    int32_t by = -1;
    size_t from = 0;
  };

  int64_t stepOf(const LaunchPlace &place) const {
    return program.ranks[size_t(place.rank)].launches[*place.launch].step;
  }

  void addWays(int32_t id) {
    const std::vector<LaunchPlace> &when = meetings[size_t(id)].when;
    for (const LaunchPlace &here : when)
      for (const LaunchPlace &there : when)
        if (here.rank != there.rank)
          ways[size_t(here.rank)][size_t(there.rank)].push_back(
              {stepOf(here), stepOf(there), id});
  }

  /// Sorts by step; each then has the earliest `there` of it and those behind.
  static void keepEarliest(std::vector<Way> &list) {
    std::stable_sort(list.begin(), list.end(), [](const Way &a, const Way &b) {
      return a.step < b.step;
    });
    for (size_t i = list.size(); i-- > 1;)
      if (list[i].there < list[i - 1].there) {
        list[i - 1].there = list[i].there;
        list[i - 1].meeting = list[i].meeting;
      }
  }

  /// Links of the smallest cycle through a meeting, or `limit` where it has
  /// none of fewer.
  size_t search(int32_t id, size_t limit) {
    const Meeting &meeting = meetings[size_t(id)];
    levels.assign(1, std::vector<Reached>(ways.size()));
    for (const LaunchPlace &place : meeting.when)
      levels[0][size_t(place.rank)] = {stepOf(place) + 1, id,
                                       size_t(place.rank)};
    for (size_t links = 2; links < limit; ++links) {
      if (!advance())
        return limit;
      for (const LaunchPlace &place : meeting.when)
        if (levels.back()[size_t(place.rank)].step <= stepOf(place)) {
          closing = place;
          return links;
        }
    }
    return limit;
  }

  /// One link more; whether that reached anything new.
  bool advance() {
    std::vector<Reached> next = levels.back();
    bool isNew = false;
    for (size_t rank = 0; rank < ways.size(); ++rank) {
      const Reached &here = levels.back()[rank];
      if (here.step == kNowhere)
        continue;
      for (const auto &[other, list] : ways[rank]) {
        auto way = std::lower_bound(
            list.begin(), list.end(), here.step,
            [](const Way &w, int64_t step) { return w.step < step; });
        if (way == list.end() || way->there + 1 >= next[other].step)
          continue;
        next[other] = {way->there + 1, way->meeting, rank};
        isNew = true;
      }
    }
    levels.push_back(std::move(next));
    return isNew;
  }

  size_t launchOf(int32_t id, size_t rank) const {
    for (const LaunchPlace &place : meetings[size_t(id)].when)
      if (size_t(place.rank) == rank)
        return *place.launch;
    return 0;
  }

  /// The way back from where the search met its beginning.
  std::vector<LaunchLink> trace(int32_t begin) const {
    std::vector<LaunchLink> links;
    size_t rank = size_t(closing.rank);
    int32_t after = begin;
    for (size_t level = levels.size(); level-- > 0;) {
      const Reached &reached = levels[level][rank];
      links.push_back({program.ranks[rank].rank, launchOf(reached.by, rank),
                       launchOf(after, rank)});
      after = reached.by;
      rank = reached.from;
    }
    std::reverse(links.begin(), links.end());
    return links;
  }

  const LaunchProgram &program;
  const std::vector<Meeting> &meetings;
  std::vector<std::map<size_t, std::vector<Way>>> ways; ///< from rank to rank
  std::vector<std::vector<Reached>> levels; ///< of the latest search
  LaunchPlace closing;
};

} // namespace

LaunchVerdict heddle::lowering::checkLaunchOrder(const LaunchProgram &program) {
  LaunchVerdict verdict;
  Matching matching(program);
  verdict.mismatch = matching.run();
  if (verdict.mismatch)
    return verdict;
  if (!Waiting(program, matching.meetings, matching.of).run())
    verdict.cycle = CycleSearch(program, matching.meetings).run();
  return verdict;
}
