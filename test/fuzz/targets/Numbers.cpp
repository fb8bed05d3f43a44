#include "heddle/Runtime/Numbers.h"
#include "test/fuzz/Fuzz.h"

using namespace heddle;

static void read(const Numbers &numbers, const NumbersHeader &header) {
  std::vector<int64_t> counts(size_t(header.counts));
  numbers.readCounts(counts.data());
  std::vector<int64_t> places(size_t(header.places));
  for (int64_t stage = 0; header.places > 0 && stage < header.stages; ++stage)
    numbers.readPlaces(stage, places.data());
  for (int64_t table = 0; table < header.tables; ++table)
    (void)numbers.readRow(table, 0);
}

// All that a file of numbers says it has can be read.
static void run(std::string_view input) {
  NumbersHeader header = {};
  if (input.size() >= sizeof header)
    std::memcpy(&header, input.data(), sizeof header);
  Numbers numbers;
  if (numbers.open(input.data(), int64_t(input.size()), header.key) ==
      HEDDLE_RT_OK)
    return read(numbers, header);
  fuzz::checkMessage(heddle_rt_last_error());
}

static fuzz::Announce target{{"Numbers", run}};
