// heddle_rt_attention and its gradient against fp64 loops; the loops' gradient
// against finite differences.

#include "OnDevice.h"

#include "heddle/Runtime/Formats.h"
#include "heddle/Runtime/Random.h"
#include "runtime/common/Status.h"
#include "runtime/ranks/RunRanks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <vector>

using testing::HasSubstr;

namespace {

using heddle::test::OnDevice;
using Args = heddle_rt_attention_args;
using Strides = heddle_rt_attention_strides;

/// Sizes, a mask, and operands in memory. Heads have gaps between them; q, k
/// and v lie in one buffer, as a fused projection leaves them.
struct Problem {
  Args args{};
  std::vector<int32_t> documents, positions, tokens;
  int64_t seed = -5;
  std::vector<float> fused, o, lse, gradO, gradFused;

  Problem(int64_t b, int64_t s, int64_t g, int64_t r, int64_t k) {
    args.name = "test attention";
    args.batch = b, args.queries = args.keys = s;
    args.groups = g, args.heads = r, args.head_size = k;
    args.scale = 1.0f / std::sqrt(float(k));
    args.causal = 1;
    const int64_t row = g * (r + 2) * (k + 1); // q heads, k, v of each group
    const int64_t group = (r + 2) * (k + 1);
    args.q = args.k = args.v = {s * row, row, group, k + 1};
    args.grad_q = args.grad_k = args.grad_v = args.q;
    args.o = args.grad_o = {s * g * r * k, g * r * k, r * k, k};
    fused = values(b * s * row, 1);
    gradFused.assign(fused.size(), 7.0f);
    o.assign(size_t(b * s * g * r * k), 7.0f);
    gradO = values(int64_t(o.size()), 2);
    lse.assign(size_t(b * s * g * r), 7.0f);
  }
  static std::vector<float> values(int64_t n, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 1);
    std::vector<float> result(static_cast<size_t>(n));
    for (float &value : result)
      value = normal(random);
    return result;
  }
  float *q(std::vector<float> &x) { return x.data(); }
  float *k(std::vector<float> &x) {
    return x.data() + args.heads * (args.head_size + 1);
  }
  float *v(std::vector<float> &x) {
    return x.data() + (args.heads + 1) * (args.head_size + 1);
  }
  void useMasks() { // for the reference, which reads them here
    if (!documents.empty())
      args.query_documents = args.key_documents = documents.data();
    if (!positions.empty())
      args.query_positions = args.key_positions = positions.data();
    if (!tokens.empty()) {
      args.token_numbers = tokens.data();
      args.seed = &seed;
    }
  }
  heddle_rt_status run(heddle_rt_context *context) {
    useMasks();
    return onBackend<float>(context, *this, fused, o, gradO, gradFused,
                            nullptr);
  }
  template <class T>
  static heddle_rt_status
  onBackend(heddle_rt_context *context, Problem &p, std::vector<T> &fused,
            std::vector<T> &o, std::vector<T> &gradO, std::vector<T> &gradFused,
            std::vector<T> *gradQ);
};

/// Forward and gradient on a backend; with `gradQ`, the gradient of q goes
/// there, which may be gradO.
template <class T>
heddle_rt_status Problem::onBackend(heddle_rt_context *context, Problem &p,
                                    std::vector<T> &fused, std::vector<T> &o,
                                    std::vector<T> &gradO,
                                    std::vector<T> &gradFused,
                                    std::vector<T> *gradQ) {
  heddle_rt_stream *stream = nullptr;
  HEDDLE_RT_TRY(heddle_rt_stream_create(context, "s", 0, &stream));
  Args args = p.args;
  // A mask as it lies here, moved there.
  const auto moved = [&](const int32_t *&mask, int64_t length) {
    const auto n = size_t(std::max<int64_t>(0, args.batch * length));
    auto there = std::make_unique<OnDevice<int32_t>>(
        context, stream,
        mask ? std::vector<int32_t>(mask, mask + n) : std::vector<int32_t>());
    mask = mask ? there->data() : nullptr;
    return there;
  };
  const std::unique_ptr<OnDevice<int32_t>> masks[] = {
      moved(args.query_documents, args.queries),
      moved(args.key_documents, args.keys),
      moved(args.query_positions, args.queries),
      moved(args.key_positions, args.keys),
      moved(args.token_numbers, args.queries)};
  OnDevice<int64_t> seed(context, stream, {p.seed});
  if (args.seed)
    args.seed = seed.data();
  OnDevice<T> x(context, stream, fused), y(context, stream, o);
  OnDevice<T> dy(context, stream, gradO), dx(context, stream, gradFused);
  OnDevice<T> dq(context, stream, gradQ ? *gradQ : std::vector<T>());
  OnDevice<float> lse(context, stream, p.lse);
  const int64_t k = p.k(p.fused) - p.q(p.fused),
                v = p.v(p.fused) - p.q(p.fused);
  HEDDLE_RT_TRY(heddle_rt_attention(stream, &args, x.data(), x.data() + k,
                                    x.data() + v, y.data(), lse.data()));
  T *toQ = !gradQ ? dx.data() : gradQ == &gradO ? dy.data() : dq.data();
  HEDDLE_RT_TRY(heddle_rt_attention_grad(
      stream, &args, x.data(), x.data() + k, x.data() + v, y.data(), lse.data(),
      dy.data(), toQ, dx.data() + k, dx.data() + v));
  o = y.read();
  p.lse = lse.read();
  gradFused = dx.read();
  if (gradQ)
    *gradQ = gradQ == &gradO ? dy.read() : dq.read();
  return HEDDLE_RT_OK;
}

/// The definition, in fp64, with whole tensors indexed as the strides say.
struct Reference {
  const Args &args;
  std::vector<double> fused, o, lse, gradFused;
  Problem &problem;

  explicit Reference(Problem &problem)
      : args(problem.args), fused(problem.fused.begin(), problem.fused.end()),
        o(problem.o.size()), lse(problem.lse.size()),
        gradFused(problem.fused.size()), problem(problem) {}

  int64_t offset(const Strides &x, int64_t b, int64_t i, int64_t g,
                 int64_t r) const {
    return b * x.batch + i * x.sequence + g * x.group + r * x.head;
  }
  int64_t qAt(int64_t b, int64_t i, int64_t g, int64_t r) const {
    return offset(args.q, b, i, g, r);
  }
  int64_t kAt(int64_t b, int64_t j, int64_t g) const {
    return offset(args.k, b, j, g, args.heads);
  }
  int64_t vAt(int64_t b, int64_t j, int64_t g) const {
    return offset(args.v, b, j, g, args.heads + 1);
  }
  bool sees(int64_t b, int64_t i, int64_t j) const {
    const size_t qi = size_t(b * args.queries + i);
    const size_t kj = size_t(b * args.keys + j);
    const int64_t pi = args.query_positions ? args.query_positions[qi] : i;
    const int64_t pj = args.key_positions ? args.key_positions[kj] : j;
    return (!args.query_documents ||
            args.query_documents[qi] == args.key_documents[kj]) &&
           (!args.causal || pj <= pi) &&
           (args.window == 0 || pi - pj < args.window);
  }
  /// What dropout multiplies a probability by.
  double keep(int64_t b, int64_t i, int64_t g, int64_t r, int64_t j) const {
    if (args.dropout == 0)
      return 1;
    const int64_t head = args.first_head + g * args.group_heads + r;
    const uint32_t word = heddle::random::dropoutWord(
        uint64_t(*args.seed), 1, uint32_t(head),
        uint32_t(args.token_numbers[b * args.queries + i]), uint32_t(j));
    return double(word) < args.dropout * 4294967296.0 ? 0
                                                      : 1 / (1 - args.dropout);
  }
  template <class Each> // each(b, i, g, r)
  void forQueries(Each each) const {
    for (int64_t b = 0; b < args.batch; ++b)
      for (int64_t i = 0; i < args.queries; ++i)
        for (int64_t g = 0; g < args.groups; ++g)
          for (int64_t r = 0; r < args.heads; ++r)
            each(b, i, g, r);
  }
  std::vector<double> probabilities(int64_t b, int64_t i, int64_t g, int64_t r,
                                    double &logSum) const {
    std::vector<double> p(size_t(args.keys), 0.0);
    double sum = 0;
    for (int64_t j = 0; j < args.keys; ++j) {
      if (!sees(b, i, j))
        continue;
      double score = 0;
      for (int64_t c = 0; c < args.head_size; ++c)
        score += fused[size_t(qAt(b, i, g, r) + c)] *
                 fused[size_t(kAt(b, j, g) + c)];
      p[size_t(j)] = std::exp(args.scale * score);
      sum += p[size_t(j)];
    }
    logSum = std::log(sum);
    for (double &one : p)
      one = sum > 0 ? one / sum : 0;
    return p;
  }
  void forward() {
    std::fill(o.begin(), o.end(), 0.0);
    forQueries([&](int64_t b, int64_t i, int64_t g, int64_t r) {
      const int64_t at = offset(args.o, b, i, g, r);
      double &logSum = lse[size_t(at / args.head_size)];
      const auto p = probabilities(b, i, g, r, logSum);
      for (int64_t j = 0; j < args.keys; ++j)
        for (int64_t c = 0; c < args.head_size; ++c)
          o[size_t(at + c)] += keep(b, i, g, r, j) * p[size_t(j)] *
                               fused[size_t(vAt(b, j, g) + c)];
    });
  }
  /// Of the scalar sum(o * gradO).
  void backward() {
    forQueries([&](int64_t b, int64_t i, int64_t g, int64_t r) {
      double logSum;
      const auto p = probabilities(b, i, g, r, logSum);
      const float *grad = &problem.gradO[size_t(offset(args.o, b, i, g, r))];
      double mean = 0;
      std::vector<double> dp(p.size(), 0.0);
      for (int64_t j = 0; j < args.keys; ++j)
        for (int64_t c = 0; c < args.head_size; ++c) {
          const double kept = keep(b, i, g, r, j) * double(grad[c]);
          dp[size_t(j)] += kept * fused[size_t(vAt(b, j, g) + c)];
          gradFused[size_t(vAt(b, j, g) + c)] += p[size_t(j)] * kept;
        }
      for (size_t j = 0; j < p.size(); ++j)
        mean += p[j] * dp[j];
      for (int64_t j = 0; j < args.keys; ++j) {
        const double ds = args.scale * p[size_t(j)] * (dp[size_t(j)] - mean);
        for (int64_t c = 0; c < args.head_size; ++c) {
          gradFused[size_t(qAt(b, i, g, r) + c)] +=
              ds * fused[size_t(kAt(b, j, g) + c)];
          gradFused[size_t(kAt(b, j, g) + c)] +=
              ds * fused[size_t(qAt(b, i, g, r) + c)];
        }
      }
    });
  }
  double objective() {
    forward();
    double sum = 0;
    for (size_t i = 0; i < o.size(); ++i)
      sum += o[i] * double(problem.gradO[i]);
    return sum;
  }
};

void expectNear(const char *what, const std::vector<float> &got,
                const std::vector<double> &wanted, double tolerance) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isinf(wanted[i]) && got[i] == float(wanted[i]))
      continue;
    ASSERT_NEAR(got[i], wanted[i], tolerance * (1 + std::abs(wanted[i])))
        << what << " at " << i;
  }
}

void runOne(Problem &problem, int threads = 1) {
  heddle_rt_options options{};
  options.compute_threads = threads;
  const auto result =
      heddle::ranks::runRanks(1, options, [&](heddle_rt_context *context) {
        return problem.run(context);
      });
  ASSERT_TRUE(result) << result.message;
}

void check(Problem problem) {
  ASSERT_NO_FATAL_FAILURE(runOne(problem));
  Reference reference(problem);
  reference.forward();
  reference.backward();
  expectNear("o", problem.o, reference.o, 4e-6);
  expectNear("lse", problem.lse, reference.lse, 4e-6);
  // Gaps keep the 7 they had.
  const int64_t head = problem.args.head_size + 1;
  for (size_t i = 0; i < problem.gradFused.size(); ++i)
    if (int64_t(i) % head == head - 1) {
      ASSERT_EQ(problem.gradFused[i], 7.0f) << "wrote into a gap";
      problem.gradFused[i] = 0;
    }
  expectNear("gradients", problem.gradFused, reference.gradFused, 2e-5);
}

TEST(Attention, CausalAndFull) {
  for (const int32_t causal : {0, 1})
    for (const int64_t s : {1, 7, 64, 65, 200}) {
      SCOPED_TRACE(testing::Message() << "causal " << causal << " s " << s);
      Problem problem(2, s, 2, 1, 16);
      problem.args.causal = causal;
      check(problem);
    }
}

TEST(Attention, SeveralQueryHeadsShareKeys) { check({1, 70, 2, 3, 20}); }

TEST(Attention, LongSequenceUsesLargerBlocks) { check({1, 530, 1, 1, 8}); }

TEST(Attention, Window) {
  for (const int32_t causal : {0, 1})
    for (const int64_t window : {1, 5, 64, 300}) {
      SCOPED_TRACE(testing::Message() << causal << " window " << window);
      Problem problem(1, 150, 1, 2, 12);
      problem.args.causal = causal;
      problem.args.window = window;
      check(problem);
    }
}

TEST(Attention, Dropout) {
  for (const double rate : {0.1, 0.5, 0.9})
    for (const int64_t s : {1, 7, 66, 150}) {
      SCOPED_TRACE(testing::Message() << "rate " << rate << " s " << s);
      Problem problem(2, s, 2, 3, 8);
      problem.args.dropout = rate;
      problem.args.first_head = 12;
      problem.args.group_heads = 4;
      for (int64_t i = 0; i < 2 * s; ++i)
        problem.tokens.push_back(int32_t(1000 + i));
      check(problem);
      problem.args.window = 5;
      check(problem);
    }
}

TEST(Attention, PackedDocumentsThatCountPositionsAnew) {
  Problem problem(2, 160, 1, 2, 12);
  for (int b = 0; b < 2; ++b)
    for (int i = 0, start = 0; i < 160; ++i) {
      if (i == 20 || i == 90 + b)
        start = i;
      problem.documents.push_back(start);
      problem.positions.push_back(i - start);
    }
  check(problem);
  problem.args.window = 10;
  check(problem);
}

TEST(Attention, DocumentsInAnyOrder) {
  Problem problem(1, 140, 2, 1, 12);
  for (int i = 0; i < 140; ++i) {
    problem.documents.push_back(i % 3);
    problem.positions.push_back((i * 37) % 140);
  }
  check(problem);
}

TEST(Attention, AQueryThatSeesNothingGivesZero) {
  Problem problem(1, 70, 1, 1, 8);
  std::vector<int32_t> queries(70, 0), keys(70, 0);
  queries[3] = 5; // no key has document 5
  problem.args.query_documents = queries.data();
  problem.args.key_documents = keys.data();
  ASSERT_NO_FATAL_FAILURE(runOne(problem));
  EXPECT_EQ(problem.lse[3], -std::numeric_limits<float>::infinity());
  for (int c = 0; c < 8; ++c) {
    EXPECT_EQ(problem.o[size_t(3 * 8 + c)], 0);
    EXPECT_EQ(problem.gradFused[size_t(3 * problem.args.q.sequence + c)], 0);
  }
  for (const float one : problem.gradFused)
    ASSERT_FALSE(std::isnan(one));
  // A whole block of such queries has no keys at all.
  queries.assign(70, 5);
  ASSERT_NO_FATAL_FAILURE(runOne(problem));
  for (const float one : problem.o)
    ASSERT_EQ(one, 0);
}

TEST(Attention, FewerQueriesThanKeys) {
  Problem problem(1, 100, 1, 2, 8);
  std::vector<int32_t> queries, keys;
  for (int i = 0; i < 100; ++i)
    keys.push_back(i);
  queries.assign(keys.begin() + 60, keys.begin() + 100);
  problem.args.queries = 40; // the first 40 rows stand at positions 60 to 99
  problem.args.query_positions = queries.data();
  problem.args.key_positions = keys.data();
  problem.o.resize(size_t(40 * 2 * 8));
  problem.lse.resize(40 * 2);
  ASSERT_NO_FATAL_FAILURE(runOne(problem));
  Reference reference(problem);
  reference.forward();
  expectNear("o", problem.o, reference.o, 4e-6);
}

TEST(Attention, LargeScoresDoNotOverflow) {
  Problem problem(1, 80, 1, 1, 16);
  problem.args.scale = 30;
  ASSERT_NO_FATAL_FAILURE(runOne(problem));
  for (const auto *values : {&problem.o, &problem.lse, &problem.gradFused})
    for (const float one : *values)
      ASSERT_TRUE(std::isfinite(one));
}

TEST(Attention, DoesNotDependOnThreads) {
  Problem one(3, 130, 2, 2, 16), four = one;
  ASSERT_NO_FATAL_FAILURE(runOne(one, 1));
  ASSERT_NO_FATAL_FAILURE(runOne(four, 4));
  EXPECT_EQ(one.o, four.o);
  EXPECT_EQ(one.lse, four.lse);
  EXPECT_EQ(one.gradFused, four.gradFused);
}

TEST(Attention, GradientMayReplaceTheOutputsGradient) {
  Problem apart(1, 100, 1, 2, 16), inPlace = apart;
  apart.args.grad_q = inPlace.args.grad_q = apart.args.grad_o;
  const auto run = [](Problem &p, std::vector<float> &gradQ) {
    const auto result =
        heddle::ranks::runRanks(1, {}, [&](heddle_rt_context *context) {
          return Problem::onBackend(context, p, p.fused, p.o, p.gradO,
                                    p.gradFused, &gradQ);
        });
    ASSERT_TRUE(result) << result.message;
  };
  std::vector<float> gradQ(apart.gradO.size());
  run(apart, gradQ);
  run(inPlace, inPlace.gradO);
  EXPECT_EQ(gradQ, inPlace.gradO);
  EXPECT_EQ(apart.gradFused, inPlace.gradFused);
}

template <class T>
std::vector<T> narrowed(const std::vector<float> &wide) {
  std::vector<T> narrow(wide.size());
  for (size_t i = 0; i < wide.size(); ++i)
    heddle::narrow(wide[i], narrow[i]);
  return narrow;
}

template <class T>
void widen(const std::vector<T> &narrow, std::vector<float> &wide) {
  for (size_t i = 0; i < wide.size(); ++i)
    wide[i] = heddle::widen(narrow[i]);
}

/// Runs a problem of narrow operands; its floats are what comes out.
template <class T>
void runNarrow(Problem &problem, heddle_rt_dtype dtype, int threads) {
  problem.useMasks();
  problem.args.dtype = dtype;
  auto fused = narrowed<T>(problem.fused), o = narrowed<T>(problem.o),
       gradO = narrowed<T>(problem.gradO),
       grads = narrowed<T>(problem.gradFused);
  heddle_rt_options options{};
  options.compute_threads = threads;
  const auto result =
      heddle::ranks::runRanks(1, options, [&](heddle_rt_context *context) {
        return Problem::onBackend<T>(context, problem, fused, o, gradO, grads,
                                     nullptr);
      });
  ASSERT_TRUE(result) << result.message;
  widen(o, problem.o);
  widen(grads, problem.gradFused);
}

// What is widened is computed with as fp32 is, and rounded once: by at most
// `unit`, half of one in the last bit, beside what fp32 itself is off by.
template <class T>
void checkNarrow(heddle_rt_dtype dtype, double unit) {
  Problem problem(2, 70, 2, 3, 20);
  widen(narrowed<T>(problem.fused), problem.fused);
  widen(narrowed<T>(problem.gradO), problem.gradO);
  Problem exact = problem, threads = problem;
  ASSERT_NO_FATAL_FAILURE(runNarrow<T>(problem, dtype, 1));
  ASSERT_NO_FATAL_FAILURE(runNarrow<T>(threads, dtype, 3));
  EXPECT_EQ(problem.o, threads.o);
  EXPECT_EQ(problem.gradFused, threads.gradFused);
  Reference reference(exact);
  reference.forward();
  reference.backward();
  expectNear("lse", problem.lse, reference.lse, 4e-6);
  const auto near = [&](const char *what, const std::vector<float> &got,
                        const std::vector<double> &wanted, double more) {
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], wanted[i], std::abs(wanted[i]) * unit + more)
          << what << " at " << i;
  };
  near("o", problem.o, reference.o, 1e-5);
  const int64_t head = problem.args.head_size + 1;
  for (size_t i = 0; i < problem.gradFused.size(); ++i)
    if (int64_t(i) % head == head - 1) {
      ASSERT_EQ(problem.gradFused[i], 7.0f) << "wrote into a gap";
      problem.gradFused[i] = 0;
    }
  // The gradient reads the rounded output.
  near("gradients", problem.gradFused, reference.gradFused, 5 * unit);
}

TEST(Attention, NarrowFormatsAreRoundedOnce) {
  checkNarrow<heddle::bf16>(HEDDLE_RT_BF16, 1.0 / 256);
  checkNarrow<heddle::f16>(HEDDLE_RT_F16, 1.0 / 2048);
}

TEST(Reference, GradientIsTheFiniteDifference) {
  Problem problem(1, 9, 1, 2, 4);
  problem.documents = {0, 0, 0, 0, 1, 1, 1, 1, 1};
  problem.positions = {0, 1, 2, 3, 0, 1, 2, 3, 4};
  problem.args.window = 3;
  problem.useMasks();
  Reference reference(problem);
  reference.backward();
  for (size_t i = 0; i < reference.fused.size(); ++i) {
    const double value = reference.fused[i], step = 1e-5;
    reference.fused[i] = value + step;
    const double up = reference.objective();
    reference.fused[i] = value - step;
    const double down = reference.objective();
    reference.fused[i] = value;
    ASSERT_NEAR((up - down) / (2 * step), reference.gradFused[i], 1e-8)
        << "at " << i;
  }
}

TEST(Arguments, AreChecked) {
  Problem problem(1, 4, 1, 1, 4);
  const auto expect = [&](std::function<void(Args &)> spoil,
                          const char *sentence) {
    Problem bad = problem;
    spoil(bad.args);
    const auto result = heddle::ranks::runRanks(
        1, {}, [&](heddle_rt_context *context) { return bad.run(context); });
    EXPECT_EQ(result.status, HEDDLE_RT_INVALID_ARGUMENT);
    EXPECT_THAT(result.message, HasSubstr(sentence));
    EXPECT_EQ(bad.o, problem.o);
  };
  const int32_t one[4] = {};
  expect([](Args &args) { args.dtype = HEDDLE_RT_I32; }, "not on i32");
  expect([](Args &args) { args.keys = -1; }, "expected 0 to 2^31 - 1");
  expect([](Args &args) { args.q.sequence = 2; }, "positions of q are 2");
  expect([](Args &args) { args.o.batch = -4; }, "a stride of o is negative");
  expect([&](Args &args) { args.query_documents = one; }, "come together");
}

} // namespace
