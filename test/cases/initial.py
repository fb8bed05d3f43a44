"""Assertions about initial weights: those of a run whose rate moves none of them."""

import itertools
import math

from case import matching
from outcome import Failed


def initial_params_bitwise_equal(case, assertion, plan):
    first = case.initial(assertion["plans"][0])
    for other_plan in assertion["plans"][1:]:
        other = case.initial(other_plan)
        if other.keys() != first.keys():
            raise Failed(f"under {other_plan} there are other parameters: {sorted(other.keys() ^ first.keys())}")
        for name, (_, values) in first.items():
            if other[name][1].tobytes() != values.tobytes():
                raise Failed(f"{name} begins otherwise under {other_plan}")


def part_of(values, shape, extents):
    """The elements of a part of a row-major tensor."""
    strides = [math.prod(shape[i + 1:]) for i in range(len(shape))]
    indices = itertools.product(*(range(first, end) for first, end in extents))
    return [values[sum(map(int.__mul__, index, strides))] for index in indices]


def shards_differ(case, assertion, plan):
    held = {entry["name"]: entry for entry in case.layout(plan)["tensors"] if entry["kind"] == "parameter"}
    for name in matching(held, assertion["params"]):
        values = case.initial(plan)[name][1]
        extents = {str(part["extents"]): part["extents"] for part in held[name]["ranks"]}.values()
        parts = [part_of(values, held[name]["shape"], of) for of in extents]
        if len(parts) < 2:
            raise Failed(f"{name} is not split: nothing can be compared")
        if any(one == other for one, other in itertools.combinations(parts, 2)):
            raise Failed(f"two shards of {name} are copies")
