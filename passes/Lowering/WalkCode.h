//===- WalkCode.h - Functions of an rt.program, decoded once ----*- C++ -*-===//
//
// A walk comes by the same few ops millions of times. Here their attributes are
// read once and their values get numbers, so that a walk reads plain data.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_PASSES_LOWERING_WALKCODE_H
#define HEDDLE_PASSES_LOWERING_WALKCODE_H

#include "dialects/Rt/Rt.h"

#include "llvm/ADT/DenseMap.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace heddle::lowering {

/// Of a value in its function: its cell in the function's frame.
using Cell = unsigned;

/// An op. Which members have a meaning depends on its kind.
struct Instruction {
  enum class Kind {
    Buffer,
    View,
    RankIndex,
    For,
    Switch,
    Lookup,
    Group,
    Call,
    Record,
    Wait,
    Work,
    Constant, ///< `offset`
    Compute,  ///< by `compute` of two operands
    Fold,     ///< by the op's own fold
  };
  struct Access {
    Cell buffer;
    int64_t span, run, period;
    bool reads, writes;
  };
  /// A constant, or what is in a cell.
  struct Bound {
    std::optional<int64_t> constant;
    Cell cell = 0;
  };
  using Compute = int64_t (*)(int64_t, int64_t);
  using Body = std::vector<Instruction>;

  Kind kind;
  mlir::Operation *op;
  Cell result = 0;
  /// Buffer, View: indices. For: the induction variable. Switch: the selector.
  /// Lookup: the index, if any. Record, Wait: the slot, if any.
  llvm::SmallVector<Cell, 2> operands = {};
  llvm::ArrayRef<int64_t> strides = {}; ///< Buffer, View
  llvm::ArrayRef<int64_t> byStage = {}; ///< Buffer: offset and strides of each
  llvm::ArrayRef<int64_t> cases = {};   ///< Switch
  int64_t offset = 0;                   ///< Buffer, Constant; View: in bytes
  int64_t bytes = 0;                    ///< Buffer: span; View: of an element
  int64_t arena = 0;                    ///< Buffer
  Cell source = 0;                      ///< View
  Bound lower = {}, upper = {};         ///< For
  bool reversed = false;                ///< For
  std::string event = {};               ///< Record, Wait
  rt::FuncOp callee = {};               ///< Call
  Compute compute = nullptr;
  std::vector<Access> accesses = {}; ///< Work
  std::vector<Body> bodies = {};     ///< For, Group: one; Switch: of cases
};

/// A function: its arguments are the first cells.
struct WalkCode {
  unsigned cells = 0;
  Instruction::Body body;
};

WalkCode decodeFunction(rt::ProgramOp program, rt::FuncOp function);

} // namespace heddle::lowering

#endif // HEDDLE_PASSES_LOWERING_WALKCODE_H
