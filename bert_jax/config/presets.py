"""Published recipes: for each, the knobs that differ from the defaults, and their sources.

A recipe sets rate, steps, batch and learning rate if its source states them. Size, number type,
devices and text stay with the config. `config.default(NAME)` is a config with a preset, and
`bert-jax doctor --preset-diff A B` compares two. docs/presets.md lists what is not reproduced.
"""

from typing import Any

from bert_jax.config.model_knobs import LEAST

GOOGLE_2018: dict[str, Any] = {
    "tokenizer.max_word_length": 200,
    "masking.max_unit": 512,  # this and overflow act if masking.unit=word is asked for
    "masking.overflow": "skip",
    "masking.count": "all",
    "masking.rounding": "nearest",
    "masking.dupe_factor": 10,
    "model.classifier_dropout": 0.1,
    "optim.name": "adam2018",
    "optim.schedule": "linear2018",
}
GOOGLE_HEAD = GOOGLE_2018 | {"model.activation": "gelu_tanh"}

HUGGINGFACE: dict[str, Any] = {
    "pairs": "none",
    "tokenizer.max_word_length": 100,
    "model.attention_bias": LEAST,
    "model.init": "normal",
    "optim.epsilon": 1e-8,
    "optim.weight_decay": 0.0,
    "optim.learning_rate": 5e-5,
    "optim.warmup_steps": 0,
}

FAIRSEQ: dict[str, Any] = {
    "pairs": "none",
    "masking.random_from": "regular",
    "model.type_vocab": 1,
    "model.norm_epsilon": 1e-5,
    "model.attention_bias": LEAST,
    "model.init": "normal",
    "optim.b2": 0.98,
    "optim.no_decay": "",
    "optim.clip_norm": 0.0,
}
ROBERTA = FAIRSEQ | {
    "optim.learning_rate": 6e-4,
    "optim.warmup_steps": 24_000,
    "steps": 500_000,
    "batch_size": 8_192,
    "sequence_length": 512,
}
WETTIG = FAIRSEQ | {
    "masking.rate": 0.4,
    "masking.replace": (1.0, 0.0, 0.0),
    "model.norm": "pre",
    "optim.learning_rate": 2e-3,
    "optim.warmup_steps": 1_380,
    "steps": 23_000,
    "batch_size": 4_096,
}

MOSAIC: dict[str, Any] = {
    "pairs": "none",
    "tokenizer.max_word_length": 100,
    "masking.rate": 0.3,
    "model.position": "alibi",
    "model.gated": True,
    "model.attention_dropout": 0.0,
    "model.init": "normal",
    "optim.b2": 0.98,
    "optim.weight_decay": 1e-5 / 5e-4,  # its decay of 1e-5 is not multiplied by the peak rate
    "optim.no_decay": "",
    "optim.clip_norm": 0.0,
    "optim.final_fraction": 0.02,
    "optim.learning_rate": 5e-4,
    "optim.warmup_steps": 4_200,
    "steps": 70_000,
    "batch_size": 4_096,
}

MODERNBERT: dict[str, Any] = {
    "pairs": "none",
    "masking.rate": 0.3,
    "model.position": "rotary",
    "model.window": 64,
    "model.global_every": 3,
    "model.type_vocab": 0,
    "model.norm": "pre",
    "model.first_norm": False,
    "model.norm_epsilon": 1e-5,
    "model.biases": False,
    "model.gated": True,
    "model.pooling": "mean",
    "model.pooler": "transform",
    "model.dropout": 0.0,
    "model.attention_dropout": 0.0,
    "model.attention_bias": LEAST,
    "optim.b2": 0.98,
    "optim.weight_decay": 1e-5 / 8e-4,  # as mosaic's
    "optim.clip_norm": 0.0,
    "optim.schedule": "constant",
    "optim.learning_rate": 8e-4,
    "optim.warmup_steps": 636,  # 3 billion tokens
    "steps": 364_304,  # 1,719 billion tokens
    "batch_size": 4_608,
    "sequence_length": 1_024,
}

NEOBERT: dict[str, Any] = {
    "pairs": "none",
    "tokenizer.max_word_length": 100,
    "masking.rate": 0.2,
    "masking.replace": (1.0, 0.0, 0.0),
    "model.position": "rotary",
    "model.type_vocab": 0,
    "model.norm": "pre",
    "model.norm_kind": "rms",
    "model.norm_epsilon": 1e-5,
    "model.embedding_norm": False,
    "model.biases": False,
    "model.pooler_bias": True,
    "model.gated": True,
    "model.activation": "silu",
    "model.head_activation": "gelu",
    "model.word_head": "matrix",
    "model.dropout": 0.0,
    "model.attention_dropout": 0.0,
    "model.classifier_dropout": 0.1,
    "model.attention_bias": LEAST,
    "model.init": "normal",
    "model.init_stddev": 0.02 / 3**0.5,  # of weights that are uniform within 0.02 of zero
    "optim.b2": 0.95,
    "optim.epsilon": 1e-8,
    "optim.no_decay": "",
    "optim.schedule": "cosine",
    "optim.final_fraction": 0.1,
    "optim.warmup_steps": 2_000,
    "batch_size": 2_048,  # 64 rows on each of 8 GPUs, 4 times
    "sequence_length": 1_024,
}

GPT_BERT: dict[str, Any] = {
    "pairs": "none",
    "objectives.hybrid.share": 1 / 16,
    "objectives.hybrid.shift": True,
    "masking.rate": 0.3,
    "masking.phases": ((1.0, 0.15, "linear"),),
    "masking.random_from": "regular",
    "model.position": "relative",
    "model.type_vocab": 0,
    "model.norm": "pre",
    "model.inner_norm": True,
    "model.norm_parameters": False,
    "model.norm_epsilon": 1e-5,
    "model.mlp_biases": False,
    "model.activation": "gelu_tanh",
    "model.head_activation": "gelu",
    "model.gated": True,
    "model.attention_gate": True,
    "model.layer_weights": True,
    "model.pooler": "transform",
    "model.attention_bias": LEAST,
    "model.init_stddev": (2 / (5 * 768)) ** 0.5,
    "optim.name": "lamb",
    "optim.b2": 0.98,
    "optim.epsilon": 1e-8,
    "optim.weight_decay": 0.1,
    "optim.clip_norm": 2.0,
    "optim.schedule": "cosine",
    "optim.final_fraction": 0.1,
    "optim.learning_rate": 1e-2,
    "optim.warmup_steps": 250,
    "steps": 15_625,
    "batch_size": 32_768,
}

PRESETS: dict[str, dict[str, Any]] = {
    "google_2018": GOOGLE_2018,
    "google_head": GOOGLE_HEAD,
    "huggingface": HUGGINGFACE,
    "roberta": ROBERTA,
    "wettig": WETTIG,
    "mosaic": MOSAIC,
    "modernbert": MODERNBERT,
    "neobert": NEOBERT,
    "gpt_bert": GPT_BERT,
}

ABOUT: dict[str, str] = {  # docs/presets.md has files, sizes and what is not reproduced
    "google_2018": "BERT as first released (google-research/bert), with the exact GELU.",
    "google_head": "BERT as its repository has been since 2019: GELU by its tanh approximation.",
    "huggingface": "What transformers does when told nothing: BertConfig, run_mlm.py, Trainer.",
    "roberta": "RoBERTa base (Liu et al. 2019), by facebookresearch/fairseq.",
    "wettig": "Should You Mask 15%? (Wettig et al. 2022), size large, by princeton-nlp/DinkyTrain.",
    "mosaic": "MosaicBERT base (mosaicml/examples); its optimizer decays every parameter.",
    "modernbert": "ModernBERT base, first of three stages (Warner et al. 2024).",
    "neobert": "NeoBERT, first of two stages (Le Breton et al. 2025).",
    "gpt_bert": "GPT-BERT base of BabyLM's 100 million words (Charpentier and Samuel 2024).",
}
