//===- Channels.h - Queues between the ranks along an axis ----------------===//
//
// A channel goes from each place over an axis to the one `shift` further,
// around the end. It is made of communicators of two ranks, so that it waits
// for nothing else.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_RUNTIME_CHANNELS_H
#define HEDDLE_RUNTIME_CHANNELS_H

#include "heddle/Runtime/heddle_rt.h"

namespace heddle {

/// Which channel, seen from one rank.
struct ChannelForm {
  const char *axis;
  int32_t size;  ///< places over the axis
  int32_t below; ///< ranks from one place to the next
  int32_t shift; ///< not a multiple of the size
};

/// Place in the communicator of a queue.
enum : int32_t { kSender = 0, kReceiver = 1 };

/// Seats `rank` in the queue that begins at it, `out`, and in the one that ends
/// at it, `in`. Collective over all ranks.
///
/// The queues form rings of `length` ranks each. A split seats a rank once: so
/// the queues that begin at even steps of a ring are made in one, those at odd
/// steps in another, and the last one of an odd ring in a third.
inline heddle_rt_status openChannel(heddle_rt_context *context, int32_t rank,
                                    const ChannelForm &form,
                                    heddle_rt_comm **out, heddle_rt_comm **in) {
  const int32_t size = form.size, place = rank / form.below % size;
  const int32_t shift = (form.shift % size + size) % size;
  // How far round its ring this rank stands, from the smallest place of it.
  int32_t length = 0, step = 0, smallest = place;
  for (int32_t at = place; length == 0 || at != place; at = (at + shift) % size)
    ++length, smallest = at < smallest ? at : smallest;
  for (int32_t at = smallest; at != place; at = (at + shift) % size)
    ++step;
  const auto splitOf = [length](int32_t from) {
    return length % 2 == 1 && from == length - 1 ? 2 : from % 2;
  };
  const int32_t before = (step + length - 1) % length;
  const int32_t sender =
      rank + ((place + size - shift) % size - place) * form.below;
  for (int32_t split = 0; split < 2 + length % 2; ++split) {
    const bool begins = splitOf(step) == split, ends = splitOf(before) == split;
    heddle_rt_comm *comm = nullptr;
    // The number of the sender is the queue's.
    if (heddle_rt_status status = heddle_rt_comm_split(
            context,
            begins ? rank
            : ends ? sender
                   : -1,
            begins ? kSender : kReceiver, 2, form.axis, &comm))
      return status;
    if (begins)
      *out = comm;
    else if (ends)
      *in = comm;
  }
  return HEDDLE_RT_OK;
}

} // namespace heddle

#endif
