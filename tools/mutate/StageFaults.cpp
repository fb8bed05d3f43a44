//===- StageFaults.cpp - Slots, parts and neighbours, after Stages --------===//

#include "tools/mutate/Fault.h"

#include "dialects/Stage/StageTable.h"
#include "dialects/Stage/StateParts.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::mutate;
using namespace heddle::stage;
using transformer::LoopOp;

namespace {

constexpr const char *kCountsOnce = "both ends have the same to add";
constexpr Part kParts[] = {Part::Embedding, Part::Head, Part::Ends,
                           Part::Predecessor, Part::Successor};

class StageFaults {
public:
  StageFaults(ModuleOp module, StageTable stages)
      : module(module), stages(std::move(stages)), parts(module) {}

  std::vector<Fault> find() {
    module.walk([&](Operation *op) {
      llvm::TypeSwitch<Operation *>(op)
          .Case<TableOp, RunOp, WhereOp, SumEndsOp, LayersOp, LayerOp, LoopOp>(
              [&](auto each) { findIn(each); });
    });
    return std::move(faults);
  }

private:
  void add(const char *kind, Operation *op, std::string equivalent,
           std::function<void()> plant, const std::string &how = "") {
    faults.push_back(
        {kind, describe(op) + how, std::move(plant), std::move(equivalent)});
  }

  //===--------------------------------------------------------------------===//
  // The table
  //===--------------------------------------------------------------------===//

  void findIn(TableOp op) {
    const ScheduleTable &table = stages.schedule;
    for (int64_t place = 0; place < stages.places(); ++place) {
      auto length = static_cast<int64_t>(table.rows[place].size());
      for (int64_t i = 0; i < length; ++i) {
        std::string how = " " + slotText(table.rows[place][i]) + " of " +
                          std::to_string(place);
        auto change = [&](const char *kind, auto edit) {
          ScheduleTable changed = table;
          edit(changed.rows, changed.rows[place].begin() + i);
          addTable(kind, op, op.getLayers(), changed, how);
        };
        using Rows = std::vector<std::vector<Slot>>;
        using At = std::vector<Slot>::iterator;
        change("drop a slot",
               [&](Rows &rows, At at) { rows[place].erase(at); });
        change("duplicate a slot",
               [&](Rows &rows, At at) { rows[place].insert(at, *at); });
        if (i + 1 < length)
          change("swap slots",
                 [](Rows &, At at) { std::iter_swap(at, at + 1); });
        if (place + 1 < stages.places())
          change("move a slot to another place", [&](Rows &rows, At at) {
            rows[place + 1].insert(rows[place + 1].begin(), *at);
            rows[place].erase(at);
          });
      }
    }
    findPlacements(op);
    findLayers(op);
  }

  /// A stage at another chunk: its neighbours send to the wrong one.
  void findPlacements(TableOp op) {
    std::vector<std::vector<StageAt>> map;
    for (int64_t place = 0; place < stages.places(); ++place)
      for (int64_t chunk = 0; chunk < stages.chunks(); ++chunk) {
        if (chunk == 0)
          map.emplace_back();
        map.back().push_back(stages.schedule.placement.at(place, chunk));
      }
    int64_t count = stages.places() * stages.chunks();
    auto at = [&](auto &from, int64_t i) -> StageAt & {
      return from[i / stages.chunks()][i % stages.chunks()];
    };
    for (int64_t a = 0; a < count; ++a)
      for (int64_t b = a + 1; b < count; ++b) {
        auto other = map;
        std::swap(at(other, a), at(other, b));
        ScheduleTable changed = stages.schedule;
        changed.placement = *Placement::of(other);
        addTable("exchange the places of stages", op, op.getLayers(), changed,
                 " of chunks " + std::to_string(a) + " and " +
                     std::to_string(b));
      }
  }

  /// The last layer of a stage goes to the next one; or two stages exchange
  /// theirs.
  void findLayers(TableOp op) {
    const Placement &placement = stages.schedule.placement;
    for (int64_t stage = 0; stage + 1 < placement.stages(); ++stage) {
      PlanPlace from = placement.placeOf({0, stage}),
                to = placement.placeOf({0, stage + 1});
      PlanRange a = stages.layersOf(from.rank, from.chunk),
                b = stages.layersOf(to.rank, to.chunk);
      std::string how = " of stages " + std::to_string(stage) + " and " +
                        std::to_string(stage + 1);
      if (!(a.empty() && b.empty()))
        addTable("exchange layers", op, withLayers(op, {{from, b}, {to, a}}),
                 stages.schedule, how);
      if (a.empty())
        continue;
      if (b.empty())
        b = {a.last, a.last};
      b.first = a.last--;
      if (a.last < a.first)
        a = PlanRange();
      addTable("move a layer", op, withLayers(op, {{from, a}, {to, b}}),
               stages.schedule, how);
    }
  }

  ArrayAttr withLayers(TableOp op,
                       ArrayRef<std::pair<PlanPlace, PlanRange>> changes) {
    Builder builder(op.getContext());
    SmallVector<Attribute> places(op.getLayers().begin(), op.getLayers().end());
    for (const auto &[place, range] : changes) {
      auto old = cast<ArrayAttr>(places[place.rank]);
      SmallVector<Attribute> chunks(old.begin(), old.end());
      chunks[place.chunk] = builder.getStringAttr(range.text());
      places[place.rank] = builder.getArrayAttr(chunks);
    }
    return builder.getArrayAttr(places);
  }

  void addTable(const char *kind, TableOp op, ArrayAttr layers,
                const ScheduleTable &table, const std::string &how) {
    Builder builder(op.getContext());
    SmallVector<Attribute> rows;
    for (const std::string &row : writeRows(table))
      rows.push_back(builder.getStringAttr(row));
    auto plant = [layers, rows = builder.getArrayAttr(rows)](TableOp to) {
      to.setLayersAttr(layers);
      to.setRowsAttr(rows);
    };
    add(kind, op, ruleOf(op, plant), [op, plant] { plant(op); }, how);
  }

  /// Any table that can be run, and has room for its layers, is right.
  std::string ruleOf(TableOp op, llvm::function_ref<void(TableOp)> plant) {
    ScopedDiagnosticHandler quiet(op.getContext(),
                                  [](Diagnostic &) { return success(); });
    TableOp copy = op.clone();
    plant(copy);
    std::string rule;
    if (succeeded(verify(copy))) {
      StageTable other = *StageTable::read(copy);
      if (other.mostOfChunk() <= stages.mostOfChunk() &&
          other.mostOfPlace() <= stages.mostOfPlace())
        rule = "the table can be run, and there is room for its layers";
    }
    copy.erase();
    return rule;
  }

  //===--------------------------------------------------------------------===//
  // Parts
  //===--------------------------------------------------------------------===//

  /// By place and chunk, or by place: whether it has the part.
  std::vector<bool> have(Part part, bool byChunk) {
    std::vector<bool> result;
    for (int64_t place = 0; place < stages.places(); ++place)
      for (int64_t chunk = 0; chunk < (byChunk ? stages.chunks() : 1); ++chunk)
        result.push_back(byChunk ? stages.has(part, place, chunk)
                                 : stages.has(part, place));
    return result;
  }

  /// Whether values go only to what is sent or saved: where nobody receives
  /// them, or reads what was saved, they can be anything.
  static bool onlyLeaves(ValueRange values) {
    return llvm::all_of(values, [](Value value) {
      return llvm::all_of(value.getUses(), [](OpOperand &use) {
        auto yield = dyn_cast<YieldOp>(use.getOwner());
        return yield && isa<RunOp>(yield->getParentOp()) &&
               use.getOperandNumber() >= yield.getCarried().size();
      });
    });
  }

  void findIn(WhereOp op) {
    if (op.getPart() == Part::Last)
      return findLast(op);
    bool byChunk = static_cast<bool>(op.getChunk());
    std::vector<bool> own = have(op.getPart(), byChunk);
    for (Part part : kParts) {
      std::vector<bool> other = have(part, byChunk);
      bool more = llvm::all_of(llvm::zip(own, other), [](auto pair) {
        return !std::get<0>(pair) || std::get<1>(pair);
      });
      std::string rule;
      if (own == other)
        rule = "the same places have the part";
      else if (more && op.getNumResults() > 0 && onlyLeaves(op.getResults()))
        rule = "what more places send or save there, nobody looks at";
      else if (countsOnce(op, other))
        rule = kCountsOnce;
      if (part != op.getPart())
        add(
            "do it where another part is", op, rule,
            [op, part]() mutable { op.setPart(part); },
            wordsOf(op) + " to " + stringifyPart(part).str());
    }
    std::vector<bool> elsewhere = own;
    elsewhere.flip();
    if (!op.getOtherwise().empty())
      add(
          "exchange here and elsewhere", op,
          countsOnce(op, elsewhere) ? kCountsOnce : "",
          [op]() mutable {
            Region kept;
            kept.takeBody(op.getBody());
            op.getBody().takeBody(op.getOtherwise());
            op.getOtherwise().takeBody(kept);
          },
          wordsOf(op));
  }

  /// What is reduced in the last slot of a chunk, in each or in none.
  void findLast(WhereOp op) {
    bool alone = stages.schedule.microBatches == 1;
    op->walk([&](Operation *inner) {
      auto axes = inner->getAttrOfType<ArrayAttr>("axes");
      auto mesh = inner->getAttrOfType<dist::MeshAttr>("mesh");
      alone |= axes && mesh && mesh.getGroupSize(axes) == 1;
    });
    add("reduce in every slot", op,
        alone ? "there is one slot, or a group of one rank" : "",
        [op]() mutable {
          while (&op.getBody().front().front() !=
                 WhereOp::getYield(op.getBody()))
            op.getBody().front().front().moveBefore(op);
          op.erase();
        });
    add("reduce in no slot", op, "", [op]() mutable { op.erase(); });
  }

  /// Whether a parameter of both ends is added to a sum over all places at one
  /// of its two, and it does not matter at which.
  bool countsOnce(WhereOp op, const std::vector<bool> &places) {
    if (op.getChunk() || op.getNumResults() == 0)
      return false;
    for (Operation &inner : op.getBody().front())
      if (inner.hasAttr("state") && parts.partOf(&inner) != Part::Ends)
        return false;
    std::vector<bool> ends = have(Part::Ends, false);
    for (size_t place = 0; place < places.size(); ++place)
      if (places[place] && !ends[place])
        return false;
    return llvm::count(places, true) == 1;
  }

  static std::string wordsOf(WhereOp op) {
    return " " + stringifyPart(op.getPart()).str() +
           (op.getChunk() ? " of a chunk" : "");
  }

  void findIn(SumEndsOp op) {
    add("drop a sum over the ends", op,
        stages.placeOfEnd(Part::Embedding, 0) ==
                stages.placeOfEnd(Part::Head, 0)
            ? "one place has both ends"
            : "",
        [op]() mutable {
          op.replaceAllUsesWith(op.getInput());
          op.erase();
        });
  }

  //===--------------------------------------------------------------------===//
  // Layers
  //===--------------------------------------------------------------------===//

  void findIn(LayersOp op) {
    if (op.getChunk())
      add("count the layers of the place", op,
          stages.chunks() == 1 ? "a place has one chunk" : "",
          [op]() mutable { op.getChunkMutable().clear(); });
  }

  void findIn(LayerOp op) {
    bool zero = true;
    for (int64_t place = 0; place < stages.places(); ++place)
      for (int64_t chunk = 0; chunk < stages.chunks(); ++chunk)
        zero &= stages.countOf(place, chunk) == 0 ||
                stages.firstOf(place, chunk) == 0;
    add("miss where a chunk begins", op,
        zero ? "chunks begin with a place's first layer" : "", [op]() mutable {
          op.replaceAllUsesWith(op.getIndex());
          op.erase();
        });
  }

  void findIn(LoopOp op) {
    if (auto limit = op.getLimit() ? op.getLimit().getDefiningOp<LayersOp>()
                                   : LayersOp())
      add("drop a loop's limit", op,
          allHave(static_cast<int64_t>(op.getCount()),
                  limit.getChunk() != nullptr)
              ? "all have as many layers"
              : "",
          [op]() mutable { op.getLimitMutable().clear(); });
    if (op->getParentOfType<RunOp>() &&
        !op.getBody().front().getOps<func::CallOp>().empty())
      add("turn a loop round", op,
          stages.mostOfChunk() == 1 ? "no chunk has two layers"
          : op.getNumResults() == 0 ? "no layer reads what another makes"
                                    : "",
          [op]() mutable { op.setReversed(!op.getReversed()); });
  }

  bool allHave(int64_t count, bool byChunk) {
    for (int64_t place = 0; place < stages.places(); ++place) {
      if (!byChunk && stages.heldBy(place) != count)
        return false;
      for (int64_t chunk = 0; byChunk && chunk < stages.chunks(); ++chunk)
        if (stages.countOf(place, chunk) != count)
          return false;
    }
    return true;
  }

  //===--------------------------------------------------------------------===//
  // Regions of a run
  //===--------------------------------------------------------------------===//

  void findIn(RunOp op) {
    for (auto [name, region] : {std::pair("forward", &op.getForward()),
                                std::pair("backward", &op.getBackward()),
                                std::pair("weight", &op.getWeight())}) {
      if (region->empty())
        continue;
      findIndices(op, *region, name);
      if (region != &op.getWeight())
        findYield(op, *region, name);
    }
  }

  void findIndices(RunOp op, Region &region, const std::string &name) {
    bool alike = stages.chunks() == 1 && stages.schedule.microBatches == 1;
    Value chunk = RunOp::getChunk(region), micro = RunOp::getMicroBatch(region);
    for (auto [from, to, kind] :
         {std::tuple(chunk, micro, "take the micro-batch for the chunk"),
          std::tuple(micro, chunk, "take the chunk for the micro-batch")})
      for (OpOperand &use : from.getUses())
        add(
            kind, op, alike ? "there is one chunk and one micro-batch" : "",
            [&use, to] { use.set(to); },
            " " + name + ": " + describe(use.getOwner()));
  }

  void findYield(RunOp op, Region &region, const std::string &name) {
    bool forward = &region == &op.getForward();
    YieldOp yield = RunOp::getYield(region);
    for (auto [i, pair] :
         llvm::enumerate(llvm::zip(yield.getSent(), op.getReceived(forward))))
      add(
          "send on what was received", op,
          stages.schedule.placement.stages() == 1 ? "there is one stage" : "",
          [yield, i, to = std::get<1>(pair)]() mutable {
            yield.getSentMutable().slice(i, 1).assign(to);
          },
          " " + name);
    for (auto [i, carried] : llvm::enumerate(yield.getCarried()))
      add(
          "lose what is carried", op, "",
          [yield, i, to = op.getCarried()[i]]() mutable {
            yield.getCarriedMutable().slice(i, 1).assign(to);
          },
          " " + name);
    for (unsigned a = 0; a < yield.getSaved().size(); ++a)
      for (unsigned b = a + 1; b < yield.getSaved().size(); ++b)
        if (yield.getSaved()[a].getType() == yield.getSaved()[b].getType())
          add(
              "exchange what is saved", op,
              forward && readTogether(op, a, b)
                  ? "what reads them reads their sum"
                  : "",
              [yield, a, b]() mutable {
                Value first = yield.getSaved()[a], second = yield.getSaved()[b];
                yield.getSavedMutable().slice(a, 1).assign(second);
                yield.getSavedMutable().slice(b, 1).assign(first);
              },
              " " + name + " " + std::to_string(a) + " and " +
                  std::to_string(b));
  }

  /// Whether only the sum of two values that forward saves is read.
  static bool readTogether(RunOp op, unsigned a, unsigned b) {
    return llvm::all_of(ArrayRef<Region *>{&op.getBackward(), &op.getWeight()},
                        [&](Region *region) {
                          return region->empty() ||
                                 areAdded(op.getSaved(*region)[a],
                                          op.getSaved(*region)[b]);
                        });
  }

  /// Whether two values go only into one sum, or nowhere.
  static bool areAdded(Value a, Value b) {
    if (a.use_empty() && b.use_empty())
      return true;
    if (!a.hasOneUse() || !b.hasOneUse())
      return false;
    OpOperand &first = *a.use_begin(), &second = *b.use_begin();
    if (first.getOwner() != second.getOwner())
      return false;
    if (isa<transformer::AddOp>(first.getOwner()))
      return true;
    auto call = dyn_cast<func::CallOp>(first.getOwner());
    auto callee = call ? SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(
                             call, call.getCalleeAttr())
                       : func::FuncOp();
    return callee && areAdded(callee.getArgument(first.getOperandNumber()),
                              callee.getArgument(second.getOperandNumber()));
  }

  ModuleOp module;
  StageTable stages;
  StateParts parts;
  std::vector<Fault> faults;
};

} // namespace

std::vector<Fault> mutate::findStageFaults(ModuleOp module) {
  auto stages = StageTable::of(module);
  return stages ? StageFaults(module, std::move(*stages)).find()
                : std::vector<Fault>();
}
