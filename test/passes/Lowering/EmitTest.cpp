//===- EmitTest.cpp - An emitted program, compiled and run ----------------===//

#include "passes/Lowering/Emit.h"
#include "heddle/Runtime/Operands.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>

using namespace mlir;
using namespace heddle::lowering;

namespace {

/// A folder that goes away with the test.
struct Folder {
  SmallString<128> path;
  Folder() { llvm::sys::fs::createUniqueDirectory("heddle-emit", path); }
  ~Folder() { llvm::sys::fs::remove_directories(path); }
  std::string operator/(StringRef name) const {
    SmallString<128> file(path);
    llvm::sys::path::append(file, name);
    return file.str().str();
  }
};

std::string replaceAll(std::string text, StringRef from, StringRef to) {
  for (size_t at = text.find(from.str()); at != std::string::npos;
       at = text.find(from.str(), at + to.size()))
    text.replace(at, from.size(), to.str());
  return text;
}

std::string mlpModule(int ranks) {
  auto buffer = llvm::MemoryBuffer::getFile(
      HEDDLE_SOURCE_DIR "/test/passes/Lowering/Mlp.mlir.in");
  if (!buffer)
    return "";
  std::string text = replaceAll((*buffer)->getBuffer().str(), "@RANKS@",
                                std::to_string(ranks));
  return replaceAll(text, "@F@", std::to_string(16 / ranks));
}

FailureOr<ProgramText> emit(const std::string &module) {
  DialectRegistry registry;
  registry.insert<heddle::rt::RtDialect>();
  MLIRContext context(registry);
  OwningOpRef<ModuleOp> parsed = parseSourceString<ModuleOp>(module, &context);
  if (!parsed)
    return failure();
  FailureOr<ProgramText> text = emitProgram(*parsed);
  if (succeeded(text))
    text->main.clear(); // MlpMain.cpp has one
  return text;
}

/// For a program that is linked with the main of this name.
BuildOptions makeOptions(const Folder &folder, StringRef main = "MlpMain") {
  BuildOptions options;
  options.includes = {HEDDLE_SOURCE_DIR "/include"};
  options.cache = folder / "cache";
  if (auto link =
          llvm::MemoryBuffer::getFile(HEDDLE_PROGRAM_LINKS + main + ".txt")) {
    SmallVector<StringRef> words;
    (*link)->getBuffer().split(words, '\n', -1, /*KeepEmpty=*/false);
    options.link.assign(words.begin(), words.end());
  }
  return options;
}

int run(StringRef program, const std::vector<std::string> &arguments) {
  SmallVector<StringRef> words = {program};
  words.append(arguments.begin(), arguments.end());
  return llvm::sys::ExecuteAndWait(program, words);
}

/// Runs at once, and late in random orders that the events allow, with the
/// happens-before check.
void expectRight(StringRef program, const std::vector<std::string> &arguments) {
  EXPECT_EQ(run(program, arguments), 0);
  setenv("HEDDLE_HOST_MODE", "late", 1);
  setenv("HEDDLE_RACES", "1", 1);
  for (const char *seed : {"1", "2", "3"}) {
    setenv("HEDDLE_SEED", seed, 1);
    EXPECT_EQ(run(program, arguments), 0) << "seed " << seed;
  }
  unsetenv("HEDDLE_HOST_MODE");
  unsetenv("HEDDLE_RACES");
}

std::string writeNumbers(const Folder &folder, const ProgramText &text) {
  std::string path = folder / "numbers.bin";
  std::error_code error;
  llvm::raw_fd_ostream(path, error) << text.numbers;
  return path;
}

/// Kernels that several tests compile.
Folder &sharedCache() {
  static Folder folder;
  return folder;
}

class EmittedProgram : public testing::TestWithParam<int> {};

TEST_P(EmittedProgram, EqualsPlainLoops) {
  Folder folder;
  FailureOr<ProgramText> text = emit(mlpModule(GetParam()));
  ASSERT_TRUE(succeeded(text));
  std::string message;
  ASSERT_TRUE(succeeded(
      buildProgram(*text, makeOptions(sharedCache()), folder / "mlp", message)))
      << message;
  std::string ranks = std::to_string(GetParam()), program = folder / "mlp";
  std::string numbers = writeNumbers(folder, *text);
  expectRight(program, {ranks, numbers});
  // A program for as many ranks refuses others.
  EXPECT_NE(run(program, {std::to_string(GetParam() + 1), numbers}), 0);
  // Nor does it run without its numbers.
  EXPECT_NE(run(program, {ranks, program}), 0);
}

INSTANTIATE_TEST_SUITE_P(Ranks, EmittedProgram, testing::Values(1, 2));

/// Stages.mlir.in for stages with so many layers each: all forwards, then all
/// backwards.
std::string stagesModule(const std::vector<int> &layers, int microBatches) {
  auto buffer = llvm::MemoryBuffer::getFile(
      HEDDLE_SOURCE_DIR "/test/passes/Lowering/Stages.mlir.in");
  int stages = int(layers.size()), inputs = 256 + 128 * microBatches;
  std::vector<int> kinds, numbers, first, last, places;
  for (int stage = 0; stage < stages; ++stage) {
    for (int slot = 0; slot < 2 * microBatches; ++slot) {
      kinds.push_back(slot / microBatches);
      numbers.push_back(slot % microBatches);
    }
    first.push_back(stage == 0);
    last.push_back(stage + 1 == stages);
    places.push_back(inputs + 128 * (stage == 0));
    places.push_back(128);
  }
  auto list = [](const std::vector<int> &values) {
    std::string text;
    for (int value : values)
      text += (text.empty() ? "" : ", ") + std::to_string(value);
    return text;
  };
  std::string text = buffer ? (*buffer)->getBuffer().str() : "";
  for (auto &[from, to] : std::vector<std::pair<std::string, std::string>>{
           {"@PP@", std::to_string(stages)},
           {"@BYTES@", std::to_string(inputs + 128 * (microBatches + 1))},
           {"@KINDS@", list(kinds)},
           {"@MICRO_BATCHES@", list(numbers)},
           {"@LAYERS@", list(layers)},
           {"@FIRST@", list(first)},
           {"@LAST@", list(last)},
           {"@SLOTS@", std::to_string(2 * microBatches)},
           {"@X@", std::to_string(places[0])},
           {"@PLACES@", list(places)}})
    text = replaceAll(text, from, to);
  return text;
}

struct Stages {
  std::vector<int> layers;
  int microBatches;
};
class EmittedStages : public testing::TestWithParam<Stages> {};

TEST_P(EmittedStages, PassNumbersOnAndBack) {
  const auto &[layers, microBatches] = GetParam();
  Folder folder;
  FailureOr<ProgramText> text = emit(stagesModule(layers, microBatches));
  ASSERT_TRUE(succeeded(text));
  std::string message;
  ASSERT_TRUE(
      succeeded(buildProgram(*text, makeOptions(sharedCache(), "StagesMain"),
                             folder / "stages", message)))
      << message;
  std::vector<std::string> arguments = {std::to_string(2 * layers.size()),
                                        writeNumbers(folder, *text),
                                        std::to_string(microBatches)};
  for (int count : layers)
    arguments.push_back(std::to_string(count));
  expectRight(folder / "stages", arguments);
}

// Two stages send to each other both ways; three make an odd ring.
INSTANTIATE_TEST_SUITE_P(Sizes, EmittedStages,
                         testing::Values(Stages{{1, 2}, 3},
                                         Stages{{2, 0, 1}, 4},
                                         Stages{{1, 1, 2, 1}, 6}));

TEST(EmittedText, KnowsNoNumbers) {
  FailureOr<ProgramText> small = emit(stagesModule({1, 2}, 3)),
                         large = emit(stagesModule({1, 1, 2, 1}, 6));
  ASSERT_TRUE(succeeded(small) && succeeded(large));
  EXPECT_EQ(small->step, large->step);
  EXPECT_EQ(small->kernels, large->kernels);
  EXPECT_NE(small->numbers, large->numbers);
}

TEST(Build, KeepsObjects) {
  Folder folder;
  FailureOr<ProgramText> text = emit(mlpModule(1));
  ASSERT_TRUE(succeeded(text));
  std::string message;
  auto build = [&] {
    EXPECT_TRUE(succeeded(
        buildProgram(*text, makeOptions(folder), folder / "mlp", message)))
        << message;
  };
  /// What was compiled, and when.
  auto objects = [&] {
    std::map<std::string, std::filesystem::file_time_type> all;
    for (const auto &file :
         std::filesystem::directory_iterator(folder / "cache/objects"))
      all[file.path()] = file.last_write_time();
    return all;
  };
  build();
  auto before = objects();
  build();
  EXPECT_EQ(objects(), before);
  // Another step around the same kernels compiles nothing but itself.
  text->step += "\n// another\n";
  build();
  auto after = objects();
  EXPECT_EQ(after.size(), before.size() + 1);
  for (const auto &[path, time] : before)
    EXPECT_EQ(after[path], time) << path;
}

TEST(Build, SaysWhatTheCompilerSaid) {
  Folder folder;
  FailureOr<ProgramText> text = emit(mlpModule(1));
  ASSERT_TRUE(succeeded(text));
  text->step += "\nint broken = undeclared;\n";
  std::string message;
  EXPECT_TRUE(failed(buildProgram(*text, makeOptions(sharedCache()),
                                  folder / "mlp", message)));
  EXPECT_NE(message.find("undeclared"), std::string::npos) << message;
}

TEST(Build, NamesAMissingCompiler) {
  Folder folder;
  BuildOptions options = makeOptions(sharedCache());
  options.compiler = "no-such-compiler";
  std::string message;
  EXPECT_TRUE(
      failed(buildProgram(ProgramText(), options, folder / "mlp", message)));
  EXPECT_NE(message.find("no-such-compiler"), std::string::npos) << message;
}

// The dialect may not include the runtime's headers; here its numbers meet
// them.
TEST(Workspace, IsWhatTheSkeletonsAskFor) {
  DialectRegistry registry;
  registry.insert<heddle::rt::RtDialect>();
  MLIRContext context(registry);
  OwningOpRef<ModuleOp> module =
      parseSourceString<ModuleOp>(mlpModule(1), &context);
  ASSERT_TRUE(module);
  auto program = *module->getOps<heddle::rt::ProgramOp>().begin();
  auto bytes = [&](StringRef kernel, int64_t rows, int64_t columns) {
    return heddle::rt::getWorkspaceBytes(
        program.lookupSymbol<heddle::rt::KernelOp>(kernel), rows, columns);
  };
  for (int64_t n : {1, 63, 64, 65, 16384, 16385, 100000}) {
    EXPECT_EQ(bytes("add_squares", 1, n), heddle::reduceAllWorkspace(n));
    EXPECT_EQ(bytes("column_range", n, 7),
              heddle::columnwiseWorkspace(n, 7, 2));
    EXPECT_EQ(bytes("rms_norm", n, 7), 0);
  }
}

} // namespace
