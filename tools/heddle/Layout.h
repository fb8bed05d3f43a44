//===- Layout.h - layout.json (FORMATS 5) -----------------------*- C++ -*-===//

#ifndef HEDDLE_TOOLS_LAYOUT_H
#define HEDDLE_TOOLS_LAYOUT_H

#include "heddle/Runtime/Tables.h"

#include <string>

namespace heddle::tool {

/// The text of layout.json: what of each parameter and optimizer state is on
/// which rank. Up to `kListedRanks` ranks each rank is listed. In a larger mesh
/// the first rank of each stage stands for all: "cut" names the axes over which
/// each dimension, and a row of elements, is cut into equal parts in rank
/// order, and "replicated_over" those along which ranks hold the same.
std::string layoutText(const runtime::Tables &tables);

inline constexpr int64_t kListedRanks = 64;

} // namespace heddle::tool

#endif
