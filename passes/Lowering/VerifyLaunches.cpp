//===- VerifyLaunches.cpp - Ranks that wait for each other for ever -------===//
//
// What the pass promises is written once, in Passes.td. Here programs become
// plain sequences and what is found becomes sentences; LaunchOrder.h checks.
//
//===----------------------------------------------------------------------===//

#include "passes/Lowering/Passes.h"

#include "passes/Lowering/LaunchOrder.h"
#include "passes/Lowering/WalkProgram.h"

#include "llvm/ADT/MapVector.h"

#include <map>

using namespace mlir;

namespace heddle {
#define GEN_PASS_DEF_VERIFYLAUNCHESPASS
#include "passes/Lowering/Passes.h.inc"
} // namespace heddle

namespace heddle::lowering {
namespace {

/// Collectives and messages in the order in which one rank launches them.
class LaunchList : public ProgramVisitor {
public:
  LogicalResult work(rt::WorkOpInterface op, ArrayRef<Touch>) override {
    if (!op->hasAttr(kAxes) && !isa<rt::SendOp, rt::ReceiveOp>(op))
      return success();
    step += !isInGroup;
    launches.emplace_back(op, step);
    return success();
  }
  void groupBegins(rt::GroupOp) override {
    isInGroup = true;
    ++step;
  }
  void groupEnds(rt::GroupOp) override { isInGroup = false; }

  static constexpr llvm::StringLiteral kAxes = "axes";
  std::vector<std::pair<rt::WorkOpInterface, int64_t>> launches;

private:
  int64_t step = 0;
  bool isInGroup = false;
};

/// What members of a group have to agree on: all that is neither a name nor a
/// place on the rank.
LaunchOperation describe(rt::WorkOpInterface op) {
  std::string kind;
  llvm::raw_string_ostream os(kind);
  os << op->getName().stripDialect();
  for (NamedAttribute attribute : op->getAttrs()) {
    StringRef name = attribute.getName();
    if (name == "label" || name == "stream" || name == "channel" ||
        name == LaunchList::kAxes)
      continue;
    if (auto reduction = dyn_cast<rt::ReductionAttr>(attribute.getValue()))
      os << ' ' << rt::stringifyReduction(reduction.getValue());
    else
      os << ' ' << name << ' ' << attribute.getValue();
  }
  auto type = cast<rt::BufType>(op->getOperand(0).getType());
  std::string dtype;
  llvm::raw_string_ostream(dtype) << type.getElementType();
  return {kind, type.getNumElements(), dtype};
}

class LaunchChecker {
public:
  explicit LaunchChecker(rt::ProgramOp program) : program(program) {}

  LogicalResult run() {
    ProgramWalker walker(program, /*readsAddresses=*/false);
    std::map<int64_t, LaunchList> lists; // by the rank that was walked
    if (failed(walker.forEachKind(
            [&](int64_t rank) { return walker.walk(rank, lists[rank]); })))
      return failure();
    llvm::DenseMap<int64_t, const LaunchList *> ofKind;
    for (const auto &[rank, list] : lists)
      ofKind[walker.kindOf(rank)] = &list;
    for (int64_t rank : ranksAtEnds(program))
      addRank(rank, *ofKind[walker.kindOf(rank)]);
    LaunchVerdict verdict = checkLaunchOrder(sequences);
    if (verdict.mismatch)
      return complain(*verdict.mismatch);
    return verdict.cycle.empty() ? success() : complain(verdict.cycle);
  }

private:
  void addRank(int64_t rank, const LaunchList &list) {
    RankLaunches &own = sequences.ranks.emplace_back();
    own.rank = rank;
    auto &its = ops.emplace_back();
    for (auto [op, step] : list.launches) {
      Launch &launch = own.launches.emplace_back();
      launch.operation = operationOf(op);
      launch.step = step;
      if (auto axes = op->getAttrOfType<ArrayAttr>(LaunchList::kAxes)) {
        launch.communicator = communicatorOf(axes, rank);
      } else {
        auto channel = op->getAttrOfType<StringAttr>("channel");
        launch.communicator = communicatorOf(channel);
        launch.peer = peerOf(program, program.getChannel(channel), rank,
                             isa<rt::SendOp>(op) ? 1 : -1);
      }
      its.push_back(op);
    }
  }

  /// A channel is one, however many pairs of ranks it joins.
  size_t communicatorOf(StringAttr channel) {
    const auto [entry, isNew] =
        communicators.try_emplace({channel, 0}, sequences.communicators.size());
    if (isNew)
      sequences.communicators.push_back({channel.str(), {}});
    return entry->second;
  }

  /// A group is known by its axes and by its first rank.
  size_t communicatorOf(ArrayAttr axes, int64_t rank) {
    const auto [seat, isNewSeat] = seats.try_emplace({axes, rank});
    if (!isNewSeat)
      return seat->second;
    const auto [entry, isNew] =
        communicators.try_emplace({axes, firstOfGroup(program, axes, rank)},
                                  sequences.communicators.size());
    if (isNew) {
      std::string name;
      llvm::raw_string_ostream(name) << axes;
      sequences.communicators.push_back({name, {}});
    }
    // Those that are walked; others launch as they do.
    sequences.communicators[entry->second].members.push_back(rank);
    return seat->second = entry->second;
  }

  size_t operationOf(rt::WorkOpInterface op) {
    const auto [entry, isNew] =
        operations.try_emplace(op, sequences.operations.size());
    if (isNew)
      sequences.operations.push_back(describe(op));
    return entry->second;
  }

  Operation *opOf(int64_t rank, size_t launch) {
    for (auto [sequence, its] : llvm::zip(sequences.ranks, ops))
      if (sequence.rank == rank)
        return its[launch];
    llvm_unreachable("a verdict names ranks that it was given");
  }

  /// "all_reduce sum of 32 f32 'down' over ["tp"]"
  std::string textOf(Operation *op) {
    const LaunchOperation &operation = sequences.operations[operations[op]];
    std::string text;
    llvm::raw_string_ostream(text)
        << operation.kind << " of " << operation.elements << " "
        << operation.dtype << " '" << cast<rt::WorkOpInterface>(op).getLabel()
        << "' over "
        << (op->hasAttr(LaunchList::kAxes) ? op->getAttr(LaunchList::kAxes)
                                           : op->getAttr("channel"));
    return text;
  }

  LogicalResult complain(const LaunchMismatch &mismatch) {
    Operation *expected =
        opOf(mismatch.expected.rank, *mismatch.expected.launch);
    Operation *found = mismatch.found.launch
                           ? opOf(mismatch.found.rank, *mismatch.found.launch)
                           : nullptr;
    InFlightDiagnostic error =
        (found ? found : expected)->emitError()
        << "launch " << mismatch.position + 1 << " over "
        << sequences.communicators[mismatch.communicator].name << " is "
        << textOf(expected) << " on rank " << mismatch.expected.rank
        << ", but on rank " << mismatch.found.rank << " "
        << (found ? textOf(found) : "there is none")
        << "; members of a group have to launch the same, in one order";
    if (found)
      error.attachNote(expected->getLoc())
          << "on rank " << mismatch.expected.rank;
    return error;
  }

  LogicalResult complain(ArrayRef<LaunchLink> cycle) {
    InFlightDiagnostic error =
        opOf(cycle[0].rank, cycle[0].before)->emitError()
        << "ranks would wait for each other for ever: " << cycle.size()
        << " of them launch collectives of different groups in orders that go "
           "round; let all ranks launch them in one order";
    for (const LaunchLink &link : cycle) {
      Operation *before = opOf(link.rank, link.before),
                *after = opOf(link.rank, link.after);
      error.attachNote(before->getLoc())
          << "rank " << link.rank << " launches " << textOf(before)
          << " before " << textOf(after);
    }
    return error;
  }

  rt::ProgramOp program;
  LaunchProgram sequences;
  std::vector<std::vector<Operation *>> ops; ///< of launches, per sequence
  llvm::DenseMap<Operation *, size_t> operations;
  llvm::DenseMap<std::pair<Attribute, int64_t>, size_t> communicators, seats;
};

struct VerifyLaunchesPass : impl::VerifyLaunchesPassBase<VerifyLaunchesPass> {
  void runOnOperation() override {
    for (auto program : getOperation().getOps<rt::ProgramOp>())
      if (failed(LaunchChecker(program).run()))
        return signalPassFailure();
  }
};

} // namespace
} // namespace heddle::lowering
