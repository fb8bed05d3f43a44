//===- AttentionCall.h - A checked attention and its gradient -------------===//

#ifndef RUNTIME_COMMON_ATTENTIONCALL_H
#define RUNTIME_COMMON_ATTENTIONCALL_H

#include "runtime/common/AttentionPointers.h"
#include "runtime/common/Status.h"

#include <vector>

namespace heddle::runtime {

const char *attentionName(const heddle_rt_attention_args &args);
/// Sizes, strides, masks; what heddle_rt_attention says. Nothing else is read
/// where `isEmpty`.
heddle_rt_status checkAttentionArgs(const heddle_rt_attention_args &args);
heddle_rt_status checkAttention(const heddle_rt_attention_args &args,
                                const AttentionPointers &pointers, bool grad);
bool isEmptyAttention(const heddle_rt_attention_args &args, bool grad);
std::vector<heddle_rt_access>
attentionAccesses(const heddle_rt_attention_args &args,
                  const AttentionPointers &pointers, bool grad);
/// Of `products` matrix products over the pairs that see each other when
/// positions are indices and there is one document.
double attentionFlops(const heddle_rt_attention_args &args, int products);

} // namespace heddle::runtime

#endif
