#!/usr/bin/env python3
"""What a person may get wrong in the files and options of plan, explain and report: one clear message, exit code 2 for
input that makes no sense, 1 with the reasons where nothing fits; never an abort, never silence. Usage: test_bad_input.py
HEDDLE.
"""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HEDDLE = sys.argv.pop(1) if len(sys.argv) > 1 else "heddle"
MODEL = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 96, "hidden_act": "silu",
         "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
DEVICE = {"memory_gib": 1, "memory_gbytes_per_s": 3350, "multiprocessors": 132, "peak_tflops": {"fp32": 67, "bf16": 989}}
CLUSTER = {"name": "here", "nodes": 1, "devices_per_node": 4, "device": DEVICE, "memory_reserve_gib": 0,
           "links": [{"level": "node", "gbytes_per_s": 450}]}
TRAIN = {"sequence_length": 32, "global_batch": 8, "precision": ["fp32"], "optimizer": {"type": "adamw", "lr": 1e-4}}
PLAN = {"version": 1, "mesh": [["pp", 1], ["dp", 2], ["cp", 1], ["tp", 2]], "micro_batch": 1, "micro_batches": 4,
        "tensor": "megatron"}

# Key path, value, words of the message. "-" as value removes the key.
CLUSTERS = (
    ("nodes", 0, ["nodes", "0"]),
    ("nodes", -4, ["nodes", "-4"]),
    ("nodes", 1.5, ["nodes", "1.5"]),
    ("nodes", "many", ["nodes", "many"]),
    ("nodes", 10**30, ["nodes"]),
    ("nodes", "-", ["nodes"]),
    ("devices_per_node", 0, ["devices_per_node", "0"]),
    ("device", "h9000", ["device", "h9000"]),
    ("device", "h100-sxm-80g", ["device", "did you mean"]),
    ("device", 7, ["device"]),
    ("device", "host", ["peak_tflops", "host"]),
    ("device/memory_gib", 0, ["memory_gib"]),
    ("device/memory_gib", -80, ["memory_gib", "-80"]),
    ("device/memory_gib", 1e300, ["memory_gib"]),
    ("device/memory_gbytes_per_s", ".nan", ["memory_gbytes_per_s"]),
    ("device/memory_gbytes_per_s", ".inf", ["memory_gbytes_per_s"]),
    ("device/peak_tflops", {}, ["peak_tflops"]),
    ("device/peak_tflops", {"bf61": 989}, ["bf61"]),
    ("device/peak_tflops/fp32", -1, ["fp32", "-1"]),
    ("device/peak_tflops/fp32", 1e300, ["fp32"]),
    ("device/peak_tflops/fp32", 1e-300, ["fp32"]),
    ("memory_reserve_gib", 80, ["memory_reserve_gib"]),
    ("memory_reserve_gib", -1, ["memory_reserve_gib", "-1"]),
    ("links", [], ["links"]),
    ("links", "fast", ["links"]),
    ("links", [{"level": "node", "gbytes_per_s": -1}], ["gbytes_per_s", "-1"]),
    ("links", [{"level": "node", "gbytes_per_s": 0}], ["gbytes_per_s", "0"]),
    ("links", [{"level": "node", "gbytes_per_s": 1e300}], ["gbytes_per_s"]),
    ("links", [{"level": "node", "gbytes_per_s": 1e-300}], ["gbytes_per_s"]),
    ("links", [{"level": "node"}], ["gbytes_per_s"]),
    ("links", [{"level": "node", "gbytes_per_s": 450, "latency_us": -1}], ["latency_us"]),
    ("links", [{"level": "node", "gbytes_per_s": 450, "oversubscription": 0.5}], ["oversubscription"]),
    ("nics_per_node", 0, ["nics_per_node"]),
    ("mtbf_hours_per_device", 0, ["mtbf_hours_per_device"]),
    ("checkpoint", {"mode": "never"}, ["mode", "never"]),
    ("speed", 3, ["speed"]),
)
SETTINGS = (
    ("sequence_length", 0, ["sequence_length", "0"]),
    ("sequence_length", -8, ["sequence_length", "-8"]),
    ("sequence_length", 10**15, ["sequence_length"]),
    ("global_batch", 0, ["global_batch", "0"]),
    ("global_batch", 10**18, ["global_batch"]),
    ("global_batch", "-", ["global_batch"]),
    ("precision", [], ["precision"]),
    ("precision", ["int3"], ["precision", "int3"]),
    ("precision", ["fp8"], ["fp8", "bf16, fp32"]),
    ("optimizer/lr", ".nan", ["lr"]),
    ("optimizer/type", "adam", ["adam", "adamw"]),
    ("optimizer", "-", ["optimizer"]),
    ("batch", 8, ["batch"]),
)
MODELS = (
    ("num_attention_heads", 0, ["num_attention_heads"]),
    ("num_attention_heads", 5, ["num_attention_heads", "5"]),
    ("num_hidden_layers", -1, ["num_hidden_layers", "-1"]),
    ("num_hidden_layers", 10**9, ["num_hidden_layers"]),
    ("hidden_size", "wide", ["hidden_size", "wide"]),
    ("vocab_size", 0, ["vocab_size", "0"]),
    ("rms_norm_eps", -1, ["rms_norm_eps"]),
    ("model_type", "transformer9", ["transformer9"]),
    ("model_type", "-", ["model_type"]),
    ("rope_twist", 3, ["rope_twist"]),
)
# Options of `heddle plan` and what they are refused with.
OPTIONS = (
    (["--fix", "tp=0"], 2, ["tp", "at least 1"]),
    (["--fix", "tp=-2"], 2, ["tp", "-2"]),
    (["--fix", "tp=two"], 2, ["tp", "two"]),
    (["--fix", "tp"], 2, ["--fix", "tp=8"]),
    (["--fix", "tp=99999999999999999999"], 2, ["tp", "99999999999999999999"]),
    (["--fix", "xp=2"], 2, ["unknown choice", "xp"]),
    (["--fix", "zero=4"], 2, ["zero", "4"]),
    (["--fix", "schedule=fast"], 2, ["schedule", "one_f_one_b"]),
    (["--fix", "order=pp.tp"], 2, ["order"]),
    (["--fix", "tp=2", "--fix", "tp=4"], 1, ["no plan with tp=2, tp=4 is there", "without tp"]),
    (["--fix", "tp=2", "--fix", "tp!=2"], 1, ["tp=2, tp!=2", "without tp"]),
    (["--fix", "tp=2", "--fix", "dp=4"], 1, ["no plan with"]),
    (["--fix", "dp=3"], 1, ["no plan with dp=3 is there"]),
    (["--fix", "tp=1048576"], 1, ["no plan with tp=1048576"]),
    (["--fix", "micro_batches=7"], 1, ["no plan with micro_batches=7"]),
    (["--fix", "precision=bf16"], 1, ["precision=bf16"]),
    (["--limit", "-1"], 2, ["--limit", "-1"]),
    (["--limit", "all"], 2, ["limit", "all"]),
    (["--top", "0"], 2, ["--top", "0"]),
    (["--top", "-3"], 2, ["--top", "-3"]),
    (["--top", "3000000000"], 2, ["--top", "3000000000"]),
    (["-o", "/nowhere/plan.json"], 2, ["/nowhere/plan.json"]),
)
# Plans given to `heddle explain` with cluster and settings.
PLANS = (
    ("mesh", [["pp", 1], ["dp", 2], ["cp", 1], ["tp", 0]], 2, ["tp", "0"]),
    ("mesh", [["pp", 1], ["dp", 2], ["cp", 1], ["xp", 2]], 2, ["xp"]),
    ("mesh", [["pp", 1], ["dp", 2], ["tp", 2]], 2, ["cp"]),
    ("mesh", [["pp", 1], ["dp", 2], ["cp", 1], ["tp", 2], ["tp", 2]], 2, ["tp"]),
    ("mesh", [["pp", 1], ["dp", 2], ["cp", 1], ["tp", 4]], 1, ["8", "4"]),
    ("mesh", [["pp", 8], ["dp", 1], ["cp", 1], ["tp", 1]], 2, ["stages"]),
    ("mesh", "big", 2, ["mesh"]),
    ("micro_batches", 3, 1, ["global_batch", "micro_batches"]),
    ("micro_batches", 10**18, 2, ["micro_batches"]),
    ("micro_batch", 0, 2, ["micro_batch", "0"]),
    ("tensor", "megatroon", 2, ["megatroon"]),
    ("zero", {"stage": 4}, 2, ["stage", "4"]),
    ("zero", {"stage": 3, "shard_group": 3}, 2, ["shard_group", "3"]),
    ("recompute", "some", 2, ["recompute", "some"]),
    ("precision", {"recipe": "fp7"}, 2, ["fp7"]),
    ("version", 9, 2, ["version", "9"]),
    ("speed", 3, 2, ["speed"]),
)


def changed(base, path, value):
    made = copy.deepcopy(base)
    *outer, last = path.split("/")
    at = made
    for key in outer:
        at = at[key]
    if value == "-":
        del at[last]
    else:
        at[last] = value
    return made


class BadInput(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        for name, content in (("model.json", MODEL), ("cluster.yaml", CLUSTER), ("train.yaml", TRAIN), ("plan.json", PLAN)):
            self.write(name, content)

    def write(self, name, content):
        text = content if isinstance(content, str) else json.dumps(content)
        # YAML's own words for numbers that JSON has not.
        (self.folder / name).write_text(text.replace('".nan"', ".nan").replace('".inf"', ".inf"))

    def heddle(self, command, *options):
        return subprocess.run(
            [HEDDLE, command, self.folder / "model.json", "--cluster", self.folder / "cluster.yaml", "--train",
             self.folder / "train.yaml", *options], capture_output=True, text=True, check=False, timeout=60)

    def refused(self, command, *options, code=2, words=()):
        done = self.heddle(command, *options)
        self.assertEqual(done.returncode, code, done.stdout[:500] + done.stderr)
        lines = [line for line in done.stderr.splitlines() if not line.startswith("warning: ")]
        # "heddle: for the": how LLVM's reader of options begins.
        self.assertRegex(lines[0] if lines else "", "^(error: |heddle[a-z-]*: for the )")
        self.assertEqual(done.stdout, "")
        for word in words:
            self.assertIn(word, done.stderr)
        if code == 2:
            self.assertEqual(len(lines), 1, done.stderr)

    def test_good_input_is_taken(self):
        self.assertEqual(self.heddle("plan").returncode, 0)
        done = self.heddle("explain", "--plan", self.folder / "plan.json", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(json.loads(done.stdout)["decisions"])

    def over(self, name, base, table):
        for path, value, words in table:
            with self.subTest(path=path, value=value):
                self.write(name, changed(base, path, value))
                self.refused("plan", words=[name, *words])

    def test_clusters(self):
        self.over("cluster.yaml", CLUSTER, [row for row in CLUSTERS if row[1] != "host"])
        self.write("cluster.yaml", {**CLUSTER, "device": "host"})
        self.refused("plan", words=["peak_tflops", "host"])

    def test_settings(self):
        self.over("train.yaml", TRAIN, SETTINGS)

    def test_models(self):
        self.over("model.json", MODEL, MODELS)

    def test_files_that_are_none(self):
        for name in ("model.json", "cluster.yaml", "train.yaml"):
            for content in ("", "[]", "{", "\0\1\2", "null", "{\"a\": " * 3000):
                with self.subTest(name=name, content=content[:5]):
                    kept = (self.folder / name).read_text()
                    self.write(name, content)
                    self.refused("plan", words=[name])
                    (self.folder / name).write_text(kept)
        self.refused("explain", "--plan", self.folder, words=[self.folder.name])

    def test_options(self):
        for options, code, words in OPTIONS:
            with self.subTest(options=options):
                self.refused("plan", *options, code=code, words=words)
        for options in (["--tokens", "0"], ["--tokens", "-1"], ["--tokens", "nan"], ["--tokens", "inf"], ["--tokens", "many"]):
            with self.subTest(options=options):
                self.refused("explain", "--plan", self.folder / "plan.json", *options, words=["tokens"])
        self.refused("explain", "--tokens", "1e12", words=["--tokens", "--plan"])

    def test_plans(self):
        for path, value, code, words in PLANS:
            with self.subTest(path=path, value=value):
                self.write("plan.json", changed(PLAN, path, value))
                self.refused("explain", "--plan", self.folder / "plan.json", code=code, words=words)

    def test_a_batch_that_no_mesh_divides(self):
        self.write("train.yaml", {**TRAIN, "global_batch": 7})
        self.refused("plan", "--fix", "dp=2", code=1, words=["no plan with dp=2 is there", "global_batch"])

    def test_devices_with_little_memory(self):
        """States alone are more than a device has: the reason in bytes, and what would help."""
        model = {**MODEL, "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32, "head_dim": 128,
                 "num_key_value_heads": 32, "num_hidden_layers": 32}
        self.write("model.json", model)
        for options in ((), ("--json",)):
            done = self.heddle("plan", *options)
            self.assertEqual(done.returncode, 1, done.stderr)
            for words in ("error: no plan fits: the leanest needs", "of a device's budget of 1.0 (1073741824)",
                          "possible with devices with", "nodes", "too many"):
                self.assertIn(words, done.stderr)
        self.assertFalse(json.loads(done.stdout)["fits"])


if __name__ == "__main__":
    unittest.main()
