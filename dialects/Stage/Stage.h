//===- Stage.h - pipeline stages --------------------------------*- C++ -*-===//
//
// The one header of the stage dialect.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_DIALECTS_STAGE_STAGE_H
#define HEDDLE_DIALECTS_STAGE_STAGE_H

#include "dialects/Transformer/Transformer.h"

#include "dialects/Stage/StageDialect.h.inc"
#include "dialects/Stage/StageEnums.h.inc"

namespace heddle::stage {
class YieldOp;

/// The mesh axis over which stages lie.
inline constexpr llvm::StringLiteral kStageAxis = "pp";
} // namespace heddle::stage

#define GET_OP_CLASSES
#include "dialects/Stage/StageOps.h.inc"

#endif // HEDDLE_DIALECTS_STAGE_STAGE_H
