"""Reads and writes safetensors files with nothing but the standard library: the
runner must work where numpy is not installed."""

import array
import json
import math
import struct

CODES = {"F64": ("d", 8), "F32": ("f", 4), "I64": ("q", 8), "I32": ("i", 4), "U8": ("B", 1)}


def write(path, tensors):
    """`tensors`: {name: (dtype, shape, flat values)}, row-major."""
    header, chunks, offset = {}, [], 0
    for name, (dtype, shape, values) in tensors.items():
        data = array.array(CODES[dtype][0], values).tobytes()
        if len(data) != CODES[dtype][1] * math.prod(shape):
            raise ValueError(f"{name}: {len(values)} values for shape {shape}")
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + len(data)]}
        chunks.append(data)
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(chunks))


def read(path):
    """{name: (shape, array of values)}."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            values = array.array(CODES[entry["dtype"]][0])
            values.frombytes(data[slice(*entry["data_offsets"])])
            tensors[name] = (entry["shape"], values)
    return tensors
