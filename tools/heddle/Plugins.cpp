#include "tools/heddle/Plugins.h"

#include "mlir/Tools/Plugins/DialectPlugin.h"

#include <fmt/format.h>

using namespace heddle;
using namespace heddle::tool;

static mlir::DialectRegistry &registry() {
  static mlir::DialectRegistry all;
  return all;
}

Result<void> tool::loadPlugin(const std::string &path) {
  auto plugin = mlir::DialectPlugin::load(path);
  if (!plugin)
    return Error{fmt::format("--load-dialect-plugin {}: {}", path,
                             llvm::toString(plugin.takeError()))};
  plugin->registerDialectRegistryCallbacks(registry());
  return {};
}

const mlir::DialectRegistry &tool::pluginDialects() { return registry(); }
