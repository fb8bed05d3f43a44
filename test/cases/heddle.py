"""Runs Heddle's commands and tells a proper refusal from a crash."""

import json
import pathlib
import re
import signal
import subprocess

from outcome import Failed, Missing, Refused

CRASH_WORDS = re.compile(r"Assertion .* failed|PLEASE submit a bug report|Stack dump:|terminate called|Traceback")


def describe(command):
    return " ".join(map(str, command))


class Heddle:
    """The command line. `program` is the path of `heddle`; the other tools stand
    beside it. `interpret`: verify by the interpreter instead of the program."""

    def __init__(self, program, interpret=False, timeout=300):
        self.program = pathlib.Path(program)
        self.interpret = interpret
        self.timeout = timeout

    def tool(self, name):
        path = self.program.with_name(name)
        if not path.exists():
            raise Missing(f"{name} beside {self.program}")
        return path

    def run(self, command, timeout=None):
        """(exit code, stdout, stderr) of a command that ended by itself: a signal,
        an abort or an internal error fails."""
        timeout = timeout or self.timeout
        try:
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=timeout, check=False)
        except subprocess.TimeoutExpired:
            raise Failed(f"did not end within {timeout} s: {describe(command)}") from None
        if done.returncode < 0 or done.returncode > 128:
            number = -done.returncode if done.returncode < 0 else done.returncode - 128
            raise Failed(f"ended by {signal.Signals(number).name}: {describe(command)}: {done.stderr[-300:].strip()}")
        if done.returncode == 3 or CRASH_WORDS.search(done.stderr):
            raise Failed(f"internal error: {done.stderr[-300:].strip()}")
        return done.returncode, done.stdout, done.stderr

    def answer(self, arguments, timeout=None):
        """The JSON object that a `--json` command printed. Raises Refused when it
        refused its input, which is: exit code 1 or 2, a message, no object."""
        command = [self.program, *arguments, "--json"]
        code, stdout, stderr = self.run(command, timeout)
        if not stdout.strip():
            if code in (1, 2) and stderr.strip():
                raise Refused(stderr.strip())
            raise Failed(f"exit code {code} with neither an answer nor a message: {describe(command)}")
        try:
            return json.loads(stdout)
        except ValueError:
            raise Failed(f"not one JSON object on stdout: {stdout[:200]!r}") from None

    def explain(self, config, train=None, plan=None):
        options = [*(["--train", train] if train else []), *(["--plan", plan] if plan else [])]
        return self.answer(["explain", config, *options])

    def compile(self, config, plan, train, cluster, folder):
        """Leaves the program in `folder`; returns what was said."""
        code, _, stderr = self.run([self.program, "compile", config, "--plan", plan, "--train", train,
                                    "--cluster", cluster, "-o", folder])
        if code != 0:
            raise Refused(stderr.strip())
        return stderr

    def train(self, folder, data, saved, steps=1, weights=None):
        """Steps of a compiled folder; leaves the parameters behind them in `saved`."""
        code, _, stderr = self.run([self.program, "run", folder, "--data", data, "--steps", steps, "--threads",
                                    "--save", saved, *(["--weights", weights] if weights else [])])
        if code != 0:
            raise Failed(f"the run ended with exit code {code}: {stderr.strip()[-300:]}")

    def check(self, folder, data, saved, seed):
        """One step in checking mode: queued work runs late, in an order of the seed, and what touches the same bytes
        without an event between is an error. Leaves the parameters in `saved`."""
        code, _, stderr = self.run([self.program, "run", folder, "--data", data, "--steps", 1, "--threads", "--check",
                                    "--seed", seed, "--save", saved])
        if code != 0:
            raise Failed(f"with the order of seed {seed} the run ended with exit code {code}: {stderr.strip()[-300:]}")

    def verify(self, config, plan, train, batch=None, weights=None, dump=None, timeout=None):
        arguments = ["verify", config, "--plan", plan, "--train", train]
        for option, value in (("--batch", batch), ("--weights", weights), ("--dump", dump)):
            arguments += [option, value] if value else []
        return self.answer(arguments + (["--interpret"] if self.interpret else []), timeout)
