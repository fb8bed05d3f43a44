#!/usr/bin/env python3
"""Runs that are killed with `kill -9` and resumed, against runs that nobody disturbs.

    resume.py --heddle build/bin/heddle [--kills N] [--steps N] [--resizes N] [--seed S]

- Of N kills (one rank, or all ranks; uniformly within one and a half of what a save takes, from its begin) each leaves the
  checkpoint before it or the one in flight, bit for bit the states of that step of a whole run; the run goes on from it.
- N steps are N/2, a kill, and the rest: losses and states bit for bit in the same layout; in others the same masks of
  dropout and samples, so that losses are equal within rounding.
- Behind N kills and resizes each step has counted the labels of its own samples, once.

Exit 1 with what is not so.
"""
import argparse
import collections
import json
import math
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

from faults import Programs, require, start_unwatched

SEQUENCES, LENGTH, VOCABULARY = 24, 11, 48
MODEL = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 16, "n_layer": 2, "n_head": 4,
         "n_inner": None, "n_positions": 64, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-05,
         "vocab_size": VOCABULARY, "initializer_range": 0.3}
TRAIN = {"sequence_length": LENGTH, "global_batch": SEQUENCES, "precision": ["fp32"], "seed": 5,
         "optimizer": {"type": "adamw", "lr": 0.003, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1,
                       "clip_norm": 0.5}}
DROPOUT = {"attention": 0.2, "residual": 0.3, "embedding": 0.2}
STEPS_OF_DATA = 240  # then its first ones again
FOR_EVER = 10 ** 6  # steps that no run comes to
# Of losses behind steps that were summed in another order; other masks are far above it, as is shown.
ROUNDING = 1e-5


def plan(dp, tp=1, pp=1, zero=0, micro_batches=2, **more):
    made = {"version": 1, "mesh": [["pp", pp], ["dp", dp], ["cp", 1], ["tp", tp]], "tensor": "megatron",
            "micro_batch": SEQUENCES // dp // micro_batches, "micro_batches": micro_batches, **more}
    if zero:
        made["zero"] = {"stage": zero}
    if pp > 1:
        made["stages"] = {"layers": [["0"], ["1"]], "embedding": [0, 0], "head": [1, 0], "schedule": "one_f_one_b"}
    return made


LAYOUTS = {"dp2-tp2": plan(2, 2, sequence_parallel=True), "dp4-zero3": plan(4, zero=3, micro_batches=3),
           "pp2-dp2": plan(2, pp=2, zero=1), "dp3": plan(3, zero=1, micro_batches=4), "tp4": plan(1, 4),
           "one": plan(1), "dp6-zero2": plan(6, zero=2)}
FIRST = "dp2-tp2"


class Layouts(Programs):
    """Programs by the name of a layout; data whose steps each count another number of labels."""

    def __init__(self, heddle, folder):
        super().__init__(heddle, folder, MODEL, {**TRAIN, "dropout": DROPOUT})
        (folder / "dry.json").write_text(json.dumps({**TRAIN, "dropout": {site: 0 for site in DROPOUT}}))
        draw = random.Random(4)
        tokens = [[draw.randrange(VOCABULARY) for _ in range(LENGTH)] for _ in range(SEQUENCES * STEPS_OF_DATA)]
        labels = [[*sequence[1:], -100] for sequence in tokens]
        for step in range(STEPS_OF_DATA):
            for number in range(step % (SEQUENCES * (LENGTH - 1) // 2)):
                labels[step * SEQUENCES + number % SEQUENCES][number // SEQUENCES] = -100
        self.counted = [sum(label >= 0 for sequence in labels[step * SEQUENCES:(step + 1) * SEQUENCES]
                            for label in sequence) for step in range(STEPS_OF_DATA)]
        self.data = folder / "batches.json"
        self.data.write_text(json.dumps({"tokens": tokens, "labels": labels}))

    def layout(self, name, train="train.json"):
        return self.compiled(f"{name}-{train[:-5]}", LAYOUTS[name], train)

    def threads(self, program, root, steps, *options):
        """An undisturbed run of ranks that are threads; its log."""
        root.mkdir(exist_ok=True)
        done = subprocess.run([str(program / "train-host"), "--threads", "--data", str(self.data), "--steps",
                               str(steps), "--log", str(root / "log"), "--checkpoints", str(root / "checkpoints"),
                               *map(str, options)], capture_output=True, text=True, check=False)
        require(done.returncode == 0, f"{program.name} runs {steps} steps: {done.stderr}")
        return read_log(root / "log")

    def ranks(self, program, root, *options):
        """A process each, and more steps than they are given the time for, with a checkpoint as often as one is written."""
        root.mkdir(exist_ok=True)
        count = math.prod(size for _, size in LAYOUTS[program.name.split("-train")[0]]["mesh"])
        return Ranks(count, [program / "train-host", "--data", self.data, "--steps", FOR_EVER, "--log", root / "log",
                      "--checkpoints", root / "checkpoints", "--save-every", 2, *options], root / "said")


class Ranks:
    def __init__(self, count, command, said):
        self.said = said
        with open(said, "w") as out:
            self.processes = start_unwatched("torchrun", count, list(map(str, command)), out, 60)

    def run(self):
        return all(process.poll() is None for process in self.processes)

    def kill(self, draw):
        """One rank, or all; which."""
        one = draw.random() < 0.5
        require(self.run(), f"there is a run to kill: {self.said.read_text()}")
        for process in [draw.choice(self.processes)] if one else self.processes:
            process.send_signal(signal.SIGKILL)
        codes = [process.wait(timeout=120) for process in self.processes]
        require(all(codes), f"all end with it: {codes} {self.said.read_text()}")
        return "one rank" if one else "all ranks"


def read_log(path):
    """Per step all that is no time."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{key: line[key] for key in ("step", "loss", "counted_labels", "gradient_norm", "learning_rate", "skipped")}
            for line in lines]


def committed(root):
    return sorted(int(path.name[5:]) for path in (root / "checkpoints").glob("step-*"))


def newest(root):
    return max(committed(root), default=0)


def in_flight(root):
    return {path.name for path in (root / "checkpoints").glob(".tmp-step-*")}


def states(folder):
    """Names, places and bytes of each file, and what the manifest says beside tensors and the run's history."""
    found = {}
    for path in sorted(folder.rglob("*.safetensors")):
        content = path.read_bytes()
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8:8 + size])
        header.pop("__metadata__", None)
        found[str(path.relative_to(folder))] = json.dumps(header, sort_keys=True), content[8 + size:]
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["state"].pop("history")
    found["state"] = manifest["step"], manifest["state"]
    return found


def step_folder(root, step):
    return root / "checkpoints" / f"step-{step:010}"


def wait_for(holds, what, ranks, seconds=600):
    start = time.monotonic()
    while not holds():
        require(ranks.run() and time.monotonic() - start < seconds, f"{what}: {ranks.said.read_text()}")
        time.sleep(0.001)


def begun_save(root, ranks):
    """Waits until a save begins that was not there before."""
    before = in_flight(root)
    wait_for(lambda: in_flight(root) - before, "a save begins", ranks)


def seconds_of_saves(programs, draw, program, root):
    ranks, seconds = programs.ranks(program, root), []
    while len(seconds) < 8:
        begun_save(root, ranks)
        start, names = time.monotonic(), in_flight(root)
        wait_for(lambda: not in_flight(root) & names, "a save ends", ranks)
        seconds.append(time.monotonic() - start)
    ranks.kill(draw)
    return statistics.median(seconds)


class Reference:
    """States and losses of each step of a run that nobody disturbs."""

    def __init__(self, programs, program, folder):
        self.programs, self.program, self.folder, self.known = programs, program, folder, {}
        self.log = programs.threads(program, folder / "reference", 2 * STEPS_OF_DATA)

    def states(self, step):
        if step not in self.known:
            root = self.folder / f"reference-{step}"
            self.programs.threads(self.program, root, step, "--save-every", step)
            self.known[step] = states(step_folder(root, step))
            shutil.rmtree(root)
        return self.known[step]


def check_kills(programs, draw, folder, kills):
    program = programs.layout(FIRST)
    reference = Reference(programs, program, folder)
    save = seconds_of_saves(programs, draw, program, folder / "timed")
    found, root, lives = collections.Counter(), folder / "killed", 0
    while found.total() < kills:
        if lives == 10 or newest(root) > STEPS_OF_DATA // 2:
            shutil.rmtree(root)
            lives = 0
        ranks = programs.ranks(program, root, *(["--resume"] if newest(root) else []))
        lives += 1
        begun_save(root, ranks)
        begun = newest(root)
        time.sleep(draw.random() * 1.5 * save)
        before = committed(root)
        who = ranks.kill(draw)
        after = committed(root)
        require(after[-1:] >= before[-1:], f"nothing committed is lost: {before}, then {after}")
        for step in after:
            require(states(step_folder(root, step)) == reference.states(step), f"step {step} is whole, and its own")
        found[who, "the new one" if newest(root) > begun else "the one before"] += 1
        log = read_log(root / "log")
        require(log == reference.log[:len(log)], f"losses are those of a whole run: {log[-3:]}")
    last = newest(root) + 5
    require(programs.threads(program, root, last, *(["--resume"] if newest(root) else [])) == reference.log[:last],
            "the last one goes on")
    text = ", ".join(f"{who}: {count} x {what}" for (who, what), count in sorted(found.items()))
    return f"{kills} of {kills} whole, a save takes {save * 1000:.0f} ms ({text})"


def difference(found, wanted, kind=max):
    """Relative differences of losses, of lines that are else equal."""
    for one, other in zip(found, wanted):
        require(all(one[key] == other[key] for key in ("step", "counted_labels", "learning_rate", "skipped")),
                f"the same step and samples: {one}, {other}")
    require(len(found) == len(wanted), f"{len(wanted)} steps, found {len(found)}")
    return kind(abs(one["loss"] - other["loss"]) / other["loss"] for one, other in zip(found, wanted))


def check_steps(programs, draw, folder, steps):
    whole, half, said = folder / "whole", steps // 2, []
    program = programs.layout(FIRST)
    wanted = programs.threads(program, whole, steps, "--save-every", steps)
    root = folder / "halves"
    ranks = programs.ranks(program, root, "--keep", 1000)
    wait_for(lambda: newest(root) >= half, f"step {half} is saved", ranks)
    time.sleep(draw.random() / 20)
    ranks.kill(draw)
    at = max(step for step in committed(root) if step <= half + 1)
    for step in committed(root):
        if step > at:
            shutil.rmtree(step_folder(root, step))
    for name in LAYOUTS:
        parts = folder / f"parts-{name}"
        shutil.copytree(root, parts)
        found = programs.threads(programs.layout(name), parts, steps, "--resume", "--save-every", steps)
        if name == FIRST:
            require(found == wanted, f"{name}: losses are those of a whole run, bit for bit")
            require(states(step_folder(parts, steps)) == states(step_folder(whole, steps)), f"{name}: and the states")
            said.append(f"{name}: bit for bit")
            continue
        require(found[:at] == wanted[:at], f"{name}: lines before the kill stay")
        most = difference(found[at:], wanted[at:])
        require(most < ROUNDING, f"{name}: losses differ by rounding, found {most:.1e}")
        said.append(f"{name}: {most:.1e}")
    # That other masks would be seen.
    parts = folder / "dry"
    shutil.copytree(root, parts)
    found = programs.threads(programs.layout(FIRST, "dry.json"), parts, steps, "--resume")
    dry = difference(found[at:], wanted[at:], statistics.median)
    require(dry > 100 * ROUNDING, f"without masks losses differ, found {dry:.1e}")
    return f"{steps} steps are {at}, kill, {steps - at}; losses of {', '.join(said)} (without masks {dry:.1e})"


def check_resizes(programs, draw, folder, resizes):
    root, name, made = folder / "resized", FIRST, []
    while len(made) < resizes:
        done = newest(root)
        ranks = programs.ranks(programs.layout(name), root, *(["--resume"] if done else []))
        goal = done + draw.randrange(1, 12)
        wait_for(lambda: newest(root) >= goal, f"{name}: step {goal} is saved", ranks)
        time.sleep(draw.random() / 20)
        ranks.kill(draw)
        made.append(name)
        step = newest(root)
        state = json.loads((step_folder(root, step) / "manifest.json").read_text())["state"]
        require(state["data"]["next_sample"] == step * SEQUENCES, f"the samples of {step} steps are behind: {state}")
        name = draw.choice([other for other in LAYOUTS if other != name])
    last = newest(root) + 10
    found = programs.threads(programs.layout(name), root, last, "--resume")
    most = difference(found, programs.threads(programs.layout(FIRST), folder / "undisturbed", last))
    counted = [programs.counted[(step - 1) % STEPS_OF_DATA] for step in range(1, last + 1)]
    require([line["counted_labels"] for line in found] == counted, "each step counts its own samples, once")
    require(most < ROUNDING, f"losses differ by rounding, found {most:.1e}")
    return f"{resizes} kills and resizes in {last} steps, each with its samples once, losses {most:.1e} off at most"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heddle", default="heddle")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--resizes", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(os.path.realpath(scratch))
        programs = Layouts(os.path.abspath(given.heddle), folder)
        for name, check in (("kills", check_kills), ("steps", check_steps), ("resizes", check_resizes)):
            if count := getattr(given, name):
                start = time.monotonic()
                said = check(programs, random.Random(f"{given.seed} {name}"), folder, count)
                print(f"{name}: {said} ({time.monotonic() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
