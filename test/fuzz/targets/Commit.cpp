#include "runtime/checkpoint/Checksum.h"
#include "test/fuzz/targets/ManifestText.h"
#include "test/runtime/checkpoint/Disk.h"

#include "runtime/checkpoint/Checkpoint.h"

#include <fmt/format.h>

using namespace heddle;
using namespace heddle::checkpoint;

// The name of a folder, the line of COMMIT, then the manifest: a line each.
static void run(std::string_view input) {
  const std::string name(fuzz::takeLine(input));
  const std::string line = std::string(fuzz::takeLine(input)) + "\n";
  if (const std::optional<int64_t> step = stepOfFolder(name))
    fuzz::expect(stepFolder(*step) == name, "a step has one folder", name);
  test::Disk disk;
  const std::string folder = "root/step-0000000001";
  const bool made = disk.makeFolder("root") && disk.makeFolder(folder) &&
                    writeText(disk, folder + "/COMMIT", line) &&
                    writeText(disk, folder + "/manifest.json", input);
  fuzz::expect(made, "a disk in memory takes files");
  const Result<Checkpoint> opened = Checkpoint::open(disk, folder);
  if (fuzz::accepted(opened))
    (void)fuzz::accepted(opened->verify());
}

/// Size and SHA-256 of the manifest that follows.
static void repair(std::string &input) {
  std::string_view rest = input;
  const std::string name(fuzz::takeLine(rest));
  std::string line(fuzz::takeLine(rest));
  std::string text(rest);
  fuzz::repairManifest(text);
  size_t cut = line.size();
  for (int i = 0; i < 2 && cut != 0 && cut != std::string::npos; ++i)
    cut = line.rfind(' ', cut - 1);
  if (cut != std::string::npos)
    line =
        line.substr(0, cut) + fmt::format(" {} {}", text.size(), sha256(text));
  input = name + "\n" + line + "\n" + text;
}

static bool mutate(std::string &input, fuzz::Random &random) {
  std::string_view rest = input;
  const std::string name(fuzz::takeLine(rest)), line(fuzz::takeLine(rest));
  std::string text(rest);
  if (!fuzz::mutateJson(text, random))
    return false;
  input = name + "\n" + line + "\n" + text;
  return true;
}

static fuzz::Announce target{{"Commit", run, mutate, repair}};
