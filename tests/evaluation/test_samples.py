"""The sentences that show a run learning: which, what the model makes of them, and what is written
of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax import sharding, train
from bert_jax.config import knobs
from bert_jax.data import encoding, prepare
from bert_jax.data.corpus import Prepared
from bert_jax.evaluation import samples
from bert_jax.interop import runs
from bert_jax.objectives import network
from tests import outcomes, texts, toy
from tests.texts import configure

CAUSAL = {
    "objectives__causal_lm__weight": 1,
    "model__causal": True,
    "pairs": "none",
    "checkpoints__best": "",
}
SMALL = {
    "steps": 12,
    "checkpoints__every": 5,
    "evals__validation__every": 4,
    "logging__samples": 12,
}


@functools.cache
def corpus(base: Path) -> Prepared:
    return prepare.prepare_corpus(configure(base), log=lambda text: None)


def held_out(base: Path) -> list[list[int]]:
    split = corpus(base).splits["validation"]
    bounds = [0, *split.sentence_ends.tolist()]
    return [split.tokens[a:b].tolist() for a, b in itertools.pairwise(bounds)]


def chosen(
    base: Path, count: int = 12, room: int = 30, seed: int = 0, causal: bool = False
) -> list[samples.Sample]:
    prepared = corpus(base)
    return samples.choose(
        prepared.splits["validation"], prepared.tokenizer, count, room, seed=seed, causal=causal
    )


# --- which ----------------------------------------------------------------------------------------


def test_samples_choose_as_many_as_asked(base):
    for count in (1, 12):
        found = chosen(base, count)
        assert len({one.text for one in found}) == len(found) == count
    everything = {tuple(ids) for ids in held_out(base)}
    assert len(everything) > 12
    found = chosen(base, 1000)
    assert len(everything) / 2 < len(found) <= len(everything)
    assert chosen(base, 12) == chosen(base, 12) != chosen(base, 12, seed=1)
    mesh = sharding.make_mesh(knobs.Parallel())
    assert samples.build(configure(base, logging__samples=0), corpus(base), mesh) is None
    held = corpus(base).splits["validation"]
    words = dataclasses.replace(held, sentence_ends=np.arange(1, len(held.tokens) + 1))
    short = dataclasses.replace(corpus(base), splits={"validation": words})
    assert (
        samples.build(configure(base, logging__samples=12), short, mesh) is None
    )  # nothing is left of a word beside its mask


@pytest.mark.parametrize("room", [30, 5])
def test_samples_mask_words_of_one_token(base, room):
    tokenizer = corpus(base).tokenizer
    sentences = {tuple(ids[:room]) for ids in held_out(base)}
    counts = set()
    for one in chosen(base, 40, room):
        restored = list(one.ids)
        for place, answer in zip(one.places, one.answers, strict=True):
            assert restored[place - 1] == tokenizer.special.mask
            restored[place - 1] = tokenizer.vocab.index(answer)
            assert answer.isalpha()
            assert not tokenizer.continuation[
                [*restored, 0][place]
            ]  # the next one is no rest of it
        assert tokenizer.special.mask not in restored
        assert tuple(restored) in sentences
        assert (
            one.text.count("[MASK]")
            == len(one.places)
            == (2 if len(restored) >= samples.TWO else 1)
        )
        counts.add(len(one.places))
    assert counts == ({1, 2} if room == 30 else {1})


def test_samples_of_a_causal_model_are_beginnings(base):
    tokenizer = corpus(base).tokenizer
    for one in chosen(base, 40, causal=True):
        going_on = [*one.ids, tokenizer.vocab.index(one.answers[0])]
        assert any(ids[: len(going_on)] == going_on for ids in held_out(base))
        assert one.places == [len(one.ids)]  # the column of its last token, after [CLS]
        assert one.text == f"{tokenizer.readable(one.ids)} …"


# --- what a model makes of them -------------------------------------------------------------------


def plainly(
    config: knobs.Config, prepared: Prepared, params: Any, one: samples.Sample
) -> list[list[tuple[str, float]]]:
    """The likeliest tokens of a sentence that is read by itself."""
    head = next(iter(config.objectives))
    batch = encoding.pad_rows(prepared.tokenizer.special, [[one.ids]], config.sequence_length)
    batch["predict_positions"] = np.array([(one.places * 2)[:2]], np.int32)
    logits = np.asarray(
        forward(config.model, prepared.tokenizer.size, head)(params, batch), np.float64
    )[0]
    found = []
    for slot, place in enumerate(one.places):
        scores = logits[place] if head == "causal_lm" else logits[slot]
        shares = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
        order = np.argsort(-shares, kind="stable")[: samples.TOP]
        found.append([(prepared.tokenizer.vocab[i], shares[i]) for i in order])
    return found


@functools.cache
def forward(cfg: knobs.Model, vocab_size: int, head: str) -> Any:
    net = network.Network(cfg, vocab_size, ((head, 0),))
    return jax.jit(lambda params, batch: network.outputs(net, params, batch)[head])


def check(
    config: knobs.Config, prepared: Prepared, params: Any, rows: list[dict[str, Any]]
) -> None:
    """Rows are what the model says of the sentences, one by one."""
    wanted = samples.choose(
        *(
            prepared.splits["validation"],
            prepared.tokenizer,
            config.logging.samples,
            config.sequence_length - 2,
        ),
        seed=config.evals["validation"].seed,
        causal="causal_lm" in config.objectives,
    )
    assert [(row["text"], row["answers"]) for row in rows] == [
        (one.text, one.answers) for one in wanted
    ]
    for row, one in zip(rows, wanted, strict=True):
        for found, expected in zip(
            row["predictions"], plainly(config, prepared, params, one), strict=True
        ):
            assert [each["token"] for each in found] == [token for token, _ in expected]
            np.testing.assert_allclose(
                [each["probability"] for each in found], [p for _, p in expected], atol=2e-6
            )


@pytest.mark.parametrize("changes", [{}, CAUSAL], ids=["masked", "causal"])
def test_samples_predict_each_sentence_alone(base, changes):
    """The masked ones on eight devices, with rows that fill up."""
    config, prepared = (
        configure(base, **changes, logging__samples=12, model__init_stddev=0.3),
        corpus(base),
    )
    params = toy.init(config, vocab=prepared.tokenizer.size)
    with texts.one_device() if changes else contextlib.nullcontext():
        found = samples.build(config, prepared, sharding.make_mesh(config.parallel))
    assert found is not None
    assert len(found.batch["tokens"]) == (12 if changes else 16)
    rows = found(params)
    assert len(rows) == 12
    check(config, prepared, params, rows)
    assert len({json.dumps(row["predictions"]) for row in rows}) == 12


# --- what is written ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(base, tmp_path_factory) -> tuple[Path, str]:
    """A run without an interruption, and what it said."""
    workdir = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch, texts.one_device():
        said: list[str] = []
        patch.setattr("bert_jax.training.writer.logger.info", said.append)
        train.run(configure(base, **SMALL), workdir, command=[])
    return workdir, "\n".join(said)


def test_samples_are_the_same_each_evaluation(base, whole):
    workdir, said = whole
    rows = outcomes.samples(workdir)
    assert [row["step"] for row in rows] == [step for step in (4, 8, 12) for _ in range(12)]
    assert [row["text"] for row in rows[:12]] * 3 == [row["text"] for row in rows]
    assert rows[0]["predictions"] != rows[-12]["predictions"]
    run = runs.open_run(str(workdir / "checkpoints" / "12"))
    check(run.config, corpus(base), run.params, rows[-12:])
    first = rows[-12]
    best = first["predictions"][0][0]
    shown = next(line for line in said.splitlines() if line.startswith("step 12  guesses: "))
    assert f"[{best['token']} {best['probability']:.0%}]" in shown
    assert shown.endswith(f"(was {', '.join(first['answers'])})")
    assert "[MASK]" not in shown
    report = (workdir / "report.html").read_text()
    assert report.count('<div class="box"><p>') >= 12
    assert "Predictions" in report
