#!/usr/bin/env python3
"""Emitted programs on the backend for GPUs, over the double of the vendors' libraries, against the host backend.

The same emitted text: step.cpp, kernels.cpp with CUDA's skeletons, both by the host compiler. Of each plan, 3 steps from
the same weights and data: losses, gradients and parameters are the host's within fp32's rounding (attention sums in
another order on GPUs; everything else is the same arithmetic in the same order), as ranks that are threads over an
imitated NCCL, and as processes that a launcher of torchrun's kind starts over host memory; with CUDA graphs and without
them bits are the same.

With --faults N, N faults planted into step.cpp of a plan with overlap, one at a time: each is caught, by checking mode or
by another number.

    on_double.py --heddle build/bin/heddle --link FILE --source ROOT [--plans N] [--faults N]

FILE has one word of the link per line. Exit 1 with what is not so.
"""
import argparse
import json
import math
import os
import pathlib
import re
import socket
import struct
import subprocess
import sys
import tempfile

from loss_scale import LENGTH, MODEL, SEQUENCES, batch, require

STEPS = 3
# Products of 8 bits want rows of 16 on every rank.
SIXTEENS = {"hidden_size": 64, "intermediate_size": 64, "head_dim": 16}
# More than one block of 128 numbers, the last one shorter.
BLOCKS = {**SIXTEENS, "hidden_size": 160, "intermediate_size": 272}
OVERLAPPED = ("dp 2, tp 2, overlapped", {"zero": {"stage": 1}, "overlap": {"memory_bytes": 10 ** 9}})
# What is planted into emitted text: a sentence, where (a call with its words), and what stands there instead.
KINDS = [("a missing wait for an event", r"TRY\(heddle_rt_stream_wait\([^;]*\);", lambda call: ";"),
         ("an event that is not recorded", r"TRY\(heddle_rt_event_record\([^;]*\);", lambda call: ";"),
         ("a collective over the other axis", r"TRY\(heddle_rt_(?:all_reduce|all_gather|reduce_scatter)\([^;]*\);",
          lambda call: re.sub(r"p\.(dp|tp)\b", lambda axis: "p." + {"dp": "tp", "tp": "dp"}[axis[1]], call, count=1)),
         ("a collective on the wrong stream", r"TRY\(heddle_rt_(?:all_reduce|all_gather|reduce_scatter)\([^;]*\);",
          lambda call: re.sub(r"p\.(comm|compute)\b(?=,)", lambda name: "p." + {"comm": "compute", "compute": "comm"}[name[1]],
                              call, count=1)),
         ("a collective that is not made", r"TRY\(heddle_rt_(?:all_reduce|all_gather|reduce_scatter)\([^;]*\);",
          lambda call: ";"),
         ("zeros that are not written", r"TRY\(heddle_rt_zero\([^;]*\);", lambda call: ";"),
         ("a copy that is not made", r"TRY\(heddle_rt_copy\([^;]*\);", lambda call: ";"),
         ("a kernel that is not launched", r"TRY\((?:elementwise|rowwise|columnwise|reduceAll)\([^;]*\);", lambda call: ";"),
         ("a product that is not made", r"TRY\(gemm\([^;]*\);", lambda call: ";")]


def plan(pp, dp, tp, **rest):
    made = {"version": 1, "mesh": [["pp", pp], ["dp", dp], ["cp", 1], ["tp", tp]], "tensor": "megatron",
            "micro_batch": SEQUENCES // dp // 2, "micro_batches": 2, **rest}
    if pp > 1:
        made["stages"] = {"layers": [["0..1"], ["2"]], "embedding": [0, 0], "head": [1, 0], "schedule": "one_f_one_b"}
    return made


PLANS = {"dp 2, tp 2, sp, ZeRO 1": plan(1, 2, 2, zero={"stage": 1}, sequence_parallel=True),
         "pp 2, dp 2, 1F1B, offload": plan(2, 2, 1, offload={"saved": ["m", "v"]}),
         "dp 2, tp 2, fp8": plan(1, 2, 2, precision="fp8"),
         "dp 2, fp8 of blocks": plan(1, 2, 1, precision={"recipe": "fp8", "scaling": "block"}),
         "dp 2, tp 2, fp8 of earlier steps": plan(1, 2, 2, precision={"recipe": "fp8", "scaling": "delayed"}),
         "dp 4, ZeRO 3, bf16, offload": plan(1, 4, 1, zero={"stage": 3}, precision="bf16",
                                             overlap={"memory_bytes": 10 ** 9}, offload={"optimizer": True})}


def tensors(path):
    """{name: numbers} of the fp32 tensors of a safetensors file."""
    data = path.read_bytes()
    size = struct.unpack_from("<Q", data)[0]
    return {name: struct.unpack_from(f"<{(entry['data_offsets'][1] - entry['data_offsets'][0]) // 4}f", data,
                                     8 + size + entry["data_offsets"][0])
            for name, entry in json.loads(data[8:8 + size]).items()
            if name != "__metadata__" and entry["dtype"] == "F32" and entry["shape"]}


class Subject:
    def __init__(self, options, folder, name, plan):
        self.options, self.folder, self.name = options, folder, name
        self.ranks = math.prod(size for _, size in plan["mesh"])
        # SGD: AdamW divides a gradient by its own size, so that one which is rounding alone becomes a whole step.
        model = {**MODEL, **(BLOCKS if "blocks" in name else SIXTEENS)} if "fp8" in name else MODEL
        files = {"config.json": json.dumps(model), "plan.json": json.dumps(plan), "batch.json": batch(),
                 "cluster.yaml": "name: here\nnodes: 1\ndevices_per_node: 8\ndevice: host\n"
                                 "links: [{level: node, gbytes_per_s: 5}]\n",
                 "train.yaml": f"sequence_length: {LENGTH}\nglobal_batch: {SEQUENCES}\nprecision: [fp32, bf16, fp8]\n"
                               "optimizer: {type: sgd, lr: 0.1, clip_norm: 0.5}\nseed: 3\n"}
        for file, text in files.items():
            (folder / file).write_text(text)
        self.call([options.heddle, "compile", "config.json", "--cluster", "cluster.yaml", "--train", "train.yaml",
                   "--plan", "plan.json", "-o", "out"])
        self.build()

    def call(self, command, **variables):
        done = subprocess.run([*map(str, command)], cwd=self.folder, capture_output=True, text=True, timeout=300,
                              env={**os.environ, **variables})
        require(done.returncode == 0, f"{self.name}: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
        return done

    def build(self):
        """train-double, with what `heddle compile --target cuda` compiles."""
        program, source = self.folder / "out/program", pathlib.Path(self.options.source)
        common = ["c++", "-std=c++20", "-O0", "-c", "-I", source / "include", "-I", program]
        for name, flags in (("main", []), ("step", []),
                            ("kernels", ["-ffp-contract=off", "-fsanitize=alignment",
                                         "-fsanitize-undefined-trap-on-error", "-DHEDDLE_CUDA_SKELETONS", "-I",
                                         source / "test/runtime/double/include"])):
            self.call([*common, *flags, program / f"{name}.cpp", "-o", program / f"{name}.o"])
        link = pathlib.Path(self.options.link).read_text().split()
        self.call(["c++", "-o", "out/train-double", *(program / f"{name}.o" for name in ("main", "step", "kernels")),
                   *link])

    def train(self, program, left, *options, **variables):
        """What a run leaves, and its losses."""
        self.call([f"out/{program}", "--data", "batch.json", "--steps", STEPS, "--test-init", "--dump", left, "--log",
                   "log", *options], **variables)
        return self.read(left)

    def read(self, left):
        log = [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]
        return [entry["loss"] for entry in log], tensors(self.folder / left)

    def train_processes(self, left):
        """Ranks that are processes, as torchrun would start them."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        (self.folder / "log").unlink()
        ranks = [subprocess.Popen(
            ["out/train-double", "--data", "batch.json", "--steps", str(STEPS), "--test-init", "--dump", left, "--log",
             "log"], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "HEDDLE_COMM": "staged", "RANK": str(rank), "WORLD_SIZE": str(self.ranks),
                 "HEDDLE_PORT": str(port), "MASTER_ADDR": "127.0.0.1"}) for rank in range(self.ranks)]
        said = [rank.communicate(timeout=300)[0] for rank in ranks]
        require([rank.returncode for rank in ranks] == [0] * self.ranks, f"{self.name}: processes end well: {said}")
        return self.read(left)

    def plant(self, kind, number, host):
        """What catches the number-th fault of a kind: words of checking mode, or numbers; None where there are fewer."""
        what, pattern, change = kind
        program = self.folder / "out/program"
        whole = (program / "step.cpp").read_text()
        places = [place for place in re.finditer(pattern, whole) if change(place[0]) != place[0]]
        if number >= len(places):
            return None
        place = places[number]
        (program / "planted.cpp").write_text(whole[:place.start()] + change(place[0]) + whole[place.end():])
        self.call(["c++", "-std=c++20", "-w", "-O0", "-c", "-I", pathlib.Path(self.options.source) / "include", "-I",
                   program, program / "planted.cpp", "-o", program / "planted.o"])
        self.call(["c++", "-o", "out/train-planted", *(program / f"{name}.o" for name in ("main", "planted", "kernels")),
                   *pathlib.Path(self.options.link).read_text().split()])
        for options in (["--check", "--seed", str(number + 1)], []):
            try:
                done = subprocess.run(
                    ["out/train-planted", "--data", "batch.json", "--steps", str(STEPS), "--test-init", "--dump", "left",
                     "--log", "log", "--threads", *options], cwd=self.folder, capture_output=True, text=True, timeout=60,
                    env={**os.environ, "HEDDLE_TIMEOUT": "10"})
            except subprocess.TimeoutExpired:
                return "does not end"
            if done.returncode:
                for who, word in (("happens-before", "no event orders them"), ("event never recorded", "never recorded"),
                                  ("closing check", "differ in number"), ("refusal by the double", "different calls"),
                                  ("time-out", "waited for its peers"), ("NaN", "no number")):
                    if word in done.stderr:
                        return who
                return f"exit code {done.returncode}: {done.stderr.strip()[:120]}"
            if self.differs(self.read("left"), host):
                return "numbers"
        return "NOT CAUGHT: " + " ".join(place[0].split())

    @staticmethod
    def differs(found, expected):
        return (max(abs(a - b) / abs(b) for a, b in zip(found[0], expected[0])) > 1e-5 or
                any(math.dist(found[1][name], numbers) > 2e-5 * (math.hypot(*numbers) or 1)
                    for name, numbers in expected[1].items()))

    def compare(self, what, found, expected):
        narrow = "bf16" in self.name or "fp8" in self.name
        losses = max(abs(a - b) / abs(b) for a, b in zip(found[0], expected[0]))
        require(len(found[0]) == STEPS and losses < (3e-3 if narrow else 1e-5),
                f"{self.name}, {what}: losses {found[0]}, expected {expected[0]}")
        require(found[1].keys() == expected[1].keys(), f"{self.name}, {what}: the same tensors")
        worst = 0
        for name, numbers in expected[1].items():
            norm = math.sqrt(sum(x * x for x in numbers)) or 1.0
            worst = max(worst, math.sqrt(sum((a - b) ** 2 for a, b in zip(found[1][name], numbers))) / norm)
        require(worst < (2e-2 if narrow else 2e-5), f"{self.name}, {what}: tensors differ by {worst}")
        print(f"{self.name}, {what}: losses within {losses:.1e}, tensors {worst:.1e}")


    def compare_graphs(self):
        """Each function of a slot as CUDA graphs, the whole step, and none: the same bits, in an order of their own."""
        plain = self.train("train-double", "plain", "--threads", "--seed", "3", HEDDLE_GRAPHS="off")
        for graphs, seed in (("slots", 5), ("step", 6)):
            said = self.call(["out/train-double", "--data", "batch.json", "--steps", STEPS, "--test-init", "--dump",
                                   graphs, "--log", "log", "--threads", "--seed", seed], HEDDLE_GRAPHS=graphs).stderr
            made = re.search(r"\d+ CUDA graphs of \d+ nodes", said)
            require(made, f"{self.name}: HEDDLE_GRAPHS={graphs} makes graphs: {said}")
            require(self.read(graphs) == plain, f"{self.name}, {made[0]}: other bits than without graphs")
            print(f"{self.name}, {graphs}: {made[0]}, the same bits")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heddle", required=True)
    parser.add_argument("--link", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--plans", type=int, default=len(PLANS))
    parser.add_argument("--faults", type=int, default=0)
    options = parser.parse_args()
    options.heddle = str(pathlib.Path(options.heddle).absolute())
    for name, made in list(PLANS.items())[:options.plans]:
        with tempfile.TemporaryDirectory() as folder:
            subject = Subject(options, pathlib.Path(folder), name, made)
            host = subject.train("train-host", "host", "--threads")
            subject.compare("threads", subject.train("train-double", "double", "--threads"), host)
            subject.compare("checked, in a random order",
                            subject.train("train-double", "checked", "--threads", "--check", "--seed", "7"), host)
            subject.compare("processes", subject.train_processes("apart"), host)
            subject.compare_graphs()
    return plant(options) if options.faults else 0


def plant(options):
    """Kinds in turn, until there are as many as asked for."""
    planted, survivors = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        subject = Subject(options, pathlib.Path(folder), OVERLAPPED[0], plan(1, 2, 2, **OVERLAPPED[1]))
        host = subject.train("train-host", "host", "--threads")
        require(not subject.differs(subject.train("train-double", "double", "--threads", "--check"), host),
                "the program without a fault is right")
        for number in range(options.faults):
            for kind in KINDS:
                by = subject.plant(kind, number, host) if planted < options.faults else None
                if by:
                    planted += 1
                    survivors += by.startswith("NOT")
                    print(f"{by:24} step.cpp {kind[0]}, no. {number}", flush=True)
    print(f"{planted} faults, {survivors} not caught")
    return 1 if survivors or not planted else 0


if __name__ == "__main__":
    sys.exit(main())
