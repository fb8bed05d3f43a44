// Names of groups of ranks that are no axis of a mesh.

#ifndef HEDDLE_SUPPORT_MIRROR_H
#define HEDDLE_SUPPORT_MIRROR_H

#include <string>
#include <string_view>

namespace heddle {

/// "pp.mirror" for axis "pp", which has an even size: groups of two ranks that
/// stand equally far from the two ends of the axis, all other places equal; the
/// one nearer to its begin is the first. Two copies of a model that run from
/// opposite ends meet there.
inline std::string mirrorOf(std::string_view axis) {
  return std::string(axis) + ".mirror";
}

/// The axis that `name` is the mirror of; empty where it is none.
constexpr std::string_view mirroredAxis(std::string_view name) {
  constexpr std::string_view suffix = ".mirror";
  return name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size())
                                : std::string_view();
}

} // namespace heddle

#endif // HEDDLE_SUPPORT_MIRROR_H
