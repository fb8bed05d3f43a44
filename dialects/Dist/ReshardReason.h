//===- ReshardReason.h - why a reshard is there -----------------*- C++ -*-===//
//
// A reshard has two causes: what made a value's layout, and what wants another
// one. Both are in its location, not in attributes, so that equal collectives
// merge; partitioning hands them on to the steps.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_DIALECTS_DIST_RESHARDREASON_H
#define HEDDLE_DIALECTS_DIST_RESHARDREASON_H

#include "mlir/IR/Location.h"

#include <cstdint>
#include <optional>
#include <string>

namespace heddle::dist {

struct ReshardReason {
  std::string value;  ///< name of what is moved
  std::string made;   ///< the decision that made its layout
  std::string wanted; ///< the one that wants another
  // From partitioning on:
  std::string from = {}, to = {}; ///< the layouts, in short form
  std::int64_t number = 0; ///< equal in the steps of one reshard of a module
  std::int64_t bytes = 0;  ///< that a rank sends in this step

  /// `location` with this reason inside; one that it had is replaced.
  mlir::Location attach(mlir::Location location) const;

  /// The reason in a location, if it has one.
  static std::optional<ReshardReason> find(mlir::Location location);
};

} // namespace heddle::dist

#endif // HEDDLE_DIALECTS_DIST_RESHARDREASON_H
