#!/usr/bin/env python3
"""Gives targets to libFuzzer, from the committed inputs and those that earlier runs have found, and says of each how many
inputs were tried, how fast, the most memory and the slowest input. Ends with 1 where a target finds a fault; its input is
kept and can be run again as the line says.

Usage: run.py TARGETS [--only NAME ...] [--seconds N] [--jobs N] [--grown FOLDER] [--kept FOLDER]

TARGETS is the folder of the built targets, build/bin/fuzz.
"""
import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Whose sources have the words that inputs of a target are made of.
WORDS = {"Batches": ["lib/Support/Safetensors.cpp", "runtime/train/Data.cpp"], "Cluster": ["lib/Cluster"],
         "Commit": ["runtime/checkpoint"], "DeviceTables": ["lib/Cluster"], "Environment": ["runtime/common/Launch.cpp"],
         "HfFolder": ["runtime/checkpoint/OpenHf.cpp"], "Manifest": ["runtime/checkpoint"], "Model": ["lib/Model"],
         "Plan": ["lib/Plan", "lib/Schedule"], "SafetensorsFile": ["lib/Support/Safetensors.cpp"],
         "SafetensorsHeader": ["lib/Support/Safetensors.cpp"], "Tables": ["runtime/train/Tables.cpp"],
         "Train": ["lib/Model"]}
# An input that takes over a second, one allocation over 64 MiB, or a process over 2 GiB is a fault.
LIMITS = ["-timeout=1", "-malloc_limit_mb=64", "-rss_limit_mb=2048"]
# A busy machine can hold up any input: what is too slow has to be so again and again.
TRIES = 5


def is_slow_again(target, found):
    for _ in range(TRIES):
        if subprocess.run([target, *LIMITS, found], capture_output=True, check=False).returncode == 0:
            return False
    return True


def words_of(target):
    """All that stands alone in double quotes."""
    found = set()
    for place in map(ROOT.joinpath, WORDS.get(target, [])):
        for path in [place] if place.is_file() else place.glob("*.cpp"):
            found |= set(re.findall(r'"([A-Za-z0-9_.-]{2,32})"', path.read_text()))
    return sorted(found)


class Run:
    def __init__(self, options, target):
        self.target, self.name = target, target.name
        self.grown = options.grown / self.name
        self.kept = options.kept / self.name
        self.words = options.words / self.name
        self.until = time.monotonic() + options.seconds
        self.executed, self.seconds, self.memory, self.slowest = 0, 0.0, 0, 0
        self.fault = ""

    def figure(self, key, text):
        found = re.findall(rf"stat::{key}:\s+(\d+)", text)
        return int(found[-1]) if found else 0

    def once(self):
        """Until the time is up or a fault is found; whether there is more to do."""
        left = self.until - time.monotonic()
        if left < 1:
            return False
        corpus = HERE / "corpus" / self.name
        longest = max(path.stat().st_size for path in corpus.iterdir())
        started = time.monotonic()
        done = subprocess.run(
            [self.target, *LIMITS, f"-max_total_time={int(left)}", f"-max_len={max(512, longest)}", "-print_final_stats=1",
             "-print_funcs=0",
             f"-artifact_prefix={self.kept}/", *([f"-dict={self.words}"] if self.words.stat().st_size else []), self.grown, corpus],
            capture_output=True, text=True, errors="replace", check=False)
        self.seconds += time.monotonic() - started
        self.executed += self.figure("number_of_executed_units", done.stderr)
        self.memory = max(self.memory, self.figure("peak_rss_mb", done.stderr))
        self.slowest = max(self.slowest, self.figure("slowest_unit_time_sec", done.stderr))
        if done.returncode == 0:
            return False
        found = re.findall(r"Test unit written to (\S+)", done.stderr)
        if found and "/timeout-" in found[-1] and not is_slow_again(self.target, found[-1]):
            pathlib.Path(found[-1]).unlink()
            return True
        (self.kept / "log").write_text(done.stderr)
        reasons = re.findall(r"(?:broken promise|ERROR|runtime error): ?.*", done.stderr)
        self.fault = (f"{reasons[0] if reasons else 'it ended'}; run again: {self.target} "
                      f"{found[-1] if found else ''}; log: {self.kept / 'log'}")
        return False

    def all(self):
        for folder in (self.grown, self.kept):
            folder.mkdir(parents=True, exist_ok=True)
        for path in self.kept.iterdir():
            path.unlink()
        self.words.parent.mkdir(parents=True, exist_ok=True)
        self.words.write_text("".join(f'"{word}"\n' for word in words_of(self.name)))
        while self.once():
            pass
        return self

    def line(self):
        rate = self.executed / max(self.seconds, 1e-9)
        return (f"{self.name:18} {self.executed:10,} inputs in {self.seconds:4.0f} s ({rate:7,.0f}/s), {self.memory} MiB, "
                f"slowest {self.slowest} s{': FAULT: ' + self.fault if self.fault else ''}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", type=pathlib.Path)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) - 1))
    parser.add_argument("--grown", type=pathlib.Path)
    parser.add_argument("--kept", type=pathlib.Path)
    options = parser.parse_args()
    options.grown = (options.grown or options.targets / "../../fuzz/grown").resolve()
    options.words = (options.targets / "../../fuzz/words").resolve()
    options.kept = (options.kept or options.targets / "../../fuzz/kept").resolve()
    targets = sorted(path for path in options.targets.resolve().iterdir() if os.access(path, os.X_OK))
    unknown = set(options.only) - {path.name for path in targets}
    if unknown or not targets:
        sys.exit(f"no target {', '.join(sorted(unknown)) or 'is built'} in {options.targets}; ninja fuzz builds them")
    chosen = [path for path in targets if not options.only or path.name in options.only]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        runs = [pool.submit(lambda path=path: Run(options, path).all()) for path in chosen]
        faults = 0
        for run in concurrent.futures.as_completed(runs):
            print(run.result().line(), flush=True)
            faults += bool(run.result().fault)
    print(f"{len(chosen)} targets, {faults} with a fault")
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
