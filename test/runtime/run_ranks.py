#!/usr/bin/env python3
"""Runs a program on N ranks; exits as the ranks themselves say (heddle/Runtime/Endings.h).

Usage: run_ranks.py N [--crash] PROGRAM [ARGUMENTS]

The lowest code of a rank that failed, 0 where all say 0, else the launcher's. With --crash the launcher kills itself
by SIGSEGV after all ranks have ended, as mpirun has been seen to do.
"""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time


def ending(path):
    """A rank's exit code; None where it left none."""
    return int(path.read_text().splitlines()[0]) if path.exists() else None


def wait(launcher, files):
    """Its exit code. It has been seen to hang in its own end: then it is ended some seconds after all ranks have."""
    while launcher.poll() is None and not all(file.exists() for file in files):
        time.sleep(0.02)
    try:
        return launcher.wait(timeout=15)
    except subprocess.TimeoutExpired:
        os.killpg(launcher.pid, signal.SIGKILL)
        return launcher.wait()


def main():
    ranks, command = int(sys.argv[1]), sys.argv[2:]
    crash = command[0] == "--crash"
    command = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", str(ranks), *command[crash:]]
    if crash:
        command = ["sh", "-c", '"$@"; kill -SEGV $$', "launcher", *command]
    with tempfile.TemporaryDirectory() as folder:
        files = [pathlib.Path(folder) / f"rank-{rank}" for rank in range(ranks)]
        launcher = wait(subprocess.Popen(command, env={**os.environ, "HEDDLE_ENDINGS": folder},
                                         start_new_session=True), files)
        codes = [ending(file) for file in files]
    failed = [code for code in codes if code]
    code = min(failed) if failed else 0 if None not in codes else abs(launcher)
    print(f"ranks: {code}, launcher: {launcher}")
    return code


sys.exit(main())
