#include "test/fuzz/Fuzz.h"
#include "tools/heddle-opt/ReadText.h"
#include "tools/heddle-opt/Register.h"

#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"

#include <memory>

using namespace heddle;
using namespace mlir;

namespace {

constexpr std::string_view kPasses = "// passes: ";

/// Attributes and types stay in a context as long as it lives; making one takes
/// longer than an input.
MLIRContext &contextOf(unsigned number) {
  constexpr unsigned kInputs = 1000;
  static std::unique_ptr<MLIRContext> context;
  static bool isFirst = true;
  if (isFirst)
    registerPasses();
  if (isFirst || number % kInputs == 0) {
    DialectRegistry registry;
    registerDialects(registry);
    context.reset();
    context = std::make_unique<MLIRContext>(registry,
                                            MLIRContext::Threading::DISABLED);
    context->loadAllAvailableDialects();
  }
  isFirst = false;
  return *context;
}

/// Counts what is told as an error, and prints nothing.
class Errors {
public:
  explicit Errors(MLIRContext &context)
      : handler(&context, [this](Diagnostic &diagnostic) {
          count += diagnostic.getSeverity() == DiagnosticSeverity::Error;
          return success();
        }) {}
  unsigned count = 0;

private:
  ScopedDiagnosticHandler handler;
};

void runPasses(ModuleOp module, std::string_view names) {
  Errors errors(*module.getContext());
  PassManager passes(module.getContext());
  if (failed(parsePassPipeline(StringRef(names), passes, llvm::nulls())))
    return;
  if (failed(passes.run(module)))
    fuzz::expect(errors.count > 0, "a pass that fails says why", names);
}

} // namespace

// Text of a module, which may begin with `// passes: NAMES`.
static void run(std::string_view input) {
  if (!isText(input))
    return;
  static unsigned number = 0;
  MLIRContext &context = contextOf(number++);
  Errors errors(context);
  // A file's buffer ends with a zero, as a string does: MLIR looks for it.
  const std::string file(input);
  OwningOpRef<ModuleOp> module =
      parseSourceString<ModuleOp>(file, ParserConfig(&context), "input.mlir");
  if (!module) {
    fuzz::expect(errors.count > 0, "a module that is refused has an error");
    return;
  }
  std::string text;
  llvm::raw_string_ostream stream(text);
  module->print(stream);
  std::string_view rest = input;
  const std::string_view line = fuzz::takeLine(rest);
  if (line.starts_with(kPasses))
    runPasses(*module, line.substr(kPasses.size()));
}

namespace {

/// Words and signs, with what stands between them.
std::vector<std::string> tokensOf(std::string_view text) {
  std::vector<std::string> tokens;
  const auto isOfWord = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (i > 0 && isOfWord(text[i]) && isOfWord(text[i - 1]))
      tokens.back() += text[i];
    else
      tokens.emplace_back(1, text[i]);
  }
  return tokens;
}

constexpr const char *kNumbers[] = {
    "0", "1", "-1", "3", "7", "1048576", "2147483648", "9223372036854775807"};

void changeTokens(std::vector<std::string> &tokens, fuzz::Random &random) {
  const size_t at = random() % tokens.size(), other = random() % tokens.size();
  const auto begin = tokens.begin();
  switch (random() % 6) {
  case 0:
    tokens.erase(begin + long(at));
    break;
  case 1:
    tokens[at] = tokens[other];
    break;
  case 2:
    std::swap(tokens[at], tokens[other]);
    break;
  case 3:
    tokens.insert(begin + long(at), std::string(tokens[other]));
    break;
  case 4: { // a run of them, such as an operation
    const size_t end = std::min(tokens.size(), other + random() % 40);
    const std::vector<std::string> run(begin + long(other), begin + long(end));
    tokens.insert(begin + long(at), run.begin(), run.end());
    break;
  }
  default:
    for (size_t i = at; i < tokens.size(); ++i)
      if (std::isdigit(static_cast<unsigned char>(tokens[i][0]))) {
        tokens[i] = kNumbers[random() % std::size(kNumbers)];
        break;
      }
  }
}

} // namespace

static bool mutate(std::string &input, fuzz::Random &random) {
  std::string_view rest = input;
  std::string text;
  if (rest.starts_with(kPasses))
    text = std::string(fuzz::takeLine(rest)) + "\n";
  std::vector<std::string> tokens = tokensOf(rest);
  if (tokens.empty())
    return false;
  for (unsigned i = 0, count = 1 + random() % 3; i < count && !tokens.empty();
       ++i)
    changeTokens(tokens, random);
  for (const std::string &token : tokens)
    text += token;
  input = text;
  return true;
}

static fuzz::Announce target{{"Mlir", run, mutate}};
