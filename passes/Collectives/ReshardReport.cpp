//===- ReshardReport.cpp - what moves data, and why -----------------------===//

#include "passes/Collectives/ReshardReport.h"

#include "dialects/Transformer/Transformer.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace heddle;

std::int64_t ReshardReport::bytes() const {
  std::int64_t sum = 0;
  for (const ReshardStepReport &step : steps)
    sum += step.bytes;
  return sum;
}

namespace {

class Reporter {
public:
  explicit Reporter(ModuleOp module) : module(module), symbols(module) {}

  std::vector<ReshardReport> run() {
    if (auto step = symbols.lookup<func::FuncOp>("step"))
      count(step.getBody().front(), 1);
    for (auto function : module.getOps<func::FuncOp>())
      function.walk([&](Operation *op) { visit(function, op); });
    std::vector<ReshardReport> reports;
    for (auto &[number, report] : byNumber)
      reports.push_back(std::move(report));
    return reports;
  }

private:
  /// How often each block of ops runs in one step.
  void count(Block &block, int64_t times) {
    calls[&block] += times;
    for (Operation &op : block) {
      if (auto loop = dyn_cast<transformer::LoopOp>(op))
        count(loop.getBody().front(), times * loop.getCount());
      else if (auto call = dyn_cast<func::CallOp>(op))
        if (auto callee = symbols.lookup<func::FuncOp>(call.getCallee()))
          count(callee.getBody().front(), times);
    }
  }

  void visit(func::FuncOp function, Operation *op) {
    std::optional<dist::ReshardReason> reason =
        dist::ReshardReason::find(op->getLoc());
    auto axes = op->getAttrOfType<ArrayAttr>("axes");
    if (!reason || !axes || !isa<dist::DistDialect>(op->getDialect()))
      return;
    ReshardReport &report = byNumber[reason->number];
    report.function = function.getSymName().str();
    if (auto name = dyn_cast<NameLoc>(op->getLoc()))
      report.cause = name.getName().getValue().str();
    report.reason = *reason;
    report.calls = calls.lookup(op->getBlock());
    ReshardStepReport &step = report.steps.emplace_back();
    step.kind = op->getName().stripDialect().str();
    for (StringRef axis : axes.getAsValueRange<StringAttr>())
      step.axes.push_back(axis.str());
    step.bytes = reason->bytes;
  }

  ModuleOp module;
  SymbolTable symbols;
  llvm::DenseMap<Block *, int64_t> calls;
  llvm::MapVector<int64_t, ReshardReport> byNumber;
};

} // namespace

std::vector<ReshardReport> heddle::getReshardReports(ModuleOp module) {
  return Reporter(module).run();
}
