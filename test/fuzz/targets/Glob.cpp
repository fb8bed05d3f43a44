#include "heddle/Support/Glob.h"
#include "test/fuzz/Fuzz.h"

using namespace heddle;

// A line with a pattern, then names.
static void run(std::string_view input) {
  const Result<Glob> glob = Glob::parse(std::string(fuzz::takeLine(input)));
  if (!fuzz::accepted(glob))
    return;
  while (!input.empty())
    (void)glob->matches(fuzz::takeLine(input));
  const bool isPlain =
      glob->pattern().find_first_of("*?[") == std::string::npos;
  fuzz::expect(!isPlain || glob->matches(glob->pattern()),
               "a name without signs matches itself", glob->pattern());
}

static fuzz::Announce target{{"Glob", run}};
