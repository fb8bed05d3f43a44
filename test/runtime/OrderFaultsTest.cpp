//===- OrderFaultsTest.cpp - Emitted programs, steps queued, late order ---===//
//
// Compiled programs queue several steps without waiting and run in random
// orders that their events allow: right ones leave the same bits each time.
// Then faults of order are planted into the rt IR. The check of happens-before
// must name each in one run, statically and at run time, and late order must
// show each in nearly all seeds.
//
// Today's programs queue reductions in place and updates on the compute stream.
// Most of the faults need more at work on two streams than that, so `overlap`
// first rewrites the program: gradients go through buckets, updates to the
// other stream. That the result is right is tested as everything else.
//
// HEDDLE_SEEDS is the number of seeds, 20 by default.
//
//===----------------------------------------------------------------------===//

#include "tools/mutate/Built.h"
#include "tools/mutate/Subject.h"

#include "dialects/Rt/Rt.h"
#include "passes/Lowering/Passes.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/MathExtras.h"

#include <gmock/gmock.h>

#include <cstdlib>

using namespace mlir;
using namespace heddle;
using namespace heddle::mutate;

namespace {

constexpr int kSteps = 4;

int seeds() {
  const char *text = std::getenv("HEDDLE_SEEDS");
  return text ? std::max(1, std::atoi(text)) : 20;
}

MLIRContext &context() {
  static MLIRContext made(MLIRContext::Threading::DISABLED);
  return made;
}

Folder &folder() {
  static Folder made;
  return made;
}

std::unique_ptr<Subject> subjectOf(StringRef name) {
  for (unsigned i = 0; i < Subject::count(); ++i) {
    std::string error;
    std::unique_ptr<Subject> subject = Subject::create(context(), i, error);
    if (!subject)
      ADD_FAILURE() << error;
    else if (subject->name() == name)
      return subject;
  }
  return nullptr;
}

/// The first error of the static check; "" where all is ordered.
std::string checkOrder(ModuleOp module) {
  std::string text;
  ScopedDiagnosticHandler handler(&context(), [&](Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() == DiagnosticSeverity::Error && text.empty())
      text = diagnostic.str();
    return success();
  });
  PassManager passes(&context());
  passes.addPass(createVerifyOrderPass());
  return failed(passes.run(module)) && text.empty() ? "failed" : text;
}

/// "3 of 10" -> 3; -1 where a run failed.
int differing(const Answer &answer) {
  int count = -1;
  if (answer.code != 0 ||
      StringRef(answer.text).split(' ').first.getAsInteger(10, count))
    ADD_FAILURE() << answer.text;
  return count;
}

//===----------------------------------------------------------------------===//
// A program whose streams overlap
//===----------------------------------------------------------------------===//

class Overlap {
public:
  explicit Overlap(ModuleOp module)
      : program(*module.getOps<rt::ProgramOp>().begin()),
        builder(module.getContext()) {}

  void run() {
    SmallVector<rt::AllReduceOp> reductions;
    SmallVector<Operation *> updates;
    step().walk([&](rt::WorkOpInterface work) {
      if (auto reduce = dyn_cast<rt::AllReduceOp>(*work);
          reduce && reduce.getStream() == "comm")
        reductions.push_back(reduce);
      if (writesParameters(work))
        updates.push_back(work);
    });
    for (rt::AllReduceOp reduce : reductions)
      useBucket(reduce);
    // The first bucket's event stands for it.
    program.walk([](Operation *op) {
      auto event = op->getAttrOfType<StringAttr>("event");
      if (event && event.getValue() == "gradients_ready")
        op->erase();
    });
    moveUpdates(updates);
    program.setEventsAttr(builder.getStrArrayAttr(names()));
    auto arena = cast<rt::ArenaAttr>(program.getArenas()[0]);
    SmallVector<Attribute> arenas(program.getArenas().begin(),
                                  program.getArenas().end());
    arenas[0] = rt::ArenaAttr::get(builder.getContext(), arena.getName(),
                                   arena.getBytes() + added, arena.getMemory());
    program.setArenasAttr(builder.getArrayAttr(arenas));
  }

private:
  rt::FuncOp step() {
    return program.lookupSymbol<rt::FuncOp>(program.getEntry());
  }

  static bool writesParameters(rt::WorkOpInterface work) {
    return llvm::any_of(work.getAccesses(), [](const rt::Access &access) {
      mlir::Value value = access.buffer;
      while (auto view = value.getDefiningOp<rt::ViewOp>())
        value = view.getSource();
      auto buffer = value.getDefiningOp<rt::BufferOp>();
      auto memory =
          buffer ? buffer->getAttrOfType<StringAttr>("memory_class") : nullptr;
      return access.writes && memory && memory.getValue() == "parameters";
    });
  }

  SmallVector<StringRef> names() {
    SmallVector<StringRef> all;
    for (StringRef name : program.getEvents().getAsValueRange<StringAttr>())
      all.push_back(name);
    for (const std::string &name : events)
      all.push_back(name);
    return all;
  }

  void order(const std::string &event, StringRef before, StringRef after) {
    events.push_back(event);
    rt::RecordOp::create(builder, program.getLoc(), event, before);
    rt::WaitOp::create(builder, program.getLoc(), event, after);
  }

  /// gradient -> bucket on compute, sum on comm, bucket -> gradient on comm.
  /// Each layer has its bucket, so nothing has to wait for one to be free.
  void useBucket(rt::AllReduceOp reduce) {
    auto loop = dyn_cast<rt::ForOp>(reduce->getParentOp());
    auto type = cast<rt::BufType>(reduce.getInput().getType());
    auto arena = cast<rt::ArenaAttr>(program.getArenas()[0]);
    int64_t bytes = llvm::alignTo(type.getSpanBytes(), 64);
    SmallVector<mlir::Value> indices;
    SmallVector<int64_t> strides;
    if (loop) {
      indices.push_back(loop.getInductionVariable());
      strides.push_back(bytes);
    }
    std::string number = std::to_string(buckets++);
    builder.setInsertionPoint(reduce);
    Location loc = reduce.getLoc();
    auto bucket = rt::BufferOp::create(
        builder, loc, type, builder.getStringAttr("bucket." + number),
        builder.getStringAttr("reduced behind the backward"),
        builder.getStringAttr(arena.getName()),
        builder.getI64IntegerAttr(arena.getBytes() + added), indices,
        builder.getDenseI64ArrayAttr(strides));
    bucket->setAttr("memory_class", builder.getStringAttr("communication"));
    added += bytes * (loop ? loop.getConstantCount().value() : 1);
    rt::CopyOp::create(builder, loc, "to bucket " + number, reduce.getInput(),
                       bucket, "compute");
    order("bucket_ready." + number, "compute", "comm");
    builder.setInsertionPointAfter(reduce);
    rt::CopyOp::create(builder, loc, "from bucket " + number, bucket,
                       reduce.getOutput(), "comm");
    reduce->setOperands({bucket, bucket});
  }

  /// Updates are ordered behind the clip factor, all that follows behind them.
  void moveUpdates(ArrayRef<Operation *> updates) {
    auto outermost = [](Operation *op) {
      while (isa<rt::ForOp>(op->getParentOp()))
        op = op->getParentOp();
      return op;
    };
    for (Operation *update : updates)
      update->setAttr("stream", builder.getStringAttr("comm"));
    builder.setInsertionPoint(outermost(updates.front()));
    order("clipped", "compute", "comm");
    builder.setInsertionPointAfter(outermost(updates.back()));
    order("updated", "comm", "compute");
  }

  rt::ProgramOp program;
  OpBuilder builder;
  std::vector<std::string> events;
  int64_t added = 0;
  unsigned buckets = 0;
};

//===----------------------------------------------------------------------===//
// Faults
//===----------------------------------------------------------------------===//

template <class Op>
Op find(ModuleOp module, const std::function<bool(Op)> &is) {
  Op found;
  module.walk([&](Op op) {
    if (!found && is(op))
      found = op;
  });
  return found;
}

rt::WaitOp waitFor(ModuleOp module, StringRef event) {
  return find<rt::WaitOp>(
      module, [&](rt::WaitOp op) { return op.getEvent() == event; });
}

rt::RecordOp recordOf(ModuleOp module, StringRef event) {
  return find<rt::RecordOp>(
      module, [&](rt::RecordOp op) { return op.getEvent() == event; });
}

rt::BufferOp bucketOf(ModuleOp module, StringRef name) {
  return find<rt::BufferOp>(
      module, [&](rt::BufferOp op) { return op.getName() == name; });
}

/// In front of the work on its stream that it should stand for.
void recordEarly(rt::RecordOp record) {
  auto isWork = [&](Operation *op) {
    auto work = dyn_cast<rt::WorkOpInterface>(op);
    return work && work.getStreamName() == record.getStream();
  };
  Operation *before = record->getPrevNode();
  while (!isWork(before))
    before = before->getPrevNode();
  record->moveBefore(before);
}

struct OrderFault {
  const char *name;
  bool overlapped;
  void (*plant)(ModuleOp);
};

/// Seeds in which late order must show a fault: nine in ten.
int enough() { return seeds() * 9 / 10; }

// The second bucket belongs to a loop over layers.
const OrderFault kFaults[] = {
    {"CompiledReductionDoesNotWait", false,
     [](ModuleOp m) { waitFor(m, "gradients_ready").erase(); }},
    {"ReductionDoesNotWait", true,
     [](ModuleOp m) { waitFor(m, "bucket_ready.0").erase(); }},
    {"BucketReusedEarly", true,
     [](ModuleOp m) {
       bucketOf(m, "bucket.1").setStrides(ArrayRef<int64_t>{0});
     }},
    {"NextStepDoesNotWaitForTheOptimizer", true,
     [](ModuleOp m) { waitFor(m, "updated").erase(); }},
    {"EventRecordedOneLaunchEarly", true,
     [](ModuleOp m) { recordEarly(recordOf(m, "bucket_ready.1")); }},
    {"WrongArenaOffset", true,
     [](ModuleOp m) {
       bucketOf(m, "bucket.1").setOffset(bucketOf(m, "bucket.0").getOffset());
     }},
};

/// The right program of 4 ranks, built once, and what it leaves.
struct Right {
  std::unique_ptr<Subject> subject = subjectOf("qwen2 ragged dp 2 tp 2");
  std::string values[2];

  OwningOpRef<ModuleOp> copy(bool overlapped) {
    OwningOpRef<ModuleOp> module = subject->copyAfter(Phase::Memory);
    if (overlapped)
      Overlap(*module).run();
    return module;
  }

  /// The states after the steps, run eagerly.
  const std::string &valuesOf(bool overlapped) {
    std::string &file = values[overlapped];
    if (!file.empty())
      return file;
    file = folder() / (overlapped ? "overlapped.values" : "compiled.values");
    Built built(folder(), "right");
    std::string message;
    EXPECT_TRUE(succeeded(built.build(*copy(overlapped), message))) << message;
    Answer answer = built.run(kSteps, {"write", file});
    EXPECT_EQ(answer.code, 0) << answer.text;
    return file;
  }
};

Right &right() {
  static Right made;
  return made;
}

class Planted : public testing::TestWithParam<OrderFault> {};

TEST_P(Planted, IsNamedAndSeen) {
  const OrderFault &fault = GetParam();
  OwningOpRef<ModuleOp> module = right().copy(fault.overlapped);
  ASSERT_EQ(checkOrder(*module), "");
  fault.plant(*module);
  ASSERT_TRUE(succeeded(verify(*module)));
  std::string named = checkOrder(*module);
  EXPECT_NE(named, "");

  Built built(folder(), "planted");
  std::string message;
  ASSERT_TRUE(succeeded(built.build(*module, message))) << message;
  Answer check = built.run(kSteps, {"check"});
  EXPECT_EQ(check.code, 1) << check.text;
  EXPECT_THAT(check.text, testing::HasSubstr("no event orders them"));
  int seen =
      differing(built.run(kSteps, {"late", right().valuesOf(fault.overlapped),
                                   std::to_string(seeds())}));
  EXPECT_GE(seen, enough());
  std::printf("static:  %s\nchecked: %s\nlate:    %d of %d seeds\n",
              named.c_str(), check.text.c_str(), seen, seeds());
}

INSTANTIATE_TEST_SUITE_P(Faults, Planted, testing::ValuesIn(kFaults),
                         [](const auto &info) {
                           return std::string(info.param.name);
                         });

struct RightProgram {
  const char *name, *subject;
  bool overlapped;
};

class NeverDiffers : public testing::TestWithParam<RightProgram> {};

TEST_P(NeverDiffers, InLateOrder) {
  std::unique_ptr<Subject> subject = subjectOf(GetParam().subject);
  ASSERT_TRUE(subject);
  OwningOpRef<ModuleOp> module = subject->copyAfter(Phase::Memory);
  if (GetParam().overlapped)
    Overlap(*module).run();
  EXPECT_EQ(checkOrder(*module), "");
  Built built(folder(), "program");
  std::string message, values = folder() / "program.values";
  ASSERT_TRUE(succeeded(built.build(*module, message))) << message;
  Answer written = built.run(kSteps, {"write", values});
  ASSERT_EQ(written.code, 0) << written.text;
  Answer check = built.run(kSteps, {"check"});
  EXPECT_EQ(check.code, 0) << check.text;
  EXPECT_EQ(
      differing(built.run(kSteps, {"late", values, std::to_string(seeds())})),
      0);
}

INSTANTIATE_TEST_SUITE_P(
    Programs, NeverDiffers,
    testing::Values(
        RightProgram{"TwoRanks", "llama dp 2 tp 1", false},
        RightProgram{"FourRanks", "qwen2 ragged dp 2 tp 2", false},
        RightProgram{"FourRanksOverlapped", "qwen2 ragged dp 2 tp 2", true},
        RightProgram{"EightRanks", "llama dp 2 tp 4", false},
        RightProgram{"SequencesCut", "qwen3 dp 2 tp 2, sequences cut", false}),
    [](const auto &info) { return std::string(info.param.name); });

} // namespace
