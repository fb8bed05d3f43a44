//===- Diagnostics.h - What passes say, told to a user ----------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_DIAGNOSTICS_H
#define HEDDLE_TOOLS_DIAGNOSTICS_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"

#include <string>

namespace heddle::tool {

/// A context in which heddle compiles, and what its passes report: errors are
/// kept, warnings and remarks printed.
class Compiler {
public:
  Compiler();

  mlir::MLIRContext context;

  /// The errors so far, one a line; "" where there was none.
  const std::string &errors() const { return text; }

private:
  std::string text;
};

} // namespace heddle::tool

#endif
