#include "tools/heddle/ExplainProgram.h"

#include "passes/Pipelines/Pipelines.h"
#include "tools/heddle/Diagnostics.h"
#include "tools/heddle/Memory.h"

#include <fmt/ranges.h>

#include <algorithm>

using namespace heddle;
using namespace heddle::tool;
using json = nlohmann::ordered_json;

Result<ProgramFacts> tool::findProgram(const Inputs &inputs, bool withMemory) {
  Compiler compiler;
  ProgramFacts facts;
  auto observe = [&](Phase phase, mlir::ModuleOp module) {
    if (phase == Phase::Autodiff)
      for (const SegmentValue &value : findSegmentValues(module))
        facts.values.push_back({value.name, value.factors, value.isSaved});
    if (phase == Phase::Collectives)
      facts.reshards = getReshardReports(module);
  };
  auto module =
      compileUpTo(compiler.context, {inputs.model, *inputs.train, *inputs.plan},
                  withMemory ? Phase::Memory : Phase::Collectives, observe);
  if (failed(module))
    return Error{compiler.errors()};
  if (withMemory)
    facts.memory = getMemoryReports(**module);
  return facts;
}

json tool::valuesJson(const ProgramFacts &facts) {
  json values = json::array();
  for (const NamedValue &value : facts.values)
    values.push_back({{"name", value.name},
                      {"factors", value.factors},
                      {"saved", value.isSaved}});
  return values;
}

json tool::reshardsJson(const ProgramFacts &facts) {
  json reshards = json::array();
  for (const ReshardReport &report : facts.reshards) {
    json steps = json::array();
    for (const ReshardStepReport &step : report.steps)
      steps.push_back(
          {{"kind", step.kind}, {"axes", step.axes}, {"bytes", step.bytes}});
    reshards.push_back({{"function", report.function},
                        {"value", report.reason.value},
                        {"from", report.reason.from},
                        {"to", report.reason.to},
                        {"steps", steps},
                        {"bytes", report.bytes()},
                        {"calls", report.calls},
                        {"cause", report.cause},
                        {"made", report.reason.made},
                        {"wanted", report.reason.wanted}});
  }
  return reshards;
}

void tool::printReshards(const ProgramFacts &facts) {
  fmt::print(
      "\nreshards: what moves, from one layout to another (bytes sent by "
      "a rank in one call)\n");
  std::string function;
  for (const ReshardReport &report : facts.reshards) {
    if (report.function != function)
      fmt::print("{}\n", report.function);
    function = report.function;
    std::vector<std::string> steps;
    for (const ReshardStepReport &step : report.steps)
      steps.push_back(
          fmt::format("{} {}", step.kind, fmt::join(step.axes, "+")));
    fmt::print("  {} from {} to {}: {}, {} bytes, {} call{} a step\n",
               report.reason.value, report.reason.from, report.reason.to,
               fmt::join(steps, ", "), report.bytes(), report.calls,
               report.calls == 1 ? "" : "s");
    fmt::print("    made:   {}\n    wanted: {}\n", report.reason.made,
               report.reason.wanted);
  }
  if (facts.reshards.empty())
    fmt::print("  none\n");
}

/// A line for each pipeline stage.
static void printStages(const std::vector<MemoryReport> &reports) {
  fmt::print("\nmemory of a rank of each stage\n  {:>5} {:>20} {:>20}\n",
             "stage", "live at the peak", "arena");
  for (size_t stage = 0; stage < reports.size(); ++stage)
    fmt::print("  {:>5} {:>20} {:>20}  {}\n", stage,
               reports[stage].livePeakBytes, reports[stage].arenaBytes,
               describeBytes(double(reports[stage].arenaBytes)));
}

void tool::printMemory(const std::vector<MemoryReport> &reports, bool all) {
  if (reports.size() > 1)
    printStages(reports);
  const size_t fullest = fullestStage(reports);
  const MemoryReport &report = reports[fullest];
  fmt::print("\nmemory of a rank{}\n",
             reports.size() > 1
                 ? fmt::format(" of stage {}, the fullest", fullest)
                 : "");
  fmt::print("  {:24} {:>20}  {}\n", "live at the peak", report.livePeakBytes,
             describeBytes(double(report.livePeakBytes)));
  fmt::print("  {:24} {:>20}  {}\n", "arena", report.arenaBytes,
             describeBytes(double(report.arenaBytes)));
  if (report.hostBytes > 0)
    fmt::print("  {:24} {:>20}  {}\n", "on the host", report.hostBytes,
               describeBytes(double(report.hostBytes)));
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
