#!/usr/bin/env python3
"""Figures of `heddle explain --json` that anybody can work out by hand, for models of full size.

Usage: test_estimates.py HEDDLE.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HEDDLE = sys.argv.pop(1) if len(sys.argv) > 1 else "heddle"
ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "test/cases/hf_configs"
CLUSTERS = ROOT / "tools/examples/clusters"
BF16 = {"recipe": "bf16", "gradients": "bf16", "reduce": "bf16"}


class EstimatesTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def write(self, name, content):
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def explain(self, model, cluster, mesh, code=0, precision=BF16, **more):
        """The answer for sequences of 8,192 tokens, one per micro-batch."""
        plan = {"version": 1, "mesh": mesh, "micro_batch": 1, "micro_batches": 1, "tensor": "megatron",
                "precision": precision, **more}
        train = {"sequence_length": 8192, "global_batch": dict(mesh)["dp"] * plan["micro_batches"],
                 "precision": ["bf16", "fp8"], "optimizer": {"type": "adamw", "lr": 1e-4, "clip_norm": 1.0}}
        done = subprocess.run(
            [HEDDLE, "explain", CONFIGS / model, "--cluster", cluster, "--train", self.write("train.yaml", train),
             "--plan", self.write("plan.json", plan), "--json"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads(done.stdout) if code == 0 else done.stderr

    def cluster(self, name, old, new):
        text = (CLUSTERS / name).read_text()
        self.assertIn(old, text)
        return self.write("cluster.yaml", text.replace(old, new))

    def test_states_and_gradients_of_8b(self):
        one = self.explain("llama-3-8b.json", CLUSTERS / "8xh100.yaml", [["pp", 1], ["dp", 1], ["cp", 1], ["tp", 1]])
        self.assertEqual(one["memory"]["model_state_bytes"], 16 * 8030261248)  # 128.5 GB
        self.assertFalse(one["fits"])
        self.assertEqual(one["communication"], {})
        many = self.explain("llama-3-8b.json", CLUSTERS / "512xh100.yaml",
                            [["pp", 1], ["dp", 64], ["cp", 1], ["tp", 1]], buckets={"gradient_bytes": 10**9})
        dp = many["communication"]["dp"]
        self.assertAlmostEqual(dp["bytes_per_rank"], 2 * 63 / 64 * 8030261248 * 2, delta=1e3)
        self.assertAlmostEqual(dp["seconds_ideal"], 0.632, places=3)
        # Eight rails carry a group that has eight ranks in each node.
        self.assertTrue(0.08 < dp["seconds"] < 0.11, dp)

    def test_products_of_70b_over_tp(self):
        inside = self.explain("llama-3-70b.json", CLUSTERS / "8xh100.yaml",
                              [["pp", 1], ["dp", 1], ["cp", 1], ["tp", 8]])["communication"]["tp"]
        across = self.explain("llama-3-70b.json", CLUSTERS / "512xh100.yaml",
                              [["tp", 8], ["pp", 1], ["dp", 64], ["cp", 1]])["communication"]["tp"]
        # 4 x 80 of 1.75 x 134 MB are 75.16 GB; the embedding and the head's input gradient 0.47 GB.
        self.assertAlmostEqual(inside["bytes_per_rank"] / 1e9, 75.63, places=2)
        self.assertEqual(inside["bytes_per_rank"], across["bytes_per_rank"])
        self.assertAlmostEqual(inside["seconds_ideal"], 75.63 / 450, places=3)
        self.assertAlmostEqual(across["seconds_ideal"], 75.63 / 50, places=2)
        self.assertAlmostEqual(inside["seconds"], 0.188, places=2)
        self.assertEqual((inside["link"], across["link"]), ("node", "cluster"))

    def test_ideal_and_calibrated_seconds_are_apart(self):
        """One NIC in place of eight: the textbook's rate is a device's and stays, the other follows the rails."""
        few = self.cluster("512xh100.yaml", "nics_per_node: 8", "nics_per_node: 1")
        mesh = [["pp", 1], ["dp", 64], ["cp", 1], ["tp", 1]]
        eight, one = (self.explain("llama-3-8b.json", cluster, mesh)["communication"]["dp"]
                      for cluster in (CLUSTERS / "512xh100.yaml", few))
        self.assertEqual(eight["seconds_ideal"], one["seconds_ideal"])
        self.assertGreater(one["seconds"], 4 * eight["seconds"])
        # A switch that adds is worth nothing to the textbook.
        plain = self.cluster("8xh100.yaml", ", in_network_reduction: true", "")
        mesh = [["pp", 1], ["dp", 1], ["cp", 1], ["tp", 8]]
        adds, rings = (self.explain("llama-3-8b.json", cluster, mesh)["communication"]["tp"]
                       for cluster in (CLUSTERS / "8xh100.yaml", plain))
        self.assertEqual(adds["seconds_ideal"], rings["seconds_ideal"])
        self.assertLess(adds["seconds"], rings["seconds"])

    def test_checkpoints(self):
        mesh = [["pp", 16], ["dp", 128], ["cp", 1], ["tp", 8]]
        layers = [[f"{8 * i}..{8 * i + 7}" if i < 15 else "120..125"] for i in range(16)]
        stages = {"layers": layers, "embedding": [0, 0], "head": [15, 0], "schedule": "one_f_one_b"}
        for pause, minutes, waste in ((60, 19.3, 0.104), (5, 5.56, 0.030)):
            cluster = self.cluster("16384xh100.yaml", "{mode: two_phase}", f"{{mode: two_phase, pause_s: {pause}}}")
            found = self.explain("llama-3.1-405b.json", cluster, mesh, stages=stages)["checkpoint"]
            self.assertAlmostEqual(found["mtbf_seconds"] / 3600, 3.09, places=2)
            self.assertAlmostEqual(found["interval_seconds"] / 60, minutes, delta=0.05)
            self.assertAlmostEqual(found["waste_fraction"], waste, places=3)
            self.assertAlmostEqual(found["bytes"], 14 * 405853388800)

    def test_what_is_not_compiled_is_estimated(self):
        mesh, fp8 = [["pp", 1], ["dp", 8], ["cp", 1], ["tp", 8]], {**BF16, "recipe": "fp8"}
        found = self.explain("llama-3-8b.json", CLUSTERS / "512xh100.yaml", mesh, precision=fp8)
        self.assertTrue(any("not compiled yet" in warning for warning in found["warnings"]), found["warnings"])
        self.assertEqual(found["precision"]["bits_per_element"], 8)
        self.assertNotIn("values", found)
        known = self.explain("llama-3-8b.json", CLUSTERS / "512xh100.yaml", mesh)
        self.assertIn("values", known)
        self.assertLess(found["step_seconds"], known["step_seconds"])
        wrong = self.explain("llama-3-8b.json", CLUSTERS / "8xh100.yaml", mesh, precision=fp8, code=1)
        self.assertIn("64 ranks", wrong)

    def test_experts_that_cannot_be_dealt_out_are_refused(self):
        mesh = [["pp", 1], ["dp", 8], ["cp", 1], ["tp", 1], ["ep", 8]]
        found = self.explain("mixtral-8x7b.json", CLUSTERS / "8xh100.yaml", mesh)
        self.assertIn("ep", found["communication"])
        for ep in (3, 16):
            wrong = self.explain("mixtral-8x7b.json", CLUSTERS / "8xh100.yaml", [*mesh[:4], ["ep", ep]], code=1)
            self.assertIn(f"ep is {ep}, expected a divisor of dp x cp = 8", wrong)


if __name__ == "__main__":
    unittest.main()
