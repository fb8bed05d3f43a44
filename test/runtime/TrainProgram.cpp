#include "test/runtime/TrainProgram.h"

#include "heddle/Runtime/Program.h"
#include "runtime/common/Status.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

using namespace heddle;
using namespace heddle::test;

struct heddle_program {
  heddle_rt_stream *stream = nullptr;
  heddle_rt_comm *dp = nullptr, *tp = nullptr;
  char *arena = nullptr;
  int rank = 0;
  bool recording = false; ///< there is no memory: calls only

  template <class T>
  T *at(Offset offset) {
    return reinterpret_cast<T *>(arena + offset);
  }
};

namespace {
std::atomic<Fault> planted = Fault::None;
std::atomic<int64_t> begun = 0;
} // namespace

void heddle::test::plantFault(Fault fault) { planted = fault; }
int64_t heddle::test::stepsBegun() { return begun; }
void heddle::test::waitForSteps(int64_t count) {
  for (int64_t now = begun; now < count; now = begun)
    begun.wait(now);
}

runtime::Tables heddle::test::bigramTables() {
  runtime::Tables t;
  t.program = "bigram";
  t.mesh = {{"dp", 2}, {"tp", 2}};
  t.arenas = {{"main", kBytes}};
  t.communicators = {{"dp"}, {"tp"}};
  const runtime::Layout batch = {{1, kSequences, kLength},
                                 {1, kSequences, kLength},
                                 {1, kLocalSequences, kLength},
                                 {{}, {"dp"}, {}}};
  t.inputs["tokens"] = {{0, kTokens}, HEDDLE_RT_I32, batch};
  t.inputs["labels"] = {{0, kLabels}, HEDDLE_RT_I32, batch};
  t.inputs["learning_rate"] = {{0, kRate}, HEDDLE_RT_F32, {}};
  t.outputs["loss"] = {{0, kLoss}, HEDDLE_RT_F32};
  t.outputs["count"] = {{0, kCount}, HEDDLE_RT_I64};
  runtime::State weight;
  weight.name = "bigram.weight";
  weight.kind = "parameter";
  weight.offset = kWeight;
  weight.layout = {{kVocabulary, kVocabulary},
                   {kPadded, kVocabulary},
                   {kLocalNext, kVocabulary},
                   {{"tp"}, {}}};
  weight.letters = "v d";
  weight.file = {{kVocabulary, kVocabulary}, {1, 0}};
  weight.init = {"normal", 0.5};
  runtime::State gradient = weight;
  gradient.kind = "gradient";
  gradient.offset = kGradient;
  gradient.init = {"zeros", 0};
  t.states = {weight, gradient};
  t.optimizer.type = "sgd";
  t.optimizer.learningRate = 0.5;
  t.schedule = {"cosine", 2, 6, 0.1};
  t.sequenceLength = kLength;
  t.globalBatch = kSequences;
  t.vocabularySize = kVocabulary;
  t.seed = 3;
  return t;
}

heddle_rt_status heddle_program_create(heddle_rt_context *context, const void *,
                                       int64_t, heddle_program **program) {
  auto *p = new heddle_program;
  *program = p;
  int32_t size = 0;
  p->recording = heddle_rt_context_mode(context) == HEDDLE_RT_MODE_RECORD;
  void *memory = nullptr;
  HEDDLE_RT_TRY(heddle_rt_rank(context, &p->rank, &size));
  HEDDLE_RT_TRY(heddle_rt_stream_create(context, "compute", 0, &p->stream));
  HEDDLE_RT_TRY(
      heddle_rt_comm_split(context, p->rank % 2, p->rank / 2, 2, "dp", &p->dp));
  HEDDLE_RT_TRY(
      heddle_rt_comm_split(context, p->rank / 2, p->rank % 2, 2, "tp", &p->tp));
  HEDDLE_RT_TRY(
      heddle_rt_alloc(context, HEDDLE_RT_COMM, kBytes, "main", &memory));
  p->arena = static_cast<char *>(memory);
  return HEDDLE_RT_OK;
}
heddle_rt_status heddle_program_destroy(heddle_program *program) {
  delete program;
  return HEDDLE_RT_OK;
}
heddle_rt_status heddle_program_arena(heddle_program *p, int32_t, void **base,
                                      int64_t *bytes) {
  *base = p->arena;
  *bytes = kBytes;
  return HEDDLE_RT_OK;
}
heddle_rt_stream *heddle_program_stream(heddle_program *p) { return p->stream; }

namespace {

/// Logits are split over tp: maximum, sum of exponentials, picked logit.
void forward(heddle_program *p, int phase) {
  if (p->recording)
    return;
  const int32_t *tokens = p->at<int32_t>(kTokens);
  const int32_t *labels = p->at<int32_t>(kLabels);
  const float *w = p->at<float>(kWeight);
  float *largest = p->at<float>(kMaximum), *sum = p->at<float>(kSum);
  const int first = p->rank % 2 * kLocalNext;
  for (int i = 0; i < kLocalTokens; ++i) {
    if (phase == 0)
      largest[i] = -INFINITY;
    else
      sum[i] = sum[kLocalTokens + i] = 0;
    for (int n = 0; n < kLocalNext && first + n < kVocabulary; ++n) {
      const float x = w[n * kVocabulary + tokens[i]];
      if (phase == 0) {
        largest[i] = std::max(largest[i], x);
      } else {
        sum[i] += std::exp(x - largest[i]);
        if (first + n == labels[i])
          sum[kLocalTokens + i] = x;
      }
    }
  }
}

void lossAndGradient(heddle_program *p) {
  if (p->recording)
    return;
  const int32_t *tokens = p->at<int32_t>(kTokens);
  const int32_t *labels = p->at<int32_t>(kLabels);
  const float *w = p->at<float>(kWeight);
  const float *largest = p->at<float>(kMaximum), *sum = p->at<float>(kSum);
  const float count = float(*p->at<int64_t>(kCount));
  float *g = p->at<float>(kGradient), &loss = *p->at<float>(kLoss);
  const int first = p->rank % 2 * kLocalNext;
  loss = 0;
  std::fill_n(g, kLocalNext * kVocabulary, 0.0f);
  for (int i = 0; i < kLocalTokens; ++i) {
    if (labels[i] < 0)
      continue;
    loss += (std::log(sum[i]) + largest[i] - sum[kLocalTokens + i]) / count;
    for (int n = 0; n < kLocalNext && first + n < kVocabulary; ++n) {
      const int at = n * kVocabulary + tokens[i];
      g[at] += (std::exp(w[at] - largest[i]) / sum[i] -
                float(first + n == labels[i])) /
               count;
    }
  }
}

void countLabels(heddle_program *p) {
  if (p->recording)
    return;
  const int32_t *labels = p->at<int32_t>(kLabels);
  *p->at<int64_t>(kCount) = std::count_if(labels, labels + kLocalTokens,
                                          [](int32_t l) { return l >= 0; });
}

void update(heddle_program *p) {
  if (p->recording)
    return;
  const float rate = *p->at<float>(kRate);
  for (int i = 0; i < kLocalNext * kVocabulary; ++i)
    p->at<float>(kWeight)[i] -= rate * p->at<float>(kGradient)[i];
  if (planted == Fault::ReplicasDrift && p->rank == 2)
    p->at<float>(kWeight)[3] += 1e-6f;
  if (planted == Fault::LossIsNan ||
      (planted == Fault::OneLossIsNan && p->rank == 2))
    *p->at<float>(kLoss) = NAN;
}

} // namespace

// Eager streams have done the work when a call returns, so the arithmetic here
// stands between the calls.
heddle_rt_status heddle_program_step(heddle_program *p) {
  if (p->rank == 0) {
    ++begun;
    begun.notify_all();
  }
  const auto reduce = [&](heddle_rt_comm *comm, Offset offset, int64_t n,
                          heddle_rt_dtype dtype, heddle_rt_reduction how) {
    return heddle_rt_all_reduce(comm, p->stream, p->arena + offset,
                                p->arena + offset, n, dtype, how);
  };
  countLabels(p);
  HEDDLE_RT_TRY(reduce(p->dp, kCount, 1, HEDDLE_RT_I64, HEDDLE_RT_SUM));
  forward(p, 0);
  HEDDLE_RT_TRY(
      reduce(p->tp, kMaximum, kLocalTokens, HEDDLE_RT_F32, HEDDLE_RT_MAX));
  forward(p, 1);
  HEDDLE_RT_TRY(
      reduce(p->tp, kSum, 2 * kLocalTokens, HEDDLE_RT_F32, HEDDLE_RT_SUM));
  lossAndGradient(p);
  HEDDLE_RT_TRY(reduce(p->dp, kLoss, 1, HEDDLE_RT_F32, HEDDLE_RT_SUM));
  HEDDLE_RT_TRY(reduce(p->dp, kGradient, kLocalNext * kVocabulary,
                       HEDDLE_RT_F32, HEDDLE_RT_SUM));
  update(p);
  return HEDDLE_RT_OK;
}
