"""Scores of masked copies against a loop that masks one token at a time; minimal pairs; what a
source may hold.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import gzip
import json
import math
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax import sharding, suites
from bert_jax.data import tokenizer as tokenizers
from bert_jax.data.task_stream import round_length
from bert_jax.data.windows import choose_windows, cut_windows
from bert_jax.errors import ConfigError, DataError
from bert_jax.evaluation import inference
from bert_jax.interop import runs
from bert_jax.objectives import network
from bert_jax.studies import worker
from bert_jax.suites.forward import Forward
from bert_jax.suites.token_scores import MaskedScorer
from tests import toy

PIECES = [
    *"abcdefghij",
    *(f"##{c}" for c in "abcdefghij"),
    "the",
    "cat",
    "cats",
    "sees",
    "see",
    ".",
]
LONGEST = 16
TEXTS = ["the cat sees", "cat", "abc de . the fghij", "the cats see .", "the cat sees"]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    file.write_text(
        "".join(f"{piece}\n" for piece in ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *PIECES])
    )
    return file


@pytest.fixture(scope="module")
def run(vocabulary) -> runs.TrainedModel:
    """A model of random weights, as somebody else's."""
    tokenizer = tokenizers.load(vocabulary)
    config = toy.config(
        model__init_stddev=0.3,
        model__layers=1,
        model__max_positions=LONGEST,
        sequence_length=LONGEST,
    )
    params = toy.init(config, vocab=tokenizer.size)
    bias = np.random.default_rng(1).normal(size=params["mlm"]["bias"].shape).astype(np.float32)
    params = params | {"mlm": params["mlm"] | {"bias": bias}}
    return runs.TrainedModel(
        Path("model"), config, tokenizer, vocabulary, params, 0, {"foreign": "model"}
    )


def ask_pll(batch_size: int = 0) -> suites.Options:
    return suites.Options("pll", batch_size)


def plainly(run: runs.TrainedModel, ids: list[int], within_word: bool = False) -> list[float]:
    """The log-probability of each token, a copy made by hand for each."""
    special, copies = run.tokenizer.special, []
    spans = cut_windows(len(ids), LONGEST - 2, LONGEST // 2 - 1, "step")
    for at, window in enumerate(choose_windows(spans, len(ids)).tolist()):
        start, end = spans[window].tolist()
        row = [special.cls, *ids[start:end], special.sep]
        place = at - start + 1
        row[place] = special.mask
        after = place + 1
        while (
            within_word
            and after < len(row) - 1
            and run.tokenizer.vocab[row[after]].startswith("##")
        ):
            row[after] = special.mask
            after += 1
        copies.append((row, place))
    blank = np.zeros((32, LONGEST), np.int32)  # copies beyond are padding
    batch = {name: blank.copy() for name in ("tokens", "type_ids", "positions", "segment_ids")}
    batch |= {"cls_positions": blank[:, :1], "predict_positions": blank[:, :1].copy()}
    for number, (row, place) in enumerate(copies):
        batch["tokens"][number, : len(row)] = row
        batch["positions"][number, : len(row)] = range(len(row))
        batch["segment_ids"][number, : len(row)] = 1
        batch["predict_positions"][number] = place
    logits = np.asarray(
        _logits(network.build(run.config, run.tokenizer.size), run.params, batch), np.float64
    )[:, 0]
    chosen = logits[np.arange(len(ids)), ids]
    return (chosen - np.log(np.exp(logits[: len(ids)]).sum(-1))).tolist()


@functools.partial(jax.jit, static_argnums=0)
def _logits(net: network.Network, params: dict, batch: dict) -> jax.Array:
    return network.outputs(net, params, batch)["mlm"]


@pytest.mark.parametrize("within_word", [False, True])
def test_each_token_has_the_probability_that_a_plain_loop_finds(run, within_word, one_device):
    encoded = run.tokenizer.encode_batch(
        [*TEXTS, "abcde fgh the cats see . cat abc de the sees"]
    )  # longer than a row
    assert max(map(len, encoded)) > LONGEST - 2
    found = MaskedScorer(run, ask_pll(), within_word)(encoded)
    for ids, values in zip(encoded, found, strict=True):
        np.testing.assert_allclose(values, plainly(run, ids, within_word), rtol=1e-5)


def test_the_correction_changes_words_of_several_pieces_alone(run, one_device):
    whole, several = run.tokenizer.encode_batch(["the cat sees .", "the abc ."])
    plain, corrected = (MaskedScorer(run, ask_pll(), on)([whole, several]) for on in (False, True))
    np.testing.assert_array_equal(plain[0], corrected[0])
    changed = plain[1] != corrected[1]
    assert changed.tolist() == [
        False,
        True,
        True,
        False,
        False,
    ]  # the last piece of abc hides nothing more


@pytest.mark.slow
def test_scores_are_the_same_at_any_batch_size_and_device_count(run, monkeypatch):
    encoded = run.tokenizer.encode_batch(TEXTS)
    found = [MaskedScorer(run, ask_pll(size))(encoded) for size in (0, 1, 7)]
    auto = (jax.sharding.AxisType.Auto,) * 3
    one = jax.make_mesh((1, 1, 1), sharding.AXES, axis_types=auto, devices=jax.devices()[:1])
    monkeypatch.setattr(sharding, "make_mesh", lambda settings: one)
    found.append(MaskedScorer(run, ask_pll(3))(encoded))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)


def test_like_texts_have_exactly_like_scores(run, one_device):
    ids = run.tokenizer.encode_batch(TEXTS)
    found = MaskedScorer(run, ask_pll(1))(ids)
    np.testing.assert_array_equal(found[0], found[4])


@settings(max_examples=200)
@given(st.integers(1, 100_000))
def test_a_row_is_padded_by_at_most_a_third(length):
    shape = round_length(length, inference.FINEST)
    assert shape >= length
    assert length <= 8 or shape * 2 / 3 < length
    assert round_length(shape, inference.FINEST) == shape
    assert len({round_length(n, inference.FINEST) for n in range(1, 513)}) == 22


def test_every_row_is_computed_once_and_padding_never_returned(run):
    lengths = np.random.default_rng(0).integers(1, 60, 101)

    def make(some, length, size):
        numbers = np.full((size, 1), -1, np.int32)
        numbers[: len(some), 0] = some
        assert (lengths[some] <= length).all()
        return {"numbers": numbers}

    for size in (0, 1, 7, 32):
        told: list[tuple[int, int]] = []
        found = list(
            Forward(lambda params, batch: batch["numbers"] * params, np.int32(2))(
                lengths,
                make,
                size,
                lambda done, total, told=told: told.append((done, total)),
            )
        )
        for some, values in found:
            np.testing.assert_array_equal(values[:, 0], 2 * some)
        assert sorted(np.concatenate([some for some, _ in found]).tolist()) == list(range(101))
        assert told[-1][0] == told[-1][1]


# --- suites ---------------------------------------------------------------------------------------


def ask(run: runs.TrainedModel, suite: str, **asked: object) -> dict:
    """What a suite finds, held against what comparisons of a study may ask of it."""
    found = suites.evaluate(run, suite, **asked)
    assert [
        name
        for name in worker.flat(found)
        if not any(fnmatch.fnmatchcase(name, m) for m in suites.SUITES[suite].metrics)
    ] == []
    return found


def test_pll_of_a_file(run, tmp_path, one_device):
    (tmp_path / "texts.txt").write_text("\n".join([*TEXTS, "", " "]) + "\n")
    with gzip.open(tmp_path / "texts.jsonl.gz", "wt") as stream:
        stream.writelines(json.dumps({"text": text}) + "\n" for text in TEXTS)
    wanted = [sum(plainly(run, ids)) for ids in run.tokenizer.encode_batch(TEXTS)]
    count = sum(map(len, run.tokenizer.encode_batch(TEXTS)))
    for name in ("texts.txt", "texts.jsonl.gz"):
        found = ask(run, "pll", source=f"files:{tmp_path / name}")
        assert (found["texts"], found["tokens"]) == (len(TEXTS), count)
        assert found["pll"] == pytest.approx(sum(wanted) / len(TEXTS), rel=1e-5)
        assert found["pseudo_perplexity"] == pytest.approx(math.exp(-sum(wanted) / count), rel=1e-5)
    found = ask(run, "pll", source=f"files:{tmp_path / 'texts.txt'}", limit=2, within_word=True)
    corrected = [sum(plainly(run, ids, True)) for ids in run.tokenizer.encode_batch(TEXTS[:2])]
    assert found["pll_word_l2r"] == pytest.approx(sum(corrected) / 2, rel=1e-5)


def write_pairs(folder: Path, name: str, pairs: list[tuple[str, str]], **more: str) -> None:
    lines = [
        json.dumps({"sentence_good": good, "sentence_bad": bad, **more}) + "\n"
        for good, bad in pairs
    ]
    (folder / f"{name}.jsonl").write_text("".join(lines))


def test_minimal_pairs(run, tmp_path, capsys, one_device):
    texts = ["the cat sees", "cat", "the cats see .", "abc", "see the cat ."]
    score = {
        text: sum(plainly(run, ids))
        for text, ids in zip(texts, run.tokenizer.encode_batch(texts), strict=True)
    }
    pairs = [(a, b) for a in texts for b in texts]
    write_pairs(tmp_path, "one", pairs[:13], UID="one", field="syntax", linguistics_term="order")
    write_pairs(tmp_path, "two", pairs[13:])
    found, arrays = suites.score(run, *suites.build(["blimp"], source=f"files:{tmp_path}"))
    which = arrays.pop("examples").tobytes()
    right = [(score[a] > score[b]) + 0.5 * (score[a] == score[b]) for a, b in pairs]
    share = {name: np.mean(part) for name, part in {"one": right[:13], "two": right[13:]}.items()}
    assert found["accuracy"] == pytest.approx(np.mean(right))
    assert {name: values.tolist() for name, values in arrays.items()} == {
        "accuracy.sum": [float(hit) for hit in right],
        "accuracy.count": [1.0] * 25,
    }
    assert found["accuracy_low"] < found["accuracy"] < found["accuracy_high"]
    assert (found["pairs"], found["ties"]) == (
        25,
        5,
    )  # each text against itself: half right, and said
    assert "5 of 25 pairs have equal scores" in capsys.readouterr().err
    assert found["paradigm"] == pytest.approx(share)
    assert found["field"] == {"syntax": pytest.approx(share["one"])}
    assert found["term"] == {"order": pytest.approx(share["one"])}
    (options,) = suites.build(["blimp"], source=f"files:{tmp_path}", limit=3, batch_size=5)
    few, arrays = suites.score(run, options)
    assert arrays["accuracy.sum"].tolist() == [*right[:3], *right[13:16]]
    assert arrays["examples"].tobytes() != which
    assert few["paradigm"]["one"] == pytest.approx(np.mean(right[:3]))
    assert few["pairs"] == 6
    assert ask(run, "blimp", source=f"files:{tmp_path / 'two.jsonl'}")["paradigm"] == {
        "two": pytest.approx(share["two"])
    }
    assert "accuracy_word_l2r" in ask(run, "blimp", source=f"files:{tmp_path}", within_word=True)


def test_twenty_pairs_of_blimp(copies, run, tmp_path, one_device):
    file = copies / "blimp" / "principle_A_case_1.jsonl"
    pairs = [json.loads(line) for line in file.read_text().splitlines()]
    words = {
        w
        for pair in pairs
        for w in f"{pair['sentence_good']} {pair['sentence_bad']}".lower()[:-1].split()
    }
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *sorted({w.strip(".,'") for w in words}),
        ".",
        "'",
        "t",
    ]
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in dict.fromkeys(pieces)))
    tokenizer = tokenizers.load(tmp_path / "vocab.txt")
    params = toy.init(run.config, vocab=tokenizer.size)
    small = dataclasses.replace(run, tokenizer=tokenizer, params=params)
    found = ask(small, "blimp", source=f"files:{file}", limit=20)
    texts = [pair[f"sentence_{side}"] for side in ("good", "bad") for pair in pairs]
    totals = [sum(plainly(small, ids)) for ids in tokenizer.encode_batch(texts)]
    assert found["accuracy"] == np.mean(
        [a > b for a, b in zip(totals[:20], totals[20:], strict=True)]
    )
    assert found["pairs"] == 20
    assert found["field"] == {"syntax_semantics": found["accuracy"]}
    assert found["term"] == {"binding": found["accuracy"]}
    assert found["paradigm"] == {"principle_A_case_1": found["accuracy"]}


class Dataset:
    """What TensorFlow Datasets gives for blimp."""

    builder_configs = ("order", "agreement")
    info = type("Info", (), {"splits": {"train": None}, "features": {}})

    @staticmethod
    def examples_of(name, data_dir, split):
        paradigm = name.partition("/")[2]
        pairs = {
            "order": [("the cat sees", "sees cat the")],
            "agreement": [("cat see", "cat see")],
        }[paradigm]
        bits = {"UID": paradigm.encode(), "field": b"syntax", "linguistics_term": b"any"}
        return [{"sentence_good": a.encode(), "sentence_bad": b.encode(), **bits} for a, b in pairs]


def test_pairs_of_tensorflow_datasets(run, monkeypatch, one_device):
    monkeypatch.setattr("bert_jax.data.tfds.builder", lambda *named: Dataset)
    monkeypatch.setattr("bert_jax.data.tfds.examples_of", Dataset.examples_of)
    found = ask(run, "blimp", source="tfds:blimp")
    assert (found["pairs"], found["ties"], list(found["paradigm"])) == (
        2,
        1,
        ["agreement", "order"],
    )
    assert list(ask(run, "blimp", source="tfds:blimp/order")["paradigm"]) == ["order"]


# --- what is refused ------------------------------------------------------------------------------


def test_a_model_without_the_head(run):
    bare = dataclasses.replace(run, config=dataclasses.replace(run.config, objectives={}))
    for suite in ("pll", "blimp", "cross_rate"):
        with pytest.raises(
            ConfigError, match=f"suite {suite} needs the mlm head; .*has no head at all"
        ):
            suites.evaluate(bare, suite, source="files:x")


def test_sources_that_cannot_be_read(run, tmp_path):
    with pytest.raises(ConfigError, match="suite blimp needs --source"):
        ask(run, "blimp")
    with pytest.raises(ConfigError, match="needs a --source"):
        ask(run, "pll")  # a model of others has no text of its own
    with pytest.raises(ConfigError, match="cannot read --source='books:x'"):
        ask(run, "pll", source="books:x")
    with pytest.raises(DataError, match="no files at "):
        ask(run, "pll", source=f"files:{tmp_path / 'nowhere'}")
    (tmp_path / "blank.txt").write_text("\n\n")
    with pytest.raises(DataError, match="holds no text"):
        ask(run, "pll", source=f"files:{tmp_path / 'blank.txt'}")
    (tmp_path / "bad.txt").write_bytes(b"fine\n\xff\n")
    with pytest.raises(DataError, match=r"bad\.txt:2: invalid UTF-8"):
        ask(run, "pll", source=f"files:{tmp_path / 'bad.txt'}")
    good = '{"sentence_good": "a", "sentence_bad": "b"}\n'
    for line, said in (
        ('{"sentence_good": "a"}', "no text 'sentence_bad'"),
        ("[1]", "no text"),
        ("{", "not JSON"),
    ):
        (tmp_path / "bad.jsonl").write_text(f"{good}{line}\n")
        with pytest.raises(DataError, match=rf"bad\.jsonl:2: {said}"):
            ask(run, "blimp", source=f"files:{tmp_path / 'bad.jsonl'}")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(DataError, match=r"empty of files:.*empty\.jsonl holds no pairs"):
        ask(run, "blimp", source=f"files:{tmp_path / 'empty.jsonl'}")
    write_pairs(tmp_path, "marks", [("the cat", "cat the"), ("the cat", "\u0301")])
    with pytest.raises(DataError, match=r"marks\.jsonl:2: no token in "):
        ask(run, "blimp", source=f"files:{tmp_path / 'marks.jsonl'}")


def test_the_correction_needs_words(run):
    letters = dataclasses.replace(run)
    object.__setattr__(letters.tokenizer, "has_words", False)
    try:
        with pytest.raises(ConfigError, match="has no words"):
            ask(letters, "pll", source="files:x", within_word=True)
    finally:
        letters.tokenizer.has_words = True
