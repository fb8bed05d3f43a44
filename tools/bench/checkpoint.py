#!/usr/bin/env python3
"""How long training stands still for a checkpoint, against a copy of as many bytes.

Usage: checkpoint.py [--heddle build/bin/heddle] [--mib 64,512] [--saves 8]

Of each size a program of one rank is compiled whose states (parameters and moments, fp32) are about so large; it trains and
saves, and says how long it paused. The aim is the median pause within 1.3 copies of the same bytes, measured right before and
behind the run by memmove in memory that was touched before, and 5 ms. Exit 1 where it is not met. The machine must be quiet.
"""
import argparse
import ctypes
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HIDDEN, MIB = 512, 2 ** 20
TRAIN = {"sequence_length": 16, "global_batch": 1, "precision": ["fp32"], "optimizer": {"type": "adamw", "lr": 1e-3}}
CLUSTER = {"name": "here", "nodes": 1, "devices_per_node": 1, "memory_reserve_gib": 0,
           "device": {"memory_gib": 8, "memory_gbytes_per_s": 20, "multiprocessors": 1,
                      "peak_tflops": {"fp32": 0.1, "bf16": 0.1}}, "links": [{"level": "node", "gbytes_per_s": 5}]}
PLAN = {"version": 1, "mesh": [["pp", 1], ["dp", 1], ["cp", 1], ["tp", 1]], "micro_batch": 1, "micro_batches": 1,
        "tensor": "megatron"}


def model(mib):
    """A Llama most of whose parameters are its two tables."""
    blocks = 2 * (4 * HIDDEN + 3 * 1024) * HIDDEN
    rows = max(256, (mib * MIB // 12 - blocks) // (2 * HIDDEN))
    return {"model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": 1024, "num_hidden_layers": 2,
            "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 64, "vocab_size": rows, "hidden_act": "silu",
            "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": False}


def copies(size, count=5):
    """Seconds of copies between two blocks of memory that was touched."""
    source, target = ctypes.create_string_buffer(size), ctypes.create_string_buffer(size)
    ctypes.memset(source, 1, size)
    ctypes.memset(target, 2, size)
    seconds = []
    for _ in range(count):
        begin = time.perf_counter()
        ctypes.memmove(target, source, size)
        seconds.append(time.perf_counter() - begin)
    return seconds


def run(command, folder):
    done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"error: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stderr


def measure(heddle, folder, mib, saves):
    for name, content in {"model": model(mib), "train": TRAIN, "cluster": CLUSTER, "plan": PLAN}.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    (folder / "text").write_bytes(bytes(range(32, 127)) * 40)
    run([heddle, "compile", "model.json", "--cluster", "cluster.json", "--train", "train.json", "--plan", "plan.json", "-o",
         "out"], folder)
    size = mib * MIB
    before = copies(size)
    # A save takes some steps: what is due before it is written is left out.
    said = run([heddle, "run", "out", "--threads", "--data", "text", "--steps", 4 * saves, "--save-every", 4, "--keep", 1],
               folder)
    told = re.search(r"checkpoints: (\d+) of (\d+) bytes a rank, .* paused ([\d.]+) s .*at most ([\d.]+) s", said)
    if not told:
        sys.exit(f"error: the run does not say how long it paused: {said}")
    saved, found, median, most = int(told[1]), int(told[2]), float(told[3]), float(told[4])
    copy = statistics.median(before + copies(size)) * found / size
    aim = 1.3 * copy + 0.005
    print(f"{found / MIB:7.1f} MiB  {saved} saves: pause {median * 1e3:7.2f} ms (most {most * 1e3:.2f})  copy "
          f"{copy * 1e3:7.2f} ms  1.3 copies + 5 ms {aim * 1e3:7.2f} ms  {'met' if median <= aim else 'MISSED'}", flush=True)
    return median <= aim


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heddle", default=str(ROOT / "build/bin/heddle"))
    parser.add_argument("--mib", default="64,512")
    parser.add_argument("--saves", type=int, default=8)
    given = parser.parse_args()
    met = True
    for mib in map(int, given.mib.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            met &= measure(os.path.abspath(given.heddle), pathlib.Path(folder), mib, given.saves)
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    sys.exit(not met)


if __name__ == "__main__":
    main()
