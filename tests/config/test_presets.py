"""Presets have the published numbers, differ from the defaults only, and train."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import config
from bert_jax.config import knobs
from bert_jax.config.presets import ABOUT, PRESETS
from bert_jax.masking import quotas
from bert_jax.system.trees import flat
from bert_jax.training import optim
from bert_jax.training.step import compute_inputs, init_state, make_update
from tests import toy

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
MASKED = (0.8, 0.1, 0.1)
ALWAYS = (1.0, 0.0, 0.0)
LEAST = float(np.finfo(np.float32).min)


def under(section: str, **values: Any) -> dict[str, Any]:
    """Return values of a section by their paths."""
    return {f"{section}.{name}".lstrip("."): value for name, value in values.items()}


GOOGLE = [
    under("", pairs="nsp", sequence_length=128, batch_size=256, steps=1_000_000),
    under("masking", rate=0.15, replace=MASKED, unit="token", overflow="skip"),
    under("masking", count="all", rounding="nearest", random_from="all", dupe_factor=10),
    under("examples", short_probability=0.1, random_next_probability=0.5, truncate="either"),
    under("tokenizer", max_word_length=200),
    under("model", norm="post", norm_epsilon=1e-12, position="learned", dropout=0.1),
    under("model", init="truncated_normal", init_stddev=0.02, attention_bias=-10_000.0),
    under("model", attention_dropout=0.1, classifier_dropout=0.1),
    under("optim", name="adam2018", b1=0.9, b2=0.999, epsilon=1e-6, weight_decay=0.01),
    under("optim", no_decay=r"norm/|bias$", clip_norm=1.0, schedule="linear2018"),
    under("optim", learning_rate=1e-4, warmup_steps=10_000),
]
FAIRSEQ = [
    under("", pairs="none"),
    # int(mask_prob * sz + np.random.rand()) tokens are masked.
    under("masking", dupe_factor=0, random_from="regular", rounding="unbiased"),
    under("model", norm_epsilon=1e-5, activation="gelu", init="normal", type_vocab=1),
    under("optim", name="adamw", schedule="linear", b1=0.9, b2=0.98, epsilon=1e-6),
    under("optim", weight_decay=0.01, clip_norm=0.0, no_decay=""),
]
PUBLISHED: dict[str, list[dict[str, Any]]] = {  # by hand from the sources
    "google_2018": [*GOOGLE, under("model", activation="gelu", head_activation="gelu")],
    "google_head": [*GOOGLE, under("model", activation="gelu_tanh", head_activation="gelu_tanh")],
    "huggingface": [
        under("", pairs="none"),
        under("tokenizer", max_word_length=100),
        # On average, as torch.bernoulli for each token.
        under("masking", rate=0.15, replace=MASKED, dupe_factor=0, rounding="unbiased"),
        under("masking", count="eligible", random_from="all"),
        under("model", activation="gelu", norm_epsilon=1e-12, init="normal", dropout=0.1),
        under("model", init_stddev=0.02, attention_bias=LEAST, head_activation="gelu"),
        under("optim", name="adamw", b1=0.9, b2=0.999, epsilon=1e-8, weight_decay=0.0),
        under("optim", clip_norm=1.0, learning_rate=5e-5, warmup_steps=0),
        under("optim", schedule="linear"),
    ],
    "roberta": [
        *FAIRSEQ,
        under("", sequence_length=512, steps=500_000, batch_size=8_192),
        under("masking", rate=0.15, replace=MASKED),
        under("model", norm="post"),
        under("optim", learning_rate=6e-4, warmup_steps=24_000),
    ],
    "wettig": [
        *FAIRSEQ,
        under("", sequence_length=128, steps=23_000, batch_size=4_096),
        under("masking", rate=0.4, replace=ALWAYS),
        under("model", norm="pre"),
        under("optim", learning_rate=2e-3, warmup_steps=1_380),
    ],
    "mosaic": [
        under("", pairs="none", sequence_length=128, steps=70_000, batch_size=4_096),
        under("masking", rate=0.3, replace=MASKED),
        under("model", position="alibi", gated=True, attention_dropout=0.0, dropout=0.1),
        under("model", norm_epsilon=1e-12, init="normal"),
        under("optim", b1=0.9, b2=0.98, epsilon=1e-6, learning_rate=5e-4, no_decay=""),
        under("optim", final_fraction=0.02, weight_decay=0.02, schedule="linear"),
    ],
    "modernbert": [
        under("", pairs="none", sequence_length=1_024, batch_size=4_608),
        under("", steps=round(1.719e12 / (4_608 * 1_024))),
        under("masking", rate=0.3, replace=MASKED),
        under("model", position="rotary", rotary_base=1e4, window=64, global_every=3),
        under("model", norm="pre", first_norm=False, norm_epsilon=1e-5, biases=False),
        under("model", gated=True, type_vocab=0, attention_dropout=0.0),
        under("model", init="truncated_normal", pooling="mean", pooler="transform"),
        under("optim", b1=0.9, b2=0.98, epsilon=1e-6, learning_rate=8e-4),
        under("optim", no_decay=r"norm/|bias$", weight_decay=0.0125, schedule="constant"),
        under("optim", warmup_steps=round(3e9 / (4_608 * 1_024)), clip_norm=0.0),
    ],
    "neobert": [
        under("", pairs="none", sequence_length=1_024, batch_size=64 * 8 * 4),
        under("", steps=1_000_000),
        under("masking", rate=0.2, replace=ALWAYS),
        under("model", position="rotary", rotary_base=1e4, norm="pre", norm_kind="rms"),
        under("model", norm_epsilon=1e-5, embedding_norm=False, biases=False, gated=True),
        under("model", activation="silu", word_head="matrix", type_vocab=0, dropout=0.0),
        under("optim", b1=0.9, b2=0.95, epsilon=1e-8, learning_rate=1e-4, no_decay=""),
        under("optim", weight_decay=0.01, clip_norm=1.0, schedule="cosine"),
        under("optim", final_fraction=0.1, warmup_steps=2_000),
    ],
    "gpt_bert": [
        under("", pairs="none", sequence_length=128, batch_size=32_768),
        under("", steps=31_250 // 2),
        under("objectives.hybrid", share=1 - 15 / 16, shift=True),
        under("masking", rate=0.3, replace=MASKED, random_from="regular"),
        under("model", position="relative", position_buckets=32, max_positions=512),
        under("model", norm="pre", inner_norm=True, norm_parameters=False, biases=True),
        under("model", norm_epsilon=1e-5, mlp_biases=False, activation="gelu_tanh"),
        under("model", head_activation="gelu", gated=True, attention_gate=True),
        under("model", layer_weights=True, type_vocab=0, dropout=0.1),
        under("model", attention_dropout=0.1, init_stddev=math.sqrt(2 / (5 * 768))),
        under("optim", name="lamb", b1=0.9, b2=0.98, epsilon=1e-8, learning_rate=1e-2),
        under("optim", no_decay=r"norm/|bias$", weight_decay=0.1, clip_norm=2.0),
        under("optim", schedule="cosine", final_fraction=0.1),
        under("optim", warmup_steps=int(31_250 // 2 * 0.016)),
    ],
}


def read_value(settings: knobs.Config, path: str) -> Any:
    """Return a knob of a resolved config by its path."""
    found: Any = config.to_dict(settings)
    for name in path.split("."):
        found = found[name]
    return tuple(found) if isinstance(found, list) else found


# --- the tables -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_preset_has_the_published_numbers(name):
    settings = config.resolve(config.default(name))
    published = {path: value for part in PUBLISHED[name] for path, value in part.items()}
    for path, value in published.items():
        assert read_value(settings, path) == pytest.approx(value), path


@pytest.mark.parametrize("name", PRESETS)
def test_preset_names_only_what_differs(name):
    defaults = config.flat(config.to_dict(knobs.Config()))
    for path, value in json.loads(json.dumps(PRESETS[name])).items():
        assert defaults.get(path, "absent") != value, path
        config.checked(path, value)


def test_presets_are_described():
    assert ABOUT.keys() == PRESETS.keys() == PUBLISHED.keys()
    page = (CONFIGS.parent / "docs" / "presets.md").read_text()
    for name in PRESETS:
        assert ABOUT[name].strip().count("\n") < 3
        assert name in page


def test_no_next_sentences_is_a_change_of_one_knob():
    tree = config.default("google_2018")
    both = config.resolve(tree).objectives
    assert {name: objective.weight for name, objective in both.items()} == {"mlm": 1.0, "nsp": 1.0}
    config.override(tree, "pairs", "none")
    assert list(config.resolve(tree).objectives) == ["mlm"]


def test_preset_file_has_the_text_of_pretraining():
    found = config.resolve(config.load_file(f"{CONFIGS}/preset.py:mosaic,medium"))
    paper = config.resolve(config.load_file(f"{CONFIGS}/pretrain.py:medium"))
    for section in ("corpus", "checkpoints", "evals", "logging"):
        assert getattr(found, section) == getattr(paper, section)
    assert (found.model.layers, found.model.hidden) == (8, 512)
    assert (found.model.position, found.optim.name) == ("alibi", "adamw")
    assert config.resolve(config.load_file(f"{CONFIGS}/preset.py")).optim.name == "adam2018"


# --- what they do ---------------------------------------------------------------------------------


def small(name: str, **changes: object) -> knobs.Config:
    """A preset on a model small enough to train here."""
    tree = config.default(name)
    shape = {"steps": 10, "batch_size": 8, "sequence_length": 24, "optim.warmup_steps": 2}
    shape |= {"model.layers": 1, "model.hidden": 32, "model.heads": 4, "model.max_positions": 32}
    if name == "modernbert":  # whose first layer does not read its norm
        shape |= {"model.layers": 2}
    for path, text in (shape | changes).items():
        config.override(tree, path, str(text))
    return config.settle(tree)[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_trains(name):
    settings = small(name, **{"masking.unit": "word"} if name == "google_head" else {})
    state = jax.jit(lambda seed: init_state(settings, toy.VOCAB, seed))(np.uint32(0))
    update = jax.jit(make_update(settings, toy.SPECIAL, toy.VOCAB))
    before = flat(state["params"])
    for index in range(2):
        b = toy.batch(8, 24, seed=index, longest_unit=4 if settings.masking.unit == "word" else 1)
        if settings.pairs == "none":
            b["type_ids"] = np.zeros_like(b["type_ids"])
        state, metrics = update(state, b, compute_inputs(settings, index))
        assert math.isfinite(metrics["loss"][0])
        assert ("nsp_loss" in metrics) == (settings.pairs == "nsp")
    after = flat(state["params"])
    assert all(np.isfinite(leaf).all() for leaf in after.values())
    for key in before:
        assert (np.asarray(before[key]) != np.asarray(after[key])).any(), key


RATES = {  # step -> rate, by hand from the published peak, warm-up and length
    "google_2018": {
        0: 0,
        5_000: 5e-5,
        9_999: 9.999e-5,
        10_000: 9.9e-5,
        500_000: 5e-5,
        999_999: 1e-10,
    },
    "google_head": {10_000: 9.9e-5},
    "roberta": {0: 0, 24_000: 6e-4, 262_000: 3e-4, 500_000: 0},
    "wettig": {690: 1e-3, 1_380: 2e-3, 12_190: 1e-3, 23_000: 0},
    "mosaic": {2_100: 2.5e-4, 4_200: 5e-4, 37_100: 5e-4 * 0.51, 70_000: 1e-5},
    "huggingface": {0: 5e-5, 500_000: 2.5e-5, 1_000_000: 0},  # of the default's million steps
    "neobert": {0: 0, 1_000: 5e-5, 2_000: 1e-4, 501_000: 5.5e-5, 1_000_000: 1e-5},
    "modernbert": {0: 0, 318: 4e-4, 636: 8e-4, 364_304: 8e-4},
    "gpt_bert": {0: 0, 125: 5e-3, 250: 1e-2, 5_375: 7.75e-3, 15_625: 1e-3},
}


@pytest.mark.parametrize("name", PRESETS)
def test_learning_rate_of_a_preset_is_published(name):
    settings = config.resolve(config.default(name))
    found = {step: float(compute_inputs(settings, step).learning_rate) for step in RATES[name]}
    assert found == pytest.approx(RATES[name], rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("step", [2_100, 4_200, 70_000])
def test_decay_of_mosaic_leaves_out_the_peak_rate(step):
    """DecoupledAdamW multiplies each weight by 1 - decay * rate / peak, biases and scales too,
    whatever the peak is.
    """
    settings = config.resolve(config.default("mosaic"))
    rate = float(compute_inputs(settings, step).learning_rate)
    params = {
        "norm": {"scale": jnp.ones(3), "bias": jnp.full(3, 2.0)},
        "kernel": jnp.full(3, 1000.0),
    }
    tx = optim.build_optimizer(settings.optim, params, settings.optim.weight_decay)
    direction, _ = tx.update(jax.tree.map(jnp.zeros_like, params), tx.init(params), params)
    for key, p in flat(params).items():
        np.testing.assert_allclose(rate * flat(direction)[key], p * 1e-5 * rate / 5e-4, rtol=1e-5)


def test_whole_words_of_google_fill_their_quota():
    tree = config.default("google_2018")
    config.override(tree, "masking.unit", "word")
    settings = config.resolve(tree)
    assert quotas.count_slots(settings.masking, 128) == round(128 * 0.15)
    out, ledger = toy.mask(toy.batch(64, 128, longest_unit=5), settings.masking, slots=19)
    assert 0.98 < ledger["masked_fraction"][0] / ledger["quota_fraction"][0] <= 1
    assert out["predict_weights"].sum() == ledger["masked_fraction"][0]
