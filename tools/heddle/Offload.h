//===- Offload.h - whether saved values on the host pay ---------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_HEDDLE_OFFLOAD_H
#define HEDDLE_TOOLS_HEDDLE_OFFLOAD_H

#include "tools/heddle/Inputs.h"

#include "heddle/Cost/Offload.h"

#include <nlohmann/json.hpp>

namespace heddle::tool {

/// Of a plan with saved values on the host, on the inputs' cluster.
Result<OffloadTime> offloadTimeOf(const Inputs &inputs);

nlohmann::ordered_json offloadJson(const OffloadTime &time);
void printOffload(const nlohmann::ordered_json &offload);

/// What to say of copies that take longer than what is beside them; none where
/// all are hidden, or where there is no cluster to ask.
std::optional<std::string> offloadWarning(const Inputs &inputs);

} // namespace heddle::tool

#endif // HEDDLE_TOOLS_HEDDLE_OFFLOAD_H
