#include "heddle/Runtime/Processes.h"

#include <gtest/gtest.h>

#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

using namespace heddle::runtime;

TEST(Processes, RunStopAndEnd) {
  EXPECT_EQ(stateOfProcess(getpid()), 'R');
  const pid_t child = fork();
  if (child == 0)
    for (;;)
      pause();
  EXPECT_EQ(stateOfProcess(child), 'R');
  int status = 0;
  kill(child, SIGSTOP);
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  EXPECT_EQ(stateOfProcess(child), 'T');
  kill(child, SIGKILL);
  siginfo_t ended = {};
  ASSERT_EQ(waitid(P_PID, id_t(child), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(stateOfProcess(child), 'Z') << "nobody has asked for its end";
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(stateOfProcess(child), 'Z');
}
