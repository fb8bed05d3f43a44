//===- Subject.h - A small model under a plan, after each phase -*- C++ -*-===//

#ifndef HEDDLE_TOOLS_MUTATE_SUBJECT_H
#define HEDDLE_TOOLS_MUTATE_SUBJECT_H

#include "passes/Pipelines/Pipelines.h"

#include <map>
#include <string>

namespace heddle::mutate {

/// What faults are planted into: one tiny model under one plan, compiled once,
/// and the same step on one device, which says what is right.
class Subject {
public:
  /// Compiles number `index` of the built-in subjects. A failure is in `error`.
  static std::unique_ptr<Subject> create(mlir::MLIRContext &context,
                                         unsigned index, std::string &error);
  static unsigned count();
  static const char *nameOf(unsigned index);

  /// A copy of the module after `phase`, Sharding to Memory.
  mlir::OwningOpRef<mlir::ModuleOp> copyAfter(Phase phase) const;
  mlir::ModuleOp reference() const { return oneDevice.get(); }
  /// The reference after Memory.
  mlir::ModuleOp referenceProgram() const { return oneProgram.get(); }
  /// Places buffers and writes tables: what phase Memory does.
  mlir::LogicalResult place(mlir::ModuleOp module) const;

  bool computesInBf16() const { return plan.precision.compute == "bf16"; }
  const std::string &name() const { return title; }

private:
  std::string title;
  ModelConfig model;
  TrainSettings train;
  Plan plan;
  mlir::OwningOpRef<mlir::ModuleOp> oneDevice, oneProgram;
  std::map<Phase, mlir::OwningOpRef<mlir::ModuleOp>> modules;
};

} // namespace heddle::mutate

#endif // HEDDLE_TOOLS_MUTATE_SUBJECT_H
