"""From a case's words to Heddle's files: config.json, plan.json, train.yaml.

What Heddle cannot do yet stands in the tables at the top and nowhere else; each
function raises Missing with the feature's name where a case needs one of them.
"""

import math
import re

import stages
from outcome import Missing

# Widened by whoever adds the feature.
FAMILIES = {"llama", "mistral", "qwen2", "qwen3", "gpt2"}
PLANNED_FAMILIES = {*FAMILIES, "mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v3"}  # plan and explain take them
AXES = {"dp", "tp", "pp"}
PRECISIONS = {"fp32": "fp32", "bf16_fp32_master": "bf16", "bf16": "bf16", "fp16_dynamic_scale": "fp16"}
WITHOUT_MASTERS = {"bf16_fp32_master": "bf16"}  # the same but for them
RECOMPUTE = ("none", "selective", "full")
# What Heddle does in any case, so that no key of a plan says it.
GIVEN = {"labels_on": "labels_on is not chosen: every rank reads the labels that it needs",
         "inject_inf": "an infinity is planted when the program runs",
         "streams": "streams are not chosen: a program has one each for computation, collectives and copies",
         "random_delays": "queued work is delayed by a seed when the program runs in checking mode"}
PLAN_KEYS = {"dp", "tp", "pp", "cp", "ep", "microbatches", "microbatch_sizes", "precision", "sp", "zero", "bucket_numel",
             "recompute", *stages.KEYS, *GIVEN}
WHOLE_MODEL = {"whole model": 0, "total": 0, "total+1": 1}  # bucket_numel in words: elements beyond all parameters
ELEMENT_BYTES = 4
OVERLAP_BYTES = 2 ** 30  # more than the small models of cases can use
OPTIMIZER_KEYS = {"lr": "lr", "betas": "betas", "eps": "eps", "weight_decay": "weight_decay", "clip": "clip_norm"}
TRAIN_KEYS = {"optimizer", "steps", "seed", "gradients", "initial_scale", "schedule", "init", *OPTIMIZER_KEYS}
COSINE = re.compile(r"cosine (\S+)->(\S+) over (\d+), warmup (\d+)")

# Keys of the case format that no config.json has: what each family has in any case.
FIXED = {"norm_type": "rmsnorm", "position": "rope", "norm_position": "pre"}
FIXED_BY_FAMILY = {
    "gpt2": {"norm_type": "layernorm", "position": "learned", "attention_bias": True, "mlp_bias": True},
    "mistral": {"attention_bias": False, "mlp_bias": False},
    "qwen2": {"attention_bias": False, "mlp_bias": False, "qkv_bias": True},
    "qwen3": {"mlp_bias": False, "qk_norm": "per_head"},
    "mixtral": {"attention_bias": False, "mlp_bias": False},
}
# Of these a falsy value means "has none", which is what a family has that does not fix them.
EXTRA_KEYS = {
    *FIXED, "qk_norm", "qkv_bias", "embedding_scale", "sandwich_norm", "sliding_window_layers", "attention_sinks",
    "share_mlp", "share_all_layers", "extra_params", "extra_unused_linear", "frozen_params", "conditional_skip",
    "embedding_layernorm"}
DROPOUT_KEYS = {"attention_dropout": "attn_pdrop", "hidden_dropout": "resid_pdrop", "embedding_dropout": "embd_pdrop"}
GPT2_NAMES = {
    "hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head",
    "max_position_embeddings": "n_positions", "hidden_act": "activation_function",
    "layer_norm_eps": "layer_norm_epsilon", **DROPOUT_KEYS}


def require_family(config, families=FAMILIES):
    family = config.get("model_type")
    if family not in families:
        raise Missing(f"family {family}")
    return family


def config_of(model, families=FAMILIES):
    """The config.json of a case's model."""
    family = require_family(model, families)
    fixed = {**FIXED, **FIXED_BY_FAMILY.get(family, {})}
    config = {}
    for key, value in model.items():
        if key in ("hidden_dropout", "embedding_dropout") and value and family != "gpt2":
            raise Missing(f"{key} {value} for family {family}")
        if key in fixed:
            if value != fixed[key]:
                raise Missing(f"{key} {value} for family {family}")
        elif key in EXTRA_KEYS:
            if value:
                raise Missing(f"{key} {value} for family {family}")
        elif key != "bias_init" and (family == "gpt2" or key not in ("hidden_dropout", "embedding_dropout")):
            config[key] = value
    for key, value in fixed.items():
        if key in EXTRA_KEYS - set(FIXED) and not model.get(key):
            raise Missing(f"family {family} without {key}")
    return gpt2_config(config) if family == "gpt2" else without_derived(config, family)


def without_derived(config, family):
    """Qwen2's own config files give no head_dim: it is hidden / heads."""
    if family == "qwen2" and config.get("head_dim") == config["hidden_size"] // config["num_attention_heads"]:
        del config["head_dim"]
    return config


def gpt2_config(config):
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    for key, value in (("num_key_value_heads", heads), ("head_dim", hidden // heads)):
        if config.pop(key, value) != value:
            raise Missing(f"{key} other than {value} for family gpt2")
    inner = config.pop("intermediate_size", 4 * hidden)
    if inner != 4 * hidden:
        config["n_inner"] = inner
    if config.get("tie_word_embeddings"):
        del config["tie_word_embeddings"]  # what GPT-2 does without the key
    return {GPT2_NAMES.get(key, key): value for key, value in config.items()}


def require_plan(plan):
    """Raises Missing, naming all that the plan needs and Heddle lacks."""
    needs = []
    for key, value in plan.items():
        if value == "auto":
            needs.append("heddle plan")
        elif key in ("dp", "tp", "pp", "cp", "ep"):
            if value != 1 and key not in AXES:
                needs.append(f"{key} {value}")
        elif key == "recompute":
            if value not in RECOMPUTE:
                needs.append(f"recompute {value}")
        elif key == "precision":
            if value not in PRECISIONS:
                needs.append(f"precision {value}")
        elif key not in PLAN_KEYS:
            needs.append(f"plan key {key}")
    needs += stages.needs_of(plan)
    if needs:
        raise Missing(", ".join(dict.fromkeys(needs)))


def precision_of(precision):
    return {"recipe": PRECISIONS[precision], **({"master": "none"} if precision in WITHOUT_MASTERS.values() else {})}


def plan_of(plan, layers, sequences, parameters=0):
    """plan.json, for steps of `sequences` sequences and a model of so many parameters.
    Where sequences do not divide, the next larger micro-batch: refusing that is
    Heddle's part."""
    require_plan(plan)
    micro_batches = plan["microbatches"] * plan.get("accumulation_rounds", 1)
    micro_batch = math.ceil(sequences / (plan["dp"] * micro_batches))
    require_sizes(plan, micro_batch, sequences)
    return {
        "version": 1,
        "mesh": [["pp", plan.get("pp", 1)], ["dp", plan["dp"]], ["cp", plan.get("cp", 1)], ["tp", plan["tp"]]],
        "micro_batch": micro_batch,
        "micro_batches": micro_batches,
        "stages": stages.stages_of(plan, layers),
        "tensor": "megatron",
        "sequence_parallel": plan.get("sp", False),
        "precision": precision_of(plan.get("precision", "fp32")),
        "zero": {"stage": plan.get("zero", 0)},
        "recompute": plan.get("recompute", "none"),
        **buckets_of(plan, parameters),
    }


def buckets_of(plan, parameters):
    """Buckets of that many elements, reduced beside backward."""
    if "bucket_numel" not in plan:
        return {}
    numel = plan["bucket_numel"]
    if isinstance(numel, str):
        if numel not in WHOLE_MODEL:
            raise Missing(f"bucket_numel {numel}")
        numel = parameters + WHOLE_MODEL[numel]
    return {"buckets": {"gradient_bytes": ELEMENT_BYTES * numel}, "overlap": {"memory_bytes": OVERLAP_BYTES}}


def require_sizes(plan, micro_batch, sequences):
    """Micro-batches of unequal size: full ones, then what is left."""
    sizes = plan.get("microbatch_sizes", [])
    left = sequences
    for size in sizes:
        if size != min(micro_batch, left) or plan["dp"] != 1:
            raise Missing(f"microbatch_sizes {sizes}")
        left -= size


def train_of(train, batch_sequences, length):
    """train.yaml; without a `train` in the case SGD with 0.1, as `heddle verify`. A
    `train` without an optimizer is about what a run begins with: no weight moves."""
    train = train or {"optimizer": "sgd", "lr": 0.1, "steps": 1}
    if "optimizer" not in train:
        train = {**train, "optimizer": "sgd", "lr": 1e-30}
    unknown = sorted(train.keys() - TRAIN_KEYS)
    if unknown:
        raise Missing("train keys " + ", ".join(unknown))
    optimizer = {"type": train["optimizer"]}
    optimizer.update({ours: train[theirs] for theirs, ours in OPTIMIZER_KEYS.items() if theirs in train})
    if train.get("gradients") == "zero":
        # A moment divided by (root + eps) is then 0 beside a parameter, whatever the gradient.
        if optimizer["type"] != "adamw":
            raise Missing(f"zero gradients with {optimizer['type']}")
        optimizer["eps"] = 1e30
    elif "gradients" in train:
        raise Missing(f"gradients {train['gradients']}")
    scale = {"loss_scale": {"initial": train["initial_scale"]}} if "initial_scale" in train else {}
    return {"sequence_length": length, "global_batch": batch_sequences, "precision": sorted(set(PRECISIONS.values())),
            **scale, "optimizer": optimizer, "lr_schedule": schedule_of(train), "seed": train.get("seed", 1)}


def schedule_of(train):
    if "schedule" not in train:
        return {"type": "constant"}
    match = COSINE.fullmatch(train["schedule"])
    if not match or float(match[1]) != train["lr"]:
        raise Missing(f"schedule {train['schedule']}")
    return {"type": "cosine", "final_lr": float(match[2]), "steps": int(match[3]), "warmup_steps": int(match[4])}
