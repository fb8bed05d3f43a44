//===- WalkProgram.h - An rt.program step by step, with numbers -*- C++ -*-===//
//
// Runs loops and calls with concrete numbers and computes nothing else: what is
// left is the list of queued work with the bytes that each piece touches.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_PASSES_LOWERING_WALKPROGRAM_H
#define HEDDLE_PASSES_LOWERING_WALKPROGRAM_H

#include "passes/Lowering/WalkCode.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringSet.h"

namespace heddle::lowering {

/// What an rt.buffer is with numbers for its indices: bytes [begin, end) of an
/// arena.
struct Instance {
  rt::BufferOp op;
  int64_t arena = 0, begin = 0, end = 0;
};

/// Bytes that a piece of work touches: of [begin, begin + span) those b with
/// (b - begin) mod period < run.
struct Touch {
  Instance instance; ///< the buffer it is a part of
  int64_t begin = 0, span = 0, run = 1, period = 1;
  bool reads = false, writes = false;
};

/// The axes along which places differ by data: stages, numbers, channels,
/// mirrors.
llvm::StringSet<> axesOfData(rt::ProgramOp program);

/// The ranks that stand at one of the ends of each axis. An address is affine
/// in a rank's place along an axis: what touches at neither end touches nowhere
/// in between, as long as parts of neighbours have one size. Of axes of data,
/// every place.
llvm::SmallVector<int64_t> ranksAtEnds(rt::ProgramOp program);

/// The pipeline stage of a rank; 0 where no axis is said to be theirs.
int64_t stageOf(rt::ProgramOp program, int64_t rank);

/// The rank at the other end of this rank's queue of a channel: `direction` 1
/// where it sends to, -1 where it receives from.
int64_t peerOf(rt::ProgramOp program, rt::ChannelAttr channel, int64_t rank,
               int64_t direction);

/// Place of a rank in its group over axes, the last the fastest.
int64_t placeOver(rt::ProgramOp program, mlir::ArrayAttr axes, int64_t rank);

/// The rank at the first place of that group.
int64_t firstOfGroup(rt::ProgramOp program, mlir::ArrayAttr axes, int64_t rank);

class ProgramVisitor {
public:
  virtual ~ProgramVisitor() = default;
  virtual mlir::LogicalResult work(rt::WorkOpInterface op,
                                   llvm::ArrayRef<Touch> touches) = 0;
  /// `event` is the event's name, its slot included.
  virtual mlir::LogicalResult record(rt::RecordOp, llvm::StringRef event) {
    return mlir::success();
  }
  virtual mlir::LogicalResult wait(rt::WaitOp, llvm::StringRef event) {
    return mlir::success();
  }
  /// The work up to the end of the group is one piece.
  virtual void groupBegins(rt::GroupOp) {}
  virtual void groupEnds(rt::GroupOp) {}
};

class ProgramWalker {
public:
  /// Whoever does not look at addresses need not walk ranks for theirs.
  explicit ProgramWalker(rt::ProgramOp program, bool readsAddresses = true);

  /// One step of `rank`.
  mlir::LogicalResult walk(int64_t rank, ProgramVisitor &visitor);
  /// Calls `check`, which walks, for ranks of ranksAtEnds; for one only of
  /// those that differ in no place on which an address, a bound or a case of a
  /// walk depended.
  mlir::LogicalResult
  forEachKind(llvm::function_ref<mlir::LogicalResult(int64_t rank)> check);
  /// A number for the places of a rank on which walks so far depended: equal
  /// for ranks of one kind.
  int64_t kindOf(int64_t rank) const;

private:
  /// Axes of the mesh, one bit each.
  using Axes = uint64_t;

  struct Place {
    Instance instance;
    int64_t address = 0;
  };
  struct Number {
    int64_t value = 0;
    Axes axes = 0; ///< on the places over which it depends
  };
  /// A row of an rt.numbers.
  struct Row {
    llvm::ArrayRef<int64_t> values;
    Axes axes = 0;
  };
  /// What the cells of a function hold.
  struct Frame {
    std::vector<Number> numbers;
    std::vector<Place> places;
  };

  const WalkCode &codeOf(rt::FuncOp function);
  mlir::LogicalResult walkBody(const Instruction::Body &body, Frame &frame);
  mlir::LogicalResult walkOp(const Instruction &op, Frame &frame);
  std::string eventOf(const Instruction &op, Frame &frame);
  mlir::LogicalResult walkFor(const Instruction &op, Frame &frame);
  mlir::LogicalResult walkSwitch(const Instruction &op, Frame &frame);
  mlir::LogicalResult walkLookup(const Instruction &op, Frame &frame);
  void walkBuffer(const Instruction &op, Frame &frame);
  void walkView(const Instruction &op, Frame &frame);
  void walkRankIndex(const Instruction &op, Frame &frame);
  mlir::LogicalResult walkCall(const Instruction &op, Frame &frame);
  mlir::LogicalResult walkWork(const Instruction &op, Frame &frame);
  mlir::LogicalResult fold(const Instruction &op, Frame &frame);
  int64_t sum(const Instruction &op, llvm::ArrayRef<int64_t> strides,
              Frame &frame);
  /// A number that decides what is done: ranks differ by it.
  int64_t use(Cell cell, Frame &frame);
  Axes bitOf(llvm::StringRef axis);

  rt::ProgramOp program;
  bool readsAddresses;
  ProgramVisitor *visitor = nullptr;
  int64_t rank = 0, stage = 0;
  Axes axes = 0,     ///< on which what was walked so far depended
      stageAxes = 0; ///< of by_stage, where addresses are read
  llvm::DenseMap<mlir::Operation *, std::unique_ptr<WalkCode>> codes;
  llvm::DenseMap<mlir::Attribute, Row> rows; ///< of this rank
  std::vector<Touch> touches;                ///< of one piece of work
};

} // namespace heddle::lowering

#endif // HEDDLE_PASSES_LOWERING_WALKPROGRAM_H
