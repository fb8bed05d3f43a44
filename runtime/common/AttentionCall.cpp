#include "runtime/common/AttentionCall.h"

#include "runtime/common/Dtype.h"
#include "runtime/common/Runs.h"

#include <algorithm>

namespace heddle::runtime {

using Args = heddle_rt_attention_args;
using Accesses = std::vector<heddle_rt_access>;

const char *attentionName(const Args &args) {
  return orUnnamed(args.name, "attention");
}

heddle_rt_status checkAttentionArgs(const Args &args) {
  if (args.dtype != HEDDLE_RT_F32 && args.dtype != HEDDLE_RT_BF16 &&
      args.dtype != HEDDLE_RT_F16)
    return invalid("{}: attention is on f32, bf16 and f16, not on {}",
                   attentionName(args), nameOf(args.dtype));
  for (const int64_t size : {args.batch, args.queries, args.keys, args.groups,
                             args.heads, args.head_size, args.window})
    if (size < 0 || size > INT32_MAX)
      return invalid("{}: batch {}, queries {}, keys {}, groups {}, heads {}, "
                     "head_size {}, window {}: expected 0 to 2^31 - 1",
                     attentionName(args), args.batch, args.queries, args.keys,
                     args.groups, args.heads, args.head_size, args.window);
  if (!args.query_documents != !args.key_documents ||
      !args.query_positions != !args.key_positions)
    return invalid("{}: documents and positions of queries and keys come "
                   "together or not at all",
                   attentionName(args));
  if (!(args.dropout >= 0 && args.dropout < 1))
    return invalid("{}: dropout {}, expected a rate of at least 0 and below 1",
                   attentionName(args), args.dropout);
  if (args.dropout > 0 && (!args.seed || !args.token_numbers))
    return invalid("{}: dropout {} needs a seed and the numbers of the tokens",
                   attentionName(args), args.dropout);
  return HEDDLE_RT_OK;
}

namespace {

/// An operand with a name for messages.
struct Operand {
  const char *name;
  const void *data;
  heddle_rt_attention_strides strides;
  bool keys; ///< k, v and their gradients
};

heddle_rt_status checkOperand(const Args &args, const Operand &operand) {
  if (!operand.data)
    return invalid("{}: {} is NULL", attentionName(args), operand.name);
  const auto &s = operand.strides;
  if (s.batch < 0 || s.sequence < 0 || s.group < 0 || s.head < 0)
    return invalid("{}: a stride of {} is negative", attentionName(args),
                   operand.name);
  if ((operand.keys ? args.keys : args.queries) > 1 &&
      s.sequence < args.head_size)
    return invalid("{}: positions of {} are {} elements apart, heads have {}",
                   attentionName(args), operand.name, s.sequence,
                   args.head_size);
  return HEDDLE_RT_OK;
}

void declare(Accesses &accesses, const Args &args, const Operand &operand,
             int32_t writes) {
  const auto &s = operand.strides;
  std::vector<Extent> extents = {
      {args.batch, s.batch},
      {operand.keys ? args.keys : args.queries, s.sequence},
      {args.groups, s.group}};
  if (!operand.keys)
    extents.push_back({args.heads, s.head});
  extents.push_back({args.head_size, 1});
  appendRuns(accesses, operand.data, bytesOf(args.dtype), extents, writes);
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

std::vector<Operand> inputsOf(const Args &args, const AttentionPointers &x,
                              bool grad) {
  std::vector<Operand> inputs = {{"q", x.q, args.q, false},
                                 {"k", x.k, args.k, true},
                                 {"v", x.v, args.v, true}};
  if (grad) {
    inputs.push_back({"o", x.o, args.o, false});
    inputs.push_back({"grad_o", x.gradO, args.grad_o, false});
  }
  return inputs;
}

std::vector<Operand> outputsOf(const Args &args, const AttentionPointers &x,
                               bool grad) {
  if (!grad)
    return {{"o", x.o, args.o, false}};
  return {{"grad_q", x.gradQ, args.grad_q, false},
          {"grad_k", x.gradK, args.grad_k, true},
          {"grad_v", x.gradV, args.grad_v, true}};
}

} // namespace

heddle_rt_status checkAttention(const Args &args, const AttentionPointers &x,
                                bool grad) {
  for (const Operand &input : inputsOf(args, x, grad))
    HEDDLE_RT_TRY(checkOperand(args, input));
  for (const Operand &output : outputsOf(args, x, grad))
    HEDDLE_RT_TRY(checkOperand(args, output));
  if (!x.lse)
    return invalid("{}: lse is NULL", attentionName(args));
  return HEDDLE_RT_OK;
}

bool isEmptyAttention(const Args &args, bool grad) {
  return args.batch == 0 || args.groups == 0 || args.heads == 0 ||
         args.head_size == 0 ||
         (args.queries == 0 && (!grad || args.keys == 0));
}

Accesses attentionAccesses(const Args &args, const AttentionPointers &x,
                           bool grad) {
  Accesses accesses;
  for (const Operand &input : inputsOf(args, x, grad))
    declare(accesses, args, input, 0);
  for (const Operand &output : outputsOf(args, x, grad))
    declare(accesses, args, output, 1);
  declareSide(accesses, args, x.lse, !grad);
  return accesses;
}

double attentionFlops(const Args &args, int products) {
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

} // namespace heddle::runtime
