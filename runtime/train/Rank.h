//===- Rank.h - One rank's program and its memory, seen from the host -----===//

#ifndef RUNTIME_TRAIN_RANK_H
#define RUNTIME_TRAIN_RANK_H

#include "heddle/Runtime/Program.h"
#include "heddle/Runtime/Tables.h"

#include "runtime/train/Extents.h"

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::train {

/// Holds the program of a rank. Memory of the program is reached by copies on
/// its stream, so that it may be a device's. Nothing of this is there while
/// recording.
class Rank {
public:
  Rank(heddle_rt_context *context, const runtime::Tables &tables,
       const std::string &numbers)
      : context(context), tables(tables), numbers(numbers) {}
  ~Rank();
  Rank(const Rank &) = delete;
  Rank &operator=(const Rank &) = delete;

  /// Collective. Checks that tables and program belong together.
  heddle_rt_status create();

  heddle_rt_status step() { return heddle_program_step(program); }
  heddle_rt_status synchronize();
  /// Waits for all ranks.
  heddle_rt_status barrier();
  /// Every rank's `own`, [ranks][own.size()]; all of one size.
  heddle_rt_status gather(const std::vector<int64_t> &own,
                          std::vector<int64_t> &all);

  /// A text of rank `from`, on all; long ones are cut.
  heddle_rt_status shareText(int64_t from, std::string &text);
  char *addressOf(const runtime::Place &place) const {
    return arenas[size_t(place.arena)] + place.offsetAt(stage);
  }

  /// Copies to and from a place of the program and waits. `bytes` at most
  /// largestBytes().
  heddle_rt_status upload(const runtime::Place &to, const void *from,
                          int64_t bytes);
  heddle_rt_status download(void *to, const runtime::Place &from,
                            int64_t bytes);

  /// Memory of the host that copies can go to; it goes with the context.
  heddle_rt_status allocateHost(int64_t bytes, const char *name, char **memory);
  /// Queues a copy from a place of the program to such memory.
  heddle_rt_status copyOut(char *to, const runtime::Place &from, int64_t bytes);

  int32_t rank = 0, size = 1;
  int64_t stage = 0; ///< the rank's
  heddle_rt_context *const context;
  const runtime::Tables &tables;
  const std::string &numbers; ///< numbers.bin

private:
  heddle_rt_status gatherSome(const int64_t *own, int64_t n,
                              std::vector<int64_t> &all);
  heddle_rt_status checkArenas();
  heddle_rt_status makeRoom();

  heddle_program *program = nullptr;
  heddle_rt_stream *stream = nullptr;
  heddle_rt_comm *world = nullptr;
  std::vector<char *> arenas;
  char *staging = nullptr;
  int64_t stagingBytes = 0;
  int64_t *exchange = nullptr; ///< [size + 1] parts
  int64_t exchangeElements = 0;
};

int64_t bytesOf(heddle_rt_dtype dtype);
int64_t elementsOf(const std::vector<int64_t> &sizes);
/// Which part of a state a rank holds, where its stage holds the state.
Extents extentsOf(const runtime::Tables &tables, int64_t rank,
                  const runtime::State &state);
/// The place of what a rank of a stage stores of the `i`-th instance there.
runtime::Place instancePlace(const runtime::State &state, int64_t i,
                             const Extents &extents, int64_t stage);

} // namespace heddle::train

#endif
