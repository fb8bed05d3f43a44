//===- SkeletonsTest.cpp - Host skeletons against plain loops -------------===//
//
// The launcher here splits items at random, runs the parts in a random order
// and checks the declared ranges. Whatever it does, results must be the same
// bits.
//
//===----------------------------------------------------------------------===//

#include "heddle/Runtime/Skeletons.h"
#include "heddle/Runtime/Random.h"
#include "test/runtime/Functors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

using namespace heddle;
using namespace heddle::test;

namespace {

struct Launcher {
  std::mt19937_64 random{1};
  bool split = false;
  std::vector<heddle_rt_access> ranges; ///< of the latest launch
};
Launcher launcher;

} // namespace

heddle_rt_status heddle_rt_host_launch(heddle_rt_stream *, const char *,
                                       heddle_rt_body body, const void *args,
                                       size_t bytes, int64_t items, int64_t,
                                       const heddle_rt_access *accesses,
                                       int32_t count) {
  // A late runtime copies the arguments; so does this one.
  std::vector<uint64_t> copy((bytes + 7) / 8);
  memcpy(copy.data(), args, bytes);
  launcher.ranges.assign(accesses, accesses + count);
  std::vector<std::pair<int64_t, int64_t>> parts;
  for (int64_t begin = 0; begin < items;) {
    int64_t end = items;
    if (launcher.split)
      end = begin + 1 + int64_t(launcher.random() % uint64_t(items - begin));
    parts.push_back({begin, end});
    begin = end;
  }
  std::shuffle(parts.begin(), parts.end(), launcher.random);
  for (auto [begin, end] : parts)
    body(copy.data(), begin, end);
  return HEDDLE_RT_OK;
}
heddle_rt_status heddle_rt_launch_failed(const char *, const char *) {
  return HEDDLE_RT_DEVICE_ERROR;
}

namespace {

constexpr float kGuard = 12345.5f;

/// n normals, and a guard behind them.
std::vector<float> normals(int64_t n, uint64_t stream) {
  std::vector<float> x(size_t(n) + 1, kGuard);
  random::normalFill(1, stream, 0, n, x.data());
  return x;
}
std::vector<float> guarded(int64_t n) {
  std::vector<float> x(size_t(n) + 1, 0);
  x.back() = kGuard;
  return x;
}

/// Runs `work` whole, then split at random: the outputs must be equal bits and
/// their guards whole.
template <class Work, class... Outputs>
void sameHoweverSplit(Work work, Outputs &...outputs) {
  const auto start = std::make_tuple(outputs...);
  launcher.split = false;
  work();
  const auto whole = std::make_tuple(outputs...);
  launcher.split = true;
  for (int i = 0; i < 3; ++i) {
    std::tie(outputs...) = start;
    work();
    EXPECT_EQ(std::tie(outputs...), whole);
  }
  EXPECT_TRUE(((outputs.back() == kGuard) && ...));
}

/// Whether the first range holds exactly these bytes.
void expectRange(int i, const void *begin, int64_t bytes, bool writes) {
  ASSERT_LT(size_t(i), launcher.ranges.size());
  EXPECT_EQ(launcher.ranges[i].begin, begin);
  EXPECT_EQ(launcher.ranges[i].bytes, bytes);
  EXPECT_EQ(launcher.ranges[i].writes != 0, writes);
}

struct Sizes {
  int64_t rows, columns;
};
/// Tails of every kind, then shapes drawn at random.
std::vector<Sizes> someSizes() {
  std::vector<Sizes> sizes = {{1, 1},   {3, 5},    {2, 31},   {2, 32},
                              {5, 33},  {4, 255},  {4, 256},  {4, 257},
                              {2, 511}, {2, 1024}, {3, 1025}, {130, 300}};
  std::mt19937 random(5);
  for (int i = 0; i < 20; ++i)
    sizes.push_back({int64_t(1 + random() % 200), int64_t(1 + random() % 700)});
  return sizes;
}

TEST(Skeletons, Elementwise) {
  for (auto [rows, columns] : someSizes()) {
    const int64_t n = rows * columns;
    auto g = normals(n, 1), u = normals(n, 2), h = guarded(n);
    sameHoweverSplit(
        [&] {
          ASSERT_EQ(elementwise(nullptr, "swiglu", n, SwiGlu{}, in(g.data()),
                                in(u.data()), out(h.data())),
                    HEDDLE_RT_OK);
        },
        h);
    expectRange(0, g.data(), n * 4, false);
    expectRange(2, h.data(), n * 4, true);
    for (int64_t i = 0; i < n; ++i)
      EXPECT_NEAR(h[i], g[i] / (1 + std::exp(-double(g[i]))) * u[i], 1e-6);
  }
}

TEST(Skeletons, ElementwiseInPlaceWithScalars) {
  const int64_t n = 3001;
  auto g = normals(n, 1), p = normals(n, 2), m = normals(n, 3);
  auto v = normals(n, 4);
  for (int64_t i = 0; i < n; ++i)
    v[i] *= v[i];
  const auto p0 = p, m0 = m, v0 = v;
  const float rate = 0.01f, c1 = 10.0f, c2 = 20.0f;
  const AdamW f{0.9f, 0.95f, 1e-8f, 0.1f};
  sameHoweverSplit(
      [&] {
        ASSERT_EQ(elementwise(nullptr, "adamw", n, f, in(g.data()),
                              inout(p.data()), inout(m.data()), inout(v.data()),
                              inScalar(&rate), inScalar(&c1), inScalar(&c2)),
                  HEDDLE_RT_OK);
      },
      p, m, v);
  expectRange(4, &rate, 4, false);
  for (int64_t i = 0; i < n; ++i) {
    const double mi = 0.9 * m0[i] + 0.1 * g[i];
    const double vi = 0.95 * v0[i] + 0.05 * double(g[i]) * g[i];
    const double step = mi * c1 / (std::sqrt(vi * c2) + 1e-8);
    EXPECT_NEAR(m[i], mi, 1e-6);
    EXPECT_NEAR(v[i], vi, 1e-5);
    EXPECT_NEAR(p[i], p0[i] - rate * (step + 0.1 * p0[i]), 1e-5);
  }
}

TEST(Skeletons, LargeOutputsAreStreamedToTheSameBits) {
  // Enough bytes for host::kStreamBytes, at an address no vector begins at.
  const int64_t n = host::kStreamBytes / 4 + 77;
  auto g = normals(n, 1);
  auto h = guarded(n + 3), few = guarded(1000);
  launcher.split = true;
  ASSERT_EQ(elementwise(nullptr, "swiglu", n, SwiGlu{}, in(g.data()),
                        in(g.data()), out(h.data() + 3)),
            HEDDLE_RT_OK);
  for (int64_t first = 0; first < n; first += 1000) {
    const int64_t count = std::min<int64_t>(1000, n - first);
    ASSERT_EQ(elementwise(nullptr, "swiglu", count, SwiGlu{},
                          in(g.data() + first), in(g.data() + first),
                          out(few.data())),
              HEDDLE_RT_OK);
    ASSERT_EQ(memcmp(few.data(), h.data() + 3 + first, size_t(count) * 4), 0);
  }
  EXPECT_EQ(h.back(), kGuard);
}

TEST(Skeletons, RowwiseOnePass) {
  for (auto [rows, columns] : someSizes()) {
    auto x = normals(rows * columns, 1), w = normals(columns, 2);
    auto y = guarded(rows * columns), rstd = guarded(rows);
    const RmsNorm f{1e-5f, 1.0f / float(columns)};
    sameHoweverSplit(
        [&] {
          ASSERT_EQ(rowwise(nullptr, "norm", rows, columns, f, in(x.data()),
                            inColumn(w.data()), out(y.data()),
                            outRow(rstd.data())),
                    HEDDLE_RT_OK);
        },
        y, rstd);
    expectRange(1, w.data(), columns * 4, false);
    expectRange(3, rstd.data(), rows * 4, true);
    for (int64_t r = 0; r < rows; ++r) {
      double sum = 0;
      for (int64_t c = 0; c < columns; ++c)
        sum += double(x[r * columns + c]) * x[r * columns + c];
      const double expected = 1 / std::sqrt(sum / columns + 1e-5);
      EXPECT_NEAR(rstd[r], expected, 2e-6 * expected);
      for (int64_t c = 0; c < columns; ++c)
        EXPECT_NEAR(y[r * columns + c], x[r * columns + c] * expected * w[c],
                    2e-5);
    }
  }
}

TEST(Skeletons, RowwiseInBf16) {
  const int64_t rows = 7, columns = 300;
  auto x = normals(rows * columns, 1), w = normals(columns, 2);
  auto rstd = guarded(rows);
  std::vector<bf16> narrowed(rows * columns), y(rows * columns);
  for (int64_t i = 0; i < rows * columns; ++i)
    narrow(x[i], narrowed[i]);
  ASSERT_EQ(rowwise(nullptr, "norm", rows, columns, RmsNorm{1e-5f, 1 / 300.0f},
                    in(narrowed.data()), inColumn(w.data()), out(y.data()),
                    outRow(rstd.data())),
            HEDDLE_RT_OK);
  expectRange(2, y.data(), rows * columns * 2, true);
  for (int64_t i = 0; i < rows * columns; ++i) {
    bf16 expected;
    narrow(widen(narrowed[i]) * rstd[i / columns] * w[i % columns], expected);
    EXPECT_EQ(y[i].bits, expected.bits);
  }
}

TEST(Skeletons, RowwiseTwoPasses) {
  for (auto [rows, columns] : someSizes()) {
    auto x = normals(rows * columns, 1);
    std::vector<int32_t> labels(rows);
    for (int64_t r = 0; r < rows; ++r)
      labels[r] = r % 3 == 0 ? -100 : int32_t(r % columns);
    auto m = guarded(rows), z = guarded(rows), picked = guarded(rows);
    sameHoweverSplit(
        [&] {
          ASSERT_EQ(rowwise(nullptr, "cross entropy", rows, columns,
                            CrossEntropy{int32_t(columns)}, in(x.data()),
                            inRow(labels.data()), outRow(m.data()),
                            outRow(z.data()), outRow(picked.data())),
                    HEDDLE_RT_OK);
        },
        m, z, picked);
    for (int64_t r = 0; r < rows; ++r) {
      const float *row = x.data() + r * columns;
      const float largest = *std::max_element(row, row + columns);
      double sum = 0;
      for (int64_t c = 0; c < columns; ++c)
        sum += std::exp(double(row[c]) - largest);
      EXPECT_EQ(m[r], largest);
      EXPECT_NEAR(z[r], sum, 2e-6 * sum);
      EXPECT_EQ(picked[r], labels[r] < 0 ? 0 : row[labels[r]]);
    }
  }
}

/// y = x - mean, and the old count of the row plus one: what a row has once is
/// read before it is replaced.
struct CentreAndCount {
  float inverse;
  static constexpr int kPasses = 1;
  static constexpr int kReductions[] = {1};
  template <int P>
  HEDDLE_FN void init(float *s) const {
    s[0] = 0;
  }
  template <int P>
  HEDDLE_FN void accumulate(float *s, int32_t, float x, float) const {
    s[0] += x;
  }
  template <int P>
  HEDDLE_FN void combine(float *s, const float *t) const {
    s[0] += t[0];
  }
  HEDDLE_FN void apply(const float *s, int32_t, float &x, float &count) const {
    x = x - s[0] * inverse + 100 * count;
    count += 1;
  }
};

TEST(Skeletons, RowwiseInPlaceReadsRowValuesOnce) {
  const int64_t rows = 9, columns = 2000;
  auto x = normals(rows * columns, 1), count = guarded(rows);
  const auto x0 = x;
  for (int64_t r = 0; r < rows; ++r)
    count[r] = float(r);
  sameHoweverSplit(
      [&] {
        ASSERT_EQ(rowwise(nullptr, "centre", rows, columns,
                          CentreAndCount{1.0f / columns}, inout(x.data()),
                          inoutRow(count.data())),
                  HEDDLE_RT_OK);
      },
      x, count);
  for (int64_t r = 0; r < rows; ++r) {
    EXPECT_EQ(count[r], float(r + 1));
    double mean = 0;
    for (int64_t c = 0; c < columns; ++c)
      mean += double(x0[r * columns + c]) / columns;
    for (int64_t c = 0; c < columns; ++c)
      EXPECT_NEAR(x[r * columns + c], x0[r * columns + c] - mean + 100.0 * r,
                  1e-4);
  }
}

TEST(Skeletons, GatheredRowsOfAShard) {
  const int64_t rows = 50, columns = 1030, first = 10, count = 7;
  auto table = normals(count * columns, 1), y = guarded(rows * columns);
  std::vector<int32_t> index(rows);
  for (int64_t r = 0; r < rows; ++r)
    index[r] = int32_t(r % 25);
  sameHoweverSplit(
      [&] {
        ASSERT_EQ(rowwise(nullptr, "embedding", rows, columns, CopyRow{},
                          gathered(table.data(), index.data(), first, count),
                          out(y.data())),
                  HEDDLE_RT_OK);
      },
      y);
  expectRange(0, table.data(), count * columns * 4, false);
  expectRange(1, index.data(), rows * 4, false);
  expectRange(2, y.data(), rows * columns * 4, true);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t local = index[r] - first;
    for (int64_t c = 0; c < columns; ++c)
      EXPECT_EQ(y[r * columns + c],
                local >= 0 && local < count ? table[local * columns + c] : 0);
  }
}

TEST(Skeletons, RowsApartGroupedAndRepeated) {
  const int64_t rows = 24, columns = 40, pitch = 100;
  auto x = normals(rows * pitch, 1), y = guarded(rows * columns);
  const auto run = [&](auto operand, auto rowOf) {
    sameHoweverSplit(
        [&] {
          ASSERT_EQ(rowwise(nullptr, "copy", rows, columns, CopyRow{}, operand,
                            out(y.data())),
                    HEDDLE_RT_OK);
        },
        y);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c)
        EXPECT_EQ(y[r * columns + c], x[rowOf(r) + c]);
  };
  run(in(x.data()).pitched(pitch), [&](int64_t r) { return r * pitch; });
  expectRange(0, x.data(), ((rows - 1) * pitch + columns) * 4, false);
  run(in(x.data()).grouped(4), [&](int64_t r) { return r / 4 * columns; });
  expectRange(0, x.data(), rows / 4 * columns * 4, false);
  run(in(x.data()).repeated(6), [&](int64_t r) { return r % 6 * columns; });
  expectRange(0, x.data(), 6 * columns * 4, false);
  run(in(x.data()).pitched(pitch).grouped(2).repeated(3),
      [&](int64_t r) { return r / 2 % 3 * pitch; });
}

struct Where {
  static constexpr int kPasses = 0;
  HEDDLE_FN void apply(const float *, int32_t column, int32_t row, int32_t c,
                       float &y) const {
    y = float(row * 10000 + c * 2 + (c == column + 7));
  }
};

TEST(Skeletons, RowAndColumnNumbers) {
  const int64_t rows = 3, columns = 1500;
  auto y = guarded(rows * columns);
  ASSERT_EQ(rowwise(nullptr, "where", rows, columns, Where{}, rowIndex(5),
                    columnIndex(7), out(y.data())),
            HEDDLE_RT_OK);
  EXPECT_EQ(launcher.ranges.size(), 1u);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      EXPECT_EQ(y[r * columns + c], float((r + 5) * 10000 + (c + 7) * 2 + 1));
}

TEST(Skeletons, Columnwise) {
  for (auto [rows, columns] : someSizes()) {
    auto dy = normals(rows * columns, 1), x = normals(rows * columns, 2);
    auto rstd = normals(rows, 3), weight = normals(columns, 4);
    auto bias = normals(columns, 5);
    const auto weight0 = weight, bias0 = bias;
    std::vector<float> workspace(columnwiseWorkspace(rows, columns, 2) / 4);
    sameHoweverSplit(
        [&] {
          ASSERT_EQ(columnwise(nullptr, "norm columns", rows, columns,
                               NormColumns{}, workspace.data(), in(dy.data()),
                               in(x.data()), inRow(rstd.data()),
                               inoutColumn(weight.data()),
                               inoutColumn(bias.data())),
                    HEDDLE_RT_OK);
        },
        weight, bias);
    expectRange(5, workspace.data(), int64_t(workspace.size()) * 4, true);
    for (int64_t c = 0; c < columns; ++c) {
      double w = weight0[c], b = bias0[c];
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t i = r * columns + c;
        w += double(dy[i]) * x[i] * rstd[r];
        b += dy[i];
      }
      EXPECT_NEAR(weight[c], w, 1e-4);
      EXPECT_NEAR(bias[c], b, 1e-4);
    }
  }
}

TEST(Skeletons, ReduceAll) {
  for (int64_t n : {0, 1, 31, 256, 257, 16384, 16385, 70000}) {
    auto x = normals(n, 1);
    std::vector<int32_t> labels(size_t(n) + 1);
    int64_t counted = 0;
    for (int64_t i = 0; i < n; ++i) {
      labels[i] = i % 7 == 2 ? -100 : int32_t(i);
      counted += labels[i] >= 0;
    }
    double expected = 3;
    for (int64_t i = 0; i < n; ++i)
      expected += double(x[i]) * x[i];
    std::vector<double> workspace(reduceAllWorkspace(n) / 8 + 1);
    std::vector<double> sum = {3, kGuard};
    std::vector<int64_t> count = {-1};
    sameHoweverSplit(
        [&] {
          ASSERT_EQ(reduceAll(nullptr, "sum squares", n, SumSquares{},
                              workspace.data(), in(x.data()),
                              inoutScalar(sum.data())),
                    HEDDLE_RT_OK);
        },
        sum);
    EXPECT_NEAR(sum[0], expected, 1e-12 * expected);
    ASSERT_EQ(reduceAll(nullptr, "count", n, CountLabels{}, workspace.data(),
                        in(labels.data()), outScalar(count.data())),
              HEDDLE_RT_OK);
    EXPECT_EQ(count[0], counted);
  }
}

TEST(Skeletons, SegmentSum) {
  std::mt19937 random(3);
  for (auto [n, columns] : someSizes()) {
    const int64_t vocabulary = 1 + random() % (columns > 40 ? 300 : 90000);
    const int64_t first = vocabulary / 3, rows = 1 + vocabulary / 3;
    const int64_t distinct = 1 + random() % 40;
    std::vector<int32_t> index(n);
    for (auto &i : index)
      i = int32_t((random() % distinct) * 7919 % vocabulary);
    auto dy = normals(n * columns, 1);
    std::vector<float> gradient(size_t(rows * columns) + 1, 0.5f);
    gradient.back() = kGuard;
    auto expected = gradient;
    // The meaning in one loop: sums in the order of positions, then added.
    std::vector<float> sum(gradient.size());
    for (int64_t i = 0; i < n; ++i)
      for (int64_t c = 0; c < columns; ++c)
        if (index[i] >= first && index[i] < first + rows)
          sum[(index[i] - first) * columns + c] += dy[i * columns + c];
    for (int64_t i = 0; i < rows * columns; ++i)
      expected[i] += sum[i];
    std::vector<int32_t> workspace(segmentWorkspace(n) / 4);
    sameHoweverSplit(
        [&] {
          ASSERT_EQ(segmentSort(nullptr, "sort", n, index.data(), first, rows,
                                workspace.data()),
                    HEDDLE_RT_OK);
          ASSERT_EQ(segmentSum(nullptr, "embedding gradient", n, columns, rows,
                               workspace.data(), in(dy.data()),
                               inout(gradient.data())),
                    HEDDLE_RT_OK);
        },
        gradient);
    EXPECT_EQ(gradient, expected);
  }
  float x = 0;
  int32_t order = 0;
  EXPECT_NE(segmentSum(nullptr, "grouped", 1, 1, 1, &order, in(&x).grouped(2),
                       inout(&x)),
            HEDDLE_RT_OK);
}

uint64_t bitsHash(uint64_t hash, const std::vector<float> &x) {
  for (float v : x)
    hash = (hash ^ math::bitsOf(v)) * 0x100000001b3ull;
  return hash;
}

TEST(Skeletons, SameBitsOnEveryCompilerAndVectorWidth) {
  const int64_t rows = 37, columns = 777, n = rows * columns;
  auto x = normals(n, 1), u = normals(n, 2), w = normals(columns, 3);
  auto y = guarded(n), h = guarded(n), m = guarded(rows), z = guarded(rows);
  auto picked = guarded(rows), bias = guarded(columns);
  std::vector<int32_t> labels(rows, 5);
  std::vector<float> workspace(columnwiseWorkspace(rows, columns, 2) / 4);
  launcher.split = true;
  ASSERT_EQ(elementwise(nullptr, "swiglu", n, SwiGlu{}, in(x.data()),
                        in(u.data()), out(h.data())),
            HEDDLE_RT_OK);
  ASSERT_EQ(rowwise(nullptr, "norm", rows, columns,
                    RmsNorm{1e-5f, 1.0f / columns}, in(x.data()),
                    inColumn(w.data()), out(y.data()), outRow(m.data())),
            HEDDLE_RT_OK);
  ASSERT_EQ(columnwise(nullptr, "columns", rows, columns, NormColumns{},
                       workspace.data(), in(x.data()), in(u.data()),
                       inRow(m.data()), inoutColumn(w.data()),
                       inoutColumn(bias.data())),
            HEDDLE_RT_OK);
  uint64_t hash = bitsHash(bitsHash(bitsHash(1, h), y), m);
  ASSERT_EQ(rowwise(nullptr, "cross entropy", rows, columns,
                    CrossEntropy{int32_t(columns)}, in(x.data()),
                    inRow(labels.data()), outRow(m.data()), outRow(z.data()),
                    outRow(picked.data())),
            HEDDLE_RT_OK);
  hash = bitsHash(bitsHash(bitsHash(bitsHash(hash, w), bias), z), picked);
  EXPECT_EQ(hash, 0x154e7a40e4911da6ull) << std::hex << hash;
}

} // namespace
