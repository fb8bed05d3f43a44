//===- StatePlaces.cpp - where states and rows of them lie ----------------===//

#include "passes/Lowering/StatePlaces.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::lowering;
using namespace heddle::transformer;

static int64_t bytesIn(RankedTensorType type) {
  return type.getNumElements() *
         llvm::divideCeil(type.getElementTypeBitWidth(), 8);
}

int64_t lowering::bytesBetween(RankedTensorType type) {
  return llvm::alignTo(bytesIn(type), 64);
}

int64_t lowering::bytesOf(RankedTensorType type, int64_t entries) {
  return entries == 0 ? 0 : bytesBetween(type) * (entries - 1) + bytesIn(type);
}

static StringRef classOf(StateKind kind) {
  switch (kind) {
  case StateKind::Parameter:
    return "parameters";
  case StateKind::GradientSum:
  case StateKind::Gradient:
    return "gradients";
  case StateKind::Master:
  case StateKind::AdamM:
  case StateKind::AdamV:
  case StateKind::Scaling:
  case StateKind::Amax:
    return "optimizer";
  case StateKind::Gathered:
    return "communication";
  }
  llvm_unreachable("all kinds of states are handled");
}

/// The access to a state's row that an op is, if any: its name and the row.
static std::pair<StringRef, RankedTensorType> rowAccess(Operation *op) {
  if (auto toRow = dyn_cast<dist::ToRowOp>(op)) {
    Value source = toRow.getInput();
    if (auto reduce = source.getDefiningOp<dist::AllReduceOp>())
      source = reduce.getInput(); // in place
    if (auto cast = source.getDefiningOp<CastOp>())
      source = cast.getInput(); // its run is kept where the sum was
    if (auto load = source.getDefiningOp<LoadOp>())
      return {load.getState(), cast<RankedTensorType>(toRow.getType())};
  }
  if (auto store = dyn_cast<StoreOp>(op))
    if (auto fromRow = store.getValue().getDefiningOp<dist::FromRowOp>())
      return {store.getState(),
              cast<RankedTensorType>(fromRow.getInput().getType())};
  return {};
}

void StatePlaces::findRows(func::FuncOp step) {
  step.walk([&](Operation *op) {
    if (auto [state, row] = rowAccess(op); row)
      rows[state] = row.getNumElements();
  });
  findBuckets();
}

/// States of one bucket lie side by side, each at a multiple of 64 bytes.
void StatePlaces::findBuckets() {
  auto module = cast<ModuleOp>(program.symbols.getOp());
  for (auto state : module.getOps<StateOp>())
    if (auto name = state->getAttrOfType<StringAttr>(kBucketName))
      buckets[name.getValue()].states.push_back(state);
  for (auto &entry : buckets) {
    Bucket &bucket = entry.second;
    llvm::sort(bucket.states, [](StateOp a, StateOp b) {
      return a->getAttrOfType<IntegerAttr>(kBucketIndexName).getInt() <
             b->getAttrOfType<IntegerAttr>(kBucketIndexName).getInt();
    });
    for (StateOp state : bucket.states) {
      bucket.offsets[state.getSymName()] = bucket.bytes;
      bucket.bytes += bytesBetween(storedType(state));
    }
  }
}

RankedTensorType StatePlaces::storedType(StateOp state) {
  RankedTensorType type = state.getTensorType();
  if (auto row = rows.find(state.getSymName()); row != rows.end())
    return RankedTensorType::get({row->second}, type.getElementType());
  return type;
}

std::string StatePlaces::bytesOf(StringRef state) {
  return familyOf(program.symbols.lookup<StateOp>(state)).name;
}

Value StatePlaces::wholeBucket(ArrayRef<StringRef> members, Value index) {
  auto first = program.symbols.lookup<StateOp>(members.front());
  auto name = first->getAttrOfType<StringAttr>(kBucketName);
  if (!name)
    return {};
  const Bucket &bucket = buckets.find(name.getValue())->second;
  bool isWhole =
      llvm::equal(bucket.states, members, [](StateOp state, StringRef member) {
        return StateOp(state).getSymName() == member;
      });
  if (!isWhole)
    return {};
  lowering::Family family = familyOf(first);
  Type element = first.getTensorType().getElementType();
  family.type = RankedTensorType::get(
      {bucket.bytes / llvm::divideCeil(element.getIntOrFloatBitWidth(), 8)},
      element);
  return entry(family, index);
}

/// The state whose bytes a state uses: its own, or those of one that is dead by
/// then.
StateOp StatePlaces::holderOf(StateOp state) {
  auto storage = state.getStorageAttr();
  auto other =
      storage ? program.symbols.lookup<StateOp>(storage.getValue()) : StateOp();
  if (!other)
    return state;
  // All of it, or a rank's run of the row that it is.
  bool equal = bytesBetween(other.getTensorType()) ==
               bytesBetween(state.getTensorType());
  bool inRow =
      state.getTensorType().getRank() == 1 && rows.contains(other.getSymName());
  return equal || inRow ? other : state;
}

bool StatePlaces::isOnHost(StateOp state) {
  auto offload =
      program.symbols.getOp()->getAttrOfType<DictionaryAttr>(kOffloadName);
  return offload && offload.contains("optimizer") &&
         (state.getKind() == StateKind::Master ||
          state.getKind() == StateKind::AdamM ||
          state.getKind() == StateKind::AdamV);
}

lowering::Family StatePlaces::familyOf(StateOp state) {
  StateOp holder = holderOf(state);
  RankedTensorType type = storedType(holder);
  lowering::Family family{holder.getSymName().str(),
                          stringifyStateKind(state.getKind()).str(), type,
                          classOf(state.getKind())};
  int64_t bytes = bytesBetween(type);
  if (auto name = holder->getAttrOfType<StringAttr>(kBucketName)) {
    const Bucket &bucket = buckets.find(name.getValue())->second;
    family.name = "gradients." + name.str();
    family.offset = bucket.offsets.lookup(holder.getSymName());
    bytes = bucket.bytes;
  }
  if (state.getLayers())
    family.stride = bytes;
  if (isOnHost(state))
    family.arena = kHost;
  family.bytesByStage = bytesByStage(state, bytes);
  return family;
}

void StatePlaces::setStages(ModuleOp module, const stage::StageTable &table) {
  stages = &table;
  parts.emplace(module);
}

std::vector<int64_t> StatePlaces::bytesByStage(StateOp state, int64_t bytes) {
  std::vector<int64_t> result;
  for (int64_t place = 0; stages && place < stages->places(); ++place) {
    auto part = parts->partOf(state.getSymName());
    int64_t count = state.getLayers() ? stages->heldBy(place)
                    : part            ? stages->has(*part, place)
                                      : 1;
    result.push_back(count * bytes);
  }
  return result;
}

/// Of an entry in one of several sets: offset and strides on each stage.
static std::vector<int64_t> placesOf(const lowering::Family &family,
                                     int64_t offset, bool isIndexed) {
  std::vector<int64_t> places;
  for (int64_t setStride : family.setStrides) {
    places.push_back(offset);
    if (isIndexed)
      places.push_back(family.stride);
    places.push_back(setStride);
  }
  return places;
}

Value StatePlaces::entry(const Family &family, Value index, int64_t shift) {
  OpBuilder &builder = lowering.getBuilder();
  int64_t offset = family.offset + shift * family.stride;
  if (!family.stride)
    index = Value();
  Value &known =
      entries[{family.name, offset, family.type.getNumElements(),
               index.getAsOpaquePointer(), family.set.getAsOpaquePointer(),
               builder.getInsertionBlock()}];
  if (known)
    return known;
  auto type =
      rt::BufType::get(family.type.getShape(), family.type.getElementType());
  SmallVector<Value> indices;
  SmallVector<int64_t> strides;
  if (index) {
    indices.push_back(index);
    strides.push_back(family.stride);
  }
  if (family.set) {
    indices.push_back(family.set);
    strides.push_back(family.setStrides.front());
  }
  auto buffer = rt::BufferOp::create(
      builder, builder.getUnknownLoc(), type,
      builder.getStringAttr(family.name), builder.getStringAttr(family.reason),
      builder.getStringAttr(family.arena), builder.getI64IntegerAttr(offset),
      indices, builder.getDenseI64ArrayAttr(strides));
  buffer->setAttr(kClassName, builder.getStringAttr(family.memoryClass));
  if (family.set && family.setStrides.size() > 1)
    buffer.setByStage(placesOf(family, offset, bool(index)));
  if (family.readBySome)
    buffer->setAttr(kReadBySomeName, builder.getUnitAttr());
  if (!family.bytesByStage.empty())
    buffer->setAttr(kBytesByStageName,
                    builder.getDenseI64ArrayAttr(family.bytesByStage));
  known = buffer;
  return known;
}

Value StatePlaces::rowEntry(const Family &family, Value index) {
  Value row = entry(family, index);
  rowBuffers.insert(row);
  return row;
}

Value StatePlaces::place(StringRef name, Value index) {
  auto state = program.symbols.lookup<StateOp>(name);
  StateOp holder = holderOf(state);
  Value whole = entry(familyOf(state), index);
  if (!rows.contains(holder.getSymName()))
    return whole;
  rowBuffers.insert(whole);
  auto layout = state->getAttrOfType<dist::LayoutAttr>(dist::kLayoutName);
  if (layout && !layout.getRuns().empty() && holder != state)
    return runOf(whole, layout.getRuns());
  return viewOf(whole, state.getTensorType().getShape());
}

void StatePlaces::notePlaces() {
  OpBuilder &builder = lowering.getBuilder();
  auto module = cast<ModuleOp>(program.symbols.getOp());
  for (auto state : module.getOps<StateOp>()) {
    lowering::Family family = familyOf(state);
    auto number = [&](int64_t value) {
      return builder.getI64IntegerAttr(value);
    };
    NamedAttribute entries[] = {
        builder.getNamedAttr("object", builder.getStringAttr(family.name)),
        builder.getNamedAttr("offset", number(family.offset)),
        builder.getNamedAttr("stride", number(family.stride)),
        builder.getNamedAttr("elements", number(family.type.getNumElements()))};
    state->setAttr(kPlaceName, builder.getDictionaryAttr(entries));
  }
}

Value StatePlaces::rowOf(Value place) {
  if (rowBuffers.contains(place))
    return place;
  auto view = place.getDefiningOp<rt::ViewOp>();
  return view && view.getOffset() == 0 && view.getIndices().empty() &&
                 rowBuffers.contains(view.getSource())
             ? view.getSource()
             : Value();
}

Value StatePlaces::viewOf(Value row, ArrayRef<int64_t> shape, int64_t offset) {
  Value &known = views[{row.getAsOpaquePointer(), shape.vec(), offset, nullptr,
                        lowering.getBuilder().getInsertionBlock()}];
  if (!known)
    known = lowering.viewAs(row, shape, {}, offset);
  return known;
}

Value StatePlaces::runOf(Value row, ArrayAttr axes) {
  OpBuilder &builder = lowering.getBuilder();
  auto type = cast<rt::BufType>(row.getType());
  int64_t length = type.getNumElements() / program.mesh.getGroupSize(axes);
  Value &known = views[{row.getAsOpaquePointer(),
                        {length},
                        0,
                        const_cast<void *>(axes.getAsOpaquePointer()),
                        builder.getInsertionBlock()}];
  if (known)
    return known;
  Location location = builder.getUnknownLoc();
  Value place = rt::RankIndexOp::create(builder, location,
                                        builder.getIndexType(), axes, 1);
  known = rt::ViewOp::create(
      builder, location, rt::BufType::get({length}, type.getElementType()), row,
      builder.getI64IntegerAttr(0), ValueRange(place),
      builder.getDenseI64ArrayAttr({length}));
  return known;
}

Value StatePlaces::makeRow(Value value, int64_t elements) {
  auto type = cast<RankedTensorType>(value.getType());
  StringRef name = getName(value);
  Value row = lowering.makeBuffer(
      name.empty() ? "row" : name, "moved between ranks",
      RankedTensorType::get({elements}, type.getElementType()),
      "communication");
  rowBuffers.insert(row);
  return row;
}
