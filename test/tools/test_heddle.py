#!/usr/bin/env python3
"""The commands of `heddle` on a model of a few thousand parameters. Usage: test_heddle.py HEDDLE."""
import json
import math
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

HEDDLE = sys.argv.pop(1) if len(sys.argv) > 1 else "heddle"
LLAMA = {"model_type": "llama", "hidden_size": 16, "intermediate_size": 22, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 37, "hidden_act": "silu",
         "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "use_cache": True}
PLAN = {"version": 1, "mesh": [["pp", 1], ["dp", 2], ["cp", 1], ["tp", 2]], "micro_batch": 1, "micro_batches": 2,
        "tensor": "megatron"}
TRAIN = {"sequence_length": 8, "global_batch": 4, "precision": ["fp32"], "optimizer": {"type": "sgd", "lr": 0.1}}
ADAMW = {"type": "adamw", "lr": 0.01, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "clip_norm": 0.5}
CLUSTER = {"name": "here", "nodes": 1, "devices_per_node": 4, "device": "host", "memory_reserve_gib": 0,
           "links": [{"level": "node", "gbytes_per_s": 5}]}


def read_tensors(path):
    """{name: list of floats} of the fp32 tensors of a safetensors file."""
    data = pathlib.Path(path).read_bytes()
    size = struct.unpack_from("<Q", data)[0]
    found = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__" and entry["dtype"] == "F32" and entry["shape"]:
            begin, end = entry["data_offsets"]
            found[name] = struct.unpack_from(f"<{(end - begin) // 4}f", data, 8 + size + begin)
    return found


class HeddleTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.model = self.write("model.json", LLAMA)
        self.plan = self.write("plan.json", PLAN)
        self.train = self.write("train.yaml", TRAIN)
        self.cluster = self.write("cluster.yaml", CLUSTER)
        self.out = self.folder / "out"

    def write(self, name, content):
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    def heddle(self, *arguments, code=0):
        done = subprocess.run([HEDDLE, *map(str, arguments)], capture_output=True, text=True, check=False,
                              env={**os.environ, "OMPI_MCA_rmaps_base_oversubscribe": "1"})
        self.assertEqual(done.returncode, code, f"{arguments}\n{done.stdout}{done.stderr}")
        return done

    def refuse(self, *arguments, words, code=2):
        done = self.heddle(*arguments, code=code)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(sorted(p.name for p in self.folder.iterdir() if p.name.startswith("out")), [])

    def compile(self, *more, code=0):
        return self.heddle("compile", self.model, "--cluster", self.cluster, "--train", self.train, "--plan", self.plan,
                           "-o", self.out, *more, code=code)


class Explain(HeddleTest):
    def test_json_has_each_tensor_of_each_layer(self):
        answer = json.loads(self.heddle("explain", self.model, "--plan", self.plan, "--json").stdout)
        tensors = {tensor["name"]: tensor for tensor in answer["tensors"]}
        self.assertEqual(len(tensors), 2 * 9 + 3)
        self.assertEqual(answer["parameters"], sum(math.prod(t["shape"]) for t in tensors.values()))
        self.assertEqual(answer["neutral_keys"].keys(), {"use_cache"})
        key = tensors["model.layers.1.self_attn.k_proj.weight"]
        self.assertEqual((key["shape"], key["logical_shape"]), ([8, 16], [2, 4, 16]))
        self.assertEqual(key["layout"], {"dims": [["tp"], [], []], "local_shape": [1, 4, 16]})
        self.assertFalse(tensors["model.norm.weight"]["decay"])
        self.assertEqual(answer["padding"], {"v": {"size": 37, "padded": 38}})

    def test_text_and_json_tell_padding_and_memory(self):
        files = ("--plan", self.plan, "--train", self.train, "--cluster", self.cluster)
        text = self.heddle("explain", self.model, *files, "--memory").stdout
        self.assertIn("factor v is padded from 37 to 38", text)
        self.assertIn("saved from forward for backward", text)
        memory = json.loads(self.heddle("explain", self.model, *files, "--json").stdout)["memory"]["classes"][0]
        self.assertLessEqual(memory["live_peak_bytes"], memory["arena_bytes"])
        self.assertTrue(memory["fits"])


    def test_reshards_have_two_causes(self):
        plan = self.write("cut.json", {**PLAN, "sequence_parallel": True})
        files = ("explain", self.model, "--plan", plan, "--train", self.train)
        answer = json.loads(self.heddle(*files, "--json").stdout)
        block = [reshard for reshard in answer["reshards"] if reshard["function"] == "block"]
        self.assertEqual([[step["kind"] for step in reshard["steps"]] for reshard in block],
                         [["all_gather"], ["reduce_scatter"]] * 2)
        gather = block[0]
        self.assertEqual((gather["value"], gather["calls"]), ("'n1'", 2 * PLAN["micro_batches"]))
        self.assertIn("rms_norm 'n1'", gather["made"])
        self.assertIn("parameter 'wq'", gather["wanted"])
        self.assertGreater(gather["bytes"], 0)
        self.assertTrue(answer["cost"]["computed"])
        saved = {value["name"]: value for value in answer["cost"]["saved_per_layer"]}
        self.assertEqual(2 * saved["n1"]["bytes"], saved["n1"]["bytes_whole_sequences"])
        self.assertIn({"name": "block.n1", "factors": "b s d", "saved": True}, answer["values"])
        text = self.heddle(*files).stdout
        self.assertIn("all_gather tp", text)
        self.assertIn("sbh", text)
        # Sequences are as long as the model takes where nothing is said of training.
        alone = json.loads(self.heddle("explain", self.model, "--plan", plan, "--json").stdout)
        self.assertEqual(len(alone["reshards"]), len(answer["reshards"]))

    def test_stages_are_told_place_by_place(self):
        stages = {"layers": [["0"], ["1"]], "schedule": "one_f_one_b"}
        mesh = [["pp", 2], ["dp", 1], ["cp", 1], ["tp", 2]]
        plan = self.write("stages.json", {**PLAN, "mesh": mesh, "micro_batches": 4, "stages": stages})
        train = self.write("stages.yaml", {**TRAIN, "global_batch": 4 * PLAN["micro_batch"]})
        files = ("explain", self.model, "--plan", plan, "--train", train)
        trace = self.folder / "slots.json"
        text = self.heddle(*files, "--timeline", trace).stdout
        self.assertIn("rank 0 F0 F1", text)
        self.assertIn("slots of the ranks of pp", text)
        events = json.loads(trace.read_text())["traceEvents"]
        names = [event["name"] for event in events if event["ph"] == "X" and event["tid"] == 0]
        self.assertEqual(sorted(names), sorted(2 * ["O", *(f"{kind}{m}" for kind in "FD" for m in range(4))]))
        answer = json.loads(self.heddle(*files, "--json").stdout)
        places = answer["cost"]["places"]
        self.assertEqual([place["layers"] for place in places], [["0"], ["1"]])
        self.assertEqual([place["in_flight"] for place in places], [2, 1])
        self.assertEqual(sum(place["parameters"] for place in places), answer["parameters"])
        self.assertEqual([(place["embedding"], place["head"]) for place in places], [(True, False), (False, True)])
        bubble = answer["schedule"]["equal"]["bubble_where_a_step_ends_together"]
        self.assertAlmostEqual(bubble, 1 / 4)  # (p - 1) / m
        self.assertGreater(answer["schedule"]["by_flops"]["bubble_where_a_step_ends_together"], bubble)
        self.refuse("explain", self.model, "--plan", self.plan, "--timeline", trace, words=["--timeline", "stages"])

    def test_joined_slots_are_told_as_they_run(self):
        """Times of joined slots are those of papers; programs run them in turn, with transfers between them."""
        self.train = self.write("train.yaml", {**TRAIN, "global_batch": 8})
        answers = {}
        for schedule, held in (("dualpipe", [["0", "1"], ["1", "0"]]), ("one_f_one_b", [["0"], ["1"]])):
            plan = self.write("stages.json", {
                **PLAN, "mesh": [["pp", 2], ["dp", 1], ["cp", 1], ["tp", 1]], "micro_batches": 8,
                "stages": {"layers": held, "embedding": [0, 0], "head": [1, 0], "schedule": schedule}})
            files = ("explain", self.model, "--plan", plan, "--train", self.train)
            answers[schedule] = json.loads(self.heddle(*files, "--json").stdout)["schedule"]
            told = "joined slots (F1+D0)" in self.heddle(*files).stdout
            self.assertEqual(told, schedule == "dualpipe")
        self.assertIsNone(answers["one_f_one_b"]["equal_in_turn"])
        two = answers["dualpipe"]
        self.assertIn("F2+D5/1", two["rows"][0])
        # What F2 sends goes while D5/1 runs; the papers' pairs end together.
        self.assertIn("F2, s:F2>1 + r:F6/1<1, D5/1", ", ".join(two["events"][0]))
        self.assertLessEqual(two["equal_in_turn"]["makespan_s"], two["equal"]["makespan_s"])
        self.assertIsNotNone(two["by_flops_in_turn"])

    def test_states_in_shards_are_told_apart(self):
        zero = {"stage": 3, "shard_group": 4, "prefetch": 1, "reduce": "last", "gather": "every_pass"}
        mesh = [["pp", 1], ["dp", 8], ["cp", 1], ["tp", 1]]
        self.plan = self.write("fsdp.json", {**PLAN, "mesh": mesh, "zero": zero, "overlap": {"memory_bytes": 10**9}})
        self.train = self.write("adamw.yaml", {**TRAIN, "global_batch": 16, "optimizer": ADAMW})
        self.cluster = self.write("two.yaml", {**CLUSTER, "devices_per_node": 8})
        files = ("explain", self.model, "--plan", self.plan, "--train", self.train)
        cost = json.loads(self.heddle(*files, "--json").stdout)["cost"]
        states = cost["states"]
        self.assertEqual(states["optimizer"], 2 * states["parameters"])
        self.assertEqual(states["gradients"], 4 * states["parameters"])  # whole until the last micro-batch
        self.assertGreater(states["gathered"], 0)
        self.assertEqual(states["bucket"], 0)
        volumes = {(*volume["axes"], volume["kind"]): volume["bytes"] for volume in cost["volumes"]}
        self.assertEqual(volumes["dp.shard", "reduce_scatter"], states["parameters"] * 3)
        self.assertEqual(volumes["dp.replica", "all_reduce"], states["parameters"])
        # Hidden: gradients but for the table's, and one of two layers that are gathered ahead.
        table = 4 * 640  # 37 x 16, filled up to 4 runs of 160
        gathered = sum(each["hidden_bytes"] for each in cost["collectives"] if each["kind"] == "all_gather")
        reduced = sum(each["hidden_bytes"] for each in cost["collectives"] if each["kind"] == "reduce_scatter")
        self.assertEqual(reduced, states["parameters"] * 3 - table * 3 // 4)
        self.assertGreater(gathered, 0)
        self.assertLess(cost["hidden"]["bytes"], cost["hidden"]["of_bytes"])
        text = self.heddle(*files).stdout
        self.assertIn("states of a rank", text)
        self.assertIn("to hide behind", text)
        self.compile()  # rows gathered ahead are used in turn: in C++ too
        recorded = json.loads(self.heddle("run", self.out, "--dry", "--json").stdout)
        self.assertTrue(recorded["as_predicted"])
        self.assertEqual([rank["rank"] for rank in recorded["recorded"]], [0, 3, 4, 7])  # ends of both axes
        for name in ("memory.json", "cost.json"):
            right = (self.out / name).read_text()
            for damaged in ("{}", '{"classes": 3, "places": 3}'):
                (self.out / name).write_text(damaged)
                done = self.heddle("run", self.out, "--dry", code=2)
                self.assertIn("has not the form that heddle writes", done.stderr)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            (self.out / name).write_text(right)

    def test_layouts_of_a_large_mesh_name_axes(self):
        mesh = [["pp", 1], ["dp", 32], ["cp", 1], ["tp", 4]]
        self.plan = self.write("large.json", {**PLAN, "mesh": mesh, "micro_batches": 1, "zero": {"stage": 1}})
        self.train = self.write("adamw.yaml", {**TRAIN, "global_batch": 32, "optimizer": ADAMW})
        self.cluster = self.write("large.yaml", {**CLUSTER, "devices_per_node": 128})
        self.compile()
        for tensor in json.loads((self.out / "layout.json").read_text())["tensors"]:
            (first,), sizes = tensor["ranks"], dict(mesh)
            self.assertEqual(first["rank"], 0)
            cuts = [axis.split(".")[0] for axes in first["cut"]["dimensions"] for axis in axes]
            row = [axis.split(".")[0] for axis in first["cut"]["row"]]
            self.assertEqual(row, [] if tensor["kind"] == "parameter" else ["dp"])
            # Every axis cuts a tensor or repeats it.
            together = cuts + row + [axis.split(".")[0] for axis in first["replicated_over"]]
            self.assertEqual({"dp", "tp"}, set(together), tensor["name"])
            for size, (begin, end), axes in zip(tensor["shape"], first["extents"], first["cut"]["dimensions"]):
                self.assertEqual(begin, 0)
                self.assertEqual(end == size, axes == [], tensor["name"])

    def test_a_plan_that_cost_formulas_do_not_know(self):
        plan = {**PLAN, "tensor": {"values": [{"match": "block.x", "split": {"b": ["dp"]}},
                                              {"match": "block.q", "split": {"b": ["dp"], "s": ["tp"]}}]}}
        self.plan = self.write("pinned.json", plan)
        files = ("explain", self.model, "--plan", self.plan, "--train", self.train)
        answer = json.loads(self.heddle(*files, "--json").stdout)
        self.assertFalse(answer["cost"]["computed"])
        self.assertIn("block.q", answer["cost"]["reason"])
        self.assertGreater(answer["memory"]["classes"][0]["live_peak_bytes"], 0)
        self.assertIn("not computed", self.heddle(*files).stdout)
        self.compile()
        self.assertFalse(json.loads((self.out / "cost.json").read_text())["computed"])
        recorded = json.loads(self.heddle("run", self.out, "--dry", "--json").stdout)
        self.assertIsNone(recorded["as_predicted"])
        self.assertIn("block.q", recorded["not_compared"])
        self.assertIn("nothing is compared", self.heddle("run", self.out, "--dry").stdout)

    def test_rules_of_values_are_refused_by_name(self):
        for match, split, words in (("block.qq", {"b": ["dp"]}, ["matches no value", "block.qr"]),
                                    ("block.q", {"k": ["tp"]}, ["factor 'k'", "a head is whole"]),
                                    ("block.q", {"f": ["tp"]}, ["splits factor 'f'", "b s g r k"])):
            plan = self.write("pinned.json", {**PLAN, "tensor": {"values": [{"match": match, "split": split}]}})
            with self.subTest(match=match):
                self.refuse("explain", self.model, "--plan", plan, "--train", self.train, words=words, code=1)

    def test_in_what_order_ranks_send_and_receive(self):
        plan = self.write("stages.json", {
            **PLAN, "mesh": [["pp", 2], ["dp", 1], ["cp", 1], ["tp", 1]], "micro_batches": 3,
            "stages": {"layers": [["0"], ["1"]], "embedding": [0, 0], "head": [1, 0], "schedule": "one_f_one_b"}})
        self.train = self.write("three.yaml", {**TRAIN, "global_batch": 3})
        answer = json.loads(self.heddle("explain", self.model, "--plan", plan, "--train", self.train, "--json").stdout)
        self.assertEqual([", ".join(row) for row in answer["schedule"]["events"]], [
            "F0, s:F0>1, F1, s:F1>1, r:D0<1, D0, F2, s:F2>1 + r:D1<1, D1, r:D2<1, D2, O",
            "r:F0<0, F0, r:F1<0, D0, s:D0>0, F1, D1, r:F2<0 + s:D1>0, F2, D2, s:D2>0, O"])


class Planning(HeddleTest):
    DEVICE = {"memory_gib": 1, "memory_gbytes_per_s": 3350, "multiprocessors": 132,
              "peak_tflops": {"fp32": 67, "bf16": 989}}

    def setUp(self):
        super().setUp()
        self.cluster = self.clustered()

    def clustered(self, **changes):
        return self.write("planned.yaml", {**CLUSTER, "device": self.DEVICE, **changes})

    def options(self, *more):
        return "plan", self.model, "--cluster", self.cluster, "--train", self.train, *more

    def test_a_negative_limit_is_refused(self):
        self.refuse(*self.options("--limit", -1), words=["--limit", "found -1"])

    def test_the_best_plan_is_told_and_written(self):
        answer = json.loads(self.heddle(*self.options("--json", "-o", self.folder / "best.json")).stdout)
        best = answer["plans"][0]
        self.assertTrue(answer["fits"] and answer["search"]["is_exact"])
        self.assertEqual(best["plan"], json.loads((self.folder / "best.json").read_text()))
        self.assertEqual(len(best["memory"]["peak_bytes"]), dict(best["plan"]["mesh"])["pp"])
        self.assertLessEqual(max(best["memory"]["peak_bytes"]), best["memory"]["capacity_bytes"])
        self.assertEqual(sum(best["memory"]["by_reason"].values()), max(best["memory"]["peak_bytes"]))
        self.assertTrue(0 < best["mfu"] <= best["hfu"] < 1)
        seconds = [plan["step_seconds"] for plan in answer["plans"]]
        self.assertEqual(seconds, sorted(seconds))
        for decision in answer["decisions"]:
            self.assertEqual(decision["choice"], best["choices"][decision["key"]])
        self.assertIn("no plan of the space is faster", self.heddle(*self.options()).stdout)

    def test_demands_are_kept(self):
        answer = json.loads(self.heddle(*self.options("--json", "--fix", "tp=2", "--fix", "zero!=0")).stdout)
        for plan in answer["plans"]:
            self.assertEqual(plan["choices"]["tp"], "2")
            self.assertNotEqual(plan["choices"]["zero"], "0")

    def test_what_does_not_fit_is_told_with_what_would(self):
        self.cluster = self.clustered(device={**self.DEVICE, "memory_gib": 0.0001})
        answer = self.heddle(*self.options("--json"), code=1)
        self.assertFalse(json.loads(answer.stdout)["fits"])
        self.assertIn("no plan fits: the leanest needs", answer.stderr)
        self.assertIn("possible with devices with", answer.stderr)

    def test_bad_input_is_refused(self):
        bad_link = [{"level": "node", "gbytes_per_s": -1}]
        for words, changes in ((["nodes", "0"], {"nodes": 0}), (["gbytes_per_s", "-1"], {"links": bad_link}),
                               (["device", "h9000"], {"device": "h9000"}), (["peak_tflops"], {"device": "host"})):
            with self.subTest(changes=changes):
                self.cluster = self.clustered(**changes)
                self.refuse(*self.options(), words=words)
        self.cluster = self.clustered()
        self.refuse(*self.options("--fix", "tp=0"), words=["--fix", "tp", "at least 1"])
        self.refuse(*self.options("--fix", "pt=2"), words=["unknown choice", "pt"])
        self.refuse(*self.options("--top", "0"), words=["--top"])
        # No dp divides 4 sequences in the way that is asked for.
        self.refuse(*self.options("--fix", "dp=3"), words=["no plan with dp=3 is there"], code=1)


class Usage(HeddleTest):
    def test_bad_usage_is_refused_with_a_message(self):
        compile_all = ("compile", self.model, "--cluster", self.cluster, "--train", self.train, "-o", self.out)
        for words, arguments in (
                (["expected a command"], []),
                (["--bogus"], ["explain", self.model, "--bogus"]),
                (["no.json"], ["explain", "no.json"]),
                (["--memory", "--plan"], ["explain", self.model, "--memory"]),
                (["--plan is missing", "planner"], compile_all),
                (["'tpu'", "host"], [*compile_all, "--plan", self.plan, "--target", "tpu"]),
                (["train-host"], ["run", self.folder]),
                (["--seed", "--check"], ["run", self.folder, "--seed", "3"]),
                (["--mpi"], ["verify", self.model, "--plan", self.plan, "--interpret", "--mpi"])):
            with self.subTest(arguments=arguments):
                self.refuse(*arguments, words=words)

    def test_an_illegal_plan_is_answered_no_and_leaves_nothing(self):
        self.plan = self.write("plan.json", {**PLAN, "micro_batches": 3})
        self.refuse("compile", self.model, "--cluster", self.cluster, "--train", self.train, "--plan", self.plan,
                    "-o", self.out, words=["global_batch", "micro_batches"], code=1)

    def test_tables_of_stages_that_cannot_run(self):
        stages = {"layers": [["0"], ["1"]], "embedding": [0, 0], "head": [1, 0]}
        self.train = self.write("two.yaml", {**TRAIN, "global_batch": 2})

        def refuse(schedule, code, words):
            plan = self.write("stages.json", {**PLAN, "mesh": [["pp", 2], ["dp", 1], ["cp", 1], ["tp", 1]],
                                              "stages": {**stages, "schedule": schedule}})
            files = (self.model, "--plan", plan, "--train", self.train)
            self.refuse("explain", *files, code=code, words=words)
            self.refuse("verify", *files, code=code, words=words)
            self.refuse("compile", *files, "--cluster", self.cluster, "-o", self.out, code=code, words=words)

        # Rank 1 begins with what rank 0 makes behind the end of the other one.
        refuse({"table": ["F0 D0 F1 D1 O", "F1 F0 D0 D1 O"]}, 1,
               ["stuck in a circle of 2 waits", "rank 0 slot 1 (D0) waits for rank 1", "rank 1 slot 0 (F1) waits for"])
        refuse({"table": ["F0 D0 X1 D1 O", "F1 F0 D0 D1 O"]}, 2,
               ["stages.json", "row 0", "X1", "expected F, B, W, D or O"])
        refuse("none", 1, ["schedule none: 2 ranks of pp, expected 1", "one_f_one_b"])

    def test_masks_of_dropout_take_nothing_and_follow_the_settings(self):
        gpt2 = self.write("gpt2.json", {
            "model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 32, "vocab_size": 48})
        files = ("explain", gpt2, "--plan", self.plan, "--train")
        masks = json.loads(self.heddle(*files, self.train, "--json").stdout)["cost"]["dropout_masks"]
        tokens = PLAN["micro_batch"] * TRAIN["sequence_length"]
        self.assertEqual({mask["name"]: mask["bytes_if_saved"] for mask in masks},
                         {"embedding": tokens * 16, "attention": tokens * TRAIN["sequence_length"] * 4 // 2,
                          "attention_output": tokens * 16, "mlp_output": tokens * 16})
        self.assertEqual({mask["bytes"] for mask in masks}, {0})
        self.assertIn("masks of dropout: 0 bytes", self.heddle(*files, self.train).stdout)
        none = self.write("none.yaml", {**TRAIN, "dropout": {"attention": 0, "residual": 0, "embedding": 0}})
        self.assertEqual(json.loads(self.heddle(*files, none, "--json").stdout)["cost"]["dropout_masks"], [])

    def test_doctor_finds_what_built_heddle(self):
        self.assertIn("oneDNN", self.heddle("doctor").stdout)
        os.environ["HEDDLE_HOME"] = str(self.folder)
        self.addCleanup(os.environ.pop, "HEDDLE_HOME")
        self.assertIn("missing", self.heddle("doctor", code=1).stdout)


class CompileAndRun(HeddleTest):
    def test_a_folder_that_is_not_ours_is_kept(self):
        self.out.mkdir()
        (self.out / "thesis.txt").write_text("years of work")
        self.assertIn("did not write", self.compile(code=2).stderr)
        self.assertTrue((self.out / "thesis.txt").exists())

    def emitted(self, layers, dp, micro_batches, plan, pp=1):
        """step.cpp, kernels.h and numbers.bin."""
        self.model = self.write("model.json", {**LLAMA, "num_hidden_layers": layers})
        self.plan = self.write("plan.json", {**PLAN, **plan, "micro_batches": micro_batches,
                                             "mesh": [["pp", pp], ["dp", dp], ["cp", 1], ["tp", 2]]})
        self.train = self.write("train.yaml", {**TRAIN, "global_batch": dp * micro_batches, "optimizer": ADAMW})
        self.cluster = self.write("cluster.yaml", {**CLUSTER, "devices_per_node": 16})
        self.compile()
        texts = [(self.out / "program" / name).read_bytes() for name in ("step.cpp", "kernels.h", "numbers.bin")]
        shutil.rmtree(self.out)
        return texts

    def test_the_text_does_not_depend_on_layers_micro_batches_or_ranks(self):
        gathered = {"zero": {"stage": 3, "gather": "every_pass", "prefetch": 1, "reduce": "every_micro_batch"},
                    "overlap": {"memory_bytes": 1000000000}}
        two, four, chunks = ({"stages": {"layers": layers, "embedding": [0, 0], "schedule": schedule,
                                         "head": [len(layers) - 1, len(layers[0]) - 1]}}
                             for schedule, layers in (("one_f_one_b", [["0..1"], ["2..4"]]),
                                                      ("one_f_one_b", [["0..1"], ["2"], ["3..4"], ["5"]]),
                                                      ("interleaved_1f1b", [["0..1", "3", "5"], ["2", "4", "6"]])))
        copies, more = ({"stages": {"layers": layers, "embedding": [0, 0], "head": [len(layers) - 1, 0],
                                    "schedule": "dualpipe"}, "overlap": {"memory_bytes": 10**6}}
                        for layers in ([["0..1", "2"], ["2", "0..1"]],
                                       [["0", "3..4"], ["1", "2"], ["2", "1"], ["3..4", "0"]]))
        for small, large in (((2, 2, 2, {}), (5, 4, 3, {})),
                             ((2, 2, 2, {"zero": {"stage": 1}}), (5, 4, 3, {"zero": {"stage": 1}})),
                             ((2, 2, 2, gathered), (5, 4, 3, gathered)),
                             # Four events for landings, or one; both directions reach the other of two places.
                             ((5, 2, 2, two, 2), (6, 2, 9, four, 4)),
                             ((3, 2, 4, copies, 2), (5, 2, 10, more, 4)),
                             ((5, 2, 2, two, 2), (7, 2, 4, chunks, 2))):
            one, other = self.emitted(*small), self.emitted(*large)
            self.assertEqual(one[:2], other[:2])
            self.assertNotEqual(one[2], other[2])

    def test_compile_then_run_then_record(self):
        self.compile("--dump-ir")
        self.assertEqual(sorted(p.name for p in (self.out / "ir").iterdir()),
                         ["01-import.mlir", "02-autodiff.mlir", "03-sharding.mlir", "04-precision.mlir",
                          "05-collectives.mlir", "06-stages.mlir", "07-recompute.mlir", "08-overlap.mlir", "09-lowering.mlir",
                          "10-memory.mlir"])
        for name in ("program/step.cpp", "program/kernels.h", "program/tables.bin", "program/numbers.bin",
                     "train-host", "plan.json"):
            self.assertTrue((self.out / name).exists(), name)
        self.check_layout(json.loads((self.out / "layout.json").read_text()))
        data = self.write("data.txt", "".join(chr(i % 37) for i in range(500)))
        losses = []
        for how in (["--threads"], []):
            log = self.folder / "log.jsonl"
            self.heddle("run", self.out, "--data", data, "--steps", "2", "--log", log, *how)
            losses.append([json.loads(line)["loss"] for line in log.read_text().splitlines()])
        self.assertEqual(len(losses[0]), 2)
        self.assertEqual(losses[0], losses[1])
        self.heddle("run", self.out, "--data", data, "--steps", "1", "--threads", "--check", "--seed", "5")
        recorded = json.loads(self.heddle("run", self.out, "--dry", "--json").stdout)
        memory = json.loads((self.out / "memory.json").read_text())["classes"][0]
        self.assertEqual(len(recorded["recorded"]), 4)
        self.assertEqual(recorded["classes"], 1)
        highest = recorded["recorded"][0]["allocations"][0]["highest"]
        self.assertIn(memory["arena_bytes"] - highest, range(64))  # objects begin at multiples of 64
        bad = self.write("bad.txt", "z" * 100)
        for how in (["--threads"], []):
            done = self.heddle("run", self.out, "--data", bad, "--steps", "1", *how, code=2)
            self.assertIn("token 122", done.stderr)

    def test_codes_on_gpus_want_multiples_of_16(self):
        self.train = self.write("train.yaml", {**TRAIN, "precision": ["fp8"]})
        self.plan = self.write("plan.json", {**PLAN, "precision": "fp8"})
        done = self.compile("--target", "cuda", code=1)
        self.assertIn("multiples of 16 there, found tokens of a micro-batch 8 on a rank", done.stderr)

    def test_4_bits_are_the_hosts(self):
        self.train = self.write("train.yaml", {**TRAIN, "precision": ["nvfp4"]})
        self.plan = self.write("plan.json", {**PLAN, "precision": {"recipe": "nvfp4", "block_length": 1}})
        done = self.compile("--target", "cuda", code=1)
        self.assertIn("products of 4 bits, which sm_90 has not; the host emulates them", done.stderr)

    def test_scales_of_blocks_on_gpus_are_of_128_numbers_in_fp32(self):
        self.train = self.write("train.yaml", {**TRAIN, "precision": ["fp8"]})
        for scaling, says in (({"scaling": "mxfp8"}, 'precision.scaling "mxfp8" has scales of 8 bits, which Blackwell multiplies'),
                              ({"scaling": "block", "block_length": 4}, "precision.block_length is 4, but H100 multiplies blocks "
                               "of 128 numbers")):
            self.plan = self.write("plan.json", {**PLAN, "mesh": [["pp", 1], ["dp", 2], ["cp", 1], ["tp", 1]],
                                                 "precision": {"recipe": "fp8", **scaling}})
            done = self.compile("--target", "cuda", code=1)
            self.assertIn(says, done.stderr)

    def test_what_is_on_the_host_trains_alike_and_resumes_elsewhere(self):
        """Losses have the same bits, and a checkpoint goes on in a plan that keeps all on the device."""
        data = self.write("data.txt", "".join(chr(i % 37) for i in range(500)))
        self.train, logs = self.write("train.yaml", {**TRAIN, "optimizer": ADAMW}), {}
        for name, offload in (("device", {}), ("host", {"offload": {"saved": ["x1", "m"], "optimizer": True}})):
            self.plan, self.out = self.write("plan.json", {**PLAN, **offload}), self.folder / name
            self.compile()
            memory = json.loads((self.out / "memory.json").read_text())["classes"][0]
            self.assertEqual(memory["by_class"]["optimizer"] == 0, name == "host")
            self.assertEqual(memory["host_bytes"] > 0, name == "host")
            logs[name] = self.folder / f"{name}.jsonl"
            self.heddle("run", self.out, "--data", data, "--steps", "4", "--threads", "--log", logs[name])
        losses = [[json.loads(line)["loss"] for line in log.read_text().splitlines()] for log in logs.values()]
        self.assertEqual(losses[0], losses[1])
        kept = ("--data", data, "--threads", "--checkpoints", self.folder / "kept")
        self.heddle("run", self.folder / "host", *kept, "--steps", "2", "--save-every", "2")
        log = self.folder / "rest.jsonl"
        self.heddle("run", self.folder / "device", *kept, "--steps", "4", "--resume", "--log", log)
        self.assertEqual([json.loads(line)["loss"] for line in log.read_text().splitlines()], losses[0][2:])

    def test_how_a_run_ended_does_not_depend_on_its_launcher(self):
        self.compile()
        data = self.write("data.txt", "".join(chr(i % 37) for i in range(500)))
        bad = self.write("bad.txt", "z" * 100)
        tools = self.folder / "tools"
        tools.mkdir()

        def launcher(text):
            (tools / "mpirun").write_text(f"#!/bin/sh\n{text}\nkill -SEGV $$\n")
            (tools / "mpirun").chmod(0o755)

        mpirun = shutil.which("mpirun")
        self.addCleanup(os.environ.__setitem__, "PATH", os.environ["PATH"])
        os.environ["PATH"] = f"{tools}:{os.environ['PATH']}"
        launcher(f'{mpirun} "$@"')  # crashes after all ranks have ended
        self.heddle("run", self.out, "--data", data, "--steps", "1")
        self.assertIn("token 122", self.heddle("run", self.out, "--data", bad, "--steps", "1", code=2).stderr)
        verified = self.heddle("verify", self.model, "--plan", self.plan, "--json", "--mpi")
        self.assertTrue(json.loads(verified.stdout)["equal"])
        launcher(f'{mpirun} "$@"; sleep 1000')  # never ends itself
        self.assertIn("token 122", self.heddle("run", self.out, "--data", bad, "--steps", "1", code=2).stderr)
        # Ends the other ranks before the one that speaks for all has spoken.
        launcher("while [ ${1#/} = $1 ]; do shift; done; OMPI_COMM_WORLD_RANK=2 $@")
        self.assertIn("none.bin", self.heddle("run", self.out, "--data", "none.bin", "--steps", "1", code=2).stderr)
        launcher("true")  # before any rank
        self.assertIn("139 (a signal)", self.heddle("run", self.out, "--data", data, "--steps", "1", code=3).stderr)

    def check_layout(self, layout):
        """Each tensor's blocks cover it, and padding is in none."""
        for tensor in layout["tensors"]:
            blocks = {json.dumps(rank["extents"]) for rank in tensor["ranks"]}
            held = sum(math.prod(last - first for first, last in json.loads(block)) for block in blocks)
            self.assertEqual(held, math.prod(tensor["shape"]), tensor["name"])
            self.assertEqual(len(tensor["ranks"]), 4)

    def test_strict_makes_a_warning_the_answer_no(self):
        self.cluster = self.write("cluster.yaml", {**CLUSTER, "devices_per_node": 8})
        self.assertIn("--strict", self.compile("--strict", code=1).stderr)
        self.assertFalse(self.out.exists())

    def test_strict_refuses_a_plan_that_keeps_what_it_need_not(self):
        self.plan = self.write("plan.json", {**PLAN, "zero": {"stage": 2}})
        self.assertRegex(self.compile("--strict", code=1).stderr,
                         r"zero.reduce last holds whole sums of gradients, as stage 1 does: \d+ bytes")
        self.assertFalse(self.out.exists())


class Verify(HeddleTest):
    def verify(self, *more, code=0):
        return json.loads(self.heddle("verify", self.model, "--plan", self.plan, "--json", *more, code=code).stdout)

    def test_program_and_interpreter_agree_over_steps_of_adamw(self):
        train = self.write("adamw.yaml", {**TRAIN, "optimizer": ADAMW})
        tokens = [[(7 * i + j * j) % 37 for j in range(8)] for i in range(7)]  # 4, then 3 sequences
        batch = self.write("batch.json", {"tokens": tokens})
        answers = {}
        for mode, flags in (("interpret", ["--interpret"]), ("program", [])):
            answers[mode] = self.verify("--train", train, "--batch", batch, "--dump", self.folder / mode, *flags)
            self.assertTrue(answers[mode]["equal"], answers[mode])
            self.assertTrue(answers[mode]["replicas_equal"])
            self.assertEqual(answers[mode]["mode"], mode)
            self.assertEqual(answers[mode]["counted_labels"], 4 * 7)
            self.assertEqual(len(answers[mode]["steps"]), 2)
            self.assertEqual(len(answers[mode]["gradients"]), 21)
        for step in range(2):
            found, expected = (answers[mode]["steps"][step]["loss"]["plan"] for mode in ("program", "interpret"))
            self.assertAlmostEqual(found, expected, delta=2e-5)
        found, expected = (read_tensors(self.folder / mode / "plan.parameters.safetensors")
                           for mode in ("program", "interpret"))
        self.assertEqual(found.keys(), expected.keys())
        for name, values in expected.items():
            difference = math.dist(values, found[name]) / math.hypot(*values)
            self.assertLess(difference, 1e-4, name)

    def test_given_weights_are_used(self):
        first = self.verify("--interpret", "--dump", self.folder / "a")
        weights = self.folder / "a" / "plan.parameters.safetensors"
        for flags in (["--interpret"], []):
            trained = self.verify("--weights", weights, *flags)
            self.assertTrue(trained["equal"])
            self.assertLess(trained["loss"]["plan"], first["loss"]["plan"])

    def test_processes_and_bisect(self):
        answer = self.verify("--mpi", "--bisect", "--train", self.train)
        self.assertTrue(answer["equal"])
        self.assertIsNone(answer["first_different_phase"])

    def test_bad_batches_are_refused(self):
        for content, words in (({"tokens": [[1, 2], [3]]}, ["as long as"]), ({"tokens": [[99] * 8]}, ["token 99", "36"]),
                               ({"labels": [[1]]}, ["tokens"]), ({"tokens": [[1, 2, 3]]}, ["sequence_length"])):
            batch = self.write("batch.json", content)
            done = self.heddle("verify", self.model, "--plan", self.plan, "--train", self.train, "--batch", batch,
                               "--json", code=2)
            for word in words:
                self.assertIn(word, done.stderr)
            self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    unittest.main()
