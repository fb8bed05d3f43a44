//===- VerifyFormats.cpp - formats are those that the plan names ----------===//
//
// What the pass promises is written once, in Passes.td.
//
//===----------------------------------------------------------------------===//

#include "dialects/Stage/Stage.h"
#include "passes/Precision/Formats.h"
#include "passes/Precision/Passes.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::precision;
using namespace heddle::transformer;

namespace heddle {
#define GEN_PASS_DEF_VERIFYFORMATSPASS
#include "passes/Precision/Passes.h.inc"
} // namespace heddle

namespace {

class Verifier {
public:
  Verifier(ModuleOp module, const Formats &formats)
      : module(module), formats(formats) {}

  LogicalResult run() {
    for (auto state : module.getOps<StateOp>())
      verifyState(state);
    for (auto function : module.getOps<func::FuncOp>())
      if (function.getSymName() != "step")
        verifySegment(function);
    module.walk([&](Operation *op) {
      if (auto cast = dyn_cast<CastOp>(op))
        verifyCast(cast);
      if (auto sum = dyn_cast<AccumulateOp>(op))
        verifyReduction(sum.getValue(), sum.getState(), sum);
      if (auto store = dyn_cast<StoreOp>(op)) {
        verifyReduction(store.getValue(), store.getState(), store);
        verifyStored(store);
      }
      if (auto update = dyn_cast<AdamWOp>(op))
        verifyUpdate(update);
      if (auto update = dyn_cast<SgdOp>(op))
        verifyUpdate(update);
    });
    return success(holds);
  }

private:
  InFlightDiagnostic fail(Operation *op) {
    holds = false;
    return op->emitOpError();
  }

  StateOp stateOf(StringRef name) { return module.lookupSymbol<StateOp>(name); }

  void verifyState(StateOp state) {
    Type expected = formats.of(state.getKind()),
         found = state.getTensorType().getElementType();
    if (found != expected)
      fail(state) << "is a " << stringifyStateKind(state.getKind()) << " in "
                  << found << "; the plan keeps these in " << expected;
  }

  void verifySegment(func::FuncOp function) {
    llvm::DenseSet<Value> gradients = findGradients(function);
    for (Operation &op : function.getBody().front())
      for (OpResult result : op.getResults())
        if (isFloat(result) && !gradients.contains(result))
          verifyResult(result);
    Operation *end = function.getBody().front().getTerminator();
    for (auto [i, value] : llvm::enumerate(end->getOperands()))
      if (function.getResultAttr(i, kGradientName) &&
          precision::formatOf(value) != formats.gradients)
        fail(end) << "returns the gradient '" << getName(value) << "' in "
                  << precision::formatOf(value) << "; the plan keeps these in "
                  << formats.gradients;
  }

  void verifyResult(OpResult result) {
    Operation *op = result.getOwner();
    Type found = precision::formatOf(result);
    if (handsOn(op)) {
      if (found != precision::formatOf(op->getOperand(0)))
        fail(op) << "hands " << precision::formatOf(op->getOperand(0))
                 << " on as " << found;
      return;
    }
    Type expected = isStatistic(result)
                        ? Type(Float32Type::get(result.getContext()))
                        : Type(formats.compute);
    if (found != expected)
      fail(op) << "makes '" << getName(result) << "' in " << found
               << (isStatistic(result) ? "; statistics are in "
                                       : "; the plan computes in ")
               << expected;
  }

  /// A rank's part of a sum may be rounded only on the way into a reduction
  /// whose format is named; and behind it to what gradients are kept in, where
  /// other axes are left to be added over.
  void verifyCast(CastOp cast) {
    dist::LayoutAttr layout = dist::getLayout(cast.getInput());
    Type from = precision::formatOf(cast.getInput()),
         to = precision::formatOf(cast.getResult());
    if (layout && layout.isPartial() && to != formats.reduce &&
        (from != formats.reduce || to != formats.gradients))
      fail(cast) << "casts a partial sum (" << layout.getShortForm() << ") to "
                 << precision::formatOf(cast.getResult()) << "; the plan names "
                 << formats.reduce << " for what is reduced";
  }

  static bool adds(Operation *op) {
    if (auto reshard = dyn_cast<dist::ReshardOp>(op))
      return dist::getLayout(reshard.getInput()).getPartial() !=
             dist::getLayout(reshard.getResult()).getPartial();
    return isa<dist::AllReduceOp, dist::ReduceScatterOp, stage::SumEndsOp>(op);
  }

  void verifyReduction(Value value, StringRef name, Operation *access) {
    StateKind kind = stateOf(name).getKind();
    if (kind != StateKind::Gradient && kind != StateKind::GradientSum)
      return;
    for (Operation *op = value.getDefiningOp();
         op && (handsOn(op) || isa<CastOp, stage::SumEndsOp>(op));
         op = op->getOperand(0).getDefiningOp())
      if (adds(op) && precision::formatOf(op->getOperand(0)) != formats.reduce)
        fail(op) << "reduces a gradient of @" << name << " in "
                 << precision::formatOf(op->getOperand(0))
                 << "; the plan names " << formats.reduce;
  }

  /// What makes a value, behind ops that hand it on.
  static Operation *makerOf(Value value) {
    Operation *maker = value.getDefiningOp();
    while (maker && handsOn(maker))
      maker = maker->getOperand(0).getDefiningOp();
    return maker;
  }

  /// A parameter is what its master is rounded to, or what is updated itself.
  void verifyStored(StoreOp store) {
    if (stateOf(store.getState()).getKind() != StateKind::Parameter)
      return;
    Operation *maker = makerOf(store.getValue());
    if (formats.master) {
      auto cast = dyn_cast_or_null<CastOp>(maker);
      maker = cast ? cast.getInput().getDefiningOp() : nullptr;
    }
    if (!isa_and_nonnull<AdamWOp, SgdOp>(maker))
      fail(store) << "stores a parameter that is no "
                  << (formats.master ? "rounded master" : "updated one");
  }

  template <class Update>
  void verifyUpdate(Update update) {
    auto load = dyn_cast_or_null<LoadOp>(makerOf(update.getParameter()));
    StateOp updated = load ? stateOf(load.getState()) : StateOp();
    const StateKind kind =
        formats.master ? StateKind::Master : StateKind::Parameter;
    if (!updated || updated.getKind() != kind)
      return void(fail(update)
                  << "updates a value that is no " << stringifyStateKind(kind));
    if (!formats.master)
      return; // what is stored is looked at where it is
    bool kept =
        llvm::any_of(update.getNewParameter().getUsers(), [&](Operation *user) {
          auto store = dyn_cast<StoreOp>(user);
          return store && store.getState() == updated.getSymName();
        });
    if (!kept)
      fail(update) << "does not store the master @" << updated.getSymName();
  }

  ModuleOp module;
  const Formats &formats;
  bool holds = true;
};

struct VerifyFormatsPass
    : heddle::impl::VerifyFormatsPassBase<VerifyFormatsPass> {
  void runOnOperation() override {
    FailureOr<std::optional<Formats>> formats = Formats::read(getOperation());
    if (failed(formats) ||
        (*formats && failed(Verifier(getOperation(), **formats).run())))
      signalPassFailure();
  }
};

} // namespace
