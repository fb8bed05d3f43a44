#!/usr/bin/env python3
"""Runs a program on N ranks; exits as the ranks themselves say (heddle/Runtime/Endings.h).

Usage: run_ranks.py N [--crash] PROGRAM [ARGUMENTS]

The lowest code of a rank that failed, 0 where all say 0, else the launcher's. With --crash the launcher kills itself
by SIGSEGV after all ranks have ended, as mpirun has been seen to do.
"""
import os
import pathlib
import subprocess
import sys
import tempfile


def ending(path):
    """A rank's exit code; None where it left none."""
    return int(path.read_text().splitlines()[0]) if path.exists() else None


def main():
    ranks, command = int(sys.argv[1]), sys.argv[2:]
    crash = command[0] == "--crash"
    command = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-n", str(ranks), *command[crash:]]
    if crash:
        command = ["sh", "-c", '"$@"; kill -SEGV $$', "launcher", *command]
    with tempfile.TemporaryDirectory() as folder:
        launcher = subprocess.run(command, check=False, env={**os.environ, "HEDDLE_ENDINGS": folder}).returncode
        codes = [ending(pathlib.Path(folder) / f"rank-{rank}") for rank in range(ranks)]
    failed = [code for code in codes if code]
    code = min(failed) if failed else 0 if None not in codes else abs(launcher)
    print(f"ranks: {code}, launcher: {launcher}")
    return code


sys.exit(main())
