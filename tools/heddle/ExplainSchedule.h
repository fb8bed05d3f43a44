//===- ExplainSchedule.h - A plan's schedule, for explain -------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_EXPLAINSCHEDULE_H
#define HEDDLE_TOOLS_EXPLAINSCHEDULE_H

#include "tools/heddle/Inputs.h"

#include "heddle/Schedule/Simulate.h"

#include <nlohmann/json.hpp>

#include <vector>

namespace heddle::tool {

/// The slots of a plan with stages, and when they run.
struct ScheduleFacts {
  ScheduleTable table;
  ScheduleTiming equal; ///< F, B and W one second each
  /// Each as long as its FLOPs take at one rate; none where the cost formulas
  /// do not know the plan.
  std::optional<ScheduleTiming> byFlops;
  /// Where slots are joined: both with these in turn, as programs run them,
  /// instead of interleaved.
  std::optional<ScheduleTiming> equalInTurn, byFlopsInTurn;
  std::string rate; ///< "989 TFLOP/s (bf16 peak of h100-sxm-80gb)"
  std::vector<std::int32_t> inFlight; ///< micro-batches x chunks, per place

  /// What a timeline is made of.
  const ScheduleTiming &timing() const { return byFlops ? *byFlops : equal; }
};

/// None for plans without stages. Plan and settings must be there.
Result<std::optional<ScheduleFacts>> findSchedule(const Inputs &inputs);

/// Rows as text, what is in flight, idle shares.
nlohmann::ordered_json scheduleJson(const ScheduleFacts &facts);

/// The same for people, with a drawing.
void printSchedule(const ScheduleFacts &facts);

} // namespace heddle::tool

#endif
