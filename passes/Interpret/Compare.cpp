//===- Compare.cpp - is one module the same step as another ---------------===//

#include "passes/Interpret/Compare.h"

#include "llvm/Support/FormatVariadic.h"

#include <cmath>

using namespace mlir;
using namespace heddle;
using namespace heddle::interpret;
using transformer::StateKind;
using transformer::StateOp;

//===----------------------------------------------------------------------===//
// Measuring
//===----------------------------------------------------------------------===//

static double normOf(const Tensor &tensor) {
  double sum = 0;
  for (double value : tensor.floats)
    sum += value * value;
  return std::sqrt(sum);
}

static double ratioOf(double difference, double reference) {
  return difference == 0 ? 0 : difference / reference;
}

Difference heddle::interpret::measureDifference(std::string name,
                                                const Tensor &reference,
                                                const Tensor &candidate,
                                                double norm) {
  Difference result;
  result.name = std::move(name);
  double sum = 0;
  for (size_t i = 0; i < reference.floats.size(); ++i) {
    double difference = std::fabs(reference.floats[i] - candidate.floats[i]);
    sum += difference * difference;
    // Not std::max: it would drop a difference that is not a number.
    if (!(difference <= result.largest))
      result.largest = difference;
  }
  result.relative =
      ratioOf(std::sqrt(sum), std::max(normOf(reference), 1e-6 * norm));
  return result;
}

/// Worse first, what is not a number before all.
static bool isWorse(const Difference &a, const Difference &b) {
  if (std::isnan(a.relative) || std::isnan(b.relative))
    return std::isnan(a.relative) && !std::isnan(b.relative);
  return a.relative > b.relative;
}

bool StepComparison::isEqual(double tolerance) const {
  auto within = [&](const Difference &difference) {
    return difference.relative <= tolerance; // false for NaN
  };
  return faults.empty() && count == referenceCount &&
         lossRelative <= tolerance && normRelative <= tolerance &&
         llvm::all_of(gradients, within) && llvm::all_of(parameters, within) &&
         llvm::all_of(moments, within);
}

std::string StepComparison::describe(unsigned atMost) const {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << llvm::formatv("loss {0:e12} against {1:e12}, relative {2:e2}\n", loss,
                      referenceLoss, lossRelative)
     << "counted labels " << count << " against " << referenceCount << "\n"
     << llvm::formatv(
            "gradient norm {0:e12} against {1:e12}, relative {2:e2}\n", norm,
            referenceNorm, normRelative);
  for (const std::string &fault : faults)
    os << "fault: " << fault << "\n";
  for (auto [kind, list] :
       {std::pair("gradient", &gradients), std::pair("parameter", &parameters),
        std::pair("moment", &moments)})
    for (const Difference &difference : ArrayRef(*list).take_front(atMost))
      os << llvm::formatv("{0} {1}: relative {2:e2}, largest {3:e2}\n", kind,
                          difference.name, difference.relative,
                          difference.largest);
  return text;
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

namespace {
struct StepResults {
  double loss = 0, norm = 0;
  int64_t count = 0;
};
} // namespace

/// Runs the steps; returns what the last one reports.
static FailureOr<StepResults> runSteps(Machine &machine, const Batch &batch,
                                       const CompareOptions &options) {
  std::map<std::string, Tensor> named;
  for (int64_t step = 1; step <= options.steps; ++step) {
    FailureOr<Inputs> inputs = makeStepInputs(
        machine, batch,
        {options.learningRate, options.firstStep + step - 1, options.seed});
    if (failed(inputs))
      return failure();
    FailureOr<std::vector<NamedValue>> results = machine.run("step", *inputs);
    if (failed(results))
      return failure();
    for (NamedValue &value : *results)
      named[value.name] = value.getTensor();
  }
  for (const char *name : {"loss", "count", "gradient_norm"})
    if (!named.count(name))
      return machine.getModule().emitOpError()
             << "has a @step without result '" << name << "'";
  return StepResults{named["loss"].floats[0], named["gradient_norm"].floats[0],
                     named["count"].integers[0]};
}

/// Every instance of the states of a kind, in both machines.
static LogicalResult collectKind(Machine &reference, Machine &candidate,
                                 StateKind kind,
                                 std::vector<Difference> &differences,
                                 std::vector<std::string> &faults) {
  struct Pair {
    std::string name;
    Tensor reference, candidate;
  };
  std::vector<Pair> pairs;
  double squares = 0;
  for (StateOp state : reference.getStates()) {
    if (state.getKind() != kind)
      continue;
    for (int64_t layer = 0; layer < reference.getCount(state); ++layer) {
      FailureOr<Tensor> expected = getUnscaled(reference, state, layer);
      if (failed(expected))
        return failure();
      squares += normOf(*expected) * normOf(*expected);
      std::string fault;
      FailureOr<Tensor> found = getUnscaled(candidate, state, layer, &fault);
      if (failed(found) && fault.empty())
        return failure();
      if (failed(found)) {
        faults.push_back(fault);
        continue;
      }
      if (found->shape != expected->shape)
        return state.emitOpError()
               << "is " << describe(*expected) << " here, but "
               << describe(*found) << " in the other module";
      pairs.push_back({getInstanceName(state, layer), std::move(*expected),
                       std::move(*found)});
    }
  }
  for (Pair &pair : pairs)
    differences.push_back(measureDifference(
        pair.name, pair.reference, pair.candidate, std::sqrt(squares)));
  llvm::stable_sort(differences, isWorse);
  return success();
}

FailureOr<StepComparison>
heddle::interpret::compareSteps(Machine &reference, Machine &candidate,
                                const Batch &batch,
                                const CompareOptions &options) {
  FailureOr<StepResults> expected = runSteps(reference, batch, options);
  if (failed(expected))
    return failure();
  FailureOr<StepResults> found = runSteps(candidate, batch, options);
  if (failed(found))
    return failure();
  StepComparison result;
  result.referenceLoss = expected->loss;
  result.loss = found->loss;
  result.lossRelative = ratioOf(std::fabs(found->loss - expected->loss),
                                std::fabs(expected->loss));
  result.referenceCount = expected->count;
  result.count = found->count;
  result.referenceNorm = expected->norm;
  result.norm = found->norm;
  result.normRelative =
      ratioOf(std::fabs(found->norm - expected->norm), expected->norm);
  if (failed(collectKind(reference, candidate, StateKind::Gradient,
                         result.gradients, result.faults)) ||
      failed(collectKind(reference, candidate, StateKind::Parameter,
                         result.parameters, result.faults)) ||
      failed(collectKind(reference, candidate, StateKind::AdamM, result.moments,
                         result.faults)) ||
      failed(collectKind(reference, candidate, StateKind::AdamV, result.moments,
                         result.faults)))
    return failure();
  return result;
}

FailureOr<StepComparison>
heddle::interpret::compareSteps(ModuleOp referenceModule,
                                ModuleOp candidateModule,
                                const CompareOptions &options) {
  FailureOr<Machine> reference =
      Machine::create(referenceModule, {options.reading});
  FailureOr<Machine> candidate =
      Machine::create(candidateModule, {options.reading});
  if (failed(reference) || failed(candidate) ||
      failed(setTestParameters(*reference, options.seed)) ||
      failed(setTestParameters(*candidate, options.seed)))
    return failure();
  if (options.batch)
    return compareSteps(*reference, *candidate, *options.batch, options);
  FailureOr<std::array<int64_t, 3>> shape = getBatchShape(*reference);
  if (failed(shape))
    return failure();
  FailureOr<int64_t> vocabulary = getVocabulary(referenceModule);
  if (failed(vocabulary))
    return failure();
  Batch batch = makeTestBatch((*shape)[0] * (*shape)[1], (*shape)[2],
                              *vocabulary, options.seed);
  return compareSteps(*reference, *candidate, batch, options);
}
