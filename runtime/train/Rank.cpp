#include "runtime/train/Rank.h"

#include "runtime/common/Status.h"

#include <algorithm>
#include <cstring>

namespace heddle::train {

int64_t bytesOf(heddle_rt_dtype dtype) {
  switch (dtype) {
  case HEDDLE_RT_BF16:
  case HEDDLE_RT_F16:
    return 2;
  case HEDDLE_RT_I64:
  case HEDDLE_RT_F64:
    return 8;
  case HEDDLE_RT_U8:
    return 1;
  default:
    return 4;
  }
}

int64_t elementsOf(const std::vector<int64_t> &sizes) {
  int64_t n = 1;
  for (int64_t size : sizes)
    n *= size;
  return n;
}

Extents extentsOf(const runtime::Tables &tables, int64_t rank,
                  const runtime::State &state) {
  return {tables.mesh, rank, state.layout, state.file, tables.stages.axis};
}

runtime::Place instancePlace(const runtime::State &state, int64_t i,
                             const Extents &extents, int64_t stage) {
  const int64_t inRow =
      state.inRow ? extents.storedBegin() * bytesOf(state.dtype) : 0;
  return {state.arena, state.offsetAt(stage) + i * state.layerStride + inRow};
}

Rank::~Rank() {
  if (program)
    heddle_program_destroy(program);
}

heddle_rt_status Rank::create() {
  HEDDLE_RT_TRY(heddle_rt_rank(context, &rank, &size));
  if (size != tables.ranks())
    return runtime::invalid("this program is for {} ranks, found {}; start it "
                            "with `mpirun -n {}`, or with --threads",
                            tables.ranks(), size, tables.ranks());
  stage = tables.stageOf(rank);
  HEDDLE_RT_TRY(heddle_program_create(context, numbers.data(),
                                      int64_t(numbers.size()), &program));
  stream = heddle_program_stream(program);
  if (heddle_rt_context_mode(context) == HEDDLE_RT_MODE_RECORD)
    return HEDDLE_RT_OK;
  HEDDLE_RT_TRY(
      heddle_rt_comm_split(context, 0, rank, size, "all ranks", &world));
  HEDDLE_RT_TRY(checkArenas());
  return makeRoom();
}

heddle_rt_status Rank::checkArenas() {
  for (size_t i = 0; i < tables.arenas.size(); ++i) {
    void *base = nullptr;
    int64_t bytes = 0;
    HEDDLE_RT_TRY(heddle_program_arena(program, int32_t(i), &base, &bytes));
    const int64_t expected = tables.arenas[i].bytesAt(stage);
    if (bytes != expected)
      return runtime::invalid("tables.bin and the program differ: arena '{}' "
                              "has {} and {} bytes; compile again",
                              tables.arenas[i].name, expected, bytes);
    arenas.push_back(static_cast<char *>(base));
  }
  return HEDDLE_RT_OK;
}

heddle_rt_status Rank::makeRoom() {
  stagingBytes = 8;
  for (const runtime::State &state : tables.states)
    stagingBytes =
        std::max(stagingBytes, extentsOf(tables, rank, state).storedElements() *
                                   bytesOf(state.dtype));
  for (const auto &[name, input] : tables.inputs)
    stagingBytes = std::max(stagingBytes, elementsOf(input.layout.local) *
                                              bytesOf(input.dtype));
  void *memory = nullptr;
  HEDDLE_RT_TRY(heddle_rt_alloc(context, HEDDLE_RT_HOST, stagingBytes,
                                "train staging", &memory));
  staging = static_cast<char *>(memory);
  for (const runtime::State &state : tables.states)
    exchangeElements += state.layers;
  exchangeElements = std::max<int64_t>(exchangeElements, 1);
  HEDDLE_RT_TRY(heddle_rt_alloc(context, HEDDLE_RT_COMM,
                                (size + 1) * exchangeElements * 8,
                                "train exchange", &memory));
  exchange = static_cast<int64_t *>(memory);
  return HEDDLE_RT_OK;
}

heddle_rt_status Rank::synchronize() {
  return heddle_rt_stream_synchronize(stream);
}

heddle_rt_status Rank::barrier() {
  std::vector<int64_t> all;
  return gather({0}, all);
}

heddle_rt_status Rank::gather(const std::vector<int64_t> &own,
                              std::vector<int64_t> &all) {
  const int64_t n = int64_t(own.size());
  all.resize(own.size() * size_t(size));
  std::vector<int64_t> some;
  for (int64_t first = 0; first < n; first += exchangeElements) {
    const int64_t count = std::min(exchangeElements, n - first);
    HEDDLE_RT_TRY(gatherSome(own.data() + first, count, some));
    for (int64_t r = 0; r < size; ++r)
      std::copy_n(some.begin() + r * count, count, all.begin() + r * n + first);
  }
  return HEDDLE_RT_OK;
}

heddle_rt_status Rank::shareText(int64_t from, std::string &text) {
  std::vector<int64_t> own(64, 0), every;
  text.resize(std::min<size_t>(text.size(), own.size() * 8 - 1));
  memcpy(own.data(), text.data(), text.size());
  HEDDLE_RT_TRY(gather(own, every));
  text = reinterpret_cast<const char *>(every.data() + from * 64);
  return HEDDLE_RT_OK;
}

heddle_rt_status Rank::gatherSome(const int64_t *own, int64_t n,
                                  std::vector<int64_t> &all) {
  all.resize(size_t(n * size));
  int64_t *every = exchange + exchangeElements;
  // Through the staging memory in two parts, as wide as it is.
  const int64_t width = stagingBytes / 8;
  for (int64_t first = 0; first < n; first += width) {
    const int64_t count = std::min(width, n - first);
    memcpy(staging, own + first, size_t(count) * 8);
    HEDDLE_RT_TRY(heddle_rt_copy(stream, exchange + first, staging, count * 8));
    HEDDLE_RT_TRY(synchronize());
  }
  HEDDLE_RT_TRY(heddle_rt_all_gather(world, stream, exchange, every, 1, n,
                                     HEDDLE_RT_I64));
  for (int64_t first = 0; first < n * size; first += width) {
    const int64_t count = std::min(width, n * size - first);
    HEDDLE_RT_TRY(heddle_rt_copy(stream, staging, every + first, count * 8));
    HEDDLE_RT_TRY(synchronize());
    memcpy(all.data() + first, staging, size_t(count) * 8);
  }
  return HEDDLE_RT_OK;
}

heddle_rt_status Rank::allocateHost(int64_t bytes, const char *name,
                                    char **memory) {
  void *allocated = nullptr;
  HEDDLE_RT_TRY(
      heddle_rt_alloc(context, HEDDLE_RT_HOST, bytes, name, &allocated));
  *memory = static_cast<char *>(allocated);
  return HEDDLE_RT_OK;
}

heddle_rt_status Rank::copyOut(char *to, const runtime::Place &from,
                               int64_t bytes) {
  return heddle_rt_copy(
      stream, to, arenas[size_t(from.arena)] + from.offsetAt(stage), bytes);
}

heddle_rt_status Rank::upload(const runtime::Place &to, const void *from,
                              int64_t bytes) {
  memcpy(staging, from, size_t(bytes));
  HEDDLE_RT_TRY(heddle_rt_copy(
      stream, arenas[size_t(to.arena)] + to.offsetAt(stage), staging, bytes));
  return synchronize();
}

heddle_rt_status Rank::download(void *to, const runtime::Place &from,
                                int64_t bytes) {
  HEDDLE_RT_TRY(
      heddle_rt_copy(stream, staging,
                     arenas[size_t(from.arena)] + from.offsetAt(stage), bytes));
  HEDDLE_RT_TRY(synchronize());
  memcpy(to, staging, size_t(bytes));
  return HEDDLE_RT_OK;
}

} // namespace heddle::train
