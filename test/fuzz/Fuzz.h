//===- Fuzz.h - What a fuzz target is ---------------------------*- C++ -*-===//
//
// A target gives any bytes to one reader and ends the process where the reader
// breaks its promise: it never ends by itself, and what it refuses it refuses
// with one line of text. Targets know nothing of who calls them: libFuzzer
// (Fuzzer.cpp) or the replay of the committed inputs (Replay.cpp).
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_TEST_FUZZ_FUZZ_H
#define HEDDLE_TEST_FUZZ_FUZZ_H

#include "heddle/Support/Result.h"

#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::fuzz {

using Random = std::minstd_rand;

struct Target {
  const char *name; ///< of its file, and of its folder of inputs
  void (*run)(std::string_view input);
  /// Changes an input in a way that its first check lets pass; false where the
  /// input is not of that kind. None where any change of bytes does.
  bool (*mutate)(std::string &input, Random &random) = nullptr;
  /// Makes lengths and checksums right again after any change.
  void (*repair)(std::string &input) = nullptr;
};

/// All that are linked in.
std::vector<Target> &targets();
/// Adds one: `static Announce target{{"Json", run}};`
struct Announce {
  Announce(const Target &target) { targets().push_back(target); }
};

/// Names and values that readers of the target know, where libFuzzer was given
/// some (-dict); what changes documents draws from them.
std::vector<std::string> &words();

/// Ends the process with a sentence where a promise is broken.
void expect(bool holds, std::string_view promise, std::string_view seen = "");
/// That a message is one line of UTF-8 without control characters, not empty
/// and not endless.
void checkMessage(std::string_view message);

/// Whether there is a value; if not, its message is checked.
template <class T>
bool accepted(const Result<T> &result) {
  if (result)
    return true;
  checkMessage(result.message());
  return false;
}

/// A file of these bytes with the given extension, for readers of files.
std::string fileOf(std::string_view bytes, const char *extension);

/// Cuts the next `count` bytes, or what is left, off the input.
std::string_view take(std::string_view &input, size_t count);
/// Cuts the line off; what follows the line break is left.
std::string_view takeLine(std::string_view &input);

} // namespace heddle::fuzz

#endif
