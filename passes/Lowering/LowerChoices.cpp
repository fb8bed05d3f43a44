//===- LowerChoices.cpp - the step: layers that differ => rt --------------===//
//
// Which function a layer calls, and where what only some layers save lies, is
// in tables with a number per layer that a place holds. Nothing of it is in the
// text.
//
//===----------------------------------------------------------------------===//

#include "passes/Lowering/StepLowering.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::lowering;
using namespace heddle::transformer;

void StepLowering::makeLayerTable(
    StringRef name, int64_t layers,
    llvm::function_ref<std::vector<int64_t>(ArrayRef<int64_t>)> numbers) {
  if (program.op.lookupSymbol(name))
    return;
  auto append = [&](SmallVectorImpl<int64_t> &row, int64_t begin, int64_t first,
                    int64_t count) {
    std::vector<int64_t> found =
        numbers(llvm::to_vector(llvm::seq<int64_t>(first, first + count)));
    llvm::copy(found, row.begin() + begin);
  };
  SmallVector<int64_t> values;
  if (!stages) {
    values.resize(layers);
    append(values, 0, 0, layers);
  }
  for (int64_t place = 0; stages && place < stages->places(); ++place) {
    // Behind a place's own layers nothing is asked for: one of its numbers.
    SmallVector<int64_t> row(stages->mostOfPlace());
    for (int64_t chunk = 0; chunk < stages->chunks(); ++chunk)
      append(row, stages->firstOf(place, chunk),
             stages->layersOf(place, chunk).first,
             stages->countOf(place, chunk));
    if (int64_t held = stages->heldBy(place))
      std::fill(row.begin() + held, row.end(), row.front());
    llvm::append_range(values, row);
  }
  OpBuilder begin = OpBuilder::atBlockBegin(&program.op.getBody().front());
  rt::NumbersOp::create(begin, program.op.getLoc(), name, values,
                        stages ? begin.getStringAttr(stage::kStageAxis)
                               : StringAttr());
}

LogicalResult StepLowering::lowerCall(Operation *call) {
  auto byLayer = dyn_cast<CallByLayerOp>(call);
  SmallVector<StringRef> callees = calleesOf(call);
  const Signature &signature = signatures.find(callees.front())->second;
  SmallVector<Value> arguments;
  for (Value operand :
       byLayer ? ValueRange(byLayer.getInputs()) : call->getOperands())
    arguments.push_back(lowering.placeOf(operand));
  for (auto [i, result] : llvm::enumerate(call->getResults())) {
    if (signature.results[i] < 0)
      continue;
    if (!signature.accumulates[i]) {
      arguments.push_back(lowering.placeOf(result));
      continue;
    }
    auto sum = cast<AccumulateOp>(*result.user_begin());
    arguments.push_back(stateEntry(sum.getState(), sum.getIndex()));
  }
  auto make = [&](int64_t choice) {
    rt::CallOp::create(builder(), call->getLoc(), callees[choice], arguments);
  };
  if (!byLayer) {
    make(0);
    return success();
  }
  ArrayRef<int64_t> choices = byLayer.getChoices();
  makeLayerTable("layer_choices", choices.size(),
                 [&](ArrayRef<int64_t> layers) {
                   std::vector<int64_t> numbers;
                   for (int64_t layer : layers)
                     numbers.push_back(choices[layer]);
                   return numbers;
                 });
  SmallVector<std::pair<int64_t, StringRef>> cases;
  for (auto [i, callee] : llvm::enumerate(callees))
    cases.emplace_back(i, callee);
  inCases(number("layer_choices", indices.lookup(byLayer.getLayer())), cases,
          make);
  return success();
}

void StepLowering::saveSomeLayers(lowering::Family &family, Value collected,
                                  Value stack) {
  auto call = collected.getDefiningOp<CallByLayerOp>();
  if (!call)
    return;
  SmallVector<StringRef> callees = calleesOf(call);
  unsigned index = cast<OpResult>(collected).getResultNumber();
  SmallVector<int64_t> saving;
  for (auto [i, callee] : llvm::enumerate(callees)) {
    func::FuncOp function = signatures.find(callee)->second.function;
    Operation *end = function.getBody().front().getTerminator();
    if (!end->getOperand(index).getDefiningOp<stage::UndefinedOp>())
      saving.push_back(i);
  }
  if (saving.size() == callees.size())
    return;
  family.positions =
      "saved_positions_" +
      llvm::join(
          llvm::map_range(saving, [](int64_t i) { return std::to_string(i); }),
          "_");
  ArrayRef<int64_t> choices = call.getChoices();
  auto saves = [&](int64_t layer) {
    return llvm::is_contained(saving, choices[layer]);
  };
  makeLayerTable(family.positions, choices.size(),
                 [&](ArrayRef<int64_t> layers) {
                   std::vector<int64_t> numbers;
                   int64_t next = 0;
                   for (int64_t layer : layers)
                     numbers.push_back(saves(layer) ? next++ : 0);
                   return numbers;
                 });
  if (!stages) {
    auto entries = static_cast<int64_t>(
        llvm::count_if(llvm::seq<int64_t>(0, choices.size()), saves));
    family.bytesByStage = {bytesOf(family.type, entries)};
    return;
  }
  SmallVector<int64_t> most(stages->places());
  for (int64_t place = 0; place < stages->places(); ++place)
    for (int64_t chunk = 0; chunk < stages->chunks(); ++chunk) {
      const PlanRange &layers = stages->layersOf(place, chunk);
      most[place] = std::max<int64_t>(
          most[place],
          llvm::count_if(llvm::seq<int64_t>(layers.first, layers.last + 1),
                         saves));
    }
  inPool(family, poolOf(stack), most);
}

Value StepLowering::entry(const Family &family, Value index, int64_t shift) {
  if (family.positions.empty() || !index)
    return states.entry(family, index, shift);
  Value &position = positions[{family.positions, index.getAsOpaquePointer(),
                               builder().getInsertionBlock()}];
  if (!position)
    position = number(family.positions,
                      stages ? sum(number("chunk_begins", slots.chunk), index)
                             : index);
  return states.entry(family, position, shift);
}
