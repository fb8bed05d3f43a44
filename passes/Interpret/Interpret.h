//===- Interpret.h - runs a module: the reference ---------------*- C++ -*-===//
//
// Runs a module after any phase up to Overlap, on one rank or on all ranks of
// its mesh.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_PASSES_INTERPRET_INTERPRET_H
#define HEDDLE_PASSES_INTERPRET_INTERPRET_H

#include "dialects/Transformer/Transformer.h"
#include "passes/Interpret/Tensor.h"

#include "mlir/IR/BuiltinOps.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace heddle::interpret {

/// Whole tensors by the name of the function's argument (`transformer.as`, or
/// "argument N" where it has none). An argument that is a stack has one entry
/// per iteration, any other exactly one.
using Inputs = std::map<std::string, std::vector<Tensor>>;

/// A result of a function: one tensor, or one per entry of a stack.
struct NamedValue {
  std::string name; // `transformer.as`, or "result N"
  std::vector<Tensor> entries;

  const Tensor &getTensor() const { return entries.front(); }
};

struct MachineOptions {
  Reading reading = Reading::Exact;
};

/// A module and the values of its states. Tensors that go in and come out are
/// whole; how ranks hold them is read from the module:
///
/// - where a state, argument or result carries its whole type as `dist.global`
///   beside its `dist.layout`, the module is a per-rank program and runs on
///   all ranks of `dist.mesh`; inputs and states are cut by their layouts,
///   padding is 0 (-100 in an argument named "labels": not counted);
/// - otherwise it runs once, on whole tensors; layouts in types are not looked
///   at and `dist.reshard` is the identity.
///
/// Parameters have no value until they are set, and gradients none until they
/// are stored; sums of gradients and optimizer state begin at zero. Every
/// failure has been reported at an op of the module.
class Machine {
public:
  static mlir::FailureOr<Machine> create(mlir::ModuleOp module,
                                         MachineOptions options = {});
  Machine(Machine &&);
  Machine &operator=(Machine &&);
  ~Machine();

  mlir::ModuleOp getModule() const;
  int64_t getNumRanks() const;
  /// In the order of the module.
  llvm::ArrayRef<transformer::StateOp> getStates() const;
  /// Number of instances of a state in the whole model: layers, or 1.
  int64_t getCount(transformer::StateOp state) const;
  /// Layers of the whole model; 0 where no state has any.
  int64_t countLayers() const;
  /// The whole tensor's type, without layout.
  mlir::RankedTensorType getWholeType(transformer::StateOp state) const;

  /// `name` is the state's, with its "{}"; `layer` is 0 where it has none.
  mlir::LogicalResult setState(llvm::StringRef name, int64_t layer,
                               const Tensor &whole);
  /// Fails where ranks that should hold the same bits do not, or where padding
  /// is not zero; `message`, where given, then takes what would be reported.
  mlir::FailureOr<Tensor> getState(llvm::StringRef name, int64_t layer,
                                   std::string *message = nullptr);

  /// Runs a function on every rank. States change, also where it fails.
  mlir::FailureOr<std::vector<NamedValue>> run(llvm::StringRef function,
                                               const Inputs &inputs);

private:
  struct Parts;
  explicit Machine(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts;
};

/// The tensor inside a tensor type or a stack.
mlir::RankedTensorType getTensorType(mlir::Type type);

/// The name of an argument, as `Inputs` has it.
std::string getArgumentName(mlir::func::FuncOp function, unsigned index);

/// The whole type of an argument, without layout; a stack stays a stack.
mlir::Type getWholeArgumentType(mlir::func::FuncOp function, unsigned index);

} // namespace heddle::interpret

#endif // HEDDLE_PASSES_INTERPRET_INTERPRET_H
