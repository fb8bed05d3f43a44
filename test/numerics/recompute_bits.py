#!/usr/bin/env python3
"""Plans that differ only in what backward computes again give bitwise equal gradients.

Emitted programs, ranks as threads, one step from the same parameters, in fp32: without stages and
with, backward in one part and in two, sequences cut over tp, parameters in runs, with and without
dropout; nothing, lists, what costs nothing, all, and layers that differ computed again.

    recompute_bits.py --heddle build/bin/heddle

Exit 1 where a gradient or a parameter differs from the first plan's in any bit.
"""
import argparse
import json
import pathlib
import sys
import tempfile

from storage_bits import values

LLAMA = {"model_type": "llama", "hidden_act": "silu", "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
         "hidden_size": 12, "intermediate_size": 18, "num_hidden_layers": 3, "num_attention_heads": 6,
         "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 37, "tie_word_embeddings": True}
GPT2 = {"model_type": "gpt2", "n_embd": 12, "n_layer": 3, "n_head": 3, "n_positions": 32, "vocab_size": 31,
        "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}
DROPOUT = "dropout: {attention: 0.2, residual: 0.3, embedding: 0.1}\n"


def plan(pp, dp, tp, micro_batches, schedule=None, **rest):
    result = {"version": 1, "mesh": [["pp", pp], ["dp", dp], ["cp", 1], ["tp", tp]], "tensor": "megatron",
              "precision": {"recipe": "fp32"}, "micro_batch": 8 // dp // micro_batches,
              "micro_batches": micro_batches, **rest}
    if schedule:
        result["stages"] = {"layers": [["0..1"], ["2"]], "embedding": [0, 0], "head": [1, 0], "schedule": schedule}
    return result


PLANS = [(GPT2, plan(1, 2, 2, 2), DROPOUT),
         (LLAMA, plan(1, 2, 2, 4, sequence_parallel=True, overlap={"memory_bytes": 10**9},
                      zero={"stage": 3, "gather": "every_pass", "prefetch": 1}), ""),
         (LLAMA, plan(2, 2, 1, 2, "one_f_one_b"), DROPOUT),
         (GPT2, plan(2, 1, 2, 4, "zb_h1", sequence_parallel=True), DROPOUT)]
CHOICES = ["none", "full", [{"full": True, "prune": False}], "selective", ["n1", "n2", "m"], ["x1", "v", "o"],
           [{"layers": "0", "full": True}, {"layers": "2", "values": ["n2", "m", "lse"]}]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heddle", required=True)
    heddle = parser.parse_args().heddle
    bad = 0
    for model, base, dropout in PLANS:
        first = None
        for choice in CHOICES:
            with tempfile.TemporaryDirectory() as folder:
                found = values(heddle, pathlib.Path(folder), model, {**base, "recompute": choice}, dropout)
            first = first or found
            differing = [name for name in first if found.get(name) != first[name]]
            bad += bool(differing)
            print(f"{'differs' if differing else 'equal bits'}  {model['model_type']} {json.dumps(base['mesh'])} "
                  f"{base.get('stages', {}).get('schedule', '')} {json.dumps(choice)}"
                  + (f": {', '.join(differing[:4])}" if differing else ""), flush=True)
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
