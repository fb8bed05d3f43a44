//===- LaunchTest.cpp - Places of processes, as launchers tell them -------===//

#include "runtime/common/Launch.h"

#include <gmock/gmock.h>

#include <map>

using namespace heddle;
using namespace heddle::runtime;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

Lookup in(const Variables &set) {
  return [set](std::string_view name) -> std::optional<std::string> {
    const auto found = set.find(name);
    return found == set.end() ? std::nullopt : std::optional(found->second);
  };
}

Variables operator+(Variables one, const Variables &more) {
  one.insert(more.begin(), more.end());
  return one;
}

const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"GROUP_RANK", "1"},
                             {"MASTER_ADDR", "10.0.0.1"},
                             {"MASTER_PORT", "29500"},
                             {"TORCHELASTIC_RESTART_COUNT", "2"}};
/// As mpirun 4.1 of Debian sets them.
const Variables kOpenMpi = {
    {"OMPI_COMM_WORLD_RANK", "3"},       {"OMPI_COMM_WORLD_SIZE", "4"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "3"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
    {"OMPI_COMM_WORLD_NODE_RANK", "3"},  {"PMIX_RANK", "3"}};
const Variables kPmi = {{"PMI_RANK", "1"},
                        {"PMI_SIZE", "2"},
                        {"MPI_LOCALRANKID", "0"},
                        {"MPI_LOCALNRANKS", "1"}};
const Variables kSlurm = {{"SLURM_STEP_ID", "0"},
                          {"SLURM_PROCID", "9"},
                          {"SLURM_NTASKS", "11"},
                          {"SLURM_STEP_NUM_TASKS", "11"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_NODEID", "2"},
                          {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"},
                          {"SLURM_STEP_NODELIST", "gnode[08,20-25]"}};
/// What the script of a batch job sees, and so does all that it starts.
const Variables kBatch = {{"SLURM_STEP_ID", "4294967291"},
                          {"SLURM_PROCID", "0"},
                          {"SLURM_NTASKS", "16"},
                          {"SLURM_LOCALID", "0"}};

struct Row {
  const char *what;
  Variables set;
  const char *launcher; ///< null: nobody has
  int64_t rank = 0, size = -1, localRank = -1, localSize = -1, node = -1;
  const char *address = "";
  int64_t port = -1, restarts = 0;
  bool hasMpi = false;
};

const Row kRows[] = {
    {"nothing", {}, nullptr},
    {"by hand",
     {{"HEDDLE_RANK", "1"}, {"HEDDLE_WORLD", "2"}, {"HEDDLE_LOCAL_RANK", "0"}},
     "Heddle's variables",
     1,
     2,
     0,
     -1,
     -1},
    {"by hand, below mpirun",
     kOpenMpi + Variables{{"HEDDLE_RANK", "3"}, {"HEDDLE_WORLD", "4"}},
     "Heddle's variables", 3, 4, 3, 4, -1, "", -1, 0, true},
    {"torchrun", kTorchrun, "torchrun", 5, 8, 1, 4, 1, "10.0.0.1", 29500, 2},
    {"mpirun", kOpenMpi, "Open MPI", 3, 4, 3, 4, -1, "", -1, 0, true},
    {"PMIx alone",
     {{"PMIX_RANK", "7"}},
     "PMIx",
     7,
     -1,
     -1,
     -1,
     -1,
     "",
     -1,
     0,
     true},
    {"mpiexec of MPICH", kPmi, "PMI", 1, 2, 0, 1, -1, "", -1, 0, true},
    {"srun", kSlurm, "Slurm", 9, 11, 1, 3, 2, "gnode08"},
    {"srun, without the step's own size",
     {{"SLURM_STEP_ID", "3"}, {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}},
     "Slurm",
     1,
     2},
    {"srun --mpi=pmix", kSlurm + Variables{{"PMIX_RANK", "9"}}, "PMIx", 9, -1,
     -1, -1, -1, "", -1, 0, true},
    {"in the script of a batch job", kBatch, nullptr},
    {"mpirun in the script of a batch job", kOpenMpi + kBatch, "Open MPI", 3, 4,
     3, 4, -1, "", -1, 0, true},
    {"mpirun, its daemons started by srun", kOpenMpi + kSlurm, "Open MPI", 3, 4,
     3, 4, -1, "", -1, 0, true},
    {"mpiexec in the script of a batch job", kPmi + kBatch, "PMI", 1, 2, 0, 1,
     -1, "", -1, 0, true},
    {"torchrun on each node, started by srun", kTorchrun + kSlurm, "torchrun",
     5, 8, 1, 4, 1, "10.0.0.1", 29500, 2},
    {"mpirun that sets torchrun's too",
     kOpenMpi + Variables{{"RANK", "3"}, {"WORLD_SIZE", "4"}}, "torchrun", 3, 4,
     3, 4, -1, "", -1, 0, true},
};

TEST(Launch, IsFoundByTheTable) {
  const auto value = [](const std::optional<int64_t> &number) {
    return number.value_or(-1);
  };
  for (const Row &row : kRows) {
    SCOPED_TRACE(row.what);
    const auto found = detectLaunch(in(row.set));
    ASSERT_TRUE(found) << found.message();
    ASSERT_EQ(found->has_value(), row.launcher != nullptr);
    if (!row.launcher) {
      EXPECT_FALSE(launchedRank(in(row.set)));
      continue;
    }
    const Launch &launch = **found;
    EXPECT_EQ(launch.launcher, row.launcher);
    EXPECT_EQ(launch.rank, row.rank);
    EXPECT_EQ(value(launchedRank(in(row.set))), row.rank);
    EXPECT_EQ(value(launch.size), row.size);
    EXPECT_EQ(value(launch.localRank), row.localRank);
    EXPECT_EQ(value(launch.localSize), row.localSize);
    EXPECT_EQ(value(launch.node), row.node);
    EXPECT_EQ(launch.address, row.address);
    EXPECT_EQ(value(launch.port), row.port);
    EXPECT_EQ(launch.restarts, row.restarts);
    EXPECT_EQ(launch.hasMpi, row.hasMpi);
  }
}

std::string refusal(Variables set, const Variables &changed = {}) {
  for (const auto &[name, value] : changed)
    if (value == "-")
      set.erase(name);
    else
      set[name] = value;
  const auto found = detectLaunch(in(set));
  return found ? "" : found.message();
}

TEST(Launch, HalfOfAGroupIsRefused) {
  EXPECT_THAT(refusal({{"RANK", "0"}}),
              HasSubstr("RANK is set and WORLD_SIZE is not"));
  EXPECT_THAT(refusal({{"WORLD_SIZE", "1"}}),
              HasSubstr("WORLD_SIZE is set and RANK is not"));
  EXPECT_THAT(refusal(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "-"}}),
              HasSubstr("OMPI_COMM_WORLD_SIZE is not"));
  EXPECT_THAT(refusal(kPmi, {{"PMI_RANK", "-"}}), HasSubstr("PMI_RANK is not"));
  EXPECT_THAT(refusal({{"HEDDLE_WORLD", "2"}}), HasSubstr("HEDDLE_RANK"));
  EXPECT_THAT(
      refusal(kSlurm, {{"SLURM_STEP_NUM_TASKS", "-"}, {"SLURM_NTASKS", "-"}}),
      HasSubstr("SLURM_NTASKS is not"));
}

TEST(Launch, WhatIsNoPlaceIsRefused) {
  for (const char *bad : {"", "-1", "+1", "0x1", "1.0", " 1", "1 ", "one",
                          "99999999999999999999", "2147483649"}) {
    EXPECT_THAT(refusal(kTorchrun, {{"RANK", bad}}),
                HasSubstr("environment variable RANK: found '"))
        << bad;
    EXPECT_THAT(refusal(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", bad}}),
                HasSubstr("variable OMPI_COMM_WORLD_SIZE: found '"))
        << bad;
    EXPECT_THAT(refusal(kSlurm, {{"SLURM_LOCALID", bad}}),
                HasSubstr("variable SLURM_LOCALID: found '"))
        << bad;
  }
  EXPECT_THAT(refusal(kTorchrun, {{"RANK", "8"}}),
              HasSubstr("found rank 8 of 8"));
  EXPECT_THAT(refusal(kTorchrun, {{"WORLD_SIZE", "0"}, {"RANK", "0"}}),
              HasSubstr("found rank 0 of 0"));
  EXPECT_THAT(refusal(kTorchrun, {{"LOCAL_RANK", "4"}}),
              HasSubstr("found 4 of the 4 ranks of this machine"));
  EXPECT_THAT(refusal(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}}),
              HasSubstr("9 ranks are on this machine, and 8 in all"));
  EXPECT_THAT(refusal(kTorchrun, {{"MASTER_PORT", "65536"}}),
              HasSubstr("MASTER_PORT"));
  EXPECT_THAT(refusal(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "4(x"}}),
              HasSubstr("SLURM_STEP_TASKS_PER_NODE: found '4(x'"));
  EXPECT_THAT(refusal(kSlurm, {{"SLURM_STEP_NODELIST", "a[b"}}),
              HasSubstr("SLURM_STEP_NODELIST: found 'a[b'"));
}

TEST(Launch, LaunchersThatDoNotAgreeAreRefused) {
  const std::string why =
      refusal(kOpenMpi, {{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_THAT(why, HasSubstr("torchrun says that this process is rank 0 of 1 "
                             "(RANK, WORLD_SIZE)"));
  EXPECT_THAT(why, HasSubstr("Open MPI that it is rank 3 of 4"));
  EXPECT_THAT(refusal(kOpenMpi, {{"PMIX_RANK", "2"}}),
              HasSubstr("PMIx that it is rank 2 (PMIX_RANK)"));
  EXPECT_THAT(refusal(kTorchrun, {{"HEDDLE_RANK", "5"}, {"HEDDLE_WORLD", "4"}}),
              HasSubstr("HEDDLE_RANK"));
  EXPECT_THAT(refusal(kTorchrun, {{"HEDDLE_RANK", "5"}, {"HEDDLE_WORLD", "9"}}),
              HasSubstr("rank 5 of 9"));
}

TEST(Launch, TasksOfNodes) {
  EXPECT_THAT(*parseTasksPerNode("4(x2),3"), ElementsAre(4, 4, 3));
  EXPECT_THAT(*parseTasksPerNode("7"), ElementsAre(7));
  EXPECT_THAT(*parseTasksPerNode("1,2(x1),3(x2)"), ElementsAre(1, 2, 3, 3));
  for (const char *bad :
       {"", ",", "4,", "4(x2", "4(x)", "4(x0)", "4(2)", "(x2)", "4(x2)3", "-4",
        "4(x-1)", "4(x99999999999)", "4(x1048576),1", "4(x1(x2))"})
    EXPECT_FALSE(parseTasksPerNode(bad)) << bad;
}

TEST(Launch, FirstNode) {
  const std::pair<const char *, const char *> known[] = {
      {"gnode[08,20-25]", "gnode08"},
      {"a", "a"},
      {"a,b[1-2]", "a"},
      {"x[003-010]", "x003"},
      {"n[1-2]-ib", "n1-ib"},
      {"r[1-2]n[07,9],z", "r1n07"},
      {"a.b-c_d", "a.b-c_d"}};
  for (const auto &[list, first] : known) {
    const auto found = firstOfNodeList(list);
    ASSERT_TRUE(found) << list << ": " << found.message();
    EXPECT_EQ(*found, first);
  }
  const std::string tooLong(300, 'a');
  for (const char *bad : {"", ",a", "a[", "a[]", "a[1", "a[x]", "a b", "a]",
                          "a[1]]", "$(x)", "a\n", tooLong.c_str()})
    EXPECT_FALSE(firstOfNodeList(bad)) << bad;
}

} // namespace
