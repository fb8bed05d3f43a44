//===- Integrity.h - Checks of what reductions are given and make ---------===//
//
// A sum over ranks is linear: the sum of its results is the sum of the sums of
// what each rank gave, up to rounding. So a bit that is flipped on the way is
// found by two numbers that travel with each slice. What is wrong before it is
// given is summed honestly, and found only where the same step is run again
// with the same bits.
//
//===----------------------------------------------------------------------===//

#ifndef RUNTIME_RANKS_INTEGRITY_H
#define RUNTIME_RANKS_INTEGRITY_H

#include "runtime/ranks/Transport.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace heddle::ranks {

/// Travels with a slice.
struct SliceSum {
  double sum = 0, magnitude = 0; ///< of the elements, of their absolute values
};

/// What a rank looks at in the sums of floats that it takes part in. Which of
/// it is on must be the same on all ranks of a step.
class Integrity {
public:
  struct Look {
    bool sums = false;    ///< of slices, before and after
    bool numbers = false; ///< whether all that is given is finite
    bool hashes = false;  ///< of all that is given
  };
  /// Forgets what was found.
  void begin(const Look &look);
  bool looksAtAnything() const {
    return look.sums || look.numbers || look.hashes || counts;
  }
  const Look &looks() const { return look; }

  struct WrongSum {
    std::string name; ///< of the collective
    int64_t number;   ///< of the reduction in the step
    int place;        ///< whose slice it is
    bool wasCopied;   ///< right where it was made, wrong here
    double off, tolerance;
  };
  /// An element that a rank gave to a sum.
  struct Element {
    std::string name;
    int64_t number;
    const void *at;
    int64_t element; ///< its index in what the rank gave
    double value;
  };
  std::optional<WrongSum> wrongSum; ///< the first ones
  std::optional<Element> noNumber;
  std::optional<Element> largest; ///< by absolute value, where all are finite
  std::vector<uint64_t> hashes;   ///< of each reduction, in order
  int64_t reductions = 0;         ///< in the step so far

  /// Whether reductions are counted though nothing is looked at: for faults.
  bool counts = false;
  /// Those of at least so many elements; in this step, and in the one before.
  static constexpr int64_t kLarge = 64;
  int64_t large = 0, largeBefore = 0;

  /// A fault to inject into the `number`-th large reduction of the step: gets
  /// the bytes that it may change.
  enum class Where { Given, OnTheWay, Result };
  struct Tamper {
    int64_t number = 0;
    Where where = Where::Given;
    std::function<void(const Strided &)> change;
  };
  std::optional<Tamper> tamper;
  /// \param largeNumber  of the reduction among the large ones, -1: it is none.
  void tamperWith(int64_t largeNumber, Where where, const Strided &memory);

  // Called by collectives.
  struct Number {
    int64_t all, large;
  };
  Number beginReduction(int64_t elements);
  /// Looks at one slice of what is given; `first` is its first element's index.
  void given(int64_t number, const char *name, const Strided &slice,
             int64_t first, heddle_rt_dtype dtype, SliceSum &sum);
  /// The slice that this rank has summed, against what all said.
  void summed(int64_t number, const char *name, int place, const Strided &slice,
              heddle_rt_dtype dtype, const std::vector<SliceSum> &all,
              SliceSum &sum);
  /// A slice that came from who has summed it.
  void copied(int64_t number, const char *name, int place, const Strided &slice,
              heddle_rt_dtype dtype, const SliceSum &sum);

private:
  Look look;
  double largestSum = 0; ///< of absolute values, of a slice
};

/// Whether a dtype's elements are looked at.
bool isFloat(heddle_rt_dtype dtype);
SliceSum sumOf(const Strided &slice, heddle_rt_dtype dtype);

} // namespace heddle::ranks

#endif
