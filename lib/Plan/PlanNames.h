// The words that plan.json uses for choices, once for reading and writing.

#ifndef HEDDLE_LIB_PLAN_PLANNAMES_H
#define HEDDLE_LIB_PLAN_PLANNAMES_H

#include "heddle/Plan/Plan.h"
#include "heddle/Plan/Scaling.h"
#include "heddle/Support/Document.h"

#include <optional>
#include <string_view>

namespace heddle::detail {

template <typename Enum>
struct PlanWord {
  std::string_view word;
  Enum value;
};

inline constexpr PlanWord<PlanScheduleKind> scheduleWords[] = {
    {"none", PlanScheduleKind::None},
    {"gpipe", PlanScheduleKind::GPipe},
    {"one_f_one_b", PlanScheduleKind::OneFOneB},
    {"interleaved_1f1b", PlanScheduleKind::Interleaved1F1B},
    {"zb_h1", PlanScheduleKind::ZbH1},
    {"zb_h2", PlanScheduleKind::ZbH2},
    {"zb_v", PlanScheduleKind::ZbV},
    {"v_half", PlanScheduleKind::VHalf},
    {"v_min", PlanScheduleKind::VMin},
    {"dualpipe", PlanScheduleKind::DualPipe},
    {"dualpipe_v", PlanScheduleKind::DualPipeV},
};
inline constexpr PlanWord<PlanContext> contextWords[] = {
    {"none", PlanContext::None},
    {"ring", PlanContext::Ring},
    {"ulysses", PlanContext::Ulysses},
    {"allgather", PlanContext::AllGather},
};
inline constexpr PlanWord<PlanAttention> attentionWords[] = {
    {"flash", PlanAttention::Flash},
    {"unfused", PlanAttention::Unfused},
};
inline constexpr PlanWord<PlanMasks> maskWords[] = {
    {"drawn_again", PlanMasks::DrawnAgain},
    {"saved", PlanMasks::Saved},
};
inline constexpr PlanWord<PlanSave> saveWords[] = {
    {"least", PlanSave::Least},
    {"linear_inputs", PlanSave::LinearInputs},
};
inline constexpr PlanWord<PlanReduce> reduceWords[] = {
    {"every_micro_batch", PlanReduce::EveryMicroBatch},
    {"last", PlanReduce::Last},
};
inline constexpr PlanWord<PlanGather> gatherWords[] = {
    {"every_pass", PlanGather::EveryPass},
    {"every_micro_batch", PlanGather::EveryMicroBatch},
    {"once_per_step", PlanGather::OncePerStep},
};
inline constexpr PlanWord<PlanBucketOrder> orderWords[] = {
    {"backward", PlanBucketOrder::Backward},
    {"forward", PlanBucketOrder::Forward},
};

/// Formats that values may have, and those of a master copy.
inline constexpr std::string_view planFormats[] = {"fp32", "tf32", "bf16",
                                                   "fp16", "fp8",  "nvfp4"};
inline constexpr std::string_view planMasters[] = {"none", "fp32", "bf16"};
inline constexpr std::string_view planRecipes[] = {"fp32", "bf16", "fp16",
                                                   "fp8", "nvfp4"};

/// Axes of a mesh that have a meaning (DESIGN §4); the first four are listed by
/// every plan.
inline constexpr std::string_view planAxes[] = {"pp", "dp",  "cp", "tp",
                                                "ep", "edp", "etp"};

/// `scaling` and what belongs to it, of the map that a plan's `precision` is,
/// if it is one, where the recipe has formats that need a scale.
void readScaling(std::optional<MapReader> &reader, PlanPrecision &precision);

template <typename Enum, std::size_t N>
std::string wordOf(const PlanWord<Enum> (&words)[N], Enum value) {
  for (const PlanWord<Enum> &word : words)
    if (word.value == value)
      return std::string(word.word);
  return "";
}

} // namespace heddle::detail

#endif // HEDDLE_LIB_PLAN_PLANNAMES_H
