#include "tools/heddle/Home.h"

#include "BuildPaths.h"

#include "llvm/Support/Program.h"

#include <cstdlib>
#include <filesystem>
#include <iterator>

namespace fs = std::filesystem;
using namespace heddle;
using namespace heddle::tool;

static std::string variable(const char *name) {
  const char *value = std::getenv(name);
  return value ? value : "";
}

std::string tool::sourceRoot() {
  // An installed copy keeps the sources of the runtime below its root.
  std::string home = variable("HEDDLE_HOME");
  std::error_code ignored;
  if (!home.empty() && fs::exists(fs::path(home) / "include", ignored))
    return home;
  return kSourceRoot;
}

static std::string buildRoot() {
  std::string home = variable("HEDDLE_HOME");
  return home.empty() ? kBuildRoot : home;
}

std::vector<std::string> tool::runtimeLibraries(Backend backend) {
  const char *of = backend == Backend::Host
                       ? "runtime/host/libHeddleRuntimeHost.a"
                       : "runtime/cuda/libHeddleRuntimeCuda.a";
  // The ranks' functions call the backend, which calls them.
  const char *ranks = "runtime/ranks/libHeddleRuntimeRanks.a";
  std::vector<std::string> paths;
  for (const char *library :
       {"runtime/train/libHeddleRuntimeTrain.a",
        "runtime/checkpoint/libHeddleRuntimeCheckpoint.a",
        "runtime/train/libHeddleRuntimeTables.a", ranks, of, ranks,
        "runtime/common/libHeddleRuntimeCommon.a",
        "lib/Support/libHeddleSupport.a"})
    paths.push_back((fs::path(buildRoot()) / library).string());
  return paths;
}

std::string tool::dnnlLibrary() { return kDnnlLibrary; }

std::vector<std::string> tool::mpiLibraries() {
  return {std::begin(kMpiLibraries), std::end(kMpiLibraries)};
}

std::string tool::fmtInclude() { return kFmtInclude; }

std::vector<std::string> tool::cudaLibraries() {
  std::vector<std::string> found;
  for (const std::string library : kCudaLibraries)
    if (!library.empty())
      found.push_back(library);
  return found;
}

static void addShared(std::vector<std::string> &link,
                      const std::vector<std::string> &libraries) {
  for (const std::string &library : libraries) {
    link.push_back(library);
    link.push_back("-Wl,-rpath," + fs::path(library).parent_path().string());
  }
}

std::vector<std::string> tool::cudaLink() {
  std::vector<std::string> link = runtimeLibraries(Backend::Cuda);
  for (const std::string &library : mpiLibraries())
    link.push_back(library);
  addShared(link, cudaLibraries());
  for (const char *flag : {"-lfmt", "-lyaml-cpp", "-lpthread"})
    link.push_back(flag);
  return link;
}

std::vector<std::string> tool::hostLink() {
  std::vector<std::string> link = runtimeLibraries(Backend::Host);
  link.push_back(dnnlLibrary());
  for (const std::string &library : mpiLibraries())
    link.push_back(library);
  // Not -fopenmp: the host compiler's own OpenMP would be a second pool of
  // threads beside the one that the runtime was built with, which serves both.
  addShared(link, {std::begin(kOpenMpLibraries), std::end(kOpenMpLibraries)});
  for (const char *flag : {"-lfmt", "-lyaml-cpp", "-lpthread"})
    link.push_back(flag);
  return link;
}

std::string tool::cacheFolder() {
  if (std::string cache = variable("HEDDLE_CACHE"); !cache.empty())
    return cache;
  std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.cache/heddle";
}

std::string tool::findNvcc() {
  if (auto path = llvm::sys::findProgramByName("nvcc"))
    return *path;
  std::error_code ignored;
  for (std::string folder :
       {variable("CUDA_HOME"), std::string("/usr/local/cuda")})
    if (!folder.empty() && fs::exists(folder + "/bin/nvcc", ignored))
      return folder + "/bin/nvcc";
  return "";
}
