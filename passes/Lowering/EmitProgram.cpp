//===- EmitProgram.cpp - a module => texts => a folder --------------------===//

#include "passes/Lowering/Emit.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <nlohmann/json.hpp>

using namespace mlir;
using llvm::formatv;

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

static constexpr StringLiteral kBuild =
    R"(# Builds {0}: train-host, which needs nothing of heddle's compiler.
#
#   cmake -B build && cmake --build build
cmake_minimum_required(VERSION 3.25)
project({0} LANGUAGES C CXX)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
find_package(OpenMP REQUIRED)
find_package(MPI REQUIRED COMPONENTS C)
find_package(fmt REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenSSL REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)

# The order of sums is fixed: no contraction, no fast-math.
set(FLAGS -fno-math-errno -fno-trapping-math -ffp-contract=off)
file(GLOB SUPPORT CONFIGURE_DEPENDS runtime/lib/Support/*.cpp)
file(GLOB RUNTIME CONFIGURE_DEPENDS runtime/runtime/common/*.cpp runtime/runtime/ranks/*.cpp
  runtime/runtime/host/*.cpp runtime/runtime/checkpoint/*.cpp runtime/runtime/train/*.cpp)
add_executable(train-host main.cpp step.cpp kernels.cpp ${{SUPPORT} ${{RUNTIME})
target_include_directories(train-host PRIVATE ${{CMAKE_CURRENT_SOURCE_DIR} runtime runtime/include)
target_compile_definitions(train-host PRIVATE OMPI_SKIP_MPICXX HEDDLE_WITH_MPI=1)
target_compile_options(train-host PRIVATE ${{FLAGS})
set_source_files_properties(step.cpp PROPERTIES COMPILE_OPTIONS -O1)
set_source_files_properties(kernels.cpp ${{RUNTIME} PROPERTIES
  COMPILE_OPTIONS "-O3;-march=native;-mprefer-vector-width=512")
target_link_libraries(train-host PRIVATE OpenMP::OpenMP_CXX MPI::MPI_C fmt::fmt yaml-cpp nlohmann_json::nlohmann_json
  OpenSSL::Crypto ${{DNNL_LIBRARY})
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
    if (extension != ".h" && extension != ".cpp" && extension != ".def")
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

LogicalResult writeProgram(const ProgramText &text, StringRef folder,
                           StringRef sourceRoot, std::string &message) {
  if (std::error_code error = llvm::sys::fs::create_directories(folder))
    return fail(message, "cannot make", folder, error);
  if (failed(writeFile(folder, "step.cpp", text.step, message)) ||
      failed(writeFile(folder, "kernels.h", text.kernels, message)) ||
      failed(writeFile(folder, "kernels.cpp", text.kernelsSource, message)) ||
      failed(writeFile(folder, "main.cpp", text.main, message)) ||
      failed(writeFile(folder, "tables.bin", text.tables, message)) ||
      failed(writeFile(folder, "numbers.bin", text.numbers, message)) ||
      failed(writeFile(folder, "CMakeLists.txt",
                       formatv(kBuild.data(), "program").str(), message)))
    return failure();
  if (sourceRoot.empty())
    return success();
  for (StringRef room :
       {"include/heddle/Runtime", "include/heddle/Support", "lib/Support",
        "runtime/common", "runtime/ranks", "runtime/host", "runtime/checkpoint",
        "runtime/train"}) {
    SmallString<128> from(sourceRoot), to(folder);
    llvm::sys::path::append(from, room);
    llvm::sys::path::append(to, "runtime", room);
    if (failed(copySources(from, to, message)))
      return failure();
  }
  return success();
}

} // namespace heddle::lowering
