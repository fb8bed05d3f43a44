#!/usr/bin/env python3
"""`heddle calibrate`, and plans for the machine that it measured. Usage: test_calibrate.py HEDDLE.

Sizes are small and no time is looked at: what is measured is read and planned with.
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest

HEDDLE = sys.argv.pop(1) if len(sys.argv) > 1 else "heddle"
LLAMA = {"model_type": "llama", "hidden_size": 16, "intermediate_size": 22, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 37, "hidden_act": "silu",
         "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
TRAIN = {"sequence_length": 8, "global_batch": 4, "precision": ["fp32"], "optimizer": {"type": "adamw", "lr": 0.1}}
CLUSTER = {"nodes": 1, "devices_per_node": 4, "device": {"tables": "tables.yaml"},
           "links": [{"level": "node", "gbytes_per_s": 5}]}


class CalibrateTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.tables = self.folder / "tables.yaml"
        self.options = [self.write("model.json", LLAMA), "--cluster", self.write("cluster.yaml", CLUSTER),
                        "--train", self.write("train.yaml", TRAIN), "--json"]

    def write(self, name, content):
        path = self.folder / name
        path.write_text(json.dumps(content))
        return path

    def heddle(self, *arguments, code=0):
        done = subprocess.run([HEDDLE, *map(str, arguments)], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, code, f"{arguments}\n{done.stdout}{done.stderr}")
        return done.stderr if code else done.stdout

    def test_a_measured_machine_is_planned_for(self):
        self.heddle("calibrate", "-o", self.tables, "--ranks", 2, "--shrink", 16)
        best = json.loads(self.heddle("plan", *self.options))["plans"][0]
        self.assertTrue(0 < best["step_seconds"] < math.inf, best)

    def test_bad_input_is_refused(self):
        self.tables.write_text("version: 1\n")
        message = self.heddle("plan", *self.options, code=2)
        self.assertIn("tables.yaml:1: key 'device' is missing", message)
        self.assertEqual(len(message.splitlines()), 1, message)
        self.tables.unlink()
        self.assertIn("tables.yaml", self.heddle("plan", *self.options, code=2))
        self.assertIn("found 0", self.heddle("calibrate", "-o", self.tables, "--ranks", 0, code=2))
        self.assertIn("nowhere", self.heddle("calibrate", "-o", "/nowhere/t.yaml", "--shrink", 64, code=2))


if __name__ == "__main__":
    unittest.main()
