#!/usr/bin/env python3
"""The example plug-in, built as a user would and loaded by the tools.
Usage: test_plugin.py SOURCES BUILD CXX MLIR_DIR."""
import json
import math
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest

SOURCES, BUILD, CXX, MLIR_DIR = (sys.argv.pop(1) for _ in range(4))
EXAMPLE = pathlib.Path(SOURCES) / "tools/examples/plugin"
PLUGIN = pathlib.Path(BUILD) / "test/plugin/built/libHeddleExample.so"
MODEL = {"model_type": "llama", "hidden_size": 16, "intermediate_size": 22, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 37, "hidden_act": "silu",
         "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
GRADIENTS = ["--autodiff-build-backward"]
RANKS = ["--sharding-propagate-layouts", "--sharding-verify-layouts", "--collectives-partition",
         "--collectives-verify"]


def run(tool, *arguments):
    return subprocess.run([pathlib.Path(BUILD) / "bin" / tool, *map(str, arguments)], capture_output=True, text=True,
                          check=False)


def setUpModule():
    configure = ["cmake", "-G", "Ninja", "-S", EXAMPLE, "-B", PLUGIN.parent, f"-DHEDDLE_SOURCE={SOURCES}",
                 f"-DHEDDLE_BUILD={BUILD}", f"-DCMAKE_CXX_COMPILER={CXX}", f"-DMLIR_DIR={MLIR_DIR}"]
    for command in (configure, ["cmake", "--build", PLUGIN.parent]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stdout + done.stderr)


class PluginTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def opt(self, path, *passes):
        done = run("heddle-opt", f"--load-dialect-plugin={PLUGIN}", path, *passes)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout


class OpTest(PluginTest):
    def test_tools_without_the_plugin_do_not_know_it(self):
        done = run("heddle-opt", EXAMPLE / "block.mlir")
        self.assertEqual(done.returncode, 1)
        self.assertIn("example", done.stderr)

    def test_its_rule_is_held_to(self):
        text = (EXAMPLE / "block.mlir").read_text().replace("%y, %scale {", "%y, %wu {").replace(
            "(tensor<4x3x4xf32>, tensor<4xf32>)", "(tensor<4x3x4xf32>, tensor<8x4xf32>)")
        done = run("heddle-opt", f"--load-dialect-plugin={PLUGIN}", self.write("wrong.mlir", text))
        self.assertEqual(done.returncode, 1)
        self.assertIn("a tensor of rank 2 where the rule has 'd'", done.stderr)

    def test_it_is_given_layouts_and_a_gradient(self):
        text = self.opt(EXAMPLE / "block.mlir", *GRADIENTS, *RANKS)
        self.assertIn("example.layer_scale_grad", text)
        self.assertIn("(tensor<2x3x4xf32>, tensor<4xf32>) -> tensor<2x3x4xf32>", text)  # half of the sequences
        # The sum over tp goes into a layer before it is scaled, in forward.
        self.assertRegex(text, r"dist.all_reduce[^\n]*\n[^\n]*example.layer_scale")

    def inputs(self, text):
        drawn = random.Random(1)
        found = re.findall(r"%\w+: tensor<([\dx]+)xf32> {[^}]*transformer\.as = \"(\w+)\"", text)
        return {name: [drawn.uniform(-1, 1) for _ in range(math.prod(map(int, shape.split("x"))))]
                for shape, name in found}

    def test_ranks_compute_what_one_device_does(self):
        text = self.opt(EXAMPLE / "block.mlir", *GRADIENTS)
        inputs = self.inputs(text)
        done = run("heddle-run-graph", self.write("graph.mlir", text),
                   self.write("inputs.json", json.dumps(inputs)), PLUGIN)
        self.assertEqual(done.returncode, 0, done.stderr)
        results = json.loads(done.stdout)
        self.assertEqual(set(results), {"block", "block_bwd"})
        for name, entries in results.items():
            for entry in entries:
                for whole, ranks in zip(entry["whole"], entry["ranks"], strict=True):
                    self.assertAlmostEqual(whole, ranks, 12, name)
        # By hand: the gradient of a scale is the sum of gradient times input.
        expected = [sum(inputs["d_delta"][i] * inputs["y"][i] for i in range(d, 48, 4)) for d in range(4)]
        self.assertTrue(any(len(entry["whole"]) == 4 and
                            all(abs(a - b) < 1e-12 for a, b in zip(entry["whole"], expected))
                            for entry in results["block_bwd"]), results["block_bwd"])


class StrategyTest(PluginTest):
    def setUp(self):
        super().setUp()
        self.model = self.write("model.json", json.dumps(MODEL))

    def verify(self, *more):
        return run("heddle", "verify", self.model, "--plan", EXAMPLE / "plan.json", "--interpret", *more)

    def test_the_plan_equals_one_device(self):
        done = self.verify(f"--load-dialect-plugin={PLUGIN}")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_word_is_the_plugins(self):
        done = self.verify()
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected megatron", done.stderr)

    def test_a_plugin_that_is_none_is_an_error(self):
        done = self.verify("--load-dialect-plugin=missing.so")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--load-dialect-plugin missing.so", done.stderr)

    def test_it_splits_the_mlp_alone(self):
        done = run("heddle", "explain", self.model, "--plan", EXAMPLE / "plan.json", f"--load-dialect-plugin={PLUGIN}")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"up_proj[^\n]*tp")
        self.assertNotRegex(done.stdout, r"q_proj[^\n]*tp")


if __name__ == "__main__":
    unittest.main()
