// heddle_rt_attention and its gradient: checks, ranges, FLOPs. The arithmetic
// is in AttentionKernel.cpp.

#include "runtime/common/Dtype.h"
#include "runtime/host/AttentionKernel.h"
#include "runtime/host/Context.h"

#include <algorithm>

using heddle::host::AttentionOperands;
using heddle::runtime::fail;
using heddle::runtime::invalid;
using heddle::runtime::nameOf;
using heddle::runtime::orUnnamed;

namespace {

using Args = heddle_rt_attention_args;
using Accesses = std::vector<heddle_rt_access>;

const char *nameOf(const Args &args) {
  return orUnnamed(args.name, "attention");
}

heddle_rt_status checkArgs(const Args &args) {
  if (args.dtype != HEDDLE_RT_F32 && args.dtype != HEDDLE_RT_BF16)
    return invalid("{}: the host has attention on f32 and bf16, not on {}",
                   nameOf(args), heddle::runtime::nameOf(args.dtype));
  for (const int64_t size : {args.batch, args.queries, args.keys, args.groups,
                             args.heads, args.head_size, args.window})
    if (size < 0 || size > INT32_MAX)
      return invalid("{}: batch {}, queries {}, keys {}, groups {}, heads {}, "
                     "head_size {}, window {}: expected 0 to 2^31 - 1",
                     nameOf(args), args.batch, args.queries, args.keys,
                     args.groups, args.heads, args.head_size, args.window);
  if (!args.query_documents != !args.key_documents ||
      !args.query_positions != !args.key_positions)
    return invalid("{}: documents and positions of queries and keys come "
                   "together or not at all",
                   nameOf(args));
  if (!(args.dropout >= 0 && args.dropout < 1))
    return invalid("{}: dropout {}, expected a rate of at least 0 and below 1",
                   nameOf(args), args.dropout);
  if (args.dropout > 0 && (!args.seed || !args.token_numbers))
    return invalid("{}: dropout {} needs a seed and the numbers of the tokens",
                   nameOf(args), args.dropout);
  return HEDDLE_RT_OK;
}

/// An operand with a name for messages.
struct Operand {
  const char *name;
  const void *data;
  heddle_rt_attention_strides strides;
  bool keys; ///< k, v and their gradients
};

heddle_rt_status checkOperand(const Args &args, const Operand &operand) {
  if (!operand.data)
    return invalid("{}: {} is NULL", nameOf(args), operand.name);
  const auto &s = operand.strides;
  if (s.batch < 0 || s.sequence < 0 || s.group < 0 || s.head < 0)
    return invalid("{}: a stride of {} is negative", nameOf(args),
                   operand.name);
  if ((operand.keys ? args.keys : args.queries) > 1 &&
      s.sequence < args.head_size)
    return invalid("{}: positions of {} are {} elements apart, heads have {}",
                   nameOf(args), operand.name, s.sequence, args.head_size);
  return HEDDLE_RT_OK;
}

void declare(Accesses &accesses, const Args &args, const Operand &operand,
             int32_t writes) {
  const auto &s = operand.strides;
  std::vector<heddle::host::Extent> extents = {
      {args.batch, s.batch},
      {operand.keys ? args.keys : args.queries, s.sequence},
      {args.groups, s.group}};
  if (!operand.keys)
    extents.push_back({args.heads, s.head});
  extents.push_back({args.head_size, 1});
  heddle::host::appendRuns(accesses, operand.data,
                           heddle::runtime::bytesOf(args.dtype), extents,
                           writes);
}

void declareSide(Accesses &accesses, const Args &args, const float *lse,
                 bool writesLse) {
  accesses.push_back({lse,
                      args.batch * args.queries * args.groups * args.heads * 4,
                      writesLse ? 1 : 0});
  for (const int32_t *one : {args.query_documents, args.query_positions})
    if (one)
      accesses.push_back({one, args.batch * args.queries * 4, 0});
  if (args.dropout > 0) {
    accesses.push_back({args.seed, 8, 0});
    accesses.push_back({args.token_numbers, args.batch * args.queries * 4, 0});
  }
  for (const int32_t *one : {args.key_documents, args.key_positions})
    if (one)
      accesses.push_back({one, args.batch * args.keys * 4, 0});
}

bool isEmpty(const Args &args) {
  return args.batch == 0 || args.groups == 0 || args.heads == 0 ||
         args.head_size == 0 || (args.queries == 0 && args.keys == 0);
}

/// FLOPs of `products` matrix products over the pairs that see each other when
/// positions are indices and there is one document.
double flopsOf(const Args &args, int products) {
  double pairs = 0;
  for (int64_t i = 0; i < args.queries; ++i) {
    const int64_t end = args.causal ? std::min(i + 1, args.keys) : args.keys;
    const int64_t begin =
        args.window > 0 ? std::clamp<int64_t>(i - args.window + 1, 0, end) : 0;
    pairs += double(end - begin);
  }
  return 2.0 * products * pairs * double(args.head_size) *
         double(args.batch * args.groups * args.heads);
}

template <class T>
void setOperands(AttentionOperands<T> &x, const void *q, const void *k,
                 const void *v, void *o, float *lse) {
  x.q = static_cast<const T *>(q);
  x.k = static_cast<const T *>(k);
  x.v = static_cast<const T *>(v);
  x.o = static_cast<T *>(o);
  x.lse = lse;
}

template <class Run>
heddle_rt_status queue(heddle_rt_stream *stream, const Args &args,
                       const char *operation, int products,
                       const Accesses &accesses, Run run) {
  const heddle::runtime::Trace::Call call{operation,
                                          nameOf(args),
                                          stream->late,
                                          -1,
                                          0,
                                          args.dtype,
                                          flopsOf(args, products),
                                          0};
  const int threads = stream->context->computeThreads;
  return heddle::host::queueWork(
      stream, call, accesses, [=]() -> heddle_rt_status {
        if (run(args, threads))
          return HEDDLE_RT_OK;
        return fail(HEDDLE_RT_DEVICE_ERROR, "{}: oneDNN refused a product",
                    nameOf(args));
      });
}

} // namespace

heddle_rt_status heddle_rt_attention(heddle_rt_stream *stream, const Args *args,
                                     const void *q, const void *k,
                                     const void *v, void *o, float *lse) {
  if (!stream || !args)
    return invalid("heddle_rt_attention: {} is NULL",
                   stream ? "args" : "stream");
  HEDDLE_RT_TRY(checkArgs(*args));
  if (isEmpty(*args) || args->queries == 0)
    return heddle::host::openFor(stream, nameOf(*args));
  const Operand inputs[] = {{"q", q, args->q, false},
                            {"k", k, args->k, true},
                            {"v", v, args->v, true}};
  const Operand output{"o", o, args->o, false};
  for (const Operand &input : inputs)
    HEDDLE_RT_TRY(checkOperand(*args, input));
  HEDDLE_RT_TRY(checkOperand(*args, output));
  if (!lse)
    return invalid("{}: lse is NULL", nameOf(*args));
  Accesses accesses;
  if (stream->context->watching()) {
    for (const Operand &input : inputs)
      declare(accesses, *args, input, 0);
    declare(accesses, *args, output, 1);
    declareSide(accesses, *args, lse, true);
  }
  const auto run = [&]<class T>(AttentionOperands<T> x) {
    setOperands(x, q, k, v, o, lse);
    return queue(stream, *args, "attention", 2, accesses,
                 [x](const Args &args, int threads) {
                   return heddle::host::attentionForward(args, x, threads);
                 });
  };
  return args->dtype == HEDDLE_RT_F32 ? run(AttentionOperands<float>())
                                      : run(AttentionOperands<heddle::bf16>());
}

heddle_rt_status heddle_rt_attention_grad(heddle_rt_stream *stream,
                                          const Args *args, const void *q,
                                          const void *k, const void *v,
                                          const void *o, const float *lse,
                                          const void *gradO, void *gradQ,
                                          void *gradK, void *gradV) {
  if (!stream || !args)
    return invalid("heddle_rt_attention_grad: {} is NULL",
                   stream ? "args" : "stream");
  HEDDLE_RT_TRY(checkArgs(*args));
  if (isEmpty(*args))
    return heddle::host::openFor(stream, nameOf(*args));
  const Operand inputs[] = {{"q", q, args->q, false},
                            {"k", k, args->k, true},
                            {"v", v, args->v, true},
                            {"o", o, args->o, false},
                            {"grad_o", gradO, args->grad_o, false}};
  const Operand outputs[] = {{"grad_q", gradQ, args->grad_q, false},
                             {"grad_k", gradK, args->grad_k, true},
                             {"grad_v", gradV, args->grad_v, true}};
  for (const Operand &input : inputs)
    HEDDLE_RT_TRY(checkOperand(*args, input));
  for (const Operand &output : outputs)
    HEDDLE_RT_TRY(checkOperand(*args, output));
  if (!lse)
    return invalid("{}: lse is NULL", nameOf(*args));
  Accesses accesses;
  if (stream->context->watching()) {
    for (const Operand &input : inputs)
      declare(accesses, *args, input, 0);
    for (const Operand &output : outputs)
      declare(accesses, *args, output, 1);
    declareSide(accesses, *args, lse, false);
  }
  const auto run = [&]<class T>(AttentionOperands<T> x) {
    setOperands(x, q, k, v, const_cast<void *>(o), const_cast<float *>(lse));
    x.gradO = static_cast<const T *>(gradO);
    x.gradQ = static_cast<T *>(gradQ);
    x.gradK = static_cast<T *>(gradK);
    x.gradV = static_cast<T *>(gradV);
    return queue(stream, *args, "attention_grad", 5, accesses,
                 [x](const Args &args, int threads) {
                   return heddle::host::attentionBackward(args, x, threads);
                 });
  };
  return args->dtype == HEDDLE_RT_F32 ? run(AttentionOperands<float>())
                                      : run(AttentionOperands<heddle::bf16>());
}
