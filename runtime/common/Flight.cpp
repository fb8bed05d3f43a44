#include "runtime/common/Flight.h"

#include "runtime/common/Dtype.h"
#include "runtime/common/Status.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

namespace heddle::runtime {

namespace {

constexpr auto kPlain = std::memory_order_relaxed;
/// A wait is told in detail when it has taken so long, and again after it.
constexpr int64_t kLongWait = 250'000'000;

int64_t read(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return int64_t(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

int64_t wall() { return read(CLOCK_MONOTONIC); }
int64_t cpu() { return read(CLOCK_THREAD_CPUTIME_ID); }

template <size_t n>
void copyText(char (&to)[n], const char *from) {
  const size_t length = strnlen(from, n - 1);
  std::memcpy(to, from, length);
  to[length] = 0;
}

} // namespace

Flight::~Flight() {
  if (page)
    munmap(page, sizeof *page);
}

heddle_rt_status Flight::open(int32_t rank, int32_t size) {
  const char *folder = std::getenv(kFlightVariable);
  if (!folder || !*folder)
    return HEDDLE_RT_OK;
  const std::string path = std::string(folder) + "/" + flightName(rank);
  const auto failed = [&] {
    return invalid("environment variable {}={}: cannot make {}: {}",
                   kFlightVariable, folder, path, std::strerror(errno));
  };
  const int file =
      ::open(path.c_str(), O_CREAT | O_TRUNC | O_RDWR | O_NOFOLLOW, 0600);
  if (file < 0)
    return failed();
  // Room is taken now: a full disk must not end the run by a signal later.
  const int noRoom = posix_fallocate(file, 0, sizeof(FlightPage));
  void *memory = noRoom ? MAP_FAILED
                        : mmap(nullptr, sizeof(FlightPage),
                               PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (noRoom)
    errno = noRoom;
  close(file);
  if (memory == MAP_FAILED)
    return failed();
  page = new (memory) FlightPage();
  page->rank = rank;
  page->size = size;
  page->process = getpid();
  page->magic.store(FlightPage::kMagic, std::memory_order_release);
  return HEDDLE_RT_OK;
}

void Flight::setRole(int32_t role) {
  if (page)
    page->role.store(role, kPlain);
}

void Flight::tellMayPass() {
  if (page)
    page->mayPass.store(1, kPlain);
}

void Flight::enter(Section section) {
  if (page)
    page->section.store(uint32_t(section), kPlain);
}

void Flight::beginStep(int64_t step) {
  current = step;
  if (!page)
    return;
  page->step.store(step, kPlain);
  enter(Section::Step);
  waited = waitedCpu = 0;
  stepStarted = wall();
  stepCpu = cpu();
}

int64_t Flight::computed() const {
  return page ? cpu() - stepCpu - waitedCpu : 0;
}

void Flight::endStep() {
  current = -1;
  if (!page)
    return;
  const int64_t number = page->steps.load(kPlain);
  page->finished[number % FlightPage::kSteps] = {
      page->step.load(kPlain), computed(), waited, wall() - stepStarted};
  page->steps.store(number + 1, std::memory_order_release);
  enter(Section::Save);
}

int32_t Flight::addComm(const char *axis, int32_t split, int32_t color,
                        int32_t place, int32_t size) {
  const int32_t number = page ? page->comms.load(kPlain) : 0;
  if (!page || number == FlightPage::kComms)
    return -1;
  FlightComm &comm = page->comm[number];
  copyText(comm.axis, axis);
  comm.split = split;
  comm.color = color;
  comm.place = place;
  comm.size = size;
  page->comms.store(number + 1, std::memory_order_release);
  return number;
}

void Flight::write(int stream, const char *name) {
  const uint64_t sequence = page->sequence.load(kPlain) + 1;
  FlightOperation &to = page->operations[sequence % FlightPage::kOperations];
  to.sequence.store(0, std::memory_order_release);
  to.step = page->step.load(kPlain);
  to.elements = to.call = 0;
  to.comm = to.peer = -1;
  to.dtype[0] = 0;
  to.stream = stream;
  copyText(to.name, name);
  to.sequence.store(sequence, std::memory_order_release);
  page->sequence.store(sequence, std::memory_order_release);
  if (sequence == trap)
    spring();
}

void Flight::isCall(int32_t comm, bool collective, int64_t elements,
                    heddle_rt_dtype dtype, int32_t peer) {
  if (!page)
    return;
  FlightOperation &to =
      page->operations[page->sequence.load(kPlain) % FlightPage::kOperations];
  to.elements = elements;
  copyText(to.dtype, nameOf(dtype));
  to.peer = peer;
  if (collective && comm >= 0) {
    to.call = page->comm[comm].calls.load(kPlain) + 1;
    page->comm[comm].calls.store(to.call, kPlain);
  }
  to.comm = comm;
}

void Flight::beginWait() {
  if (!page)
    return;
  waitStarted = lastTold = wall();
  waitCpu = cpu();
  page->waiting.store(1, kPlain);
}

void Flight::endWait() {
  if (!page)
    return;
  page->waiting.store(0, kPlain);
  page->pendingCount.store(0, kPlain);
  waited += wall() - waitStarted;
  waitedCpu += cpu() - waitCpu;
}

bool Flight::waitsLong() {
  if (!page)
    return false;
  const int64_t time = wall();
  if (time - lastTold < kLongWait)
    return false;
  lastTold = time;
  return true;
}

void Flight::tellPending(const std::vector<int> &places) {
  const size_t count = std::min<size_t>(places.size(), FlightPage::kPending);
  for (size_t i = 0; i < count; ++i)
    page->pending[i].store(places[i], kPlain);
  const uint64_t sequence = page->sequence.load(kPlain);
  page->pendingComm.store(
      page->operations[sequence % FlightPage::kOperations].comm, kPlain);
  page->pendingCount.store(int32_t(places.size()), std::memory_order_release);
}

void Flight::setTrap(uint64_t operations, void (*spring)()) {
  if (!page)
    return;
  trap = page->sequence.load(kPlain) + operations;
  this->spring = spring;
}

} // namespace heddle::runtime
