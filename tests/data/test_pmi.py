"""Collocations against the definition written out, and masks that take them whole."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_jax import prepare, sharding, train
from bert_jax.config import knobs
from bert_jax.data import pmi
from bert_jax.data import prepare as preparation
from bert_jax.data.corpus import Prepared, Split
from bert_jax.data.pipeline import Source
from bert_jax.evaluation.corpus import Evaluator
from bert_jax.masking import units
from bert_jax.training.ledger import Ledger
from tests import corpora, texts, toy

WORDS = [
    (5,),
    (6,),
    (7, 8),
    (7, 9),
    (10, 9, 8),
    (11,),
    (12,),
    (1,),
]  # pieces; 8 and 9 go on with a word, 1 is [UNK]
CONTINUATION = np.isin(np.arange(20), (8, 9))
Gram = tuple[tuple[int, ...], ...]


def corpus(folder: Path, documents: list[list[Gram]]) -> Prepared:
    """A shard for each list of documents, each a sequence of words."""
    shards = []
    for several in documents:
        lengths = [sum(map(len, document)) for document in several]
        tokens = np.array(
            [piece for document in several for word in document for piece in word], np.uint32
        )
        ends = np.cumsum(lengths).astype(np.uint32)
        shards.append(Split(tokens, ends, np.arange(1, len(ends) + 1, dtype=np.uint32)))
    prepared = corpora.prepared(folder, shards)
    prepared.tokenizer.continuation = CONTINUATION
    vocab = [f"{'##' if CONTINUATION[i] else ''}{i}" for i in range(20)]
    prepared.tokenizer.joined = lambda ids: " ".join(vocab[i] for i in ids).replace(" ##", "")
    return prepared


def random_corpus(folder: Path, seed: int) -> tuple[Prepared, list[Gram]]:
    random = np.random.default_rng(seed)
    weights = random.dirichlet(np.ones(len(WORDS)))

    def document() -> Gram:
        words = [
            WORDS[i] for i in random.choice(len(WORDS), int(random.integers(1, 40)), p=weights)
        ]
        at = int(random.integers(len(words)))
        return tuple(words[:at] + [(5,), (7, 8), (12,)] * int(random.integers(3)) + words[at:])

    shards = [[document() for _ in range(int(random.integers(1, 9)))] for _ in range(3)]
    return corpus(folder, shards), [document for shard in shards for document in shard]


def counted(documents: list[Gram], most: int) -> dict[int, collections.Counter]:
    found: dict[int, collections.Counter] = {n: collections.Counter() for n in range(1, most + 1)}
    for document in documents:
        for n in found:
            for i in range(len(document) - n + 1):
                gram = document[i : i + n]
                if n == 1 or (1,) not in gram:  # no unknown word in a longer one
                    found[n][gram] += 1
    return found


def score(gram: Gram, counts: dict[int, collections.Counter]) -> float:
    """PMI: the least, over every way to cut, of log p(gram) / prod p(part)."""

    def log_p(part: Gram) -> float:
        return math.log(counts[len(part)][part] / counts[len(part)].total())

    values = []
    for cuts in itertools.product([False, True], repeat=len(gram) - 1):
        bounds = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), len(gram)]
        if len(bounds) > 2:
            values.append(
                log_p(gram) - sum(log_p(gram[a:b]) for a, b in itertools.pairwise(bounds))
            )
    return min(values)


def spelled(gram: Gram) -> str:
    return " ".join("".join(map(str, word)) for word in gram)


def listed(prepared: Prepared, masking: knobs.Masking) -> dict[str, tuple[int, int, float]]:
    """The list to read: words, count and PMI of each."""
    _, (_, *lines) = pmi.Search(prepared, masking).run()
    rows = [line.rstrip("\n").split("\t") for line in lines]
    return {text: (int(n), int(count), float(value)) for text, n, count, value in rows}


@settings(max_examples=15)
@given(seed=st.integers(0, 10_000), most=st.integers(2, 5), often=st.integers(0, 3))
def test_scores_and_counts_are_those_of_the_definition(tmp_path_factory, seed, most, often):
    prepared, documents = random_corpus(tmp_path_factory.mktemp("corpus"), seed)
    counts = counted(documents, most)
    wanted = {}
    for n in range(2, most + 1):
        for gram, count in counts[n].items():
            if count > often and score(gram, counts) > 1e-9:
                wanted[spelled(gram)] = (n, count, pytest.approx(score(gram, counts), abs=6e-4))
    masking = knobs.Masking(pmi_words=most, pmi_count=often, pmi_coverage=1.0)
    assert listed(prepared, masking) == wanted  # all that there is, since no list covers every word


@pytest.mark.parametrize("coverage", [0.0, 0.2, 0.6])
def test_the_list_is_as_long_as_the_share_of_the_text_asks_for(tmp_path, coverage):
    prepared, documents = random_corpus(tmp_path, 3)
    counts, often, most = counted(documents, 4), 1, 4
    ranked = {}
    for n in (2, 3, 4):
        there = [
            gram
            for gram, count in counts[n].items()
            if count > often and score(gram, counts) > 1e-9
        ]
        ranked[n] = sorted(there, key=lambda gram: -score(gram, counts))
    found = listed(prepared, knobs.Masking(pmi_words=most, pmi_count=often, pmi_coverage=coverage))
    total = sum(map(len, documents))

    def covered(chosen: set[str]) -> int:
        hit = 0
        for document in documents:
            inside = set()
            for n, i in itertools.product((2, 3, 4), range(len(document))):
                if i + n <= len(document) and spelled(document[i : i + n]) in chosen:
                    inside |= set(range(i, i + n))
            hit += len(inside)
        return hit

    assert covered(set(found)) >= coverage * total
    assert (len(found) == 0) == (coverage == 0)
    # Half pairs, a quarter threes, a quarter fours, each the best of its kind; without the last it
    # is too few.
    if found:
        parts = {
            n: [text for text, (words, _, _) in found.items() if words == n] for n in (2, 3, 4)
        }
        for n, texts_of_n in parts.items():
            least = min((found[text][2] for text in texts_of_n), default=math.inf)
            left = [score(gram, counts) for gram in ranked[n] if spelled(gram) not in found]
            assert max(left, default=-math.inf) <= least + 1e-3
            room = len(found) * {2: 0.5, 3: 0.25, 4: 0.25}[n]
            assert (
                len(texts_of_n) == len(ranked[n])
                or abs(len(texts_of_n) - room) <= 2
                or any(len(parts[m]) == len(ranked[m]) for m in parts)
            )
        last = list(found)[-1]
        assert covered(set(found) - {last}) < coverage * total


def test_memory_and_blocks_change_nothing(tmp_path, monkeypatch):
    prepared, _ = random_corpus(tmp_path, 5)
    masking = knobs.Masking(pmi_count=1)
    whole = pmi.Search(prepared, masking).run()
    monkeypatch.setattr(pmi, "HELD", 50)
    monkeypatch.setattr(pmi, "BLOCK", 30)
    search = pmi.Search(prepared, masking)
    assert search.passes > 3
    assert len(list(search.blocks())) > 4
    parts = search.run()
    assert np.array_equal(parts[0].sorted, whole[0].sorted)
    assert sorted(parts[1]) == sorted(whole[1])


def test_a_share_of_the_documents_is_counted_where_there_are_too_many(tmp_path, monkeypatch):
    documents = [tuple(WORDS[:7] * 3)] * 400
    prepared = corpus(tmp_path, [documents[:100], documents[100:]])
    total = sum(len(word) for document in documents for word in document)
    masking = knobs.Masking(pmi_coverage=1.0)
    everything = {count for _, count, _ in listed(prepared, masking).values()}
    monkeypatch.setattr(pmi, "SEARCHED", total // 4)
    counted_ = {count for _, count, _ in listed(prepared, masking).values()}
    assert max(everything) == 400 * 3
    assert 0.2 < max(counted_) / max(everything) < 0.3


def planted(folder: Path) -> Prepared:
    """Words at random, among them again and again 11 12 11 in a row, which otherwise are rare."""
    random = np.random.default_rng(0)
    documents = []
    for _ in range(60):
        words = [WORDS[i] for i in random.choice(7, 60, p=[0.24] * 4 + [0.02] + [0.01] * 2)]
        at = int(random.integers(60))
        documents.append((*words[:at], (11,), (12,), (11,), *words[at:]))
    return corpus(folder, [documents])


def test_a_planted_collocation_is_the_best_of_its_length(tmp_path):
    found = listed(planted(tmp_path), knobs.Masking(pmi_coverage=0.2))
    best = {}
    for text, (n, _, value) in found.items():
        best[n] = max(best.get(n, ("", -math.inf)), (text, value), key=lambda pair: pair[1])
    assert best[3][0] == "11 12 11"
    assert best[2][0] in ("11 12", "12 11")


# --- units ----------------------------------------------------------------------------------------


def rows(seed: int, count: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """[CLS] A [SEP] B [SEP] and padding: ids, and which of them are text."""
    random = np.random.default_rng(seed)
    tokens = random.choice([5, 6, 7, 8, 9, 11, 12], (count, length))
    eligible = np.zeros((count, length), bool)
    for row in eligible:
        n = int(random.integers(3, length + 1))
        row[1 : n - 1] = True
        if n > 6:
            row[random.integers(2, n - 2)] = False
    return tokens, eligible


def plainly(
    tokens: np.ndarray, eligible: np.ndarray, known: set[tuple[int, ...]], most: int, longest: int
) -> list:
    """Unit ids of a row: from left to right the longest collocation, cut after `longest` tokens."""
    segments: list[list[list[int]]] = []
    for column, token in enumerate(tokens):
        if eligible[column]:
            if column == 0 or not eligible[column - 1]:
                segments.append([])
            if not CONTINUATION[token] or not segments[-1]:
                segments[-1].append([])
            segments[-1][-1].append(column)
    ids = [-1] * len(tokens)
    for words in segments:
        at = 0
        while at < len(words):
            size = 1
            for n in range(2, min(most, len(words) - at) + 1):
                if tuple(tuple(tokens[word].tolist()) for word in words[at : at + n]) in known:
                    size = n
            group = list(itertools.chain(*words[at : at + size]))
            for place, column in enumerate(group):
                ids[column] = group[place - place % longest]
            at += size
    return ids


def run_unit(
    prepared: Prepared, masking: knobs.Masking, tokens: np.ndarray, eligible: np.ndarray
) -> np.ndarray:
    numbers = np.arange(len(tokens))[:, None]
    found, _ = pmi.Search(prepared, masking).run()
    return units.mark_collocations(
        units.Rows(tokens, eligible, CONTINUATION, masking, numbers, numbers * 0, 0, found)
    )


@settings(max_examples=15)
@given(seed=st.integers(0, 10_000), longest=st.integers(1, 8), length=st.integers(3, 40))
def test_rows_are_cut_from_left_to_right_into_the_longest(tmp_path_factory, seed, longest, length):
    prepared, documents = random_corpus(tmp_path_factory.mktemp("corpus"), seed)
    masking = knobs.Masking(
        unit="pmi", pmi_words=4, pmi_count=1, pmi_coverage=0.5, max_unit=longest
    )
    known_texts = set(listed(prepared, masking))
    known = {g for n in (2, 3, 4) for g in counted(documents, 4)[n] if spelled(g) in known_texts}
    tokens, eligible = rows(seed, 6, length)
    found = run_unit(prepared, masking, tokens, eligible)
    assert found.dtype == np.int32
    for row in range(6):
        assert found[row].tolist() == plainly(tokens[row], eligible[row], known, 4, longest)


def test_without_collocations_units_are_words(tmp_path):
    tokens, eligible = rows(1, 9, 30)
    prepared = planted(tmp_path)
    numbers = np.arange(9)[:, None]
    masking = knobs.Masking(unit="pmi", pmi_coverage=0.0)
    words = units.mark_words(
        units.Rows(tokens, eligible, CONTINUATION, masking, numbers, numbers, 0)
    )
    assert np.array_equal(run_unit(prepared, masking, tokens, eligible), words)


@pytest.mark.parametrize("rate", [0.15, 0.6])
def test_masks_take_all_of_a_collocation_or_nothing(tmp_path, rate):
    masking = knobs.Masking(unit="pmi", rate=rate, pmi_coverage=0.4, replace=(1.0, 0.0, 0.0))
    source = Source(
        planted(tmp_path),
        "train",
        corpora.config(sequence_length=48, batch_size=64, masking__unit="pmi"),
    )
    batch = source.batch(0)
    assert max(np.unique(batch["unit_ids"][batch["unit_ids"] >= 0], return_counts=True)[1]) > 3
    selected = toy.chosen(toy.mask(batch, masking, slots=48)[0])
    several = 0
    for row, ids in enumerate(batch["unit_ids"]):
        for unit in set(ids.tolist()) - {-1}:
            taken = selected[row, ids == unit]
            assert taken.all() or not taken.any()
            several += taken.all() and len(taken) > 2
    assert several > 10


# --- the list on disk -----------------------------------------------------------------------------


def source(prepared: Prepared, **changes: object) -> Source:
    changes = {
        "masking__unit": "pmi",
        "masking__pmi_count": 3,
        "sequence_length": 32,
        "batch_size": 8,
        **changes,
    }
    return Source(prepared, "train", corpora.config(**changes))


def test_the_list_is_made_once_for_its_settings(tmp_path, monkeypatch, capsys):
    prepared = planted(tmp_path)
    first = source(prepared)
    folder = tmp_path / "collocations"
    (file,) = folder.glob("*.npz")
    assert "collocations of up to 5 words" in capsys.readouterr().err
    assert "\n11 12 11\t3\t60\t" in file.with_suffix(".tsv").read_text()
    assert not list(folder.glob(".*.npz"))
    with monkeypatch.context() as patch:
        patch.setattr(pmi, "Search", None)
        again = source(prepared)  # from the file
    assert again.fingerprint == first.fingerprint
    assert corpora.same(again.batch(3), first.batch(3))

    body = bytearray(file.read_bytes())
    body[len(body) // 2] ^= 1
    file.write_bytes(body)
    assert source(prepared).fingerprint == first.fingerprint  # damaged: made anew
    file.write_bytes(b"")
    assert source(prepared).fingerprint == first.fingerprint
    other = source(prepared, masking__pmi_words=2)
    assert len(list(folder.glob("*.npz"))) == 2
    assert other.fingerprint != first.fingerprint


def test_batches_follow_from_the_list_alone(tmp_path):
    prepared = planted(tmp_path)
    made = source(prepared)
    again = source(prepared)
    assert again.fingerprint == made.fingerprint
    assert corpora.same(again.batch(2), made.batch(2))
    few = made.batch(2, slice(3, 5))
    assert all(np.array_equal(few[key], made.batch(2)[key][3:5]) for key in few)
    evaluated = Source(
        prepared, "train", corpora.config(masking__unit="pmi", masking__pmi_count=3), seed=7
    )
    assert evaluated.evaluation_batch(0, 4)["unit_ids"].shape == (4, 128)
    names = {
        unit: source(prepared, masking__unit=unit).fingerprint for unit in ("word", "token", "pmi")
    }
    assert len(set(names.values())) == 3
    assert source(prepared, masking__unit="word", masking__pmi_words=2).fingerprint == names["word"]


def test_an_evaluation_has_the_collocations_of_its_run(tmp_path):
    """Its rate, replacements and unit are its own; how the unit is made is the run's."""
    found = planted(tmp_path)
    found.tokenizer.size, found.tokenizer.hash = len(found.unigrams), "planted"
    prepared = dataclasses.replace(
        found, splits={"train": found.splits["train"], "validation": found.splits["train"]}
    )
    changes = {"masking__pmi_words": 2, "masking__pmi_count": 3, "masking__max_unit": 5}
    own = knobs.Eval(unit="pmi", rate=0.3, batch_size=8)
    shape = {"pairs": "none", "batch_size": 8, "sequence_length": 32, "model__size": "tiny"}
    config = corpora.config(**shape, **changes, masking__rate=0.8)
    evaluator = Evaluator(config, prepared, own, sharding.make_mesh(config.parallel))
    masking = evaluator.config.masking
    assert (masking.unit, masking.rate, masking.pmi_words, masking.max_unit) == ("pmi", 0.3, 2, 5)
    wanted = Source(
        prepared, "validation", corpora.config(**shape, **changes, masking__unit="pmi"), seed=0
    )
    assert corpora.same(evaluator.source.evaluation_batch(0, 8), wanted.evaluation_batch(0, 8))
    usual = Source(prepared, "validation", corpora.config(**shape, masking__unit="pmi"), seed=0)
    assert not corpora.same(evaluator.source.evaluation_batch(0, 8), usual.evaluation_batch(0, 8))


def test_a_folder_that_cannot_be_written_is_no_hindrance(tmp_path, monkeypatch, capsys):
    prepared = planted(tmp_path)
    (tmp_path / "collocations").write_text("in the way")
    made = source(prepared)
    assert "the list is not kept" in capsys.readouterr().err
    assert made.batch(0)["unit_ids"].max() > 0


def test_the_ledger_passes(tmp_path):
    masking = knobs.Masking(unit="pmi", rate=0.3, pmi_count=3)
    made = source(planted(tmp_path), batch_size=64, sequence_length=48, masking__rate=0.3)
    account = Ledger(masking)
    for step in range(4):
        account.add(toy.mask(made.batch(step), masking, slots=48)[1], 0.3, 64, step)
    assert account.totals["masked"] > 1_000


@pytest.mark.slow  # a run of its own
def test_a_run_on_collocations_that_prepare_has_found(tmp_path, monkeypatch):
    base = texts.config_file(tmp_path)
    changes = {"masking__unit": "pmi", "masking__pmi_count": 5, "pairs": "none"}
    config = texts.configure(
        base, **changes, steps=12, masking__pmi_coverage=0.8, masking__rate=0.3
    )
    prepare.run(config)
    with monkeypatch.context() as patch:
        patch.setattr(pmi, "Search", None)
        train.run(dataclasses.replace(config, evals={}), tmp_path / "run", command=[])
    assert '"train/masked_fraction": 0.' in (tmp_path / "run" / "metrics.jsonl").read_text()
    (list_,) = (preparation.prepare_corpus(config).folder / "collocations").glob(
        f"{pmi.name(config.masking)}.tsv"
    )
    assert "on the long road" in list_.read_text()
