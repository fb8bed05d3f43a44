//===- Plugins.h - Libraries that bring dialects and strategies -*- C++ -*-===//

#ifndef HEDDLE_TOOLS_PLUGINS_H
#define HEDDLE_TOOLS_PLUGINS_H

#include "heddle/Support/Result.h"

#include "mlir/IR/DialectRegistry.h"

#include <string>

namespace heddle::tool {

/// Loads a shared library; what it registers is there from now on.
Result<void> loadPlugin(const std::string &path);

/// The dialects of those loaded.
const mlir::DialectRegistry &pluginDialects();

} // namespace heddle::tool

#endif
