//===- AttentionKernel.h - Attention on one thread or several -------------===//

#ifndef RUNTIME_HOST_ATTENTIONKERNEL_H
#define RUNTIME_HOST_ATTENTIONKERNEL_H

#include "heddle/Runtime/Formats.h"
#include "heddle/Runtime/heddle_rt.h"

namespace heddle::host {

/// Operands of heddle_rt_attention (`o` and `lse` written) and of
/// heddle_rt_attention_grad (`o` and `lse` read).
template <class T>
struct AttentionOperands {
  const T *q = nullptr, *k = nullptr, *v = nullptr;
  T *o = nullptr;
  float *lse = nullptr;
  const T *gradO = nullptr;
  T *gradQ = nullptr, *gradK = nullptr, *gradV = nullptr;
};

/// The result does not depend on `threads`. bf16 and f16 are widened, computed
/// with in fp32, and rounded once. False: oneDNN refused a product.
bool attentionForward(const heddle_rt_attention_args &args,
                      const AttentionOperands<float> &operands, int threads);
bool attentionForward(const heddle_rt_attention_args &args,
                      const AttentionOperands<bf16> &operands, int threads);
bool attentionForward(const heddle_rt_attention_args &args,
                      const AttentionOperands<f16> &operands, int threads);
bool attentionBackward(const heddle_rt_attention_args &args,
                       const AttentionOperands<float> &operands, int threads);
bool attentionBackward(const heddle_rt_attention_args &args,
                       const AttentionOperands<bf16> &operands, int threads);
bool attentionBackward(const heddle_rt_attention_args &args,
                       const AttentionOperands<f16> &operands, int threads);

} // namespace heddle::host

#endif
