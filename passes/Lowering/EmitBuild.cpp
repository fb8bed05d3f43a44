//===- EmitBuild.cpp - texts => objects, kept by hash => an executable ----===//

#include "passes/Lowering/Emit.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>

using namespace mlir;

namespace heddle::lowering {
namespace {

constexpr const char *kCommonFlags[] = {"-std=c++20", "-c"};
// step.cpp only calls: nothing in it is worth more than the least optimization.
constexpr const char *kStepFlags[] = {"-O1"};
constexpr const char *kKernelFlags[] = {"-O3",
                                        "-march=native",
                                        "-fopenmp",
                                        "-fno-math-errno",
                                        "-fno-trapping-math",
                                        "-mprefer-vector-width=512",
                                        "-ffp-contract=off"};

/// One file to compile.
struct Unit {
  std::string name, text, compiler;
  std::vector<std::string> flags;
  std::string object; ///< where the object is, or will be
  bool keepsWords = false;

  /// What the compiler said, beside the object.
  std::string words() const { return object + ".txt"; }
};

/// Puts kernels.h, which exists as text only, in the place of its #include.
std::string withHeader(std::string source, StringRef header) {
  constexpr StringLiteral include = "#include \"kernels.h\"\n";
  const size_t at = source.find(include.str());
  return at == std::string::npos
             ? source
             : source.replace(at, include.size(), header.str());
}

std::string readFile(StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  return buffer ? (*buffer)->getBuffer().str() : std::string();
}

LogicalResult writeText(StringRef path, StringRef text, std::string &message) {
  std::error_code error;
  llvm::raw_fd_ostream os(path, error);
  if (error) {
    message = ("cannot write " + path + ": " + error.message()).str();
    return failure();
  }
  os << text;
  return success();
}

/// Runs a program; its words are in `output`.
int execute(ArrayRef<std::string> command, StringRef outputPath,
            std::string &output) {
  SmallVector<StringRef> words(command.begin(), command.end());
  std::optional<StringRef> redirects[] = {StringRef(""), outputPath,
                                          outputPath};
  int status = llvm::sys::ExecuteAndWait(command[0], words, std::nullopt,
                                         redirects, 0, 0, &output);
  output += readFile(outputPath);
  llvm::sys::fs::remove(outputPath);
  return status;
}

class Build {
public:
  Build(const BuildOptions &options, std::string &message)
      : options(options), message(message) {}

  LogicalResult run(const ProgramText &text, StringRef output,
                    KernelReport *report);

private:
  LogicalResult prepare();
  LogicalResult prepareKernels();
  std::string hashHeaders() const;
  /// What the object depends on beside its text and flags is `depends`.
  void place(Unit &unit, StringRef depends) const;
  Unit makeUnit(StringRef name, std::string text,
                ArrayRef<const char *> flags) const;
  Unit makeKernels(const ProgramText &text) const;
  LogicalResult compile(const Unit &unit);
  LogicalResult compileAll(ArrayRef<Unit> units);
  /// A path in the cache that no other process uses.
  std::string temporary(StringRef suffix) const;
  LogicalResult fail(const Twine &what) {
    std::lock_guard lock(mutex);
    if (message.empty()) // the first failure is the cause
      message = what.str();
    return failure();
  }

  const BuildOptions &options;
  std::string &message;
  std::mutex mutex;
  std::string compiler, cache, headers,
      environment; ///< what objects depend on beside their text
  std::string kernelCompiler, kernelEnvironment; ///< of options.kernels
  std::atomic<double> kernelSeconds = 0;
  mutable std::atomic<unsigned> next = 0;
};

std::string Build::temporary(StringRef suffix) const {
  SmallString<128> path(cache);
  llvm::sys::path::append(
      path, "part-" + std::to_string(llvm::sys::Process::getProcessId()) + "-" +
                std::to_string(next++) + suffix);
  return path.str().str();
}

std::string Build::hashHeaders() const {
  std::string all;
  for (const std::string &include : options.includes) {
    SmallString<128> folder(include);
    llvm::sys::path::append(folder, "heddle", "Runtime");
    std::vector<std::string> files;
    std::error_code error;
    for (llvm::sys::fs::directory_iterator it(folder, error), end;
         it != end && !error; it.increment(error))
      files.push_back(it->path());
    std::sort(files.begin(), files.end());
    for (const std::string &file : files)
      all += llvm::sys::path::filename(file).str() + "\n" + readFile(file);
  }
  return llvm::utohexstr(llvm::xxh3_64bits(all));
}

LogicalResult Build::prepare() {
  auto found = llvm::sys::findProgramByName(
      options.compiler.empty() ? "c++" : options.compiler);
  if (!found)
    return fail(
        "no C++ compiler: '" +
        Twine(options.compiler.empty() ? "c++" : options.compiler) +
        "' is not on the search path; install g++ 12 or clang 16, or name one");
  compiler = *found;
  SmallString<128> folder(options.cache);
  if (folder.empty()) {
    const char *variable = std::getenv("HEDDLE_CACHE");
    if (variable && *variable)
      folder = variable;
    else if (llvm::sys::path::home_directory(folder))
      llvm::sys::path::append(folder, ".cache", "heddle");
    else
      return fail(
          "no folder to keep compiled kernels in: set HEDDLE_CACHE or HOME");
  }
  llvm::sys::path::append(folder, "objects");
  if (std::error_code error = llvm::sys::fs::create_directories(folder))
    return fail("cannot make " + folder + ": " + error.message() +
                "; set HEDDLE_CACHE to a folder that can be written");
  cache = folder.str().str();
  // -march=native means another machine on another one; the compiler says
  // which.
  std::string words;
  if (execute({compiler, "-march=native", "-Q", "--help=target", "--version"},
              temporary(".txt"), words) != 0) {
    words.clear();
    if (execute({compiler, "-march=native", "-###", "-x", "c++", "-c",
                 "/dev/null", "-o", "/dev/null"},
                temporary(".txt"), words) != 0)
      return fail("the compiler " + compiler + " does not run:\n" + words);
  }
  headers = hashHeaders();
  environment = words + headers;
  return options.kernels ? prepareKernels() : success();
}

LogicalResult Build::prepareKernels() {
  auto found = llvm::sys::findProgramByName(options.kernels->compiler);
  if (!found)
    return fail("no compiler of kernels: '" + options.kernels->compiler +
                "' is not on the search path");
  kernelCompiler = *found;
  std::string words;
  if (execute({kernelCompiler, "--version"}, temporary(".txt"), words) != 0)
    return fail("the compiler " + kernelCompiler + " does not run:\n" + words);
  kernelEnvironment = words + headers;
  return success();
}

void Build::place(Unit &unit, StringRef depends) const {
  std::string key = unit.text + llvm::join(unit.flags, " ") + depends.str();
  llvm::XXH128_hash_t hash =
      llvm::xxh3_128bits(llvm::arrayRefFromStringRef(key));
  SmallString<128> path(cache);
  llvm::sys::path::append(
      path, unit.name + "-" + llvm::utohexstr(hash.high64, true, 16) +
                llvm::utohexstr(hash.low64, true, 16) + ".o");
  unit.object = path.str().str();
}

Unit Build::makeUnit(StringRef name, std::string text,
                     ArrayRef<const char *> flags) const {
  Unit unit{name.str(), std::move(text), compiler, {}, {}};
  unit.flags.assign(std::begin(kCommonFlags), std::end(kCommonFlags));
  unit.flags.insert(unit.flags.end(), flags.begin(), flags.end());
  place(unit, environment);
  return unit;
}

/// Of kernels whose origin is no part of a unit: equal ones of two models share
/// an object.
static std::string withoutComments(StringRef text) {
  std::string code;
  for (StringRef line : llvm::split(text, '\n'))
    if (!line.ltrim().starts_with("//"))
      code += line.str() + "\n";
  return code;
}

Unit Build::makeKernels(const ProgramText &text) const {
  Unit unit{"kernels",
            withoutComments(withHeader(text.kernelsSource, text.kernels)),
            kernelCompiler,
            options.kernels->flags,
            {},
            true};
  unit.flags.push_back("-c");
  place(unit, kernelEnvironment);
  return unit;
}

LogicalResult Build::compile(const Unit &unit) {
  using Clock = std::chrono::steady_clock;
  if (llvm::sys::fs::exists(unit.object) &&
      (!unit.keepsWords || llvm::sys::fs::exists(unit.words())))
    return success();
  std::string source = temporary(".cpp"), object = temporary(".o"), words;
  if (failed(writeText(source, unit.text, words)))
    return fail(words);
  std::vector<std::string> command = {unit.compiler};
  command.insert(command.end(), unit.flags.begin(), unit.flags.end());
  for (const std::string &include : options.includes)
    command.push_back("-I" + include);
  command.insert(command.end(), {source, "-o", object});
  const Clock::time_point start = Clock::now();
  if (execute(command, temporary(".txt"), words) != 0)
    return fail("cannot compile " + unit.name + " (" + source + " is kept):\n" +
                llvm::join(command, " ") + "\n" + words);
  llvm::sys::fs::remove(source);
  if (unit.keepsWords) {
    kernelSeconds = std::chrono::duration<double>(Clock::now() - start).count();
    std::string file = temporary(".txt"), why;
    if (failed(writeText(file, words, why)))
      return fail(why);
    if (std::error_code error = llvm::sys::fs::rename(file, unit.words()))
      return fail("cannot write " + unit.words() + ": " + error.message());
  }
  // Whoever is first wins; the objects are equal.
  if (std::error_code error = llvm::sys::fs::rename(object, unit.object))
    return fail("cannot write " + unit.object + ": " + error.message());
  return success();
}

LogicalResult Build::compileAll(ArrayRef<Unit> units) {
  std::atomic<size_t> taken = 0;
  std::atomic<bool> ok = true;
  auto work = [&] {
    for (size_t i = taken++; i < units.size() && ok; i = taken++)
      if (failed(compile(units[i])))
        ok = false;
  };
  unsigned jobs = options.jobs
                      ? options.jobs
                      : std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < std::min<size_t>(jobs, units.size()); ++i)
    threads.emplace_back(work);
  work();
  for (std::thread &thread : threads)
    thread.join();
  return success(ok);
}

LogicalResult Build::run(const ProgramText &text, StringRef output,
                         KernelReport *report) {
  if (failed(prepare()))
    return failure();
  std::vector<Unit> units;
  if (options.kernels)
    units.push_back(makeKernels(text)); // first: it takes longest
  units.push_back(
      makeUnit("step", withHeader(text.step, text.kernels), kStepFlags));
  if (!text.main.empty())
    units.push_back(makeUnit("main", text.main, kStepFlags));
  if (!options.kernels)
    for (const KernelUnit &kernel : text.units)
      units.push_back(makeUnit(kernel.name, kernel.text, kKernelFlags));
  if (failed(compileAll(units)))
    return failure();
  if (report && options.kernels)
    *report = {readFile(units[0].words()), kernelSeconds};
  std::vector<std::string> command = {compiler, "-o", output.str()};
  for (const Unit &unit : units)
    command.push_back(unit.object);
  command.insert(command.end(), options.link.begin(), options.link.end());
  std::string words;
  if (execute(command, temporary(".txt"), words) != 0)
    return fail("cannot link " + output + ":\n" + llvm::join(command, " ") +
                "\n" + words);
  return success();
}

} // namespace

LogicalResult buildProgram(const ProgramText &text, const BuildOptions &options,
                           StringRef output, std::string &message,
                           KernelReport *report) {
  message.clear();
  return Build(options, message).run(text, output, report);
}

} // namespace heddle::lowering
