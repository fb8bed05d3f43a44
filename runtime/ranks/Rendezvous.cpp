#include "runtime/ranks/Rendezvous.h"

#include "heddle/Support/Printable.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

namespace heddle::ranks {

namespace {

constexpr size_t kMostGreeting = 4096;
constexpr double kGrace = 5; ///< for ranks to hear of a failure

double seconds(Rendezvous::Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

/// "ranks 2, 5 and 7", at most some of them by name.
std::string nameRanks(const std::vector<int> &ranks) {
  constexpr size_t kNamed = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size() && i < kNamed; ++i)
    text += fmt::format("{}{}", i ? ", " : "", ranks[i]);
  if (ranks.size() > kNamed)
    text += fmt::format(" and {} more", ranks.size() - kNamed);
  return text;
}

} // namespace

Rendezvous::Rendezvous(const Meeting &meeting, double timeoutSeconds,
                       Clock::time_point now,
                       std::function<void(const std::string &)> tell)
    : meeting(meeting), timeoutSeconds(timeoutSeconds), begun(now),
      tell(std::move(tell)), now(now), seats(size_t(meeting.size)),
      left(size_t(meeting.size)) {}

bool Rendezvous::done() const {
  if (gone == meeting.size)
    return true;
  // Everybody has been told, or will not listen any more.
  return failed && (gone == seated || seconds(now - failedAt) > kGrace);
}

bool Rendezvous::take(Line &line, std::string_view bytes) {
  line.in += bytes;
  size_t at = 0;
  bool open = true;
  while (open && line.in.size() - at >= sizeof(FrameHead)) {
    FrameHead head;
    memcpy(&head, line.in.data() + at, sizeof head);
    // A stranger's words are no length.
    if (head.magic != FrameHead::kMagic || head.bytes < 0 ||
        (line.rank < 0 &&
         (head.say != Say::Hello || size_t(head.bytes) > kMostGreeting)))
      return false;
    if (line.in.size() - at - sizeof head < size_t(head.bytes))
      break;
    std::string payload = line.in.substr(at + sizeof head, size_t(head.bytes));
    at += sizeof head + size_t(head.bytes);
    open = handle(line, head, std::move(payload));
  }
  line.in.erase(0, at);
  return open;
}

void Rendezvous::push(Line &line, FrameHead head, const std::string &payload) {
  head.bytes = int64_t(payload.size());
  std::string bytes(reinterpret_cast<const char *>(&head), sizeof head);
  line.out.push_back(bytes + payload);
}

void Rendezvous::pushTo(int rank, const FrameHead &head,
                        const std::string &payload) {
  if (rank >= 0 && rank < meeting.size && seats[size_t(rank)])
    push(*seats[size_t(rank)], head, payload);
}

void Rendezvous::pushAll(const FrameHead &head, const std::string &payload,
                         int except) {
  for (int rank = 0; rank < meeting.size; ++rank)
    if (rank != except)
      pushTo(rank, head, payload);
}

bool Rendezvous::greet(Line &line, const FrameHead &head,
                       const std::string &job) {
  std::string problem;
  const int rank = head.from;
  if (job != meeting.job)
    problem = "another job's";
  else if (head.to != meeting.size || rank < 0 || rank >= meeting.size)
    problem = fmt::format("rank {} of {}, where rank 0 is one of {}", rank,
                          head.to, meeting.size);
  else if (seats[size_t(rank)] || left[size_t(rank)])
    problem = fmt::format("rank {} is there already", rank);
  if (!problem.empty()) {
    push(line, {.say = Say::Refused}, problem);
    return false;
  }
  line.rank = rank;
  seats[size_t(rank)] = &line;
  ++seated;
  push(line, {.say = Say::Welcome}, "");
  if (seated == meeting.size && !failed)
    pushAll({.say = Say::Ready}, "", -1);
  return true;
}

bool Rendezvous::handle(Line &line, const FrameHead &head,
                        std::string payload) {
  switch (head.say) {
  case Say::Hello:
    return line.rank < 0 && greet(line, head, payload);
  case Say::Message:
    pushTo(head.to, head, payload);
    return true;
  case Say::Split: {
    // A rank checks its place before it says so.
    const bool fits = head.to >= 1 && head.to <= meeting.size &&
                      head.from >= 0 && head.from < head.to;
    if (head.tag >= 0 && !fits)
      return false;
    addSplit(line.rank, head, printable(payload));
    return true;
  }
  case Say::Abort:
    fail(line.rank, printable(payload));
    return true;
  case Say::Closing:
    pushAll({.say = Say::Closing, .from = line.rank}, "", line.rank);
    return true;
  case Say::Left:
    left[size_t(line.rank)] = true;
    return false;
  default:
    return false;
  }
}

void Rendezvous::addSplit(int rank, const FrameHead &head,
                          const std::string &axis) {
  const auto [at, isNew] = splits.try_emplace(head.comm);
  Split &split = at->second;
  if (isNew)
    split.since = now;
  split.axis = axis;
  split.entries[rank] = {head.tag, head.from, head.to};
  if (int(split.entries.size()) < meeting.size)
    return;
  answer(head.comm, split);
  splits.erase(at);
}

void Rendezvous::answer(int number, const Split &split) {
  std::map<int, std::vector<int32_t>> seatsOf; // by color
  std::string problem;
  for (const auto &[rank, entry] : split.entries) {
    if (entry.color < 0)
      continue;
    std::vector<int32_t> &of = seatsOf[entry.color];
    if (of.empty())
      of.assign(size_t(entry.size), -1);
    if (size_t(entry.size) != of.size() || of[size_t(entry.place)] >= 0) {
      problem =
          fmt::format("communicator {}: rank {} takes place {} of {} in "
                      "color {}, which does not fit the others",
                      split.axis, rank, entry.place, entry.size, entry.color);
      break;
    }
    of[size_t(entry.place)] = rank;
  }
  for (const auto &[color, of] : seatsOf)
    for (size_t place = 0; place < of.size() && problem.empty(); ++place)
      if (of[place] < 0)
        problem = fmt::format("communicator {}: nobody takes place {} of {} in "
                              "color {}",
                              split.axis, place, of.size(), color);
  for (const auto &[rank, entry] : split.entries) {
    std::string places;
    if (entry.color >= 0 && problem.empty()) {
      const std::vector<int32_t> &of = seatsOf[entry.color];
      places.assign(reinterpret_cast<const char *>(of.data()),
                    of.size() * sizeof(int32_t));
    }
    pushTo(rank,
           {.say = problem.empty() ? Say::Seats : Say::Misfit, .comm = number},
           problem.empty() ? places : problem);
  }
}

void Rendezvous::fail(int rank, const std::string &sentence) {
  if (failed)
    return;
  failed = true;
  failedAt = now;
  // Else who failed has said so, or each says why it could not start.
  if (rank < 0 && seated == meeting.size)
    tell(sentence);
  pushAll({.say = Say::Abort, .from = rank}, sentence, rank);
}

void Rendezvous::advance(Clock::time_point to) {
  now = to;
  if (failed)
    return;
  std::vector<int> missing;
  if (seated < meeting.size && seconds(now - begun) > timeoutSeconds) {
    for (int rank = 0; rank < meeting.size; ++rank)
      if (!seats[size_t(rank)])
        missing.push_back(rank);
    fail(-1, fmt::format("{} did not come within {} s (of {} ranks, that meet "
                         "at {} port {})",
                         nameRanks(missing), timeoutSeconds, meeting.size,
                         meeting.address, meeting.port));
    return;
  }
  for (const auto &[number, split] : splits)
    if (seconds(now - split.since) > timeoutSeconds) {
      for (int rank = 0; rank < meeting.size; ++rank)
        if (!split.entries.contains(rank))
          missing.push_back(rank);
      fail(-1, fmt::format("communicator {} waited for {} s; missing: {}",
                           split.axis, timeoutSeconds, nameRanks(missing)));
      return;
    }
}

void Rendezvous::lost(const Line &line) {
  const int rank = line.rank;
  if (rank < 0)
    return;
  seats[size_t(rank)] = nullptr;
  ++gone;
  if (left[size_t(rank)])
    pushAll({.say = Say::Closing, .from = rank}, "", rank);
  else
    fail(-1, fmt::format("rank {} ended without a word", rank));
}

} // namespace heddle::ranks
