"""From text to batches with byte-level BPE: blanks between sentences, words, and pairs that two
separators part.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import types
from pathlib import Path

import numpy as np
import pytest

from bert_jax import config as configs
from bert_jax import train
from bert_jax.batch import TwoSeparators
from bert_jax.config import knobs
from bert_jax.data import pairs, tokenizer, units
from bert_jax.data.pipeline import Source
from bert_jax.data.text import pmi, prepare
from bert_jax.data.text.sentences import GLUED, SENTENCE, Tally, sentences
from bert_jax.data.text.shards import Prepared
from bert_jax.errors import ConfigError
from bert_jax.interop import runs
from bert_jax.predictors import stream
from bert_jax.predictors.base import Model, Options
from tests import corpora, tasks, texts

GOLDEN = Path(__file__).parent / "golden" / "bpe"
TWO = TwoSeparators(*corpora.SPECIAL)
CHINESE = "今天天气很好。我们去公园吧\uff01好的。 好"
DOCUMENTS = [
    ['The old man walked. He said "no".  It\'s 3.5 km!', "A new line (of 2).", "'Tis one."],
    [CHINESE, "第二行。It ends."],
    ["One."],
]


def prepared(folder: Path, documents: list[list[str]], **overrides: object) -> Prepared:
    """A corpus of documents, all of them for training."""
    (folder / "in").mkdir(parents=True)
    text = "\n\n".join("\n".join(lines) for lines in documents)
    (folder / "in" / "a.txt").write_text(f"{text}\n", encoding="utf-8")
    base = {
        "corpus__source": "files",
        "corpus__path": folder / "in",
        "corpus__cache": folder / "cache",
        "corpus__workers": 1,
        "corpus__validation_fraction": 0,
        "corpus__deduplicate": False,
        "tokenizer__kind": "bpe",
        "evals": None,
    }
    return prepare.prepare(configure(**base | overrides), log=lambda line: None)


def configure(**overrides: object) -> knobs.Config:
    tree = configs.default()
    if overrides.pop("evals", 0) is None:
        tree.evals = {}
        tree.checkpoints.best = ""
    for key, value in overrides.items():
        configs.override(tree, key.replace("__", "."), str(value))
    return configs.settle(tree)[0]


# --- prepared text --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["roberta", "modernbert", ""])
def test_a_document_has_the_ids_of_its_text(tmp_path, path):
    given = {"tokenizer__path": GOLDEN / path} if path else {"tokenizer__vocab_size": 280}
    split = {"corpus__sentences": "split", "corpus__language": "zh"}
    found = prepared(tmp_path, DOCUMENTS * 2, **given, **split)
    assert found.tokenizer.style.kind == "bpe"
    wanted = found.tokenizer.encode_batch([" ".join(" ".join(d).split()) for d in DOCUMENTS * 2])
    (shard,) = found.splits["train"]
    bounds = [0, *shard.sentence_ends[np.array(shard.document_ends) - 1].tolist()]
    assert [shard.tokens[a:b].tolist() for a, b in itertools.pairwise(bounds)] == wanted
    assert len(shard.sentence_ends) > 2 * sum(map(len, DOCUMENTS))  # lines hold several
    names = json.loads((found.folder / "manifest.json").read_text())["files"]
    assert {*found.tokenizer.files} < {*names}


def test_a_sentence_says_where_the_text_has_no_space_before_it():
    tally = Tally()
    assert sentences(CHINESE, "zh", tally) == [
        "今天天气很好。",
        f"{GLUED}我们去公园吧\uff01",
        f"{GLUED}好的。",
        "好",
    ]
    assert sentences("One.  Two?\u2028Three.", "en", tally) == ["One.", "Two?", "Three."]
    long = "ab" * SENTENCE
    cut = sentences(f"{long} x", None, tally)
    assert [part.startswith(GLUED) for part in cut[:2]] == [False, True]
    assert "".join(cut).replace(GLUED, "").removesuffix("x").strip() == long


def test_other_vocabularies_do_not_see_where_spaces_were(tmp_path):
    split = {"corpus__sentences": "split", "corpus__language": "zh", "tokenizer__kind": "auto"}
    found = prepared(tmp_path, DOCUMENTS, tokenizer__vocab_size=60, **split)
    (shard,) = found.splits["train"]
    text = [" ".join(" ".join(lines).split()) for lines in DOCUMENTS]
    wanted = [i for ids in found.tokenizer.encode_batch(text) for i in ids]
    assert shard.tokens.tolist() == wanted
    assert not any(GLUED in piece for piece in found.tokenizer.vocab)


def test_only_what_shapes_a_trained_vocabulary_is_in_its_fingerprint(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("The text.\n")
    base = {"corpus__source": "files", "corpus__path": file, "tokenizer__vocab_size": 300}

    def mark(**overrides):
        return prepare.fingerprint(configure(**base | overrides), tmp_path / "cache")

    ours = mark(tokenizer__kind="bpe")
    assert ours == mark(tokenizer__kind="bpe", tokenizer__lowercase=False)
    assert mark() == mark(tokenizer__kind="wordpiece")
    others = {mark(), mark(tokenizer__kind="bpe", tokenizer__vocab_size=301)}
    assert len({ours, *others}) == 3


def test_what_bpe_does_without_is_refused():
    def resolve(**overrides):
        tree = configs.default()
        for key, value in {"tokenizer__kind": "bpe", **overrides}.items():
            configs.override(tree, key.replace("__", "."), str(value))
        return configs.resolve(tree)

    assert resolve(tokenizer__vocab_size=262).tokenizer.kind == "bpe"
    assert not resolve(tokenizer__lowercase=False).tokenizer.lowercase
    with pytest.raises(ConfigError, match="vocab_size = 261 leaves bpe no piece of two bytes"):
        resolve(tokenizer__vocab_size=261)
    for name, value in (("max_word_length", 50), ("characters", "google")):
        with pytest.raises(ConfigError, match=f"{name} = .* does nothing: it is for WordPiece"):
            resolve(**{f"tokenizer__{name}": value})


def test_a_preset_for_words_leaves_bytes_as_they_are():
    path = str(GOLDEN / "roberta")
    of_words = {"max_word_length": 100, "characters": "google"}
    given = prepare.given_tokenizer(knobs.Tokenizer(path=path, kind="bpe", **of_words))
    assert given.hash == tokenizer.load(GOLDEN / "roberta").hash
    with pytest.raises(ConfigError, match="max_word_length = 100 does nothing"):
        prepare.given_tokenizer(knobs.Tokenizer(path=path, **of_words))


# --- words ----------------------------------------------------------------------------------------


def test_a_unit_is_a_word_between_blanks():
    found = tokenizer.load(GOLDEN / "roberta")
    text = 'The model\'s masking-rate, "which" is 2,048. café!'
    ids = np.array([[0, *found.encode_batch([text])[0], 2, 1]])
    eligible = ~np.isin(ids, found.special)
    rows = units.Rows(
        ids,
        eligible,
        found.continuation,
        knobs.Masking(unit="word", max_unit=64),
        np.zeros((1, 1), np.int64),
        np.zeros((1, 1), np.int64),
        0,
    )
    of_tokens = units.word(rows)[0]
    assert (of_tokens[~eligible[0]] == -1).all()
    groups = [ids[0][of_tokens == unit].tolist() for unit in np.unique(of_tokens)[1:]]
    assert [found.joined(group) for group in groups] == text.split()
    spans = units.span(rows._replace(settings=knobs.Masking(unit="span", max_unit=64)))[0]
    starts = {int(np.flatnonzero(of_tokens == unit)[0]) for unit in np.unique(of_tokens)[1:]}
    assert {*np.unique(spans)[1:].tolist()} <= starts


def test_collocations_are_read_as_text(tmp_path):
    names = ["red", "old", "big", "dry", "odd"]
    text = [[f"{a} New York, {b} {a}" for b in names] for a in names]
    found = prepared(tmp_path, text, tokenizer__path=GOLDEN / "roberta", corpus__sentences="lines")
    masking = knobs.Masking(unit="pmi", pmi_count=5, pmi_words=2)
    hashes, (_, *lines) = pmi.Search(found, masking).run()
    assert "New York," in [line.split("\t")[0] for line in lines]
    ids = np.array([found.tokenizer.encode_batch([" old New York, dry"])[0]])
    ones = np.zeros((1, 1), np.int64)
    rows = units.Rows(ids, ids >= 0, found.tokenizer.continuation, masking, ones, ones, 0, hashes)
    of_tokens = units.pmi(rows)[0]
    groups = [ids[0][of_tokens == unit].tolist() for unit in np.unique(of_tokens)]
    assert [found.tokenizer.joined(group) for group in groups] == ["old", "New York,", "dry"]


# --- pairs ----------------------------------------------------------------------------------------


def source(folder: Path, mode: str, most: int = 1) -> Source:
    found = corpora.prepared(folder, corpora.shards())
    tokenizer: object = types.SimpleNamespace(
        special=TWO, continuation=found.tokenizer.continuation
    )
    config = corpora.config(batch_size=8, sequence_length=32, pairs=mode, packing=most)
    return Source(dataclasses.replace(found, tokenizer=tokenizer), "train", config)


@pytest.mark.parametrize("mode", ["nsp", "sop"])
def test_two_separators_stand_between_the_texts_of_a_pair(tmp_path, mode):
    built, examples = source(tmp_path, mode), corpora.config().examples
    plans = [
        (shard.tokens.tolist(), example)
        for i, shard in enumerate(corpora.shards())
        for example in pairs.plan_shard(shard, mode, examples, 31, 0, 0, i)
    ]
    longest = 0
    for number, (text, example) in enumerate(plans):
        batch = built.evaluation_batch(number, 1)
        a, b = (
            text[int(example[f"{name}_start"]) :][: int(example[f"{name}_length"])]
            for name in ("a", "b")
        )
        wanted = [TWO.cls, *a, *([TWO.sep, TWO.sep, *b] if b else []), TWO.sep]
        longest = max(longest, len(wanted))
        assert batch["tokens"][0].tolist() == wanted + [TWO.pad] * (32 - len(wanted))
        assert batch["segment_ids"].sum() == len(wanted)
        assert (batch["unit_ids"][0] >= 0).sum() == len(a) + len(b)
        assert not batch["type_ids"].any()
    assert longest == 32


def test_a_packed_row_has_room_for_both_separators(tmp_path):
    built = source(tmp_path, "nsp", most=3)
    assert pairs.measure_lengths(built._plan(0), 2).max() == 32
    seen = 0
    for step in range(-(-built.rows_per_epoch // 8) + 1):
        batch = built.batch(step)
        for row in range(8):
            for segment in range(1, batch["segment_ids"][row].max() + 1):
                own = batch["tokens"][row][batch["segment_ids"][row] == segment].tolist()
                assert own[0] == TWO.cls
                assert own[-1] == TWO.sep
                if TWO.sep in own[:-1]:
                    at = own.index(TWO.sep)
                    assert own[at : at + 2] == [TWO.sep] * 2
                    assert own.count(TWO.sep) == 3
                    seen += 1
    assert seen > 100


def test_rows_of_whole_sentences_have_one_separator_between_documents(tmp_path):
    one = corpora.source(tmp_path / "one", pairs="none")
    two = source(tmp_path / "two", "none")
    assert corpora.same(one.batch(0), two.batch(0))


# --- end to end -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("path", ["roberta", ""])
def test_a_model_of_bytes_is_trained_asked_and_fine_tuned(tmp_path, path):
    given = {"tokenizer__path": GOLDEN / path} if path else {"tokenizer__vocab_size": 320}
    base = texts.config_file(tmp_path)
    kind = {"tokenizer__kind": "bpe", "logging__samples": 4, **given}
    shape = {"masking__unit": "word", "masking__rate": 0.2, "corpus__cache": tmp_path / "cache"}
    shape |= {"checkpoints__every": 20, "evals__validation__every": 20}
    with texts.one_device():
        train.run(texts.configure(base, steps=40, **kind, **shape), tmp_path / "run", command=[])
    run = runs.open_run(str(tmp_path / "run"))
    assert run.tokenizer.style.kind == "bpe"
    lines = [json.loads(x) for x in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    masked = [line["train/masked_fraction"] for line in lines if "train/masked_fraction" in line]
    assert masked[-1] == pytest.approx(0.2, abs=0.05)
    losses = [x["eval/validation/mlm_loss"] for x in lines if "eval/validation/mlm_loss" in x]
    assert losses[-1] < losses[0]
    rows = [json.loads(x) for x in (tmp_path / "run" / "samples.jsonl").read_text().splitlines()]
    assert any(run.tokenizer.mask in row["text"] for row in rows)
    asked = [f"the cat sees the {run.tokenizer.mask} in the garden.", "my old friend likes."]
    filled = list(ask(run, "fill-mask", asked))
    assert len(filled[0]["masks"]) == 1
    assert any(one["token"].startswith(" ") for one in filled[0]["masks"][0])
    assert filled[1]["masks"] == []
    (pair,) = ask(run, "nsp", ["the cat sees the cat.\tthe cat sees my old friend."])
    assert 0 < pair["is_next"] < 1
    tasks.write_classify(tmp_path / "task")
    tuned = tasks.config(
        "classify",
        f"files:{tmp_path}/task/complaints.tsv",
        tmp_path / "task",
        tokenizer__path="",
        init_from=tmp_path / "run",
        init_fresh="^classify/",
        **{
            f"model__{key}": getattr(run.config.model, key) for key in ("hidden", "layers", "heads")
        },
    )
    with texts.one_device():
        train.run(tuned, tmp_path / "tuned", command=[])
    (found,) = ask(runs.open_run(str(tmp_path / "tuned")), "classify", ["the fan is loud again"])
    assert {*found["probabilities"]} == {*tasks.TOPICS}


def ask(run: runs.TrainedModel, task: str, lines: list[str]):
    return stream.Stream(Model(run, Options()), task).answers(lines)
