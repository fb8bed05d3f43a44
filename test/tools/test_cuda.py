#!/usr/bin/env python3
"""`heddle compile --target cuda`, where the CUDA toolkit is. Usage: test_cuda.py HEDDLE [--elsewhere].

With --elsewhere the emitted folder is built whole by its own CMakeLists.txt (minutes); else it is configured, and one of
its files compiled.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HEDDLE = sys.argv.pop(1)
ELSEWHERE = "--elsewhere" in sys.argv
if ELSEWHERE:
    sys.argv.remove("--elsewhere")
MODEL = {"model_type": "llama", "hidden_size": 16, "intermediate_size": 22, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 37, "hidden_act": "silu",
         "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
TRAIN = ("sequence_length: 8\nglobal_batch: 8\nprecision: [bf16, fp32]\n"
         "optimizer: {type: adamw, lr: 0.01, clip_norm: 0.5}\n")
CLUSTER = "name: here\nnodes: 1\ndevices_per_node: 8\ndevice: host\nlinks: [{level: node, gbytes_per_s: 5}]\n"


def plan(dp, micro_batches):
    return {"version": 1, "mesh": [["pp", 1], ["dp", dp], ["cp", 1], ["tp", 2]], "micro_batch": 1,
            "micro_batches": micro_batches, "tensor": "megatron", "precision": "bf16", "zero": {"stage": 1}}


class CudaTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.scratch.name)
        for name, text in (("train.yaml", TRAIN), ("cluster.yaml", CLUSTER)):
            (cls.folder / name).write_text(text)
        cls.first = cls.compile("first", MODEL, plan(2, 4), "--target", "cuda")

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    @classmethod
    def compile(cls, name, model, made, *options):
        (cls.folder / f"{name}.config.json").write_text(json.dumps(model))
        (cls.folder / f"{name}.plan.json").write_text(json.dumps(made))
        done = subprocess.run([HEDDLE, "compile", f"{name}.config.json", "--cluster", "cluster.yaml", "--train",
                               "train.yaml", "--plan", f"{name}.plan.json", "-o", name, *options], cwd=cls.folder,
                              capture_output=True, text=True)
        if "no nvcc on the search path" in done.stderr or "where there was no CUDA" in done.stderr:
            raise unittest.SkipTest(done.stderr.strip())
        if done.returncode:
            raise AssertionError(done.stdout + done.stderr)
        return done

    def test_program_is_linked_with_the_vendors_libraries(self):
        program = self.folder / "first/train-cuda"
        needs = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        for library in ("libcudart", "libcublasLt", "libnccl"):
            self.assertRegex(needs, rf"{library}\.so[^\n]*=> /")
        self.assertNotIn("not found", needs)
        self.assertFalse((self.folder / "first/train-host").exists())

    def test_no_kernel_spills(self):
        kernels = json.loads((self.folder / "first/cuda.json").read_text())["kernels"]
        self.assertGreater(len(kernels), 10)
        for kernel in kernels:
            self.assertEqual((kernel["stack_bytes"], kernel["spill_bytes"]), (0, 0), kernel)
            self.assertTrue(0 < kernel["registers"] <= 255 and "kernels::" in kernel["name"] or "segment" in kernel["name"],
                            kernel)
        self.assertRegex(self.first.stdout, rf"train-cuda: {len(kernels)} kernels, at most \d+ registers; plan to program ")

    def test_kernels_do_not_depend_on_layers_and_ranks(self):
        done = self.compile("more", {**MODEL, "num_hidden_layers": 5}, plan(4, 2), "--target", "cuda")
        self.assertIn("nvcc was not needed", done.stdout)

    def test_folder_builds_elsewhere(self):
        elsewhere = self.folder / "elsewhere"
        shutil.copytree(self.folder / "first/program", elsewhere)
        # Neither MPI nor what heddle itself links.
        without = [f"-DCMAKE_DISABLE_FIND_PACKAGE_{name}=ON" for name in
                   ("MPI", "OpenMP", "fmt", "yaml-cpp", "nlohmann_json", "OpenSSL", "dnnl")]
        self.call(["cmake", "-G", "Ninja", "-S", elsewhere, "-B", elsewhere / "build", *without])
        text = (elsewhere / "CMakeLists.txt").read_text()
        self.assertNotIn("find_package(fmt", text)
        self.assertEqual(list((elsewhere / "runtime/runtime").glob("host")), [])
        if not ELSEWHERE:
            self.call(["ninja", "-C", elsewhere / "build",
                       "CMakeFiles/train-cuda.dir/runtime/runtime/cuda/Check.cpp.o"])
            return
        self.call(["cmake", "--build", elsewhere / "build", "-j", os.cpu_count()])
        done = subprocess.run([elsewhere / "build/train-cuda", "--help"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        for report in ("kernels", "Attention", "Blocks", "Elements", "Quantize"):
            words = (elsewhere / f"build/{report}.o.txt").read_text()
            self.assertIn(" 0 bytes spill stores", words)
            self.assertNotRegex(words, r"[1-9]\d* bytes (stack frame|spill)")

    def call(self, command):
        done = subprocess.run([*map(str, command)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr[-3000:])


if __name__ == "__main__":
    unittest.main()
