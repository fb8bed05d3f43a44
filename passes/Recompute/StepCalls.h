//===- StepCalls.h - the step calls other functions of a layer --*- C++ -*-===//

#ifndef HEDDLE_PASSES_RECOMPUTE_STEPCALLS_H
#define HEDDLE_PASSES_RECOMPUTE_STEPCALLS_H

#include "dialects/Stage/Stage.h"
#include "dialects/Transformer/Transformer.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"

namespace heddle::recompute {

/// Functions of one type, one per choice, of which a layer calls one.
struct Callees {
  llvm::SmallVector<mlir::func::FuncOp> functions;
  /// The number of each layer's.
  llvm::SmallVector<int64_t> choices;

  mlir::func::FuncOp first() const { return functions.front(); }
};

/// The calls of a layer's functions in a step, what its loops collect, and what
/// passes from forward to backward slots.
class StepCalls {
public:
  /// Fails with a message where the step has no loops that call a block's
  /// forward and backward.
  static mlir::FailureOr<StepCalls> find(mlir::ModuleOp module);

  mlir::func::FuncOp getForward() const;
  /// Backward's functions, in the order in which they run.
  llvm::SmallVector<mlir::func::FuncOp> getHalves() const;
  /// Layers of the model.
  int64_t getLayers() const { return layers; }

  /// Calls these functions instead, which find their arguments by name.
  void replace(const Callees &forward, llvm::ArrayRef<Callees> halves);

private:
  /// A call in a loop over layers.
  struct Call {
    mlir::func::CallOp op;
    mlir::func::FuncOp function;
    transformer::LoopOp loop;
    llvm::StringMap<mlir::Value> operands; ///< by the argument's name
  };
  /// A value that a call will get from a stack: a place is kept for it.
  struct Awaited {
    mlir::Operation *place;
    std::string name;
    bool isKept; ///< from the half before
    Call *half;
  };

  explicit StepCalls(mlir::ModuleOp module) : module(module) {}

  void note(mlir::func::CallOp op, mlir::func::FuncOp function);
  void replaceHalf(Call &half, const Callees &callees);
  void replaceForward(const Callees &callees);
  void keepMore();
  void dropGets(const Call &half);
  void dropStacks();
  void connect(Awaited &awaited, mlir::Value stack);
  mlir::Value operandFor(Call &half, mlir::func::FuncOp function,
                         unsigned index);
  mlir::Value await(Call &half, mlir::Type type, llvm::StringRef name,
                    bool isKept);
  /// A value of forward's loop for a call of backward.
  mlir::Value bring(mlir::Value value, Call &half, mlir::IRMapping &map);
  mlir::Operation *makeCall(Call &old, const Callees &callees,
                            llvm::ArrayRef<mlir::Value> operands);
  /// Which instance of a state the layer of a loop's iteration is.
  mlir::Value heldLayer(transformer::LoopOp loop);
  /// The stack that is in slots of backward or weight gradients what forward,
  /// or backward, saves as `stack`.
  mlir::Value inRegion(mlir::Value stack, mlir::Region *region);
  stage::RunOp run() const;
  bool isStackOf(mlir::Value stack, transformer::LoopOp loop) const;

  mlir::ModuleOp module;
  int64_t layers = 0;
  Call forward;
  llvm::SmallVector<Call, 2> halves;
  std::vector<Awaited> awaited;
};

} // namespace heddle::recompute

#endif // HEDDLE_PASSES_RECOMPUTE_STEPCALLS_H
