"""What several presets have in common."""

from __future__ import annotations

from typing import Any

# The most negative float32: beside a real score its weight is exactly 0, like that of -inf.
LEAST = -3.4028234663852886e38

MASKING: dict[str, Any] = {  # the same in all sources
    "masking.prediction_rate": None,
    "masking.unit": "token",
    "masking.schedule": "constant",
    "masking.final_rate": None,
}
MODEL: dict[str, Any] = {
    "model.gated": False,
    "model.causal": False,
    "model.window": 0,
    "model.global_every": 0,
    "model.first_position": 0,
    "model.rotary_base": 10_000.0,
    "model.rotary_base_near": None,
    "model.first_norm": True,
    "model.embedding": None,
    "model.norm_kind": "layer",
    "model.embedding_norm": True,
    "model.word_head": "transform",
    "model.biases": True,
    "model.pooler_bias": None,
    "model.inner_norm": False,
    "model.norm_parameters": True,
    "model.mlp_biases": None,
    "model.attention_gate": False,
    "model.layer_weights": False,
    "model.position_buckets": 32,
    "model.pooling": "cls",
    "model.pooler": "tanh",
    "model.dropout": 0.1,
    "model.init_stddev": 0.02,
}
SINCE: dict[str, Any] = (
    MASKING
    | MODEL
    | {  # the same in all sources but google's
        "pairs": "none",
        "objectives.mlm.weight": 1.0,
        "masking.count": "eligible",
        "masking.rounding": "unbiased",
        "masking.dupe_factor": 0,
        "model.activation": "gelu",
        "model.head_activation": "gelu",
        "model.init": "normal",
        "optim.name": "adamw",
        "optim.b1": 0.9,
        "optim.schedule": "linear",
    }
)

FAIRSEQ: dict[str, Any] = SINCE | {
    "masking.random_from": "regular",
    "model.position": "learned",
    "model.max_positions": 512,
    "model.type_vocab": 1,
    "model.norm_epsilon": 1e-5,
    "model.attention_dropout": 0.1,
    "model.attention_bias": LEAST,
    "optim.b2": 0.98,
    "optim.epsilon": 1e-6,
    "optim.weight_decay": 0.01,
    "optim.no_decay": "",
    "optim.clip_norm": 0.0,
    "optim.final_fraction": 0.0,
}
