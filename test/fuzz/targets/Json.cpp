#include "test/fuzz/Tree.h"

using namespace heddle;

// What is read is read again as it is written.
static void run(std::string_view input) {
  const Result<DocumentValue> value = parseJson(input, "input.json");
  if (!fuzz::accepted(value))
    return;
  const std::string text = fuzz::jsonOf(*value);
  const Result<DocumentValue> again = parseJson(text, "again.json");
  fuzz::expect(bool(again), "JSON that was read is written as JSON", text);
  fuzz::expect(fuzz::jsonOf(*again) == text, "JSON comes back as it was", text);
  fuzz::expect(again->describe() == value->describe(), "so does its kind");
}

static fuzz::Announce target{{"Json", run, fuzz::mutateJson}};
