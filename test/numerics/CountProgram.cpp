#include "CountProgram.h"

#include "dialects/Dist/Dist.h"
#include "dialects/Rt/Rt.h"
#include "dialects/Transformer/Transformer.h"
#include "passes/Lowering/WalkProgram.h"

#include <gtest/gtest.h>

using namespace heddle;

namespace {

AxisList axesOf(mlir::ArrayAttr axes) {
  AxisList names;
  for (mlir::Attribute axis : axes)
    names.push_back(mlir::cast<mlir::StringAttr>(axis).getValue().str());
  return names;
}

/// \p rounds: 2 for an all-reduce, 1 for gathering or scattering; \p bytes of
/// the whole tensor.
void addCollective(Counted &counted, mlir::ArrayAttr axes, int64_t ranks,
                   int64_t bytes, double times, double rounds) {
  double n = static_cast<double>(ranks);
  AxisTraffic &entry = counted.traffic[axesOf(axes)];
  entry.calls += static_cast<int64_t>(times);
  entry.bytes += times * rounds * (n - 1) / n * static_cast<double>(bytes);
}

/// Counts in the per-rank program on tensors.
class TensorCounter {
public:
  explicit TensorCounter(mlir::ModuleOp module) : symbols(module) {
    visit(bodyOf("step"), 1);
  }
  Counted counted;

private:
  mlir::Block &bodyOf(llvm::StringRef name) {
    return symbols.lookup<mlir::func::FuncOp>(name).getBody().front();
  }

  void visit(mlir::Block &block, double times) {
    for (mlir::Operation &op : block) {
      if (auto loop = mlir::dyn_cast<transformer::LoopOp>(op))
        visit(loop.getBody().front(),
              times * static_cast<double>(loop.getCount()));
      else if (auto call = mlir::dyn_cast<mlir::func::CallOp>(op))
        visit(bodyOf(call.getCallee()), times);
      else if (auto byLayer = mlir::dyn_cast<transformer::CallByLayerOp>(op))
        for (auto [i, callee] :
             llvm::enumerate(transformer::calleesOf(byLayer)))
          visit(bodyOf(callee),
                times *
                    static_cast<double>(llvm::count(byLayer.getChoices(), i)) /
                    static_cast<double>(byLayer.getChoices().size()));
      else if (auto again = mlir::dyn_cast<transformer::RecomputeOp>(op))
        visit(again.getBody().front(), times);
      else if (auto cost = mlir::dyn_cast<dist::CostOpInterface>(op))
        (mlir::isa<transformer::ContractOp>(op) ? counted.products
                                                : counted.attention) +=
            times * static_cast<double>(cost.getFlops());
      else if (mlir::isa<dist::DistDialect>(op.getDialect()) &&
               !mlir::isa<dist::SliceOp, dist::MakePartialOp, dist::ToRowOp,
                          dist::FromRowOp>(op))
        visitCollective(op, times);
    }
  }

  void visitCollective(mlir::Operation &op, double times) {
    bool gathers = mlir::isa<dist::AllGatherOp>(op),
         reduces = mlir::isa<dist::AllReduceOp>(op);
    ASSERT_TRUE(gathers || reduces || mlir::isa<dist::ReduceScatterOp>(op))
        << "no formula for " << op.getName().getStringRef().str();
    auto whole = mlir::cast<mlir::RankedTensorType>(
        gathers ? op.getResult(0).getType() : op.getOperand(0).getType());
    auto axes = op.getAttrOfType<mlir::ArrayAttr>("axes");
    addCollective(counted, axes,
                  op.getAttrOfType<dist::MeshAttr>("mesh").getGroupSize(axes),
                  whole.getNumElements() * (whole.getElementTypeBitWidth() / 8),
                  times, reduces ? 2 : 1);
  }

  mlir::SymbolTable symbols;
};

/// Counts in the rt program, from the sizes that the runtime is called with.
class RuntimeCounter : lowering::ProgramVisitor {
public:
  explicit RuntimeCounter(mlir::ModuleOp module)
      : program(*module.getOps<rt::ProgramOp>().begin()), symbols(program) {}

  /// Each op of a loop as often as the loop runs; op by op where iterations
  /// differ.
  Counted countAll() {
    bool differ =
        program.walk([](rt::SwitchOp) { return mlir::WalkResult::interrupt(); })
            .wasInterrupted();
    if (differ)
      return countStage(0);
    visit(bodyOf(program.getEntry()), 1);
    return counted;
  }

  /// What the first rank of a pipeline stage runs, op by op.
  Counted countStage(int64_t stage) {
    int64_t rank = 0;
    while (lowering::stageOf(program, rank) != stage)
      ++rank;
    lowering::ProgramWalker walker(program, /*readsAddresses=*/false);
    EXPECT_TRUE(succeeded(walker.walk(rank, *this)));
    return counted;
  }

private:
  mlir::LogicalResult work(rt::WorkOpInterface op,
                           llvm::ArrayRef<lowering::Touch>) override {
    count(*op, 1);
    return mlir::success();
  }

  mlir::Block &bodyOf(llvm::StringRef name) {
    return symbols.lookup<rt::FuncOp>(name).getBody().front();
  }

  void visit(mlir::Block &block, double times) {
    for (mlir::Operation &op : block) {
      if (auto loop = mlir::dyn_cast<rt::ForOp>(op))
        visit(loop.getBody().front(),
              times * static_cast<double>(loop.getConstantCount().value()));
      else if (auto group = mlir::dyn_cast<rt::GroupOp>(op))
        visit(group.getBody().front(), times);
      else if (auto call = mlir::dyn_cast<rt::CallOp>(op))
        visit(bodyOf(call.getCallee()), times);
      else
        count(op, times);
    }
  }

  void count(mlir::Operation &op, double times) {
    if (auto gemm = mlir::dyn_cast<rt::GemmOp>(op))
      counted.products += times * 2 * static_cast<double>(gemm.getM()) *
                          static_cast<double>(gemm.getN()) *
                          static_cast<double>(gemm.getK()) *
                          static_cast<double>(gemm.getBatch());
    else if (auto forward = mlir::dyn_cast<rt::AttentionOp>(op))
      counted.attention +=
          times * 2 * products(forward.getQ(), forward.getWindow());
    else if (auto backward = mlir::dyn_cast<rt::AttentionGradOp>(op))
      counted.attention +=
          times * 5 * products(backward.getQ(), backward.getWindow());
    else
      visitCollective(op, times);
  }

  /// Operations of one matrix product over all pairs that see each other.
  static double products(mlir::Value queries, int64_t window) {
    auto shape = mlir::cast<rt::BufType>(queries.getType()).getShape();
    int64_t pairs = 0;
    for (int64_t query = 0; query < shape[1]; ++query)
      pairs += window > 0 ? std::min(query + 1, window) : query + 1;
    return 2 * static_cast<double>(pairs) *
           static_cast<double>(shape[0] * shape[2] * shape[3] * shape[4]);
  }

  void visitCollective(mlir::Operation &op, double times) {
    bool isOther = mlir::isa<rt::AllToAllOp, rt::PermuteOp>(op);
    ASSERT_FALSE(isOther) << "no formula for "
                          << op.getName().getStringRef().str();
    if (auto send = mlir::dyn_cast<rt::SendOp>(op)) {
      AxisTraffic &entry =
          counted
              .traffic[{program.getChannel(send.getChannel()).getAxis().str()}];
      ++entry.calls;
      entry.bytes += static_cast<double>(
          mlir::cast<rt::BufType>(send.getBuffer().getType()).getSpanBytes());
    }
    if (auto reduce = mlir::dyn_cast<rt::AllReduceOp>(op))
      add(reduce.getAxes(), reduce.getInput(), times, 2);
    if (auto scatter = mlir::dyn_cast<rt::ReduceScatterOp>(op))
      add(scatter.getAxes(), scatter.getInput(), times, 1);
    if (auto gather = mlir::dyn_cast<rt::AllGatherOp>(op)) {
      add(gather.getAxes(), gather.getOutput(), times, 1);
      if (gather.getStream() == "gather")
        counted.gathersBeside += static_cast<int64_t>(times);
      auto loop = gather->getParentOfType<rt::ForOp>();
      if (gather.getStream() == "comm" && loop && loop.getName() == "layer")
        counted.gathersAhead += static_cast<int64_t>(times);
    }
  }

  void add(mlir::ArrayAttr axes, mlir::Value whole, double times,
           double rounds) {
    addCollective(counted, axes, program.getGroupSize(axes),
                  mlir::cast<rt::BufType>(whole.getType()).getSpanBytes(),
                  times, rounds);
  }

  rt::ProgramOp program;
  mlir::SymbolTable symbols;
  Counted counted;
};

} // namespace

Counted heddle::countInTensors(mlir::ModuleOp module) {
  return TensorCounter(module).counted;
}

Counted heddle::countInRuntime(mlir::ModuleOp module) {
  return RuntimeCounter(module).countAll();
}

Counted heddle::countInStage(mlir::ModuleOp module, int64_t stage) {
  return RuntimeCounter(module).countStage(stage);
}
