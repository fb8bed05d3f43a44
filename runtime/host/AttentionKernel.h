//===- AttentionKernel.h - Attention on one thread or several -------------===//

#ifndef RUNTIME_HOST_ATTENTIONKERNEL_H
#define RUNTIME_HOST_ATTENTIONKERNEL_H

#include "heddle/Runtime/heddle_rt.h"

namespace heddle::host {

/// Operands of heddle_rt_attention (`o` and `lse` written) and of
/// heddle_rt_attention_grad (`o` and `lse` read). All fp32.
struct AttentionOperands {
  const float *q = nullptr, *k = nullptr, *v = nullptr;
  float *o = nullptr, *lse = nullptr;
  const float *gradO = nullptr;
  float *gradQ = nullptr, *gradK = nullptr, *gradV = nullptr;
};

/// The result does not depend on `threads`. False: oneDNN refused a product.
bool attentionForward(const heddle_rt_attention_args &args,
                      const AttentionOperands &operands, int threads);
bool attentionBackward(const heddle_rt_attention_args &args,
                       const AttentionOperands &operands, int threads);

} // namespace heddle::host

#endif
