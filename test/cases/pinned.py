"""Parameters that a case pins to a placement, in plans that `heddle plan` finds within a budget of memory."""

import json
import re

import searched
from outcome import Failed, Missing

ALMOST_NONE = 2 ** -20  # GiB of a device
ROOMY = 2.0  # times the least that a plan needs


def pins_of(plan):
    wrong = {name: place for name, place in plan["pin"].items() if place != "replicated"}
    if wrong:
        raise Missing(f"pin {wrong}")
    return [word for name, place in plan["pin"].items() for word in ("--pin", f"{name}={place}")]


def ask(case, plan, memory_bytes, pins):
    """(answer, message) of `heddle plan` where a device has so many bytes."""
    options = searched.files(case, case.config_file(), case.train, plan["devices"], memory_bytes / searched.GIB)
    words = [word for each in searched.demands(plan) for word in ("--fix", each)]
    code, stdout, stderr = case.heddle.run([case.heddle.program, "plan", *options, "--json", *words, *pins])
    if code not in (0, 1):
        raise Failed(f"exit code {code}: {stderr[:200]}")
    return json.loads(stdout), stderr


def least_bytes(case, plan):
    """With which the pinned parameter fits."""
    def make():
        answer, _ = ask(case, plan, ALMOST_NONE * searched.GIB, pins_of(plan))
        return answer["conflict"]["least_bytes"]
    return case.once(["least bytes", plan], make)


def budget_of(case, plan):
    """The libraries' workspaces, which no plan changes, and that part of what is needed beside them."""
    found = re.fullmatch(r"([\d.]+) x minimum", str(plan["device_memory_bytes"]))
    if not found:
        raise Missing(f"device_memory_bytes {plan['device_memory_bytes']}")
    least = least_bytes(case, plan)
    answer, _ = ask(case, plan, ROOMY * least, pins_of(plan))
    libraries = min(each["memory"]["by_reason"].get("workspaces of libraries", 0) for each in answer["plans"])
    return libraries + float(found[1]) * (least - libraries)


def conflict_of(case, plan):
    """What is said where the pin does not fit."""
    answer, message = ask(case, plan, budget_of(case, plan), pins_of(plan))
    if answer["fits"]:
        raise Failed(f"a plan is told that does not fit: {answer['plans'][0]['text']}")
    return message


def is_whole(found, name):
    """Whether each rank computes with all of the parameter, and stores all of it."""
    sizes = dict(found["mesh"])
    split = {}
    for rule in found["tensor"]["parameters"]:
        if name in rule["match"]:
            split = rule["split"]
    parts = any(sizes.get(axis, 1) > 1 for axes in split.values() for axis in axes)
    return not parts and (found["zero"]["stage"] < 3 or found["zero"]["shard_group"] == 1)


def no_silent_violation(case, assertion, plan):
    """No plan where it does not fit; where it does, the parameter is where it was pinned."""
    conflict_of(case, plan)
    answer, _ = ask(case, plan, ROOMY * least_bytes(case, plan), pins_of(plan))
    if not answer["fits"]:
        raise Failed(f"no plan with {ROOMY} times the least bytes")
    for found in answer["plans"]:
        for name in plan["pin"]:
            if not is_whole(found["plan"], name):
                raise Failed(f"{name} is not whole in {found['text']}")
