//===- StageProgramFaults.cpp - Wrong numbers, messages and stages, as rt -===//

#include "tools/mutate/Fault.h"

#include "dialects/Rt/Rt.h"
#include "heddle/Schedule/Table.h"
#include "passes/Lowering/StageNumbers.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

#include <array>

using namespace mlir;
using namespace heddle;
using namespace heddle::mutate;
using lowering::PackedNumber;
using lowering::StageNumbers;

namespace {

/// What a table's numbers are of, which says how many of a row count.
enum class Of { Place, Chunk, Slot, Event, Transfer };

Of whatOf(StringRef table) {
  return llvm::StringSwitch<Of>(table)
      .StartsWith("chunk_", Of::Chunk)
      .StartsWith("has_", Of::Place)
      .Cases({"layers_held", "event_count"}, Of::Place)
      .Case("events", Of::Event)
      .Case("transfers", Of::Transfer)
      .Default(Of::Slot);
}

/// A number in the entries of a table.
struct Part {
  PackedNumber number;
  /// It only says which buffer or event of several is used, or whether an event
  /// is: that changes order and place, not what is computed.
  bool onlyPlaces = false;
};

/// The numbers in the entries of tables that have several; those of pools of
/// sets are added where a table is theirs.
std::vector<Part> partsOf(StringRef table) {
  std::vector<Part> parts;
  for (const Part &part :
       {Part{StageNumbers::kTransferType}, Part{StageNumbers::kTransferChannel},
        Part{StageNumbers::kTransferSlot}, Part{StageNumbers::kForward},
        Part{StageNumbers::kBackward}, Part{StageNumbers::kWeight},
        Part{StageNumbers::kReceives, true}, Part{StageNumbers::kSends, true},
        Part{StageNumbers::kHandsOn}, Part{StageNumbers::kLastInput},
        Part{StageNumbers::kLastWeight}, Part{StageNumbers::kOut, true},
        Part{StageNumbers::kLanding, true}})
    if (part.number.table == table)
      parts.push_back(part);
  for (StringRef pool :
       {"sets", "input_sets", "kept_sets", "head_sets", "embedding_sets"})
    if (PackedNumber number = StageNumbers::pool(pool); number.table == table)
      parts.push_back({number, true});
  if (parts.empty()) // one number
    parts.push_back(
        {{"", "", 1, int64_t(1) << 31}, table.ends_with("landings")});
  return parts;
}

class StageProgramFaults {
public:
  StageProgramFaults(rt::ProgramOp program, bool placed)
      : program(program), placed(placed) {}

  std::vector<Fault> find() {
    program.walk([&](Operation *op) {
      if (auto numbers = dyn_cast<rt::NumbersOp>(op))
        findNumbers(numbers);
      if (isa<rt::SendOp, rt::ReceiveOp>(op))
        findMessage(op);
      if (auto choice = dyn_cast<rt::SwitchOp>(op))
        findCases(choice);
      if (auto copy = dyn_cast<rt::CopyOp>(op))
        add("drop a copy", copy, [copy]() mutable { copy.erase(); });
      if (auto buffer = dyn_cast<rt::BufferOp>(op); buffer && placed)
        findPlace(buffer);
    });
    if (placed)
      findArenas();
    return std::move(faults);
  }

private:
  void add(const char *kind, Operation *op, std::function<void()> plant,
           const std::string &how = "", std::string equivalent = "",
           bool proven = false) {
    faults.push_back({kind, describe(op) + how, std::move(plant),
                      std::move(equivalent), proven});
  }

  //===--------------------------------------------------------------------===//
  // Tables
  //===--------------------------------------------------------------------===//

  /// A number of a table of the program; 0 where it has none.
  int64_t number(StringRef table, int64_t place, int64_t index = 0) {
    auto numbers = program.lookupSymbol<rt::NumbersOp>(table);
    if (!numbers || index >= numbers.getWidth())
      return 0;
    return numbers.getRow(place)[index];
  }

  /// A number in an entry of a table of the program.
  int64_t number(const PackedNumber &part, int64_t place, int64_t index) {
    return number(part.table, place, index) / part.divisor % part.modulus;
  }

  /// How many entries of a row are looked up.
  int64_t lengthOf(rt::NumbersOp numbers, int64_t place) {
    int64_t slots = 0, transfers = 0;
    for (int64_t i = 0; i < number("event_count", place); ++i) {
      if (number(StageNumbers::kIsBatch, place, i))
        transfers =
            std::max(transfers, number(StageNumbers::kBatchBegin, place, i) +
                                    number(StageNumbers::kBatchSize, place, i));
      else
        slots = std::max(slots, number(StageNumbers::kEventSlot, place, i) + 1);
    }
    switch (whatOf(numbers.getSymName())) {
    case Of::Place:
    case Of::Chunk:
      return numbers.getWidth();
    case Of::Slot:
      return slots;
    case Of::Event:
      return number("event_count", place);
    case Of::Transfer:
      return transfers;
    }
    llvm_unreachable("all are listed");
  }

  /// Whether no slot of a place from this one on runs anything.
  bool isBehindAll(int64_t place, int64_t slot) {
    auto slots = program.lookupSymbol<rt::NumbersOp>("slots");
    for (int64_t i = slot; i < slots.getWidth(); ++i)
      for (const PackedNumber &runs :
           {StageNumbers::kForward, StageNumbers::kBackward,
            StageNumbers::kWeight})
        if (number(runs, place, i))
          return false;
    return true;
  }

  /// Whether the program has a case of a label.
  bool hasCase(StringRef label) {
    return program
        .walk([&](rt::SwitchOp cases) {
          for (size_t i = 0; i < cases.getValues().size(); ++i)
            if (cases.getLabel(i) == label)
              return WalkResult::interrupt();
          return WalkResult::advance();
        })
        .wasInterrupted();
  }

  /// Whether what a slot runs looks its number up.
  bool asksFor(StringRef table, const PackedNumber &part, int64_t place,
               int64_t slot) {
    bool backward = number(StageNumbers::kBackward, place, slot),
         weight = number(StageNumbers::kWeight, place, slot),
         passes = backward || number(StageNumbers::kForward, place, slot);
    auto is = [&](const PackedNumber &other) {
      return part.table == other.table && part.divisor == other.divisor;
    };
    if (is(StageNumbers::kForward) || is(StageNumbers::kBackward))
      return true;
    if (is(StageNumbers::kWeight))
      return hasCase("weight gradients");
    if (is(StageNumbers::kLastInput))
      return backward && hasCase("last");
    if (is(StageNumbers::kLastWeight))
      return weight && hasCase("last");
    if (is(StageNumbers::kHandsOn))
      return passes && hasCase("hands on");
    if (table == "handed_landings")
      return number(StageNumbers::kHandsOn, place, slot);
    return passes || weight;
  }

  void findNumbers(rt::NumbersOp op) {
    if (op.getAxis() != program.getStages())
      return;
    StringRef name = op.getSymName();
    std::vector<Part> parts = partsOf(name);
    for (int64_t place = 0; place < op.getNumRows(); ++place)
      for (int64_t i = 0; i < op.getWidth(); ++i) {
        std::string unread =
            i >= lengthOf(op, place) ? "the row has fewer numbers" : "";
        if (name == "slots") {
          changeSlot(op, place, i, unread);
          continue;
        }
        if (name == "events" && unread.empty())
          parts = number(StageNumbers::kIsBatch, place, i)
                      ? std::vector<Part>{{StageNumbers::kBatchSize},
                                          {StageNumbers::kBatchBegin}}
                      : std::vector<Part>{{StageNumbers::kEventSlot}};
        for (const Part &part : parts)
          changePart(op, place, i, part, unread);
      }
  }

  /// One more and one less, the rest of the entry as it is.
  void changePart(rt::NumbersOp op, int64_t place, int64_t index,
                  const Part &part, std::string rule) {
    StringRef name = op.getSymName();
    if (rule.empty() && whatOf(name) == Of::Slot &&
        !asksFor(name, part.number, place, index))
      rule = "the slot does not ask for the number";
    int64_t entry = op.getRow(place)[index],
            old = entry / part.number.divisor % part.number.modulus;
    for (int64_t to : {old + 1, old - 1}) {
      if (to < 0 || to >= part.number.modulus)
        continue;
      int64_t changed = entry + (to - old) * part.number.divisor;
      std::string same = rule;
      if (same.empty() && llvm::is_contained(kOrder, name) &&
          runsAt(place, op, index, entry) == runsAt(place, op, index, changed))
        same = "slots and transfers are the same, of the same buffers";
      // Forward once more in front of backward computes nothing else; behind
      // all slots nobody reads what it computes.
      bool again = part.number.table == StageNumbers::kForward.table &&
                   part.number.divisor == StageNumbers::kForward.divisor &&
                   to == 1 &&
                   (number(StageNumbers::kBackward, place, index) ||
                    isBehindAll(place, index));
      changeNumber("change a number", op, place, index, changed, same,
                   part.onlyPlaces || again);
    }
  }

  /// Tables of what runs one after the other.
  static constexpr StringLiteral kOrder[] = {"events", "event_count",
                                             "transfers"};

  /// What a place does event by event with number `index` of a table changed:
  /// slots, and transfers by direction, channel and buffer. A transfer names
  /// its buffer by a slot, and slots that come one after the other may share
  /// one.
  std::vector<int64_t> runsAt(int64_t place, rt::NumbersOp changed,
                              int64_t index, int64_t to) {
    auto at = [&](const PackedNumber &part, int64_t i) {
      int64_t entry = part.table == changed.getSymName() && i == index
                          ? to
                          : number(part.table, place, i);
      return entry / part.divisor % part.modulus;
    };
    std::vector<int64_t> runs;
    int64_t count = changed.getSymName() == "event_count"
                        ? to
                        : number("event_count", place);
    for (int64_t i = 0; i < count; ++i) {
      if (!at(StageNumbers::kIsBatch, i)) {
        // The optimizer's slot stands behind the loop.
        int64_t slot = at(StageNumbers::kEventSlot, i);
        if (at(StageNumbers::kForward, slot) ||
            at(StageNumbers::kBackward, slot) ||
            at(StageNumbers::kWeight, slot))
          runs.push_back(slot);
        continue;
      }
      // One launch: only messages over one channel have an order in it.
      std::vector<std::array<int64_t, 3>> transfers;
      int64_t begin = at(StageNumbers::kBatchBegin, i),
              end = begin + at(StageNumbers::kBatchSize, i);
      for (int64_t k = begin; k < end; ++k) {
        int64_t type = at(StageNumbers::kTransferType, k);
        transfers.push_back(
            {type, at(StageNumbers::kTransferChannel, k),
             at(type & 2 ? StageNumbers::kOut : StageNumbers::kLanding,
                at(StageNumbers::kTransferSlot, k))});
      }
      llvm::stable_sort(transfers, [](const auto &a, const auto &b) {
        return std::pair(a[0] & 2, a[1]) < std::pair(b[0] & 2, b[1]);
      });
      runs.push_back(-1);
      for (const auto &transfer : transfers)
        llvm::append_range(runs, transfer);
    }
    return runs;
  }

  void changeNumber(const char *kind, rt::NumbersOp op, int64_t place,
                    int64_t index, int64_t to, const std::string &rule,
                    bool proven = false) {
    std::string how = " '" + op.getSymName().str() + "' of place " +
                      std::to_string(place) + " [" + std::to_string(index) +
                      "] to " + std::to_string(to);
    add(
        kind, op,
        [op, place, index, to]() mutable {
          SmallVector<int64_t> values(op.getValues());
          values[place * op.getWidth() + index] = to;
          op.setValues(values);
        },
        how, rule, proven);
  }

  /// Another chunk, another micro-batch.
  void changeSlot(rt::NumbersOp op, int64_t place, int64_t index,
                  const std::string &rule) {
    Slot slot = Slot::fromBits(static_cast<uint32_t>(op.getRow(place)[index]));
    auto changed = [&](int64_t chunk, int64_t microBatch) -> int64_t {
      return Slot(slot.kind(), chunk, microBatch, slot.joined()).bits();
    };
    std::string unread = rule;
    if (rule.empty() && !number(StageNumbers::kForward, place, index) &&
        !number(StageNumbers::kBackward, place, index))
      unread = "gradients of weights do not ask for the micro-batch";
    else if (rule.empty() && !number(StageNumbers::kBackward, place, index) &&
             !number("chunk_layers", place, slot.chunk()) &&
             !number("chunk_has_embedding", place, slot.chunk()))
      unread = "a chunk without layers passes on what it got";
    changeNumber("take another chunk", op, place, index,
                 changed(slot.chunk() ? 0 : 1, slot.microBatch()), rule);
    changeNumber("take another micro-batch", op, place, index,
                 changed(slot.chunk(), slot.microBatch() ? 0 : 1), unread);
  }

  //===--------------------------------------------------------------------===//
  // Messages
  //===--------------------------------------------------------------------===//

  /// Whether no place has a transfer that runs a message: one of its direction
  /// over its channel.
  bool neverRuns(Operation *message) {
    auto ofChannel = message->getParentOfType<rt::SwitchOp>();
    auto ofType =
        ofChannel ? ofChannel->getParentOfType<rt::SwitchOp>() : rt::SwitchOp();
    auto transfers = program.lookupSymbol<rt::NumbersOp>("transfers");
    if (!ofType || !transfers || !isa<rt::ForOp>(ofType->getParentOp()) ||
        cast<rt::ForOp>(ofType->getParentOp()).getName() != "transfer")
      return false;
    auto valueOf = [](rt::SwitchOp cases, Operation *inside) {
      return cases.getValues()[inside->getParentRegion()->getRegionNumber()];
    };
    int64_t channel = valueOf(ofChannel, message),
            type = valueOf(ofType, ofChannel);
    for (int64_t place = 0; place < program.getNumStages(); ++place)
      for (int64_t i = 0; i < transfers.getWidth(); ++i)
        if (number(StageNumbers::kTransferType, place, i) == type &&
            number(StageNumbers::kTransferChannel, place, i) == channel)
          return false;
    return true;
  }

  void findMessage(Operation *op) {
    const std::string never =
        neverRuns(op) ? "no transfer of any place is of this case" : "";
    add("drop a message", op, [op] { op->erase(); }, "", never);
    add(
        "repeat a message", op,
        [op] {
          OpBuilder builder(op->getContext());
          builder.setInsertionPointAfter(op);
          builder.clone(*op);
        },
        "", never);
    auto own = op->getAttrOfType<StringAttr>("channel");
    for (auto channel :
         program.getChannelsAttr().getAsRange<rt::ChannelAttr>()) {
      auto other = StringAttr::get(op->getContext(), channel.getName());
      if (other != own)
        add(
            "take another channel", op,
            [op, other] { op->setAttr("channel", other); },
            " in place of " + own.str(), never);
    }
    // Another buffer of the same type.
    auto buffer = op->getOperand(0).getDefiningOp<rt::BufferOp>();
    if (!buffer)
      return;
    rt::BufferOp another;
    program.walk([&](rt::BufferOp each) {
      if (each.getType() == buffer.getType() &&
          each.getName() != buffer.getName() && each.getIndices().empty())
        another = each;
    });
    if (another)
      add(
          "send or receive another buffer", op,
          [op, another] {
            OpBuilder builder(op);
            op->setOperand(0, builder.clone(*another)->getResult(0));
          },
          " '" + another.getName().str() + "'", never);
  }

  void findCases(rt::SwitchOp op) {
    for (auto [i, region] : llvm::enumerate(op.getCases())) {
      if (llvm::hasSingleElement(region.front()))
        continue;
      std::string how = " '" + op.getLabel(i).str() + "'";
      add(
          "drop a case", op,
          [op, i]() mutable {
            Block &block = op.getCases()[i].front();
            while (&block.front() != block.getTerminator())
              block.getTerminator()->getPrevNode()->erase();
          },
          how, "", onlyOrders(region));
    }
    if (op.getValues().size() > 1)
      add(
          "exchange two cases", op,
          [op]() mutable {
            SmallVector<int64_t> other(op.getValues());
            std::swap(other[0], other[1]);
            op.setValues(other);
          },
          " '" + op.getLabel(0).str() + "' and '" + op.getLabel(1).str() + "'",
          program.getNumStages() == 2 && onlyExchanges(op)
              ? "of two places each is next and previous to the other"
              : "",
          onlyOrders(op.getCases()[0]) && onlyOrders(op.getCases()[1]));
  }

  /// Whether the two ends of a chain exchange messages, each in its case.
  static bool onlyExchanges(rt::SwitchOp op) {
    return op.getLabel(0) == "embedding" && op.getLabel(1) == "head" &&
           llvm::all_of(op.getCases(), [](Region &region) {
             return llvm::all_of(region.front().without_terminator(),
                                 [](Operation &inner) {
                                   return isa<rt::SendOp, rt::ReceiveOp>(inner);
                                 });
           });
  }

  /// Cases of events alone: without them only order is missing.
  static bool onlyOrders(Region &region) {
    return !region
                .walk([](Operation *op) {
                  return isa<rt::WorkOpInterface, rt::CallOp>(op)
                             ? WalkResult::interrupt()
                             : WalkResult::advance();
                })
                .wasInterrupted();
  }

  //===--------------------------------------------------------------------===//
  // Places by stage
  //===--------------------------------------------------------------------===//

  void findPlace(rt::BufferOp op) {
    if (!op.getByStage())
      return;
    ArrayRef<int64_t> rows = *op.getByStage();
    int64_t count = program.getNumStages();
    size_t width = rows.size() / count;
    for (int64_t stage = 0; stage < count; ++stage) {
      changePlace(op, stage, " of stage " + std::to_string(stage),
                  "shift an offset of one stage",
                  [=](MutableArrayRef<int64_t> row) { row[0] += 64; });
      if (width > 1)
        changePlace(
            op, stage, " of stage " + std::to_string(stage),
            "halve a stride of one stage",
            [=](MutableArrayRef<int64_t> row) { row[1] = row[1] / 128 * 64; });
    }
  }

  void changePlace(rt::BufferOp op, int64_t stage, const std::string &how,
                   const char *kind,
                   std::function<void(MutableArrayRef<int64_t>)> change) {
    add(
        kind, op,
        [op, stage, change, count = program.getNumStages()]() mutable {
          SmallVector<int64_t> rows(*op.getByStage());
          size_t width = rows.size() / count;
          MutableArrayRef<int64_t> all(rows);
          change(all.slice(stage * width, width));
          op.setByStage(rows);
          op.setOffset(rows[0]);
          op.setStrides(all.slice(1, width - 1));
        },
        how, "", /*proven=*/true);
  }

  /// An arena that is 64 bytes too small on one stage.
  void findArenas() {
    ArrayAttr arenas = program.getArenas();
    for (auto [i, attribute] : llvm::enumerate(arenas)) {
      auto arena = cast<rt::ArenaAttr>(attribute);
      for (size_t stage = 0; stage < arena.getByStage().size(); ++stage) {
        SmallVector<int64_t> sizes(arena.getByStage());
        if (sizes[stage] < 64)
          continue;
        sizes[stage] -= 64;
        add(
            "cut an arena of one stage", program,
            [program = program, i, arena, sizes]() mutable {
              SmallVector<Attribute> all(program.getArenas().getValue());
              all[i] = rt::ArenaAttr::get(program.getContext(), arena.getName(),
                                          *llvm::max_element(sizes),
                                          arena.getMemory(), sizes);
              program.setArenasAttr(ArrayAttr::get(program.getContext(), all));
            },
            " '" + arena.getName().str() + "' " + std::to_string(stage), "",
            /*proven=*/true);
      }
    }
  }

  rt::ProgramOp program;
  bool placed;
  std::vector<Fault> faults;
};

} // namespace

std::vector<Fault> mutate::findStageProgramFaults(ModuleOp module,
                                                  bool placed) {
  for (auto program : module.getOps<rt::ProgramOp>())
    if (program.getStages())
      return StageProgramFaults(program, placed).find();
  return {};
}
