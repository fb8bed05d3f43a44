"""Cases whose model is an `op_graph`: a list of inputs and ops on a mesh.

An op that a factor rule can say becomes IR text of the transformer and dist
dialects. Where there is no such op, upstream's is written, and must be refused with
a located error: it knows nothing of layouts.
"""

import math
import re

from outcome import Failed, Missing

LOCATED = re.compile(r"graph\.mlir:\d+:\d+: error: .+")
PASSES = ("--sharding-propagate-layouts", "--sharding-verify-layouts")


def is_op_graph(model):
    return model.get("model_type") == "op_graph"


# IR text

def mesh_text(mesh):
    return "#mesh = #dist.mesh<[" + ", ".join(f'"{axis}" = {size}' for axis, size in mesh.items()) + "]>"


def tensor_type(shape, sharding, mesh, element="f32"):
    """A tensor type with its layout; a size that does not divide is padded."""
    dims = []
    for size, axes in zip(shape, sharding):
        parts = math.prod(mesh[axis] for axis in axes)
        names = ", ".join(f'"{axis}"' for axis in axes)
        dims.append("{" + names + "}" + (f" padded {-(-size // parts) * parts}" if size % parts else ""))
    sizes = "".join(f"{size}x" for size in shape)
    return f"tensor<{sizes}{element}, #dist.layout<#mesh, [{', '.join(dims)}]>>"


class Writer:
    """One function in the making: values by their names in the graph."""

    def __init__(self, model):
        self.mesh = model["mesh"]
        self.arguments, self.lines, self.values = [], [], {}
        for entry in model["inputs"]:
            self.argument(entry["name"], entry["shape"], entry["sharding"])

    def whole(self, shape):
        return tensor_type(shape, [[]] * len(shape), self.mesh)

    def argument(self, name, shape, sharding):
        kind = tensor_type(shape, sharding, self.mesh)
        self.arguments.append(f"%{name}: {kind}")
        self.values[name] = (shape, kind)

    def line(self, out, text, shape, kind):
        self.lines.append(f"  %{out} = {text}")
        self.values[out] = (shape, kind)

    def text(self, outputs):
        names = ", ".join(f"%{name}" for name in outputs)
        kinds = ", ".join(self.values[name][1] for name in outputs)
        body = "\n".join([*self.lines, f"  return {names} : {kinds}"])
        return (f"{mesh_text(self.mesh)}\nmodule attributes {{dist.mesh = #mesh}} {{\n"
                f"func.func @graph({', '.join(self.arguments)}) -> ({kinds}) {{\n{body}\n}}\n}}\n")


def write_reshape(writer, op):
    """Upstream's reshape: no factor rule cuts one dimension into two factors."""
    shape, kind = writer.values[op["ins"][0]]
    longer, shorter = (op["shape"], shape) if len(op["shape"]) > len(shape) else (shape, op["shape"])
    groups, taken = [], 0
    for size in shorter:
        group, product = [], 1
        while product < size:
            group.append(taken)
            product *= longer[taken]
            taken += 1
        groups.append(group)
    result = writer.whole(op["shape"])
    if longer is shape:
        text = f"tensor.collapse_shape %{op['ins'][0]} {groups} : {kind} into {result}"
    else:
        text = f"tensor.expand_shape %{op['ins'][0]} {groups} output_shape {op['shape']} : {kind} into {result}"
    writer.line(op["out"], text, op["shape"], result)


def write_add_scalar(writer, op):
    shape, kind = writer.values[op["ins"][0]]
    writer.argument(f"{op['out']}_scalar", shape, [[]] * len(shape))
    other = writer.values[f"{op['out']}_scalar"][1]
    writer.line(op["out"], f"transformer.add %{op['ins'][0]}, %{op['out']}_scalar : ({kind}, {other}) -> {kind}",
                shape, kind)


WRITERS = {"reshape": write_reshape, "add_scalar": write_add_scalar}


def graph_text(model):
    writer = Writer(model)
    for op in model["ops"]:
        if op["op"] not in WRITERS:
            raise Missing(f"op {op['op']} of an op graph")
        WRITERS[op["op"]](writer, op)
    return writer.text(model["outputs"])


# Running

def optimize(case, text, passes=()):
    """(accepted, message): a refusal without a location fails."""
    path = case.folder / "graph.mlir"
    path.write_text(text)
    code, _, stderr = case.heddle.run([case.heddle.tool("heddle-opt"), *passes, path])
    if code == 0:
        return True, ""
    located = LOCATED.search(stderr)
    if not located:
        raise Failed(f"heddle-opt ended with {code} and no located error: {stderr[:300].strip()}")
    return False, located[0]


def refused_or_missing(case, assertion):
    accepted, message = case.once("graph", lambda: optimize(case, graph_text(case.model), PASSES))
    if accepted:
        raise Missing("a door that runs an op graph")
    return f"refused with a located error: {message}"


def op_result_equal(case, assertion):
    return refused_or_missing(case, assertion)


def op_result_value(case, assertion):
    return refused_or_missing(case, assertion)


def ir_verifier(case, assertion):
    return refused_or_missing(case, assertion)


def replicas_bitwise_equal(case, assertion):
    return refused_or_missing(case, assertion)


# The variants that SHD-07 names, each as IR text.
VARIANTS = {
    "4 over 3": ({"x": 3}, 'func.func @f(%a: tensor<4xf32, #dist.layout<#mesh, [{"x"}]>>) { return }'),
    "axis z not in mesh": ({"x": 3}, 'func.func @f(%a: tensor<6xf32, #dist.layout<#mesh, [{"z"}]>>) { return }'),
    "rank 1 with two dim shardings": (
        {"x": 3}, 'func.func @f(%a: tensor<6xf32, #dist.layout<#mesh, [{"x"}, {}]>>) { return }'),
    "mesh symbol that is not a mesh": (
        {"x": 3}, 'func.func private @pod()\nfunc.func @f(%a: tensor<6xf32, #dist.layout<@pod, [{"x"}]>>) { return }'),
    "unused argument 4096x14336": ({"x": 3}, "func.func @f(%a: tensor<4096x14336xf32>) { return }"),
    "2x4 mesh, reshard [[x],[y]] -> [[],[x]]": (
        {"x": 2, "y": 4},
        '!from = tensor<8x8xf32, #dist.layout<#mesh, [{"x"}, {"y"}]>>\n'
        '!to = tensor<8x8xf32, #dist.layout<#mesh, [{}, {"x"}]>>\n'
        "func.func @f(%a: !from) -> !to {\n  %b = dist.reshard %a : !from -> !to\n  return %b : !to\n}"),
}
MUST_BE_ACCEPTED = {"unused argument 4096x14336", "2x4 mesh, reshard [[x],[y]] -> [[],[x]]"}


def diagnostic_or_correct(case, assertion):
    """Each variant is accepted or gets a located error; none ends in a signal."""
    variants = case.model.get("variants", [])
    unknown = [variant for variant in variants if variant not in VARIANTS]
    if unknown or not variants:
        raise Missing(f"variants {unknown}" if unknown else "an op graph without variants")
    for variant in variants:
        mesh, text = VARIANTS[variant]
        try:
            accepted, message = optimize(case, f"{mesh_text(mesh)}\n{text}\n")
        except Failed as reason:
            raise Failed(f"{variant}: {reason}") from None
        if accepted != (variant in MUST_BE_ACCEPTED):
            raise Failed(f"{variant}: {message or 'was accepted'}")


def waits(case, assertion):
    raise Missing("a program of an op graph")


TABLE = {"op_result_equal": op_result_equal, "op_result_value": op_result_value, "ir_verifier": ir_verifier,
         "replicas_bitwise_equal": replicas_bitwise_equal, "diagnostic_or_correct": diagnostic_or_correct,
         "collective_ids_unique": waits, "collective_sequence_equal_on_all_ranks": waits}
