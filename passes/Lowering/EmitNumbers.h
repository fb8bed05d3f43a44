//===- EmitNumbers.h - What step.cpp names and numbers.bin holds -*- C++
//-*-===//
//
// Offsets, strides, sizes of arenas, bounds of loops, sizes of axes and tables
// of numbers. The text has a name for each, so that it does not depend on
// layers, micro-batches or ranks.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_PASSES_LOWERING_EMITNUMBERS_H
#define HEDDLE_PASSES_LOWERING_EMITNUMBERS_H

#include "passes/Lowering/EmitText.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"

#include <map>
#include <vector>

namespace heddle::lowering {

class ProgramNumbers {
public:
  /// Names are taken from `globals`.
  ProgramNumbers(rt::ProgramOp program, Namer &globals);

  /// A number that is the same on all ranks.
  struct Count {
    std::string name, comment;
    int64_t value;
  };
  /// Numbers that stages may have different ones of: an arena's size, or a
  /// buffer's offset with its strides behind it.
  struct Place {
    std::string name, comment;
    int64_t arena, at; ///< position of the first among all
    std::vector<llvm::SmallVector<int64_t>> rows; ///< by stage
  };

  /// The names of an axis's size, of an arena's, of a buffer's offset.
  llvm::StringRef sizeOf(llvm::StringRef axis) const;
  llvm::StringRef bytesOf(int64_t arena) const { return places[arena].name; }
  llvm::StringRef placeOf(rt::BufferOp buffer) const;
  /// The name of a constant bound of a loop; "" where there is none: a lower
  /// one of 0, or a value.
  llvm::StringRef lowerOf(rt::ForOp loop) const { return nameIn(lowers, loop); }
  llvm::StringRef upperOf(rt::ForOp loop) const { return nameIn(uppers, loop); }
  /// The name of the number that an op has beside its operands, "" where the
  /// text has it itself: the length of a row that work goes over (rows are cut
  /// over ranks), the distance of ranks in a row, an index that is a constant.
  llvm::StringRef nameOf(mlir::Operation *op) const { return nameIn(own, op); }

  /// In the order of the file.
  std::vector<Count> counts;
  std::vector<Place> places; ///< sizes of arenas first, one each
  std::vector<rt::NumbersOp> tables;
  /// Events that are used in turn; how many, is in counts.
  struct EventRow {
    std::string name;
    size_t count;
  };
  std::vector<EventRow> eventRows;
  /// How many numbers `places` have in all, on one stage.
  int64_t numPlaces = 0;

  /// Of all names: a text and a file that have the same belong together.
  uint64_t key() const;
  /// numbers.bin, as heddle/Runtime/Numbers.h reads it.
  std::string encode() const;

private:
  using Index = llvm::DenseMap<mlir::Operation *, size_t>;

  llvm::StringRef nameIn(const Index &index, mlir::Operation *op) const;
  void addBound(rt::ForOp loop, bool isUpper, int64_t value, Index &index);
  void addEvents(llvm::StringRef event, std::optional<int64_t> slots);
  void addOwn(mlir::Operation *op);
  void addOwn(mlir::Operation *op, mlir::Value row, llvm::StringRef word,
              llvm::StringRef what, int64_t value);
  void addBuffer(rt::FuncOp func, rt::BufferOp buffer);
  size_t addPlace(const std::string &wish, std::string comment, int64_t arena,
                  std::vector<llvm::SmallVector<int64_t>> rows);
  std::string stridesComment(rt::BufferOp buffer) const;

  rt::ProgramOp program;
  Namer &globals;
  llvm::StringMap<size_t> axes;
  Index lowers, uppers, own;                        ///< into counts
  Index buffers;                                    ///< into places
  std::map<std::string, std::vector<size_t>> alike; ///< buffers of one name
  std::map<std::tuple<std::string, std::string, int64_t>, size_t>
      bounds; ///< that several loops have: name, form, value
};

} // namespace heddle::lowering

#endif // HEDDLE_PASSES_LOWERING_EMITNUMBERS_H
