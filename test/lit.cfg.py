"""lit over every .mlir file below test/: parse, print, refuse, transform."""
import os
import shutil

import lit.formats
from lit.llvm import llvm_config

config.name = "heddle"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir"]
config.excludes = ["CMakeLists.txt", "README.md"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.heddle_build, "test")

llvm_config.with_system_environment(["HOME", "TMP", "TEMP"])
llvm_config.use_default_substitutions()
llvm_config.add_tool_substitutions(
    ["heddle-opt", "heddle-translate", "split-file", "not"],
    [os.path.join(config.heddle_build, "bin"), config.llvm_tools_dir],
)
config.substitutions.append(("%source", config.heddle_source))

if shutil.which("nvcc"):
    config.available_features.add("nvcc")
