#!/usr/bin/env python3
"""Faults put into supervised runs, and what `heddle run` makes of them.

    faults.py --heddle build/bin/heddle [--trials N] [--seed S] [KIND...]

Kinds: death, stop, loop, unwatched (of other launchers), network, slow, clean, flips, zero (flips under ZeRO 3), nan, restart,
elastic. Of each a line is printed: how many trials, how many were found and named, the longest times. Exit 1 with what is not
so.

`network` cuts a rank off in a network namespace of its own: it wants root, `ip` and TCP between ranks, and says so
where it is not possible.
"""
import argparse
import collections
import json
import math
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

MODEL = {"model_type": "llama", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 37, "hidden_act": "silu",
         "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
TRAIN = {"sequence_length": 16, "global_batch": 48, "precision": ["fp32"],
         "optimizer": {"type": "adamw", "lr": 0.01, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1,
                       "clip_norm": 0.5}}
CLUSTER = {"name": "here", "nodes": 1, "devices_per_node": 8, "memory_reserve_gib": 0,
           "device": {"memory_gib": 8, "memory_gbytes_per_s": 20, "multiprocessors": 1,
                      "peak_tflops": {"fp32": 0.1, "bf16": 0.1}},
           "links": [{"level": "node", "gbytes_per_s": 5}]}
LIMIT = 2  # --hang-limit
STEPS = "100000"  # more than any trial comes to


def plan(dp, tp=1, zero=0):
    return {"version": 1, "mesh": [["pp", 1], ["dp", dp], ["cp", 1], ["tp", tp]], "micro_batch": 48 // dp // 2,
            "micro_batches": 2, "tensor": "megatron", "zero": {"stage": zero}}


def wait_for_log(program, steps, poll, seconds=180):
    log, start = program / "log.jsonl", time.monotonic()
    while not (log.exists() and log.read_text().count("\n") >= steps):
        require(time.monotonic() - start < seconds, f"it trains within {seconds} s: {poll()}")
        time.sleep(0.02)


class Programs:
    """Compiled programs of a folder, by plan."""

    def __init__(self, heddle, folder, model=MODEL, train=TRAIN):
        self.heddle, self.folder, self.made, self.data = heddle, folder, {}, folder / "data.txt"
        for name, content in {"model.json": model, "train.json": train, "cluster.json": CLUSTER}.items():
            (folder / name).write_text(json.dumps(content))
        draw = random.Random(3)
        self.data.write_text("".join(chr(draw.randrange(1, 37)) for _ in range(20000)))

    def get(self, **keys):
        return self.compiled("-".join(f"{key}{value}" for key, value in keys.items()), plan(**keys))

    def compiled(self, name, made_plan, train="train.json"):
        if name not in self.made:
            (self.folder / f"{name}.json").write_text(json.dumps(made_plan))
            done = subprocess.run([self.heddle, "compile", "model.json", "--cluster", "cluster.json", "--train", train,
                                   "--plan", f"{name}.json", "-o", name], cwd=self.folder, capture_output=True,
                                  text=True, check=False)
            require(done.returncode == 0, f"{name} compiles: {done.stderr}")
            self.made[name] = self.folder / name
        return self.made[name]


def require(holds, what):
    if not holds:
        sys.exit(f"not so: {what}")


class Run:
    """A `heddle run` whose stderr is read as it comes."""

    def __init__(self, programs, program, *options, steps=STEPS, **environment):
        self.program = program
        self.lines = []
        self.process = subprocess.Popen(
            [programs.heddle, "run", str(program), "--data", str(programs.data), "--steps", str(steps), "--hang-limit",
             str(LIMIT), *map(str, options)],
            stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, bufsize=1,
            env={**os.environ, **environment})

    def until(self, pattern, seconds=120):
        """The first line that matches, and when it came; None where the run ends before."""
        import threading
        guard = threading.Timer(seconds, self.process.kill)
        guard.start()
        try:
            for line in self.process.stderr:
                self.lines.append(line)
                if re.search(pattern, line):
                    return line, time.monotonic()
            return None, time.monotonic()
        finally:
            guard.cancel()

    def end(self, seconds=120):
        """Exit code, after all that is left was read."""
        self.until("$^", seconds)
        code = self.process.wait(timeout=seconds)
        self.ended = time.monotonic()
        return code

    def text(self):
        return "".join(self.lines)

    def ranks(self):
        """Processes of the ranks that train, by rank: those that a guard waits for."""
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                if os.path.realpath(entry / "exe") != str(self.program / "train-host"):
                    continue
                environment = dict(part.split("=", 1) for part in (entry / "environ").read_text().split("\0")
                                   if "=" in part)
                parent = int(re.search(r"PPid:\s+(\d+)", (entry / "status").read_text())[1])
                if os.path.realpath(f"/proc/{parent}/exe") == str(self.program / "train-host"):
                    found[int(environment["OMPI_COMM_WORLD_RANK"])] = int(entry.name)
            except (OSError, KeyError, TypeError):
                continue
        return found

    def wait_until_training(self, steps=3):
        wait_for_log(self.program, steps, self.process.poll)
        return self.ranks()


def left_over(program):
    """Processes of a program that are still there."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.path.realpath(entry / "exe") == str(program / "train-host") and \
                        " Z " not in (entry / "stat").read_text():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def check_end(run, begun, told, kind, wanted_rank, line):
    require(line is not None, f"{kind}: a verdict: {run.text()}")
    code = run.end()
    require(code == 3, f"{kind}: exit code 3, found {code}: {run.text()}")
    require(not left_over(run.program), f"{kind}: no process is left")
    require(re.search(rf"ranks? ([\d, ]*\b)?{wanted_rank}\b", line), f"{kind}: rank {wanted_rank} is named: {line}")
    record = json.loads((run.program / "flight.jsonl").read_text().splitlines()[0])
    require(wanted_rank in record["blamed"], f"{kind}: the record blames rank {wanted_rank}: {record['blamed']}")
    require(any(r["operations"] for r in record["ranks"]), f"{kind}: the record has operations")
    if begun is None:
        return
    limit = record["limit_seconds"]
    require(told - begun <= limit + 1, f"{kind}: named within {limit} + 1 s, found {told - begun:.2f} s")
    require(run.ended - told <= 3, f"{kind}: all gone within 3 s, found {run.ended - told:.2f} s")


def spread(seconds):
    return f"{statistics.median(seconds):.2f} s (median; at most {max(seconds):.2f} s)"


def hang(programs, draw, kind, trials):
    """Ranks that are stopped from outside, or compute without end at a drawn operation."""
    program = programs.get(dp=4)
    named, gone = [], []
    for _ in range(trials):
        rank = draw.randrange(4)
        (program / "log.jsonl").unlink(missing_ok=True)
        if kind == "loop":
            run = Run(programs, program, "--inject", f"loop@{draw.randrange(3, 30)}#{draw.randrange(1 << 30)}", "--rank",
                      rank)
            _, begun = run.until("injected loop")
        else:
            run = Run(programs, program)
            process = run.wait_until_training()[rank]
            time.sleep(draw.random() / 5)
            os.kill(process, {"stop": signal.SIGSTOP, "death": signal.SIGKILL}[kind])
            begun = time.monotonic()
        line, told = run.until(r"^error: (no progress|rank \d+ \(process)")
        check_end(run, begun, told, kind, rank, line)
        named.append(told - begun)
        gone.append(run.ended - told)
    return f"{trials} of {trials} named after {spread(named)} (limit {LIMIT} s), all gone {spread(gone)} later"


def clean(programs, draw, trials):
    """Runs that nothing is wrong with: no word, and many windows."""
    program = programs.get(dp=4)
    windows = 0
    while windows < trials:
        run = Run(programs, program, steps=min(20000, 150 * (trials - windows) + 500))
        code = run.end(3000)
        require(code == 0 and not re.search("warning|error", run.text()), f"clean: {code} {run.text()}")
        windows += json.loads((program / "flight.jsonl").read_text().splitlines()[-1])["windows"]
    return f"no alarm in {windows} windows"


def slow(programs, draw, trials):
    program, counts = programs.get(dp=4), collections.Counter()
    for _ in range(trials):
        rank = draw.randrange(4)
        begun = draw.randrange(2, 100)
        run = Run(programs, program, "--inject", f"slow@{begun}", "--rank", rank)
        line, _ = run.until("is slow|^error", 600)
        require(line and f"rank {rank} is slow" in line, f"slow: rank {rank} is told: {run.text()}")
        told, first = map(int, re.search(r"in (\d+) of \d+ windows, steps (\d+) to", line).groups())
        # It is judged by the last five: where they began before the fault, it was told within as many.
        require(first <= begun, f"slow: rank {rank} is told within 5 windows: {line}")
        run.process.send_signal(signal.SIGTERM)
        code = run.end()
        require(code == 128 + signal.SIGTERM and not left_over(program), f"slow: ends by SIGTERM: {code}")
        counts[told] += 1
    return f"{trials} of {trials} told within 5 windows (" + \
        ", ".join(f"{count} by {told}" for told, count in sorted(counts.items())) + " of them)"


def train(programs, program, *options, steps=3):
    """Exit code and stderr of threads without a supervisor."""
    done = subprocess.run([str(program / "train-host"), "--threads", "--data", str(programs.data),
                           "--steps", str(steps), "--log", "", *map(str, options)], cwd=programs.folder,
                          capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


CHECKS = {"replicas": ["--replica-check", 1], "sums": ["--sum-check", 1], "replay": ["--replay", 1]}
FLIPS = ["parameter", "moment", "gradient", "buffer", "local"]
# What is to see a flip; the others get a tenth of the trials.
SEEN_BY = {("parameter", "replicas"), ("moment", "replicas"), ("gradient", "replicas"), ("buffer", "sums"),
           ("local", "replay")}
# Whether it is found (1) or not (0); None: that depends on how much the bit changes. What replay does not find has been lost
# in the rounding of a sum: the run ends with the bits of one that nobody disturbed.
EXPECTED = {("parameter", "replicas"): 1, ("moment", "replicas"): 1, ("gradient", "replicas"): None,
            ("local", "replicas"): 0, ("local", "sums"): 0, ("local", "replay"): 1, ("parameter", "sums"): 0,
            ("moment", "sums"): 0, ("gradient", "sums"): None, ("gradient", "replay"): 1, ("buffer", "replay"): 1,
            ("buffer", "sums"): None, ("buffer", "replicas"): 0}


def flips(programs, draw, trials, zero=0):
    program, saved = programs.get(dp=4, zero=zero), programs.folder / "saved.safetensors"
    train(programs, program, "--save", saved)
    undisturbed = saved.read_bytes()
    for flip in FLIPS:
        cells = []
        for check, options in CHECKS.items():
            found = named = lost = 0
            most = trials if (flip, check) in SEEN_BY else math.ceil(trials / 10)
            for _ in range(most):
                rank = draw.randrange(4)
                code, errors = train(programs, program, *options, "--save", saved, "--inject",
                                     f"flip-{flip}@2#{draw.randrange(1 << 30)}", "--rank", rank)
                require(f"injected flip-{flip} on rank {rank}" in errors, f"flips: {flip} is injected: {errors}")
                require(code in (0, 1), f"flips: {flip} ends with 0 or 1: {errors}")
                found += code == 1
                lost += code == 0 and check == "replay" and saved.read_bytes() == undisturbed
                named += code == 1 and re.search(rf"\brank {rank}\b", errors.split("error:")[-1]) is not None
            want = EXPECTED.get((flip, check))
            if zero == 0 and want is not None:
                require(found + lost == want * most, f"flips: {check} find {want * most} of {most} flips of {flip}, "
                        f"found {found}, and {lost} that changed nothing")
            cells.append(f"{check} {found}/{most}, rank named {named}{f', {lost} changed nothing' if lost else ''}")
        print(f"  ZeRO {zero}, 4 ranks, {flip:10} {'; '.join(cells)}", flush=True)
    return "as the table says"


def nan(programs, draw, trials):
    program = programs.get(dp=4)
    for trial in range(trials):
        rank = draw.randrange(4)
        code, errors = train(programs, program, "--guard", 2, "--replica-check", 1, "--inject",
                             f"nan@2#{draw.randrange(1 << 30)}", "--rank", rank, steps=4)
        require(code == 0, f"nan: the step is passed over: {errors}")
        what = re.search(rf"injected nan on rank {rank}.*: (\S+ \S+), element (\d+)", errors)
        told = re.search(r"warning: step 2: .*?rank (\d+): it gave .*?: (\S+ \S+), element (\d+)", errors)
        require(what and told and int(told[1]) == rank and told[2] == what[1] and told[3] == what[2],
                f"nan: rank {rank} and the tensor are named: {errors}")
        rank = draw.randrange(4)
        code, errors = train(programs, program, "--guard", 2, "--inject", f"nan-parameter@2#{draw.randrange(1 << 30)}",
                             "--rank", rank, steps=6)
        what = re.search(rf"injected nan-parameter on rank {rank} in step 2: (parameter \S+), element (\d+)", errors)
        told = re.search(r"rank (\d+): (\S+ \S+) has the value -?nan \(element (\d+)", errors)
        require(what and told and int(told[1]) == rank and told[2] == what[1] and told[3] == what[2],
                f"nan: rank {rank} and its parameter are named: {errors}")
    return f"{2 * trials} of {2 * trials} named by rank, tensor and element"


def losses(program):
    return {line["step"]: line["loss"] for line in map(json.loads, (program / "log.jsonl").read_text().splitlines())}


def restart(programs, draw, trials):
    """Kills at drawn times: the run goes on, and ends as if there had been none."""
    program = programs.get(dp=2, tp=2)

    def run_all(*options):
        shutil.rmtree(program / "checkpoints", ignore_errors=True)
        run = Run(programs, program, "--save-every", 5, "--save", programs.folder / "left.safetensors", *options,
                  steps=60)
        return run

    run = run_all()
    require(run.end() == 0, f"restart: a run without faults: {run.text()}")
    expected = losses(program), (programs.folder / "left.safetensors").read_bytes()
    for _ in range(trials):
        run = run_all("--restarts", 5)
        process = run.wait_until_training(draw.randrange(2, 40))
        if process:
            os.kill(draw.choice(list(process.values())), signal.SIGKILL)
        code = run.end()
        require(code == 0, f"restart: it goes on: {run.text()}")
        require(losses(program) == expected[0], "restart: the losses are those of a run without faults")
        require((programs.folder / "left.safetensors").read_bytes() == expected[1],
                "restart: the parameters are those of a run without faults")
    run = run_all("--restarts", 5, "--inject", "nan-parameter@7", "--guard", 1)
    require(run.end() == 0 and "restart 1 of at most 5" in run.text(), f"restart: a bad parameter is gone: {run.text()}")
    require(losses(program) == expected[0], "restart: the losses behind a bad parameter are those without")
    return f"{trials + 1} of {trials + 1} went on, bit for bit"


def elastic(programs, draw, trials):
    """8 -> 6 -> 4 -> 8 ranks."""
    program = programs.get(dp=8)
    counts = programs.folder / "ranks"
    arguments = ["--save-every", 4, "--elastic", f"cat {counts}", "--model", programs.folder / "model.json",
                 "--cluster", programs.folder / "cluster.json", "--train", programs.folder / "train.json"]
    shutil.rmtree(program / "checkpoints", ignore_errors=True)
    counts.write_text("8\n")
    run = Run(programs, program, "--save-every", 1000, steps=200)
    require(run.end() == 0, f"elastic: a run without faults: {run.text()}")
    expected = losses(program)
    shutil.rmtree(program / "checkpoints", ignore_errors=True)
    (program / "log.jsonl").unlink()
    run = Run(programs, program, *arguments, "--restarts", 10, steps=200)
    told = []
    for ranks, at in ((6, 20), (4, 70), (8, 120)):
        start = time.monotonic()
        log = program / "log.jsonl"
        while not (log.exists() and log.read_text().count("\n") >= at) and time.monotonic() - start < 200:
            if run.process.poll() is not None:
                sys.exit(f"not so: elastic: it trains: {run.end()} {run.text()}")
            time.sleep(0.005)
        counts.write_text(f"{ranks}\n")
        folder = next((f for f in (program, *program.glob("elastic/*-ranks"))
                       if left_over(f)), program)
        victims = left_over(folder)[-1:]
        require(victims, f"elastic: there are ranks to kill: {run.text()}")
        os.kill(victims[0], signal.SIGKILL)
        line, when = run.until("resumed behind")
        require(line, f"elastic: it resumes on {ranks} ranks: {run.text()}")
        told.append(f"{ranks} ranks {when - start:.1f} s")
    require(run.end(600) == 0, f"elastic: it ends: {run.text()}")
    found = losses(program)
    require(sorted(found) == sorted(expected), "elastic: each step once")
    worst = max(abs(found[step] - expected[step]) / abs(expected[step]) for step in expected)
    require(worst < 1e-3, f"elastic: the losses are those of 8 ranks: {worst:.2e} off")
    lines = [line.strip() for line in run.lines if re.search("planned in|resumed behind", line)]
    return "\n  ".join([f"losses {worst:.1e} off at most; from kill to resumed: {', '.join(told)}", *lines])


def network(programs, draw, trials):
    """Ranks in network namespaces of their own, one of which is cut off."""
    from namespaces import Namespaces  # beside this file
    whole = programs.get(dp=4)
    named, gone = [], []
    for _ in range(trials):
        rank = draw.randrange(4)
        with Namespaces(4) as spaces:
            program = spaces.wrap(whole, programs.folder / "apart")
            run = Run(programs, program, **spaces.environment)
            run.wait_until_training()
            time.sleep(draw.random() / 5)
            spaces.cut(rank)
            begun = time.monotonic()
            line, told = run.until(r"^error: (no progress|rank \d+ \(process)")
            check_end(run, begun, told, "network", rank, line)
            named.append(told - begun)
            gone.append(run.ended - told)
            shutil.rmtree(program)
    return f"{trials} of {trials} named after {spread(named)}, all gone {spread(gone)} later"


def free_ports(count):
    """The first of so many neighbours that nobody listens on."""
    for port in range(31000 + os.getpid() % 9000, 60000, count):
        try:
            for neighbour in range(port, port + count):
                with socket.socket() as one:
                    one.bind(("127.0.0.1", neighbour))
            return port
        except OSError:
            continue
    sys.exit("not so: there are free ports")


def start_unwatched(launcher, ranks, command, out, seconds):
    """Ranks that another launcher than `heddle run` has started: the processes to wait for."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMI", "SLURM_"))}
    clean["HEDDLE_TIMEOUT"] = str(seconds)
    if launcher == "mpirun":
        return [subprocess.Popen(["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", str(ranks), *command], stdout=out,
                                 stderr=out, env=clean)]
    port = str(free_ports(20))
    each = {"torchrun": lambda rank: {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "MASTER_ADDR": "127.0.0.1",
                                      "MASTER_PORT": port},
            "srun": lambda rank: {"SLURM_PROCID": rank, "SLURM_NTASKS": ranks, "SLURM_LOCALID": rank, "SLURM_JOB_ID": 4711,
                                  "SLURM_STEP_ID": 0, "SLURM_JOB_NUM_NODES": 1, "SLURM_STEP_NUM_TASKS": ranks,
                                  "SLURM_NODELIST": "localhost", "SLURM_STEP_NODELIST": "localhost", "HEDDLE_PORT": port}}
    return [subprocess.Popen(command, stdout=out, stderr=out,
                             env={**clean, **{name: str(value) for name, value in each[launcher](rank).items()}})
            for rank in range(ranks)]


def unwatched_ranks(program):
    """Processes of ranks that no guard waits for, by rank."""
    found = {}
    for process in left_over(program):
        environment = dict(part.split("=", 1) for part in pathlib.Path(f"/proc/{process}/environ").read_text().split("\0")
                           if "=" in part)
        found[int(next(environment[name] for name in ("OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "RANK")
                       if name in environment))] = process
    return found


def unwatched(programs, draw, trials):
    """Other launchers' ranks, one of which dies or stops: the others end by themselves, and name it."""
    program, log, longest = programs.get(dp=4), programs.folder / "said", 0
    cases = [(launcher, fault) for launcher in ("mpirun", "torchrun", "srun") for fault in ("SIGKILL", "SIGSTOP")]
    for launcher, fault in cases * trials:
        (program / "log.jsonl").unlink(missing_ok=True)
        rank = draw.randrange(4)
        with open(log, "w") as out:
            processes = start_unwatched(launcher, 4, [str(program / "train-host"), "--data", str(programs.data), "--steps",
                                                   STEPS], out, LIMIT)
        wait_for_log(program, 3, lambda: processes[0].poll())
        ranks = unwatched_ranks(program)
        time.sleep(draw.random() / 5)
        os.kill(ranks[rank], getattr(signal, fault))
        begun = time.monotonic()
        # Nobody but its launcher can end a stopped one.
        waited = [process for process in processes if process.pid != ranks[rank]]
        try:
            codes = [process.wait(timeout=120) for process in waited]
        finally:
            for process in ranks.values():
                if process in left_over(program):
                    os.kill(process, signal.SIGKILL)
            for process in processes:
                process.wait()
        longest = max(longest, time.monotonic() - begun)
        said = log.read_text()
        require(all(codes), f"unwatched: {launcher}, {fault}: the others fail: {codes} {said}")
        told = rf"process rank {rank} .*signal 9|rank {rank} ended without a word|rank {rank} \(process {ranks[rank]}\) is stopped"
        require(re.search(told, said), f"unwatched: {launcher}, {fault}: rank {rank} is named: {said}")
        others = "".join(str(other) for other in range(4) if other != rank)
        require(not re.search(rf"rank [{others}] \(process \d+\) is stopped", said), f"unwatched: no other one is: {said}")
    return f"{trials * len(cases)} of {trials * len(cases)} ended by themselves and named, {longest:.1f} s after it at most"


KINDS = {"death": lambda p, d, n: hang(p, d, "death", n), "stop": lambda p, d, n: hang(p, d, "stop", n),
         "loop": lambda p, d, n: hang(p, d, "loop", n), "network": network, "slow": slow, "unwatched": unwatched, "clean": clean,
         "flips": flips, "zero": lambda p, d, n: flips(p, d, n, zero=3), "nan": nan, "restart": restart,
         "elastic": elastic}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--heddle", default="heddle")
    parser.add_argument("--trials", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        programs = Programs(os.path.abspath(options.heddle), pathlib.Path(os.path.realpath(folder)))
        for kind in options.kinds or [kind for kind in KINDS if kind != "network"]:
            start = time.monotonic()
            said = KINDS[kind](programs, random.Random(f"{options.seed} {kind}"), options.trials)
            print(f"{kind}: {said} ({time.monotonic() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
