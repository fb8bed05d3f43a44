#include "runtime/ranks/Meeting.h"

#include "runtime/ranks/RankContext.h"

namespace heddle::ranks {

using runtime::invalid;

namespace {

std::string variable(const char *name) {
  return runtime::environmentVariable(name).value_or("");
}

/// Slurm's jobs on one machine must not meet each other.
heddle_rt_status choosePort(Meeting &meeting) {
  constexpr uint64_t kLastPort = 65535 - kPorts, kDefault = 29501;
  uint64_t master = 0, job = 0, port = 0;
  HEDDLE_RT_TRY(readNumber("MASTER_PORT", 0, kLastPort, master));
  HEDDLE_RT_TRY(readNumber("SLURM_JOB_ID", 0, UINT64_MAX, job));
  HEDDLE_RT_TRY(readNumber("HEDDLE_PORT", 0, kLastPort, port));
  if (port == 0)
    port = master ? master + 1 : job ? 20000 + job % 20000 : kDefault;
  meeting.port = int(port);
  return HEDDLE_RT_OK;
}

} // namespace

heddle_rt_status findMeeting(const runtime::Launch &launch, Meeting &meeting) {
  constexpr int64_t kMost = 1 << 24;
  if (!launch.size)
    return invalid("{} ({}) does not say how many ranks there are but to a "
                   "program that was built with MPI",
                   launch.launcher, launch.variables);
  if (*launch.size > kMost)
    return invalid("environment variables {}: found {} ranks, expected at most "
                   "{}",
                   launch.variables, *launch.size, kMost);
  meeting.rank = int(launch.rank);
  meeting.size = int(*launch.size);
  meeting.address = variable("MASTER_ADDR");
  if (meeting.address.empty())
    meeting.address = launch.address;
  if (meeting.address.empty())
    meeting.address = "127.0.0.1"; // all on one machine, else nobody is found
  HEDDLE_RT_TRY(choosePort(meeting));
  meeting.job =
      fmt::format("{} {} {} {} {}", meeting.size, variable("MASTER_PORT"),
                  variable("TORCHELASTIC_RUN_ID"), variable("SLURM_JOB_ID"),
                  variable("SLURM_STEP_ID"));
  return HEDDLE_RT_OK;
}

} // namespace heddle::ranks
