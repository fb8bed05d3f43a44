#!/usr/bin/env python3
"""Plans that differ only in how states are stored and moved give bitwise equal gradients.

What may not change a bit: the ZeRO stage, how long gathered parameters are kept, prefetch, the
size and order of buckets, overlap, saved values and masters on the host. (When sums are reduced, and the shard group, change the order
of a sum.) Emitted programs of 8 ranks, as threads, one step from the same parameters, in fp32, in
bf16 with masters and without, in fp16 and in fp8 with scales of blocks: parameters and masters are equal too, also with pipeline stages of unequal numbers of
layers. A program that is run twice gives the same bits.

    storage_bits.py --heddle build/bin/heddle

Exit 1 where a gradient differs from the first plan's in any bit.
"""
import argparse
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile

# 7 and 5 divide by nothing: runs have tails that are padding.
MODEL = {"model_type": "llama", "hidden_act": "silu", "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
         "hidden_size": 14, "intermediate_size": 21, "num_hidden_layers": 3, "num_attention_heads": 7,
         "num_key_value_heads": 1, "head_dim": 4, "vocab_size": 37, "tie_word_embeddings": True}
BASE = {"version": 1, "mesh": [["pp", 1], ["dp", 4], ["cp", 1], ["tp", 2]], "tensor": "megatron",
        "sequence_parallel": True, "micro_batch": 1, "micro_batches": 2}
STAGES = {"mesh": [["pp", 2], ["dp", 4], ["cp", 1], ["tp", 1]], "sequence_parallel": False,
          "stages": {"layers": [["0..1"], ["2"]], "embedding": [0, 0], "head": [1, 0], "schedule": "zb_h1"}}
STORED = [
    {"zero": {"stage": 0}},
    {"zero": {"stage": 0}, "buckets": {"gradient_bytes": 1}, "overlap": {"memory_bytes": 10**9}},
    {"zero": {"stage": 1}, "buckets": {"gradient_bytes": 500, "order": "forward"}},
    {"zero": {"stage": 1}, "overlap": {"memory_bytes": 10**9}},
    {"zero": {"stage": 2}},
    {"zero": {"stage": 3, "gather": "every_pass", "prefetch": 2}, "overlap": {"memory_bytes": 10**9}},
    {"zero": {"stage": 3, "gather": "every_micro_batch"}, "buckets": {"gradient_bytes": 1}},
    {"zero": {"stage": 3, "gather": "once_per_step", "prefetch": 1}, "overlap": {"memory_bytes": 10**9}},
    {"zero": {"stage": 0}, "offload": {"saved": ["gate", "m", "o", "x1"]}},
    {"zero": {"stage": 3, "gather": "every_pass", "prefetch": 2}, "overlap": {"memory_bytes": 10**9},
     "offload": {"saved": ["n1", "up", "v"], "optimizer": True}},
]


PRECISIONS = [{"recipe": "fp32"}, {"recipe": "bf16", "gradients": "bf16"}]  # the latter casts to reduce
ALONE = {"recipe": "bf16", "master": "none"}
SCALED = {"recipe": "fp16"}
BLOCKS = {"recipe": "fp8", "scaling": "block", "block_length": 4}


def values(heddle, folder, model, plan, rest=""):
    """What a step of a plan of 8 sequences leaves, by name, as bytes; `rest`: of the training settings."""
    precision = plan["precision"]
    (folder / "config.json").write_text(json.dumps(model))
    (folder / "plan.json").write_text(json.dumps(plan))
    (folder / "train.yaml").write_text("sequence_length: 6\nglobal_batch: 8\nprecision: [fp32, bf16, fp16, fp8, nvfp4]\nseed: 1\n"
                                       "optimizer: {type: sgd, lr: 0.1}\n" + rest)
    run = subprocess.run([heddle, "verify", folder / "config.json", "--plan", folder / "plan.json", "--train",
                          folder / "train.yaml", "--dump", folder / "dump"], capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{json.dumps(plan)}: exit code {run.returncode}\n{run.stdout[-2000:]}{run.stderr[-2000:]}")
    data = (folder / "dump" / "plan.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    found = {name: data[8 + size:][slice(*entry["data_offsets"])]
             for name, entry in header.items() if entry.get("shape")}
    for kind in ("gradient.", "") + (("master.",) if precision["recipe"] != "fp32" and precision != ALONE else ()):
        if not any(any(value) for name, value in found.items() if name.startswith(kind)):
            sys.exit(f"nothing of kind '{kind}' in the dump")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heddle", required=True)
    heddle = parser.parse_args().heddle
    bad = 0
    for cut, precision, reduce in [*itertools.product([{}], PRECISIONS, ("last", "every_micro_batch")),
                                   (STAGES, PRECISIONS[0], "last"), (STAGES, PRECISIONS[1], "every_micro_batch"), ({}, SCALED, "last"),
                                   ({}, ALONE, "last"), (STAGES, BLOCKS, "last")]:
        first = None
        # Without stages the first plan once more: two runs are equal.
        for storage in [*(STORED[3:6] + STORED[-1:] if cut or precision is SCALED else STORED), STORED[0]]:
            with tempfile.TemporaryDirectory() as folder:
                plan = {**BASE, **cut, **storage, "zero": {**storage["zero"], "reduce": reduce}, "precision": precision}
                found = values(heddle, pathlib.Path(folder), MODEL, plan)
            first = first or found
            differing = [name for name in first if found.get(name) != first[name]]
            bad += bool(differing)
            print(f"{'differs' if differing else 'equal bits'}  {'stages, ' if cut else ''}"
                  f"{', '.join(map(str, precision.values()))}, reduce {reduce}, "
                  f"{json.dumps(storage)}" + (f": {', '.join(differing[:4])}" if differing else ""), flush=True)
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
