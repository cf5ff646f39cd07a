"""The walk of experiments/tour: every program runs, its page quotes what it prints, and what the
page claims is so.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax.masking import draws
from tests import texts

TOUR = Path(__file__).resolve().parents[1] / "experiments" / "tour"
PAGE = (TOUR / "README.md").read_text()
STOPS = sorted(path.stem for path in TOUR.glob("[0-9][0-9]_*.py"))
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
TRAINED = (
    "01_language_models",
    "10_classification",
    "11_question_answering",
)  # what the walk promises to train

LONGER = (  # than a few seconds
    "01_language_models",
    "02_embeddings",
    "03_positions",
    "04_attention",
    "05_masks",
    "08_next_sentence",
    "09_cls",
    "10_classification",
    "11_question_answering",
    "12_names",
    "13_features",
    "14_bert_and_gpt",
    "16_diffusion",
)


class Walk:
    """Runs each stop once; those that read the same model share it."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.results: dict[str, tuple[Any, str]] = {}
        self.seconds: dict[str, float] = {}

    def __call__(self, name: str) -> tuple[Any, str]:
        import walk  # from the tour's folder, as its programs do

        if name not in self.results:
            began = time.process_time()  # of this process: the machine may have other work
            self.results[name] = walk.run_stop(TOUR / f"{name}.py", self.folder)
            self.seconds[name] = time.process_time() - began
        return self.results[name]


@pytest.fixture(scope="module")
def stop(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch, texts.one_device():
        patch.syspath_prepend(str(TOUR))
        yield Walk(tmp_path_factory.mktemp("tour"))


def quoted(name: str) -> str:
    found = re.findall(rf"(?s)```\n\$ python experiments/tour/{name}\.py\n(.*?)```\n", PAGE)
    assert len(found) == 1, f"the page quotes {name} {len(found)} times"
    return found[0]


# --- the three that are promised, first: others share their models --------------------------------


@pytest.mark.slow
def test_the_poem_is_recited_exactly(stop):
    found, printed = stop("01_language_models")
    assert found["told"].split() == found["poem"].split()
    assert found["stopped"] == "end"  # by itself
    assert len(found["poem"].splitlines()) == 4
    assert all(f"  {line}\n" in printed for line in found["poem"].splitlines())
    np.testing.assert_array_equal(found["mask"], np.tri(7, dtype=bool))


@pytest.mark.slow
def test_the_three_complaints_are_classified(stop):
    found, _ = stop("10_classification")
    assert found["labels"] == found["expected"] == ["hardware", "software", "billing"]


@pytest.mark.slow
def test_the_answer_is_shanghai(stop):
    found, printed = stop("11_question_answering")
    answer = found["answer"]
    assert answer["answer"] == found["context"][answer["start"] : answer["end"]] == "Shanghai"
    assert ">>Shanghai<<" in printed
    assert found["right"] == found["questions"]


@pytest.mark.slow
def test_these_take_less_than_a_minute_together(stop):
    for name in TRAINED:
        stop(name)
    assert sum(stop.seconds[name] for name in TRAINED) < 60


# --- the others -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_words_that_stand_alike_have_vectors_alike(stop):
    found, _ = stop("02_embeddings")
    assert found["words"] == ["cherry", "tomato", "digital", "information"]
    for cosines in (found["counted"], found["learnt"]):
        assert min(cosines[0, 1], cosines[2, 3]) > cosines[:2, 2:].max()


@pytest.mark.slow
def test_without_positions_order_does_not_matter(stop):
    found, _ = stop("03_positions")
    assert (
        found["changes"]["none"]
        < 1e-4
        < 0.1
        < min(found["changes"]["sinusoidal"], found["changes"]["learned"])
    )
    for apart in (1, 4, 16):  # the same, wherever one begins
        np.testing.assert_allclose(
            np.diag(found["alike"], apart), found["alike"][0, apart], atol=1e-5
        )
    assert found["moved"][:10].min() > 5 * found["moved"][found["used"] :].max()


@pytest.mark.slow
def test_attention_by_hand_is_that_of_the_model(stop):
    found, _ = stop("04_attention")
    assert found["weights"].shape == (2, 10, 10)
    np.testing.assert_allclose(found["weights"].sum(-1), 1, atol=1e-12)
    np.testing.assert_allclose(found["model"].sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(found["weights"], found["model"], atol=1e-5)
    assert max(found["gaps"].values()) < 1e-5


@pytest.mark.slow
def test_gradients_are_zero_where_masked_and_nowhere_else(stop):
    found, _ = stop("05_masks")
    size = len(found["none"])
    real = np.arange(size) < size - 3
    sees = {
        "none": np.ones((size, size), bool),
        "causal": np.tri(size, dtype=bool),
        "padding": np.eye(size, dtype=bool)
        | real[None],  # padding sees what is real, and is seen by none
    }
    for name, expected in sees.items():
        np.testing.assert_array_equal(found[name] > 0, expected, err_msg=name)


def test_pieces_grow_with_the_vocabulary(stop):
    found, _ = stop("06_wordpiece")
    counts = [sum(map(len, pieces)) for pieces in found["pieces"].values()]
    assert counts == sorted(counts, reverse=True)
    first, second = list(found["pieces"].values())[-1]
    assert second == ["he", "likes", "play", "##ing", "."]
    assert found["by_hand"] == ["play", "##ing"]
    for pieces in found["pieces"].values():  # nothing is lost
        assert "".join(pieces[0]).replace("##", "") == "mydogfidoiscute."
    assert found["lines"]["tokens"].count("[SEP]") == 2
    assert first[0] == "my"


def test_the_ledger_of_the_masks(stop):
    found, _ = stop("07_masking")
    totals = found["totals"]
    assert len(found["tokens"]) == 16
    assert totals["eligible"] == 16 * 5_000
    assert totals["masked"] == totals["quota"] == 2 * 5_000
    assert totals["mask_token"] + totals["random"] + totals["kept"] == totals["masked"]
    for name, share in (("mask_token", 0.8), ("random", 0.1), ("kept", 0.1)):
        assert abs(totals[name] / totals["masked"] - share) < 0.02
    assert found["nested"]


def test_masking_by_hand_is_that_of_a_run(stop):
    """With the random numbers of the run, all copies of the sentence are the same."""
    import walk

    found, _ = stop("07_masking")
    batch, tokens, vocabulary = found["batch"], found["tokens"], found["vocabulary"]
    words = jax.device_get(jax.jit(draws.draw_words)(batch, np.uint32(0)))
    scores, _, coins, others = (draw[:, 1 : len(tokens) + 1] for draw in words)  # uint32 [B, L]
    size = len(vocabulary)
    numbers = np.stack([scores / 2**32, (coins >> 8) / 2**24, (others % size + 0.5) / size], 1)
    by_hand = walk.load(TOUR / "07_masking.py").mask_by_hand
    for row, three in zip(batch["inputs"], numbers, strict=True):
        inputs = [vocabulary[i] for i in row[1 : len(tokens) + 1]]
        assert by_hand(tokens, vocabulary, three) == inputs
    assert len(np.unique(batch["inputs"], axis=0)) > 1000


@pytest.mark.slow
def test_next_lines_are_told_from_those_of_other_poems(stop):
    found, _ = stop("08_next_sentence")
    assert found["shares"]["the next line of the poem"] > 0.8
    assert found["shares"]["a line of another poem"] < 0.1
    assert all(found["chance"][line, line + 1] > 0.5 for line in range(3))  # of Li Bai's


@pytest.mark.slow
def test_cls_gathers_what_the_head_reads(stop):
    (same, other), (apart_same, apart_other) = (
        stop("09_cls")[0]["cosines"][when] for when in ("before", "after")
    )
    assert same - other < 0.1 < 0.5 < apart_same - apart_other


@pytest.mark.slow
def test_names_in_new_sentences(stop):
    found, _ = stop("12_names")
    assert found["entities"] == [
        [("Maria", "PER"), ("Airbus", "ORG"), ("Berlin", "LOC")],
        [("Omar Baker", "PER"), ("New York", "LOC"), ("Munich", "LOC")],
        [("Lena", "PER"), ("Deutsche Bank", "ORG")],
    ]


@pytest.mark.slow
def test_what_was_pre_trained_is_worth_something_either_way(stop):
    found, _ = stop("13_features")
    head, whole = (found[name][0] for name in ("feature-based", "fine-tuned"))
    assert head < 0.01 * whole
    assert (
        found["from nothing"][1]
        < 0.6
        < 0.8
        < min(found[name][1] for name in ("feature-based", "fine-tuned"))
    )


@pytest.mark.slow
def test_one_sees_both_sides_and_the_other_goes_on(stop):
    found, _ = stop("14_bert_and_gpt")
    animal = 1
    # BERT's was 0.93 on one processor and 0.61 on another, GPT's 0.06 on both.
    assert found["chances"]["BERT"][animal] > 0.5 > 0.2 > found["chances"]["GPT"][animal]
    fills = list(found["fills"].values())
    assert fills[0] == "the cat purrs at night"
    assert fills[1] in ("the cat purrs at night", "the cat purrs at noon")
    assert fills[2].startswith("the cat purrs in ")
    assert found["told"][0] in {f"the cat purrs {time}" for time in found["times"]}


def test_sizes_are_those_of_the_published_models(stop):
    found, _ = stop("15_sizes")
    without = {
        size: found["totals"][size] - parts["heads"] for size, parts in found["parts"].items()
    }
    assert without == {
        "base": 109_482_240,
        "large": 335_141_888,
    }  # as transformers counts its BertModel
    assert found["totals"] == {
        "base": 110_106_428,
        "large": 336_226_108,
    }  # and its BertForPreTraining


@pytest.mark.slow
def test_a_text_is_written_out_of_nothing_but_masks(stop):
    found, printed = stop("16_diffusion")
    for few, every in found["right"].values():
        assert few > 0.95 > every
    assert found["right"]["any share"][1] > found["right"]["15 %"][1]
    assert found["told"] == " ".join((TOUR / "data" / "poem.txt").read_text().split())
    assert found["poems"][1] == found["other"] == 0
    assert found["poems"][34] >= 8
    assert "after 37 rounds  Before my bed lies a pool of moon bright" in printed


# --- the page -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [pytest.param(s, marks=pytest.mark.slow) if s in LONGER else s for s in STOPS]
)
def test_the_page_quotes_what_a_program_prints_and_shows_its_figure(stop, name):
    import walk

    _, printed = stop(name)
    shown = walk.cut(printed, quoted(name))
    there, here = (NUMBER.sub("#", text).split() for text in (quoted(name), shown))
    # Numbers differ from one machine to another, and what is likeliest of a model may where two are
    # all but alike.
    assert difflib.SequenceMatcher(None, there, here, autojunk=False).ratio() > 0.9
    for written in (stop.folder, TOUR):
        assert (written / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert re.search(
        rf"!\[.{{20,}}]\({name}\.png\)", PAGE
    )  # with words for those who cannot see it


def test_nothing_is_missing_and_nothing_left_over():
    assert [name[:2] for name in STOPS] == [f"{number:02}" for number in range(1, 17)]
    assert re.findall(r"^## (\d+)\.", PAGE, re.M) == [str(number) for number in range(1, 17)]
    assert sorted(path.stem for path in TOUR.glob("*.png")) == STOPS
    for link in re.findall(r"]\(([^)#]+)\)", PAGE):
        assert (TOUR / link).exists(), link
    for name in STOPS:
        assert len((TOUR / f"{name}.py").read_text().splitlines()) <= 115, name


def test_the_grammar_makes_the_files_beside_it(stop):
    import walk

    made = walk.load(TOUR / "data" / "make.py")
    data = TOUR / "data"
    assert (data / "sentences.txt").read_text() == "\n\n".join(made.sentences()) + "\n"
    assert (data / "vocab.txt").read_text().splitlines() == made.vocabulary()
    assert (data / "known.conll").read_text() == "\n".join(made.kinds(known=True))
    assert (data / "unseen.conll").read_text() == "\n".join(made.kinds(known=False))


def test_a_quotation_is_whole_or_ends_with_a_mark(stop):
    import walk

    assert walk.cut("a\nb\nc\n", "x\n") == walk.cut("a\nb\nc\n", "") == "a\nb\nc\n"
    assert walk.cut("a\nb\nc\n", "x\ny\n…\n") == "a\nb\n…\n"


def test_a_stop_is_a_program(tmp_path, stop):
    import walk

    copy = shutil.copytree(TOUR, tmp_path / "tour", ignore=shutil.ignore_patterns("runs", "*.png"))
    command = [sys.executable, str(copy / "06_wordpiece.py")]
    variables = {**os.environ, "PYTHONPATH": str(texts.ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=variables)
    assert walk.cut(done.stdout, quoted("06_wordpiece")) == quoted("06_wordpiece")
    figure = re.search(r"^figure: (.*)$", done.stderr, re.MULTILINE)
    assert figure is not None
    assert Path(figure[1]).resolve() == copy / "06_wordpiece.png"
    assert (copy / "06_wordpiece.png").exists()
