"""Kernels for sm_90a: fails on an error, a warning, a spill or a stack frame.

    cuda_compile.py NVCC ROOT OBJECT SOURCE      compiles them
    cuda_compile.py --reports FILE...            reads what `nvcc -Xptxas -v` said when they were compiled
"""
import pathlib
import re
import subprocess
import sys


def check(words, code=0):
    """Whether no kernel spills, and there are kernels."""
    properties = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", words)
    registers = [int(n) for n in re.findall(r"Used (\d+) registers", words)]
    bad = [p for p in properties if p != ("0", "0", "0")]
    print(f"{len(properties)} kernels, {len(bad)} with stack or spills, at most {max(registers, default=0)} registers")
    good = code == 0 and not bad and properties and "warning" not in words
    if not good:
        print(words)
    return good


if sys.argv[1] == "--reports":
    sys.exit(0 if all([check(pathlib.Path(path).read_text()) for path in sys.argv[2:]]) else 1)
nvcc, root, target, source = sys.argv[1:]
done = subprocess.run(
    [nvcc, "-std=c++20", "-gencode", "arch=compute_90a,code=sm_90a", "-fmad=false", "-Xptxas", "-v", "-I", root,
     "-I", root + "/include", "-c", root + "/" + source, "-o", target],
    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
sys.exit(0 if check(done.stdout, done.returncode) else 1)
