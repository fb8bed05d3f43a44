#!/usr/bin/env python3
"""Faults planted into the sources of runtime/cuda and of its kernels, one at a time: each is caught by a test on the double.

    planted.py --compiler CXX --source ROOT --links FOLDER [--count N] [--only WORD] [--table]

A fault is a piece of text and what stands there instead (faults.py). The file is compiled with it and linked before the
library, into the test that is to catch it; FOLDER has a file per test with one word of its link per line. Caught means
that the test fails, ends by a signal or does not end, in two minutes and in five times what it takes without a
fault; what its words tell of how is in the table. Exit 1 where one
survives, or where the text is not found (the source has changed: change the fault too).
"""
import argparse
import concurrent.futures
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

from faults import FAULTS

FLAGS = ["-std=c++20", "-O1", "-march=native", "-ffp-contract=off", "-w", "-DFMT_SHARED"]
LEAST_SECONDS = 120
# What a test's words tell of who caught it, most telling first.
WITNESSES = [("happens-before", "no event orders them"),
             ("fibers", "a barrier that not every thread"),
             ("canaries", "something wrote"),
             ("shape check", "made different calls"),
             ("shape check", "differ in number"),
             ("refusal by the double", "[CU"),  # the source of a rule: [CUDART ...], [CUDA ...], [CUBLAS]
             ("refusal by the double", "[NCCL"),
             ("time-out", "waited for its peers")]


def tail(text):
    return "\n".join(text.splitlines()[-15:])


class Planter:
    def __init__(self, options):
        self.options = options
        self.root = pathlib.Path(options.source)
        self.lock, self.seconds = threading.Lock(), {}
        self.includes = ["-I", self.root, "-I", self.root / "include", "-I", self.root / "test/runtime/double/include"]

    def run(self, command, seconds=None):
        try:
            done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=seconds)
            return done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired as late:
            return None, f"did not end in {late.timeout} s"

    def seconds_of(self, test, only):
        """How long a test may take that did not end soon. It is run without a fault, once, beside what else runs."""
        with self.lock:
            if (test, only) not in self.seconds:
                start = time.monotonic()
                code, said = self.run([pathlib.Path(self.options.tests) / test, "--gtest_brief=1",
                                       f"--gtest_filter={only}"])
                if code != 0:
                    raise SystemExit(f"{test} fails without a fault:\n{tail(said)}")
                self.seconds[test, only] = max(LEAST_SECONDS, 5 * (time.monotonic() - start))
            return self.seconds[test, only]

    def plant(self, fault):
        """(what caught it or None, why)."""
        path = self.root / fault.file
        text = path.read_text()
        if text.count(fault.old) < 1:
            return None, f"{fault.file} has no {fault.old!r} any more"
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            planted = folder / fault.file
            planted.parent.mkdir(parents=True)
            planted.write_text(text.replace(fault.old, fault.new, 1))
            # A header is found before the tree's; what includes it is compiled.
            source = self.root / fault.user if fault.user else planted
            first = [] if not fault.user else ["-I", folder / "include", "-I", folder]
            code, said = self.run([self.options.compiler, *FLAGS, *fault.flags, *first, *self.includes, "-x", "c++",
                                   "-c", source, "-o", folder / "planted.o"])
            if code != 0:
                return None, f"does not compile:\n{tail(said)}"
            words = (pathlib.Path(self.options.links) / f"{fault.test}.txt").read_text().split()
            if fault.user:  # its own object is compiled anew
                words = [word for word in words if not word.endswith(pathlib.Path(fault.user).name + ".o")]
            code, said = self.run([self.options.compiler, "-o", folder / "test", folder / "planted.o", *words])
            if code != 0:
                return None, f"does not link:\n{tail(said)}"
            test = [folder / "test", "--gtest_brief=1", "--gtest_fail_fast", f"--gtest_filter={fault.only}"]
            code, said = self.run(test, LEAST_SECONDS)
            if code is None:  # on a busy machine that tells nothing yet
                code, said = self.run(test, self.seconds_of(fault.test, fault.only))
        if code == 0:
            return None, f"survives {fault.test}"
        if code is None:
            return "does not end", said
        if code < 0:
            return f"signal {-code}", said
        return next((who for who, word in WITNESSES if word in said), "numbers"), said


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", default="c++")
    parser.add_argument("--source", required=True)
    parser.add_argument("--links", required=True)
    parser.add_argument("--tests", required=True, help="the folder with the tests as they are")
    parser.add_argument("--count", type=int, help="so many, spread over the list; default: all")
    parser.add_argument("--only", default="", help="those with this word in their file or sentence")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--words", action="store_true", help="what the tests said too")
    options = parser.parse_args()
    faults = [fault for fault in FAULTS if options.only in f"{fault.file} {fault.what}"]
    if options.count:
        faults = faults[::max(1, len(faults) // options.count)][:options.count]
    planter = Planter(options)
    survivors = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for fault, (by, why) in zip(faults, pool.map(planter.plant, faults)):
            survivors += by is None
            print(f"{by or 'NOT CAUGHT':24} {fault.test:20} {pathlib.Path(fault.file).name:18} {fault.what}", flush=True)
            if by is None or options.words:
                print("    " + tail(why).replace("\n", "\n    "), flush=True)
    print(f"{len(faults)} faults, {survivors} not caught")
    return 1 if survivors or not faults else 0


if __name__ == "__main__":
    sys.exit(main())
