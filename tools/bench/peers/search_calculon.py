"""Search for a plan, beside Calculon (github.com/calculon-ai/calculon), on the space that both know.

Usage: search_calculon.py --calculon CHECKOUT [--heddle build/bin/heddle] [--devices 8] [--batch 4] [--model 5b]

Both search GPT models on H100 in nodes of 8: tp, pp, dp, interleaving, size of micro-batch, sequence parallelism, ZeRO 0
and 1, recompute; no offload, and no products in pieces beside their collectives, which Heddle's programs do not have.
Calculon runs its own search in one process on its own description of the machine, with the second memory taken out, and
without the log of each layer that nobody reads, which takes two thirds of its time.
Reported: plans looked at per second of user CPU time (of Heddle's those that it only bounds too), user CPU time of the
whole search, and Calculon's estimate of Heddle's best plan over its estimate of its own best one.

Calculon needs numpy, pandas and psutil. Some minutes on a quiet core.
"""

import argparse
import json
import pathlib
import re
import resource
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
VOCABULARY = 51200  # what Calculon counts
MODELS = {"5b": (4096, 24, 32), "22b": (6144, 48, 64), "175b": (12288, 96, 96), "1t": (25600, 128, 160)}  # hidden, layers, heads
LENGTH = 2048
# Calculon has no fused attention, which keeps no scores and computes them again: the better of its two nearest.
RECOMPUTE = {"none": ("none", "attn_only"), "selective": ("none", "attn_only"), "full": ("full",)}


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--calculon", type=pathlib.Path, required=True, help="a checkout")
    parser.add_argument("--heddle", default=str(ROOT / "build/bin/heddle"))
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--batch", type=int, default=4, help="sequences a step")
    parser.add_argument("--model", choices=MODELS, default="5b")
    given = parser.parse_args()
    if given.devices % 8 or given.devices < 8:
        parser.error(f"--devices: found {given.devices}, expected a multiple of 8")
    if not (given.calculon / "bin/calculon").exists():
        parser.error(f"--calculon: {given.calculon} has no bin/calculon, expected a checkout of calculon-ai/calculon")
    return given


def timed(command):
    """Output, and seconds of user CPU time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"error: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def write(path, content):
    path.write_text(json.dumps(content))
    return path


def heddle_search(given, folder):
    hidden, layers, heads = MODELS[given.model]
    nodes = given.devices // 8
    links = [{"level": "node", "gbytes_per_s": 450, "in_network_reduction": True}]
    if nodes > 1:
        links.append({"level": "cluster", "gbytes_per_s": 50})
    model = write(folder / "model.json", {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": hidden, "n_layer": layers, "n_head": heads,
        "n_positions": LENGTH, "activation_function": "gelu_new", "attn_pdrop": 0, "resid_pdrop": 0, "embd_pdrop": 0,
        "vocab_size": VOCABULARY})
    cluster = write(folder / "cluster.yaml", {
        "name": "h100", "nodes": nodes, "devices_per_node": 8, "device": "h100-sxm-80gb", "links": links})
    train = write(folder / "train.yaml", {
        "sequence_length": LENGTH, "global_batch": given.batch, "precision": ["bf16"],
        "optimizer": {"type": "adamw", "lr": 1e-4, "clip_norm": 1.0}})
    fixed = ["zero=0,1", "cp=1", "schedule=none,one_f_one_b,interleaved_1f1b", "offload=false", "recompute=none,full"]
    command = [given.heddle, "plan", model, "--cluster", cluster, "--train", train, "--limit", 0, "--top", 1, "--json"]
    for choice in fixed:
        command += ["--fix", choice]
    text, seconds = timed(command)
    answer = json.loads(text[text.index("{"):text.rindex("}") + 1])
    counts = answer["search"]
    # Bounded: all that it looked at, costed in closed form or simulated.
    looked = sum(counts[key] for key in ("meshes", "schedules", "storages", "bounded", "evaluations"))
    return answer["plans"][0], counts, looked, seconds


def as_execution(given, plan, recompute):
    """Heddle's plan as Calculon's execution: tensor parallelism inside the node, the rest on the network."""
    choices = plan["choices"]
    tp, pp, dp = (int(choices[axis]) for axis in ("tp", "pp", "dp"))
    sequence = choices["sp"] == "true"

    def network(inside):
        return 0 if inside <= 8 else 1

    return {
        "num_procs": given.devices, "tensor_par": tp, "pipeline_par": pp, "data_par": dp, "tensor_par_net": network(tp),
        "pipeline_par_net": network(tp * pp) if pp > 1 else 0, "data_par_net": network(tp * pp * dp) if dp > 1 else 0,
        "batch_size": given.batch, "microbatch_size": int(choices["micro_batch"]), "datatype": "float16",
        "fused_activation": True, "attention_type": "multihead", "activation_recompute": recompute,
        "pipeline_interleaving": int(choices["chunks"]) if pp > 1 else 1,
        "optimizer_sharding": dp > 1 and choices["zero"] != "0",
        "tensor_par_comm_type": "rs_ag" if sequence else "ar", "tensor_par_overlap": "none",
        "seq_par_ag_redo": False, "data_par_overlap": dp > 1, "weight_offload": False,
        "activations_offload": False, "optimizer_offload": False, "training": True}


# Calculon's main, but that messages below its level are not put together first.
QUIET = "import logging, runpy, sys; logging.disable(logging.DEBUG); del sys.argv[0]; " \
        "runpy.run_path(sys.argv[0], run_name='__main__')"


def calculon(given, *rest):
    return timed(["env", f"PYTHONPATH={given.calculon}", sys.executable, "-c", QUIET, given.calculon / "bin/calculon", *rest])


def calculon_search(given, folder):
    hidden, layers, heads = MODELS[given.model]
    application = write(folder / "application.json", {
        "hidden": hidden, "feedforward": 4 * hidden, "seq_size": LENGTH, "attn_heads": heads, "attn_size": hidden // heads,
        "num_blocks": layers})
    system = json.loads((given.calculon / "systems/h100_80g_nvl8.json").read_text())
    system["mem2"]["GiB"] = 0
    if given.devices <= 8:  # else it also searches which of two networks each axis takes
        system["networks"] = system["networks"][:1]
    machine = write(folder / "system.json", system)
    text, seconds = calculon(given, "llm-optimal-execution", application, given.devices, given.batch, "float16", machine,
                             folder / "best.json", "-c", 1, "--no-tp-overlap")
    best = json.loads((folder / "best.json").read_text())["0"]
    return application, machine, best, int(re.search(r"Total executions: (\d+)", text)[1]), seconds


TOLD = {"forward": "fw_time", "backward": "bw_time", "again": "recompute_time", "bubble": "bubble_time",
        "tp": "tp_comm_exposed_time", "pp": "pp_comm_exposed_time", "dp": "dp_comm_exposed_time", "optimizer": "optim_step_time"}


def calculon_estimate(given, folder, application, machine, plan):
    """What Calculon says of Heddle's plan."""
    found = []
    for recompute in RECOMPUTE[plan["choices"]["recompute"]]:
        path = write(folder / "execution.json", as_execution(given, plan, recompute))
        stats = folder / f"stats-{recompute}.json"
        try:
            calculon(given, "llm", application, path, machine, stats)
        except SystemExit as refused:  # it does not fit
            print(f"Calculon refuses it with recompute {recompute}: {str(refused).splitlines()[-1]}")
            continue
        found.append(json.loads(stats.read_text()))
    if not found:
        sys.exit("error: Calculon takes Heddle's plan in no form")
    return min(found, key=lambda stats: stats["total_time"])


def parts(stats):
    return ", ".join(f"{name} {1000 * stats[key]:.1f}" for name, key in TOLD.items())


def main():
    given = arguments()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        plan, counts, looked, ours = heddle_search(given, folder)
        print(f"Heddle: {plan['text']}: {plan['step_seconds']:.3f} s; {ours:.2f} s of search ({counts})", flush=True)
        application, machine, best, executions, theirs = calculon_search(given, folder)
        execution, stats = best["execution"], best["stats"]
        kept = ("tensor_par", "pipeline_par", "data_par", "microbatch_size", "pipeline_interleaving", "activation_recompute",
                "optimizer_sharding", "tensor_par_comm_type", "tensor_par_overlap")
        print(f"Calculon: {({key: execution[key] for key in kept})}: {stats['total_time']:.3f} s; {theirs:.2f} s of search "
              f"({executions} executions)")
        print(f"plans per second of search: Heddle {looked / ours:.0f}, Calculon {executions / theirs:.0f}, "
              f"ratio {looked / ours / (executions / theirs):.1f}")
        print(f"search, user CPU seconds: Heddle {ours:.2f}, Calculon {theirs:.2f}, ratio {theirs / ours:.0f}")
        estimate = calculon_estimate(given, folder, application, machine, plan)
        print(f"Calculon's estimate of Heddle's best plan {estimate['total_time']:.3f} s, of its own {stats['total_time']:.3f} s: "
              f"ratio {estimate['total_time'] / stats['total_time']:.3f}")
        print(f"its milliseconds of Heddle's: {parts(estimate)}\nof its own: {parts(stats)}")


main()
