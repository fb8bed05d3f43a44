#!/usr/bin/env python3
"""Emitted programs against one device: `heddle verify` over a seeded sample of plans.

The plans are those of PlanMatrixTest: (dp, tp) with product 1, 2, 4 or 8, one or four
micro-batches, with and without sequence parallelism, tiny models of each family, sizes
that divide and sizes that do not. OTHER_PLANS are chosen, `--drawn` ones pin parameters,
values and saved values as the seed has it.

    program_matrix.py --heddle build/bin/heddle [--threads N] [--mpi N] [--drawn N] [--seed S]

`--threads` cases run with ranks as threads, `--mpi` cases (8 ranks each) with MPI.
Exit 1 if a case is not equal.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import time

LLAMA = {"model_type": "llama", "hidden_act": "silu", "max_position_embeddings": 64, "rms_norm_eps": 1e-5}
QWEN = {"hidden_act": "silu", "max_position_embeddings": 64, "rms_norm_eps": 1e-6}
GPT2 = {"model_type": "gpt2", "n_positions": 64, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}


def sizes(hidden, ffn, layers, heads, kv, head, vocabulary, tied):
    return {"hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": layers,
            "num_attention_heads": heads, "num_key_value_heads": kv, "head_dim": head,
            "vocab_size": vocabulary, "tie_word_embeddings": tied}


def without_head(config):
    return {key: value for key, value in config.items() if key != "head_dim"}


MODELS = {
    "llama": {**LLAMA, **sizes(16, 24, 2, 8, 2, 4, 32, False)},
    "llama-ragged": {**LLAMA, **sizes(12, 19, 2, 9, 3, 4, 37, True), "attention_bias": True, "mlp_bias": True},
    "qwen2": {**QWEN, "model_type": "qwen2", **without_head(sizes(16, 22, 2, 4, 2, 4, 40, True))},
    "qwen2-ragged": {**QWEN, "model_type": "qwen2", **without_head(sizes(14, 21, 1, 7, 1, 2, 41, False))},
    "qwen3": {**QWEN, "model_type": "qwen3", **sizes(12, 20, 2, 8, 4, 6, 48, False)},
    "qwen3-ragged": {**QWEN, "model_type": "qwen3", **sizes(10, 17, 1, 6, 3, 4, 29, True)},
    "gpt2": {**GPT2, "n_embd": 16, "n_layer": 2, "n_head": 4, "vocab_size": 48},
    "gpt2-ragged": {**GPT2, "n_embd": 12, "n_layer": 1, "n_head": 3, "n_inner": 21, "vocab_size": 50257},
}
# Attention, residual, embedding; the models above have none.
DROPOUT = {"llama-dropout": ("llama", (0.3, 0, 0)), "llama-ragged-dropout": ("llama-ragged", (0.2, 0.3, 0.4)),
           "qwen2-ragged-dropout": ("qwen2-ragged", (0.5, 0, 0)), "gpt2-dropout": ("gpt2", (0.1, 0.2, 0.3))}
SEQUENCES = 8  # of one micro-batch, over all of dp
TOKENS = 11  # padded where they are cut
SP = {"tensor": "megatron", "sequence_parallel": True}
GATHERED = {**SP, "save_gathered": True}


def edge(split):
    """Everything but the MLP whole, and sequences cut so between blocks."""
    return {"tensor": {"parameters": [{"match": "*", "split": {}}, {"match": "*mlp.*weight", "split": {"f": ["tp"]}}],
                       "values": [{"match": "block.x", "split": split}, {"match": "block.delta", "split": split}]}}


# Sequences that are cut otherwise than over dp (the inputs follow the plan); KV heads fewer than
# tp, ragged heads, tied and untied tables with sequences cut over tp.
# A bias's gradient is added to its sum in each micro-batch, then reduced over tp: in this order.
EVERY = {**SP, "overlap": {"memory_bytes": 10**9},
         "zero": {"stage": 3, "shard_group": 2, "prefetch": 2, "reduce": "every_micro_batch", "gather": "every_pass"}}
# A parameter that data axes cut for computing is stored as it is, beside others in runs.
FFN_OVER_DATA = {"tensor": {"parameters": [{"match": "*", "split": {}},
                                           *({"match": f"*{name}_proj.weight", "split": {"f": ["dp"]}}
                                             for name in ("gate", "up", "down"))]},
                 "zero": {"stage": 3, "gather": "every_pass", "reduce": "every_micro_batch"}}
OTHER_PLANS = [("gpt2", 4, 2, 4, EVERY), ("qwen3", 2, 1, 4, FFN_OVER_DATA),
               ("llama", 2, 2, 1, edge({})), ("qwen2", 2, 2, 4, edge({"b": ["dp", "tp"]})),
               ("llama", 1, 4, 4, GATHERED), ("qwen2-ragged", 2, 4, 1, GATHERED), ("gpt2", 4, 2, 4, SP),
               ("llama", 2, 2, 1, edge({"b": ["dp"], "s": ["tp"]})), ("llama-ragged", 2, 2, 4, SP),
               ("llama", 1, 4, 1, SP), ("gpt2-ragged", 1, 4, 1, GATHERED), ("qwen3", 1, 2, 1, SP),
               ("qwen3-ragged", 2, 4, 4, SP)]
WHOLE = {"tensor": "megatron"}
# With a master; gradients and their reductions in either format.
BF16 = [{"precision": {"recipe": "bf16", "gradients": gradients, "reduce": reduce}}
        for gradients in ("fp32", "bf16") for reduce in ("fp32", "bf16")]
BF16_PLANS = [("llama", 2, 2, 4, {**WHOLE, **BF16[0], "zero": {"stage": 1}}), ("gpt2", 4, 2, 4, {**EVERY, **BF16[1]}),
              ("llama-ragged", 2, 4, 1, {**SP, **BF16[2], "overlap": {"memory_bytes": 10**9}}),
              ("qwen3", 8, 1, 4, {**WHOLE, **BF16[2], "zero": {"stage": 3}}),
              ("qwen2-ragged", 1, 8, 4, {**GATHERED, **BF16[3]}), ("gpt2-dropout", 2, 2, 4, {**SP, **BF16[0]}),
              ("qwen2", 2, 4, 1, {**WHOLE, **BF16[1], "zero": {"stage": 2, "reduce": "every_micro_batch"}}),
              ("qwen3-ragged", 1, 1, 4, {**WHOLE, **BF16[0]}),
              ("llama-ragged", 2, 2, 4, {**SP, "zero": {"stage": 3}, "precision": {"recipe": "bf16", "master": "none"}})]
DROPOUT_PLANS = [("gpt2-dropout", 2, 2, 4, SP), ("gpt2-dropout", 1, 4, 1, WHOLE), ("gpt2-dropout", 4, 2, 1, GATHERED),
                 ("llama-ragged-dropout", 1, 8, 4, WHOLE), ("llama-ragged-dropout", 2, 2, 1, SP),
                 ("llama-dropout", 2, 4, 1, WHOLE), ("llama-dropout", 2, 2, 1, edge({})),
                 ("qwen2-ragged-dropout", 4, 2, 4, WHOLE), ("gpt2-dropout", 1, 1, 4, WHOLE)]

# Attention as products, against one kernel on one device; with masks saved and drawn again.
PRODUCTS = {"attention": "unfused"}
KEPT = {**PRODUCTS, "dropout_masks": "saved"}
UNFUSED_PLANS = [("llama", 2, 2, 1, {**WHOLE, **PRODUCTS}), ("gpt2-dropout", 2, 2, 4, {**SP, **KEPT}),
                 ("llama-ragged-dropout", 1, 8, 1, {**WHOLE, **PRODUCTS}),
                 ("llama-ragged-dropout", 2, 2, 4, {**SP, **KEPT, "recompute": "selective"}),
                 ("qwen2-ragged", 1, 4, 1, {**GATHERED, **PRODUCTS}), ("qwen3", 4, 2, 4, {**WHOLE, **PRODUCTS}),
                 ("qwen3-ragged", 2, 1, 1, {**WHOLE, **PRODUCTS, "recompute": "full"}),
                 ("gpt2-dropout", 1, 2, 4, {**WHOLE, **KEPT, **BF16[0]}),
                 ("qwen2", 2, 4, 1, {**SP, **PRODUCTS, **BF16[1]})]


# Saved values on the host: a value that is read twice, all that is computed again of, masks.
OFFLOAD_PLANS = [("llama-ragged", 2, 2, 4, {**SP, "offload": {"saved": ["n1", "v", "m"]}}),
                 ("gpt2-dropout", 1, 2, 4, {**WHOLE, "recompute": "full", "offload": {"saved": ["x1"]}}),
                 ("qwen3", 4, 2, 1, {**WHOLE, "zero": {"stage": 3}, "offload": {"saved": ["qr", "lse"]}}),
                 ("gpt2-dropout", 1, 1, 4, {**WHOLE, **KEPT, "offload": {"saved": ["p", "p_dropped_mask"]}})]


def stages(schedule, *layers, head=None, **more):
    """Stages of the two layers of a model, by rank of pp and chunk."""
    held = [[chunk] if isinstance(chunk, str) else chunk for chunk in layers]
    return {"pp": len(held), "stages": {"layers": held, "embedding": [0, 0], "schedule": schedule,
                                        "head": head or [len(held) - 1, len(held[0]) - 1]}, **more}


# Shared tables at two places and at one, ends and places without layers, fewer micro-batches than
# places, several chunks, backward in two parts, rows of a user, states in runs, dropout, two copies of the model.
STAGE_PLANS = [
    ("qwen2", 2, 1, 4, stages("one_f_one_b", "0", "1")), ("gpt2", 1, 2, 1, stages("gpipe", "0..1", "")),
    ("gpt2", 4, 1, 4, stages("one_f_one_b", "0..1", "", **{**EVERY, "sequence_parallel": False})),
    ("llama-ragged", 2, 1, 4, stages("zb_h1", "0", "1", **BF16[1], zero={"stage": 1})),
    ("llama", 1, 2, 4, stages("zb_h1", "", "0", "1", "")),
    ("llama-ragged", 1, 2, 4, stages("zb_v", ["0", "1"], ["", ""], head=[0, 1])),
    ("gpt2", 1, 1, 4, stages("interleaved_1f1b", ["0", ""], ["", "1"])),
    ("llama", 2, 2, 4, stages("dualpipe_v", ["", ""], ["0", "1"], head=[0, 1], **SP)),
    ("qwen3", 1, 2, 2, stages({"table": ["F1 F0 D1 B0 W0 O", "F1 B1 F0 W1 D0 O"]}, "0", "1", **GATHERED)),
    ("qwen2", 2, 2, 4, stages("interleaved_1f1b", ["0", ""], ["", "1"], **SP, **BF16[2])),
    ("qwen3", 1, 1, 2, stages("one_f_one_b", "0", "1", **BF16[3])),
    ("gpt2-dropout", 2, 1, 4, stages("v_half", ["0", ""], ["1", ""], head=[0, 1])),
    ("llama-ragged", 1, 2, 4, stages("one_f_one_b", "0..1", "", offload={"saved": ["gate", "o"]})),
    ("gpt2", 1, 1, 4, stages("zb_h1", "0", "1", offload={"saved": ["m", "x1"]})),
    ("llama-ragged-dropout", 1, 2, 4, stages("zb_h2", "0", "1", **SP)),
    ("llama-ragged", 2, 2, 4, stages("dualpipe", ["0", "1"], ["1", "0"], head=[1, 0], **GATHERED, zero={"stage": 1})),
    ("gpt2", 1, 1, 8, stages("dualpipe", ["0", ""], ["", "1"], ["1", ""], ["", "0"], head=[3, 0])),
    ("qwen2", 2, 1, 2, stages({"table": ["@0,1' F0 F1/1 D0 D1/1 O", "@1,0' F0 F1/1 B0 D1/1 W0 O"]},
                              ["0..1", ""], ["", "0..1"], head=[1, 0], zero={"stage": 3, "gather": "every_pass"}))]


def describe(tensor):
    if "pp" in tensor:
        kind = tensor["stages"]["schedule"]
        rest = {key: value for key, value in tensor.items() if key not in ("pp", "stages")}
        return f"pp={tensor['pp']} {kind if isinstance(kind, str) else 'table'} {describe({**WHOLE, **rest})}"
    forms = [key for key in ("sequence_parallel", "save_gathered") if tensor.get(key)]
    forms += [f"zero {tensor['zero']['stage']}"] if "zero" in tensor else []
    forms += [" ".join(tensor["precision"].values())] if "precision" in tensor else []
    forms += [f"{key} {tensor[key]}" for key in ("attention", "dropout_masks", "recompute") if key in tensor]
    if isinstance(tensor["tensor"], str):
        return " ".join(["megatron", *forms])
    return " ".join([f"values {json.dumps(tensor['tensor'].get('values', []))}"[:100], *forms])


def all_cases():
    for model in MODELS:
        for ranks in (1, 2, 4, 8):
            for dp in (d for d in (1, 2, 4, 8) if d <= ranks):
                for micro_batches in (1, 4):
                    yield model, dp, ranks // dp, micro_batches, {"tensor": "megatron"}


def sequence_parallel_cases():
    for model, dp, tp, micro_batches, _ in all_cases():
        if tp > 1:
            yield model, dp, tp, micro_batches, SP
            yield model, dp, tp, micro_batches, GATHERED


def heddle_on(heddle, command, case, *options):
    """`heddle COMMAND` on the files of a case."""
    model, dp, tp, micro_batches, tensor = case
    rest = {key: value for key, value in tensor.items() if key != "pp"}
    model, (attention, residual, embedding) = DROPOUT.get(model, (model, (0, 0, 0)))
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        config, plan, train = folder / "config.json", folder / "plan.json", folder / "train.yaml"
        config.write_text(json.dumps(MODELS[model]))
        plan.write_text(json.dumps({
            "version": 1, "mesh": [["pp", tensor.get("pp", 1)], ["dp", dp], ["cp", 1], ["tp", tp]], **rest,
            "micro_batch": SEQUENCES // dp, "micro_batches": micro_batches}))
        train.write_text(f"sequence_length: {TOKENS}\nglobal_batch: {SEQUENCES * micro_batches}\nprecision: [fp32, bf16]\n"
                         "optimizer: {type: sgd, lr: 0.1}\nseed: 1\n"
                         f"dropout: {{attention: {attention}, residual: {residual}, embedding: {embedding}}}\n")
        return subprocess.run([heddle, command, str(config), "--plan", str(plan), "--train", str(train), "--json",
                               *options], capture_output=True, text=True)


def drawn_split(draw, factors, whole):
    split = {}
    for axis in draw.sample(["dp", "tp"], 2):
        factor = draw.choice(factors.split())
        if factor not in whole and draw.random() < 0.7:
            split.setdefault(factor, []).append(axis)
    return split


def drawn_cases(heddle, count, seed):
    """Legal plans that lay a third of the parameters, some values and some saved values as they like."""
    draw = random.Random(seed)
    while count:
        model, dp, tp, micro_batches = draw.choice(list(MODELS)[:-1]), draw.choice([1, 2]), draw.choice([2, 4]), 1
        case = model, dp, tp, micro_batches, {"tensor": "megatron"}
        facts = json.loads(heddle_on(heddle, "explain", case).stdout)
        rules = [{"match": tensor["name"], "split": {letter: ["tp"] for letter, axes in
                                                     zip(tensor["letters"].split(), tensor["layout"]["dims"]) if axes}}
                 for tensor in facts["tensors"]]
        for tensor in facts["tensors"]:
            if draw.random() < 0.3:  # all layers alike
                name = ".".join("*" if part.isdigit() else part for part in tensor["name"].split("."))
                rules.append({"match": name, "split": drawn_split(draw, tensor["letters"], "p")})
        values = [{"match": name, "split": {"b": ["dp"]}} for name in ("block.x", "block.delta")]
        values += [{"match": value["name"], "split": drawn_split(draw, value["factors"], "k")}
                   for value in facts["values"] if draw.random() < 0.15]
        saved = [{"match": value["name"], "split": drawn_split(draw, value["factors"], "k")}
                 for value in facts["values"] if value["saved"] and draw.random() < 0.15]
        case = *case[:4], {"tensor": {"parameters": rules, "values": values, "saved": saved}}
        if heddle_on(heddle, "explain", case).returncode == 0:
            count -= 1
            yield case


def verify(heddle, case, mpi):
    """Runs one case; returns (equal, what was seen)."""
    run = heddle_on(heddle, "verify", case, *(["--mpi"] if mpi else []))
    try:
        answer = json.loads(run.stdout)
    except ValueError:
        return False, f"exit code {run.returncode}: {run.stderr.strip()[-400:]}"
    worst = max((g["relative"] for g in answer["gradients"]), default=float("nan"))
    return run.returncode == 0 and answer["equal"], (
        f"loss {answer['loss']['relative']:.1e}, worst gradient {worst:.1e}, "
        f"replicas {'equal' if answer['replicas_equal'] else 'differ'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heddle", required=True)
    parser.add_argument("--threads", type=int, default=30)
    parser.add_argument("--mpi", type=int, default=4)
    parser.add_argument("--drawn", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    cases = list(all_cases())
    random.Random(arguments.seed).shuffle(cases)
    wide = [case for case in cases if case[1] * case[2] == 8]
    chosen = [(case, False) for case in cases[:arguments.threads]]
    chosen += [(case, True) for case in wide[:arguments.mpi]]
    chosen += [(case, False) for case in OTHER_PLANS[:arguments.threads] + DROPOUT_PLANS[:arguments.threads]
               + STAGE_PLANS[:arguments.threads] + BF16_PLANS[:arguments.threads]
               + UNFUSED_PLANS[:arguments.threads // 2] + OFFLOAD_PLANS[:arguments.threads // 2]]
    cut = list(sequence_parallel_cases())
    random.Random(arguments.seed).shuffle(cut)
    chosen += [(case, False) for case in cut[:arguments.threads // 2]]
    chosen += [(case, True) for case in cut[-arguments.mpi // 2:]]
    chosen += [(case, False) for case in drawn_cases(arguments.heddle, arguments.drawn, arguments.seed)]
    chosen += [(DROPOUT_PLANS[0], True), (STAGE_PLANS[0], True), (STAGE_PLANS[3], True)]
    chosen += [(case, True) for case in STAGE_PLANS[-3::2]]
    failures = 0
    for case, mpi in chosen:
        model, dp, tp, micro_batches, tensor = case
        begin = time.time()
        equal, seen = verify(arguments.heddle, case, mpi)
        failures += not equal
        print(f"{'equal' if equal else 'NOT EQUAL'}  {model} dp={dp} tp={tp} m={micro_batches} {describe(tensor)} "
              f"{'mpi' if mpi else 'threads'} [{time.time() - begin:.1f} s]: {seen}", flush=True)
    print(f"{len(chosen)} cases, {failures} not equal")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
