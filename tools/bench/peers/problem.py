"""What every peer trains: a Llama, its random weights, a batch, and the optimizer's
numbers. numpy alone."""

import json
import math

import numpy

LEARNING_RATE = 1e-3
BETAS = (0.9, 0.95)
EPSILON = 1e-8
WEIGHT_DECAY = 0.1  # of matrices; norm weights have none
CLIP_NORM = 1.0


def read_model(path):
    with open(path, encoding="utf-8") as file:
        model = json.load(file)
    if model.get("model_type") != "llama" or model.get("rope_scaling") or model.get("tie_word_embeddings"):
        raise SystemExit(f"{path}: expected an untied llama without RoPE scaling")
    return model


def shapes(model):
    """By HF name, [out, in]."""
    hidden, ffn, head = model["hidden_size"], model["intermediate_size"], model["head_dim"]
    queries, keys = model["num_attention_heads"] * head, model["num_key_value_heads"] * head
    found = {"model.embed_tokens.weight": (model["vocab_size"], hidden), "model.norm.weight": (hidden,),
             "lm_head.weight": (model["vocab_size"], hidden)}
    for layer in range(model["num_hidden_layers"]):
        block = f"model.layers.{layer}."
        found |= {
            block + "input_layernorm.weight": (hidden,), block + "post_attention_layernorm.weight": (hidden,),
            block + "self_attn.q_proj.weight": (queries, hidden), block + "self_attn.k_proj.weight": (keys, hidden),
            block + "self_attn.v_proj.weight": (keys, hidden), block + "self_attn.o_proj.weight": (hidden, queries),
            block + "mlp.gate_proj.weight": (ffn, hidden), block + "mlp.up_proj.weight": (ffn, hidden),
            block + "mlp.down_proj.weight": (hidden, ffn)}
    return found


def weights(model):
    generator = numpy.random.default_rng(1)
    std = model.get("initializer_range", 0.02)
    return {name: (numpy.ones(shape) if len(shape) == 1 else std * generator.standard_normal(shape)).astype(
        numpy.float32) for name, shape in shapes(model).items()}


def batch(model, sequences, length):
    """Tokens and next tokens, both [sequences, length]; all labels count."""
    drawn = numpy.random.default_rng(2).integers(0, model["vocab_size"], (sequences, length + 1))
    return drawn[:, :-1].copy(), drawn[:, 1:].copy()


def rotary(model, length):
    """cos and sin, [length, head / 2], fp32."""
    half = model["head_dim"] // 2
    angles = numpy.outer(numpy.arange(length), model["rope_theta"] ** (-numpy.arange(half) / half))
    return numpy.cos(angles).astype(numpy.float32), numpy.sin(angles).astype(numpy.float32)


def step_flops(model, sequences, length):
    """Multiplications and additions of matrix products in one step, forward and
    backward; attention over the causal half."""
    matrices = sum(math.prod(shape) for name, shape in shapes(model).items()
                   if len(shape) == 2 and "embed_tokens" not in name)
    attention = 2 * model["num_attention_heads"] * model["head_dim"] * (length + 1) / 2 * model["num_hidden_layers"]
    return 3 * 2 * (matrices + attention) * sequences * length
