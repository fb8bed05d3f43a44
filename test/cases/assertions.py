"""One function per assertion type; TABLE at the end names them all.

A function gets the case, the assertion and the plan under which it is to hold. It
returns a word for the report or None, raises Failed where the assertion does not
hold and Missing where it cannot be run as stated. What Heddle refuses raises
Refused, which the caller judges.
"""

import json
import math
import pathlib
import re

import data
import initial
import masks
import masters
import messages
import order
import pinned
import planned
import resuming
import scaling
import searched
import tensors
import translate
from case import find_config, matching
from outcome import Failed, Missing, Refused

# What a case calls a quantity, and what a user of Heddle calls it.
SYNONYMS = {
    "sequences": ["global_batch", "global batch"], "seq_len": ["sequence_length"], "doc_lengths": ["documents"],
    "num_attention_heads": ["n_head"], "hidden_size": ["n_embd"], "intermediate_size": ["n_inner"],
    "microbatches": ["micro_batches"], "zero": ["zero.stage"], "force_cut": ["stages.layers"]}
ONE_DEVICE = ("single_device", "single_device_same_precision", "single_device_same_seed")
SAVING = ("same plan with recompute=none", "same plan with recompute=none, same seed")
ONE_BY_ONE = "documents run one by one on one device, label-weighted"


# Helpers

def require_words(message, words):
    absent = [word for word in words if not any(
        re.search(rf"(?<![A-Za-z]){re.escape(name)}(?![A-Za-z])", message) for name in [word, *SYNONYMS.get(word, [])])]
    if absent:
        raise Failed(f"the message does not name {', '.join(absent)}: {message[:300]}")


def require_number(value, what):
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise Failed(f"{what} is {value}")
    return value


def require_close(found, expected, assertion, what):
    require_number(found, what)
    difference = abs(found - require_number(expected, f"reference of {what}"))
    relative = difference / abs(expected) if expected else math.inf
    if not (("abs" in assertion and difference <= assertion["abs"])
            or ("rel" in assertion and relative <= assertion["rel"]) or difference == 0):
        bound = " or ".join(f"{key} {assertion[key]}" for key in ("abs", "rel") if key in assertion)
        raise Failed(f"{what} is {found}, expected {expected} (difference {difference:.2e}, allowed {bound or 'none'})")


def require_reference(assertion, known=ONE_DEVICE):
    reference = assertion.get("ref", "single_device")
    if reference not in known:
        raise Missing(f"reference \"{reference}\"")
    return reference


def field(answer, *path):
    for key in path:
        if key not in answer:
            raise Failed(f"the answer has no {'.'.join(path)}")
        answer = answer[key]
    return answer


def selected(case, pattern):
    shapes = case.shapes()
    if pattern == "matrices":
        return [name for name, shape in shapes.items() if len(shape) > 1]
    return matching(shapes, pattern)


def require_tensors_close(case, entries, assertion, what):
    """Each selected parameter is there and within the tolerance."""
    relative = {entry["name"]: entry["relative"] for entry in entries}
    names = selected(case, assertion["params"])
    absent = [name for name in names if name not in relative]
    if absent:
        raise Failed(f"the answer has no {what} of {absent[0]}" + (f" and {len(absent) - 1} more" if absent[1:] else ""))
    wrong = [name for name in names if not require_number(relative[name], f"{what} of {name}") <= assertion["rel"]]
    if wrong:
        worst = max(wrong, key=relative.get)
        raise Failed(f"{what} of {worst} differs by {relative[worst]:.2e}, allowed {assertion['rel']:.0e}"
                     f" ({len(wrong)} of {len(names)} differ)")


# Values of a run

def loss_close(case, assertion, plan):
    if require_reference(assertion, (*ONE_DEVICE, ONE_BY_ONE)) == ONE_BY_ONE:
        return require_close(field(case.verify(plan), "loss", "plan"), loss_one_by_one(case), assertion, "loss")
    answer = case.verify(plan)
    require_close(field(answer, "loss", "plan"), field(answer, "loss", "reference"), assertion, "loss")
    if case.steps() > 1:
        steps = field(answer, "steps")
        if len(steps) != case.steps():
            raise Failed(f"{len(steps)} steps were run, expected {case.steps()}")
        for number, step in enumerate(steps, 1):
            require_close(field(step, "loss", "plan"), field(step, "loss", "reference"), assertion,
                          f"loss of step {number}")
    return None


def loss_one_by_one(case):
    """Each document as a sequence of its own on one device, weighted by counted labels."""
    if "doc_lengths" not in case.batch:
        raise Missing("documents without doc_lengths")
    rows, total, count = case.make_batch(), 0.0, 0
    for tokens, labels, documents in zip(rows["tokens"], rows["labels"], rows["documents"]):
        for document in sorted(set(documents)):
            own = [i for i, number in enumerate(documents) if number == document]
            one = {"tokens": [[tokens[i] for i in own]], "labels": [[labels[i] for i in own]]}
            counted = data.count_of(one["labels"])
            if counted:
                answer = case.verify({"dp": 1, "tp": 1, "microbatches": 1}, steps=1, batch=one)
                total += counted * require_number(field(answer, "loss", "plan"), "loss of a document")
                count += counted
    return total / count


def loss_value(case, assertion, plan):
    given = None
    if "given" in assertion:
        name, _, value = assertion["given"].partition("=")
        try:
            given = {name.strip(): float(value)}
        except ValueError:
            raise Missing(f"given \"{assertion['given']}\"") from None
    answer = case.verify(plan, given=given)
    require_close(field(answer, "loss", "plan"), assertion["value"], assertion, "loss")


def gradients_of(case, plan):
    """{name: values} of a plan's gradients."""
    path = pathlib.Path(case.verify(plan)["dump"]) / "plan.safetensors"
    if not path.exists():
        raise Failed(f"--dump did not write {path.name}")
    dumped = case.once(["read", str(path)], lambda: tensors.read(path))
    return {name.removeprefix("gradient."): values for name, (_, values) in dumped.items()
            if name.startswith("gradient.")}


def distances(found, expected):
    """As `heddle verify` answers them: L2 norm of the difference over that of the reference."""
    for name, values in expected.items():
        if name in found:
            norm = math.sqrt(sum(value * value for value in values))
            difference = math.sqrt(sum((a - b) ** 2 for a, b in zip(found[name], values)))
            yield {"name": name, "relative": difference / norm if norm else difference}


def grad_close(case, assertion, plan):
    if require_reference(assertion, (*ONE_DEVICE, *SAVING)) in SAVING:
        entries = distances(gradients_of(case, plan), gradients_of(case, {**plan, "recompute": "none"}))
        return require_tensors_close(case, list(entries), assertion, "gradient")
    if assertion.get("at_step", 1) not in (1, [1]):
        raise Missing("gradients of later steps")
    require_tensors_close(case, field(case.verify(plan), "gradients"), assertion, "gradient")


def param_close(case, assertion, plan):
    require_reference(assertion)
    answer = case.verify(plan, steps=assertion.get("after_steps", 1))
    require_tensors_close(case, field(answer, "parameters"), assertion, "parameter")


def replicas_bitwise_equal(case, assertion, plan):
    """The answer speaks of all copies of all parameters over every axis."""
    answer = case.verify(plan, steps=assertion.get("after_steps"))
    if field(answer, "replicas_equal") is not True:
        raise Failed(f"replicas differ over {assertion['axis']}")


def finite(case, assertion, plan):
    answer = case.verify(plan)
    require_number(field(answer, "loss", "plan"), "loss")
    for entry in field(answer, "gradients"):
        require_number(entry["relative"], f"gradient of {entry['name']}")


def scalar_close(case, assertion, plan):
    if assertion["name"].startswith("lr_at_step_") and assertion.get("ref") == "uninterrupted":
        return resuming.rate_as_uninterrupted(case, assertion, plan)
    require_reference(assertion)
    names = {"grad_norm": "gradient_norm", "loss": "loss"}
    if assertion["name"] not in names:
        raise Missing(f"scalar {assertion['name']}")
    name = names[assertion["name"]]
    answer = case.verify(plan)
    require_close(field(answer, name, "plan"), field(answer, name, "reference"), assertion, assertion["name"])


def scalar_equals(case, assertion, plan):
    if assertion["name"] != "counted_labels":
        raise Missing(f"scalar {assertion['name']}")
    found = field(case.verify(plan), "counted_labels")
    require_close(found, assertion["value"], {"abs": assertion.get("abs", 0)}, "counted_labels")


def influence(case, assertion, plan):
    """Labels are counted at the positions in question alone: their loss is the same
    bits after the token is changed, that of the token itself is not."""
    place = re.fullmatch(r"(?:row (\d+), )?token (\d+)", assertion.get("perturb", ""))
    span = re.fullmatch(r"(\d+)\.\.(\d+)", assertion.get("unchanged_positions", ""))
    if not place or not span:
        raise Missing("influence other than of one token on a span of unchanged_positions")
    row, token = int(place[1] or 0), int(place[2])
    first, last = int(span[1]), int(span[2])
    rows = case.make_batch()
    changed = {**rows, "tokens": [list(tokens) for tokens in rows["tokens"]]}
    changed["tokens"][row][token] = (changed["tokens"][row][token] + 1) % case.config()["vocab_size"]

    def loss(batch, low, high):
        labels = [[label if r == row and low <= i <= high else data.IGNORED for i, label in enumerate(line)]
                  for r, line in enumerate(rows["labels"])]
        answer = case.verify(plan, steps=1, batch={**batch, "labels": labels})
        return require_number(field(answer, "loss", "plan"), "loss")

    before, after = loss(rows, first, last), loss(changed, first, last)
    if before != after:
        raise Failed(f"token {token} of row {row} changes the loss at {first}..{last} from {before} to {after}")
    if loss(rows, token, token) == loss(changed, token, token):
        raise Failed(f"changing token {token} of row {row} does not even change the loss of its own position")


def no_hang(case, assertion, plan):
    if searched.is_searched(plan):
        return searched.ends_in_time(case, assertion, plan)
    try:
        seconds = case.verify(plan)["seconds_taken"]
    except Refused:
        return  # it ended, and with a message
    if seconds > assertion["timeout_s"]:
        raise Failed(f"took {seconds:.0f} s, allowed {assertion['timeout_s']}")


def param_scaled(case, assertion, plan):
    """Parameters after a step over those before it."""
    for name in selected(case, assertion["params"]):
        before, after = before_and_after(case, name, plan)
        scaled = [value * assertion["factor"] for value in before]
        difference = math.dist(after, scaled) / (math.hypot(*scaled) or 1)
        if not difference <= assertion["rel"]:
            raise Failed(f"{name} is not {assertion['factor']} times what it was: differs by {difference:.2e}")


def params_unchanged(case, assertion, plan):
    for name in selected(case, assertion["params"]):
        before, after = before_and_after(case, name, plan)
        if before != after:
            raise Failed(f"{name} has changed")


def before_and_after(case, name, plan):
    path = pathlib.Path(case.verify(plan)["dump"]) / "plan.parameters.safetensors"
    if not path.exists():
        raise Failed(f"--dump did not write {path.name}")
    after = case.once(["read", str(path)], lambda: tensors.read(path))
    before = case.once(["read weights"], lambda: tensors.read(case.weights_file()))
    if name not in after:
        raise Failed(f"{path.name} has no {name}")
    return before[name][1], after[name][1]


# Comparison of plans, refusals and messages

def other_values(case):
    return [other for other in case.assertions if other["type"] in VALUES and "under" not in other]


def same_result_under(case, assertion, plan):
    values, missing = other_values(case), []
    if not values:
        raise Missing("same_result_under without an assertion about a value")
    for other_plan in assertion["plans"]:
        for value in values:
            try:
                TABLE[value["type"]](case, value, other_plan)
            except Missing as reason:
                missing.append(str(reason))
            except (Failed, Refused) as reason:
                changed = {k: v for k, v in other_plan.items() if v != plan.get(k)}
                raise Failed(f"under {changed}: {value['type']}: {reason}") from None
    if missing:
        raise Missing(", ".join(dict.fromkeys(missing)))


def equal_or_reject(case, assertion, plan):
    try:
        answer = case.verify(plan)
    except Refused as refusal:
        require_words(str(refusal), assertion["mention"])
        case.accepted_refusals.append(plan)
        return f"refused by name: {str(refusal).splitlines()[0]}"
    values = other_values(case)
    for value in values:
        TABLE[value["type"]](case, value, plan)
    if not values and field(answer, "equal") is not True:
        raise Failed("neither equal to one device nor refused")
    return None


def reject_at_plan_time(case, assertion, plan):
    try:
        case.verify(plan)
    except Refused as refusal:
        require_words(str(refusal), assertion["mention"])
        return None
    raise Failed(f"was not refused; expected a message naming {', '.join(assertion['mention'])}")


def diagnostic(case, assertion, plan):
    """A message naming the words, be it an error or a warning."""
    if "pin" in plan:
        return require_words(pinned.conflict_of(case, plan), assertion["mention"])
    if not isinstance(assertion.get("given", {}), dict):
        raise Missing(f"given \"{assertion['given']}\"")
    if "given" not in assertion:  # the message is about the plan
        translate.require_plan(case.plan)
    config = case.config_file(assertion.get("given"))
    _, _, stderr = case.heddle.run([case.heddle.program, "explain", config, "--json"])
    require_words(stderr, assertion["mention"])


# Import

def param_count(case, assertion, plan):
    if assertion.get("scope", "model") != "model":
        return planned.stage_parameters(case, assertion, plan)
    if "config" in assertion:
        path = find_config(assertion["config"], case.source)
        translate.require_family(json.loads(path.read_text()), translate.PLANNED_FAMILIES)
        explanation = case.heddle.explain(path)
    else:
        explanation = case.explanation()
    found = field(explanation, "parameters")
    if found != assertion["value"]:
        raise Failed(f"{found} parameters, expected {assertion['value']}")


def param_shape(case, assertion, plan):
    for name in matching(case.shapes(), assertion["tensor"]):
        found = list(case.shapes()[name])
        if found != assertion["shape"]:
            raise Failed(f"{name} has shape {found}, expected {assertion['shape']}")


def decay_groups(case, assertion, plan):
    if assertion.get("no_decay") != "all norms, all biases":
        raise Missing(f"decay groups \"{assertion.get('no_decay')}\"")
    for entry in field(case.explanation(), "tensors"):
        expected = len(entry["shape"]) > 1 and not entry["name"].endswith("bias")
        if field(entry, "decay") is not expected:
            raise Failed(f"weight decay of {entry['name']} is {entry['decay']}, expected {expected}")


def imports_equal(case, assertion, plan):
    texts = []
    keys = {key for variant in assertion["variants"] for key in variant}
    for variant in assertion["variants"]:
        config = {key: value for key, value in case.config().items() if key not in keys}
        path = case.write("config.json", json.dumps({**config, **variant}))
        code, stdout, stderr = case.heddle.run([case.heddle.tool("heddle-translate"), "--import-model", path])
        if code != 0:
            raise Failed(f"{variant}: {stderr.strip()[:200]}")
        texts.append(stdout)
    if any(text != texts[0] for text in texts):
        raise Failed(f"the imports of {assertion['variants']} differ")


VALUES = {"loss_close", "loss_value", "grad_close", "param_close", "replicas_bitwise_equal", "finite", "scalar_close",
          "scalar_equals", "influence"}

TABLE = {function.__name__: function for function in (
    masks.dropout_masks, loss_close, loss_value, grad_close, param_close, replicas_bitwise_equal, finite, scalar_close,
    scalar_equals, influence, no_hang, param_scaled, params_unchanged, same_result_under, equal_or_reject, reject_at_plan_time, diagnostic,
    param_count, param_shape, decay_groups, imports_equal, messages.stage_partition, messages.parameter_copies,
    messages.p2p_sizes_match, messages.p2p_deadlock_free, planned.memory_bytes,
    planned.memory_invariant, planned.memory_ratio, searched.planner_finds_plan, searched.planner_never_proposes,
    searched.planner_plans_all_compile, searched.plan_export_roundtrip,
    scaling.params_unchanged_on_step, scaling.scalar_equal_on_all_ranks, initial.initial_params_bitwise_equal,
    initial.shards_differ, masters.fraction_moved, resuming.checkpoint_roundtrip, resuming.load_fails_if, resuming.export_shape,
    resuming.export_contains, resuming.state_bitwise_equal, resuming.resume_with_plan,
    order.happens_before, order.runs_bitwise_equal, pinned.no_silent_violation,
    resuming.resume_equals_uninterrupted, resuming.samples_seen, resuming.no_collective_under_rank_condition)}

# Types of the case format that wait for a feature, by that feature's name.
NOT_YET = {
    "initial_std_close": "initial weights of a run", "import_layout": "an export of what was imported",
    "work_per_rank": "context parallelism", "routing_identical": "mixture of experts",
    "scale_equal_in_group": "fp8", "output_error": "fp8",
    "ir_no_cast": "reduced precision", "each_gradient_element_reduced_once": "a trace of elements",
    "predicted_collectives_equal_traced": "predictions", "collective_ids_unique": "a program of an op graph",
    "collective_sequence_equal_on_all_ranks": "a program of an op graph",
    "constant_close": "a door to constants", "rope_table_close": "a door to constants",
    "memory_estimate_vs_measured": "memory estimates",
    "plan_property": "heddle plan",
    "op_result_equal": "an op graph", "op_result_value": "an op graph", "ir_verifier": "IR after every pass",
    "diagnostic_or_correct": "an op graph",
}
