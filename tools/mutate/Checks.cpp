//===- Checks.cpp - Which check finds a fault -----------------------------===//

#include "tools/mutate/Checks.h"

#include "passes/Collectives/Passes.h"
#include "passes/Interpret/Compare.h"
#include "passes/Lowering/Passes.h"
#include "passes/Precision/Passes.h"
#include "passes/Sharding/Passes.h"

#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/MemoryBuffer.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>

using namespace mlir;
using namespace heddle;
using namespace heddle::mutate;

namespace {

constexpr double kTolerance = 1e-9;
/// Of loss and norm against one device's, in the plan's formats: large
/// parameters and a large rate make much of rounding. In bf16 the two steps of
/// the subjects with it came to 1.2e-2.
constexpr double kReported = 5e-3, kReportedBf16 = 3e-2;
/// Two steps: what one leaves undone, the next one meets.
constexpr int kSteps = 2;
/// Random late orders that an order is tried in.
constexpr int kOrders = 8;

/// Keeps the first error in place of printing it.
class FirstError {
public:
  explicit FirstError(MLIRContext *context)
      : handler(context, [this](Diagnostic &diagnostic) {
          if (diagnostic.getSeverity() == DiagnosticSeverity::Error &&
              text.empty())
            text = diagnostic.str();
          return success();
        }) {}
  std::string text;

private:
  ScopedDiagnosticHandler handler;
};

bool runPass(ModuleOp module, std::unique_ptr<Pass> pass) {
  PassManager passes(module.getContext());
  passes.addPass(std::move(pass));
  return succeeded(passes.run(module));
}

} // namespace

Verdict Checks::judge(const Subject &subject, Phase phase, ModuleOp mutant,
                      const Fault &fault) {
  Verdict verdict;
  {
    FirstError error(mutant.getContext());
    if (failed(verify(mutant)))
      verdict = {"verifiers of ops", error.text};
    else
      verdict = phase <= Phase::Overlap
                    ? judgeTensors(subject, phase, mutant)
                    : judgeProgram(subject, phase, mutant, fault);
    if (verdict.why.empty())
      verdict.why = error.text;
  }
  if (verdict.by.empty() && !verdict.equivalent && !fault.equivalent.empty())
    verdict = {"", fault.equivalent, true};
  return verdict;
}

Verdict Checks::judgeTensors(const Subject &subject, Phase phase,
                             ModuleOp mutant) {
  if (phase >= Phase::Precision && !runPass(mutant, createVerifyFormatsPass()))
    return {"precision-verify-formats", ""};
  if (phase <= Phase::Precision) {
    if (!runPass(mutant, createVerifyLayoutsPass()))
      return {"sharding-verify-layouts", ""};
    if (!runPass(mutant, createPartitionPass()))
      return {"collectives-partition", ""};
  }
  if (!runPass(mutant, createVerifyCollectivesPass()))
    return {"collectives-verify", ""};
  auto comparison = interpret::compareSteps(subject.reference(), mutant);
  if (failed(comparison))
    return {"interpreter: cannot run", ""};
  if (!comparison->faults.empty())
    return {"interpreter: replicas, padding", comparison->faults.front()};
  if (!comparison->isEqual(kTolerance))
    return {"interpreter: one device", comparison->describe(1)};
  return {};
}

Verdict Checks::judgeProgram(const Subject &subject, Phase phase,
                             ModuleOp mutant, const Fault &fault) {
  if (phase == Phase::Lowering && failed(subject.place(mutant)))
    return {"memory-place-buffers", ""};
  if (!runPass(mutant, createVerifyOrderPass()))
    return {"lowering-verify-order", ""};
  if (!runPass(mutant, createVerifyArenasPass()))
    return {"lowering-verify-arenas", ""};
  if (!runPass(mutant, createVerifyLaunchesPass()))
    return {"lowering-verify-launches", ""};
  Verdict verdict = runProgram(subject, mutant, fault.proven);
  if (verdict.by.empty() && fault.proven)
    return {"",
            "all work is still ordered, no byte read as another buffer's, and "
            "every order leaves the same bits",
            true};
  return verdict;
}

std::string Checks::valuesOf(ModuleOp module, std::string &error) {
  std::string name = "right" + std::to_string(programs++);
  Built built(folder, name);
  FirstError first(module.getContext());
  if (failed(built.build(module, error)))
    return error += ": " + first.text, "";
  Answer answer = built.run(kSteps, {"write", folder / (name + ".values")});
  if (answer.code != 0)
    return error = answer.text, "";
  return folder / (name + ".values");
}

/// What the first rank reports of the last step: gradient norm and loss.
static std::array<float, 2> reportIn(const std::string &file) {
  std::array<float, 2> report = {};
  if (auto bytes = llvm::MemoryBuffer::getFile(file);
      bytes && (*bytes)->getBufferSize() >= sizeof report)
    std::memcpy(report.data(), (*bytes)->getBufferStart(), sizeof report);
  return report;
}

std::string Checks::expectedOf(const Subject &subject, std::string &error) {
  std::string &file = expected[&subject];
  if (!file.empty())
    return file;
  std::string found = valuesOf(*subject.copyAfter(Phase::Memory), error),
              one = valuesOf(subject.referenceProgram(), error);
  if (found.empty() || one.empty())
    return "";
  const double allowed = subject.computesInBf16() ? kReportedBf16 : kReported;
  for (auto [a, b] : llvm::zip(reportIn(found), reportIn(one)))
    if (!(std::fabs(a - b) <= allowed * std::fabs(b))) {
      error = fmt::format("it reports {}, one device {}", a, b);
      return "";
    }
  return file = found;
}

Verdict Checks::runProgram(const Subject &subject, ModuleOp mutant,
                           bool inAnyOrder) {
  std::string error, right = expectedOf(subject, error);
  if (right.empty())
    llvm::report_fatal_error(llvm::Twine("the right program of ") +
                             subject.name() + " does not run: " + error);
  Built built(folder, "mutant");
  if (failed(built.build(mutant, error)))
    return {"host compiler", error.substr(0, error.find('\n'))};
  Answer answer = built.run(kSteps, {"compare", right});
  if (answer.code == 1)
    return {"emitted program: values", "differs by " + answer.text};
  if (answer.code != 0)
    return {"emitted program: runtime", answer.text};
  if (!inAnyOrder)
    return {};
  answer = built.run(kSteps, {"late", right, std::to_string(kOrders)});
  if (answer.code != 0 || answer.text != fmt::format("0 of {}", kOrders))
    return {"emitted program: late orders", answer.text + " differ in a bit"};
  return {};
}
