//===- CompareCost.h - figures of formulas and of programs ------*- C++ -*-===//

#ifndef HEDDLE_TEST_NUMERICS_COMPARECOST_H
#define HEDDLE_TEST_NUMERICS_COMPARECOST_H

#include "heddle/Cost/LiveMemory.h"
#include "heddle/Cost/Traffic.h"
#include "heddle/Model/TrainSettings.h"
#include "heddle/Plan/Plan.h"
#include "passes/Memory/MemoryReport.h"

#include <map>

namespace heddle {

/// Reports what differs, as failures of the test that runs.
void expectEqual(const std::map<AxisList, AxisTraffic> &formula,
                 const std::map<AxisList, AxisTraffic> &counted);
void expectEqual(const LiveMemory &formula, const MemoryReport &report);

/// The formulas of a plan without stages against its program: operations, what
/// collectives send, live bytes.
void checkProgram(const ModelConfig &model, const TrainSettings &train,
                  const Plan &plan);

/// Calls that gather parameters of later layers while one computes.
std::int64_t gathersAhead(const std::vector<StepCollective> &collectives);

} // namespace heddle

#endif // HEDDLE_TEST_NUMERICS_COMPARECOST_H
