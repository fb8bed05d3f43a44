#include "runtime/train/Inject.h"

#include "heddle/Runtime/Random.h"
#include "runtime/common/Status.h"
#include "runtime/ranks/Inspect.h"
#include "runtime/train/Suspects.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iterator>
#include <map>
#include <vector>

namespace heddle::train {

const char *const kFaultHelp =
    R"(                      kill, stop  the process is ended, or stopped
                      loop        it computes for ever
                      slow        from that step on it computes 1.5 times as long
                      flip-parameter, flip-moment    a bit of its state, behind the step
                      flip-local, flip-buffer, flip-gradient    a bit of what it gives to
                                  a sum of gradients, gets from a peer, has in the end
                      nan         what it gives to a sum is no number, or 1e30
                      nan-parameter    a parameter is, from before the step on
)";

namespace {

int64_t threadTime() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return int64_t(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

void killSelf() { std::raise(SIGKILL); }
void stopSelf() { std::raise(SIGSTOP); }
void loop() {
  // Work that a compiler may not leave out.
  for (std::atomic<uint64_t> turns = 0;; ++turns)
    ;
}

using Run = std::function<heddle_rt_status()>;

heddle_rt_status runSlowly(Rank &rank, const Run &run) {
  const runtime::Flight &flight = ranks::flightOf(rank.context);
  HEDDLE_RT_TRY(run());
  HEDDLE_RT_TRY(rank.synchronize());
  const int64_t more = flight.computed() / 2, start = threadTime();
  while (threadTime() - start < more)
    ;
  return HEDDLE_RT_OK;
}

/// Number `i` of those that a fault draws.
uint64_t draw(const InjectedFault &fault, uint64_t i) {
  const random::Block block = random::blockAt(fault.draw, i, 0);
  return uint64_t(block.words[0]) << 32 | block.words[1];
}

void tell(const Rank &rank, const InjectedFault &fault,
          const std::string &what) {
  fmt::print(stderr, "injected {} on rank {} in step {}: {}\n", fault.kind,
             rank.rank, fault.step, what);
}

/// Somewhere in the step, at one of its first operations.
heddle_rt_status springInStep(Rank &rank, const InjectedFault &fault,
                              void (*spring)(), const Run &run) {
  constexpr uint64_t kFirst = 40;
  const uint64_t operation = 1 + draw(fault, 1) % kFirst;
  ranks::flightOf(rank.context).setTrap(operation, spring);
  tell(rank, fault, fmt::format("at operation {} of the step", operation));
  return run();
}

/// Draws an instance of a state of some kinds that the rank stores; `use` gets
/// the bytes of one of its elements and puts something else there.
heddle_rt_status
changeState(Rank &rank, const InjectedFault &fault,
            const std::vector<std::string> &wanted,
            const std::function<std::string(char *, heddle_rt_dtype)> &use) {
  struct Found {
    const runtime::State *state;
    int64_t layer, position;
  };
  std::vector<Found> found;
  for (const runtime::State &state : rank.tables.states) {
    int64_t i = 0;
    if (std::count(wanted.begin(), wanted.end(), state.kind) &&
        extentsOf(rank.tables, rank.rank, state).storedElements() > 0)
      for (int64_t layer : rank.tables.instancesAt(state, rank.stage))
        found.push_back({&state, layer, i++});
  }
  if (found.empty())
    return runtime::invalid("--inject {}: rank {} has no state of that kind",
                            fault.kind, rank.rank);
  const Found &one = found[draw(fault, 1) % found.size()];
  const Extents extents = extentsOf(rank.tables, rank.rank, *one.state);
  const int64_t size = bytesOf(one.state->dtype);
  const auto element =
      int64_t(draw(fault, 2) % uint64_t(extents.storedElements()));
  runtime::Place place =
      instancePlace(*one.state, one.position, extents, rank.stage);
  place.offset += element * size;
  char bytes[8] = {};
  HEDDLE_RT_TRY(rank.download(bytes, place, size));
  const std::string what = use(bytes, one.state->dtype);
  HEDDLE_RT_TRY(rank.upload(place, bytes, size));
  tell(rank, fault,
       fmt::format("{} {}, element {} of what the rank stores: {}",
                   one.state->kind, one.state->instanceName(one.layer), element,
                   what));
  return HEDDLE_RT_OK;
}

heddle_rt_status flipState(Rank &rank, const InjectedFault &fault,
                           const std::vector<std::string> &wanted) {
  return changeState(
      rank, fault, wanted, [&](char *bytes, heddle_rt_dtype dtype) {
        const uint64_t bit = draw(fault, 3) % uint64_t(8 * bytesOf(dtype));
        bytes[bit / 8] = char(bytes[bit / 8] ^ 1 << bit % 8);
        return fmt::format("bit {}", bit);
      });
}

/// A drawn element of memory that a reduction has.
std::byte *drawElement(const InjectedFault &fault, const ranks::Strided &memory,
                       int64_t size, int64_t &element) {
  const int64_t perBlock = memory.blockBytes / size;
  element = int64_t(draw(fault, 2) % uint64_t(perBlock * memory.blocks));
  return memory.data + element / perBlock * memory.stride +
         element % perBlock * size;
}

/// Sets up a fault in a drawn large sum of this step. Elements are floats of 4
/// bytes as far as it knows; a flipped bit is one of any format.
heddle_rt_status tamper(Rank &rank, const InjectedFault &fault,
                        ranks::Integrity::Where where, bool flips,
                        const Run &run) {
  ranks::Integrity &integrity = ranks::integrityOf(rank.context);
  if (integrity.largeBefore == 0)
    return runtime::invalid(
        "--inject {}@{}: rank {} took part in no sum of gradients in the step "
        "before; give a later step, and a plan with several ranks",
        fault.kind, fault.step, rank.rank);
  const auto number = int64_t(draw(fault, 1) % uint64_t(integrity.largeBefore));
  const auto change = [&rank, fault, flips, number](const ranks::Strided &at) {
    int64_t element = 0;
    std::byte *bytes = drawElement(fault, at, 4, element);
    const std::string tensor = tensorAt(rank, bytes);
    const uint64_t bit = draw(fault, 3) % 32;
    constexpr float kBad[] = {NAN, INFINITY, -INFINITY, 1e30f};
    const float bad = kBad[draw(fault, 3) % std::size(kBad)];
    if (flips)
      bytes[bit / 8] ^= std::byte(1 << bit % 8);
    else
      memcpy(bytes, &bad, 4);
    tell(rank, fault,
         fmt::format(
             "large sum {} of the step, word {}, {}: {}", number, element,
             flips ? fmt::format("bit {}", bit) : fmt::format("{}", bad),
             tensor.empty() ? "in no tensor" : tensor));
  };
  integrity.tamper = {number, where, change};
  HEDDLE_RT_TRY(run());
  if (integrity.tamper)
    tell(rank, fault, "its place did not come");
  integrity.tamper.reset();
  return HEDDLE_RT_OK;
}

template <ranks::Integrity::Where where, bool flips>
heddle_rt_status tamperAt(Rank &rank, const InjectedFault &fault,
                          const Run &run) {
  return tamper(rank, fault, where, flips, run);
}

heddle_rt_status flipParameter(Rank &rank, const InjectedFault &fault,
                               const Run &run) {
  HEDDLE_RT_TRY(run());
  HEDDLE_RT_TRY(rank.synchronize());
  return flipState(rank, fault, {"parameter", "master"});
}

heddle_rt_status flipMoment(Rank &rank, const InjectedFault &fault,
                            const Run &run) {
  HEDDLE_RT_TRY(run());
  HEDDLE_RT_TRY(rank.synchronize());
  return flipState(rank, fault, {"adam_m", "adam_v"});
}

heddle_rt_status nanParameter(Rank &rank, const InjectedFault &fault,
                              const Run &run) {
  HEDDLE_RT_TRY(changeState(rank, fault, {"parameter"},
                            [&](char *bytes, heddle_rt_dtype dtype) {
                              // All exponent bits and one more, at the end
                              // where they are.
                              memset(bytes, 0xff, size_t(bytesOf(dtype)));
                              return "no number";
                            }));
  return run();
}

using Inject = heddle_rt_status (*)(Rank &, const InjectedFault &, const Run &);

const std::map<std::string, Inject> &kinds() {
  static const std::map<std::string, Inject> all = {
      {"kill",
       [](Rank &rank, const InjectedFault &fault, const Run &run) {
         return springInStep(rank, fault, killSelf, run);
       }},
      {"stop",
       [](Rank &rank, const InjectedFault &fault, const Run &run) {
         return springInStep(rank, fault, stopSelf, run);
       }},
      {"loop",
       [](Rank &rank, const InjectedFault &fault, const Run &run) {
         return springInStep(rank, fault, loop, run);
       }},
      {"flip-parameter", flipParameter},
      {"flip-moment", flipMoment},
      {"flip-local", tamperAt<ranks::Integrity::Where::Given, true>},
      {"flip-buffer", tamperAt<ranks::Integrity::Where::OnTheWay, true>},
      {"flip-gradient", tamperAt<ranks::Integrity::Where::Result, true>},
      {"nan", tamperAt<ranks::Integrity::Where::Given, false>},
      {"nan-parameter", nanParameter},
      {"slow", [](Rank &rank, const InjectedFault &,
                  const Run &run) { return runSlowly(rank, run); }},
  };
  return all;
}

} // namespace

Result<InjectedFault> parseFault(const std::string &text) {
  InjectedFault fault;
  const size_t at = text.find('@');
  fault.kind = text.substr(0, at);
  const char *end = text.data() + text.size();
  const char *from = at == std::string::npos ? end : text.data() + at + 1;
  auto parsed = std::from_chars(from, end, fault.step);
  if (parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == '#')
    parsed = std::from_chars(parsed.ptr + 1, end, fault.draw);
  if (parsed.ec != std::errc() || parsed.ptr != end || fault.step < 1)
    return Error{fmt::format("--inject: found '{}', expected FAULT@STEP, as "
                             "kill@3, or FAULT@STEP#DRAW",
                             text)};
  if (!kinds().contains(fault.kind))
    return Error{fmt::format("--inject: there is no fault '{}'; --help lists "
                             "them",
                             fault.kind)};
  return fault;
}

heddle_rt_status stepWithFault(Rank &rank, const InjectedFault &fault,
                               int64_t step, const Run &run) {
  const bool lasts = fault.kind == "slow";
  // A run that was started again has had its fault.
  const char *restarts = std::getenv(runtime::kRestartsVariable);
  if (!fault.kind.empty())
    ranks::integrityOf(rank.context).counts = true;
  if (fault.kind.empty() || step < fault.step ||
      (step > fault.step && !lasts) || (restarts && std::atoi(restarts) > 0))
    return run();
  return kinds().at(fault.kind)(rank, fault, run);
}

} // namespace heddle::train
