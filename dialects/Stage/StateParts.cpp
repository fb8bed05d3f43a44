//===- StateParts.cpp - which stages hold a state -------------------------===//

#include "dialects/Stage/StateParts.h"

using namespace mlir;

namespace heddle::stage {

static constexpr llvm::StringLiteral kPartName = "stage.part";

StateParts::StateParts(ModuleOp module) {
  for (auto state : module.getOps<transformer::StateOp>()) {
    states[state.getSymName()] = state;
    auto word = state->getAttrOfType<StringAttr>(kPartName);
    if (auto part = word ? symbolizePart(word) : std::nullopt)
      parts[state.getSymName()] = *part;
  }
  for (auto [name, part] : {std::pair("embedding", Part::Embedding),
                            std::pair("head", Part::Head)}) {
    auto function = module.lookupSymbol<func::FuncOp>(name);
    for (unsigned i = 0; function && i < function.getNumArguments(); ++i)
      if (auto state = function.getArgAttrOfType<FlatSymbolRefAttr>(
              i, transformer::kStateName)) {
        auto [known, isNew] = parts.try_emplace(state.getValue(), part);
        if (!isNew && known->second != part)
          known->second = Part::Ends;
      }
  }
}

void StateParts::note() {
  for (auto &[name, part] : parts)
    if (transformer::StateOp state = states.lookup(name))
      state->setAttr(kPartName,
                     StringAttr::get(state->getContext(), stringifyPart(part)));
}

std::optional<Part> StateParts::partOf(StringRef name) const {
  transformer::StateOp state = states.lookup(name);
  if (!state || state.getLayers())
    return std::nullopt;
  auto part = parts.find(state.getOf().value_or(name));
  return part == parts.end() ? std::nullopt : std::optional(part->second);
}

std::optional<Part> StateParts::partOf(Operation *op) const {
  auto state = op->getAttrOfType<FlatSymbolRefAttr>("state");
  return state ? partOf(state.getValue()) : std::nullopt;
}

} // namespace heddle::stage
