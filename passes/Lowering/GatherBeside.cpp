//===- GatherBeside.cpp - gathers beside the product in front of them -----===//
//
// Where backward gathers what only the gradient of a weight reads, the product
// in front of it, the gradient of the input, reads something else. Gathered on
// a stream of its own it runs beside that product: queued in front of it,
// waited for behind it. Both are needed together one product later, so no byte
// more is live at a time.
//
//===----------------------------------------------------------------------===//

#include "passes/Lowering/Lowering.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::lowering;
using namespace heddle::transformer;

/// The ops of kernels directly in front of a gather that make what it gathers,
/// first one first: what is computed again instead of being saved.
static SmallVector<Operation *> makersInFront(dist::AllGatherOp gather) {
  SmallVector<Operation *> makers;
  llvm::DenseSet<Value> wanted = {gather.getInput()};
  for (Operation *op = gather->getPrevNode(); op && isKernelOp(op);
       op = op->getPrevNode()) {
    if (llvm::none_of(op->getResults(),
                      [&](Value result) { return wanted.contains(result); }))
      break;
    wanted.insert(op->operand_begin(), op->operand_end());
    makers.insert(makers.begin(), op);
  }
  return makers;
}

void BlockLowering::gatherEarly(Block &block) {
  for (auto gather : llvm::to_vector(block.getOps<dist::AllGatherOp>())) {
    SmallVector<Operation *> moved = makersInFront(gather);
    moved.push_back(gather);
    auto product = dyn_cast_or_null<ContractOp>(moved.front()->getPrevNode());
    // A kernel is launched behind all ops that join it, and would wait with
    // them.
    bool forProducts =
        llvm::all_of(gather->getUsers(),
                     llvm::IsaPred<ContractOp, AmaxOp, HadamardOp, QuantizeOp>);
    bool readsProduct =
        product && llvm::any_of(moved, [&](Operation *op) {
          return llvm::is_contained(op->getOperands(), product.getResult());
        });
    if (!product || !forProducts || gather->use_empty() || readsProduct)
      continue;
    for (Operation *op : moved)
      op->moveBefore(product);
    beside.insert(gather);
  }
}

std::string BlockLowering::newEvent(Operation *op, StringRef what) {
  StringRef name = getName(op->getResult(0));
  std::string event = uniqueName(
      scope + "." + (name.empty() ? "value" : name.str()) + "." + what.str());
  program.events.insert(builder.getStringAttr(event));
  return event;
}

LogicalResult BlockLowering::lowerBeside(dist::AllGatherOp op) {
  Location unknown = builder.getUnknownLoc();
  std::string ready = newEvent(op, "ready"),
              gathered = newEvent(op, "gathered");
  rt::RecordOp::create(builder, unknown, ready, stream);
  rt::WaitOp::create(builder, unknown, ready, kGather);
  program.gathersBeside = true;
  std::string before = std::exchange(stream, kGather.str());
  LogicalResult lowered = lowerCollective(op);
  stream = before;
  rt::RecordOp::create(builder, unknown, gathered, kGather);
  arriving[op.getResult()] = gathered;
  return lowered;
}

void BlockLowering::awaitOperands(Operation *op) {
  for (Value operand : op->getOperands())
    if (auto event = arriving.find(operand); event != arriving.end()) {
      rt::WaitOp::create(builder, builder.getUnknownLoc(), event->second,
                         stream);
      arriving.erase(event); // later work of this stream is behind that
    }
}
