#include "tools/heddle/FlightPages.h"

#include "heddle/Runtime/Endings.h"
#include "heddle/Runtime/Flight.h"
#include "heddle/Runtime/Processes.h"
#include "heddle/Support/Files.h"
#include "heddle/Support/Printable.h"
#include "tools/heddle/Endings.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace heddle;
using namespace heddle::tool;
using namespace heddle::supervisor;
using runtime::FlightPage;

namespace {

constexpr auto kPlain = std::memory_order_relaxed;

/// Texts of pages stand in messages.
template <size_t n>
std::string textOf(const char (&from)[n]) {
  return printable({from, strnlen(from, n)});
}

void readComms(const FlightPage &page, RankView &view) {
  const int count = std::clamp(page.comms.load(std::memory_order_acquire), 0,
                               FlightPage::kComms);
  for (int i = 0; i < count; ++i) {
    const runtime::FlightComm &comm = page.comm[i];
    view.comms.push_back({textOf(comm.axis), comm.split, comm.color, comm.place,
                          comm.size, comm.calls.load(kPlain)});
  }
}

void readOperations(const FlightPage &page, size_t most, RankView &view) {
  const uint64_t last = page.sequence.load(std::memory_order_acquire);
  const uint64_t count =
      std::min<uint64_t>({last, most, FlightPage::kOperations - 1});
  for (uint64_t i = count; i-- > 0;) { // `last` may be any number
    const uint64_t sequence = last - i;
    const runtime::FlightOperation &from =
        page.operations[sequence % FlightPage::kOperations];
    if (from.sequence.load(std::memory_order_acquire) != sequence)
      continue; // already written anew
    view.operations.push_back({sequence, from.step, textOf(from.name),
                               from.comm, from.call, from.peer, from.elements,
                               textOf(from.dtype)});
    if (from.comm >= int(view.comms.size()))
      view.operations.back().comm = -1;
  }
}

void readSteps(const FlightPage &page, RankView &view) {
  constexpr double kSecond = 1e9;
  const int64_t finished =
      std::max<int64_t>(page.steps.load(std::memory_order_acquire), 0);
  for (int64_t i = std::max<int64_t>(0, finished - FlightPage::kSteps + 1);
       i < finished; ++i) {
    const runtime::FlightStep &from = page.finished[i % FlightPage::kSteps];
    view.steps.push_back({from.step, double(from.compute) / kSecond,
                          double(from.wait) / kSecond,
                          double(from.wall) / kSecond});
  }
}

Process stateOf(int64_t process) {
  const char state = runtime::stateOfProcess(process);
  return state == 'Z'   ? Process::Gone
         : state == 'T' ? Process::Stopped
                        : Process::Running;
}

void readDeath(const std::filesystem::path &path, RankView &view) {
  std::ifstream file(path);
  int signal = 0, sent = 0;
  double nanoseconds = 0;
  if (!(file >> signal >> sent >> nanoseconds))
    return;
  view.signal = signal;
  view.signalSent = sent != 0;
  view.died = nanoseconds / 1e9;
}

} // namespace

void tool::readPage(const FlightPage &page, size_t operations, RankView &view) {
  view.process = page.process;
  view.role = page.role.load(kPlain);
  view.waiting = page.waiting.load(kPlain) != 0;
  view.mayPass = page.mayPass.load(kPlain) != 0;
  view.step = page.step.load(kPlain);
  view.section = Section(
      std::min<uint32_t>(page.section.load(kPlain), runtime::kSections - 1));
  readComms(page, view);
  readOperations(page, operations, view);
  view.sequence = page.sequence.load(kPlain);
  readSteps(page, view);
  view.pendingCount = std::max(0, page.pendingCount.load(kPlain));
  view.pendingComm = page.pendingComm.load(kPlain);
  for (int i = 0; i < std::min(view.pendingCount, FlightPage::kPending); ++i)
    view.pending.push_back(page.pending[i].load(kPlain));
}

FlightPages::FlightPages(std::filesystem::path folder, int64_t count)
    : folder(std::move(folder)), ranks(size_t(count)) {}

FlightPages::~FlightPages() {
  for (Rank &rank : ranks) {
    if (rank.page)
      munmap(const_cast<FlightPage *>(rank.page), sizeof(FlightPage));
    if (rank.handle >= 0)
      close(rank.handle);
  }
}

void FlightPages::open(int64_t number) {
  Rank &rank = ranks[size_t(number)];
  const std::string path = folder / runtime::flightName(number);
  const int file = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW);
  if (file < 0)
    return;
  struct stat status = {};
  void *memory = MAP_FAILED;
  if (fstat(file, &status) == 0 && status.st_size >= off_t(sizeof(FlightPage)))
    memory = mmap(nullptr, sizeof(FlightPage), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED)
    return;
  const auto *page = static_cast<const FlightPage *>(memory);
  if (page->magic.load(std::memory_order_acquire) != FlightPage::kMagic) {
    munmap(memory, sizeof(FlightPage));
    return;
  }
  rank.page = page;
  rank.handle = int(syscall(SYS_pidfd_open, page->process, 0));
  rank.gone = rank.handle < 0;
}

/// Ranks that are threads of one process leave one word, the first one's, and
/// one signal ends them all.
static void endTogether(std::vector<RankView> &views) {
  for (RankView &view : views)
    for (const RankView &other : views) {
      if (view.process <= 0 || view.process != other.process)
        continue;
      if (!view.ended && other.ended) {
        view.ended = true;
        view.failed = other.failed;
      }
      if (view.signal == 0 && other.signal > 0) {
        view.state = Process::Gone;
        view.signal = other.signal;
        view.signalSent = other.signalSent;
        view.died = other.died;
      }
    }
}

std::vector<RankView> FlightPages::look(size_t operations) {
  std::vector<RankView> views(ranks.size());
  for (size_t i = 0; i < ranks.size(); ++i) {
    RankView &view = views[i];
    view.rank = int(i);
    if (!ranks[i].page)
      open(int64_t(i));
    // Before its word is looked for: who is gone has had the time to leave one.
    if (ranks[i].page) {
      readPage(*ranks[i].page, operations, view);
      view.state = ranks[i].gone ? Process::Gone : stateOf(view.process);
      ranks[i].gone |= view.state == Process::Gone;
    }
    if (const auto ending =
            readEnding(folder / runtime::endingName(int64_t(i)))) {
      view.ended = true;
      view.failed = ending->code != 0;
    } else if (view.state == Process::Gone || view.state == Process::Unknown) {
      readDeath(folder / runtime::deathName(int64_t(i)), view);
      if (view.signal > 0)
        view.state = Process::Gone;
    }
  }
  endTogether(views);
  return views;
}

void FlightPages::sleep(pid_t process, int milliseconds) const {
  const int handle = int(syscall(SYS_pidfd_open, process, 0));
  std::vector<pollfd> handles;
  if (handle >= 0)
    handles.push_back({handle, POLLIN, 0});
  for (const Rank &rank : ranks)
    if (rank.handle >= 0 && !rank.gone)
      handles.push_back({rank.handle, POLLIN, 0});
  poll(handles.data(), handles.size(), milliseconds);
  if (handle >= 0)
    close(handle);
}

std::vector<pid_t> FlightPages::processes() const {
  std::vector<pid_t> all;
  for (const Rank &rank : ranks)
    if (rank.page)
      all.push_back(rank.page->process);
  return all;
}
