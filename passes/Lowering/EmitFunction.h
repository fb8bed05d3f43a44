//===- EmitFunction.h - rt.func => a C++ function ---------------*- C++ -*-===//

#ifndef HEDDLE_PASSES_LOWERING_EMITFUNCTION_H
#define HEDDLE_PASSES_LOWERING_EMITFUNCTION_H

#include "passes/Lowering/EmitNumbers.h"
#include "passes/Lowering/EmitText.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"

#include <utility>

namespace heddle::lowering {

/// What a program's parts are called in step.cpp.
struct ProgramNames {
  explicit ProgramNames(rt::ProgramOp program);

  rt::ProgramOp program;
  std::string context; ///< "" where nothing needs it
  std::vector<std::string> streams, communicators,
      arenas; ///< members of heddle_program
  llvm::StringMap<std::string> functions, tables;
  /// Members for events, in order; those that are used in turn are one row.
  llvm::MapVector<llvm::StringRef, std::string> events, eventRows;
  /// Members for the queue of a channel that begins here, and that ends here.
  llvm::StringMap<std::pair<std::string, std::string>> channels;
  llvm::MapVector<mlir::Attribute, std::string>
      places; ///< axes of rt.rank_index -> member
  Namer members, globals;
  ProgramNumbers numbers;

private:
  static std::string communicatorWish(mlir::ArrayAttr axes);
};

/// Prints one function: a statement per op, each under a comment that names the
/// op and layer it came from.
class FunctionPrinter {
public:
  FunctionPrinter(const ProgramNames &names, rt::FuncOp func,
                  llvm::raw_ostream &os)
      : names(names), func(func), os(os) {}

  mlir::LogicalResult print();

private:
  mlir::LogicalResult printBlock(mlir::Block &block);
  mlir::LogicalResult printOp(mlir::Operation &op);
  void printBuffer(rt::BufferOp op);
  mlir::LogicalResult printFor(rt::ForOp op);
  mlir::LogicalResult printSwitch(rt::SwitchOp op);
  void printLookup(rt::LookupOp op);
  /// Declares a number under a name.
  void printLocal(mlir::Value value, llvm::StringRef wish);
  void printMessage(rt::SendOp op);
  void printMessage(rt::ReceiveOp op);
  void printGemm(rt::GemmOp op);
  void printAmax(rt::AmaxOp op);
  void printHadamard(rt::HadamardOp op);
  /// Members of the arguments that say how it rounds at random.
  std::string noise(rt::QuantizeOp op);
  void printQuantize(rt::QuantizeOp op);
  template <class Op>
  void printAttention(Op op);
  void printLaunch(rt::KernelLaunchOp op);
  void printRope(rt::RopeOp op);
  void printSegments(rt::SegmentSortOp op);
  void printSegments(rt::SegmentSumOp op);
  mlir::LogicalResult printCollective(mlir::Operation *op);
  mlir::LogicalResult printOther(mlir::Operation *op);
  std::string callText(rt::CallOp call);

  /// "TRY(call);" on a line of its own, under a comment for `op`.
  void statement(mlir::Operation *op, const std::string &call);
  void comment(mlir::Operation *op);
  std::string launchOperand(rt::KernelLaunchOp op, rt::OperandAttr operand,
                            mlir::ValueRange group);

  std::string get(mlir::Value value) const { return expressions.lookup(value); }
  /// The place of a view, from that of its source.
  std::string add(rt::ViewOp view) const;
  /// A number of `op`: by its name in numbers.bin, or the constant.
  std::string number(mlir::Operation *op, int64_t constant) const;
  std::string bytes(mlir::Operation *op, mlir::Value buffer) const;
  std::string stream(llvm::StringRef name) const;
  template <class Op>
  std::string event(Op op) const;
  std::string communicator(mlir::ArrayAttr axes) const;

  const ProgramNames &names;
  rt::FuncOp func;
  llvm::raw_ostream &os;
  unsigned indent = 2;
  Namer locals;
  std::string lastComment;
  llvm::DenseMap<mlir::Value, std::string> expressions;
};

} // namespace heddle::lowering

#endif // HEDDLE_PASSES_LOWERING_EMITFUNCTION_H
