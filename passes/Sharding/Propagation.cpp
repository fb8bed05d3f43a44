//===- Propagation.cpp - layouts of one op, by its factor rule ------------===//

#include "passes/Sharding/Propagation.h"

#include "dialects/Dist/ReshardReason.h"
#include "dialects/Transformer/Scaling.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::sharding;
using dist::FactorRule;
using dist::LayoutAttr;

//===----------------------------------------------------------------------===//
// Axes of factors
//===----------------------------------------------------------------------===//

/// What the sources have decided so far about the factors of one op.
struct Propagation::Axes {
  explicit Axes(const FactorRule &rule)
      : rule(rule), axes(rule.factors.size()), padded(rule.factors.size(), 0),
        sources(rule.factors.size()) {}

  /// Factors that nothing has decided yet take their axes from `layout`. An
  /// axis that another factor has ends the list: what is left of it is cut
  /// further in.
  void take(ArrayRef<unsigned> factors, LayoutAttr layout,
            const llvm::Twine &source = "") {
    if (!runs && !layout.getRuns().empty())
      runs = layout.getRuns();
    for (auto [dim, factor] : llvm::enumerate(factors)) {
      if (layout.getPadded()[dim])
        padded[factor] = layout.getPadded()[dim];
      if (axes[factor])
        continue;
      sources[factor] = source.str();
      SmallVector<Attribute> &list = axes[factor].emplace();
      if (rule.factors[factor].whole)
        continue;
      for (Attribute axis : layout.getAxes(dim)) {
        if (!used.insert(axis).second)
          break;
        list.push_back(axis);
      }
    }
  }

  LayoutAttr layoutFor(ArrayRef<unsigned> factors, dist::MeshAttr mesh,
                       ArrayAttr partial) const {
    MLIRContext *context = mesh.getContext();
    SmallVector<Attribute> dims;
    SmallVector<int64_t> stored;
    for (unsigned factor : factors) {
      ArrayRef<Attribute> list =
          axes[factor] ? *axes[factor] : ArrayRef<Attribute>();
      dims.push_back(ArrayAttr::get(context, list));
      stored.push_back(padded[factor]);
    }
    LayoutAttr layout = LayoutAttr::get(mesh, ArrayAttr::get(context, dims),
                                        DenseI64ArrayAttr::get(context, stored))
                            .withPartial(partial);
    // Numbers beside tensors in runs (a learning rate) are whole.
    return runs && !factors.empty() ? layout.withRuns(runs) : layout;
  }

  /// "f over tp (parameter 'wg')"; which factors `keep` says.
  std::string describe(llvm::function_ref<bool(unsigned)> keep) const {
    SmallVector<std::string> parts;
    for (unsigned factor = 0; factor < axes.size(); ++factor)
      if (axes[factor] && !axes[factor]->empty() && keep(factor))
        parts.push_back(nameOf(factor) + " over " + joined(*axes[factor]) +
                        " (" + sources[factor] + ")");
    return llvm::join(parts, ", ");
  }

  /// Why an operand with `layout` does not fit: its factors, one by one.
  std::string describeWanted(ArrayRef<unsigned> factors,
                             LayoutAttr layout) const {
    SmallVector<std::string> parts;
    for (auto [dim, factor] : llvm::enumerate(factors)) {
      ArrayRef<Attribute> had = layout.getAxes(dim).getValue(),
                          wants = axes[factor] ? ArrayRef(*axes[factor])
                                               : ArrayRef<Attribute>();
      const std::string name = nameOf(factor);
      if (had == wants)
        continue;
      if (rule.factors[factor].whole)
        parts.push_back("needs " + name + " whole");
      else if (!wants.empty())
        parts.push_back(name + " over " + joined(wants) + " (" +
                        sources[factor] + ")");
      else if (std::string taken = describe([&](unsigned other) {
                 return llvm::any_of(*axes[other], [&](Attribute axis) {
                   return llvm::is_contained(had, axis);
                 });
               });
               !taken.empty())
        parts.push_back(name + " whole, since it has " + taken);
      else
        parts.push_back(name + " whole (" + sources[factor] + ")");
    }
    return llvm::join(parts, ", ");
  }

  /// A factor of `...` has no letter.
  std::string nameOf(unsigned factor) const {
    StringRef name = rule.factors[factor].name;
    return name.consume_front(".") ? ("dimension " + name).str() : name.str();
  }

  static std::string joined(ArrayRef<Attribute> list) {
    return llvm::join(
        llvm::map_range(
            list,
            [](Attribute axis) { return cast<StringAttr>(axis).getValue(); }),
        "+");
  }

  bool splitsOver(ArrayAttr partial) const {
    return llvm::any_of(partial,
                        [&](Attribute axis) { return used.contains(axis); });
  }

  const FactorRule &rule;
  SmallVector<std::optional<SmallVector<Attribute>>> axes;
  SmallVector<int64_t> padded;
  SmallVector<std::string> sources; ///< what decided, for people
  llvm::DenseSet<Attribute> used;
  ArrayAttr runs; ///< of the first operand that is in runs; null without
};

static std::string quotedName(Value value) {
  StringRef name = transformer::getName(value);
  return name.empty() ? "a value without name" : ("'" + name + "'").str();
}

//===----------------------------------------------------------------------===//
// Layouts of values
//===----------------------------------------------------------------------===//

LayoutAttr Propagation::layoutOf(Value value) const {
  if (LayoutAttr layout = dist::getLayout(value))
    return layout;
  return LayoutAttr::get(pinned.mesh,
                         cast<RankedTensorType>(value.getType()).getRank());
}

void Propagation::remember(Value value) {
  if (StringRef name = transformer::getName(value);
      !name.empty() && dist::getLayout(value))
    named[name] = dist::getLayout(value);
}

LayoutAttr Propagation::pinnedLayout(Value result) const {
  StringRef name = transformer::getName(result);
  return name.empty() ? LayoutAttr()
                      : pinned.values.lookup(segment + "." + name.str());
}

void Propagation::markGradient(Value value, LayoutAttr layout) {
  gradients[value] = layout;
  Operation *op = value.getDefiningOp();
  if (auto add = dyn_cast_or_null<transformer::AddOp>(op)) {
    markGradient(add.getLhs(), layout);
    markGradient(add.getRhs(), layout);
  }
  if (auto stack = dyn_cast_or_null<transformer::StackTensorsOp>(op))
    markParts(stack, layout);
}

/// Each part of a stacked gradient has the axes of the factors it shares.
void Propagation::markParts(transformer::StackTensorsOp stack,
                            LayoutAttr layout) {
  FailureOr<FactorRule> rule = dist::getFactorRule(stack);
  if (failed(rule))
    return;
  Axes axes(*rule);
  axes.take(rule->results[0], layout);
  for (auto [factors, input] : llvm::zip(rule->operands, stack.getInputs()))
    markGradient(
        input, axes.layoutFor(factors, layout.getMesh(), layout.getPartial()));
}

std::string Propagation::describeMade(Value value) const {
  if (std::string text = made.lookup(value); !text.empty())
    return text;
  auto argument = dyn_cast<BlockArgument>(value);
  if (!argument)
    return "comes so from " +
           value.getDefiningOp()->getName().getStringRef().str();
  auto function = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
  if (!function)
    return "the loop carries it so";
  unsigned index = argument.getArgNumber();
  if (function.getArgAttr(index, transformer::kStateName))
    return "a parameter: tensor.parameters";
  if (function.getArgAttr(index, transformer::kSavedName))
    return "forward has saved it so";
  return isa<FloatType>(getElementTypeOrSelf(value))
             ? "comes in as tensor.values has the edge of a block"
             : "an input of the step";
}

Value Propagation::reshard(Value value, LayoutAttr layout, Operation *user,
                           const llvm::Twine &why, StringRef wanted) {
  if (dist::getLayout(value) == layout)
    return value;
  auto type = cast<RankedTensorType>(value.getType());
  if (!dist::getLayout(
          value)) { // never seen by a rule: a constant, whole everywhere
    value.setType(dist::withLayout(
        type, LayoutAttr::get(layout.getMesh(), type.getRank())));
    if (dist::getLayout(value) == layout)
      return value;
  }
  auto &made = reshards[value];
  for (auto &[existing, moved] : made)
    if (existing == layout)
      return moved;
  // Beside the value, not in a loop that uses it: once, not in each iteration.
  OpBuilder builder(value.getParentBlock()->findAncestorOpInBlock(*user));
  std::string cause = why.str();
  Location where =
      NameLoc::get(builder.getStringAttr(cause),
                   dist::ReshardReason{quotedName(value), describeMade(value),
                                       wanted.empty() ? cause : wanted.str()}
                       .attach(user->getLoc()));
  auto op = dist::ReshardOp::create(builder, where,
                                    dist::withLayout(type, layout), value);
  if (StringRef name = transformer::getName(value); !name.empty())
    transformer::setNames(op, {name.str()});
  made.emplace_back(layout, op.getResult());
  return op.getResult();
}

/// The layout that `value` will be moved to, as far as can be seen before its
/// users are visited: what the plan pins, what leaves the function, what stands
/// beside it in an op; also behind ops that make of each element one element.
LayoutAttr Propagation::wantedLayout(Value value) const {
  if (LayoutAttr layout = pinnedLayout(value))
    return layout;
  if (LayoutAttr layout = leaving.lookup(value))
    return layout;
  for (OpOperand &use : value.getUses()) {
    Operation *user = use.getOwner();
    FailureOr<FactorRule> rule = failure();
    if (!isa<dist::FactorRuleOpInterface>(user) ||
        failed(rule = dist::getFactorRule(user)))
      continue;
    const auto &factors = rule->operands[use.getOperandNumber()];
    for (auto [other, list] : llvm::zip(user->getOperands(), rule->operands))
      if (LayoutAttr layout = dist::getLayout(other);
          layout && other != value && list == factors && !layout.isPartial())
        return layout;
    for (auto [result, list] : llvm::zip(user->getResults(), rule->results))
      if (list == factors)
        if (LayoutAttr layout = wantedLayout(result))
          return layout;
  }
  return {};
}

/// Whether a partial sum of layout `from` can be reduced and scattered to `to`.
static bool isScattered(LayoutAttr from, LayoutAttr to) {
  if (to.isPartial() || to.getPadded() != from.getPadded())
    return false;
  for (int64_t dim = 0; dim < from.getRank(); ++dim) {
    ArrayRef<Attribute> had = from.getAxes(dim).getValue(),
                        wants = to.getAxes(dim).getValue();
    if (wants.take_front(had.size()) != had ||
        !llvm::all_of(wants.drop_front(std::min(had.size(), wants.size())),
                      [&](Attribute axis) {
                        return llvm::is_contained(from.getPartial(), axis);
                      }))
      return false;
  }
  return true;
}

LayoutAttr Propagation::reducedLayout(Value value) const {
  LayoutAttr layout = layoutOf(value);
  StringRef name = transformer::getName(value);
  // d_v, and d_v.2 where several contributions are summed.
  if (name.consume_front("d_")) {
    LayoutAttr forward = named.lookup(name);
    if (!forward)
      forward = pinned.forward.lookup(segment + "." + name.str());
    if (forward && !forward.isPartial() &&
        forward.getRank() == layout.getRank())
      return forward;
  }
  if (LayoutAttr wanted = wantedLayout(value);
      wanted && isScattered(layout, wanted))
    return wanted;
  return layout.reduced();
}

//===----------------------------------------------------------------------===//
// Partial sums
//===----------------------------------------------------------------------===//

static int64_t largestResult(Operation *op) {
  int64_t elements = 0;
  for (Type type : op->getResultTypes())
    elements =
        std::max(elements, cast<RankedTensorType>(type).getNumElements());
  return elements;
}

/// Whether an op makes less of a partial operand than the operand is, so that
/// the sum is better taken behind it.
static bool makesLess(Operation *op, const FactorRule &rule, unsigned operand) {
  auto type = cast<RankedTensorType>(op->getOperand(operand).getType());
  return rule.isLinearIn(operand) &&
         (rule.additive || largestResult(op) < type.getNumElements());
}

/// Whether another use reduces the operand: a reduction that is paid for is
/// free.
bool Propagation::isReducedElsewhere(Operation *op, unsigned operand) const {
  Value value = op->getOperand(operand);
  auto made = reshards.find(value);
  if (made != reshards.end() && llvm::any_of(made->second, [](auto &entry) {
        return !entry.first.isPartial();
      }))
    return true;
  return llvm::any_of(value.getUses(), [&](OpOperand &use) {
    auto user = dyn_cast<dist::FactorRuleOpInterface>(use.getOwner());
    if (!user || user == op)
      return false;
    FailureOr<FactorRule> rule = dist::getFactorRule(user);
    return succeeded(rule) && !makesLess(user, *rule, use.getOperandNumber());
  });
}

/// Whether a partial operand goes through the op as a partial sum.
bool Propagation::mayPass(Operation *op, const FactorRule &rule,
                          unsigned operand) const {
  LayoutAttr layout = layoutOf(op->getOperand(operand));
  if (!layout.getPartialMax().empty() || !rule.isLinearIn(operand) ||
      op->hasAttr(transformer::kScaledName)) // rounding is not linear
    return false;
  if (rule.additive) // numbers: reducing the final sum costs what reducing one
                     // addend does
    return largestResult(op) <= 1 ||
           llvm::all_of(op->getOperands(), [&](Value other) {
             return layoutOf(other).isPartial();
           });
  if (!makesLess(op, rule, operand) || isReducedElsewhere(op, operand))
    return false;
  for (auto [other, value] : llvm::enumerate(op->getOperands()))
    for (Attribute axis : layout.getPartial())
      if (other < operand &&
          llvm::is_contained(layoutOf(value).getPartial(), axis))
        return false; // a product of two sums is no sum
  return true;
}

static ArrayAttr inMeshOrder(dist::MeshAttr mesh,
                             const llvm::SetVector<Attribute> &axes) {
  SmallVector<Attribute> ordered;
  for (Attribute name : mesh.getNames())
    if (axes.contains(name))
      ordered.push_back(name);
  return ArrayAttr::get(mesh.getContext(), ordered);
}

//===----------------------------------------------------------------------===//
// One op
//===----------------------------------------------------------------------===//

/// What one op sees of its operands: where one has to be reduced, it is seen as
/// it will be then.
struct Propagation::Operands {
  SmallVector<bool> reduce;
  SmallVector<LayoutAttr> seen;
  llvm::SetVector<Attribute> sum; ///< partial axes that pass through the op
};

Propagation::Operands Propagation::inspect(Operation *op,
                                           const FactorRule &rule) const {
  Operands operands;
  for (auto [i, value] : llvm::enumerate(op->getOperands())) {
    LayoutAttr layout = layoutOf(value);
    bool reduce = layout.isPartial() && !mayPass(op, rule, i);
    operands.reduce.push_back(reduce);
    operands.seen.push_back(reduce ? reducedLayout(value) : layout);
    if (!reduce)
      operands.sum.insert(layout.getPartial().begin(),
                          layout.getPartial().end());
  }
  return operands;
}

/// The first that decides: a parameter, what the plan pins, the parameter whose
/// gradient a result is, the operands in order; where only identifiers are left
/// to decide, which are whole, what is wanted of the results before them. A pin
/// that a parameter contradicts is met behind the op: moving a result costs
/// less than gathering weights.
void Propagation::chooseAxes(Operation *op, const Operands &operands,
                             Axes &axes) const {
  const FactorRule &rule = axes.rule;
  for (auto [i, value] : llvm::enumerate(op->getOperands()))
    if (parameters.contains(value))
      axes.take(rule.operands[i], operands.seen[i],
                "parameter " + quotedName(value));
  for (auto [i, result] : llvm::enumerate(op->getResults()))
    if (LayoutAttr layout = pinnedLayout(result))
      axes.take(rule.results[i], layout, "the plan pins " + quotedName(result));
  for (auto [i, result] : llvm::enumerate(op->getResults()))
    if (LayoutAttr layout = gradients.lookup(result))
      axes.take(rule.results[i], layout,
                "the parameter whose gradient is " + quotedName(result));
  auto takeOperands = [&](bool floats) {
    for (auto [i, value] : llvm::enumerate(op->getOperands()))
      if (isa<FloatType>(getElementTypeOrSelf(value)) == floats)
        axes.take(rule.operands[i], operands.seen[i], quotedName(value));
  };
  takeOperands(/*floats=*/true);
  for (auto [i, result] : llvm::enumerate(op->getResults()))
    if (LayoutAttr layout = wantedLayout(result))
      axes.take(rule.results[i], layout,
                "where " + quotedName(result) + " goes");
  takeOperands(/*floats=*/false);
}

/// "contract 'q'"
static std::string describeResult(Operation *op) {
  std::string text = op->getName().stripDialect().str();
  return op->getNumResults() ? text + " " + quotedName(op->getResult(0)) : text;
}

/// Reshards operands to the axes of their factors; returns their layouts then.
SmallVector<LayoutAttr> Propagation::moveOperands(Operation *op,
                                                  const Operands &operands,
                                                  const Axes &axes) {
  SmallVector<LayoutAttr> layouts;
  for (auto [i, value] : llvm::enumerate(op->getOperands())) {
    ArrayAttr partial = layoutOf(value).getPartial();
    bool reduce = operands.reduce[i];
    if (axes.rule.additive && !operands.sum.empty() && !reduce)
      partial = inMeshOrder(pinned.mesh,
                            operands.sum); // union: made partial for free
    if (reduce || axes.splitsOver(partial)) {
      partial = ArrayAttr::get(op->getContext(), {});
      reduce = true;
    }
    LayoutAttr wanted =
        axes.layoutFor(axes.rule.operands[i], pinned.mesh, partial);
    std::string details =
        axes.describeWanted(axes.rule.operands[i], layoutOf(value));
    if (details.empty() && !reduce)
      details = "is added to a part of a sum over " +
                Axes::joined(partial.getValue());
    op->setOperand(
        i,
        reshard(value, wanted, op,
                (reduce ? "needs the whole sum: " : "needs another layout: ") +
                    op->getName().getStringRef() + " operand " + llvm::Twine(i),
                describeResult(op) + (reduce ? " needs the whole sum" : "") +
                    (details.empty() ? "" : (reduce ? "; " : ": ")) + details));
    layouts.push_back(dist::getLayout(op->getOperand(i)));
  }
  return layouts;
}

void Propagation::moveToPinned(Value result) {
  LayoutAttr layout = pinnedLayout(result);
  if (!layout || dist::getLayout(result) == layout)
    return;
  Value moved = reshard(result, layout, result.getDefiningOp()->getNextNode(),
                        "pinned by the plan");
  result.replaceAllUsesExcept(moved, moved.getDefiningOp());
  remember(moved);
}

/// What decided about a result: the factors that it has, and those that were
/// summed.
std::string Propagation::describeLayout(Operation *op, LayoutAttr layout,
                                        ArrayRef<unsigned> factors,
                                        const Axes &axes) {
  auto has = [&](unsigned factor) {
    return llvm::is_contained(factors, factor);
  };
  std::string kept = axes.describe(has), text = describeResult(op);
  text += kept.empty() ? ": whole" : ": " + kept;
  if (!layout.isPartial())
    return text;
  std::string summed =
      axes.describe([&](unsigned factor) { return !has(factor); });
  StringRef kind = layout.getPartialMax().empty() ? "sum" : "maximum";
  return text + ", a part of the " + kind.str() +
         (summed.empty() ? " that its operands are parts of" : " of " + summed);
}

LogicalResult Propagation::visit(dist::FactorRuleOpInterface interface) {
  Operation *op = interface;
  FailureOr<FactorRule> rule = dist::getFactorRule(op);
  if (failed(rule))
    return op->emitOpError() << "has a factor rule that does not fit its types";
  Operands operands = inspect(op, *rule);
  Axes axes(*rule);
  chooseAxes(op, operands, axes);
  SmallVector<LayoutAttr> layouts = moveOperands(op, operands, axes);

  SmallVector<LayoutAttr> wanted =
      llvm::map_to_vector(rule->results, [&](ArrayRef<unsigned> factors) {
        return axes.layoutFor(factors, pinned.mesh,
                              ArrayAttr::get(op->getContext(), {}));
      });
  FailureOr<SmallVector<LayoutAttr>> results = dist::deriveResultLayouts(
      op, *rule, layouts, wanted, [&] { return op->emitOpError(); });
  if (failed(results))
    return failure();
  bool ofParameter = llvm::any_of(
      op->getOperands(), [&](Value v) { return parameters.contains(v); });
  for (auto [result, layout, factors] :
       llvm::zip(op->getResults(), *results, rule->results)) {
    if (!layout)
      layout = LayoutAttr::get(
          pinned.mesh, cast<RankedTensorType>(result.getType()).getRank());
    result.setType(
        dist::withLayout(cast<RankedTensorType>(result.getType()), layout));
    remember(result);
    made[result] = describeLayout(op, layout, factors, axes);
    moveToPinned(result);
    if (ofParameter && isa<transformer::SplitTensorsOp>(op))
      markParameter(result);
  }
  return success();
}
