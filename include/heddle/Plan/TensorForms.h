// Words that plan.json may give as `tensor`, each short for rules.

#ifndef HEDDLE_PLAN_TENSORFORMS_H
#define HEDDLE_PLAN_TENSORFORMS_H

#include "heddle/Plan/Plan.h"

#include <functional>

namespace heddle {

/// What a word stands for. Of \p plan mesh and micro-batches are there. Rules
/// for parameters must cover all of them; without rules for values, what flows
/// between blocks is split along sequences over dp.
using TensorForm =
    std::function<PlanTensor(const ModelConfig &model, const Plan &plan)>;

/// Adds a word beside "megatron". For plug-ins, which do so when they are
/// loaded: before a plan is read, and from one thread. Refuses a word that is
/// taken.
Result<void> addTensorForm(const std::string &word, TensorForm form);

} // namespace heddle

#endif // HEDDLE_PLAN_TENSORFORMS_H
