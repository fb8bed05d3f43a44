#include "runtime/common/Launch.h"
#include "test/fuzz/Fuzz.h"

#include <map>

using namespace heddle;
using namespace heddle::runtime;

// Lines NAME=VALUE, as `env` prints them.
static void run(std::string_view input) {
  std::map<std::string, std::string, std::less<>> variables;
  while (!input.empty()) {
    const std::string_view line = fuzz::takeLine(input);
    const size_t equals = std::min(line.find('='), line.size());
    variables[std::string(line.substr(0, equals))] =
        line.substr(std::min(equals + 1, line.size()));
  }
  const Lookup lookup =
      [&](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end())
      return std::nullopt;
    return found->second;
  };
  (void)launchedRank(lookup);
  const Result<std::optional<Launch>> launch = detectLaunch(lookup);
  if (!fuzz::accepted(launch) || !*launch)
    return;
  const Launch &found = **launch;
  fuzz::expect(found.rank >= 0, "a rank is a number from 0 on");
  fuzz::expect(!found.size || found.rank < *found.size,
               "a rank is below the size");
}

static fuzz::Announce target{{"Environment", run}};
