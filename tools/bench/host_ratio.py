"""Predicted against measured steps on the host backend, with times that `heddle calibrate` measured on this machine.

Usage: host_ratio.py [--heddle build/bin/heddle] [--ranks 2] [--steps 8] [--json FILE] [PLAN ...]

Measures the machine with as many ranks as the plans have, searches plans of the small model for them by what they fix
(`dp=2`, `tp=2`, `pp=2`, `dp=2,zero=3`; or those given), compiles and runs each, and prints the ratio of the predicted step to
the median measured one. The machine must be quiet: ranks are threads that compute at once, as `calibrate` measured them.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Wide enough that products, not the starts of kernels, are what a step takes.
MODEL = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 1408,
         "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "hidden_act": "silu",
         "max_position_embeddings": 1024, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "initializer_range": 0.02,
         "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False, "vocab_size": 256}
TRAIN = {"sequence_length": 512, "global_batch": 8, "precision": ["fp32"],
         "optimizer": {"type": "adamw", "lr": 1e-3, "clip_norm": 1.0}}


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("plans", nargs="*", metavar="PLAN", help="what a plan fixes: dp=2,zero=3")
    parser.add_argument("--heddle", default=str(ROOT / "build/bin/heddle"))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--tables", type=pathlib.Path, help="that calibrate wrote before")
    parser.add_argument("--json", type=pathlib.Path, help="where the numbers are written too")
    given = parser.parse_args()
    if given.steps < 4:
        parser.error(f"--steps: found {given.steps}, expected 4 or more: the first two are not counted")
    n = given.ranks
    given.plans = given.plans or ["dp=" + str(n), f"dp={n},zero=3", "tp=" + str(n), "pp=" + str(n)]
    return given


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"error: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def write(path, content):
    path.write_text(json.dumps(content))
    return path


def measured(log, skipped=2):
    seconds = [json.loads(line)["seconds"] for line in log.read_text().splitlines() if "seconds" in json.loads(line)]
    return statistics.median(seconds[skipped:])


def main():
    given = arguments()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        tables = given.tables
        if not tables:
            tables = folder / "tables.yaml"
            print(run(given.heddle, "calibrate", "--ranks", given.ranks, "-o", tables).strip(), flush=True)
        model, train = write(folder / "model.json", MODEL), write(folder / "train.yaml", TRAIN)
        cluster = write(folder / "cluster.yaml", {
            "name": "this machine", "nodes": 1, "devices_per_node": given.ranks, "device": {"tables": str(tables.resolve())},
            "memory_reserve_gib": 2, "links": [{"level": "node", "gbytes_per_s": 5}]})
        inputs = [model, "--cluster", cluster, "--train", train]
        (folder / "text").write_bytes(bytes(range(32, 127)) * 2000)
        results = []
        for i, fixed in enumerate(given.plans):
            plan, out = folder / f"plan{i}.json", folder / f"out{i}"
            choices = [word for choice in fixed.split(",") for word in ("--fix", choice)]
            run(given.heddle, "plan", *inputs, *choices, "--limit", 0, "-o", plan)
            explained = json.loads(run(given.heddle, "explain", *inputs, "--plan", plan, "--json"))
            run(given.heddle, "compile", *inputs, "--plan", plan, "-o", out)
            run(given.heddle, "run", out, "--threads", "--data", folder / "text", "--steps", given.steps)
            predicted, real = explained["step_seconds"], measured(out / "log.jsonl")
            results.append({"fixed": fixed, "predicted": predicted, "measured": real})
            print(f"{fixed}: predicted {predicted:.4f} s, measured {real:.4f} s, ratio {predicted / real:.2f}", flush=True)
        if given.json:
            write(given.json, results)


main()
