#!/usr/bin/env python3
"""The page of `heddle report` in a real browser, beside the JSON that it is drawn from. Usage: test_report.py HEDDLE.

HEDDLE_SCREENSHOT=FILE.png keeps a picture of the page, to be looked at.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from browser import Browser

HEDDLE = sys.argv.pop(1) if len(sys.argv) > 1 else "heddle"
ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = {"model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 6,
         "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 512, "hidden_act": "silu",
         "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
TRAIN = {"sequence_length": 256, "global_batch": 16, "precision": ["fp32"],
         "optimizer": {"type": "adamw", "lr": 1e-4}}
CLUSTER = {"name": "small", "nodes": 2, "devices_per_node": 4, "memory_reserve_gib": 0, "mtbf_hours_per_device": 50000,
           "device": {"memory_gib": 0.2, "memory_gbytes_per_s": 3350, "multiprocessors": 132,
                      "peak_tflops": {"fp32": 67, "bf16": 989}},
           "links": [{"level": "node", "gbytes_per_s": 450}, {"level": "net", "gbytes_per_s": 50, "latency_us": 2}]}
PLAN = {"version": 1, "mesh": [["pp", 2], ["dp", 2], ["cp", 1], ["tp", 2]], "micro_batch": 1, "micro_batches": 8,
        "tensor": "megatron", "sequence_parallel": True, "zero": {"stage": 1},
        "stages": {"layers": [["0..1", "4"], ["2..3", "5"]], "embedding": [0, 0], "head": [1, 1],
                   "schedule": "interleaved_1f1b"},
        "recompute": [{"layers": "0", "full": True}]}


class Report(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.folder = pathlib.Path(cls.scratch.name)
        for name, content in (("model.json", MODEL), ("train.yaml", TRAIN), ("cluster.yaml", CLUSTER),
                              ("plan.json", PLAN)):
            (cls.folder / name).write_text(json.dumps(content))
        cls.page, cls.trace = cls.folder / "report.html", cls.folder / "trace.json"
        done = cls.report("--plan", cls.folder / "plan.json", "-o", cls.page, "--timeline", cls.trace, "--json",
                          "--tokens", "1e9")
        assert done.returncode == 0, done.stderr
        cls.data = json.loads(done.stdout)
        cls.browser = Browser()
        cls.addClassCleanup(cls.browser.__exit__)
        cls.browser.open(cls.page)

    @classmethod
    def report(cls, *options, **environment):
        return subprocess.run(
            [HEDDLE, "report", cls.folder / "model.json", "--cluster", cls.folder / "cluster.yaml", "--train",
             cls.folder / "train.yaml", *map(str, options)],
            capture_output=True, text=True, check=False, env={**os.environ, **environment})

    def test_1_nothing_fails_and_nothing_is_asked_of_others(self):
        self.assertEqual(self.browser.exceptions, [])
        self.assertEqual(self.browser.run("document.documentElement.dataset.faults"), "0")
        self.assertEqual({address for address in self.browser.requests if not address.startswith("data:")},
                         {self.page.resolve().as_uri()})
        # Whatever a browser might do: the page names no address but XML's name spaces and the library's home, in its
        # first comment.
        addresses = set(re.findall(r"https?://[\w./-]+", self.page.read_text()))
        self.assertEqual({address for address in addresses if "www.w3.org" not in address}, {"https://d3js.org"})

    def test_2_pictures_are_labelled_and_have_a_size(self):
        for section, words in (("timeline", ["time from the beginning of the step"]), ("schedule", ["slots, in order"]),
                               ("memory", ["bytes of a rank (MiB)", "time (ms)"]),
                               ("front", ["time of a step", "memory left free at the peak"])):
            with self.subTest(section=section):
                text = self.browser.run(f"document.querySelector('#{section} svg').textContent")
                for word in words:
                    self.assertIn(word, text)
                box = self.browser.run(f"(() => {{ const r = document.querySelector('#{section} svg').getBoundingClientRect();"
                                       " return [r.width, r.height]; })()")
                self.assertTrue(box[0] > 600 and box[1] > 50, box)
                self.assertGreater(self.browser.count(f"#{section} .legend i"), 1)

    def test_3_slots_tracks_and_transfers_are_those_of_the_data(self):
        timeline = self.data["timeline"]
        slots = sum(len(row) for row in timeline["slots"])
        self.assertEqual(slots, 2 * (2 * 2 * 8 + 1))
        self.assertEqual(self.browser.count("#schedule rect.cell"), slots)
        self.assertEqual(self.browser.count("#timeline rect.slot"), slots)
        self.assertEqual(self.browser.count("#timeline rect.transfer"), len(timeline["transfers"]))
        self.assertEqual(self.browser.count("#timeline text.track"), sum(len(place["tracks"]) for place in timeline["places"]))
        self.assertEqual(set(timeline["places"][0]["tracks"]), {"compute", "tp", "dp", "to rank 1"})
        self.assertEqual(self.browser.count("#timeline rect.end"), sum(len(ends) for ends in timeline["ends"]))

    def test_4_the_trace_has_the_same_names_and_times(self):
        events = json.loads(self.trace.read_text())["traceEvents"]
        tracks = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
        timeline = self.data["timeline"]
        for place, of in enumerate(timeline["places"]):
            self.assertEqual({name for (rank, _), name in tracks.items() if rank == place}, set(of["tracks"]))
        slots = {(event["pid"], event["name"]): event["ts"] for event in events
                 if event["ph"] == "X" and tracks[event["pid"], event["tid"]] == "compute" and "args" in event}
        for place, row in enumerate(timeline["slots"]):
            for text, *_, start, _ in row:
                self.assertAlmostEqual(slots[place, text], 1e6 * start, places=2)
        ends = [event["ts"] + event["dur"] for event in events if event["ph"] == "X"]
        self.assertAlmostEqual(max(ends), 1e6 * timeline["seconds"], places=2)
        self.assertEqual(timeline["seconds"], self.data["estimate"]["step_seconds"])

    def test_5_the_timeline_zooms(self):
        domain = lambda: [float(self.browser.run(f"document.querySelector('#timeline svg').dataset.{end}"))
                          for end in ("from", "to")]
        whole = domain()
        self.assertEqual(whole, [0, self.data["timeline"]["seconds"]])
        for _ in range(4):
            self.browser.wheel("#timeline svg", -400)
        near = domain()
        self.assertLess(near[1] - near[0], (whole[1] - whole[0]) / 4)
        self.assertGreater(near[0], 0)
        # What runs within slots can be seen now.
        self.assertGreater(self.browser.count("#timeline rect.task.inside"), 0)
        self.browser.run("document.querySelector('#timeline button[data-act=all]').click()")
        self.assertEqual(domain(), whole)
        self.browser.run("document.querySelector('#timeline button[data-act=\"+\"]').click()")
        zoomed = domain()
        self.assertAlmostEqual(zoomed[1] - zoomed[0], whole[1] / 2, delta=whole[1] * 1e-6)
        self.browser.run("document.querySelector('#timeline button[data-act=all]').click()")

    def test_6_memory_has_each_point_and_its_peak(self):
        memory = self.data["memory"]
        self.assertEqual([place["peak_bytes"] for place in memory["places"]], self.data["estimate"]["memory"]["peak_bytes"])
        for place, of in enumerate(memory["places"]):
            self.assertEqual(max(sum(point[1:]) for point in of["points"]), of["peak_bytes"])
            path = f"document.querySelector('#memory path.total[data-place=\"{place}\"]').getAttribute('d')"
            self.assertEqual(self.browser.run(path).count("L"), len(of["points"]) - 1)
        for place in (0, 1):
            self.browser.run(f"document.querySelectorAll('#memory .tools button')[{place}].click()")
            self.assertEqual(self.browser.run("document.querySelector('#memory svg').dataset.shown"), str(place))
            self.assertEqual(self.browser.count("#memory path.reason"), len(memory["places"][place]["peak"]))
        self.browser.move_to("#memory rect.probe")
        self.assertIn("saved for backward", self.browser.run("document.querySelector('#memory .detail').textContent"))

    def test_7_the_front_and_the_decisions_are_those_of_the_search(self):
        found = self.data["found"]
        self.assertGreater(len(found["front"]), 0)
        self.assertGreater(len(found["plans"]), 1)
        self.assertEqual(self.browser.count("#front path.front"), len(found["front"]))
        texts = {plan["text"] for plan in found["front"]}
        self.assertEqual(self.browser.count("#front path.best"), sum(plan["text"] not in texts for plan in found["plans"]))
        self.assertEqual(self.browser.count("#front path.chosen"), 1)
        self.assertEqual(self.browser.count("#decisions tr.row"), len(self.data["estimate"]["decisions"]))

    def test_8_each_layer_and_tensor_is_drawn_with_its_parts(self):
        sharding = self.data["sharding"]
        self.assertEqual([layer["place"] for layer in sharding["layers"]], [0, 0, 1, 1, 0, 1])
        self.assertEqual(self.browser.count("#sharding g.layer"), 6)
        self.assertEqual(self.browser.count("#sharding rect.again"), sum(layer["computed_again"] for layer in sharding["layers"]))
        self.assertEqual(self.browser.count("#sharding .tensor"), len(sharding["parameters"]))
        for tensor in sharding["parameters"]:
            parts = self.browser.count(f"#sharding .tensor[data-name='{tensor['name']}'] rect.part")
            self.assertEqual(parts, 1 if tensor["name"].endswith("norm.weight") else 2, tensor["name"])
        self.browser.run("document.querySelectorAll('#sharding g.layer')[4].dispatchEvent(new MouseEvent('click'))")
        self.assertIn("model.layers.4.", self.browser.run("document.querySelector('#sharding .tensors').textContent"))

    def test_9_figures_are_those_of_explain(self):
        done = subprocess.run([HEDDLE, "explain", self.folder / "model.json", "--cluster", self.folder / "cluster.yaml",
                               "--train", self.folder / "train.yaml", "--plan", self.folder / "plan.json", "--tokens",
                               "1e9", "--json"], capture_output=True, text=True, check=True)
        explained = json.loads(done.stdout)
        for key in ("step_seconds", "mfu", "communication", "training", "decisions"):
            self.assertEqual(self.data["estimate"][key], explained[key], key)
        self.assertIn("MFU of 67 TFLOP/s", self.browser.run("document.querySelector('#summary').textContent"))

    def test_without_a_plan_the_best_is_told(self):
        page = self.folder / "best.html"
        done = self.report("-o", page, "--json", "--fix", "pp=1", "--limit", 2000)
        self.assertEqual(done.returncode, 0, done.stderr)
        data = json.loads(done.stdout)
        self.assertFalse(data["is_given"])
        self.assertEqual(data["plan"], data["found"]["plans"][0]["text"])
        with Browser() as browser:
            browser.open(page)
            self.assertEqual((browser.exceptions, browser.run("document.documentElement.dataset.faults")), ([], "0"))

    def test_what_is_missing_is_named_and_no_page_is_left(self):
        page = self.folder / "none.html"
        for code, words, options, environment in (
                (2, ["node-d3", "/nowhere"], ["-o", page, "--limit", "100"], {"HEDDLE_D3": "/nowhere"}),
                (2, ["--limit", "-1"], ["-o", page, "--limit", "-1"], {}),
                (2, ["--tokens", "-5"], ["-o", page, "--tokens", "-5"], {}),
                (2, ["no.json"], ["-o", page, "--plan", "no.json"], {}),
                (2, ["-o"], [], {}),
                (1, ["no plan with dp=3 is there"], ["-o", page, "--fix", "dp=3"], {})):
            with self.subTest(options=options):
                done = self.report(*options, **environment)
                self.assertEqual(done.returncode, code, done.stderr)
                for word in words:
                    self.assertIn(word, done.stderr)
                self.assertFalse(page.exists())

    def test_z_a_picture_is_kept(self):
        picture = self.browser.screenshot()
        self.assertEqual(picture[:8], b"\x89PNG\r\n\x1a\n")
        if "HEDDLE_SCREENSHOT" in os.environ:
            pathlib.Path(os.environ["HEDDLE_SCREENSHOT"]).write_bytes(picture)


if __name__ == "__main__":
    unittest.main()
