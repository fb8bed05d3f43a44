#!/usr/bin/env python3
"""Plans that differ only in what backward computes again give bitwise equal gradients.

Emitted programs, ranks as threads, one step from the same parameters, in fp32, bf16, fp8, scales of blocks too, and nvfp4: every family that
compiles, without stages and with, backward in one part and in two, sequences cut over tp,
parameters in runs, with dropout and without; nothing, lists, budgets of bytes, what costs nothing,
all, and layers that differ computed again.

    recompute_bits.py --heddle build/bin/heddle [--sample N]

Exit 1 where a gradient or a parameter differs from the first plan's in any bit. With --sample, N
choices of each plan in turn instead of all.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from storage_bits import values

COMMON = {"hidden_act": "silu", "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "num_hidden_layers": 3}
MODELS = {
    "llama": {**COMMON, "model_type": "llama", "hidden_size": 12, "intermediate_size": 18, "num_attention_heads": 6,
              "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 37, "tie_word_embeddings": True},
    "mistral": {**COMMON, "model_type": "mistral", "hidden_size": 8, "intermediate_size": 14, "num_attention_heads": 4,
                "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 29, "sliding_window": 4},
    "qwen2": {**COMMON, "model_type": "qwen2", "hidden_size": 12, "intermediate_size": 17, "num_attention_heads": 6,
              "num_key_value_heads": 2, "vocab_size": 31},
    "qwen3": {**COMMON, "model_type": "qwen3", "hidden_size": 10, "intermediate_size": 16, "num_attention_heads": 6,
              "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 29, "tie_word_embeddings": True},
    "gpt2": {"model_type": "gpt2", "n_embd": 12, "n_layer": 3, "n_head": 3, "n_positions": 32, "vocab_size": 31,
             "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5},
}
BLOCKS = {"recipe": "fp8", "scaling": "block", "block_length": 4}
NVFP4 = {"recipe": "nvfp4", "block_length": 2}
DROPOUT = "dropout: {attention: 0.2, residual: 0.3, embedding: 0.1}\n"


def plan(pp, dp, tp, micro_batches, schedule=None, **rest):
    result = {"version": 1, "mesh": [["pp", pp], ["dp", dp], ["cp", 1], ["tp", tp]], "tensor": "megatron",
              "precision": {"recipe": "fp32"}, "micro_batch": 8 // dp // micro_batches,
              "micro_batches": micro_batches, **rest}
    if schedule:
        result["stages"] = {"layers": [["0..1"], ["2"]], "embedding": [0, 0], "head": [1, 0], "schedule": schedule}
    return result


PLAIN = plan(1, 2, 2, 2)
RUNS = plan(1, 2, 2, 4, sequence_parallel=True, overlap={"memory_bytes": 10**9},
            zero={"stage": 3, "gather": "every_pass", "prefetch": 1})
STAGES = plan(2, 2, 1, 2, "one_f_one_b")
UNFUSED = plan(1, 2, 2, 2, attention="unfused", dropout_masks="saved")
APART = plan(2, 1, 2, 4, "zb_h1", sequence_parallel=True)
PLANS = [("gpt2", PLAIN, DROPOUT), ("llama", RUNS, ""), ("llama", STAGES, DROPOUT), ("gpt2", APART, DROPOUT),
         ("mistral", PLAIN, DROPOUT), ("mistral", STAGES, ""), ("qwen2", RUNS, DROPOUT),
         ("qwen2", plan(1, 2, 3, 2), ""), ("qwen3", APART, ""), ("qwen3", RUNS, DROPOUT),
         *((name, {**base, "precision": {"recipe": recipe}}, dropout) for name, base, dropout, recipe in
           [("llama", PLAIN, DROPOUT, "fp8"), ("gpt2", RUNS, "", "bf16"), ("qwen3", STAGES, "", "fp8"),
            ("qwen2", APART, "", "bf16"), ("gpt2", RUNS, "", "fp8"), ("qwen2", APART, "", "fp8")]),
         ("qwen3", {**STAGES, "precision": BLOCKS}, ""), ("qwen3", {**RUNS, "precision": NVFP4}, DROPOUT),
         ("gpt2", {**APART, "precision": NVFP4}, ""), ("gpt2", UNFUSED, DROPOUT), ("mistral", {**PLAIN, "attention": "unfused"}, ""),
         ("qwen3", {**APART, "attention": "unfused", "dropout_masks": "saved"}, DROPOUT)]
# In turn with other plans' budgets: what is large beside its operations, also with inputs of products saved.
OF_UNFUSED = [{"recompute": "selective"}, {"recompute": "selective", "save": "linear_inputs"},
              {"recompute": [{"selective": True, "prune": False}]}, {"recompute": ["p", "o"]}]
# Members of a plan; {"budget": share} of what a layer saves where nothing is computed again.
CHOICES = [{"recompute": "full"}, {"recompute": "selective"}, {"budget": 0.6},
           {"recompute": [{"full": True, "prune": False}]}, {"recompute": ["n1", "n2", "m"]}, {"budget": 0.3},
           {"recompute": ["x1", "v", "o"]},
           {"recompute": [{"layers": "0", "full": True}, {"layers": "2", "values": ["n2", "m", "o"]}]}]

def saved_bytes(heddle, folder, model, plan, dropout):
    """Of a layer and micro-batch at the first place, where nothing is computed again."""
    (folder / "config.json").write_text(json.dumps(model))
    (folder / "plan.json").write_text(json.dumps(plan))
    (folder / "train.yaml").write_text("sequence_length: 6\nglobal_batch: 8\nprecision: [fp32, bf16, fp8, nvfp4]\n"
                                       "optimizer: {type: sgd, lr: 0.1}\n" + dropout)
    run = subprocess.run([heddle, "explain", folder / "config.json", "--plan", folder / "plan.json", "--train",
                          folder / "train.yaml", "--json"], capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"explain: exit code {run.returncode}\n{run.stderr[-2000:]}")
    cost = json.loads(run.stdout)["cost"]
    return cost.get("places", [cost])[0]["recompute"][0]["saved_bytes_without"]


def found_with(heddle, model, base, choice, dropout):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        members = dict(choice)
        if share := members.pop("budget", None):
            budget = int(share * saved_bytes(heddle, folder, model, {**base, **members}, dropout))
            members["recompute"] = {"budget_bytes": budget}
        return values(heddle, folder, model, {**base, **members}, dropout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heddle", required=True)
    parser.add_argument("--sample", type=int, default=0)
    args = parser.parse_args()
    bad = count = 0
    for number, (name, base, dropout) in enumerate(PLANS):
        begin = number * args.sample
        known = CHOICES + OF_UNFUSED if "attention" in base else CHOICES
        choices = [known[(begin + i) % len(known)] for i in range(args.sample or len(known))]
        first = found_with(args.heddle, MODELS[name], base, {}, dropout)
        for choice in choices:
            found = found_with(args.heddle, MODELS[name], base, choice, dropout)
            differing = [value for value in first if found.get(value) != first[value]]
            bad += bool(differing)
            count += 1
            print(f"{'differs' if differing else 'equal bits'}  {name} {json.dumps(base['mesh'])} "
                  f"{base.get('stages', {}).get('schedule', '')} {json.dumps(choice)}"
                  + (f": {', '.join(differing[:4])}" if differing else ""), flush=True)
    print(f"{count} choices, {bad} of them with other bits")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
