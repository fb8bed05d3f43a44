//===- ReplaceSaved.cpp - backward computes again what was saved ----------===//
//
// What the pass promises is written once, in Passes.td.
//
//===----------------------------------------------------------------------===//

#include "dialects/Transformer/MergeValues.h"
#include "passes/Recompute/Passes.h"
#include "passes/Recompute/PlainProducts.h"
#include "passes/Recompute/Pull.h"
#include "passes/Recompute/StepCalls.h"

#include "heddle/Support/Check.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::recompute;
using namespace heddle::transformer;

namespace heddle {
#define GEN_PASS_DEF_REPLACESAVEDPASS
#include "passes/Recompute/Passes.h.inc"
} // namespace heddle

namespace {

/// A result that all functions of one kind have, under a name; some of them do
/// not make it.
struct Result {
  std::string name;
  RankedTensorType type;
  StringRef kind; ///< kSavedName or kKeptName
};

class Replacer {
public:
  Replacer(ModuleOp module, StepCalls &calls, PlainProducts plain)
      : module(module), calls(calls), forward(calls.getForward()),
        old(calls.getHalves()), plain(std::move(plain)),
        builder(module.getContext()) {}

  LogicalResult run(ArrayRef<Choice> choices) {
    if (failed(sortLayers(choices)))
      return failure();
    if (distinct.size() == 1 && distinct.front().repeated.empty() &&
        plain.empty())
      return success();
    makeFunctions();
    calls.replace(newForward, newHalves);
    for (func::FuncOp function : old)
      function.erase();
    forward.getFunction().erase();
    // What is saved may be what goes on.
    SymbolTable symbols(module);
    mergeResults(module, symbols);
    return success();
  }

private:
  /// Layers of one choice, and their functions.
  struct Distinct {
    Choice choice;
    Repeated repeated;
    SmallVector<bool> plain; ///< which products are
    int64_t layer;           ///< the first one
    Pulled pulled;
    std::string name; ///< behind the names of functions
  };

  /// Values that backward reads, as forward makes them.
  SmallVector<Value> needed() {
    llvm::SetVector<Value> values;
    for (func::FuncOp half : old)
      for (unsigned i = 0; i < half.getNumArguments(); ++i)
        if (auto name = half.getArgAttrOfType<StringAttr>(i, kSavedName))
          if (Value value = forward.saved(name.getValue()))
            values.insert(value);
    SmallVector<Value> inOrder;
    for (Operation &op : forward.getFunction().getBody().front())
      for (Value result : op.getResults())
        if (values.contains(result))
          inOrder.push_back(result);
    return inOrder;
  }

  LogicalResult sortLayers(ArrayRef<Choice> choices) {
    SmallVector<Value> values = needed();
    SmallVector<std::pair<Choice, Repeated>> known;
    for (auto [layer, choice] : llvm::enumerate(choices)) {
      auto entry =
          llvm::find_if(known, [&, &choice = choice](const auto &pair) {
            return pair.first == choice;
          });
      if (entry == known.end()) {
        FailureOr<Repeated> repeated = forward.resolve(choice, values);
        if (failed(repeated))
          return failure();
        known.emplace_back(choice, *repeated);
        entry = std::prev(known.end());
      }
      numbers.push_back(numberOf(choice, entry->second, layer));
    }
    return success();
  }

  /// Choices that repeat the same ops are one, for layers with the same
  /// formats.
  int64_t numberOf(const Choice &choice, const Repeated &repeated,
                   int64_t layer) {
    SmallVector<bool> key = plain.keyOf(layer);
    for (auto [i, one] : llvm::enumerate(distinct))
      if (one.repeated == repeated && one.choice.whole == choice.whole &&
          one.plain == key)
        return i;
    distinct.push_back({choice, repeated, key, layer, {}, ""});
    return distinct.size() - 1;
  }

  //===--------------------------------------------------------------------===//
  // Functions
  //===--------------------------------------------------------------------===//

  void makeFunctions() {
    nameChoices();
    for (Distinct &one : distinct)
      one.pulled =
          pull(forward, one.repeated, one.choice, old, ".again" + one.name);
    newForward.choices = numbers;
    SmallVector<Result> saved = allSaved();
    for (Distinct &one : distinct)
      newForward.functions.push_back(makeForward(one, saved));
    for (size_t i = 0; i < old.size(); ++i) {
      Callees callees;
      callees.choices = numbers;
      for (Distinct &one : distinct)
        callees.functions.push_back(one.pulled.halves[i]);
      makeEqual(callees.functions);
      newHalves.push_back(callees);
    }
    for (auto [i, one] : llvm::enumerate(distinct)) {
      takeName(newForward.functions[i], forward.getFunction(), one);
      PlainProducts::settle(newForward.functions[i], one.layer);
      for (auto [half, from] : llvm::zip(one.pulled.halves, old)) {
        takeName(half, from, one);
        PlainProducts::settle(half, one.layer);
      }
    }
  }

  void nameChoices() {
    llvm::StringMap<unsigned> taken;
    for (Distinct &one : distinct) {
      if (distinct.size() == 1)
        return;
      one.name = one.repeated.empty() ? "_saving" : "_recomputing";
      if (llvm::is_contained(one.plain, true))
        one.name += "_plain";
      if (unsigned number = taken[one.name]++)
        one.name += "_" + std::to_string(number + 1);
    }
  }

  /// The name of a function that goes; where all layers are alike, just that.
  static void takeName(func::FuncOp function, func::FuncOp from,
                       const Distinct &one) {
    std::string name = from.getName().str();
    if (one.name.empty())
      from.setSymName(name + ".gone");
    function.setSymName(name + one.name);
  }

  /// What any choice saves, in the order in which forward makes it.
  SmallVector<Result> allSaved() {
    SmallVector<Result> results;
    for (Operation &op : forward.getFunction().getBody().front())
      for (Value value : op.getResults())
        if (llvm::any_of(distinct, [&](const Distinct &one) {
              return one.pulled.saved.contains(value);
            }))
          results.push_back({forward.nameToSave(value),
                             cast<RankedTensorType>(value.getType()),
                             kSavedName});
    return results;
  }

  func::FuncOp makeForward(const Distinct &one, ArrayRef<Result> saved) {
    func::FuncOp from = forward.getFunction();
    builder.setInsertionPoint(from);
    IRMapping map;
    auto made = cast<func::FuncOp>(builder.clone(*from.getOperation(), map));
    made.setSymName((from.getName() + ".again" + one.name).str());
    Operation *end = made.getBody().front().getTerminator();
    for (unsigned i = made.getNumResults(); i-- > 0;)
      if (made.getResultAttr(i, kSavedName)) {
        (void)made.eraseResult(i);
        end->eraseOperand(i);
      }
    for (const Result &result : saved) {
      Value value = forward.saved(result.name);
      addResult(made, result,
                one.pulled.saved.contains(value) ? map.lookup(value) : Value());
    }
    return made;
  }

  /// Another result; undefined where there is no value.
  void addResult(func::FuncOp function, const Result &result, Value value) {
    Operation *end = function.getBody().front().getTerminator();
    unsigned at = function.getNumResults();
    NamedAttrList attributes;
    attributes.set(kArgumentName, builder.getStringAttr(result.name));
    attributes.set(result.kind, builder.getStringAttr(result.name));
    (void)function.insertResult(at, result.type,
                                attributes.getDictionary(builder.getContext()));
    if (!value) {
      OpBuilder before(end);
      value = stage::UndefinedOp::create(before, end->getLoc(), result.type);
    }
    end->insertOperands(at, value);
  }

  /// An argument's name; one function may be kept what another finds saved.
  StringAttr keyOf(func::FuncOp function, unsigned index) {
    auto name = function.getArgAttrOfType<StringAttr>(index, kArgumentName);
    return function.getArgAttr(index, kKeptName)
               ? builder.getStringAttr(name.getValue() + ", kept")
               : name;
  }

  /// Functions that a layer calls one of get one type: all arguments of any, in
  /// one order, and all results.
  void makeEqual(ArrayRef<func::FuncOp> functions) {
    if (functions.size() == 1)
      return;
    llvm::MapVector<StringAttr, std::pair<Type, DictionaryAttr>> arguments;
    llvm::MapVector<StringAttr, Result> results;
    for (func::FuncOp function : functions) {
      for (unsigned i = 0; i < function.getNumArguments(); ++i)
        arguments.try_emplace(keyOf(function, i),
                              function.getArgumentTypes()[i],
                              function.getArgAttrDict(i));
      for (unsigned i = 0; i < function.getNumResults(); ++i)
        if (auto name = function.getResultAttrOfType<StringAttr>(i, kKeptName))
          results.try_emplace(
              name, Result{name.str(),
                           cast<RankedTensorType>(function.getResultTypes()[i]),
                           kKeptName});
    }
    for (func::FuncOp function : functions) {
      setArguments(function, arguments);
      setKept(function, results);
    }
  }

  void setArguments(
      func::FuncOp function,
      const llvm::MapVector<StringAttr, std::pair<Type, DictionaryAttr>>
          &wanted) {
    llvm::DenseMap<StringAttr, BlockArgument> there;
    unsigned before = function.getNumArguments();
    for (BlockArgument argument : function.getArguments())
      there[keyOf(function, argument.getArgNumber())] = argument;
    for (auto &[name, what] : wanted) {
      (void)function.insertArgument(function.getNumArguments(), what.first,
                                    what.second, function.getLoc());
      if (BlockArgument argument = there.lookup(name))
        argument.replaceAllUsesWith(function.getArguments().back());
    }
    for (unsigned i = before; i-- > 0;)
      (void)function.eraseArgument(i);
  }

  void setKept(func::FuncOp function,
               const llvm::MapVector<StringAttr, Result> &wanted) {
    Operation *end = function.getBody().front().getTerminator();
    llvm::DenseMap<StringAttr, Value> there;
    for (unsigned i = function.getNumResults(); i-- > 0;)
      if (auto name = function.getResultAttrOfType<StringAttr>(i, kKeptName)) {
        there[name] = end->getOperand(i);
        (void)function.eraseResult(i);
        end->eraseOperand(i);
      }
    for (auto &[name, result] : wanted)
      addResult(function, result, there.lookup(name));
  }

  ModuleOp module;
  StepCalls &calls;
  Forward forward;
  SmallVector<func::FuncOp> old;
  PlainProducts plain;
  OpBuilder builder;
  std::vector<Distinct> distinct;
  SmallVector<int64_t> numbers; ///< of each layer's choice
  Callees newForward;
  SmallVector<Callees> newHalves;
};

struct ReplaceSavedPass : heddle::impl::ReplaceSavedPassBase<ReplaceSavedPass> {
  LogicalResult replace(ModuleOp module) {
    if (!module.lookupSymbol("step"))
      return success();
    FailureOr<PlainProducts> plain =
        PlainProducts::find(llvm::to_vector(module.getOps<func::FuncOp>()));
    if (failed(plain))
      return failure();
    if (!module->hasAttr(kRecomputeName) && plain->empty())
      return success();
    FailureOr<StepCalls> calls = StepCalls::find(module);
    if (failed(calls))
      return failure();
    auto choices = readChoices(module, calls->getLayers());
    if (failed(choices))
      return failure();
    return Replacer(module, *calls, std::move(*plain)).run(*choices);
  }

  void runOnOperation() override {
    if (failed(replace(getOperation())))
      signalPassFailure();
  }
};

} // namespace
