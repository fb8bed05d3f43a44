//===- EmitProgram.cpp - a module => texts => a folder --------------------===//

#include "passes/Lowering/Emit.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <nlohmann/json.hpp>

using namespace mlir;

namespace heddle::lowering {

//===----------------------------------------------------------------------===//
// tables.bin
//===----------------------------------------------------------------------===//

/// What an attribute is in JSON, or nothing.
static std::optional<nlohmann::json> toJson(Attribute attribute) {
  if (auto text = dyn_cast<StringAttr>(attribute))
    return text.str();
  if (auto truth = dyn_cast<BoolAttr>(attribute))
    return truth.getValue();
  if (auto number = dyn_cast<IntegerAttr>(attribute))
    return number.getValue().getSExtValue();
  if (auto number = dyn_cast<FloatAttr>(attribute))
    return number.getValueAsDouble();
  nlohmann::json result;
  if (auto numbers = dyn_cast<DenseI64ArrayAttr>(attribute)) {
    result = nlohmann::json::array();
    for (int64_t number : numbers.asArrayRef())
      result.push_back(number);
    return result;
  }
  if (auto list = dyn_cast<ArrayAttr>(attribute)) {
    result = nlohmann::json::array();
    for (Attribute element : list) {
      std::optional<nlohmann::json> value = toJson(element);
      if (!value)
        return std::nullopt;
      result.push_back(*value);
    }
    return result;
  }
  auto map = dyn_cast<DictionaryAttr>(attribute);
  if (!map)
    return std::nullopt;
  result = nlohmann::json::object();
  for (NamedAttribute entry : map) {
    std::optional<nlohmann::json> value = toJson(entry.getValue());
    if (!value)
      return std::nullopt;
    result[entry.getName().str()] = *value;
  }
  return result;
}

FailureOr<std::string> emitTables(rt::ProgramOp program) {
  if (!program.getTablesAttr())
    return std::string();
  std::optional<nlohmann::json> tables = toJson(program.getTablesAttr());
  if (!tables)
    return program.emitOpError() << "tables may consist of strings, numbers, "
                                    "lists and dictionaries only";
  for (const char *key : {"mesh", "arenas", "communicators"})
    if (tables->contains(key))
      return program.emitOpError()
             << "tables have a '" << key << "'; the program itself says it";
  nlohmann::json mesh = nlohmann::json::array(), arenas = mesh,
                 communicators = mesh;
  for (auto axis : program.getMesh().getAsRange<rt::AxisAttr>())
    mesh.push_back({axis.getName().str(), axis.getSize()});
  for (auto arena : program.getArenas().getAsRange<rt::ArenaAttr>()) {
    arenas.push_back(
        {{"name", arena.getName().str()}, {"bytes", arena.getBytes()}});
    if (!arena.getByStage().empty())
      arenas.back()["by_stage"] = arena.getByStage();
  }
  for (Attribute axes : program.getCommunicators())
    communicators.push_back(*toJson(axes));
  (*tables)["mesh"] = mesh;
  (*tables)["arenas"] = arenas;
  (*tables)["communicators"] = communicators;
  std::vector<uint8_t> bytes = nlohmann::json::to_cbor(*tables);
  return std::string(bytes.begin(), bytes.end());
}

/// All that is the same for every model is in the runtime's train room.
static constexpr StringLiteral kMain = R"(#include "heddle/Runtime/Train.h"

int main(int argc, char **argv) { return heddle_train_main(argc, argv); }
)";

FailureOr<ProgramText> emitProgram(ModuleOp module) {
  auto programs = llvm::to_vector(module.getOps<rt::ProgramOp>());
  if (programs.size() != 1)
    return module.emitError() << "expected one rt.program in the module, found "
                              << programs.size();
  FailureOr<StepText> step = emitStep(programs[0]);
  FailureOr<std::string> tables = emitTables(programs[0]);
  FailureOr<KernelsText> kernels = emitKernels(programs[0]);
  if (failed(step) || failed(kernels) || failed(tables))
    return failure();
  return ProgramText{step->text,    kernels->header, kernels->source, *tables,
                     step->numbers, kernels->units,  kMain.str()};
}

//===----------------------------------------------------------------------===//
// The folder
//===----------------------------------------------------------------------===//

// What follows is pasted together by the backends that the folder has; none of
// it is a format.
static constexpr StringLiteral kBuildHead =
    R"(# Builds this program; needs nothing of heddle's compiler.
#
#   cmake -B build && cmake --build build -j
cmake_minimum_required(VERSION 3.20)
project(program LANGUAGES C CXX)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
find_package(Threads REQUIRED)

# The order of sums is fixed: no contraction, no fast-math.
set(FLAGS -fno-math-errno -fno-trapping-math -ffp-contract=off)
set(support runtime/lib/Support)
set(SUPPORT ${support}/Check.cpp ${support}/Files.cpp ${support}/Json.cpp ${support}/MapReader.cpp
  ${support}/Printable.cpp ${support}/Safetensors.cpp ${support}/Scalars.cpp)
file(GLOB RUNTIME CONFIGURE_DEPENDS runtime/runtime/common/*.cpp runtime/runtime/ranks/*.cpp
  runtime/runtime/checkpoint/*.cpp runtime/runtime/train/*.cpp)
set_source_files_properties(step.cpp PROPERTIES COMPILE_OPTIONS -O1)
)";

static constexpr StringLiteral kBuildHost = R"(
# train-host: ranks are threads or MPI processes, on CPUs.
find_package(OpenMP REQUIRED)
find_package(MPI REQUIRED COMPONENTS C)
find_package(fmt REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
file(GLOB HOST CONFIGURE_DEPENDS runtime/runtime/host/*.cpp)
add_executable(train-host main.cpp step.cpp kernels.cpp ${SUPPORT} ${RUNTIME} ${HOST})
target_include_directories(train-host PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} runtime runtime/include)
target_compile_definitions(train-host PRIVATE OMPI_SKIP_MPICXX HEDDLE_WITH_MPI)
target_compile_options(train-host PRIVATE ${FLAGS})
set_source_files_properties(kernels.cpp ${HOST} ${RUNTIME} PROPERTIES
  COMPILE_OPTIONS "-O3;-march=native;-mprefer-vector-width=512")
target_link_libraries(train-host PRIVATE OpenMP::OpenMP_CXX MPI::MPI_C fmt::fmt ${DNNL_LIBRARY}
  Threads::Threads)
)";

static constexpr StringLiteral kBuildCuda = R"(
# train-cuda: the CUDA toolkit with NCCL is all it needs. Where MPI is, ranks may be mpirun's too.
find_package(CUDAToolkit 12.9 REQUIRED)
find_path(NCCL_INCLUDE nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} REQUIRED)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_LIBRARY_ROOT}
  PATH_SUFFIXES lib lib64 REQUIRED)
find_package(MPI QUIET COMPONENTS C)
file(GLOB CUDA CONFIGURE_DEPENDS runtime/runtime/cuda/*.cpp)
file(GLOB KERNELS CONFIGURE_DEPENDS runtime/runtime/cuda/*.cu)
set(root ${CMAKE_CURRENT_SOURCE_DIR})
file(GLOB HEADERS CONFIGURE_DEPENDS kernels.h runtime/include/heddle/Runtime/*.h runtime/runtime/cuda/*.h)
# By hand: one architecture, the flags that heddle uses, and what ptxas says of every kernel in a file beside it.
set(OBJECTS)
foreach(source kernels.cpp ${KERNELS})
  get_filename_component(name ${source} NAME_WE)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.o)
  add_custom_command(OUTPUT ${object}
    COMMAND sh -c "\"$0\" \"$@\" > ${object}.txt 2>&1 || { cat ${object}.txt; exit 1; }"
      ${CUDAToolkit_NVCC_EXECUTABLE} -x cu -std=c++20 -gencode arch=compute_90a,code=sm_90a -fmad=false -O3 -Xptxas -v
      -I${root} -I${root}/runtime -I${root}/runtime/include -c ${source} -o ${object}
    WORKING_DIRECTORY ${root} DEPENDS ${source} ${HEADERS} VERBATIM)
  list(APPEND OBJECTS ${object})
endforeach()
add_executable(train-cuda main.cpp step.cpp ${SUPPORT} ${RUNTIME} ${CUDA} ${OBJECTS})
target_include_directories(train-cuda PRIVATE ${root} runtime runtime/include)
target_include_directories(train-cuda SYSTEM PRIVATE runtime/third_party ${CUDAToolkit_INCLUDE_DIRS} ${NCCL_INCLUDE})
target_compile_definitions(train-cuda PRIVATE FMT_HEADER_ONLY)
target_compile_options(train-cuda PRIVATE ${FLAGS})
target_link_libraries(train-cuda PRIVATE CUDA::cudart CUDA::cublasLt ${NCCL_LIBRARY} Threads::Threads)
if(MPI_C_FOUND)
  target_compile_definitions(train-cuda PRIVATE OMPI_SKIP_MPICXX HEDDLE_WITH_MPI)
  target_link_libraries(train-cuda PRIVATE MPI::MPI_C)
endif()
)";

static LogicalResult fail(std::string &message, const Twine &what,
                          StringRef path, std::error_code error) {
  message = (what + " " + path + ": " + error.message()).str();
  return failure();
}

static LogicalResult writeFile(StringRef folder, StringRef name, StringRef text,
                               std::string &message) {
  SmallString<128> path(folder);
  llvm::sys::path::append(path, name);
  std::error_code error;
  llvm::raw_fd_ostream os(path, error);
  if (error)
    return fail(message, "cannot write", path, error);
  os << text;
  os.close();
  if (os.has_error()) {
    error = os.error();
    os.clear_error();
    return fail(message, "cannot write", path, error);
  }
  return success();
}

/// Copies C++ files of `from` and the folders below it.
static LogicalResult copySources(StringRef from, StringRef to,
                                 std::string &message) {
  std::error_code error;
  for (llvm::sys::fs::recursive_directory_iterator it(from, error), end;
       it != end && !error; it.increment(error)) {
    StringRef extension = llvm::sys::path::extension(it->path());
    if (extension != ".h" && extension != ".cpp" && extension != ".cu" &&
        extension != ".def")
      continue;
    SmallString<128> target(to);
    llvm::sys::path::append(target,
                            StringRef(it->path()).drop_front(from.size() + 1));
    error =
        llvm::sys::fs::create_directories(llvm::sys::path::parent_path(target));
    if (!error)
      error = llvm::sys::fs::copy_file(it->path(), target);
    if (error)
      return fail(message, "cannot copy to", target, error);
  }
  if (error)
    return fail(message, "cannot read", from, error);
  return success();
}

/// The runtime's sources, and fmt's headers where no package is asked for.
static LogicalResult copyRuntime(StringRef folder, const FolderOptions &options,
                                 std::string &message) {
  SmallVector<StringRef> rooms = {
      "include/heddle/Runtime", "include/heddle/Support", "lib/Support",
      "runtime/common",         "runtime/ranks",          "runtime/checkpoint",
      "runtime/train"};
  if (options.host)
    rooms.push_back("runtime/host");
  if (options.cuda)
    rooms.push_back("runtime/cuda");
  for (StringRef room : rooms) {
    SmallString<128> from(options.sourceRoot), to(folder);
    llvm::sys::path::append(from, room);
    llvm::sys::path::append(to, "runtime", room);
    if (failed(copySources(from, to, message)))
      return failure();
  }
  if (!options.cuda)
    return success();
  SmallString<128> from(options.fmtInclude), to(folder);
  llvm::sys::path::append(from, "fmt");
  llvm::sys::path::append(to, "runtime", "third_party", "fmt");
  return copySources(from, to, message);
}

LogicalResult writeProgram(const ProgramText &text, StringRef folder,
                           const FolderOptions &options, std::string &message) {
  if (std::error_code error = llvm::sys::fs::create_directories(folder))
    return fail(message, "cannot make", folder, error);
  std::string build = kBuildHead.str();
  if (options.host)
    build += kBuildHost;
  if (options.cuda)
    build += kBuildCuda;
  if (failed(writeFile(folder, "step.cpp", text.step, message)) ||
      failed(writeFile(folder, "kernels.h", text.kernels, message)) ||
      failed(writeFile(folder, "kernels.cpp", text.kernelsSource, message)) ||
      failed(writeFile(folder, "main.cpp", text.main, message)) ||
      failed(writeFile(folder, "tables.bin", text.tables, message)) ||
      failed(writeFile(folder, "numbers.bin", text.numbers, message)) ||
      failed(writeFile(folder, "CMakeLists.txt", build, message)))
    return failure();
  return options.sourceRoot.empty() ? success()
                                    : copyRuntime(folder, options, message);
}

} // namespace heddle::lowering
