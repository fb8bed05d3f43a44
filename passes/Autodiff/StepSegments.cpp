//===- StepSegments.cpp - what the step is made of ------------------------===//

#include "passes/Autodiff/StepBuilder.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;

namespace heddle::autodiff {

using namespace transformer;

//===----------------------------------------------------------------------===//
// The optimizer
//===----------------------------------------------------------------------===//

FailureOr<Optimizer> Optimizer::read(ModuleOp module) {
  auto given = module->getAttrOfType<DictionaryAttr>(kOptimizerName);
  auto kind = given ? given.getAs<StringAttr>("kind") : StringAttr();
  if (!kind || (kind.getValue() != "adamw" && kind.getValue() != "sgd"))
    return module.emitError()
           << "the module needs the attribute " << kOptimizerName
           << " = {kind = \"adamw\" or \"sgd\", ...}, found "
           << (given ? Attribute(given)
                     : StringAttr::get(module.getContext(), "none"));
  Optimizer result;
  result.isAdamW = kind.getValue() == "adamw";
  llvm::StringMap<double *> wanted = {{"weight_decay", &result.weightDecay}};
  if (result.isAdamW) {
    wanted["beta1"] = &result.beta1;
    wanted["beta2"] = &result.beta2;
    wanted["epsilon"] = &result.epsilon;
  }
  if (given.contains("clip_norm"))
    wanted["clip_norm"] = &result.clipNorm.emplace();
  for (NamedAttribute entry : given)
    if (entry.getName() != "kind" && !wanted.contains(entry.getName()))
      return module.emitError() << kOptimizerName << " of kind " << kind
                                << " has no entry " << entry.getName();
  for (auto &[name, number] : wanted) {
    auto value = given.getAs<FloatAttr>(name);
    if (!value)
      return module.emitError() << kOptimizerName << " of kind " << kind
                                << " needs the number '" << name << "'";
    *number = value.getValueAsDouble();
  }
  return result;
}

//===----------------------------------------------------------------------===//
// The segments
//===----------------------------------------------------------------------===//

FailureOr<StepBuilder> StepBuilder::get(ModuleOp module) {
  StepBuilder result(module);
  FailureOr<Optimizer> optimizer = Optimizer::read(module);
  if (failed(optimizer))
    return failure();
  result.optimizer = *optimizer;
  auto count = module->getAttrOfType<IntegerAttr>(kMicroBatchesName);
  if (!count || count.getInt() < 1)
    return module.emitError() << "the module needs the attribute "
                              << kMicroBatchesName << ", at least 1";
  result.microBatches = count.getInt();
  if (failed(result.findSegments()) || failed(result.findLayers()) ||
      failed(result.findCarried()) || failed(result.checkGradients()))
    return failure();
  return result;
}

LogicalResult StepBuilder::findSegments() {
  for (auto [name, function] :
       {std::pair(StringRef("embedding"), &embedding),
        std::pair(StringRef("embedding_bwd"), &embeddingBackward),
        std::pair(StringRef("block"), &block),
        std::pair(StringRef("block_bwd"), &blockBackward),
        std::pair(StringRef("head"), &head)}) {
    *function = module.lookupSymbol<func::FuncOp>(name);
    if (!*function)
      return module.emitError()
             << "the step needs @" << name
             << "; run autodiff-build-backward on the model's segments first";
    for (unsigned i = 0; i < function->getNumArguments(); ++i) {
      auto state = function->getArgAttrOfType<FlatSymbolRefAttr>(i, kStateName);
      auto argument = function->getArgAttrOfType<StringAttr>(i, kArgumentName);
      if (state && argument)
        shortNames.try_emplace(state.getValue(), argument.str());
    }
  }
  for (auto state : module.getOps<StateOp>())
    if (state.getKind() == StateKind::Parameter)
      parameters.push_back(state);
  return success();
}

LogicalResult StepBuilder::findLayers() {
  StateOp first;
  for (unsigned i = 0; i < block.getNumArguments(); ++i) {
    auto name = block.getArgAttrOfType<FlatSymbolRefAttr>(i, kStateName);
    StateOp state = name ? stateOf(name.getValue()) : StateOp();
    if (!name)
      continue;
    if (!state)
      return block.emitError()
             << "@block takes " << name << ", which is no state";
    if (!state.getLayers())
      continue;
    if (first && first.getCount() != state.getCount()) {
      InFlightDiagnostic error =
          block.emitError() << "@block takes parameters of " << first.getCount()
                            << " and of " << state.getCount() << " layers";
      error.attachNote(state.getLoc()) << "the second is this";
      return error;
    }
    first = state;
  }
  if (!first)
    return block.emitError() << "@block takes no parameter with layers, so the "
                                "number of layers is not known";
  layers = first.getCount();
  return success();
}

static StringRef nameOfResult(func::FuncOp function, unsigned index) {
  auto name = function.getResultAttrOfType<StringAttr>(index, kArgumentName);
  return name ? name.getValue() : "";
}

LogicalResult StepBuilder::findCarried() {
  for (unsigned i = 0; i < embedding.getNumResults(); ++i)
    if (!embedding.getResultAttr(i, kSavedName)) {
      carried.push_back(nameOfResult(embedding, i).str());
      if (carried.back().empty())
        return embedding.emitError()
               << "@embedding has no name (" << kArgumentName
               << ") for its result " << i;
    }
  unsigned found = 0;
  for (unsigned i = 0; i < block.getNumResults(); ++i) {
    if (block.getResultAttr(i, kSavedName))
      continue;
    if (found == carried.size() || nameOfResult(block, i) != carried[found++])
      return block.emitError()
             << "@block must return what @embedding returns, by name: "
             << llvm::join(carried, ", ") << "; its result " << i << " is '"
             << nameOfResult(block, i) << "'";
  }
  if (found != carried.size())
    return block.emitError() << "@block returns no '" << carried[found] << "'";
  return success();
}

LogicalResult StepBuilder::checkGradients() {
  llvm::StringSet<> given;
  for (func::FuncOp function : {embeddingBackward, blockBackward, head})
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      if (auto state =
              function.getResultAttrOfType<FlatSymbolRefAttr>(i, kGradientName))
        given.insert(state.getValue());
  for (StateOp state : parameters)
    if (!given.contains(state.getSymName()))
      return state.emitError()
             << "no segment computes the gradient of @" << state.getSymName();
  return success();
}

} // namespace heddle::autodiff
