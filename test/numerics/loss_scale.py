#!/usr/bin/env python3
"""Training in fp16 with a dynamic loss scale, as emitted programs.

Of each plan (data and tensor parallel, stages, ZeRO 3):
- from a scale at which gradients overflow it comes down, and the steps that it skips change nothing: what follows is
  bit for bit a run that began with the scale that was found;
- an infinity on any single rank makes all skip that step, and changes nothing else either;
- the scale is what keeps gradients: with one far below 1 most of them vanish, with a large one they are fp32's.
A program in fp32 or bf16 has no scale: an infinity ends training, all parameters are as they were.

    loss_scale.py --heddle build/bin/heddle

Exit 1 with what is not so.
"""
import argparse
import json
import math
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

MODEL = {"model_type": "llama", "hidden_act": "silu", "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
         "hidden_size": 16, "intermediate_size": 21, "num_hidden_layers": 3, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 37, "tie_word_embeddings": False}
LENGTH, SEQUENCES = 8, 8
LARGE = 2.0 ** 24  # gradients of logits are then above fp16's 65,504


def plan(pp, dp, tp, **rest):
    made = {"version": 1, "mesh": [["pp", pp], ["dp", dp], ["cp", 1], ["tp", tp]], "tensor": "megatron",
            "micro_batch": SEQUENCES // dp // 2, "micro_batches": 2, "precision": "fp16", **rest}
    if pp > 1:
        made["stages"] = {"layers": [["0..1"], ["2"]], "embedding": [0, 0], "head": [1, 0], "schedule": "one_f_one_b"}
    return made


PLANS = {"dp 2, tp 2, ZeRO 1": plan(1, 2, 2, zero={"stage": 1}, sequence_parallel=True),
         "pp 2, dp 2": plan(2, 2, 1),
         "dp 4, ZeRO 3": plan(1, 4, 1, zero={"stage": 3}, overlap={"memory_bytes": 10 ** 9})}


def require(holds, what):
    if not holds:
        sys.exit(f"not so: {what}")


class Program:
    def __init__(self, heddle, folder, name, plan, optimizer="{type: adamw, lr: 0.01, clip_norm: 0.5}", **scale):
        self.name, self.folder = name, folder / str(len(list(folder.iterdir())))
        self.folder.mkdir()
        self.ranks = math.prod(size for _, size in plan["mesh"])
        files = {"config.json": json.dumps(MODEL), "plan.json": json.dumps(plan), "batch.json": batch(),
                 "cluster.yaml": "name: here\nnodes: 1\ndevices_per_node: 8\ndevice: host\n"
                                 "links: [{level: node, gbytes_per_s: 5}]\n",
                 "train.yaml": f"sequence_length: {LENGTH}\nglobal_batch: {SEQUENCES}\n"
                               f"precision: [fp32, bf16, fp16, fp8]\noptimizer: {optimizer}\nseed: 3\n"
                               f"loss_scale: {json.dumps(scale)}\n"}
        for file, text in files.items():
            (self.folder / file).write_text(text)
        done = subprocess.run([heddle, "compile", "config.json", "--cluster", "cluster.yaml", "--train", "train.yaml",
                               "--plan", "plan.json", "--dump-ir", "-o", "out"], cwd=self.folder, capture_output=True, text=True)
        require(done.returncode == 0, f"{name} compiles: {done.stderr}")

    def run(self, steps, *options, code=0):
        """The lines of the log, and what the steps leave, by name."""
        done = subprocess.run(["./out/train-host", "--threads", "--data", "batch.json", "--steps", str(steps),
                               "--dump", "left", "--log", "log", *map(str, options)],
                              cwd=self.folder, capture_output=True, text=True, timeout=300)
        require(done.returncode == code, f"{self.name} ends with {code}, found {done.returncode}: {done.stderr}")
        self.errors = done.stderr
        log = [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]
        return log, tensors(self.folder / "left") if code == 0 else {}


def batch():
    """One batch, which is each step's."""
    draw = random.Random(5)
    return json.dumps({"tokens": [[draw.randrange(37) for _ in range(LENGTH)] for _ in range(SEQUENCES)]})


def tensors(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    return {name: data[8 + size:][slice(*entry["data_offsets"])]
            for name, entry in json.loads(data[8:8 + size]).items() if entry.get("shape")}


def parameters(left):
    """Parameters and masters: all that steps change and a dump has."""
    return {name: value for name, value in left.items() if not name.startswith("gradient.")}


def check_search(heddle, folder, name, plan):
    """The scale comes down by itself, one halving a step."""
    program = Program(heddle, folder, name, plan, initial=LARGE, growth_interval=0)
    log, _ = program.run(14)
    skipped = sum(entry["skipped"] for entry in log)
    require(1 < skipped < 12, f"{name}: some steps are skipped, found {skipped}")
    require([entry["skipped"] for entry in log] == [i < skipped for i in range(14)], f"{name}: only the first ones")
    require([entry["loss_scale"] for entry in log] == [LARGE / 2 ** min(i, skipped) for i in range(14)],
            f"{name}: the scale halves with each: {[entry['loss_scale'] for entry in log]}")
    require(log[-1]["loss"] < log[skipped]["loss"], f"{name}: training goes on")
    known = Program(heddle, folder, name, plan, initial=LARGE / 2 ** skipped, growth_interval=0)
    _, before = program.run(skipped)
    other_log, other = known.run(3)
    _, found = program.run(skipped + 3)
    require(parameters(found) == parameters(other), f"{name}: skipped steps change nothing")
    require(parameters(before) != parameters(found), f"{name}: others do")
    require(other_log[0]["loss"] == log[0]["loss"] == log[skipped]["loss"], f"{name}: losses are those before")
    print(f"holds  {name}: {skipped} steps skipped from scale {LARGE:g}")


def check_infinity(heddle, folder, name, plan):
    """The scale is at its least, so that runs with and without the infinity have the same one."""
    program = Program(heddle, folder, name, plan, initial=1024, minimum=1024, growth_interval=0)
    _, wanted = program.run(2)
    for rank in range(program.ranks):
        log, found = program.run(3, "--inject-inf", 2, "--rank", rank, "--replica-check", 1)
        require([entry["skipped"] for entry in log] == [False, True, False], f"{name}, rank {rank}: step 2 is skipped")
        require(log[1]["gradient_norm"] is None, f"{name}, rank {rank}: its norm is no number")
        require(parameters(found) == parameters(wanted), f"{name}, rank {rank}: nothing else changes")
    program = Program(heddle, folder, name, plan, initial=1024, hysteresis=2)
    for rank, code in ((0, 0), (program.ranks - 1, 0)):
        log, _ = program.run(3, "--inject-inf", 2, "--rank", rank)
        require([entry["loss_scale"] for entry in log] == [1024, 1024, 1024], f"{name}: one overflow is borne")
    print(f"holds  {name}: an infinity on each of {program.ranks} ranks is skipped by all")


def relative(found, wanted):
    squares = [0.0, 0.0]
    for name in wanted:
        if name.startswith("gradient."):
            count = len(wanted[name]) // 4
            for a, b in zip(struct.unpack(f"<{count}f", found[name]), struct.unpack(f"<{count}f", wanted[name])):
                squares[0] += (a - b) ** 2
                squares[1] += b * b
    return math.sqrt(squares[0] / squares[1])


def check_gradients(heddle, folder, name, plan):
    """Errors of gradients as a whole, against fp32."""
    _, wanted = Program(heddle, folder, name, {**plan, "precision": "fp32"}).run(1)
    errors = {}
    for scale in (2.0 ** -20, 1.0, 1024.0):
        _, found = Program(heddle, folder, name, plan, initial=scale, minimum=scale, growth_interval=0).run(1)
        errors[scale] = relative(found, wanted)
    text = ", ".join(f"{error:.2e} at {scale:g}" for scale, error in errors.items())
    require(errors[1024.0] < 1e-2, f"{name}: gradients are fp32's: {text}")
    require(errors[2.0 ** -20] > 0.5, f"{name}: without a scale they vanish: {text}")
    print(f"holds  {name}: gradients differ from fp32's by {text}")


def check_unscaled(heddle, folder, name, plan):
    for recipe, rank in (("fp32", 3), ("bf16", 0)):
        program = Program(heddle, folder, name, {**plan, "precision": recipe})
        log, _ = program.run(3, "--inject-inf", 2, "--rank", rank, code=1)
        require(len(log) == 2 and "loss_scale" not in log[1], f"{name}, {recipe}: training stops: {log}")
        require("step 2: the" in program.errors, f"{name}, {recipe}: says why: {program.errors}")
    print(f"holds  {name}: without a scale an infinity ends training")


def check_hopeless(heddle, folder, name, plan):
    """The least scale is too large: forward would have to be looked at."""
    program = Program(heddle, folder, name, plan, initial=LARGE, minimum=LARGE)
    log, _ = program.run(20, code=1)
    require(len(log) == 10 and all(entry["skipped"] for entry in log), f"{name}: ends behind ten skipped steps")
    require("in 10 steps in a row at the least loss scale" in program.errors, f"{name}: says why: {program.errors}")
    print(f"holds  {name}: a scale that cannot come down ends training")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heddle", required=True)
    heddle = pathlib.Path(parser.parse_args().heddle).resolve()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, plan in PLANS.items():
            check_search(heddle, folder, name, plan)
            check_infinity(heddle, folder, name, plan)
        name, plan = next(iter(PLANS.items()))
        for check in (check_gradients, check_unscaled, check_hopeless):
            check(heddle, folder, name, plan)


if __name__ == "__main__":
    main()
