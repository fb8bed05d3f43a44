//===- Checks.h - Which check finds a fault ---------------------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_MUTATE_CHECKS_H
#define HEDDLE_TOOLS_MUTATE_CHECKS_H

#include "tools/mutate/Built.h"
#include "tools/mutate/Fault.h"
#include "tools/mutate/Subject.h"

#include <map>

namespace heddle::mutate {

/// What became of a mutant. `by` is the check that found it ("" where none
/// did), `why` its first sentence, or the rule that shows the mutant right.
struct Verdict {
  std::string by, why;
  bool equivalent = false;
};

/// The checks in their order: ops' verifiers, verifiers of the phase, the
/// phases behind it, the interpreter against one device; of rt, order, arenas,
/// launches, and the emitted program against the right one.
class Checks {
public:
  Verdict judge(const Subject &subject, Phase phase, mlir::ModuleOp mutant,
                const Fault &fault);

private:
  /// The file of what a program leaves; "" after a failure, said in `error`.
  std::string valuesOf(mlir::ModuleOp module, std::string &error);
  /// What the right program of a subject leaves, which has to report what one
  /// device does.
  std::string expectedOf(const Subject &subject, std::string &error);
  Verdict judgeTensors(const Subject &subject, Phase phase,
                       mlir::ModuleOp mutant);
  Verdict judgeProgram(const Subject &subject, Phase phase,
                       mlir::ModuleOp mutant, const Fault &fault);
  /// `inAnyOrder`: in random late orders too, which then have to leave the same
  /// bits.
  Verdict runProgram(const Subject &subject, mlir::ModuleOp mutant,
                     bool inAnyOrder);

  Folder folder;
  unsigned programs = 0;
  std::map<const Subject *, std::string> expected;
};

} // namespace heddle::mutate

#endif // HEDDLE_TOOLS_MUTATE_CHECKS_H
