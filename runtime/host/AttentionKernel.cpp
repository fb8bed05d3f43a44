// Attention by blocks of queries: scores of a block against the keys that any
// of its queries may see, softmax in place, product with the values. Blocks of
// scores stay in the second cache; for causal attention half of them are never
// computed. Products are oneDNN's, on one thread; threads share out (sequence,
// KV head) pairs, so that every sum has one order.

#include "runtime/host/AttentionKernel.h"

#include "heddle/Runtime/Math.h"
#include "heddle/Runtime/Random.h"

#include <dnnl.h>
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <vector>

namespace heddle::host {

namespace {

using Args = heddle_rt_attention_args;
using Strides = heddle_rt_attention_strides;
using Wide = AttentionOperands<float>;

constexpr int kLanes = 32; ///< partial sums of a row, added in a fixed order
constexpr int64_t kKeyBlock = 64;

int64_t queryBlock(const Args &args) { return args.queries <= 512 ? 64 : 128; }

/// Which pairs of one sequence's queries and keys see each other.
class Visibility {
public:
  Visibility(const Args &args, int64_t sequence);

  struct Keys {
    int64_t begin, end;
    bool all; ///< every query of the block sees every key between the two
  };
  /// The keys that queries [first, last) may see.
  Keys keysOf(int64_t first, int64_t last) const;
  /// Puts `hidden` where query `i` does not see a key of [begin, end).
  void mask(int64_t i, int64_t begin, int64_t end, float *row,
            float hidden) const;

private:
  struct Range {
    int32_t low, high;
    template <class At>
    static Range over(int64_t first, int64_t last, At at) {
      Range range{at(first), at(first)};
      for (int64_t i = first + 1; i < last; ++i) {
        range.low = std::min(range.low, at(i));
        range.high = std::max(range.high, at(i));
      }
      return range;
    }
  };
  int32_t queryPosition(int64_t i) const {
    return queryPositions ? queryPositions[i] : int32_t(i);
  }
  int32_t keyPosition(int64_t j) const {
    return keyPositions ? keyPositions[j] : int32_t(j);
  }

  const Args &args;
  const int32_t *queryDocuments = nullptr, *keyDocuments = nullptr;
  const int32_t *queryPositions = nullptr, *keyPositions = nullptr;
  std::vector<Range> positions, documents; ///< of each block of keys
};

Visibility::Visibility(const Args &args, int64_t sequence) : args(args) {
  if (args.query_documents) {
    queryDocuments = args.query_documents + sequence * args.queries;
    keyDocuments = args.key_documents + sequence * args.keys;
  }
  if (args.query_positions) {
    queryPositions = args.query_positions + sequence * args.queries;
    keyPositions = args.key_positions + sequence * args.keys;
  }
  for (int64_t first = 0; first < args.keys; first += kKeyBlock) {
    const int64_t last = std::min(first + kKeyBlock, args.keys);
    positions.push_back(
        Range::over(first, last, [this](int64_t j) { return keyPosition(j); }));
    if (keyDocuments)
      documents.push_back(Range::over(
          first, last, [this](int64_t j) { return keyDocuments[j]; }));
  }
}

Visibility::Keys Visibility::keysOf(int64_t first, int64_t last) const {
  const Range at =
      Range::over(first, last, [this](int64_t i) { return queryPosition(i); });
  Range in{0, 0};
  if (queryDocuments)
    in = Range::over(first, last,
                     [this](int64_t i) { return queryDocuments[i]; });
  Keys keys{args.keys, 0, true};
  for (size_t block = 0; block < positions.size(); ++block) {
    const Range p = positions[block];
    const Range d = keyDocuments ? documents[block] : Range{0, 0};
    const bool none =
        (args.causal && at.high < p.low) ||
        (args.window > 0 && int64_t(at.low) - p.high >= args.window) ||
        in.high < d.low || d.high < in.low;
    const bool all =
        (!args.causal || at.low >= p.high) &&
        (args.window <= 0 || int64_t(at.high) - p.low < args.window) &&
        in.low == in.high && d.low == d.high && in.low == d.low;
    const int64_t begin = int64_t(block) * kKeyBlock;
    if (none)
      continue;
    // A hidden block between two visible ones is masked.
    keys.all &= all && (keys.end == 0 || keys.end == begin);
    keys.begin = std::min(keys.begin, begin);
    keys.end = std::min(begin + kKeyBlock, args.keys);
  }
  if (keys.begin > keys.end)
    keys.begin = keys.end = 0;
  return keys;
}

void Visibility::mask(int64_t i, int64_t begin, int64_t end, float *row,
                      float hidden) const {
  const int64_t n = end - begin;
  const int32_t p = queryPosition(i);
  // p_i - p_j < window  <=>  p_j > p_i - window
  const int32_t high = args.causal ? p : INT32_MAX;
  const int64_t lowest = int64_t(p) - args.window;
  const bool limited = args.window > 0 && lowest >= INT32_MIN;
  const int32_t low = limited ? int32_t(lowest) : INT32_MIN;
  if (keyPositions)
    for (int64_t j = 0; j < n; ++j) {
      const int32_t at = keyPositions[begin + j];
      row[j] = at > high || (limited && at <= low) ? hidden : row[j];
    }
  else
    for (int64_t j = 0; j < n; ++j) {
      const int32_t at = int32_t(begin + j);
      row[j] = at > high || (limited && at <= low) ? hidden : row[j];
    }
  if (keyDocuments)
    for (int64_t j = 0; j < n; ++j)
      row[j] = keyDocuments[begin + j] != queryDocuments[i] ? hidden : row[j];
}

/// Adds the lanes as a tree.
float total(float (&lane)[kLanes]) {
  for (int w = kLanes / 2; w; w /= 2)
    for (int l = 0; l < w; ++l)
      lane[l] += lane[l + w];
  return lane[0];
}

float largest(const float *row, int64_t n) {
  float lane[kLanes];
  std::fill(lane, lane + kLanes, -math::kInfinity);
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes)
    for (int l = 0; l < kLanes; ++l)
      lane[l] = row[j + l] > lane[l] ? row[j + l] : lane[l];
  float most = -math::kInfinity;
  for (; j < n; ++j)
    most = row[j] > most ? row[j] : most;
  for (const float one : lane)
    most = one > most ? one : most;
  return most;
}

/// row = exp(row - from); returns the sum.
float exponentiate(float *row, int64_t n, float from) {
  float lane[kLanes] = {};
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes)
    for (int l = 0; l < kLanes; ++l) {
      const float e = math::exp(row[j + l] - from);
      row[j + l] = e;
      lane[l] += e;
    }
  for (int l = 0; j + l < n; ++l) {
    const float e = math::exp(row[j + l] - from);
    row[j + l] = e;
    lane[l] += e;
  }
  return total(lane);
}

float dot(const float *a, const float *b, int64_t n) {
  float lane[kLanes] = {};
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes)
    for (int l = 0; l < kLanes; ++l)
      lane[l] += a[j + l] * b[j + l];
  for (int l = 0; j + l < n; ++l)
    lane[l] += a[j + l] * b[j + l];
  return total(lane);
}

/// Row-major C[m,n] = alpha op(A) op(B) + beta C.
bool product(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha,
             const float *a, int64_t lda, const float *b, int64_t ldb,
             float beta, float *c, int64_t ldc) {
  return dnnl_sgemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) ==
         dnnl_success;
}

template <class T>
T *at(T *base, const Strides &s, int64_t b, int64_t i, int64_t g,
      int64_t r = 0) {
  return base + b * s.batch + i * s.sequence + g * s.group + r * s.head;
}

/// Queries [first, last) of one head, and the keys they may see.
struct Block {
  int64_t b, g, r, first, last;
  Visibility::Keys keys;
  int64_t rows() const { return last - first; }
  int64_t columns() const { return keys.end - keys.begin; }
};

float *lseOf(const Args &args, float *lse, const Block &block, int64_t i) {
  return lse +
         ((block.b * args.queries + i) * args.groups + block.g) * args.heads +
         block.r;
}

void clear(float *row, int64_t n) { std::fill(row, row + n, 0.0f); }

/// Where an attention's dropout stands in Random.h's counter.
constexpr uint32_t kSite = 1;

/// For query `i` of a block, what dropout multiplies the probability of each
/// key by; null without dropout. Overwritten by the next call on this thread.
const float *keepRow(const Args &args, const Block &block, int64_t i) {
  if (args.dropout == 0)
    return nullptr;
  thread_local std::vector<float> memory;
  // Blocks of keys begin at multiples of 4, as the generator's words do.
  const int64_t first = block.keys.begin / 4, last = (block.keys.end + 3) / 4;
  if (memory.size() < size_t(4 * (last - first)))
    memory.resize(size_t(4 * (last - first)));
  const auto head =
      uint32_t(args.first_head + block.g * args.group_heads + block.r);
  const auto row = uint32_t(args.token_numbers[block.b * args.queries + i]);
  const auto seed = uint64_t(*args.seed);
  const uint32_t threshold = random::dropoutThreshold(args.dropout);
  const auto kept = float(1 / (1 - args.dropout));
  float *keep = memory.data();
  HEDDLE_SIMD
  for (int64_t quad = first; quad < last; ++quad) {
    const random::Block drawn =
        random::dropoutBlock(seed, kSite, head, row, uint32_t(quad));
    float *four = keep + 4 * (quad - first);
    four[0] = drawn.words[0] >= threshold ? kept : 0.0f;
    four[1] = drawn.words[1] >= threshold ? kept : 0.0f;
    four[2] = drawn.words[2] >= threshold ? kept : 0.0f;
    four[3] = drawn.words[3] >= threshold ? kept : 0.0f;
  }
  return keep;
}

bool forwardBlock(const Args &args, const Wide &x, const Visibility &visibility,
                  const Block &block, float *scores) {
  const auto [b, g, r, first, last, keys] = block;
  const int64_t n = block.columns(), size = args.head_size;
  float *o = at(x.o, args.o, b, first, g, r);
  if (n > 0 && !product('N', 'T', block.rows(), n, size, args.scale,
                        at(x.q, args.q, b, first, g, r), args.q.sequence,
                        at(x.k, args.k, b, keys.begin, g), args.k.sequence, 0,
                        scores, n))
    return false;
  float sums[128];
  for (int64_t i = first; i < last; ++i) {
    float *row = scores + (i - first) * n;
    if (!keys.all)
      visibility.mask(i, keys.begin, keys.end, row, -math::kInfinity);
    const float most = largest(row, n);
    // Nothing seen: every exponential below is then of -inf, and 0.
    const float from = most == -math::kInfinity ? 0.0f : most;
    const float sum = exponentiate(row, n, from);
    sums[i - first] = sum;
    *lseOf(args, x.lse, block, i) =
        sum > 0 ? from + math::log(sum) : -math::kInfinity;
    if (const float *keep = keepRow(args, block, i))
      for (int64_t j = 0; j < n; ++j)
        row[j] *= keep[j];
  }
  if (n > 0 && !product('N', 'N', block.rows(), size, n, 1, scores, n,
                        at(x.v, args.v, b, keys.begin, g), args.v.sequence, 0,
                        o, args.o.sequence))
    return false;
  for (int64_t i = 0; i < block.rows(); ++i) {
    float *row = o + i * args.o.sequence;
    if (!(sums[i] != 0)) { // also where n is 0
      clear(row, size);
      continue;
    }
    const float scale = 1.0f / sums[i];
    for (int64_t c = 0; c < size; ++c)
      row[c] *= scale;
  }
  return true;
}

/// scores becomes the probabilities p that forward multiplied v by, gradients p
/// (dp - dot(grad o, o)) of the softmax.
void softmaxGrad(const Args &args, const Wide &x, const Visibility &visibility,
                 const Block &block, float *scores, float *gradients) {
  const auto [b, g, r, first, last, keys] = block;
  const int64_t n = block.columns();
  for (int64_t i = first; i < last; ++i) {
    float *p = scores + (i - first) * n, *dp = gradients + (i - first) * n;
    const float lse = *lseOf(args, x.lse, block, i);
    if (lse == -math::kInfinity) {
      clear(p, n);
      clear(dp, n);
      continue;
    }
    if (!keys.all)
      visibility.mask(i, keys.begin, keys.end, p, -math::kInfinity);
    const float mean = dot(at(x.gradO, args.grad_o, b, i, g, r),
                           at(x.o, args.o, b, i, g, r), args.head_size);
    const float *keep = keepRow(args, block, i);
    for (int64_t j = 0; j < n; ++j) {
      const float e = math::exp(p[j] - lse);
      const float kept = keep ? keep[j] : 1.0f;
      p[j] = e * kept;
      dp[j] = e * (dp[j] * kept - mean);
    }
  }
}

bool backwardBlock(const Args &args, const Wide &x,
                   const Visibility &visibility, const Block &block,
                   float *scores, float *gradients) {
  const auto [b, g, r, first, last, keys] = block;
  const int64_t m = block.rows(), n = block.columns(), size = args.head_size;
  const float *q = at(x.q, args.q, b, first, g, r);
  const float *k = at(x.k, args.k, b, keys.begin, g);
  const float *v = at(x.v, args.v, b, keys.begin, g);
  const float *gradO = at(x.gradO, args.grad_o, b, first, g, r);
  float *gradQ = at(x.gradQ, args.grad_q, b, first, g, r);
  if (n == 0) {
    for (int64_t i = 0; i < m; ++i)
      clear(gradQ + i * args.grad_q.sequence, size);
    return true;
  }
  if (!product('N', 'T', m, n, size, args.scale, q, args.q.sequence, k,
               args.k.sequence, 0, scores, n) ||
      !product('N', 'T', m, n, size, 1, gradO, args.grad_o.sequence, v,
               args.v.sequence, 0, gradients, n))
    return false;
  softmaxGrad(args, x, visibility, block, scores, gradients);
  // gradQ last: it may lie where gradO does.
  return product('T', 'N', n, size, m, 1, scores, n, gradO,
                 args.grad_o.sequence, 1,
                 at(x.gradV, args.grad_v, b, keys.begin, g),
                 args.grad_v.sequence) &&
         product('T', 'N', n, size, m, args.scale, gradients, n, q,
                 args.q.sequence, 1, at(x.gradK, args.grad_k, b, keys.begin, g),
                 args.grad_k.sequence) &&
         product('N', 'N', m, size, n, args.scale, gradients, n, k,
                 args.k.sequence, 0, gradQ, args.grad_q.sequence);
}

/// Calls `pair(b, g)` for every sequence and KV head, with one thread in each.
template <class Pair>
bool forPairs(const Args &args, int threads, Pair pair) {
  const int64_t pairs = args.batch * args.groups;
  std::atomic<bool> fine = true;
  const int team = int(std::clamp<int64_t>(pairs, 1, threads));
  const int before = omp_get_max_threads();
  omp_set_num_threads(1); // oneDNN's own
#pragma omp parallel for num_threads(team) schedule(static)
  for (int64_t i = 0; i < pairs; ++i)
    if (!pair(i / args.groups, i % args.groups))
      fine = false;
  omp_set_num_threads(before);
  return fine;
}

template <class Each>
bool forBlocks(const Args &args, const Visibility &visibility, int64_t b,
               int64_t g, Each each) {
  const int64_t step = queryBlock(args);
  for (int64_t first = 0; first < args.queries; first += step) {
    const int64_t last = std::min(first + step, args.queries);
    const Visibility::Keys keys = visibility.keysOf(first, last);
    for (int64_t r = 0; r < args.heads; ++r)
      if (!each(Block{b, g, r, first, last, keys}))
        return false;
  }
  return true;
}

/// Memory of this thread for `count` blocks of scores; grows and stays.
float *scratch(const Args &args, int64_t count) {
  thread_local std::vector<float> memory;
  const auto needed = size_t(count * queryBlock(args) * args.keys);
  if (memory.size() < needed)
    memory.resize(needed);
  return memory.data();
}

bool forwardPair(const Args &args, const Wide &x, int64_t b, int64_t g) {
  const Visibility visibility(args, b);
  float *scores = scratch(args, 1);
  return forBlocks(args, visibility, b, g, [&](const Block &block) {
    return forwardBlock(args, x, visibility, block, scores);
  });
}

bool backwardPair(const Args &args, const Wide &x, int64_t b, int64_t g) {
  for (int64_t j = 0; j < args.keys; ++j) {
    clear(at(x.gradK, args.grad_k, b, j, g), args.head_size);
    clear(at(x.gradV, args.grad_v, b, j, g), args.head_size);
  }
  const Visibility visibility(args, b);
  float *scores = scratch(args, 2);
  float *gradients = scores + queryBlock(args) * args.keys;
  return forBlocks(args, visibility, b, g, [&](const Block &block) {
    return backwardBlock(args, x, visibility, block, scores, gradients);
  });
}

/// One (sequence, KV head) of narrow operands as dense fp32 ones.
class WidePair {
public:
  WidePair(const Args &args, int64_t b, int64_t g) : b(b), g(g), args(args) {
    const Strides queries = {0, args.heads * args.head_size, 0, args.head_size};
    const Strides keys = {0, args.head_size, 0, 0};
    for (Strides *strides :
         {&this->args.q, &this->args.o, &this->args.grad_q, &this->args.grad_o})
      *strides = queries;
    for (Strides *strides :
         {&this->args.k, &this->args.v, &this->args.grad_k, &this->args.grad_v})
      *strides = keys;
    thread_local std::vector<float> memory;
    memory.resize(size_t(4 * (elements(false) + elements(true))));
    next = memory.data();
  }

  float *make(bool ofKeys) {
    float *made = next;
    next += elements(ofKeys);
    return made;
  }
  template <class T>
  const float *read(const T *from, const Strides &strides, bool ofKeys) {
    float *to = make(ofKeys);
    forRows(strides, ofKeys, [&](int64_t place, int64_t dense) {
      for (int64_t c = 0; c < args.head_size; ++c)
        to[dense + c] = widen(from[place + c]);
    });
    return to;
  }
  template <class T>
  void write(const float *from, T *to, const Strides &strides, bool ofKeys) {
    forRows(strides, ofKeys, [&](int64_t place, int64_t dense) {
      for (int64_t c = 0; c < args.head_size; ++c)
        narrow(from[dense + c], to[place + c]);
    });
  }

private:
  int64_t rows(bool ofKeys) const { return ofKeys ? args.keys : args.queries; }
  int64_t heads(bool ofKeys) const { return ofKeys ? 1 : args.heads; }
  int64_t elements(bool ofKeys) const {
    return rows(ofKeys) * heads(ofKeys) * args.head_size;
  }
  template <class Row>
  void forRows(const Strides &strides, bool ofKeys, Row row) {
    for (int64_t i = 0; i < rows(ofKeys); ++i)
      for (int64_t r = 0; r < heads(ofKeys); ++r)
        row(b * strides.batch + i * strides.sequence + g * strides.group +
                r * strides.head,
            (i * heads(ofKeys) + r) * args.head_size);
  }

  const int64_t b, g;
  float *next;

public:
  Args args; ///< those of the dense operands
};

template <class T>
bool forwardPair(const Args &args, const AttentionOperands<T> &x, int64_t b,
                 int64_t g) {
  WidePair pair(args, b, g);
  Wide wide;
  wide.q = pair.read(x.q, args.q, false);
  wide.k = pair.read(x.k, args.k, true);
  wide.v = pair.read(x.v, args.v, true);
  wide.o = pair.make(false);
  wide.lse = x.lse;
  const bool fine = forwardPair(pair.args, wide, b, g);
  pair.write(wide.o, x.o, args.o, false);
  return fine;
}

template <class T>
bool backwardPair(const Args &args, const AttentionOperands<T> &x, int64_t b,
                  int64_t g) {
  WidePair pair(args, b, g);
  Wide wide;
  wide.q = pair.read(x.q, args.q, false);
  wide.k = pair.read(x.k, args.k, true);
  wide.v = pair.read(x.v, args.v, true);
  wide.o = const_cast<float *>(pair.read(x.o, args.o, false));
  wide.lse = x.lse;
  wide.gradO = pair.read(x.gradO, args.grad_o, false);
  wide.gradQ = pair.make(false);
  wide.gradK = pair.make(true);
  wide.gradV = pair.make(true);
  const bool fine = backwardPair(pair.args, wide, b, g);
  pair.write(wide.gradQ, x.gradQ, args.grad_q, false);
  pair.write(wide.gradK, x.gradK, args.grad_k, true);
  pair.write(wide.gradV, x.gradV, args.grad_v, true);
  return fine;
}

template <class Operands>
bool forwardPairs(const Args &args, const Operands &x, int threads) {
  return forPairs(args, threads, [&](int64_t b, int64_t g) {
    return forwardPair(args, x, b, g);
  });
}
template <class Operands>
bool backwardPairs(const Args &args, const Operands &x, int threads) {
  return forPairs(args, threads, [&](int64_t b, int64_t g) {
    return backwardPair(args, x, b, g);
  });
}

} // namespace

bool attentionForward(const Args &args, const Wide &x, int threads) {
  return forwardPairs(args, x, threads);
}
bool attentionForward(const Args &args, const AttentionOperands<bf16> &x,
                      int threads) {
  return forwardPairs(args, x, threads);
}
bool attentionForward(const Args &args, const AttentionOperands<f16> &x,
                      int threads) {
  return forwardPairs(args, x, threads);
}
bool attentionBackward(const Args &args, const Wide &x, int threads) {
  return backwardPairs(args, x, threads);
}
bool attentionBackward(const Args &args, const AttentionOperands<bf16> &x,
                       int threads) {
  return backwardPairs(args, x, threads);
}
bool attentionBackward(const Args &args, const AttentionOperands<f16> &x,
                       int threads) {
  return backwardPairs(args, x, threads);
}

} // namespace heddle::host
