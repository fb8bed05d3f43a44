//===- FamilyLayout.h - How a parameter lies under a plan -------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_FAMILYLAYOUT_H
#define HEDDLE_TOOLS_FAMILYLAYOUT_H

#include "heddle/Model/Parameters.h"
#include "heddle/Plan/PlanLayout.h"

namespace heddle::tool {

struct FamilyLayout {
  PlanDims dims;
  std::vector<std::int64_t> local; ///< of a rank, padding included
};

/// "g r k" -> {"g", "r", "k"}.
std::vector<std::string> splitWords(const std::string &text);

/// An error as parameterLayout has it.
Result<FamilyLayout> familyLayout(const Plan &plan, const ModelConfig &model,
                                  const ParameterFamily &family);

} // namespace heddle::tool

#endif
