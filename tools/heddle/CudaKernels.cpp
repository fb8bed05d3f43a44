#include "tools/heddle/CudaKernels.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Demangle/Demangle.h"

using namespace heddle;
using namespace heddle::tool;
using llvm::StringRef;

/// The number that stands before `words` in a line; 0 where they do not stand.
static int64_t numberBefore(StringRef line, StringRef words) {
  const size_t at = line.find(words);
  if (at == StringRef::npos)
    return 0;
  StringRef before = line.take_front(at).rtrim();
  const size_t begin = before.find_last_not_of("0123456789");
  int64_t number = 0;
  before.drop_front(begin == StringRef::npos ? 0 : begin + 1)
      .getAsInteger(10, number);
  return number;
}

std::vector<CudaKernel> tool::readPtxas(std::string_view words) {
  std::vector<CudaKernel> kernels;
  StringRef rest(words.data(), words.size());
  while (!rest.empty()) {
    StringRef line;
    std::tie(line, rest) = rest.split('\n');
    if (line.contains("Compiling entry function")) {
      StringRef name = line.split('\'').second.split('\'').first;
      kernels.emplace_back().name = llvm::demangle(name.str());
    }
    if (kernels.empty())
      continue;
    CudaKernel &kernel = kernels.back();
    if (line.contains("bytes stack frame")) {
      kernel.stackBytes = numberBefore(line, "bytes stack frame");
      kernel.spillBytes = numberBefore(line, "bytes spill stores") +
                          numberBefore(line, "bytes spill loads");
    }
    if (line.contains("Used ")) {
      kernel.registers = numberBefore(line, "registers");
      kernel.sharedBytes = numberBefore(line, "bytes smem");
    }
  }
  return kernels;
}

nlohmann::ordered_json
tool::cudaKernelsJson(const std::vector<CudaKernel> &kernels) {
  auto list = nlohmann::ordered_json::array();
  for (const CudaKernel &kernel : kernels)
    list.push_back({{"name", kernel.name},
                    {"registers", kernel.registers},
                    {"stack_bytes", kernel.stackBytes},
                    {"spill_bytes", kernel.spillBytes},
                    {"shared_bytes", kernel.sharedBytes}});
  return {{"architecture", "sm_90a"}, {"kernels", list}};
}
