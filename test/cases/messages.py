"""Assertions about stages: which rank holds what, as the compiled folder says it, and in what order ranks send and
receive, as `heddle explain` says it, held against a simulation of its own."""

import re

import stages
from case import matching
from outcome import Failed, Missing

COMPUTE = re.compile(r"(?P<slot>(?P<kind>[FBDWO])(?P<number>\d*)(?:/(?P<chunk>\d+))?)")
SEND = re.compile(r"s:(?P<slot>\S+)>(?P<peer>\d+)")
RECEIVE = re.compile(r"r:(?P<slot>\S+)<(?P<peer>\d+)")


# Who holds what

def places_of(entry, plan):
    """Ranks of pp that hold a tensor of layout.json."""
    below = plan["dp"] * plan.get("cp", 1) * plan["tp"]
    return {part["rank"] // below for part in entry["ranks"]}


def parameters(layout):
    return [entry for entry in layout["tensors"] if entry["kind"] == "parameter"]


def stage_partition(case, assertion, plan):
    if assertion["property"] != "disjoint, complete, contiguous":
        raise Missing(f"partition \"{assertion['property']}\"")
    for layers, pp in [[case.layers(), plan["pp"]], *assertion.get("also", [])]:
        changed = {**plan, "pp": pp}
        require_partition(case.layout(changed, layers), layers, changed)


def require_partition(layout, layers, plan):
    held = {}
    for entry in parameters(layout):
        found = re.search(r"\.(?:layers|h)\.(\d+)\.", entry["name"])
        if found:
            held.setdefault(int(found[1]), []).append(places_of(entry, plan))
    absent = sorted(set(range(layers)) - held.keys())
    if absent or len(held) != layers:
        raise Failed(f"of {layers} layers on {plan['pp']} stages {absent or 'too many'} are not where they should be")
    order = []
    for layer in range(layers):
        places = set().union(*held[layer])
        if len(places) != 1:
            raise Failed(f"layer {layer} of {layers} is on stages {sorted(places)}")
        order += places
    if plan.get("vpp", 1) == 1 and order != sorted(order):
        raise Failed(f"{layers} layers are on stages {order}, which is not their order")
    if set(order) != set(range(plan["pp"])) and layers >= plan["pp"]:
        raise Failed(f"{layers} layers are on stages {sorted(set(order))} of {plan['pp']}")


def parameter_copies(case, assertion, plan):
    """On how many ranks each part of a parameter is."""
    held = {entry["name"]: [str(part["extents"]) for part in entry["ranks"]]
            for entry in parameters(case.layout(plan))}
    for name in matching(held, assertion["params"]):
        most = max(map(held[name].count, held[name]))
        if most != assertion["count"]:
            raise Failed(f"{name} is held {most} times, expected {assertion['count']}")


# Messages

def p2p_sizes_match(case, assertion, plan):
    """The recording of the emitted program: what each rank receives is what was sent to it."""
    case.record(plan)


def p2p_deadlock_free(case, assertion, plan):
    if assertion["semantics"] != "rendezvous, no buffering":
        raise Missing(f"messages with {assertion['semantics']}")
    for micro_batches in assertion.get("microbatches", [plan["microbatches"]]):
        changed = {**plan, "microbatches": micro_batches}
        sequences = plan["dp"] * micro_batches
        rows = case.explain_plan(changed, sequences)["schedule"]["events"]
        try:
            Simulation(rows, stages.chain_of(plan)).run()
        except Failed as reason:
            raise Failed(f"with {micro_batches} micro-batches: {reason}") from None


class Simulation:
    """Ranks that run their entries in order. A transfer ends when both of its ranks stand at it, and a rank goes on
    when all transfers of its entry have ended; a slot runs when what it needs is on its rank."""

    def __init__(self, rows, chain):
        self.rows = [[entry.split(" + ") for entry in row] for row in rows]
        self.at = [0] * len(rows)
        self.chain = chain
        self.here = [set() for _ in rows]  # (kind, stage, micro-batch) of values on each rank
        self.ended = set()                 # (rank, entry, text) of transfers that have ended

    def run(self):
        progress = True
        while progress:
            progress = any([self.advance(rank) for rank in range(len(self.rows))])
        waiting = {rank: " + ".join(row[at]) for rank, (row, at) in enumerate(zip(self.rows, self.at)) if at < len(row)}
        if waiting:
            raise Failed(f"ranks wait for ever: {waiting}")

    def advance(self, rank):
        """Whether this rank's entry could be ended."""
        if self.at[rank] == len(self.rows[rank]):
            return False
        entry = self.rows[rank][self.at[rank]]
        if not all([self.end(rank, text) for text in entry]):
            return False
        self.at[rank] += 1
        return True

    def end(self, rank, text):
        if ":" not in text:
            self.compute(rank, text)
            return True
        if (rank, self.at[rank], text) in self.ended:
            return True
        sends = SEND.fullmatch(text)
        found = sends or RECEIVE.fullmatch(text)
        peer = int(found["peer"])
        other = f"r:{found['slot']}<{rank}" if sends else f"s:{found['slot']}>{rank}"
        if self.at[peer] == len(self.rows[peer]) or other not in self.rows[peer][self.at[peer]]:
            return False
        source, target = (rank, peer) if sends else (peer, rank)
        value = self.value(source, found["slot"])
        if value not in self.here[source]:
            raise Failed(f"rank {source} sends {found['slot']} before it has run it")
        self.here[target].add(value)
        self.ended |= {(rank, self.at[rank], text), (peer, self.at[peer], other)}
        return True

    def value(self, rank, slot):
        """What a slot makes; a gradient is one of B or of D."""
        parts = COMPUTE.fullmatch(slot)
        kind = "B" if parts["kind"] == "D" else parts["kind"]
        return kind, self.chain.index((rank, int(parts["chunk"] or 0))), int(parts["number"])

    def compute(self, rank, slot):
        if slot == "O":
            return
        kind, stage, number = self.value(rank, slot.rstrip("&"))
        needs = {"F": [("F", stage - 1)], "B": [("F", stage), ("B", stage + 1)], "W": [("B", stage)]}[kind]
        for needed, of in needs:
            if 0 <= of < len(self.chain) and (needed, of, number) not in self.here[rank]:
                raise Failed(f"rank {rank} runs {slot} without {needed}{number} of stage {of}")
        self.here[rank].add((kind, stage, number))
