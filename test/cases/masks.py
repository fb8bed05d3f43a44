"""Masks of dropout, seen as dropout of ones: on whole tensors and on ranks that cut the sequence."""

import itertools

import opgraph
from outcome import Failed, Missing

# The axis of the plan that cuts the sequence, by what a case calls it.
CUTS = {"sp shards": "tp", "cp": "cp"}


def text_of(shape, rate, ranks):
    sequences, length, hidden = shape
    x = f"tensor<{sequences}x{length}x{hidden}xf32, #dist.layout<#mesh, [{{}}, {{\"cut\"}}, {{}}]>>"
    numbers = f"tensor<{sequences}x{length}xi32, #dist.layout<#mesh, [{{}}, {{\"cut\"}}]>>"
    seed = "tensor<i64, #dist.layout<#mesh, []>>"
    return f"""#mesh = #dist.mesh<["cut" = {ranks}]>
module attributes {{dist.mesh = #mesh}} {{
  func.func @masks(%x: {x} {{transformer.as = "x"}}, %seed: {seed} {{transformer.as = "seed"}},
                   %numbers: {numbers} {{transformer.as = "numbers"}}) -> ({x}) {{
    %y = transformer.dropout %x, %seed, %numbers rate {rate:e} site mlp_output : ({x}, {seed}, {numbers}) -> {x}
    return %y : {x}
  }}
}}
"""


def dropout_masks(case, assertion, plan):
    """Every rank has its slice of the mask of one device, and no two slices are alike:
    two masks agree where chance has it."""
    axis, rate = CUTS.get(assertion["axis"]), case.model["hidden_dropout"]
    if axis is None or assertion["expect"] != "different" or not 0 < rate < 1:
        raise Missing(f"masks along {assertion['axis']}, {assertion['expect']}")
    ranks = plan[axis]
    sequences, length, hidden = shape = (case.batch["sequences"], case.batch["seq_len"], case.model["hidden_size"])
    tokens = sequences * length
    masks = opgraph.run_text(case, "masks", text_of(shape, rate, ranks), {
        "x": [1] * (tokens * hidden), "seed": [case.train.get("seed", 1)], "numbers": list(range(tokens))})["masks"][0]
    if masks["ranks"] != masks["whole"]:
        raise Failed("ranks do not draw the slices of the mask of one device")
    part = length // ranks
    slices = [[masks["whole"][(b * length + s) * hidden + d] != 0
               for b in range(sequences) for s in range(r * part, (r + 1) * part) for d in range(hidden)]
              for r in range(ranks)]
    chance, n = rate ** 2 + (1 - rate) ** 2, len(slices[0])
    for one, other in itertools.combinations(range(ranks), 2):
        alike = sum(a == b for a, b in zip(slices[one], slices[other]))
        if abs(alike - n * chance) > 4 * (n * chance * (1 - chance)) ** 0.5:
            raise Failed(f"masks of shards {one} and {other} agree in {alike} of {n} elements, by chance in "
                         f"{n * chance:.0f}")
