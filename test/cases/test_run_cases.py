#!/usr/bin/env python3
"""Tests of the case runner against a stand-in for `heddle` that answers rightly or
with one fault: what is right must pass, and each fault must fail."""

import array
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import data  # noqa: E402
import graphtext  # noqa: E402
import initial  # noqa: E402
import run_cases  # noqa: E402
import tensors  # noqa: E402
import translate  # noqa: E402
from case import Case  # noqa: E402
from heddle import Heddle  # noqa: E402
from outcome import Failed, Missing  # noqa: E402

FAKE = HERE / "fake_heddle.py"
MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 8, "vocab_size": 96,
    "max_position_embeddings": 64, "tie_word_embeddings": False, "hidden_act": "silu", "norm_type": "rmsnorm",
    "rms_norm_eps": 1e-5, "position": "rope", "rope_theta": 10000.0, "rope_scaling": None}
PLAN = {"dp": 1, "tp": 2, "sp": False, "pp": 1, "vpp": 1, "cp": 1, "ep": 1, "zero": 0, "microbatches": 1,
        "schedule": "none", "recompute": "none", "precision": "fp32"}
BATCH = {"seq_len": 16, "sequences": 2, "token_mask": "all tokens counted"}
LOSS = {"type": "loss_close", "ref": "single_device", "abs": 1e-5}
GRADIENT = {"type": "grad_close", "ref": "single_device", "params": "*", "rel": 1e-4}
PARAMETER = {"type": "param_close", "ref": "single_device", "params": "*", "after_steps": 1, "rel": 1e-4}
REJECT = {"type": "equal_or_reject", "mention": ["num_key_value_heads", "tp"]}
ADAMW = {"optimizer": "adamw", "lr": 0.1, "weight_decay": 0.5, "steps": 1, "gradients": "zero"}


def case(*assertions, name="T-01", model=None, plan=None, batch=None, train=None):
    entry = {"id": name, "title": "a case", "model": {**MODEL, **(model or {})}, "plan": {**PLAN, **(plan or {})},
             "batch": {**BATCH, **(batch or {})}, "check": {"assertions": list(assertions)}}
    return {**entry, "train": train} if train else entry


class Run:
    """What the command line printed for some cases."""

    def __init__(self, *cases, fault="", options=(), file_text=None):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "cases.jsonl"
            path.write_text("\n".join(map(json.dumps, cases)) if file_text is None else file_text)
            done = subprocess.run(
                [sys.executable, HERE / "run_cases.py", path, "--heddle", FAKE, *options], capture_output=True,
                text=True, env={**os.environ, "FAKE_FAULT": fault}, check=False)
        self.code, self.errors = done.returncode, done.stderr
        self.lines = done.stdout.splitlines()


class Assertions(unittest.TestCase):
    def ends(self, entry, fault, status, contains, timeout=30):
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, {"FAKE_FAULT": fault}):
            found, text = run_cases.run_case(Case(entry, Heddle(FAKE, timeout=timeout), HERE, folder))
        self.assertEqual(found, status, text)
        self.assertIn(contains, text)

    def passes(self, entry, fault="", contains=""):
        self.ends(entry, fault, "PASS", contains)

    def fails(self, entry, fault, contains=""):
        self.ends(entry, fault, "FAIL", contains)

    def skips(self, entry, contains, fault=""):
        self.ends(entry, fault, "SKIP", contains)

    def test_values(self):
        entry = case(LOSS, GRADIENT, PARAMETER)
        self.passes(entry, contains="3 of 3 assertions hold")
        self.fails(entry, "loss is wrong", "loss is")
        self.fails(entry, "gradient is wrong", "3 of 3 differ")
        self.fails(entry, "parameter is wrong", "parameter of")
        self.fails(entry, "drops a parameter", "no gradient of model.embed_tokens.weight")
        self.fails(entry, "makes NaN", "loss is nan")

    def test_command_that_misbehaves(self):
        self.fails(case(LOSS), "crashes", "SIGABRT")
        self.fails(case(LOSS), "says nothing", "neither an answer nor a message")
        self.fails(case(LOSS), "talks on stdout", "not one JSON object")
        self.ends(case(LOSS), "hangs", "FAIL", "did not end within 1 s", timeout=1)

    def test_pattern_selects_and_must_match(self):
        self.passes(case({**GRADIENT, "params": "*norm*"}))
        self.passes(case({**GRADIENT, "params": "q_norm|embed_tokens"}))
        self.fails(case({**GRADIENT, "params": "q_norm|k_norm"}), "", "no parameter matches")

    def test_several_steps(self):
        train = {"optimizer": "sgd", "lr": 0.1, "weight_decay": 0.0, "steps": 3}
        entry = case(LOSS, {**PARAMETER, "after_steps": 3}, train=train)
        self.passes(entry)
        self.fails(entry, "stops after a step", "1 steps were run, expected 3")

    def test_replicas(self):
        entry = case({"type": "replicas_bitwise_equal", "axis": "tp", "params": "*norm*", "after_steps": 1})
        self.passes(entry)
        self.fails(entry, "replicas differ")

    def test_scalars(self):
        norm = {"type": "scalar_close", "name": "grad_norm", "ref": "single_device", "rel": 1e-5}
        self.passes(case(norm))
        self.fails(case(norm), "norm is wrong")
        count = {"type": "scalar_equals", "name": "counted_labels", "value": 18}
        self.passes(case(count, {"type": "finite"}, batch={"counted_labels": [15, 3]}))
        self.fails(case({**count, "value": 19}, batch={"counted_labels": [15, 3]}), "", "expected 19")
        self.fails(case({"type": "finite"}), "makes NaN")

    def test_given_weights(self):
        value = {"type": "loss_value", "value": 1.5, "abs": 1e-6, "given": "lm_head.weight = 0"}
        self.passes(case(value))
        self.fails(case({**value, "value": 1.6}), "", "expected 1.6")

    def test_documents(self):
        batch = {"doc_lengths": [[10, 6], [3, 9]]}
        influence = {"type": "influence", "perturb": "row 0, token 3", "unchanged_positions": "10..15"}
        alone = {**LOSS, "ref": "documents run one by one on one device, label-weighted"}
        self.passes(case(influence, alone, batch=batch))
        self.fails(case(influence, batch=batch), "sees other documents", "changes the loss at 10..15")
        self.fails(case(alone, batch=batch), "sees other documents", "loss is")
        self.fails(case({**influence, "unchanged_positions": "5..9"}, batch=batch), "", "changes the loss")

    def test_plans_compared(self):
        same = {"type": "same_result_under", "plans": [{**PLAN, "tp": 1}, {**PLAN, "tp": 4}]}
        self.passes(case(GRADIENT, same))
        self.fails(case(GRADIENT, same), "is wrong under tp 4", "under {'tp': 4}")
        self.passes(case(GRADIENT, {**same, "plans": [{**PLAN, "tp": 1}, {**PLAN, "cp": 2}]}),
                    contains="not checked: same_result_under: cp 2")

    def test_equal_or_reject(self):
        self.passes(case(LOSS, GRADIENT, REJECT))
        self.fails(case(GRADIENT, REJECT), "gradient is wrong")
        self.passes(case(LOSS, GRADIENT, REJECT, plan={"tp": 8}), contains="refused by name")
        self.fails(case(LOSS, REJECT, plan={"tp": 8}), "refuses without a name", "does not name num_key_value_heads")
        self.fails(case(LOSS, plan={"tp": 8}), "", "refused: plan.json")
        self.passes(case(LOSS, {**REJECT, "under": {**PLAN, "tp": 8}}))
        self.fails(case(REJECT), "any fault", "neither equal")

    def test_refusals(self):
        heads = {"type": "reject_at_plan_time", "mention": ["num_attention_heads", "num_key_value_heads"]}
        model = {"num_attention_heads": 3, "num_key_value_heads": 2}
        self.passes(case(heads, model=model))
        self.fails(case(heads, model=model), "accepts anything", "was not refused")
        sequences = {"type": "reject_at_plan_time", "mention": ["sequences", "dp"]}
        self.passes(case(sequences, plan={"dp": 4}))
        key = {"type": "diagnostic", "mention": ["rotary_fraction"], "given": {"rotary_fraction": 0.5}}
        self.passes(case(key))
        self.fails(case(key), "ignores a key", "does not name rotary_fraction")

    def test_import(self):
        count = {"type": "param_count", "value": 6176}
        self.passes(case(count, {"type": "param_shape", "tensor": "embed_tokens.weight", "shape": [96, 32]}))
        self.fails(case({**count, "value": 6177}), "", "expected 6177")
        self.fails(case({"type": "param_shape", "tensor": "embed_tokens.weight", "shape": [32, 96]}), "")

    def test_weight_decay(self):
        groups = {"type": "decay_groups", "no_decay": "all norms, all biases", "decay": "all matrices incl. embedding"}
        scaled = {"type": "param_scaled", "params": "matrices", "factor": 0.95, "rel": 1e-6}
        unchanged = {"type": "params_unchanged", "params": "*norm*|*bias*"}
        self.passes(case(groups, scaled, unchanged, train=ADAMW))
        self.fails(case(unchanged, train=ADAMW), "decays norms", "has changed")
        self.fails(case({**scaled, "factor": 0.9}, train=ADAMW), "", "is not 0.9 times")

    def test_what_is_skipped(self):
        self.skips(case({"type": "sorcery"}, LOSS), "sorcery is not known")
        self.skips(case({"type": "output_error"}), "fp8")
        hang = {"type": "no_hang", "timeout_s": 60}
        self.skips(case(hang, {"type": "output_error"}), "needs fp8 (no_hang holds)")
        self.passes(case(hang))
        self.fails(case({"type": "loss_close", "ref": "single_device"}, {"type": "scalar_close"}), "", "cannot be read")
        self.skips(case(LOSS, plan={"pp": 2, "schedule": "chimera"}), "schedule chimera")
        self.skips(case(LOSS, plan={"fp8_tile": 2}), "plan key fp8_tile")
        self.skips(case(LOSS, plan={"bucket_numel": "some"}), "bucket_numel some")
        self.skips(case(LOSS, plan={"dp": "auto"}), "heddle plan")
        self.skips(case(LOSS, model={"model_type": "bloom"}), "family bloom")
        self.skips(case(LOSS, model={"share_mlp": True}), "share_mlp")
        self.skips(case(LOSS, model={"hidden_dropout": 0.1}), "hidden_dropout")
        self.skips(case(LOSS, batch={"token_mask": "every third token upside down"}), "in words only")
        self.skips(case(LOSS, train={"optimizer": "sgd", "lr": 0.1, "frozen": "*"}), "frozen")
        self.skips(case({**LOSS, "ref": "single_device_fp8"}), "single_device_fp8")

    def test_part_of_a_case(self):
        self.passes(case(LOSS, {"type": "plan_property"}), contains="not checked: plan_property: heddle plan")
        self.fails(case(LOSS, {"type": "plan_property"}), "loss is wrong")
        same = {"type": "same_result_under", "plans": [{**PLAN, "dp": 2}]}
        self.skips(case(LOSS, same, plan={"cp": 2}), "needs cp 2 (same_result_under holds)")
        self.fails(case(LOSS, same, plan={"cp": 2}), "loss is wrong")


GRAPH = {"model_type": "op_graph", "mesh": {"x": 4},
         "inputs": [{"name": "a", "shape": [10], "sharding": [["x"]], "init": "arange"}],
         "ops": [{"op": "mean", "ins": ["a"], "out": "m", "dims": [0]},
                 {"op": "add_scalar", "ins": ["a"], "out": "l", "value": 1.0}], "outputs": ["m"]}


class Graphs(unittest.TestCase):
    """Against a heddle-run-graph that says what it is told to."""

    def ends(self, says, code, assertion, status, contains="", model=None):
        with tempfile.TemporaryDirectory() as folder:
            tool = pathlib.Path(folder) / "heddle-run-graph"
            tool.write_text(f"#!/bin/sh\necho '{says}' >&{2 if code else 1}\nexit {code}\n")
            tool.chmod(0o755)
            entry = {**case(assertion), "model": {**GRAPH, **(model or {})}}
            found, text = run_cases.run_case(Case(entry, Heddle(tool.with_name("heddle")), HERE, folder))
        self.assertEqual(found, status, text)
        self.assertIn(contains, text)

    def test_values(self):
        value = {"type": "op_result_value", "values": {"m": 4.5}, "abs": 1e-12}
        equal = {"type": "op_result_equal", "ref": "unsharded", "abs": 0.0}
        right, wrong = '{"graph": [{"whole": [4.5], "ranks": [4.5]}]}', '{"graph": [{"whole": [4.5], "ranks": [4]}]}'
        self.ends(right, 0, value, "PASS")
        self.ends(wrong, 0, value, "FAIL", "m[0] is 4, expected 4.5")
        self.ends(right, 0, equal, "PASS")
        self.ends(wrong, 0, equal, "FAIL")
        self.ends('{"graph": [{"whole": [4.5], "ranks": []}]}', 0, equal, "FAIL", "0 elements")

    def test_refusal_has_a_place(self):
        equal = {"type": "op_result_equal", "ref": "unsharded", "abs": 0.0}
        self.ends("m.mlir:4:8: error: no factor rule", 1, equal, "PASS", "m is refused with a located error: no factor")
        self.ends("error: no factor rule", 1, equal, "FAIL", "no located error")
        self.ends("heddle-run-graph: no input a", 2, equal, "FAIL")

    def test_unwritable_op(self):
        self.ends("", 0, {"type": "op_result_equal", "ref": "unsharded", "abs": 0.0}, "SKIP", "op fft of an op graph",
                  {"ops": [{"op": "fft", "ins": ["a"], "out": "m"}]})

    def test_text(self):
        text, inputs = graphtext.graph_of(GRAPH, "m")
        self.assertIn('a = #dist.layout<#mesh, [{"x"} padded 12]>', text)
        self.assertIn('transformer.contract "a, a z -> z" %a, %constant1', text)
        self.assertNotIn("transformer.add", text)  # not what m depends on
        self.assertEqual(inputs, {"a": list(range(10)), "constant1": [0.1] * 10})

    def test_all_shardings(self):
        found = graphtext.all_shardings(2, ["x", "y"])
        self.assertEqual(len(found), 11)
        self.assertEqual(len(set(map(tuple, found))), 11)
        self.assertIn((("y", "x"), ()), [tuple(dims) for dims in found])


class CommandLine(unittest.TestCase):
    def test_closing_count_and_exit_code(self):
        cases = [case(LOSS, name="A"), case({**LOSS, "abs": 1e-9}, name="B"), case(LOSS, name="C", plan={"cp": 2})]
        run = Run(*cases, options=["--jobs", "2"])
        self.assertEqual([line.split()[:2] for line in run.lines[:-1]], [["PASS", "A"], ["FAIL", "B"], ["SKIP", "C"]])
        self.assertEqual(run.lines[-1], "3 cases: 1 passed (0 of them in part), 1 failed, 1 skipped")
        self.assertEqual(run.code, 1)

    def test_only(self):
        run = Run(case(LOSS, name="A"), case({**LOSS, "abs": 1e-9}, name="B"), options=["--only", "A"])
        self.assertEqual((len(run.lines), run.code), (2, 0))
        self.assertEqual(Run(case(LOSS), options=["--only", "X"]).code, 2)

    def test_bad_file(self):
        run = Run(file_text='{"id": "A"}\n')
        self.assertEqual(run.code, 2)
        self.assertIn("cases.jsonl:1: no batch, check, model, plan", run.errors)
        self.assertEqual(Run(file_text="not json").code, 2)

    def test_shared_file_has_no_unknown_assertion(self):
        done = subprocess.run([sys.executable, HERE / "run_cases.py", HERE / "cases.jsonl", "--heddle", FAKE, "--only",
                               "CPA-01", "--only", "FP8-01"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertNotIn("is not known", done.stdout)


class Initial(unittest.TestCase):
    """Weights that runs begin with: a stub says what they are."""

    def stub(self, values, extents=((0, 1), (1, 2))):
        ranks = [{"rank": rank, "extents": [list(rows), [0, 2]]} for rank, rows in enumerate(extents)]
        entry = {"name": "q_proj", "kind": "parameter", "shape": [2, 2], "ranks": ranks}
        return unittest.mock.Mock(
            layout=lambda plan: {"tensors": [entry]},
            initial=lambda plan: {"q_proj": ([2, 2], array.array("f", values if plan == "a" else [1, 2, 3, 4]))})

    def test_equal_under_plans(self):
        given = {"plans": ["a", "b"]}
        initial.initial_params_bitwise_equal(self.stub([1, 2, 3, 4]), given, "a")
        with self.assertRaisesRegex(Failed, "q_proj begins otherwise under b"):
            initial.initial_params_bitwise_equal(self.stub([1, 2, 3, 5]), given, "a")

    def test_shards(self):
        given = {"params": "q_proj"}
        initial.shards_differ(self.stub([1, 2, 1, 3]), given, "a")
        with self.assertRaisesRegex(Failed, "two shards of q_proj are copies"):
            initial.shards_differ(self.stub([1, 2, 1, 2]), given, "a")
        with self.assertRaisesRegex(Failed, "not split"):
            initial.shards_differ(self.stub([1, 2, 1, 3], [(0, 2), (0, 2)]), given, "a")


class Translation(unittest.TestCase):
    def test_gpt2(self):
        config = translate.config_of({
            "model_type": "gpt2", "hidden_size": 16, "intermediate_size": 48, "num_hidden_layers": 1,
            "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 4, "vocab_size": 131,
            "max_position_embeddings": 64, "tie_word_embeddings": True, "hidden_act": "gelu_new",
            "norm_type": "layernorm", "layer_norm_eps": 1e-5, "position": "learned", "attention_bias": True,
            "mlp_bias": True, "attention_dropout": 0.0, "hidden_dropout": 0.0, "embedding_dropout": 0.0})
        self.assertEqual(config, {
            "model_type": "gpt2", "n_embd": 16, "n_inner": 48, "n_layer": 1, "n_head": 4, "vocab_size": 131,
            "n_positions": 64, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "attn_pdrop": 0.0,
            "resid_pdrop": 0.0, "embd_pdrop": 0.0})

    def test_qwen2_has_biases_on_qkv_and_nowhere_else(self):
        model = {**MODEL, "model_type": "qwen2", "qkv_bias": True, "attention_bias": False, "mlp_bias": False}
        config = translate.config_of(model)
        self.assertFalse({"qkv_bias", "attention_bias", "mlp_bias", "head_dim"} & config.keys())
        with self.assertRaisesRegex(Missing, "qwen2 without qkv_bias"):
            translate.config_of({k: v for k, v in model.items() if k != "qkv_bias"})

    def test_plan(self):
        plan = translate.plan_of({**PLAN, "dp": 2, "microbatches": 2}, layers=3, sequences=8)
        self.assertEqual(plan["mesh"], [["pp", 1], ["dp", 2], ["cp", 1], ["tp", 2]])
        self.assertEqual((plan["micro_batch"], plan["micro_batches"]), (2, 2))
        self.assertEqual(plan["stages"]["layers"], [["0..2"]])
        self.assertEqual((plan["zero"], plan.get("buckets")), ({"stage": 0}, None))

    def test_buckets(self):
        def bytes_of(numel):
            plan = translate.plan_of({**PLAN, "zero": 2, "bucket_numel": numel}, 1, 2, parameters=100)
            return plan["buckets"]["gradient_bytes"]

        self.assertEqual(list(map(bytes_of, (7, "total", "total+1"))), [28, 400, 404])

    def test_zero_gradients(self):
        self.assertEqual(translate.train_of(ADAMW, 1, 16)["optimizer"],
                         {"type": "adamw", "lr": 0.1, "weight_decay": 0.5, "eps": 1e30})


class Data(unittest.TestCase):
    def counted(self, **batch):
        made = data.make_batch({**BATCH, **batch}, 96, 1, 1)
        for tokens, labels in zip(made["tokens"], made["labels"]):
            self.assertTrue(all(label in (data.IGNORED, token) for token, label in zip(tokens[1:], labels)))
        return [[i for i, label in enumerate(row) if label != data.IGNORED] for row in made["labels"]]

    def test_masks(self):
        self.assertEqual(self.counted(), [list(range(15))] * 2)
        self.assertEqual(self.counted(counted_labels=[3, 0]), [[0, 1, 2], []])
        self.assertEqual(self.counted(counted_labels_tail=[2, 1]), [[13, 14], [14]])
        self.assertEqual(self.counted(seq_lens=[4, 16]), [[0, 1, 2], list(range(15))])
        self.assertEqual(self.counted(padding_tail=12), [[0, 1, 2]] * 2)

    def test_documents(self):
        self.assertEqual(self.counted(doc_lengths=[[2, 14], [3, 4]]),
                         [[0, *range(2, 15)], [0, 1, 3, 4, 5]])
        made = data.make_batch({**BATCH, "doc_lengths": [[2, 14], [3, 4]]}, 96, 1, 1)
        self.assertEqual(made["positions"][1], [0, 1, 2, 0, 1, 2, 3, *range(9)])
        self.assertEqual(made["documents"][1], [0, 0, 0, 1, 1, 1, 1, *[2] * 9])

    def test_steps(self):
        made = data.make_batch({**BATCH, "sequences_per_step": [4, 2]}, 96, 2, 1)
        self.assertEqual(len(made["tokens"]), 6)
        self.assertEqual(len(data.make_batch(BATCH, 96, 3, 1)["tokens"]), 6)

    def test_weights(self):
        shapes = {"a.weight": [200, 10], "a.bias": [2000], "norm.weight": [2000]}
        made = data.make_weights(shapes, "normal(0,1)", 1)

        def mean_and_std(name):
            values = made[name][2]
            mean = sum(values) / len(values)
            return mean, (sum((value - mean) ** 2 for value in values) / len(values)) ** 0.5
        for name, (mean, std) in {"a.weight": (0, 0.15), "a.bias": (0, 1), "norm.weight": (1, 0.1)}.items():
            found = mean_and_std(name)
            self.assertAlmostEqual(found[0], mean, delta=4 * std / 2000 ** 0.5)
            self.assertAlmostEqual(found[1], std, delta=0.1 * std)

    def test_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "x.safetensors"
            tensors.write(path, {"a": ("F32", (2, 2), [1.5, 2, 3, 4]), "b": ("I32", (1,), [-100])})
            read = tensors.read(path)
        self.assertEqual((read["a"][0], list(read["a"][1])), ([2, 2], [1.5, 2, 3, 4]))
        self.assertEqual(list(read["b"][1]), [-100])


if __name__ == "__main__":
    unittest.main()
