#include "dialects/Transformer/Scaling.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace heddle::transformer;

FailureOr<std::optional<Scaling>> Scaling::of(ContractOp op) {
  Attribute given = op->getAttr(kScaledName);
  if (!given)
    return std::optional<Scaling>();
  auto entries = dyn_cast<DictionaryAttr>(given);
  auto types = entries ? entries.getAs<ArrayAttr>("formats") : ArrayAttr();
  Scaling scaling;
  if (types && types.size() == 2)
    for (auto [format, type] : llvm::zip(scaling.formats, types))
      if (auto attribute = dyn_cast<TypeAttr>(type))
        format = attribute.getValue();
  for (Type format : scaling.formats)
    if (!isa_and_nonnull<Float8E4M3FNType, Float8E5M2Type>(format))
      return op.emitOpError()
             << kScaledName << " needs two formats of 8 bits, got " << given;
  scaling.powerOfTwo = entries.contains("power_of_two");
  return std::optional<Scaling>(scaling);
}

void Scaling::set(ContractOp op) const {
  Builder builder(op.getContext());
  NamedAttrList entries;
  entries.set("formats", builder.getTypeArrayAttr({formats[0], formats[1]}));
  if (powerOfTwo)
    entries.set("power_of_two", builder.getUnitAttr());
  op->setAttr(kScaledName, entries.getDictionary(op.getContext()));
}
