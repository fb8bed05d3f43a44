//===- Built.cpp - An rt program as an executable -------------------------===//

#include "tools/mutate/Built.h"

#include "passes/Lowering/Emit.h"

#include "heddle/Support/Files.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"

using namespace mlir;
using namespace heddle;
using namespace heddle::mutate;

Folder::Folder() {
  llvm::SmallString<128> made;
  llvm::sys::fs::createUniqueDirectory("heddle-mutate", made);
  path = made.str().str();
}

Folder::~Folder() { llvm::sys::fs::remove_directories(path); }

LogicalResult Built::build(ModuleOp module, std::string &message) {
  FailureOr<lowering::ProgramText> text = lowering::emitProgram(module);
  if (failed(text)) {
    message = "the program is not emitted";
    return failure();
  }
  text->main.clear(); // Driver.cpp has one
  lowering::BuildOptions options;
  options.includes = {HEDDLE_SOURCE_DIR "/include"};
  auto link = llvm::MemoryBuffer::getFile(HEDDLE_DRIVER_LINK);
  if (!link) {
    message = std::string(HEDDLE_DRIVER_LINK ": ") + link.getError().message();
    return failure();
  }
  SmallVector<StringRef> words;
  (*link)->getBuffer().split(words, '\n', -1, /*KeepEmpty=*/false);
  options.link.assign(words.begin(), words.end());
  if (auto written = writeFile(tables, text->tables); !written) {
    message = written.message();
    return failure();
  }
  if (auto written = writeFile(numbers, text->numbers); !written) {
    message = written.message();
    return failure();
  }
  return lowering::buildProgram(*text, options, program, message);
}

Answer Built::run(int steps, const std::vector<std::string> &arguments) const {
  std::string count = std::to_string(steps);
  SmallVector<StringRef> words = {program, tables, numbers, count};
  words.append(arguments.begin(), arguments.end());
  std::optional<StringRef> redirects[] = {StringRef(""), StringRef(output),
                                          StringRef(output)};
  llvm::sys::fs::remove(output); // it would not be cut
  Answer answer;
  answer.code = llvm::sys::ExecuteAndWait(program, words, std::nullopt,
                                          redirects, /*SecondsToWait=*/600);
  if (auto printed = llvm::MemoryBuffer::getFile(output))
    answer.text = (*printed)->getBuffer().rtrim().str();
  return answer;
}
