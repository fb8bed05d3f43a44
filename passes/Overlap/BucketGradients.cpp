//===- BucketGradients.cpp - reductions that go together ------------------===//
//
// What the pass promises is written once, in Passes.td.
//
//===----------------------------------------------------------------------===//

#include "dialects/Stage/Stage.h"
#include "passes/Overlap/Passes.h"
#include "passes/Overlap/Reductions.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::overlap;
using namespace heddle::transformer;

namespace heddle {
#define GEN_PASS_DEF_BUCKETGRADIENTSPASS
#include "passes/Overlap/Passes.h.inc"
} // namespace heddle

namespace {

class Bucketer {
public:
  Bucketer(const SymbolTable &symbols, const Settings &settings)
      : symbols(symbols), settings(settings) {}

  void run(Block &block) {
    SmallVector<Reduction> unit;
    Operation *call = nullptr;
    for (Reduction &reduction : findReductions(block, symbols)) {
      Operation *its = callBefore(reduction);
      if (its != call)
        close(unit);
      call = its;
      unit.push_back(std::move(reduction));
    }
    close(unit);
  }

private:
  /// The call that a reduction follows, or null at the end of a step.
  static Operation *callBefore(const Reduction &reduction) {
    Operation *op = reduction.end();
    while (op && calleesOf(op).empty())
      op = op->getPrevNode();
    return op;
  }

  /// Buckets of what follows one call.
  void close(SmallVector<Reduction> &unit) {
    if (settings.backward)
      std::reverse(unit.begin(), unit.end());
    // What is added to a sum comes before what reads the sum.
    std::stable_partition(unit.begin(), unit.end(), [](const Reduction &each) {
      return each.call() != nullptr;
    });
    // Reductions of other steps do not part those of one.
    SmallVector<std::string> texts;
    for (const Reduction &reduction : unit)
      if (std::string text = reduction.text(); !llvm::is_contained(texts, text))
        texts.push_back(text);
    Operation *place = nullptr; // buckets stand in order behind all of them
    for (const Reduction &reduction : unit)
      if (!place || place->isBeforeInBlock(reduction.end()))
        place = reduction.end();
    OpBuilder builder(symbols.getOp()->getContext());
    if (place)
      builder.setInsertionPointAfter(place);
    for (const std::string &text : texts) {
      SmallVector<Reduction *> bucket;
      int64_t bytes = 0;
      for (Reduction &reduction : unit) {
        if (reduction.text() != text)
          continue;
        bucket.push_back(&reduction);
        bytes += reduction.bytes;
        if (bytes >= settings.bucketBytes)
          make(builder, bucket), bytes = 0;
      }
      make(builder, bucket);
    }
    unit.clear();
  }

  void make(OpBuilder &builder, SmallVector<Reduction *> &bucket) {
    if (bucket.empty())
      return;
    std::string name = "bucket." + std::to_string(count++);
    Operation *call = bucket.front()->call();
    auto made =
        dist::BucketOp::create(builder, bucket.front()->end()->getLoc(), name);
    Block &body = made.getBody().emplaceBlock();
    // Step by step, so that collectives of one kind stand together.
    for (size_t step = 0; step < bucket.front()->ops.size(); ++step)
      for (Reduction *reduction : bucket)
        reduction->ops[step]->moveBefore(&body, body.end());
    for (auto [i, reduction] : llvm::enumerate(bucket))
      if (!call && !reduction->sum->hasAttr(kBucketName)) {
        reduction->sum->setAttr(kBucketName, builder.getStringAttr(name));
        reduction->sum->setAttr(kBucketIndexName, builder.getI64IntegerAttr(i));
      }
    bucket.clear();
  }

  const SymbolTable &symbols;
  const Settings &settings;
  unsigned count = 0;
};

struct BucketGradientsPass
    : heddle::impl::BucketGradientsPassBase<BucketGradientsPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto step = module.lookupSymbol<func::FuncOp>("step");
    if (!step)
      return;
    Settings settings = Settings::read(module);
    SymbolTable symbols(module);
    Bucketer bucketer(symbols, settings);
    SmallVector<Block *> blocks = {&step.getBody().front()};
    step.walk([&](Operation *op) {
      if (isa<LoopOp, stage::WhereOp>(op))
        blocks.push_back(&op->getRegion(0).front());
    });
    for (Block *block : blocks)
      bucketer.run(*block);
  }
};

} // namespace
