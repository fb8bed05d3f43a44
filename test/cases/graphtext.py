"""IR text of an `op_graph`: a list of inputs and ops on a mesh.

Each op is written with ops of the transformer dialect, whose factor rules say what
a layout does to them. For one that has none there upstream's op is written, which
knows nothing of layouts: it must be refused with a located error.
"""

import math
import random
import string

from outcome import Missing

EPSILON = 1e-5  # of a layernorm


def mesh_text(mesh):
    return "#mesh = #dist.mesh<[" + ", ".join(f'"{axis}" = {size}' for axis, size in mesh.items()) + "]>"


def stored_size(size, axes, mesh):
    """The size with padding: a multiple of the axes."""
    parts = math.prod(mesh[axis] for axis in axes)
    return -(-size // parts) * parts


def layout_text(shape, dims):
    """`dims`: (axes, stored size) per dimension."""
    entries = []
    for size, (axes, stored) in zip(shape, dims):
        names = ", ".join(f'"{axis}"' for axis in axes)
        entries.append("{" + names + "}" + (f" padded {stored}" if stored != size else ""))
    return f"#dist.layout<#mesh, [{', '.join(entries)}]>"


def tensor_type(shape, element="f32", layout=None):
    sizes = "".join(f"{size}x" for size in shape)
    return f"tensor<{sizes}{element}{', ' + layout if layout else ''}>"


def initial_values(entry):
    size = math.prod(entry["shape"])
    if "values" in entry:
        return list(entry["values"])
    if entry.get("init") == "arange":
        return list(range(size))
    if "init" in entry:
        raise Missing(f"init {entry['init']} of an op graph")
    rng = random.Random(entry["name"])
    return [rng.gauss(0, 1) for _ in range(size)]


class Value:
    def __init__(self, shape, dims, element="f32"):
        self.shape, self.dims, self.element = list(shape), list(dims), element

    def type(self):
        return tensor_type(self.shape, self.element)


class Graph:
    """One function in the making. Layouts of arguments stand in `dist.values`;
    propagation finds the others."""

    def __init__(self, model):
        self.mesh = model["mesh"]
        self.values, self.inputs, self.layouts = {}, {}, {}
        self.arguments, self.lines, self.fresh = [], [], 0
        scatters = [op["ins"] for op in model["ops"] if op["op"] == "scatter_add"]
        self.ids, self.of_tokens = {ins[0] for ins in scatters}, {name for ins in scatters for name in ins}
        for entry in model["inputs"]:
            self.given(entry)

    def given(self, entry):
        sharding = entry["sharding"]
        dims = [(axes, stored_size(size, axes, self.mesh)) for size, axes in zip(entry["shape"], sharding)]
        shape, name = list(entry["shape"]), entry["name"]
        if name in self.of_tokens:  # of one sequence: the dialect has [sequence, token, ...]
            shape, dims = [1, *shape], [([], 1), *dims]
        self.argument(name, Value(shape, dims, "i32" if name in self.ids else "f32"), initial_values(entry))

    def argument(self, name, value, numbers):
        self.arguments.append(f"%{name}: {value.type()} {{transformer.as = \"{name}\"}}")
        self.layouts[name] = layout_text(value.shape, value.dims)
        self.values[name], self.inputs[name] = value, numbers

    def constant(self, shape, dims, number):
        """A whole argument filled with one number; `dims` for its padding."""
        self.fresh += 1
        name = f"constant{self.fresh}"
        value = Value(shape, [([], stored) for _, stored in dims], "f32")
        self.argument(name, value, [number] * math.prod(shape))
        return name

    def add_line(self, out, op, operands, value, prefix="", suffix="", more_results=()):
        names = ", ".join(f"%{name}" for name in operands)
        kinds = ", ".join(self.values[name].type() for name in operands)
        results = [value.type(), *more_results]
        extra = f":{len(results)}" if more_results else ""
        self.lines.append(f"  %{out}{extra} = transformer.{op} {prefix}{names}{suffix} : ({kinds}) -> "
                          + (results[0] if len(results) == 1 else f"({', '.join(results)})"))
        self.values[out] = value

    def elementwise(self, out, op, operands, prefix=""):
        first = self.values[operands[0]]
        self.add_line(out, op, operands, Value(first.shape, first.dims), prefix)

    def product(self, out, lhs, rhs):
        letters = string.ascii_lowercase[:len(self.values[lhs].shape)]
        spec = " ".join(letters)
        self.elementwise(out, "contract", [lhs, rhs], f'"{spec}, {spec} -> {spec}" ')

    def like(self, name, number):
        value = self.values[name]
        return self.constant(value.shape, value.dims, number)

    def name(self):
        self.fresh += 1
        return f"value{self.fresh}"

    def text(self, output):
        kind = self.values[output].type()
        layouts = ", ".join(f"{name} = {layout}" for name, layout in self.layouts.items())
        # What is saved leaves a function whole or split, never as a partial sum.
        return (f"{mesh_text(self.mesh)}\n"
                f"module attributes {{dist.mesh = #mesh, dist.values = {{{layouts}}}}} {{\n"
                f"func.func @graph({', '.join(self.arguments)}) -> ({kind} {{transformer.saved = \"{output}\"}}) {{\n"
                + "\n".join(self.lines) + f"\n  return %{output} : {kind}\n}}\n}}\n")


# One function per op of a graph

def write_add(graph, op):
    graph.elementwise(op["out"], "add", op["ins"])


def write_add_scalar(graph, op):
    graph.elementwise(op["out"], "add", [op["ins"][0], graph.like(op["ins"][0], op["value"])])


def write_relu(graph, op):
    graph.elementwise(op["out"], "activation", op["ins"], "relu ")


def write_rsub_scalar_relu(graph, op):
    """relu(value - x)."""
    negative, difference = graph.name(), graph.name()
    graph.product(negative, op["ins"][0], graph.like(op["ins"][0], -1))
    graph.elementwise(difference, "add", [negative, graph.like(op["ins"][0], op["value"])])
    graph.elementwise(op["out"], "activation", [difference], "relu ")


def write_max_scalar(graph, op):
    """value + relu(x - value)."""
    difference, positive = graph.name(), graph.name()
    graph.elementwise(difference, "add", [op["ins"][0], graph.like(op["ins"][0], -op["value"])])
    graph.elementwise(positive, "activation", [difference], "relu ")
    graph.elementwise(op["out"], "add", [positive, graph.like(op["ins"][0], op["value"])])


def write_mul(graph, op):
    graph.product(op["out"], *op["ins"])


def write_square(graph, op):
    graph.product(op["out"], op["ins"][0], op["ins"][0])


def write_weighted_sum(graph, op, weight):
    """Sum over `dims` of the elements times `weight`. At least one dimension of
    size 1 is left, so that products of the result can be written."""
    value, dims = graph.values[op["ins"][0]], op["dims"]
    letters = string.ascii_lowercase[:len(value.shape)]
    kept = [i for i in range(len(value.shape)) if i not in dims]
    shape, stored = [value.shape[i] for i in dims], [value.dims[i] for i in dims]
    right, out = " ".join(letters[i] for i in dims), " ".join(letters[i] for i in kept)
    result = Value([value.shape[i] for i in kept], [value.dims[i] for i in kept])
    if not kept:
        shape, stored, right, out = [*shape, 1], [*stored, ([], 1)], right + " z", "z"
        result = Value([1], [([], 1)])
    weights = graph.constant(shape, stored, weight)
    spec = f'"{" ".join(letters)}, {right} -> {out}" '
    graph.add_line(op["out"], "contract", [op["ins"][0], weights], result, spec)


def write_sum(graph, op):
    write_weighted_sum(graph, op, 1.0)


def write_mean(graph, op):
    shape = graph.values[op["ins"][0]].shape
    write_weighted_sum(graph, op, 1.0 / math.prod(shape[i] for i in op["dims"]))


def write_layernorm(graph, op):
    value = graph.values[op["ins"][0]]
    if op["dims"] != [len(value.shape) - 1]:
        raise Missing(f"layernorm over dimensions {op['dims']}")
    last = value.shape[-1:], value.dims[-1:]
    rows = tensor_type(value.shape[:-1])
    operands = [op["ins"][0], graph.constant(*last, 1.0), graph.constant(*last, 0.0)]
    graph.add_line(op["out"], "layer_norm", operands, Value(value.shape, value.dims), suffix=f" epsilon {EPSILON:e}",
                   more_results=[rows, rows])


def write_matmul(graph, op):
    left, right = (graph.values[name] for name in op["ins"])
    result = Value([left.shape[0], right.shape[1]], [left.dims[0], right.dims[1]])
    graph.add_line(op["out"], "contract", op["ins"], result, '"m k, k n -> m n" ')


def write_scatter_add(graph, op):
    """The gradient of an embedding table, whose layout is the output's."""
    ids, rows = op["ins"]
    shape = [op["rows"], graph.values[rows].shape[-1]]
    dims = [(axes, stored_size(size, axes, graph.mesh)) for size, axes in zip(shape, op["out_sharding"])]
    graph.add_line(op["out"], "embedding_grad", [ids, rows], Value(shape, dims))


def write_reshape(graph, op):
    """Upstream's: no factor rule cuts a dimension into two factors."""
    value = graph.values[op["ins"][0]]
    grows = len(op["shape"]) > len(value.shape)
    longer, shorter = (op["shape"], value.shape) if grows else (value.shape, op["shape"])
    groups, taken = [], 0
    for size in shorter:
        group, product = [], 1
        while product < size and taken < len(longer):
            group.append(taken)
            product *= longer[taken]
            taken += 1
        if product != size:
            raise Missing(f"reshape of {value.shape} to {op['shape']}")
        groups.append(group)
    result = Value(op["shape"], [([], size) for size in op["shape"]])
    text = (f"tensor.expand_shape %{op['ins'][0]} {groups} output_shape {op['shape']}" if grows
            else f"tensor.collapse_shape %{op['ins'][0]} {groups}")
    graph.lines.append(f"  %{op['out']} = {text} : {value.type()} into {result.type()}")
    graph.values[op["out"]] = result


WRITERS = {
    "add": write_add, "add_scalar": write_add_scalar, "relu": write_relu, "rsub_scalar_relu": write_rsub_scalar_relu,
    "max_scalar": write_max_scalar, "mul": write_mul, "square": write_square, "sum": write_sum, "mean": write_mean,
    "layernorm": write_layernorm, "matmul": write_matmul, "scatter_add": write_scatter_add, "reshape": write_reshape}


def needed_ops(model, output):
    """The ops that `output` depends on, in order."""
    wanted, chosen = {output}, []
    for op in reversed(model["ops"]):
        if op.get("out") in wanted:
            wanted |= set(op["ins"])
            chosen.insert(0, op)
    return chosen


def graph_of(model, output):
    """(IR text, numbers of the arguments) of one output."""
    graph = Graph(model)
    for op in needed_ops(model, output):
        if op["op"] not in WRITERS:
            raise Missing(f"op {op['op']} of an op graph")
        WRITERS[op["op"]](graph, op)
    return graph.text(output), graph.inputs


# All reshards of one tensor

def all_shardings(rank, axes):
    """Every way to cut `rank` dimensions by any of the axes, in any order."""
    found = [[()] * rank]
    for sharding in found:
        used = {axis for dim in sharding for axis in dim}
        for dim in range(rank):
            for axis in axes:
                if axis not in used:
                    longer = [*sharding[:dim], (*sharding[dim], axis), *sharding[dim + 1:]]
                    if longer not in found:
                        found.append(longer)
    return found


def every_reshard(model):
    """(IR text, numbers): a function per pair of layouts of the one input."""
    entry, mesh = model["inputs"][0], model["mesh"]
    shape, lines = entry["shape"], [mesh_text(mesh)]
    kinds = []
    for sharding in all_shardings(len(shape), list(mesh)):
        # One stored size in every layout: a multiple of whatever cuts it in any.
        dims = [(axes, stored_size(size, list(mesh), mesh)) for size, axes in zip(shape, sharding)]
        kinds.append(tensor_type(shape, layout=layout_text(shape, dims)))
    name = entry["name"]
    for i, source in enumerate(kinds):
        for j, target in enumerate(kinds):
            lines.append(f"func.func @from{i}_to{j}(%{name}: {source} {{transformer.as = \"{name}\"}}) -> {target} {{\n"
                         f"  %b = dist.reshard %{name} : {source} -> {target}\n  return %b : {target}\n}}")
    body = "\n".join(lines[1:])
    return f"{lines[0]}\nmodule attributes {{dist.mesh = #mesh}} {{\n{body}\n}}\n", {name: initial_values(entry)}


def is_every_reshard(model):
    return [op["op"] for op in model["ops"]] == ["reshard"] and isinstance(model["inputs"][0]["sharding"], str)
