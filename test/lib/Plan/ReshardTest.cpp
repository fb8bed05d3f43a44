#include "ReshardSimulator.h"

#include "heddle/Plan/Reshard.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace heddle {
namespace {

using test::Contents;
using test::ReshardSimulator;

// So large that bytes decide and the fixed cost of a step only breaks ties.
constexpr std::int64_t hugeElement = std::int64_t{1} << 24;
constexpr std::int64_t smallElement = 4;

ReshardMesh meshOf(const std::vector<std::int64_t> &sizes) {
  ReshardMesh mesh;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    mesh.axes.emplace_back(std::string(1, static_cast<char>('x' + i)),
                           sizes[i]);
  return mesh;
}

std::string text(const ReshardLayout &layout) {
  std::string result = "[";
  for (const std::vector<int> &axes : layout.dims) {
    result += "{";
    for (int axis : axes)
      result += static_cast<char>('x' + axis);
    result += "}";
  }
  result += "]";
  for (int axis : layout.partial)
    result += fmt::format(" {}{}", layout.partialMax ? "max " : "partial ",
                          static_cast<char>('x' + axis));
  return result;
}

std::string text(const std::vector<ReshardStep> &steps) {
  std::string result;
  for (const ReshardStep &step : steps)
    result +=
        fmt::format(" {}->{}", reshardKindName(step.kind), text(step.after));
  return result;
}

/// The formulas of IR_TOUR, from the local bytes before the step.
std::int64_t expectedBytes(const ReshardStep &step, std::int64_t in,
                           std::int64_t n) {
  switch (step.kind) {
  case ReshardKind::Slice:
  case ReshardKind::MakePartial:
    return 0;
  case ReshardKind::AllGather:
    return (n - 1) * in;
  case ReshardKind::ReduceScatter:
  case ReshardKind::AllToAll:
    return (n - 1) * in / n;
  case ReshardKind::AllReduce:
    return 2 * (n - 1) * in / n;
  case ReshardKind::Permute:
    return in;
  }
  return -1;
}

struct Statistics {
  std::size_t pairs = 0;
  std::vector<int> bySteps;
  std::vector<double> ratios;
  std::vector<std::string> wrong;

  int longest() const { return static_cast<int>(bySteps.size()) - 1; }
  double median() {
    std::sort(ratios.begin(), ratios.end());
    return ratios[ratios.size() / 2];
  }
};

std::int64_t ranksOf(const ReshardMesh &mesh, const std::vector<int> &axes) {
  std::int64_t ranks = 1;
  for (int axis : axes)
    ranks *= mesh.axes[static_cast<std::size_t>(axis)].second;
  return ranks;
}

/// Bytes of: all_reduce, then all_gather of every dimension, then slices.
std::int64_t gatherEverythingBytes(const ReshardSimulator &ranks,
                                   const ReshardLayout &from) {
  const std::int64_t in = ranks.localBytes(from, hugeElement);
  const std::int64_t summands = ranksOf(ranks.axes(), from.partial);
  std::int64_t blocks = 1;
  for (const std::vector<int> &axes : from.dims)
    blocks *= ranksOf(ranks.axes(), axes);
  return 2 * (summands - 1) * in / summands + (blocks - 1) * in;
}

/// Runs every pair; \p spoil may change a sequence before it is run.
class AllPairs {
public:
  AllPairs(std::vector<std::int64_t> sizes, std::vector<std::int64_t> shape,
           std::int64_t elementBytes = hugeElement)
      : ranks(meshOf(sizes), std::move(shape), 7), elementBytes(elementBytes) {}

  template <typename Spoil>
  Statistics run(const std::vector<ReshardLayout> &sources,
                 const std::vector<ReshardLayout> &targets, Spoil spoil) {
    Statistics statistics;
    for (const ReshardLayout &from : sources) {
      // Sequences from one source share their beginnings: each is run once.
      std::map<std::string, Contents> reached{{"", ranks.scatter(from)}};
      for (const ReshardLayout &to : targets)
        runPair(from, to, spoil, reached, statistics);
    }
    return statistics;
  }

  Statistics run() {
    std::vector<ReshardLayout> layouts = ranks.allLayouts();
    return run(layouts, layouts, [](std::vector<ReshardStep> &) {});
  }

  ReshardSimulator ranks;

private:
  template <typename Spoil>
  void runPair(const ReshardLayout &from, const ReshardLayout &to, Spoil spoil,
               std::map<std::string, Contents> &reached,
               Statistics &statistics) {
    std::vector<ReshardStep> steps =
        findReshard(ranks.axes(), ranks.wholeShape(), elementBytes, from, to);
    ++statistics.pairs;
    statistics.bySteps.resize(
        std::max(statistics.bySteps.size(), steps.size() + 1));
    ++statistics.bySteps[steps.size()];
    std::int64_t bytes = 0;
    ReshardLayout before = from;
    std::string fault;
    for (const ReshardStep &step : steps) {
      bytes += step.bytes;
      const std::int64_t in = ranks.localBytes(before, elementBytes);
      if (step.bytes !=
          expectedBytes(step, in, ranksOf(ranks.axes(), step.axes)))
        fault = "bytes of a step";
      before = step.after;
    }
    if (before != to)
      fault = "the last layout is not the target";
    if (elementBytes == hugeElement && bytes > 0)
      statistics.ratios.push_back(
          static_cast<double>(gatherEverythingBytes(ranks, from)) /
          static_cast<double>(bytes));
    spoil(steps);
    std::string key;
    const Contents *contents = &reached[key];
    for (const ReshardStep &step : steps) {
      key += fmt::format("{} {} {} {} {} {} {}", static_cast<int>(step.kind),
                         fmt::join(step.axes, ","), step.dim, step.toDim,
                         step.reduceMax, fmt::join(step.sources, ","),
                         text(step.after));
      auto [place, isNew] = reached.try_emplace(key);
      if (isNew && !contents->empty())
        place->second = ranks.run(step, *contents);
      contents = &place->second;
    }
    if (fault.empty())
      fault = ranks.fault(to, *contents);
    if (!fault.empty())
      statistics.wrong.push_back(fmt::format("{} => {}: {} ({} )", text(from),
                                             text(to), fault, text(steps)));
  }

  std::int64_t elementBytes;
};

void expectAllRight(Statistics &statistics, const char *what) {
  EXPECT_EQ(statistics.wrong.size(), 0u)
      << "first: " << statistics.wrong.front();
  if (statistics.ratios.empty())
    return;
  std::string line = fmt::format(
      "{}: {} pairs, steps {}, gather-everything : found, median {:.1f} max "
      "{:.1f}",
      what, statistics.pairs, fmt::join(statistics.bySteps, " / "),
      statistics.median(), statistics.ratios.back());
  std::puts(line.c_str());
}

TEST(Reshard, Rank2On2x2) {
  Statistics all = AllPairs({2, 2}, {8, 8}).run();
  expectAllRight(all, "2x2, 8x8");
  EXPECT_EQ(all.pairs, 324u);
  EXPECT_LE(all.longest(), 3);
  EXPECT_DOUBLE_EQ(all.median(), 2.0);
  EXPECT_DOUBLE_EQ(all.ratios.back(), 6.0);
}

TEST(Reshard, Rank2On2x2x2) {
  Statistics all = AllPairs({2, 2, 2}, {8, 8}).run();
  expectAllRight(all, "2x2x2, 8x8");
  EXPECT_EQ(all.pairs, 8464u);
  EXPECT_LE(all.longest(), 5);
  EXPECT_DOUBLE_EQ(all.ratios.back(), 14.0);
}

TEST(Reshard, Rank2On2x3x2) {
  Statistics all = AllPairs({2, 3, 2}, {12, 12}).run();
  expectAllRight(all, "2x3x2, 12x12");
  EXPECT_EQ(all.pairs, 8464u);
  EXPECT_LE(all.longest(), 6);
  EXPECT_DOUBLE_EQ(all.ratios.back(), 22.0);
}

TEST(Reshard, Rank1) {
  Statistics square = AllPairs({2, 2}, {4}).run();
  expectAllRight(square, "2x2, 4");
  Statistics cube = AllPairs({2, 2, 2}, {8}).run();
  expectAllRight(cube, "2x2x2, 8");
  EXPECT_EQ(cube.pairs, 1444u);
  Statistics uneven = AllPairs({2, 3, 2}, {12}).run();
  expectAllRight(uneven, "2x3x2, 12");
  EXPECT_EQ(uneven.pairs, 1444u);
}

TEST(Reshard, Rank3) {
  Statistics square = AllPairs({2, 2}, {4, 4, 4}).run();
  expectAllRight(square, "2x2, 4x4x4");
  EXPECT_EQ(square.pairs, 784u);
  Statistics cube = AllPairs({2, 2, 2}, {8, 8, 8}).run();
  expectAllRight(cube, "2x2x2, 8x8x8");
  Statistics uneven = AllPairs({2, 3, 2}, {12, 12, 12}).run();
  expectAllRight(uneven, "2x3x2, 12x12x12");
}

// With small tensors the number of steps decides, and other ways are taken.
TEST(Reshard, SmallTensors) {
  Statistics cube = AllPairs({2, 2, 2}, {8, 8}, smallElement).run();
  expectAllRight(cube, "small");
  EXPECT_LE(cube.longest(), 5);
  Statistics uneven = AllPairs({2, 3, 2}, {12, 12}, smallElement).run();
  expectAllRight(uneven, "small");
  EXPECT_LE(uneven.longest(), 5);
}

// Sizes that only some axes divide leave fewer layouts to go over.
TEST(Reshard, SizesThatFewAxesDivide) {
  Statistics uneven = AllPairs({2, 3, 2}, {6, 4}).run();
  expectAllRight(uneven, "2x3x2, 6x4");
  Statistics line = AllPairs({2, 3, 2}, {2, 3, 2}).run();
  expectAllRight(line, "2x3x2, 2x3x2");
}

TEST(Reshard, PartialMaximum) {
  for (std::int64_t middle : {2, 3}) {
    AllPairs pairs({2, middle, 2}, {4 * middle, 4 * middle});
    std::vector<ReshardLayout> sums = pairs.ranks.allLayouts(), maxima;
    for (ReshardLayout layout : sums)
      if (!layout.partial.empty()) {
        layout.partialMax = true;
        maxima.push_back(layout);
      }
    auto keep = [](std::vector<ReshardStep> &) {};
    Statistics into = pairs.run(sums, maxima, keep);
    expectAllRight(into, "to a maximum");
    Statistics out = pairs.run(maxima, sums, keep);
    expectAllRight(out, "from a maximum");
    Statistics among = pairs.run(maxima, maxima, keep);
    expectAllRight(among, "maximum to maximum");
  }
}

TEST(Reshard, SumNeverTurnsIntoMaximum) {
  ReshardMesh mesh = meshOf({2, 2});
  ReshardLayout sum{{{}}, {0}, false}, max{{{}}, {0}, true};
  std::vector<ReshardStep> steps = findReshard(mesh, {4}, 4, sum, max);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].kind, ReshardKind::AllReduce);
  EXPECT_FALSE(steps[0].reduceMax);
  EXPECT_EQ(steps[1].kind, ReshardKind::MakePartial);
  EXPECT_TRUE(steps[1].reduceMax);
}

TEST(Reshard, KnownSequences) {
  ReshardMesh mesh = meshOf({2, 2, 2});
  auto kinds = [&](const ReshardLayout &from, const ReshardLayout &to) {
    std::string names;
    for (const ReshardStep &step :
         findReshard(mesh, {8, 8}, hugeElement, from, to))
      names +=
          std::string(names.empty() ? "" : " ") + reshardKindName(step.kind);
    return names;
  };
  EXPECT_EQ(kinds({{{0}, {}}, {1}}, {{{0}, {}}, {}}), "all_reduce");
  EXPECT_EQ(kinds({{{0}, {}}, {1}}, {{{0}, {1}}, {}}), "reduce_scatter");
  EXPECT_EQ(kinds({{{0, 1}, {}}, {}}, {{{0}, {1}}, {}}), "all_to_all");
  EXPECT_EQ(kinds({{{0, 1}, {}}, {}}, {{{1, 0}, {}}, {}}), "permute");
  EXPECT_EQ(kinds({{{0}, {1}}, {}}, {{{0}, {}}, {}}), "all_gather");
  EXPECT_EQ(kinds({{{0}, {}}, {}}, {{{0}, {2}}, {}}), "slice");
  EXPECT_EQ(kinds({{{0}, {}}, {}}, {{{0}, {}}, {2}}), "make_partial");
  EXPECT_EQ(kinds({{{0}, {}}, {1, 2}}, {{{0}, {}}, {1, 2}}), "");
}

// Ranks along an axis that neither layout names may hold other values.
TEST(Reshard, AxesOfNeitherLayoutTakeNoPart) {
  ReshardMesh mesh = meshOf({2, 8, 2});
  for (const ReshardStep &step : findReshard(mesh, {64, 64}, hugeElement,
                                             {{{}, {}}, {1}}, {{{}, {}}, {}}))
    for (int axis : step.axes)
      EXPECT_EQ(axis, 1);
}

TEST(Reshard, AxesOfSizeOneMeanNothing) {
  ReshardMesh mesh = meshOf({1, 2, 1});
  EXPECT_TRUE(findReshard(mesh, {8}, 4, {{{0}}, {1, 2}}, {{{}}, {1}}).empty());
  std::vector<ReshardStep> steps =
      findReshard(mesh, {8}, 4, {{{2}}, {0, 1}}, {{{0}}, {2}});
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].axes, std::vector<int>{1});
}

// The simulation sees each kind of fault that a sequence can have.
TEST(Reshard, MutationsAreSeen) {
  std::vector<std::int64_t> sizes{2, 3, 2};
  auto wrongAfter = [&](auto spoilStep) {
    AllPairs pairs(sizes, {12, 12});
    std::vector<ReshardLayout> layouts = pairs.ranks.allLayouts();
    std::size_t spoilt = 0;
    Statistics all =
        pairs.run(layouts, layouts, [&](std::vector<ReshardStep> &steps) {
          for (std::size_t i = 0; i < steps.size(); ++i)
            if (spoilStep(steps, i)) {
              ++spoilt;
              return;
            }
        });
    EXPECT_GT(spoilt, 100u);
    return static_cast<double>(all.wrong.size()) / static_cast<double>(spoilt);
  };
  using Steps = std::vector<ReshardStep>;
  // A step left out.
  EXPECT_EQ(wrongAfter([](Steps &steps, std::size_t i) {
              steps.erase(steps.begin() + static_cast<long>(i));
              return true;
            }),
            1.0);
  // The axes of a group in another order.
  EXPECT_GT(wrongAfter([](Steps &steps, std::size_t i) {
              const ReshardKind kind = steps[i].kind;
              const bool ordered = kind == ReshardKind::Slice ||
                                   kind == ReshardKind::AllGather ||
                                   kind == ReshardKind::ReduceScatter ||
                                   kind == ReshardKind::AllToAll;
              if (!ordered || steps[i].axes.size() < 2)
                return false;
              std::swap(steps[i].axes[0], steps[i].axes[1]);
              return true;
            }),
            0.99);
  // A maximum instead of a sum.
  EXPECT_EQ(wrongAfter([](Steps &steps, std::size_t i) {
              if (steps[i].kind != ReshardKind::AllReduce &&
                  steps[i].kind != ReshardKind::ReduceScatter)
                return false;
              steps[i].reduceMax = true;
              return true;
            }),
            1.0);
  // A permute the other way round, where that is another map.
  EXPECT_GT(wrongAfter([](Steps &steps, std::size_t i) {
              std::vector<int> inverse(steps[i].sources.size());
              for (std::size_t p = 0; p < inverse.size(); ++p)
                inverse[static_cast<std::size_t>(steps[i].sources[p])] =
                    static_cast<int>(p);
              if (inverse == steps[i].sources)
                return false;
              steps[i].sources = inverse;
              return true;
            }),
            0.5);
}

} // namespace
} // namespace heddle
