// Each function is told as moments: at each, some values begin (they are
// written) and some are read for the last time. Both are live at that moment.

#include "Frames.h"

#include "BlockForward.h"

#include <algorithm>
#include <map>
#include <set>
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

/// What backward computes again, in front of the first op that reads it.
class Again {
public:
  Again(const RankSizes &sizes, const LayersUnder &under, Frame &frame)
      : sizes(sizes), ops(under.again), frame(frame) {
    for (std::size_t i = 0; i < ops.size(); ++i)
      for (const BlockValue &value : ops[i].results)
        makers[value.key] = i;
    if (under.choice.kind == PlanRecomputeKind::Full && !under.choice.prune)
      for (const BlockOp &op : ops)
        if (op.isCostly())
          order(op.results.front().key);
    whole = std::exchange(open, {});
  }

  /// What backward reads, by the names of saved values; before anything runs.
  void note(const std::vector<std::string> &names) {
    for (const std::string &name : names)
      readers.insert(detail::savedKey(name, sizes));
  }
  /// All of forward, where a choice asks for that.
  void begin() {
    open = std::exchange(whole, {});
    run();
  }
  /// An op of backward reads these.
  void need(const std::vector<std::string> &names) {
    for (const std::string &name : names)
      order(detail::savedKey(name, sizes));
    run();
  }
  /// No later one does.
  void done(const std::vector<std::string> &names) {
    for (const std::string &name : names)
      readers.erase(detail::savedKey(name, sizes));
    release();
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

  void run() {
    for (std::size_t i = 0; i < open.size();) {
      std::vector<std::size_t> kernel = {open[i++]};
      while (i < open.size() && ops[kernel.back()].fuses &&
             ops[open[i]].fuses && readsAny(ops[open[i]], kernel))
        kernel.push_back(open[i++]);
      launch(kernel);
    }
    open.clear();
  }

  static bool makes(const BlockOp &op, const std::string &key) {
    return std::any_of(
        op.results.begin(), op.results.end(),
        [&](const BlockValue &value) { return value.key == key; });
  }
  bool readsAny(const BlockOp &op, const std::vector<std::size_t> &others) {
    return std::any_of(op.reads.begin(), op.reads.end(),
                       [&](const std::string &read) {
                         return std::any_of(others.begin(), others.end(),
                                            [&](std::size_t other) {
                                              return makes(ops[other], read);
                                            });
                       });
  }

  /// Whether backward, or an op that is still to run, reads a value.
  bool isRead(const std::string &key) const {
    if (readers.count(key))
      return true;
    for (std::size_t i = 0; i < ops.size(); ++i)
      if (!finished.count(i) &&
          std::count(ops[i].reads.begin(), ops[i].reads.end(), key))
        return true;
    return false;
  }

  void launch(const std::vector<std::size_t> &kernel) {
    finished.insert(kernel.begin(), kernel.end());
    const BlockOp &first = ops[kernel.front()];
    if (first.moves && first.moves->kind == CollectiveKind::AllReduce &&
        !isRead(first.reads.front()) && live.count(first.reads.front())) {
      live[first.results.front().key] = live[first.reads.front()];
      live.erase(first.reads.front()); // in place
      return release();
    }
    std::int64_t written = 0, temporary = 0;
    for (std::size_t i : kernel) {
      temporary += ops[i].temporary;
      for (const BlockValue &value : ops[i].results)
        if (!ops[i].fuses || isRead(value.key))
          written += live[value.key] = value.bytes;
    }
    frame.at("what is computed again", written + temporary, temporary);
    release();
  }

  /// Values that nothing reads any more.
  void release() {
    for (auto value = live.begin(); value != live.end();)
      if (isRead(value->first)) {
        ++value;
      } else {
        frame.at("", 0, value->second);
        value = live.erase(value);
      }
  }

  const RankSizes &sizes;
  const std::vector<BlockOp> &ops;
  Frame &frame;
  std::map<std::string, std::size_t> makers;
  std::map<std::string, std::int64_t> live; ///< bytes, by key
  std::set<std::string> readers;            ///< keys
  std::set<std::size_t> ordered, finished;
  std::vector<std::size_t> open, whole;
};

/// Backward of one block, from the last op of forward to the first.
class Backward {
public:
  Backward(const ModelConfig &model, const RankSizes &sizes,
           const LayersUnder &under)
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
        numbers(isCut && dropped ? sizes.edgeTokens() * kFloat : 0),
        again(sizes, under, frame) {}

  FramePeak run() {
    std::vector<std::string> names;
    for (const SavedValue &value : savedPerLayer(model, sizes))
      names.push_back(value.name);
    again.note(names);
    again.begin();
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

  /// The first weight whose gradient reads a block's normed input, \p name: all
  /// of it, of which a part may have to be gathered first.
  void readInput(int i, const std::string &name, const char *moment,
                 std::int64_t released) {
    again.need({name});
    if (gatheredInput(i) > 0) {
      frame.at("gathered input", gatheredInput(i), 0);
      again.done({name});
    }
    frame.at(moment, 0, released);
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
  Again again;
};

} // namespace

void Backward::mlp() {
  frame.at("gradient of the MLP's dropout", numbers + dropped, 0);
  edgeBias("bd");
  frame.at("gathered gradient of down's output", gathered(),
           isCut ? dropped : 0);
  frame.at("gradient of down's input", middle, 0);
  again.need({"m"});
  frame.at("gradient of down's weight", 0, isCut ? gathered() : dropped);
  again.done({"m"});
  if (model.gatedMlp) {
    again.need({"gate", "up"});
    frame.at("gradients of gate and up", 2 * middle, middle);
    again.done({"gate", "up"});
    bias("bu", sizes.f);
    // Products with one sum add themselves to it.
    frame.at("gradient of the MLP's input", hidden, 0);
    readInput(1, "n2", "gradient of up's weight", middle);
    bias("bg", sizes.f);
    frame.at("gradient of gate's weight", 0, middle + gatheredInput(1));
  } else {
    again.need({"up"});
    frame.at("gradient of the activation", middle, middle);
    again.done({"up"});
    bias("bu", sizes.f);
    frame.at("gradient of the MLP's input", hidden, 0);
    readInput(1, "n2", "gradient of up's weight", middle + gatheredInput(1));
  }
  again.done({"n2"});
  reduce("part of the gradient of the MLP's input");
  // One kernel makes the residual's gradient, and what dropout leaves of it.
  again.need({"x2", "n2_mean", "n2_rstd"});
  frame.at("backward of the second norm", edge + dropped, numbers);
  frame.at("gradient of the second norm's weight", normSums, normSums + edge);
  again.done({"x2", "n2_mean", "n2_rstd"});
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
  frame.at("gradient of attention's output", queries, 0);
  again.need({"o"});
  frame.at("gradient of the output projection", 0,
           isCut ? gathered() : dropped);
  const bool isRotated = model.position == PositionKind::Rope;
  const std::string q = isRotated ? "qr" : "q", k = isRotated ? "kr" : "k";
  again.need({q, k, "v", "o", "lse"});
  frame.at("backward of attention", queries + 2 * keys, queries);
  again.done({q, k, "v", "o", "lse"});
  if (model.position == PositionKind::Rope) {
    frame.at("rotation of keys' gradient", keys, keys);
    frame.at("rotation of queries' gradient", queries, queries);
  }
  if (model.qkNorm) {
    again.need({"k", "kn_rstd"});
    headNorm("backward of the keys' norm", sizes.g, keys);
    again.done({"k", "kn_rstd"});
    again.need({"q", "qn_rstd"});
    headNorm("backward of the queries' norm", sizes.g * sizes.r, queries);
    again.done({"q", "qn_rstd"});
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
  readInput(0, "n1", "gradient of values' weight", keys);
  bias("bk", sizes.g * sizes.k);
  frame.at("keys' part of attention input's gradient", valuesApart ? hidden : 0,
           0);
  frame.at("gradient of keys' weight", 0, keys);
  bias("bq", sizes.g * sizes.r * sizes.k);
  frame.at("queries' part of attention input's gradient",
           areCopied ? hidden : 0, 0);
  frame.at("gradient of queries' weight", 0, queries + gatheredInput(0));
  again.done({"n1"});
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
  again.need({"x1", "n1_mean", "n1_rstd"});
  frame.at("backward of the first norm", 0, edge);
  frame.at("gradient of the first norm's weight", normSums, normSums + edge);
}

FramePeak heddle::detail::backwardFrame(const ModelConfig &model,
                                        const RankSizes &sizes,
                                        const LayersUnder &under) {
  return Backward(model, sizes, under).run();
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
