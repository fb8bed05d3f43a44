//===- Fuzzer.cpp - Hands one target to libFuzzer -------------------------===//

#include "test/fuzz/Fuzz.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>

using namespace heddle::fuzz;

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

// What is freed is given out again after a few MiB: more would be more than
// caches hold. MLIR's own code marks no memory of its allocators as poisoned,
// ours that is inlined from its headers would.
extern "C" const char *__asan_default_options() {
  return "allow_user_poisoning=0:malloc_context_size=2:quarantine_size_mb=4";
}
extern "C" const char *__ubsan_default_options() {
  return "print_stacktrace=1";
}

/// What run.py writes: a word in double quotes in each line.
static void readWords(const char *path) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.size() > 2 && line.front() == '"' && line.back() == '"')
      words().push_back(line.substr(1, line.size() - 2));
}

extern "C" int LLVMFuzzerInitialize(int *count, char ***arguments) {
  constexpr std::string_view kOption = "-dict=";
  for (int i = 1; i < *count; ++i)
    if (std::string_view((*arguments)[i]).starts_with(kOption))
      readWords((*arguments)[i] + kOption.size());
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  targets().front().run({reinterpret_cast<const char *>(data), size});
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size,
                                          size_t most, unsigned seed) {
  const Target &target = targets().front();
  Random random(seed);
  const bool isOfBytes = !target.mutate || random() % 4 == 0;
  if (isOfBytes)
    size = LLVMFuzzerMutate(data, size, most);
  // Wrong lengths and checksums have to be tried too.
  const bool isRepaired = target.repair && random() % 8 != 0;
  if (isOfBytes && !isRepaired)
    return size;
  std::string input(reinterpret_cast<const char *>(data), size);
  if (!isOfBytes)
    target.mutate(input, random);
  if (isRepaired)
    target.repair(input);
  if (input.size() > most)
    return size;
  std::copy(input.begin(), input.end(), reinterpret_cast<char *>(data));
  return input.size();
}
