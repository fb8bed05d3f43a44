//===- Partition.cpp - whole tensors with layouts => one rank's program ---===//
//
// What the pass promises is written once, in Passes.td.
//
//===----------------------------------------------------------------------===//

#include "passes/Collectives/Passes.h"
#include "passes/Collectives/Steps.h"

#include "dialects/Transformer/Transformer.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace heddle;
using dist::LayoutAttr;
using transformer::StackType;
using transformer::StateOp;

namespace heddle {
#define GEN_PASS_DEF_PARTITIONPASS
#include "passes/Collectives/Passes.h.inc"
} // namespace heddle

/// The tensor type of a value: an element where it is a stack; null for others.
static RankedTensorType tensorType(Type type) {
  if (auto stack = dyn_cast<StackType>(type))
    return stack.getElementType();
  return dyn_cast<RankedTensorType>(type);
}

static Type localType(Type type) {
  if (auto stack = dyn_cast<StackType>(type))
    return StackType::get(type.getContext(), stack.getCount(),
                          dist::getLocalType(stack.getElementType()));
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor ? Type(dist::getLocalType(tensor)) : type;
}

//===----------------------------------------------------------------------===//
// Shards
//===----------------------------------------------------------------------===//

/// An op that must know its position says which part of each such factor it
/// has, where that is not simply the whole of it.
static LogicalResult setShards(Operation *op) {
  auto interface = dyn_cast<dist::FactorRuleOpInterface>(op);
  if (!interface)
    return success();
  FailureOr<dist::FactorRule> rule = dist::getFactorRule(op);
  if (failed(rule))
    return op->emitOpError() << "has a factor rule that does not fit its types";
  NamedAttrList shards;
  auto add = [&](Type tensor, ArrayRef<unsigned> factors) {
    auto type = cast<RankedTensorType>(tensor);
    LayoutAttr layout = dist::getLayout(type);
    for (auto [dim, factor] : llvm::enumerate(factors)) {
      if (!rule->factors[factor].position || !layout)
        continue;
      bool whole = layout.getAxes(dim).empty() &&
                   layout.getStoredSize(dim, type.getDimSize(dim)) ==
                       type.getDimSize(dim);
      if (!whole)
        shards.set(rule->factors[factor].name,
                   dist::ShardAttr::get(op->getContext(), layout.getMesh(),
                                        layout.getAxes(dim),
                                        type.getDimSize(dim)));
    }
  };
  for (auto [type, factors] : llvm::zip(op->getOperandTypes(), rule->operands))
    add(type, factors);
  for (auto [type, factors] : llvm::zip(op->getResultTypes(), rule->results))
    add(type, factors);
  if (!shards.empty())
    op->setAttr(dist::kShardsName, shards.getDictionary(op->getContext()));
  return success();
}

//===----------------------------------------------------------------------===//
// Functions and states
//===----------------------------------------------------------------------===//

static void keepLayout(Type type,
                       llvm::function_ref<void(StringRef, Attribute)> set) {
  RankedTensorType tensor = tensorType(type);
  LayoutAttr layout = tensor ? dist::getLayout(tensor) : LayoutAttr();
  if (!layout)
    return;
  set(dist::kLayoutName, layout);
  set(dist::kGlobalTypeName, TypeAttr::get(RankedTensorType::get(
                                 tensor.getShape(), tensor.getElementType())));
}

static void partitionSignature(func::FuncOp function) {
  for (auto [i, type] : llvm::enumerate(function.getArgumentTypes()))
    keepLayout(type, [&](StringRef name, Attribute value) {
      function.setArgAttr(i, name, value);
    });
  for (auto [i, type] : llvm::enumerate(function.getResultTypes()))
    keepLayout(type, [&](StringRef name, Attribute value) {
      function.setResultAttr(i, name, value);
    });
  auto local = [](TypeRange types) {
    return llvm::map_to_vector(types, localType);
  };
  function.setFunctionType(FunctionType::get(function.getContext(),
                                             local(function.getArgumentTypes()),
                                             local(function.getResultTypes())));
}

static void partitionState(StateOp state) {
  keepLayout(state.getTensorType(), [&](StringRef name, Attribute value) {
    state->setAttr(name, value);
  });
  // The shape in files is the whole tensor's: it stays with the whole type.
  state.setType(dist::getLocalType(state.getTensorType()));
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace heddle {
namespace {

struct PartitionPass : impl::PartitionPassBase<PartitionPass> {
  struct Reshard {
    dist::ReshardOp op;
    RankedTensorType from, to;
  };

  LogicalResult partition(ModuleOp module) {
    SmallVector<Reshard> reshards;
    WalkResult walked = module.walk([&](Operation *op) {
      if (auto reshard = dyn_cast<dist::ReshardOp>(op))
        reshards.push_back(
            {reshard, cast<RankedTensorType>(reshard.getInput().getType()),
             cast<RankedTensorType>(reshard.getType())});
      return failed(setShards(op)) ? WalkResult::interrupt()
                                   : WalkResult::advance();
    });
    if (walked.wasInterrupted())
      return failure();
    for (auto function : module.getOps<func::FuncOp>())
      partitionSignature(function);
    for (auto state : module.getOps<StateOp>())
      partitionState(state);
    module.walk([](Block *block) {
      for (BlockArgument argument : block->getArguments())
        argument.setType(localType(argument.getType()));
      for (Operation &op : *block)
        for (Value result : op.getResults())
          result.setType(localType(result.getType()));
    });
    for (Reshard &reshard : reshards)
      if (failed(lower(reshard)))
        return failure();
    return success();
  }

  LogicalResult lower(Reshard &reshard) {
    OpBuilder builder(reshard.op);
    FailureOr<Value> value = collectives::buildReshard(
        builder, reshard.op.getLoc(), reshard.op.getInput(), reshard.from,
        reshard.to, ++lowered);
    if (failed(value))
      return failure();
    Operation *made = value->getDefiningOp();
    if (made && *value != reshard.op.getInput())
      if (StringRef name = transformer::getName(reshard.op.getResult());
          !name.empty())
        transformer::setNames(made, {name.str()});
    reshard.op.getResult().replaceAllUsesWith(*value);
    reshard.op.erase();
    return success();
  }

  int64_t lowered = 0; ///< reshards so far

  void runOnOperation() override {
    lowered = 0;
    if (failed(partition(getOperation())))
      signalPassFailure();
  }
};

} // namespace
} // namespace heddle
