//===- RtVerifyWork.h - what verifiers of queued work share -----*- C++ -*-===//

#ifndef HEDDLE_DIALECTS_RT_RTVERIFYWORK_H
#define HEDDLE_DIALECTS_RT_RTVERIFYWORK_H

#include "dialects/Rt/Rt.h"

namespace heddle::rt {

/// The program that work stands in, which has its stream.
mlir::FailureOr<ProgramOp> verifyStream(WorkOpInterface op);
mlir::LogicalResult verifyContiguous(mlir::Operation *op, mlir::Value buffer);

} // namespace heddle::rt

#endif // HEDDLE_DIALECTS_RT_RTVERIFYWORK_H
