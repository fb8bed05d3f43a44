//===- PlanSearch.h - A search for plans, from files ------------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_PLANSEARCH_H
#define HEDDLE_TOOLS_PLANSEARCH_H

#include "tools/heddle/Inputs.h"

#include "heddle/Planner/Search.h"

#include <memory>

namespace heddle::tool {

/// A problem, and what plans are costed with.
struct PlanSearch {
  PlanSearch(PlanProblem given, StepTimes times, StepTimes slowLink)
      : problem(std::move(given)), times(std::move(times)),
        slowLink(std::move(slowLink)),
        memory(problem.model, problem.train, problem.cluster) {}

  PlanProblem problem;
  StepTimes times;
  StepTimes slowLink; ///< the outermost link has a tenth less
  MemoryEstimator memory;
};

/// What the user asks for beside the files.
struct SearchRequest {
  std::vector<std::string> demands; ///< "tp=8"
  std::int64_t limit = 500000;      ///< plans; 0: all
  std::int64_t top = 5;
  std::vector<std::string> pins = {}; ///< "lm_head=replicated"

  /// What is wrong with the numbers, by the option's name.
  Result<void> check() const;
};

/// Warnings are printed. Cluster and settings must have been given.
Result<std::unique_ptr<PlanSearch>> readSearch(const Inputs &inputs,
                                               const SearchRequest &request);

/// The best plans; each is verified, and an error says what is wrong with one.
/// Says how far it is where stderr is a terminal.
Result<PlanAnswer> runSearch(const PlanSearch &search,
                             const SearchRequest &request);

/// Why there is no plan, on stderr, and on stdout as JSON where that is asked
/// for. The exit code.
int tellConflict(const PlanSearch &search, bool asJson);

} // namespace heddle::tool

#endif
