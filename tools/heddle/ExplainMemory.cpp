#include "tools/heddle/ExplainMemory.h"

#include "passes/Pipelines/Pipelines.h"
#include "tools/heddle/Diagnostics.h"
#include "tools/heddle/Memory.h"

#include <algorithm>

using namespace heddle;
using namespace heddle::tool;

Result<MemoryReport> tool::findMemory(const Inputs &inputs) {
  ModelConfig model = inputs.model;
  if (Result<void> ok = settleDropout(model, *inputs.train); !ok)
    return ok.error();
  Compiler compiler;
  auto module = compileUpTo(
      compiler.context, {model, *inputs.train, *inputs.plan}, Phase::Memory);
  if (failed(module))
    return Error{compiler.errors()};
  return getMemoryReport(**module);
}

void tool::printMemory(const MemoryReport &report, bool all) {
  fmt::print("\nmemory of a rank\n");
  fmt::print("  {:24} {:>20}  {}\n", "live at the peak", report.livePeakBytes,
             describeBytes(double(report.livePeakBytes)));
  fmt::print("  {:24} {:>20}  {}\n", "arena", report.arenaBytes,
             describeBytes(double(report.arenaBytes)));
  fmt::print("  {:24} {} in {}\n", "peak at", report.peakOp,
             report.peakFunction);
  for (const auto &[name, bytes] : bytesByClass(report))
    if (bytes > 0)
      fmt::print("  {:24} {:>20}  {}\n", name, bytes,
                 describeBytes(double(bytes)));
  if (!all)
    return;
  std::vector<MemoryObject> objects = report.objects;
  std::stable_sort(
      objects.begin(), objects.end(),
      [](const auto &a, const auto &b) { return a.bytes > b.bytes; });
  fmt::print("\n  {:>16} {:>16} {:13} {:18} {}\n", "bytes", "offset", "class",
             "function", "buffer");
  for (const MemoryObject &object : objects)
    fmt::print("  {:>16} {:>16} {:13} {:18} {}{}\n", object.bytes,
               object.offset, object.memoryClass, object.function, object.name,
               object.reason.empty() ? "" : ": " + object.reason);
}
