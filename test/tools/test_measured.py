#!/usr/bin/env python3
"""A step that ran, beside its estimate: `heddle run --timeline`, `heddle report --measured`. Usage: test_measured.py HEDDLE.

HEDDLE_SCREENSHOT=FILE.png keeps a picture of the page.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from browser import Browser

HEDDLE = sys.argv.pop(1) if len(sys.argv) > 1 else "heddle"
MODEL = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 256, "hidden_act": "silu",
         "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
TRAIN = {"sequence_length": 32, "global_batch": 8, "precision": ["fp32"],
         "optimizer": {"type": "adamw", "lr": 1e-4, "clip_norm": 1.0}}
CLUSTER = {"name": "small", "nodes": 1, "devices_per_node": 8, "memory_reserve_gib": 0,
           "device": {"memory_gib": 1, "memory_gbytes_per_s": 10, "multiprocessors": 1,
                      "peak_tflops": {"fp32": 0.1, "bf16": 0.1}},
           "links": [{"level": "node", "gbytes_per_s": 5}]}
PLAN = {"version": 1, "mesh": [["pp", 2], ["dp", 1], ["cp", 1], ["tp", 2]], "micro_batch": 2, "micro_batches": 4,
        "tensor": "megatron",
        "stages": {"layers": [["0..1"], ["2..3"]], "embedding": [0, 0], "head": [1, 0], "schedule": "one_f_one_b"}}
KINDS = {"products", "attention", "memory_bound", "optimizer"}


class Measured(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.folder = pathlib.Path(cls.scratch.name)
        for name, content in (("model.json", MODEL), ("train.yaml", TRAIN), ("cluster.yaml", CLUSTER),
                              ("plan.json", PLAN), ("one.json", {**PLAN, "mesh": [["pp", 2], ["dp", 1], ["cp", 1], ["tp", 1]]})):
            (cls.folder / name).write_text(json.dumps(content))
        (cls.folder / "data.txt").write_text("A step as it ran, beside its estimate. " * 200)
        inputs = ["--cluster", "cluster.yaml", "--train", "train.yaml", "--plan", "plan.json"]
        cls.good("compile", "model.json", *inputs, "-o", "out")
        cls.good("run", "out", "--threads", "--data", "data.txt", "--steps", "3", "--timeline", "times")
        cls.data = json.loads(cls.report("--measured", "times", "--timeline", "trace.json", "--json").stdout)

    @classmethod
    def call(cls, *command):
        return subprocess.run([HEDDLE, *command], cwd=cls.folder, capture_output=True, text=True, check=False)

    @classmethod
    def good(cls, *command):
        done = cls.call(*command)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    @classmethod
    def report(cls, *options, plan="plan.json"):
        return cls.call("report", "model.json", "--cluster", "cluster.yaml", "--train", "train.yaml", "--plan", plan,
                        "--limit", "100", "-o", "report.html", *options)

    def test_the_last_step_of_each_rank_is_there(self):
        for rank in range(4):
            times = json.loads((self.folder / f"times/times.{rank}.json").read_text())
            self.assertEqual((times["rank"], times["size"], times["step"]), (rank, 4, 3))
            last = 0
            for operation, label, track, begin, end in times["pieces"]:
                self.assertTrue(last <= begin <= end, (label, last, begin, end))
                self.assertEqual(operation == "collective", track != "compute", label)
                last = end
            names = [piece[0] for piece in times["pieces"]]
            # Two layers of four micro-batches.
            self.assertEqual((names.count("attention"), names.count("attention_grad")), (8, 8))
            self.assertTrue({"gemm", "kernel", "rope", "collective"} <= set(names))

    def test_kinds_are_those_of_the_estimate(self):
        measured, estimate = self.data["measured"], self.data["estimate"]
        kinds = {kind["name"]: kind for kind in measured["kinds"]}
        self.assertEqual(set(kinds), {"step", *KINDS, "tp", "pp"})
        self.assertEqual(kinds["step"]["measured_seconds"], measured["seconds"])
        self.assertEqual(kinds["step"]["predicted_seconds"], estimate["step_seconds"])
        for name in KINDS:
            self.assertEqual(kinds[name]["predicted_seconds"], estimate["compute"]["seconds"][name])
        for name in ("tp", "pp"):
            self.assertEqual(kinds[name]["predicted_seconds"], estimate["communication"][name]["seconds"])
        # The mean of the ranks of the busiest place, by hand.
        place, found = estimate["compute"]["place"], 0
        for rank in (2 * place, 2 * place + 1):
            for operation, _, _, begin, end in json.loads((self.folder / f"times/times.{rank}.json").read_text())["pieces"]:
                found += (end - begin) / 2e9 if operation == "gemm" else 0
        self.assertAlmostEqual(kinds["products"]["measured_seconds"], found, places=8)
        for kind in kinds.values():
            self.assertGreater(kind["measured_seconds"], 0)
            self.assertAlmostEqual(kind["error"], kind["predicted_seconds"] / kind["measured_seconds"] - 1,
                                   delta=1e-3 * (1 + kind["error"]))

    def test_the_trace_has_both_by_the_same_names(self):
        events = json.loads((self.folder / "trace.json").read_text())["traceEvents"]
        names = {(event["pid"], event["name"]): event["args"]["name"] for event in events if event["name"] == "process_name"}
        self.assertEqual(sorted(names.values()), ["rank 0 of pp", "rank 0, measured", "rank 1 of pp", "rank 2, measured"])
        measured = {pid for (pid, _), name in names.items() if "measured" in name}
        tracks = {(event["pid"] in measured, event["args"]["name"]) for event in events if event["name"] == "thread_name"}
        self.assertTrue({(True, "compute"), (False, "compute"), (True, "tp"), (False, "tp")} <= tracks)
        tasks = [{event["name"].split()[0] for event in events if event["ph"] == "X" and (event["pid"] in measured) == which}
                 for which in (False, True)]
        self.assertTrue({"attention", "mlp", "embedding", "head"} <= tasks[0] & tasks[1], tasks)
        for event in events:
            if event["ph"] == "X" and event["pid"] in measured:
                self.assertTrue(event["ts"] >= 0 and event["dur"] >= 0)
                self.assertIn(event["cat"], KINDS | {"tp", "pp"})

    def test_the_page_draws_both(self):
        with Browser() as browser:
            browser.open(self.folder / "report.html")
            self.assertEqual((browser.exceptions, browser.run("document.documentElement.dataset.faults")), ([], "0"))
            self.assertEqual(browser.count("#summary table.measured tr.row"), len(self.data["measured"]["kinds"]))
            self.assertGreater(browser.count("#timeline rect.measured"), 10)
            self.assertIn("rank 2, measured", browser.run("document.querySelector('#timeline svg').textContent"))
            ends = [self.data["timeline"]["seconds"], self.data["measured"]["seconds"]]
            self.assertEqual(float(browser.run("document.querySelector('#timeline svg').dataset.to")), max(ends))
            if "HEDDLE_SCREENSHOT" in os.environ:
                pathlib.Path(os.environ["HEDDLE_SCREENSHOT"]).write_bytes(browser.screenshot())

    def test_without_a_step_there_is_no_table(self):
        done = self.report("--json")
        self.assertIsNone(json.loads(done.stdout)["measured"])
        with Browser() as browser:
            browser.open(self.folder / "report.html")
            self.assertEqual((browser.exceptions, browser.count("#summary table.measured")), ([], 0))
        # For the tests that look at the page.
        self.report("--measured", "times")

    def test_words_say_the_error(self):
        said = self.report("--measured", "times").stdout
        for name in ("step", "products", "tp"):
            self.assertRegex(said, rf"(?m)^{name} +[\d.e-]+ s +[\d.e-]+ s +[+-]\d+ %$")

    def test_what_is_no_measured_step_is_refused(self):
        broken = self.folder / "broken"
        broken.mkdir()
        whole = json.loads((self.folder / "times/times.0.json").read_text())
        for text in ("", "[]", "{}", json.dumps({**whole, "pieces": []}), json.dumps({**whole, "size": "4"}),
                     json.dumps({**whole, "pieces": [["gemm", "x", "compute", 5, 4]]}),
                     json.dumps({**whole, "pieces": [["gemm", "x", "compute", 5]]})):
            with self.subTest(text=text[:60]):
                (broken / "times.0.json").write_text(text)
                done = self.report("--measured", "broken")
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertRegex(done.stderr, r"broken/times.0.json: is not what rank 0 of a run writes")
                self.assertEqual(done.stderr.count("\n"), 1)
        for code, word, options in ((1, "nowhere/times.0.json", ["--measured", "nowhere"]),
                                    (2, "--measured wants --plan", ["--measured", "times", "--plan="])):
            done = self.report(*options)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(word, done.stderr)
        done = self.report("--measured", "times", plan="one.json")
        self.assertIn("found a step of 4 ranks, the plan has 2", done.stderr)

    def test_where_no_times_are_measured_they_are_refused(self):
        for options in (["--check"], ["--dry"]):
            done = self.call("run", "out", "--threads", "--data", "data.txt", "--timeline", "no", *options)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("--timeline wants a run on the host", done.stderr)
        done = self.call("run", "out", "--threads", "--data", "data.txt", "--steps", "1", "--timeline", "times")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("times is not empty", done.stderr)


if __name__ == "__main__":
    unittest.main()
