#include "tools/heddle/Diagnostics.h"

#include "tools/heddle/Command.h"
#include "tools/heddle/Plugins.h"

#include "llvm/Support/raw_ostream.h"

using namespace heddle::tool;

/// A place in a file is worth telling; one inside generated IR is not.
static std::string describe(mlir::Diagnostic &diagnostic) {
  std::string text;
  llvm::raw_string_ostream os(text);
  if (auto place =
          mlir::dyn_cast<mlir::FileLineColLoc>(diagnostic.getLocation()))
    os << place.getFilename().getValue() << ":" << place.getLine() << ": ";
  os << diagnostic;
  return text;
}

Compiler::Compiler()
    : context(pluginDialects(), mlir::MLIRContext::Threading::DISABLED) {
  context.getDiagEngine().registerHandler([this](mlir::Diagnostic &given) {
    if (given.getSeverity() == mlir::DiagnosticSeverity::Remark)
      return mlir::success(); // for who works on the compiler
    std::string message = describe(given);
    if (given.getSeverity() != mlir::DiagnosticSeverity::Error) {
      warn(message);
      return mlir::success();
    }
    text += (text.empty() ? "" : "\n") + message;
    for (mlir::Diagnostic &note : given.getNotes())
      if (!note.str().empty() &&
          note.str().find("see current operation") == std::string::npos)
        text += "\n  note: " + describe(note);
    return mlir::success();
  });
}
