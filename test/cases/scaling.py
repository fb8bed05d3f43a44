"""What becomes of a step whose gradients overflow on one rank, by a run of the program."""

import array
import json

import data
import tensors
from outcome import Failed, Missing

AXES = ("stage", "dp", "cp", "tp")  # of a rank's place, outermost first


def rank_of(plan, place):
    """Number of the rank at that place of the mesh; where an axis is not given, the first one."""
    number = 0
    for axis in AXES:
        number = number * plan.get("pp" if axis == "stage" else axis, 1) + place.get(axis, 0)
    return number


def overflowing(case, plan, steps):
    """(log, parameters left) of so many steps, in which the infinity is planted that the plan asks for; the loss scales
    of all ranks are compared behind each."""
    def make():
        place = plan.get("inject_inf")
        if place is None:
            raise Missing("a step that overflows by itself")
        folder = case.compiled(plan)
        batch, saved, log = (case.write(name, "") for name in ("batch.safetensors", "saved.safetensors", "log.jsonl"))
        tensors.write(batch, data.as_tensors(case.make_batch()))
        code, _, stderr = case.heddle.run([
            folder / "train-host", "--threads", "--data", batch, "--steps", steps, "--weights", case.weights_file(),
            "--save", saved, "--log", log, "--replica-check", 1, "--inject-inf", place["step"],
            "--rank", rank_of(plan, place)], timeout=60)
        if code != 0:
            raise Failed(f"the run ended with exit code {code}: {stderr.strip()[-300:]}")
        return [json.loads(line) for line in log.read_text().splitlines()], tensors.read(saved)
    return case.once(["overflow", plan, steps], make)


def params_unchanged_on_step(case, assertion, plan):
    step = assertion["step"]
    if step != plan.get("inject_inf", {}).get("step"):
        raise Missing("a step that overflows by itself")
    log, after = overflowing(case, plan, step)
    before = case.weights() if step == 1 else overflowing(case, plan, step - 1)[1]
    if not log[step - 1]["skipped"]:
        raise Failed(f"step {step} is not skipped")
    for name, (*_, values) in before.items():
        if after[name][-1] != array.array("f", values):
            raise Failed(f"{name} changes in step {step}")
    later, _ = overflowing(case, plan, case.steps())
    scales = [entry["loss_scale"] for entry in later]
    if scales[step] != scales[step - 1] / 2 or any(entry["skipped"] for entry in later[step:]):
        raise Failed(f"the scale does not halve once: {scales}")


def scalar_equal_on_all_ranks(case, assertion, plan):
    """A run compares them itself behind each step, and ends where one differs."""
    if assertion["name"] != "loss_scale":
        raise Missing(f"{assertion['name']} by rank")
    overflowing(case, plan, case.steps())
