#include "runtime/common/Late.h"

namespace heddle::runtime {

int Late::addStream() {
  queues.emplace_back();
  priority.push_back(random());
  return int(queues.size()) - 1;
}

void Late::work(int stream, std::function<heddle_rt_status()> run) {
  Item item{Item::Work, std::move(run)};
  queues[stream].push_back(std::move(item));
}

void Late::record(int stream, LateEvent *event) {
  Item item{Item::Record};
  item.recorded = event->recorded = std::make_shared<bool>(false);
  queues[stream].push_back(std::move(item));
}

void Late::wait(int stream, LateEvent *event) {
  Item item{Item::Wait};
  item.recorded = event->recorded;
  queues[stream].push_back(std::move(item));
}

void Late::collective(int stream, const char *name,
                      const std::vector<LateOrder *> &orders,
                      std::function<heddle_rt_status()> begin,
                      std::function<Progress()> test) {
  Item item{Item::Collective, std::move(begin), std::move(test)};
  item.name = name;
  for (LateOrder *order : orders)
    item.turns.push_back({order, order->queued++});
  queues[stream].push_back(std::move(item));
}

bool Late::empty(int stream) const {
  if (stream >= 0)
    return queues[stream].empty();
  for (const auto &queue : queues)
    if (!queue.empty())
      return false;
  return true;
}

Progress Late::ready(Item &item) {
  bool is = true;
  if (item.kind == Item::Wait)
    is = *item.recorded;
  else if (item.kind == Item::Collective) {
    if (item.begun)
      return item.test();
    for (const Item::Turn &turn : item.turns)
      is &= turn.order->started == turn.number;
  }
  return is ? Progress::Done : Progress::Pending;
}

bool Late::waitsForPeers(const Item &item) {
  return item.kind == Item::Collective && item.begun && !item.overtaken;
}

void Late::overtake() {
  for (auto &queue : queues)
    if (!queue.empty() && waitsForPeers(queue.front()))
      queue.front().overtaken = true;
}

Late::Step Late::step() {
  int best = -1, waiting = -1;
  for (size_t s = 0; s < queues.size(); ++s) {
    if (queues[s].empty())
      continue;
    Item &front = queues[s].front();
    const Progress progress = ready(front);
    if (progress == Progress::Failed) {
      failure = HEDDLE_RT_PEER_FAILED;
      return Step::Failed;
    }
    int &highest = progress == Progress::Done ? best : waiting;
    if ((progress == Progress::Done || waitsForPeers(front)) &&
        (highest < 0 || priority[s] > priority[size_t(highest)]))
      highest = int(s);
  }
  if (best < 0)
    return Step::Stuck;
  if (waiting >= 0 && priority[size_t(waiting)] > priority[size_t(best)])
    return Step::Held;
  if (random() % period == 0)
    priority[random() % priority.size()] = random();
  return run(best);
}

Late::Step Late::run(int stream) {
  Item &front = queues[stream].front();
  if (front.kind == Item::Collective && !front.begun) {
    front.begun = true;
    for (const Item::Turn &turn : front.turns)
      ++turn.order->started;
    failure = front.run();
    return failure == HEDDLE_RT_OK ? Step::Moved : Step::Failed;
  }
  Item item = std::move(front);
  queues[stream].pop_front();
  if (item.kind == Item::Work && (failure = item.run()) != HEDDLE_RT_OK)
    return Step::Failed;
  if (item.kind == Item::Record)
    *item.recorded = true;
  return Step::Moved;
}

std::string Late::stuckOn() const {
  for (const auto &queue : queues)
    if (!queue.empty() && queue.front().kind == Item::Collective)
      return queue.front().name;
  return "an event";
}

double Late::secondsSince(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

heddle_rt_status Late::drain(int stream, double timeoutSeconds) {
  Clock::time_point last = Clock::now();
  while (!empty(stream)) {
    const uint64_t seen = waiter.version();
    switch (step()) {
    case Step::Moved:
      last = Clock::now();
      continue;
    case Step::Failed:
      return failure;
    case Step::Held:
      if (waiter.hold(seen, secondsSince(last)))
        overtake();
      continue;
    case Step::Stuck:
      break;
    }
    waiter.idle(seen);
    if (secondsSince(last) > timeoutSeconds)
      return fail(HEDDLE_RT_PEER_FAILED,
                  "nothing moved for {} s while waiting in {}; the other ranks "
                  "of its communicator may have made other calls",
                  timeoutSeconds, stuckOn());
  }
  return HEDDLE_RT_OK;
}

} // namespace heddle::runtime
