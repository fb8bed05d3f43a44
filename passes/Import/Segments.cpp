//===- Segments.cpp - embedding, block and head ---------------------------===//
//
// The model families are here and nowhere else; they differ by what the
// configuration says, never by their name.
//
//===----------------------------------------------------------------------===//

#include "passes/Import/SegmentBuilder.h"

#include <cmath>

using namespace mlir;

namespace heddle::importer {

using mlir::Value; // not Value of heddle/Support

using namespace transformer;

static void addParameters(SegmentBuilder &b, Segment segment) {
  for (const ParameterFamily &family : parameters(b.config))
    if (family.segment == segment)
      b.parameter(family);
}

void buildEmbedding(ModuleOp module, const ModelConfig &config,
                    const StepShape &shape) {
  SegmentBuilder b(module, "embedding", config, shape);
  Value tokens = b.argument("tokens", b.tokens());
  bool learned = config.position == PositionKind::Learned;
  Value positions = learned ? b.argument("positions", b.tokens()) : Value();
  b.dropoutArguments({config.dropout.embedding});
  addParameters(b, Segment::Embedding);

  RankedTensorType type =
      b.floats({shape.sequences, shape.sequenceLength, config.hidden});
  auto rows = [&](StringRef name, Value ids, StringRef table) -> Value {
    b.in(table);
    return b.create<EmbeddingOp>({name.str()}, type, ids, b.get(table),
                                 DictionaryAttr());
  };
  double rate = config.dropout.embedding;
  Value x = rows(rate ? "embedded" : "x", tokens, "embed");
  Value delta;
  // The sum of both is dropped out: one mask on each of its terms.
  auto drop = [&](StringRef name, Value value) {
    return b.dropout(name, value, rate, DropoutSite::Embedding);
  };
  x = drop("x", x);
  if (learned)
    delta = drop("delta",
                 rows(rate ? "placed" : "delta", positions, "position_embed"));
  else
    delta = b.create<ZerosLikeOp>({"delta"}, x);
  b.finish({x, delta}, {"x", "delta"});
}

//===----------------------------------------------------------------------===//
// Block
//===----------------------------------------------------------------------===//

namespace {
/// Weights and biases of the three projections; no bias is null.
struct Projections {
  Value wq, wk, wv, bq, bk, bv;
};
} // namespace

/// Takes a fused parameter apart. The query's part gets the dimension r that
/// the others have not: there is one query head per KV head.
static ResultRange split(SegmentBuilder &b, StringRef fused,
                         ArrayRef<std::string> names) {
  b.in(fused);
  auto type = cast<RankedTensorType>(b.get(fused).getType());
  SmallVector<int64_t> shape(type.getShape().drop_front());
  SmallVector<Type> parts(3, b.floats(shape));
  shape.insert(shape.begin() + 1, 1);
  parts[0] = b.floats(shape);
  return b.create<SplitTensorsOp>(names, parts, b.get(fused)).getParts();
}

static Projections projections(SegmentBuilder &b) {
  if (!b.config.fusedQkv)
    return {b.get("wq"),  b.get("wk"),  b.get("wv"),
            b.find("bq"), b.find("bk"), b.find("bv")};
  ResultRange w = split(b, "wqkv", {"wq", "wk", "wv"});
  if (!b.config.qkvBias)
    return {w[0], w[1], w[2], {}, {}, {}};
  ResultRange bias = split(b, "bqkv", {"bq", "bk", "bv"});
  return {w[0], w[1], w[2], bias[0], bias[1], bias[2]};
}

static Value rotate(SegmentBuilder &b, StringRef name, Value input) {
  if (b.config.position != PositionKind::Rope)
    return input;
  const RopeConfig &rope = b.config.rope;
  Llama3ScalingAttr scaling;
  auto number = [&](double value) { return b.builder.getF64FloatAttr(value); };
  if (rope.scaling == RopeScaling::Llama3)
    scaling = Llama3ScalingAttr::get(
        b.builder.getContext(), number(rope.factor), number(rope.lowFreqFactor),
        number(rope.highFreqFactor), rope.originalMaxPositions);
  return b.create<RopeOp>({name.str()}, input, b.get("positions"),
                          number(rope.theta), scaling, /*inverse=*/false);
}

static FloatAttr scoreScale(SegmentBuilder &b) {
  return b.builder.getF64FloatAttr(
      1 / std::sqrt(static_cast<double>(b.config.headSize)));
}

static IntegerAttr window(SegmentBuilder &b) {
  return b.builder.getI64IntegerAttr(b.config.slidingWindow.value_or(0));
}

/// Attention as one op.
static Value attend(SegmentBuilder &b, Value q, Value k, Value v) {
  const double rate = b.config.dropout.attention;
  Value positions = b.get("positions"), documents = b.get("documents");
  auto type = cast<RankedTensorType>(q.getType());
  return b
      .create<AttentionOp>(
          {"o", "lse"}, type, b.floats(type.getShape().drop_back()), q, k, v,
          positions, positions, documents, documents,
          rate > 0 ? b.get(kDropoutSeed) : Value(),
          rate > 0 ? b.get(kTokenNumbers) : Value(), scoreScale(b), window(b),
          rate > 0 ? b.builder.getF64FloatAttr(rate) : FloatAttr(),
          DictionaryAttr())
      .getResult();
}

/// The same as products, with the matrices between them.
static Value attendUnfused(SegmentBuilder &b, Value q, Value k, Value v) {
  Value positions = b.get("positions"), documents = b.get("documents");
  auto type = cast<RankedTensorType>(q.getType());
  SmallVector<int64_t> matrix(type.getShape());
  matrix.back() = b.shape.sequenceLength;
  Value scores = b.linear("scores", "b s g r k, b t g k -> b s g r t", q, k,
                          Value(), matrix);
  Value p = b.create<ProbabilitiesOp>(
      {"p"}, b.floats(matrix), scores, positions, positions, documents,
      documents, scoreScale(b), window(b), DictionaryAttr());
  p = b.dropout("p_dropped", p, b.config.dropout.attention,
                DropoutSite::Attention);
  return b.linear("o", "b s g r t, b t g k -> b s g r k", p, v, Value(),
                  type.getShape());
}

static Value attention(SegmentBuilder &b, Value input) {
  const ModelConfig &c = b.config;
  int64_t n = b.shape.sequences, s = b.shape.sequenceLength;
  SmallVector<int64_t> queryShape = {n, s, c.kvHeads, c.queryHeadsPerKvHead,
                                     c.headSize};
  SmallVector<int64_t> keyShape = {n, s, c.kvHeads, c.headSize};
  Projections p = projections(b);
  auto project = [&](StringRef name, StringRef weightName, Value weight,
                     Value bias, ArrayRef<int64_t> shape) {
    b.in(c.fusedQkv ? "wqkv" : weightName);
    return b.linear(name,
                    shape.size() == 5 ? "b s d, g r k d -> b s g r k"
                                      : "b s d, g k d -> b s g k",
                    input, weight, bias, shape);
  };
  Value q = project("q", "wq", p.wq, p.bq, queryShape);
  Value k = project("k", "wk", p.wk, p.bk, keyShape);
  Value v = project("v", "wv", p.wv, p.bv, keyShape);
  if (c.qkNorm) {
    b.in("gq");
    q = b.rmsNorm("qn", q, b.get("gq"));
    b.in("gk");
    k = b.rmsNorm("kn", k, b.get("gk"));
  }
  b.in("wo", 1);
  q = rotate(b, "qr", q);
  k = rotate(b, "kr", k);
  Value o =
      b.shape.unfusedAttention ? attendUnfused(b, q, k, v) : attend(b, q, k, v);
  b.in("wo");
  return b.linear("a", "b s g r k, d g r k -> b s d", o, b.get("wo"),
                  b.find("bo"), {n, s, c.hidden});
}

static transformer::Activation activationOf(const ModelConfig &config) {
  switch (config.activation) {
  case heddle::Activation::Silu:
    return transformer::Activation::Silu;
  case heddle::Activation::GeluTanh:
    return transformer::Activation::GeluTanh;
  case heddle::Activation::GeluErf:
    return transformer::Activation::GeluErf;
  case heddle::Activation::Relu:
    return transformer::Activation::Relu;
  }
  llvm_unreachable("an activation of the list");
}

static Value mlp(SegmentBuilder &b, Value input) {
  const ModelConfig &c = b.config;
  int64_t n = b.shape.sequences, s = b.shape.sequenceLength;
  auto widen = [&](StringRef name, StringRef weight, StringRef bias) {
    b.in(weight);
    return b.linear(name, "b s d, f d -> b s f", input, b.get(weight),
                    b.find(bias), {n, s, c.ffn});
  };
  Value gate = c.gatedMlp ? widen("gate", "wg", "bg") : Value();
  Value up = widen("up", "wu", "bu");
  b.in("wd", 1);
  transformer::Activation kind = activationOf(c);
  Value middle;
  if (c.gatedMlp)
    middle = b.create<GatedOp>({"m"}, kind, gate, up);
  else
    middle = b.create<ActivationOp>({"m"}, kind, up);
  b.in("wd");
  return b.linear("dn", "b s f, d f -> b s d", middle, b.get("wd"),
                  b.find("bd"), {n, s, c.hidden});
}

void buildBlock(ModuleOp module, const ModelConfig &config,
                const StepShape &shape) {
  SegmentBuilder b(module, "block", config, shape);
  RankedTensorType type =
      b.floats({shape.sequences, shape.sequenceLength, config.hidden});
  Value x = b.argument("x", type), delta = b.argument("delta", type);
  b.argument("positions", b.tokens());
  b.argument("documents", b.tokens());
  b.dropoutArguments({config.dropout.attention, config.dropout.residual},
                     shape.hasNoise);
  addParameters(b, Segment::Block);

  b.in("g1", 1);
  Value x1 = b.add("x1", x, delta);
  Value a = attention(b, b.norm("n1", x1, "g1", "h1"));
  a = b.dropout("a_dropped", a, config.dropout.residual,
                DropoutSite::AttentionOutput);
  b.in("g2", 1);
  Value x2 = b.add("x2", x1, a);
  Value dn = mlp(b, b.norm("n2", x2, "g2", "h2"));
  dn = b.dropout("dn_dropped", dn, config.dropout.residual,
                 DropoutSite::MlpOutput);
  b.finish({x2, dn}, {"x", "delta"});
}

//===----------------------------------------------------------------------===//
// Head
//===----------------------------------------------------------------------===//

/// The mean over counted labels of the cross entropy of `logits`.
static Value loss(SegmentBuilder &b, Value logits) {
  int64_t n = b.shape.sequences, s = b.shape.sequenceLength;
  RankedTensorType rows = b.floats({n, s});
  Value labels = b.get("labels");
  DictionaryAttr whole;
  Value max = b.create<RowMaxOp>({"max"}, rows, logits, whole);
  Value sum = b.create<RowSumExpOp>({"sum"}, rows, logits, max, whole);
  Value picked = b.create<PickOp>({"picked"}, rows, logits, labels, whole);
  Value losses = b.create<TokenLossOp>({"losses"}, rows, max, sum, picked);
  return b.create<MeanCountedOp>({"loss"}, b.floats({}), losses, labels,
                                 b.get("count"));
}

void buildHead(ModuleOp module, const ModelConfig &config,
               const StepShape &shape) {
  SegmentBuilder b(module, "head", config, shape);
  int64_t n = shape.sequences, s = shape.sequenceLength;
  RankedTensorType type = b.floats({n, s, config.hidden});
  Value x = b.argument("x", type), delta = b.argument("delta", type);
  addParameters(b, Segment::Head);
  if (config.tiedEmbeddings)
    for (const ParameterFamily &family : parameters(config))
      if (family.segment == Segment::Embedding && family.argument == "embed")
        b.parameter(family);
  b.argument("labels", b.tokens());
  b.argument("count", RankedTensorType::get({}, b.builder.getI64Type()));

  b.in("g", 1);
  Value y = b.add("y", x, delta);
  Value normed = b.norm("n", y, "g", "h");
  StringRef table = config.tiedEmbeddings ? "embed" : "lm_head";
  b.in(table);
  Value logits = b.linear("logits", "b s d, v d -> b s v", normed, b.get(table),
                          {}, {n, s, config.vocabulary});
  b.finish({loss(b, logits)}, {"loss"});
}

} // namespace heddle::importer
