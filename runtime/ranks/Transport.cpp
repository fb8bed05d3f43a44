#include "runtime/ranks/Transport.h"

#include "runtime/common/Neighbours.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace heddle::ranks {

void copyStrided(const Strided &to, const Strided &from) {
  if (to.blockBytes == from.blockBytes) {
    for (int64_t i = 0; i < to.blocks; ++i)
      std::memcpy(to.data + i * to.stride, from.data + i * from.stride,
                  size_t(to.blockBytes));
    return;
  }
  int64_t toBlock = 0, toAt = 0, fromBlock = 0, fromAt = 0;
  while (toBlock < to.blocks && fromBlock < from.blocks) {
    const int64_t n = std::min(to.blockBytes - toAt, from.blockBytes - fromAt);
    std::memcpy(to.data + toBlock * to.stride + toAt,
                from.data + fromBlock * from.stride + fromAt, size_t(n));
    if ((toAt += n) == to.blockBytes)
      ++toBlock, toAt = 0;
    if ((fromAt += n) == from.blockBytes)
      ++fromBlock, fromAt = 0;
  }
}

heddle_rt_status waitedTooLong(const char *what, double seconds) {
  const std::string stopped = runtime::stoppedRanks();
  return runtime::fail(
      HEDDLE_RT_PEER_FAILED, "{} waited for its peers for {} s; {}", what,
      seconds, stopped.empty() ? "they may have made other calls" : stopped);
}

heddle_rt_status await(Transport &transport, Progress (*test)(void *),
                       void *argument, const char *what,
                       double timeoutSeconds) {
  using Time = std::chrono::steady_clock;
  const Time::time_point start = Time::now();
  while (true) {
    const uint64_t seen = transport.version();
    switch (test(argument)) {
    case Progress::Done:
      return HEDDLE_RT_OK;
    case Progress::Failed:
      return HEDDLE_RT_PEER_FAILED;
    case Progress::Pending:
      break;
    }
    transport.idle(seen);
    if (std::chrono::duration<double>(Time::now() - start).count() >
        timeoutSeconds)
      return waitedTooLong(what, timeoutSeconds);
  }
}

} // namespace heddle::ranks
