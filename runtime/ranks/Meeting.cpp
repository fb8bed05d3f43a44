#include "runtime/ranks/Meeting.h"

#include "runtime/ranks/RankContext.h"

#include <cstdlib>

namespace heddle::ranks {

using runtime::invalid;

namespace {

/// A launcher's names for a rank and for how many there are.
struct Names {
  const char *rank, *size;
  const char *hosts; ///< a list that begins with rank 0's; NULL: MASTER_ADDR's
};

// Slurm has two names for the number of tasks: of a step and of the job.
constexpr Names kLaunchers[] = {
    {"RANK", "WORLD_SIZE", nullptr},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", nullptr},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_NODELIST"},
};

std::string variable(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
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

heddle_rt_status read(const Names &names, Meeting &meeting) {
  constexpr uint64_t kMost = 1u << 24;
  uint64_t rank = 0, size = 0;
  HEDDLE_RT_TRY(readNumber(names.rank, 0, kMost, rank));
  HEDDLE_RT_TRY(readNumber(names.size, 0, kMost, size));
  if (rank >= size)
    return invalid("environment variables {}={} and {}={}: expected a rank "
                   "below the number of ranks",
                   names.rank, rank, names.size, size);
  meeting.rank = int(rank);
  meeting.size = int(size);
  meeting.address = variable("MASTER_ADDR");
  if (meeting.address.empty() && names.hosts)
    meeting.address = firstHost(variable(names.hosts));
  if (meeting.address.empty())
    meeting.address = "127.0.0.1"; // all on one machine, else nobody is found
  HEDDLE_RT_TRY(choosePort(meeting));
  meeting.job =
      fmt::format("{} {} {} {} {}", size, variable("MASTER_PORT"),
                  variable("TORCHELASTIC_RUN_ID"), variable("SLURM_JOB_ID"),
                  variable("SLURM_STEP_ID"));
  return HEDDLE_RT_OK;
}

} // namespace

std::string firstHost(const std::string &list) {
  std::string first;
  size_t at = 0;
  for (; at < list.size() && list[at] != ',' && list[at] != '['; ++at)
    first += list[at];
  if (at == list.size() || list[at] == ',')
    return first;
  for (++at; at < list.size() &&
             std::string_view("-,]").find(list[at]) == std::string_view::npos;
       ++at)
    first += list[at];
  // What stands behind the brackets belongs to every host.
  for (at = list.find(']', at) + 1;
       at != 0 && at < list.size() && list[at] != ','; ++at)
    first += list[at];
  return first;
}

heddle_rt_status findMeeting(std::optional<Meeting> &meeting) {
  meeting.reset();
  for (const Names &names : kLaunchers) {
    const bool rank = !variable(names.rank).empty();
    const bool size = !variable(names.size).empty();
    // Slurm sets the number of tasks for whole scripts too, and RANK alone is
    // other programs' word as well.
    if (!rank || !size)
      continue;
    return read(names, meeting.emplace());
  }
  return HEDDLE_RT_OK;
}

} // namespace heddle::ranks
