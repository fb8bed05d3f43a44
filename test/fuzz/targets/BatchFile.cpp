#include "test/fuzz/targets/SafetensorsFrame.h"
#include "tools/heddle/Batch.h"

using namespace heddle;

static const char *extensionOf(std::string_view kind) {
  return (kind[0] & 3) == 1 ? ".safetensors" : ".json";
}

// The first byte is the kind of file, as of Batches. What was read is all
// there, whatever the file has left out.
static void run(std::string_view input) {
  const std::string_view kind = fuzz::take(input, 1);
  if (kind.empty())
    return;
  const std::string path = fuzz::fileOf(input, extensionOf(kind));
  const Result<tool::BatchFile> file = tool::readBatch(path);
  if (!fuzz::accepted(file))
    return;
  const interpret::Batch &whole = file->whole;
  for (const interpret::Tensor *tensor :
       {&whole.tokens, &whole.labels, &whole.positions, &whole.documents})
    fuzz::expect(tensor->getNumElements() == file->sequences * file->length,
                 "each token has all that belongs to it");
  fuzz::expect(tool::countLabels(whole) <= file->sequences * file->length,
               "labels are of tokens");
  (void)fuzz::accepted(tool::checkBatch(*file, 300, path));
  for (const int64_t globalBatch : {1, 3})
    fuzz::expect(file->step(file->steps(globalBatch), globalBatch)
                         .tokens.getNumElements() == globalBatch * file->length,
                 "the last step is as long as the others");
}

static fuzz::Announce target{
    {"BatchFile", run, fuzz::mutateOfKind, fuzz::repairOfKind}};
