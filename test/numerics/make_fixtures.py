#!/usr/bin/env python3
"""Makes the fixtures in test/numerics/fixtures: loss and every gradient of tiny
random models, computed in fp64 by PyTorch and transformers, which share no code
with Heddle.

    python -m venv VENV && VENV/bin/pip install -r requirements.txt
    VENV/bin/python make_fixtures.py            writes all fixtures
    VENV/bin/python make_fixtures.py --check    recomputes from the files, compares

fixtures/README.md says what the files contain.
"""

import argparse
import contextlib
import json
import math
import pathlib
import sys

import numpy
import safetensors.numpy
import torch
import transformers
import transformers.modeling_rope_utils
import transformers.models.gpt2.modeling_gpt2
import transformers.models.llama.modeling_llama
import transformers.models.mistral.modeling_mistral
import transformers.models.qwen2.modeling_qwen2
import transformers.models.qwen3.modeling_qwen3

HERE = pathlib.Path(__file__).resolve().parent
IGNORED = -100
# Large enough that attention is far from uniform and logits far from equal: with
# the usual 0.02 many wrong programs come within a tolerance of the right one.
MATRIX_STD = 0.2
BIAS_STD = 0.02
NORM_STD = 0.1


def llama(**changes):
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 24,
        "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 6, "hidden_act": "silu", "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "rope_scaling": None, "initializer_range": 0.02,
        "attention_bias": False, "mlp_bias": False, "attention_dropout": 0.0,
        "tie_word_embeddings": False, "vocab_size": 61, **changes}


FIXTURES = {
    "llama": {"config": llama(), "sequences": 4, "length": 20},
    "llama-packed": {"config": llama(), "sequences": 3, "length": 32,
                     "documents": [[20, 12], [5, 27], [7, 9, 16]]},
    # Head size 8 gives wavelengths 6.3, 63, 628 and 6283: one in the high band
    # (below 64 / 4), one between the bands, two in the low one (above 64).
    "llama-rope-scaling": {"config": llama(
        hidden_size=32, head_dim=8, max_position_embeddings=512,
        rope_scaling={"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                      "original_max_position_embeddings": 64, "rope_type": "llama3"}),
        "sequences": 2, "length": 40},
    "mistral": {"config": {
        "architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": 24,
        "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 6, "hidden_act": "silu", "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "sliding_window": 7, "initializer_range": 0.02,
        "attention_dropout": 0.0, "tie_word_embeddings": False, "vocab_size": 61},
        "sequences": 3, "length": 24},
    "qwen2": {"config": {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 24,
        "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "hidden_act": "silu", "max_position_embeddings": 64,
        "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "initializer_range": 0.02,
        "attention_dropout": 0.0, "use_sliding_window": False, "tie_word_embeddings": True,
        "vocab_size": 101}, "sequences": 3, "length": 18},
    "qwen3": {"config": {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 24,
        "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 10, "hidden_act": "silu", "max_position_embeddings": 64,
        "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "rope_scaling": None, "initializer_range": 0.02,
        "attention_bias": False, "attention_dropout": 0.0, "use_sliding_window": False,
        "tie_word_embeddings": False, "vocab_size": 61}, "sequences": 2, "length": 22},
    "gpt2": {"config": {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 24, "n_layer": 2,
        "n_head": 4, "n_positions": 40, "n_ctx": 40, "activation_function": "gelu_new",
        "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "attn_pdrop": 0.0, "embd_pdrop": 0.0,
        "resid_pdrop": 0.0, "vocab_size": 131}, "sequences": 3, "length": 16},
}


class WideTorch:
    """The torch module to modelling code that says torch.float32: norms, softmax
    and rotary tables of transformers compute in fp32 whatever the model's type."""

    float32 = float = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def everything_in_fp64():
    models = transformers.models
    modules = [transformers.modeling_rope_utils, models.gpt2.modeling_gpt2, models.llama.modeling_llama,
               models.mistral.modeling_mistral, models.qwen2.modeling_qwen2, models.qwen3.modeling_qwen3]
    to_float = torch.Tensor.float
    torch.Tensor.float = torch.Tensor.double
    for module in modules:
        module.torch = WideTorch()
    try:
        yield
    finally:
        torch.Tensor.float = to_float
        for module in modules:
            module.torch = torch


def build_model(config):
    known = transformers.AutoConfig.for_model(**{k: v for k, v in config.items() if k != "architectures"})
    model = transformers.AutoModelForCausalLM.from_config(known, attn_implementation="eager")
    return model.double().eval()


def named_parameters(model):
    """By HF name; a tied tensor once, under the embedding's name."""
    return dict(model.named_parameters())


def random_weights(model, generator):
    weights = {}
    for name, parameter in named_parameters(model).items():
        values = generator.standard_normal(tuple(parameter.shape))
        if name.endswith("bias"):
            values = BIAS_STD * values
        elif parameter.dim() == 1:
            values = 1 + NORM_STD * values
        else:
            values = MATRIX_STD * values
        weights[name] = values.astype(numpy.float32)
    return weights


def random_batch(fixture, generator):
    """Labels are given per position: the next token where there is one in the
    same document, and here and there not counted."""
    n, length = fixture["sequences"], fixture["length"]
    tokens = generator.integers(0, fixture["config"]["vocab_size"], (n, length))
    labels = numpy.full((n, length), IGNORED)
    labels[:, :-1] = tokens[:, 1:]
    labels[generator.random((n, length)) < 0.2] = IGNORED
    labels[0, length // 2:] = IGNORED  # sequences with unequal numbers of counted labels
    batch = {"tokens": tokens, "labels": labels}
    if "documents" in fixture:
        lengths = fixture["documents"]
        batch["documents"] = numpy.array([numpy.repeat(range(len(row)), row) for row in lengths])
        batch["positions"] = numpy.array([numpy.concatenate([numpy.arange(k) for k in row]) for row in lengths])
        last = batch["documents"][:, :-1] != batch["documents"][:, 1:]
        labels[:, :-1][last] = IGNORED
    return {name: values.astype(numpy.int32) for name, values in batch.items()}


def document_mask(documents):
    """Additive, as eager attention takes it: [n, 1, query, key]."""
    length = documents.shape[1]
    seen = (documents[:, :, None] == documents[:, None, :]) & torch.ones(length, length).tril().bool()
    return torch.zeros(seen.shape, dtype=torch.float64).masked_fill(~seen, torch.finfo(torch.float64).min)[:, None]


def loss_of(model, batch):
    """sum of the counted labels' losses / number of counted labels."""
    given = {name: torch.from_numpy(values.astype(numpy.int64)) for name, values in batch.items()}
    options = {}
    if "documents" in given:
        options = {"attention_mask": document_mask(given["documents"]), "position_ids": given["positions"]}
    logits = model(input_ids=given["tokens"], use_cache=False, **options).logits
    if logits.dtype != torch.float64:
        raise SystemExit(f"logits are {logits.dtype}, not fp64")
    losses = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), given["labels"].flatten(), ignore_index=IGNORED, reduction="sum")
    return losses / (given["labels"] != IGNORED).sum()


def check_precision(model, batch, gradients, generator):
    """The slope along a random direction must agree with central differences to
    far more digits than fp32 has; one op left in fp32 fails this."""
    parameters = named_parameters(model)
    direction = {name: torch.from_numpy(generator.standard_normal(tuple(p.shape))) for name, p in parameters.items()}
    slope = sum(float((torch.from_numpy(gradients[name]) * d).sum()) for name, d in direction.items())
    step, values = 2e-5, []
    with torch.no_grad():
        for scale in (1, -2, 3, -4, 2):  # at +h, -h, +2h, -2h, and back at 0
            for name, p in parameters.items():
                p += scale * step * direction[name]
            values.append(float(loss_of(model, batch)))
    near, far = values[0] - values[1], values[2] - values[3]
    difference = (8 * near - far) / (12 * step)
    error = abs(difference - slope) / abs(slope)
    if error > 1e-8:
        raise SystemExit(f"slope {slope} differs from central differences {difference} by {error:.1e}: not all in fp64")
    return error


def compute(config, weights, batch):
    """Loss and gradients by HF name, fp64, and the error of check_precision."""
    with everything_in_fp64():
        model = build_model(config)
        with torch.no_grad():
            parameters = named_parameters(model)
            if parameters.keys() != weights.keys():
                raise SystemExit(f"weights do not match: {sorted(parameters.keys() ^ weights.keys())}")
            for name, parameter in parameters.items():
                parameter.copy_(torch.from_numpy(weights[name]).double())
        loss = loss_of(model, batch)
        loss.backward()
        gradients = {name: p.grad.numpy().copy() for name, p in parameters.items()}
        error = check_precision(model, batch, gradients, numpy.random.default_rng(7))
    return {"loss": numpy.array([float(loss.detach())]), **gradients}, error


def check_purpose(name, config, weights, batch, expected):
    """A fixture must show what it is there for: without it the loss is another."""
    without = [({**config, key: None}, batch) for key in ("sliding_window", "rope_scaling") if config.get(key)]
    if "documents" in batch:
        without += [(config, {**batch, "documents": 0 * batch["documents"]}),
                    (config, {k: v for k, v in batch.items() if k in ("tokens", "labels")})]
    for other_config, other_batch in without:
        difference = compute(other_config, weights, other_batch)[0]["loss"] - expected["loss"]
        if abs(difference[0]) < 1e-3:
            raise SystemExit(f"{name}: the loss hardly depends on what the fixture is there for ({difference[0]:.1e})")
    scaling = config.get("rope_scaling")
    if scaling:
        head = config["head_dim"]
        waves = [2 * math.pi * config["rope_theta"] ** (2 * i / head) for i in range(head // 2)]
        original = scaling["original_max_position_embeddings"]
        low, high = original / scaling["low_freq_factor"], original / scaling["high_freq_factor"]
        bands = {0 if w < high else 2 if w > low else 1 for w in waves}
        if bands != {0, 1, 2}:
            raise SystemExit(f"{name}: wavelengths {waves} miss a band of ({high}, {low})")


def write(folder, fixture, seed):
    generator = numpy.random.default_rng(seed)
    with everything_in_fp64():
        weights = random_weights(build_model(fixture["config"]), generator)
    batch = random_batch(fixture, generator)
    expected, error = compute(fixture["config"], weights, batch)
    check_purpose(folder.name, fixture["config"], weights, batch, expected)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(fixture["config"], indent=2) + "\n")
    safetensors.numpy.save_file(weights, folder / "weights.safetensors")
    safetensors.numpy.save_file(batch, folder / "batch.safetensors")
    safetensors.numpy.save_file(expected, folder / "expected.safetensors")
    return f"written, loss {expected['loss'][0]:.6f}, slope error {error:.1e}"


def relative(found, reference, whole):
    return numpy.linalg.norm(found - reference) / max(numpy.linalg.norm(reference), 1e-6 * whole)


def check(folder, fixture, seed):
    del fixture, seed  # all from the files
    config = json.loads((folder / "config.json").read_text())
    weights = safetensors.numpy.load_file(folder / "weights.safetensors")
    batch = safetensors.numpy.load_file(folder / "batch.safetensors")
    stored = safetensors.numpy.load_file(folder / "expected.safetensors")
    expected, error = compute(config, weights, batch)
    if expected.keys() != stored.keys():
        raise SystemExit(f"{folder.name}: names differ: {sorted(expected.keys() ^ stored.keys())}")
    whole = math.sqrt(sum(numpy.linalg.norm(v) ** 2 for k, v in stored.items() if k != "loss"))
    worst = max(expected, key=lambda name: relative(expected[name], stored[name], whole))
    difference = relative(expected[worst], stored[worst], whole)
    if not difference < 1e-11:
        raise SystemExit(f"{folder.name}: {worst} differs by {difference:.1e}, expected below 1e-11")
    return f"equal, largest difference {difference:.1e} ({worst}), slope error {error:.1e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--check", action="store_true", help="recompute from the files and compare")
    parser.add_argument("--only", choices=FIXTURES, help="one fixture")
    parser.add_argument("--folder", type=pathlib.Path, default=HERE / "fixtures")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # sums in one order
    for seed, (name, fixture) in enumerate(FIXTURES.items(), start=1):
        if arguments.only in (None, name):
            act = check if arguments.check else write
            print(f"{name}: {act(arguments.folder / name, fixture, seed)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
