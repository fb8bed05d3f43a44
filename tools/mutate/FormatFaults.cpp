//===- FormatFaults.cpp - Wrong formats, from Precision to Overlap --------===//

#include "tools/mutate/Fault.h"

#include "dialects/Stage/Stage.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::mutate;
using namespace heddle::transformer;

namespace {

void setFormat(Value value, Type format) {
  auto type = cast<RankedTensorType>(value.getType());
  value.setType(
      RankedTensorType::get(type.getShape(), format, type.getEncoding()));
}

Type formatOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getElementType();
}

class FormatFaults {
public:
  explicit FormatFaults(ModuleOp module)
      : symbols(module), builder(module.getContext()) {}

  std::vector<Fault> find(ModuleOp module) {
    module.walk([&](Operation *op) {
      if (auto cast = dyn_cast<CastOp>(op))
        findIn(cast);
      if (auto load = dyn_cast<LoadOp>(op))
        findIn(load);
      if (auto store = dyn_cast<StoreOp>(op))
        findIn(store);
      if (isa<ContractOp, GatedOp, RmsNormOp, LayerNormOp, AttentionOp,
              RowMaxOp, RowSumExpOp>(op))
        findResults(op);
    });
    return std::move(faults);
  }

private:
  void add(const char *kind, Operation *op, std::function<void()> plant) {
    faults.push_back({kind, describe(op), std::move(plant)});
  }

  void findIn(CastOp cast) {
    add("leave a cast out", cast, [cast]() mutable {
      cast.getResult().replaceAllUsesWith(cast.getInput());
      cast.erase();
    });
    SmallVector<Value> between = {cast.getResult()};
    while (between.back().hasOneUse()) {
      Operation *user = *between.back().user_begin();
      if (auto back = dyn_cast<CastOp>(user))
        return add("reduce in another format", cast,
                   [cast, back, between]() mutable {
                     for (Value value : between)
                       setFormat(value, formatOf(cast.getInput()));
                     cast.getResult().replaceAllUsesWith(cast.getInput());
                     back.getResult().replaceAllUsesWith(back.getInput());
                     back.erase();
                     cast.erase();
                   });
      if (!isa<dist::DistDialect, stage::StageDialect>(user->getDialect()) ||
          user->getNumResults() != 1)
        return;
      between.push_back(user->getResult(0));
    }
  }

  StateKind kindOf(StringRef state) {
    return symbols.lookup<StateOp>(state).getKind();
  }

  void findIn(LoadOp load) {
    if (kindOf(load.getState()) != StateKind::Master)
      return;
    add("update what is rounded", load, [this, load]() mutable {
      auto master = symbols.lookup<StateOp>(load.getState());
      auto parameter = symbols.lookup<StateOp>(*master.getOf());
      load.setState(parameter.getSymName());
      load.getResult().setType(parameter.getTensorType());
    });
  }

  void findIn(StoreOp store) {
    if (kindOf(store.getState()) == StateKind::Master)
      add("leave a master as it was", store, [store] { store->erase(); });
  }

  void findResults(Operation *op) {
    Type other = formatOf(op->getResults().back()).isF32()
                     ? Type(builder.getBF16Type())
                     : Type(builder.getF32Type());
    add("make a value in another format", op,
        [op, other] { setFormat(op->getResults().back(), other); });
  }

  SymbolTable symbols;
  Builder builder;
  std::vector<Fault> faults;
};

} // namespace

std::vector<Fault> mutate::findFormatFaults(ModuleOp module) {
  // Without formats there is one for all values.
  if (!module->hasAttr(kPrecisionName))
    return {};
  auto finder = std::make_shared<FormatFaults>(module);
  std::vector<Fault> faults = finder->find(module);
  for (Fault &fault : faults) // which looks states up when it is planted
    fault.plant = [finder, plant = std::move(fault.plant)] { plant(); };
  return faults;
}
