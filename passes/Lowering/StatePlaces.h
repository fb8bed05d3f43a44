//===- StatePlaces.h - where states and rows of them lie --------*- C++ -*-===//

#ifndef HEDDLE_PASSES_LOWERING_STATEPLACES_H
#define HEDDLE_PASSES_LOWERING_STATEPLACES_H

#include "dialects/Stage/StageTable.h"
#include "dialects/Stage/StateParts.h"
#include "passes/Lowering/LowerStep.h"
#include "passes/Lowering/Lowering.h"

#include <map>

namespace heddle::lowering {

/// Bytes from one entry of a family of this type to the next.
int64_t bytesBetween(mlir::RankedTensorType type);
/// Bytes of so many entries: nothing is behind the last one.
int64_t bytesOf(mlir::RankedTensorType type, int64_t entries);

/// Buffers of states, and parts of them. A state that is cut into runs or put
/// together from them is a row of elements: its tensor is what the row begins
/// with, a rank's run a part of it, and neither is copied.
class StatePlaces {
public:
  StatePlaces(Program &program, BlockLowering &lowering)
      : program(program), lowering(lowering) {}

  /// Each pipeline stage has states of its own.
  void setStages(mlir::ModuleOp module, const stage::StageTable &table);

  /// Finds the states that are rows.
  void findRows(mlir::func::FuncOp step);

  Family familyOf(transformer::StateOp state);
  bool isOnHost(transformer::StateOp state);
  /// Entry `index` of a family, `shift` entries further. One place is one value
  /// in a block, so that a kernel sees that it reads what it writes.
  mlir::Value entry(const Family &family, mlir::Value index, int64_t shift = 0);
  /// The same of a family of rows.
  mlir::Value rowEntry(const Family &family, mlir::Value index);
  /// The tensor of a state, or its run where it is stored so.
  mlir::Value place(llvm::StringRef state, mlir::Value index);

  /// The object of memory that holds a state.
  std::string bytesOf(llvm::StringRef state);
  /// The range of a whole bucket, if `members` are its states in order; else
  /// null.
  mlir::Value wholeBucket(llvm::ArrayRef<llvm::StringRef> members,
                          mlir::Value index);

  /// Writes onto each state where it lies (`kPlaceName`).
  void notePlaces();

  /// The row that a place is the begin of; null where it is none.
  mlir::Value rowOf(mlir::Value place);
  /// This rank's run of a row that is cut over `axes`.
  mlir::Value runOf(mlir::Value row, mlir::ArrayAttr axes);
  /// Elements of a row, from `offset` on, in this shape.
  mlir::Value viewOf(mlir::Value row, llvm::ArrayRef<int64_t> shape,
                     int64_t offset = 0);
  /// A row of its own for a value.
  mlir::Value makeRow(mlir::Value value, int64_t elements);

private:
  using Key =
      std::tuple<void *, std::vector<int64_t>, int64_t, void *, mlir::Block *>;

  struct Bucket {
    llvm::SmallVector<transformer::StateOp> states; ///< in order
    int64_t bytes = 0; ///< of one instance, all states
    llvm::StringMap<int64_t> offsets;
  };

  void findBuckets();
  /// Bytes of all instances on each stage; none without stages.
  std::vector<int64_t> bytesByStage(transformer::StateOp state, int64_t bytes);
  transformer::StateOp holderOf(transformer::StateOp state);
  mlir::RankedTensorType storedType(transformer::StateOp state);

  Program &program;
  BlockLowering &lowering;
  const stage::StageTable *stages = nullptr;
  std::optional<stage::StateParts> parts; ///< where there are stages
  llvm::StringMap<int64_t> rows;          ///< elements, by state
  llvm::StringMap<Bucket> buckets;
  std::map<
      std::tuple<std::string, int64_t, int64_t, void *, void *, mlir::Block *>,
      mlir::Value>
      entries;
  std::map<Key, mlir::Value> views;
  llvm::DenseSet<mlir::Value> rowBuffers;
};

} // namespace heddle::lowering

#endif // HEDDLE_PASSES_LOWERING_STATEPLACES_H
