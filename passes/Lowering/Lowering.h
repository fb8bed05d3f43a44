//===- Lowering.h - per-rank tensors => rt, shared by its files -*- C++ -*-===//

#ifndef HEDDLE_PASSES_LOWERING_LOWERING_H
#define HEDDLE_PASSES_LOWERING_LOWERING_H

#include "dialects/Rt/Rt.h"
#include "dialects/Transformer/Transformer.h"

#include "mlir/IR/Builders.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

namespace heddle::lowering {

/// Streams of every program: compute carries everything but the reduction of
/// gradients.
inline constexpr llvm::StringLiteral kCompute = "compute";
inline constexpr llvm::StringLiteral kComm = "comm";
/// And of those that gather beside products: behind gradients on `comm` what
/// the next product reads would wait for all of them.
inline constexpr llvm::StringLiteral kGather = "gather";
/// To the host and from it; also the name of the arena there.
inline constexpr llvm::StringLiteral kCopies = "copies";
inline constexpr llvm::StringLiteral kHost = "host";
/// The stream of what passes between pipeline stages.
inline constexpr llvm::StringLiteral kTransfers = "transfers";

/// Attribute of an `rt.buffer`: what its bytes are for ("parameters",
/// "gradients", "optimizer", "inputs", "outputs", "saved", "workspace",
/// "communication"). All but the last three live from step to step.
inline constexpr llvm::StringLiteral kClassName = "memory_class";
/// Unit, on a buffer of saved values: some layers may not read theirs again.
inline constexpr llvm::StringLiteral kReadBySomeName = "read_by_some";
/// Attribute of an `rt.buffer`, integers: bytes of the object that it is a part
/// of, on each pipeline stage.
inline constexpr llvm::StringLiteral kBytesByStageName = "bytes_by_stage";

/// What the functions of one program share.
struct Program {
  rt::ProgramOp op;
  dist::MeshAttr mesh;
  mlir::SymbolTable symbols; ///< of the module that is lowered
  /// Kernels by their text, so that each exists once.
  llvm::StringMap<std::string> kernels;
  llvm::StringMap<unsigned> kernelNames;
  llvm::SetVector<mlir::Attribute> communicators, events;
  bool gathersBeside = false; ///< something is on the stream kGather
  bool offloads = false;      ///< something is in the arena kHost

  explicit Program(mlir::ModuleOp module) : symbols(module) {}
};

/// How a segment is called.
struct Signature {
  mlir::func::FuncOp function;
  rt::FuncOp lowered;
  /// Per result, the argument of `lowered` that receives it, or -1 where no
  /// call uses it.
  llvm::SmallVector<int> results;
  /// Per result: it is added to what is there.
  llvm::SmallVector<bool> accumulates;
};

/// Text with everything that no identifier may have replaced.
std::string identifier(llvm::StringRef text);

/// The outermost name of a location, "" where it has none.
llvm::StringRef nameIn(mlir::Location location);

/// The HF module of an op and its layer, from its location; for labels.
std::string labelOf(mlir::Operation *op);

/// Lowers the ops of one block of tensors to work on buffers.
class BlockLowering {
public:
  BlockLowering(Program &program, mlir::OpBuilder builder,
                llvm::StringRef scope)
      : program(program), builder(builder), scope(scope.str()) {}

  /// The buffer of a value, a temporary one where none is bound.
  mlir::Value placeOf(mlir::Value value);
  void bind(mlir::Value value, mlir::Value buffer) { places[value] = buffer; }
  /// Values of a block, and of what is inside it, have no places any more: it
  /// is lowered once again, elsewhere.
  void forget(mlir::Block &block);
  bool isBound(mlir::Value value) const { return places.contains(value); }
  /// `value` is not stored but added to `buffer`.
  void accumulate(mlir::Value value, mlir::Value buffer) {
    sums[value] = buffer;
  }
  bool adds(mlir::Value value) const { return sums.contains(value); }

  /// Lowers an op on tensors (one with a factor rule, or a collective). Ops
  /// that one kernel can hold are gathered; `flush` launches what was gathered.
  mlir::LogicalResult lower(mlir::Operation *op);
  mlir::LogicalResult flush();
  /// Before the ops of a block: gives values that are only copied on (into an
  /// all-reduce in place, a stack of tensors) the place they go to, and lets
  /// products that are only added to each other add themselves.
  void prepare(mlir::Block &block);
  /// Before that: gathers that can run beside the product in front of them are
  /// put in front of it.
  void gatherEarly(mlir::Block &block);

  /// The name, with a number behind it where it is taken.
  std::string uniqueName(llvm::StringRef name);
  /// A new buffer of a tensor's shape. Offsets are the Memory pass's to give.
  mlir::Value makeBuffer(llvm::StringRef name, llvm::StringRef reason,
                         mlir::RankedTensorType type,
                         llvm::StringRef memoryClass);
  mlir::Value viewAs(mlir::Value buffer, llvm::ArrayRef<int64_t> shape,
                     llvm::ArrayRef<int64_t> strides = {}, int64_t offset = 0);
  void copy(mlir::Location location, llvm::StringRef label, mlir::Value from,
            mlir::Value to);
  /// to += from, element by element.
  void addBuffers(mlir::Location location, llvm::StringRef label,
                  mlir::Value from, mlir::Value to,
                  mlir::RankedTensorType type);

  mlir::OpBuilder &getBuilder() { return builder; }
  Program &getProgram() { return program; }
  /// The stream that work is queued on.
  std::string stream = kCompute.str();

private:
  friend class KernelGroup;
  /// Whether a value has one use in its block and no place yet.
  bool isFree(mlir::Value value) const;
  transformer::ContractOp beginOfSum(mlir::Value value) const;
  transformer::ContractOp beginOfSum(transformer::AddOp add) const;
  mlir::LogicalResult lowerContract(transformer::ContractOp op);
  mlir::LogicalResult lowerAmax(transformer::AmaxOp op);
  mlir::LogicalResult lowerHadamard(transformer::HadamardOp op);
  /// Of numbers that are rounded at random, where their columns stand in the
  /// whole tensor: `rt.quantize` says how.
  struct Columns {
    llvm::SmallVector<int64_t> sizes, strides;
    llvm::SmallVector<mlir::Value> begins;
  };
  Columns columnsOf(transformer::QuantizeOp op);
  mlir::Value placeOrNone(mlir::Value value);
  mlir::LogicalResult lowerQuantize(transformer::QuantizeOp op);
  mlir::LogicalResult lowerInPieces(transformer::ContractOp op);
  /// What attention with dropout reads; all null without.
  struct AttentionDropout {
    mlir::Value seed, tokenNumbers, firstGroup, firstHead;
    mlir::FloatAttr rate;
    mlir::IntegerAttr groupHeads;
  };
  AttentionDropout attentionDropout(mlir::Operation *op, mlir::Value query,
                                    mlir::Value seed, mlir::Value tokenNumbers,
                                    mlir::FloatAttr rate);
  mlir::LogicalResult lowerAttention(transformer::AttentionOp op);
  mlir::LogicalResult lowerAttentionGrad(transformer::AttentionGradOp op);
  mlir::LogicalResult lowerRope(transformer::RopeOp op);
  mlir::LogicalResult lowerEmbedding(transformer::EmbeddingOp op);
  mlir::LogicalResult lowerEmbeddingGrad(transformer::EmbeddingGradOp op);
  mlir::LogicalResult lowerSplit(transformer::SplitTensorsOp op);
  mlir::LogicalResult lowerStack(transformer::StackTensorsOp op);
  mlir::LogicalResult lowerZeros(mlir::Operation *op);
  mlir::LogicalResult lowerCollective(mlir::Operation *op);
  mlir::LogicalResult lowerBeside(dist::AllGatherOp op);
  /// Waits for what is on its way to an op.
  void awaitOperands(mlir::Operation *op);
  std::string newEvent(mlir::Operation *op, llvm::StringRef what);
  mlir::LogicalResult lowerOther(mlir::Operation *op);
  /// Adds what was computed beside its sum to it, where the op itself could
  /// not.
  void finishSum(mlir::Operation *op, mlir::Value value);
  mlir::Value beginOfShard(mlir::Location location, dist::ShardAttr shard,
                           int64_t local);
  void gatherRows(mlir::Location location, llvm::StringRef label,
                  mlir::Value table, mlir::Value index, mlir::Value first,
                  mlir::Value output);
  void makePartial(mlir::Operation *op, mlir::ArrayAttr axes);
  void slice(dist::SliceOp op);
  void maskPaddedHeads(transformer::AttentionOp op);

  Program &program;
  mlir::OpBuilder builder;
  std::string scope;
  llvm::DenseMap<mlir::Value, mlir::Value> places, sums;
  llvm::DenseSet<mlir::Value>
      inPlaceParts; // of stacked tensors, computed where they go
  llvm::DenseSet<mlir::Operation *> doneByProducts;  // additions
  llvm::DenseSet<mlir::Operation *> beside;          // gathers, of a product
  llvm::DenseMap<mlir::Value, std::string> arriving; // what they make, by event
  llvm::SmallVector<mlir::Operation *> open; // ops of the kernel being gathered
  llvm::StringSet<> names; ///< of objects of memory and events
};

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// Whether an op can be part of a kernel.
bool isKernelOp(mlir::Operation *op);
/// Whether `op` can join a kernel that holds `open`.
bool canJoin(llvm::ArrayRef<mlir::Operation *> open, mlir::Operation *op);
/// Launches one kernel for `ops`, and those along columns that belong to them.
mlir::LogicalResult launchKernel(BlockLowering &lowering,
                                 llvm::ArrayRef<mlir::Operation *> ops);

} // namespace heddle::lowering

#endif // HEDDLE_PASSES_LOWERING_LOWERING_H
