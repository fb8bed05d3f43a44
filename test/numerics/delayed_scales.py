#!/usr/bin/env python3
"""Training in fp8 with scales of earlier steps' largest magnitudes, as emitted programs.

- The states are what they should be, step by step: this step's magnitudes take one place of the history, all else
  stays, scales are made of the largest or of the last one; a parameter's is the largest number that it has.
- They and all else have the same bits whatever is computed again, however states are stored and reduced, and in a run
  that was saved and resumed. In checking mode too.
- Another layout takes the states of a checkpoint as they are, and goes on with nearly the same magnitudes.
- A step whose gradients are no numbers leaves them as they were.
- A run in bf16 goes on from the checkpoint without them; one without them begins them.

    delayed_scales.py --heddle build/bin/heddle

Exit 1 with what is not so.
"""
import argparse
import json
import pathlib
import re
import shutil
import struct
import subprocess
import tempfile

import loss_scale
from loss_scale import Program, require

STEPS, HISTORY = 5, 3
DELAYED = {"recipe": "fp8", "scaling": "delayed", "amax_history": HISTORY}


def plan(pp, dp, tp, **rest):
    return {**loss_scale.plan(pp, dp, tp, precision=DELAYED), **rest}


def numbers(data):
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def states_of(folder):
    """What a checkpoint has of scales, by state and layer; all of it once."""
    found = {}
    for path in sorted(folder.glob("optim/*.safetensors")):
        for name, data in loss_scale.tensors(path).items():
            if name.startswith("scaling."):
                require(name not in found, f"{name} is written once")
                found[name] = numbers(data)
    return found


def checkpoint(program, step):
    return program.folder / "checkpoints" / f"step-{step:010}"


def train(program, steps, *options):
    """What steps leave, and the states behind the last one; from the start unless --resume."""
    root = program.folder / "checkpoints"
    if "--resume" not in options:
        shutil.rmtree(root, ignore_errors=True)
    log, left = program.run(steps, "--checkpoints", root, "--save-every", steps, "--keep", 9, *options)
    return log, left, states_of(checkpoint(program, steps))


def names_of(program, side):
    """The tensors of a layer that have a scale, in the order of their states."""
    text = (program.folder / "out" / "ir" / "07-recompute.mlir").read_text()
    return re.findall(r'"([^"]*)"', re.search(rf"delayed_scaling = {{.*?{side} = \[(.*?)\]", text)[1])


def check_history(program, states, recent):
    for step in range(1, STEPS + 1):
        for name, history in states[step].items():
            if not name.endswith("amax_history"):
                continue
            amax = states[step][name.removesuffix("_history")]
            for i, most in enumerate(amax):
                row = history[i * HISTORY:(i + 1) * HISTORY]
                now = row[step % HISTORY]
                require(now > 0, f"{program.name}, step {step}, {name} {i}: something was seen")
                require(most == (now if recent else max(row)), f"{program.name}, step {step}, {name} {i}: {most} of {row}")
                before = states[step - 1][name][i * HISTORY:(i + 1) * HISTORY] if step > 1 else [0.0] * HISTORY
                require([v for k, v in enumerate(row) if k != step % HISTORY] ==
                        [v for k, v in enumerate(before) if k != step % HISTORY],
                        f"{program.name}, step {step}, {name} {i}: other steps stay: {before}, {row}")


def check_rules(heddle, folder):
    for recent in (False, True):
        precision = {**DELAYED, "amax_algorithm": "most_recent" if recent else "max"}
        program = Program(heddle, folder, f"rules, {precision['amax_algorithm']}",
                          plan(1, 2, 2, precision=precision, sequence_parallel=True))
        states = {step: train(program, step)[2] for step in range(1, STEPS)}
        log, _, states[STEPS] = train(program, STEPS, "--replica-check", 1, "--replay", 2)
        require(len(states[1]) == 3 * 4, f"three layers have two states each way: {sorted(states[1])}")
        check_history(program, states, recent)
        require(log[-1]["loss"] < log[0]["loss"], f"{program.name}: it trains: {[line['loss'] for line in log]}")
    # A rate of nearly 0 leaves parameters as they were: the largest of each is known.
    still = Program(heddle, folder, "largest", plan(1, 1, 2), "{type: sgd, lr: 1.0e-30}")
    _, left, states = train(still, 1)
    tensors = names_of(still, "forward")
    require(len(tensors) == 11 and len(names_of(still, "backward")) == 7, f"tensors of a layer: {tensors}")
    for layer in range(3):
        for argument, name in (("wq", "self_attn.q_proj"), ("wo", "self_attn.o_proj"), ("wd", "mlp.down_proj")):
            bits = left[f"model.layers.{layer}.{name}.weight"]
            largest = max(abs(value) for value in numbers(b"".join(
                b"\0\0" + bits[i:i + 2] for i in range(0, len(bits), 2))))
            found = states[f"scaling.block.{layer}.forward.amax"][tensors.index(argument)]
            require(found == largest, f"largest of {argument} of layer {layer}: {found}, not {largest}")
    print("holds  states are what they should be, with max and most_recent")


def check_bits(heddle, folder):
    """Plans that may not differ in a bit."""
    again = [{}, {"recompute": "full"}, {"recompute": "selective"},
             {"recompute": [{"layers": "1", "full": True}, {"layers": "2", "values": ["n2", "m"]}]}]
    stored = [{"zero": {"stage": stage}, **rest} for stage, rest in
              ((0, {}), (1, {"overlap": {"memory_bytes": 10 ** 9}}), (3, {}), (3, {"offload": {"optimizer": True}}))]
    wave = {"stages": {"layers": [["0..1"], ["2"]], "embedding": [0, 0], "head": [1, 0], "schedule": "zb_h1"}}
    for name, base, variants in (("dp 2, tp 2", (1, 2, 2), again), ("dp 4", (1, 4, 1), stored),
                                 ("pp 2, dp 2", (2, 2, 1), [*again[:2], wave, {**wave, **again[3]}])):
        first = None
        for variant in variants:
            program = Program(heddle, folder, name, plan(*base, **variant))
            _, left, states = train(program, STEPS)
            found = (left, states)
            first = first or found
            require(found == first, f"{name}: {json.dumps(variant)} gives other bits")
        _, left, states = train(program, STEPS, "--check")
        require((left, states) == first, f"{name}: checking mode gives other bits")
        train(program, 2)
        _, left, states = train(program, STEPS, "--resume")
        require((left, states) == first, f"{name}: resumed, it gives other bits")
        print(f"holds  {name}: {len(variants)} plans, checked and resumed, have the same bits")
    return program


def check_layouts(heddle, folder):
    """A checkpoint's states under other layouts, and without."""
    base = Program(heddle, folder, "saved", plan(1, 2, 2))
    _, _, before = train(base, STEPS - 1)
    saved = checkpoint(base, STEPS - 1)
    _, _, wanted = train(base, STEPS, "--resume")
    both = {"layers": [["0..1", "2"], ["2", "0..1"]], "embedding": [0, 0], "head": [1, 0], "schedule": "dualpipe"}
    for name, other in (("pp 2, tp 2", plan(2, 1, 2)),
                        ("two copies", plan(2, 1, 1, micro_batch=2, micro_batches=4, stages=both)),
                        ("dp 4, ZeRO 3", plan(1, 4, 1, zero={"stage": 3})),
                        ("one", plan(1, 1, 1)), ("bf16", plan(1, 2, 1, precision="bf16"))):
        program = Program(heddle, folder, name, other)
        shutil.copytree(saved, checkpoint(program, STEPS - 1))
        _, _, states = train(program, STEPS, "--resume")
        if name == "bf16":
            require(not states, "bf16 has no scales")
            continue
        require(states.keys() == wanted.keys(), f"{name}: the same states")
        for state, values in states.items():
            for i, (value, expected, old) in enumerate(zip(values, wanted[state], before[state])):
                if state.endswith("history") and i % HISTORY != STEPS % HISTORY:
                    require(value == expected == old, f"{name}: {state} {i}: {value} was {old}")
                require(abs(value - expected) <= 0.1 * expected, f"{name}: {state} {i}: {value}, not {expected}")
    # The other way: what has no scales yet begins them.
    begun = Program(heddle, folder, "begun", plan(1, 2, 2))
    shutil.copytree(checkpoint(program, STEPS), checkpoint(begun, STEPS))
    _, _, states = train(begun, STEPS + 1, "--resume")
    require("they begin at 1" in begun.errors, f"a run that begins scales says so: {begun.errors}")
    history = states["scaling.block.0.forward.amax_history"]
    require([value > 0 for value in history[:HISTORY]] == [i == (STEPS + 1) % HISTORY for i in range(HISTORY)],
            f"one step is known: {history[:HISTORY]}")
    print("holds  other layouts take the states as they are, bf16 leaves and begins them")


def check_skipped(heddle, folder):
    program = Program(heddle, folder, "skipped", plan(1, 2, 2))
    _, _, wanted = train(program, 2)
    log, _, states = train(program, 3, "--guard", 1, "--inject-inf", 3, "--rank", 1)
    require(log[2]["skipped"] and states == wanted, "a step whose gradients are no numbers leaves the states")
    print("holds  a step that is passed over leaves the states")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heddle", required=True)
    heddle = pathlib.Path(parser.parse_args().heddle).resolve()
    with tempfile.TemporaryDirectory() as folder:
        for check in (check_rules, check_bits, check_layouts, check_skipped):
            check(heddle, pathlib.Path(folder))


if __name__ == "__main__":
    main()
