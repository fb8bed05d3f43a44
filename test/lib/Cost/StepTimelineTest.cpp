#include "heddle/Cost/StepTimeline.h"

#include "heddle/Support/Document.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

using namespace heddle;

namespace {

ModelConfig smallLlama() {
  ModelConfig model;
  model.hidden = 2048;
  model.layers = 16;
  model.kvHeads = 8;
  model.queryHeadsPerKvHead = 2;
  model.headSize = 128;
  model.ffn = 8192;
  model.vocabulary = 32000;
  return model;
}

TrainSettings settings() {
  TrainSettings train;
  train.sequenceLength = 2048;
  return train;
}

Cluster sixteen() {
  Cluster cluster;
  cluster.nodes = 2;
  cluster.devicesPerNode = cluster.nicsPerNode = 8;
  cluster.device = *deviceByName("h100-sxm-80gb");
  cluster.links = {{"node", 1, 450e9, std::nullopt, 1, true},
                   {"cluster", 2, 50e9, 5e-6, 1, false}};
  return cluster;
}

PlanPoint pointOf(PlanScheduleKind schedule, std::int64_t pp,
                  std::int64_t chunks) {
  PlanPoint point;
  point.pp = pp;
  point.tp = point.dp = 2;
  point.chunks = chunks;
  point.schedule = schedule;
  point.microBatches = 8;
  point.recipe = "bf16";
  point.zeroStage = 1;
  point.shardGroup = 2;
  point.layers.assign(static_cast<std::size_t>(pp * chunks),
                      16 / (pp * chunks));
  return point;
}

std::vector<PlanPoint> points() {
  std::vector<PlanPoint> all = {
      pointOf(PlanScheduleKind::None, 1, 1),
      pointOf(PlanScheduleKind::OneFOneB, 4, 1),
      pointOf(PlanScheduleKind::Interleaved1F1B, 4, 2),
      pointOf(PlanScheduleKind::ZbH1, 4, 1),
      pointOf(PlanScheduleKind::ZbV, 4, 2),
      pointOf(PlanScheduleKind::GPipe, 4, 1),
      pointOf(PlanScheduleKind::DualPipeV, 4, 2)};
  all[1].recompute = PointRecompute::Full;
  all[1].recomputed = {4, 2, 0, 0};
  all[2].zeroStage = 3;
  all[2].gather = PlanGather::EveryPass;
  all[2].prefetch = 1;
  all[2].reduce = PlanReduce::EveryMicroBatch;
  return all;
}

/// Whether a slot runs interleaved with another.
bool isJoined(const std::vector<Slot> &row, std::size_t i) {
  return row[i].joined() || (i > 0 && row[i - 1].joined());
}

StepTimes times() {
  return std::move(*StepTimes::of(smallLlama(), settings(), sixteen()));
}

} // namespace

TEST(StepTimeline, EndsWithTheStepAndRunsOneSlotAfterTheOther) {
  const StepTimes model = times();
  for (const PlanPoint &point : points()) {
    SCOPED_TRACE(point.text());
    const Result<StepTimeline> found = model.timeline(point);
    ASSERT_TRUE(found) << found.message();
    const Result<StepTime> step = model.simulate(point);
    EXPECT_EQ(found->seconds, step->seconds);
    double last = 0;
    for (std::size_t place = 0; place < found->ends.size(); ++place) {
      const std::vector<TimeSpan> &slots = found->timing.slots[place];
      ASSERT_EQ(slots.size(), found->table.rows[place].size());
      double free = 0;
      for (std::size_t i = 0; i < slots.size(); ++i) {
        if (i == 0 || !found->table.rows[place][i - 1].joined()) {
          EXPECT_GE(slots[i].start, free * (1 - 1e-12));
        }
        free = slots[i].end;
      }
      // All places wait for the norm; the update follows, then what is
      // gathered.
      const PlaceEnd &end = found->ends[place];
      EXPECT_LE(end.sums.end, end.norm.start * (1 + 1e-12));
      EXPECT_EQ(end.norm.end, slots.back().start);
      EXPECT_EQ(end.gathers.start, slots.back().end);
      last = std::max(last, end.gathers.end);
    }
    EXPECT_NEAR(last, step->seconds, 1e-9 * step->seconds);
  }
}

// A slot is as long as its tasks, but for sums that run on beside the next.
TEST(StepTimeline, SlotsAreTheirTasks) {
  const StepTimes model = times();
  for (const PlanPoint &point : points()) {
    SCOPED_TRACE(point.text());
    const Result<StepTimeline> found = model.timeline(point);
    ASSERT_TRUE(found) << found.message();
    for (const SlotTasks &slot : found->slots) {
      const auto place = static_cast<std::size_t>(slot.place);
      double shortest = found->seconds, within = 0;
      for (std::size_t i = 0; i < found->table.rows[place].size(); ++i)
        if (const Slot each = found->table.rows[place][i];
            each.kind() == slot.kind && each.chunk() == slot.chunk &&
            !isJoined(found->table.rows[place], i))
          shortest = std::min(shortest, found->timing.slots[place][i].length());
      if (shortest == found->seconds)
        continue; // none of that kind runs alone
      std::set<int> streams;
      for (const SlotTask &task : slot.tasks) {
        streams.insert(task.stream);
        if (task.stream != static_cast<int>(TimeAxis::Dp))
          within = std::max(within, task.time.end);
      }
      EXPECT_TRUE(streams.count(computeStream));
      if (slot.kind != SlotKind::WeightGrad) {
        EXPECT_TRUE(streams.count(static_cast<int>(TimeAxis::Tp)));
      }
      EXPECT_GE(shortest, within * (1 - 1e-9));
      if (point.zeroStage < 3) {
        EXPECT_NEAR(shortest, within, 1e-9 * within);
      }
    }
  }
}

TEST(StepTimeline, MemoryReachesItsEstimateAndNeverMore) {
  const StepTimes model = times();
  const MemoryEstimator memory(smallLlama(), settings(), sixteen());
  for (const PlanPoint &point : points()) {
    SCOPED_TRACE(point.text());
    const Result<StepTimeline> found = model.timeline(point);
    ASSERT_TRUE(found) << found.message();
    for (std::int64_t place = 0; place < point.pp; ++place) {
      const auto at = static_cast<std::size_t>(place);
      const Result<PlaceMemory> peak = memory.at(point, place);
      ASSERT_TRUE(peak) << peak.message();
      const std::vector<MemoryPoint> curve =
          memoryOverTime(*peak, found->table.rows[at], found->timing.slots[at]);
      std::int64_t most = 0;
      double before = 0;
      for (const MemoryPoint &each : curve) {
        EXPECT_GE(each.seconds, before);
        EXPECT_GE(each.memory.bytes(), peak->states());
        before = each.seconds;
        most = std::max(most, each.memory.bytes());
      }
      EXPECT_LE(most, peak->bytes());
      // Sets of each kind have places of their own: where weight gradients run
      // apart, they are not all in use at one moment.
      if (peak->keptSets == 0) {
        EXPECT_EQ(most, peak->bytes());
      } else {
        EXPECT_GT(most, peak->bytes() - peak->savedForInputs - peak->kept);
      }
      const PlaceMemory &last = curve.back().memory;
      EXPECT_EQ(last.saved + last.savedForInputs + last.kept, 0);
    }
  }
}

// F and D that run at the same time hold a set each.
TEST(StepTimeline, JoinedSlotsHoldBothSets) {
  PlaceMemory peak;
  peak.saved = 20;
  peak.sets = 2;
  peak.temporaries = 3;
  const std::vector<Slot> row = {
      Slot(SlotKind::Forward, 0, 0), Slot(SlotKind::Forward, 0, 1, true),
      Slot(SlotKind::Backward, 0, 0), Slot(SlotKind::Backward, 0, 1)};
  const std::vector<MemoryPoint> curve =
      memoryOverTime(peak, row, {{0, 1}, {1, 3}, {1, 3}, {3, 4}});
  std::int64_t most = 0;
  for (const MemoryPoint &each : curve)
    most = std::max(most, each.memory.bytes());
  EXPECT_EQ(most, 23);
  EXPECT_EQ(curve.back().memory.bytes(), 0);
}

// What only B reads goes with B, what it leaves goes with W.
TEST(StepTimeline, WeightGradientsKeepWhatTheyRead) {
  PlaceMemory peak;
  peak.saved = 200;
  peak.sets = 2;
  peak.savedForInputs = 20;
  peak.inputSets = 2;
  peak.kept = 1;
  peak.keptSets = 1;
  const std::vector<Slot> row = {
      Slot(SlotKind::Forward, 0, 0),   Slot(SlotKind::Forward, 0, 1),
      Slot(SlotKind::InputGrad, 0, 0), Slot(SlotKind::WeightGrad, 0, 0),
      Slot(SlotKind::InputGrad, 0, 1), Slot(SlotKind::WeightGrad, 0, 1)};
  const std::vector<MemoryPoint> curve = memoryOverTime(
      peak, row, {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}});
  std::map<double, std::int64_t> behind;
  for (const MemoryPoint &each : curve)
    behind[each.seconds] = each.memory.bytes();
  const std::map<double, std::int64_t> expected = {
      {0, 0}, {1, 110}, {2, 220}, {3, 211}, {4, 110}, {5, 101}, {6, 0}};
  EXPECT_EQ(behind, expected);
}

TEST(StepTimeline, TheTraceHasTracksOfStreamsAndFewerWhereThereAreMany) {
  const StepTimes model = times();
  const Result<StepTimeline> found =
      model.timeline(pointOf(PlanScheduleKind::OneFOneB, 4, 1));
  ASSERT_TRUE(found) << found.message();
  const auto tracksOf = [](const std::string &text) {
    const Result<Document> document =
        Document::parse(text, "trace.json", Document::Syntax::Json);
    EXPECT_TRUE(document) << document.message();
    std::map<std::string, int> spans;
    std::map<std::pair<std::string, std::string>, std::string> names;
    for (const DocumentValue &event :
         document->root().find("traceEvents")->items) {
      const std::string rank = event.find("pid")->text;
      if (event.find("name")->text == "thread_name")
        names[{rank, event.find("tid")->text}] =
            rank + "/" + event.find("args")->find("name")->text;
      else if (event.find("ph")->text == "X")
        ++spans[names.at({rank, event.find("tid")->text})];
    }
    return spans;
  };
  std::map<std::string, int> all = tracksOf(writeTimeline(*found));
  std::map<std::string, int> few = tracksOf(writeTimeline(*found, 10));
  EXPECT_EQ(few.at("0/to rank 1"), 8);
  EXPECT_EQ(few.at("0/compute"), 8 + 8 + 1 + 1); // F, D, O, the norm
  EXPECT_FALSE(few.count("0/tp"));
  EXPECT_GT(all.at("0/tp"), 8 * 4 * 4);
  EXPECT_GT(all.at("0/compute"), few.at("0/compute"));
  EXPECT_EQ(all.at("0/to rank 1"), 8);
}

TEST(StepTimeline, IsRefusedWhereTheDeviceHasNoSuchFormat) {
  Cluster cluster = sixteen();
  cluster.device.peakFlops = {{"bf16", 989e12}};
  PlanPoint point = pointOf(PlanScheduleKind::None, 1, 1);
  point.recipe = "fp8";
  const Result<StepTimes> model =
      StepTimes::of(smallLlama(), settings(), cluster);
  ASSERT_TRUE(model) << model.message();
  const Result<StepTimeline> found = model->timeline(point);
  ASSERT_FALSE(found);
  EXPECT_NE(found.message().find("fp8"), std::string::npos);
}
