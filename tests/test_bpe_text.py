"""From text to batches and answers with byte-level BPE: blanks between sentences, words, and pairs
that two separators part.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import os
import types
from pathlib import Path

import numpy as np
import pytest

from bert_jax import config as configs
from bert_jax import train
from bert_jax.batch import TwoSeparators
from bert_jax.config import knobs
from bert_jax.data import corpus, features, pairs, pmi, prepare, tokenizer
from bert_jax.data.corpus import Prepared
from bert_jax.data.examples import Example
from bert_jax.data.pipeline import Source
from bert_jax.data.row_fields import Answer
from bert_jax.data.sentences import LONGEST, split_sentences
from bert_jax.data.vocabulary import train_vocabulary
from bert_jax.errors import ConfigError, DataError
from bert_jax.evaluation import samples
from bert_jax.interop import initial, runs
from bert_jax.masking import units
from bert_jax.predictors import base, masked, stream
from bert_jax.predictors.base import Model
from bert_jax.predictors.options import Options
from tests import corpora, tasks, texts

GOLDEN = Path(__file__).parent / "golden" / "bpe"
TWO = TwoSeparators(*corpora.SPECIAL)
CHINESE = "今天天气很好。我们去公园吧\uff01好的。 好"
DOCUMENTS = [
    ['The old man walked. He said "no".  It\'s 3.5 km!', "A new line (of 2).", "'Tis one."],
    [CHINESE, "第二行。It ends."],
    ["One."],
]


@functools.cache
def golden(kind: str) -> tokenizer.Tokenizer:
    return tokenizer.load(GOLDEN / kind)


@functools.cache
def trained() -> tokenizer.Tokenizer:
    letters = [f"{a} {b}" for a in "abcdefgh" for b in ("the", "of", "to", "in", "is")]
    return train_vocabulary(letters * 2, knobs.Tokenizer(kind="bpe", vocab_size=290))


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
    return prepare.prepare_corpus(configure(**base | overrides), log=lambda line: None)


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
    assert found.tokenizer.kind == "bpe"
    wanted = found.tokenizer.encode_batch([" ".join(" ".join(d).split()) for d in DOCUMENTS * 2])
    shard = found.splits["train"]
    bounds = [0, *shard.sentence_ends[np.array(shard.document_ends) - 1].tolist()]
    assert [shard.tokens[a:b].tolist() for a, b in itertools.pairwise(bounds)] == wanted
    assert len(shard.sentence_ends) > 2 * sum(map(len, DOCUMENTS))  # lines hold several
    assert {"vocab.json", "merges.txt", "tokenizer.json"} < set(os.listdir(found.folder))


def test_a_sentence_says_where_the_text_has_no_space_before_it():
    assert split_sentences(CHINESE, "zh") == [
        " 今天天气很好。",
        "我们去公园吧\uff01",
        "好的。",
        " 好",
    ]
    assert split_sentences("One.  Two?\u2028Three.", "en") == [" One.", " Two?", " Three."]
    long = "ab" * LONGEST
    cut = split_sentences(f"{long} x", None)
    assert [part.startswith(" ") for part in cut[:2]] == [True, False]
    assert "".join(cut).removesuffix("x").strip() == long


def test_other_vocabularies_do_not_see_where_spaces_were(tmp_path):
    split = {"corpus__sentences": "split", "corpus__language": "zh", "tokenizer__kind": "auto"}
    found = prepared(tmp_path, DOCUMENTS, tokenizer__vocab_size=60, **split)
    shard = found.splits["train"]
    text = [" ".join(" ".join(lines).split()) for lines in DOCUMENTS]
    wanted = [i for ids in found.tokenizer.encode_batch(text) for i in ids]
    assert shard.tokens.tolist() == wanted


def test_only_what_shapes_a_trained_vocabulary_is_in_its_fingerprint(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("The text.\n")
    base = {"corpus__source": "files", "corpus__path": file, "tokenizer__vocab_size": 300}

    def mark(**overrides):
        return corpus.fingerprint_corpus(configure(**base | overrides), tmp_path / "cache")

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
    with pytest.raises(ConfigError, match=r"length = .* does nothing: it is for tokenizer.kind"):
        resolve(tokenizer__max_word_length=50)


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
    of_tokens = units.mark_words(rows)[0]
    assert (of_tokens[~eligible[0]] == -1).all()
    groups = [ids[0][of_tokens == unit].tolist() for unit in np.unique(of_tokens)[1:]]
    assert [found.joined(group) for group in groups] == text.split()
    spans = units.mark_spans(rows._replace(settings=knobs.Masking(unit="span", max_unit=64)))[0]
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
    of_tokens = units.mark_collocations(rows)[0]
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
        for shard in [corpora.joined(corpora.shards())]
        for example in pairs.plan_split(shard, mode, examples, 31, 0, 0)
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


# --- tasks ----------------------------------------------------------------------------------------


def task_rows(examples, kind, found, length=64, **settings):
    return features.encode_examples(
        examples, kind, found, knobs.Task(**settings), length, train=False
    )


def test_tags_stand_at_the_first_piece_of_words_with_a_blank():
    found = golden("roberta")
    words = ("The", "dog's", "masking", "rate", "<mask>", "")
    example = Example("line 1", "", words=words, label=(1, 2, 3, 4, 5, 6))
    rows = task_rows([example], "tag", found)
    ids = rows.tokens.tolist()[1:-1]
    assert ids == found.encode_batch([" The dog's masking rate <mask> "])[0]
    tags = rows.targets["tags"].tolist()[1:-1]
    assert [tag for tag in tags if tag >= 0] == [1, 2, 3, 4, 5, 6]
    assert all((tag >= 0) == (not found.continuation[i]) for tag, i in zip(tags, ids, strict=True))


@pytest.mark.parametrize("kind", ["roberta", "modernbert"])
def test_answers_are_the_text_between_their_tokens(kind):
    found = golden(kind)
    context = "In 1999 the old man's dog, caf\u00e9 and all, walked along the river."
    for text in ("1999", "the old man", "caf\u00e9", "river"):
        answer = Answer(text, context.index(text))
        example = Example("line 1", "", text="When?", pair=context, label=(answer,))
        rows = task_rows([example], "span", found)
        ((start, end),) = rows.targets["spans"].tolist()
        first, last = rows.characters[start, 0], rows.characters[end, 1]
        assert context[first:last] == text
        column = len(found.encode_batch(["When?"])[0]) + 1 + found.special.separators
        assert (rows.characters[:column] == -1).all()
        assert rows.characters[column].tolist() == [0, 1]
        assert rows.tokens[column - 1] == found.special.sep


def test_pairs_are_cut_to_fit_with_both_separators():
    found = golden("roberta")
    example = Example("line 1", "", text="the model " * 20, pair="the text " * 20, label=0)
    rows = task_rows([example], "classify", found, length=17)
    tokens = rows.tokens.tolist()
    assert len(tokens) == 17
    assert rows.cut == 1
    sep = found.special.sep
    at = tokens.index(sep)
    assert tokens[at : at + 2] == [sep, sep]
    assert tokens[-1] == sep
    assert tokens.count(sep) == 3
    assert not rows.type_ids.any()
    with pytest.raises(DataError, match="cannot hold"):
        task_rows(
            [Example("line 1", "", text="the", pair="text", label=())], "span", found, length=5
        )


# --- predictions ----------------------------------------------------------------------------------


def model(found: tokenizer.Tokenizer, likeliest: list[int]) -> types.SimpleNamespace:
    """What predictors need of a model: one that says the same for every mask."""

    def apply(batch):
        slots = batch["predict_positions"].shape
        assert (batch["tokens"][0, batch["predict_positions"][0, :1]] == found.special.mask).all()
        ids = np.broadcast_to(np.array(likeliest), (*slots, len(likeliest)))
        return np.full(ids.shape, 0.25), ids

    run = types.SimpleNamespace(tokenizer=found)
    return types.SimpleNamespace(
        run=run, options=base.Options(top_k=2), limit=32, head=lambda name, function: apply
    )


def test_masks_of_roberta_are_filled():
    found = golden("roberta")
    wanted = found.encode_batch([" dog s"])[0]
    predictor = masked.FillMask(model(found, wanted[:2]))
    rows = [predictor.read(1, "The old <mask> and his man<mask>."), predictor.read(2, "No [MASK].")]
    work = predictor.encode(rows)
    values, ids = work.compute(np.arange(2), 32, 2)
    first, second = work.results([(values[0], ids[0]), (values[1], ids[1])])
    shown = [found.shown[i] for i in wanted[:2]]
    assert [[one["token"] for one in mask] for mask in first["masks"]] == [shown, shown]
    assert second["masks"] == []
    (remark,) = predictor.remarks()
    assert remark.startswith("1 text has no <mask>: line 2 has '[MASK]'")
    assert "write <mask> in place of [MASK]" in predictor.text(second)


@pytest.mark.parametrize(
    ("text", "fill", "final"),
    [
        ("The old <mask> walked.", " dog", "The old dog walked."),
        ("The old<mask> walked.", " dog", "The old dog walked."),
        ("The old <mask> walked.", "er", "The older walked."),
        ("<mask> walked.", "He", "He walked."),
    ],
)
def test_filled_masks_are_written_into_the_text(text, fill, final):
    found = golden("roberta")
    masked = found.encode_batch([text], escape=False)[0]
    place = masked.index(found.special.mask)
    filling = found.encode_batch([fill])[0]
    ids = [*masked[:place], filling[0], *masked[place + 1 :]]
    if len(filling) == 1:
        assert masked.replace_masks(found, text, ids, [place]) == final
    else:
        whole = [*masked[:place], *filling, *masked[place + 1 :]]
        assert found.readable(whole).replace("  ", " ") == final.replace("old er", "older")


def test_samples_mask_whole_words():
    found = trained()
    ids = found.encode_batch([" a b a the of to in is"])[0]
    sample = samples._masked(ids, found, 3)
    assert all(answer.strip().isalpha() for answer in sample.answers)
    assert sample.text.count("[MASK]") == len(sample.answers)
    words = sample.text.split()
    for answer in sample.answers:
        words[words.index("[MASK]")] = answer.strip()
    assert words == ["a", "b", "a", "the", "of", "to", "in", "is"]


def test_rows_of_the_special_tokens_move_by_their_roles():
    ours, theirs = trained(), golden("roberta")
    table = np.arange(theirs.size, dtype=np.float32)[:, None]
    fresh = np.full((ours.size, 1), -1, np.float32)
    name = "encoder/embeddings/token"
    config = knobs.Config(init_from="there", init_vocab="remap")
    run = types.SimpleNamespace(tokenizer=theirs, tokenizer_path="")
    moved = initial._remap_rows(config, run, ours, {name: fresh}, {name: table})[name][:, 0]
    assert moved[list(ours.special)].tolist() == list(theirs.special)
    for piece in ("a", "Ġ", "Ġthe"):
        assert moved[ours.vocab.index(piece)] == theirs.vocab.index(piece)


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
    assert run.tokenizer.kind == "bpe"
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
    return stream.Stream(Model(run, Options()), task).answer(lines)
