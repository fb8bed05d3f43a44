#include "CompareCost.h"

#include <gtest/gtest.h>

using namespace heddle;

void heddle::expectEqual(const std::map<AxisList, AxisTraffic> &formula,
                         const std::map<AxisList, AxisTraffic> &counted) {
  std::map<AxisList, AxisTraffic> all = counted;
  all.insert(formula.begin(), formula.end());
  for (const auto &[axes, unused] : all) {
    std::string name;
    for (const std::string &axis : axes)
      name += axis + " ";
    ASSERT_TRUE(formula.count(axes)) << "only the program sends over " << name;
    ASSERT_TRUE(counted.count(axes)) << "only the formula sends over " << name;
    EXPECT_EQ(formula.at(axes).calls, counted.at(axes).calls) << name;
    // Fractions like 2/3 are rounded in another order.
    EXPECT_NEAR(formula.at(axes).bytes / counted.at(axes).bytes, 1, 1e-12)
        << name;
  }
}

std::int64_t
heddle::gathersAhead(const std::vector<StepCollective> &collectives) {
  std::int64_t calls = 0;
  for (const StepCollective &each : collectives)
    if (each.isOfStates && each.kind == CollectiveKind::AllGather)
      calls += each.hiddenCalls;
  return calls;
}

void heddle::expectEqual(const LiveMemory &formula,
                         const MemoryReport &report) {
  std::map<std::string, int64_t> counted;
  for (const MemoryObject &object : report.objects)
    counted[object.memoryClass] += object.bytes;
  EXPECT_EQ(formula.parameters, counted["parameters"]);
  EXPECT_EQ(formula.gradients, counted["gradients"]);
  EXPECT_EQ(formula.optimizer, counted["optimizer"]);
  EXPECT_EQ(formula.inputs, counted["inputs"]);
  EXPECT_EQ(formula.outputs, counted["outputs"]);
  EXPECT_EQ(formula.saved * formula.microBatchLoops, counted["saved"]);
  EXPECT_EQ(formula.offloaded * formula.microBatchLoops +
                formula.offloadedOptimizer,
            counted["offloaded"]);
  EXPECT_EQ(formula.peakBytes(), report.livePeakBytes)
      << formula.peak().function << ": " << formula.peak().moment
      << ", the program: " << report.peakFunction << ": " << report.peakOp;
}
