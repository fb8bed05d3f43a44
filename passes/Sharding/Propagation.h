//===- Propagation.h - layouts of one function ------------------*- C++ -*-===//
//
// What the walk over ops shares between segments and the step.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_PASSES_SHARDING_PROPAGATION_H
#define HEDDLE_PASSES_SHARDING_PROPAGATION_H

#include "dialects/Transformer/Transformer.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"

namespace heddle::sharding {

/// Layouts that come from outside a function.
struct Pinned {
  dist::MeshAttr mesh;
  /// From `dist.values`: "block.x", "tokens", ...
  llvm::StringMap<dist::LayoutAttr> values;
  /// Per parameter state its compute layout.
  llvm::StringMap<dist::LayoutAttr> parameters;
  /// From `dist.saved`: the layout to save a value in, where forward has it in
  /// another one.
  llvm::StringMap<dist::LayoutAttr> savedAs;
  /// Per segment and name ("block.n2") what forward computed with.
  llvm::StringMap<dist::LayoutAttr> forward;
  /// The same of what forward saved, as backward gets it.
  llvm::StringMap<dist::LayoutAttr> saved;
};

/// Gives the values of one function their layouts, op by op.
class Propagation {
public:
  Propagation(const Pinned &pinned, mlir::StringRef segment)
      : pinned(pinned), segment(segment.str()) {}

  /// `value` is a parameter or a part of one: it decides before others.
  void markParameter(mlir::Value value) { parameters.insert(value); }
  /// `value` is the gradient of a parameter with this layout.
  void markGradient(mlir::Value value, dist::LayoutAttr layout);

  /// `value` leaves the function in this layout.
  void markLeaving(mlir::Value value, dist::LayoutAttr layout) {
    leaving[value] = layout;
  }

  /// Layouts of an op with a factor rule: reshards operands, sets results;
  /// brings results to what the plan pins where the op makes them otherwise.
  mlir::LogicalResult visit(dist::FactorRuleOpInterface op);

  /// `value` in `layout`: itself, or a reshard before `user`, with `why` in its
  /// location, and the two decisions that force it (dist::ReshardReason): what
  /// made the value as it is, what wants it otherwise.
  mlir::Value reshard(mlir::Value value, dist::LayoutAttr layout,
                      mlir::Operation *user, const llvm::Twine &why,
                      llvm::StringRef wanted = "");

  /// The layout of a value, replicated where its type has none.
  dist::LayoutAttr layoutOf(mlir::Value value) const;

  /// Remembers the layout of a named value, for its gradient.
  void remember(mlir::Value value);

private:
  struct Axes;     // per factor
  struct Operands; // what one op sees of its operands
  Operands inspect(mlir::Operation *op, const dist::FactorRule &rule) const;
  void chooseAxes(mlir::Operation *op, const Operands &operands,
                  Axes &axes) const;
  llvm::SmallVector<dist::LayoutAttr>
  moveOperands(mlir::Operation *op, const Operands &operands, const Axes &axes);
  bool mayPass(mlir::Operation *op, const dist::FactorRule &rule,
               unsigned operand) const;
  bool isReducedElsewhere(mlir::Operation *op, unsigned operand) const;
  dist::LayoutAttr reducedLayout(mlir::Value value) const;
  dist::LayoutAttr pinnedLayout(mlir::Value result) const;
  dist::LayoutAttr wantedLayout(mlir::Value value) const;
  void moveToPinned(mlir::Value result);
  std::string describeMade(mlir::Value value) const;
  static std::string describeLayout(mlir::Operation *op,
                                    dist::LayoutAttr layout,
                                    llvm::ArrayRef<unsigned> factors,
                                    const Axes &axes);
  void markParts(transformer::StackTensorsOp stack, dist::LayoutAttr layout);

  const Pinned &pinned;
  std::string segment;
  llvm::DenseSet<mlir::Value> parameters;
  llvm::DenseMap<mlir::Value, dist::LayoutAttr> gradients;
  llvm::DenseMap<mlir::Value, dist::LayoutAttr> leaving;
  llvm::StringMap<dist::LayoutAttr> named;
  /// What decided the layout of an op's result, for people.
  llvm::DenseMap<mlir::Value, std::string> made;
  llvm::DenseMap<mlir::Value,
                 llvm::SmallVector<std::pair<dist::LayoutAttr, mlir::Value>>>
      reshards;
};

/// Layouts of the functions that are no step. Fills `pinned.saved`; adds the
/// layout of each parameter's gradient to `gradientLayouts`, by state.
mlir::LogicalResult
propagateSegment(mlir::func::FuncOp function, Pinned &pinned,
                 llvm::StringMap<dist::LayoutAttr> &gradientLayouts);

/// Layouts of the step: calls, loops, states.
mlir::LogicalResult propagateStep(mlir::func::FuncOp step,
                                  const Pinned &pinned);

} // namespace heddle::sharding

#endif // HEDDLE_PASSES_SHARDING_PROPAGATION_H
