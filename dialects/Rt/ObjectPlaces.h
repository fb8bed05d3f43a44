//===- ObjectPlaces.h - where objects of memory lie -------------*- C++ -*-===//

#ifndef HEDDLE_DIALECTS_RT_OBJECTPLACES_H
#define HEDDLE_DIALECTS_RT_OBJECTPLACES_H

#include "llvm/ADT/StringRef.h"

namespace heddle::rt {

/// Attribute of a program whose buffers were placed: a dictionary from the
/// names of objects that outlast a step to a list of, for each stage, the byte
/// at which the object begins, or would if the stage had all of it; unit where
/// the stage has none of it.
inline constexpr llvm::StringLiteral kObjectPlacesName = "object_places";

} // namespace heddle::rt

#endif // HEDDLE_DIALECTS_RT_OBJECTPLACES_H
