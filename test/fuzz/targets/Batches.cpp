#include "runtime/train/Data.h"
#include "test/fuzz/Tree.h"
#include "test/fuzz/targets/SafetensorsFrame.h"

using namespace heddle;
using namespace heddle::train;

// The first byte is the kind of file.
static void run(std::string_view input) {
  constexpr const char *kKinds[] = {".json", ".safetensors", ".bin", ".txt"};
  const std::string_view kind = fuzz::take(input, 1);
  if (kind.empty())
    return;
  const DataShape shape = {2, 4, 300, 7};
  const Result<std::unique_ptr<Data>> data =
      Data::open(fuzz::fileOf(input, kKinds[kind[0] & 3]), shape);
  if (!fuzz::accepted(data))
    return;
  for (const int64_t step : {int64_t(1), int64_t(2), int64_t(1) << 40}) {
    Batch batch;
    if (!fuzz::accepted((*data)->fill(step, batch)))
      continue;
    for (const int32_t token : batch.tokens)
      fuzz::expect(token >= 0 && token < shape.vocabulary, "a token is a word");
    for (const int32_t label : batch.labels)
      fuzz::expect(label == -100 || (label >= 0 && label < shape.vocabulary),
                   "a label is a word");
  }
}

static fuzz::Announce target{
    {"Batches", run, fuzz::mutateOfKind, fuzz::repairOfKind}};
