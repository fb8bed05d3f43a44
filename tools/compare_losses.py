"""Prints the losses of two logs of `heddle run` side by side and fails where they differ or do not fall.

Usage: compare_losses.py LOG REFERENCE --steps N --first REL --last REL. Step 1 may differ by --first
(relative), step N by --last; the loss of step N must be below that of step 1.
"""
import argparse
import json
import math
import sys


def read_losses(path):
    """The loss of each step, by number."""
    with open(path) as log:
        steps = [json.loads(line) for line in log]
    return {step["step"]: step["loss"] for step in steps}


def problems(losses, reference, steps, bounds):
    """What is wrong, in words; `bounds` holds for a step how far it may be off, relatively."""
    for name, run in (("the log", losses), ("the reference", reference)):
        if sorted(run) != list(range(1, steps + 1)):
            yield f"{name} has steps {sorted(run)}, expected 1 to {steps}"
            return
        if not all(isinstance(loss, (int, float)) and math.isfinite(loss) for loss in run.values()):
            yield f"{name} has a loss that is no number"
            return
    for step, bound in bounds.items():
        off = abs(losses[step] / reference[step] - 1)
        if off > bound:
            yield f"step {step}: off by {off:.1e}, at most {bound:.0e} is allowed"
    if losses[steps] >= losses[1]:
        yield f"the loss does not fall: {losses[1]:.4f} at step 1, {losses[steps]:.4f} at step {steps}"


def table(losses, reference):
    yield f"{'step':>5} {'loss':>12} {'reference':>12} {'off':>9}"
    for step in sorted(set(losses) & set(reference)):
        a, b = losses[step], reference[step]
        yield f"{step:>5} {a:>12.7f} {b:>12.7f} {abs(a / b - 1):>9.1e}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log")
    parser.add_argument("reference")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--first", type=float, required=True)
    parser.add_argument("--last", type=float, required=True)
    given = parser.parse_args()
    log, one = read_losses(given.log), read_losses(given.reference)
    wrong = list(problems(log, one, given.steps, {given.steps: given.last, 1: given.first}))
    if not any("no number" in line for line in wrong):
        print("\n".join(table(log, one)))
    print("\n".join(wrong) or f"equal: within {given.first:.0e} at step 1 and {given.last:.0e} at step {given.steps}")
    sys.exit(bool(wrong))
