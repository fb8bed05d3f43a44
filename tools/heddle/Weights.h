//===- Weights.h - The interpreter and parameter files ----------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_WEIGHTS_H
#define HEDDLE_TOOLS_WEIGHTS_H

#include "heddle/Support/Result.h"
#include "passes/Interpret/Interpret.h"

#include <string>
#include <vector>

namespace heddle::tool {

/// Gives every parameter its value from a `.safetensors` file, or from all of
/// them in a folder. Names and shapes are those of checkpoints.
Result<void> loadParameters(interpret::Machine &machine,
                            const std::string &path);

/// Writes one state kind (parameter or gradient) as fp32, in checkpoint form.
/// Gradients have "gradient." before the parameter's name; `scalars` are
/// written beside them.
Result<void>
saveStates(interpret::Machine &machine,
           const std::vector<transformer::StateKind> &kinds,
           const std::vector<std::pair<std::string, double>> &scalars,
           const std::string &path);

} // namespace heddle::tool

#endif
