#include "runtime/common/Launch.h"
#include "test/fuzz/Fuzz.h"

using namespace heddle;
using namespace heddle::runtime;

// Tasks on nodes and names of nodes, each as a line of its own.
static void run(std::string_view input) {
  const Result<std::vector<int64_t>> tasks =
      parseTasksPerNode(fuzz::takeLine(input));
  if (fuzz::accepted(tasks))
    fuzz::expect(!tasks->empty(), "tasks are on nodes");
  const Result<std::string> first = firstOfNodeList(fuzz::takeLine(input));
  if (fuzz::accepted(first))
    fuzz::expect(!first->empty() && first->size() < 256, "a node has a name");
}

static fuzz::Announce target{{"Slurm", run}};
