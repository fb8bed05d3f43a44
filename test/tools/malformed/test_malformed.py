#!/usr/bin/env python3
"""Broken inputs of each kind: exit code 2, one message that says what is wrong, nothing written.

Usage: test_malformed.py HEDDLE HEDDLE_OPT
"""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

HEDDLE, HEDDLE_OPT = sys.argv[1:3]
LLAMA = {"model_type": "llama", "hidden_size": 16, "intermediate_size": 22, "num_hidden_layers": 1,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 37, "hidden_act": "silu",
         "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
PLAN = {"version": 1, "mesh": [["pp", 1], ["dp", 2], ["cp", 1], ["tp", 2]], "micro_batch": 1, "micro_batches": 1,
        "tensor": "megatron"}
OPTIMIZER = {"type": "sgd", "lr": 0.1}
TRAIN = {"sequence_length": 4, "global_batch": 2, "precision": ["fp32"], "optimizer": OPTIMIZER}
LINK = {"level": "node", "gbytes_per_s": 5}
CLUSTER = {"name": "here", "nodes": 1, "devices_per_node": 4, "device": "host", "memory_reserve_gib": 0,
           "links": [LINK]}


def without(document, key):
    return {k: v for k, v in document.items() if k != key}


# What the message must name, then the input.
CONFIGS = [
    ("", ""),
    ("", "not json"),
    ("", "[1, 2]"),
    ("", json.dumps(LLAMA)[:-40]),
    ("mamba", {**LLAMA, "model_type": "mamba"}),
    ("model_type", without(LLAMA, "model_type")),
    ("hidden_size", {**LLAMA, "hidden_size": "sixteen"}),
    ("num_hidden_layers", {**LLAMA, "num_hidden_layers": -1}),
    ("num_key_value_heads", {**LLAMA, "num_key_value_heads": 3}),
    ("frobnicate", {**LLAMA, "frobnicate": True}),
    ("vocab_size", {**LLAMA, "vocab_size": 10 ** 30}),
    ("num_attention_heads", {**LLAMA, "num_attention_heads": 0}),
]
CLUSTERS = [
    ("", ""),
    ("", "nodes: [1"),
    ("", "- 1\n- 2\n"),
    ("nodes", without(CLUSTER, "nodes")),
    ("nodes", {**CLUSTER, "nodes": 0}),
    ("nodes", {**CLUSTER, "nodes": "many"}),
    ("devices_per_node", {**CLUSTER, "devices_per_node": -8}),
    ("device", {**CLUSTER, "device": "abacus"}),
    ("level", {**CLUSTER, "links": [without(LINK, "level")]}),
    ("gbytes_per_s", {**CLUSTER, "links": [{**LINK, "gbytes_per_s": "fast"}]}),
    ("frobnicate", {**CLUSTER, "frobnicate": 1}),
]
TRAINS = [
    ("", ""),
    ("", "optimizer: {type: sgd"),
    ("", "3"),
    ("sequence_length", without(TRAIN, "sequence_length")),
    ("sequence_length", {**TRAIN, "sequence_length": 0}),
    ("global_batch", {**TRAIN, "global_batch": 1.5}),
    ("precision", {**TRAIN, "precision": ["fp3"]}),
    ("optimizer", {**TRAIN, "optimizer": {**OPTIMIZER, "type": "magic"}}),
    ("lr", {**TRAIN, "optimizer": {**OPTIMIZER, "lr": "high"}}),
    ("frobnicate", {**TRAIN, "frobnicate": 1}),
    ("betas", {**TRAIN, "optimizer": {"type": "adamw", "lr": 0.1, "betas": [0.9]}}),
]
PLANS = [
    ("", ""),
    ("", "{"),
    ("", "[]"),
    ("version", {**PLAN, "version": "one"}),
    ("version", {**PLAN, "version": 99}),
    ("mesh", without(PLAN, "mesh")),
    ("zp", {**PLAN, "mesh": [["zp", 2], *PLAN["mesh"]]}),
    ("tp", {**PLAN, "mesh": [["pp", 1], ["dp", 2], ["cp", 1], ["tp", -2]]}),
    ("micro_batch", {**PLAN, "micro_batch": 0}),
    ("tensor", {**PLAN, "tensor": "diagonal"}),
    ("frobnicate", {**PLAN, "frobnicate": 1}),
    ("dp", {**PLAN, "mesh": [["pp", 1], ["dp", 2], ["dp", 2], ["tp", 2]]}),
]


def safetensors(header, data=b"", size=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + data


def entry(shape, begin, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


NORM = "model.norm.weight"
WEIGHTS = [
    ("", b""),
    ("", b"abc"),
    ("", safetensors({}, size=2 ** 62)),
    ("", safetensors(b"{broken")),
    ("", safetensors(b"[]")),
    (NORM, safetensors({NORM: entry([16], 0, 64)}, bytes(32))),
    (NORM, safetensors({NORM: entry([16], 64, 0)}, bytes(64))),
    (NORM, safetensors({NORM: entry([17], 0, 64)}, bytes(64))),
    (NORM, safetensors({NORM: entry([16], 0, 64, "F33")}, bytes(64))),
    (NORM, safetensors({NORM: entry([-16], 0, 64)}, bytes(64))),
    ("", safetensors({NORM: entry([16], 0, 64)}, bytes(64))),  # all others are missing
    (NORM, safetensors({NORM: {"dtype": "F32"}}, bytes(64))),
]
TOKENS = [
    ("", ""),
    ("", "{"),
    ("", "[]"),
    ("tokens", {}),
    ("tokens", {"tokens": "text"}),
    ("tokens", {"tokens": [[1, 2, 3, 4], [1, 2]]}),
    ("99", {"tokens": [[1, 2, 3, 4], [1, 2, 3, 99]]}),
    ("-5", {"tokens": [[1, 2, 3, 4], [1, 2, 3, -5]]}),
    ("", {"tokens": [[1, 2, 3], [1, 2, 3]]}),
    ("labels", {"tokens": [[1, 2, 3, 4]] * 2, "labels": [[1, 2, 3, 4]]}),
    ("99", {"tokens": [[1, 2, 3, 4]] * 2, "labels": [[1, 2, 3, 99]] * 2}),
    ("1.5", {"tokens": [[1, 2, 3, 1.5]] * 2}),
]
MODULES = [
    ("", "module {"),
    ("", "func.func @f( {"),
    ("unregistered", "\"mystery.op\"() : () -> ()"),
    ("", "%0 = transformer.add %x, %x : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>"),
    ("", "func.func @f(%x: tensor<2xf32>) { %0 = transformer.add %x : (tensor<2xf32>) -> tensor<2xf32> return }"),
    ("", "#m = #dist.mesh<[\"dp\" = 0]>\nfunc.func @f(%x: tensor<2xf32>) { "
         "%0 = dist.all_reduce %x sum on #m over [\"dp\"] : tensor<2xf32> -> tensor<2xf32> return }"),
    ("tp", "#m = #dist.mesh<[\"dp\" = 2]>\nfunc.func @f(%x: tensor<2xf32>) { "
           "%0 = dist.all_reduce %x sum on #m over [\"tp\"] : tensor<2xf32> -> tensor<2xf32> return }"),
    ("", "#m = #dist.mesh<[\"dp\" = 2]>\nfunc.func @f(%x: tensor<3xf32>) { "
         "%0 = dist.slice %x on #m over [\"dp\"] dim 7 : tensor<3xf32> -> tensor<3xf32> return }"),
    ("", "func.func @f(%x: tensor<2xf32>, %y: tensor<2xf64>) { "
         "%0 = transformer.add %x, %y : (tensor<2xf32>, tensor<2xf64>) -> tensor<2xf32> return }"),
    ("", "transformer.state @w parameter : i32"),
    ("", b"\xff\xfe\x00\x01garbage"),
    ("found MLIR bytecode", b"ML\xefR\x0dMLIR22.1.8\x00"),
    ("found MLIR bytecode", b"module {}\n// -----\nML\xefR"),
    ("", "rt.program @p mesh [] arenas [] streams [] communicators [] events [] entry @missing {}"),
]


class Malformed(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.files = {"model.json": LLAMA, "cluster.yaml": CLUSTER, "train.yaml": TRAIN, "plan.json": PLAN}
        for name, content in self.files.items():
            self.write(name, content)

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes)
                         else (content if isinstance(content, str) else json.dumps(content)).encode())
        return str(path)

    def paths(self, *names):
        return [str(self.folder / name) for name in names]

    def snapshot(self):
        return {str(p): p.stat().st_mtime_ns for p in self.folder.rglob("*")}

    def run_tool(self, arguments):
        before = self.snapshot()
        done = subprocess.run(arguments, capture_output=True, cwd=self.folder, timeout=120, check=False,
                              env={**os.environ, "OMPI_MCA_rmaps_base_oversubscribe": "1"})
        self.assertEqual(self.snapshot(), before, "something was written")
        return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")

    def refuse(self, word, arguments):
        code, out, errors = self.run_tool([HEDDLE, *arguments])
        self.assertEqual(code, 2, out + errors)
        self.assertEqual(errors.count("error:"), 1, errors)
        self.assertIn(word, errors)
        self.assertLess(len(errors), 1000, errors)

    def each(self, cases, name, arguments):
        """Every case as file `name`, which the arguments name; all others are right."""
        self.assertGreaterEqual(len(cases), 10)
        for number, (word, content) in enumerate(cases):
            with self.subTest(number=number, word=word, content=content):
                self.write(name, content)
                self.refuse(word, arguments)

    def compile_arguments(self):
        model, cluster, train, plan = self.paths("model.json", "cluster.yaml", "train.yaml", "plan.json")
        return ["compile", model, "--cluster", cluster, "--train", train, "--plan", plan, "-o", str(self.folder / "out")]

    def verify_arguments(self, *more):
        model, train, plan = self.paths("model.json", "train.yaml", "plan.json")
        return ["verify", model, "--train", train, "--plan", plan, "--interpret", *more]

    def test_configs(self):
        self.each(CONFIGS, "model.json", self.compile_arguments())

    def test_clusters(self):
        self.each(CLUSTERS, "cluster.yaml", self.compile_arguments())

    def test_trains(self):
        self.each(TRAINS, "train.yaml", self.compile_arguments())

    def test_plans(self):
        self.each(PLANS, "plan.json", self.compile_arguments())

    def test_weights(self):
        self.each(WEIGHTS, "w.safetensors", self.verify_arguments("--weights", *self.paths("w.safetensors")))

    def test_tokens(self):
        self.each(TOKENS, "batch.json", self.verify_arguments("--batch", *self.paths("batch.json")))

    def test_files_that_are_not_there(self):
        for name in self.files:
            with self.subTest(name=name):
                content = (self.folder / name).read_bytes()
                (self.folder / name).unlink()
                self.refuse(name, self.compile_arguments())
                self.write(name, content)

    def test_modules(self):
        self.assertGreaterEqual(len(MODULES), 10)
        for number, (word, content) in enumerate(MODULES):
            with self.subTest(number=number, content=content):
                path = self.write("module.mlir", content)
                code, out, errors = self.run_tool([HEDDLE_OPT, path])
                self.assertEqual(code, 1, out + errors)
                self.assertEqual(out.strip(), "")
                self.assertGreaterEqual(errors.count("error:"), 1, errors)
                self.assertIn(word, errors)
                self.assertNotIn("PLEASE submit a bug report", errors)


if __name__ == "__main__":
    del sys.argv[1:3]
    unittest.main()
