// Ranks that are MPI processes. Only point-to-point calls: MPI's reductions
// give different bits from call to call, and ours are in Collective.cpp.

#include "runtime/ranks/Transport.h"

#ifdef HEDDLE_WITH_MPI

#include "runtime/common/Ending.h"

#include <mpi.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <sched.h>

namespace heddle::ranks {

using runtime::fail;
using runtime::invalid;

namespace {

bool succeeded(int code, const char *what) {
  if (code == MPI_SUCCESS)
    return true;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail(HEDDLE_RT_PEER_FAILED, "{}: MPI: {}", what, text);
  return false;
}

/// The datatype of a strided block. Counts are ints, so a large block is made
/// of larger units; MPI matches sent and received bytes all the same.
struct Datatype {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  bool make(const Strided &memory, const char *what) {
    int64_t unit = 1;
    while (memory.blockBytes / unit > INT_MAX / 2 &&
           memory.blockBytes % (2 * unit) == 0)
      unit *= 2;
    if (memory.blockBytes / unit > INT_MAX || memory.blocks > INT_MAX) {
      invalid("{}: a piece of {} runs of {} bytes is too large for MPI", what,
              memory.blocks, memory.blockBytes);
      return false;
    }
    MPI_Datatype base = MPI_BYTE;
    const bool made =
        (unit == 1 ||
         succeeded(MPI_Type_contiguous(int(unit), MPI_BYTE, &base), what)) &&
        succeeded(MPI_Type_create_hvector(int(memory.blocks),
                                          int(memory.blockBytes / unit),
                                          memory.stride, base, &type),
                  what) &&
        succeeded(MPI_Type_commit(&type), what);
    if (base != MPI_BYTE)
      MPI_Type_free(&base);
    return made;
  }
  ~Datatype() {
    if (type != MPI_DATATYPE_NULL)
      MPI_Type_free(&type); // MPI keeps it until the message is done
  }
};

class MpiRequest : public Request {
public:
  MpiRequest(const char *what, bool rendezvous)
      : what(what), sendAs(rendezvous ? MPI_Issend : MPI_Isend) {}
  ~MpiRequest() override {
    for (MPI_Request &request : requests)
      if (request != MPI_REQUEST_NULL) {
        MPI_Cancel(&request);
        MPI_Request_free(&request);
      }
  }
  bool start(const Piece &piece, int tag, MPI_Comm comm, bool send) {
    Datatype datatype;
    if (!datatype.make(piece.memory, what))
      return false;
    requests.push_back(MPI_REQUEST_NULL);
    peers.push_back(piece.peer);
    std::byte *data = piece.memory.data;
    return succeeded(send ? sendAs(data, 1, datatype.type, piece.peer, tag,
                                   comm, &requests.back())
                          : MPI_Irecv(data, 1, datatype.type, piece.peer, tag,
                                      comm, &requests.back()),
                     what);
  }
  Progress test() override {
    int done = 0;
    if (!succeeded(MPI_Testall(int(requests.size()), requests.data(), &done,
                               MPI_STATUSES_IGNORE),
                   what))
      return Progress::Failed;
    return done ? Progress::Done : Progress::Pending;
  }
  std::vector<int> pending() const override {
    std::vector<int> missing;
    for (size_t i = 0; i < requests.size(); ++i) {
      int done = 0;
      MPI_Request_get_status(requests[i], &done, MPI_STATUS_IGNORE);
      if (!done &&
          std::find(missing.begin(), missing.end(), peers[i]) == missing.end())
        missing.push_back(peers[i]);
    }
    return missing;
  }

private:
  const char *what;
  decltype(&MPI_Isend) sendAs;
  std::vector<MPI_Request> requests;
  std::vector<int> peers; ///< of each
};

class MpiSeat : public Seat {
public:
  MpiSeat(MPI_Comm comm, bool rendezvous)
      : comm(comm), rendezvous(rendezvous) {}
  ~MpiSeat() override { MPI_Comm_free(&comm); }
  std::unique_ptr<Request> exchange(int tag, const std::vector<Piece> &sends,
                                    const std::vector<Piece> &receives,
                                    const char *what) override {
    auto request = std::make_unique<MpiRequest>(what, rendezvous);
    for (const Piece &piece : receives)
      if (!request->start(piece, tag, comm, false))
        return nullptr;
    for (const Piece &piece : sends)
      if (!request->start(piece, tag, comm, true))
        return nullptr;
    return request;
  }

private:
  MPI_Comm comm;
  bool rendezvous;
};

class MpiTransport : public Transport {
public:
  explicit MpiTransport(bool rendezvous) : rendezvous(rendezvous) {}
  heddle_rt_status start();
  int rank() const override { return self; }
  int size() const override { return ranks; }
  heddle_rt_status split(int color, int rank, int size, const char *axis,
                         double timeoutSeconds,
                         std::unique_ptr<Seat> &seat) override;
  void abort(int exitCode, const std::string &why) override {
    std::fprintf(stderr, "rank %d: %s\n", self, why.c_str());
    std::fflush(nullptr);
    const int code = exitCode ? exitCode : 1;
    runtime::recordEnding(code);
    MPI_Abort(MPI_COMM_WORLD, code);
  }
  heddle_rt_status alive() const override { return HEDDLE_RT_OK; }
  void closing() override {}
  std::vector<int> gone() const override { return {}; } // nobody says so
  void leave() override {
    MPI_Comm_free(&world);
    MPI_Finalize();
  }
  uint64_t version() override { return 0; }
  /// With more ranks than cores a waiting rank must give its core away.
  void idle(uint64_t) override { sched_yield(); }
  bool hold(uint64_t, double seconds) override {
    constexpr double kPatience = 2e-3; // nobody sees all processes
    sched_yield();
    return seconds > kPatience;
  }

private:
  MPI_Comm world = MPI_COMM_NULL;
  int self = 0, ranks = 1;
  bool rendezvous;
};

heddle_rt_status MpiTransport::start() {
  int begun = 0, ended = 0;
  MPI_Initialized(&begun);
  MPI_Finalized(&ended);
  if (begun || ended)
    return invalid("a process has one context under MPI, and it had one");
  int provided = 0;
  if (!succeeded(
          MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided),
          "MPI_Init_thread") ||
      !succeeded(MPI_Comm_dup(MPI_COMM_WORLD, &world), "MPI_Comm_dup"))
    return HEDDLE_RT_DEVICE_ERROR;
  MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN); // inherited by splits
  MPI_Comm_rank(world, &self);
  MPI_Comm_size(world, &ranks);
  return HEDDLE_RT_OK;
}

heddle_rt_status MpiTransport::split(int color, int rank, int size,
                                     const char *axis, double,
                                     std::unique_ptr<Seat> &seat) {
  MPI_Comm comm = MPI_COMM_NULL;
  if (!succeeded(
          MPI_Comm_split(world, color < 0 ? MPI_UNDEFINED : color, rank, &comm),
          axis))
    return HEDDLE_RT_PEER_FAILED;
  int gotRank = 0, gotSize = 0;
  if (comm != MPI_COMM_NULL) {
    MPI_Comm_rank(comm, &gotRank);
    MPI_Comm_size(comm, &gotSize);
    seat = std::make_unique<MpiSeat>(comm, rendezvous);
  }
  // Everybody learns of a misfit, so that nobody goes on alone.
  int fits = color < 0 || (gotRank == rank && gotSize == size), all = 0;
  if (!succeeded(MPI_Allreduce(&fits, &all, 1, MPI_INT, MPI_MIN, world), axis))
    return HEDDLE_RT_PEER_FAILED;
  if (all)
    return HEDDLE_RT_OK;
  seat.reset();
  if (fits)
    return invalid("communicator {}: places and sizes do not fit on another "
                   "rank",
                   axis);
  return invalid("communicator {}: rank {} asked for place {} of {} in color "
                 "{}, the others leave place {} of {}",
                 axis, self, rank, size, color, gotRank, gotSize);
}

} // namespace

bool isBuiltWithMpi() { return true; }

heddle_rt_status joinMpi(std::unique_ptr<Transport> &transport,
                         bool rendezvous) {
  auto made = std::make_unique<MpiTransport>(rendezvous);
  HEDDLE_RT_TRY(made->start());
  transport = std::move(made);
  return HEDDLE_RT_OK;
}

} // namespace heddle::ranks

#else

namespace heddle::ranks {

bool isBuiltWithMpi() { return false; }

heddle_rt_status joinMpi(std::unique_ptr<Transport> &, bool) {
  return runtime::invalid("this program was built without MPI");
}

} // namespace heddle::ranks

#endif
