//===- Fuzzer.cpp - Hands one target to libFuzzer -------------------------===//

#include "test/fuzz/Fuzz.h"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sys/time.h>

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

#if !__has_feature(address_sanitizer)
/// ASan's flavour has libFuzzer's -malloc_limit_mb for this.
void *operator new(size_t bytes) {
  constexpr size_t kMost = size_t(64) << 20;
  expect(bytes <= kMost, "an allocation is no larger than 64 MiB");
  void *const made = std::malloc(bytes);
  expect(made != nullptr, "there is memory");
  return made;
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }
#endif

//===----------------------------------------------------------------------===//
// A second of a processor is the most that an input may take. libFuzzer's own
// limit is of time that passes: a busy machine can hold up any input.
//===----------------------------------------------------------------------===//

static volatile sig_atomic_t inputs, inputsBefore;

static void onSecond(int) {
  const bool isSame = inputs == inputsBefore && inputs % 2 == 1;
  inputsBefore = inputs;
  expect(!isSame, "an input takes less than a second");
}

static void limitSeconds() {
  struct sigaction action = {};
  action.sa_handler = onSecond;
  action.sa_flags = SA_RESTART;
  const itimerval each = {.it_interval = {1, 0}, .it_value = {1, 0}};
  expect(sigaction(SIGPROF, &action, nullptr) == 0 &&
             setitimer(ITIMER_PROF, &each, nullptr) == 0,
         "there is a clock");
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
  limitSeconds();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  inputs = inputs + 1; // odd: at one
  targets().front().run({reinterpret_cast<const char *>(data), size});
  inputs = inputs + 1;
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size,
                                          size_t most, unsigned seed) {
  const Target &target = targets().front();
  Random random(seed);
  std::string input(reinterpret_cast<const char *>(data), size);
  const bool isByBytes = !target.mutate || random() % 4 == 0 ||
                         !target.mutate(input, random) || input.size() > most;
  if (isByBytes)
    size = LLVMFuzzerMutate(data, size, most);
  // Wrong lengths and checksums have to be tried too.
  const bool isRepaired = target.repair && random() % 8 != 0;
  if (isByBytes && !isRepaired)
    return size;
  if (isByBytes)
    input.assign(reinterpret_cast<const char *>(data), size);
  if (isRepaired)
    target.repair(input);
  if (input.size() > most)
    return size;
  std::copy(input.begin(), input.end(), reinterpret_cast<char *>(data));
  return input.size();
}
