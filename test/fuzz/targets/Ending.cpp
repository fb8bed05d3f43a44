#include "test/fuzz/Fuzz.h"
#include "tools/heddle/Endings.h"

using namespace heddle;

static void run(std::string_view input) {
  (void)tool::readEnding(fuzz::fileOf(input, ".ending"));
}

static fuzz::Announce target{{"Ending", run}};
