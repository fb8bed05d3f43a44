//===- Program.h - The C interface of an emitted program ------------------===//
//
// What step.cpp exports and the train main calls. A program keeps all its state
// in the handle, so that ranks can be threads of one process.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_RUNTIME_PROGRAM_H
#define HEDDLE_RUNTIME_PROGRAM_H

#include "heddle/Runtime/heddle_rt.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct heddle_program
    heddle_program; ///< One rank's program: arenas, streams, communicators.

/// Makes this rank's streams, events, communicators and arenas. Collective over
/// all ranks of the context.
///
/// \param numbers  [bytes], what numbers.bin has; read during the call.
///
/// \return HEDDLE_RT_INVALID_ARGUMENT if these are not the numbers of this
///         program, or the context does not have the number of ranks that they
///         are for; else the status of the runtime call that failed. `*program`
///         is then NULL.
heddle_rt_status heddle_program_create(heddle_rt_context *context,
                                       const void *numbers, int64_t bytes,
                                       heddle_program **program);

/// Queues one optimizer step: inputs, learning rate and step number are read
/// from their places, states updated in place, outputs left in theirs. Begins
/// and ends with all streams joined to heddle_program_stream, and waits for no
/// event of another step.
heddle_rt_status heddle_program_step(heddle_program *program);

/// Base and size of an arena, numbered as in tables.bin. The caller may read
/// and write it while no step is queued; not at all in recording mode.
heddle_rt_status heddle_program_arena(heddle_program *program, int32_t arena,
                                      void **base, int64_t *bytes);

/// The stream on which steps begin and end. Borrowed; never NULL.
heddle_rt_stream *heddle_program_stream(heddle_program *program);

/// Frees the handle. Arenas, streams and communicators go with the context.
heddle_rt_status heddle_program_destroy(heddle_program *program);

#ifdef __cplusplus
}
#endif

#endif
