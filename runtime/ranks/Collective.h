//===- Collective.h - Collectives as rounds of exchanges ------------------===//
//
// Every collective is one or two rounds: pieces go to and come from peers, then
// this rank works on what came. The same for thread ranks and MPI ranks.
//
//===----------------------------------------------------------------------===//

#ifndef RUNTIME_RANKS_COLLECTIVE_H
#define RUNTIME_RANKS_COLLECTIVE_H

#include "runtime/ranks/Integrity.h"
#include "runtime/ranks/Transport.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace heddle::ranks {

/// Where a collective happens.
struct Place {
  Seat *seat = nullptr;
  int rank = 0, size = 1;
  int tag = 0; ///< and tag + 1, for a second round
  const char *name = "";
  Integrity *integrity = nullptr; ///< NULL: nobody looks
};

class Collective {
public:
  struct Round {
    std::vector<Piece> sends, receives; ///< pieces of oneself are copied
    std::function<void()> after;        ///< once all is sent and received
    std::function<void()> before = {};  ///< what is sent is read
  };

  explicit Collective(Place place) : place(place) {}

  /// Begins the first round; never blocks. PEER_FAILED: nothing was begun.
  heddle_rt_status begin();
  Progress test();
  /// Places that this one waits for.
  std::vector<int> pending() const {
    return request ? request->pending() : std::vector<int>();
  }

  /// Sends from a copy: the buffers may be written again at once, and nobody
  /// needs to wait for this.
  void detach();

  std::vector<Round> rounds;
  bool detached = false;
  bool finished = false;                ///< for the owner: test() said Done
  std::unique_ptr<std::byte[]> staging; ///< what came, before it is summed

private:
  heddle_rt_status beginRound();

  Place place;
  size_t current = 0;
  std::unique_ptr<Request> request;
};

/// Of several: begun one after the other; Done where all are.
heddle_rt_status
beginAll(const std::vector<std::shared_ptr<Collective>> &members);
Progress testAll(const std::vector<std::shared_ptr<Collective>> &members);

std::unique_ptr<Collective> allReduce(const Place &place, const void *input,
                                      void *output, int64_t elements,
                                      heddle_rt_dtype dtype,
                                      heddle_rt_reduction reduction);
std::unique_ptr<Collective> reduceScatter(const Place &place, const void *input,
                                          void *output, int64_t outer,
                                          int64_t slice, heddle_rt_dtype dtype,
                                          heddle_rt_reduction reduction);
std::unique_ptr<Collective> allGather(const Place &place, const void *input,
                                      void *output, int64_t outer,
                                      int64_t sliceBytes);
std::unique_ptr<Collective> allToAll(const Place &place, const void *input,
                                     void *output,
                                     const heddle_rt_all_to_all_shape &shape,
                                     int64_t elementBytes);
/// `from[r]` is the rank whose input rank r receives, or -1.
std::unique_ptr<Collective> permute(const Place &place, const void *input,
                                    void *output, int64_t bytes,
                                    const int32_t *from);
std::unique_ptr<Collective> sendTo(const Place &place, const void *input,
                                   int64_t bytes, int peer);
std::unique_ptr<Collective> receiveFrom(const Place &place, void *output,
                                        int64_t bytes, int peer);

} // namespace heddle::ranks

#endif
