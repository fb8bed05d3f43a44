//===- Pipelines.h - the whole compilation, in order ------------*- C++ -*-===//

#ifndef HEDDLE_PASSES_PIPELINES_PIPELINES_H
#define HEDDLE_PASSES_PIPELINES_PIPELINES_H

#include "heddle/Model/TrainSettings.h"
#include "heddle/Plan/Plan.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <functional>

namespace heddle {

/// What a compilation starts from.
struct CompileInput {
  const ModelConfig &model;
  const TrainSettings &train;
  const Plan &plan;
};

/// The phases, each leaving a module that verifies. Those before Lowering leave
/// programs on tensors, which the interpreter can run.
enum class Phase {
  Import,
  Autodiff,
  Sharding,
  Precision,
  Collectives,
  Stages,
  Recompute,
  Overlap,
  Lowering,
  Memory
};
inline constexpr Phase kPhases[] = {
    Phase::Import,      Phase::Autodiff, Phase::Sharding,  Phase::Precision,
    Phase::Collectives, Phase::Stages,   Phase::Recompute, Phase::Overlap,
    Phase::Lowering,    Phase::Memory};

/// "01-import", ...
std::string phaseName(Phase phase);

/// Called after each phase.
using PhaseObserver = std::function<void(Phase, mlir::ModuleOp)>;

/// Compiles up to and with `last`. Messages go to the context's diagnostics.
mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>
compileUpTo(mlir::MLIRContext &context, const CompileInput &input, Phase last,
            const PhaseObserver &observer = {});

} // namespace heddle

#endif // HEDDLE_PASSES_PIPELINES_PIPELINES_H
