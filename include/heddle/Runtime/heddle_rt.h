//===- heddle_rt.h - The runtime's C interface ----------------------------===//
//
// What an emitted program may ask of a runtime, whatever the devices are: one
// text is linked against runtime/host or runtime/cuda. Plain C: opaque handles,
// statuses, no exceptions. Kernels are C++ templates in the headers beside this
// one (Operands.h, Skeletons*.h), which call the last group of functions here.
//
// Rules that hold for every function that takes a stream:
// - It checks its arguments, queues the work and returns. The result is there
//   when the stream is. On any failure nothing was queued and no output was
//   touched. (The host in eager mode has also done the work when it returns.)
// - Pointers are device memory of heddle_rt_alloc unless said otherwise, and
//   must live until the stream has passed the work. `name` strings must live as
//   long as the context; they show in messages and traces, and may be NULL.
// - Argument structs are read during the call and may then be dropped.
// - Statuses, besides those named at a function:
//   HEDDLE_RT_INVALID_ARGUMENT  a NULL handle, a negative size, a NULL pointer
//                               where there are elements, a dtype or reduction
//                               that the backend does not have; in checking
//                               mode also memory outside its allocation;
//   HEDDLE_RT_PEER_FAILED       the group was aborted: the context is dead;
//   HEDDLE_RT_DEVICE_ERROR      the backend's library refused;
//   HEDDLE_RT_CHECK_FAILED      checking mode found two pieces of work that
//                               touch the same bytes and that no event orders.
// - A context belongs to one thread; contexts of different threads are
//   independent.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_RUNTIME_HEDDLE_RT_H
#define HEDDLE_RUNTIME_HEDDLE_RT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// What went wrong, coarsely. `heddle_rt_last_error` has the sentence.
typedef enum heddle_rt_status {
  HEDDLE_RT_OK = 0,
  HEDDLE_RT_INVALID_ARGUMENT =
      1,                       ///< The caller's mistake; retrying won't help.
  HEDDLE_RT_OUT_OF_MEMORY = 2, ///< Device or host memory ran out.
  HEDDLE_RT_PEER_FAILED = 3,   ///< Another rank died or aborted the group.
  HEDDLE_RT_DEVICE_ERROR = 4,  ///< A library or the device reported an error.
  HEDDLE_RT_CHECK_FAILED = 5,  ///< Checking mode found a fault of the program.
} heddle_rt_status;

/// Element types, numbered for the compiler; never renumber, only append.
typedef enum heddle_rt_dtype {
  HEDDLE_RT_F32 = 0,
  HEDDLE_RT_BF16 = 1,
  HEDDLE_RT_F16 = 2,
  HEDDLE_RT_I32 = 3,
  HEDDLE_RT_I64 = 4, ///< Label counts: a step may have more than 2^24.
  HEDDLE_RT_F64 = 5,
  HEDDLE_RT_U8 = 6,
  HEDDLE_RT_F8E4M3 =
      7, ///< Codes that belong to a scale: see heddle_rt_quantize.
  HEDDLE_RT_F8E5M2 = 8,
  HEDDLE_RT_F8E8M0 = 9, ///< Scales that are powers of two.
  /// Codes of 4 bits, two a byte: element 2i in the low bits of byte i.
  HEDDLE_RT_F4E2M1 = 10,
} heddle_rt_dtype;

typedef enum heddle_rt_reduction {
  HEDDLE_RT_SUM = 0,
  HEDDLE_RT_MAX = 1, ///< NaN wins, so that a fault stays visible.
} heddle_rt_reduction;

typedef enum heddle_rt_memory_class {
  HEDDLE_RT_COMPUTE = 0, ///< Device memory.
  HEDDLE_RT_COMM = 1,    ///< Device memory registered for collectives.
  HEDDLE_RT_HOST = 2,    ///< Host memory the device can copy from (pinned).
} heddle_rt_memory_class;

/// How queued work is carried out. Only the host backend has a choice.
typedef enum heddle_rt_mode {
  HEDDLE_RT_MODE_DEFAULT =
      0, ///< HEDDLE_HOST_MODE: eager (if unset), late, record
  HEDDLE_RT_MODE_EAGER = 1,  ///< At once, on the calling thread.
  HEDDLE_RT_MODE_LATE = 2,   ///< When someone synchronizes, in a seeded random
                             ///< order that events and communicators allow.
  HEDDLE_RT_MODE_RECORD = 3, ///< Never: calls are checked and recorded.
} heddle_rt_mode;

/// A choice whose default comes from an environment variable.
typedef enum heddle_rt_choice {
  HEDDLE_RT_CHOICE_DEFAULT = 0,
  HEDDLE_RT_CHOICE_ON = 1,
  HEDDLE_RT_CHOICE_OFF = 2,
} heddle_rt_choice;

typedef struct heddle_rt_context
    heddle_rt_context; ///< One rank: its place, streams, memory.
typedef struct heddle_rt_comm heddle_rt_comm; ///< One rank's seat in a group.
typedef struct heddle_rt_stream heddle_rt_stream; ///< An ordered queue of work.
typedef struct heddle_rt_event heddle_rt_event;   ///< A point in a stream.
typedef struct heddle_rt_threads
    heddle_rt_threads; ///< Ranks that are threads of one process (host).

/// All zero is a good default: environment variables decide what is left at 0.
typedef struct heddle_rt_options {
  heddle_rt_mode mode;
  /// Order of late work; 0: HEDDLE_SEED, else 1.
  uint64_t seed;
  /// Happens-before check, bounds, canaries, poison, equal collectives.
  /// Default: on if HEDDLE_RACES=1. Recording always checks.
  heddle_rt_choice checking;
  /// Threads that one rank computes with; 0: OMP_NUM_THREADS, else 1.
  int32_t compute_threads;
  /// Seconds without progress after which waiting for peers fails;
  /// 0: HEDDLE_TIMEOUT, else 600.
  int32_t timeout_seconds;
  /// The group whose seat `rank` this context takes; NULL: MPI where an MPI
  /// launcher started the process, else one rank alone.
  heddle_rt_threads *threads;
  /// With `threads`: the seat, and `size` is ignored. Recording: the place that
  /// is claimed, without peers; size 0 means 1. Otherwise ignored.
  int32_t rank, size;
} heddle_rt_options;

/// The sentence for this thread's latest failure, or "" if there was none.
/// Valid until the thread's next heddle_rt call. Never NULL.
const char *heddle_rt_last_error(void);

/// Starts the runtime for one rank: MPI on the host where it was launched so;
/// on CUDA rank and size from MPI or RANK / WORLD_SIZE, device LOCAL_RANK.
///
/// \param options  may be NULL: all defaults.
/// \param context  receives the context; heddle_rt_finalize ends it.
///
/// \return HEDDLE_RT_INVALID_ARGUMENT for a setting that has no meaning (the
///         message names the variable), else HEDDLE_RT_DEVICE_ERROR.
heddle_rt_status heddle_rt_init(const heddle_rt_options *options,
                                heddle_rt_context **context);

/// This rank's number, from 0, and the number of ranks.
heddle_rt_status heddle_rt_rank(const heddle_rt_context *context, int32_t *rank,
                                int32_t *size);

/// The mode that was chosen (never DEFAULT). A caller that would touch device
/// memory itself must not do so while recording: there is no memory.
heddle_rt_mode heddle_rt_context_mode(const heddle_rt_context *context);

/// Waits for all streams, makes the closing checks of checking mode (canaries,
/// the same collectives on every rank of a communicator), frees all that the
/// context owns and leaves the group. After a failure of this context it aborts
/// the group instead of waiting. The context is gone in any case.
///
/// Collective over all ranks, unless one failed.
heddle_rt_status heddle_rt_finalize(heddle_rt_context *context);

/// Tells all ranks that this one cannot go on. Ranks that are threads get
/// HEDDLE_RT_PEER_FAILED with the sentence from their next or current call;
/// under MPI the sentence is printed and the job ends with `exit_code`
/// (the function then does not return). heddle_rt_finalize is still owed.
///
/// \param why  one sentence for the user; copied.
heddle_rt_status heddle_rt_abort(heddle_rt_context *context, int32_t exit_code,
                                 const char *why);

/// Seats this rank in the communicator of its `color`, at place `rank` of
/// `size`.
///
/// \param color  ranks of one color form a communicator; negative: no seat,
///               and `*comm` becomes NULL.
/// \param rank   place in the new communicator. The ranks of one color must
///               name each of 0 ... size - 1 once.
/// \param axis   for messages and traces: the mesh axes, e.g. "tp" or "dp,cp".
///
/// Collective over all ranks of the context's group, in the same order
/// everywhere. Communicators are freed by heddle_rt_finalize.
///
/// \return HEDDLE_RT_INVALID_ARGUMENT if colors, places and sizes do not fit.
heddle_rt_status heddle_rt_comm_split(heddle_rt_context *context, int32_t color,
                                      int32_t rank, int32_t size,
                                      const char *axis, heddle_rt_comm **comm);
heddle_rt_status heddle_rt_comm_rank(const heddle_rt_comm *comm, int32_t *rank,
                                     int32_t *size);

/// Memory of a class, aligned to 4096 bytes, freed by heddle_rt_free or
/// heddle_rt_finalize. Its content is undefined; in checking mode every float
/// in it is NaN.
///
/// \param name  for messages and traces, e.g. "states".
/// \return HEDDLE_RT_OUT_OF_MEMORY with the size asked for.
heddle_rt_status heddle_rt_alloc(heddle_rt_context *context,
                                 heddle_rt_memory_class kind, int64_t bytes,
                                 const char *name, void **memory);
/// Frees one allocation. All work on it must have passed. NULL is ignored.
heddle_rt_status heddle_rt_free(heddle_rt_context *context, void *memory);

/// A stream or event lives until heddle_rt_finalize.
heddle_rt_status heddle_rt_stream_create(heddle_rt_context *context,
                                         const char *name,
                                         int32_t high_priority,
                                         heddle_rt_stream **stream);
/// Waits until all work queued on `stream` so far is done. Any failure of that
/// work is reported here.
heddle_rt_status heddle_rt_stream_synchronize(heddle_rt_stream *stream);

heddle_rt_status heddle_rt_event_create(heddle_rt_context *context,
                                        const char *name,
                                        heddle_rt_event **event);
heddle_rt_status heddle_rt_event_record(heddle_rt_event *event,
                                        heddle_rt_stream *stream);
/// Later work of `stream` waits for the event's latest record. Waiting for an
/// event never recorded is HEDDLE_RT_INVALID_ARGUMENT (CUDA ignores it): it is
/// always a bug.
heddle_rt_status heddle_rt_stream_wait(heddle_rt_stream *stream,
                                       heddle_rt_event *event);

/// How much of a program a call of heddle_rt_graph is.
typedef enum heddle_rt_graph_part {
  HEDDLE_RT_GRAPH_SLOT = 0, ///< A function that a step calls.
  HEDDLE_RT_GRAPH_STEP = 1, ///< A whole step.
} heddle_rt_graph_part;
typedef heddle_rt_status (*heddle_rt_graph_body)(void *given);

/// Queues what `body(given)` queues. A backend may keep that and queue the same
/// again at a later call with the same body and numbers, without calling
/// `body`: what it queues may depend on the numbers alone, and it may only
/// queue. All else that changes from call to call is read from memory by what
/// is queued. Within such a call, others are plain calls of their body.
///
/// \param stream   any of the context's; borrowed for the call.
/// \param name     for messages.
/// \param given    handed on to `body`; read during the call.
/// \param numbers  [count], for instance the addresses and indices that `body`
///                 works on; read during the call.
///
/// The ranks of each communicator that `body` uses for collectives must make
/// the same sequence of such calls, with numbers that are new or known alike;
/// messages need not agree.
///
/// \return the status of `body`, or of what is queued.
heddle_rt_status heddle_rt_graph(heddle_rt_stream *stream, const char *name,
                                 heddle_rt_graph_part part,
                                 heddle_rt_graph_body body, void *given,
                                 const int64_t *numbers, int32_t count);

/// Copies between any two kinds of memory; the ranges must not overlap.
heddle_rt_status heddle_rt_copy(heddle_rt_stream *stream, void *to,
                                const void *from, int64_t bytes);
heddle_rt_status heddle_rt_zero(heddle_rt_stream *stream, void *to,
                                int64_t bytes);
/// Declares that nobody will read these bytes before they are written again.
/// Checking mode fills them with NaN and counts that as a write; otherwise
/// nothing happens.
heddle_rt_status heddle_rt_poison(heddle_rt_stream *stream, void *memory,
                                  int64_t bytes);

/// Row major, for each of `batch` products: C[m,n] = alpha op(A) op(B) + beta
/// C, summed in fp32; codes are multiplied exactly, and alpha by both scales.
/// op(A) is [m,k], op(B) is [k,n]; a transposed operand lies
/// in memory as [k,m], [n,k]. ld* is the distance in elements of two rows as
/// they lie in memory, stride_* that of two products (0 for `a` or `b`:
/// shared). With beta = 0, C is not read (it may hold NaN).
typedef struct heddle_rt_gemm_args {
  const char *name; ///< op and layer, for messages and traces
  int64_t m, n, k, lda, ldb, ldc;
  int32_t transpose_a, transpose_b;
  float alpha, beta;
  /// a and b alike; f32 x f32 -> f32, bf16 x bf16 -> bf16 or f32, f16 likewise;
  /// or a and b of 8 bits each, or f4e2m1 both, -> bf16 or f32
  heddle_rt_dtype a, b, c;
  int64_t batch; ///< 1 for one product; 0 queues nothing
  int64_t stride_a, stride_b, stride_c;
  const void *scale_a, *scale_b; ///< of codes: scales of each; else NULL
  heddle_rt_dtype scales;        ///< F32, or of blocks F8E8M0 or F8E4M3
  /// Scales of blocks, row-major matrices without gaps, of this many rows of
  /// op(A), columns of op(B) and numbers that are summed over; the last block
  /// along each may be smaller. 0, all: one f32 for the whole operand. With
  /// blocks A lies as [m,k], B as [n,k], and batch is 1. Codes of 4 bits have
  /// blocks, and no gaps between rows.
  int64_t block_a, block_b, block_k;
  /// Beside F8E4M3 of blocks: those that alpha is multiplied by; else NULL.
  const float *tensor_scale_a, *tensor_scale_b;
} heddle_rt_gemm_args;

/// \return HEDDLE_RT_INVALID_ARGUMENT also if a leading dimension is shorter
///         than a row, C's products overlap, or C overlaps A or B.
heddle_rt_status heddle_rt_gemm(heddle_rt_stream *stream,
                                const heddle_rt_gemm_args *args, const void *a,
                                const void *b, void *c);

/// amax = the largest magnitude of dense f32, bf16 or f16, 0 of none; NaN wins.
heddle_rt_status heddle_rt_amax(heddle_rt_stream *stream, const char *name,
                                const void *input, int64_t elements,
                                heddle_rt_dtype dtype, float *amax);

/// Codes of a row-major matrix without gaps, and the scales that a product
/// multiplies them by: one, f32, of the amax that is given, or one of each
/// block of the codes' matrix, of its own largest magnitude. With `up` =
/// largest number of the format / amax, at most the largest of fp32, with
/// `power_of_two` the power of two not above it: code = input x up, rounded to
/// nearest even and at most the largest number; scale = 1 / up. An amax of 0
/// has up 1; one that is not finite has a scale of NaN.
///
/// With the tensor's amax and blocks scales have two levels (blockScale in
/// heddle/Runtime/Scales.h): F8E4M3 of blocks, relative to `tensor_scale`.
typedef struct heddle_rt_quantize_args {
  const char *name;
  int64_t rows, columns; ///< of the input
  int32_t transposed;    ///< codes lie as [columns, rows]
  int32_t power_of_two;
  heddle_rt_dtype input, codes;
  /// F32, or of blocks: powers of two, F8E8M0; with a tensor's, F8E4M3
  heddle_rt_dtype scales;
  /// Of the codes as they lie; scales are a row-major matrix without gaps, and
  /// amax is NULL unless they are F8E4M3. 0, both: one scale.
  int64_t block_rows, block_columns;
  float *tensor_scale; ///< written; NULL unless scales are F8E4M3
  /// Not NULL, of F4E2M1: rounds at random (narrowAtRandom in Formats.h), by
  /// the dropoutWord (Random.h) of seed, site, 0, the row's number and the
  /// column.
  const int64_t *seed;
  const int32_t *token_numbers; ///< of each row of the input
  uint32_t site;
  /// Column (i, j, k) of the input, of such sizes, the last fastest, is
  /// first_column + i, j and k times these strides, in the whole tensor.
  int64_t first_column, column_sizes[3], column_strides[3];
} heddle_rt_quantize_args;

/// \return HEDDLE_RT_INVALID_ARGUMENT also where `codes` overlaps `input`.
heddle_rt_status heddle_rt_quantize(heddle_rt_stream *stream,
                                    const heddle_rt_quantize_args *args,
                                    const void *input, const float *amax,
                                    void *codes, void *scale);

/// Mixes each `length` rows of a row-major matrix without gaps: H S input /
/// sqrt(length), with Sylvester's Hadamard matrix and -1 on S's diagonal where
/// `signs` has a bit, the lowest for the first row. Rows that are left over
/// stay. Sums are in fp32, of rows 1 apart, then 2, 4, ..., rounded at the end.
typedef struct heddle_rt_hadamard_args {
  const char *name;
  int64_t rows, columns;
  int32_t length; ///< 1, 2, 4, 8, 16 or 32
  uint32_t signs;
  heddle_rt_dtype dtype; ///< f32, bf16 or f16
} heddle_rt_hadamard_args;

/// \return HEDDLE_RT_INVALID_ARGUMENT also where `output` overlaps `input`.
heddle_rt_status heddle_rt_hadamard(heddle_rt_stream *stream,
                                    const heddle_rt_hadamard_args *args,
                                    const void *input, void *output);

/// Distances in elements. The head's elements lie side by side.
typedef struct heddle_rt_attention_strides {
  int64_t batch;    ///< between sequences
  int64_t sequence; ///< between positions
  int64_t group;    ///< between KV heads
  int64_t head;     ///< between query heads of one KV head; unused for k and v
} heddle_rt_attention_strides;

/// Scaled dot-product attention over [b, s, g, r, k] queries and [b, t, g, k]
/// keys and values:
///
///   o[b,s,g,r,:] = sum over j of softmax_j(scale q[b,s,g,r,:] . k[b,j,g,:])
///   v[b,j,g,:]
///
/// over the keys j that query i sees. With p = positions (an index where NULL)
/// it sees j iff
///   document_i == document_j                 (where documents are given), and
///   p_j <= p_i                               (where `causal`), and
///   p_i - p_j < window                       (where window > 0).
/// A query that sees nothing gets o = 0, lse = -inf and zero gradients.
///
/// With `dropout`, softmax_j is 0 where the word of (seed, site 1, number of
/// the head, number of the query's token, j) in heddle/Runtime/Random.h is
/// below the rate's threshold, and divided by 1 - rate elsewhere. The gradient
/// draws the same words again.
///
/// lse, f32 [b, s, g, r] dense, is log sum_j exp(scale q . k_j); the gradient
/// needs it. Strides of gradients are used by heddle_rt_attention_grad alone.
typedef struct heddle_rt_attention_args {
  const char *name;
  heddle_rt_dtype dtype; ///< of q, k, v, o and their gradients
  int64_t batch, queries, keys, groups, heads, head_size; ///< b, s, t, g, r, k
  heddle_rt_attention_strides q, k, v, o;
  heddle_rt_attention_strides grad_q, grad_k, grad_v, grad_o;
  float scale;
  int32_t causal;
  int64_t window; ///< 0: none
  const int32_t *query_documents,
      *key_documents; ///< [b, s] and [b, t], both or neither
  const int32_t *query_positions,
      *key_positions; ///< [b, s] and [b, t], both or neither
  double dropout;     ///< rate in [0, 1); 0: none, and what follows is not read
  const int64_t *seed;             ///< of the masks, one number
  const int32_t *token_numbers;    ///< [b, s]: each query's token in the batch
  int64_t first_head, group_heads; ///< number of head (g, r) in the whole
                                   ///< model: first_head + g * group_heads + r
} heddle_rt_attention_args;

heddle_rt_status heddle_rt_attention(heddle_rt_stream *stream,
                                     const heddle_rt_attention_args *args,
                                     const void *q, const void *k,
                                     const void *v, void *o, float *lse);

/// Gradients of the above from `grad_o`; grad_q, grad_k, grad_v are written,
/// not added to. `o` and `lse` are the forward's results. Outputs must not
/// overlap each other or an input, except that grad_q may be grad_o (equal
/// strides).
heddle_rt_status heddle_rt_attention_grad(heddle_rt_stream *stream,
                                          const heddle_rt_attention_args *args,
                                          const void *q, const void *k,
                                          const void *v, const void *o,
                                          const float *lse, const void *grad_o,
                                          void *grad_q, void *grad_k,
                                          void *grad_v);

/// Rotary positions over [positions, heads, head_size] without gaps: elements i
/// and i + head_size/2 of a head are a pair, turned by position x frequency i,
/// in fp32.
typedef struct heddle_rt_rope_args {
  const char *name;
  int64_t positions;         ///< number of positions
  int64_t heads;             ///< heads per position
  int64_t head_size;         ///< even
  const double *frequencies; ///< host memory, [head_size / 2]; read at the call
  int32_t inverse;           ///< turn back: the gradient
  heddle_rt_dtype dtype;     ///< of input and output: f32, bf16 or f16
} heddle_rt_rope_args;

/// `input` and `output` may be the same. Angles are computed in fp64.
///
/// \return HEDDLE_RT_INVALID_ARGUMENT if a size is negative, `head_size` is
///         odd, `dtype` another one, or a pointer is NULL while there are
///         elements.
heddle_rt_status heddle_rt_rope(heddle_rt_stream *stream,
                                const heddle_rt_rope_args *args,
                                const void *input, const int32_t *positions,
                                void *output);

//===----------------------------------------------------------------------===//
// Collectives. n is the communicator's size, "rank" the place in it.
//
// Every rank of `comm` must make the same call with the same sizes, in the same
// order; else the group may hang (checking mode says so at the latest at the
// end). Calls of one communicator begin in the order in which they were queued.
//
// Integers are reduced exactly, f64 in f64, other floats in fp32 and rounded
// once. The host sums each element at one place, in rank order, and copies:
// all_reduce equals reduce_scatter + all_gather bit by bit, and replicas are
// equal. NCCL chooses its own order; CUDA promises equal replicas only.
//
// HEDDLE_RT_INVALID_ARGUMENT also on a partial overlap of input and output.
//===----------------------------------------------------------------------===//

/// output = the reduction of the inputs, on every rank. `output` may be
/// `input`.
heddle_rt_status heddle_rt_all_reduce(heddle_rt_comm *comm,
                                      heddle_rt_stream *stream,
                                      const void *input, void *output,
                                      int64_t elements, heddle_rt_dtype dtype,
                                      heddle_rt_reduction reduction);

/// Adds (or takes the maximum of) the inputs; each rank keeps one slice.
/// Counterpart of `dist.reduce_scatter` along any dimension: `outer` is the
/// product of the dimensions before it, `slice_elements` that of the rank's
/// part of the dimension and of those after it.
///
///   input  [outer, n, slice]   e.g. outer 2, n 2:   a0 a1 | b0 b1
///   output [outer, slice]      rank 0:  a0 | b0     rank 1:  a1 | b1 (summed)
///
/// In place: with outer 1, `output` may be `input + rank * slice_elements`.
heddle_rt_status heddle_rt_reduce_scatter(heddle_rt_comm *comm,
                                          heddle_rt_stream *stream,
                                          const void *input, void *output,
                                          int64_t outer, int64_t slice_elements,
                                          heddle_rt_dtype dtype,
                                          heddle_rt_reduction reduction);

/// Every rank gets the slices of all, side by side: the mirror image.
///
///   input  [outer, slice]      rank 0:  a0 | b0     rank 1:  a1 | b1
///   output [outer, n, slice]   a0 a1 | b0 b1
///
/// In place: with outer 1, `input` may be `output + rank * slice_elements`.
heddle_rt_status heddle_rt_all_gather(heddle_rt_comm *comm,
                                      heddle_rt_stream *stream,
                                      const void *input, void *output,
                                      int64_t outer, int64_t slice_elements,
                                      heddle_rt_dtype dtype);

/// Sizes of an all-to-all, per rank; elements. `split` is the dimension that is
/// cut (its size afterwards), `concat` the one that grows (its size before).
typedef struct heddle_rt_all_to_all_shape {
  int64_t outer, split, middle, concat, inner;
  int32_t split_first; ///< which of the two dimensions is the outer one
} heddle_rt_all_to_all_shape;

/// Moves the cut from one dimension to another.
///
///   split_first   input  [outer, n * split, middle, concat, inner]
///                 output [outer, split, middle, n * concat, inner]
///   otherwise     input  [outer, concat, middle, n * split, inner]
///                 output [outer, n * concat, middle, split, inner]
///
///   n 2, split_first, all sizes 1; rows are the dimension cut afterwards:
///     rank 0:  A     rank 1:  C      ->    rank 0:  A C     rank 1:  B D
///              B              D
heddle_rt_status heddle_rt_all_to_all(heddle_rt_comm *comm,
                                      heddle_rt_stream *stream,
                                      const void *input, void *output,
                                      const heddle_rt_all_to_all_shape *shape,
                                      heddle_rt_dtype dtype);

/// Each rank r receives the whole input of rank `from[r]`; -1: it receives
/// nothing and its output is untouched. A rank may be named by several, by
/// itself, or by none.
///
/// \param from  host memory, [n], equal on all ranks; read during the call.
heddle_rt_status heddle_rt_permute(heddle_rt_comm *comm,
                                   heddle_rt_stream *stream, const void *input,
                                   void *output, int64_t elements,
                                   heddle_rt_dtype dtype, const int32_t *from);

/// A pair: `peer` must make the opposite call. Between two ranks messages keep
/// their order. A send is done when its receive has begun: two ranks that both
/// send first on one stream wait for each other for ever, unless the calls
/// stand in a group. (The host in eager mode sends a copy and goes on.)
heddle_rt_status heddle_rt_send(heddle_rt_comm *comm, heddle_rt_stream *stream,
                                const void *input, int64_t elements,
                                heddle_rt_dtype dtype, int32_t peer);
heddle_rt_status heddle_rt_receive(heddle_rt_comm *comm,
                                   heddle_rt_stream *stream, void *output,
                                   int64_t elements, heddle_rt_dtype dtype,
                                   int32_t peer);

/// Collectives, sends and receives between the two are begun together, at the
/// end, and none waits for another: paired sends, buckets. All on one stream.
/// Other queued work between the two is HEDDLE_RT_INVALID_ARGUMENT.
heddle_rt_status heddle_rt_group_begin(heddle_rt_context *context);
heddle_rt_status heddle_rt_group_end(heddle_rt_context *context);

/// Writes what recording mode saw, as JSON (runtime/README.md has the fields).
/// \return HEDDLE_RT_INVALID_ARGUMENT in another mode or if `path` cannot be
/// written.
heddle_rt_status heddle_rt_trace_write(heddle_rt_context *context,
                                       const char *path);

/// From now on writes a line per piece of work, record and wait: the bytes of
/// allocations that it reads and writes (runtime/README.md has the fields). A
/// NULL `path` ends the file.
/// \return HEDDLE_RT_INVALID_ARGUMENT where nobody watches ranges (neither
/// checking nor recording), or if the file cannot be written.
heddle_rt_status heddle_rt_ranges_write(heddle_rt_context *context,
                                        const char *path);

//===----------------------------------------------------------------------===//
// Called by the skeletons, never by emitted text.
//===----------------------------------------------------------------------===//

/// What a queued piece of work touches; the ground of the happens-before check.
typedef struct heddle_rt_access {
  const void *begin;
  int64_t bytes;
  /// 0: it reads them; 1: it writes them, whatever was there; 2: it reads and
  /// may change them.
  int32_t writes;
} heddle_rt_access;

/// A part of a kernel: items [begin, end). Must not depend on how items are
/// split.
typedef void (*heddle_rt_body)(const void *args, int64_t begin, int64_t end);

/// CUDA: announces a launch that the caller makes itself right afterwards.
heddle_rt_status heddle_rt_note(heddle_rt_stream *stream, const char *name,
                                const heddle_rt_access *accesses,
                                int32_t count);

/// Host: queues a kernel. [0, items) is split over threads in runs of at least
/// `grain`.
///
/// \param args        [args_bytes], copied bytewise when the work is late.
/// \param accesses    [count]; read during the call.
heddle_rt_status heddle_rt_host_launch(heddle_rt_stream *stream,
                                       const char *name, heddle_rt_body body,
                                       const void *args, size_t args_bytes,
                                       int64_t items, int64_t grain,
                                       const heddle_rt_access *accesses,
                                       int32_t count);

/// Makes "<name>: <why>" this thread's latest failure.
/// \return HEDDLE_RT_DEVICE_ERROR, always.
heddle_rt_status heddle_rt_launch_failed(const char *name, const char *why);

/// CUDA: the cudaStream_t. Host: NULL.
void *heddle_rt_native_stream(heddle_rt_stream *stream);

#ifdef __cplusplus
}
#endif

#endif
