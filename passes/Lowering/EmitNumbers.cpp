//===- EmitNumbers.cpp - What step.cpp names and numbers.bin holds --------===//

#include "passes/Lowering/EmitNumbers.h"

#include "heddle/Runtime/Numbers.h"

#include "mlir/IR/Matchers.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/xxhash.h"

#include <cstring>

using namespace mlir;
using llvm::formatv;

namespace heddle::lowering {

/// What people call an index of a buffer.
static std::string indexWord(Value index) {
  if (auto argument = dyn_cast<BlockArgument>(index)) {
    Operation *owner = argument.getOwner()->getParentOp();
    if (auto loop = dyn_cast<rt::ForOp>(owner))
      return loop.getName().str();
    return cast<StringAttr>(
               cast<rt::FuncOp>(owner).getArgNames()[argument.getArgNumber()])
        .str();
  }
  if (auto place = index.getDefiningOp<rt::RankIndexOp>())
    return "place over " +
           llvm::join(place.getAxes().getAsValueRange<StringAttr>(), ", ");
  if (auto lookup = index.getDefiningOp<rt::LookupOp>())
    return lookup.getTable().str();
  if (auto name = dyn_cast<NameLoc>(index.getLoc()))
    return name.getName().str();
  return "index";
}

ProgramNumbers::ProgramNumbers(rt::ProgramOp program, Namer &globals)
    : program(program), globals(globals) {
  for (auto axis : program.getMesh().getAsRange<rt::AxisAttr>()) {
    axes[axis.getName()] = counts.size();
    counts.push_back({globals.give("k" + upperCamel(axis.getName()) + "Ranks"),
                      ("ranks along " + axis.getName()).str(), axis.getSize()});
  }
  for (auto [i, arena] :
       llvm::enumerate(program.getArenas().getAsRange<rt::ArenaAttr>())) {
    std::vector<SmallVector<int64_t>> rows;
    for (int64_t stage = 0; stage < program.getNumStages(); ++stage)
      rows.push_back({arena.getBytesAt(stage)});
    addPlace(upperCamel(arena.getName()) + "Bytes", "size of the arena",
             int64_t(i), std::move(rows));
  }
  for (auto table : program.getOps<rt::NumbersOp>())
    tables.push_back(table);
  for (rt::FuncOp func : reachableFunctions(program))
    func.getBody().walk<WalkOrder::PreOrder>([&](Operation *op) {
      auto loop = dyn_cast<rt::ForOp>(op);
      if (loop && loop.getLower().value_or(0) != 0)
        addBound(loop, false, *loop.getLower(), lowers);
      if (loop && loop.getUpper())
        addBound(loop, true, *loop.getUpper(), uppers);
      if (auto buffer = dyn_cast<rt::BufferOp>(op);
          buffer && !buffer->use_empty())
        addBuffer(func, buffer);
      llvm::TypeSwitch<Operation *>(op).Case<rt::RecordOp, rt::WaitOp>(
          [&](auto of) { addEvents(of.getEvent(), of.getSlots()); });
      addOwn(op);
    });
}

void ProgramNumbers::addBound(rt::ForOp loop, bool isUpper, int64_t value,
                              Index &index) {
  // Loops over all of something have one bound. Others may have equal ones by
  // chance, which must not show.
  std::string words = loop.getName().str();
  std::string form = formatv("{0} {1}", isUpper, loop.getReversed());
  index[loop] = counts.size();
  if (loop.getLower() == 0) {
    auto [bound, isNew] =
        bounds.try_emplace({words, form, value}, counts.size());
    index[loop] = bound->second;
    if (!isNew)
      return;
  }
  counts.push_back(
      {globals.give("k" + upperCamel(words) + (isUpper ? "End" : "Begin")),
       (isUpper ? "behind the last " : "the first ") + words + " of a loop",
       value});
}

void ProgramNumbers::addEvents(StringRef event, std::optional<int64_t> slots) {
  if (!slots)
    return;
  auto known = llvm::find_if(
      eventRows, [&](const EventRow &row) { return row.name == event; });
  if (known != eventRows.end()) {
    int64_t &count = counts[known->count].value;
    count = std::max(count, *slots);
    return;
  }
  eventRows.push_back({event.str(), counts.size()});
  counts.push_back({globals.give("k" + upperCamel(event) + "Events"),
                    ("events '" + event + "', used in turn").str(), *slots});
}

/// The row that a piece of work goes over; null where it goes over more.
static Value rowOf(Operation *op) {
  Value row =
      llvm::TypeSwitch<Operation *, Value>(op)
          .Case([](rt::KernelLaunchOp launch) {
            auto kernel = SymbolTable::lookupNearestSymbolFrom<rt::KernelOp>(
                launch, launch.getKernelAttr());
            bool isFlat = kernel.getSkeleton() == rt::Skeleton::elementwise ||
                          kernel.getSkeleton() == rt::Skeleton::reduce_all;
            for (auto [operand, group] :
                 llvm::zip(kernel.getOperandList(), launch.getGroups(kernel)))
              if (isFlat && operand.getKind() == rt::OperandKind::full)
                return Value(group[0]);
            return Value();
          })
          .Case<rt::CopyOp, rt::AllReduceOp, rt::PermuteOp>(
              [](auto work) { return Value(work.getInput()); })
          .Case<rt::ZeroOp, rt::PoisonOp>(
              [](auto work) { return Value(work.getOutput()); })
          .Case([](rt::ReduceScatterOp work) {
            return work.getOuter() == 1 ? Value(work.getOutput()) : Value();
          })
          .Case([](rt::AllGatherOp work) {
            return work.getOuter() == 1 ? Value(work.getInput()) : Value();
          })
          .Case<rt::SendOp, rt::ReceiveOp>(
              [](auto work) { return Value(work.getBuffer()); })
          .Default([](Operation *) { return Value(); });
  return row && cast<rt::BufType>(row.getType()).getRank() == 1 ? row : Value();
}

/// What the text calls the buffer that a value is a part of.
static std::string nameOfBuffer(Value value) {
  while (auto view = value.getDefiningOp<rt::ViewOp>())
    value = view.getSource();
  if (auto buffer = value.getDefiningOp<rt::BufferOp>())
    return buffer.getName().str();
  auto argument = cast<BlockArgument>(value);
  auto func = cast<rt::FuncOp>(argument.getOwner()->getParentOp());
  return cast<StringAttr>(func.getArgNames()[argument.getArgNumber()])
      .getValue()
      .str();
}

/// Whether a view is this rank's part of a row.
static bool isRun(rt::ViewOp view) {
  return view.getType().getRank() == 1 && view.getIndices().size() == 1 &&
         view.getIndices()[0].getDefiningOp<rt::RankIndexOp>();
}

void ProgramNumbers::addOwn(Operation *op) {
  if (Value row = rowOf(op))
    return addOwn(op, row, "Elements", "elements of ",
                  cast<rt::BufType>(row.getType()).getNumElements());
  constexpr StringLiteral toNext =
      "from one rank's elements to the next one's of ";
  if (auto view = dyn_cast<rt::ViewOp>(op); view && isRun(view))
    return addOwn(op, view.getSource(), "Run", toNext, view.getStrides()[0]);
  APInt constant;
  for (Operation *user : op->getUsers()) {
    auto view = dyn_cast<rt::ViewOp>(user);
    if (auto place = dyn_cast<rt::RankIndexOp>(op);
        view && place && isRun(view) && place.getStep() != 1)
      return addOwn(op, view.getSource(), "Step", toNext, place.getStep());
    auto buffer = dyn_cast<rt::BufferOp>(user);
    if (buffer && matchPattern(op, m_ConstantInt(&constant)) &&
        !constant.isZero())
      return addOwn(op, buffer.getResult(), "Index", "which one of ",
                    constant.getSExtValue());
  }
}

void ProgramNumbers::addOwn(Operation *op, Value row, StringRef word,
                            StringRef what, int64_t value) {
  // Each op has its own: rows of one length may have another one elsewhere.
  std::string name = nameOfBuffer(row);
  own[op] = counts.size();
  counts.push_back({globals.give("k" + upperCamel(name) + word.str()),
                    what.str() + name, value});
}

size_t ProgramNumbers::addPlace(const std::string &wish, std::string comment,
                                int64_t arena,
                                std::vector<SmallVector<int64_t>> rows) {
  int64_t at = numPlaces;
  numPlaces += rows.front().size();
  places.push_back({globals.give("k" + wish), std::move(comment), arena, at,
                    std::move(rows)});
  return places.size() - 1;
}

std::string ProgramNumbers::stridesComment(rt::BufferOp buffer) const {
  std::string strides;
  for (Value index : buffer.getIndices())
    strides += formatv(", + {0} * stride", indexWord(index));
  std::string type;
  llvm::raw_string_ostream os(type);
  // How long a row is depends on how many ranks it is cut over.
  if (buffer.getType().getRank() == 1) {
    os << "row of " << buffer.getType().getElementType();
    return type + strides;
  }
  os << buffer.getType();
  StringRef shape = StringRef(type).drop_front(strlen("!rt.buf<")).drop_back();
  return (shape + strides).str();
}

void ProgramNumbers::addBuffer(rt::FuncOp func, rt::BufferOp buffer) {
  std::vector<SmallVector<int64_t>> rows;
  for (int64_t stage = 0; stage < program.getNumStages(); ++stage)
    rows.push_back(buffer.getPlaceAt(stage));
  // Whether buffers of different functions lie at one offset depends on sizes,
  // and the text must not: so only what lives longer than a call is looked for
  // in all of them.
  auto kind = buffer->getAttrOfType<StringAttr>("memory_class");
  bool isLocal = kind && (kind.getValue() == "workspace" ||
                          kind.getValue() == "communication");
  std::string form = stridesComment(buffer);
  StringRef scope = isLocal ? func.getSymName() : StringRef();
  std::vector<size_t> &same = alike[formatv(
      "{0}\n{1}\n{2}\n{3}", buffer.getArena(), buffer.getName(), scope, form)];
  for (size_t place : same)
    if (places[place].rows == rows) {
      buffers[buffer] = place;
      return;
    }
  same.push_back(addPlace(
      upperCamel(buffer.getName()),
      formatv("{0}: {1}; {2}", buffer.getName(), buffer.getReason(), form),
      program.getArenaIndex(buffer.getArena()), std::move(rows)));
  buffers[buffer] = same.back();
}

StringRef ProgramNumbers::sizeOf(StringRef axis) const {
  return counts[axes.lookup(axis)].name;
}

StringRef ProgramNumbers::placeOf(rt::BufferOp buffer) const {
  return places[buffers.at(buffer)].name;
}

StringRef ProgramNumbers::nameIn(const Index &index, Operation *op) const {
  auto found = index.find(op);
  return found == index.end() ? StringRef()
                              : StringRef(counts[found->second].name);
}

//===----------------------------------------------------------------------===//
// numbers.bin
//===----------------------------------------------------------------------===//

uint64_t ProgramNumbers::key() const {
  std::string names;
  for (const Count &count : counts)
    names += count.name + "\n";
  for (const Place &place : places)
    names += formatv("{0} {1}\n", place.name, place.at);
  for (rt::NumbersOp table : tables)
    names += (table.getSymName() + "\n").str();
  return llvm::xxh3_64bits(names);
}

template <class Number>
static void append(std::string &bytes, Number number) {
  char raw[sizeof number];
  std::memcpy(raw, &number, sizeof number);
  bytes.append(raw, sizeof number);
}

std::string ProgramNumbers::encode() const {
  rt::ProgramOp of = program;
  int64_t entries = 0;
  for (rt::NumbersOp table : tables)
    entries += int64_t(table.getValues().size());
  NumbersHeader header = {{},
                          key(),
                          int64_t(counts.size()),
                          of.getNumStages(),
                          numPlaces,
                          int64_t(tables.size()),
                          entries};
  std::memcpy(header.magic, kNumbersMagic, sizeof header.magic);
  std::string bytes;
  append(bytes, header);
  for (const Count &count : counts)
    append(bytes, count.value);
  for (int64_t stage = 0; stage < of.getNumStages(); ++stage)
    for (const Place &place : places)
      for (int64_t number : place.rows[stage])
        append(bytes, number);
  for (rt::NumbersOp table : tables) {
    append(bytes, table.getNumRows());
    append(bytes, int64_t(table.getWidth()));
  }
  for (rt::NumbersOp table : tables)
    for (int64_t number : table.getValues())
      append(bytes, int32_t(number));
  return bytes;
}

} // namespace heddle::lowering
