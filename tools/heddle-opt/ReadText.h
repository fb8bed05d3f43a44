//===- ReadText.h - Modules come as text ------------------------*- C++ -*-===//
//
// Every word of a module's text is checked by our parsers and verifiers, which
// are fuzzed (test/fuzz). MLIR's bytecode goes through upstream's reader, which
// is made for files of one's own: what somebody else has written must not get
// there.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_TOOLS_HEDDLE_OPT_READTEXT_H
#define HEDDLE_TOOLS_HEDDLE_OPT_READTEXT_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

namespace heddle {

/// Whether there is no bytecode in a file. It begins with these signs, which no
/// text in UTF-8 has; -split-input-file may let it begin anywhere.
inline bool isText(llvm::StringRef content) {
  return !content.contains("ML\xefR");
}

/// The same, with a message where it is none.
inline bool checkText(const llvm::MemoryBuffer &file) {
  if (isText(file.getBuffer()))
    return true;
  llvm::errs() << "error: " << file.getBufferIdentifier()
               << ": found MLIR bytecode, expected a module as text; let the "
                  "tool that wrote it print text\n";
  return false;
}

} // namespace heddle

#endif // HEDDLE_TOOLS_HEDDLE_OPT_READTEXT_H
