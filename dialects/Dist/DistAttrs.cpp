//===- DistAttrs.cpp - meshes and layouts ---------------------------------===//

#include "dialects/Dist/Dist.h"
#include "heddle/Support/Mirror.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace heddle::dist;

//===----------------------------------------------------------------------===//
// Mesh
//===----------------------------------------------------------------------===//

static StringRef nameOf(Attribute axis) {
  return cast<StringAttr>(axis).getValue();
}

Attribute MeshAttr::parse(AsmParser &parser, Type) {
  SmallVector<Attribute> names;
  SmallVector<int64_t> sizes;
  auto parseAxis = [&]() -> ParseResult {
    std::string name;
    if (parser.parseString(&name) || parser.parseEqual() ||
        parser.parseInteger(sizes.emplace_back()))
      return failure();
    names.push_back(parser.getBuilder().getStringAttr(name));
    return success();
  };
  if (parser.parseLess() ||
      parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseAxis) ||
      parser.parseGreater())
    return {};
  MLIRContext *context = parser.getContext();
  return parser.getChecked<MeshAttr>(context, ArrayAttr::get(context, names),
                                     DenseI64ArrayAttr::get(context, sizes));
}

void MeshAttr::print(AsmPrinter &printer) const {
  printer << "<[";
  llvm::interleaveComma(
      llvm::zip(getNames(), getSizes().asArrayRef()), printer, [&](auto axis) {
        printer << std::get<0>(axis) << " = " << std::get<1>(axis);
      });
  printer << "]>";
}

LogicalResult MeshAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               ArrayAttr names, DenseI64ArrayAttr sizes) {
  if (names.size() != static_cast<size_t>(sizes.size()))
    return emitError() << "a mesh has one size per axis, found " << names.size()
                       << " names and " << sizes.size() << " sizes";
  llvm::StringSet<> seen;
  for (Attribute name : names) { // M1
    auto string = dyn_cast<StringAttr>(name);
    if (!string || string.empty())
      return emitError() << "an axis of a mesh needs a name";
    if (!seen.insert(string.getValue()).second)
      return emitError() << "axis " << string << " is in the mesh twice";
  }
  int64_t ranks = 1;
  for (auto [name, size] : llvm::zip(names, sizes.asArrayRef())) { // M2
    if (size < 1)
      return emitError() << "axis " << name
                         << " must have a size of at least 1, got " << size;
    if (llvm::MulOverflow(ranks, size, ranks))
      return emitError() << "the mesh has more ranks than an integer can count";
  }
  return success();
}

int64_t MeshAttr::getNumRanks() const {
  int64_t ranks = 1;
  for (int64_t size : getSizes().asArrayRef())
    ranks *= size;
  return ranks;
}

int64_t MeshAttr::getIndex(StringRef axis) const {
  for (auto [index, name] : llvm::enumerate(getNames()))
    if (nameOf(name) == axis)
      return index;
  return -1;
}

/// Position of the axis that `axis` is the mirror of, or -1.
static int64_t getMirrored(MeshAttr mesh, StringRef axis) {
  if (mesh.getIndex(axis) >= 0)
    return -1;
  int64_t index = mesh.getIndex(heddle::mirroredAxis(axis));
  return index >= 0 && mesh.getSizes()[index] % 2 == 0 ? index : -1;
}

bool MeshAttr::hasGroups(StringRef axis) const {
  return getIndex(axis) >= 0 || getMirrored(*this, axis) >= 0;
}

int64_t MeshAttr::getSize(StringRef axis) const {
  return getMirrored(*this, axis) >= 0 ? 2 : getSizes()[getIndex(axis)];
}

int64_t MeshAttr::getGroupSize(ArrayAttr axes) const {
  int64_t size = 1;
  for (Attribute axis : axes)
    size *= getSize(nameOf(axis));
  return size;
}

SmallVector<int64_t> MeshAttr::getCoordinates(int64_t rank) const {
  SmallVector<int64_t> coordinates(getSizes().size());
  for (int64_t axis = getSizes().size(); axis-- > 0; rank /= getSizes()[axis])
    coordinates[axis] = rank % getSizes()[axis];
  return coordinates;
}

int64_t MeshAttr::getGroupIndex(int64_t rank, ArrayAttr axes) const {
  SmallVector<int64_t> coordinates = getCoordinates(rank);
  int64_t index = 0;
  for (Attribute axis : axes) {
    int64_t mirrored = getMirrored(*this, nameOf(axis));
    int64_t place = mirrored >= 0
                        ? coordinates[mirrored] >= getSizes()[mirrored] / 2
                        : coordinates[getIndex(nameOf(axis))];
    index = index * getSize(nameOf(axis)) + place;
  }
  return index;
}

SmallVector<int64_t> MeshAttr::getGroup(int64_t rank, ArrayAttr axes) const {
  SmallVector<int64_t> strides(getSizes().size(), 1);
  for (int64_t axis = static_cast<int64_t>(strides.size()) - 1; axis-- > 0;)
    strides[axis] = strides[axis + 1] * getSizes()[axis + 1];
  SmallVector<int64_t> coordinates = getCoordinates(rank);
  SmallVector<int64_t> group = {rank};
  for (Attribute axis : axes) {
    int64_t mirrored = getMirrored(*this, nameOf(axis));
    int64_t index = mirrored >= 0 ? mirrored : getIndex(nameOf(axis));
    int64_t own = coordinates[index], last = getSizes()[index] - 1;
    SmallVector<int64_t> places;
    if (mirrored >= 0)
      places = {std::min(own, last - own), std::max(own, last - own)};
    else
      llvm::append_range(places, llvm::seq<int64_t>(0, last + 1));
    SmallVector<int64_t> wider;
    for (int64_t member : group)
      for (int64_t place : places)
        wider.push_back(member + (place - own) * strides[index]);
    group = std::move(wider);
  }
  return group;
}

//===----------------------------------------------------------------------===//
// Layout
//===----------------------------------------------------------------------===//

/// Parses `"a", "b"` between the given delimiters.
static ParseResult parseAxes(AsmParser &parser, AsmParser::Delimiter delimiter,
                             ArrayAttr &axes) {
  SmallVector<Attribute> names;
  auto parseName = [&]() -> ParseResult {
    std::string name;
    if (parser.parseString(&name))
      return failure();
    names.push_back(parser.getBuilder().getStringAttr(name));
    return success();
  };
  if (parser.parseCommaSeparatedList(delimiter, parseName))
    return failure();
  axes = parser.getBuilder().getArrayAttr(names);
  return success();
}

static ParseResult parseLayoutDims(AsmParser &parser,
                                   SmallVector<Attribute> &dims,
                                   SmallVector<int64_t> &padded) {
  return parser.parseCommaSeparatedList(
      AsmParser::Delimiter::Square, [&]() -> ParseResult {
        ArrayAttr axes;
        if (parseAxes(parser, AsmParser::Delimiter::Braces, axes))
          return failure();
        dims.push_back(axes);
        padded.push_back(0);
        if (succeeded(parser.parseOptionalKeyword("padded")))
          return parser.parseInteger(padded.back());
        return success();
      });
}

Attribute LayoutAttr::parse(AsmParser &parser, Type) {
  MLIRContext *context = parser.getContext();
  MeshAttr mesh;
  SmallVector<Attribute> dims;
  SmallVector<int64_t> padded;
  ArrayAttr partial = ArrayAttr::get(context, {}), partialMax = partial,
            runs = partial;
  if (parser.parseLess() || parser.parseAttribute(mesh) ||
      parser.parseComma() || parseLayoutDims(parser, dims, padded))
    return {};
  while (succeeded(parser.parseOptionalComma())) {
    StringRef key;
    SMLoc where = parser.getCurrentLocation();
    if (parser.parseKeyword(&key) || parser.parseEqual())
      return {};
    ArrayAttr *list = key == "partial"       ? &partial
                      : key == "partial_max" ? &partialMax
                      : key == "runs"        ? &runs
                                             : nullptr;
    if (!list) {
      parser.emitError(where)
          << "expected 'partial', 'partial_max' or 'runs', found '" << key
          << "'";
      return {};
    }
    if (parseAxes(parser, AsmParser::Delimiter::Square, *list))
      return {};
  }
  if (parser.parseGreater())
    return {};
  return parser.getChecked<LayoutAttr>(
      context, mesh, ArrayAttr::get(context, dims),
      DenseI64ArrayAttr::get(context, padded), partial, partialMax, runs);
}

/// The part of the printed form behind the mesh; `os` is a stream or a printer.
template <class Stream>
static void printLayoutBody(LayoutAttr layout, Stream &os) {
  auto printAxes = [&](ArrayAttr axes) {
    llvm::interleaveComma(
        axes, os, [&](Attribute axis) { os << '"' << nameOf(axis) << '"'; });
  };
  os << "[";
  llvm::interleaveComma(
      llvm::zip(layout.getDims(), layout.getPadded().asArrayRef()), os,
      [&](auto dim) {
        os << "{";
        printAxes(cast<ArrayAttr>(std::get<0>(dim)));
        os << "}";
        if (std::get<1>(dim))
          os << " padded " << std::get<1>(dim);
      });
  os << "]";
  for (auto [key, axes] :
       {std::pair(", partial = [", layout.getPartial()),
        std::pair(", partial_max = [", layout.getPartialMax()),
        std::pair(", runs = [", layout.getRuns())})
    if (!axes.empty()) {
      os << key;
      printAxes(axes);
      os << "]";
    }
}

void LayoutAttr::print(AsmPrinter &printer) const {
  printer << "<";
  printer.printAttribute(getMesh());
  printer << ", ";
  printLayoutBody(*this, printer);
  printer << ">";
}

std::string LayoutAttr::getShortForm() const {
  std::string text;
  llvm::raw_string_ostream os(text);
  printLayoutBody(*this, os);
  return text;
}

LayoutAttr LayoutAttr::get(MeshAttr mesh, int64_t rank) {
  MLIRContext *context = mesh.getContext();
  ArrayAttr none = ArrayAttr::get(context, {});
  SmallVector<Attribute> dims(rank, none);
  return get(mesh, ArrayAttr::get(context, dims),
             DenseI64ArrayAttr::get(context, SmallVector<int64_t>(rank, 0)));
}

LayoutAttr LayoutAttr::get(MeshAttr mesh, ArrayAttr dims,
                           DenseI64ArrayAttr padded) {
  ArrayAttr none = ArrayAttr::get(mesh.getContext(), {});
  return get(mesh.getContext(), mesh, dims, padded, none, none, none);
}

LayoutAttr LayoutAttr::withPartial(ArrayAttr partial) const {
  return get(getContext(), getMesh(), getDims(), getPadded(), partial,
             getPartialMax(), getRuns());
}

LayoutAttr LayoutAttr::withPartialMax(ArrayAttr partialMax) const {
  return get(getContext(), getMesh(), getDims(), getPadded(), getPartial(),
             partialMax, getRuns());
}

LayoutAttr LayoutAttr::withRuns(ArrayAttr runs) const {
  return get(getContext(), getMesh(), getDims(), getPadded(), getPartial(),
             getPartialMax(), runs);
}

LayoutAttr LayoutAttr::reduced() const {
  ArrayAttr none = ArrayAttr::get(getContext(), {});
  return withPartial(none).withPartialMax(none);
}

int64_t LayoutAttr::getRowElements(ArrayRef<int64_t> shape) const {
  int64_t elements = 1;
  for (auto [dim, size] : llvm::enumerate(shape))
    elements *= getStoredSize(dim, size) / getMesh().getGroupSize(getAxes(dim));
  if (getRuns().empty())
    return elements;
  return llvm::alignTo(elements,
                       getMesh().getGroupSize(getRuns()) * kRunMultiple);
}

ArrayAttr LayoutAttr::getAxes(int64_t dim) const {
  return cast<ArrayAttr>(getDims()[dim]);
}

int64_t LayoutAttr::getStoredSize(int64_t dim, int64_t size) const {
  return getPadded()[dim] ? getPadded()[dim] : size;
}

LogicalResult LayoutAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                                 MeshAttr mesh, ArrayAttr dims,
                                 DenseI64ArrayAttr padded, ArrayAttr partial,
                                 ArrayAttr partialMax, ArrayAttr runs) {
  if (dims.size() != static_cast<size_t>(padded.size()))
    return emitError() << "a layout has one padded size per dimension";
  llvm::StringMap<std::string> places;
  auto place = [&](ArrayAttr axes, const std::string &where) -> LogicalResult {
    for (Attribute axis : axes) {
      if (mesh.getIndex(nameOf(axis)) < 0) // L2
        return emitError() << "axis " << axis << " is not in the mesh";
      auto [entry, isNew] = places.try_emplace(nameOf(axis), where);
      if (!isNew) // L3
        return emitError() << "axis " << axis
                           << " is used twice: " << entry->second << " and "
                           << where;
    }
    return success();
  };
  for (auto [index, axes] : llvm::enumerate(dims))
    if (failed(place(cast<ArrayAttr>(axes), "dim " + std::to_string(index))))
      return failure();
  if (failed(place(partial, "partial")) ||
      failed(place(partialMax, "partial_max")) || failed(place(runs, "runs")))
    return failure();
  return success();
}

LogicalResult
LayoutAttr::verifyEncoding(ArrayRef<int64_t> shape, Type,
                           function_ref<InFlightDiagnostic()> emitError) const {
  if (static_cast<int64_t>(shape.size()) != getRank()) // L1
    return emitError() << "layout of " << getRank()
                       << " dimensions on a tensor of rank " << shape.size();
  for (auto [dim, size] : llvm::enumerate(shape)) { // L4
    int64_t parts = getMesh().getGroupSize(getAxes(dim));
    if (getPadded()[dim] && getPadded()[dim] < size)
      return emitError() << "dim " << dim << " of size " << size
                         << " cannot be stored as " << getPadded()[dim];
    if (getStoredSize(dim, size) % parts != 0)
      return emitError() << "dim " << dim << " of size "
                         << getStoredSize(dim, size) << " cannot be cut into "
                         << parts << " equal shards; write 'padded "
                         << llvm::alignTo(getStoredSize(dim, size), parts)
                         << "'";
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Shards
//===----------------------------------------------------------------------===//

bool heddle::dist::isShards(Attribute attribute) {
  auto shards = dyn_cast_if_present<DictionaryAttr>(attribute);
  return shards && llvm::all_of(shards, [](NamedAttribute entry) {
           return isa<ShardAttr>(entry.getValue());
         });
}

ShardAttr heddle::dist::getShard(Operation *op, StringRef factor) {
  auto shards = op->getAttrOfType<DictionaryAttr>(kShardsName);
  return shards ? shards.getAs<ShardAttr>(factor) : ShardAttr();
}

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

LayoutAttr heddle::dist::getLayout(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor ? dyn_cast_if_present<LayoutAttr>(tensor.getEncoding())
                : LayoutAttr();
}

RankedTensorType heddle::dist::withLayout(RankedTensorType type,
                                          LayoutAttr layout) {
  return RankedTensorType::get(type.getShape(), type.getElementType(), layout);
}

RankedTensorType heddle::dist::getLocalType(RankedTensorType type) {
  LayoutAttr layout = getLayout(type);
  if (!layout)
    return type;
  if (!layout.getRuns().empty())
    return RankedTensorType::get(
        {layout.getRowElements(type.getShape()) /
         layout.getMesh().getGroupSize(layout.getRuns())},
        type.getElementType());
  SmallVector<int64_t> shape;
  for (auto [dim, size] : llvm::enumerate(type.getShape()))
    shape.push_back(layout.getStoredSize(dim, size) /
                    layout.getMesh().getGroupSize(layout.getAxes(dim)));
  return RankedTensorType::get(shape, type.getElementType());
}
