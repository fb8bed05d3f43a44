//===- Verify.h - A plan against one device ---------------------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_VERIFY_H
#define HEDDLE_TOOLS_VERIFY_H

#include "passes/Interpret/Compare.h"
#include "tools/heddle/Batch.h"
#include "tools/heddle/Inputs.h"

#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

namespace heddle::tool {

/// What is compared, and on which values.
struct VerifyJob {
  ModelConfig model;
  TrainSettings train; ///< its seed is that of parameters
  Plan plan, one;      ///< `one`: one device
  BatchFile batch;
  std::string batchPath; ///< "" where the batch was made
  std::string weights;   ///< "" for random ones, biases and norms too
  std::string dump;      ///< folder, or ""
  bool bisect = false;
  bool processes = false; ///< ranks are MPI processes

  int64_t steps() const { return batch.steps(train.globalBatch); }
};

struct Pair {
  double plan = 0, reference = 0;

  double relative() const; ///< |plan - reference| / |reference|
};

/// FORMATS 6. Loss, gradients, norm and count are the first step's, parameters
/// and replicas those after the last.
struct VerifyAnswer {
  std::string mode;
  std::vector<Pair> losses; ///< of each step
  Pair norm, count;
  std::vector<interpret::Difference> gradients, parameters; ///< worst first
  /// Parameters whose gradient is rounding alone, of which AdamW makes steps of
  /// full size: two right programs do not agree in them, so they do not count.
  std::set<std::string> unjudged;
  std::vector<std::string> faults; ///< replicas or padding that are wrong
  double lossTolerance = 0, gradientTolerance = 0, parameterTolerance = 0;
  std::optional<std::string> firstDifferentPhase;

  bool isEqual() const;
  std::string describe(unsigned atMost) const; ///< people's text
  std::string json() const;                    ///< one object
};

/// Why there is no answer.
struct VerifyFailure {
  Error error;
  int code;
};
using VerifyResult = std::variant<VerifyAnswer, VerifyFailure>;

/// By the interpreter, exact reading.
VerifyResult verifyByInterpreter(const VerifyJob &job);
/// By the emitted programs of plan and one device, run one after the other.
VerifyResult verifyProgram(const VerifyJob &job);

/// The first phase, in the interpreter, after which the plan's first step is
/// another one; none where all are equal.
std::variant<std::optional<std::string>, VerifyFailure>
findFirstDifferentPhase(const VerifyJob &job);

} // namespace heddle::tool

#endif
