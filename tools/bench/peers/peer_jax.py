"""The training step in JAX: one jitted function with donated state."""

import functools

import jax
import jax.numpy as jnp

import problem


def rms_norm(x, weight, eps):
    return x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def rope(x, cos, sin):
    first, second = jnp.split(x, 2, axis=-1)
    return jnp.concatenate((first * cos - second * sin, second * cos + first * sin), axis=-1)


def loss_of(weights, tokens, labels, cos, sin, model):
    head, eps = model["head_dim"], model["rms_norm_eps"]
    batch, length = tokens.shape
    x = weights["model.embed_tokens.weight"][tokens]
    for layer in range(model["num_hidden_layers"]):
        def weight(name):
            return weights[f"model.layers.{layer}.{name}.weight"]

        def heads(name, normed):
            return (normed @ weight(name).T).reshape(batch, length, -1, head)
        normed = rms_norm(x, weight("input_layernorm"), eps)
        q, k = (rope(heads(f"self_attn.{name}_proj", normed), cos, sin) for name in "qk")
        v = heads("self_attn.v_proj", normed)
        mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        x = x + mixed.reshape(batch, length, -1) @ weight("self_attn.o_proj").T
        normed = rms_norm(x, weight("post_attention_layernorm"), eps)
        gated = jax.nn.silu(normed @ weight("mlp.gate_proj").T) * (normed @ weight("mlp.up_proj").T)
        x = x + gated @ weight("mlp.down_proj").T
    logits = rms_norm(x, weights["model.norm.weight"], eps) @ weights["lm_head.weight"].T
    picked = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, axis=-1) - picked)


def update(weights, first, second, count, gradients):
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in gradients.values()))
    scale = jnp.minimum(1.0, problem.CLIP_NORM / (norm + 1e-6))
    beta1, beta2 = problem.BETAS
    new = {}, {}, {}
    for name, w in weights.items():
        g = gradients[name] * scale
        m = beta1 * first[name] + (1 - beta1) * g
        v = beta2 * second[name] + (1 - beta2) * g * g
        decay = problem.WEIGHT_DECAY if w.ndim > 1 else 0.0
        moved = m / (1 - beta1 ** count) / (jnp.sqrt(v / (1 - beta2 ** count)) + problem.EPSILON)
        new[0][name] = w * (1 - problem.LEARNING_RATE * decay) - problem.LEARNING_RATE * moved
        new[1][name], new[2][name] = m, v
    return new


class Peer:
    def __init__(self, model, sequences, length, threads, compiled=True):
        del threads, compiled  # XLA takes the cores that the process may use
        tokens, labels = map(jnp.asarray, problem.batch(model, sequences, length))
        cos, sin = (jnp.asarray(table)[:, None] for table in problem.rotary(model, length))
        weights = {name: jnp.asarray(value) for name, value in problem.weights(model).items()}
        self.state = (weights, *({name: jnp.zeros_like(w) for name, w in weights.items()} for _ in range(2)))
        self.count = 0

        @functools.partial(jax.jit, donate_argnums=(0,))
        def step(state, count):
            loss, gradients = jax.value_and_grad(loss_of)(state[0], tokens, labels, cos, sin, model)
            return loss, update(*state, count, gradients)
        self.compiled = step

    def step(self):
        """One optimizer step; the loss before it."""
        self.count += 1
        loss, self.state = self.compiled(self.state, jnp.float32(self.count))
        jax.block_until_ready(self.state)
        return float(loss)
