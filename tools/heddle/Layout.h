//===- Layout.h - layout.json (FORMATS 5) -----------------------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_LAYOUT_H
#define HEDDLE_TOOLS_LAYOUT_H

#include "heddle/Runtime/Tables.h"

#include <string>

namespace heddle::tool {

/// The text of layout.json: what of each parameter and optimizer state is on
/// which rank. Up to `kListedRanks` ranks each rank is listed; in a larger mesh
/// ranks that hold the same are listed once, by the first of them, and
/// "replicated_over" names the axes along which the others are.
std::string layoutText(const runtime::Tables &tables);

inline constexpr int64_t kListedRanks = 64;

} // namespace heddle::tool

#endif
