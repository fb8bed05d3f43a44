// What reading, checking and laying out share about rules.

#ifndef HEDDLE_LIB_PLAN_PLANRULES_H
#define HEDDLE_LIB_PLAN_PLANRULES_H

#include "heddle/Plan/PlanLayout.h"

namespace heddle::detail {

/// The last rule whose glob matches \p name, or null.
const PlanRule *lastMatch(const std::vector<PlanRule> &rules,
                          std::string_view name);

/// A rule's split in axes of the refined mesh (see parameterLayout).
PlanSplit meshSplit(const PlanSplit &split, const Plan &plan,
                    const ModelConfig &model);

/// The sentence that says which axis of \p rule no tensor can be split over in
/// this mesh; empty if there is none.
std::string axisFault(const PlanRule &rule, const Plan &plan,
                      const ModelConfig &model);

/// Whether the plan's scales, if its formats need any, can be made of sequences
/// of so many tokens, and its exceptions.
Result<void> checkScaling(const Plan &plan, const ModelConfig &model,
                          std::int64_t length);

/// How what flows between blocks is split where no rule says otherwise:
/// sequences over cp, and over tp where \p sequenceParallel.
std::vector<PlanRule> valuesBetweenBlocks(std::int64_t cp,
                                          bool sequenceParallel);

/// The words of \p text between spaces.
std::vector<std::string> splitWords(std::string_view text);

} // namespace heddle::detail

#endif // HEDDLE_LIB_PLAN_PLANRULES_H
