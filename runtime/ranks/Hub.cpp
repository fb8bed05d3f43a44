#include "runtime/ranks/Hub.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <utility>

namespace heddle::ranks {

/// For a stranger to say who it is.
static constexpr std::chrono::seconds kGreeting(5);

Hub::Hub(const Meeting &meeting, double timeoutSeconds)
    : meeting(meeting), timeoutSeconds(timeoutSeconds) {
  listener =
      Socket::listen(meeting.address, this->meeting.port, kPorts, problem);
  if (listener)
    problem.clear();
}

Hub::~Hub() {
  if (thread.joinable())
    thread.join();
}

static void tell(const std::string &sentence) {
  std::fprintf(stderr, "error: %s\n", sentence.c_str());
  std::fflush(stderr);
}

void Hub::start() {
  fcntl(listener.get(), F_SETFL, fcntl(listener.get(), F_GETFL) | O_NONBLOCK);
  ranks.emplace(meeting, timeoutSeconds, Clock::now(), tell);
  thread = std::thread([this] { run(); });
}

void Hub::run() {
  while (!ranks->done())
    turn();
  for (const auto &line : lines) // what is still to be said
    while (!line->out.empty() && writeTo(*line)) {
      pollfd wait = {line->socket.get(), POLLOUT, 0};
      if (::poll(&wait, 1, 100) != 1)
        break;
    }
  lines.clear();
}

void Hub::turn() {
  // Mostly it all goes at once; a closed line is seen by poll. Rank 0's last:
  // it is of this process, and may end it as soon as it knows that all have
  // met.
  for (const bool isOwn : {false, true})
    for (const auto &line : lines)
      if ((line->rank == 0) == isOwn)
        writeTo(*line);
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
  dropStrangers();
  ranks->advance(Clock::now());
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
    if (!ranks->take(line, {bytes, size_t(got)}))
      return false;
  }
}

void Hub::dropStrangers() {
  for (size_t i = lines.size(); i-- > 0;)
    if (lines[i]->rank < 0 && Clock::now() - lines[i]->since > kGreeting)
      drop(i);
}

void Hub::drop(size_t line) {
  writeTo(*lines[line]); // a refusal
  const std::unique_ptr<Line> closed = std::move(lines[line]);
  lines.erase(lines.begin() + ptrdiff_t(line));
  ranks->lost(*closed);
}

} // namespace heddle::ranks
