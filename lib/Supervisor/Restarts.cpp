#include "heddle/Supervisor/Restarts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace heddle::supervisor {

namespace {
constexpr int64_t kMostFruitless = 3, kMostInStep = 3;
constexpr double kFirstDelay = 1, kLongestDelay = 60;
} // namespace

Decision Restarts::next(const Failure &failure) {
  const bool isNewer = failure.committed > last.committed;
  fruitless = done == 0 || isNewer ? 0 : fruitless + 1;
  sameStep = failure.step == last.step ? sameStep + 1 : 1;
  last = failure;
  const auto stop = [](std::string why) {
    return Decision{false, 0, false, std::move(why)};
  };
  if (done >= most)
    return stop(most == 0 ? ""
                          : fmt::format("it was started again {} times, and "
                                        "more is not allowed (--restarts)",
                                        done));
  if (sameStep >= kMostInStep)
    return stop(fmt::format("it failed in step {} {} times in a row: that is "
                            "not by chance",
                            failure.step, sameStep));
  if (fruitless >= kMostFruitless)
    return stop(fmt::format("{} restarts in a row ended without a new "
                            "checkpoint",
                            fruitless));
  ++done;
  return {true,
          std::min(kLongestDelay, kFirstDelay * std::exp2(double(fruitless))),
          sameStep == 2 && failure.committed > 0, ""};
}

} // namespace heddle::supervisor
