"""Memory of a case's plan as `heddle plan` estimates it, every choice fixed."""

import json

import translate
from outcome import Failed, Missing

# Numbers of a device large enough for any plan: its bytes are asked for, not whether it fits.
DEVICE = {"memory_gib": 1000000, "memory_gbytes_per_s": 3350, "multiprocessors": 132,
          "peak_tflops": {"fp32": 67, "bf16": 989}}
SCHEDULES = {"none": "none", "1f1b": "one_f_one_b", "interleaved": "interleaved_1f1b", "gpipe": "gpipe"}
TRAIN = {"sequence_length": 0, "global_batch": 0, "precision": [], "optimizer": {"type": "adamw", "lr": 1e-4}}


def choices(plan):
    """The plan as demands of `heddle plan`."""
    schedule = SCHEDULES.get(plan.get("schedule", "none"))
    if schedule is None:
        raise Missing(f"schedule {plan['schedule']}")
    fixed = {"pp": plan.get("pp", 1), "dp": plan["dp"], "cp": plan.get("cp", 1), "tp": plan["tp"],
             "ep": plan.get("ep", 1), "micro_batches": plan["microbatches"], "zero": plan.get("zero", 0),
             "sp": str(bool(plan.get("sp"))).lower(), "chunks": plan.get("vpp", 1), "recompute": "none",
             "schedule": schedule if plan.get("pp", 1) > 1 else "none"}
    if plan.get("recompute", "none") != "none":
        raise Missing(f"recompute {plan['recompute']}")
    return [f"{key}={value}" for key, value in fixed.items()]


PLANNER_SAYS = {"memory_bytes", "memory_invariant", "memory_ratio", "planner_never_proposes"}


def is_planned_only(case):
    """Whether the family has no program, and the case asks what the planner says of it."""
    return ("config_ref" not in case.model
            and case.model.get("model_type") in translate.PLANNED_FAMILIES - translate.FAMILIES
            and any(each["type"] in PLANNER_SAYS for each in case.assertions))


def require_plan(plan):
    """As translate.require_plan, of what is only planned."""
    choices(plan)
    if plan.get("precision", "fp32") not in translate.PRECISIONS:
        raise Missing(f"precision {plan['precision']}")


def planned(case, plan):
    """The one plan of `heddle plan` with all of that fixed."""
    def make():
        precision = plan.get("precision", "fp32")
        recipe = translate.PRECISIONS.get(precision)
        if recipe is None or precision in translate.WITHOUT_MASTERS.values():
            raise Missing(f"precision {precision}")
        train = {**TRAIN, "sequence_length": case.batch["seq_len"], "global_batch": case.batch["sequences"],
                 "precision": [recipe]}
        if case.train and case.train.get("optimizer") == "sgd":
            train["optimizer"] = {"type": "sgd", "lr": 0.1}
        ranks = plan.get("pp", 1) * plan["dp"] * plan.get("cp", 1) * plan["tp"]
        cluster = {"name": "any", "nodes": 1, "devices_per_node": ranks, "device": DEVICE,
                   "links": [{"level": "node", "gbytes_per_s": 100}]}
        fixed = [word for choice in choices(plan) for word in ("--fix", choice)]
        answer = case.heddle.answer(["plan", case.planning_config_file(), "--cluster",
                                     case.write("cluster.yaml", json.dumps(cluster)), "--train",
                                     case.write("train.yaml", json.dumps(train)), "--top", 1, *fixed])
        if not answer.get("fits"):
            raise Failed(f"heddle plan finds no plan with {' '.join(choices(plan))}")
        return answer["plans"][0]
    return case.once(["planned", plan], make)


def stage_of(scope):
    """Of "stage 1, one rank"; 0 where no stage is named."""
    words = scope.replace(",", "").split()
    return int(words[1]) if words[:1] == ["stage"] else 0


def require_within(found, expected, rel, what):
    if abs(found - expected) > rel * abs(expected):
        raise Failed(f"{what}: {found}, expected {expected} (relative {rel})")


def memory_bytes(case, assertion, plan):
    if assertion["component"] != "parameters+gradients+optimizer":
        raise Missing(f"bytes of {assertion['component']}")
    states = planned(case, plan)["memory"]["place_state_bytes"]
    require_within(states[stage_of(assertion.get("scope", ""))], assertion["value"], assertion["rel"],
                   assertion["component"])


def stage_parameters(case, assertion, plan):
    """Parameters of a rank of a stage."""
    found = planned(case, plan)["memory"]["place_parameters"][stage_of(assertion["scope"])]
    require_within(found, assertion["value"], 0, f"parameters of {assertion['scope']}")


def experts_over(case, plan, sizes, key):
    """What a rank has of the experts, for sizes of ep."""
    return [planned(case, {**plan, "ep": size})["memory"]["experts"][key] for size in sizes]


def memory_invariant(case, assertion, plan):
    if assertion["component"] != "expert activations" or not assertion["over"].startswith("ep in "):
        raise Missing(f"{assertion['component']} over {assertion['over']}")
    sizes = [int(size) for size in assertion["over"].removeprefix("ep in ").split(",")]
    found = experts_over(case, plan, sizes, "activation_bytes_per_layer")
    if not found[0] or any(each != found[0] for each in found):
        raise Failed(f"expert activations are {found} for ep {sizes}")
    if experts_over(case, plan, sizes[-1:], "worst_bytes") == [0]:
        raise Failed("the worst case is not told apart")


def memory_ratio(case, assertion, plan):
    if assertion["component"] != "expert weights" or not assertion["over"].startswith("ep "):
        raise Missing(f"{assertion['component']} over {assertion['over']}")
    sizes = [int(size) for size in assertion["over"].removeprefix("ep ").split("->")]
    first, last = experts_over(case, plan, sizes, "parameters_per_layer")
    require_within(last / first, assertion["value"], 0, "expert weights")
