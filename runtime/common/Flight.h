//===- Flight.h - Tells who watches what this rank does -------------------===//

#ifndef RUNTIME_COMMON_FLIGHT_H
#define RUNTIME_COMMON_FLIGHT_H

#include "heddle/Runtime/Flight.h"
#include "heddle/Runtime/heddle_rt.h"

#include <cstdint>
#include <vector>

namespace heddle::runtime {

/// One rank's page (heddle/Runtime/Flight.h). Where nobody asked for one, every
/// call is a test of a pointer. Only the rank's own thread may call.
class Flight {
public:
  Flight() = default;
  ~Flight();
  Flight(const Flight &) = delete;
  Flight &operator=(const Flight &) = delete;

  /// Maps the page where the environment asks for one. INVALID_ARGUMENT where
  /// that cannot be done.
  heddle_rt_status open(int32_t rank, int32_t size);

  void setRole(int32_t role);
  /// What this rank fails with now may not come again.
  void tellMayPass();
  void enter(Section section);
  void beginStep(int64_t step);
  void endStep();
  /// -1 outside of steps. Known without a page too.
  int64_t currentStep() const { return current; }
  /// Processor time of this thread in the step, without waits.
  int64_t computed() const;
  /// A communicator was made; -1: there are more than a page has.
  int32_t addComm(const char *axis, int32_t split, int32_t color, int32_t place,
                  int32_t size);

  /// A piece of work is queued.
  void operation(int stream, const char *name) {
    if (page)
      write(stream, name);
  }
  /// The piece of work told last is a message or collective.
  void isCall(int32_t comm, bool collective, int64_t elements,
              heddle_rt_dtype dtype, int32_t peer);

  /// A wait for peers, as long as it lives.
  class Wait {
  public:
    explicit Wait(Flight &flight) : flight(flight) { flight.beginWait(); }
    ~Wait() { flight.endWait(); }
    Wait(const Wait &) = delete;
    Wait &operator=(const Wait &) = delete;

  private:
    Flight &flight;
  };
  /// Whether it is time to tell what is waited for.
  bool waitsLong();
  void tellPending(const std::vector<int> &places);

  /// After so many more operations, `spring` is called, once.
  void setTrap(uint64_t operations, void (*spring)());

private:
  void write(int stream, const char *name);
  void beginWait();
  void endWait();

  FlightPage *page = nullptr;
  int64_t current = -1;
  int64_t stepStarted = 0, stepCpu = 0; ///< at the beginning of the step
  int64_t waited = 0, waitedCpu = 0;    ///< in this step
  int64_t waitStarted = 0, waitCpu = 0, lastTold = 0;
  uint64_t trap = 0; ///< sequence; 0: none
  void (*spring)() = nullptr;
};

} // namespace heddle::runtime

#endif
