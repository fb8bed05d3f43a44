//===- EmitText.h - names and literals of the emitted C++ -------*- C++ -*-===//

#ifndef HEDDLE_PASSES_LOWERING_EMITTEXT_H
#define HEDDLE_PASSES_LOWERING_EMITTEXT_H

#include "dialects/Rt/Rt.h"

#include "llvm/ADT/StringSet.h"

#include <string>

namespace heddle::lowering {

/// Gives out identifiers, each once: a second `x` becomes `x_2`. Knows the
/// words of C++ and the names that emitted text uses itself.
class Namer {
public:
  std::string give(llvm::StringRef wish);

private:
  llvm::StringSet<> used;
};

/// "rms_norm" -> "RmsNorm", "model.layers.N.up" -> "ModelLayersNUp".
std::string upperCamel(llvm::StringRef name);
/// What no identifier may have becomes '_'.
std::string toIdentifier(llvm::StringRef name);

/// The C++ type of an element in memory, and of the value a kernel sees.
llvm::StringRef elementType(mlir::Type type);
llvm::StringRef valueType(mlir::Type type);
/// "HEDDLE_RT_F32".
llvm::StringRef dtypeName(mlir::Type type);

/// A literal of type float (double) that reads back as the same number.
std::string floatLiteral(const llvm::APFloat &value);
/// A string literal with quotes.
std::string stringLiteral(llvm::StringRef text);

/// `text` behind `indent` blanks, broken at commas into lines of at most 120.
std::string wrap(llvm::StringRef text, unsigned indent);

/// The words of an op's location: its names, from the outermost in. Empty where
/// it is but a place in a file.
std::string locationWords(mlir::Location location);

/// The functions that `entry` reaches, callees before callers.
llvm::SmallVector<rt::FuncOp> reachableFunctions(rt::ProgramOp program);
/// Whether all ranks of a stage call the collectives of a function in one
/// sequence: none is with ranks of other stages, which call it at other times.
bool queuesAlikeInStage(rt::ProgramOp program, llvm::StringRef function);
/// The kernels that these functions launch, in the order of their definition.
llvm::SmallVector<rt::KernelOp> launchedKernels(rt::ProgramOp program);
/// Name of a kernel's functor.
std::string functorName(rt::KernelOp kernel);

} // namespace heddle::lowering

#endif // HEDDLE_PASSES_LOWERING_EMITTEXT_H
