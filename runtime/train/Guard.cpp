#include "runtime/train/Guard.h"

#include "heddle/Runtime/Flight.h"
#include "runtime/common/Launch.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace heddle::train {

namespace {

volatile std::sig_atomic_t guarded = 0; ///< process of the rank
volatile std::sig_atomic_t passedOn = 0;

void passOn(int signal) {
  passedOn = signal;
  kill(pid_t(guarded), signal);
}

/// "SIGNAL ASKED NANOSECONDS": whether the guard was told to end it, and when.
void recordDeath(const std::string &folder, int signal) {
  timespec time = {};
  clock_gettime(CLOCK_MONOTONIC, &time);
  const std::string path =
      folder + "/" + runtime::deathName(runtime::launchedRank().value_or(0));
  const std::string part = path + ".part";
  std::FILE *file = std::fopen(part.c_str(), "w");
  if (!file)
    return; // what the launcher says is left
  std::fprintf(file, "%d %d %lld\n", signal, passedOn == signal ? 1 : 0,
               (long long)time.tv_sec * 1'000'000'000 + time.tv_nsec);
  if (std::fclose(file) == 0)
    std::rename(part.c_str(), path.c_str());
}

/// Ends as the rank did, without a second core.
[[noreturn]] void endBy(int signal) {
  prctl(PR_SET_DUMPABLE, 0);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
  _exit(128 + signal);
}

} // namespace

void guardRank() {
  const char *folder = std::getenv(runtime::kFlightVariable);
  if (!folder || !*folder)
    return;
  const pid_t guard = getpid();
  const pid_t rank = fork();
  if (rank < 0)
    return; // unguarded
  if (rank == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != guard)
      _exit(3);
    return;
  }
  guarded = rank;
  struct sigaction action = {};
  action.sa_handler = passOn;
  for (int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2})
    sigaction(signal, &action, nullptr);
  int status = 0;
  while (waitpid(rank, &status, 0) < 0 && errno == EINTR)
    ;
  if (!WIFSIGNALED(status))
    _exit(WEXITSTATUS(status));
  recordDeath(folder, WTERMSIG(status));
  endBy(WTERMSIG(status));
}

} // namespace heddle::train
