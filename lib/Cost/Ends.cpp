// The functions at both ends of the chain of layers, op by op.

#include "Ends.h"

using namespace heddle;
using namespace heddle::detail;

namespace {

/// Sums over everything: one of 8 bytes per chunk of 16,384 elements.
std::int64_t wholeSums(std::int64_t elements) {
  return (elements + 16383) / 16384 * 8;
}

class Ops {
public:
  BlockOp &add(const std::string &moment,
               const std::vector<std::pair<std::string, std::int64_t>> &results,
               std::vector<std::string> reads) {
    BlockOp &op = list.emplace_back();
    op.moment = moment;
    for (const auto &[name, bytes] : results)
      op.results.push_back({name, name, bytes});
    op.reads = std::move(reads);
    return op;
  }
  std::vector<BlockOp> list;
};

} // namespace

std::vector<BlockOp> detail::headOps(const ModelConfig &model,
                                     const RankSizes &sizes) {
  const std::int64_t format = sizes.formats.compute, tokens = sizes.tokens(),
                     row = tokens * kFloat, hidden = tokens * sizes.d * format,
                     edge = sizes.edgeTokens() * sizes.d * format,
                     logits = tokens * sizes.headRows * format;
  const std::int64_t sums = model.normHasBias() ? 2 : 1; // of a norm
  const bool isCut = !sizes.sequence.empty();
  const std::string all = isCut ? "all n" : "n";
  Ops ops;
  ops.add(
      "norm",
      {{"x", edge}, {"n", edge}, {"rstd", sums * sizes.edgeTokens() * kFloat}},
      {});
  if (isCut)
    ops.add("gathered input of the matrix", {{all, hidden}}, {"n"});
  ops.add("logits", {{"logits", logits}}, {all});
  if (sizes.head.empty()) { // one kernel, nothing to reduce in between
    ops.add("losses", {{"maximum", row}, {"sum", row}, {"losses", row}},
            {"logits"});
  } else {
    ops.add("maximum", {{"maximum", row}}, {"logits"});
    ops.add("sum", {{"sum", row}}, {"logits", "maximum"});
    ops.add("picked logit", {{"picked", row}}, {"logits"});
    ops.add("losses", {{"losses", row}}, {"maximum", "sum", "picked"});
  }
  ops.add("mean loss", {}, {"losses"}).temporary = wholeSums(tokens);
  ops.add("gradient of logits", {{"d_logits", logits}},
          {"logits", "maximum", "sum"});
  ops.add("gradient of the normed", {{"d_n", hidden}}, {"d_logits"});
  ops.add("gradient of the matrix", {}, {all, "d_logits"});
  const std::string part = isCut ? "part of d_n" : "d_n";
  if (isCut)
    ops.add("part of the gradient of the normed", {{part, edge}}, {"d_n"});
  ops.add("backward of the norm", {}, {"x", "rstd", part});
  ops.add("gradient of the norm's weight", {}, {"x", "rstd", part}).temporary =
      columnSums(sizes.edgeTokens(), sizes.d, sums);
  return std::move(ops.list);
}

std::vector<BlockOp> detail::embeddingOps(const ModelConfig &model,
                                          const RankSizes &sizes) {
  const std::int64_t token = sizes.d * sizes.formats.compute,
                     hidden = sizes.tokens() * token,
                     edge = sizes.edgeTokens() * token,
                     number = sizes.edgeTokens() * kFloat;
  const bool isCut = !sizes.sequence.empty(),
             drops = model.dropout.embedding > 0,
             isPlaced = model.position == PositionKind::Learned;
  Ops ops;
  // A row of a position adds itself to that of a token, unless dropout comes
  // between the two and the next block.
  const std::string looked = drops ? "embedded" : "x";
  if (isCut) {
    ops.add("embedding", {{"part", hidden}}, {});
    ops.add("part of the embedding", {{looked, edge}}, {"part"});
  } else {
    ops.add("embedding", {{looked, hidden}}, {});
  }
  std::vector<std::string> dropped = {looked};
  if (isCut && drops) {
    ops.add("numbers of the rank's tokens", {{"numbers", number}}, {});
    dropped.push_back("numbers");
  }
  if (isPlaced) {
    std::vector<std::string> read;
    if (isCut) {
      ops.add("positions of the rank's tokens", {{"positions", number}}, {});
      read = {"positions"};
    }
    if (drops) {
      ops.add("embedding of positions", {{"placed", edge}}, read);
      dropped.push_back("placed");
    } else {
      ops.add("embedding of positions", {}, read);
    }
  }
  if (drops)
    ops.add("embedding's dropout", {{"x", edge}}, dropped);
  return std::move(ops.list);
}

std::vector<BlockOp> detail::embeddingGradOps(const ModelConfig &model,
                                              const RankSizes &sizes) {
  const std::int64_t token = sizes.d * sizes.formats.compute,
                     hidden = sizes.tokens() * token,
                     edge = sizes.edgeTokens() * token,
                     number = sizes.edgeTokens() * kFloat;
  const bool isCut = !sizes.sequence.empty(),
             drops = model.dropout.embedding > 0;
  Ops ops;
  if (isCut && drops)
    ops.add("numbers of the rank's tokens", {{"numbers", number}}, {});
  auto dropout = [&](const std::string &name) {
    if (!drops)
      return std::string("d_x");
    ops.add("gradient of the embedding's dropout", {{name, edge}},
            isCut ? std::vector<std::string>{"numbers"}
                  : std::vector<std::string>{});
    return name;
  };
  // Tokens, or positions, in the order of the rows that they look up.
  auto rows = [&](std::int64_t tokens, const std::string &gradient,
                  const std::vector<std::string> &read) {
    const std::string sorted = "order of " + gradient;
    ops.add("rows in order", {{sorted, tokens * kFloat}}, read);
    ops.add("gradient of the table", {}, {gradient, sorted});
  };
  if (model.position == PositionKind::Learned) {
    const std::string gradient = dropout("d_placed");
    if (isCut)
      ops.add("positions of the rank's tokens", {{"positions", number}}, {});
    rows(sizes.edgeTokens(), gradient,
         isCut ? std::vector<std::string>{"positions"}
               : std::vector<std::string>{});
  }
  std::string gradient = dropout("d_embedded");
  if (isCut) {
    ops.add("gathered gradient of the embedding", {{"all", hidden}},
            {gradient});
    gradient = "all";
  }
  rows(sizes.tokens(), gradient, {});
  return std::move(ops.list);
}
