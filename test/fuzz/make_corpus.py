#!/usr/bin/env python3
"""Makes the committed inputs anew: small real files of each kind, and a few by hand. Inputs that a fuzzer has found (their
names begin with `found-`), and the least that reaches as much as runs of hours did (`grown-`), are kept. Usage: make_corpus.py HEDDLE
"""
import hashlib
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
EXAMPLES = ROOT / "tools/examples"
LARGEST = 5120
MODEL = {"model_type": "llama", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2,
         "num_key_value_heads": 1, "vocab_size": 256, "hidden_act": "silu", "max_position_embeddings": 16,
         "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
TRAIN = {"sequence_length": 8, "global_batch": 4, "precision": ["fp32", "fp16"],
         "optimizer": {"type": "adamw", "lr": 1e-3, "betas": [0.9, 0.95], "weight_decay": 0.1, "clip_norm": 1.0},
         "lr_schedule": {"type": "cosine", "warmup_steps": 2, "steps": 10, "final_lr": 1e-5},
         "loss_scale": {"initial": 1024, "growth_interval": 4}, "seed": 1}
PLAN = {"version": 1, "mesh": [["pp", 1], ["dp", 1], ["cp", 1], ["tp", 2]], "micro_batch": 2, "micro_batches": 2,
        "tensor": "megatron", "sequence_parallel": True, "zero": {"stage": 1}, "precision": "fp16"}
STAGES = {"version": 1, "mesh": [["pp", 2], ["dp", 1], ["cp", 1], ["tp", 1]], "micro_batch": 1, "micro_batches": 4,
          "tensor": "megatron", "stages": {"layers": [["0"], ["1"]], "schedule": "one_f_one_b",
                                           "embedding": [0, 0], "head": [1, 0]}}
TABLE = {**STAGES, "stages": {"layers": [["0"], ["1"]], "embedding": [0, 0], "head": [1, 0],
                              "schedule": {"table": ["F0 F1 D0 F2 D1 F3 D2 D3 O", "F0 D0 F1 D1 F2 D2 F3 D3 O"]}},
         "recompute": "selective", "buckets": {"gradient_bytes": 4096}, "context": "none"}
CLUSTER = {"name": "here", "nodes": 2, "devices_per_node": 4, "memory_reserve_gib": 1, "nics_per_node": 1,
           "device": {"memory_gib": 80, "memory_gbytes_per_s": 3350, "multiprocessors": 132,
                      "peak_tflops": {"fp32": 67, "tf32": 495, "bf16": 989, "fp16": 989, "fp8": 1979}},
           "links": [{"level": "node", "gbytes_per_s": 450, "in_network_reduction": True},
                     {"level": "cluster", "gbytes_per_s": 50, "latency_us": 5, "oversubscription": 2}],
           "mtbf_hours_per_device": 50700, "storage_gbytes_per_s": 2, "host_link_gbytes_per_s": 64,
           "checkpoint": {"mode": "two_phase", "pause_s": 0.5}}
DEVICE = """version: 1
device: {host: true, memory_gib: 8, memory_gbytes_per_s: 10, multiprocessors: 1, peak_tflops: {fp32: 0.1}}
products:
  - {format: fp32, m: 256, n: 256, k: 256, seconds: 1.0e-3}
  - {format: fp32, m: 512, n: 512, k: 512, seconds: 6.0e-3}
  - {format: fp32, m: 64, n: 64, k: 64, seconds: 1.0e-4}
attention:
  - {heads: 8, queries: 256, head_size: 64, forward_seconds: 1.0e-3, backward_seconds: 2.0e-3}
  - {heads: 8, queries: 512, head_size: 64, forward_seconds: 4.0e-3, backward_seconds: 8.0e-3}
  - {heads: 8, queries: 64, head_size: 64, forward_seconds: 1.0e-4, backward_seconds: 2.0e-4}
memory:
  - {bytes: 1048576, seconds: 1.0e-4}
  - {bytes: 4194304, seconds: 4.0e-4}
  - {bytes: 16777216, seconds: 1.6e-3}
collectives:
  - {kind: all_reduce, ranks: 2, bytes: 1024, seconds: 1.0e-6}
  - {kind: all_gather, ranks: 2, bytes: 1048576, seconds: 1.0e-3}
"""
ROWS = [(1, 3, "F0 F1 D0 F2 D1 D2 O\nF0 D0 F1 D1 F2 D2 O"), (1, 3, "F0 F1 D0+F2 D1 D2 O\nF0 D0+F1 D1+F2 D2 O"),
        (2, 2, "@0,3 F0 F1 F0/1 D0/1 D0 F1/1 D1/1 D1 O\n@1,2 F0 F0/1 D0/1 F1 D0 F1/1 D1/1 D1 O"),
        (1, 3, "F0..2 B0 W0 B1 B2 W2 W1 O"), (2, 4, "@0,1' F0 F2/1 D2/1 D0 O\n@1,0' F0 D0 F2/1 D2/1 O")]
ENVIRONMENTS = [
    {"HEDDLE_RANK": 1, "HEDDLE_WORLD": 4, "HEDDLE_LOCAL_RANK": 1},
    {"RANK": 3, "WORLD_SIZE": 8, "LOCAL_RANK": 3, "LOCAL_WORLD_SIZE": 4, "GROUP_RANK": 0, "MASTER_ADDR": "node0",
     "MASTER_PORT": 29500, "TORCHELASTIC_RESTART_COUNT": 2},
    {"OMPI_COMM_WORLD_RANK": 1, "OMPI_COMM_WORLD_SIZE": 4, "OMPI_COMM_WORLD_LOCAL_RANK": 1,
     "OMPI_COMM_WORLD_LOCAL_SIZE": 2, "PMIX_RANK": 1},
    {"PMI_RANK": 0, "PMI_SIZE": 2, "MPI_LOCALRANKID": 0, "MPI_LOCALNRANKS": 2},
    {"SLURM_PROCID": 5, "SLURM_STEP_NUM_TASKS": 8, "SLURM_NTASKS": 8, "SLURM_LOCALID": 1, "SLURM_NODEID": 1,
     "SLURM_STEP_ID": 0, "SLURM_STEP_TASKS_PER_NODE": "4(x2)", "SLURM_STEP_NODELIST": "gnode[08,20-25]",
     "SLURM_RESTART_COUNT": 1}]
SLURM = ["4(x2),3\ngnode[08,20-25],x1", "1\nnode1", "2(x3),1(x1048000)\na[1-3]b[07,9]c,d", "0\nhost.example.org"]
GLOBS = ["model.layers.*.self_attn.[qkv]_proj.weight\nmodel.layers.0.self_attn.q_proj.weight\nlm_head.weight",
         "*a*b*c?[!a-c]\naabbccxd\n", "[]a]*\n]\na\nb", "plain\nplain\nplainer"]
BATCHES = {"tokens": [[1, 2, 3, 4], [5, 6, 7, 299]], "labels": [[2, 3, 4, -100], [6, 7, 299, -100]],
           "mask": [[1, 1, 1, 0]] * 2, "documents": [[0, 0, 1, 1]] * 2, "positions": [[0, 1, 0, 1]] * 2}


LAYOUT = {"shape": [7, 6], "padded": [8, 6], "local": [4, 6], "dims": [["tp"], []]}
TABLES = {
    "version": 1, "program": "by hand", "mesh": [["pp", 2], ["dp", 2], ["tp", 2]], "arenas": [
        {"name": "all", "bytes": 4096, "by_stage": [4096, 2048]}],
    "stages": {"axis": "pp", "layers": [[0], [1]]},
    "inputs": {"tokens": {"arena": 0, "offset": 0, "dtype": "i32", "shape": [1, 4, 6], "padded": [1, 4, 6],
                          "local": [1, 2, 6], "dims": [[], ["dp"], []]}},
    "outputs": {"loss": {"arena": 0, "offset": 96, "dtype": "f32"}}, "communicators": [["dp", "tp"]],
    "states": [
        {"name": "h.{}.w", "kind": "parameter", "layers": 2, "arena": 0, "offset": 128, "dtype": "f32", **LAYOUT,
         "letters": "f d", "layer_stride": 96, "file": {"shape": [6, 7], "order": [1, 0]}, "decay": True,
         "init": {"type": "normal", "std": 0.02}},
        {"name": "head", "kind": "adam_m", "held_by": [1], "arena": 0, "offset": 512, "dtype": "bf16", **LAYOUT,
         "runs": ["dp"], "row": 24, "file": {"shape": [42], "order": [0, 1]}}],
    "optimizer": {"type": "adamw", "learning_rate": 0.1, "betas": [0.9, 0.95]},
    "schedule": {"type": "cosine", "warmup_steps": 1, "steps": 9}, "sequence_length": 6, "global_batch": 4,
    "vocabulary_size": 7}


def cbor(value):
    """RFC 8949, of definite length."""
    def head(major, number):
        if number < 24:
            return bytes([major << 5 | number])
        step = 0 if number < 1 << 8 else 1 if number < 1 << 16 else 2 if number < 1 << 32 else 3
        return bytes([major << 5 | 24 + step]) + number.to_bytes(1 << step, "big")

    if isinstance(value, bool):
        return b"\xf5" if value else b"\xf4"
    if isinstance(value, int):
        return head(0, value) if value >= 0 else head(1, -1 - value)
    if isinstance(value, float):
        return b"\xfb" + struct.pack(">d", value)
    if isinstance(value, str):
        return head(3, len(value.encode())) + value.encode()
    if isinstance(value, list):
        return head(4, len(value)) + b"".join(map(cbor, value))
    return head(5, len(value)) + b"".join(cbor(key) + cbor(item) for key, item in value.items())


def cut(manifest):
    """The first two tensors of a manifest, and a file with them alone."""
    made = json.loads(manifest)
    made["tensors"] = dict(list(made["tensors"].items())[:2])
    made["files"] = made["files"][:1]
    end, lines = 0, ""
    for name, states in made["tensors"].items():
        for role, state in states.items():
            lines += f"{json.dumps(name)} {role} {state['dtype']} {json.dumps(state['shape'], separators=(',', ':'))}\n"
            for number, extent in enumerate(state["extents"]):
                size = extent["b"][1] - extent["b"][0]
                extent.update(b=[end, end + size], f=0, k=f"{name}.{role}.{number}")
                end += size
    made["files"][0]["nbytes"] = made["files"][0]["header_nbytes"] + end
    made["model_hash"] = hashlib.sha256(lines.encode()).hexdigest()
    return json.dumps(made, separators=(",", ":")).encode()


class Corpus:
    def __init__(self, folder):
        self.folder, self.count = folder, 0

    def add(self, target, name, content):
        content = content if isinstance(content, bytes) else \
            (content if isinstance(content, str) else json.dumps(content)).encode()
        if len(content) > LARGEST:
            raise SystemExit(f"{target}/{name}: {len(content)} bytes, at most {LARGEST} are committed")
        (self.folder / target).mkdir(parents=True, exist_ok=True)
        (self.folder / target / name).write_bytes(content)
        self.count += 1


def safetensors(tensors, metadata=None):
    header, data = ({"__metadata__": metadata} if metadata else {}), b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def flight(rank):
    """The begin of a page (heddle/Runtime/Flight.h): a rank that waits for the other one in a communicator."""
    page = struct.pack("<Q4iQqIIIii", 0x31746867696C6665, rank, 2, 1, 0, 7, 3, 2, 1, 0, 0, 1)
    page += struct.pack("<16i", 1 - rank, *[0] * 15) + struct.pack("<i", 1)
    page += b"\0" * (-len(page) % 8) + b"dp".ljust(40, b"\0") + struct.pack("<4iq", 0, 0, rank, 2, 5)
    return page


def rendezvous(ranks):
    """A session: a number of ranks, then events (test/fuzz/targets/Rendezvous.cpp)."""
    def frame(line, say, origin, to, comm=0, tag=0, payload=b""):
        return struct.pack("<2B5bB", ord("f"), line, say, origin, to, comm, tag, len(payload)) + payload

    session = bytes([ranks - 1])
    for rank in range(ranks):
        session += b"c\0" + frame(rank, 0, rank, ranks)[:-1] + b"\xff"
    for rank in range(ranks):
        session += frame(rank, 4, rank, ranks, tag=0, payload=b"dp")
    session += frame(0, 3, 0, ranks - 1, tag=7, payload=b"text") + b"w\1"
    for rank in reversed(range(ranks)):
        session += frame(rank, 8, 0, 0) + frame(rank, 9, 0, 0)
    return session


def by_hand(corpus):
    for number, (chunks, batches, text) in enumerate(ROWS):
        corpus.add("ScheduleRows", f"rows-{number}", bytes([chunks, batches]) + text.encode())
    for number, variables in enumerate(ENVIRONMENTS):
        corpus.add("Environment", f"launcher-{number}", "".join(f"{k}={v}\n" for k, v in variables.items()))
    for number, text in enumerate(SLURM):
        corpus.add("Slurm", f"nodes-{number}", text)
    for number, text in enumerate(GLOBS):
        corpus.add("Glob", f"pattern-{number}", text)
    corpus.add("DeviceTables", "host.yaml", DEVICE)
    for target in ("Batches", "BatchFile"):
        corpus.add(target, "json", b"\0" + json.dumps(BATCHES).encode())
    ints = struct.pack("<8i", *range(8))
    tokens = safetensors({"tokens": ("I32", [2, 4], ints), "mask": ("U8", [2, 4], bytes([1] * 8)),
                          "labels": ("I64", [2, 4], struct.pack("<8q", *range(8)))})
    for target in ("Batches", "BatchFile"):
        corpus.add(target, "safetensors", b"\1" + tokens)
    corpus.add("Batches", "bin", b"\2" + bytes(range(32)))
    corpus.add("Batches", "text", b"\3some text")
    corpus.add("Ending", "well", "0\n")
    corpus.add("Ending", "untold", "2\nthe file is not there\n")
    head = struct.pack("<IiiiiiQ", 0x4845444C, 0, 0, 4, 0, 0, 3)
    corpus.add("Frames", "hello", head + b"job" + head + b"job")
    corpus.add("Rendezvous", "two", rendezvous(2))
    corpus.add("Rendezvous", "one", rendezvous(1))
    corpus.add("Flight", "two", b"".join(flight(rank) for rank in (0, 1)))
    for name, content in (("small", {"w": ("F32", [2, 2], bytes(16)), "b": ("BF16", [0], b"")}),
                          ("scalar", {"loss": ("F64", [], bytes(8))})):
        for target in ("SafetensorsFile", "SafetensorsHeader"):
            corpus.add(target, name, safetensors(content, {"format": "pt"}))
    corpus.add("HfFolder", "index.json", {"metadata": {"total_size": 32}, "weight_map": {
        "a.weight": "a.safetensors", "b.weight": "b.safetensors"}})
    corpus.add("Json", "all.json", '{"a": [1, -2.5e3, true, null, "\\u00e9\\ud83d\\ude00\\n"], "b": {"c": ""}}')
    corpus.add("Yaml", "all.yaml", "a: [1, 0x1f, ~, .inf]\nb:\n  - {c: 'd', \"e\": f}\n  - |\n    text\n    more\n# end\n")
    corpus.add("Tables", "made", cbor(TABLES))
    # The CBOR of RFC 8949, appendix A.
    for number, text in enumerate(("83010203", "a26161016162820203", "fb3ff199999999999a", "f5", "3903e7",
                                   "826161a161626163")):
        corpus.add("Cbor", f"example-{number}", bytes.fromhex(text))


def of_examples(corpus):
    for path in [*(EXAMPLES / "models").glob("*.json"), *(ROOT / "test/cases/hf_configs").glob("*.json")]:
        corpus.add("Model", path.name, path.read_bytes())
    corpus.add("Model", "tiny.json", MODEL)
    for folder, target, made in (("clusters", "Cluster", CLUSTER), ("train", "Train", TRAIN), ("plans", "Plan", PLAN)):
        for path in (EXAMPLES / folder).iterdir():
            corpus.add(target, path.name, path.read_bytes())
        corpus.add(target, "made.json", made)
    corpus.add("Plan", "stages.json", STAGES)
    corpus.add("Plan", "table.json", TABLE)


def of_modules(corpus):
    """Each part of a test of lit, without comments, behind the passes that it is for."""
    for path in sorted((ROOT / "test").glob("*/*/*.mlir")):
        text = path.read_text()
        names = [name for name in re.findall(r" --([a-z]+-[a-z-]+)", " ".join(re.findall(r"// RUN: heddle-opt (.*)", text)))
                 if not name.startswith(("split-", "verify-", "allow-", "check-", "mlir-"))]
        passes = f"// passes: {','.join(dict.fromkeys(names))}\n" if names else ""
        for number, part in enumerate(text.split("// -----")):
            lines = [line for line in part.splitlines() if line.strip() and not line.strip().startswith("//")]
            module = passes + "\n".join(lines) + "\n"
            if lines and len(module) <= 1536:
                corpus.add("Mlir", f"{path.parent.name}-{path.stem}-{number}", module)


def of_runs(corpus, heddle, folder):
    def write(name, content):
        (folder / name).write_text(json.dumps(content))
        return str(folder / name)

    def run(*command):
        done = subprocess.run([heddle, *command], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: {done.stderr}")

    # Small ones: a manifest lists every state of every tensor.
    plain = {**TRAIN, "precision": ["fp32"], "optimizer": {"type": "sgd", "lr": 0.1}}
    cluster = write("cluster.json", {**CLUSTER, "device": "host", "memory_reserve_gib": 0})
    for name, plan, layers, train in (("plan", PLAN, 1, TRAIN), ("stages", STAGES, 2, plain)):
        out = str(folder / name)
        model = write("config.json", {**MODEL, "num_hidden_layers": layers})
        run("compile", model, "--cluster", cluster, "--train", write("train.json", train), "--plan", write(f"{name}.json", plan), "-o", out)
        corpus.add("Numbers", f"{name}.bin", (folder / name / "program/numbers.bin").read_bytes())
        run("run", out, "--threads", "--data", str(ROOT / "README.md"), "--steps", "1", "--save-every", "1",
            "--checkpoints", str(folder / f"{name}.saved"))
        saved = folder / f"{name}.saved/step-0000000001"
        manifest = cut((saved / "manifest.json").read_bytes())
        corpus.add("Manifest", f"{name}.json", manifest)
        line = (saved / "COMMIT").read_text().split()[:4] + [str(len(manifest)), hashlib.sha256(manifest).hexdigest()]
        corpus.add("Commit", name, f"{saved.name}\n{' '.join(line)}\n".encode() + manifest)
        shard = sorted((saved / "model").iterdir())[0].read_bytes()
        size = 8 + struct.unpack("<Q", shard[:8])[0]
        corpus.add("SafetensorsHeader", f"{name}.safetensors", shard[:size])


def main():
    heddle = str(pathlib.Path(sys.argv[1]).resolve())
    folder = HERE / "corpus"
    for path in folder.glob("*/*"):
        if not path.name.startswith(("found-", "grown-")):
            path.unlink()
    corpus = Corpus(folder)
    by_hand(corpus)
    of_examples(corpus)
    of_modules(corpus)
    with tempfile.TemporaryDirectory() as scratch:
        of_runs(corpus, heddle, pathlib.Path(scratch))
    total = sum(path.stat().st_size for path in folder.glob("*/*"))
    print(f"{corpus.count} inputs, {total} bytes with those that were found")


if __name__ == "__main__":
    main()
