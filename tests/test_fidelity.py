"""Training examples follow the published construction: the same numbers, measured alike on both,
agree.

Ours are made on the path of a run: shards on disk, `Source.batch`, `corrupt_batch` with the traced
numbers of a step. The published ones come from `published`, in plain Python. `examples` measures
and compares both: a verdict raises a false alarm once in 100,000 (Bonferroni over its numbers), and
there are nine that must find nothing. Seeds are fixed, so a test that passes keeps passing.

A verdict that finds nothing proves little by itself. So each known bug of other projects, and what
a restatement easily gets wrong, is planted in the path, and the verdict must name what it breaks.
The keys of `BUGS` name them. Their sources are:

  ModernBERT #212, HF #11155   special tokens or padding are selected
  HF TF collator, #32329       80/10/10 computed as 80/2/18
  ELECTRA                      positions drawn with replacement
  f_net, scenic                slots for 15 % cap every rate; swapped halves called nsp
  bert #125                    labels of one class: documents run together, or each line is one
  NVIDIA #421                  one document: true pairs labelled random
  albert #234                  sop with segments from elsewhere; nsp data for sop
  HF #19494                    means of device means (training/test_step.py)
  bert #746                    duplicated text
  HF #10737                    special tokens mid-sequence
  fairseq                      random tokens without special ones
  forks of bert                A loses first where both are as long
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import json
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from bert_jax.data import pairs, prepare
from bert_jax.data.corpus import Split
from tests import corpora, texts
from tests.corpora import FIRST, SPECIAL
from tests.examples import (
    FALSE_ALARM,
    Case,
    Measured,
    Plant,
    Text,
    made_up,
    measure,
    ours,
    text_of,
    theirs,
    verdict,
    welch,
)

# --- ours agree -----------------------------------------------------------------------------------

sentences = functools.lru_cache(functools.partial(made_up, 40, 10, 7))
paragraphs = functools.lru_cache(functools.partial(made_up, 24, 30, 14))
few = functools.lru_cache(
    functools.partial(made_up, 6, 4, 6)
)  # so that special tokens are a share of the vocabulary

CASES = {
    "32 tokens": Case(sentences, 32),
    "128 tokens": Case(paragraphs, 128),
    "40 %": Case(few, 32, 250, rate=0.4, most=32),
    "dynamic": Case(sentences, 32, static=False),
    "sop": Case(sentences, 32, mode="sop"),
    "words, 32 tokens": Case(sentences, 32, words=True),
    "words, 128 tokens": Case(paragraphs, 128, words=True),
}


@functools.lru_cache
def reference(name: str) -> Measured:
    case = CASES[name]
    return measure(theirs(case.text(), case), case.text(), case)


def compare(folder: Path, name: str, plant: Plant | None = None) -> dict[str, str]:
    case = CASES[name]
    return verdict(
        measure(ours(folder, case.text(), case, plant), case.text(), case), reference(name)
    )


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * ("128" in n)) for n in CASES]
)
def test_ours_are_as_published(name: str, tmp_path: Path) -> None:
    assert not any(reference(name)[1].values())
    assert compare(tmp_path, name) == {}


# --- and bugs are found ---------------------------------------------------------------------------


def everywhere(batch: dict, eligible: np.ndarray) -> dict:
    """Other tokens may be selected."""
    columns = np.broadcast_to(np.arange(eligible.shape[1], dtype=np.int32), eligible.shape)
    return {**batch, "unit_ids": np.where(eligible, columns, np.int32(-1))}


def padding_is_text(batch: dict) -> dict:
    """A mask of attention that never reached the collator."""
    columns = np.broadcast_to(
        np.arange(batch["tokens"].shape[1], dtype=np.int32), batch["tokens"].shape
    )
    batch = {**batch, "segment_ids": np.ones_like(columns), "positions": columns}
    return everywhere(batch, ~np.isin(batch["tokens"], (SPECIAL.cls, SPECIAL.sep)))


def grouped(batch: dict) -> dict:
    """Finished rows in one stream, cut anew: special tokens are anywhere."""
    stream = batch["tokens"][batch["segment_ids"] > 0]
    tokens = np.resize(stream, batch["tokens"].shape)
    columns = np.broadcast_to(np.arange(tokens.shape[1], dtype=np.int32), tokens.shape)
    return everywhere(
        {**batch, "tokens": tokens, "segment_ids": np.ones_like(columns), "positions": columns},
        tokens >= FIRST,
    )


def with_replacement(output: dict) -> dict:
    """As many draws as the quota, some of them the same."""
    rng = np.random.default_rng(int(output["example_ids"].sum()))
    output = {name: values.copy() for name, values in output.items()}
    for row, used in enumerate(output["predict_weights"].sum(1).astype(int)):
        eligible = np.flatnonzero(output["unit_ids"][row] >= 0)
        drawn = rng.choice(eligible, used)
        output["predict_positions"][row, :used] = drawn
        output["predict_targets"][row, :used] = output["tokens"][row, drawn]
        output["inputs"][row] = output["tokens"][row]
        kind = rng.random(used)
        output["inputs"][row, drawn] = np.where(
            kind < 0.8, SPECIAL.mask, output["tokens"][row, drawn]
        )
    return output


def one_draw_a_word(output: dict) -> dict:
    """The pieces of a word get what its first one got."""
    inputs, tokens, units = output["inputs"].copy(), output["tokens"], output["unit_ids"]
    first = np.maximum(units, 0)
    alike = (units >= 0) & (np.arange(tokens.shape[1]) != units)
    kept, drawn = (np.take_along_axis(x, first, 1) for x in (inputs == tokens, inputs))
    return {**output, "inputs": np.where(alike, np.where(kept, tokens, drawn), inputs)}


def rounding(function: Callable[[np.ndarray], np.ndarray]) -> Plant:
    def table(quotas: np.ndarray) -> np.ndarray:
        return np.maximum(function(np.arange(len(quotas)) * 0.15), 1).astype(np.int32)

    return Plant(quotas=table)


def one_document(shard: Split) -> Split:
    return dataclasses.replace(shard, document_ends=shard.document_ends[-1:])


def a_document_a_line(shard: Split) -> Split:
    return dataclasses.replace(
        shard, document_ends=np.arange(1, len(shard.sentence_ends) + 1, dtype=np.uint32)
    )


def other_mode(mode: str) -> Callable:
    """A plan made for another task."""
    return lambda plan: lambda shard, _, *rest: plan(shard, mode, *rest)


def swap_sides(plan: Callable) -> Callable:
    def swapped(*arguments: Any) -> np.ndarray:
        records = plan(*arguments)
        other = records.copy()
        for one, two in (("a", "b"), ("b", "a")):
            other[f"{one}_start"], other[f"{one}_length"] = (
                records[f"{two}_start"],
                records[f"{two}_length"],
            )
        return other

    return swapped


def random_where_alone(plan: Callable) -> Callable:
    """A chunk of one sentence gets its B from anywhere, and a label of another task."""

    def mixed(shard: Split, *rest: Any) -> np.ndarray:
        records = plan(shard, *rest).copy()
        rng = np.random.default_rng(rest[-2])
        alone = np.flatnonzero(records["label"] == -1)
        other = records[rng.integers(len(records), size=len(alone))]
        records["b_start"][alone], records["label"][alone] = other["a_start"], 1
        records["a_length"][alone] = np.minimum(records["a_length"][alone], 14)
        records["b_length"][alone] = np.minimum(other["a_length"], 14)
        return records

    return mixed


def rewritten(module: types.ModuleType, *changes: tuple[str, str]) -> types.ModuleType:
    """The module with some of its text replaced."""
    source = inspect.getsource(module)
    for old, new in changes:
        assert source.count(old) == 1, (
            f"{module.__name__} has changed: {old!r} is there {source.count(old)} times"
        )
        source = source.replace(old, new)
    changed = types.ModuleType(f"{module.__name__}_with_a_bug")
    exec(compile(source, f"{changed.__name__}.py", "exec"), changed.__dict__)
    return changed


def planning(*changes: tuple[str, str]) -> Callable:
    """A plan by `pairs` with some of its text replaced."""
    return lambda _: rewritten(pairs, *changes).plan_split


class Bug(NamedTuple):
    case: str
    caught: set[str]  # these, at least
    plant: Plant = Plant()
    plan: Callable[[Callable], Callable] | None = None


BUGS = {
    "special tokens are selected": Bug(
        "32 tokens",
        {"special selected"},
        Plant(batch=lambda b: everywhere(b, b["segment_ids"] > 0)),
    ),
    "padding is selected": Bug(
        "32 tokens", {"padding selected", "number of predictions"}, Plant(batch=padding_is_text)
    ),
    "80/2/18": Bug(
        "32 tokens", {"random", "kept"}, Plant({"masking__replace": "(0.8, 0.02, 0.18)"})
    ),
    "drawn with replacement": Bug(
        "40 %", {"selected twice", "selected"}, Plant(output=with_replacement)
    ),
    "the rate capped": Bug(
        "40 %",
        {"number of predictions", "selected"},
        Plant(quotas=lambda table: np.minimum(table, round(0.15 * 32))),
    ),
    "blank lines lost": Bug(
        "32 tokens",
        {"label 1", "A or B is not one piece of one document"},
        Plant(shard=one_document),
    ),
    "blank lines everywhere": Bug(
        "32 tokens", {"label 1", "length of A"}, Plant(shard=a_document_a_line)
    ),
    "swapped halves as next sentences": Bug(
        "32 tokens", {"random B from A's document"}, plan=other_mode("sop")
    ),
    "next sentences as swapped halves": Bug(
        "sop", {"B does not go on where A ends", "label 1"}, plan=other_mode("nsp")
    ),
    "random where sop has one sentence": Bug(
        "sop", {"B does not go on where A ends", "label 1"}, plan=random_where_alone
    ),
    "special tokens mid-sequence": Bug(
        "32 tokens",
        {"special tokens elsewhere than in [CLS] A [SEP] B [SEP]"},
        Plant(batch=grouped),
    ),
    "unused sentences not put back": Bug(
        "32 tokens",
        {"text used"},
        plan=planning(("b_next = np.where(drawn, a_end, chunk_end)", "b_next = chunk_end")),
    ),
    "truncated at the end": Bug(
        "32 tokens", {"A lost its front", "B lost its front"}, Plant({"examples__truncate": "back"})
    ),
    "truncated at one end": Bug(
        "128 tokens",
        {"A lost its front", "A lost its end"},
        plan=planning(("random.binomial(cut, 0.5)", "cut * random.binomial(1, 0.5, len(cut))")),
    ),
    "truncated from A where both are as long": Bug(
        "32 tokens",
        {"A up to 5/10"},
        plan=planning(
            ("np.maximum((limit + 1) // 2", "np.maximum(limit // 2"),
            ("np.maximum(limit // 2, limit - a", "np.maximum((limit + 1) // 2, limit - a"),
        ),
    ),
    "short by example": Bug(
        "32 tokens",
        {"short again after short"},
        plan=planning(
            (
                "goal = document_ends[document], target[document]",
                "goal = document_ends[document], np.where(random.random(len(document)) < "
                "settings.short_probability, "
                "random.integers(2, limit, len(document), endpoint=True), limit)",
            )
        ),
    ),
    "never short": Bug("32 tokens", {"full"}, Plant({"examples__short_probability": 0})),
    "random from A's document too": Bug(
        "32 tokens",
        {"random B from A's document"},
        plan=planning(("other += other >= document", "other += 0")),
    ),
    "B from the beginning of a document": Bug(
        "32 tokens",
        {"place of random B in its document"},
        plan=planning(("b_from = first[other] +", "b_from = first[other] + 0 *")),
    ),
    "no more than half of all B are random": Bug(
        "32 tokens", {"label 1"}, Plant({"examples__random_next_probability": 0.41})
    ),
    "[CLS] and [SEP] do not count": Bug(
        "32 tokens", {"number of predictions"}, Plant({"masking__count": "eligible"})
    ),
    "rounded half up": Bug(
        "32 tokens", {"number of predictions"}, rounding(lambda x: np.floor(x + 0.5))
    ),
    "rounded up": Bug("32 tokens", {"number of predictions"}, rounding(np.ceil)),
    "rounded down": Bug("32 tokens", {"number of predictions"}, rounding(np.floor)),
    "no special tokens among random ones": Bug(
        "40 %", {"special among random"}, Plant({"masking__random_from": "regular"})
    ),
    "A and B swapped": Bug("32 tokens", {"B does not go on where A ends"}, plan=swap_sides),
    "static where dynamic was asked for": Bug(
        "dynamic", {"position selected again"}, Plant({"masking__dupe_factor": 1})
    ),
    "static masks on dynamic pairs": Bug(
        "dynamic",
        {"position selected again"},
        Plant(batch=lambda b: {**b, "copies": np.zeros_like(b["copies"])}),
    ),
    "pieces instead of words": Bug(
        "words, 32 tokens",
        {"word selected in part", "words of 1 selected"},
        Plant({"masking__unit": "token"}),
    ),
    "a word that does not fit is taken": Bug(
        "words, 32 tokens", {"number of predictions"}, Plant({"masking__overflow": "fair"})
    ),
    "one draw of 80/10/10 for a word": Bug(
        "words, 32 tokens", {"[MASK] beside [MASK]"}, Plant(output=one_draw_a_word)
    ),
    "dynamic where static was asked for": Bug(
        "32 tokens", {"position selected again"}, Plant({"masking__dupe_factor": 0})
    ),
}


QUICK = (  # a bug of each kind: selection, replacement, quota, documents, truncation, units
    "special tokens are selected",
    "80/2/18",
    "rounded half up",
    "blank lines lost",
    "truncated at the end",
    "pieces instead of words",
)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in BUGS]
)
def test_a_bug_is_caught(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = BUGS[name]
    if bug.plan:
        monkeypatch.setattr(pairs, "plan_split", bug.plan(pairs.plan_split))
    found = compare(tmp_path, bug.case, bug.plant)
    assert bug.caught <= set(found), found


def test_false_alarms_are_as_rare_as_stated() -> None:
    """The published construction against itself: p-values are uniform."""
    case = CASES["40 %"]
    samples = [
        measure(theirs(case.text(), case, seed), case.text(), case)[0] for seed in range(2, 10)
    ]
    chances = []
    for one, two in itertools.combinations(samples, 2):
        chances += [welch(*(x[name][~np.isnan(x[name])] for x in (one, two))) for name in one]
    shares = {level: np.mean(np.array(chances) < level) for level in (0.5, 0.1, 0.01)}
    # 28 pairs of 8 samples, 80 numbers that hang together: as if some 300 were independent
    assert all(abs(share - level) < 5 * np.sqrt(level / 300) for level, share in shares.items()), (
        shares
    )
    assert min(chances) > FALSE_ALARM / len(samples[0])


def test_one_document_makes_no_false_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the original finds no other document, it takes B from the same one and calls it random.
    Ours does not.
    """
    shard = corpora.shard([corpora.random_documents(1, 0, 60, 7)[0]])
    text = text_of([shard], np.zeros(len(shard.tokens), bool))
    case = Case(lambda: text, 32, passes=20)
    rule = "random B from A's document"
    assert measure(theirs(text, case), text, case)[1][rule] > 50
    assert not any(measure(ours(tmp_path / "ours", text, case), text, case)[1].values())

    def labelled(plan: Callable) -> Callable:
        def wrong(*arguments: Any) -> np.ndarray:
            records = plan(*arguments).copy()
            records["label"][::2] = 1
            return records

        return wrong

    monkeypatch.setattr(pairs, "plan_split", labelled(pairs.plan_split))
    assert measure(ours(tmp_path / "wrong", text, case), text, case)[1][rule] > 50


def test_repeated_documents_are_dropped(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    found = ["\n".join(texts.document(draw, 5)) for _ in range(30)]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "text.txt").write_text(
        "\n\n".join([*found, *found[::-1], *found[:7]]) + "\n"
    )
    kept = {}
    for deduplicate in (True, False):
        chosen = {
            "source": "files",
            "path": tmp_path / "in",
            "workers": 1,
            "deduplicate": deduplicate,
        }
        settings = {f"corpus__{name}": value for name, value in chosen.items()}
        prepared = prepare.prepare_corpus(
            corpora.config(tokenizer__vocab_size=120, **settings), lambda _: None
        )
        audit = json.loads((prepared.folder / "audit.json").read_bytes())
        kept[deduplicate] = (
            audit["train"]["documents"] + audit["validation"]["documents"],
            audit["duplicates"],
        )
    assert kept == {True: (30, 37), False: (67, 0)}


# --- real text ------------------------------------------------------------------------------------


def real_text(shared: Path, folder: Path) -> Text:
    """Articles of a few sentences and sections of textbooks, in wordpieces."""
    structure, continues = [], []
    for name, documents in (("wikipedia_summaries", 2_000), ("openstax", 60)):
        config = corpora.config(
            corpus__source="files",
            corpus__path=shared / "pretrain_text" / f"{name}.jsonl.gz",
            corpus__cache=folder,
            tokenizer__path=shared / "vocab" / "bert_base_uncased_vocab.txt",
        )
        prepared = prepare.prepare_corpus(config, lambda _: None)
        shard = prepared.splits["train"]
        sentences = int(shard.document_ends[documents - 1])
        tokens = int(shard.sentence_ends[sentences - 1])
        structure.append(
            Split(
                shard.tokens[:tokens],
                shard.sentence_ends[:sentences],
                shard.document_ends[:documents],
            )
        )
        continues.append(prepared.tokenizer.continuation[shard.tokens[:tokens]])
    return text_of(structure, np.concatenate(continues))


@pytest.mark.slow
def test_real_text_is_as_published(shared: Path, tmp_path: Path) -> None:
    text = real_text(shared, tmp_path)
    for words in (False, True):
        case = Case(lambda: text, 128, passes=24, words=words)
        expected = measure(theirs(text, case), text, case)
        assert not any(expected[1].values())
        assert (
            verdict(measure(ours(tmp_path / f"words {words}", text, case), text, case), expected)
            == {}
        )
