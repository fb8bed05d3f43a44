// Each function is told as moments: at each, some values begin (they are
// written) and some are read for the last time. Both are live at that moment.

#include "Frames.h"

#include <algorithm>
#include <utility>

using namespace heddle;
using heddle::detail::kFloat;

namespace {

class Frame {
public:
  explicit Frame(std::string function) { peak.function = std::move(function); }

  /// \p written bytes begin, \p released bytes are needed for the last time.
  void at(const char *moment, std::int64_t written, std::int64_t released) {
    live += written;
    if (live > peak.frameBytes) {
      peak.frameBytes = live;
      peak.moment = moment;
    }
    live -= released;
  }
  /// \p bytes are needed at this moment only.
  void during(const char *moment, std::int64_t bytes) {
    at(moment, bytes, bytes);
  }

  FramePeak peak;

private:
  std::int64_t live = 0;
};

/// Sums over everything: one of 8 bytes per chunk of 16,384 elements.
std::int64_t wholeSums(std::int64_t elements) {
  return (elements + 16383) / 16384 * 8;
}

/// Sums along columns: one row of fp32 per chunk of 64 rows, for each sum.
std::int64_t columnSums(std::int64_t rows, std::int64_t columns,
                        std::int64_t sums = 1) {
  return (rows + 63) / 64 * columns * sums * kFloat;
}

/// Backward of one block, from the last op of forward to the first.
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
        normSums(columnSums(sizes.edgeTokens(), sizes.d,
                            model.normHasBias() ? 2 : 1)),
        dropped(model.dropout.residual > 0 ? edge : 0),
        numbers(isCut && dropped ? sizes.edgeTokens() * kFloat : 0) {}

  FramePeak run() {
    mlp();
    attention();
    projections();
    attentionInput();
    return std::move(frame.peak);
  }

private:
  void bias(const char *name, std::int64_t columns) {
    if (sizes.find(Segment::Block, name))
      frame.during("gradient of a bias", columnSums(tokens, columns));
  }
  /// A bias that is added to what flows between blocks.
  void edgeBias(const char *name) {
    if (sizes.find(Segment::Block, name))
      frame.during("gradient of a bias",
                   columnSums(sizes.edgeTokens(), sizes.d));
  }
  /// Where sequences are cut, all of a value of which a rank has a part.
  std::int64_t gathered() const { return isCut ? hidden : 0; }
  /// The same of a block's normed input: there already if it was saved so.
  std::int64_t gatheredInput(int i) const {
    return sizes.savesGathered[i] ? 0 : gathered();
  }
  /// A sum of \p bytes of products: reduced in place, or each rank its part.
  void reduce(const char *moment) {
    if (isCut)
      frame.at(moment, edge, hidden);
  }

  void mlp();
  void attention();
  void headNorm(const char *moment, std::int64_t heads, std::int64_t bytes);
  void projections();
  void attentionInput();
  void sumOfInput();

  const ModelConfig &model;
  const RankSizes &sizes;
  const std::int64_t tokens;
  const bool isCut;                                       // sequences
  const std::int64_t hidden, edge, middle, keys, queries; // bytes
  const std::int64_t normSums;
  const std::int64_t dropped; ///< gradient of what residual dropout reads
  const std::int64_t numbers; ///< of the tokens between blocks, cut from all
  Frame frame{"block_bwd"};
};

} // namespace

void Backward::mlp() {
  frame.at("gradient of the MLP's dropout", numbers + dropped, 0);
  edgeBias("bd");
  frame.at("gathered gradient of down's output", gathered(),
           isCut ? dropped : 0);
  frame.at("gradient of down's input", middle, isCut ? gathered() : dropped);
  if (model.gatedMlp) {
    frame.at("gradients of gate and up", 2 * middle, middle);
    bias("bu", sizes.f);
    // Products with one sum add themselves to it.
    frame.at("gradient of the MLP's input", hidden, 0);
    frame.at("gradient of up's weight", gatheredInput(1), middle);
    bias("bg", sizes.f);
    frame.at("gradient of gate's weight", 0, middle + gatheredInput(1));
  } else {
    frame.at("gradient of the activation", middle, middle);
    bias("bu", sizes.f);
    frame.at("gradient of the MLP's input", hidden, 0);
    frame.at("gradient of up's weight", gatheredInput(1),
             middle + gatheredInput(1));
  }
  reduce("part of the gradient of the MLP's input");
  // One kernel makes the residual's gradient, and what dropout leaves of it.
  frame.at("backward of the second norm", edge + dropped, numbers);
  frame.at("gradient of the second norm's weight", normSums, normSums + edge);
  // The residual's gradient stays until the block's end.
}

/// Norm of each head of queries or keys.
void Backward::headNorm(const char *moment, std::int64_t heads,
                        std::int64_t bytes) {
  const std::int64_t sums = columnSums(tokens * heads, sizes.k);
  frame.at(moment, bytes, 0);
  frame.at(moment, sums, sums + bytes);
}

void Backward::attention() {
  edgeBias("bo");
  frame.at("gathered gradient of the output projection", gathered(),
           isCut ? dropped : 0);
  frame.at("gradient of attention's output", queries,
           isCut ? gathered() : dropped);
  frame.at("backward of attention", queries + 2 * keys, queries);
  if (model.position == PositionKind::Rope) {
    frame.at("rotation of keys' gradient", keys, keys);
    frame.at("rotation of queries' gradient", queries, queries);
  }
  if (model.qkNorm) {
    headNorm("backward of the keys' norm", sizes.g, keys);
    headNorm("backward of the queries' norm", sizes.g * sizes.r, queries);
  }
}

/// The gradient of attention's input is a sum of three products, which add
/// themselves to one place. Along copies of KV heads the queries' part is a
/// part of a sum and the others are not, or not all: what must be made or
/// reduced in between has a place of its own.
void Backward::projections() {
  const bool areCopied = !sizes.copies.empty();
  const bool valuesApart = areCopied && sizes.valuesStayPartial();
  bias("bv", sizes.g * sizes.k);
  frame.at("values' part of attention input's gradient", hidden, 0);
  frame.at("gradient of values' weight", gatheredInput(0), keys);
  bias("bk", sizes.g * sizes.k);
  frame.at("keys' part of attention input's gradient", valuesApart ? hidden : 0,
           0);
  frame.at("gradient of keys' weight", 0, keys);
  bias("bq", sizes.g * sizes.r * sizes.k);
  frame.at("queries' part of attention input's gradient",
           areCopied ? hidden : 0, 0);
  frame.at("gradient of queries' weight", 0, queries + gatheredInput(0));
}

/// Makes of the parts the one sum, where the products did not.
void Backward::sumOfInput() {
  if (sizes.copies.empty())
    return;
  if (sizes.valuesStayPartial() && sizes.splitsKvHeads()) {
    // Whole, the keys' part counts on the first copy only.
    frame.during("keys' part on the first copy", hidden);
    frame.at("gradient of attention's input", hidden, 3 * hidden);
    return;
  }
  if (sizes.valuesStayPartial())
    frame.at("sum of keys' and values' parts", hidden, 2 * hidden);
  if (sizes.splitsKvHeads())
    frame.at("keys' and values' parts on the first copy", hidden, hidden);
  frame.at("gradient of attention's input", hidden, 2 * hidden);
}

void Backward::attentionInput() {
  sumOfInput();
  reduce("part of the gradient of attention's input");
  // What leaves the block is the step's, and the residual's gradient goes.
  frame.at("backward of the first norm", 0, edge);
  frame.at("gradient of the first norm's weight", normSums, normSums + edge);
}

FramePeak heddle::detail::backwardFrame(const ModelConfig &model,
                                        const RankSizes &sizes) {
  return Backward(model, sizes).run();
}

FramePeak heddle::detail::headFrame(const ModelConfig &model,
                                    const RankSizes &sizes) {
  const std::int64_t tokens = sizes.tokens(), rows = tokens * kFloat,
                     elements = tokens * sizes.formats.compute,
                     hidden = elements * sizes.d,
                     logits = elements * sizes.headRows;
  const std::int64_t edgeRows = sizes.edgeTokens() * kFloat,
                     edge =
                         sizes.edgeTokens() * sizes.d * sizes.formats.compute;
  const std::int64_t statistics = edgeRows * (model.normHasBias() ? 2 : 1);
  const std::int64_t sums =
      columnSums(sizes.edgeTokens(), sizes.d, model.normHasBias() ? 2 : 1);
  const bool isCut = !sizes.sequence.empty();
  Frame frame("head");
  frame.at("norm", 2 * edge + statistics, 0); // its input and its result
  if (isCut)
    frame.at("gathered input of the matrix", hidden, edge);
  frame.at("logits", logits, 0);
  if (sizes.head.empty()) {          // one kernel, nothing to reduce in between
    frame.at("losses", 3 * rows, 0); // maximum, sum, losses
  } else {
    frame.at("maximum", rows, 0);
    frame.at("sum", rows, 0);
    frame.at("picked logit", rows, 0);
    frame.at("losses", rows, rows); // the picked logits go
  }
  frame.at("mean loss", wholeSums(tokens), wholeSums(tokens) + rows);
  frame.at("gradient of logits", logits, logits + 2 * rows);
  frame.at("gradient of the normed", hidden, 0);
  frame.at("gradient of the matrix", 0, logits + hidden);
  if (isCut)
    frame.at("part of the gradient of the normed", edge, hidden);
  frame.at("gradient of the norm's weight", sums, sums + 2 * edge);
  return std::move(frame.peak);
}
