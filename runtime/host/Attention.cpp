// heddle_rt_attention and its gradient. Checks are in common/AttentionCall.cpp,
// the arithmetic in AttentionKernel.cpp.

#include "runtime/common/AttentionCall.h"
#include "runtime/host/AttentionKernel.h"
#include "runtime/host/Context.h"

using heddle::host::AttentionOperands;
using heddle::runtime::attentionAccesses;
using heddle::runtime::attentionFlops;
using heddle::runtime::attentionName;
using heddle::runtime::AttentionPointers;
using heddle::runtime::checkAttention;
using heddle::runtime::checkAttentionArgs;
using heddle::runtime::fail;
using heddle::runtime::invalid;
using heddle::runtime::isEmptyAttention;

namespace {

using Args = heddle_rt_attention_args;

/// Calls \p run with empty operands of the dtype.
template <class Run>
heddle_rt_status withElement(heddle_rt_dtype dtype, const Run &run) {
  switch (dtype) {
  case HEDDLE_RT_BF16:
    return run(AttentionOperands<heddle::bf16>());
  case HEDDLE_RT_F16:
    return run(AttentionOperands<heddle::f16>());
  default:
    return run(AttentionOperands<float>());
  }
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
                       const AttentionPointers &pointers, bool grad, Run run) {
  const char *operation = grad ? "attention_grad" : "attention";
  const int products = grad ? 5 : 2;
  std::vector<heddle_rt_access> accesses;
  if (stream->context->watching())
    accesses = attentionAccesses(args, pointers, grad);
  const heddle::runtime::Trace::Call call{operation,
                                          attentionName(args),
                                          stream->late,
                                          -1,
                                          0,
                                          args.dtype,
                                          attentionFlops(args, products),
                                          0};
  const int threads = stream->context->computeThreads;
  return heddle::host::queueWork(
      stream, call, accesses, [=]() -> heddle_rt_status {
        if (run(args, threads))
          return HEDDLE_RT_OK;
        return fail(HEDDLE_RT_DEVICE_ERROR, "{}: oneDNN refused a product",
                    attentionName(args));
      });
}

} // namespace

heddle_rt_status heddle_rt_attention(heddle_rt_stream *stream, const Args *args,
                                     const void *q, const void *k,
                                     const void *v, void *o, float *lse) {
  if (!stream || !args)
    return invalid("heddle_rt_attention: {} is NULL",
                   stream ? "args" : "stream");
  HEDDLE_RT_TRY(checkAttentionArgs(*args));
  if (isEmptyAttention(*args, false))
    return heddle::host::openFor(stream, attentionName(*args));
  const AttentionPointers pointers{q, k, v, o, lse};
  HEDDLE_RT_TRY(checkAttention(*args, pointers, false));
  const auto run = [&]<class T>(AttentionOperands<T> x) {
    setOperands(x, q, k, v, o, lse);
    return queue(stream, *args, pointers, false,
                 [x](const Args &args, int threads) {
                   return heddle::host::attentionForward(args, x, threads);
                 });
  };
  return withElement(args->dtype, run);
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
  HEDDLE_RT_TRY(checkAttentionArgs(*args));
  if (isEmptyAttention(*args, true))
    return heddle::host::openFor(stream, attentionName(*args));
  const AttentionPointers pointers{q, k, v, o, lse, gradO, gradQ, gradK, gradV};
  HEDDLE_RT_TRY(checkAttention(*args, pointers, true));
  const auto run = [&]<class T>(AttentionOperands<T> x) {
    setOperands(x, q, k, v, const_cast<void *>(o), const_cast<float *>(lse));
    x.gradO = static_cast<const T *>(gradO);
    x.gradQ = static_cast<T *>(gradQ);
    x.gradK = static_cast<T *>(gradK);
    x.gradV = static_cast<T *>(gradV);
    return queue(stream, *args, pointers, true,
                 [x](const Args &args, int threads) {
                   return heddle::host::attentionBackward(args, x, threads);
                 });
  };
  return withElement(args->dtype, run);
}
