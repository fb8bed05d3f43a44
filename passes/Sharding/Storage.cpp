//===- Storage.cpp - how states are stored --------------------------------===//

#include "passes/Sharding/Storage.h"

#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::sharding;
using transformer::StateKind;

/// Reads a list of axes of the mesh; absent: none.
static LogicalResult readAxes(ModuleOp module, DictionaryAttr entries,
                              StringRef key, ArrayAttr &axes) {
  axes = ArrayAttr::get(module.getContext(), {});
  Attribute found = entries ? entries.get(key) : Attribute();
  if (!found)
    return success();
  axes = dyn_cast<ArrayAttr>(found);
  auto mesh = module->getAttrOfType<dist::MeshAttr>(dist::kMeshName);
  bool known = axes && mesh && llvm::all_of(axes, [&](Attribute axis) {
                 auto name = dyn_cast<StringAttr>(axis);
                 return name && mesh.getIndex(name) >= 0;
               });
  if (!known)
    return module.emitError()
           << dist::kStorageName << ": " << key
           << " must be a list of axes of the mesh, found " << found;
  return success();
}

/// Reads one of `words`; absent: the first. Its place among them.
static FailureOr<int> readWord(ModuleOp module, DictionaryAttr entries,
                               StringRef key, ArrayRef<StringRef> words) {
  Attribute found = entries ? entries.get(key) : Attribute();
  if (!found)
    return 0;
  if (auto word = dyn_cast<StringAttr>(found))
    if (const auto *place = llvm::find(words, word.getValue());
        place != words.end())
      return place - words.begin();
  InFlightDiagnostic error = module.emitError() << dist::kStorageName << ": "
                                                << key << " must be one of ";
  llvm::interleaveComma(words, error);
  return error << ", found " << found;
}

FailureOr<Storage> Storage::read(ModuleOp module) {
  auto entries = module->getAttrOfType<DictionaryAttr>(dist::kStorageName);
  Storage storage;
  for (auto [key, axes] : {std::pair("parameter", &storage.parameter),
                           std::pair("gradient_sum", &storage.gradientSum),
                           std::pair("gradient", &storage.gradient),
                           std::pair("optimizer", &storage.optimizer),
                           std::pair("data", &storage.data)})
    if (failed(readAxes(module, entries, key, *axes)))
      return failure();
  FailureOr<int> reduce =
      readWord(module, entries, "reduce", {"last", "every_micro_batch"});
  FailureOr<int> gather =
      readWord(module, entries, "gather",
               {"every_pass", "every_micro_batch", "once_per_step"});
  if (failed(reduce) || failed(gather))
    return failure();
  storage.reduceEveryMicroBatch = *reduce == 1;
  storage.gather = static_cast<Gather>(*gather);
  return storage;
}

ArrayAttr Storage::runsOf(StateKind kind) const {
  switch (kind) {
  case StateKind::Parameter:
    return parameter;
  case StateKind::GradientSum:
    return gradientSum;
  case StateKind::Gradient:
    return gradient;
  case StateKind::Master:
  case StateKind::AdamM:
  case StateKind::AdamV:
    return optimizer;
  case StateKind::Gathered:
  case StateKind::Scaling:
  case StateKind::Amax:
    return ArrayAttr::get(parameter.getContext(), {});
  }
  llvm_unreachable("all kinds of states are handled");
}
