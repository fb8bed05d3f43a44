//===- Emit.h - rt IR => a program => an executable -------------*- C++ -*-===//
//
// The last step of a compilation. Nothing is decided here: one op becomes one
// statement. The same texts compile with a host compiler and with nvcc.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_PASSES_LOWERING_EMIT_H
#define HEDDLE_PASSES_LOWERING_EMIT_H

#include "dialects/Rt/Rt.h"

#include <optional>
#include <string>
#include <vector>

namespace heddle::lowering {

/// One kernel as a file of its own, so that its object can be kept for every
/// program that has the same kernel.
struct KernelUnit {
  std::string name; ///< of the functor, an identifier
  std::string text; ///< includes heddle/Runtime/Skeletons.h, instantiates
};

/// A program as texts.
struct ProgramText {
  std::string step;          ///< step.cpp
  std::string kernels;       ///< kernels.h: functors, declarations of launches
  std::string kernelsSource; ///< kernels.cpp: all instantiations in one file
  std::string tables;        ///< tables.bin: bytes
  std::string numbers;       ///< numbers.bin: bytes
  std::vector<KernelUnit> units;
  std::string main; ///< main.cpp: trains; empty where the link brings a main
};

/// The texts of the one rt.program of `module`. Fails with a diagnostic where
/// an op of a kernel has no form in C++ or `tables` does not say what
/// heddle/Runtime/Tables.h asks for.
mlir::FailureOr<ProgramText> emitProgram(mlir::ModuleOp module);

/// The functors and launches of a program's kernels, and the units they come
/// from. `kernels` are those that are launched, in order.
struct KernelsText {
  std::string header, source;
  std::vector<KernelUnit> units;
};
mlir::FailureOr<KernelsText> emitKernels(rt::ProgramOp program);

/// step.cpp, whose text does not depend on layers, micro-batches or ranks, and
/// numbers.bin, which does.
struct StepText {
  std::string text, numbers;
};
mlir::FailureOr<StepText> emitStep(rt::ProgramOp program);

/// tables.bin: the program's `tables` with mesh, arenas and communicators
/// added. A program without `tables` has an empty file.
mlir::FailureOr<std::string> emitTables(rt::ProgramOp program);

/// What a folder holds beside the texts, so that it builds without heddle.
struct FolderOptions {
  /// The root of heddle's sources, from which the runtime's go to
  /// `folder`/runtime; "": none do, and the folder does not build alone.
  std::string sourceRoot;
  /// The backends whose sources are there and that CMakeLists.txt builds.
  bool host = true, cuda = false;
  /// Where fmt/format.h is, for a folder with `cuda`: it goes along, so that
  /// the toolkit and a compiler are all that the folder needs.
  std::string fmtInclude;
};

/// Writes step.cpp, kernels.h, kernels.cpp, tables.bin, numbers.bin and a
/// CMakeLists.txt into `folder`, which is made. A failure is in `message`.
mlir::LogicalResult writeProgram(const ProgramText &text,
                                 llvm::StringRef folder,
                                 const FolderOptions &options,
                                 std::string &message);

/// Compiles all kernels of a program as one file; the host's are compiled one
/// by one, so that each is kept.
struct KernelCompiler {
  std::string compiler;
  std::vector<std::string> flags; ///< all that it wants but -I, -c and -o
};

struct BuildOptions {
  /// The host compiler; "": `c++` of the search path.
  std::string compiler;
  /// Of the kernels; nothing: the host compiler, for this machine.
  std::optional<KernelCompiler> kernels;
  /// Folders that hold heddle/Runtime/*.h.
  std::vector<std::string> includes;
  /// Where objects are kept, by a hash of text, headers, flags and compiler;
  /// "": HEDDLE_CACHE, else ~/.cache/heddle.
  std::string cache;
  /// Libraries and flags of the link, in order.
  std::vector<std::string> link;
  /// Compilers at a time; 0: as many as there are cores.
  unsigned jobs = 0;
};

/// What the compiler of the kernels did.
struct KernelReport {
  std::string words;  ///< what it printed, also where the object was kept
  double seconds = 0; ///< it took; of kept objects: 0
};

/// Compiles the texts and links them into `output`. A failure is in `message`,
/// with the compiler's words. \p report is filled where `options.kernels` is.
mlir::LogicalResult buildProgram(const ProgramText &text,
                                 const BuildOptions &options,
                                 llvm::StringRef output, std::string &message,
                                 KernelReport *report = nullptr);

} // namespace heddle::lowering

#endif // HEDDLE_PASSES_LOWERING_EMIT_H
