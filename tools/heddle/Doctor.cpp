//===- Doctor.cpp - heddle doctor: what this machine can do ---------------===//

#include "tools/heddle/Command.h"
#include "tools/heddle/Gpus.h"
#include "tools/heddle/Home.h"

#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

#include <filesystem>
#include <set>
#include <thread>
#include <unistd.h>

namespace cl = llvm::cl;
using namespace heddle;
using namespace heddle::tool;

static cl::SubCommand
    doctor("doctor", "what this machine can do, and what installs the rest");

namespace {

/// Something that heddle uses: a program of the search path or a file.
struct Need {
  const char *what, *purpose, *package;
  std::vector<std::string> anyOf;
  bool required;
};

} // namespace

static std::vector<Need> listNeeds() {
  std::vector<Need> needs = {
      {"C++ compiler", "builds emitted programs", "g++", {"c++", "g++"}, true},
      {"MPI launcher",
       "runs ranks as processes",
       "openmpi-bin",
       {"mpirun"},
       true},
      {"MPI library", "emitted programs link it", "libopenmpi-dev",
       mpiLibraries(), true},
      {"oneDNN", "matrix products", "libdnnl-dev", {dnnlLibrary()}, true},
      {"cmake",
       "builds an emitted folder without heddle",
       "cmake",
       {"cmake"},
       false},
      {"CUDA compiler",
       "--target cuda; nothing else needs it",
       "nvidia-cuda-toolkit",
       {findNvcc().empty() ? "nvcc" : findNvcc()},
       false},
  };
  const std::vector<std::string> linked = runtimeLibraries(Backend::Host);
  for (const std::string &library : std::set(linked.begin(), linked.end()))
    needs.push_back(
        {"runtime library", "emitted programs link it", "", {library}, true});
  std::vector<std::string> cuda = cudaLibraries();
  if (cuda.empty())
    cuda = {"cudart, cublasLt and nccl"};
  for (const std::string &library : cuda)
    needs.push_back(
        {"CUDA library", "train-cuda links it", "", {library}, false});
  return needs;
}

/// Where the first of `names` is; "" where none is.
static std::string findAny(const std::vector<std::string> &names) {
  std::error_code ignored;
  for (const std::string &name : names) {
    if (name.find('/') != std::string::npos) {
      if (std::filesystem::exists(name, ignored))
        return name;
      continue;
    }
    if (auto path = llvm::sys::findProgramByName(name))
      return *path;
  }
  return "";
}

static void describeMachine() {
  const double gib = 1024.0 * 1024 * 1024;
  double memory = double(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  fmt::print("{:16} {}\n", "cores", std::thread::hardware_concurrency());
  fmt::print("{:16} {:.1f} GiB\n", "memory", memory / gib);
  std::string cache = cacheFolder();
  std::error_code error;
  std::filesystem::path existing = cache;
  while (!existing.empty() && !std::filesystem::exists(existing, error))
    existing = existing.parent_path();
  bool writable = !cache.empty() && access(existing.c_str(), W_OK | X_OK) == 0;
  fmt::print("{:16} {}\n", "kernel cache",
             cache.empty() ? "none: set HEDDLE_CACHE or HOME"
             : writable    ? cache
                           : cache + " (cannot be written: set HEDDLE_CACHE)");
}

/// The GPUs, and what they would run.
static void describeGpus() {
  std::string why;
  const std::vector<Gpu> gpus = listGpus(why);
  if (gpus.empty())
    fmt::print("{:16} none: {}\n", "GPU", why);
  for (const Gpu &gpu : gpus)
    fmt::print("{:16} {}, compute capability {}.{}, {:.1f} GiB{}\n", "GPU",
               gpu.name, gpu.major, gpu.minor, double(gpu.bytes) / (1 << 30),
               gpu.major == 9 ? "" : " (kernels are built for 9.0)");
  fmt::print("{:16} heddle's own kernel, without matrix units: every mask, "
             "heads up to 256, f32, bf16, f16\n",
             "GPU attention");
}

static int runDoctor() {
  std::set<std::string> packages;
  bool complete = true;
  for (const Need &need : listNeeds()) {
    std::string path = findAny(need.anyOf);
    if (!path.empty()) {
      fmt::print("{:16} {}\n", need.what, path);
      continue;
    }
    fmt::print("{:16} missing{} ({})\n", need.what,
               need.required ? "" : ", optional", need.purpose);
    if (!need.required)
      continue;
    complete = false;
    if (*need.package)
      packages.insert(need.package);
    else
      fmt::print("{:16} expected {}; build heddle, or set HEDDLE_HOME to a "
                 "build of it\n",
                 "", need.anyOf.front());
  }
  describeMachine();
  describeGpus();
  if (!packages.empty())
    fmt::print("\nto install what is missing:\n  apt-get install -y {}\n",
               fmt::join(packages, " "));
  return complete ? kDone : kAnswerIsNo;
}

Command tool::doctorCommand() { return {&doctor, runDoctor}; }
