"""The training step in PyTorch, eager or compiled, and this machine's ceilings."""

import time

import numpy
import torch
import torch.nn.functional as F

import problem


def rope(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def loss_of(weights, tokens, labels, cos, sin, model):
    head, eps = model["head_dim"], model["rms_norm_eps"]
    batch, length = tokens.shape
    x = F.embedding(tokens, weights["model.embed_tokens.weight"])
    for layer in range(model["num_hidden_layers"]):
        def weight(name):
            return weights[f"model.layers.{layer}.{name}.weight"]

        def heads(name, normed):
            return F.linear(normed, weight(name)).view(batch, length, -1, head).transpose(1, 2)
        normed = F.rms_norm(x, x.shape[-1:], weight("input_layernorm"), eps)
        q, k = (rope(heads(f"self_attn.{name}_proj", normed), cos, sin) for name in "qk")
        v = heads("self_attn.v_proj", normed)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + F.linear(mixed.transpose(1, 2).reshape(batch, length, -1), weight("self_attn.o_proj"))
        normed = F.rms_norm(x, x.shape[-1:], weight("post_attention_layernorm"), eps)
        gated = F.silu(F.linear(normed, weight("mlp.gate_proj"))) * F.linear(normed, weight("mlp.up_proj"))
        x = x + F.linear(gated, weight("mlp.down_proj"))
    x = F.rms_norm(x, x.shape[-1:], weights["model.norm.weight"], eps)
    return F.cross_entropy(F.linear(x, weights["lm_head.weight"]).flatten(0, 1), labels.flatten())


class Peer:
    def __init__(self, model, sequences, length, threads, compiled):
        torch.set_num_threads(threads)
        self.weights = {name: torch.nn.Parameter(torch.from_numpy(value))
                        for name, value in problem.weights(model).items()}
        tokens, labels = map(torch.from_numpy, problem.batch(model, sequences, length))
        cos, sin = map(torch.from_numpy, problem.rotary(model, length))
        decayed = [w for w in self.weights.values() if w.dim() > 1]
        plain = [w for w in self.weights.values() if w.dim() == 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": problem.WEIGHT_DECAY}, {"params": plain, "weight_decay": 0.0}],
            lr=problem.LEARNING_RATE, betas=problem.BETAS, eps=problem.EPSILON, fused=True)

        def loss(weights):
            return loss_of(weights, tokens, labels, cos, sin, model)
        self.loss = torch.compile(loss) if compiled else loss

    def step(self):
        """One optimizer step; the loss before it."""
        self.optimizer.zero_grad()
        loss = self.loss(self.weights)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(self.weights.values()), problem.CLIP_NORM)
        self.optimizer.step()
        return float(loss.detach())


def best(function, times=5):
    seconds = []
    for _ in range(times):
        begin = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


class Ceilings:
    """What nothing on these threads is faster than: an fp32 product of the model's
    largest shape and a square one, and a copy (bytes read + bytes written)."""

    def __init__(self, model, sequences, length, threads, compiled=False):
        torch.set_num_threads(threads)
        rows, hidden, ffn = sequences * length, model["hidden_size"], model["intermediate_size"]
        self.products = [[torch.randn(m, k), torch.randn(k, n)] for m, k, n in ((rows, hidden, ffn), (2048, 2048, 2048))]
        self.from_, self.to = torch.from_numpy(numpy.ones(1 << 26, numpy.float32)), torch.empty(1 << 26)

    def measure(self):
        """{gemm: [model's, square] in FLOP/s, copy: bytes/s}."""
        rates = [2 * a.shape[0] * a.shape[1] * b.shape[1] / best(lambda: torch.mm(a, b)) for a, b in self.products]
        return {"gemm": rates, "copy": 2 * 4 * self.to.numel() / best(lambda: self.to.copy_(self.from_))}
