"""Presets: each holds what its source says and trains; every number that must be right is a knob or
explained.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import math
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import config
from bert_jax.config import knobs, quotas
from bert_jax.config.presets import ABOUT, PRESETS
from bert_jax.system.trees import flat
from bert_jax.training import optim
from bert_jax.training import program as steps
from bert_jax.training.ledger import Ledger
from tests import toy
from tests.test_knobs import COVERED

TESTS = Path(__file__).parent
NAMES = sorted(PRESETS)


def value(settings: knobs.Config, path: str) -> object:
    """A knob of a resolved config, by its path; None of an objective that it does not have."""
    found: object = settings
    for name in path.split("."):
        found = found.get(name) if isinstance(found, dict) else getattr(found, name, None)
    return found


# --- what must be right, and where it is ----------------------------------------------------------


class Row(NamedTuple):
    """One row of the numerics: the knobs that hold it, what is constant and where that is said, and
    what tests it.
    """

    knobs: tuple[str, ...]
    tests: tuple[str, ...]
    said: tuple[tuple[str, str], ...] = ()  # module:object, and words of its docstring or text


ROWS = {
    "GELU": Row(
        ("model.activation", "model.head_activation"),
        (
            "test_model.py::test_activations_equal_their_formulas",
            "test_knobs.py::test_the_feed_forward_and_the_head_are_their_formulas",
        ),
    ),
    "LayerNorm eps": Row(
        ("model.norm_epsilon",), ("test_knobs.py::test_epsilon_is_added_to_the_variance",)
    ),
    "init": Row(
        ("model.init", "model.init_stddev"),
        ("test_model.py::test_initial_weights_have_the_published_deviation",),
    ),
    "embeddings": Row(
        ("model.position", "model.first_position", "model.type_vocab", "model.dropout"),
        (
            "test_model.py::test_logits_equal_a_plain_statement_of_bert",
            "test_model.py::test_dropout_reaches_hidden_vectors_and_attention",
        ),
        (("bert_jax.models.bert:Embeddings", "LayerNorm, dropout, and nothing else"),),
    ),
    "attention bias": Row(
        ("model.attention_bias",),
        (
            "test_knobs.py::test_the_bias_is_what_a_forbidden_score_gets",
            "test_model.py::test_a_fully_masked_row_stays_finite",
            "test_model.py::test_the_most_negative_bias_forbids_as_much_as_any",
        ),
    ),
    "pooler": Row(
        ("model.classifier_dropout", "model.pooler", "model.pooling"),
        (
            "test_model.py::test_logits_equal_a_plain_statement_of_bert",
            COVERED["model.classifier_dropout"],
        ),
        (("bert_jax.models.bert:Bert", "that of its [CLS] through a dense layer and tanh"),),
    ),
    "MLM head": Row(
        ("model.head_activation",),
        (
            "test_knobs.py::test_the_feed_forward_and_the_head_are_their_formulas",
            "test_step.py::test_losses_are_sums_over_counts_not_means_of_means",
        ),
        (
            ("bert_jax.models.heads:MlmHead", "gather first, then transform, then the tied table"),
            ("bert_jax.objectives.mlm:Mlm", "The original divides by count + 1e-5"),
        ),
    ),
    "loss": Row(
        ("objectives.mlm.weight", "objectives.nsp.weight"),
        (
            "test_step.py::test_weights_of_objectives_scale_their_losses",
            "test_pairs.py::test_pairs_are_what_their_label_says",
        ),
        (("bert_jax.objectives.nsp:Nsp", "label 0 is IsNext"),),
    ),
    "Adam": Row(
        (
            "optim.name",
            "optim.b1",
            "optim.b2",
            "optim.epsilon",
            "optim.weight_decay",
            "optim.no_decay",
        ),
        (
            "test_optim.py::test_steps_equal_the_written_out_algorithm",
            "test_optim.py::test_every_number_enters_as_the_algorithm_says",
            "test_optim.py::test_default_mask_spares_biases_and_norms_and_decays_embeddings",
        ),
    ),
    "schedule": Row(
        (
            "optim.schedule",
            "optim.warmup_steps",
            "optim.learning_rate",
            "optim.final_fraction",
            "steps",
        ),
        (
            "test_optim.py::test_linear2018_is_the_originals",
            "test_presets.py::test_the_learning_rate_of_a_run_is_the_published_one",
        ),
    ),
    "clipping": Row(
        ("optim.clip_norm",),
        (
            "test_optim.py::test_clip_bounds_the_global_norm_and_keeps_the_direction",
            "test_step.py::test_loss_and_gradients_do_not_depend_on_how_the_batch_is_split",
        ),
        (
            (
                "bert_jax.config.presets:ABOUT.google_2018",
                "gradients are clipped once, after the global reduction",
            ),
        ),
    ),
    "predictions": Row(
        ("masking.rate", "masking.count", "masking.rounding"),
        (
            "test_masking.py::test_quotas_are_pythons_rounding_of_the_product",
            "test_masking.py::test_counting_cls_and_sep_changes_the_quota_as_the_original_does",
        ),
        (
            ("bert_jax.config.quotas:slots", "derived from the highest rate, and never caps it"),
            ("bert_jax.config.presets:ABOUT.google_2018", "there is no max_predictions_per_seq"),
        ),
    ),
    "random replacement": Row(
        ("masking.random_from", "masking.replace"),
        ("test_masking.py::test_random_tokens_are_uniform_over_what_the_config_names",),
    ),
    "whole word": Row(
        ("masking.unit", "masking.overflow", "masking.max_unit"),
        (
            "test_masking.py::test_skipping_is_the_originals_loop",
            "test_masking.py::test_the_split_is_drawn_for_each_piece_of_a_word",
            "test_units.py::test_word",
        ),
        (
            (
                "bert_jax.config.presets:ABOUT.google_2018",
                "a word cut by truncation stays a unit of its own",
            ),
        ),
    ),
    "pairs": Row(
        (
            "pairs",
            "examples.short_probability",
            "examples.random_next_probability",
            "examples.truncate",
        ),
        (
            "test_pairs.py::test_agrees_with_the_original",
            "test_pairs.py::test_share_of_short_targets",
            "test_pairs.py::test_more_than_half_of_the_labels_are_random_as_single_sentences_force_it",
            "test_pairs.py::test_each_lost_token_comes_from_either_end_by_a_fair_coin",
        ),
    ),
    "dupe_factor": Row(
        ("masking.dupe_factor",),
        ("test_pipeline.py::test_static_copies_come_again_in_another_order",),
    ),
    "SQuAD doc_stride": Row(
        (),
        (
            "test_windows.py::test_a_step_is_the_original_stride",
            "test_windows.py::test_an_overlap_is_the_stride_of_tokenizers",
            "test_windows.py::test_each_token_is_best_seen_where_the_original_says",
        ),
        (("bert_jax.data.windows:windows", '"step", as in run_squad.py'),),
    ),
    "word length": Row(
        ("tokenizer.max_word_length",),
        (
            "test_tokenizer.py::test_long_words_are_unknown_beyond_the_limit",
            COVERED["tokenizer.max_word_length"],
        ),
    ),
    "characters": Row(
        ("tokenizer.characters",),
        (
            "test_characters.py::test_every_code_point_alone_and_inside_a_word",
            COVERED["tokenizer.characters"],
        ),
        (("bert_jax.config.presets:ABOUT.huggingface", "by the tables of the tokenizers library"),),
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_every_number_is_a_knob_or_explained_and_has_a_test(name):
    row = ROWS[name]
    assert row.knobs or row.said
    paths = {path.replace(".mlm.", ".*.").replace(".nsp.", ".*.") for path in row.knobs}
    assert paths <= COVERED.keys()
    assert set(row.knobs) <= PRESETS["google_2018"].keys()  # the published one states them all
    for test in row.tests:
        file, _, function = test.partition("::")
        tree = ast.parse((TESTS / file).read_text())
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, (
            test
        )
    for place, words in row.said:
        module, _, name = place.partition(":")
        name, _, key = name.partition(".")
        found = getattr(importlib.import_module(module), name)
        text = found[key] if key else found.__doc__
        assert words in " ".join(text.split()), place


# --- what presets are -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_holds_valid_values_and_says_where_they_are_from(name):
    settings = config.resolve(config.default(name))
    for path, published in PRESETS[name].items():
        if published is not None:
            assert value(settings, path) == published, path
            assert type(value(settings, path)) is type(published), path
    assert ABOUT.keys() == PRESETS.keys()
    assert "Not reproduced: " in ABOUT[name]


GOOGLE = {
    "pairs": "nsp",
    "sequence_length": 128,
    "batch_size": 256,
    "steps": 1_000_000,
    "masking.rate": 0.15,
    "masking.replace": (0.8, 0.1, 0.1),
    "masking.unit": "token",
    "masking.overflow": "skip",
    "masking.count": "all",
    "masking.rounding": "nearest",
    "masking.random_from": "all",
    "masking.dupe_factor": 10,
    "masking.schedule": "constant",
    "examples.short_probability": 0.1,
    "examples.random_next_probability": 0.5,
    "examples.truncate": "either",
    "tokenizer.max_word_length": 200,
    "tokenizer.characters": "google",
    "model.norm": "post",
    "model.norm_epsilon": 1e-12,
    "model.position": "learned",
    "model.init": "truncated_normal",
    "model.init_stddev": 0.02,
    "model.attention_bias": -10_000.0,
    "model.dropout": 0.1,
    "model.attention_dropout": 0.1,
    "model.classifier_dropout": 0.1,
    "optim.name": "adam2018",
    "optim.b1": 0.9,
    "optim.b2": 0.999,
    "optim.epsilon": 1e-6,
    "optim.weight_decay": 0.01,
    "optim.no_decay": r"norm/|bias$",
    "optim.clip_norm": 1.0,
    "optim.schedule": "linear2018",
    "optim.learning_rate": 1e-4,
    "optim.warmup_steps": 10_000,
}
FAIRSEQ = {
    "pairs": "none",
    "masking.dupe_factor": 0,
    "masking.random_from": "regular",
    "masking.rounding": "unbiased",  # int(mask_prob * sz + np.random.rand())
    "model.norm_epsilon": 1e-5,
    "model.activation": "gelu",
    "model.init": "normal",
    "optim.name": "adamw",
    "optim.schedule": "linear",
    "optim.b1": 0.9,
    "optim.b2": 0.98,
    "optim.epsilon": 1e-6,
    "optim.weight_decay": 0.01,
    "optim.clip_norm": 0.0,
}
PUBLISHED = {  # written by hand from the sources: a changed number of a preset is a failing test
    "google_2018": GOOGLE | {"model.activation": "gelu", "model.head_activation": "gelu"},
    "google_head": GOOGLE | {"model.activation": "gelu_tanh", "model.head_activation": "gelu_tanh"},
    "huggingface": {
        "pairs": "none",
        "tokenizer.max_word_length": 100,
        "tokenizer.characters": "huggingface",
        "masking.rate": 0.15,
        "masking.replace": (0.8, 0.1, 0.1),
        "masking.dupe_factor": 0,
        "masking.count": "eligible",
        "masking.rounding": "unbiased",  # on average, as torch.bernoulli of each token
        "masking.random_from": "all",
        "model.activation": "gelu",
        "model.norm_epsilon": 1e-12,
        "model.init": "normal",
        "model.init_stddev": 0.02,
        "model.attention_bias": float(np.finfo(np.float32).min),
        "model.dropout": 0.1,
        "optim.name": "adamw",
        "optim.b1": 0.9,
        "optim.b2": 0.999,
        "optim.epsilon": 1e-8,
        "optim.weight_decay": 0.0,
        "optim.clip_norm": 1.0,
        "optim.learning_rate": 5e-5,
        "optim.warmup_steps": 0,
        "optim.schedule": "linear",
    },
    "roberta": FAIRSEQ
    | {
        "masking.rate": 0.15,
        "masking.replace": (0.8, 0.1, 0.1),
        "model.norm": "post",
        "sequence_length": 512,
        "optim.learning_rate": 6e-4,
        "optim.warmup_steps": 24_000,
        "steps": 500_000,
        "batch_size": 8_192,
    },
    "wettig": FAIRSEQ
    | {
        "masking.rate": 0.4,
        "masking.replace": (1.0, 0.0, 0.0),
        "model.norm": "pre",
        "sequence_length": 128,
        "optim.learning_rate": 2e-3,
        "optim.warmup_steps": 1_380,
        "steps": 23_000,
        "batch_size": 4_096,
    },
    "mosaic": {
        "pairs": "none",
        "masking.rate": 0.3,
        "masking.replace": (0.8, 0.1, 0.1),
        "model.position": "alibi",
        "model.gated": True,
        "model.attention_dropout": 0.0,
        "model.norm_epsilon": 1e-12,
        "sequence_length": 128,
        "optim.b1": 0.9,
        "optim.b2": 0.98,
        "optim.epsilon": 1e-6,
        "optim.learning_rate": 5e-4,
        "optim.no_decay": "",
        "optim.final_fraction": 0.02,
        "optim.weight_decay": 0.02,
        "steps": 70_000,
        "batch_size": 4_096,
    },
    "modernbert": {
        "pairs": "none",
        "masking.rate": 0.3,
        "masking.replace": (0.8, 0.1, 0.1),
        "model.position": "rotary",
        "model.rotary_base": 10_000.0,
        "model.window": 64,
        "model.global_every": 3,
        "model.norm": "pre",
        "model.first_norm": False,
        "model.norm_epsilon": 1e-5,
        "model.biases": False,
        "model.gated": True,
        "model.type_vocab": 0,
        "model.attention_dropout": 0.0,
        "model.init": "truncated_normal",
        "sequence_length": 1_024,
        "optim.b1": 0.9,
        "optim.b2": 0.98,
        "optim.epsilon": 1e-6,
        "optim.learning_rate": 8e-4,
        "optim.no_decay": r"norm/|bias$",
        "optim.weight_decay": 0.0125,
        "optim.schedule": "constant",
        "optim.warmup_steps": round(3e9 / (4_608 * 1_024)),
        "steps": round(1.719e12 / (4_608 * 1_024)),
        "batch_size": 4_608,
    },
    "neobert": {
        "pairs": "none",
        "masking.rate": 0.2,
        "masking.replace": (1.0, 0.0, 0.0),
        "model.position": "rotary",
        "model.rotary_base": 10_000.0,
        "model.norm": "pre",
        "model.norm_kind": "rms",
        "model.norm_epsilon": 1e-5,
        "model.embedding_norm": False,
        "model.biases": False,
        "model.gated": True,
        "model.activation": "silu",
        "model.word_head": "matrix",
        "model.type_vocab": 0,
        "model.dropout": 0.0,
        "sequence_length": 1_024,
        "optim.b1": 0.9,
        "optim.b2": 0.95,
        "optim.epsilon": 1e-8,
        "optim.learning_rate": 1e-4,
        "optim.no_decay": "",
        "optim.weight_decay": 0.01,
        "optim.clip_norm": 1.0,
        "optim.schedule": "cosine",
        "optim.final_fraction": 0.1,
        "optim.warmup_steps": 2_000,
        "steps": 1_000_000,
        "batch_size": 64 * 8 * 4,
    },
    "gpt_bert": {
        "pairs": "none",
        "objectives.hybrid.share": 1 - 15 / 16,
        "objectives.hybrid.shift": True,
        "masking.rate": 0.3,
        "masking.final_rate": 0.15,
        "masking.replace": (0.8, 0.1, 0.1),
        "masking.random_from": "regular",
        "model.position": "relative",
        "model.position_buckets": 32,
        "model.max_positions": 512,
        "model.norm": "pre",
        "model.inner_norm": True,
        "model.norm_parameters": False,
        "model.norm_epsilon": 1e-5,
        "model.biases": True,
        "model.mlp_biases": False,
        "model.activation": "gelu_tanh",
        "model.head_activation": "gelu",
        "model.gated": True,
        "model.attention_gate": True,
        "model.layer_weights": True,
        "model.type_vocab": 0,
        "model.dropout": 0.1,
        "model.attention_dropout": 0.1,
        "model.init": "truncated_normal",
        "model.init_stddev": math.sqrt(2 / (5 * 768)),
        "sequence_length": 128,
        "optim.name": "lamb",
        "optim.b1": 0.9,
        "optim.b2": 0.98,
        "optim.epsilon": 1e-8,
        "optim.learning_rate": 1e-2,
        "optim.no_decay": r"norm/|bias$",
        "optim.weight_decay": 0.1,
        "optim.clip_norm": 2.0,
        "optim.schedule": "cosine",
        "optim.final_fraction": 0.1,
        "optim.warmup_steps": int(31_250 // 2 * 0.016),
        "steps": 31_250 // 2,
        "batch_size": 32_768,
    },
}


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_has_the_published_numbers(name):
    settings = config.resolve(config.default(name))
    for path, published in PUBLISHED[name].items():
        assert path in PRESETS[name], path
        assert value(settings, path) == pytest.approx(published), path


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_states_all_it_is_about(name):
    """Every number of the model and of an update that a source decides, also where it is today's
    default.
    """
    numerics = {
        knob
        for row in ("GELU", "LayerNorm eps", "init", "embeddings", "attention bias")
        for knob in ROWS[row].knobs
    }
    numerics |= {
        knob
        for row in ("Adam", "clipping", "predictions", "dupe_factor")
        for knob in ROWS[row].knobs
    }
    numerics |= {
        "optim.schedule",
        "optim.warmup_steps",
        "optim.learning_rate",
        "optim.final_fraction",
        "pairs",
    }
    numerics |= {
        "masking.replace",
        "masking.unit",
        "masking.random_from",
        "masking.schedule",
        "model.norm",
    }
    numerics |= {f"model.{knob}" for knob in ("first_norm", "biases", "pooler", "pooling")}
    own = ("inner_norm", "norm_parameters", "mlp_biases", "attention_gate", "layer_weights")
    numerics |= {f"model.{knob}" for knob in own}
    assert numerics <= PRESETS[name].keys()


@pytest.mark.parametrize(("first", "second"), [*itertools.permutations(NAMES, 2)])
def test_a_preset_does_not_depend_on_what_was_there(first, second):
    """Nor then on the defaults, which are but another table."""
    tree = config.default(first)
    tree.model.size = "small"
    tree.sequence_length = 128  # which not every preset has, and each has so many positions
    config.apply(tree, second)
    found, alone = config.resolve(tree), config.resolve(config.default(second))
    assert found.model.size == "small"
    for path in PRESETS[second]:
        assert value(found, path) == value(alone, path)


def test_the_two_googles_differ_in_gelu_alone():
    one, other = PRESETS["google_2018"], PRESETS["google_head"]
    assert one.keys() == other.keys()
    assert {path: (one[path], other[path]) for path in one if one[path] != other[path]} == {
        "model.activation": ("gelu", "gelu_tanh"),
        "model.head_activation": ("gelu", "gelu_tanh"),
    }


def test_no_next_sentences_is_a_change_of_one_knob():
    tree = config.default("google_2018")
    both = config.resolve(tree).objectives
    assert {name: objective.weight for name, objective in both.items()} == {"mlm": 1.0, "nsp": 1.0}
    config.override(tree, "pairs", "none")
    assert list(config.resolve(tree).objectives) == ["mlm"]


def test_the_config_takes_text_and_size_from_pretraining_and_the_rest_from_the_preset():
    file = TESTS.parent / "configs" / "preset.py"
    found = config.resolve(config.load_file(f"{file}:mosaic,medium"))
    text = config.resolve(config.load_file(f"{file.parent / 'pretrain.py'}:medium"))
    assert found.corpus == text.corpus
    assert (found.model.layers, found.model.hidden) == (8, 512)
    assert all(
        value(found, path) == published
        for path, published in PRESETS["mosaic"].items()
        if published is not None
    )
    assert config.resolve(config.load_file(str(file))).optim.name == "adam2018"


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
@pytest.mark.parametrize("name", NAMES)
def test_every_preset_trains(name):
    settings = small(name, **{"masking.unit": "word"} if name == "google_head" else {})
    state = jax.jit(lambda seed: steps.init_state(settings, toy.VOCAB, seed))(np.uint32(0))
    update = jax.jit(steps.make_step(settings, toy.SPECIAL, toy.VOCAB))
    ledger, before = Ledger(settings.masking), flat(state["params"])
    for index in range(2):
        b = toy.batch(8, 24, seed=index, longest_unit=4 if settings.masking.unit == "word" else 1)
        if settings.pairs == "none":
            b["type_ids"] = np.zeros_like(b["type_ids"])
        state, metrics = update(state, b, steps.inputs_at(settings, index))
        assert math.isfinite(metrics["loss"][0])
        assert ("nsp_loss" in metrics) == (settings.pairs == "nsp")
        ledger.add(
            {k: (float(a), float(n)) for k, (a, n) in metrics.items()},
            settings.masking.rate,
            8,
            index,
        )
    after = flat(state["params"])
    moved = [key for key in before if (np.asarray(before[key]) != np.asarray(after[key])).any()]
    assert all(np.isfinite(leaf).all() for leaf in after.values())
    assert len(moved) == len(before)


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


@pytest.mark.parametrize("name", NAMES)
def test_the_learning_rate_of_a_run_is_the_published_one(name):
    settings = config.resolve(config.default(name))
    found = {step: float(steps.inputs_at(settings, step).learning_rate) for step in RATES[name]}
    assert found == pytest.approx(RATES[name], rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("step", [2_100, 4_200, 70_000])
def test_the_decay_of_mosaic_is_not_multiplied_by_the_peak_rate(step):
    """DecoupledAdamW multiplies each weight by 1 - decay * rate / peak, biases and scales too,
    whatever the peak is.
    """
    settings = config.resolve(config.default("mosaic"))
    rate = float(steps.inputs_at(settings, step).learning_rate)
    params = {
        "norm": {"scale": jnp.ones(3), "bias": jnp.full(3, 2.0)},
        "kernel": jnp.full(3, 1000.0),
    }
    tx = optim.transformation(settings.optim, params, settings.optim.weight_decay)
    direction, _ = tx.update(jax.tree.map(jnp.zeros_like, params), tx.init(params), params)
    for key, p in flat(params).items():
        np.testing.assert_allclose(rate * flat(direction)[key], p * 1e-5 * rate / 5e-4, rtol=1e-5)


def test_whole_words_of_google_fill_their_quota_and_no_more():
    tree = config.default("google_2018")
    config.override(tree, "masking.unit", "word")
    settings = config.resolve(tree)
    assert quotas.slots(settings.masking, 128) == round(128 * 0.15)
    out, ledger = toy.mask(toy.batch(64, 128, longest_unit=5), settings.masking, slots=19)
    assert 0.98 < ledger["masked_fraction"][0] / ledger["quota_fraction"][0] <= 1
    assert out["predict_weights"].sum() == ledger["masked_fraction"][0]
