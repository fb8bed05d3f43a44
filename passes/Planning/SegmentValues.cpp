//===- SegmentValues.cpp - values of segments, as plans name them ---------===//

#include "passes/Planning/SegmentValues.h"

#include "dialects/Transformer/Transformer.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::transformer;

namespace {

using Factors = SmallVector<std::string>;

/// Follows factors through one function after the other: backward functions
/// find what forward saved.
class FactorFinder {
public:
  explicit FactorFinder(ModuleOp module) : module(module) {}

  std::vector<SegmentValue> run() {
    for (auto function : module.getOps<func::FuncOp>())
      if (function.getSymName() != "step")
        visit(function);
    return std::move(values);
  }

private:
  void visit(func::FuncOp function) {
    segment = function.getSymName();
    segment.consume_back("_bwd");
    factors.clear();
    for (BlockArgument argument : function.getArguments())
      factors[argument] = factorsOf(function, argument);
    if (function.getSymName() == "block")
      for (BlockArgument argument : function.getArguments())
        if (getName(argument) == "x" || getName(argument) == "delta")
          add(argument);
    for (Operation &op : function.getBody().front().without_terminator())
      visit(op);
    Operation *end = function.getBody().front().getTerminator();
    for (auto [i, value] : llvm::enumerate(end->getOperands()))
      if (auto saved = function.getResultAttrOfType<StringAttr>(i, kSavedName))
        save(saved.getValue(), value);
  }

  Factors factorsOf(func::FuncOp function, BlockArgument argument) {
    unsigned index = argument.getArgNumber();
    if (auto state =
            function.getArgAttrOfType<FlatSymbolRefAttr>(index, kStateName))
      return split(module.lookupSymbol<StateOp>(state.getAttr())
                       .getFactors()
                       .value_or(""));
    if (auto name = function.getArgAttrOfType<StringAttr>(index, kSavedName))
      return saved.lookup((segment + "." + name.getValue()).str());
    int64_t rank = cast<RankedTensorType>(argument.getType()).getRank();
    return split(rank == 3 ? "b s d" : rank == 2 ? "b s" : "");
  }

  static Factors split(StringRef text) {
    SmallVector<StringRef> words;
    llvm::SplitString(text, words);
    return llvm::map_to_vector(words, [](StringRef w) { return w.str(); });
  }

  void visit(Operation &op) {
    auto interface = dyn_cast<dist::FactorRuleOpInterface>(op);
    FailureOr<dist::FactorRule> rule = failure();
    if (!interface || failed(rule = dist::getFactorRule(&op)))
      return;
    // A spec's letters are the model's; other rules have letters of their own.
    std::vector<std::string> names(rule->factors.size());
    for (auto [name, factor] : llvm::zip(names, rule->factors))
      if (isa<ContractOp>(op))
        name = factor.name;
    for (auto [operand, list] : llvm::zip(op.getOperands(), rule->operands))
      for (auto [factor, name] : llvm::zip(list, factors.lookup(operand)))
        if (names[factor].empty())
          names[factor] = name;
    for (auto [result, list] : llvm::zip(op.getResults(), rule->results)) {
      Factors &found = factors[result];
      for (unsigned factor : list)
        found.push_back(names[factor].empty() ? rule->factors[factor].name
                                              : names[factor]);
      add(result);
    }
  }

  void add(mlir::Value value) {
    const Factors &list = factors[value];
    StringRef name = getName(value);
    if (!name.empty() && llvm::is_contained(list, "b"))
      values.push_back({(segment + "." + name).str(), llvm::join(list, " "),
                        cast<RankedTensorType>(value.getType())});
  }

  void save(StringRef name, mlir::Value value) {
    std::string key = (segment + "." + name).str();
    saved[key] = factors[value];
    for (SegmentValue &known : values)
      known.isSaved = known.isSaved || known.name == key;
  }

  ModuleOp module;
  StringRef segment;
  llvm::DenseMap<mlir::Value, Factors> factors; ///< of the function at hand
  llvm::StringMap<Factors> saved;
  std::vector<SegmentValue> values;
};

} // namespace

std::vector<SegmentValue> heddle::findSegmentValues(ModuleOp module) {
  return FactorFinder(module).run();
}
