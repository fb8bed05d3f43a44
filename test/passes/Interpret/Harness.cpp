//===- Harness.cpp - parsing and running small modules --------------------===//

#include "test/passes/Interpret/Harness.h"

#include "dialects/Stage/Stage.h"

#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::interpret;

InterpretTest::InterpretTest() {
  context.loadDialect<dist::DistDialect, transformer::TransformerDialect,
                      stage::StageDialect, func::FuncDialect>();
  handler = std::make_unique<ScopedDiagnosticHandler>(
      &context, [&](Diagnostic &diagnostic) {
        messages += diagnostic.str() + "\n";
        for (Diagnostic &note : diagnostic.getNotes())
          messages += "note: " + note.str() + "\n";
        return success();
      });
}

ModuleOp InterpretTest::parse(const std::string &text) {
  modules.push_back(parseSourceString<ModuleOp>(text, &context));
  if (!modules.back()) {
    ADD_FAILURE() << messages << text;
    modules.back() = ModuleOp::create(UnknownLoc::get(&context));
  }
  return *modules.back();
}

Machine InterpretTest::makeMachine(ModuleOp module, Reading reading) {
  FailureOr<Machine> machine = Machine::create(module, {reading});
  EXPECT_TRUE(succeeded(machine)) << messages;
  return std::move(*machine);
}

std::vector<Tensor> InterpretTest::run(ModuleOp module,
                                       std::vector<Tensor> arguments,
                                       Reading reading) {
  Machine machine = makeMachine(module, reading);
  Inputs inputs;
  for (size_t i = 0; i < arguments.size(); ++i)
    inputs["argument " + std::to_string(i)] = {arguments[i]};
  FailureOr<std::vector<NamedValue>> results = machine.run("f", inputs);
  std::vector<Tensor> tensors;
  if (succeeded(results))
    for (const NamedValue &value : *results)
      tensors.push_back(value.getTensor());
  return tensors;
}

Floats InterpretTest::runFloats(const std::string &text,
                                std::vector<Tensor> arguments,
                                Reading reading) {
  std::vector<Tensor> results = run(parseFunction(text), arguments, reading);
  if (results.empty()) {
    ADD_FAILURE() << messages;
    return {};
  }
  return results.front().floats;
}

Tensor InterpretTest::random(std::vector<int64_t> shape, double scale) {
  std::normal_distribution<double> normal(0, scale);
  Tensor tensor = Tensor::zeros(Tensor::Kind::Float, shape);
  for (double &value : tensor.floats)
    value = normal(generator);
  return tensor;
}

void heddle::interpret::expectNear(const Floats &found, const Floats &expected,
                                   double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], tolerance) << "element " << i;
}
