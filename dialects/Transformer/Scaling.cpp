#include "dialects/Transformer/Scaling.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace heddle::transformer;

/// How operands are mixed, and the left one rounded.
static LogicalResult readRounding(ContractOp op, DictionaryAttr entries,
                                  Scaling &scaling) {
  if (auto signs = entries.getAs<IntegerAttr>("signs")) {
    if (scaling.blocks.empty())
      return op.emitOpError()
             << kScaledName << " needs blocks to mix by signs, got " << entries;
    scaling.signs = signs.getInt();
  }
  if (auto site = entries.getAs<IntegerAttr>("site")) {
    if (!scaling.hasTwoLevels() || !op.getSeed())
      return op.emitOpError() << kScaledName
                              << " needs formats of 4 bits and noise to round "
                                 "at random, got "
                              << entries;
    scaling.site = site.getInt();
  }
  return success();
}

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
  auto isFour = [](Type format) {
    return isa_and_nonnull<Float4E2M1FNType>(format);
  };
  auto isEight = [](Type format) {
    return isa_and_nonnull<Float8E4M3FNType, Float8E5M2Type>(format);
  };
  bool isOfFour = llvm::all_of(scaling.formats, isFour);
  if (!isOfFour && !llvm::all_of(scaling.formats, isEight))
    return op.emitOpError()
           << kScaledName << " needs two formats of 8 bits, or of 4, got "
           << given;
  scaling.powerOfTwo = entries.contains("power_of_two");
  if (auto blocks = entries.getAs<DenseI64ArrayAttr>("blocks")) {
    scaling.blocks.assign(blocks.asArrayRef().begin(),
                          blocks.asArrayRef().end());
    auto scales = entries.getAs<TypeAttr>("scales");
    scaling.scales = scales ? scales.getValue() : Type();
    bool fits =
        scales && (isOfFour ? scaling.hasTwoLevels()
                            : scaling.scales.isF32() ||
                                  isa<Float8E8M0FNUType>(scaling.scales));
    if (!fits || scaling.blocks.size() != 3 ||
        llvm::any_of(scaling.blocks, [](int64_t size) { return size < 1; }))
      return op.emitOpError() << kScaledName
                              << " needs blocks of three sizes above 0 and "
                                 "scales of "
                              << (isOfFour ? "f8E4M3FN" : "f32 or f8E8M0FNU")
                              << ", got " << given;
  } else if (isOfFour) {
    return op.emitOpError()
           << kScaledName << " needs blocks for formats of 4 bits, got "
           << given;
  }
  if (auto plain = entries.getAs<DenseI64ArrayAttr>("plain_layers"))
    llvm::append_range(scaling.plainLayers, plain.asArrayRef());
  if (auto names = entries.getAs<ArrayAttr>("tensors"))
    for (auto name : names.getAsRange<StringAttr>())
      scaling.tensors.push_back(name.str());
  if (!scaling.tensors.empty() &&
      (scaling.tensors.size() != 2 || !scaling.blocks.empty()))
    return op.emitOpError() << kScaledName
                            << " needs two names of tensors that have one "
                               "scale each, got "
                            << given;
  if (failed(readRounding(op, entries, scaling)))
    return failure();
  return std::optional<Scaling>(scaling);
}

bool Scaling::hasTwoLevels() const {
  return isa_and_nonnull<Float8E4M3FNType>(scales);
}

void Scaling::set(ContractOp op) const {
  Builder builder(op.getContext());
  NamedAttrList entries;
  entries.set("formats", builder.getTypeArrayAttr({formats[0], formats[1]}));
  if (powerOfTwo)
    entries.set("power_of_two", builder.getUnitAttr());
  if (!blocks.empty()) {
    entries.set("blocks", builder.getDenseI64ArrayAttr(blocks));
    entries.set("scales", TypeAttr::get(scales));
  }
  if (!plainLayers.empty())
    entries.set("plain_layers", builder.getDenseI64ArrayAttr(plainLayers));
  if (!tensors.empty())
    entries.set("tensors", builder.getStrArrayAttr({tensors[0], tensors[1]}));
  if (signs)
    entries.set("signs", builder.getI64IntegerAttr(*signs));
  if (site)
    entries.set("site", builder.getI64IntegerAttr(*site));
  op->setAttr(kScaledName, entries.getDictionary(op.getContext()));
}
