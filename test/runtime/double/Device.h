//===- Device.h - An imitated GPU: memory, streams, events ----------------===//

#ifndef HEDDLE_DOUBLE_DEVICE_H
#define HEDDLE_DOUBLE_DEVICE_H

#include "Double.h"

#include <cuda_runtime_api.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace heddle::gpu {

/// Remembers why and returns the code.
template <class Code>
Code refuse(Code code, std::string why);
void setRefusal(std::string why);
template <class Code>
Code refuse(Code code, std::string why) {
  setRefusal(std::move(why));
  return code;
}

/// True where a test wants this call to fail; `code` is then its result.
bool injected(const char *function, int &code);

enum class Home { Device, Pinned, Pageable };

struct Allocation {
  int device = 0; ///< -1: host memory
  size_t bytes = 0;
  void *raw = nullptr;
  bool byNccl = false;
  int windows = 0; ///< registrations
};

/// Memory of all devices. Host memory that nobody allocated here is pageable.
class Memory {
public:
  void *allocate(int device, size_t bytes, bool byNccl);
  /// "" or what is wrong: no allocation's start, or somebody wrote beside it.
  std::string release(void *memory, bool onHost, bool byNccl);
  Home homeOf(const void *at);
  /// "" where all bytes are device memory (of `device`) or pinned memory.
  std::string check(const void *at, size_t bytes, int device);
  size_t usedOf(int device);
  /// The allocation that `at` is in; NULL: none. Its first byte in `begin`.
  Allocation *find(const void *at, uintptr_t &begin);
  std::mutex mutex;

private:
  std::map<uintptr_t, Allocation> all;
  std::map<int, size_t> used;
};
Memory &memory();

/// Collectives that are begun together; of NCCL.
class Launch {
public:
  virtual ~Launch() = default;
  virtual void begin() = 0;
  virtual bool finished() = 0;
};

struct Item {
  std::function<std::string()> work;  ///< "" or a fault
  std::shared_ptr<bool> sets, awaits; ///< records and waits of events
  std::shared_ptr<Launch> launch;
  uint64_t turn = 0;
  bool begun = false;
};

using MakeLaunch = std::function<std::shared_ptr<Launch>()>;

/// A stream's work between begin and end of a capture. Nodes are in the order
/// of the stream; each is a piece of work or collectives that are begun
/// together.
struct Capture {
  struct Node {
    std::function<std::string()> work;
    MakeLaunch launch;
  };
  std::vector<Node> nodes = {};
  bool invalid = false;
};

} // namespace heddle::gpu

struct CUstream_st {
  int device;
  uint64_t priority;
  std::deque<heddle::gpu::Item> items;
  std::shared_ptr<heddle::gpu::Capture> capture = nullptr;
};
struct CUevent_st {
  int device;
  std::shared_ptr<bool> done; ///< of the latest record; NULL: none
  /// That record is part of a capture.
  std::shared_ptr<heddle::gpu::Capture> captured = nullptr;
};

namespace heddle::gpu {

class Device {
public:
  explicit Device(int number);

  cudaStream_t addStream();
  void removeStream(cudaStream_t stream);
  bool owns(cudaStream_t stream);
  /// Work, or a node of the stream's capture.
  void push(cudaStream_t stream, Item item);
  /// Collectives begin in the order of the host's calls.
  void pushLaunch(cudaStream_t stream, const MakeLaunch &make);
  /// Lets some work run. False where none could.
  bool progress(int steps);
  bool idle(cudaStream_t stream);
  /// Runs what can run until the stream is empty or everything is stuck.
  void drain(cudaStream_t stream);

  const int number;
  std::recursive_mutex mutex;
  cudaError_t sticky = cudaSuccess; ///< a fault ends the device

private:
  bool step();
  bool ready(Item &item);

  std::mt19937_64 random;
  uint64_t period;
  std::vector<std::unique_ptr<CUstream_st>> streams;
  uint64_t turns = 0;
  std::set<uint64_t> notBegun; ///< turns of launches
  int running = 0;
};

/// The thread's device.
Device &current();
/// That device, or of a stream.
Device &deviceAt(int number);
/// OK, or why a stream cannot be used: none, the default one, another device's,
/// or the device has failed.
cudaError_t checkStream(const char *function, cudaStream_t stream);

/// OK, or: the thread captures, and the function is not allowed then. That ends
/// the capture.
cudaError_t checkUncaptured(const char *function);

const Settings &settings();

/// Runs all threads of a grid; "" or a fault of the kernel.
std::string runGrid(dim3 grid, dim3 block, const std::function<void()> &thread,
                    uint64_t seed);

} // namespace heddle::gpu

#endif
