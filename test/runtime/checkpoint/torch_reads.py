"""Reads the parameters of a checkpoint by PyTorch's reader of sharded safetensors and compares them, bit by bit, with what
the files hold by manifest.json. Usage: torch_reads.py CHECKPOINT (a folder step-NNNNNNNNNN; wants torch and safetensors)."""
import json
import math
import pathlib
import sys

import safetensors
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import HuggingFaceStorageReader


def by_manifest(folder, manifest):
    """Each parameter, put together from its extents."""
    tensors = {}
    for name, states in manifest["tensors"].items():
        whole = None
        for extent in states["param"]["extents"]:
            file = folder / manifest["files"][extent["f"]]["name"]
            with safetensors.safe_open(file, framework="pt") as reader:
                part = reader.get_tensor(extent["k"])
            if whole is None:
                whole = torch.empty(states["param"]["shape"], dtype=part.dtype)
            whole[tuple(slice(o, o + s) for o, s in zip(extent["o"], extent["s"]))] = part
        tensors[name] = whole
    return tensors


def main(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    expected = by_manifest(folder, manifest)
    model = str(folder / "model")
    metadata = HuggingFaceStorageReader(model).read_metadata().state_dict_metadata
    if set(metadata) != set(expected):
        sys.exit(f"PyTorch finds {sorted(metadata)}, the manifest has {sorted(expected)}")
    loaded = {name: torch.full_like(tensor, math.nan) for name, tensor in expected.items()}
    dcp.load(loaded, storage_reader=HuggingFaceStorageReader(model), no_dist=True)
    for name, tensor in expected.items():
        if tuple(metadata[name].size) != tuple(tensor.shape):
            sys.exit(f"{name}: PyTorch has shape {tuple(metadata[name].size)}, the manifest {tuple(tensor.shape)}")
        if not torch.equal(loaded[name].view(torch.uint8), tensor.view(torch.uint8)):
            sys.exit(f"{name}: other bits")
    print(f"PyTorch {torch.__version__} reads {len(expected)} parameters of step {manifest['step']}, all bits equal")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
