//===- StepLowering.h - @step => rt, shared by its files --------*- C++ -*-===//

#ifndef HEDDLE_PASSES_LOWERING_STEPLOWERING_H
#define HEDDLE_PASSES_LOWERING_STEPLOWERING_H

#include "passes/Lowering/LowerStep.h"
#include "passes/Lowering/StatePlaces.h"

#include "llvm/ADT/StringSet.h"

namespace heddle::lowering {

/// Lowers `@step`: states, calls and results (LowerStep.cpp), loops
/// (LowerLoops.cpp), rows of elements and buckets of them (LowerBuckets.cpp).
class StepLowering {
public:
  StepLowering(Program &program, const llvm::StringMap<Signature> &signatures,
               mlir::OpBuilder builder)
      : program(program), signatures(signatures),
        lowering(program, builder, "step"), states(program, lowering) {}

  llvm::LogicalResult run(mlir::func::FuncOp step);

private:
  /// Parameters that a loop gathers for later iterations while one computes.
  struct Prefetch {
    llvm::SmallVector<dist::AllGatherOp> gathers;
    llvm::SmallVector<Family> slots; ///< of each: depth + 1 rows, used in turn
    int64_t depth = 0;               ///< iterations ahead; 0: none
    std::string event;
  };

  struct Loop {
    llvm::SmallVector<Family> carried, stacks;
    llvm::SmallVector<bool> saved; ///< the carried value is an entry of a stack
  };

  //===--------------------------------------------------------------------===//
  // Places
  //===--------------------------------------------------------------------===//

  mlir::OpBuilder &builder() { return lowering.getBuilder(); }

  mlir::Value entry(const Family &family, mlir::Value index, int64_t shift = 0);

  static mlir::RankedTensorType tensorOf(mlir::Type type);

  void bindInput(mlir::BlockArgument argument);

  void bindOutput(mlir::func::FuncOp step, unsigned index, mlir::Value value);

  mlir::Value stateEntry(llvm::StringRef name, mlir::Value index);

  static bool sameBuffer(mlir::Value a, mlir::Value b);

  void moveTo(mlir::Location location, mlir::Value from, mlir::Value to);

  //===--------------------------------------------------------------------===//
  // Streams: buckets have their own
  //===--------------------------------------------------------------------===//

  std::string newEvent(llvm::StringRef what);

  void order(llvm::StringRef event, llvm::StringRef before,
             llvm::StringRef after);

  /// Work queued from here on sees what the communication stream has done.
  void join();

  /// Joins where an op touches states that the communication stream works on.
  /// A gradient of a layer is added to in that layer alone.
  void joinBefore(mlir::Operation &op);

  /// Queues a bucket's work on the communication stream, behind what has been
  /// queued so far.
  llvm::LogicalResult lowerBucket(dist::BucketOp bucket);

  llvm::LogicalResult lowerTogether(llvm::ArrayRef<mlir::Operation *> ops);

  /// The one range that all-reduces in place of a whole bucket are; else null.
  mlir::Value wholeBucket(llvm::ArrayRef<mlir::Operation *> ops);

  //===--------------------------------------------------------------------===//
  // Blocks
  //===--------------------------------------------------------------------===//

  /// Gives values the places that they end in, before they are computed.
  void prepare(mlir::Block &block);

  /// Whether a value has one use, beside where it is made, and no place yet.
  bool isFree(mlir::Value value);

  /// What is stored is computed where it is stored. What is gathered for that
  /// from runs is computed in the part of the whole that is this rank's.
  void prepareStore(transformer::StoreOp store);

  /// A value that becomes a row begins one; a reduced sum of gradients stays
  /// where the sum is.
  void prepareRow(dist::ToRowOp row);

  void beginRow(dist::ToRowOp row);

  /// Zeros behind the values that an op makes as rows, just before it: earlier
  /// the row would be held for nothing.
  void zeroTails(mlir::Operation *maker);

  /// Rows and tensors are two ways to see one place, a run is a part of it.
  llvm::LogicalResult lowerRow(dist::ToRowOp op);

  llvm::LogicalResult lowerFromRow(dist::FromRowOp op);

  /// Whether an op works on a row of elements.
  static bool ofRow(mlir::Operation *op);

  llvm::LogicalResult lowerSlice(dist::SliceOp op);

  /// What a row is reduced to, or gathered into, has its place in the row.
  void placeResult(mlir::Operation *op);

  llvm::LogicalResult lowerBlock(mlir::Block &block);

  llvm::LogicalResult lowerOp(mlir::Operation &op);

  llvm::LogicalResult lowerOne(mlir::Operation &op);

  llvm::LogicalResult lowerZero(transformer::ZeroOp zero);

  /// The call that adds its result to a state itself, or null.
  const Signature *accumulatingCall(mlir::Value value);

  llvm::LogicalResult lowerAccumulate(transformer::AccumulateOp sum);

  llvm::LogicalResult lowerCall(mlir::func::CallOp call);

  //===--------------------------------------------------------------------===//
  // Loops
  //===--------------------------------------------------------------------===//

  void planLoop(transformer::LoopOp loop);

  /// Whether `next`, what the body makes of `carried`, may be written over it.
  bool mayReplace(mlir::BlockArgument carried, mlir::Value next);

  llvm::LogicalResult lowerLoop(transformer::LoopOp loop);

  /// Iterations [begin, begin + count) of a loop, in its order.
  llvm::LogicalResult lowerIterations(transformer::LoopOp loop,
                                      const Loop &plan, int64_t begin,
                                      int64_t count, const Prefetch &prefetch,
                                      bool gathersNext);

  /// Places of the body's arguments, and of what it yields.
  void bindBody(transformer::LoopOp loop, const Loop &plan, mlir::Value index);

  Prefetch planPrefetch(transformer::LoopOp loop);
  /// The place among the rows used in turn of what iteration `index` gathers.
  mlir::Value slotOf(const Prefetch &prefetch, mlir::Value index);
  /// Queues what iteration `index` needs to be gathered.
  llvm::LogicalResult gatherFor(const Prefetch &prefetch, mlir::Value index);
  /// Waits for what iteration `index` needs, then lets a later one's be
  /// gathered.
  llvm::LogicalResult beginIteration(transformer::LoopOp loop,
                                     const Prefetch &prefetch,
                                     mlir::Value index, bool gathersNext);

  Program &program;
  const llvm::StringMap<Signature> &signatures;
  BlockLowering lowering;
  StatePlaces states;
  llvm::DenseMap<mlir::Value, Family> stacks;
  llvm::DenseMap<mlir::Value, mlir::Value> indices;
  llvm::DenseMap<mlir::Operation *, Loop> loops;
  /// Rows longer than the value they begin with, by what makes it.
  llvm::DenseMap<mlir::Operation *,
                 llvm::SmallVector<std::pair<dist::ToRowOp, mlir::Value>>>
      rowsWithTail;
  llvm::SmallVector<mlir::Value> outputs;
  bool communicating = false; ///< compute has not waited for it
  bool movesResults = false;  ///< of calls
  bool computeAhead = true;   ///< of what communication has waited for
  llvm::StringSet<> moving;   ///< objects of memory
  llvm::DenseSet<mlir::Operation *> ahead; ///< gathers that are done already
};

} // namespace heddle::lowering

#endif // HEDDLE_PASSES_LOWERING_STEPLOWERING_H
