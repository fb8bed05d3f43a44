//===- Machine.cpp - a module, its ranks and their states -----------------===//

#include "passes/Interpret/Interpret.h"
#include "passes/Interpret/Parts.h"
#include "passes/Interpret/Rank.h"

#include "llvm/ADT/StringExtras.h"

#include <limits>
#include <thread>

using namespace mlir;
using namespace heddle;
using namespace heddle::interpret;
using transformer::StackType;
using transformer::StateKind;
using transformer::StateOp;

struct Machine::Parts {
  Program program;
  std::vector<StateOp> states;
  std::vector<Rank> ranks;

  /// A rank's part, or, where its stage does not hold the state, that of the
  /// rank that stands where it does at the first stage that holds it.
  TensorPtr instanceFor(const Rank &rank, StateOp state, int64_t layer) const;
};

TensorPtr Machine::Parts::instanceFor(const Rank &rank, StateOp state,
                                      int64_t layer) const {
  std::string name = state.getSymName().str();
  if (auto index = rank.indexOf(state, layer))
    return rank.states.at(name)[*index];
  Builder builder(state.getContext());
  for (int64_t other : program.mesh.getGroup(
           rank.number, builder.getStrArrayAttr({stage::kStageAxis})))
    if (auto index = ranks[other].indexOf(state, layer))
      return ranks[other].states.at(name)[*index];
  return nullptr;
}

Machine::Machine(std::unique_ptr<Parts> parts) : parts(std::move(parts)) {}
Machine::Machine(Machine &&) = default;
Machine &Machine::operator=(Machine &&) = default;
Machine::~Machine() = default;

ModuleOp Machine::getModule() const { return parts->program.module; }
int64_t Machine::getNumRanks() const { return parts->program.numRanks; }
ArrayRef<StateOp> Machine::getStates() const { return parts->states; }

//===----------------------------------------------------------------------===//
// Layouts and whole types
//===----------------------------------------------------------------------===//

RankedTensorType heddle::interpret::getTensorType(Type type) {
  if (auto stack = dyn_cast<StackType>(type))
    return stack.getElementType();
  return dyn_cast<RankedTensorType>(type);
}

/// `type` without the layouts of its tensors.
static Type withoutLayout(Type type) {
  if (auto stack = dyn_cast<StackType>(type))
    return StackType::get(type.getContext(), stack.getCount(),
                          dist::withLayout(stack.getElementType(), {}));
  if (auto tensor = dyn_cast<RankedTensorType>(type))
    return dist::withLayout(tensor, {});
  return type;
}

/// The whole type of a value of type `type` with attributes `layout` and
/// `global`; `global` of a stack may be that of one entry.
static Type wholeTypeOf(Type type, Attribute global) {
  auto attribute = dyn_cast_if_present<TypeAttr>(global);
  if (!attribute)
    return withoutLayout(type);
  Type whole = withoutLayout(attribute.getValue());
  auto stack = dyn_cast<StackType>(type);
  auto entry = dyn_cast<RankedTensorType>(whole);
  return stack && entry
             ? StackType::get(type.getContext(), stack.getCount(), entry)
             : whole;
}

/// The layout by which ranks hold a value; null where it has no whole type
/// beside its own.
static dist::LayoutAttr layoutBeside(Attribute global, Attribute layout) {
  return global ? cast<dist::LayoutAttr>(layout) : dist::LayoutAttr();
}

static dist::LayoutAttr layoutOfArgument(func::FuncOp function, unsigned i) {
  return layoutBeside(function.getArgAttr(i, dist::kGlobalTypeName),
                      function.getArgAttr(i, dist::kLayoutName));
}

static dist::LayoutAttr layoutOfResult(func::FuncOp function, unsigned i) {
  return layoutBeside(function.getResultAttr(i, dist::kGlobalTypeName),
                      function.getResultAttr(i, dist::kLayoutName));
}

int64_t Machine::getCount(StateOp state) const {
  const auto &stages = parts->program.stages;
  return stages && state.getLayers() ? stages->layers() : state.getCount();
}

int64_t Machine::countLayers() const {
  int64_t layers = 0;
  for (StateOp state : parts->states)
    if (state.getLayers())
      layers = std::max(layers, getCount(state));
  return layers;
}

RankedTensorType Machine::getWholeType(StateOp state) const {
  return cast<RankedTensorType>(wholeTypeOf(
      state.getTensorType(), state->getAttr(dist::kGlobalTypeName)));
}

Type heddle::interpret::getWholeArgumentType(func::FuncOp function,
                                             unsigned index) {
  return wholeTypeOf(function.getArgument(index).getType(),
                     function.getArgAttr(index, dist::kGlobalTypeName));
}

std::string heddle::interpret::getArgumentName(func::FuncOp function,
                                               unsigned index) {
  auto name =
      function.getArgAttrOfType<StringAttr>(index, transformer::kArgumentName);
  return name ? name.str() : "argument " + std::to_string(index);
}

static std::string getResultName(func::FuncOp function, unsigned index) {
  auto name = function.getResultAttrOfType<StringAttr>(
      index, transformer::kArgumentName);
  return name ? name.str() : "result " + std::to_string(index);
}

//===----------------------------------------------------------------------===//
// Creating
//===----------------------------------------------------------------------===//

/// Checks that a value whose whole type is noted has a layout too, and the type
/// that follows; notes in `found` that it does. A layout alone is a plan's wish
/// for a whole tensor.
static LogicalResult checkLayout(Operation *op, const llvm::Twine &what,
                                 Type type, Attribute layout, Attribute global,
                                 bool &found) {
  if (!global)
    return success();
  auto attribute = dyn_cast_if_present<dist::LayoutAttr>(layout);
  auto whole = dyn_cast_if_present<TypeAttr>(global);
  if (!attribute || !whole)
    return op->emitOpError()
           << what << " needs a type as " << dist::kGlobalTypeName
           << " and a layout as " << dist::kLayoutName;
  found = true;
  RankedTensorType local = getTensorType(type),
                   tensor = getTensorType(withoutLayout(whole.getValue()));
  if (!local || !tensor || dist::getLayout(local))
    return op->emitOpError()
           << what << " has " << dist::kLayoutName << " beside type " << type
           << " and whole type " << whole;
  if (failed(attribute.verifyEncoding(tensor.getShape(),
                                      tensor.getElementType(),
                                      [&] { return op->emitOpError(); })))
    return failure();
  auto expected = dist::getLocalType(dist::withLayout(tensor, attribute));
  if (local != expected)
    return op->emitOpError()
           << what << " is " << local << ", but its part of " << tensor
           << " by " << attribute.getShortForm() << " is " << expected;
  return success();
}

static LogicalResult checkLayouts(func::FuncOp function, bool &found) {
  for (auto [i, type] : llvm::enumerate(function.getArgumentTypes()))
    if (failed(checkLayout(function, "argument " + llvm::Twine(i), type,
                           function.getArgAttr(i, dist::kLayoutName),
                           function.getArgAttr(i, dist::kGlobalTypeName),
                           found)))
      return failure();
  for (auto [i, type] : llvm::enumerate(function.getResultTypes()))
    if (failed(checkLayout(function, "result " + llvm::Twine(i), type,
                           function.getResultAttr(i, dist::kLayoutName),
                           function.getResultAttr(i, dist::kGlobalTypeName),
                           found)))
      return failure();
  return success();
}

/// A state's value before the first step; null where it has none.
static TensorPtr initialValueOf(StateOp state) {
  if (state.getKind() == StateKind::Parameter ||
      state.getKind() == StateKind::Gradient)
    return nullptr;
  return std::make_shared<const Tensor>(Tensor::zeros(state.getTensorType()));
}

/// Whether what a module does depends on the place that does it.
static bool asksForStages(ModuleOp module) {
  return module
      .walk([](Operation *op) {
        return isa<stage::StageDialect>(op->getDialect()) &&
                       !isa<stage::TableOp, stage::UndefinedOp>(op)
                   ? WalkResult::interrupt()
                   : WalkResult::advance();
      })
      .wasInterrupted();
}

/// A rank has to know its place, and the table what that holds.
static LogicalResult checkPlaces(ModuleOp module, const Program &program) {
  if (!program.stages)
    return module.emitOpError()
           << "asks for stages, but has no table of their slots";
  int64_t places = program.mesh.getIndex(stage::kStageAxis) < 0
                       ? 0
                       : program.mesh.getSize(stage::kStageAxis);
  if (places != program.stages->places())
    return module.emitOpError()
           << "has a mesh of " << places << " places over " << stage::kStageAxis
           << ", and a table of " << program.stages->places();
  for (auto state : module.getOps<StateOp>())
    if (state.getLayers() && state.getCount() < program.stages->mostOfPlace())
      return state.emitOpError()
             << "has room for " << state.getCount()
             << " layers, and a place holds " << program.stages->mostOfPlace();
  return success();
}

FailureOr<Machine> Machine::create(ModuleOp module, MachineOptions options) {
  auto parts = std::make_unique<Parts>();
  Program &program = parts->program;
  program.module = module;
  program.reading = options.reading;
  program.evaluators = Evaluators::of(*module.getContext());
  bool perRank = false;
  for (StateOp state : module.getOps<StateOp>()) {
    if (failed(checkLayout(state, "state", state.getType(),
                           state->getAttr(dist::kLayoutName),
                           state->getAttr(dist::kGlobalTypeName), perRank)))
      return failure();
    program.states[state.getSymName()] = state;
    program.sharing[Program::ownerOfBytes(state)].push_back(
        state.getSymName().str());
    parts->states.push_back(state);
  }
  for (func::FuncOp function : module.getOps<func::FuncOp>()) {
    if (failed(checkLayouts(function, perRank)))
      return failure();
    program.functions[function.getName()] = function;
  }
  bool byStage = asksForStages(module);
  if (perRank || byStage) {
    program.mesh = module->getAttrOfType<dist::MeshAttr>(dist::kMeshName);
    if (!program.mesh)
      return module.emitOpError()
             << (byStage ? "asks for stages" : "has layouts beside types")
             << ", but has no mesh (" << dist::kMeshName << ")";
    program.numRanks = program.mesh.getNumRanks();
  }
  if (byStage) {
    program.stages = stage::StageTable::of(module);
    program.stateParts.emplace(module);
    if (failed(checkPlaces(module, program)))
      return failure();
  }
  for (int64_t rank = 0; rank < program.numRanks; ++rank) {
    parts->ranks.emplace_back(program, rank);
    for (StateOp state : parts->states)
      parts->ranks.back().states[state.getSymName().str()].assign(
          state.getCount(), initialValueOf(state));
  }
  return Machine(std::move(parts));
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

static dist::LayoutAttr layoutOf(StateOp state) {
  return layoutBeside(state->getAttr(dist::kGlobalTypeName),
                      state->getAttr(dist::kLayoutName));
}

/// The state of this name, which has this layer; null after a message.
static StateOp findState(const Program &program, StringRef name, int64_t layer,
                         llvm::function_ref<int64_t(StateOp)> countOf) {
  StateOp state = program.states.lookup(name);
  if (!state) {
    ModuleOp(program.module).emitOpError()
        << "has no state @\"" << name << "\"";
    return {};
  }
  if (layer < 0 || layer >= countOf(state)) {
    state.emitOpError() << "has " << countOf(state)
                        << " instances, asked for number " << layer;
    return {};
  }
  return state;
}

/// Whether `tensor` is of type `type`.
static bool fits(const Tensor &tensor, RankedTensorType type) {
  return tensor.shape == type.getShape().vec() &&
         tensor.isInteger() != isa<FloatType>(type.getElementType()) &&
         tensor.getNumElements() == type.getNumElements();
}

LogicalResult Machine::setState(StringRef name, int64_t layer,
                                const Tensor &whole) {
  auto countOf = [&](StateOp state) { return getCount(state); };
  StateOp state = findState(parts->program, name, layer, countOf);
  if (!state)
    return failure();
  RankedTensorType type = getWholeType(state);
  if (!fits(whole, type))
    return state.emitOpError()
           << "takes " << type << ", got " << describe(whole);
  dist::LayoutAttr layout = layoutOf(state);
  if (layout && layout.isPartial())
    return state.emitOpError()
           << "is a partial sum, which has no one value per rank to set";
  Tensor rounded = whole;
  roundTo(rounded, type.getElementType(), parts->program.reading);
  for (Rank &rank : parts->ranks)
    if (auto index = rank.indexOf(state, layer))
      rank.states[name.str()][*index] = std::make_shared<const Tensor>(
          layout ? scatter(rounded, layout, rank.number) : rounded);
  return success();
}

FailureOr<Tensor> Machine::getState(StringRef name, int64_t layer,
                                    std::string *message) {
  auto countOf = [&](StateOp state) { return getCount(state); };
  StateOp state = findState(parts->program, name, layer, countOf);
  if (!state)
    return failure();
  auto fail = [&](const std::string &text) -> LogicalResult {
    if (!message)
      return state.emitOpError() << text;
    *message = "@\"" + name.str() + "\" of layer " + std::to_string(layer) +
               ": " + text;
    return failure();
  };
  std::vector<TensorPtr> held;
  for (Rank &rank : parts->ranks) {
    held.push_back(parts->instanceFor(rank, state, layer));
    if (!held.back())
      return fail("has not been given a value");
  }
  dist::LayoutAttr layout = layoutOf(state);
  if (!layout && parts->program.mesh)
    layout = dist::LayoutAttr::get(parts->program.mesh,
                                   state.getTensorType().getRank());
  if (!layout)
    return *held.front();
  std::string text;
  RankedTensorType type = getWholeType(state);
  FailureOr<Tensor> whole =
      gather(held, layout, type.getShape(), parts->program.reading, text);
  if (failed(whole))
    return fail(text);
  for (auto [rank, part] : llvm::enumerate(held))
    if (countPadding(*part, layout, type.getShape(), rank))
      return fail("has padding that is not zero on rank " +
                  std::to_string(rank));
  return whole;
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

/// What an input has where there is padding: no label is counted, and no token
/// is of a document of the batch.
static int64_t paddingOf(StringRef name) {
  if (name == "labels")
    return -100;
  return name == "documents" ? std::numeric_limits<int32_t>::min() : 0;
}

/// What `rank` gets for an argument.
static Datum makeArgument(const std::vector<Tensor> &entries, Type type,
                          dist::LayoutAttr layout, int64_t padding,
                          Reading reading, int64_t rank) {
  std::vector<TensorPtr> parts;
  for (const Tensor &entry : entries) {
    Tensor part = layout ? scatter(entry, layout, rank, padding) : entry;
    roundTo(part, getTensorType(type).getElementType(), reading);
    parts.push_back(std::make_shared<const Tensor>(std::move(part)));
  }
  if (isa<StackType>(type))
    return parts;
  return parts.front();
}

/// Checks that each argument has an input of its type, and each input an
/// argument.
static LogicalResult checkInputs(func::FuncOp function, const Inputs &inputs,
                                 const Program &program) {
  std::vector<std::string> names;
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    names.push_back(getArgumentName(function, i));
    auto input = inputs.find(names.back());
    if (input == inputs.end())
      return function.emitOpError()
             << "needs an input '" << names.back() << "'";
    Type type = getWholeArgumentType(function, i);
    RankedTensorType tensor = getTensorType(type);
    if (!tensor)
      return function.emitOpError() << "takes '" << names.back() << "' of type "
                                    << type << ", which cannot be given";
    auto stack = dyn_cast<StackType>(type);
    size_t count = stack ? stack.getCount() : 1;
    if (program.stages && names.back() == transformer::kLayerDropoutSeeds)
      count = program.stages->layers();
    if (input->second.size() != count)
      return function.emitOpError()
             << "takes " << count << " tensors for '" << names.back()
             << "', got " << input->second.size();
    for (const Tensor &entry : input->second)
      if (!fits(entry, tensor))
        return function.emitOpError()
               << "takes " << tensor << " for '" << names.back() << "', got "
               << describe(entry);
    auto layout = layoutOfArgument(function, i);
    if (layout && layout.isPartial())
      return function.emitOpError()
             << "takes '" << names.back()
             << "' as a partial sum, which cannot be given";
  }
  for (const auto &input : inputs)
    if (!llvm::is_contained(names, input.first))
      return function.emitOpError() << "has no argument '" << input.first
                                    << "'; it has " << llvm::join(names, ", ");
  return success();
}

/// The entries of an input of the step that a rank is given: of one per layer
/// those of the layers that its stage holds.
static std::vector<Tensor> entriesFor(const Rank &rank, const std::string &name,
                                      const std::vector<Tensor> &all) {
  const auto &stages = rank.program.stages;
  if (!stages || name != transformer::kLayerDropoutSeeds)
    return all;
  std::vector<Tensor> held;
  for (int64_t i = 0; i < stages->heldBy(rank.place()); ++i)
    held.push_back(all[stages->layerAt(rank.place(), i)]);
  return held;
}

static SmallVector<Datum> makeArguments(func::FuncOp function,
                                        const Inputs &inputs, Reading reading,
                                        const Rank &rank) {
  SmallVector<Datum> arguments;
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    std::string name = getArgumentName(function, i);
    // A label in padding must not count.
    arguments.push_back(makeArgument(
        entriesFor(rank, name, inputs.find(name)->second),
        function.getArgument(i).getType(), layoutOfArgument(function, i),
        paddingOf(name), reading, rank.number));
  }
  return arguments;
}

using RankResults = std::vector<FailureOr<SmallVector<Datum>>>;

/// Runs `function` on all ranks, each in a thread of its own where there are
/// several; reports what went wrong on the first rank where something did.
static FailureOr<RankResults> runRanks(func::FuncOp function,
                                       const Inputs &inputs,
                                       std::vector<Rank> &ranks,
                                       Reading reading) {
  Exchange exchange(ranks.size());
  RankResults results(ranks.size(), failure());
  auto runOne = [&](size_t i) {
    ranks[i].fault.reset();
    results[i] = ranks[i].call(
        function, makeArguments(function, inputs, reading, ranks[i]), exchange);
    exchange.finish(i);
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < ranks.size(); ++i)
    threads.emplace_back(runOne, i);
  runOne(0);
  for (std::thread &thread : threads)
    thread.join();
  for (const Rank &rank : ranks)
    if (rank.fault) {
      rank.fault->emit();
      return failure();
    }
  if (exchange.getFault()) {
    exchange.getFault()->emit();
    return failure();
  }
  return results;
}

/// Puts result `index` together from all ranks.
static FailureOr<NamedValue> gatherResult(func::FuncOp function, unsigned index,
                                          const RankResults &results,
                                          const Program &program) {
  NamedValue value;
  value.name = getResultName(function, index);
  Type whole =
      wholeTypeOf(function.getResultTypes()[index],
                  function.getResultAttr(index, dist::kGlobalTypeName));
  RankedTensorType type = getTensorType(whole);
  if (!type)
    return function.emitOpError()
           << "has result '" << value.name << "' of type " << whole
           << ", which cannot be returned";
  auto layout = layoutOfResult(function, index);
  if (!layout && program.mesh)
    layout = dist::LayoutAttr::get(program.mesh, type.getRank());
  auto entriesOf = [&](const FailureOr<SmallVector<Datum>> &rank) {
    const Datum &datum = (*rank)[index];
    if (const auto *tensor = std::get_if<TensorPtr>(&datum))
      return std::vector<TensorPtr>{*tensor};
    return std::get<std::vector<TensorPtr>>(datum);
  };
  size_t count = entriesOf(results.front()).size();
  for (size_t entry = 0; entry < count; ++entry) {
    std::vector<TensorPtr> held;
    for (const auto &rank : results) {
      held.push_back(entriesOf(rank)[entry]);
      if (!held.back())
        return function.emitOpError()
               << "has result '" << value.name
               << "', which is undefined on rank " << held.size() - 1;
    }
    std::string message;
    FailureOr<Tensor> tensor =
        layout ? gather(held, layout, type.getShape(), program.reading, message)
               : FailureOr<Tensor>(*held.front());
    if (failed(tensor))
      return function.emitOpError()
             << "has result '" << value.name << "' where " << message;
    value.entries.push_back(std::move(*tensor));
  }
  return value;
}

FailureOr<std::vector<NamedValue>> Machine::run(StringRef name,
                                                const Inputs &inputs) {
  const Program &program = parts->program;
  func::FuncOp function = program.functions.lookup(name);
  if (!function)
    return getModule().emitOpError() << "has no function @" << name;
  if (failed(checkInputs(function, inputs, program)))
    return failure();
  FailureOr<RankResults> results =
      runRanks(function, inputs, parts->ranks, program.reading);
  if (failed(results))
    return failure();
  std::vector<NamedValue> values;
  for (unsigned i = 0; i < function.getNumResults(); ++i) {
    FailureOr<NamedValue> value = gatherResult(function, i, *results, program);
    if (failed(value))
      return failure();
    values.push_back(std::move(*value));
  }
  return values;
}
