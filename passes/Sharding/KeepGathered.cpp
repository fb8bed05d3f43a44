//===- KeepGathered.cpp - whole copies of parameters stored in runs -------===//
//
// What the pass promises is written once, in Passes.td.
//
//===----------------------------------------------------------------------===//

#include "passes/Sharding/Passes.h"
#include "passes/Sharding/Storage.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::sharding;
using namespace heddle::transformer;

namespace heddle {
#define GEN_PASS_DEF_KEEPGATHEREDPASS
#include "passes/Sharding/Passes.h.inc"
} // namespace heddle

namespace {

/// Adds a copy to each parameter of a module; lets calls read the copies.
class Keeper {
public:
  Keeper(ModuleOp module, func::FuncOp step)
      : module(module), step(step), builder(module.getContext()) {
    for (auto state : module.getOps<StateOp>())
      if (state.getKind() == StateKind::Parameter)
        parameters[state.getSymName()] = state;
  }

  void run(Storage::Gather gather) {
    step.walk([&](LoadOp load) {
      if (parameters.contains(load.getState()) &&
          llvm::all_of(load->getUsers(), llvm::IsaPred<func::CallOp>))
        loads.push_back(load);
    });
    if (gather == Storage::Gather::OncePerStep)
      fillAtBegin();
    llvm::StringSet<> filled;
    for (LoadOp load : loads) {
      std::string copy = copyOf(load.getState());
      if (gather == Storage::Gather::EveryMicroBatch &&
          filled.insert(load.getState()).second) { // forward comes first
        builder.setInsertionPointAfter(load);
        Value whole = load.getResult();
        auto again = makeLoad(load, copy);
        whole.replaceAllUsesWith(again.getResult());
        builder.setInsertionPoint(again);
        StoreOp::create(builder, load.getLoc(), whole, copy, load.getIndex());
      } else {
        builder.setInsertionPoint(load);
        load.getResult().replaceAllUsesWith(makeLoad(load, copy).getResult());
        load.erase();
      }
    }
  }

private:
  /// The name of the copy, which is made where there is none yet.
  std::string copyOf(StringRef parameter) {
    std::string name = (parameter + ".gathered").str();
    if (!copies.insert(name).second)
      return name;
    StateOp state = parameters.lookup(parameter);
    builder.setInsertionPointAfter(state);
    StateOp::create(builder, state.getLoc(), name, StateKind::Gathered,
                    state.getLayersAttr(), state.getTensorType(),
                    FlatSymbolRefAttr::get(builder.getContext(), parameter));
    return name;
  }

  LoadOp makeLoad(LoadOp like, StringRef state) {
    auto load =
        LoadOp::create(builder, like.getLoc(), like.getResult().getType(),
                       state, like.getIndex());
    setNames(load, {getName(like.getResult()).str()});
    return load;
  }

  void fillAtBegin() {
    llvm::StringSet<> filled;
    for (LoadOp load : loads) {
      if (!filled.insert(load.getState()).second)
        continue;
      std::string copy = copyOf(load.getState());
      builder.setInsertionPoint(firstLoop());
      Value index;
      if (std::optional<int64_t> layers =
              parameters.lookup(load.getState()).getLayers()) {
        auto loop = LoopOp::create(builder, load.getLoc(), TypeRange(),
                                   builder.getStringAttr("layer"),
                                   builder.getI64IntegerAttr(*layers),
                                   UnitAttr(), ValueRange(), IntegerAttr(),
                                   /*limit=*/Value());
        Block &body = loop.getBody().emplaceBlock();
        index = body.addArgument(builder.getIndexType(), load.getLoc());
        builder.setInsertionPointToEnd(&body);
        YieldOp::create(builder, load.getLoc(), ValueRange(), ValueRange());
        builder.setInsertionPointToStart(&body);
      }
      auto whole =
          LoadOp::create(builder, load.getLoc(), load.getResult().getType(),
                         load.getState(), index);
      setNames(whole, {getName(load.getResult()).str()});
      StoreOp::create(builder, load.getLoc(), whole.getResult(), copy, index);
    }
  }

  /// The loop over micro-batches that calls segments.
  Operation *firstLoop() {
    Operation *outer = loads.front();
    while (outer->getParentOp() != step)
      outer = outer->getParentOp();
    return outer;
  }

  ModuleOp module;
  func::FuncOp step;
  OpBuilder builder;
  llvm::StringMap<StateOp> parameters;
  SmallVector<LoadOp> loads;
  llvm::StringSet<> copies;
};

} // namespace

namespace heddle {
namespace {
struct KeepGatheredPass : impl::KeepGatheredPassBase<KeepGatheredPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<Storage> storage = Storage::read(module);
    if (failed(storage))
      return signalPassFailure();
    auto step = module.lookupSymbol<func::FuncOp>("step");
    if (step && !storage->parameter.empty() &&
        storage->gather != Storage::Gather::EveryPass)
      Keeper(module, step).run(storage->gather);
  }
};
} // namespace
} // namespace heddle
