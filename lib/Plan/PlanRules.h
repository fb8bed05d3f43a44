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

/// The words of \p text between spaces.
std::vector<std::string> splitWords(std::string_view text);

} // namespace heddle::detail

#endif // HEDDLE_LIB_PLAN_PLANRULES_H
