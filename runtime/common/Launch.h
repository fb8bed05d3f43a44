//===- Launch.h - Which rank this process is, as its launcher says --------===//
//
// Launchers tell a process its place by environment variables, each in its own
// way; Launch.cpp has the table. Variables are inherited: what started the
// launcher shows through. So the sources have an order, and of those that
// another launcher may stand behind (Slurm behind all others) the later ones
// are not asked once an earlier one has spoken. Others have to agree.
//
//===----------------------------------------------------------------------===//

#ifndef RUNTIME_COMMON_LAUNCH_H
#define RUNTIME_COMMON_LAUNCH_H

#include "heddle/Support/Result.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::runtime {

/// A variable of the environment; none where it is not set.
using Lookup =
    std::function<std::optional<std::string>(std::string_view variable)>;
/// This process's.
std::optional<std::string> environmentVariable(std::string_view variable);

struct Launch {
  std::string launcher;  ///< for people: "torchrun", "Open MPI", ...
  std::string variables; ///< that rank and size come from
  int64_t rank = 0;
  std::optional<int64_t> size; ///< PMIx tells it by calls alone
  /// Among the ranks of one machine.
  std::optional<int64_t> localRank, localSize;
  std::optional<int64_t> node;
  std::string address; ///< of the machine that rank 0 is on; "": not told
  std::optional<int64_t> port;
  int64_t restarts = 0; ///< of the job, by its launcher
  bool hasMpi = false;  ///< it brings up MPI
};

/// None where nobody has launched this process. An error names the variable,
/// what was found and what was expected: a group of which only some are set,
/// numbers that are none, a rank outside of the size, two launchers that do not
/// agree.
Result<std::optional<Launch>> detectLaunch(const Lookup &lookup);

/// The first of the table's variables for a rank that holds a number: for
/// messages, before anything is checked.
std::optional<int64_t> launchedRank(const Lookup &lookup = environmentVariable);

/// Slurm's short form of tasks on each node, "4(x2),3": {4, 4, 3}. At most
/// `most` nodes.
Result<std::vector<int64_t>> parseTasksPerNode(std::string_view text,
                                               int64_t most = 1 << 20);
/// Slurm's short form of names, "gnode[08,20-25],x1": its first name.
Result<std::string> firstOfNodeList(std::string_view text);

} // namespace heddle::runtime

#endif
