//===- heddle-mutate.cpp - Plants faults and says which check finds them --===//
//
//   heddle-mutate [--seed N] [--count N] [--subject TEXT] [--phase TEXT]
//   [--kind TEXT] [--verbose]
//
// Of the subjects, phases and kinds of faults only those whose names contain
// TEXT.
//
// Exit code 0: each mutant was caught or shown equivalent; 1: one was not; 2: a
// wrong argument.
//
//===----------------------------------------------------------------------===//

#include "tools/mutate/Checks.h"

#include "mlir/IR/MLIRContext.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <fmt/format.h>

#include <random>
#include <set>

using namespace mlir;
using namespace heddle;
using namespace heddle::mutate;

namespace {

struct Options {
  uint64_t seed = 1;
  unsigned count = 100;
  bool verbose = false;
  std::string subject, phase, kind;
};

bool parse(int argc, char **argv, Options &options) {
  for (int i = 1; i < argc; ++i) {
    StringRef word = argv[i];
    if (word == "--verbose")
      options.verbose = true;
    else if (word == "--seed" && i + 1 < argc &&
             !StringRef(argv[i + 1]).getAsInteger(10, options.seed))
      ++i;
    else if (word == "--count" && i + 1 < argc &&
             !StringRef(argv[i + 1]).getAsInteger(10, options.count))
      ++i;
    else if (word == "--subject" && i + 1 < argc)
      options.subject = argv[++i];
    else if (word == "--phase" && i + 1 < argc)
      options.phase = argv[++i];
    else if (word == "--kind" && i + 1 < argc)
      options.kind = argv[++i];
    else
      return false;
  }
  return true;
}

constexpr Phase kMutated[] = {
    Phase::Sharding,  Phase::Precision, Phase::Collectives, Phase::Stages,
    Phase::Recompute, Phase::Overlap,   Phase::Lowering,    Phase::Memory};

std::vector<Fault> join(std::vector<Fault> faults, std::vector<Fault> more) {
  faults.insert(faults.end(), std::make_move_iterator(more.begin()),
                std::make_move_iterator(more.end()));
  return faults;
}

std::vector<Fault> findFaults(Phase phase, ModuleOp module) {
  switch (phase) {
  case Phase::Sharding:
    return findLayoutFaults(module);
  case Phase::Precision:
    return join(findLayoutFaults(module), findFormatFaults(module));
  case Phase::Collectives:
    return join(join(findCollectiveFaults(module), findDropoutFaults(module)),
                join(findStorageFaults(module), findFormatFaults(module)));
  case Phase::Stages:
    return join(join(findCollectiveFaults(module), findStageFaults(module)),
                findFormatFaults(module));
  case Phase::Recompute:
    return join(findRecomputeFaults(module), findDropoutFaults(module));
  case Phase::Overlap:
    return join(join(findCollectiveFaults(module), findStageFaults(module)),
                join(findBucketFaults(module), findFormatFaults(module)));
  default:
    return join(join(findProgramFaults(module, phase == Phase::Memory),
                     findSlotFaults(module)),
                findStageProgramFaults(module, phase == Phase::Memory));
  }
}

class Mutation {
public:
  explicit Mutation(const Options &options)
      : options(options), random(options.seed) {
    for (unsigned i = 0; i < Subject::count(); ++i)
      if (StringRef(Subject::nameOf(i)).contains(options.subject))
        indices.push_back(i);
    for (Phase phase : kMutated)
      if (StringRef(phaseName(phase)).contains(options.phase))
        phases.push_back(phase);
  }

  /// What is asked for by a name that nothing has; "" if all is there.
  std::string missing() const {
    if (indices.empty())
      return "--subject " + options.subject;
    return phases.empty() ? "--phase " + options.phase : "";
  }

  /// Whether all mutants were caught or are right.
  bool run() {
    for (unsigned i = 0; i < options.count; ++i)
      if (!one(i + 1))
        return false;
    print();
    return survivors.empty();
  }

private:
  template <class T>
  T &pick(std::vector<T> &from) {
    return from[random() % from.size()];
  }

  Subject *subject(unsigned index) {
    auto &made = subjects[index];
    std::string error;
    if (!made && !(made = Subject::create(context, index, error)))
      fmt::print(stderr, "error: {}\n", error);
    return made.get();
  }

  /// Draws a subject, a phase, a kind, and a fault of this kind, so that rare
  /// kinds are as likely as frequent ones.
  bool one(unsigned number) {
    Subject *where = subject(pick(indices));
    if (!where)
      return false;
    Phase phase = pick(phases);
    OwningOpRef<ModuleOp> mutant = where->copyAfter(phase);
    std::vector<Fault> faults = findFaults(phase, *mutant);
    std::set<std::string> names;
    for (const Fault &fault : faults)
      if (StringRef(fault.kind).contains(options.kind))
        names.insert(fault.kind);
    if (names.empty())
      return true; // this module has no fault of these kinds
    std::vector<std::string> kinds(names.begin(), names.end());
    std::string kind = pick(kinds);
    llvm::erase_if(faults, [&](const Fault &f) { return f.kind != kind; });
    Fault fault = pick(faults);
    fault.plant();
    Verdict verdict = checks.judge(*where, phase, *mutant, fault);
    std::string name =
        fmt::format("{:3} {}, after {}: {}: {}", number, where->name(),
                    phaseName(phase), kind, fault.where);
    std::string by = verdict.equivalent   ? "equivalent"
                     : verdict.by.empty() ? "SURVIVES"
                                          : verdict.by;
    ++table[{phaseName(phase), kind}][by];
    ++totals[by];
    if (options.verbose)
      fmt::print("{}\n      {}: {}\n", name, by, verdict.why);
    if (verdict.equivalent)
      equivalents.push_back(name + "\n      " + verdict.why);
    else if (verdict.by.empty())
      survivors.push_back(name);
    std::fflush(stdout);
    return true;
  }

  void print() const {
    fmt::print("{:15}{:38}{}\n", "phase", "fault", "caught by");
    for (const auto &[key, found] : table) {
      std::string text;
      for (const auto &[by, count] : found)
        text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", count, by);
      fmt::print("{:15}{:38}{}\n", key.first, key.second, text);
    }
    fmt::print("\n");
    for (const auto &[by, count] : totals)
      fmt::print("{:4} {}\n", count, by);
    for (const std::string &name : equivalents)
      fmt::print("equivalent: {}\n", name);
    for (const std::string &name : survivors)
      fmt::print("SURVIVES:   {}\n", name);
  }

  const Options &options;
  std::mt19937_64 random;
  std::vector<unsigned> indices;
  std::vector<Phase> phases;
  MLIRContext context{MLIRContext::Threading::DISABLED};
  std::map<unsigned, std::unique_ptr<Subject>> subjects;
  Checks checks;
  std::map<std::pair<std::string, std::string>, std::map<std::string, unsigned>>
      table;
  std::map<std::string, unsigned> totals;
  std::vector<std::string> equivalents, survivors;
};

} // namespace

int main(int argc, char **argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    fmt::print(stderr,
               "usage: heddle-mutate [--seed N] [--count N] [--subject TEXT] "
               "[--phase TEXT] "
               "[--kind TEXT] [--verbose]\n");
    return 2;
  }
  Mutation mutation(options);
  if (std::string missing = mutation.missing(); !missing.empty()) {
    fmt::print(stderr, "error: no name contains what {} asks for\n", missing);
    return 2;
  }
  return mutation.run() ? 0 : 1;
}
