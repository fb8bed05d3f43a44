// Ranks that are processes of any launcher, joined by one connection each to a
// hub in rank 0's process.

#include "runtime/ranks/Hub.h"
#include "runtime/ranks/Transport.h"

#include "runtime/common/Ending.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>

namespace heddle::ranks {

using runtime::fail;
using runtime::invalid;

namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

constexpr const char *kLost = "rank 0 ended without a word";

/// What the thread that reads has brought.
struct Inbox {
  using Key = std::tuple<int, int, int>; ///< communicator, from place, tag
  std::mutex mutex;
  std::condition_variable rung;
  uint64_t version = 0;
  std::map<Key, std::deque<std::string>> mail;
  std::map<int, std::pair<bool, std::string>> splits; ///< fits; seats or why
  std::set<int> gone;
  bool ready = false, aborted = false;
  std::string why;

  void abort(const std::string &sentence) {
    if (!aborted)
      why = sentence;
    aborted = true;
  }
  void take(const FrameHead &head, std::string payload);
};

void Inbox::take(const FrameHead &head, std::string payload) {
  switch (head.say) {
  case Say::Ready:
    ready = true;
    break;
  case Say::Message:
    mail[{head.comm, head.from, head.tag}].push_back(std::move(payload));
    break;
  case Say::Seats:
  case Say::Misfit:
    splits[head.comm] = {head.say == Say::Seats, std::move(payload)};
    break;
  case Say::Abort:
    abort(head.from < 0
              ? payload
              : fmt::format("rank {} failed: {}", head.from, payload));
    break;
  case Say::Closing:
    gone.insert(head.from);
    break;
  default:
    break;
  }
}

/// Sends are done when they are on their way.
class TcpRequest : public Request {
public:
  TcpRequest(Inbox &inbox, int comm, int self, const std::vector<int> &worlds,
             int tag, const std::vector<Piece> &receives, const char *what)
      : inbox(inbox), comm(comm), self(self), worlds(worlds), tag(tag),
        receives(receives), what(what) {}
  Progress test() override;
  std::vector<int> pending() const override {
    std::vector<int> peers;
    for (const Piece &piece : receives)
      peers.push_back(piece.peer);
    return peers;
  }

private:
  Progress take(const Piece &piece);

  Inbox &inbox;
  int comm, self;
  const std::vector<int> &worlds;
  int tag;
  std::vector<Piece> receives;
  const char *what;
};

Progress TcpRequest::take(const Piece &piece) {
  const auto found = inbox.mail.find({comm, piece.peer, tag});
  if (found == inbox.mail.end() || found->second.empty()) {
    const int world = worlds[size_t(piece.peer)];
    if (!inbox.gone.contains(world))
      return Progress::Pending;
    fail(HEDDLE_RT_PEER_FAILED,
         "{} waits for rank {} of its communicator (rank {} of all), which has "
         "left",
         what, piece.peer, world);
    return Progress::Failed;
  }
  std::string came = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty())
    inbox.mail.erase(found);
  const auto bytes = int64_t(came.size());
  if (bytes != piece.memory.bytes()) {
    fail(HEDDLE_RT_PEER_FAILED,
         "{}: rank {} of the communicator sends {} bytes, rank {} expects {}; "
         "the ranks made different calls",
         what, piece.peer, bytes, self, piece.memory.bytes());
    return Progress::Failed;
  }
  copyStrided(piece.memory,
              {reinterpret_cast<std::byte *>(came.data()), 1, bytes, bytes});
  return Progress::Done;
}

Progress TcpRequest::test() {
  const std::scoped_lock lock(inbox.mutex);
  if (inbox.aborted) {
    fail(HEDDLE_RT_PEER_FAILED, "{}", inbox.why);
    return Progress::Failed;
  }
  for (size_t i = 0; i < receives.size();) {
    const Progress progress = take(receives[i]);
    if (progress == Progress::Failed)
      return progress;
    if (progress == Progress::Done)
      receives.erase(receives.begin() + ptrdiff_t(i));
    else
      ++i;
  }
  return receives.empty() ? Progress::Done : Progress::Pending;
}

class TcpSeat : public Seat {
public:
  TcpSeat(Inbox &inbox, const Socket &socket, double timeoutSeconds, int comm,
          int self, std::vector<int> worlds)
      : inbox(inbox), socket(socket), timeoutSeconds(timeoutSeconds),
        comm(comm), self(self), worlds(std::move(worlds)) {}
  std::unique_ptr<Request> exchange(int tag, const std::vector<Piece> &sends,
                                    const std::vector<Piece> &receives,
                                    const char *what) override;

private:
  Inbox &inbox;
  const Socket &socket;
  const double timeoutSeconds;
  int comm, self;
  std::vector<int> worlds; ///< by place
};

std::unique_ptr<Request> TcpSeat::exchange(int tag,
                                           const std::vector<Piece> &sends,
                                           const std::vector<Piece> &receives,
                                           const char *what) {
  std::string packed;
  for (const Piece &piece : sends) {
    const int64_t bytes = piece.memory.bytes();
    packed.resize(size_t(bytes));
    copyStrided({reinterpret_cast<std::byte *>(packed.data()), 1, bytes, bytes},
                piece.memory);
    const FrameHead head = {.say = Say::Message,
                            .from = self,
                            .to = worlds[size_t(piece.peer)],
                            .comm = comm,
                            .tag = tag,
                            .bytes = bytes};
    if (socket.send(head, packed.data()))
      continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK)
      waitedTooLong(what, timeoutSeconds);
    else
      fail(HEDDLE_RT_PEER_FAILED, "{}: rank 0 is gone", what);
    return nullptr;
  }
  return std::make_unique<TcpRequest>(inbox, comm, self, worlds, tag, receives,
                                      what);
}

class TcpTransport : public Transport {
public:
  TcpTransport(const Meeting &meeting, double timeoutSeconds)
      : meeting(meeting), timeoutSeconds(timeoutSeconds) {}
  ~TcpTransport() override;
  heddle_rt_status start();

  int rank() const override { return meeting.rank; }
  int size() const override { return meeting.size; }
  heddle_rt_status split(int color, int place, int of, const char *axis,
                         double seconds, std::unique_ptr<Seat> &seat) override;
  void abort(int exitCode, const std::string &why) override;
  heddle_rt_status alive() const override;
  void closing() override { say({.say = Say::Closing}, ""); }
  std::vector<int> gone() const override;
  void leave() override;
  uint64_t version() override {
    const std::scoped_lock lock(inbox.mutex);
    return inbox.version;
  }
  void idle(uint64_t seen) override;
  bool hold(uint64_t seen, double seconds) override {
    constexpr double kPatience = 2e-3; // nobody sees all processes
    idle(seen);
    return seconds > kPatience;
  }

private:
  /// What became of an attempt to be seated at a port.
  enum class Met { Seated, Nobody, Refused };
  Met greet(int port, std::string &why);
  heddle_rt_status meet();
  heddle_rt_status awaitAll();
  /// Waits until the reader has brought what `came` looks for.
  heddle_rt_status awaitHub(const char *what,
                            const std::function<bool()> &came);
  void read();
  void say(FrameHead head, const std::string &payload) const;

  const Meeting meeting;
  const double timeoutSeconds;
  std::unique_ptr<Hub> hub; ///< of rank 0
  Socket socket;
  mutable Inbox inbox;
  std::thread reader;
  int splits = 0;
  bool over = false; ///< left, or told all of a failure
};

TcpTransport::~TcpTransport() {
  socket.shutdown();
  if (reader.joinable())
    reader.join();
}

void TcpTransport::say(FrameHead head, const std::string &payload) const {
  head.bytes = int64_t(payload.size());
  socket.send(head, payload.data()); // the reader sees that nobody is there
}

TcpTransport::Met TcpTransport::greet(int port, std::string &why) {
  constexpr double kPatience = 2; // a hub answers at once
  Socket made = Socket::connect(meeting.address, port, kPatience, why);
  if (!made)
    return Met::Nobody;
  FrameHead head = {.say = Say::Hello,
                    .from = meeting.rank,
                    .to = meeting.size,
                    .bytes = int64_t(meeting.job.size())};
  std::string payload;
  if (!made.send(head, meeting.job.data()) || !made.readable(kPatience) ||
      !made.receive(head, payload)) {
    why = fmt::format("port {} is another program's", port);
    return Met::Nobody;
  }
  if (head.say == Say::Welcome) {
    socket = std::move(made);
    socket.giveUpSendsAfter(timeoutSeconds);
    return Met::Seated;
  }
  why = payload;
  return Met::Refused;
}

heddle_rt_status TcpTransport::meet() {
  const Clock::time_point start = Clock::now();
  const int ports = hub ? 1 : kPorts, first = hub ? hub->port() : meeting.port;
  std::string refused, why;
  for (;;) {
    for (int port = first; port < first + ports; ++port) {
      const Met met = greet(port, why);
      if (met == Met::Seated)
        return HEDDLE_RT_OK;
      if (met == Met::Refused)
        refused = why;
    }
    if (secondsSince(start) > timeoutSeconds)
      return fail(HEDDLE_RT_PEER_FAILED,
                  "rank {} found no rank 0 at {}, ports {} to {}, within {} s: "
                  "{}; MASTER_ADDR names rank 0's machine, HEDDLE_PORT the "
                  "first port",
                  meeting.rank, meeting.address, first, first + ports - 1,
                  timeoutSeconds, refused.empty() ? why : refused);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

heddle_rt_status TcpTransport::awaitHub(const char *what,
                                        const std::function<bool()> &came) {
  // The hub names who is missing; this is for a hub that does not answer.
  constexpr double kMore = 10;
  const auto most = std::chrono::duration<double>(timeoutSeconds + kMore);
  std::unique_lock lock(inbox.mutex);
  inbox.rung.wait_for(lock, most, [&] { return inbox.aborted || came(); });
  if (came())
    return HEDDLE_RT_OK;
  if (inbox.aborted)
    return fail(HEDDLE_RT_PEER_FAILED, "{}", inbox.why);
  return waitedTooLong(what, timeoutSeconds + kMore);
}

heddle_rt_status TcpTransport::awaitAll() {
  return awaitHub("rank 0's word that all have come",
                  [&] { return inbox.ready; });
}

heddle_rt_status TcpTransport::start() {
  if (meeting.rank == 0) {
    hub = std::make_unique<Hub>(meeting, timeoutSeconds);
    if (!hub->why().empty())
      return fail(HEDDLE_RT_DEVICE_ERROR,
                  "rank 0 cannot wait for the others: {}; HEDDLE_PORT names "
                  "the first port to try",
                  hub->why());
    hub->start();
  }
  HEDDLE_RT_TRY(meet());
  reader = std::thread([this] { read(); });
  return awaitAll();
}

void TcpTransport::read() {
  FrameHead head;
  std::string payload;
  for (bool open = true; open;) {
    open = socket.receive(head, payload);
    {
      const std::scoped_lock lock(inbox.mutex);
      if (open) {
        inbox.take(head, std::move(payload));
      } else {
        if (!inbox.aborted && !over) // nobody else can tell it
          std::fprintf(stderr, "rank %d: %s\n", meeting.rank, kLost);
        inbox.abort(kLost);
      }
      ++inbox.version;
    }
    inbox.rung.notify_all();
  }
}

void TcpTransport::idle(uint64_t seen) {
  std::unique_lock lock(inbox.mutex);
  inbox.rung.wait_for(lock, std::chrono::milliseconds(100),
                      [&] { return inbox.version != seen; });
}

heddle_rt_status TcpTransport::alive() const {
  const std::scoped_lock lock(inbox.mutex);
  return inbox.aborted && !over ? fail(HEDDLE_RT_PEER_FAILED, "{}", inbox.why)
                                : HEDDLE_RT_OK;
}

std::vector<int> TcpTransport::gone() const {
  const std::scoped_lock lock(inbox.mutex);
  return {inbox.gone.begin(), inbox.gone.end()};
}

heddle_rt_status TcpTransport::split(int color, int place, int of,
                                     const char *axis, double,
                                     std::unique_ptr<Seat> &seat) {
  const int number = splits++;
  // The color goes where messages have their tag.
  say({.say = Say::Split,
       .from = place,
       .to = of,
       .comm = number,
       .tag = color},
      axis);
  std::pair<bool, std::string> answer;
  HEDDLE_RT_TRY(awaitHub(axis, [&] { return inbox.splits.contains(number); }));
  {
    const std::scoped_lock lock(inbox.mutex);
    answer = std::move(inbox.splits[number]);
    inbox.splits.erase(number);
  }
  if (!answer.first)
    return invalid("{}", answer.second);
  if (color < 0)
    return HEDDLE_RT_OK;
  std::vector<int> worlds(answer.second.size() / sizeof(int32_t));
  static_assert(sizeof(int) == sizeof(int32_t));
  memcpy(worlds.data(), answer.second.data(), answer.second.size());
  seat = std::make_unique<TcpSeat>(inbox, socket, timeoutSeconds, number, place,
                                   std::move(worlds));
  return HEDDLE_RT_OK;
}

void TcpTransport::abort(int exitCode, const std::string &why) {
  bool first;
  {
    const std::scoped_lock lock(inbox.mutex);
    first = !inbox.aborted;
    over = true;
    inbox.abort(why);
  }
  const int code = exitCode ? exitCode : 1;
  runtime::recordEnding(code);
  if (!first)
    return; // who failed first has said so
  std::fprintf(stderr, "rank %d: %s\n", meeting.rank, why.c_str());
  std::fflush(nullptr);
  say({.say = Say::Abort}, why);
}

void TcpTransport::leave() {
  {
    const std::scoped_lock lock(inbox.mutex);
    over = true;
  }
  say({.say = Say::Left}, "");
  hub.reset(); // passes on what others have to say until they have gone
}

} // namespace

heddle_rt_status joinTcp(const Meeting &meeting, double timeoutSeconds,
                         std::unique_ptr<Transport> &transport) {
  auto made = std::make_unique<TcpTransport>(meeting, timeoutSeconds);
  const heddle_rt_status status = made->start();
  if (status == HEDDLE_RT_OK) {
    transport = std::move(made);
    return status;
  }
  const std::string why = runtime::lastError();
  made.reset();
  return runtime::failWith(status, why);
}

} // namespace heddle::ranks
