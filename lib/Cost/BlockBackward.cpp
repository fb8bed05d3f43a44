#include "BlockForward.h"

#include <set>

using namespace heddle;
using namespace heddle::detail;

std::int64_t detail::columnSums(std::int64_t rows, std::int64_t columns,
                                std::int64_t sums) {
  return (rows + 63) / 64 * columns * sums * kFloat;
}

namespace {

/// From the last op of forward to the first. What is read of forward has
/// forward's keys; gradients are called "d_" and what they are of. Those of
/// weights are the step's. Reductions in place are none of the ops.
class Backward {
public:
  Backward(const ModelConfig &model, const RankSizes &sizes)
      : model(model), sizes(sizes), tokens(sizes.tokens()),
        isCut(!sizes.sequence.empty()),
        hidden(tokens * sizes.d * sizes.formats.compute),
        edge(sizes.edgeTokens() * sizes.d * sizes.formats.compute),
        middle(tokens * sizes.f * sizes.formats.compute),
        keys(tokens * sizes.g * sizes.k * sizes.formats.compute),
        queries(keys * sizes.r),
        matrix(sizes.probabilities() * sizes.formats.compute) {}

  std::vector<BlockOp> list() {
    mlp();
    norm("second", "n2", "x2", {{"d_x2", edge}}, {gradient});
    attention();
    projections();
    // What leaves the block is the step's.
    norm("first", "n1", "x1", {{"d_x", edge}}, {"d_x2"});
    return std::move(ops);
  }

private:
  using Results = std::vector<std::pair<std::string, std::int64_t>>;
  using Keys = std::vector<std::string>;

  BlockOp &add(const std::string &moment, const Results &results, Keys reads) {
    BlockOp &op = ops.emplace_back();
    op.moment = moment;
    for (const auto &[name, bytes] : results)
      op.results.push_back({name, name, bytes});
    op.reads = std::move(reads);
    return op;
  }
  /// The gradient of what a product with a weight read.
  BlockOp &ofInput(const char *of, const std::string &moment,
                   const Results &results, const std::string &gradient) {
    BlockOp &op = add(moment, results, {gradient});
    op.products = 1;
    op.operands = linearOf(sizes, of).ofInput(gradient, tokens);
    return op;
  }
  /// The gradient of the weight.
  void ofWeight(const char *of, const std::string &moment,
                const std::string &gradient, const std::string &input) {
    BlockOp &op = add(moment, {}, {input, gradient});
    op.products = 1;
    op.operands = linearOf(sizes, of).ofWeight(gradient, input, tokens);
  }

  /// Of unfused attention: no operand is a parameter.
  void ofMatrices(const std::string &moment, const Results &results,
                  Keys reads) {
    add(moment, results, std::move(reads)).products = 1;
  }

  /// A product that adds itself to a sum of others.
  static void addTo(BlockOp &product, const std::string &sum) {
    product.reads.push_back(sum);
    product.addsTo = sum;
  }

  void bias(const char *name, const std::string &gradient, std::int64_t rows,
            std::int64_t columns) {
    if (sizes.find(Segment::Block, name))
      add("gradient of a bias", {}, {gradient}).temporary =
          columnSums(rows, columns);
  }

  /// Of what flows between blocks: before dropout, on all tokens.
  std::string outcome(const char *name, const char *biasName,
                      const std::string &dropped) {
    bias(biasName, dropped, sizes.edgeTokens(), sizes.d);
    if (!isCut)
      return dropped;
    const std::string all = std::string("d_") + name + " moved";
    add("gathered gradient of " + std::string(name), {{all, hidden}},
        {dropped});
    return all;
  }

  /// The first weight whose gradient reads a block's normed input reads all of
  /// it, of which a part may have to be gathered first.
  std::string input(int i, const std::string &name) {
    const std::string key = savedKey(name, sizes);
    if (!isCut || sizes.savesGathered[i])
      return key;
    const std::string all = name + " again";
    add("gathered input", {{all, hidden}}, {key}).moves =
        BlockOp::Move{CollectiveKind::AllGather, "", {}, 0};
    return all;
  }

  /// A sum of products: reduced in place, or each rank its part.
  std::string reduced(const std::string &sum, const std::string &moment) {
    if (!isCut)
      return sum;
    add("part of the gradient of " + moment, {{sum + " part", edge}}, {sum});
    return sum + " part";
  }

  /// Sums of \p columns over rows, of a norm's weight, and of its bias, come
  /// with the gradient of its input.
  void normSums(const std::string &moment, const Keys &reads, std::int64_t rows,
                std::int64_t columns, std::int64_t sums) {
    BlockOp &op = add(moment, {}, reads);
    op.temporary = columnSums(rows, columns, sums);
    op.goesWithPrevious = true;
  }

  void norm(const std::string &which, const std::string &name,
            const std::string &input, Results results, Keys others) {
    Keys reads = {input, name + "_rstd", normGradient};
    if (model.normHasBias())
      reads.insert(reads.begin() + 1, name + "_mean");
    const Keys summed = reads;
    reads.insert(reads.end(), others.begin(), others.end());
    if (name == "n2" && dropsResidual()) { // one kernel makes both
      results.emplace_back("d_a", edge);
      if (sizes.savesMasks)
        reads.push_back("a_dropped_mask");
      else if (isCut)
        reads.push_back("numbers");
    }
    add("backward of the " + which + " norm", results, reads);
    normSums("gradient of the " + which + " norm's weight", summed,
             sizes.edgeTokens(), sizes.d, model.normHasBias() ? 2 : 1);
  }

  bool dropsResidual() const { return model.dropout.residual > 0; }

  void mlp();
  void attention();
  void attendUnfused(const std::string &q, const std::string &k);
  void headNorm(const std::string &which, const std::string &saved,
                std::string &gradient, std::int64_t heads, std::int64_t bytes);
  void projections();
  std::string sumOfInput();

  const ModelConfig &model;
  const RankSizes &sizes;
  const std::int64_t tokens;
  const bool isCut;                                               // sequences
  const std::int64_t hidden, edge, middle, keys, queries, matrix; // bytes
  const std::string gradient = "d_out"; ///< of the block's output
  std::string normGradient;             ///< of the norm's result
  std::string dq = "d_q", dk = "d_k";
  std::vector<BlockOp> ops;
};

} // namespace

void Backward::mlp() {
  std::string dropped = gradient;
  if (dropsResidual()) {
    if (isCut && !sizes.savesMasks)
      add("numbers of the rank's tokens",
          {{"numbers", sizes.edgeTokens() * kFloat}}, {});
    dropped = "d_dn";
    Keys reads = {gradient};
    if (sizes.savesMasks)
      reads.push_back("dn_dropped_mask");
    else if (isCut)
      reads.push_back("numbers");
    add("gradient of the MLP's dropout", {{dropped, edge}}, reads).fuses = true;
  }
  const std::string all = outcome("down's output", "bd", dropped);
  ofInput("dn", "gradient of down's input", {{"d_m", middle}}, all);
  ofWeight("dn", "gradient of down's weight", all, "m");
  std::string n2;
  if (model.gatedMlp) {
    add("gradients of gate and up", {{"d_gate", middle}, {"d_up", middle}},
        {"gate", "up", "d_m"});
    bias("bu", "d_up", tokens, sizes.f);
    ofInput("up", "gradient of the MLP's input", {{"d_n2", hidden}}, "d_up");
    n2 = input(1, "n2");
    ofWeight("up", "gradient of up's weight", "d_up", n2);
    bias("bg", "d_gate", tokens, sizes.f);
    addTo(ofInput("gate", "gradient of the MLP's input", {}, "d_gate"), "d_n2");
    ofWeight("gate", "gradient of gate's weight", "d_gate", n2);
  } else {
    add("gradient of the activation", {{"d_up", middle}}, {"up", "d_m"});
    bias("bu", "d_up", tokens, sizes.f);
    ofInput("up", "gradient of the MLP's input", {{"d_n2", hidden}}, "d_up");
    n2 = input(1, "n2");
    ofWeight("up", "gradient of up's weight", "d_up", n2);
  }
  normGradient = reduced("d_n2", "the MLP's input");
}

/// Norm of each head of queries or keys.
void Backward::headNorm(const std::string &which, const std::string &saved,
                        std::string &gradient, std::int64_t heads,
                        std::int64_t bytes) {
  const std::string moment = "backward of the " + which + "' norm";
  const Keys reads = {saved, saved + "n_rstd", gradient};
  add(moment, {{gradient + " before", bytes}}, reads);
  normSums(moment, reads, tokens * heads, sizes.k, 1);
  gradient += " before";
}

void Backward::attendUnfused(const std::string &q, const std::string &k) {
  const bool drops = model.dropout.attention > 0;
  const std::string p = drops ? "p_dropped" : "p", dp = "d_" + p;
  ofMatrices("gradient of probabilities", {{dp, matrix}}, {"d_o", "v"});
  ofMatrices("gradient of values", {{"d_v", keys}}, {"d_o", p});
  Keys reads = {dp, "p"};
  if (drops && sizes.savesMasks)
    reads.push_back("p_dropped_mask");
  add("gradient of scores", {{"d_scores", matrix}}, reads).fuses = true;
  ofMatrices("gradient of queries", {{dq, queries}}, {"d_scores", k});
  ofMatrices("gradient of keys", {{dk, keys}}, {"d_scores", q});
}

void Backward::attention() {
  const std::string all =
      outcome("the output projection", "bo", dropsResidual() ? "d_a" : "d_x2");
  ofInput("a", "gradient of attention's output", {{"d_o", queries}}, all);
  ofWeight("a", "gradient of the output projection", all, "o");
  const bool isRotated = model.position == PositionKind::Rope;
  std::string q = model.qkNorm ? "qn" : "q", k = model.qkNorm ? "kn" : "k";
  if (isRotated)
    q = "qr", k = "kr";
  if (sizes.unfusedAttention)
    attendUnfused(q, k);
  else
    add("backward of attention", {{dq, queries}, {dk, keys}, {"d_v", keys}},
        {q, k, "v", "o", "lse", "d_o"});
  if (isRotated) {
    add("rotation of keys' gradient", {{"d_kr", keys}}, {dk});
    add("rotation of queries' gradient", {{"d_qr", queries}}, {dq});
    dk = "d_kr", dq = "d_qr";
  }
  if (model.qkNorm) {
    headNorm("keys", "k", dk, sizes.g, keys);
    headNorm("queries", "q", dq, sizes.g * sizes.r, queries);
  }
}

/// The gradient of attention's input is a sum of three products, which add
/// themselves to one place. Along copies of KV heads the queries' part is a
/// part of a sum and the others are not, or not all: what must be made or
/// reduced in between has a place of its own.
void Backward::projections() {
  const bool areCopied = !sizes.copies.empty();
  const bool valuesApart = areCopied && sizes.valuesStayPartial();
  auto part = [&](const char *of, const char *whose,
                  const std::string &gradient, bool isApart,
                  const std::string &key) {
    const std::string moment =
        std::string(whose) + " part of attention input's gradient";
    if (isApart)
      ofInput(of, moment, {{key, hidden}}, gradient);
    else
      addTo(ofInput(of, moment, {}, gradient), "d_n1");
  };
  bias("bv", "d_v", tokens, sizes.g * sizes.k);
  part("v", "values'", "d_v", true, "d_n1");
  const std::string n1 = input(0, "n1");
  ofWeight("v", "gradient of values' weight", "d_v", n1);
  bias("bk", dk, tokens, sizes.g * sizes.k);
  part("k", "keys'", dk, valuesApart, "d_n1 of keys");
  ofWeight("k", "gradient of keys' weight", dk, n1);
  bias("bq", dq, tokens, sizes.g * sizes.r * sizes.k);
  part("q", "queries'", dq, areCopied, "d_n1 of queries");
  ofWeight("q", "gradient of queries' weight", dq, n1);
  normGradient =
      reduced(areCopied ? sumOfInput() : "d_n1", "attention's input");
}

/// Makes of the parts the one sum, where the products did not.
std::string Backward::sumOfInput() {
  Keys parts = {"d_n1"};
  if (sizes.valuesStayPartial() && sizes.splitsKvHeads()) {
    // Whole, the keys' part counts on the first copy only.
    add("keys' part on the first copy", {}, {"d_n1 of keys"}).temporary =
        hidden;
    parts.push_back("d_n1 of keys");
  } else {
    if (sizes.valuesStayPartial()) {
      add("sum of keys' and values' parts", {{"d_n1 of both", hidden}},
          {"d_n1", "d_n1 of keys"});
      parts = {"d_n1 of both"};
    }
    if (sizes.splitsKvHeads()) {
      add("keys' and values' parts on the first copy", {{"d_n1 once", hidden}},
          parts);
      parts = {"d_n1 once"};
    }
  }
  parts.push_back("d_n1 of queries");
  add("gradient of attention's input", {{"d_n1 of all", hidden}}, parts);
  return "d_n1 of all";
}

std::vector<BlockOp> detail::blockBackward(const ModelConfig &model,
                                           const RankSizes &sizes) {
  return Backward(model, sizes).list();
}

//===----------------------------------------------------------------------===//
// Halves
//===----------------------------------------------------------------------===//

std::vector<std::vector<BlockOp>>
detail::halvesOf(const std::vector<BlockOp> &backward) {
  std::vector<bool> isFirst(backward.size(), false);
  std::set<std::string> wanted = {"d_x"};
  for (std::size_t i = backward.size(); i-- > 0;) {
    const BlockOp &op = backward[i];
    bool makes = wanted.count(op.addsTo) > 0;
    for (const BlockValue &value : op.results)
      makes |= wanted.count(value.key) > 0;
    isFirst[i] = makes;
    if (makes)
      wanted.insert(op.reads.begin(), op.reads.end());
  }
  std::vector<std::vector<BlockOp>> halves(2);
  for (std::size_t i = 0; i < backward.size(); ++i) {
    if (backward[i].goesWithPrevious)
      isFirst[i] = isFirst[i - 1];
    halves[isFirst[i] ? 0 : 1].push_back(backward[i]);
  }
  return halves;
}
