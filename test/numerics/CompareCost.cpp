#include "CompareCost.h"

#include "CountProgram.h"

#include "test/TestPlan.h"

#include "heddle/Cost/Flops.h"
#include "passes/Pipelines/Pipelines.h"

#include <gtest/gtest.h>

using namespace heddle;
using test::must;

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
    counted[object.arena == "host" ? "offloaded" : object.memoryClass] +=
        object.bytes;
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

void heddle::checkProgram(const ModelConfig &model, const TrainSettings &train,
                          const Plan &plan) {
  RankSizes sizes = must(rankSizes(model, train, plan));
  FlopCount flops = stepFlops(model, sizes);
  auto check = [&](const Counted &counted, Messages messages) {
    EXPECT_EQ(flops.products, counted.products);
    EXPECT_EQ(flops.attention, counted.attention);
    expectEqual(trafficByAxes(stepCollectives(sizes, messages)),
                counted.traffic);
  };
  mlir::MLIRContext context;
  context.disableMultithreading();
  auto observe = [&](Phase phase, mlir::ModuleOp module) {
    SCOPED_TRACE(phaseName(phase));
    if (phase == Phase::Recompute)
      check(countInTensors(module), Messages::Gradients);
    if (phase != Phase::Memory)
      return;
    const Counted counted = countInRuntime(module);
    check(counted, Messages::Buckets);
    std::int64_t beside = 0;
    for (const StepCollective &each : stepCollectives(sizes))
      beside += each.isOfStates ? 0 : each.hiddenCalls;
    EXPECT_EQ(beside, counted.gathersBeside);
    EXPECT_EQ(gathersAhead(stepCollectives(sizes)), counted.gathersAhead);
    expectEqual(liveMemory(model, train, sizes), getMemoryReport(module));
  };
  EXPECT_TRUE(succeeded(compileUpTo(context, CompileInput{model, train, plan},
                                    Phase::Memory, observe)));
}
