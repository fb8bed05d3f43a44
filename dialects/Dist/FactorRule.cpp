//===- FactorRule.cpp - reading, deriving and verifying by rules ----------===//

#include "dialects/Dist/Dist.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace heddle::dist;

bool FactorRule::isLinearIn(unsigned operand) const {
  return additive || llvm::is_contained(linear, operand);
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

namespace {
/// Reads one rule; the first thing wrong goes to `message`.
class RuleReader {
public:
  RuleReader(FactorRule &rule, std::string &message)
      : rule(rule), message(message) {}

  LogicalResult readLists(StringRef text, ArrayRef<int64_t> ranks,
                          SmallVector<SmallVector<unsigned>> &lists) {
    SmallVector<StringRef> parts;
    if (!text.trim().empty() || ranks.size() == 1)
      text.split(parts, ',');
    if (parts.size() != ranks.size())
      return fail(llvm::Twine("rule has ") + llvm::Twine(parts.size()) +
                  " entries for " + llvm::Twine(ranks.size()) +
                  " operands or results");
    for (auto [part, rank] : llvm::zip(parts, ranks))
      if (failed(readList(part, rank, lists.emplace_back())))
        return failure();
    return success();
  }

  LogicalResult readMark(StringRef text) {
    SmallVector<StringRef> words;
    llvm::SplitString(text, words);
    if (words.empty())
      return success();
    StringRef kind = words.front();
    if (kind == "additive") {
      rule.additive = true;
      return success();
    }
    for (StringRef word : ArrayRef(words).drop_front())
      if (failed(kind == "linear" ? readLinear(word)
                                  : readFactorMark(kind, word)))
        return failure();
    return success();
  }

private:
  LogicalResult fail(const llvm::Twine &what) {
    message = what.str();
    return failure();
  }

  unsigned factor(StringRef name) {
    auto [entry, isNew] = ids.try_emplace(name, rule.factors.size());
    if (isNew)
      rule.factors.push_back({name.str()});
    return entry->second;
  }

  LogicalResult readList(StringRef text, int64_t rank,
                         SmallVector<unsigned> &list) {
    SmallVector<StringRef> words;
    llvm::SplitString(text, words);
    bool elided = llvm::is_contained(words, "...");
    int64_t rest = rank - static_cast<int64_t>(words.size()) + (elided ? 1 : 0);
    if (rest < 0 || (!elided && rest != 0))
      return fail(llvm::Twine("a tensor of rank ") + llvm::Twine(rank) +
                  " where the rule has '" + text.trim() + "'");
    if (elided && ellipsis < 0)
      ellipsis = rest;
    if (elided && ellipsis != rest)
      return fail("'...' stands for " + llvm::Twine(ellipsis) + " and for " +
                  llvm::Twine(rest) + " dimensions");
    for (StringRef word : words) {
      if (word != "...")
        list.push_back(factor(word));
      else
        for (int64_t i = 0; i < rest; ++i)
          list.push_back(factor("." + std::to_string(i)));
    }
    return success();
  }

  LogicalResult readLinear(StringRef word) {
    unsigned operand;
    if (word.getAsInteger(10, operand) || operand >= rule.operands.size())
      return fail("'linear " + word + "' names no operand");
    rule.linear.push_back(operand);
    return success();
  }

  LogicalResult readFactorMark(StringRef kind, StringRef word) {
    SmallVector<unsigned> marked;
    if (word == "...") {
      for (int64_t i = 0; i < ellipsis; ++i)
        marked.push_back(factor("." + std::to_string(i)));
    } else if (!ids.contains(word)) {
      return fail("'" + kind + " " + word + "' names no factor of the rule");
    } else {
      marked.push_back(ids[word]);
    }
    for (unsigned id : marked) {
      FactorRule::Factor &f = rule.factors[id];
      if (kind == "sum")
        f.reduce = FactorRule::Reduce::Sum;
      else if (kind == "max")
        f.reduce = FactorRule::Reduce::Max;
      else if (kind == "whole")
        f.whole = true;
      else if (kind == "padded")
        f.padded = true;
      else if (kind == "position")
        f.position = true;
      else
        return fail("unknown mark '" + kind + "'");
    }
    return success();
  }

  FactorRule &rule;
  std::string &message;
  llvm::StringMap<unsigned> ids;
  int64_t ellipsis = -1;
};
} // namespace

FailureOr<FactorRule>
heddle::dist::parseFactorRule(StringRef text, ArrayRef<int64_t> operandRanks,
                              ArrayRef<int64_t> resultRanks,
                              std::string &message) {
  FactorRule rule;
  RuleReader reader(rule, message);
  SmallVector<StringRef> parts;
  text.split(parts, ';');
  auto [left, right] = parts.front().split("->");
  if (failed(reader.readLists(left, operandRanks, rule.operands)) ||
      failed(reader.readLists(right, resultRanks, rule.results)))
    return failure();
  for (StringRef mark : ArrayRef(parts).drop_front())
    if (failed(reader.readMark(mark)))
      return failure();
  return rule;
}

static FailureOr<FactorRule> readRuleOf(Operation *op, std::string &message) {
  auto ranks = [](TypeRange types) {
    SmallVector<int64_t> result;
    for (Type type : types)
      result.push_back(cast<RankedTensorType>(type).getRank());
    return result;
  };
  auto isTensor = [](Type type) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    return tensor && tensor.hasStaticShape();
  };
  if (!llvm::all_of(op->getOperandTypes(), isTensor) ||
      !llvm::all_of(op->getResultTypes(), isTensor)) {
    message =
        "an op with a factor rule has ranked tensors of static shape only";
    return failure();
  }
  return parseFactorRule(cast<FactorRuleOpInterface>(op).getFactorRule(),
                         ranks(op->getOperandTypes()),
                         ranks(op->getResultTypes()), message);
}

FailureOr<FactorRule> heddle::dist::getFactorRule(Operation *op) {
  std::string message;
  return readRuleOf(op, message);
}

//===----------------------------------------------------------------------===//
// Deriving
//===----------------------------------------------------------------------===//

static std::string quoted(ArrayRef<Attribute> axes) {
  std::string text = "{";
  for (auto [i, axis] : llvm::enumerate(axes))
    text +=
        (i ? ", \"" : "\"") + cast<StringAttr>(axis).getValue().str() + "\"";
  return text + "}";
}

namespace {
/// Derives the layouts of results from those of operands.
class Derivation {
public:
  Derivation(Operation *op, const FactorRule &rule,
             ArrayRef<LayoutAttr> operands, ArrayRef<LayoutAttr> wanted,
             llvm::function_ref<InFlightDiagnostic()> emitError)
      : op(op), rule(rule), operands(operands), wanted(wanted),
        emitError(emitError), axes(rule.factors.size()),
        padded(rule.factors.size(), 0) {
    for (LayoutAttr layout : operands)
      if (layout)
        mesh = layout.getMesh();
  }

  FailureOr<SmallVector<LayoutAttr>> run() {
    if (!mesh)
      return SmallVector<LayoutAttr>(rule.results.size());
    if (failed(collectAxes()))
      return failure();
    takeMade();
    if (failed(checkAxes()) || failed(collectPartial()) ||
        failed(collectRuns()))
      return failure();
    SmallVector<LayoutAttr> results;
    for (const SmallVector<unsigned> &factors : rule.results) {
      LayoutAttr layout = deriveResult(factors);
      if (!layout)
        return failure();
      results.push_back(layout);
    }
    return results;
  }

private:
  // F3: what a factor is cut by, from the operands that have it.
  LogicalResult collectAxes() {
    for (auto [operand, factors] : llvm::enumerate(rule.operands))
      for (auto [dim, factor] : llvm::enumerate(factors)) {
        LayoutAttr layout = operands[operand];
        ArrayAttr here =
            layout ? layout.getAxes(dim) : ArrayAttr::get(op->getContext(), {});
        if (axes[factor] && axes[factor] != here)
          return emitError()
                 << "factor '" << rule.factors[factor].name
                 << "' is split over " << quoted(axes[factor].getValue())
                 << " in one operand and over " << quoted(here.getValue())
                 << " in operand " << operand << " dim " << dim;
        axes[factor] = here;
        if (rule.factors[factor].whole && !here.empty()) // F4
          return emitError()
                 << "needs factor '" << rule.factors[factor].name
                 << "' whole, but it is split over " << quoted(here.getValue())
                 << " in operand " << operand << " dim " << dim;
        if (failed(checkPadding(operand, dim, factor)))
          return failure();
        if (layout)
          padded[factor] = layout.getPadded()[dim];
      }
    return success();
  }

  // A factor that no operand has is cut and stored as its result says.
  void takeMade() {
    for (auto [layout, factors] : llvm::zip(wanted, rule.results))
      for (auto [dim, factor] : llvm::enumerate(factors))
        if (layout && !axes[factor]) {
          axes[factor] = layout.getAxes(dim);
          padded[factor] = layout.getPadded()[dim];
        }
  }

  // F4: an op that needs a factor whole computes over all of it, so padding
  // would count as elements (a mean of 10 stored as 12 divides by 12), unless
  // it says that something else tells it what is padding.
  LogicalResult checkPadding(unsigned operand, unsigned dim, unsigned factor) {
    LayoutAttr layout = operands[operand];
    if (!layout || !rule.factors[factor].whole || rule.factors[factor].padded)
      return success();
    int64_t size = cast<RankedTensorType>(op->getOperand(operand).getType())
                       .getDimSize(dim);
    int64_t stored = layout.getStoredSize(dim, size);
    if (stored == size)
      return success();
    return emitError() << "needs factor '" << rule.factors[factor].name
                       << "' whole, but its " << size
                       << " elements are stored with padding as " << stored
                       << " in operand " << operand << " dim " << dim;
  }

  LogicalResult checkAxes() {
    llvm::StringMap<StringRef> used; // F4
    for (auto [factor, list] : llvm::zip(rule.factors, axes))
      for (Attribute axis : list ? list.getValue() : ArrayRef<Attribute>()) {
        auto [entry, isNew] =
            used.try_emplace(cast<StringAttr>(axis).getValue(), factor.name);
        if (!isNew)
          return emitError()
                 << "axis " << axis << " splits two factors, '" << entry->second
                 << "' and '" << factor.name << "'";
      }
    return success();
  }

  // F5: which partial sums pass.
  LogicalResult collectPartial() {
    for (auto [operand, layout] : llvm::enumerate(operands)) {
      if (layout && !layout.getPartialMax().empty())
        return emitError() << "operand " << operand
                           << " is a partial maximum over "
                           << quoted(layout.getPartialMax().getValue())
                           << "; reduce it first (dist.reshard)";
      ArrayRef<Attribute> here =
          layout ? layout.getPartial().getValue() : ArrayRef<Attribute>();
      if (!here.empty() && !rule.isLinearIn(operand))
        return emitError() << "is not linear in operand " << operand
                           << ", which is a partial sum over " << quoted(here)
                           << "; reduce it first (dist.reshard)";
      if (rule.additive && operand && !sameAxes(here, partial.getArrayRef()))
        return emitError() << "adds a partial sum over "
                           << quoted(partial.getArrayRef()) << " and one over "
                           << quoted(here)
                           << "; the whole one would be counted once per rank";
      for (Attribute axis : here)
        if (!partial.insert(axis) && !rule.additive)
          return emitError() << "two operands are partial sums over " << axis
                             << "; their product is not a sum";
    }
    return success();
  }

  // F8: a row of elements knows no dimensions, so only an op that treats all
  // its tensors alike, element by element, can compute on runs of it.
  LogicalResult collectRuns() {
    for (auto [operand, layout] : llvm::enumerate(operands))
      if (layout && !layout.getRuns().empty()) {
        runs = layout.getRuns();
        runFactors = rule.operands[operand];
      }
    if (!runs)
      return success();
    for (auto [operand, factors] : llvm::enumerate(rule.operands)) {
      if (factors.empty())
        continue;
      LayoutAttr layout = operands[operand];
      if (ArrayRef(factors) != runFactors)
        return emitError() << "has a tensor in runs over "
                           << quoted(runs.getValue()) << ", but operand "
                           << operand << " has other dimensions";
      if (!layout || layout.getRuns() != runs)
        return emitError() << "has a tensor in runs over "
                           << quoted(runs.getValue()) << ", but operand "
                           << operand << " is in runs over "
                           << quoted(layout ? layout.getRuns().getValue()
                                            : ArrayRef<Attribute>());
    }
    return success();
  }

  static bool sameAxes(ArrayRef<Attribute> a, ArrayRef<Attribute> b) {
    return a.size() == b.size() && llvm::all_of(a, [&](Attribute axis) {
             return llvm::is_contained(b, axis);
           });
  }

  LayoutAttr deriveResult(ArrayRef<unsigned> factors) {
    MLIRContext *context = op->getContext();
    llvm::SetVector<Attribute> sum(partial.begin(), partial.end()), max;
    for (auto [id, factor] : llvm::enumerate(rule.factors)) {
      if (llvm::is_contained(factors, id) || !axes[id] || axes[id].empty())
        continue;
      if (factor.reduce == FactorRule::Reduce::None) {
        emitError() << "drops factor '" << factor.name
                    << "', which is split over " << quoted(axes[id].getValue())
                    << ", without a reduction";
        return {};
      }
      llvm::SetVector<Attribute> &kind =
          factor.reduce == FactorRule::Reduce::Sum ? sum : max;
      kind.insert(axes[id].begin(), axes[id].end());
    }
    ArrayAttr inRuns = ArrayAttr::get(context, {});
    if (runs && factors == runFactors) {
      inRuns = runs;
    } else if (runs && factors.empty()) { // all dimensions are reduced
      sum.insert(runs.begin(), runs.end());
    } else if (runs) {
      emitError() << "has a tensor in runs over " << quoted(runs.getValue())
                  << ", but a result with other dimensions";
      return {};
    }
    SmallVector<Attribute> dims;
    SmallVector<int64_t> stored;
    for (unsigned id : factors) {
      dims.push_back(axes[id] ? axes[id] : ArrayAttr::get(context, {}));
      stored.push_back(padded[id]);
    }
    return LayoutAttr::getChecked(emitError, context, mesh,
                                  ArrayAttr::get(context, dims),
                                  DenseI64ArrayAttr::get(context, stored),
                                  inMeshOrder(sum), inMeshOrder(max), inRuns);
  }

  // Partial axes are a set: one order, so that equal layouts are equal
  // attributes.
  ArrayAttr inMeshOrder(const llvm::SetVector<Attribute> &set) {
    SmallVector<Attribute> ordered;
    for (Attribute name : mesh.getNames())
      if (set.contains(name))
        ordered.push_back(name);
    return ArrayAttr::get(op->getContext(), ordered);
  }

  Operation *op;
  const FactorRule &rule;
  ArrayRef<LayoutAttr> operands, wanted;
  llvm::function_ref<InFlightDiagnostic()> emitError;
  MeshAttr mesh;
  SmallVector<ArrayAttr> axes;
  SmallVector<int64_t> padded;
  llvm::SetVector<Attribute> partial;
  ArrayAttr runs; ///< null where no operand is in runs
  ArrayRef<unsigned> runFactors;
};
} // namespace

FailureOr<SmallVector<LayoutAttr>> heddle::dist::deriveResultLayouts(
    Operation *op, const FactorRule &rule, ArrayRef<LayoutAttr> operands,
    ArrayRef<LayoutAttr> results,
    llvm::function_ref<InFlightDiagnostic()> emitError) {
  return Derivation(op, rule, operands, results, emitError).run();
}

//===----------------------------------------------------------------------===//
// Verifying
//===----------------------------------------------------------------------===//

/// (F2): one size and one stored size per factor.
static LogicalResult verifySizes(Operation *op, const FactorRule &rule) {
  SmallVector<int64_t> sizes(rule.factors.size(), -1),
      stored(rule.factors.size(), -1);
  auto check = [&](StringRef what, unsigned index, Type type,
                   ArrayRef<unsigned> factors) -> LogicalResult {
    auto tensor = cast<RankedTensorType>(type);
    LayoutAttr layout = getLayout(type);
    for (auto [dim, factor] : llvm::enumerate(factors)) {
      int64_t size = tensor.getDimSize(dim);
      if (sizes[factor] >= 0 && sizes[factor] != size)
        return op->emitOpError()
               << "factor '" << rule.factors[factor].name << "' has size "
               << sizes[factor] << ", but dim " << dim << " of " << what << " "
               << index << " has size " << size;
      sizes[factor] = size;
      int64_t here = layout ? layout.getStoredSize(dim, size) : size;
      if (stored[factor] >= 0 && stored[factor] != here)
        return op->emitOpError()
               << "factor '" << rule.factors[factor].name << "' is stored as "
               << stored[factor] << ", but dim " << dim << " of " << what << " "
               << index << " as " << here;
      stored[factor] = here;
    }
    return success();
  };
  for (auto [i, type] : llvm::enumerate(op->getOperandTypes()))
    if (failed(check("operand", i, type, rule.operands[i])))
      return failure();
  for (auto [i, type] : llvm::enumerate(op->getResultTypes()))
    if (failed(check("result", i, type, rule.results[i])))
      return failure();
  return success();
}

/// (F7): an op is told its part of what it asks for, and of nothing else.
static LogicalResult verifyShards(Operation *op, const FactorRule &rule) {
  auto shards = op->getAttrOfType<DictionaryAttr>(kShardsName);
  for (NamedAttribute entry :
       shards ? shards.getValue() : ArrayRef<NamedAttribute>())
    if (llvm::none_of(rule.factors, [&](const FactorRule::Factor &factor) {
          return factor.position && factor.name == entry.getName().getValue();
        }))
      return op->emitOpError()
             << "has a shard of '" << entry.getName().getValue()
             << "', which is no factor whose position it needs";
  return success();
}

LogicalResult heddle::dist::verifyFactors(Operation *op) {
  std::string message;
  FailureOr<FactorRule> rule = readRuleOf(op, message);
  if (failed(rule)) // F1
    return op->emitOpError() << message;
  if (failed(verifySizes(op, *rule)) || failed(verifyShards(op, *rule)))
    return failure();
  auto layouts = [](TypeRange types) {
    return llvm::map_to_vector(types, [](Type t) { return getLayout(t); });
  };
  FailureOr<SmallVector<LayoutAttr>> expected = deriveResultLayouts(
      op, *rule, layouts(op->getOperandTypes()), layouts(op->getResultTypes()),
      [&] { return op->emitOpError(); });
  if (failed(expected))
    return failure();
  for (auto [i, layout] : llvm::enumerate(*expected)) { // F6
    LayoutAttr got = getLayout(op->getResult(i));
    if (got != layout)
      return op->emitOpError()
             << "result " << i << " must have layout "
             << (layout ? layout.getShortForm() : "none") << ", got "
             << (got ? got.getShortForm() : "none");
  }
  return success();
}
