//===- AttentionPointers.h - Operands of an attention ---------------------===//

#ifndef RUNTIME_COMMON_ATTENTIONPOINTERS_H
#define RUNTIME_COMMON_ATTENTIONPOINTERS_H

namespace heddle::runtime {

/// Pointers of heddle_rt_attention, or with `gradO` and after of
/// heddle_rt_attention_grad.
struct AttentionPointers {
  const void *q, *k, *v;
  const void *o;
  const float *lse;
  const void *gradO = nullptr;
  const void *gradQ = nullptr, *gradK = nullptr, *gradV = nullptr;
};

} // namespace heddle::runtime

#endif
