#include "runtime/common/Neighbours.h"

#include "heddle/Runtime/Processes.h"
#include "runtime/common/Launch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace heddle::runtime {

namespace {

/// Equal on all ranks of a job; those of two jobs differ in one of them.
constexpr const char *kOfJob[] = {
    "HEDDLE_WORLD",  "HEDDLE_PORT",   "WORLD_SIZE",
    "MASTER_ADDR",   "MASTER_PORT",   "TORCHELASTIC_RUN_ID",
    "SLURM_JOB_ID",  "SLURM_STEP_ID", "OMPI_MCA_ess_base_jobid",
    "PMIX_NAMESPACE"};

/// Which file a process runs; none where it may not be looked at.
std::optional<std::pair<dev_t, ino_t>> programOf(const std::string &process) {
  struct stat status = {};
  if (stat(("/proc/" + process + "/exe").c_str(), &status) != 0)
    return std::nullopt;
  return std::pair(status.st_dev, status.st_ino);
}

/// The variables that a process was started with.
Lookup environmentOf(const std::string &process) {
  std::ifstream file("/proc/" + process + "/environ", std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  std::map<std::string, std::string, std::less<>> variables;
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find('\0', at), all.size());
    const std::string_view line = std::string_view(all).substr(at, end - at);
    if (const size_t equals = line.find('='); equals != line.npos)
      variables.emplace(line.substr(0, equals), line.substr(equals + 1));
    at = end + 1;
  }
  return [variables = std::move(variables)](
             std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end())
      return std::nullopt;
    return found->second;
  };
}

bool isOfThisJob(const Lookup &lookup) {
  for (const char *name : kOfJob)
    if (lookup(name) != environmentVariable(name))
      return false;
  return true;
}

} // namespace

std::string stoppedRanks() {
  std::map<int64_t, int64_t> stopped; // rank -> process
  const auto own = programOf("self");
  std::error_code ignored;
  std::filesystem::directory_iterator entries("/proc", ignored), end;
  for (; own && entries != end; entries.increment(ignored)) {
    const std::string name = entries->path().filename();
    int64_t process = 0;
    const char *last = name.data() + name.size();
    if (std::from_chars(name.data(), last, process).ptr != last ||
        process == getpid() || stateOfProcess(process) != 'T' ||
        programOf(name) != own)
      continue;
    const Lookup lookup = environmentOf(name);
    const std::optional<int64_t> rank = launchedRank(lookup);
    if (rank && isOfThisJob(lookup))
      stopped.emplace(*rank, process);
  }
  std::vector<std::string> told;
  for (const auto &[rank, process] : stopped)
    told.push_back(fmt::format("rank {} (process {}) is stopped by a signal or "
                               "a debugger",
                               rank, process));
  return fmt::format("{}", fmt::join(told, "; "));
}

} // namespace heddle::runtime
