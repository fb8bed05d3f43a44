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
GPT3 = {"model_type": "gpt2", "n_embd": 12288, "n_layer": 96, "n_head": 96, "n_positions": 2048, "vocab_size": 51200,
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "attn_pdrop": 0.1, "resid_pdrop": 0.1,
        "embd_pdrop": 0.1}
ONE = [["pp", 1], ["dp", 1], ["cp", 1], ["tp", 1]]
KEYS = {
    "parameters": int, "memory.model_state_bytes": int, "memory.activation_bytes_per_layer": int,
    "memory.peak_bytes": list, "memory.by_reason": list, "compute.model_flops": float, "compute.hardware_flops": float,
    "step_seconds": float, "bubble_fraction": float, "mfu": float, "hfu": float, "tokens_per_second_per_device": float,
    "checkpoint.bytes": float, "checkpoint.interval_seconds": float, "checkpoint.waste_fraction": float,
    "precision.bits_per_element": float, "precision.emulated": bool, "fits": bool, "decisions": list, "communication.dp.bytes_per_rank": float,
    "communication.dp.seconds_ideal": float, "communication.dp.seconds": float,
    "communication.dp.exposed_seconds": float, "communication.dp.link": str}
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

    def explain(self, model, cluster, mesh, code=0, precision=BF16, length=8192, options=("--decisions=false",), **more):
        """The answer for sequences of so many tokens, one per micro-batch."""
        plan = {"version": 1, "mesh": mesh, "micro_batch": 1, "micro_batches": 1, "tensor": "megatron",
                "precision": precision, **more}
        train = {"sequence_length": length, "global_batch": dict(mesh)["dp"] * plan["micro_batches"],
                 "precision": ["bf16", "fp8", "nvfp4"], "optimizer": {"type": "adamw", "lr": 1e-4, "clip_norm": 1.0}}
        done = subprocess.run(
            [HEDDLE, "explain", CONFIGS / model, "--cluster", cluster, "--train", self.write("train.yaml", train),
             "--plan", self.write("plan.json", plan), "--json", *options], capture_output=True, text=True, check=False)
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

    def test_every_key_is_there(self):
        found = self.explain("llama-3-8b.json", CLUSTERS / "16384xh100.yaml", [["pp", 1], ["dp", 2], ["cp", 1], ["tp", 4]],
                             options=())
        for path, kind in KEYS.items():
            value = found
            for key in path.split("."):
                value = value[key]
            self.assertIsInstance(value, (int, float) if kind is float else kind, path)
        self.assertEqual(len(found["memory"]["peak_bytes"]), 1)
        for reasons, peak in zip(found["memory"]["by_reason"], found["memory"]["peak_bytes"]):
            self.assertEqual(sum(reasons.values()), peak)

    def test_each_decision_has_a_runner_up(self):
        """Against the best plan that there is with another choice; what is left free may change with it."""
        one = self.cluster("8xh100.yaml", "nodes: 1", "nodes: 1")
        found = self.explain("qwen3-0.6b.json", one, [["pp", 1], ["dp", 8], ["cp", 1], ["tp", 1]], micro_batches=4, options=())
        decisions = {decision["key"]: decision for decision in found["decisions"]}
        self.assertEqual((decisions["tp"]["choice"], decisions["zero"]["choice"]), ("1", "0"))
        self.assertNotEqual(decisions["tp"]["runner_up"], "1")
        # Of each: the plan that is named takes what is told.
        tp2 = self.explain("qwen3-0.6b.json", one, [["pp", 1], ["dp", 4], ["cp", 1], ["tp", 2]], micro_batches=8)
        self.assertLess(decisions["tp"]["cost_seconds"], tp2["step_seconds"] - found["step_seconds"] + 1e-9)
        for decision in decisions.values():
            self.assertEqual(decision["cost_bytes"] is None, decision["runner_up"] is None)

    def test_how_long_training_takes(self):
        mesh = [["pp", 1], ["dp", 64], ["cp", 1], ["tp", 8]]
        found = self.explain("llama-3-8b.json", CLUSTERS / "512xh100.yaml", mesh, options=("--tokens", "15e12", "--decisions=false"))
        training, tokens = found["training"], 64 * 8192
        self.assertEqual(training["steps"], -(-15 * 10**12 // tokens))
        self.assertAlmostEqual(training["seconds"], training["steps"] * found["step_seconds"], delta=1)
        self.assertAlmostEqual(training["device_hours"], training["seconds"] * 512 / 3600, delta=1)
        self.assertAlmostEqual(found["tokens_per_second"], 512 * found["tokens_per_second_per_device"], delta=1)
        if found["checkpoint"]["waste_fraction"] is not None:
            self.assertAlmostEqual(training["with_interruptions"]["seconds"],
                                   training["seconds"] / (1 - found["checkpoint"]["waste_fraction"]), delta=1)

    def test_activations_of_gpt3(self):
        """2.87 GB a layer where attention's matrices and masks are saved: sbh (34 + 5 a s / h), of which 70 % are
        attention's. Heddle writes neither: masks are drawn again, and attention is one kernel."""
        found = self.explain(self.write("config.json", GPT3), CLUSTERS / "8xh100.yaml", ONE, length=2048)
        cost, sbh = found["cost"], 2048 * 12288
        layer = cost["recompute"][0]
        # In place of the matrices log-sum-exp of each head and query; mean and deviation of two norms.
        statistics = 4 * 2048 * (96 + 2 * 2)
        masks = {mask["name"]: mask["bytes_if_saved"] for mask in cost["dropout_masks"] if mask["layers"] == 96}
        matrices = sum(each["bytes_if_saved"] for each in cost["never_written"])
        published = layer["saved_bytes"] - statistics + sum(masks.values()) + matrices
        self.assertEqual(published, sbh * (34 + 80))
        self.assertAlmostEqual(published / 1e9, 2.87, places=2)
        self.assertAlmostEqual(96 * published / 1e9, 275, delta=0.5)
        self.assertAlmostEqual((matrices + masks["attention"]) / published, 0.70, places=2)
        self.assertAlmostEqual(layer["saved_bytes"] / published, 0.28, places=2)

    def test_published_set_of_gpt3(self):
        """With attention as products and masks saved: sbh (34 + 5 a s / h), of which selective frees attention's part."""
        model, sbh = self.write("config.json", GPT3), 2048 * 12288
        kept = {"attention": "unfused", "dropout_masks": "saved", "save": "linear_inputs"}
        for choice, saved, added, published in (
                ({"values": []}, 34 + 80, 0, 0), ({"selective": True}, 34, 0.0045, 0.0269),
                ({"selective": True, "prune": False}, 34, 0.0090, 0.0269), ({"full": True}, 2, 0.332, 0.332)):
            with self.subTest(choice=choice):
                cost = self.explain(model, CLUSTERS / "8xh100.yaml", ONE, length=2048, **kept,
                                    recompute=[{"layers": "0..95", **choice}])["cost"]
                layer, flops = cost["recompute"][0], cost["added_flops"]
                self.assertEqual(layer["saved_bytes"] - layer["statistics_bytes"], saved * sbh)
                self.assertAlmostEqual(flops["fraction_of_model_flops"], added, delta=0.00005 if added < 0.1 else 0.0005)
                self.assertAlmostEqual(flops["published_fraction"], published, delta=0.0005)
                self.assertEqual(cost["never_written"], [])
                self.assertEqual([mask["name"] for mask in cost["dropout_masks"]], ["embedding"])

    def test_flops_that_recompute_adds_to_gpt3(self):
        """Beside what publications count for the same choice."""
        model = self.write("config.json", GPT3)
        for choice, added, published in (
                ({"values": ["o"]}, 0.0090, 0.0269), ({"full": True, "prune": False}, 0.332, 0.332),
                ({"full": True}, 0.224, 0.332), ({"selective": True}, 0, 0)):
            with self.subTest(choice=choice):
                found = self.explain(model, CLUSTERS / "8xh100.yaml", ONE, length=2048,
                                     recompute=[{"layers": "0..95", **choice}])
                flops = found["cost"]["added_flops"]
                self.assertAlmostEqual(flops["fraction_of_model_flops"], added, delta=0.0005)
                self.assertAlmostEqual(flops["published_fraction"], published, delta=0.0005)
                if "compute" in found:  # the estimate counts the same
                    self.assertAlmostEqual(found["compute"]["hardware_flops"] / found["compute"]["model_flops"] - 1, added,
                                           delta=0.0005)

    def test_bits_and_checkpoints(self):
        mesh = [["pp", 1], ["dp", 1], ["cp", 1], ["tp", 8]]
        found = self.explain("llama-3-70b.json", CLUSTERS / "8xh100.yaml", mesh)
        self.assertAlmostEqual(found["checkpoint"]["bytes"] / 1e12, 0.988, places=3)
        self.assertEqual((found["checkpoint"]["bytes_per_parameter"], found["precision"]["bits_per_element"]), (14, 16))
        b200 = self.cluster("8xh100.yaml", "device: h100-sxm-80gb", "device: b200-sxm-180gb")
        four = self.explain("llama-3-70b.json", b200, mesh, precision={**BF16, "recipe": "nvfp4"})
        self.assertEqual((four["precision"]["bits_per_element"], four["precision"]["emulated"]), (4.5, False))
        on_h100 = self.explain("llama-3-70b.json", CLUSTERS / "8xh100.yaml", mesh, precision={**BF16, "recipe": "nvfp4"})
        self.assertEqual((on_h100["precision"]["emulated"], on_h100["step_seconds"]), (True, None))
        self.assertEqual(found["precision"]["emulated"], False)

    def test_narrower_products_take_less_time(self):
        mesh, four = [["pp", 1], ["dp", 8], ["cp", 1], ["tp", 8]], {**BF16, "recipe": "nvfp4"}
        many = self.cluster("512xh100.yaml", "device: h100-sxm-80gb", "device: b200-sxm-180gb")
        found = self.explain("llama-3-8b.json", many, mesh, precision=four)
        self.assertEqual(found["precision"]["bits_per_element"], 4.5)
        self.assertIn("values", found)
        eight = self.explain("llama-3-8b.json", many, mesh, precision={**BF16, "recipe": "fp8"})
        self.assertEqual(eight["precision"]["bits_per_element"], 8)
        blocks = self.explain("llama-3-8b.json", many, mesh, precision={**BF16, "recipe": "fp8", "scaling": "mxfp8"})
        self.assertEqual(blocks["precision"]["bits_per_element"], 8.25)
        self.assertLess(blocks["step_seconds"], eight["step_seconds"])  # no reading for a tensor's scale
        known = self.explain("llama-3-8b.json", many, mesh)
        for each in (eight, blocks, known):
            self.assertIn("values", each)
            self.assertLess(found["step_seconds"], each["step_seconds"])
        few = self.cluster("8xh100.yaml", "device: h100-sxm-80gb", "device: b200-sxm-180gb")
        wrong = self.explain("llama-3-8b.json", few, mesh, precision=four, code=1)
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
