#include "heddle/Supervisor/Blame.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

namespace heddle::supervisor {

const char *nameOf(Section section) {
  constexpr const char *kNames[kSections] = {"its start", "loading", "a step",
                                             "between steps", "its end"};
  return kNames[int(section)];
}

const char *nameOf(Cause cause) {
  switch (cause) {
  case Cause::Died:
    return "died";
  case Cause::Stopped:
    return "stopped";
  case Cause::Endless:
    return "endless";
  case Cause::Mismatch:
    return "mismatch";
  case Cause::Circle:
    return "circle";
  case Cause::Network:
    return "network";
  case Cause::Unexplained:
    break;
  }
  return "unexplained";
}

std::string describe(const RankView &view, const Operation &operation) {
  std::string text = operation.name;
  if (operation.comm >= 0) {
    if (operation.call > 0)
      text += fmt::format(", its call {}", operation.call);
    if (operation.peer >= 0 && operation.comm < int(view.comms.size()))
      text +=
          fmt::format(", place {} with place {}",
                      view.comms[size_t(operation.comm)].place, operation.peer);
    text += fmt::format(", of {} {}", operation.elements, operation.dtype);
  }
  return text + fmt::format(", in step {}", operation.step);
}

std::string whereIs(const RankView &view) {
  const Operation *last = view.last();
  const std::string section =
      view.section == Section::Step
          ? fmt::format("step {}", view.step)
          : fmt::format("{} (step {})", nameOf(view.section), view.step);
  if (!last)
    return fmt::format("in {}, before its first operation", section);
  return fmt::format("in {}, {} {}", section,
                     view.waiting ? "waiting in" : "behind the start of",
                     describe(view, *last));
}

namespace {

using Views = std::vector<RankView>;

std::string named(const std::vector<int> &ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s",
                     fmt::join(ranks, ", "));
}

/// Where a rank waits: a communicator that several ranks know by its number.
struct Waiting {
  const RankView *view = nullptr;
  const Operation *operation = nullptr;
  const CommView *comm = nullptr;
};

std::optional<Waiting> waitingOf(const RankView &view) {
  const Operation *last = view.last();
  if (!view.waiting || view.state != Process::Running || !last ||
      last->comm < 0 || last->comm >= int(view.comms.size()))
    return std::nullopt;
  return Waiting{&view, last, &view.comms[size_t(last->comm)]};
}

const CommView *commOf(const RankView &view, const CommView &like) {
  for (const CommView &comm : view.comms)
    if (comm.split == like.split && comm.color == like.color)
      return &comm;
  return nullptr;
}

/// Members of a communicator among the views, by place.
std::map<int, const RankView *> membersOf(const Views &views,
                                          const CommView &like) {
  std::map<int, const RankView *> members;
  for (const RankView &view : views)
    if (const CommView *comm = commOf(view, like))
      members[comm->place] = &view;
  return members;
}

bool isSameCall(const Waiting &a, const Waiting &b) {
  return a.comm->split == b.comm->split && a.comm->color == b.comm->color &&
         a.operation->call == b.operation->call;
}

/// Ranks that wait at the same number of one communicator, with other
/// operations or sizes.
std::optional<Blame> findMismatch(const std::vector<Waiting> &waiting) {
  for (size_t i = 0; i < waiting.size(); ++i)
    for (size_t j = i + 1; j < waiting.size(); ++j) {
      const Waiting &a = waiting[i], &b = waiting[j];
      const Operation &x = *a.operation, &y = *b.operation;
      if (!isSameCall(a, b) || x.call == 0 ||
          (x.name == y.name && x.elements == y.elements && x.dtype == y.dtype))
        continue;
      return Blame{Cause::Mismatch,
                   {a.view->rank, b.view->rank},
                   fmt::format("ranks {} and {} of communicator {} made "
                               "different calls: {} waits in {}; {} in {}",
                               a.view->rank, b.view->rank, a.comm->axis,
                               a.view->rank, describe(*a.view, x), b.view->rank,
                               describe(*b.view, y))};
    }
  return std::nullopt;
}

/// The ranks that a waiting one misses: those that have not begun its call; of
/// a message, its peer.
std::vector<const RankView *> missedBy(const Waiting &one, const Views &views) {
  std::vector<const RankView *> missed;
  for (const auto &[place, view] : membersOf(views, *one.comm)) {
    if (view == one.view)
      continue;
    if (one.operation->call > 0
            ? commOf(*view, *one.comm)->calls < one.operation->call
            : place == one.operation->peer)
      missed.push_back(view);
  }
  return missed;
}

/// Ranks that miss each other in a circle, which starts at `start`.
std::optional<Blame> findCircle(const std::vector<Waiting> &waiting,
                                const Views &views) {
  std::map<int, std::pair<const Waiting *, int>> next; // rank -> whom it misses
  for (const Waiting &one : waiting)
    for (const RankView *missed : missedBy(one, views)) {
      // Both ends of one message are no circle.
      const auto other = waitingOf(*missed);
      if (other && one.operation->peer >= 0 && isSameCall(one, *other) &&
          other->operation->peer == one.comm->place &&
          other->operation->name != one.operation->name)
        continue;
      if (other)
        next.try_emplace(one.view->rank, &one, missed->rank);
    }
  for (const auto &[start, ignored] : next) {
    std::vector<int> path;
    int at = start;
    while (next.count(at) &&
           std::find(path.begin(), path.end(), at) == path.end()) {
      path.push_back(at);
      at = next.at(at).second;
    }
    const auto first = std::find(path.begin(), path.end(), at);
    if (!next.count(at) || first == path.end())
      continue;
    path.erase(path.begin(), first);
    std::vector<std::string> lines;
    for (int rank : path) {
      const auto &[one, missed] = next.at(rank);
      lines.push_back(fmt::format("rank {} waits for rank {} in {}", rank,
                                  missed,
                                  describe(*one->view, *one->operation)));
    }
    return Blame{Cause::Circle, path,
                 fmt::format("{} wait for each other: {}", named(path),
                             fmt::join(lines, "; "))};
  }
  return std::nullopt;
}

/// All wait in calls that their peers are in too: whose bytes are missing?
Blame blameNetwork(const std::vector<Waiting> &waiting, const Views &views) {
  std::map<int, std::set<int>> missed; // rank -> peers
  for (const Waiting &one : waiting) {
    const auto members = membersOf(views, *one.comm);
    for (int place : one.view->pending)
      if (const auto peer = members.find(place); peer != members.end())
        missed[one.view->rank].insert(peer->second->rank);
  }
  // Who waits for a rank that itself waits for another one says nothing of the
  // network, unless no two miss each other.
  std::map<int, std::set<int>> broken, mutual;
  for (const auto &[rank, peers] : missed)
    for (int peer : peers) {
      const bool both = missed.count(peer) && missed.at(peer).count(rank);
      broken[rank].insert(peer);
      broken[peer].insert(rank);
      if (both)
        mutual[rank].insert(peer);
    }
  if (!mutual.empty())
    broken = mutual;
  std::vector<int> worst;
  size_t most = 0;
  for (const auto &[rank, peers] : broken) {
    if (peers.size() > most)
      worst.clear();
    most = std::max(most, peers.size());
    if (peers.size() == most)
      worst.push_back(rank);
  }
  Blame blame{worst.empty() ? Cause::Unexplained : Cause::Network, worst, ""};
  for (const Waiting &one : waiting)
    if (worst.empty() ||
        std::find(worst.begin(), worst.end(), one.view->rank) != worst.end()) {
      std::vector<int> peers;
      if (const auto found = broken.find(one.view->rank); found != broken.end())
        peers.assign(found->second.begin(), found->second.end());
      blame.sentence = fmt::format(
          "nothing arrives between {} and {} in communicator {}: both sides "
          "wait in {}",
          worst.empty() ? "some of its ranks" : named({one.view->rank}),
          peers.empty() ? "the others" : named(peers), one.comm->axis,
          describe(*one.view, *one.operation));
      return blame;
    }
  blame.sentence = "all ranks wait, and none says for whom";
  return blame;
}

/// A rank whose last silent ones are given in one sentence.
Blame blameEach(Cause cause, const std::vector<const RankView *> &views,
                const char *what) {
  Blame blame{cause, {}, ""};
  std::vector<std::string> parts;
  for (const RankView *view : views) {
    blame.ranks.push_back(view->rank);
    parts.push_back(fmt::format("rank {} (process {}) {}, {}", view->rank,
                                view->process, what, whereIs(*view)));
  }
  blame.sentence = fmt::format("{}", fmt::join(parts, "; "));
  return blame;
}

} // namespace

Blame blameForHang(const Views &views, const std::vector<bool> &silent) {
  std::vector<const RankView *> stopped, endless;
  std::vector<Waiting> waiting;
  for (size_t i = 0; i < views.size(); ++i) {
    const RankView &view = views[i];
    if (view.ended || view.state == Process::Unknown)
      continue;
    if (view.state == Process::Stopped)
      stopped.push_back(&view);
    else if (!view.waiting && silent[i])
      endless.push_back(&view);
    else if (const auto found = waitingOf(view))
      waiting.push_back(*found);
  }
  if (!stopped.empty())
    return blameEach(Cause::Stopped, stopped,
                     "is stopped (by a signal or a debugger)");
  if (!endless.empty())
    return blameEach(Cause::Endless, endless,
                     "does not wait and does not go on");
  if (const auto mismatch = findMismatch(waiting))
    return *mismatch;
  if (const auto circle = findCircle(waiting, views))
    return *circle;
  return blameNetwork(waiting, views);
}

Blame blameForDeath(const Views &views) {
  const RankView *first = nullptr;
  const auto isBefore = [](const RankView &a, const RankView &b) {
    // A launcher ends all others when one has died.
    if (a.signalSent != b.signalSent)
      return b.signalSent;
    if ((a.signal > 0) != (b.signal > 0))
      return a.signal > 0;
    return a.died < b.died;
  };
  for (const RankView &view : views)
    if (view.state == Process::Gone && !view.ended &&
        (!first || isBefore(view, *first)))
      first = &view;
  if (!first)
    return {Cause::Died, {}, "a rank ended without a word"};
  const std::string how =
      first->signal > 0 ? fmt::format("was ended by signal {} ({})",
                                      first->signal, strsignal(first->signal))
                        : "ended without a word";
  // Of threads of one process nobody knows which one ended it.
  std::vector<int> ranks;
  for (const RankView &view : views)
    if (&view == first ||
        (view.process > 0 && view.process == first->process && !view.ended))
      ranks.push_back(view.rank);
  if (ranks.size() > 1)
    return {Cause::Died, ranks,
            fmt::format("process {}, whose threads were {}, {}", first->process,
                        named(ranks), how)};
  return {Cause::Died, ranks,
          fmt::format("rank {} (process {}) {}, {}", first->rank,
                      first->process, how, whereIs(*first))};
}

} // namespace heddle::supervisor
