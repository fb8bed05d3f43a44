#include "heddle/Runtime/Flight.h"
#include "heddle/Supervisor/Slow.h"
#include "heddle/Supervisor/Watch.h"
#include "test/fuzz/Fuzz.h"
#include "tools/heddle/FlightPages.h"
#include "tools/heddle/FlightRecord.h"

#include <cstring>

using namespace heddle;
using namespace heddle::supervisor;
using runtime::FlightPage;

/// A page that begins with these bytes; the rest are those over again, so that
/// short inputs reach all of it.
static RankView viewOf(std::string_view bytes, int rank) {
  static FlightPage page;
  auto *const to = reinterpret_cast<char *>(&page);
  for (size_t at = 0; at < sizeof page; at += std::max<size_t>(1, bytes.size()))
    std::memcpy(to + at, bytes.data(),
                std::min(bytes.size(), sizeof page - at));
  RankView view;
  view.rank = rank;
  view.state = Process::Running;
  tool::readPage(page, 16, view);
  return view;
}

// Halves are the pages of two ranks: what judges them takes any.
static void run(std::string_view input) {
  const std::string_view first = fuzz::take(input, input.size() / 2);
  std::vector<RankView> views = {viewOf(first, 0), viewOf(input, 1)};
  fuzz::checkMessage(blameForHang(views, {true, true}).sentence);
  fuzz::checkMessage(blameForHang(views, {true, false}).sentence);
  fuzz::checkMessage(whereIs(views[0]));
  Watch watch(Limits{});
  for (const double now : {0.0, 1.0, 1e6})
    if (const auto verdict = watch.look(now, views))
      fuzz::checkMessage(verdict->text());
  views[1].state = Process::Gone;
  fuzz::checkMessage(blameForDeath(views).sentence);
  Verdict verdict;
  verdict.blame = blameForDeath(views);
  const std::string record = fuzz::fileOf("", ".jsonl");
  fuzz::expect(bool(tool::appendRecord(record, 0, verdict, views)),
               "a record is written");
}

static fuzz::Announce target{{"Flight", run}};
