// The threads of a kernel as fibers. They switch only at barriers and warp
// operations. One random warp runs as far as it can, then another: a warp may
// be a whole barrier interval ahead, which round-robin would hide.

#include "Device.h"

#include <cuda_runtime.h>

#include <boost/context/fiber.hpp>
#include <boost/context/fixedsize_stack.hpp>

#include <vector>

namespace ctx = boost::context;

constinit thread_local dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace heddle::gpu {

namespace {

constexpr unsigned kWarp = 32;
constexpr size_t kStackBytes = size_t(128) << 10;

enum class State { Runnable, AtBarrier, AtWarp, Done };
struct Thread {
  ctx::fiber fiber;
  State state = State::Done;
  uint32_t word = 0;
  const char *file = "";
  int line = 0;
};

/// Stacks of fibers that have ended, for those that begin.
struct StackPool {
  ctx::stack_context allocate() {
    if (free().empty())
      return ctx::fixedsize_stack(kStackBytes).allocate();
    const ctx::stack_context stack = free().back();
    free().pop_back();
    return stack;
  }
  void deallocate(ctx::stack_context &stack) { free().push_back(stack); }

private:
  struct Free : std::vector<ctx::stack_context> {
    ~Free() {
      for (ctx::stack_context &stack : *this)
        ctx::fixedsize_stack(kStackBytes).deallocate(stack);
    }
  };
  static Free &free() {
    thread_local Free stacks;
    return stacks;
  }
};

/// One block at work on this thread of the host.
class Block {
public:
  explicit Block(uint64_t seed) : random(seed | 1) {}
  std::string run(unsigned count, const std::function<void()> &thread);
  void park(State state) {
    threads[current].state = state;
    const unsigned self = current;
    back = std::move(back).resume();
    current = self;
    threadIdx = dim3(self);
  }

  std::vector<Thread> threads;
  unsigned current = 0;
  ctx::fiber back;

private:
  void resume(unsigned thread) {
    current = thread;
    threadIdx = dim3(thread);
    threads[thread].fiber = std::move(threads[thread].fiber).resume();
  }
  /// Runs the threads of a warp; true where one moved.
  bool runWarp(unsigned warp, unsigned &done);
  std::string passBarrier(unsigned done);
  uint64_t next() {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    return random;
  }

  uint64_t random;
};

thread_local Block *atWork = nullptr;

bool Block::runWarp(unsigned warp, unsigned &done) {
  const auto count = unsigned(threads.size());
  const unsigned first = warp * kWarp, last = std::min(first + kWarp, count);
  bool moved = false;
  for (unsigned t = first; t < last; ++t)
    if (threads[t].state == State::Runnable) {
      resume(t);
      moved = true;
      done += threads[t].state == State::Done;
    }
  // A warp's operation is complete when all its living lanes are there.
  unsigned at = 0, living = 0;
  for (unsigned t = first; t < last; ++t) {
    at += threads[t].state == State::AtWarp;
    living += threads[t].state != State::Done;
  }
  if (at == 0 || at != living)
    return moved;
  for (unsigned t = first; t < last; ++t)
    if (threads[t].state == State::AtWarp)
      threads[t].state = State::Runnable;
  return true;
}

/// "__syncthreads() is allowed in conditional code only if the conditional
/// evaluates identically across the entire thread block" [CUDA, Synchronization
/// Functions]; threads that have ended are not waited for.
std::string Block::passBarrier(unsigned done) {
  unsigned at = 0;
  const Thread *first = nullptr;
  bool same = true;
  for (const Thread &thread : threads)
    if (thread.state == State::AtBarrier) {
      same &= !first || first->line == thread.line;
      first = first ? first : &thread;
      ++at;
    }
  if (!first)
    return "the threads of a warp wait for each other in block " +
           std::to_string(blockIdx.x);
  if (at + done != threads.size() || !same)
    return std::string(first->file) + ":" + std::to_string(first->line) +
           ": a barrier that not every thread of block " +
           std::to_string(blockIdx.x) + " reaches";
  for (Thread &thread : threads)
    if (thread.state == State::AtBarrier)
      thread.state = State::Runnable;
  return "";
}

std::string Block::run(unsigned count, const std::function<void()> &thread) {
  threads.resize(count);
  for (Thread &one : threads) {
    one.state = State::Runnable;
    one.fiber = ctx::fiber(std::allocator_arg, StackPool(),
                           [this, &thread](ctx::fiber &&from) {
                             back = std::move(from);
                             thread();
                             threads[current].state = State::Done;
                             return std::move(back);
                           });
  }
  const unsigned warps = (count + kWarp - 1) / kWarp;
  unsigned done = 0, warp = unsigned(next() % warps);
  while (done < count) {
    if (next() % 4 == 0)
      warp = unsigned(next() % warps);
    bool moved = false;
    for (unsigned tries = 0; tries < warps && !moved; ++tries) {
      moved = runWarp(warp, done);
      if (!moved)
        warp = (warp + 1) % warps;
    }
    if (moved)
      continue;
    if (std::string fault = passBarrier(done); !fault.empty())
      return fault;
  }
  return "";
}

} // namespace

std::string runGrid(dim3 grid, dim3 block, const std::function<void()> &thread,
                    uint64_t seed) {
  gridDim = grid;
  blockDim = block;
  Block running(seed * 88172645463325252ull);
  atWork = &running;
  std::string fault;
  for (unsigned b = 0; b < grid.x && fault.empty(); ++b) {
    blockIdx = dim3(b);
    fault = running.run(block.x, thread);
  }
  running.threads.clear(); // unwinds what hangs
  atWork = nullptr;
  return fault;
}

void barrier(const char *file, int line) {
  Thread &self = atWork->threads[atWork->current];
  self.file = file;
  self.line = line;
  atWork->park(State::AtBarrier);
}

void warpBarrier(unsigned, const char *, int) { atWork->park(State::AtWarp); }

int laneOf() { return int(atWork->current % kWarp); }

uint32_t shuffle(unsigned, uint32_t word, int lane) {
  Block &block = *atWork;
  const unsigned self = block.current,
                 from = self / kWarp * kWarp + unsigned(lane);
  block.threads[self].word = word;
  block.park(State::AtWarp);
  const uint32_t got =
      from < block.threads.size() ? block.threads[from].word : word;
  block.park(State::AtWarp); // nobody writes its word before all have read
  return got;
}

} // namespace heddle::gpu
