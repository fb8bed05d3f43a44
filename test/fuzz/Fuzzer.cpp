//===- Fuzzer.cpp - Hands one target to libFuzzer -------------------------===//

#include "test/fuzz/Fuzz.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

using namespace heddle::fuzz;

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

// MLIR's own code marks no memory of its allocators as poisoned, ours that is
// inlined from its headers would.
extern "C" const char *__asan_default_options() {
  return "allow_user_poisoning=0:malloc_context_size=6";
}
extern "C" const char *__ubsan_default_options() {
  return "print_stacktrace=1";
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
