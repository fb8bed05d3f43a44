#include "NcclReduce.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace heddle::gpu {

std::string unlikeCaptures(const Op &a, const Op &b) {
  const auto words = [](const Op &op) {
    return op.captured == 0
               ? std::string("no graph")
               : "captured operation " + std::to_string(op.captured);
  };
  return std::string(a.what) + " of " + words(a) + " meets " + b.what + " of " +
         words(b) + " [NCCL, Using NCCL with CUDA Graphs]";
}

size_t bytesOf(ncclDataType_t type) {
  switch (type) {
  case ncclUint8:
    return 1;
  case ncclFloat16:
  case ncclBfloat16:
    return 2;
  case ncclInt64:
  case ncclFloat64:
    return 8;
  default:
    return 4;
  }
}

namespace {

float halfOf(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  const float sign = bits & 0x8000 ? -1.0f : 1.0f;
  if (exponent == 31)
    return fraction ? __builtin_nanf("") : sign * __builtin_inff();
  return sign * (exponent
                     ? __builtin_ldexpf(float(fraction + 1024), exponent - 25)
                     : __builtin_ldexpf(float(fraction), -24));
}
uint16_t toHalf(float x) {
  const auto half = _Float16(x);
  uint16_t bits;
  std::memcpy(&bits, &half, 2);
  return x != x ? uint16_t(0x7fff) : bits;
}
float brainOf(uint16_t bits) {
  const uint32_t wide = uint32_t(bits) << 16;
  float x;
  std::memcpy(&x, &wide, 4);
  return x;
}
uint16_t toBrain(float x) {
  uint32_t u;
  std::memcpy(&u, &x, 4);
  return uint16_t((u & 0x7fffffffu) > 0x7f800000u
                      ? 0x7fffu
                      : (u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

/// Reduces element `at` of all inputs. The maximum of a number and NaN is the
/// number, as fmaxf has it.
template <class T, class Wide, class Widen, class Narrow>
void reduceAs(const std::vector<std::shared_ptr<Op>> &ops, size_t from,
              size_t count, ncclRedOp_t operation, void *output, Widen widen,
              Narrow narrow) {
  std::vector<T> results(count);
  for (size_t i = 0; i < count; ++i) {
    Wide sum = {};
    for (size_t rank = 0; rank < ops.size(); ++rank) {
      T element;
      std::memcpy(&element,
                  static_cast<const std::byte *>(ops[rank]->input) +
                      (from + i) * sizeof(T),
                  sizeof(T));
      const Wide next = widen(element);
      if (rank == 0)
        sum = next;
      else if (operation == ncclSum)
        sum = Wide(sum + next);
      else if (next > sum || sum != sum)
        sum = next;
    }
    results[i] = narrow(sum);
  }
  std::memcpy(output, results.data(), count * sizeof(T));
}

void reduce(const std::vector<std::shared_ptr<Op>> &ops, size_t from,
            size_t count, void *output) {
  const auto same = [](auto x) { return x; };
  const ncclRedOp_t how = ops[0]->reduction;
  switch (ops[0]->type) {
  case ncclUint8:
    return reduceAs<uint8_t, uint8_t>(ops, from, count, how, output, same,
                                      same);
  case ncclInt32:
    return reduceAs<int32_t, int32_t>(ops, from, count, how, output, same,
                                      same);
  case ncclInt64:
    return reduceAs<int64_t, int64_t>(ops, from, count, how, output, same,
                                      same);
  case ncclFloat32:
    return reduceAs<float, float>(ops, from, count, how, output, same, same);
  case ncclFloat64:
    return reduceAs<double, double>(ops, from, count, how, output, same, same);
  case ncclFloat16:
    return reduceAs<uint16_t, float>(ops, from, count, how, output, halfOf,
                                     toHalf);
  case ncclBfloat16:
    return reduceAs<uint16_t, float>(ops, from, count, how, output, brainOf,
                                     toBrain);
  }
}

} // namespace

/// All inputs are read before an output is written: they may be the same.
void carryOut(const std::vector<std::shared_ptr<Op>> &ops) {
  const Op &one = *ops[0];
  const size_t size = bytesOf(one.type), n = ops.size();
  const std::string what = one.what;
  std::vector<std::vector<std::byte>> results(n);
  for (size_t rank = 0; rank < n; ++rank) {
    std::vector<std::byte> &result = results[rank];
    if (what == "ncclAllGather") {
      result.resize(n * one.count * size);
      for (size_t from = 0; from < n; ++from)
        std::memcpy(result.data() + from * one.count * size, ops[from]->input,
                    one.count * size);
    } else {
      result.resize(one.count * size);
      reduce(ops, what == "ncclReduceScatter" ? rank * one.count : 0, one.count,
             result.data());
    }
  }
  for (size_t rank = 0; rank < n; ++rank)
    std::memcpy(ops[rank]->output, results[rank].data(), results[rank].size());
}

} // namespace heddle::gpu
