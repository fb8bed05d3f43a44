//===- heddle.cpp - The command line --------------------------------------===//

#include "tools/heddle/Command.h"
#include "tools/heddle/Plugins.h"

#include "llvm/Support/raw_ostream.h"

using namespace heddle::tool;

/// LLVM's libraries bring options of their own, which are none of a command's.
static void hideForeignOptions() {
  for (auto &[name, option] : llvm::cl::getRegisteredOptions())
    if (name != "help")
      option->setHiddenFlag(llvm::cl::ReallyHidden);
}

int main(int argc, char **argv) {
  hideForeignOptions();
  llvm::cl::list<std::string> plugins(
      "load-dialect-plugin", llvm::cl::sub(llvm::cl::SubCommand::getAll()),
      llvm::cl::value_desc("LIBRARY"),
      llvm::cl::desc("a library with ops or strategies of your own"));
  std::string errors;
  llvm::raw_string_ostream errorStream(errors);
  if (argc < 2) {
    fmt::print(stderr,
               "error: expected a command: plan, explain, report, compile, "
               "run, verify, checkpoint, calibrate or doctor; `heddle --help` "
               "lists them\n");
    return kBadInput;
  }
  if (!llvm::cl::ParseCommandLineOptions(
          argc, argv, "compiles Transformer training for many devices\n",
          &errorStream)) {
    // Values that cannot be read LLVM has told by itself.
    if (!errorStream.str().empty())
      fmt::print(stderr, "error: {}", errorStream.str());
    return kBadInput;
  }
  for (const std::string &path : plugins)
    if (heddle::Result<void> loaded = loadPlugin(path); !loaded)
      return refuse(loaded.error());
  for (Command command :
       {planCommand(), explainCommand(), reportCommand(), calibrateCommand(),
        compileCommand(), runCommand(), verifyCommand(), checkpointCommand(),
        doctorCommand()})
    if (*command.options)
      return command.run();
  fmt::print(stderr, "error: expected a command before '{}'\n", argv[1]);
  return kBadInput;
}
