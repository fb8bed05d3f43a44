#include "heddle/Support/Safetensors.h"
#include "test/fuzz/targets/SafetensorsFrame.h"

using namespace heddle;

// What stands before the data, of a file that may be larger than any memory: it
// is as long as the last tensor says.
static void run(std::string_view input) {
  const auto bytes = std::as_bytes(std::span(input.data(), input.size()));
  for (const uint64_t fileBytes :
       {uint64_t(input.size()), uint64_t(1) << 40, ~uint64_t(0)}) {
    const Result<uint64_t> size =
        safetensorsHeaderBytes(bytes, fileBytes, "input.safetensors");
    if (!fuzz::accepted(size) || *size > input.size())
      continue;
    (void)fuzz::accepted(readSafetensorsHeader(input.substr(0, *size),
                                               fileBytes, "input.safetensors"));
  }
}

static fuzz::Announce target{
    {"SafetensorsHeader", run, fuzz::mutateFrame, fuzz::repairFrame}};
