//===- KernelBodies.h - scalar meaning of the ops in a kernel ---*- C++ -*-===//

#ifndef HEDDLE_PASSES_LOWERING_KERNELBODIES_H
#define HEDDLE_PASSES_LOWERING_KERNELBODIES_H

#include "dialects/Rt/Rt.h"
#include "dialects/Transformer/Transformer.h"

#include "mlir/IR/Builders.h"

namespace heddle::lowering {

/// What a value of an op is to a kernel of rows x columns. Per rows, and full
/// per rows: as many neighbouring rows share one as there are times more rows.
enum class Role { Full, PerRow, PerColumn, Scalar, PerRows, FullPerRows };

/// The iteration space of an op as a kernel, and the roles of its values.
struct KernelForm {
  int64_t rows = 1, columns = 1;
  /// Only full values: any rows x columns of as many elements will do.
  bool flexible = false;
  /// One reduction over everything instead of rows.
  bool reducesAll = false;
  llvm::SmallVector<Role> operands, results;
};

/// The form of an op that kernels can hold, or nothing.
std::optional<KernelForm> getKernelForm(mlir::Operation *op);

/// The part of its columns' factor that `op` works on; null where that is the
/// whole.
dist::ShardAttr getColumnShard(mlir::Operation *op);
/// Whether an op must know which head of the whole model a row is.
bool needsHeads(mlir::Operation *op);
/// Whether some rank's columns of an op are padding, so that it must know where
/// its columns begin.
bool hasPaddedColumns(mlir::Operation *op);

class BlockLowering;

/// A kernel and its launch, but for the body.
struct KernelLaunch {
  llvm::StringRef name;
  rt::Skeleton skeleton;
  mlir::Location location;
  std::string label;
  int64_t rows, columns;
  llvm::SmallVector<rt::OperandAttr> operands = {};
  llvm::SmallVector<mlir::Value> arguments = {};
};

/// Builds the arithmetic of one element.
struct BodyBuilder {
  mlir::OpBuilder builder;
  mlir::Location location;
  int64_t columns;  ///< of the kernel
  int64_t elements; ///< rows x columns
  /// The number of the column in the whole factor, and what lies behind its
  /// end; null where the op has no shard.
  mlir::Value column = {};
  /// Where rows are heads of queries: the number of the row, and those of the
  /// first KV head and the first query head of each; null elsewhere.
  mlir::Value row = {}, firstGroup = {}, firstHead = {};

  mlir::Value constant(double value);
  mlir::Value integer(int64_t value);
  /// One reduction along the row or column: states begin at `identity`, each
  /// element adds `terms`; by addition, or by maximum.
  mlir::SmallVector<mlir::Value> reduce(llvm::ArrayRef<mlir::Value> terms,
                                        bool maximum = false);
};

/// The results of `op` from the scalars of its operands. `op` has a form; sums
/// along columns (weights of norms) are not among the results.
llvm::SmallVector<mlir::Value> buildBody(mlir::Operation *op,
                                         llvm::ArrayRef<mlir::Value> operands,
                                         BodyBuilder &body);

/// The same of dropout, of attention's probabilities and of their gradients.
llvm::SmallVector<mlir::Value>
buildHeadBody(mlir::Operation *op, llvm::ArrayRef<mlir::Value> operands,
              BodyBuilder &body);

/// The gradients that are sums along columns, from one element's scalars: for
/// norms of weight (and bias), for `sum_leading` of its input.
llvm::SmallVector<mlir::Value>
buildColumnTerms(mlir::Operation *op, llvm::ArrayRef<mlir::Value> operands,
                 BodyBuilder &body);

/// Makes the kernel, or finds the one with the same text, and launches it.
/// `build` returns what the written operands get.
void launchRaw(BlockLowering &lowering, const KernelLaunch &launch,
               llvm::function_ref<llvm::SmallVector<mlir::Value>(BodyBuilder &,
                                                                 rt::KernelOp)>
                   build);

} // namespace heddle::lowering

#endif // HEDDLE_PASSES_LOWERING_KERNELBODIES_H
