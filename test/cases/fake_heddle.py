#!/usr/bin/env python3
"""Stands in for `heddle` in test_run_cases.py. It gives every model three
parameters and answers rightly, except for the fault that FAKE_FAULT names."""

import json
import os
import pathlib
import sys
import time

FAULT = os.environ.get("FAKE_FAULT", "")
NAMES = {"model.embed_tokens.weight": [96, 32], "model.layers.0.input_layernorm.weight": [32],
         "lm_head.weight": [96, 32]}
FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))
import tensors  # noqa: E402


def option(name):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None


def refuse(message):
    print(message, file=sys.stderr)
    sys.exit(2)


def explain(config):
    if "rotary_fraction" in config and FAULT != "ignores a key":
        refuse("config.json:1: unknown key rotary_fraction")
    return {"parameters": 2 * 96 * 32 + 32, "tensors": [
        {"name": name, "shape": shape, "decay": len(shape) > 1} for name, shape in NAMES.items()]}


def entries(wrong):
    found = [{"name": name, "relative": 3e-3 if wrong else 2e-6, "largest": 1e-7} for name in NAMES]
    return found[1:] if FAULT == "drops a parameter" else found


def loss_of(batch):
    """Any function of all counted labels and of what stands before them in the
    document; with the fault "sees other documents" of the whole row."""
    (rows, length), tokens = batch["tokens"]
    labels = batch["labels"][1]
    documents = batch["documents"][1] if "documents" in batch else [0] * len(tokens)
    total, count = 0, 0
    for row in range(rows):
        for i in range(length):
            at = row * length + i
            if labels[at] != -100:
                count += 1
                total += labels[at] + sum(
                    tokens[j] * ((at - j) % 5 + 1) for j in range(row * length, at + 1)
                    if documents[j] == documents[at] or FAULT == "sees other documents")
    return total / count / 100, count


def dump_parameters(weights, folder):
    scaled = {}
    for name, (shape, values) in tensors.read(weights).items():
        factor = 0.95 if len(shape) > 1 or FAULT == "decays norms" else 1
        scaled[name] = ("F32", shape, [value * factor for value in values])
    os.makedirs(folder, exist_ok=True)
    tensors.write(os.path.join(folder, "plan.parameters.safetensors"), scaled)


def verify():
    plan = json.loads(pathlib.Path(option("--plan")).read_text())
    train = json.loads(pathlib.Path(option("--train")).read_text())
    sizes = dict(plan["mesh"])
    if plan["micro_batch"] * plan["micro_batches"] * sizes["dp"] != train["global_batch"]:
        refuse("train.yaml: global_batch 2 is not dp 4 x 1 x 1")
    if sizes["tp"] == 8:
        refuse("no" if FAULT == "refuses without a name" else "plan.json: tp 8 does not suit num_key_value_heads 4")
    if FAULT == "crashes":
        os.abort()
    if FAULT == "hangs":
        time.sleep(60)
    if FAULT == "says nothing":
        sys.exit(1)
    batch = tensors.read(option("--batch"))
    reference, count = loss_of(batch)
    loss = float("nan") if FAULT == "makes NaN" else reference + (1e-3 if FAULT == "loss is wrong" else 1e-7)
    if not any(tensors.read(option("--weights"))["lm_head.weight"][1]):
        loss = 1.5
    dump_parameters(option("--weights"), option("--dump"))
    norm = 1.9 * (1.01 if FAULT == "norm is wrong" else 1)
    steps = -(-batch["tokens"][0][0] // train["global_batch"])
    one = {"loss": {"plan": loss, "reference": reference}}
    wrong_tp = FAULT == "is wrong under tp 4" and sizes["tp"] == 4
    return {
        "equal": FAULT == "", "mode": "program", **one, "gradients": entries(FAULT == "gradient is wrong" or wrong_tp),
        "parameters": entries(FAULT == "parameter is wrong"), "replicas_equal": FAULT != "replicas differ",
        "gradient_norm": {"plan": norm, "reference": 1.9}, "counted_labels": count,
        "steps": [one] * (1 if FAULT == "stops after a step" else steps)}


def main():
    config = json.loads(pathlib.Path(sys.argv[2]).read_text())
    if config["num_attention_heads"] % config["num_key_value_heads"] and FAULT != "accepts anything":
        refuse("config.json: num_attention_heads 3 is not a multiple of num_key_value_heads 2")
    answer = explain(config) if sys.argv[1] == "explain" else verify()
    print("progress: 100 %" if FAULT == "talks on stdout" else "", end="")
    print(json.dumps(answer))


main()
