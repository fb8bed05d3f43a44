//===- Command.h - What every subcommand is ---------------------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_COMMAND_H
#define HEDDLE_TOOLS_COMMAND_H

#include "heddle/Support/Result.h"

#include "llvm/Support/CommandLine.h"

#include <fmt/format.h>

#include <cstdio>
#include <optional>
#include <string>

namespace heddle::tool {

enum ExitCode {
  kDone = 0,
  kAnswerIsNo = 1, ///< nothing fits, not equal, plan illegal
  kBadInput = 2,
  kInternal = 3,
};

/// A subcommand; its flags belong to `options`.
struct Command {
  llvm::cl::SubCommand *options;
  int (*run)();
};

Command calibrateCommand();
Command checkpointCommand();
Command compileCommand();
Command doctorCommand();
Command explainCommand();
Command planCommand();
Command reportCommand();
Command runCommand();
Command verifyCommand();

/// People's text. It goes to stderr where stdout holds a JSON object.
template <class... Arguments>
void say(bool json, fmt::format_string<Arguments...> text,
         Arguments &&...arguments) {
  fmt::print(json ? stderr : stdout, text,
             std::forward<Arguments>(arguments)...);
}

/// Prints "error: MESSAGE" and gives `code` back.
inline int refuse(const Error &error, int code = kBadInput) {
  std::fflush(stdout);
  fmt::print(stderr, "error: {}\n", error.message);
  return code;
}

inline void warn(const std::string &message) {
  fmt::print(stderr, "warning: {}\n", message);
}

} // namespace heddle::tool

#endif
