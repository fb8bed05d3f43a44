"""How many numbers of parameters a run changes, with masters and without."""

import array

import data
import tensors
import translate
from case import matching
from outcome import Failed, Missing


def saved_after(case, plan, steps):
    """Parameters as they are computed with behind so many steps of the program, and what compiling it says."""
    def make():
        _, message = case.compiled_aloud(plan)
        batch, saved = (case.write(name, "") for name in ("batch.safetensors", "saved.safetensors"))
        tensors.write(batch, data.as_tensors(case.make_batch(steps)))
        case.heddle.train(case.compiled(plan), batch, saved, steps, case.weights_file())
        return tensors.read(saved), message
    return case.once(["saved after", plan, steps], make)


def rounded(values):
    """To bf16, to the nearest, ties to even: what a parameter without a master begins as."""
    words = array.array("I", array.array("f", values).tobytes())
    return array.array("f", array.array("I", [(word + 0x7FFF + (word >> 16 & 1)) & 0xFFFF0000 for word in words]).tobytes())


def part_moved(before, after):
    return sum(a not in unmoved for *unmoved, a in zip(before, rounded(before), after)) / len(after)


def fraction_moved(case, assertion, plan):
    """Of each matching parameter, the part of its numbers that the steps change: at least `min`. Without masters it is
    less, and the compiler says that there are none."""
    if plan.get("precision") not in translate.WITHOUT_MASTERS:
        raise Missing(f"precision {plan.get('precision')} without masters")
    steps, weights = assertion["after_steps"], case.weights()
    before = {name: array.array("f", weights[name][2]) for name in matching(weights, assertion["params"])}

    def least(variant):
        after, message = saved_after(case, variant, steps)
        moved = {name: part_moved(numbers, after[name][1]) for name, numbers in before.items()}
        name = min(moved, key=moved.get)
        return name, moved[name], message

    name, found, _ = least(plan)
    if found < assertion["min"]:
        raise Failed(f"{steps} steps change {found:.0%} of {name}, expected {assertion['min']:.0%}")
    name, found, message = least({**plan, "precision": translate.WITHOUT_MASTERS[plan["precision"]]})
    if found >= assertion["min"]:
        raise Failed(f"without masters {steps} steps change {found:.0%} of {name} too: the case shows nothing")
    if "without an fp32 master" not in message:
        raise Failed("a plan without masters is compiled without a word")
