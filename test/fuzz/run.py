#!/usr/bin/env python3
"""Gives targets to libFuzzer, from the committed inputs and those that earlier runs have found, and says of each how many
inputs were tried in which flavour, how fast, the most memory and the slowest input. Ends with 1 where a target finds a fault;
its input is kept and can be run again as the line says.

Usage: run.py BIN [--only NAME ...] [--seconds N] [--until N] [--jobs N] [--grown FOLDER] [--kept FOLDER] [--ledger FOLDER]

BIN is the folder of the built targets, build/bin: BIN/explore and BIN/fuzz. Each target gets N seconds, three quarters of them
to explore; with --until, as many inputs as it takes until the ledger has that many of it, ten explored for each under ASan.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Whose sources have the words that inputs of a target are made of.
WORDS = {"BatchFile": ["lib/Support/Safetensors.cpp", "tools/heddle/Batch.cpp"],
         "Batches": ["lib/Support/Safetensors.cpp", "runtime/train/Data.cpp"], "Cluster": ["lib/Cluster"],
         "Commit": ["runtime/checkpoint"], "DeviceTables": ["lib/Cluster"], "Environment": ["runtime/common/Launch.cpp"],
         "HfFolder": ["runtime/checkpoint/OpenHf.cpp"], "Manifest": ["runtime/checkpoint"], "Model": ["lib/Model"],
         "Plan": ["lib/Plan", "lib/Schedule"], "SafetensorsFile": ["lib/Support/Safetensors.cpp"],
         "SafetensorsHeader": ["lib/Support/Safetensors.cpp"], "Tables": ["runtime/train/Tables.cpp"],
         "Train": ["lib/Model"]}
# One allocation over 64 MiB or a process over 2 GiB is a fault; so is an input that takes a second of a processor (Fuzzer.cpp)
# or waits for a minute.
LIMITS = ["-timeout=60", "-malloc_limit_mb=64", "-rss_limit_mb=2048"]
EXPLORE, CHECK = "explore", "fuzz"  # the flavours, and the folders of their targets
SHARE = {EXPLORE: 0.75, CHECK: 0.25}  # of the seconds
ROUND = {EXPLORE: 250_000, CHECK: 25_000}  # inputs in turn, with --until


def run(command):
    """What was said, the exit code, and the seconds of processors that it took."""
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        return said.read(), child.returncode, used.ru_utime + used.ru_stime


def words_of(target):
    """All that stands alone in double quotes."""
    found = set()
    for place in map(ROOT.joinpath, WORDS.get(target, [])):
        for path in [place] if place.is_file() else place.glob("*.cpp"):
            found |= set(re.findall(r'"([A-Za-z0-9_.-]{2,32})"', path.read_text()))
    return sorted(found)


def figure(key, text):
    found = re.findall(rf"stat::{key}:\s+(\d+)", text)
    return int(found[-1]) if found else 0


class Flavour:
    """Of one target: what was tried in this run and, by the ledger, before."""

    def __init__(self, before):
        self.before, self.inputs, self.seconds, self.memory, self.slowest = before, 0, 0.0, 0, 0

    def total(self):
        return self.before + self.inputs

    def add(self, said, seconds):
        # What was found before is run again first: those are no new inputs.
        again = re.findall(r"#(\d+)\s+INITED", said)
        if again:
            self.inputs += max(0, figure("number_of_executed_units", said) - int(again[0]))
        self.seconds += seconds
        self.memory = max(self.memory, figure("peak_rss_mb", said))
        self.slowest = max(self.slowest, figure("slowest_unit_time_sec", said))


class Run:
    def __init__(self, options, name):
        self.options, self.name, self.fault = options, name, ""
        self.grown, self.kept = options.grown / name, options.kept / name
        self.words, self.ledger = options.words / name, options.ledger / f"{name}.json"
        before = json.loads(self.ledger.read_text()) if self.ledger.exists() else {}
        self.flavours = {flavour: Flavour(before.get(flavour, 0)) for flavour in SHARE}
        # What is not built to explore (Mlir) has all the time.
        self.share = SHARE if self.target(EXPLORE).exists() else {CHECK: 1.0}

    def target(self, flavour):
        return self.options.bin / flavour / self.name

    def total(self):
        return sum(flavour.total() for flavour in self.flavours.values())

    def write(self):
        self.ledger.write_text(json.dumps({flavour: counts.total() for flavour, counts in self.flavours.items()}))

    def judge(self, flavour, said):
        found = re.findall(r"Test unit written to (\S+)", said)
        target = self.target(flavour)
        if found and flavour == EXPLORE:  # a trap has no words
            again, code, _ = run([self.target(CHECK), *LIMITS, found[-1]])
            if code != 0:
                said, target = again, self.target(CHECK)
        (self.kept / "log").write_text(said)
        reasons = re.findall(r"(?:broken promise|ERROR|runtime error): ?.*", said)
        self.fault = (f"{reasons[0] if reasons else 'it ended'}; run again: {target} {found[-1] if found else ''}; "
                      f"log: {self.kept / 'log'}")

    def search(self, flavour):
        """Until the time is up, or that many inputs are tried, or a fault is found."""
        corpus = HERE / "corpus" / self.name
        longest = max(path.stat().st_size for path in corpus.iterdir())
        if self.options.until:
            known = sum(1 for folder in (corpus, self.grown) for _ in folder.iterdir())
            most = f"-runs={known + ROUND[flavour]}"
        else:
            most = f"-max_total_time={max(1, int(self.options.seconds * self.share[flavour]))}"
        said, code, used = run(
            [self.target(flavour), *LIMITS, most, f"-max_len={max(512, longest)}", "-reload=0", "-print_final_stats=1",
             "-print_funcs=0", f"-artifact_prefix={self.kept}/",
             *([f"-dict={self.words}"] if self.words.stat().st_size else []), self.grown, corpus])
        self.flavours[flavour].add(said, used)
        self.write()
        if code != 0:
            self.judge(flavour, said)

    def all(self):
        for folder in (self.grown, self.kept, self.words.parent, self.ledger.parent):
            folder.mkdir(parents=True, exist_ok=True)
        for path in self.kept.iterdir():
            path.unlink()
        self.words.write_text("".join(f'"{word}"\n' for word in words_of(self.name)))
        while not self.fault:
            for flavour in self.share:
                if not self.fault:
                    self.search(flavour)
            if self.total() >= self.options.until:
                break
        return self

    def line(self):
        told = ", ".join(f"{counts.inputs:,} {word} ({counts.inputs / max(counts.seconds, 1e-9):,.0f} per CPU second)"
                         for counts, word in zip(self.flavours.values(), ("explored", "under ASan")))
        totals = " + ".join(f"{counts.total():,}" for counts in self.flavours.values())
        return (f"{self.name:18} {told}; in all {totals}; {max(c.memory for c in self.flavours.values())} MiB, "
                f"slowest {max(c.slowest for c in self.flavours.values())} s{': FAULT: ' + self.fault if self.fault else ''}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin", type=pathlib.Path)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--until", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) - 1))
    for folder in ("grown", "kept", "ledger"):
        parser.add_argument(f"--{folder}", type=pathlib.Path)
    options = parser.parse_args()
    options.bin = options.bin.resolve()
    options.words = options.bin / "../fuzz/words"
    for folder in ("grown", "kept", "ledger"):
        setattr(options, folder, (getattr(options, folder) or options.bin / "../fuzz" / folder).resolve())
    built = sorted(path.name for path in options.bin.glob(f"{CHECK}/*") if os.access(path, os.X_OK))
    unknown = [name for name in options.only if name not in built]
    if unknown or not built:
        sys.exit(f"no target {', '.join(unknown) or 'is built'} in {options.bin}; ninja fuzz builds them")
    chosen = options.only or built
    faults = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        runs = [pool.submit(Run(options, name).all) for name in chosen]
        for done in concurrent.futures.as_completed(runs):
            print(done.result().line(), flush=True)
            faults += bool(done.result().fault)
    least = min(done.result().total() for done in runs)
    print(f"{len(chosen)} targets, at least {least:,} inputs each in all, {faults} with a fault")
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
