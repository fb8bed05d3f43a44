#!/usr/bin/env python3
"""Bytes of a rank's model states, as compiled programs of Llama 3 8B over 64 ranks have them.

With P parameters that a rank computes with and K ranks that share them, bf16 with an fp32 master
and AdamW: 16P with 2-byte gradients, 18P with fp32 ones; ZeRO 1, 2, 3: `4P + 12P/K`,
`2P + 14P/K`, `16P/K`, and `6P + 12P/K`, `2P + 16P/K`, `18P/K`. To the byte, from memory.json
(states) and layout.json (parameters, masters, moments: elements and formats of the first rank).
With pipeline stages the same of each stage, with the parameters that it holds.

    state_bytes.py --heddle build/bin/heddle [--all]

Without --all five of the 20 plans. Exit 1 where a figure is another one.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MODEL = ROOT / "test/cases/hf_configs/llama-3-8b.json"
BYTES = {"fp32": 4, "bf16": 2}
STAGES = [{"stage": 0}, {"stage": 1}, {"stage": 2, "reduce": "every_micro_batch"},
          {"stage": 3, "reduce": "every_micro_batch", "gather": "every_pass"}]
CASES = [(gradients, zero, dp, 1) for gradients in ("bf16", "fp32") for zero in STAGES for dp in (64, 8)]
CASES += [("bf16", zero, 16, 4) for zero in STAGES]
SOME = [("bf16", STAGES[1], 64, 1), ("bf16", STAGES[2], 64, 1), ("bf16", STAGES[3], 64, 1), ("fp32", STAGES[1], 8, 1),
        ("bf16", STAGES[1], 16, 4)]


def wanted(stage, gradients, count, ranks):
    """Bytes of parameters, gradients and the optimizer's states."""
    share = [count / ranks if stage >= least else count for least in (3, 2, 1)]
    return [2 * share[0], BYTES[gradients] * share[1], 12 * share[2]]


def elements(ranks_of):
    first = ranks_of[0]
    if first["run"]:
        return first["run"][1] - first["run"][0]
    count = 1
    for begin, end in first["extents"]:
        count *= end - begin
    return count


def faults_of(place, tensors, memory, zero, gradients, dp):
    """Of one stage: its share of the parameters, the bytes of its states, what is wrong."""
    of_kind = {}
    for tensor in tensors:
        kind = of_kind.setdefault(tensor["kind"], [0, set()])
        kind[0] += elements(tensor["ranks"])
        kind[1].add(tensor["dtype"])
    formats = {kind: dtypes for kind, (_, dtypes) in of_kind.items()}
    faults = [] if formats == {"parameter": {"bf16"}, "master": {"fp32"}, "adam_m": {"fp32"}, "adam_v": {"fp32"}} \
        else [f"formats {formats}"]
    stage = zero["stage"]
    count = of_kind["parameter"][0] * (dp if stage == 3 else 1)
    expected = wanted(stage, gradients, count, dp)
    found = [memory[name] for name in ("parameters", "gradients", "optimizer")]
    if found != expected:
        faults.append(f"memory.json has {found}, expected {expected}")
    listed = sum(kind[0] * 4 for name, kind in of_kind.items() if name != "parameter")
    if listed != expected[2]:
        faults.append(f"layout.json has {listed} bytes of the optimizer's states, expected {expected[2]}")
    return count, sum(found), [f"stage {place}: {fault}" for fault in faults]


def check(heddle, folder, gradients, zero, dp, pp):
    tp = 64 // dp // pp
    layers = 32 // pp
    stages = {"stages": {"layers": [[f"{place * layers}..{(place + 1) * layers - 1}"] for place in range(pp)],
                         "embedding": [0, 0], "head": [pp - 1, 0], "schedule": "one_f_one_b"}} if pp > 1 else {}
    (folder / "plan.json").write_text(json.dumps({
        "version": 1, "mesh": [["pp", pp], ["dp", dp], ["cp", 1], ["tp", tp]], "tensor": "megatron", "micro_batch": 1,
        "micro_batches": 2, "zero": zero, "precision": {"recipe": "bf16", "gradients": gradients}, **stages}))
    (folder / "train.yaml").write_text(f"sequence_length: 128\nglobal_batch: {2 * dp}\nprecision: [bf16]\nseed: 1\n"
                                       "optimizer: {type: adamw, lr: 0.001}\n")
    (folder / "cluster.yaml").write_text("name: 8 x 8\nnodes: 8\ndevices_per_node: 8\ndevice: h100-sxm-80gb\n"
                                         "links: [{level: node, gbytes_per_s: 450}, "
                                         "{level: cluster, gbytes_per_s: 50}]\n")
    run = subprocess.run([heddle, "compile", MODEL, "--cluster", folder / "cluster.yaml", "--train",
                          folder / "train.yaml", "--plan", folder / "plan.json", "-o", folder / "out"],
                         capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"exit code {run.returncode}: {run.stderr[-2000:]}")
    tensors = json.loads((folder / "out/layout.json").read_text())["tensors"]
    classes = json.loads((folder / "out/memory.json").read_text())["classes"]
    counts, sums, faults = [], [], []
    for place in range(pp):
        held = [tensor for tensor in tensors if tensor["ranks"][0]["rank"] // (dp * tp) == place]
        count, total, wrong = faults_of(place, held, classes[place]["by_class"], zero, gradients, dp)
        counts, sums, faults = [*counts, count], [*sums, total], [*faults, *wrong]
    if tp == 1 and sum(counts) != 8030261248:
        faults.append(f"{sum(counts)} parameters")
    print(f"{'NOT EQUAL' if faults else 'equal'}  pp {pp} dp {dp} tp {tp} ZeRO {zero['stage']}, gradients {gradients}: "
          f"{', '.join(map(str, sums))} bytes{'; '.join(['', *faults])}", flush=True)
    return not faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heddle", required=True)
    parser.add_argument("--all", action="store_true")
    arguments = parser.parse_args()
    fine = True
    for case in CASES if arguments.all else SOME:
        with tempfile.TemporaryDirectory() as folder:
            fine &= check(arguments.heddle, pathlib.Path(folder), *case)
    sys.exit(not fine)


if __name__ == "__main__":
    main()
