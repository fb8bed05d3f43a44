#include "BlockForward.h"

#include "heddle/Cost/Flops.h"

#include <algorithm>
#include <map>
#include <set>

using namespace heddle;
using namespace heddle::detail;

namespace {

constexpr std::int64_t kStatistic = 4; ///< bytes

class Forward {
public:
  Forward(const ModelConfig &model, const RankSizes &sizes)
      : model(model), sizes(sizes), format(sizes.formats.compute),
        tokens(sizes.tokens()), edge(sizes.edgeTokens()),
        isCut(!sizes.sequence.empty()) {}

  std::vector<BlockOp> list() {
    cheap({{"x1", edge * sizes.d * format}}, {"x", "delta"});
    attention(gather(norm("n1", "x1", "g1", "h1"), "attention input"));
    const std::string a =
        outcome("a", "wo", "bo", "o", sizes.heads,
                sizes.d * sizes.g * sizes.r * sizes.k, "attention output");
    cheap({{"x2", edge * sizes.d * format}}, {"x1", a});
    mlp(gather(norm("n2", "x2", "g2", "h2"), "MLP input"));
    outcome("dn", "wd", "bd", "m", sizes.ffn, sizes.d * sizes.f, "MLP output");
    return std::move(ops);
  }

private:
  using Results = std::vector<std::pair<std::string, std::int64_t>>;

  BlockOp &add(const Results &results, std::vector<std::string> reads) {
    BlockOp &op = ops.emplace_back();
    for (const auto &[name, bytes] : results)
      op.results.push_back({name, name, bytes});
    op.reads = std::move(reads);
    return op;
  }
  BlockOp &cheap(const Results &results, std::vector<std::string> reads,
                 std::vector<std::string> parameters = {}) {
    BlockOp &op = add(results, std::move(reads));
    op.parameters = std::move(parameters);
    op.fuses = true;
    return op;
  }

  std::string norm(const std::string &name, const std::string &input,
                   const std::string &weight, const std::string &bias) {
    Results results = {{name, edge * sizes.d * format}};
    if (model.normHasBias())
      results.emplace_back(name + "_mean", edge * kStatistic);
    results.emplace_back(name + "_rstd", edge * kStatistic);
    BlockOp &op = cheap(results, {input}, {weight});
    if (model.normHasBias())
      op.parameters.push_back(bias);
    return name;
  }

  /// A collective on \p value; returns its key.
  std::string move(const std::string &value, CollectiveKind kind,
                   const std::string &cause, const AxisList &axes,
                   std::int64_t bytes) {
    BlockOp &op = ops.emplace_back();
    op.results.push_back({value + " moved", value, bytes});
    op.reads = {value};
    op.moves = BlockOp::Move{kind, cause, axes, tokens * sizes.d};
    return op.results.front().key;
  }
  std::string gather(const std::string &value, const std::string &cause) {
    return isCut ? move(value, CollectiveKind::AllGather, cause, sizes.sequence,
                        tokens * sizes.d * format)
                 : value;
  }

  /// \p perToken multiply-adds make \p columns of each token.
  std::string linear(const std::string &name, const std::string &weight,
                     const std::string &bias, const std::string &input,
                     std::int64_t columns, std::int64_t perToken) {
    const bool hasBias = sizes.find(Segment::Block, bias) != nullptr;
    const std::int64_t bytes = tokens * columns * format;
    const std::string product = hasBias ? name + "_product" : name;
    BlockOp &op = add({{product, bytes}}, {input});
    op.parameters = {weight};
    op.products =
        2.0 * static_cast<double>(perToken) * static_cast<double>(tokens);
    if (hasBias)
      cheap({{name, bytes}}, {product}, {bias});
    return name;
  }

  /// What goes back onto the residual: a sum over \p axes, then dropout.
  std::string outcome(const std::string &name, const std::string &weight,
                      const std::string &bias, const std::string &input,
                      const AxisList &axes, std::int64_t perToken,
                      const std::string &cause) {
    std::string value = linear(name, weight, bias, input, sizes.d, perToken);
    // A bias counts on the first rank of those that have parts of the sum.
    if (!axes.empty() && ops.back().fuses)
      ops.back().temporary = sizes.d * format;
    if (!axes.empty())
      value = move(value,
                   isCut ? CollectiveKind::ReduceScatter
                         : CollectiveKind::AllReduce,
                   cause, axes, edge * sizes.d * format);
    if (model.dropout.residual > 0) {
      cheap({{name + "_dropped", edge * sizes.d * format}}, {value});
      if (isCut) // its tokens' numbers, of all
        ops.back().temporary = edge * kStatistic;
      value = name + "_dropped";
    }
    return value;
  }

  void attention(const std::string &input) {
    const std::int64_t keys = sizes.g * sizes.k, queries = keys * sizes.r;
    auto project = [&](const std::string &name, std::int64_t columns) {
      const std::string which = model.fusedQkv ? "qkv" : name;
      return linear(name, "w" + which, "b" + which, input, columns,
                    sizes.d * columns);
    };
    std::string q = project("q", queries), k = project("k", keys);
    project("v", keys);
    if (model.qkNorm) {
      cheap({{"qn", tokens * queries * format},
             {"qn_rstd", tokens * sizes.g * sizes.r * kStatistic}},
            {q}, {"gq"});
      cheap({{"kn", tokens * keys * format},
             {"kn_rstd", tokens * sizes.g * kStatistic}},
            {k}, {"gk"});
      q = "qn";
      k = "kn";
    }
    if (model.position == PositionKind::Rope) {
      add({{"qr", tokens * queries * format}}, {q});
      add({{"kr", tokens * keys * format}}, {k});
      q = "qr";
      k = "kr";
    }
    BlockOp &op = add({{"o", tokens * queries * format},
                       {"lse", tokens * sizes.g * sizes.r * kStatistic}},
                      {q, k, "v"});
    const std::int64_t pairs = attentionPairs(sizes.s, model.slidingWindow);
    op.attention = 2 * 2.0 * static_cast<double>(pairs * sizes.b) *
                   static_cast<double>(queries);
  }

  void mlp(const std::string &input) {
    const std::int64_t bytes = tokens * sizes.f * format;
    if (model.gatedMlp)
      linear("gate", "wg", "bg", input, sizes.f, sizes.d * sizes.f);
    linear("up", "wu", "bu", input, sizes.f, sizes.d * sizes.f);
    if (model.gatedMlp)
      cheap({{"m", bytes}}, {"gate", "up"});
    else
      cheap({{"m", bytes}}, {"up"});
  }

  const ModelConfig &model;
  const RankSizes &sizes;
  const std::int64_t format, tokens, edge;
  const bool isCut;
  std::vector<BlockOp> ops;
};

/// Which ops a choice repeats, and what that makes of what is saved.
class Chooser {
public:
  Chooser(const PlanRecompute &choice, const std::vector<BlockOp> &ops,
          const std::vector<SavedValue> &before, const RankSizes &sizes)
      : choice(choice), ops(ops), before(before), sizes(sizes) {
    for (std::size_t i = 0; i < ops.size(); ++i)
      for (const BlockValue &value : ops[i].results)
        makers[value.key] = i;
  }

  LayersUnder run() {
    for (const SavedValue &value : before)
      needed.insert(savedKey(value.name, sizes));
    choose();
    LayersUnder under;
    under.choice = choice;
    for (const SavedValue &value : before)
      visit(savedKey(value.name, sizes));
    if (choice.kind == PlanRecomputeKind::Full && !choice.prune)
      for (std::size_t i = 0; i < ops.size(); ++i)
        if (repeated.count(i) && ops[i].isCostly())
          visit(ops[i].results.front().key);
    for (const std::string &name : comesIn) // as large as their sum
      under.saved.push_back({name, "what is computed again reads it",
                             ops.front().results.front().bytes, sizes.layers});
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (again.count(i))
        under.again.push_back(ops[i]);
      for (const BlockValue &value : ops[i].results)
        if (saved.count(value.key))
          under.saved.push_back(savedValue(value));
    }
    return under;
  }

private:
  SavedValue savedValue(const BlockValue &value) const {
    for (const SavedValue &known : before)
      if (savedKey(known.name, sizes) == value.key)
        return known;
    return {value.name, "what is computed again reads it", value.bytes,
            sizes.layers};
  }

  void choose() {
    switch (choice.kind) {
    case PlanRecomputeKind::Values:
    case PlanRecomputeKind::Budget: // values are those that were found
      for (std::size_t i = 0; i < ops.size(); ++i)
        for (const BlockValue &value : ops[i].results)
          if (std::find(choice.values.begin(), choice.values.end(),
                        value.name) != choice.values.end())
            repeated.insert(i);
      return;
    case PlanRecomputeKind::Full: // of x1 all else can be made
      for (std::size_t i = 1; i < ops.size(); ++i)
        repeated.insert(i);
      return;
    case PlanRecomputeKind::Selective:
      for (const std::string &key : needed)
        isCheap(key, repeated);
      return;
    }
  }

  /// Whether a value can be made of needed ones by ops that cost nothing.
  bool isCheap(const std::string &key, std::set<std::size_t> &chain) const {
    const auto maker = makers.find(key);
    if (maker == makers.end() || ops[maker->second].isCostly())
      return false;
    std::set<std::size_t> all = {maker->second};
    for (const std::string &read : ops[maker->second].reads)
      if (!needed.count(read) && !isCheap(read, all))
        return false;
    chain.insert(all.begin(), all.end());
    return true;
  }

  void visit(const std::string &key) {
    const auto maker = makers.find(key);
    if (maker == makers.end()) {
      comesIn.insert(key);
      return;
    }
    if (!repeated.count(maker->second)) {
      saved.insert(key);
      return;
    }
    if (again.insert(maker->second).second)
      for (const std::string &read : ops[maker->second].reads)
        visit(read);
  }

  const PlanRecompute &choice;
  const std::vector<BlockOp> &ops;
  const std::vector<SavedValue> &before;
  const RankSizes &sizes;
  std::map<std::string, std::size_t> makers;
  std::set<std::string> needed, saved, comesIn;
  std::set<std::size_t> repeated, again;
};

} // namespace

std::string heddle::detail::savedKey(const std::string &name,
                                     const RankSizes &sizes) {
  const bool isGathered =
      !sizes.sequence.empty() && ((name == "n1" && sizes.savesGathered[0]) ||
                                  (name == "n2" && sizes.savesGathered[1]));
  return isGathered ? name + " moved" : name;
}

namespace {
/// Runs backward's readings in order, as the program does.
class BesideFinder {
public:
  BesideFinder(const LayersUnder &under, const RankSizes &sizes)
      : ops(under.again), sizes(sizes) {
    for (std::size_t i = 0; i < ops.size(); ++i)
      for (const BlockValue &value : ops[i].results)
        makers[value.key] = i;
    if (under.choice.kind == PlanRecomputeKind::Full && !under.choice.prune)
      for (const BlockOp &op : ops)
        if (op.isCostly())
          order(op.results.front().key);
  }

  GathersBeside run() {
    note({}, false);
    note({"m"}, true);
    note({"gate", "up"}, true);
    note({"n2"}, true, 1);
    note({"x2", "n2_mean", "n2_rstd"}, false);
    note({"o"}, true);
    note({"qr", "q", "kr", "k", "v", "lse"}, true);
    note({"kn_rstd", "qn_rstd"}, false);
    note({"n1"}, true, 0);
    return std::move(found);
  }

private:
  void order(const std::string &key) {
    const auto maker = makers.find(key);
    if (maker == makers.end() || !ordered.insert(maker->second).second)
      return;
    for (const std::string &read : ops[maker->second].reads)
      order(read);
    open.push_back(maker->second);
  }

  /// An op behind a product reads these, or one behind something else; it
  /// gathers input \p gathers itself.
  void note(const std::vector<std::string> &names, bool behindProduct,
            int gathers = -1) {
    for (const std::string &name : names)
      order(savedKey(name, sizes));
    for (std::size_t i = 0; i < open.size(); ++i)
      if (ops[open[i]].moves &&
          ops[open[i]].moves->kind == CollectiveKind::AllGather &&
          isBeside(i, behindProduct))
        found.again.push_back(open[i]);
    if (gathers >= 0)
      found.inputs[gathers] = isBeside(open.size(), behindProduct);
    open.clear();
  }

  /// Whether only kernels that make its input are between a gather, which is
  /// position \p i, and a product.
  bool isBeside(std::size_t i, bool behindProduct) const {
    while (i > 0 && ops[open[i - 1]].fuses && ops[open[i - 1]].temporary == 0)
      --i;
    return i == 0 ? behindProduct : ops[open[i - 1]].products > 0;
  }

  const std::vector<BlockOp> &ops;
  const RankSizes &sizes;
  std::map<std::string, std::size_t> makers;
  std::set<std::size_t> ordered;
  std::vector<std::size_t> open;
  GathersBeside found;
};
} // namespace

GathersBeside heddle::detail::gathersBeside(const LayersUnder &under,
                                            const RankSizes &sizes) {
  return BesideFinder(under, sizes).run();
}

bool LayersUnder::saves(std::string_view name) const {
  return std::any_of(saved.begin(), saved.end(), [&](const SavedValue &value) {
    return value.name == name;
  });
}

std::vector<BlockOp> heddle::detail::blockForward(const ModelConfig &model,
                                                  const RankSizes &sizes) {
  return Forward(model, sizes).list();
}

LayersUnder heddle::detail::layersUnder(const PlanRecompute &choice,
                                        const std::vector<BlockOp> &forward,
                                        const std::vector<SavedValue> &saved,
                                        const RankSizes &sizes) {
  return Chooser(choice, forward, saved, sizes).run();
}
