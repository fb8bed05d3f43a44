#include "heddle/Schedule/Verify.h"
#include "test/fuzz/Fuzz.h"

#include <algorithm>

using namespace heddle;

// A byte each with chunks and micro-batches, then the rows as lines.
static void run(std::string_view input) {
  const std::string_view sizes = fuzz::take(input, 2);
  if (sizes.size() < 2)
    return;
  const int64_t chunks = sizes[0] % 8, microBatches = sizes[1] % 32;
  std::vector<std::string> rows;
  while (!input.empty())
    rows.emplace_back(fuzz::takeLine(input));
  const Result<ScheduleTable> table = readRows(rows, chunks, microBatches);
  if (!fuzz::accepted(table))
    return;
  const Result<ScheduleTable> again =
      readRows(writeRows(*table), table->placement, microBatches);
  fuzz::expect(again && *again == *table, "rows come back as they were");
  (void)fuzz::accepted(verifySchedule(*table));
}

static fuzz::Announce target{{"ScheduleRows", run}};
