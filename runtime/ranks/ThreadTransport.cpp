#include "runtime/ranks/ThreadTransport.h"

#include <chrono>
#include <set>
#include <thread>

using heddle::ranks::Bell;
using heddle::ranks::Mailbox;

heddle_rt_threads::heddle_rt_threads(int size) {
  for (int i = 0; i < size; ++i)
    boxes.push_back(std::make_unique<Mailbox>());
}

void heddle_rt_threads::ringAll() {
  for (auto &box : boxes)
    box->bell.ring();
}

void heddle_rt_threads::abort(int rank, int code, const std::string &sentence) {
  {
    const std::scoped_lock lock(mutex);
    if (aborted)
      return;
    failedRank = rank;
    exitCode = code;
    why = sentence;
    aborted = true;
  }
  ringAll();
}

bool heddle_rt_threads::allRest() const {
  bool holding = false;
  for (const auto &box : boxes) {
    if (box->left)
      continue;
    if (box->rest == Mailbox::Busy || box->restSince != box->bell.version)
      return false;
    holding |= box->rest == Mailbox::Holding;
  }
  return holding;
}

bool heddle_rt_threads::await(Mailbox &box, Mailbox::Rest how, uint64_t seen) {
  uint64_t before;
  bool all;
  {
    const std::scoped_lock lock(rest);
    box.rest = how;
    box.restSince = seen;
    before = quiet;
    // Only a rank that is busy brings news: with none left nothing changes.
    all = allRest();
    quiet += all;
  }
  if (all) {
    ringAll();
  } else {
    std::unique_lock lock(box.bell.mutex);
    box.bell.rung.wait_for(lock, std::chrono::milliseconds(100),
                           [&] { return box.bell.version != seen; });
  }
  const std::scoped_lock lock(rest);
  box.rest = Mailbox::Busy;
  return quiet != before;
}

namespace heddle::ranks {

using runtime::fail;
using runtime::invalid;

void Bell::ring() {
  {
    const std::scoped_lock lock(mutex);
    ++version;
  }
  rung.notify_all();
}

namespace {

/// The ranks of one communicator, and one's own place.
struct Members {
  heddle_rt_threads *group;
  int number, color, rank;
  std::vector<int> worldRanks; ///< by rank in the communicator

  Mailbox &box(int member) const {
    return *group->boxes[size_t(worldRanks[size_t(member)])];
  }
  MailKey key(int from, int tag) const { return {number, color, from, tag}; }
};

class ThreadRequest : public Request {
public:
  ThreadRequest(const Members &members, int tag, const char *what)
      : members(members), tag(tag), what(what) {}
  ~ThreadRequest() override;

  void send(const Piece &piece);
  void receive(const Piece &piece) { receives.push_back(piece); }
  Progress test() override;
  std::vector<int> pending() const override;

private:
  struct Sent {
    int peer;
    std::shared_ptr<Post> post;
  };
  Progress take(const Piece &piece);
  Progress groupFailed() const;
  Progress peerGone(int peer) const;
  std::shared_ptr<Post> pop(int peer);

  const Members &members;
  int tag;
  const char *what;
  std::vector<Sent> sends;
  std::vector<Piece> receives;
};

void ThreadRequest::send(const Piece &piece) {
  auto post = std::make_shared<Post>();
  post->memory = piece.memory;
  post->sender = &members.box(members.rank).bell;
  sends.push_back({piece.peer, post});
  Mailbox &box = members.box(piece.peer);
  {
    const std::scoped_lock lock(box.mutex);
    box.mail[members.key(members.rank, tag)].push_back(std::move(post));
  }
  box.bell.ring();
}

ThreadRequest::~ThreadRequest() {
  for (const Sent &sent : sends) {
    if (sent.post->done)
      continue;
    Mailbox &box = members.box(sent.peer);
    {
      const std::scoped_lock lock(box.mutex);
      auto found = box.mail.find(members.key(members.rank, tag));
      if (found != box.mail.end() && std::erase(found->second, sent.post) > 0)
        continue;
    }
    // The receiver is copying: our memory must stay until it has finished.
    while (!sent.post->done)
      std::this_thread::yield();
  }
}

std::shared_ptr<Post> ThreadRequest::pop(int peer) {
  Mailbox &box = members.box(members.rank);
  const std::scoped_lock lock(box.mutex);
  auto found = box.mail.find(members.key(peer, tag));
  // A sender that gave up takes its post back, and leaves an empty queue.
  if (found == box.mail.end() || found->second.empty())
    return nullptr;
  std::shared_ptr<Post> post = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty())
    box.mail.erase(found);
  return post;
}

Progress ThreadRequest::groupFailed() const {
  const std::scoped_lock lock(members.group->mutex);
  fail(HEDDLE_RT_PEER_FAILED, "rank {} failed: {}", members.group->failedRank,
       members.group->why);
  return Progress::Failed;
}

Progress ThreadRequest::peerGone(int peer) const {
  if (members.group->aborted) // since test() looked, and then it left
    return groupFailed();
  fail(HEDDLE_RT_PEER_FAILED,
       "{} waits for rank {} of its communicator (rank {} of all), which has "
       "left",
       what, peer, members.worldRanks[size_t(peer)]);
  return Progress::Failed;
}

Progress ThreadRequest::take(const Piece &piece) {
  // In this order: what a rank posted before it left can still be taken.
  const bool left = members.box(piece.peer).left;
  const std::shared_ptr<Post> post = pop(piece.peer);
  if (!post)
    return left ? peerGone(piece.peer) : Progress::Pending;
  const bool fits = post->memory.bytes() == piece.memory.bytes();
  if (fits)
    copyStrided(piece.memory, post->memory);
  const int64_t sent = post->memory.bytes();
  Bell &sender = *post->sender;
  post->done = true;
  sender.ring();
  if (fits)
    return Progress::Done;
  fail(HEDDLE_RT_PEER_FAILED,
       "{}: rank {} of the communicator sends {} bytes, rank {} expects {}; "
       "the ranks made different calls",
       what, piece.peer, sent, members.rank, piece.memory.bytes());
  return Progress::Failed;
}

Progress ThreadRequest::test() {
  if (members.group->aborted)
    return groupFailed();
  std::set<int> late; // their next message is that of an earlier piece
  for (size_t i = 0; i < receives.size();) {
    const Progress progress =
        late.count(receives[i].peer) ? Progress::Pending : take(receives[i]);
    if (progress == Progress::Failed)
      return progress;
    if (progress == Progress::Done) {
      receives.erase(receives.begin() + ptrdiff_t(i));
    } else {
      late.insert(receives[i].peer);
      ++i;
    }
  }
  for (const Sent &sent : sends)
    if (!sent.post->done) {
      if (members.box(sent.peer).left && !sent.post->done)
        return peerGone(sent.peer);
      return Progress::Pending;
    }
  return receives.empty() ? Progress::Done : Progress::Pending;
}

std::vector<int> ThreadRequest::pending() const {
  std::set<int> missing;
  for (const Piece &piece : receives)
    missing.insert(piece.peer);
  for (const Sent &sent : sends)
    if (!sent.post->done)
      missing.insert(sent.peer);
  return {missing.begin(), missing.end()};
}

class ThreadSeat : public Seat {
public:
  explicit ThreadSeat(Members members) : members(std::move(members)) {}
  std::unique_ptr<Request> exchange(int tag, const std::vector<Piece> &sends,
                                    const std::vector<Piece> &receives,
                                    const char *what) override {
    auto request = std::make_unique<ThreadRequest>(members, tag, what);
    for (const Piece &piece : receives)
      request->receive(piece);
    for (const Piece &piece : sends)
      request->send(piece);
    return request;
  }

private:
  Members members;
};

class ThreadTransport : public Transport {
public:
  ThreadTransport(heddle_rt_threads *group, int rank)
      : group(group), self(rank) {}

  int rank() const override { return self; }
  int size() const override { return int(group->boxes.size()); }
  heddle_rt_status split(int color, int rank, int size, const char *axis,
                         double timeoutSeconds,
                         std::unique_ptr<Seat> &seat) override;
  void abort(int exitCode, const std::string &why) override {
    group->abort(self, exitCode, why);
  }
  heddle_rt_status alive() const override;
  std::vector<int> gone() const override;
  void leave() override { closing(); }
  void closing() override {
    group->boxes[size_t(self)]->left = true;
    group->ringAll();
  }
  uint64_t version() override { return box().bell.version; }
  void idle(uint64_t seen) override {
    group->await(box(), Mailbox::Idle, seen);
  }
  bool hold(uint64_t seen, double) override {
    return group->await(box(), Mailbox::Holding, seen);
  }

private:
  Mailbox &box() { return *group->boxes[size_t(self)]; }
  Progress allArrived(int number);
  bool someoneLeft() const;

  heddle_rt_threads *group;
  int self;
  int splits = 0;
};

heddle_rt_status ThreadTransport::alive() const {
  if (!group->aborted || group->failedRank == self)
    return HEDDLE_RT_OK;
  const std::scoped_lock lock(group->mutex);
  return fail(HEDDLE_RT_PEER_FAILED, "rank {} failed: {}", group->failedRank,
              group->why);
}

std::vector<int> ThreadTransport::gone() const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < group->boxes.size(); ++rank)
    if (group->boxes[rank]->left)
      ranks.push_back(int(rank));
  return ranks;
}

Progress ThreadTransport::allArrived(int number) {
  if (alive() != HEDDLE_RT_OK)
    return Progress::Failed;
  const bool left = someoneLeft(); // asked first: later it may be done and gone
  {
    const std::scoped_lock lock(group->mutex);
    if (group->splits[number].arrived == size())
      return Progress::Done;
  }
  if (!left)
    return Progress::Pending;
  if (alive() != HEDDLE_RT_OK) // it failed since, and then it left
    return Progress::Failed;
  fail(HEDDLE_RT_PEER_FAILED, "a rank left before it made communicator {}",
       number);
  return Progress::Failed;
}

bool ThreadTransport::someoneLeft() const {
  for (const auto &box : group->boxes)
    if (box->left)
      return true;
  return false;
}

heddle_rt_status ThreadTransport::split(int color, int rank, int size,
                                        const char *axis, double timeoutSeconds,
                                        std::unique_ptr<Seat> &seat) {
  const int number = splits++;
  {
    const std::scoped_lock lock(group->mutex);
    Split &split = group->splits[number];
    split.entries.resize(group->boxes.size());
    split.entries[size_t(self)] = {color, rank, size};
    ++split.arrived;
  }
  group->ringAll();
  struct Wait {
    ThreadTransport *transport;
    int number;
  } wait{this, number};
  const auto test = [](void *argument) {
    auto *wait = static_cast<Wait *>(argument);
    return wait->transport->allArrived(wait->number);
  };
  HEDDLE_RT_TRY(await(*this, test, &wait, axis, timeoutSeconds));
  if (color < 0)
    return HEDDLE_RT_OK;
  Members members{group, number, color, rank,
                  std::vector<int>(size_t(size), -1)};
  const std::scoped_lock lock(group->mutex);
  const auto &entries = group->splits[number].entries;
  for (size_t world = 0; world < entries.size(); ++world) {
    const SplitEntry &entry = entries[world];
    if (entry.color != color)
      continue;
    if (entry.size != size || members.worldRanks[size_t(entry.rank)] >= 0)
      return invalid("communicator {}: rank {} takes place {} of {} in color "
                     "{}, which does not fit place {} of {} of rank {}",
                     axis, world, entry.rank, entry.size, color, rank, size,
                     self);
    members.worldRanks[size_t(entry.rank)] = int(world);
  }
  for (int place = 0; place < size; ++place)
    if (members.worldRanks[size_t(place)] < 0)
      return invalid("communicator {}: nobody takes place {} of {} in color {}",
                     axis, place, size, color);
  seat = std::make_unique<ThreadSeat>(std::move(members));
  return HEDDLE_RT_OK;
}

} // namespace

heddle_rt_status joinThreads(heddle_rt_threads *threads, int rank,
                             std::unique_ptr<Transport> &transport) {
  if (rank < 0 || size_t(rank) >= threads->boxes.size())
    return invalid("rank {} of a group of {} threads", rank,
                   threads->boxes.size());
  transport = std::make_unique<ThreadTransport>(threads, rank);
  return HEDDLE_RT_OK;
}

} // namespace heddle::ranks
