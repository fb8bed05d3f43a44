//===- Exchange.h - where ranks meet ----------------------------*- C++ -*-===//
//
// Each rank runs in a thread of its own; collectives meet here.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_PASSES_INTERPRET_EXCHANGE_H
#define HEDDLE_PASSES_INTERPRET_EXCHANGE_H

#include "passes/Interpret/Tensor.h"

#include "mlir/IR/Operation.h"

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>

namespace heddle::interpret {

/// What went wrong, to be emitted once all ranks have ended.
struct Fault {
  mlir::Operation *op = nullptr;
  std::string message = {};
  /// The other party, where there is one.
  mlir::Operation *noteOp = nullptr;
  std::string note = {};

  void emit() const;
};

/// Rendezvous of the ranks of a group. Ranks that cannot meet are all released
/// with a failure once every rank has ended or waits for one that cannot come,
/// or that brings another collective; so nothing depends on timing.
class Exchange {
public:
  explicit Exchange(int64_t numRanks);

  /// Gives `input` to `group` (of which `rank` is one) at the collective `op`;
  /// returns the inputs of all, in the order of `group`. Empty: they cannot
  /// meet; `getFault` says why.
  std::vector<TensorPtr> meet(int64_t rank, mlir::Operation *op,
                              llvm::ArrayRef<int64_t> group, TensorPtr input);

  /// Gives `value`, which may not be null, to a later `receive` of rank `to`,
  /// which asks for `what`. Values of one name come in the order in which they
  /// were sent.
  void send(int64_t rank, int64_t to, const std::string &what, TensorPtr value);
  /// What rank `from` sends under this name; null where it never does.
  TensorPtr receive(int64_t rank, mlir::Operation *op, int64_t from,
                    const std::string &what);

  /// `rank` comes to no further collective.
  void finish(int64_t rank);

  /// After all ranks have finished.
  const std::optional<Fault> &getFault() const { return fault; }

private:
  /// Sender, receiver, name.
  using Message = std::tuple<int64_t, int64_t, std::string>;

  struct Seat {
    bool finished = false;
    mlir::Operation *op = nullptr; // waits here where not null
    std::vector<int64_t> group;
    TensorPtr input;
    std::vector<TensorPtr> received;
    std::optional<Message> message; ///< that is waited for
  };

  bool hasAll(llvm::ArrayRef<int64_t> group) const;
  std::optional<Fault> findMismatch(llvm::ArrayRef<int64_t> group) const;
  Fault findAbsence(int64_t rank) const;
  void deliver(llvm::ArrayRef<int64_t> group);
  void releaseIfStuck();

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Seat> seats;
  std::map<Message, std::deque<TensorPtr>> sent;
  bool stuck = false;
  std::optional<Fault> fault;
};

} // namespace heddle::interpret

#endif // HEDDLE_PASSES_INTERPRET_EXCHANGE_H
