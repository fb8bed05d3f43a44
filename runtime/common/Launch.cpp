#include "runtime/common/Launch.h"

#include "heddle/Support/Printable.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <limits>

namespace heddle::runtime {

namespace {

/// How one launcher tells what; "" where it does not.
struct Source {
  std::string_view launcher;
  std::string_view rank, size, localRank, localSize, node, address, port,
      restarts;
  bool hasMpi = false;
  /// Its variables reach processes that another launcher has started below it.
  bool isInherited = false;
  /// Where `size` is not set.
  std::string_view otherSize = "";
};

/// In the order in which they are asked. Heddle's own are set by hand or by a
/// script.
///
/// Open MPI's OMPI_COMM_WORLD_NODE_RANK is no number of a node: it counts
/// processes of all jobs on one.
constexpr Source kSources[] = {
    {"Heddle's variables", "HEDDLE_RANK", "HEDDLE_WORLD", "HEDDLE_LOCAL_RANK",
     "", "", "", "", ""},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
     "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "", "", "", "",
     true},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "",
     "", "", "", true},
    {"PMIx", "PMIX_RANK", "", "", "", "", "", "", "", true},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "",
     "SLURM_NODEID", "", "", "SLURM_RESTART_COUNT", false, true,
     "SLURM_NTASKS"}};

constexpr int64_t kMostRanks = int64_t(1) << 31;

/// Of a variable's text, for messages.
std::string shown(std::string_view text) {
  return printable(text.substr(0, 60));
}

std::optional<int64_t> numberIn(std::string_view text, int64_t most) {
  int64_t value = 0;
  const char *end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || at != end || value < 0 || value > most)
    return std::nullopt;
  return value;
}

/// Reads the variables of one source; the first error stays.
class Reader {
public:
  Reader(const Source &source, const Lookup &lookup)
      : source(source), lookup(lookup) {}

  std::optional<int64_t> number(std::string_view variable, int64_t most) {
    const auto text = variable.empty() ? std::nullopt : lookup(variable);
    if (!text)
      return std::nullopt;
    const auto value = numberIn(*text, most);
    if (!value)
      fail(fmt::format("environment variable {}: found '{}', expected a number "
                       "from 0 to {}",
                       variable, shown(*text), most));
    return value;
  }

  std::optional<Launch> launch();

  std::optional<Error> error;

private:
  void fail(const std::string &message) {
    if (!error)
      error = Error{message};
  }
  void readSlurm(Launch &found);
  void checkPlaces(const Launch &found, std::string_view size);

  const Source &source;
  const Lookup &lookup;
};

/// Whether Slurm has started this process as a task of a step. The script of a
/// batch job, among others, is a step with a number of its own that has one
/// task: slurm.h, SLURM_BATCH_SCRIPT and its neighbours.
bool isTaskOfSlurm(const Lookup &lookup) {
  constexpr int64_t kSpecialSteps = 0xfffffff0;
  const auto step = lookup("SLURM_STEP_ID");
  const auto number =
      step ? numberIn(*step, std::numeric_limits<uint32_t>::max())
           : std::nullopt;
  return number && *number < kSpecialSteps;
}

/// Whether it says anything of a rank.
bool isSet(const Source &source, const Lookup &lookup) {
  if (source.isInherited)
    return isTaskOfSlurm(lookup) && lookup(source.rank);
  return lookup(source.rank) || (!source.size.empty() && lookup(source.size));
}

void Reader::readSlurm(Launch &found) {
  if (const auto tasks = lookup("SLURM_STEP_TASKS_PER_NODE")) {
    const auto perNode = parseTasksPerNode(*tasks);
    if (!perNode)
      return fail("environment variable SLURM_STEP_TASKS_PER_NODE: " +
                  perNode.message());
    if (found.node && *found.node < int64_t(perNode->size()))
      found.localSize = (*perNode)[size_t(*found.node)];
  }
  if (const auto nodes = lookup("SLURM_STEP_NODELIST")) {
    const auto first = firstOfNodeList(*nodes);
    if (!first)
      return fail("environment variable SLURM_STEP_NODELIST: " +
                  first.message());
    found.address = *first;
  }
}

void Reader::checkPlaces(const Launch &found, std::string_view size) {
  if (found.size && (*found.size == 0 || found.rank >= *found.size))
    fail(fmt::format("environment variables {} and {}: found rank {} of {}, "
                     "expected a rank below the size",
                     source.rank, size, found.rank, *found.size));
  if (found.localRank && found.localSize &&
      *found.localRank >= *found.localSize)
    fail(fmt::format("environment variable {}: found {} of the {} ranks of "
                     "this machine, expected less",
                     source.localRank, *found.localRank, *found.localSize));
  if (found.localSize && found.size && *found.localSize > *found.size)
    fail(fmt::format("{} says that {} ranks are on this machine, and {} in "
                     "all",
                     source.launcher, *found.localSize, *found.size));
}

std::optional<Launch> Reader::launch() {
  std::string_view size = source.size;
  if (!source.otherSize.empty() && !lookup(size))
    size = source.otherSize;
  for (const auto &[variable, other] :
       {std::pair(source.rank, size), std::pair(size, source.rank)})
    if (!variable.empty() && !lookup(variable)) {
      fail(fmt::format("environment variable {} is set and {} is not; {} sets "
                       "both: set {} too, or unset {}",
                       other, variable, source.launcher, variable, other));
      return std::nullopt;
    }
  Launch found;
  found.launcher = source.launcher;
  found.variables = size.empty() ? std::string(source.rank)
                                 : fmt::format("{}, {}", source.rank, size);
  found.hasMpi = source.hasMpi;
  found.rank = number(source.rank, kMostRanks).value_or(0);
  found.size = number(size, kMostRanks);
  found.localRank = number(source.localRank, kMostRanks);
  found.localSize = number(source.localSize, kMostRanks);
  found.node = number(source.node, kMostRanks);
  found.port = number(source.port, 65535);
  found.restarts = number(source.restarts, kMostRanks).value_or(0);
  if (!source.address.empty())
    found.address = lookup(source.address).value_or("");
  if (source.isInherited)
    readSlurm(found);
  if (!error)
    checkPlaces(found, size);
  return found;
}

std::string placeText(const Launch &launch) {
  return launch.size
             ? fmt::format("rank {} of {} ({})", launch.rank, *launch.size,
                           launch.variables)
             : fmt::format("rank {} ({})", launch.rank, launch.variables);
}

} // namespace

std::optional<std::string> environmentVariable(std::string_view variable) {
  const char *text = std::getenv(std::string(variable).c_str());
  return text ? std::optional<std::string>(text) : std::nullopt;
}

Result<std::optional<Launch>> detectLaunch(const Lookup &lookup) {
  std::optional<Launch> first;
  for (const Source &source : kSources) {
    if (!isSet(source, lookup) || (first && source.isInherited))
      continue;
    Reader reader(source, lookup);
    const std::optional<Launch> found = reader.launch();
    if (reader.error)
      return *reader.error;
    if (!first) {
      first = found;
      continue;
    }
    if (first->rank != found->rank ||
        (first->size && found->size && *first->size != *found->size))
      return Error{fmt::format(
          "{} says that this process is {}, {} that it is {}; unset the "
          "variables of the one that has not started it",
          first->launcher, placeText(*first), found->launcher,
          placeText(*found))};
    first->hasMpi |= found->hasMpi;
    if (!first->size)
      first->size = found->size;
    if (!first->localRank)
      first->localRank = found->localRank;
    if (!first->localSize)
      first->localSize = found->localSize;
  }
  return first;
}

std::optional<int64_t> launchedRank(const Lookup &lookup) {
  for (const Source &source : kSources)
    if (isSet(source, lookup))
      if (const auto text = lookup(source.rank))
        if (const auto rank = numberIn(*text, kMostRanks))
          return rank;
  return std::nullopt;
}

Result<std::vector<int64_t>> parseTasksPerNode(std::string_view text,
                                               int64_t most) {
  const auto bad = [&](std::string_view found) {
    return Error{fmt::format("found '{}', expected tasks of each node, like "
                             "4(x2),3",
                             shown(found))};
  };
  std::vector<int64_t> tasks;
  for (std::string_view rest = text;;) {
    const size_t comma = std::min(rest.find(','), rest.size());
    std::string_view item = rest.substr(0, comma);
    int64_t nodes = 1;
    if (const size_t open = item.find("(x"); open != item.npos) {
      if (!item.ends_with(')'))
        return bad(text);
      const auto count =
          numberIn(item.substr(open + 2, item.size() - open - 3), most);
      if (!count || *count == 0)
        return bad(text);
      nodes = *count;
      item = item.substr(0, open);
    }
    const auto each = numberIn(item, kMostRanks);
    if (!each || nodes > most - int64_t(tasks.size()))
      return bad(text);
    tasks.insert(tasks.end(), size_t(nodes), *each);
    if (comma == rest.size())
      return tasks;
    rest.remove_prefix(comma + 1);
  }
}

Result<std::string> firstOfNodeList(std::string_view text) {
  const auto isName = [](std::string_view part) {
    return part.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "abcdefghijklmnopqrstuvwxyz0123456789._-") ==
           part.npos;
  };
  // Names and, in brackets, numbers: x[1-3]y[07,9], only their first ones.
  std::string name;
  for (std::string_view rest = text; !rest.empty() && rest[0] != ',';) {
    const bool isList = rest[0] == '[';
    if (isList)
      rest.remove_prefix(1);
    const size_t end =
        std::min(rest.find_first_of(isList ? "]" : "[,"), rest.size());
    const std::string_view part = rest.substr(0, end);
    const std::string_view first =
        isList ? part.substr(0, part.find_first_of(",-")) : part;
    const bool isClosed = !isList || end < rest.size();
    if (!isClosed || first.empty() || !isName(first) ||
        (isList && first.find_first_not_of("0123456789") != first.npos) ||
        name.size() + first.size() > 255)
      return Error{fmt::format("found '{}', expected names of nodes, like "
                               "gnode[08,20-25]",
                               shown(text))};
    name += first;
    rest.remove_prefix(end + isList);
  }
  if (name.empty())
    return Error{
        "found no name, expected names of nodes, like gnode[08,20-25]"};
  return name;
}

} // namespace heddle::runtime
