//===- Register.h - What heddle's MLIR tools know ---------------*- C++ -*-===//
//
// The one list of dialects and passes that heddle-opt, heddle-translate and
// heddle-lsp-server share. A new room adds its line here.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_TOOLS_HEDDLE_OPT_REGISTER_H
#define HEDDLE_TOOLS_HEDDLE_OPT_REGISTER_H

#include "dialects/Dist/Dist.h"
#include "dialects/Rt/Rt.h"
#include "dialects/Stage/Stage.h"
#include "dialects/Transformer/Transformer.h"
#include "passes/Autodiff/Passes.h"
#include "passes/Collectives/Passes.h"
#include "passes/Lowering/Passes.h"
#include "passes/Memory/Passes.h"
#include "passes/Overlap/Passes.h"
#include "passes/Precision/Passes.h"
#include "passes/Recompute/Passes.h"
#include "passes/Sharding/Passes.h"
#include "passes/Stages/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Transforms/Passes.h"

namespace heddle {

inline void registerDialects(mlir::DialectRegistry &registry) {
  registry.insert<mlir::arith::ArithDialect, mlir::func::FuncDialect,
                  mlir::math::MathDialect>();
  registry.insert<dist::DistDialect, rt::RtDialect, stage::StageDialect,
                  transformer::TransformerDialect>();
}

inline void registerPasses() {
  mlir::registerCanonicalizerPass();
  mlir::registerCSEPass();
  registerHeddleAutodiffPasses();
  registerHeddleCollectivesPasses();
  registerHeddleLoweringPasses();
  registerHeddleMemoryPasses();
  registerHeddleOverlapPasses();
  registerHeddlePrecisionPasses();
  registerHeddleRecomputePasses();
  registerHeddleShardingPasses();
  registerHeddleStagesPasses();
}

} // namespace heddle

#endif // HEDDLE_TOOLS_HEDDLE_OPT_REGISTER_H
