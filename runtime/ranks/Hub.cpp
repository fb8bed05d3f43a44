#include "runtime/ranks/Hub.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace heddle::ranks {

namespace {

constexpr size_t kMostGreeting = 4096;
constexpr double kGreetingSeconds = 5; ///< for a stranger to say who it is
constexpr double kGrace = 5;           ///< for ranks to hear of a failure

double secondsSince(std::chrono::steady_clock::time_point then) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - then)
      .count();
}

} // namespace

std::string nameRanks(const std::vector<int> &ranks) {
  constexpr size_t kNamed = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size() && i < kNamed; ++i)
    text += fmt::format("{}{}", i ? ", " : "", ranks[i]);
  if (ranks.size() > kNamed)
    text += fmt::format(" and {} more", ranks.size() - kNamed);
  return text;
}

Hub::Hub(const Meeting &meeting, double timeoutSeconds)
    : meeting(meeting), timeoutSeconds(timeoutSeconds), chosen(meeting.port),
      seats(size_t(meeting.size)), left(size_t(meeting.size)) {
  listener = Socket::listen(meeting.address, chosen, kPorts, problem);
  if (listener)
    problem.clear();
}

Hub::~Hub() {
  if (thread.joinable())
    thread.join();
}

void Hub::start() {
  fcntl(listener.get(), F_SETFL, fcntl(listener.get(), F_GETFL) | O_NONBLOCK);
  begun = Clock::now();
  thread = std::thread([this] { run(); });
}

bool Hub::done() const {
  if (gone == meeting.size)
    return true;
  // Everybody has been told, or will not listen any more.
  return failed && (gone == seated || secondsSince(failedAt) > kGrace);
}

void Hub::run() {
  while (!done()) {
    std::vector<pollfd> waits = {{listener.get(), POLLIN, 0}};
    for (const auto &line : lines)
      waits.push_back({line->socket.get(),
                       short(POLLIN | (line->out.empty() ? 0 : POLLOUT)), 0});
    constexpr int kTick = 50; // ms, to look at the time
    ::poll(waits.data(), waits.size(), kTick);
    // From behind: lines that are dropped must not move those to come.
    for (size_t i = lines.size(); i-- > 0;) {
      const short events = waits[i + 1].revents;
      Line &line = *lines[i];
      bool open = (events & POLLOUT) == 0 || writeTo(line);
      if (open && (events & (POLLIN | POLLHUP | POLLERR)) != 0)
        open = readFrom(line);
      if (!open)
        drop(i);
    }
    if (waits[0].revents & POLLIN)
      accept();
    checkTime();
  }
  for (const auto &line : lines) // what is still to be said
    while (!line->out.empty() && writeTo(*line)) {
      pollfd wait = {line->socket.get(), POLLOUT, 0};
      if (::poll(&wait, 1, 100) != 1)
        break;
    }
  lines.clear();
}

void Hub::accept() {
  for (;;) {
    Socket made(accept4(listener.get(), nullptr, nullptr,
                        SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!made)
      return;
    lines.push_back(std::make_unique<Line>());
    lines.back()->socket = std::move(made);
  }
}

bool Hub::writeTo(Line &line) {
  while (!line.out.empty()) {
    const std::string &first = line.out.front();
    const ssize_t sent =
        ::send(line.socket.get(), first.data() + line.sent,
               first.size() - line.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0)
      return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    line.sent += size_t(sent);
    if (line.sent < first.size())
      return true;
    line.out.pop_front();
    line.sent = 0;
  }
  return true;
}

bool Hub::readFrom(Line &line) {
  char bytes[1 << 16];
  for (;;) {
    const ssize_t got =
        ::recv(line.socket.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got == 0)
      return false;
    if (got < 0)
      return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    line.in.append(bytes, size_t(got));
    if (!takeFrames(line))
      return false;
  }
}

bool Hub::takeFrames(Line &line) {
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

void Hub::push(Line &line, FrameHead head, const std::string &payload) {
  head.bytes = int64_t(payload.size());
  std::string bytes(reinterpret_cast<const char *>(&head), sizeof head);
  line.out.push_back(bytes + payload);
  writeTo(line); // mostly it all goes at once; a closed line is seen by poll
}

void Hub::pushTo(int rank, const FrameHead &head, const std::string &payload) {
  if (rank >= 0 && rank < meeting.size && seats[size_t(rank)])
    push(*seats[size_t(rank)], head, payload);
}

void Hub::pushAll(const FrameHead &head, const std::string &payload,
                  int except) {
  for (int rank = 0; rank < meeting.size; ++rank)
    if (rank != except)
      pushTo(rank, head, payload);
}

bool Hub::greet(Line &line, const FrameHead &head, const std::string &job) {
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

bool Hub::handle(Line &line, const FrameHead &head, std::string payload) {
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
    addSplit(line.rank, head, payload);
    return true;
  }
  case Say::Abort:
    fail(line.rank, payload);
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

void Hub::addSplit(int rank, const FrameHead &head, const std::string &axis) {
  Split &split = splits[head.comm];
  split.axis = axis;
  split.entries[rank] = {head.tag, head.from, head.to};
  if (int(split.entries.size()) < meeting.size)
    return;
  answer(head.comm, split);
  splits.erase(head.comm);
}

void Hub::answer(int number, const Split &split) {
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
    std::string seats;
    if (entry.color >= 0 && problem.empty()) {
      const std::vector<int32_t> &of = seatsOf[entry.color];
      seats.assign(reinterpret_cast<const char *>(of.data()),
                   of.size() * sizeof(int32_t));
    }
    pushTo(rank,
           {.say = problem.empty() ? Say::Seats : Say::Misfit, .comm = number},
           problem.empty() ? seats : problem);
  }
}

void Hub::fail(int rank, const std::string &sentence) {
  if (failed)
    return;
  failed = true;
  failedAt = Clock::now();
  // Else who failed has said so, or each says why it could not start.
  if (rank < 0 && seated == meeting.size) {
    std::fprintf(stderr, "error: %s\n", sentence.c_str());
    std::fflush(stderr);
  }
  pushAll({.say = Say::Abort, .from = rank}, sentence, rank);
}

void Hub::checkTime() {
  for (size_t i = lines.size(); i-- > 0;)
    if (lines[i]->rank < 0 && secondsSince(lines[i]->since) > kGreetingSeconds)
      drop(i);
  if (failed)
    return;
  std::vector<int> missing;
  if (seated < meeting.size && secondsSince(begun) > timeoutSeconds) {
    for (int rank = 0; rank < meeting.size; ++rank)
      if (!seats[size_t(rank)])
        missing.push_back(rank);
    fail(-1, fmt::format("{} did not come within {} s (of {} ranks, that meet "
                         "at {} port {})",
                         nameRanks(missing), timeoutSeconds, meeting.size,
                         meeting.address, chosen));
    return;
  }
  for (const auto &[number, split] : splits)
    if (secondsSince(split.since) > timeoutSeconds) {
      for (int rank = 0; rank < meeting.size; ++rank)
        if (!split.entries.contains(rank))
          missing.push_back(rank);
      fail(-1, fmt::format("communicator {} waited for {} s; missing: {}",
                           split.axis, timeoutSeconds, nameRanks(missing)));
      return;
    }
}

void Hub::lost(int rank) {
  seats[size_t(rank)] = nullptr;
  ++gone;
  if (left[size_t(rank)])
    pushAll({.say = Say::Closing, .from = rank}, "", rank);
  else
    fail(-1, fmt::format("rank {} ended without a word", rank));
}

void Hub::drop(size_t line) {
  const int rank = lines[line]->rank;
  writeTo(*lines[line]); // a refusal
  lines.erase(lines.begin() + ptrdiff_t(line));
  if (rank >= 0)
    lost(rank);
}

} // namespace heddle::ranks
