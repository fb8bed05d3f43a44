//===- SegmentBuilder.h - one segment's function, op by op ------*- C++ -*-===//

#ifndef HEDDLE_PASSES_IMPORT_SEGMENTBUILDER_H
#define HEDDLE_PASSES_IMPORT_SEGMENTBUILDER_H

#include "dialects/Transformer/Transformer.h"
#include "heddle/Model/Parameters.h"
#include "passes/Import/Import.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringMap.h"

namespace heddle::importer {

/// Builds a function whose arguments and values have names. Every op stands at
/// the Hugging Face module that it comes from: `in` sets it.
class SegmentBuilder {
public:
  SegmentBuilder(mlir::ModuleOp module, llvm::StringRef name,
                 const ModelConfig &config, const StepShape &shape);

  /// Appends an argument.
  mlir::Value argument(llvm::StringRef name, mlir::Type type);
  /// Appends an argument that is an instance of a parameter.
  void parameter(const ParameterFamily &family);
  /// A parameter by its short name, null where the segment has none of it.
  mlir::Value find(llvm::StringRef name) const { return named.lookup(name); }
  /// A parameter that the model must have.
  mlir::Value get(llvm::StringRef name) const;

  /// Ops that follow are in the module that the named parameter belongs to, or
  /// `levels` above it: for "model.layers.{}.self_attn.o_proj.weight" that is
  /// model.layers.N.self_attn.o_proj, 1 above it model.layers.N.self_attn.
  void in(llvm::StringRef parameter, int levels = 0);

  /// Creates an op and names its results.
  template <class OpType, class... Args>
  OpType create(llvm::ArrayRef<std::string> names, Args &&...args) {
    auto op = OpType::create(builder, location, std::forward<Args>(args)...);
    transformer::setNames(op, names);
    return op;
  }

  mlir::Value add(llvm::StringRef name, mlir::Value lhs, mlir::Value rhs);
  /// `input` with elements dropped, or itself where the rate is 0.
  mlir::Value dropout(llvm::StringRef name, mlir::Value input, double rate,
                      transformer::DropoutSite site);
  /// Appends what dropout reads, where any of `rates` is above 0, and noise,
  /// where the segment's products have some.
  void dropoutArguments(llvm::ArrayRef<double> rates, bool hasNoise = false);
  /// The product by `spec`, of `shape`; then `bias` is added where it is given.
  mlir::Value linear(llvm::StringRef name, llvm::StringRef spec,
                     mlir::Value input, mlir::Value weight, mlir::Value bias,
                     llvm::ArrayRef<std::int64_t> shape);
  /// The model's norm by the named weight, and bias where it has one.
  mlir::Value norm(llvm::StringRef name, mlir::Value input,
                   llvm::StringRef weight, llvm::StringRef bias);
  /// The norm by the root of the mean square, whatever the model's is.
  mlir::Value rmsNorm(llvm::StringRef name, mlir::Value input,
                      mlir::Value weight);

  /// Ends the function.
  void finish(llvm::ArrayRef<mlir::Value> results,
              llvm::ArrayRef<llvm::StringRef> names);

  mlir::RankedTensorType floats(llvm::ArrayRef<std::int64_t> shape);
  mlir::RankedTensorType tokens(); ///< b x s x i32

  const ModelConfig &config;
  const StepShape &shape;
  mlir::OpBuilder builder;

private:
  mlir::StringAttr segment;
  mlir::func::FuncOp function;
  llvm::StringMap<mlir::Value> named;
  llvm::StringMap<std::string> modules; ///< of each parameter
  mlir::Location location;
};

/// The segments' functions, added to `module`.
void buildEmbedding(mlir::ModuleOp module, const ModelConfig &config,
                    const StepShape &shape);
void buildBlock(mlir::ModuleOp module, const ModelConfig &config,
                const StepShape &shape);
void buildHead(mlir::ModuleOp module, const ModelConfig &config,
               const StepShape &shape);

} // namespace heddle::importer

#endif // HEDDLE_PASSES_IMPORT_SEGMENTBUILDER_H
