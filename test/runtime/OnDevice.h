//===- OnDevice.h - Test data in a backend's memory -----------------------===//
//
// The conformance cases run on every backend: what they hand over is memory of
// heddle_rt_alloc, filled and read by copies.
//
//===----------------------------------------------------------------------===//

#ifndef TEST_RUNTIME_ONDEVICE_H
#define TEST_RUNTIME_ONDEVICE_H

#include "heddle/Runtime/heddle_rt.h"

#include <stdexcept>
#include <vector>

namespace heddle::test {

/// A copy of a vector. Failures are thrown: runRanks makes them the rank's.
template <class T>
class OnDevice {
public:
  OnDevice(heddle_rt_context *context, heddle_rt_stream *stream,
           const std::vector<T> &values)
      : context(context), stream(stream), count(values.size()) {
    void *made = nullptr;
    must(heddle_rt_alloc(context, HEDDLE_RT_COMPUTE, bytes(), "test data",
                         &made));
    memory = static_cast<T *>(made);
    must(heddle_rt_copy(stream, memory, values.data(), bytes()));
    must(heddle_rt_stream_synchronize(stream));
  }
  /// Frees it where the work on it has passed; else the context does.
  ~OnDevice() {
    if (passed)
      heddle_rt_free(context, memory);
  }
  OnDevice(const OnDevice &) = delete;
  OnDevice &operator=(const OnDevice &) = delete;

  T *data() { return memory; }
  /// Waits for the stream.
  std::vector<T> read() {
    std::vector<T> values(count);
    must(heddle_rt_copy(stream, values.data(), memory, bytes()));
    must(heddle_rt_stream_synchronize(stream));
    passed = true;
    return values;
  }

private:
  int64_t bytes() const { return int64_t(count * sizeof(T)); }
  static void must(heddle_rt_status status) {
    if (status != HEDDLE_RT_OK)
      throw std::runtime_error(heddle_rt_last_error());
  }

  heddle_rt_context *context;
  heddle_rt_stream *stream;
  size_t count;
  T *memory = nullptr;
  bool passed = false;
};

} // namespace heddle::test

#endif
