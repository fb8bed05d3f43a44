"""Plans that a case leaves to `heddle plan`: what is "auto" is free, everything else is demanded."""

import filecmp
import json
import os
import re
import time

import planned
import translate
from case import find_config
from outcome import Failed, Missing, Refused

GIB = 2 ** 30
ENOUGH_GIB = 80
ALL_COUNTS = os.environ.get("HEDDLE_MATRIX_FULL") == "1"
STATE_BYTES = 16  # of a parameter, its gradient and AdamW's two numbers in fp32
OF_DEVICES = {"devices", "device_memory_gib", "host_alloc_limit_bytes", "pin", "device_memory_bytes"}
EMITTED = ("step.cpp", "kernels.h", "numbers.bin", "tables.bin")


def is_searched(plan):
    return "auto" in plan.values()


def require_plan(plan):
    """As translate.require_plan, of a plan with free choices."""
    fixed = {key: value for key, value in plan.items() if value != "auto" and key not in OF_DEVICES}
    translate.require_plan(fixed)


def demands(plan):
    fixed = {key: value for key, value in plan.items() if value != "auto"}
    free = plan.keys() - fixed.keys()
    asked = planned.choices({**{key: 1 for key in free}, **fixed})
    # Without stages there is one schedule; how many there are is free with pp.
    return [each for each in asked if each.split("=")[0].replace("micro_batches", "microbatches") not in free
            and not ("pp" in free and each.startswith(("schedule=", "chunks=")))]


def files(case, config, train, devices, memory_gib, batch=None):
    """The options of `heddle plan` that name files."""
    batch = batch or case.batch
    cluster = {"name": "searched", "nodes": 1, "devices_per_node": devices,
               "device": {**planned.DEVICE, "memory_gib": memory_gib}, "links": [{"level": "node", "gbytes_per_s": 450}]}
    settings = {**planned.TRAIN, "sequence_length": batch["seq_len"], "global_batch": batch["sequences"],
                "precision": ["fp32"]}
    if train and train.get("optimizer") == "sgd":
        settings["optimizer"] = {"type": "sgd", "lr": train["lr"]}
    return [config, "--cluster", case.write("cluster.yaml", json.dumps(cluster)), "--train",
            case.write("train.yaml", json.dumps(settings))]


def search(case, options, asked, more=()):
    """The answer of `heddle plan`; None where it says that nothing fits, with a reason."""
    words = [word for each in asked for word in ("--fix", each)]
    command = [case.heddle.program, "plan", *options, "--json", *words, *more]
    code, stdout, stderr = case.heddle.run(command)
    if code == 1:
        if "no plan" not in stderr:
            raise Failed(f"no plan, and no reason: {stderr[:200]}")
        return None
    if code != 0:
        raise Refused(stderr.strip())
    return json.loads(stdout)


def number_of(plan, key):
    return int(plan["choices"][key])


def holds(expression, plan):
    """Of "tp >= 2 or cp >= 2 or recompute", with what the plan chose."""
    for term in expression.split(" or "):
        found = re.fullmatch(r"(\w+)(?: >= (\d+))?", term.strip())
        if not found:
            raise Missing(f"expression {expression}")
        key, least = found.groups()
        if number_of(plan, key) >= int(least) if least else plan["choices"][key] != "none":
            return True
    return False


def planner_finds_plan(case, assertion, plan):
    """A case that has no plan of its own names devices, their memory and what the plan shall be."""
    config = find_config(assertion["config"], case.source) if "config" in assertion else case.config_file()
    if "config" in assertion:
        translate.require_family(json.loads(config.read_text()), translate.PLANNED_FAMILIES)
    asked = demands(plan) if is_searched(plan) else []
    devices = assertion.get("devices", plan.get("devices"))
    memory = assertion.get("device_memory_gib", plan.get("device_memory_gib", ENOUGH_GIB))
    if "host_alloc_limit_bytes" in plan:
        memory = limited(case, plan, asked, devices) / GIB
    batch = case.batch if case.batch["seq_len"] else {"seq_len": 1024, "sequences": 8 * devices}
    answer = search(case, files(case, config, case.train, devices, memory, batch), asked, ("--top", 1, "--limit", 20000))
    if answer is None:
        raise Failed(f"heddle plan finds none for {devices} devices of {memory:.4g} GiB")
    best = answer["plans"][0]
    if "expr" in assertion and not holds(assertion["expr"], best):
        raise Failed(f"the best plan is {best['text']}, expected {assertion['expr']}")
    return best["text"]


def ends_in_time(case, assertion, plan):
    begin = time.monotonic()
    search(case, files(case, case.config_file(), case.train, plan["devices"], ENOUGH_GIB), demands(plan))
    if time.monotonic() - begin > assertion["timeout_s"]:
        raise Failed(f"the search took more than {assertion['timeout_s']} s")


def limited(case, plan, asked, devices):
    """A device that has room for all states and the libraries' workspaces, and for half of one unsharded activation of the MLP of the smallest
    micro-batch: what cannot be allocated there cannot be chosen."""
    if plan["host_alloc_limit_bytes"] != "half of the unsharded MLP activation":
        raise Missing(f"host_alloc_limit_bytes {plan['host_alloc_limit_bytes']}")
    whole = search(case, files(case, case.config_file(), case.train, devices, ENOUGH_GIB), [*asked, "tp=1"])
    if whole is None:
        raise Failed("no plan at all with tp=1")
    states = min(each["memory"]["model_state_bytes"] + each["memory"]["by_reason"].get("workspaces of libraries", 0)
                 for each in whole["plans"])
    tokens = case.batch["seq_len"] * case.batch["sequences"] // devices
    return states + tokens * case.config()["intermediate_size"] * 4 // 2


def planner_never_proposes(case, assertion, plan):
    """The search lists no such plan, and refuses it by name where it is demanded."""
    config = find_config(assertion["config"], case.source)
    translate.require_family(json.loads(config.read_text()), translate.PLANNED_FAMILIES)
    batch = {"seq_len": 1024, "sequences": 8 * assertion["devices"]}
    options = files(case, config, None, assertion["devices"], ENOUGH_GIB, batch)
    asked = [f"{key}={value}" for key, value in assertion["plan"].items()]
    answer = search(case, options, asked)
    if answer is not None:
        raise Failed(f"heddle plan proposes {answer['plans'][0]['text']}")
    free = search(case, options, (), ("--limit", 20000, "--top", 20))
    for each in free["plans"] if free else []:
        if all(each["choices"][key] == str(value) for key, value in assertion["plan"].items()):
            raise Failed(f"heddle plan proposes {each['text']}")


def device_counts(text):
    first, last = str(text).split("..")
    return range(int(first), int(last) + 1)


def planner_plans_all_compile(case, assertion, plan):
    """Every plan for every configuration is taken by the compiler, whose checks are not the planner's. Plans that
    differ in dp alone are compiled once."""
    folder = find_config(case.model["config_ref"].replace("*.json", "README.md"), case.source).parent
    compiled, counts, without = set(), [0, 0], set()
    for number, config in enumerate(sorted(folder.glob("*.json"))):
        keys = json.loads(config.read_text())
        family = keys.get("model_type")
        if family not in translate.FAMILIES:
            without.add(family)
            continue
        states = STATE_BYTES * case.heddle.explain(config)["parameters"]
        for devices in device_counts(plan["devices"]):
            if not ALL_COUNTS and (number + devices) % 8:
                continue  # each count for every eighth configuration
            if states > devices * plan["device_memory_gib"] * GIB:
                continue  # without ZeRO nothing fits
            # Learned positions end where they end.
            batch = {**case.batch, "seq_len": min(case.batch["seq_len"], keys.get("n_positions", case.batch["seq_len"]))}
            options = files(case, config, case.train, devices, plan["device_memory_gib"], batch)
            answer = search(case, options, demands(plan))
            for found in answer["plans"] if answer else []:
                counts[0] += 1
                sizes = tuple(number_of(found, key) for key in ("pp", "tp"))
                if (config, sizes) in compiled or found["not_compiled_yet"]:
                    continue
                compiled.add((config, sizes))
                require_compiled(case, options, found, config)
    counts[1] = len(compiled)
    if not counts[1]:
        raise Failed("no plan was compiled")
    return f"{counts[0]} plans, {counts[1]} of them compiled; without families {', '.join(sorted(without))}"


def require_compiled(case, options, found, config):
    file = case.write("plan.json", json.dumps(found["plan"]))
    code, _, stderr = case.heddle.run([case.heddle.program, "explain", options[0], *options[3:5], "--plan", file])
    if code != 0:
        raise Failed(f"{config.name}: the compiler refuses {found['text']}: {stderr[:300]}")


def plan_export_roundtrip(case, assertion, plan):
    """The best plan is written, the same each time; from the file the same program is made, which equals one device."""
    options = files(case, case.config_file(), case.train, plan["devices"], ENOUGH_GIB)
    written = [case.folder / f"exported-{i}.json" for i in range(2)]
    answers = [search(case, options, demands(plan), ("-o", path)) for path in written]
    if None in answers or not all(path.exists() for path in written):
        raise Failed("no plan was written")
    if json.loads(written[0].read_text()) != answers[0]["plans"][0]["plan"]:
        raise Failed("the plan that is told is not the one that is written")
    if written[0].read_bytes() != written[1].read_bytes():
        raise Failed("the same search wrote two plans")
    folders = [case.folder / f"exported-{i}" for i in range(2)]
    for path, folder in zip(written, folders):
        case.heddle.compile(options[0], path, options[4], options[2], folder)
    for name in EMITTED:
        if not filecmp.cmp(folders[0] / "program" / name, folders[1] / "program" / name, shallow=False):
            raise Failed(f"two programs of one plan differ in {name}")
    answer = case.heddle.answer(["verify", options[0], "--plan", written[0], "--train", options[4]])
    if not answer["equal"]:
        raise Failed(f"the exported plan is not equal to one device: {answer['loss']}")
    return answers[0]["plans"][0]["text"]
