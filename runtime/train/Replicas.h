//===- Replicas.h - Copies that have to be equal --------------------------===//

#ifndef RUNTIME_TRAIN_REPLICAS_H
#define RUNTIME_TRAIN_REPLICAS_H

#include "runtime/train/Rank.h"

#include <string>
#include <vector>

namespace heddle::train {

/// Compares a digest of every state between the ranks that hold the same share,
/// on other stages too. HEDDLE_RT_CHECK_FAILED names the first state that
/// differs, and the ranks whose copies differ from what most have; where no
/// value has most, all. Collective.
heddle_rt_status checkReplicas(Rank &rank, int64_t step);

/// CHECK_FAILED where a number that the program leaves, the same on all ranks,
/// is not: each would go on by its own. Collective.
heddle_rt_status
checkNumbers(Rank &rank, int64_t step,
             const std::vector<std::pair<const char *, double>> &numbers);

/// Which of the copies differ from what more than half of them are; empty where
/// all are equal, all where no value has so many.
std::vector<size_t> outvoted(const std::vector<int64_t> &digests);

/// Digests of all instances of states that the rank has, 0 for others.
heddle_rt_status digestStates(Rank &rank, std::vector<int64_t> &digests);

/// An instance of a state, of all stages together; as digests are ordered.
struct Instance {
  const runtime::State *state;
  int64_t layer;
  std::string name() const {
    return state->kind + " " + state->instanceName(layer);
  }
};
std::vector<Instance> listInstances(const runtime::Tables &tables);

} // namespace heddle::train

#endif
