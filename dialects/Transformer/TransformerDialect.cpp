//===- TransformerDialect.cpp - registration and names --------------------===//

#include "dialects/Transformer/Transformer.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace heddle::transformer;

#include "dialects/Transformer/TransformerDialect.cpp.inc"
#include "dialects/Transformer/TransformerEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/Transformer/TransformerAttrs.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "dialects/Transformer/TransformerTypes.cpp.inc"

void TransformerDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/Transformer/TransformerAttrs.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialects/Transformer/TransformerTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/Transformer/TransformerOps.cpp.inc"
      >();
}

SmallVector<StringRef> heddle::transformer::calleesOf(Operation *op) {
  if (auto call = dyn_cast_or_null<func::CallOp>(op))
    return {call.getCallee()};
  SmallVector<StringRef> names;
  if (auto call = dyn_cast_or_null<CallByLayerOp>(op))
    for (auto name : call.getCallees().getAsRange<FlatSymbolRefAttr>())
      names.push_back(name.getValue());
  return names;
}

StringRef heddle::transformer::getName(Value value) {
  if (auto result = dyn_cast<OpResult>(value)) {
    auto names = result.getOwner()->getAttrOfType<ArrayAttr>(kNamesName);
    if (!names || names.size() <= result.getResultNumber())
      return "";
    return cast<StringAttr>(names[result.getResultNumber()]).getValue();
  }
  auto argument = cast<BlockArgument>(value);
  auto function =
      dyn_cast<FunctionOpInterface>(argument.getOwner()->getParentOp());
  if (!function)
    return "";
  auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(),
                                                    kArgumentName);
  return name ? name.getValue() : "";
}

void heddle::transformer::setNames(Operation *op, ArrayRef<std::string> names) {
  SmallVector<Attribute> attributes;
  for (const std::string &name : names)
    attributes.push_back(StringAttr::get(op->getContext(), name));
  op->setAttr(kNamesName, ArrayAttr::get(op->getContext(), attributes));
}

void heddle::transformer::nameResults(Operation *op,
                                      OpAsmSetValueNameFn setName) {
  for (Value result : op->getResults())
    if (StringRef name = getName(result); !name.empty())
      setName(result, name);
}
