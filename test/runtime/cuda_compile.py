"""Compiles kernels for sm_90a; fails on an error, a spill or a stack frame. Usage: cuda_compile.py NVCC ROOT OBJECT SOURCE"""
import re, subprocess, sys

nvcc, root, target, source = sys.argv[1:]
done = subprocess.run(
    [nvcc, "-std=c++20", "-gencode", "arch=compute_90a,code=sm_90a", "-fmad=false", "-Xptxas", "-v", "-I", root,
     "-I", root + "/include", "-c", root + "/" + source, "-o", target],
    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
properties = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", done.stdout)
registers = [int(n) for n in re.findall(r"Used (\d+) registers", done.stdout)]
bad = [p for p in properties if p != ("0", "0", "0")]
print(f"{len(properties)} kernels, {len(bad)} with stack or spills, at most {max(registers, default=0)} registers")
if done.returncode or bad or not properties or "warning" in done.stdout:
    print(done.stdout)
    sys.exit(1)
