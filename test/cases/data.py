"""Batches and weights of a case, from a seed."""

import itertools
import math
import random
import re

from outcome import Missing

IGNORED = -100
MATRIX_STD = 0.15  # logits and attention far from uniform, or many faults hardly show
BIAS_STD = 0.02
NORM_STD = 0.1
IN_NUMBERS = {"counted_labels", "counted_labels_tail", "doc_lengths", "seq_lens", "padding_tail", "sequences_per_step"}
PACKED = "packed documents of varying length from a seeded stream"
CYCLE = "token ids cycle through the whole vocabulary"
PLAIN_WORDS = ("all tokens counted", "not used", CYCLE, PACKED)


def per_sequence(value, row):
    return value[row] if isinstance(value, list) else value


def document_row(lengths, length):
    """Document and position of each token; what is left over is a document of its
    own, which is padding."""
    lengths = list(lengths) + ([length - sum(lengths)] if sum(lengths) < length else [])
    if sum(lengths) != length:
        raise Missing(f"documents of {sum(lengths)} tokens in a sequence of {length}")
    documents = [number for number, size in enumerate(lengths) for _ in range(size)]
    return documents, [position for size in lengths for position in range(size)]


def is_counted(batch, row, position, documents):
    """Whether the label of `position`, which is the token behind it, counts."""
    length = batch["seq_len"]
    if position == length - 1:
        return False
    real = length
    if "seq_lens" in batch:
        real = per_sequence(batch["seq_lens"], row)
    if "padding_tail" in batch:
        real = length - per_sequence(batch["padding_tail"], row)
    if position + 1 >= real:
        return False
    if "counted_labels" in batch and position >= batch["counted_labels"][row]:
        return False
    if "counted_labels_tail" in batch and position < length - 1 - batch["counted_labels_tail"][row]:
        return False
    if documents is not None:
        own = batch["doc_lengths"][row]
        return documents[position] == documents[position + 1] and documents[position] < len(own)
    return True


def drawn_lengths(length, rng):
    lengths = []
    while sum(lengths) < length:
        lengths.append(rng.randint(1, length - sum(lengths)))
    return lengths


def step_sizes(batch, steps):
    """Sequences of each step."""
    return batch.get("sequences_per_step") or [batch["sequences"]] * steps


def make_batch(batch, vocabulary, steps, seed):
    """{tokens, labels[, documents, positions]} as lists of rows: all steps of a run
    one behind the other, each with fresh tokens and the same mask."""
    if not IN_NUMBERS & batch.keys() and not batch.get("token_mask", PLAIN_WORDS[0]).startswith(PLAIN_WORDS):
        raise Missing(f"batch given in words only: {batch['token_mask']}")
    length, rng = batch["seq_len"], random.Random(seed)
    cycle = itertools.cycle(range(vocabulary)) if batch.get("token_mask") == CYCLE else None
    made = {"tokens": [], "labels": []}
    is_packed = batch.get("token_mask") == PACKED
    if "doc_lengths" in batch or is_packed:
        made.update(documents=[], positions=[])
    for size in step_sizes(batch, steps):
        if is_packed:
            batch = {**batch, "doc_lengths": [drawn_lengths(length, rng) for _ in range(size)]}
        for row in range(size):
            tokens = [next(cycle) if cycle else rng.randrange(vocabulary) for _ in range(length)]
            documents = None
            if "doc_lengths" in batch:
                documents, positions = document_row(batch["doc_lengths"][row], length)
                made["documents"].append(documents)
                made["positions"].append(positions)
            made["tokens"].append(tokens)
            made["labels"].append([tokens[i + 1] if is_counted(batch, row, i, documents) else IGNORED
                                   for i in range(length)])
    return made


def count_of(labels):
    return sum(label != IGNORED for row in labels for label in row)


def as_tensors(batch):
    """For tensors.write."""
    return {name: ("I32", (len(rows), len(rows[0])), [value for row in rows for value in row])
            for name, rows in batch.items()}


def bias_distribution(text):
    if text in (None, "zeros"):
        return (0.0, BIAS_STD if text is None else 0.0)
    found = re.fullmatch(r"normal\(([-\d.e]+), *([-\d.e]+)\)", text)
    if not found:
        raise Missing(f"bias_init {text}")
    return float(found[1]), float(found[2])


def layer_indices(shapes):
    """Each weight is the number of its layer; outside of layers, 0."""
    def layer(name):
        number = re.search(r"\.(?:layers|h)\.(\d+)\.", name)
        return float(number[1]) if number else 0.0
    return {name: ("F32", tuple(shape), [layer(name)] * math.prod(shape)) for name, shape in shapes.items()}


def make_weights(shapes, bias_init, seed):
    """{name: ("F32", shape, values)} for tensors.write. Each tensor from its own
    stream, so that one more or less does not change the others."""
    weights = {}
    for name, shape in shapes.items():
        mean, std = 0.0, MATRIX_STD
        if name.endswith("bias"):
            mean, std = bias_distribution(bias_init)
        elif len(shape) == 1:
            mean, std = 1.0, NORM_STD
        size = 1
        for extent in shape:
            size *= extent
        rng = random.Random(f"{seed} {name}")
        weights[name] = ("F32", tuple(shape), [rng.gauss(mean, std) for _ in range(size)])
    return weights
