"""From a case's words to `stages` of plan.json: who holds which layers, and when what runs.

A case says how many ranks and chunks there are; it leaves open where layers are cut. Here they are cut as evenly as
can be, the longer stages first.
"""

import re

from outcome import Missing

KEYS = {"schedule", "vpp", "placement", "force_cut", "accumulation_rounds"}
KINDS = {"none": "none", "gpipe": "gpipe", "1f1b": "one_f_one_b", "interleaved_1f1b": "interleaved_1f1b"}
PLACEMENTS = ("loop", "v_shape")


def needs_of(plan):
    """What these keys need and Heddle lacks."""
    needs = []
    if plan.get("schedule", "none") not in KINDS:
        needs.append(f"schedule {plan['schedule']}")
    if plan.get("placement", "loop") not in PLACEMENTS:
        needs.append(f"placement {plan['placement']}")
    return needs


def chain_of(plan):
    """(rank, chunk) of each stage, first to last."""
    ranks = range(plan.get("pp", 1))
    back = plan.get("placement") == "v_shape"
    return [(rank, chunk) for chunk in range(plan.get("vpp", 1))
            for rank in (reversed(ranks) if back and chunk % 2 else ranks)]


def text_of(first, end):
    return "" if first == end else f"{first}" if end == first + 1 else f"{first}..{end - 1}"


def cut(layers, count):
    """Texts of `count` runs of layers."""
    ends = [0]
    for i in range(count):
        ends.append(ends[-1] + layers // count + (i < layers % count))
    return [text_of(first, end) for first, end in zip(ends, ends[1:])]


def forced_cut(words, layers, count):
    """Two stages, the first ending within a block: said as a user would say it."""
    found = re.fullmatch(r"layers\.(\d+): (.+)", words)
    if not found or count != 2:
        raise Missing(f"force_cut \"{words}\" of {count} stages")
    last = int(found[1])
    return [f"{text_of(0, last + 1)}: {found[2]}", text_of(last + 1, layers)]


def rows_of(chain, micro_batches):
    """Rows of 1F1B for any chain: a stage holds at most as many micro-batches as there are stages from it to the
    last, and a rank that can go back goes back. One slot of each rank at a time."""
    done, rows = set(), [[] for _ in range(1 + max(rank for rank, _ in chain))]
    counts = {(kind, stage): 0 for kind in "FD" for stage in range(len(chain))}
    while any(counts["D", stage] < len(micro_batches) for stage in range(len(chain))):
        chosen = {}
        for kind in "DF":
            for stage, (rank, _) in reversed(list(enumerate(chain))):
                number = counts[kind, stage]
                ahead = ("F", stage - 1) if kind == "F" else ("D", stage + 1) if stage + 1 < len(chain) else ("F", stage)
                if (rank in chosen or number == len(micro_batches) or (ahead[1] >= 0 and (*ahead, number) not in done)
                        or (kind == "F" and number - counts["D", stage] == len(chain) - stage)):
                    continue
                chosen[rank] = (kind, stage, number)
        for kind, stage, number in chosen.values():
            done.add((kind, stage, number))
            counts[kind, stage] += 1
            rows[chain[stage][0]].append(f"{kind}{micro_batches[number]}/{chain[stage][1]}")
    return rows


def table_of(chain, micro_batches, rounds):
    """1F1B of one round of micro-batches after the other. A row begins with the stages of its rank's chunks."""
    ranks = range(1 + max(rank for rank, _ in chain))
    rows = [["@" + ",".join(str(chain.index(place)) for place in sorted(chain) if place[0] == rank)] for rank in ranks]
    for number in range(rounds):
        own = list(range(number * micro_batches, (number + 1) * micro_batches))
        rows = [before + row for before, row in zip(rows, rows_of(chain, own))]
    return [" ".join([*row, "O"]) for row in rows]


def schedule_of(plan, chain):
    rounds, name = plan.get("accumulation_rounds", 1), plan.get("schedule", "none")
    if rounds == 1 and plan.get("placement", "loop") == "loop":
        return {"kind": "interleaved_1f1b" if name == "1f1b" and plan.get("vpp", 1) > 1 else KINDS[name]}
    if name != "1f1b":  # no kind of Heddle's: rows for this placement, or these rounds
        raise Missing(f"schedule {name} of {rounds} rounds with placement {plan.get('placement', 'loop')}")
    return {"table": table_of(chain, plan["microbatches"], rounds)}


def stages_of(plan, layers):
    """`stages` of plan.json."""
    chain = chain_of(plan)
    texts = forced_cut(plan["force_cut"], layers, len(chain)) if "force_cut" in plan else cut(layers, len(chain))
    held = [[""] * plan.get("vpp", 1) for _ in range(plan.get("pp", 1))]
    for (rank, chunk), text in zip(chain, texts):
        held[rank][chunk] = text
    return {"layers": held, "embedding": list(chain[0]), "head": list(chain[-1]), "schedule": schedule_of(plan, chain)}
