//===- Choices.cpp - what a plan wants to be computed again ---------------===//

#include "passes/Recompute/Choices.h"

using namespace mlir;
using namespace heddle::recompute;
using namespace heddle::transformer;

StringRef Choice::text() const {
  switch (kind) {
  case Kind::Values:
    return "listed";
  case Kind::Selective:
    return "selective";
  case Kind::Full:
    return "full";
  }
  llvm_unreachable("all kinds are listed");
}

static FailureOr<Choice> readChoice(ModuleOp module, DictionaryAttr entry) {
  Choice choice;
  if (auto values = entry.getAs<ArrayAttr>("values")) {
    for (auto name : values.getAsRange<StringAttr>())
      choice.values.push_back(name.str());
    return choice;
  }
  if (!entry.contains("full") && !entry.contains("selective"))
    return module.emitError()
           << kRecomputeName << " has an entry with none of values, selective "
           << "and full: " << entry;
  choice.kind =
      entry.contains("full") ? Choice::Kind::Full : Choice::Kind::Selective;
  choice.whole = entry.contains("whole");
  choice.keepsLinearInputs = entry.contains("linear_inputs");
  return choice;
}

FailureOr<SmallVector<Choice>> heddle::recompute::readChoices(ModuleOp module,
                                                              int64_t layers) {
  SmallVector<Choice> choices(layers);
  auto given = module->getAttrOfType<ArrayAttr>(kRecomputeName);
  if (!given)
    return choices;
  for (auto entry : given.getAsRange<DictionaryAttr>()) {
    auto first = entry.getAs<IntegerAttr>("first"),
         last = entry.getAs<IntegerAttr>("last");
    if (!first || !last || first.getInt() < 0 || last.getInt() >= layers)
      return module.emitError()
             << kRecomputeName << " has an entry that is not of layers 0 to "
             << layers - 1 << ": " << entry;
    FailureOr<Choice> choice = readChoice(module, entry);
    if (failed(choice))
      return failure();
    for (int64_t layer = first.getInt(); layer <= last.getInt(); ++layer)
      choices[layer] = *choice;
  }
  return choices;
}
