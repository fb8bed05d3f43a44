//===- SegmentBuilder.cpp - one segment's function, op by op --------------===//

#include "passes/Import/SegmentBuilder.h"

#include "heddle/Support/Check.h"

using namespace mlir;

namespace heddle::importer {

using mlir::Value; // not Value of heddle/Support

using transformer::AddOp;
using transformer::BiasAddOp;
using transformer::ContractOp;
using transformer::DropoutOp;
using transformer::DropoutSite;
using transformer::DropoutWithMaskOp;
using transformer::kDropoutSeed;
using transformer::kTokenNumbers;
using transformer::LayerNormOp;
using transformer::RmsNormOp;

SegmentBuilder::SegmentBuilder(ModuleOp module, StringRef name,
                               const ModelConfig &config,
                               const StepShape &shape)
    : config(config), shape(shape), builder(module.getContext()),
      segment(builder.getStringAttr(name)), location(NameLoc::get(segment)) {
  builder.setInsertionPointToEnd(module.getBody());
  function = func::FuncOp::create(builder, location, name,
                                  builder.getFunctionType({}, {}));
  builder.setInsertionPointToStart(function.addEntryBlock());
}

Value SegmentBuilder::argument(StringRef name, Type type) {
  unsigned index = function.getNumArguments();
  DictionaryAttr attributes = builder.getDictionaryAttr(builder.getNamedAttr(
      transformer::kArgumentName, builder.getStringAttr(name)));
  LogicalResult inserted =
      function.insertArgument(index, type, attributes, location);
  HEDDLE_CHECK(succeeded(inserted), "argument {}", name.str());
  Value value = function.getArgument(index);
  bool isNew = named.try_emplace(name, value).second;
  HEDDLE_CHECK(isNew, "two arguments are called {}", name.str());
  return value;
}

void SegmentBuilder::parameter(const ParameterFamily &family) {
  argument(family.argument, floats(family.shape));
  function.setArgAttr(
      function.getNumArguments() - 1, transformer::kStateName,
      FlatSymbolRefAttr::get(builder.getContext(), family.name));
  modules[family.argument] = family.name;
}

Value SegmentBuilder::get(StringRef name) const {
  Value value = named.lookup(name);
  HEDDLE_CHECK(value, "the segment has no parameter {}", name.str());
  return value;
}

void SegmentBuilder::in(StringRef parameter, int levels) {
  StringRef path = modules.find(parameter)->second;
  for (int i = 0; i <= levels; ++i) // the last part is "weight" or "bias"
    path = path.rsplit('.').first;
  std::string module = path.str();
  if (size_t layer = module.find("{}"); layer != std::string::npos)
    module.replace(layer, 2, "N");
  location = NameLoc::get(builder.getStringAttr(module), NameLoc::get(segment));
}

Value SegmentBuilder::add(StringRef name, Value lhs, Value rhs) {
  return create<AddOp>({name.str()}, lhs, rhs);
}

void SegmentBuilder::dropoutArguments(ArrayRef<double> rates, bool hasNoise) {
  if (!hasNoise && llvm::all_of(rates, [](double rate) { return rate == 0; }))
    return;
  argument(kTokenNumbers, tokens());
  argument(kDropoutSeed, RankedTensorType::get({}, builder.getI64Type()));
}

Value SegmentBuilder::dropout(StringRef name, Value input, double rate,
                              DropoutSite site) {
  if (rate == 0)
    return input;
  // What stands before the layers is not saved by any.
  if (!shape.savesMasks || site == DropoutSite::Embedding)
    return create<DropoutOp>({name.str()}, input, get(kDropoutSeed),
                             get(kTokenNumbers), builder.getF64FloatAttr(rate),
                             site);
  auto type = cast<RankedTensorType>(input.getType());
  return create<DropoutWithMaskOp>(
             {name.str(), name.str() + "_mask"}, type,
             RankedTensorType::get(type.getShape(), builder.getI8Type()), input,
             get(kDropoutSeed), get(kTokenNumbers),
             builder.getF64FloatAttr(rate),
             transformer::DropoutSiteAttr::get(builder.getContext(), site),
             DictionaryAttr())
      .getResult();
}

Value SegmentBuilder::linear(StringRef name, StringRef spec, Value input,
                             Value weight, Value bias,
                             ArrayRef<int64_t> shape) {
  std::string product = name.str() + (bias ? "_product" : "");
  bool hasNoise = this->shape.hasNoise;
  Value result = create<ContractOp>(
      {product}, floats(shape), spec, input, weight,
      hasNoise ? find(kDropoutSeed) : Value(),
      hasNoise && find(kDropoutSeed) ? find(kTokenNumbers) : Value());
  return bias ? create<BiasAddOp>({name.str()}, result, bias) : result;
}

Value SegmentBuilder::rmsNorm(StringRef name, Value input, Value weight) {
  auto type = cast<RankedTensorType>(input.getType());
  return create<RmsNormOp>({name.str(), name.str() + "_rstd"}, type,
                           floats(type.getShape().drop_back()), input, weight,
                           builder.getF64FloatAttr(config.normEps))
      .getResult();
}

Value SegmentBuilder::norm(StringRef name, Value input, StringRef weight,
                           StringRef bias) {
  in(weight);
  if (config.norm == NormKind::Rms)
    return rmsNorm(name, input, get(weight));
  auto type = cast<RankedTensorType>(input.getType());
  RankedTensorType rows = floats(type.getShape().drop_back());
  std::string text = name.str();
  return create<LayerNormOp>({text, text + "_mean", text + "_rstd"}, type, rows,
                             rows, input, get(weight), get(bias),
                             builder.getF64FloatAttr(config.normEps))
      .getResult();
}

void SegmentBuilder::finish(ArrayRef<Value> results,
                            ArrayRef<StringRef> names) {
  func::ReturnOp::create(builder, NameLoc::get(segment), results);
  function.setFunctionType(builder.getFunctionType(
      function.getArgumentTypes(), ValueRange(results).getTypes()));
  for (auto [index, name] : llvm::enumerate(names))
    function.setResultAttr(index, transformer::kArgumentName,
                           builder.getStringAttr(name));
}

RankedTensorType SegmentBuilder::floats(ArrayRef<int64_t> shape) {
  return RankedTensorType::get(shape, builder.getF32Type());
}

RankedTensorType SegmentBuilder::tokens() {
  return RankedTensorType::get({shape.sequences, shape.sequenceLength},
                               builder.getI32Type());
}

} // namespace heddle::importer
