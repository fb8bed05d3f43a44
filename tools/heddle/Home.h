//===- Home.h - Where the parts of an emitted program are -------*- C++ -*-===//
//
// The folders that this heddle was built in, or below HEDDLE_HOME: a build
// folder (or a copy of one) with `include` or the sources beside it.
//
//===----------------------------------------------------------------------===//

#ifndef HEDDLE_TOOLS_HOME_H
#define HEDDLE_TOOLS_HOME_H

#include <string>
#include <vector>

namespace heddle::tool {

/// The root of heddle's sources: holds include/ and runtime/.
std::string sourceRoot();
/// A backend of the runtime.
enum class Backend { Host, Cuda };
/// The static libraries of the runtime, in link order.
std::vector<std::string> runtimeLibraries(Backend backend);
std::string dnnlLibrary();
std::vector<std::string> mpiLibraries();
/// All of the link of train-host: libraries and flags, in order.
std::vector<std::string> hostLink();
/// Libraries of the CUDA toolkit that train-cuda links; none where this heddle
/// was built without the toolkit.
std::vector<std::string> cudaLibraries();
/// All of the link of train-cuda.
std::vector<std::string> cudaLink();
/// The folder of fmt/format.h.
std::string fmtInclude();
/// Where compiled kernels are kept; "" where there is no place.
std::string cacheFolder();
/// The CUDA compiler: of the search path, CUDA_HOME or /usr/local/cuda; "".
std::string findNvcc();

} // namespace heddle::tool

#endif
