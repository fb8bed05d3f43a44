"""Fails when a file includes from a room it may not know. Usage: layering.py ROOT."""
import pathlib
import re
import sys

# Each library may include those before it; each room, itself and what is listed.
LIBRARIES = ["Support", "Supervisor", "Model", "Cluster", "Plan", "Schedule", "Cost", "Planner"]
MLIR = ["mlir/", "llvm/"]
RUNTIME = ["heddle/Runtime/", "heddle/Support/", "runtime/common/", "fmt/"]
MAY_INCLUDE = {
    "dialects": ["heddle/Support/", *MLIR],
    "dialects/Transformer": ["heddle/Support/", *MLIR, "dialects/Dist/"],
    # A table of slots is checked by the library that knows schedules.
    "dialects/Stage": ["heddle/Support/", "heddle/Plan/", "heddle/Schedule/", *MLIR, "dialects/Dist/", "dialects/Transformer/"],
    "passes": ["heddle/", "dialects/", "fmt/", *MLIR],
    "passes/Lowering": ["heddle/", "dialects/", "fmt/", *MLIR, "nlohmann/"],  # writes tables.bin
    "passes/Pipelines": ["heddle/", "dialects/", "fmt/", *MLIR, "passes/"],
    "include/heddle/Runtime": ["heddle/Runtime/", "cuda"],
    "runtime": RUNTIME,
    # --threads (ranks as threads of one process) and what a rank tells who watches it are not in the C header.
    "runtime/train": [*RUNTIME, "nlohmann/", "runtime/checkpoint/", "runtime/ranks/RunRanks.h",
                      "runtime/ranks/Inspect.h"],
    "runtime/ranks": [*RUNTIME, "mpi.h"],
    "runtime/host": [*RUNTIME, "runtime/ranks/", "dnnl"],
    "runtime/cuda": [*RUNTIME, "runtime/ranks/", "cuda", "nccl", "cublas", "cudnn"],
    # `heddle calibrate` measures ranks as threads of one process.
    "tools": ["runtime/ranks/RunRanks.h", "heddle/", "dialects/", "passes/", *MLIR, "fmt/", "nlohmann/"],
    # Reads and rewrites what runs have saved, without running.
    "tools/heddle": ["heddle/", "dialects/", "passes/", *MLIR, "fmt/", "nlohmann/", "runtime/checkpoint/",
                     "runtime/ranks/RunRanks.h"],
    # Runs programs with planted faults in process, and looks at what their ranks hold.
    "tools/mutate": ["heddle/", "dialects/", "passes/", *MLIR, "fmt/", "nlohmann/", "runtime/"],
}
for i, library in enumerate(LIBRARIES):
    below = [f"heddle/{name}/" for name in LIBRARIES[: i + 1]] + ["fmt/"]
    below += {"Support": ["yaml-cpp/", "nlohmann/"], "Planner": ["coin/"]}.get(library, [])
    MAY_INCLUDE[f"include/heddle/{library}"] = MAY_INCLUDE[f"lib/{library}"] = below
GUARDED = ("mlir/", "llvm/", "fmt/", "heddle/", "dialects/", "passes/", "runtime/", "cuda", "nccl",
           "cublas", "cudnn", "mpi.h", "dnnl", "yaml-cpp/", "nlohmann/", "coin/")
SUFFIXES = (".h", ".cpp", ".c", ".cu", ".td")


def room_of(path):
    return max((r for r in MAY_INCLUDE if path.startswith(r + "/")), key=len, default=None)


def violations(root):
    for room in sorted({r.split("/")[0] for r in MAY_INCLUDE}):
        for file in sorted((root / room).rglob("*")):
            path = file.relative_to(root).as_posix()
            known = room_of(path)
            if known is None or file.suffix not in SUFFIXES or not file.is_file():
                continue
            own = "/".join(path.split("/")[:2]) + "/"
            for name in re.findall(r'^\s*#?include\s+["<]([^">]+)[">]', file.read_text(), re.M):
                if name.startswith(GUARDED) and not name.startswith((own, *MAY_INCLUDE[known])):
                    yield f"{path}: {known} may not include {name}"


if __name__ == "__main__":
    bad = list(violations(pathlib.Path(sys.argv[1])))
    print("\n".join(bad) or "layering holds")
    sys.exit(bool(bad))
