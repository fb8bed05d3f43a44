//===- Options.h - The command line of an emitted program -----------------===//

#ifndef RUNTIME_TRAIN_OPTIONS_H
#define RUNTIME_TRAIN_OPTIONS_H

#include "heddle/Support/Result.h"

#include "runtime/train/Inject.h"

#include <cstdint>
#include <string>

namespace heddle::train {

struct Options {
  std::string tables; ///< tables.bin
  std::string data;
  std::string log;     ///< "" writes none
  std::string weights; ///< "" for random initial values
  std::string dump;    ///< loss, gradients and parameters after the last step
  std::string save;    ///< parameters after the last step
  std::string checkpoints; ///< folder of them
  std::string saveEvery;   ///< steps, "auto" or "" for never
  std::string trace;       ///< where --dry writes; "" for stdout
  std::string inject;      ///< as `fault` is
  InjectedFault fault;     ///< of --inject
  std::string ranges;      ///< folder for what each rank's last step touches
  int64_t steps = 0;       ///< 0: as many as the schedule says, else 1
  int64_t tokenBytes = 0;  ///< of a .bin; 0: by the size of the vocabulary
  int64_t replicaCheck = 0;
  int64_t sumCheck = 0; ///< as replicaCheck: every so many steps, 0: never
  int64_t replay = 0;
  int64_t guard = 0;     ///< steps in a row that may be passed over
  int64_t normLimit = 0; ///< times the usual norm; 0: none
  int64_t injectInf = 0; ///< the step of --inject-inf; 0: none
  int64_t keep = 2;      ///< checkpoints
  int64_t rank = 0;      ///< of --dry, --inject and --inject-inf
  int64_t seed = 1;      ///< of --check
  int64_t computeThreads = 0;
  bool threads = false, check = false, dry = false, testInit = false;
  bool resume = false;
  bool anyOwner = false; ///< of the folder of checkpoints
  bool help = false;

  bool savesOrResumes() const { return resume || !saveEvery.empty(); }
  /// Steps from one checkpoint to the next; 0: never, or as it finds best.
  int64_t saveSteps() const;
};

/// The text of --help.
std::string usage();

/// Defaults of paths are beside the program: `program` is argv[0].
Result<Options> parseOptions(int argc, const char *const *argv);

} // namespace heddle::train

#endif
