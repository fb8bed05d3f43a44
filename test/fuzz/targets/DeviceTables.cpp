#include "heddle/Cluster/MeasuredTimes.h"
#include "test/fuzz/Tree.h"

using namespace heddle;

// What was read is written and read again.
static void run(std::string_view input) {
  const Result<Device> device = readDeviceFile(fuzz::fileOf(input, ".yaml"));
  if (!fuzz::accepted(device))
    return;
  const std::string text = writeDeviceFile(*device);
  const Result<Device> again = readDeviceFile(fuzz::fileOf(text, ".yaml"));
  fuzz::expect(bool(again), "a device that is written is read",
               again ? "" : again.message());
}

static fuzz::Announce target{{"DeviceTables", run, fuzz::mutateYaml}};
