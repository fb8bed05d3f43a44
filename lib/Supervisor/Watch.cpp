#include "heddle/Supervisor/Watch.h"

#include <fmt/format.h>

#include <algorithm>

namespace heddle::supervisor {

namespace {
constexpr double kOverPercentile = 5; ///< of the longest usual silence
constexpr double kOtherSections = 10; ///< x the limit of steps; also the most
constexpr size_t kKept = 1000;        ///< silences
} // namespace

double Watch::limitOf(Section section) const {
  const double most = kOtherSections * limits.step;
  if (section != Section::Step || silences.empty())
    return most;
  std::vector<double> sorted(silences.begin(), silences.end());
  const size_t at = (sorted.size() - 1) * 99 / 100;
  std::nth_element(sorted.begin(), sorted.begin() + ptrdiff_t(at),
                   sorted.end());
  return std::clamp(kOverPercentile * sorted[at], limits.step, most);
}

void Watch::follow(double now, const RankView &view, Seen &seen) {
  const bool moved = !seen.known || view.sequence != seen.sequence ||
                     view.step != seen.step || view.section != seen.section ||
                     view.waiting != seen.waiting;
  if (!moved)
    return;
  if (seen.known && seen.section == Section::Step)
    seen.longest = std::max(seen.longest, now - seen.since);
  const bool stepEnded =
      seen.known && seen.section == Section::Step &&
      (view.step != seen.step || view.section != Section::Step);
  if (stepEnded) {
    silences.push_back(seen.longest);
    if (silences.size() > kKept)
      silences.pop_front();
    seen.longest = 0;
  }
  seen = {true,         view.sequence, view.step,   view.section,
          view.waiting, now,           seen.longest};
}

std::optional<Verdict> Watch::look(double now,
                                   const std::vector<RankView> &views) {
  seen.resize(views.size());
  Verdict verdict;
  bool died = false, told = false, allSilent = true, anyLeft = false,
       oneHangs = false;
  std::vector<bool> silent(views.size(), false);
  for (size_t i = 0; i < views.size(); ++i) {
    const RankView &view = views[i];
    verdict.step = std::max(verdict.step, view.step);
    told |= view.failed;
    if (view.state == Process::Unknown || view.ended) {
      allSilent &= view.ended;
      continue;
    }
    died |= view.state == Process::Gone;
    follow(now, view, seen[i]);
    anyLeft = true;
    const double quiet = now - seen[i].since;
    const double limit = limitOf(view.section);
    silent[i] = limits.step > 0 && quiet > limit;
    allSilent &= silent[i];
    const bool waits = view.waiting && view.state != Process::Stopped;
    oneHangs |= silent[i] && !waits;
    if (silent[i] && quiet - limit > verdict.silent - verdict.limit) {
      verdict.silent = quiet;
      verdict.limit = limit;
    }
  }
  // Who fails by its own word takes the others with it.
  if (told)
    return std::nullopt;
  if (died) {
    verdict.silent = verdict.limit = 0;
    verdict.blame = blameForDeath(views);
    return verdict;
  }
  if (!oneHangs && !(anyLeft && allSilent))
    return std::nullopt;
  verdict.blame = blameForHang(views, silent);
  return verdict;
}

std::string Verdict::text() const {
  if (blame.cause == Cause::Died)
    return blame.sentence;
  return fmt::format("no progress for {:.1f} s (limit {:.1f} s): {}", silent,
                     limit, blame.sentence);
}

} // namespace heddle::supervisor
