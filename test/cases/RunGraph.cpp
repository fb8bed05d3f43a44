//===- RunGraph.cpp - runs functions whole and on all ranks ---------------===//
//
// heddle-run-graph GRAPH.mlir INPUTS.json [PLUGIN.so]
//
// Each function of the module is run by the interpreter (fp64) twice: on whole
// tensors, and on all ranks of the mesh after Sharding and Collectives. INPUTS
// holds, by argument name (`transformer.as`), a flat list of numbers. Prints
// {"function": [{"whole": [...], "ranks": [...]}, one per result], ...}.
//
// With `dist.values` on the module layouts are found by propagation, otherwise
// they are those in the types. A result's copies on several ranks are compared
// bit by bit. Exit code 1 where the IR is refused or ranks differ, with an
// error at an op; 2 where the files cannot be read.
//
//===----------------------------------------------------------------------===//

#include "passes/Collectives/Passes.h"
#include "passes/Interpret/Interpret.h"
#include "passes/Sharding/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Tools/Plugins/DialectPlugin.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace heddle;
using interpret::Machine;
using interpret::Tensor;
using ResultsOfFunction =
    std::map<std::string, std::vector<interpret::NamedValue>>;

static LogicalResult usageError(const llvm::Twine &message) {
  llvm::errs() << "heddle-run-graph: " << message << "\n";
  return failure();
}

/// The tensor of one argument.
static FailureOr<Tensor> readInput(const llvm::json::Array &numbers,
                                   RankedTensorType type,
                                   llvm::StringRef name) {
  Tensor tensor = Tensor::zeros(type);
  if (static_cast<int64_t>(numbers.size()) != tensor.getNumElements())
    return usageError("input " + name + " has " + llvm::Twine(numbers.size()) +
                      " numbers, expected " +
                      llvm::Twine(tensor.getNumElements()));
  for (auto [i, number] : llvm::enumerate(numbers)) {
    std::optional<double> value = number.getAsNumber();
    if (!value)
      return usageError("input " + name + " holds something but numbers");
    if (tensor.isInteger())
      tensor.integers[i] = static_cast<int64_t>(*value);
    else
      tensor.floats[i] = *value;
  }
  return tensor;
}

static FailureOr<interpret::Inputs>
readInputs(func::FuncOp function, const llvm::json::Object &given) {
  interpret::Inputs inputs;
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    std::string name = interpret::getArgumentName(function, i);
    const llvm::json::Array *numbers = given.getArray(name);
    if (!numbers)
      return usageError("no input " + name);
    auto type = dyn_cast<RankedTensorType>(
        interpret::getWholeArgumentType(function, i));
    if (!type)
      return usageError("argument " + name + " is no tensor");
    FailureOr<Tensor> tensor = readInput(*numbers, type, name);
    if (failed(tensor))
      return failure();
    inputs[name].push_back(std::move(*tensor));
  }
  return inputs;
}

static FailureOr<ResultsOfFunction> runAll(ModuleOp module,
                                           const llvm::json::Object &given) {
  FailureOr<Machine> machine = Machine::create(module);
  if (failed(machine))
    return failure();
  ResultsOfFunction all;
  for (auto function : module.getOps<func::FuncOp>()) {
    FailureOr<interpret::Inputs> inputs = readInputs(function, given);
    if (failed(inputs))
      return failure();
    auto results = machine->run(function.getSymName(), *inputs);
    if (failed(results))
      return failure();
    all[function.getSymName().str()] = std::move(*results);
  }
  return all;
}

static LogicalResult partition(ModuleOp module) {
  PassManager passes(module.getContext());
  if (module->hasAttr("dist.values"))
    passes.addPass(createPropagateLayoutsPass());
  passes.addPass(createVerifyLayoutsPass());
  passes.addPass(createPartitionPass());
  passes.addPass(createVerifyCollectivesPass());
  return passes.run(module);
}

static llvm::json::Array numbersOf(const Tensor &tensor) {
  if (tensor.isInteger())
    return llvm::json::Array(tensor.integers);
  return llvm::json::Array(tensor.floats);
}

static void print(const ResultsOfFunction &whole,
                  const ResultsOfFunction &ranks) {
  llvm::json::Object functions;
  for (const auto &[name, results] : whole) {
    llvm::json::Array entries;
    for (auto [one, other] : llvm::zip_equal(results, ranks.at(name)))
      entries.push_back(
          llvm::json::Object{{"whole", numbersOf(one.getTensor())},
                             {"ranks", numbersOf(other.getTensor())}});
    functions[name] = std::move(entries);
  }
  llvm::outs() << llvm::json::Value(std::move(functions)) << "\n";
}

static int runGraph(const char *graph, const llvm::json::Object &inputs,
                    const DialectRegistry &registry) {
  MLIRContext context(registry);
  llvm::SourceMgr sources;
  SourceMgrDiagnosticHandler handler(sources, &context);
  OwningOpRef<ModuleOp> module =
      parseSourceFile<ModuleOp>(graph, sources, &context);
  if (!module)
    return 1;
  OwningOpRef<ModuleOp> perRank = module->clone();
  if (failed(partition(*perRank)))
    return 1;
  FailureOr<ResultsOfFunction> whole = runAll(*module, inputs);
  if (failed(whole))
    return 1;
  FailureOr<ResultsOfFunction> ranks = runAll(*perRank, inputs);
  if (failed(ranks))
    return 1;
  print(*whole, *ranks);
  return 0;
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  if (argc != 3 && argc != 4) {
    (void)usageError("expected GRAPH.mlir INPUTS.json [PLUGIN.so]");
    return 2;
  }
  DialectRegistry registry;
  registry.insert<func::FuncDialect, tensor::TensorDialect, dist::DistDialect,
                  transformer::TransformerDialect>();
  if (argc == 4) {
    auto plugin = DialectPlugin::load(argv[3]);
    if (!plugin) {
      (void)usageError(llvm::toString(plugin.takeError()));
      return 2;
    }
    plugin->registerDialectRegistryCallbacks(registry);
  }
  auto text = llvm::MemoryBuffer::getFile(argv[2]);
  if (!text) {
    (void)usageError(llvm::Twine(argv[2]) + ": " + text.getError().message());
    return 2;
  }
  llvm::Expected<llvm::json::Value> inputs =
      llvm::json::parse((*text)->getBuffer());
  if (!inputs || !inputs->getAsObject()) {
    if (!inputs)
      llvm::consumeError(inputs.takeError());
    (void)usageError(llvm::Twine(argv[2]) + ": expected a JSON object");
    return 2;
  }
  return runGraph(argv[1], *inputs->getAsObject(), registry);
}
