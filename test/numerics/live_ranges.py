#!/usr/bin/env python3
"""Arena and live bytes of plans, against the ranges that their programs touch when they run.

Each plan is compiled and run in checking mode, ranks as threads, two steps; of the second one each
rank writes what it touched. tools/live_bytes.py, which reads nothing else, must find the arena's
bytes, the most bytes in use at once and their sum over all work that memory.json says of that rank.
The same plan compiled with --apart, so that ranges tell objects apart, must show the live peak that
counts objects whole, and say the same one. Then one number of one program's tables is changed, so
that a micro-batch takes a set of saved values one slot before it is free: the figures must tell.

    live_ranges.py --heddle build/bin/heddle [--count N]

`--count`: only the first N plans and the fault. Exit 1 where a figure differs.
"""
import argparse
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "tools"))
import live_bytes  # noqa: E402

MODEL = {"model_type": "llama", "hidden_act": "silu", "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
         "hidden_size": 14, "intermediate_size": 21, "num_hidden_layers": 5, "num_attention_heads": 6,
         "num_key_value_heads": 2, "head_dim": 4, "vocab_size": 37, "tie_word_embeddings": False}
GPT2 = {"model_type": "gpt2", "n_positions": 64, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
        "n_embd": 12, "n_layer": 5, "n_head": 3, "n_inner": 21, "vocab_size": 41}
TIED = {**MODEL, "tie_word_embeddings": True}
OVERLAP = {"overlap": {"memory_bytes": 10**9}}
SP = {"sequence_parallel": True}
# Two micro-batches in flight at the first place, where the third takes the set that the first gave back.
ROWS = {"table": ["F0/0 F1/0 D0/0 F2/0 D1/0 D2/0 O", "F0/0 D0/0 F1/0 D1/0 F2/0 D2/0 O"]}


def plan(dp, tp, micro_batches, pp=1, layers=None, schedule=None, zero=0, **more):
    made = {"version": 1, "mesh": [["pp", pp], ["dp", dp], ["cp", 1], ["tp", tp]], "tensor": "megatron",
            "micro_batch": 1, "micro_batches": micro_batches, **more}
    if zero:
        made["zero"] = {"stage": zero, "reduce": "every_micro_batch" if zero > 1 else "last"}
    if layers:
        back = schedule in ("zb_v", "v_half", "v_min", "dualpipe_v")
        head = [0, 1] if back else [pp - 1, 0 if schedule == "dualpipe" else len(layers[0]) - 1]
        made["stages"] = {"layers": layers, "embedding": [0, 0], "head": head, "schedule": schedule}
    return made


EVEN, UNEVEN = [["0..1"], ["2..4"]], [["0..3"], ["4"]]
ENDS_ALONE, FIRST_ONLY = [[""], ["0..4"], [""]], [["0..4"], [""], [""], [""]]
# Places hold layers in another order than their chunks.
COPIES = [["0", "1..4"], ["1..4", "0"]]
AGAIN = {"recompute": [{"layers": "0..1", "full": True}, {"layers": "3", "values": ["m", "n2"]}]}
CHUNKS, BACK = [["0", "2..3"], ["1", "4"]], [["0", "4"], ["1..2", "3"]]
PLANS = [
    (MODEL, plan(1, 1, 3, 2, EVEN, "one_f_one_b")),
    (MODEL, plan(2, 2, 2, zero=2, **SP, **OVERLAP)),
    (TIED, plan(1, 1, 4, 2, BACK, "zb_v")),
    (MODEL, plan(2, 1, 2, 2, UNEVEN, "zb_h1", zero=3, **OVERLAP)),
    (GPT2, plan(1, 2, 4, 2, CHUNKS, "interleaved_1f1b")),
    (MODEL, plan(1, 1, 1)),
    (MODEL, plan(1, 1, 4)),
    (TIED, plan(1, 2, 2)),
    (GPT2, plan(2, 2, 3, **SP)),
    (MODEL, plan(4, 1, 2, zero=1, buckets={"gradient_bytes": 300})),
    (TIED, plan(4, 1, 2, zero=3, **OVERLAP)),
    (MODEL, plan(1, 2, 4, 2, EVEN, "gpipe")),
    (MODEL, plan(1, 2, 4, 2, UNEVEN, "one_f_one_b", **SP)),
    (TIED, plan(2, 1, 3, 2, UNEVEN, "one_f_one_b", zero=1)),
    (MODEL, plan(1, 1, 5, 3, ENDS_ALONE, "one_f_one_b")),
    (MODEL, plan(1, 1, 5, 2, EVEN, "zb_h2")),
    (GPT2, plan(1, 1, 4, 2, BACK, "v_half")),
    (MODEL, plan(1, 1, 4, 2, BACK, "v_min")),
    (MODEL, plan(1, 1, 4, 2, BACK, "dualpipe_v")),
    (GPT2, plan(2, 1, 3, 2, EVEN, ROWS, zero=2)),
    (MODEL, plan(1, 1, 1, 2, EVEN, "one_f_one_b")),
    (MODEL, plan(1, 1, 4, 2, UNEVEN, "one_f_one_b", **AGAIN)),
    (TIED, plan(1, 1, 4, 2, CHUNKS, "interleaved_1f1b", **AGAIN)),
    (MODEL, plan(1, 1, 4, 2, COPIES, "dualpipe", **AGAIN)),
    (GPT2, plan(1, 1, 4, 2, [["0..2", ""], ["", "3..4"]], "zb_v")),
    (MODEL, plan(1, 1, 2, 4, FIRST_ONLY, "gpipe", **AGAIN)),
]
FAULTY = plan(1, 1, 3, 2, EVEN, ROWS)


def called(command):
    run = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if run.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit code {run.returncode}\n{run.stdout[-2000:]}{run.stderr[-2000:]}")


def compile_to(heddle, folder, name, *options):
    out = folder / name
    called([heddle, "compile", folder / "config.json", "--plan", folder / "plan.json", "--train",
            folder / "train.yaml", "--cluster", folder / "cluster.yaml", "-o", out, *options])
    (out / "data.txt").write_bytes(bytes(i * 7 % 31 for i in range(4096)))
    return out


def compiled(heddle, folder, model, made):
    sizes = dict(made["mesh"])
    (folder / "config.json").write_text(json.dumps(model))
    (folder / "plan.json").write_text(json.dumps(made))
    (folder / "train.yaml").write_text(f"sequence_length: 7\nglobal_batch: {sizes['dp'] * made['micro_batches']}\n"
                                       "precision: [fp32]\noptimizer: {type: adamw, lr: 0.001, clip_norm: 1.0}\n"
                                       "seed: 1\n")
    (folder / "cluster.yaml").write_text("name: this machine\nnodes: 1\ndevices_per_node: 16\ndevice: host\n"
                                         "links: [{level: node, gbytes_per_s: 5}]\n")
    return compile_to(heddle, folder, "out")


def run(heddle, out):
    called([heddle, "run", out, "--threads", "--steps", 2, "--data", out / "data.txt", "--check", "--ranges", out])


def found(heddle, out):
    """How the ranges of a run differ from memory.json."""
    run(heddle, out)
    return list(live_bytes.differences(out, out))


def peaks(out):
    return [one["live_peak_bytes"] for one in json.loads((out / "memory.json").read_text())["classes"]]


def found_apart(heddle, folder, out):
    """How those of the plan of `out` with its objects apart do."""
    apart = compile_to(heddle, folder, "apart", "--apart")
    run(heddle, apart)
    yield from live_bytes.differences(apart, apart)
    yield from live_bytes.object_differences(apart, apart)
    if peaks(apart) != peaks(out):
        yield f"live peaks of objects are {peaks(apart)} apart and {peaks(out)} packed"


def take_sets_early(out):
    """Gives the third micro-batch of ROWS, at the first place, the second one's set, a slot too early."""
    text = (out / "program" / "step.cpp").read_text()
    table = int(re.search(r"p\.sets = numbers\.readRow\((\d+)", text).group(1))
    path = out / "program" / "numbers.bin"
    data = bytearray(path.read_bytes())
    counts, stages, places, tables, _ = struct.unpack_from("5q", data, 16)
    shapes = 56 + 8 * (counts + stages * places)
    sizes = [struct.unpack_from("2q", data, shapes + 16 * i) for i in range(tables)]
    at = shapes + 16 * tables + 4 * sum(rows * width for rows, width in sizes[:table])
    pool = 1 << 15  # of two pools in one entry, the first
    row = struct.unpack_from("6i", data, at)
    if [entry % pool for entry in row] != [0, 1, 0, 0, 1, 0]:
        sys.exit(f"the sets of the first place are {row}, expected the third micro-batch to take the first one's")
    for slot in (3, 5):
        struct.pack_into("i", data, at + 4 * slot, row[slot] + 1)
    path.write_bytes(data)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heddle", required=True)
    parser.add_argument("--count", type=int, default=len(PLANS))
    arguments = parser.parse_args()
    bad = 0
    for model, made in [*PLANS[:arguments.count], (MODEL, FAULTY)]:
        with tempfile.TemporaryDirectory() as folder:
            out = compiled(arguments.heddle, pathlib.Path(folder), model, made)
            wrong = found(arguments.heddle, out) + list(found_apart(arguments.heddle, pathlib.Path(folder), out))
            bad += bool(wrong)
            print(f"{'differs' if wrong else 'equal  '}  {model['model_type']} {json.dumps(made)}", *wrong, sep="\n  ",
                  flush=True)
            if made is not FAULTY or wrong:
                continue
            take_sets_early(out)
            wrong = found(arguments.heddle, out)
            bad += not wrong
            print(f"{'caught ' if wrong else 'MISSED '}  a set of saved values taken one slot too early", *wrong,
                  sep="\n  ", flush=True)
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
