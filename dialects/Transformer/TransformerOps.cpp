//===- TransformerOps.cpp - rules computed from types, costs --------------===//

#include "dialects/Transformer/Transformer.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

#include <algorithm>
#include <cmath>
#include <numbers>

using namespace mlir;
using namespace heddle;
using namespace heddle::transformer;

#define GET_OP_CLASSES
#include "dialects/Transformer/TransformerOps.cpp.inc"

//===----------------------------------------------------------------------===//
// Rules that depend on types
//===----------------------------------------------------------------------===//

static int64_t rankOf(Value value) {
  return cast<RankedTensorType>(value.getType()).getRank();
}

std::string ContractOp::getFactorRule() {
  auto [left, right] = getSpec().split("->");
  SmallVector<StringRef> kept, all;
  llvm::SplitString(right, kept);
  llvm::SplitString(left, all, " ,");
  llvm::StringSet<> seen;
  std::string summed;
  for (StringRef letter : all)
    if (!llvm::is_contained(kept, letter) && seen.insert(letter).second)
      summed += " " + letter.str();
  std::string scales;
  for (size_t i = 0; i < getScales().size(); ++i)
    scales += ", ";
  bool hasBlocks = !getBlocks().empty() && getScales().size() >= 2;
  if (hasBlocks)
    scales.replace(0, 4, ", b.x b.k, b.y b.k");
  // Noise is of the left operand: of its tokens, by where the rest stands.
  std::string noise, places;
  if (getSeed()) {
    SmallVector<StringRef> letters;
    llvm::SplitString(left.split(",").first, letters);
    for (auto [dim, letter] : llvm::enumerate(letters))
      (dim < 2 ? noise : places) += " " + letter.str();
    noise = ", ," + noise;
    places = places.empty() ? "" : "; position" + places;
  }
  return left.str() + scales + noise + "->" + right.str() + "; linear 0 1" +
         places + (summed.empty() ? "" : "; sum" + summed) +
         (hasBlocks ? "; whole b.x b.y b.k" : "");
}

std::string HadamardOp::getFactorRule() {
  std::string all, rows;
  for (int64_t i = 0, rank = rankOf(getInput()); i < rank; ++i) {
    all += "q" + std::to_string(i) + " ";
    if (i < static_cast<int64_t>(getOver()))
      rows += " q" + std::to_string(i);
  }
  return all + "-> " + all + "; whole" + rows;
}

/// Of the codes too, whose factors are the input's, rotated.
std::string QuantizeOp::getFactorRule() {
  SmallVector<std::string> factors;
  for (int64_t i = 0, rank = rankOf(getInput()); i < rank; ++i)
    factors.push_back("q" + std::to_string(i));
  SmallVector<std::string> rotated(factors);
  std::rotate(rotated.begin(), rotated.begin() + getRotate(), rotated.end());
  std::string noise, places;
  if (getSeed()) {
    auto tokens = static_cast<size_t>(rankOf(getTokenNumbers()));
    noise = ", ," + llvm::join(ArrayRef(factors).take_front(tokens), " ");
    places =
        "; position " + llvm::join(ArrayRef(factors).drop_front(tokens), " ");
  }
  return llvm::join(factors, " ") + (getAmax() ? "," : "") + noise + " -> " +
         llvm::join(rotated, " ") + "," +
         (getBlocks().empty() ? "" : "b.x b.k") +
         (getTensorScale() ? "," : "") + places;
}

/// Names for the dimensions of a bias: `o0 o1 ...`.
static std::string trailingFactors(int64_t rank) {
  std::string names;
  for (int64_t i = 0; i < rank; ++i)
    names += " o" + std::to_string(i);
  return names;
}

std::string BiasAddOp::getFactorRule() {
  std::string bias = trailingFactors(rankOf(getBias()));
  return "..." + bias + "," + bias + " -> ..." + bias + "; additive";
}

std::string SumLeadingOp::getFactorRule() {
  std::string kept = trailingFactors(rankOf(getResult()));
  return "..." + kept + " ->" + kept + "; sum ...; linear 0";
}

/// Names of a part's dimensions: those of `whole` behind its first, `o0 o1
/// ...`, in order, and a name of its own for each further dimension of size 1.
static std::string partFactors(Value whole, Value part) {
  ArrayRef<int64_t> sizes = cast<RankedTensorType>(whole.getType()).getShape();
  sizes = sizes.drop_front(std::min<size_t>(1, sizes.size()));
  std::string names;
  size_t next = 0;
  for (auto [dim, size] :
       llvm::enumerate(cast<RankedTensorType>(part.getType()).getShape())) {
    bool further = size == 1 && (next == sizes.size() || sizes[next] != 1);
    names +=
        further ? " u" + std::to_string(dim) : " o" + std::to_string(next++);
  }
  return names;
}

static std::string allPartFactors(Value whole, ValueRange parts) {
  return llvm::join(
      llvm::map_range(parts,
                      [&](Value part) { return partFactors(whole, part); }),
      ",");
}

std::string SplitTensorsOp::getFactorRule() {
  return "p" + trailingFactors(rankOf(getInput()) - 1) + " ->" +
         allPartFactors(getInput(), getParts()) + "; whole p; linear 0";
}

std::string StackTensorsOp::getFactorRule() {
  return allPartFactors(getResult(), getInputs()) + " -> p" +
         trailingFactors(rankOf(getResult()) - 1) + "; additive";
}

/// Of probabilities, what is dropped depends on which head of the whole model
/// they are of; of all else, on the place in the last dimension.
std::string DropoutOp::getFactorRule() {
  return getSite() == DropoutSite::Attention
             ? "b s g r t, , b s -> b s g r t; whole t; padded t; position g "
               "r; linear 0"
             : "... d, , ... -> ... d; position d; linear 0";
}

std::string DropoutWithMaskOp::getFactorRule() {
  return getSite() == DropoutSite::Attention
             ? "b s g r t, , b s -> b s g r t, b s g r t; whole t; padded t; "
               "position g r"
             : "... d, , ... -> ... d, ... d; position d";
}

std::string LossGradOp::getFactorRule() {
  return std::string("b s v, b s, b s, b s, ") + (getScale() ? ", " : "") +
         "-> b s v; position v";
}

std::string ClipFactorOp::getFactorRule() {
  return getScale() ? " , -> , " : " -> , ";
}

/// Dropout of a probability depends on which head of the whole model it is of.
std::string AttentionOp::getFactorRule() {
  bool drops = static_cast<bool>(getSeed());
  return std::string("b s g r k, b t g k, b t g k, b s, b t, b s, b t") +
         (drops ? ", , b s" : "") +
         " -> b s g r k, b s g r; whole t k; padded t; position r" +
         (drops ? " g" : "");
}

std::string AttentionGradOp::getFactorRule() {
  bool drops = static_cast<bool>(getSeed());
  return std::string("b s g r k, b s g r k, b t g k, b t g k, b s g r k, "
                     "b s g r, b s, b t, b s, b t") +
         (drops ? ", , b s" : "") +
         " -> b s g r k, b t g k, b t g k; whole t k; padded t; sum s r; "
         "linear 0" +
         (drops ? "; position g r" : "");
}

//===----------------------------------------------------------------------===//
// Costs
//===----------------------------------------------------------------------===//

int64_t ContractOp::getFlops() {
  FailureOr<dist::FactorRule> rule = dist::getFactorRule(*this);
  int64_t product = 2;
  llvm::SmallDenseSet<unsigned> seen;
  const Value sides[] = {getLhs(), getRhs()}; // no factors of scales
  for (auto [factors, value] : llvm::zip(rule->operands, sides))
    for (auto [dim, factor] : llvm::enumerate(factors))
      if (seen.insert(factor).second)
        product *= cast<RankedTensorType>(value.getType()).getDimSize(dim);
  return product;
}

int64_t transformer::countAttentionPairs(int64_t queries, int64_t keys,
                                         int64_t window) {
  int64_t reach = window > 0 ? std::min(window, keys) : keys;
  // The first `reach` queries see 1, 2, ... keys, the others `reach` each.
  int64_t growing = std::min(reach, queries);
  return growing * (growing + 1) / 2 + (queries - growing) * reach;
}

/// Operations of `products` matrix products per (query, key) pair.
static int64_t attentionFlops(Value query, Value key, int64_t window,
                              int64_t products) {
  ArrayRef<int64_t> q = cast<RankedTensorType>(query.getType()).getShape();
  int64_t keys = cast<RankedTensorType>(key.getType()).getDimSize(1);
  int64_t pairs = countAttentionPairs(q[1], keys, window);
  return 2 * products * pairs * q[0] * q[2] * q[3] * q[4];
}

int64_t AttentionOp::getFlops() {
  return attentionFlops(getQuery(), getKey(), getWindow(), 2);
}

// Scores again, then the gradients of value, probabilities, query and key.
int64_t AttentionGradOp::getFlops() {
  return attentionFlops(getQuery(), getKey(), getWindow(), 5);
}

//===----------------------------------------------------------------------===//
// Rotary frequencies
//===----------------------------------------------------------------------===//

static double scaleFrequency(double frequency, Llama3ScalingAttr scaling) {
  double context = static_cast<double>(scaling.getOriginalContext());
  double low = scaling.getLowFrequencyFactor().getValueAsDouble();
  double high = scaling.getHighFrequencyFactor().getValueAsDouble();
  double factor = scaling.getFactor().getValueAsDouble();
  double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < context / high)
    return frequency;
  if (wavelength > context / low)
    return frequency / factor;
  double smooth = (context / wavelength - low) / (high - low);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

SmallVector<double> RopeOp::getFrequencies() {
  int64_t size = cast<RankedTensorType>(getInput().getType()).getShape().back();
  double theta = getTheta().convertToDouble();
  SmallVector<double> frequencies;
  for (int64_t i = 0; i < size / 2; ++i) {
    double frequency = std::pow(theta, -2.0 * static_cast<double>(i) /
                                           static_cast<double>(size));
    frequencies.push_back(
        getScaling() ? scaleFrequency(frequency, *getScaling()) : frequency);
  }
  return frequencies;
}

//===----------------------------------------------------------------------===//
// Loops
//===----------------------------------------------------------------------===//

YieldOp LoopOp::getYield() {
  return cast<YieldOp>(getBody().front().getTerminator());
}

YieldOp RecomputeOp::getYield() {
  return cast<YieldOp>(getBody().front().getTerminator());
}

void LoopOp::getAsmBlockArgumentNames(Region &, OpAsmSetValueNameFn setName) {
  if (getBody().getNumArguments() > 0) // an op may be printed to be refused
    setName(getIndex(), getOver() == "layer" ? "layer" : "i");
}
