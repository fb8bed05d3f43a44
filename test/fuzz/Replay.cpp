//===- Replay.cpp - Gives the committed inputs to every target ------------===//
//
// Usage: FuzzReplay FOLDER [INPUT]    FOLDER/TARGET has the inputs of a target;
// where a file of one is named, it alone is given. Ends with an error where a
// target has no inputs, or a folder no target.
//
//===----------------------------------------------------------------------===//

#include "test/fuzz/Fuzz.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

namespace fs = std::filesystem;
using namespace heddle::fuzz;

static void run(const Target &target, const fs::path &path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  // What ends the process has no other word of the input.
  std::printf("%s\n", path.c_str());
  std::fflush(stdout);
  target.run(bytes);
}

int main(int argc, char **argv) {
  expect(argc == 2 || argc == 3, "usage: FuzzReplay FOLDER [INPUT]");
  std::set<fs::path> left;
  for (const fs::directory_entry &entry : fs::directory_iterator(argv[1]))
    left.insert(entry.path().filename());
  size_t inputs = 0;
  for (const Target &target : targets()) {
    expect(left.erase(target.name) == 1, "a target has inputs", target.name);
    const size_t before = inputs;
    for (const fs::directory_entry &entry :
         fs::directory_iterator(fs::path(argv[1]) / target.name))
      if (argc == 2 || fs::equivalent(entry.path(), argv[2])) {
        run(target, entry.path());
        ++inputs;
      }
    expect(argc == 3 || inputs > before, "a target has inputs", target.name);
  }
  for (const fs::path &name : left)
    expect(false, "inputs have a target", name.string());
  expect(inputs > 0, "the input is one of a target");
  std::printf("%zu inputs of %zu targets\n", inputs, targets().size());
  return 0;
}
