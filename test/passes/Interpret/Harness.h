//===- Harness.h - parsing and running small modules ------------*- C++ -*-===//

#ifndef HEDDLE_TEST_PASSES_INTERPRET_HARNESS_H
#define HEDDLE_TEST_PASSES_INTERPRET_HARNESS_H

#include "passes/Interpret/Interpret.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

#include "gtest/gtest.h"

#include <random>

namespace heddle::interpret {

using Floats = std::vector<double>;

/// A test with a context; what is reported is kept in `messages`.
class InterpretTest : public ::testing::Test {
protected:
  InterpretTest();

  /// Parses and verifies; the module lives as long as the test.
  mlir::ModuleOp parse(const std::string &text);
  /// The module `func.func @f<signature and body>`.
  mlir::ModuleOp parseFunction(const std::string &text) {
    return parse("func.func @f" + text);
  }
  Machine makeMachine(mlir::ModuleOp module, Reading reading = Reading::Exact);

  /// Runs @f of a module on unnamed arguments; nothing on failure.
  std::vector<Tensor> run(mlir::ModuleOp module, std::vector<Tensor> arguments,
                          Reading reading = Reading::Exact);
  /// The same for the text of @f; one result, its floats.
  Floats runFloats(const std::string &text, std::vector<Tensor> arguments,
                   Reading reading = Reading::Exact);

  Tensor random(std::vector<int64_t> shape, double scale = 1);

  mlir::MLIRContext context;
  std::string messages;
  std::mt19937 generator{17};

private:
  std::vector<mlir::OwningOpRef<mlir::ModuleOp>> modules;
  std::unique_ptr<mlir::ScopedDiagnosticHandler> handler;
};

inline Tensor floats(std::vector<int64_t> shape, Floats values) {
  return Tensor::ofFloats(shape, std::move(values));
}
inline Tensor integers(std::vector<int64_t> shape,
                       std::vector<int64_t> values) {
  return Tensor::ofIntegers(shape, std::move(values));
}

/// Fails where two lists differ by more than `tolerance` anywhere.
void expectNear(const Floats &found, const Floats &expected,
                double tolerance = 1e-12);

} // namespace heddle::interpret

#endif // HEDDLE_TEST_PASSES_INTERPRET_HARNESS_H
