#include "heddle/Cost/Traffic.h"

#include <algorithm>

using namespace heddle;

double heddle::gatherOrScatterBytes(double bytes, std::int64_t ranks) {
  const double n = static_cast<double>(ranks);
  return bytes * (n - 1) / n;
}

double heddle::allReduceBytes(double bytes, std::int64_t ranks) {
  return 2 * gatherOrScatterBytes(bytes, ranks);
}

std::map<AxisList, AxisTraffic>
heddle::trafficByAxes(const std::vector<StepCollective> &collectives) {
  std::map<AxisList, AxisTraffic> result;
  for (const StepCollective &collective : collectives) {
    AxisTraffic &entry = result[collective.axes];
    entry.calls += collective.calls;
    entry.bytes += collective.bytes;
  }
  return result;
}

namespace {

constexpr std::int64_t kFloat = 4, kWide = 8;

/// The list of a step's reductions, written down phase by phase.
class List {
public:
  explicit List(const RankSizes &sizes)
      : sizes(sizes), blocks(sizes.layers * sizes.microBatches) {}

  std::vector<StepCollective> build() {
    add("count of labels", sizes.data, 1, 1, kWide);
    forward();
    head();
    backward();
    add("loss", sizes.data, 1, 1, kFloat);
    gradients();
    add("gradient norm", normAxes(), 1, 1, kWide);
    return std::move(list);
  }

private:
  void add(const std::string &cause, const AxisList &axes, std::int64_t calls,
           std::int64_t elements, std::int64_t elementBytes = kFloat,
           CollectiveKind kind = CollectiveKind::AllReduce) {
    if (axes.empty())
      return;
    const double each =
        (kind == CollectiveKind::AllReduce ? allReduceBytes
                                           : gatherOrScatterBytes)(
            static_cast<double>(elements * elementBytes), sizes.ranks(axes));
    list.push_back({kind, cause, axes, calls, elements, elementBytes,
                    each * static_cast<double>(calls)});
  }
  /// A sum of \p axes of what flows between blocks: whole, or each its part.
  void sum(const std::string &cause, const AxisList &axes, std::int64_t calls) {
    add(cause, axes, calls, hiddenElements(), kFloat,
        sizes.sequence.empty() ? CollectiveKind::AllReduce
                               : CollectiveKind::ReduceScatter);
  }
  /// Where sequences are cut, what a product reads along all of them.
  void gather(const std::string &cause, std::int64_t calls) {
    add(cause, sizes.sequence, calls, hiddenElements(), kFloat,
        CollectiveKind::AllGather);
  }

  void forward();
  void head();
  void backward();
  void gradients();
  AxisList gradientAxes(const RankParameter &parameter) const;
  AxisList normAxes() const;

  std::int64_t hiddenElements() const { return sizes.tokens() * sizes.d; }
  std::int64_t keyElements() const {
    return sizes.tokens() * sizes.g * sizes.k;
  }
  const RankSizes &sizes;
  const std::int64_t blocks; ///< calls of a block in one step
  std::vector<StepCollective> list;
};

} // namespace

void List::forward() {
  // A rank has rows of the table for some of the tokens, zeros for the others.
  sum("embedding", sizes.embedding, sizes.microBatches);
  gather("attention input", blocks);
  sum("attention output", sizes.heads, blocks);
  gather("MLP input", blocks);
  sum("MLP output", sizes.ffn, blocks);
}

void List::head() {
  gather("head input", sizes.microBatches);
  // Of each row of logits: its maximum, the sum of exponentials, the label's.
  add("row maximum", sizes.head, sizes.microBatches, sizes.tokens());
  add("row sum", sizes.head, sizes.microBatches, sizes.tokens());
  add("picked logit", sizes.head, sizes.microBatches, sizes.tokens());
  sum("gradient of head input", sizes.head, sizes.microBatches);
}

void List::backward() {
  gather("gradient of MLP output", blocks);
  if (!sizes.savesGathered[1])
    gather("MLP input, again", blocks);
  sum("gradient of MLP input", sizes.ffn, blocks);
  gather("gradient of attention output", blocks);
  // Each rank has the gradient of its query heads only.
  add("gradient of keys", sizes.copies, blocks, keyElements());
  if (!sizes.valuesStayPartial())
    add("gradient of values", sizes.copies, blocks, keyElements());
  else if (!sizes
                .splitsKvHeads()) // its sum with the keys' part, which is whole
    add("values' part of attention input's gradient", sizes.copies, blocks,
        hiddenElements());
  if (!sizes.savesGathered[0])
    gather("attention input, again", blocks);
  sum("gradient of attention input", sizes.heads, blocks);
  gather("gradient of embedding", sizes.microBatches);
}

/// Axes along which ranks hold parts of the sum that is the gradient.
AxisList List::gradientAxes(const RankParameter &parameter) const {
  AxisList axes = sizes.data;
  const std::string &name = parameter.family.argument;
  auto addAxes = [&](auto first, auto last) {
    axes.insert(axes.end(), first, last);
  };
  // Made of tokens that are cut: norms, what is added behind a reduction,
  // learned positions.
  if (parameter.family.letters == "d" ||
      parameter.family.letters == "position d")
    addAxes(sizes.sequence.begin(), sizes.sequence.end());
  if (parameter.family.segment != Segment::Block)
    return axes;
  if (name == "gq")
    addAxes(sizes.heads.begin(), sizes.heads.end());
  if (name == "gk")
    addAxes(sizes.heads.begin(), sizes.heads.end() - std::ssize(sizes.copies));
  if ((name == "wv" || name == "bv") && sizes.valuesStayPartial())
    addAxes(sizes.copies.begin(), sizes.copies.end());
  return axes;
}

void List::gradients() {
  for (const RankParameter &parameter : sizes.parameters)
    add("gradient of " + parameter.family.name, gradientAxes(parameter),
        parameter.family.layers, parameter.elements());
}

/// Axes that split any parameter: each rank has the squares of its own part.
AxisList List::normAxes() const {
  AxisList axes;
  for (const auto &[axis, size] : sizes.mesh)
    for (const RankParameter &parameter : sizes.parameters)
      if (std::count(parameter.axes.begin(), parameter.axes.end(), axis) &&
          !std::count(axes.begin(), axes.end(), axis))
        axes.push_back(axis);
  return axes;
}

std::vector<StepCollective> heddle::stepCollectives(const RankSizes &sizes) {
  return List(sizes).build();
}
