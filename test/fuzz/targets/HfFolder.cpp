#include "runtime/checkpoint/Convert.h"
#include "test/fuzz/Tree.h"
#include "test/runtime/checkpoint/Disk.h"

using namespace heddle;
using namespace heddle::checkpoint;

static std::string file(const char *tensor) {
  std::vector<TensorEntry> tensors(1);
  tensors[0].name = tensor;
  tensors[0].shape = {2, 2};
  return safetensorsHeader(tensors, {{"format", "pt"}}) + std::string(16, 'x');
}

// An index beside files that are right.
static void run(std::string_view input) {
  static const std::string a = file("a.weight"), b = file("b.weight");
  test::Disk disk;
  const bool made = disk.makeFolder("hf") &&
                    writeText(disk, "hf/a.safetensors", a) &&
                    writeText(disk, "hf/b.safetensors", b) &&
                    writeText(disk, "hf/model.safetensors.index.json", input);
  fuzz::expect(made, "a disk in memory takes files");
  const Result<Checkpoint> opened = openHf(disk, "hf");
  if (!fuzz::accepted(opened))
    return;
  for (const auto &[name, states] : opened->manifest().tensors)
    for (const auto &[role, state] : states) {
      std::string bytes(16, '\0');
      (void)fuzz::accepted(opened->read(
          state, {{0, 0}, {2, 2}}, std::as_writable_bytes(std::span(bytes))));
    }
}

static fuzz::Announce target{{"HfFolder", run, fuzz::mutateJson}};
