"""Checkpoints of runs: saved under one plan, resumed under others, and refused where something is missing.

Runs begin with the case's weights. A run is known by (plan, steps, options); each has a folder of its own.
"""

import json
import math
import re
import shutil

import data
import tensors
from case import matching
from outcome import Failed, Missing, Refused

COLLECTIVE = re.compile(r"\bheddle_rt_(all_reduce|reduce_scatter|all_gather|all_to_all|broadcast|send|recv|messages)\w*\(")
BRANCH = re.compile(r"\b(if|for|while|switch)\s*\(")


class Run:
    """What some steps of a program left: checkpoints, parameters, log."""

    def __init__(self, case, plan, name):
        self.case, self.program = case, case.compiled(plan)
        self.folder = case.folder / f"{len(list(case.folder.iterdir())):02}-{name}"
        self.folder.mkdir()
        self.checkpoints, self.saved, self.log_file = (self.folder / part for part in ("checkpoints", "saved", "log"))

    def train(self, steps, *options, fails=False):
        command = [self.case.heddle.program, "run", self.program, "--threads", "--data", batch_file(self.case),
                   "--steps", steps, "--checkpoints", self.checkpoints, "--log", self.log_file, "--save", self.saved,
                   *options]
        code, _, stderr = self.case.heddle.run(command)
        if fails:
            if code != 2:
                raise Failed(f"expected a refusal (exit code 2), found exit code {code}: {stderr.strip()[-300:]}")
        elif code != 0:
            raise Failed(f"the run ended with exit code {code}: {stderr.strip()[-300:]}")
        return stderr

    def log(self):
        return [json.loads(line) for line in self.log_file.read_text().splitlines()]

    def checkpoint(self, step):
        return self.checkpoints / f"step-{step:010}"


def batch_file(case):
    def make():
        path = case.write("run.safetensors", "")
        steps = max([case.steps(), *(assertion.get("steps", 1) for assertion in case.assertions)])
        tensors.write(path, data.as_tensors(case.make_batch(steps)))
        return path
    return case.once("run batch", make)


def tool(case, *arguments):
    code, stdout, stderr = case.heddle.run([case.heddle.program, "checkpoint", *arguments])
    if code != 0:
        raise Failed(f"heddle checkpoint {arguments[0]} ended with exit code {code}: {stderr.strip()[-300:]}")
    return stdout


def saved_run(case, plan, steps):
    """Steps from the case's weights, with a checkpoint behind the last."""
    def make():
        run = Run(case, plan, "saved")
        run.train(steps, "--save-every", steps, "--weights", case.weights_file())
        return run
    return case.once(["saved", plan, steps], make)


def resumed_run(case, plan, source, step, steps):
    """More steps of a plan behind the checkpoint of another run."""
    run = Run(case, plan, "resumed")
    run.checkpoints.mkdir()
    shutil.copytree(source.checkpoint(step), run.checkpoint(step))
    run.train(steps, "--resume", "--save-every", max(steps, 1))
    return run


def logical_files(case, folder):
    """{name: bytes} of a checkpoint's states as whole tensors, which know no layout."""
    target = case.folder / f"{len(list(case.folder.iterdir())):02}-logical"
    tool(case, "convert", folder, target)
    step = target / folder.name
    return {str(path.relative_to(step)): data_of(path) for path in sorted(step.rglob("*.safetensors"))}


def data_of(path):
    """Names, places and bytes; metadata name the save."""
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + size])
    header.pop("__metadata__", None)
    return json.dumps(header, sort_keys=True), content[8 + size:]


def global_batch(case, plan):
    made, _ = case.plan_files(plan, case.batch["sequences"], case.batch["seq_len"])
    made = json.loads(made.read_text())
    return math.prod(size for axis, size in made["mesh"] if axis == "dp") * made["micro_batch"] * made["micro_batches"]


# Assertions

def checkpoint_roundtrip(case, assertion, plan):
    if assertion.get("rel", 0) != 0:
        raise Missing("states that come back in part")
    save_plan, loads = assertion["save_plan"], assertion["load_plan"]
    steps = case.steps()
    source = saved_run(case, save_plan, steps)
    wanted, untold = logical_files(case, source.checkpoint(steps)), []
    for load in loads if isinstance(loads, list) else [loads]:
        # As the ranks of the other plan would store each state.
        converted = case.folder / f"{len(list(case.folder.iterdir())):02}-converted"
        sequences = global_batch(case, load)
        is_own = sequences == global_batch(case, save_plan)
        program = case.compiled(load) if is_own else case.compiled(load, sequences=sequences)
        tool(case, "convert", source.checkpoint(steps), converted, "--for", program)
        tool(case, "verify", converted)
        if logical_files(case, converted / source.checkpoint(steps).name) != wanted:
            raise Failed(f"states are not what was saved under {load}")
        if not is_own:
            untold.append(f"a run of dp {load['dp']} pp {load['pp']}, whose global batch is {sequences}")
            continue
        run = resumed_run(case, load, source, steps, steps)
        if tensors.read(run.saved) != tensors.read(source.saved):
            raise Failed(f"parameters of a run under {load} are not those that were saved")
    return "not checked: " + ", ".join(untold) if untold else None


def split_run(case, plan, save_after, steps):
    """Saved behind some steps, ended, resumed to the last."""
    def make():
        source = saved_run(case, plan, save_after)
        return resumed_run(case, plan, source, save_after, steps)
    return case.once(["split", plan, save_after, steps], make)


def difference(found, wanted):
    squares = sum(value * value for value in wanted)
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(found, wanted)) / squares) if squares else 0.0


def resume_equals_uninterrupted(case, assertion, plan):
    steps, after = assertion["steps"], assertion["save_after"]
    compare(saved_run(case, plan, steps), split_run(case, plan, after, steps), after, steps, assertion["rel"])


def compare(whole, parts, after, steps, most):
    """Losses of each step behind the resume and the parameters left, within a relative error."""
    wanted, log = whole.log(), parts.log()
    if [line["step"] for line in log] != list(range(after + 1, steps + 1)):
        raise Failed(f"resumed steps are {[line['step'] for line in log]}")
    for line in log:
        expected = wanted[line["step"] - 1]["loss"]
        if not abs(line["loss"] - expected) <= most * abs(expected):
            raise Failed(f"loss of step {line['step']} is {line['loss']}, uninterrupted {expected}")
    left, found = tensors.read(whole.saved), tensors.read(parts.saved)
    if left.keys() != found.keys():
        raise Failed("other parameters are there")
    for name, (_, values) in left.items():
        if not difference(found[name][1], values) <= most:
            raise Failed(f"{name} differs by {difference(found[name][1], values):.2e} behind step {steps}")


def resume_with_plan(case, assertion, plan):
    """Behind a checkpoint of the case's plan, under others."""
    steps, after = assertion["steps"], assertion["save_after"]
    whole, source = saved_run(case, plan, steps), saved_run(case, plan, after)
    for other in assertion["plans"] if "plans" in assertion else [assertion["plan"]]:
        compare(whole, resumed_run(case, {**plan, **other}, source, after, steps), after, steps, assertion["rel"])


def state_bitwise_equal(case, assertion, plan):
    """All states of a run that was resumed, and of one that was not."""
    steps, after = assertion["steps"], assertion["save_after"]
    whole, parts = saved_run(case, plan, steps), split_run(case, plan, after, steps)
    if logical_files(case, whole.checkpoint(steps)) != logical_files(case, parts.checkpoint(steps)):
        raise Failed(f"states behind step {steps} differ")


def exported(case, plan):
    def make():
        source = saved_run(case, plan, case.steps())
        hub = case.folder / f"{len(list(case.folder.iterdir())):02}-exported"
        tool(case, "export-hf", source.checkpoint(case.steps()), hub)
        return {name: shape for path in hub.glob("*.safetensors") for name, (shape, _) in tensors.read(path).items()}
    return case.once(["exported", plan], make)


def export_shape(case, assertion, plan):
    found = exported(case, plan)
    for name in matching(found, assertion["tensor"]):
        if list(found[name]) != assertion["shape"]:
            raise Failed(f"{name} is exported with shape {found[name]}, expected {assertion['shape']}")


def export_contains(case, assertion, plan):
    wanted = assertion.get("tensors", assertion.get("tensor"))
    for name in wanted if isinstance(wanted, list) else [wanted]:
        matching(exported(case, plan), name)


def rate_as_uninterrupted(case, assertion, plan):
    """The rate of a step, in a run that was resumed right before it."""
    step = int(assertion["name"].removeprefix("lr_at_step_"))
    wanted = saved_run(case, plan, case.steps()).log()[step - 1]["learning_rate"]
    found = next(line for line in split_run(case, plan, step - 1, case.steps()).log() if line["step"] == step)
    if abs(found["learning_rate"] - wanted) > assertion["rel"] * wanted:
        raise Failed(f"the rate of step {step} is {found['learning_rate']}, uninterrupted {wanted}")


def samples_seen(case, assertion, plan):
    match = re.fullmatch(r"(\d+) steps", assertion["after"])
    if not match or assertion["value"] != "same as uninterrupted":
        raise Missing(f"samples \"{assertion['value']}\" after \"{assertion['after']}\"")
    steps = int(match[1])
    after = next((other["save_after"] for other in case.assertions if other["type"] == "resume_equals_uninterrupted"
                  and other["steps"] == steps), steps // 2)
    whole, parts = saved_run(case, plan, steps), split_run(case, plan, after, steps)
    if parts.log() and [line["counted_labels"] for line in parts.log()] != [
            line["counted_labels"] for line in whole.log()[after:]]:
        raise Failed("steps behind the resume count other labels")
    for run in (whole, parts):
        seen = json.loads(tool(case, "inspect", run.checkpoint(steps), "--json"))["next_sample"]
        if seen != steps * case.batch["sequences"]:
            raise Failed(f"{seen} samples are behind, expected {steps * case.batch['sequences']}")


def removed(assertion, names):
    """What each change of the assertion leaves of a file: {name: new name}, None where the header names one twice."""
    change = assertion["change"]
    if change == "one tensor removed or renamed to an existing name":
        first, second = sorted(names)[:2]
        return {f"{first} removed": ({name: name for name in names if name != first}, [first]),
                f"{first} renamed to {second}": ({name: second if name == first else name for name in names}, [])}
    match = re.fullmatch(r"(\S+) removed", change)
    gone = [name for name in names if match and f"{match[1]}." in f"{name}."]
    if not gone:
        raise Missing(f"change \"{change}\"")
    return {change: ({name: name for name in names if name not in gone}, [])}


def rewritten(source, target, names):
    """A safetensors file of those tensors, under those names, twice if they say so."""
    content = source.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8:8 + size])
    entries, parts, end = [], [], 0
    for name, new in names.items():
        entry, part = header[name], content[8 + size:][slice(*header[name]["data_offsets"])]
        entries.append(f"{json.dumps(new)}:" + json.dumps({**entry, "data_offsets": [end, end + len(part)]}))
        parts.append(part)
        end += len(part)
    text = ("{" + ",".join(entries) + "}").encode()
    text += b" " * (-len(text) % 8)
    target.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))


def load_fails_if(case, assertion, plan):
    """As initial weights, and as an imported folder that a run is to go on from."""
    source = saved_run(case, plan, 1)
    names = list(tensors.read(source.saved))
    for what, (left, mention) in removed(assertion, names).items():
        run = Run(case, plan, "refused")
        hub = run.folder / "hub"
        hub.mkdir()
        rewritten(source.saved, hub / "model.safetensors", left)
        messages = [run.train(1, "--weights", hub / "model.safetensors", fails=True)]
        code, _, stderr = case.heddle.run([case.heddle.program, "checkpoint", "import-hf", hub, run.checkpoints])
        if code not in (0, 2):
            raise Failed(f"import of a folder with {what} ended with exit code {code}: {stderr.strip()[-300:]}")
        messages.append(run.train(1, "--resume", fails=True) if code == 0 else stderr)
        for message in messages:
            for word in [*mention, *assertion.get("mention", [])]:
                if word not in message:
                    raise Failed(f"{what}: the message does not name {word}: {message.strip()[:300]}")
            if not message.strip():
                raise Failed(f"{what}: there is no message")


def branches_around(text, position):
    """Conditions of the blocks that a place of C++ text is in."""
    open_blocks, found = [], []
    for match in re.finditer(r"[{}]|" + BRANCH.pattern, text[:position]):
        if match[0] == "{":
            head = text[max(text.rfind(";", 0, match.start()), text.rfind("}", 0, match.start()),
                            text.rfind("{", 0, match.start())) + 1:match.start()]
            open_blocks.append(head)
        elif match[0] == "}":
            open_blocks.pop()
    found = [head for head in open_blocks if BRANCH.search(head)]
    line = text[max(text.rfind(mark, 0, position) for mark in ";{}") + 1:position]
    return found + ([line] if BRANCH.search(line) else [])


def no_collective_under_rank_condition(case, assertion, plan):
    """In the program's text; that ranks agree at all is recorded besides."""
    source = case.compiled(plan) / "program" / "step.cpp"
    text = re.sub(r"//[^\n]*", "", source.read_text())
    calls = list(COLLECTIVE.finditer(text))
    if not calls:
        raise Failed("the program has no collective")
    for call in calls:
        for condition in branches_around(text, call.start()):
            if re.search(r"\brank\b", condition):
                raise Failed(f"{call[0]}...) is under a condition of the rank: {condition.strip()[:200]}")
    try:
        case.record(plan)
    except Refused as reason:
        raise Failed(str(reason)) from None
