//===- StepBuilder.h - writes @step -----------------------------*- C++ -*-===//

#ifndef HEDDLE_PASSES_AUTODIFF_STEPBUILDER_H
#define HEDDLE_PASSES_AUTODIFF_STEPBUILDER_H

#include "dialects/Transformer/Transformer.h"
#include "passes/Autodiff/Names.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"

#include <optional>

namespace heddle::autodiff {

/// The optimizer as the module's attribute gives it.
struct Optimizer {
  bool isAdamW = false;
  double weightDecay = 0, beta1 = 0, beta2 = 0, epsilon = 0;
  std::optional<double> clipNorm;

  /// Fails with a message where the attribute is missing or says something
  /// else.
  static mlir::FailureOr<Optimizer> read(mlir::ModuleOp module);
};

/// Writes the step of a module whose segments have their backward. Values find
/// their way from call to call by name: what a function takes is looked up by
/// `transformer.as`, a parameter is loaded, a saved value read from its stack.
class StepBuilder {
public:
  /// Fails with a message where something that the step needs is missing.
  static mlir::FailureOr<StepBuilder> get(mlir::ModuleOp module);

  llvm::LogicalResult build();

private:
  using Scope = llvm::StringMap<mlir::Value>;

  /// What a call returned, by what it is.
  struct Outcome {
    Scope values;
    llvm::SmallVector<std::pair<llvm::StringRef, mlir::Value>> saved;
    llvm::SmallVector<std::pair<mlir::FlatSymbolRefAttr, mlir::Value>>
        gradients;
  };

  /// What a loop's body yields.
  struct Yields {
    llvm::SmallVector<mlir::Value> carried, collected;
    llvm::SmallVector<std::string> carriedNames, collectedNames;
  };
  using Body = llvm::function_ref<mlir::FailureOr<Yields>(
      mlir::Value index, mlir::ValueRange carried)>;

  explicit StepBuilder(mlir::ModuleOp module)
      : module(module), builder(module.getContext()),
        location(builder.getUnknownLoc()) {}

  llvm::LogicalResult findSegments();
  llvm::LogicalResult findLayers();
  llvm::LogicalResult findCarried();
  llvm::LogicalResult checkGradients();

  void createStates();
  llvm::LogicalResult createFunction();

  mlir::FailureOr<mlir::Value> countLabels();
  mlir::FailureOr<mlir::Value> runMicroBatches(mlir::Value count);
  mlir::FailureOr<mlir::Value> runMicroBatch(mlir::Value index,
                                             mlir::Value count);
  /// Whether any segment takes it.
  bool readsInput(llvm::StringRef name);
  /// Gives a block what its layer has of its own.
  void setLayerInputs(Scope &scope, mlir::Value layer);
  /// Carried values and stacks of saved ones, both into `scope` by name.
  llvm::LogicalResult runForward(Scope &scope, Scope &stacks);
  llvm::LogicalResult runBackward(Scope &scope, const Scope &stacks);
  llvm::LogicalResult moveGradients();
  mlir::FailureOr<std::pair<mlir::Value, mlir::Value>> clip();
  llvm::LogicalResult update(mlir::Value factor);
  void updateOne(transformer::StateOp state, mlir::Value layer,
                 mlir::Value factor);

  /// Says what the ops that follow are for.
  void in(llvm::StringRef phase);
  mlir::FailureOr<Outcome> call(mlir::func::FuncOp function, const Scope &scope,
                                const Scope &saved, mlir::Value layer);
  mlir::FailureOr<mlir::Value> argumentOf(mlir::func::FuncOp function,
                                          unsigned index, const Scope &scope,
                                          const Scope &saved,
                                          mlir::Value layer);
  /// The named results of a call that are neither saved nor gradients of
  /// parameters.
  static mlir::FailureOr<llvm::SmallVector<mlir::Value>>
  pick(mlir::func::FuncOp function, const Outcome &outcome,
       llvm::ArrayRef<std::string> wanted);
  void accumulate(const Outcome &outcome, mlir::Value layer);
  /// Runs `body` for each instance of a state: in a loop where it has layers.
  mlir::FailureOr<mlir::Value> forEachInstance(
      transformer::StateOp state, mlir::Value carried, llvm::StringRef name,
      llvm::function_ref<mlir::Value(mlir::Value layer, mlir::Value carried)>
          body);
  mlir::FailureOr<transformer::LoopOp> loop(llvm::StringRef over, int64_t count,
                                            bool reversed,
                                            mlir::ValueRange inits, Body body);
  mlir::Value load(llvm::StringRef state, mlir::Value layer,
                   llvm::StringRef name);
  void store(mlir::Value value, llvm::StringRef state, mlir::Value layer);
  mlir::Value get(mlir::Value stack, mlir::Value index, llvm::StringRef name);
  template <class OpType, class... Args>
  OpType create(llvm::ArrayRef<std::string> names, Args &&...args);
  transformer::StateOp stateOf(llvm::StringRef name) {
    return module.lookupSymbol<transformer::StateOp>(name);
  }

  mlir::ModuleOp module;
  mlir::OpBuilder builder;
  mlir::Location location;
  Optimizer optimizer;
  int64_t microBatches = 1, layers = 1;
  mlir::func::FuncOp embedding, embeddingBackward, block, blockBackward, head;
  /// Names of what goes from block to block: the results of the embedding.
  llvm::SmallVector<std::string> carried;
  llvm::SmallVector<transformer::StateOp> parameters;
  llvm::StringMap<std::string> shortNames; ///< of parameters, by state
  mlir::func::FuncOp step;
  Scope inputs;
  Names names;
};

} // namespace heddle::autodiff

#endif // HEDDLE_PASSES_AUTODIFF_STEPBUILDER_H
