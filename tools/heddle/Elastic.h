//===- Elastic.h - A run goes on with another number of ranks ---*- C++ -*-===//

#ifndef HEDDLE_TOOLS_ELASTIC_H
#define HEDDLE_TOOLS_ELASTIC_H

#include "heddle/Support/Result.h"

#include <cstdint>
#include <string>

namespace heddle::tool {

/// What a run needs to be planned anew.
struct ElasticInputs {
  std::string counter; ///< command that prints how many ranks there can be
  std::string model, cluster, train; ///< files
};

/// Runs the counter by the shell. An error where it fails, or prints anything
/// but a number from 1 on.
Result<int64_t> countRanks(const std::string &counter);

/// Whether plans can be searched with these files: better known before a run
/// than behind its first failure.
Result<void> checkElastic(const ElasticInputs &inputs);

/// The folder of a program for so many ranks, below `folder`: the best plan for
/// as many devices of the cluster, with the same global batch, is searched and
/// compiled where that was not done before. Tells people what it does, and the
/// seconds that it took.
Result<std::string> programFor(int64_t ranks, const std::string &folder,
                               const ElasticInputs &inputs);

} // namespace heddle::tool

#endif
