"""Cases whose model is an `op_graph`: heddle-run-graph runs each output on whole
tensors and on all ranks. A graph that cannot be written in factor rules is refused
with a located error, which is an answer."""

import json
import re

import graphtext
from outcome import Failed, Missing, Refused

LOCATED = re.compile(r"\.mlir:\d+:\d+: error: .+")


def is_op_graph(model):
    return model.get("model_type") == "op_graph"


def located(stderr):
    """The first error that names a place."""
    found = LOCATED.search(stderr)
    if not found:
        raise Failed(f"no located error: {stderr[:300].strip()}")
    return found[0].partition("error: ")[2]


def run_text(case, name, text, inputs):
    graph = case.write(f"{name}.mlir", text)
    numbers = case.write(f"{name}.json", json.dumps(inputs))
    code, stdout, stderr = case.heddle.run([case.heddle.tool("heddle-run-graph"), graph, numbers])
    if code == 1:
        raise Refused(located(stderr))
    if code:
        raise Failed(f"heddle-run-graph: {stderr.strip()[:300]}")
    return json.loads(stdout)


def answer(case, output):
    """{whole, ranks} of one output; raises Refused."""
    def run():
        text, inputs = graphtext.graph_of(case.model, output)
        return run_text(case, output, text, inputs)["graph"][0]
    return case.once(["graph", output], run)


def over_outputs(case, outputs, check):
    """Calls check(output, answer); words for those that were refused."""
    refused = []
    for output in outputs:
        try:
            check(output, answer(case, output))
        except Refused as reason:
            refused.append(f"{output} is refused with a located error: {reason}")
    return "; ".join(refused) or None


def require_equal(what, found, expected, bound):
    if len(found) != len(expected):
        raise Failed(f"{what} has {len(found)} elements, expected {len(expected)}")
    for i, (one, other) in enumerate(zip(found, expected)):
        if not abs(one - other) <= bound:
            raise Failed(f"{what}[{i}] is {one}, expected {other}")


def op_result_equal(case, assertion):
    if assertion.get("ref") != "unsharded":
        raise Missing(f"reference {assertion.get('ref')}")
    if graphtext.is_every_reshard(case.model):
        return every_reshard(case, assertion)
    return over_outputs(case, case.model["outputs"], lambda output, found: require_equal(
        output, found["ranks"], found["whole"], assertion["abs"]))


def every_reshard(case, assertion):
    def run():
        return run_text(case, "reshards", *graphtext.every_reshard(case.model))
    functions = case.once("reshards", run)
    expected = graphtext.initial_values(case.model["inputs"][0])
    for name, (result,) in functions.items():
        require_equal(name, result["ranks"], expected, assertion["abs"])
    return f"{len(functions)} pairs"


def op_result_value(case, assertion):
    """Of the ranks' result; the whole one is no judge of itself."""
    values = assertion["values"]
    return over_outputs(case, values, lambda output, found: require_equal(
        output, found["ranks"], values[output] if isinstance(values[output], list) else [values[output]],
        assertion["abs"]))


def replicas_bitwise_equal(case, assertion):
    """heddle-run-graph compares all copies of each result."""
    return over_outputs(case, assertion["params"].split("|"), lambda output, found: None)


def ir_verifier(case, assertion):
    """Each op's verifier has run on the graph, before and after partitioning."""
    return over_outputs(case, case.model["outputs"], lambda output, found: None)


# The variants that SHD-07 names, each as IR text.
VARIANTS = {
    "4 over 3": ({"x": 3}, 'func.func @f(%a: tensor<4xf32, #dist.layout<#mesh, [{"x"}]>>) { return }'),
    "axis z not in mesh": ({"x": 3}, 'func.func @f(%a: tensor<6xf32, #dist.layout<#mesh, [{"z"}]>>) { return }'),
    "rank 1 with two dim shardings": (
        {"x": 3}, 'func.func @f(%a: tensor<6xf32, #dist.layout<#mesh, [{"x"}, {}]>>) { return }'),
    "mesh symbol that is not a mesh": (
        {"x": 3}, 'func.func private @pod()\nfunc.func @f(%a: tensor<6xf32, #dist.layout<@pod, [{"x"}]>>) { return }'),
    "unused argument 4096x14336": (
        {"x": 3}, 'module attributes {dist.mesh = #mesh, dist.values = {a = #dist.layout<#mesh, [{}, {}]>}} {\n'
        'func.func @f(%a: tensor<4096x14336xf32> {transformer.as = "a"}) { return }\n}'),
    "2x4 mesh, reshard [[x],[y]] -> [[],[x]]": (
        {"x": 2, "y": 4},
        '!from = tensor<8x8xf32, #dist.layout<#mesh, [{"x"}, {"y"}]>>\n'
        '!to = tensor<8x8xf32, #dist.layout<#mesh, [{}, {"x"}]>>\n'
        "module attributes {dist.mesh = #mesh} {\n"
        "func.func @f(%a: !from) -> !to {\n  %b = dist.reshard %a : !from -> !to\n  return %b : !to\n}\n}"),
}
MUST_BE_ACCEPTED = {"unused argument 4096x14336", "2x4 mesh, reshard [[x],[y]] -> [[],[x]]"}
PASSES = ("--sharding-verify-layouts", "--collectives-partition", "--collectives-verify")


def diagnostic_or_correct(case, assertion):
    """Each variant goes through Sharding and Collectives or gets a located error;
    none ends in a signal."""
    variants = case.model.get("variants", [])
    unknown = [variant for variant in variants if variant not in VARIANTS]
    if unknown or not variants:
        raise Missing(f"variants {unknown}" if unknown else "an op graph without variants")
    for variant in variants:
        mesh, text = VARIANTS[variant]
        path = case.write("variant.mlir", f"{graphtext.mesh_text(mesh)}\n{text}\n")
        passes = [*(["--sharding-propagate-layouts"] if "dist.values" in text else []), *PASSES]
        try:
            code, _, stderr = case.heddle.run([case.heddle.tool("heddle-opt"), *passes, path])
            message = located(stderr) if code else None
        except Failed as reason:
            raise Failed(f"{variant}: {reason}") from None
        if (code == 0) != (variant in MUST_BE_ACCEPTED):
            raise Failed(f"{variant}: {message or 'was accepted'}")


def waits(case, assertion):
    raise Missing("an emitted program of an op graph")


TABLE = {"op_result_equal": op_result_equal, "op_result_value": op_result_value, "ir_verifier": ir_verifier,
         "replicas_bitwise_equal": replicas_bitwise_equal, "diagnostic_or_correct": diagnostic_or_correct,
         "collective_ids_unique": waits, "collective_sequence_equal_on_all_ranks": waits}
