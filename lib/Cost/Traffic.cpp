#include "heddle/Cost/Traffic.h"

#include <algorithm>

using namespace heddle;

double heddle::allReduceBytes(double bytes, std::int64_t ranks) {
  const double n = static_cast<double>(ranks);
  return 2 * (bytes * (n - 1) / n);
}

std::map<AxisList, AxisTraffic>
heddle::trafficByAxes(const std::vector<Reduction> &reductions) {
  std::map<AxisList, AxisTraffic> result;
  for (const Reduction &reduction : reductions) {
    AxisTraffic &entry = result[reduction.axes];
    entry.calls += reduction.calls;
    entry.bytes += reduction.bytes;
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

  std::vector<Reduction> build() {
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
           std::int64_t elements, std::int64_t elementBytes = kFloat) {
    if (axes.empty())
      return;
    const double each = allReduceBytes(
        static_cast<double>(elements * elementBytes), sizes.ranks(axes));
    list.push_back({cause, axes, calls, elements, elementBytes,
                    each * static_cast<double>(calls)});
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
  std::vector<Reduction> list;
};

} // namespace

void List::forward() {
  // A rank has rows of the table for some of the tokens, zeros for the others.
  add("embedding", sizes.embedding, sizes.microBatches, hiddenElements());
  add("attention output", sizes.heads, blocks, hiddenElements());
  add("MLP output", sizes.ffn, blocks, hiddenElements());
}

void List::head() {
  // Of each row of logits: its maximum, the sum of exponentials, the label's.
  add("row maximum", sizes.head, sizes.microBatches, sizes.tokens());
  add("row sum", sizes.head, sizes.microBatches, sizes.tokens());
  add("picked logit", sizes.head, sizes.microBatches, sizes.tokens());
  add("gradient of head input", sizes.head, sizes.microBatches,
      hiddenElements());
}

void List::backward() {
  add("gradient of MLP input", sizes.ffn, blocks, hiddenElements());
  // Each rank has the gradient of its query heads only.
  add("gradient of keys", sizes.copies, blocks, keyElements());
  if (!sizes.valuesStayPartial())
    add("gradient of values", sizes.copies, blocks, keyElements());
  else if (!sizes
                .splitsKvHeads()) // its sum with the keys' part, which is whole
    add("values' part of attention input's gradient", sizes.copies, blocks,
        hiddenElements());
  add("gradient of attention input", sizes.heads, blocks, hiddenElements());
}

/// Axes along which ranks hold parts of the sum that is the gradient.
AxisList List::gradientAxes(const RankParameter &parameter) const {
  AxisList axes = sizes.data;
  const std::string &name = parameter.family.argument;
  if (parameter.family.segment == Segment::Block && name == "gq")
    axes.insert(axes.end(), sizes.heads.begin(), sizes.heads.end());
  if (parameter.family.segment == Segment::Block && name == "gk")
    axes.insert(axes.end(), sizes.heads.begin(),
                sizes.heads.end() - std::ssize(sizes.copies));
  if (parameter.family.segment == Segment::Block &&
      (name == "wv" || name == "bv") && sizes.valuesStayPartial())
    axes.insert(axes.end(), sizes.copies.begin(), sizes.copies.end());
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

std::vector<Reduction> heddle::stepReductions(const RankSizes &sizes) {
  return List(sizes).build();
}
