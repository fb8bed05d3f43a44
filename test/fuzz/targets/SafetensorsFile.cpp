#include "heddle/Support/Safetensors.h"
#include "test/fuzz/targets/SafetensorsFrame.h"

using namespace heddle;

// Every byte of every tensor is touched; what was read is written again.
static void run(std::string_view input) {
  const Result<SafetensorsFile> file =
      SafetensorsFile::open(fuzz::fileOf(input, ".safetensors"));
  if (!fuzz::accepted(file))
    return;
  uint64_t total = 0;
  unsigned sum = 0;
  for (const TensorEntry &tensor : file->tensors()) {
    fuzz::expect(file->find(tensor.name) == &tensor, "a tensor is found");
    fuzz::expect(tensor.elements() * tensorTypeBytes(tensor.type) ==
                     int64_t(file->bytes(tensor).size()),
                 "a tensor has the bytes of its shape", tensor.name);
    total += file->bytes(tensor).size();
    for (const std::byte byte : file->bytes(tensor))
      sum += unsigned(byte);
  }
  fuzz::expect(sum <= total * 255, "bytes are bytes");
  std::vector<TensorEntry> tensors = file->tensors();
  const std::string header = safetensorsHeader(tensors, file->metadata());
  const auto again = readSafetensorsHeader(header, header.size() + total, "");
  fuzz::expect(again && again->tensors.size() == tensors.size(),
               "a header that is written is read", header);
}

static fuzz::Announce target{
    {"SafetensorsFile", run, fuzz::mutateFrame, fuzz::repairFrame}};
