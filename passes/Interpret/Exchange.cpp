//===- Exchange.cpp - where ranks meet ------------------------------------===//

#include "passes/Interpret/Exchange.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace heddle::interpret;

void Fault::emit() const {
  InFlightDiagnostic diagnostic = op->emitOpError() << message;
  if (noteOp)
    diagnostic.attachNote(noteOp->getLoc()) << note;
}

Exchange::Exchange(int64_t numRanks) : seats(numRanks) {}

/// The same members, in the same order or not.
static bool isSameGroup(ArrayRef<int64_t> a, ArrayRef<int64_t> b) {
  return a.size() == b.size() && llvm::all_of(a, [&](int64_t rank) {
           return llvm::is_contained(b, rank);
         });
}

bool Exchange::hasAll(ArrayRef<int64_t> group) const {
  return llvm::all_of(group, [&](int64_t member) {
    return seats[member].op && isSameGroup(seats[member].group, group);
  });
}

/// Whether two ranks at `a` and `b` do the same thing.
static bool isSameCollective(Operation *a, Operation *b) {
  return a == b || (a->getName() == b->getName() &&
                    a->getOperandTypes() == b->getOperandTypes() &&
                    a->getResultTypes() == b->getResultTypes() &&
                    a->getName().compareOpProperties(
                        a->getPropertiesStorage(), b->getPropertiesStorage()));
}

/// "dist.all_reduce of tensor<4xf32>"
static std::string nameOf(Operation *op) {
  std::string text = op->getName().getStringRef().str() + " of ";
  llvm::raw_string_ostream(text) << op->getOperand(0).getType();
  return text;
}

std::optional<Fault> Exchange::findMismatch(ArrayRef<int64_t> group) const {
  int64_t first = *llvm::min_element(group);
  for (int64_t member : group) {
    if (isSameCollective(seats[first].op, seats[member].op) &&
        seats[first].group == seats[member].group)
      continue;
    return Fault{
        seats[first].op,
        "ranks " + std::to_string(first) + " and " + std::to_string(member) +
            " of one group meet in different collectives: " +
            nameOf(seats[first].op) + " and " + nameOf(seats[member].op),
        seats[member].op, "rank " + std::to_string(member) + " is here"};
  }
  return std::nullopt;
}

Fault Exchange::findAbsence(int64_t rank) const {
  const Seat &seat = seats[rank];
  int64_t missing = *llvm::find_if(seat.group, [&](int64_t member) {
    return !seats[member].op || !isSameGroup(seats[member].group, seat.group);
  });
  std::string what =
      seat.message ? " to send " + std::get<2>(*seat.message) : "";
  Fault absence = {seat.op, "rank " + std::to_string(rank) +
                                " waits for rank " + std::to_string(missing) +
                                what + ", which never comes"};
  if (seats[missing].op) {
    absence.noteOp = seats[missing].op;
    absence.note = "rank " + std::to_string(missing) + " waits here";
  }
  return absence;
}

void Exchange::deliver(ArrayRef<int64_t> group) {
  std::vector<TensorPtr> inputs;
  for (int64_t member : group)
    inputs.push_back(seats[member].input);
  for (int64_t member : group) {
    seats[member].received = inputs;
    seats[member].op = nullptr;
    seats[member].input = nullptr;
  }
}

void Exchange::releaseIfStuck() {
  auto canGoOn = [&](const Seat &seat) {
    return (!seat.finished && !seat.op) ||
           (seat.message && sent.contains(*seat.message));
  };
  if (stuck || llvm::any_of(seats, canGoOn))
    return;
  for (auto [rank, seat] : llvm::enumerate(seats)) {
    if (!seat.op)
      continue;
    stuck = true;
    // Two that meet in different places say more than one who waits.
    if (hasAll(seat.group)) {
      fault = findMismatch(seat.group);
      break;
    }
    if (!fault)
      fault = findAbsence(rank);
  }
  changed.notify_all();
}

std::vector<TensorPtr> Exchange::meet(int64_t rank, Operation *op,
                                      ArrayRef<int64_t> group,
                                      TensorPtr input) {
  std::unique_lock<std::mutex> lock(mutex);
  Seat &own = seats[rank];
  own.op = op;
  own.group = group.vec();
  own.input = std::move(input);
  own.received.clear();
  // A group that disagrees stays seated until no rank can go on.
  if (!hasAll(group) || findMismatch(group)) {
    releaseIfStuck();
  } else {
    deliver(group);
    changed.notify_all();
  }
  changed.wait(lock, [&] { return stuck || !own.op; });
  return std::exchange(own.received, {});
}

void Exchange::send(int64_t rank, int64_t to, const std::string &what,
                    TensorPtr value) {
  std::unique_lock<std::mutex> lock(mutex);
  sent[{rank, to, what}].push_back(std::move(value));
  changed.notify_all();
}

TensorPtr Exchange::receive(int64_t rank, Operation *op, int64_t from,
                            const std::string &what) {
  std::unique_lock<std::mutex> lock(mutex);
  Message message = {from, rank, what};
  Seat &own = seats[rank];
  if (!sent.contains(message)) {
    own.op = op;
    own.group = {from};
    own.message = message;
    releaseIfStuck();
    changed.wait(lock, [&] { return stuck || sent.contains(message); });
    own.op = nullptr;
    own.message.reset();
  }
  auto found = sent.find(message);
  if (found == sent.end())
    return nullptr;
  TensorPtr value = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty())
    sent.erase(found);
  return value;
}

void Exchange::finish(int64_t rank) {
  std::unique_lock<std::mutex> lock(mutex);
  seats[rank].finished = true;
  releaseIfStuck();
}
