//===- Fault.cpp - What a fault works on, in words ------------------------===//

#include "tools/mutate/Fault.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;

std::string heddle::mutate::describe(Operation *op) {
  std::string text;
  llvm::raw_string_ostream os(text);
  if (auto function = op->getParentOfType<FunctionOpInterface>())
    os << "@" << function.getName() << ": ";
  os << op->getName().stripDialect();
  for (const char *key : {"label", "event", "name"})
    if (auto what = op->getAttrOfType<StringAttr>(key))
      os << " '" << what.getValue() << "'";
  if (auto axes = op->getAttrOfType<ArrayAttr>("axes"))
    os << " over " << axes;
  if (auto name = dyn_cast<NameLoc>(op->getLoc());
      name && !op->hasAttr("label"))
    os << " (" << name.getName().getValue() << ")";
  return text;
}
