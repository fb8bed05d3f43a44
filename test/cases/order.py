"""The order of a program's work, by runs in checking mode (streams run late, in a random order that events allow)."""

import data
import tensors
from outcome import Failed, Missing

EVENTS = "all writes of a buffer -> collective -> next writes"
FEW = 3  # orders in which every event is asked for


def parameters_of(case, plan, seed):
    """Of one step, as a file's bytes."""
    def make():
        folder = case.compiled(plan)
        batch_file = case.write("data.safetensors", "")
        tensors.write(batch_file, data.as_tensors(case.make_batch(1)))
        saved = case.folder / f"{folder.name}-seed{seed}.safetensors"
        case.heddle.check(folder, batch_file, saved, seed)
        return saved
    return case.once(["checked", plan, seed], make).read_bytes()


def happens_before(case, assertion, plan):
    """Accesses of the same bytes without an event between them end a run in checking mode."""
    if assertion["property"] != EVENTS:
        raise Missing(f"order \"{assertion['property']}\"")
    for seed in range(1, FEW + 1):
        parameters_of(case, plan, seed)


def runs_bitwise_equal(case, assertion, plan):
    first = parameters_of(case, plan, 1)
    for seed in range(2, assertion["runs"] + 1):
        if parameters_of(case, plan, seed) != first:
            raise Failed(f"parameters behind a step differ between the orders of seeds 1 and {seed}")
    return f"{assertion['runs']} orders"
