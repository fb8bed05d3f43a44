//===- ReshardReason.cpp - why a reshard is there -------------------------===//

#include "dialects/Dist/ReshardReason.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace heddle::dist;

/// The metadata of a fused location that is a reason, or null.
static DictionaryAttr metadataOf(Location location) {
  auto fused = dyn_cast<FusedLoc>(location);
  auto metadata = fused ? dyn_cast_or_null<DictionaryAttr>(fused.getMetadata())
                        : DictionaryAttr();
  return metadata && metadata.contains("made") ? metadata : DictionaryAttr();
}

Location ReshardReason::attach(Location location) const {
  // The name of a location is the cause that the program's text tells.
  if (auto name = dyn_cast<NameLoc>(location);
      name && ReshardReason::find(name.getChildLoc()))
    return NameLoc::get(name.getName(), attach(name.getChildLoc()));
  if (metadataOf(location))
    location = cast<FusedLoc>(location).getLocations().front();
  Builder builder(location.getContext());
  auto text = [&](const char *key, const std::string &value) {
    return builder.getNamedAttr(key, builder.getStringAttr(value));
  };
  auto number = [&](const char *key, int64_t value) {
    return builder.getNamedAttr(key, builder.getI64IntegerAttr(value));
  };
  return FusedLoc::get(
      {location},
      builder.getDictionaryAttr({text("value", value), text("made", made),
                                 text("wanted", wanted), text("from", from),
                                 text("to", to), number("number", this->number),
                                 number("bytes", bytes)}),
      location.getContext());
}

std::optional<ReshardReason> ReshardReason::find(Location location) {
  if (auto name = dyn_cast<NameLoc>(location))
    return find(name.getChildLoc());
  DictionaryAttr metadata = metadataOf(location);
  if (!metadata)
    return std::nullopt;
  auto text = [&](const char *key) {
    return metadata.getAs<StringAttr>(key).getValue().str();
  };
  auto number = [&](const char *key) {
    return metadata.getAs<IntegerAttr>(key).getInt();
  };
  return ReshardReason{text("value"),  text("made"), text("wanted"),
                       text("from"),   text("to"),   number("number"),
                       number("bytes")};
}
