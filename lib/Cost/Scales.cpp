// Products of codes: what is done in front of each, and what that takes.

#include "BlockForward.h"

#include <algorithm>
#include <set>

using namespace heddle;
using namespace heddle::detail;

/// The argument that a product is with.
static std::string_view argumentOf(const RankSizes &sizes,
                                   const std::string &product) {
  static constexpr std::pair<std::string_view, std::string_view> kArguments[] =
      {{"q", "wq"},    {"k", "wk"},  {"v", "wv"}, {"a", "wo"},
       {"gate", "wg"}, {"up", "wu"}, {"dn", "wd"}};
  for (const auto &[name, argument] : kArguments)
    if (name == product && sizes.find(Segment::Block, argument))
      return argument;
  return "wqkv";
}

static Linear sizesOf(const RankSizes &sizes, const std::string &name) {
  const std::int64_t keys = sizes.g * sizes.k;
  const AxisList kv(sizes.heads.begin(),
                    sizes.heads.end() - std::ssize(sizes.copies));
  if (name == "q")
    return {name, sizes.d, keys * sizes.r, {}, sizes.heads, sizes.heads};
  if (name == "k" || name == "v")
    return {name, sizes.d, keys, {}, kv, kv};
  if (name == "a")
    return {name, keys * sizes.r, sizes.d, sizes.heads, {}, sizes.heads};
  if (name == "dn")
    return {name, sizes.f, sizes.d, sizes.ffn, {}, sizes.ffn};
  return {name, sizes.d, sizes.f, {}, sizes.ffn, sizes.ffn}; // gate, up
}

Linear detail::linearOf(const RankSizes &sizes, const std::string &name) {
  Linear linear = sizesOf(sizes, name);
  linear.isScaled = sizes.formats.scaling.has_value();
  linear.argument = argumentOf(sizes, name);
  return linear;
}

std::array<std::int64_t, 2> RankSizes::scaledTensors() const {
  // q, k, v, the output projection, up, down; gate.
  const std::int64_t products = find(Segment::Block, "wg") ? 7 : 6;
  constexpr std::int64_t kInputs = 4; // of q, of the projection, of up, of down
  return {products + kInputs, products};
}

std::vector<BlockOp::Operand> Linear::forward(const std::string &input,
                                              std::int64_t tokens) const {
  if (!isScaled)
    return {};
  return {
      {input, tokens, inner, inputAxes, false, false, argument},
      {"weight of " + name, columns, inner, weightAxes, false, true, argument}};
}

std::vector<BlockOp::Operand> Linear::ofInput(const std::string &gradient,
                                              std::int64_t tokens) const {
  if (!isScaled)
    return {};
  return {
      {gradient, tokens, columns, outputAxes, false, false, argument},
      {"weight of " + name, inner, columns, weightAxes, true, true, argument}};
}

std::vector<BlockOp::Operand> Linear::ofWeight(const std::string &gradient,
                                               const std::string &input,
                                               std::int64_t tokens) const {
  if (!isScaled)
    return {};
  return {{gradient, columns, tokens, outputAxes, true, false, argument},
          {input, inner, tokens, inputAxes, true, false, argument}};
}

namespace {

/// Bytes of an element that is mixed: of what is computed in, bf16.
constexpr std::int64_t kMixedElement = 2;

class Scaler {
public:
  Scaler(const ScalingRecipe &recipe, const std::vector<std::string> &plain,
         bool gathersBeside)
      : recipe(recipe), plain(plain), gathersBeside(gathersBeside) {}

  std::vector<BlockOp> run(const std::vector<BlockOp> &from) {
    for (const BlockOp &op : from) {
      // What is computed again stands in a region of its own.
      const bool again = op.moment == kAgain;
      if (again && !wasAgain) {
        inRegion = {};
        ++regions;
      }
      wasAgain = again;
      if (!op.operands.empty() &&
          !std::ranges::count(plain, op.operands.front().of))
        product(op, again ? inRegion : inFunction);
      else
        ops.push_back(op);
      if (gathersBeside && op.moves &&
          op.moves->kind == CollectiveKind::AllGather)
        putBeside();
    }
    return std::move(ops);
  }

private:
  using Made = std::set<std::string>;

  void product(BlockOp op, Made &made) {
    for (const BlockOp::Operand &operand : op.operands) {
      std::erase(op.reads, operand.key);
      const std::string codes = quantize(op, operand, made);
      op.reads.push_back(codes);
      op.reads.push_back(codes + " scale");
      if (recipe.hasTwoLevels())
        op.reads.push_back(codes + " scale of the tensor");
    }
    ops.push_back(std::move(op));
  }

  /// The gather that was put last, and the kernels that make its input, go in
  /// front of the product there: codes of that live beside what they make.
  void putBeside() {
    auto front = std::prev(ops.end());
    while (front != ops.begin() && std::prev(front)->fuses &&
           std::prev(front)->temporary == 0)
      --front;
    if (front != ops.begin() && std::prev(front)->products > 0)
      std::rotate(std::prev(front), front, ops.end());
  }

  /// A number of regions apart from those of the function around them.
  std::string prefix() const {
    return wasAgain ? "region " + std::to_string(regions) + " " : "";
  }
  std::string codesOf(const BlockOp::Operand &operand) const {
    return prefix() + operand.key +
           (operand.isTurned ? " turned codes" : " codes");
  }

  /// The operand that codes are made of: of a weight's gradient mixed, where
  /// the recipe does so.
  BlockOp::Operand mixed(const BlockOp &product, BlockOp::Operand operand,
                         Made &made) {
    if (!recipe.mixesTokens || operand.isParameter || !operand.isTurned)
      return operand;
    const std::string key = prefix() + operand.key + " mixed";
    if (made.insert(key).second) {
      BlockOp &op = add(product);
      op.results = {{key, key, operand.rows * operand.summed * kMixedElement}};
      read(op, operand);
    }
    operand.key = key;
    return operand;
  }

  /// \return the key of the operand's codes.
  std::string quantize(const BlockOp &product, const BlockOp::Operand &whole,
                       Made &made) {
    const BlockOp::Operand operand = mixed(product, whole, made);
    const std::string codes = codesOf(operand);
    if (!made.insert(codes).second)
      return codes;
    std::vector<std::string> reads;
    // With scales of earlier steps it goes straight into what the function
    // returns, and no code waits for it.
    if (recipe.hasTensorScales() && recipe.amaxHistory == 0)
      reads.push_back(largest(product, operand, made));
    BlockOp &op = add(product);
    op.results = {{codes, codes,
                   (operand.rows * operand.summed * recipe.codeBits() + 7) / 8},
                  {codes + " scale", codes + " scale", scaleBytes(operand)}};
    if (recipe.hasTwoLevels()) {
      const std::string whole = codes + " scale of the tensor";
      op.results.push_back({whole, whole, kFloat});
    }
    op.reads = std::move(reads);
    read(op, operand);
    return codes;
  }

  std::int64_t scaleBytes(const BlockOp::Operand &operand) const {
    if (recipe.blockLength == 0)
      return kFloat;
    auto count = [](std::int64_t elements, std::int64_t block) {
      return (elements + block - 1) / block;
    };
    return count(operand.rows, operand.isParameter ? recipe.weightRows() : 1) *
           count(operand.summed, recipe.blockLength) * recipe.blockScaleBytes();
  }

  std::string largest(const BlockOp &product, const BlockOp::Operand &operand,
                      Made &made) {
    const std::string amax = prefix() + operand.key + " amax";
    if (!made.insert(amax).second)
      return amax;
    const std::string part =
        operand.axes.empty() ? amax : amax + " of the rank's part";
    BlockOp &op = add(product);
    op.results = {{part, part, kFloat}};
    read(op, operand);
    if (!operand.axes.empty()) {
      BlockOp &reduce = add(product);
      reduce.results = {{amax, amax, kFloat}};
      reduce.reads = {part};
      reduce.moves =
          BlockOp::Move{CollectiveKind::AllReduce, "largest of a scaled tensor",
                        operand.axes, 1};
    }
    return amax;
  }

  BlockOp &add(const BlockOp &product) {
    BlockOp &op = ops.emplace_back();
    op.moment = product.moment;
    if (op.moment.empty() && !product.results.empty())
      op.moment = product.results.front().name;
    return op;
  }

  /// Parameters' parts are no values of the function.
  static void read(BlockOp &op, const BlockOp::Operand &operand) {
    if (!operand.isParameter)
      op.reads.push_back(operand.key);
  }

  const ScalingRecipe recipe;
  const std::vector<std::string> &plain;
  const bool gathersBeside;
  std::vector<BlockOp> ops;
  Made inFunction, inRegion;
  bool wasAgain = false;
  std::int64_t regions = 0;
};

} // namespace

std::vector<BlockOp> detail::withScales(const std::vector<BlockOp> &ops,
                                        const std::vector<std::string> &plain,
                                        const RankSizes &sizes) {
  if (!sizes.formats.scaling)
    return ops;
  return Scaler(*sizes.formats.scaling, plain, sizes.storage.overlaps).run(ops);
}
