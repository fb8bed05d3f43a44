#include "runtime/common/Trace.h"

#include <fmt/format.h>

#include <cstring>
#include <string_view>

namespace heddle::runtime {

double allReduceBytes(double bytes, int n) { return 2 * slicedBytes(bytes, n); }
double slicedBytes(double bytes, int n) { return bytes * (n - 1) / n; }

/// FNV-1a over bytes.
static void mix(uint64_t &hash, const void *data, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i)
    hash =
        (hash ^ static_cast<const unsigned char *>(data)[i]) * 0x100000001b3u;
}

void CallHash::add(const char *operation, int64_t elements,
                   heddle_rt_dtype dtype) {
  const auto type = int32_t(dtype);
  mix(value, operation, std::strlen(operation) + 1);
  mix(value, &elements, sizeof elements);
  mix(value, &type, sizeof type);
  ++calls;
}

void MessageHash::add(bool sent, int32_t own, int32_t peer, int64_t elements,
                      heddle_rt_dtype dtype) {
  uint64_t one = 0xcbf29ce484222325u;
  const int32_t ends[] = {sent ? own : peer, sent ? peer : own, int32_t(dtype)};
  const int64_t number = numbers[{sent, peer}]++;
  mix(one, ends, sizeof ends);
  mix(one, &number, sizeof number);
  mix(one, &elements, sizeof elements);
  value += sent ? one : -one;
}

void Trace::add(const Call &call) {
  const std::string_view operation = call.operation;
  if (operation == "gemm")
    gemmFlops += call.flops;
  else
    attentionFlops += call.flops;
  if (call.comm >= 0) {
    Comm &comm = comms[size_t(call.comm)];
    comm.bytes += call.bytes;
    if (call.peer >= 0)
      comm.messages.add(operation == "send", comm.rank, call.peer,
                        call.elements, call.dtype);
    else
      comm.hash.add(call.operation, call.elements, call.dtype);
    Axis &axis = axes[comm.axis];
    ++axis.calls;
    axis.bytes += call.bytes;
  }
  calls.push_back(call);
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\')
      out += '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", int(c));
    else
      out += c;
  }
  return out + '"';
}

static const char *nameOf(heddle_rt_memory_class kind) {
  return kind == HEDDLE_RT_COMPUTE ? "compute"
         : kind == HEDDLE_RT_COMM  ? "comm"
                                   : "host";
}

std::string Trace::json() const {
  std::string out = fmt::format(
      "{{\"version\": 1, \"rank\": {}, \"size\": {}, \"calls\": {}, "
      "\"gemm_flops\": {:.17g}, \"attention_flops\": {:.17g},\n \"axes\": {{",
      rank, size, calls.size(), gemmFlops, attentionFlops);
  const char *comma = "";
  for (const auto &[name, axis] : axes) {
    out += fmt::format("{}{}: {{\"calls\": {}, \"bytes\": {:.17g}}}", comma,
                       quoted(name), axis.calls, axis.bytes);
    comma = ", ";
  }
  out += "},\n \"communicators\": [";
  comma = "";
  for (const Comm &comm : comms) {
    out += fmt::format("{}{{\"axis\": {}, \"color\": {}, \"rank\": {}, "
                       "\"size\": {}, \"collectives\": {}, \"hash\": "
                       "\"{:016x}\", \"messages\": \"{:016x}\", \"bytes\": "
                       "{:.17g}}}",
                       comma, quoted(comm.axis), comm.color, comm.rank,
                       comm.size, comm.hash.calls, comm.hash.value,
                       comm.messages.value, comm.bytes);
    comma = ",\n  ";
  }
  out += "],\n \"allocations\": [";
  comma = "";
  for (const Allocation &one : allocations) {
    out += fmt::format("{}{{\"name\": {}, \"class\": \"{}\", \"bytes\": {}, "
                       "\"highest\": {}}}",
                       comma, quoted(one.name), nameOf(one.kind), one.bytes,
                       one.highest);
    comma = ",\n  ";
  }
  return out + "]}\n";
}

} // namespace heddle::runtime
