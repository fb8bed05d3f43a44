#include "BlockForward.h"

#include "heddle/Cost/Flops.h"

#include <algorithm>
#include <map>
#include <set>

using namespace heddle;
using namespace heddle::detail;

namespace {

/// Which op makes a value.
std::map<std::string, std::size_t> makersOf(const std::vector<BlockOp> &ops) {
  std::map<std::string, std::size_t> makers;
  for (std::size_t i = 0; i < ops.size(); ++i)
    for (const BlockValue &value : ops[i].results)
      makers[value.key] = i;
  return makers;
}

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
        outcome("a", "wo", "bo", "o", sizes.heads, "attention output");
    cheap({{"x2", edge * sizes.d * format}}, {"x1", a});
    mlp(gather(norm("n2", "x2", "g2", "h2"), "MLP input"));
    outcome("dn", "wd", "bd", "m", sizes.ffn, "MLP output");
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
      results.emplace_back(name + "_mean", edge * kFloat);
    results.emplace_back(name + "_rstd", edge * kFloat);
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

  std::string product(const std::string &name, const Linear &linear,
                      const std::string &weight, const std::string &input) {
    BlockOp &op = add({{name, tokens * linear.columns * format}}, {input});
    op.parameters = {weight};
    op.operands = linear.forward(input, tokens);
    op.products = 2.0 * static_cast<double>(linear.inner * linear.columns) *
                  static_cast<double>(tokens);
    return name;
  }
  bool has(const std::string &bias) const {
    return sizes.find(Segment::Block, bias) != nullptr;
  }

  std::string linear(const std::string &name, const std::string &weight,
                     const std::string &bias, const std::string &input) {
    const Linear linear = linearOf(sizes, name);
    if (!has(bias))
      return product(name, linear, weight, input);
    product(name + "_product", linear, weight, input);
    cheap({{name, tokens * linear.columns * format}}, {name + "_product"},
          {bias});
    return name;
  }

  /// What dropout makes of a value, and its mask where that is saved.
  Results dropped(const std::string &name, std::int64_t bytes,
                  std::int64_t maskBytes) const {
    Results results = {{name + "_dropped", bytes}};
    if (sizes.savesMasks)
      results.emplace_back(name + "_dropped_mask", maskBytes);
    return results;
  }

  /// What goes back onto the residual: a sum over \p axes, a bias, dropout.
  std::string outcome(const std::string &name, const std::string &weight,
                      const std::string &bias, const std::string &input,
                      const AxisList &axes, const std::string &cause) {
    const std::int64_t bytes = edge * sizes.d * format;
    std::string value = product(has(bias) ? name + "_product" : name,
                                linearOf(sizes, name), weight, input);
    if (!axes.empty())
      value = move(value,
                   isCut ? CollectiveKind::ReduceScatter
                         : CollectiveKind::AllReduce,
                   cause, axes, bytes);
    if (has(bias)) {
      cheap({{name, bytes}}, {value}, {bias});
      value = name;
    }
    if (model.dropout.residual > 0) {
      cheap(dropped(name, bytes, edge * sizes.d), {value});
      if (isCut) // its tokens' numbers, of all
        ops.back().temporary = edge * kFloat;
      value = name + "_dropped";
    }
    return value;
  }

  void attention(const std::string &input) {
    const std::int64_t keys = sizes.g * sizes.k, queries = keys * sizes.r;
    auto project = [&](const std::string &name) {
      const std::string which = model.fusedQkv ? "qkv" : name;
      return linear(name, "w" + which, "b" + which, input);
    };
    std::string q = project("q"), k = project("k");
    project("v");
    if (model.qkNorm) {
      cheap({{"qn", tokens * queries * format},
             {"qn_rstd", tokens * sizes.g * sizes.r * kFloat}},
            {q}, {"gq"});
      cheap({{"kn", tokens * keys * format},
             {"kn_rstd", tokens * sizes.g * kFloat}},
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
    if (sizes.unfusedAttention)
      return attendUnfused(q, k, queries);
    BlockOp &op = add({{"o", tokens * queries * format},
                       {"lse", tokens * sizes.g * sizes.r * kFloat}},
                      {q, k, "v"});
    const std::int64_t pairs = attentionPairs(sizes.s, model.slidingWindow);
    op.attention = 2 * 2.0 * static_cast<double>(pairs * sizes.b) *
                   static_cast<double>(queries);
  }

  /// Products over the whole square: they know of no mask.
  void attendUnfused(const std::string &q, const std::string &k,
                     std::int64_t queries) {
    const std::int64_t matrix = sizes.probabilities() * format;
    const double products =
        2.0 * static_cast<double>(tokens * sizes.s * queries);
    BlockOp &scores = add({{"scores", matrix}}, {q, k});
    scores.products = products;
    scores.makesScores = true;
    cheap({{"p", matrix}}, {"scores"});
    std::string p = "p";
    if (model.dropout.attention > 0) {
      cheap(dropped("p", matrix, sizes.probabilities()), {"p"});
      p = "p_dropped";
    }
    BlockOp &op = add({{"o", tokens * queries * format}}, {p, "v"});
    op.products = products;
    op.readsProbabilities = true;
  }

  void mlp(const std::string &input) {
    const std::int64_t bytes = tokens * sizes.f * format;
    if (model.gatedMlp)
      linear("gate", "wg", "bg", input);
    linear("up", "wu", "bu", input);
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
      : choice(choice), ops(ops), before(before), sizes(sizes),
        makers(makersOf(ops)) {}

  LayersUnder run() {
    for (const SavedValue &value : before)
      needed.insert(savedKey(value.name, sizes));
    choose();
    LayersUnder under;
    under.choice = choice;
    for (const SavedValue &value : before)
      visit(savedKey(value.name, sizes));
    for (std::size_t i = 0; i < ops.size() && !choice.prune; ++i) {
      if (repeated.count(i) && ops[i].isCostly())
        visit(ops[i].results.front().key);
      else if (choice.kind == PlanRecomputeKind::Selective &&
               ops[i].readsProbabilities)
        repeat(i);
    }
    for (const std::string &name : comesIn) // as large as their sum
      under.saved.push_back({name, "what is computed again reads it",
                             ops.front().results.front().bytes, sizes.layers});
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (again.count(i))
        under.again.push_back(madeAgain(ops[i]));
      for (const BlockValue &value : ops[i].results)
        if (saved.count(value.key))
          under.saved.push_back(savedValue(value));
    }
    return under;
  }

private:
  /// What is there nevertheless is made beside it, and read by nobody.
  BlockOp madeAgain(BlockOp op) const {
    for (BlockValue &value : op.results)
      if (saved.count(value.key))
        value.key += " again";
    return op;
  }

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

  /// Whether a product with a parameter reads what an op makes, or what a
  /// collective makes of it.
  bool makesLinearInput(const BlockOp &op) const {
    return std::any_of(ops.begin(), ops.end(), [&](const BlockOp &reader) {
      const std::string &made = op.results.front().key;
      if (std::find(reader.reads.begin(), reader.reads.end(), made) ==
          reader.reads.end())
        return false;
      return reader.moves ? makesLinearInput(reader)
                          : reader.products > 0 && !reader.parameters.empty();
    });
  }

  /// Whether a value can be made of needed ones by ops that cost nothing.
  bool isCheap(const std::string &key, std::set<std::size_t> &chain) const {
    const auto maker = makers.find(key);
    if (maker == makers.end() ||
        (ops[maker->second].isCostly() && !ops[maker->second].makesScores))
      return false;
    if (sizes.savesLinearInputs && makesLinearInput(ops[maker->second]))
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
    repeat(maker->second);
  }

  void repeat(std::size_t op) {
    if (again.insert(op).second)
      for (const std::string &read : ops[op].reads)
        visit(read);
  }

  const PlanRecompute &choice;
  const std::vector<BlockOp> &ops;
  const std::vector<SavedValue> &before;
  const RankSizes &sizes;
  const std::map<std::string, std::size_t> makers;
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

std::vector<std::string>
heddle::detail::readOutside(const std::vector<BlockOp> &ops) {
  const std::map<std::string, std::size_t> makers = makersOf(ops);
  std::vector<std::string> keys;
  for (const BlockOp &op : ops)
    for (const std::string &key : op.reads)
      if (!makers.count(key) &&
          std::find(keys.begin(), keys.end(), key) == keys.end())
        keys.push_back(key);
  return keys;
}

namespace {
/// Puts what is computed again in front of the first op of backward that reads
/// it, what that reads in front of it. Where backward is two functions the
/// second takes from the first what costs something, and what would need more
/// bytes to be kept than it has itself.
class Repeater {
public:
  Repeater(const std::vector<BlockOp> &again, bool isWhole)
      : again(again), isWhole(isWhole), makers(makersOf(again)) {}

  std::vector<std::vector<BlockOp>>
  run(const std::vector<std::vector<BlockOp>> &halves) {
    std::vector<std::vector<BlockOp>> made;
    for (const std::vector<BlockOp> &half : halves) {
      isSecond = &half != &halves.front();
      made.push_back(run(half));
    }
    return made;
  }

private:
  std::vector<BlockOp> run(const std::vector<BlockOp> &half) {
    repeated.clear();
    kept.clear();
    for (std::size_t i = 0; i < half.size(); ++i) {
      for (const std::string &key : half[i].reads)
        order(key);
      if (i == 0 && isWhole && !isSecond)
        for (const BlockOp &op : again)
          if (op.isCostly())
            order(op.results.front().key);
      ops.push_back(half[i]);
    }
    if (!isSecond)
      inFirst = repeated;
    return std::exchange(ops, {});
  }

  void order(const std::string &key) {
    const auto maker = makers.find(key);
    if (maker == makers.end() || repeated.count(maker->second))
      return;
    if (isBetterKept(key)) {
      kept.insert(key);
      return;
    }
    for (const std::string &read : again[maker->second].reads)
      order(read);
    repeated.insert(maker->second);
    ops.push_back(again[maker->second]);
    ops.back().moment = kAgain;
  }

  bool isBetterKept(const std::string &key) const {
    const std::size_t maker = makers.at(key);
    if (!isSecond || !inFirst.count(maker))
      return false;
    const std::int64_t bytes = bytesToKeep(maker);
    return again[maker].isCostly() || (bytes > 0 && bytes >= bytesOf(key));
  }

  /// Bytes that have to be kept if an op is repeated.
  std::int64_t bytesToKeep(std::size_t op) const {
    std::int64_t bytes = 0;
    for (const std::string &read : again[op].reads) {
      const auto maker = makers.find(read);
      if (maker == makers.end() || repeated.count(maker->second) ||
          kept.count(read))
        continue;
      bytes += again[maker->second].isCostly()
                   ? bytesOf(read)
                   : std::min(bytesOf(read), bytesToKeep(maker->second));
    }
    return bytes;
  }

  std::int64_t bytesOf(const std::string &key) const {
    for (const BlockValue &value : again[makers.at(key)].results)
      if (value.key == key)
        return value.bytes;
    return 0;
  }

  const std::vector<BlockOp> &again;
  const bool isWhole;
  const std::map<std::string, std::size_t> makers;
  std::set<std::size_t> repeated, inFirst;
  std::set<std::string> kept;
  bool isSecond = false;
  std::vector<BlockOp> ops; ///< of the half that is being made
};
} // namespace

std::set<std::string> heddle::detail::gathersBeside(const LayersUnder &under) {
  std::set<std::string> found;
  for (const std::vector<BlockOp> &ops : under.backward)
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (!ops[i].moves || ops[i].moves->kind != CollectiveKind::AllGather)
        continue;
      // Only kernels that make its input may be in between.
      std::size_t front = i;
      while (front > 0 && ops[front - 1].fuses && ops[front - 1].temporary == 0)
        --front;
      if (front > 0 && ops[front - 1].products > 0)
        found.insert(ops[i].results.front().key);
    }
  return found;
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

LayersUnder heddle::detail::layersUnder(
    const PlanRecompute &choice, const std::vector<BlockOp> &forward,
    const std::vector<std::vector<BlockOp>> &backward,
    const std::vector<SavedValue> &saved, const RankSizes &sizes) {
  LayersUnder under = Chooser(choice, forward, saved, sizes).run();
  under.forward = forward;
  under.backward = Repeater(under.again, !choice.prune).run(backward);
  return under;
}
