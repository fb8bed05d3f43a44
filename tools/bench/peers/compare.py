#!/usr/bin/env python3
"""Times one training step of a Llama in PyTorch and JAX on this machine's CPU,
alternating with a command that runs Heddle, and prints medians and ratios.

    python -m venv VENV && VENV/bin/pip install -r requirements.txt
    VENV/bin/python compare.py MODEL.json [--threads N] [--heddle 'COMMAND']

COMMAND runs a few steps of the same model, batch and settings and prints (or writes
to --heddle-log) one JSON line per step with `seconds`. README.md says the rest.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import problem

HERE = pathlib.Path(__file__).resolve().parent
PEERS = {"torch": ("peer_torch", "Peer", False), "torch-compiled": ("peer_torch", "Peer", True),
         "jax": ("peer_jax", "Peer", True), "ceilings": ("peer_torch", "Ceilings", False)}


def cores(threads):
    """The cores that all peers are bound to: one thread per physical core first."""
    allowed = sorted(os.sched_getaffinity(0))
    if threads > len(allowed):
        raise SystemExit(f"compare.py: {threads} threads, but this process may use {len(allowed)} cores")

    def siblings(core):
        try:
            path = pathlib.Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
            return path.read_text()
        except OSError:
            return str(core)
    seen, first, rest = set(), [], []
    for core in allowed:
        (rest if siblings(core) in seen else first).append(core)
        seen.add(siblings(core))
    return (first + rest)[:threads]


# A peer is a process of its own that does nothing while another one is timed.

def serve(options):
    module, name, compiled = PEERS[options.serve]
    peer = getattr(__import__(module), name)(
        problem.read_model(options.model), options.sequences, options.length, options.threads, compiled)
    for line in sys.stdin:
        answer = peer.measure() if options.serve == "ceilings" else timed(peer, int(line))
        print(json.dumps(answer), flush=True)


def timed(peer, steps):
    seconds, losses = [], []
    for _ in range(steps):
        begin = time.perf_counter()
        losses.append(peer.step())
        seconds.append(time.perf_counter() - begin)
    return {"seconds": seconds, "losses": losses}


class Worker:
    def __init__(self, name, options, where):
        command = [sys.executable, __file__, options.model, "--serve", name, "--threads", options.threads,
                   "--sequences", options.sequences, "--length", options.length]
        self.name = name
        self.process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE,
            env={**os.environ, "OMP_NUM_THREADS": str(options.threads)},
            preexec_fn=lambda: os.sched_setaffinity(0, where))

    def ask(self, steps):
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"compare.py: {self.name} ended with {self.process.wait()}; its message is above")
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def run_heddle(options, where):
    """Seconds of the steps of one run of the command, without the first ones."""
    log = pathlib.Path(options.heddle_log) if options.heddle_log else None
    done = subprocess.run(
        options.heddle, shell=True, stdout=subprocess.PIPE, text=True, check=False,
        env={**os.environ, "OMP_NUM_THREADS": str(options.threads)},
        preexec_fn=lambda: os.sched_setaffinity(0, where))
    if done.returncode:
        raise SystemExit(f"compare.py: exit code {done.returncode} of: {options.heddle}")
    seconds = []
    for line in (log.read_text() if log else done.stdout).splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and "seconds" in entry:
            seconds.append(entry["seconds"])
    if len(seconds) <= options.warmup:
        raise SystemExit(f"compare.py: {len(seconds)} steps with `seconds` from: {options.heddle}; "
                         f"expected more than the {options.warmup} that are not counted")
    return seconds[options.warmup:]


def report(options, times, ceilings):
    model = problem.read_model(options.model)
    flops = problem.step_flops(model, options.sequences, options.length)
    gemm = [statistics.median(entry["gemm"][i] for entry in ceilings) for i in (0, 1)]
    copy = statistics.median(entry["copy"] for entry in ceilings)
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    best_peer = min((name for name in medians if name != "heddle"), key=medians.get)
    print(f"{options.sequences} x {options.length} tokens, {options.threads} threads, fp32, AdamW, "
          f"{flops / 1e9:.1f} GFLOP of products a step")
    print(f"ceilings: product of the model's largest shape {gemm[0] / 1e9:.0f} GFLOP/s, of 2048 x 2048 x 2048 "
          f"{gemm[1] / 1e9:.0f} GFLOP/s, copy {copy / 1e9:.1f} GB/s")
    print(f"{'':16}{'median s':>10}{'fastest':>10}{'slowest':>10}{'steps':>7}{'GFLOP/s':>9}{'of gemm':>9}"
          f"{'to best peer':>14}")
    for name, seconds in times.items():
        rate = flops / medians[name]
        print(f"{name:16}{medians[name]:10.4f}{min(seconds):10.4f}{max(seconds):10.4f}{len(seconds):7}"
              f"{rate / 1e9:9.0f}{rate / max(gemm):9.0%}{medians[name] / medians[best_peer]:14.2f}")
    if options.json:
        options.json.write_text(json.dumps({
            "medians": medians, "seconds": times, "gemm_flops": gemm, "copy_bytes": copy, "flops": flops,
            "best_peer": best_peer, "ratio": {name: medians[name] / medians[best_peer] for name in medians}}) + "\n")


def measure(options):
    where = cores(options.threads)
    workers = [Worker(name, options, where) for name in options.peers]
    meter = Worker("ceilings", options, where)
    first = {worker.name: worker.ask(options.warmup)["losses"][0] for worker in workers}
    if max(first.values()) - min(first.values()) > 1e-4 * min(first.values()):
        raise SystemExit(f"compare.py: the peers do not train one model: first losses {first}")
    times = {name: [] for name in [*options.peers, *(["heddle"] if options.heddle else [])]}
    ceilings = []
    for _ in range(options.rounds):
        ceilings.append(meter.ask(1))
        for worker in workers:
            times[worker.name] += worker.ask(options.steps)["seconds"]
        if options.heddle:
            times["heddle"] += run_heddle(options, where)
    for worker in [*workers, meter]:
        worker.close()
    report(options, times, ceilings)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("model", help="config.json of an untied llama")
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5, help="turns of each")
    parser.add_argument("--steps", type=int, default=3, help="steps of a peer in a turn")
    parser.add_argument("--warmup", type=int, default=2, help="first steps of a run, not counted")
    parser.add_argument("--peers", nargs="+", choices=sorted(PEERS.keys() - {"ceilings"}),
                        default=["torch", "torch-compiled", "jax"])
    parser.add_argument("--heddle", metavar="COMMAND", help="runs Heddle; a line of JSON per step")
    parser.add_argument("--heddle-log", metavar="FILE", help="where those lines are, if not on stdout")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="all numbers")
    parser.add_argument("--serve", choices=PEERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.model = str(pathlib.Path(options.model).resolve())
    if options.serve:
        serve(options)
    else:
        measure(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
