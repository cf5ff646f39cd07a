"""Suites that read a --source: the same words are masked, and compared, for every vocabulary."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
import math
import re
import tracemalloc
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax import cli, suites
from bert_jax.config import knobs
from bert_jax.data import tokenizer as tokenizers
from bert_jax.data.vocabulary import train_vocabulary
from bert_jax.errors import ConfigError, DataError
from bert_jax.evaluation.inference import silent
from bert_jax.evaluation.metrics import EXAMPLES
from bert_jax.interop import runs
from bert_jax.objectives import network
from bert_jax.suites import hidden, passages
from bert_jax.suites.cross_rate import METRICS, RATES
from bert_jax.suites.token_scores import CausalScorer
from tests import reactions, texts, toy
from tests.suites.asking import ask

pytestmark = pytest.mark.usefixtures("one_device")

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LONGEST = 96
WORDS = 12  # of a passage


def vocabularies() -> dict[str, list[str]]:
    """Every word of the texts as one piece; and only letters."""
    phrases = [*texts.SUBJECTS, *texts.VERBS, *texts.PLACES]
    words = sorted({word for phrase in phrases for word in phrase.split()})
    letters = sorted(set("".join(words)))
    return {
        "whole": [*words, "."],
        "letters": [*letters, *(f"##{letter}" for letter in letters), "."],
    }


def model(folder: Path, pieces: list[str], **changes: object) -> runs.TrainedModel:
    """A model of random weights in a vocabulary, as somebody else's."""
    folder.mkdir()
    file = folder / "vocab.txt"
    file.write_text("".join(f"{piece}\n" for piece in [*SPECIALS, *pieces]))
    tokenizer = tokenizers.load(file)
    shape = {"model__init_stddev": 0.3, "model__layers": 1, "model__max_positions": LONGEST}
    config = toy.config(**(shape | {"sequence_length": LONGEST} | changes))
    params = toy.init(config, vocab=tokenizer.size)
    return runs.TrainedModel(folder, config, tokenizer, file, params, 0, {"foreign": folder.name})


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, runs.TrainedModel]:
    folder = tmp_path_factory.mktemp("models")
    return {name: model(folder / name, pieces) for name, pieces in vocabularies().items()}


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> str:
    """A few documents of a few sentences."""
    return f"files:{texts.write(tmp_path_factory.mktemp('source'), documents=3)}"


@pytest.fixture
def cheap(monkeypatch) -> None:
    """Each token costs a nat and is guessed first, whatever the model: nothing is compiled."""

    def predict(run, rows, *_):
        for number, row in enumerate(rows):
            ones = np.ones(int(row.hidden.sum()))
            yield number, ones, ones > 0

    monkeypatch.setattr(hidden, "score_hidden", predict)


# --- passages and masks ---------------------------------------------------------------------------


def read(run: runs.TrainedModel, source: object, **options: int) -> list[passages.Passage]:
    (asked,) = suites.build(["cross_rate"], source=str(source), **options)
    return [one.passage for one in passages.load(run, asked)]


def test_passages_are_whole_sentences_of_one_document(models, tmp_path, capsys):
    one, two, long = "The cat sees. It hears a dog.", "A bird.", " ".join("abcdefghij")
    odd = f"It is {'x' * 101} here."
    (tmp_path / "a.txt").write_text(f"{one}\n{two} {odd}\n\n \n{long}\n")
    found = read(models["letters"], tmp_path / "a.txt", words=7)
    assert [(one.text, one.document) for one in found] == [
        ("The cat sees. It hears a dog.", 0),
        ("A bird.", 0),
        ("a b c d e f g", 1),
        ("h i j", 1),
    ]
    assert found[0].lengths.tolist() == [3, 3, 5, 2, 5, 1, 4]
    assert "1 sentences with a word of more than 100 characters" in capsys.readouterr().err
    rows = [f"{one}\n{two} {odd}", f"\n{long}"]
    (tmp_path / "b.jsonl").write_text("".join(json.dumps({"text": row}) + "\n" for row in rows))
    assert read(models["whole"], f"files:{tmp_path / 'b.jsonl'}", words=7) == found
    both = read(models["whole"], tmp_path, words=7)
    assert [passage.document for passage in both] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert read(models["whole"], tmp_path, words=7, limit=3) == both[:3]


def plain_order(text: str, count: int) -> list[int]:
    """The order in which words are masked, computed with Python's integers."""
    golden, word = 0x9E3779B97F4A7C15, 2**64

    def mixed(state: int) -> int:
        state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % word
        state = (state ^ (state >> 27)) * 0x94D049BB133111EB % word
        return state ^ (state >> 31)

    digest = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")
    key = 0
    for part in (knobs.Eval().seed, 0x574F5244, digest):
        key = mixed((mixed(((key + golden) % word) ^ part) + golden) % word)
    scores = [mixed((key + golden * number) % word) for number in range(1, count + 1)]
    return sorted(range(count), key=scores.__getitem__)


def test_passage_masks_follow_from_seed_text_and_word():
    text = "my old friend remembers the quiet river near the sea. Every child likes that."
    passage = passages.Passage(text, 3)
    expected = plain_order(text, 14)
    assert sorted(expected) == list(range(14))
    before: set[int] = set()
    for rate in RATES:
        chosen = set(np.flatnonzero(passage.masked(rate)).tolist())
        assert chosen == set(expected[: max(1, round(14 * rate))])
        assert before <= chosen
        before = chosen
    assert expected != plain_order(f"{text} ", 14)
    assert passages.Passage(text, 9).masked(0.4).tolist() == passage.masked(0.4).tolist()


@pytest.mark.parametrize(
    ("offsets", "words"),
    [
        ([(0, 1), (1, 2), (3, 6), (6, 7), (8, 9)], [0, 0, 1, 1, 2]),  # as WordPiece
        ([(0, 2), (2, 6), (6, 7), (7, 9)], [0, 1, 1, 2]),  # with the blank before a word
        ([(0, 2), (3, 3), (3, 7), (7, 8), (8, 9)], [0, 1, 1, 2, 2]),  # and blanks by themselves
        ([], []),
    ],
)
def test_words_of_finds_the_word_of_each_token(offsets, words):
    assert passages.words_of("ab cat. é", offsets).tolist() == words


def test_tokens_of_several_words_are_refused():
    with pytest.raises(ConfigError, match="token of several words, 'ab cat'"):
        passages.words_of("ab cat. é", [(0, 6), (6, 7), (7, 9)])


CHINESE = "我们的猫看见了那只狗。它跑了、" * 9
BLANKS = re.sub("([一-龥])", r" \1 ", CHINESE).split()  # the words of BERT's tokenizer, plainly


def test_each_chinese_character_is_a_word(tmp_path):
    """Sentences have no blank between them in the text, nor in its passages."""
    pieces = sorted({*CHINESE, "cat"})
    run = model(tmp_path / "chinese", pieces)
    (tmp_path / "a.txt").write_text(f"{CHINESE}\n\ncat 3猫\n")
    found = passages.load(run, *suites.build(["nelbo"], source=str(tmp_path / "a.txt"), words=50))
    assert "".join(one.passage.text for one in found) == f"{CHINESE}cat 3猫"
    assert found[-1].passage.lengths.tolist() == [3, 1, 1]
    of_text = found[:-1]
    assert [n for one in of_text for n in one.passage.lengths] == list(map(len, BLANKS))
    for one in of_text:  # a token is a word of its own
        assert one.words.tolist() == list(range(len(one.passage.lengths)))
        assert len(one.ids) == len(one.passage.lengths) <= 50
    scored = ask(run, "cross_rate", source=str(tmp_path / "a.txt"))["0.4"]
    assert scored["words"] == sum(one.masked(0.4).sum() for one in read(run, tmp_path))
    likely = ask(run, "pll", source=str(tmp_path / "a.txt"))
    assert likely["words"] == len(BLANKS) + 3


def test_tokens_of_two_chinese_words_are_bounded(models, tmp_path):
    """Bytes may be merged over words: nelbo masks tokens, and cross_rate words."""
    settings = knobs.Tokenizer(kind="bpe", vocab_size=290)
    run = model(tmp_path / "m", sorted({*CHINESE}))
    run = dataclasses.replace(run, tokenizer=train_vocabulary([CHINESE] * 9, settings))
    run = dataclasses.replace(run, params=toy.init(run.config, vocab=run.tokenizer.size))
    (tmp_path / "a.txt").write_text(CHINESE)
    found = ask(run, "nelbo", source=str(tmp_path / "a.txt"))
    assert found["words"] == len(BLANKS)
    with pytest.raises(ConfigError, match="token of several words"):
        ask(run, "cross_rate", source=str(tmp_path / "a.txt"))


# --- cross_rate -----------------------------------------------------------------------------------


class Enough(Exception):
    """Ends a suite before it computes."""


def recorded(run, source, monkeypatch) -> list[hidden.Row]:
    """The rows that a model would read: all passages at the first rate, then at the next one."""
    rows: list[hidden.Row] = []

    def record(run, given, *_):
        rows.extend(given)
        raise Enough

    with monkeypatch.context() as patch:
        patch.setattr(hidden, "score_hidden", record)
        with pytest.raises(Enough):
            suites.evaluate(run, "cross_rate", source=source, words=WORDS)
    return rows


def test_cross_rate_masks_the_same_words_in_any_model(models, source, monkeypatch):
    seen = {}
    written = Path(source.partition(":")[2], "text.txt").read_text().split("\n")
    of_bytes = train_vocabulary(written, knobs.Tokenizer(kind="bpe", vocab_size=290))
    some = models | {"bytes": dataclasses.replace(models["whole"], tokenizer=of_bytes)}
    for name, run in some.items():
        found = passages.load(run, *suites.build(["cross_rate"], source=source, words=WORDS))
        rows = recorded(run, source, monkeypatch)
        assert len(rows) == len(RATES) * len(found)
        seen[name] = []
        for number, row in enumerate(rows):
            passage, words = found[number % len(found)].passage, found[number % len(found)].words
            masked = sorted(set(words[row.hidden].tolist()))
            assert row.hidden.tolist() == np.isin(words, masked).tolist()  # all of its tokens
            shown = run.tokenizer.decode(row.ids[~row.hidden].tolist())
            shown = " ".join(shown.replace(" .", ".").split())
            seen[name].append((passage, masked, shown))
            text = " ".join(w for n, w in enumerate(passage.text.split()) if n not in masked)
            assert seen[name][-1][2] == text
    assert seen["whole"] == seen["letters"] == seen["bytes"]
    count = len(found)
    for below, above in itertools.pairwise(range(len(RATES))):
        for at in range(count):
            few, more = (set(seen["whole"][rate * count + at][1]) for rate in (below, above))
            assert few <= more


@functools.partial(jax.jit, static_argnums=0)
def _logits(net: network.Network, params: dict, batch: dict) -> jax.Array:
    return network.outputs(net, params, batch)["mlm"]


def plainly(run: runs.TrainedModel, rows: list[hidden.Row]) -> list[tuple[list[float], list[bool]]]:
    """Nats of each hidden token, and whether it is the first guess: of rows of one length."""
    special, shape = run.tokenizer.special, (len(rows), LONGEST)
    batch = {
        name: np.zeros(shape, np.int32)
        for name in ("tokens", "type_ids", "positions", "segment_ids", "predict_positions")
    }
    batch["cls_positions"] = np.zeros((len(rows), 1), np.int32)
    for number, (ids, out) in enumerate(rows):
        tokens = [special.cls, *np.where(out, special.mask, ids).tolist(), special.sep]
        batch["tokens"][number, : len(tokens)] = tokens
        batch["positions"][number, : len(tokens)] = range(len(tokens))
        batch["segment_ids"][number, : len(tokens)] = 1
        batch["predict_positions"][number] = range(LONGEST)
    net = network.build(run.config, run.tokenizer.size, only="mlm")
    params = {name: run.params[name] for name in ("encoder", "mlm")}
    logits = np.array(_logits(net, params, batch), np.float64)
    logits[..., special.mask] = -np.inf
    found = []
    for row, (ids, out) in zip(logits, rows, strict=True):
        mine, truth = row[1 + np.flatnonzero(out)], ids[out]
        nats = np.log(np.exp(mine).sum(-1)) - mine[np.arange(len(truth)), truth]
        found.append((nats.tolist(), (mine.argmax(-1) == truth).tolist()))
    return found


def test_cross_rate_of_a_source_equals_a_plain_loop(models, source, monkeypatch):
    run = models["letters"]
    rows = recorded(run, source, monkeypatch)
    (asked,) = suites.build(["cross_rate"], source=source, words=WORDS)
    found = passages.load(run, asked)
    result, arrays = suites.score(run, asked)
    assert list(result) == [f"{rate:g}" for rate in RATES]
    plain = plainly(run, rows)
    for at, rate in enumerate(result):
        sums = np.zeros((len(found), 5))
        for number, one in enumerate(found):
            nats, right = plain[at * len(found) + number]
            row = rows[at * len(found) + number]
            masked = sorted(set(one.words[row.hidden].tolist()))
            hits = dict.fromkeys(masked, True)
            for word, hit in zip(one.words[row.hidden].tolist(), right, strict=True):
                hits[word] = hits[word] and hit
            letters = sum(len(one.passage.text.split()[word]) for word in masked)
            sums[number] = sum(nats), len(nats), len(masked), letters, sum(hits.values())
        total = dict(zip(("nats", "tokens", "words", "letters", "hits"), sums.sum(0), strict=True))
        expected = {
            "mlm_loss": total["nats"] / total["tokens"],
            "nats_per_word": total["nats"] / total["words"],
            "nats_per_character": total["nats"] / total["letters"],
            "word_accuracy": total["hits"] / total["words"],
            "mlm_predictions": total["tokens"],
            "words": total["words"],
            "characters": total["letters"],
            "unknown_words": 0,
        }
        assert {key: result[rate][key] for key in expected} == pytest.approx(expected, rel=1e-5)
        np.testing.assert_allclose(arrays[f"{rate}/nats_per_word.sum"], sums[:, 0], rtol=1e-5)
        np.testing.assert_array_equal(arrays[f"{rate}/nats_per_word.count"], sums[:, 2])
        np.testing.assert_array_equal(arrays[f"{rate}/nats_per_character.count"], sums[:, 3])
    few = suites.score(run, dataclasses.replace(asked, limit=2, batch_size=7))[1]
    for name, values in few.items():
        if name != EXAMPLES:
            np.testing.assert_allclose(values, arrays[name][:2], rtol=1e-5, err_msg=name)
    names = {f"{rate:g}/{metric}.{part}" for rate in RATES for metric in METRICS for part in PARTS}
    assert arrays.keys() == {*names, EXAMPLES}


PARTS = ("sum", "count")


def test_examples_of_two_vocabularies_are_paired(models, source, cheap):
    """A study pairs examples whose digest and counts are equal."""

    def arrays(name: str, suite: str, **asked: int) -> dict[str, np.ndarray]:
        settings = {"words": WORDS, "limit": 4} | asked
        (options,) = suites.build([suite], source=source, **settings)
        return suites.score(models[name], options)[1]

    for suite, prefix in (("cross_rate", "0.4/"), ("nelbo", "")):
        whole, letters = (arrays(name, suite) for name in models)
        assert whole[EXAMPLES].tobytes() == letters[EXAMPLES].tobytes()
        for unit in ("word", "character"):
            key = f"{prefix}nats_per_{unit}"
            assert whole[f"{key}.count"].tolist() == letters[f"{key}.count"].tolist()
            assert whole[f"{key}.sum"].tolist() != letters[f"{key}.sum"].tolist()
        other = arrays("whole", suite, limit=3)
        assert other[EXAMPLES].tobytes() != whole[EXAMPLES].tobytes()


def test_cross_rate_counts_unknown_words(models, tmp_path, cheap):
    (tmp_path / "a.txt").write_text("the zebra sees the zebra in the garden\n")
    found = ask(models["whole"], "cross_rate", source=str(tmp_path))["0.8"]
    passage = read(models["whole"], tmp_path)[0]
    words = [passage.text.split()[at] for at in np.flatnonzero(passage.masked(0.8))]
    assert (found["words"], found["unknown_words"]) == (6, words.count("zebra"))
    assert words.count("zebra") > 0
    assert math.isnan(found["nats_per_character_error"])  # of one document


def test_windows_predict_each_word_where_most_is_seen(models):
    """A text of 40 letters in a model that reads 14, against windows that are tried one by one."""
    wide = models["letters"]
    run = dataclasses.replace(wide, config=dataclasses.replace(wide.config, sequence_length=16))
    ids = np.array(run.tokenizer.encode_batch(["theoldfriendremembers" * 2])[0][:40], np.int32)
    is_hidden = np.random.default_rng(0).random(40) < 0.5
    rows = [hidden.Row(ids, is_hidden), hidden.Row(ids[:14], is_hidden[:14])]
    spans = [(start, min(start + 14, 40)) for start in range(0, 33, 7)]
    assert spans[-1] == (28, 40)
    of_window = [
        dict(
            zip(start + np.flatnonzero(is_hidden[start:end]), zip(*found, strict=True), strict=True)
        )
        for (start, end), found in zip(
            spans,
            plainly(wide, [hidden.Row(ids[a:b], is_hidden[a:b]) for a, b in spans]),
            strict=True,
        )
    ]
    expected = []
    for at in np.flatnonzero(is_hidden):
        seen = [min(at - a, b - 1 - at) + 0.01 * (b - a) if a <= at < b else -1 for a, b in spans]
        expected.append(of_window[int(np.argmax(seen))][at])
    found = {
        number: (nats, right) for number, nats, right in hidden.score_hidden(run, rows, 3, silent)
    }
    assert found.keys() == {0, 1}
    nats, right = zip(*expected, strict=True)
    np.testing.assert_allclose(found[0][0], nats, rtol=1e-4)
    assert found[0][1].tolist() == list(right)
    ((nats, right),) = plainly(wide, rows[1:])
    np.testing.assert_allclose(found[1][0], nats, rtol=1e-4)


def test_predict_holds_no_rows_that_are_not_begun(models):
    """Of long rows with a hidden token each, once the first is done."""
    rows = [hidden.Row(np.full(2000, 7, np.int32), np.arange(2000) == 9) for _ in range(200)]
    tracemalloc.start()
    try:
        stream = hidden.score_hidden(models["letters"], rows, 8, silent)
        next(stream)
        taken = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    held = taken.filter_traces([tracemalloc.Filter(True, hidden.__file__)]).statistics("filename")
    assert sum(one.size for one in held) < 200 * 2000


def test_long_passages_have_the_same_words(models, tmp_path, capsys):
    """One of 32 positions reads what a larger one reads, and a word of 60 letters too."""
    word, narrow = "remembers" * 7, models["letters"]
    (tmp_path / "a.txt").write_text(f"the {word} sees the cat.\n\n{'the old friend ' * 9}\n")
    config = dataclasses.replace(narrow.config, sequence_length=32)
    narrow = dataclasses.replace(narrow, config=config)
    for suite in ("cross_rate", "nelbo"):
        wide = suites.score(models["whole"], *suites.build([suite], source=str(tmp_path)))[1]
        few = suites.score(narrow, *suites.build([suite], source=str(tmp_path)))[1]
        assert few[EXAMPLES].tobytes() == wide[EXAMPLES].tobytes()
        for name in (name for name in wide if name.endswith("nats_per_character.count")):
            assert few[name].tolist() == wide[name].tolist()
    assert "2 of them have more than 30 tokens: read in windows" in capsys.readouterr().err


# --- nelbo and pll --------------------------------------------------------------------------------


def test_nelbo_of_a_blank_model_is_exact(models, source):
    run = models["whole"]
    blank = dataclasses.replace(run, params=jax.tree.map(np.zeros_like, run.params))
    found = ask(blank, "nelbo", source=source, words=WORDS, draws=3)
    assert found["nats_per_token"] == pytest.approx(math.log(run.tokenizer.size - 1), rel=1e-6)
    texts_read = read(run, source, words=WORDS)
    words = [len(passage.text.split()) for passage in texts_read]
    letters = sum(len(passage.text.replace(" ", "")) for passage in texts_read)
    nats = found["nats_per_token"] * found["tokens"]
    assert found["nats_per_word"] == pytest.approx(nats / sum(words), rel=1e-6)
    assert found["nats_per_character"] == pytest.approx(nats / letters, rel=1e-6)
    assert (found["words"], found["characters"]) == (sum(words), letters)
    assert (found["examples"], found["draws"]) == (len(words), 3)


def test_the_bound_is_the_mean_over_all_masks(models, tmp_path):
    run = models["whole"]
    (tmp_path / "a.txt").write_text("the cat sees that\n")
    ids = np.array(run.tokenizer.encode_batch(["the cat sees that"])[0], np.int32)
    masks = [np.array(mask, bool) for mask in itertools.product((0, 1), repeat=4) if any(mask)]
    exact = 0.0
    for mask, (nats, _) in zip(
        masks, plainly(run, [hidden.Row(ids, m) for m in masks]), strict=True
    ):
        exact += sum(nats) / mask.sum() / math.comb(4, mask.sum())
    few = ask(run, "nelbo", source=str(tmp_path), draws=400)
    assert few["nats_per_token"] == pytest.approx(exact / 4, rel=0.02)


@pytest.mark.parametrize("draws", [1, 3])
def test_the_bound_of_a_passage_is_unbiased(models, tmp_path, monkeypatch, draws):
    """Over seeds for one passage, and over passages, each in a source of its own, for one seed.

    A masked token costs k * k nats where k are masked, so that the bound is the sum over k.
    """

    def predict(run, rows, *_):
        for number, row in enumerate(rows):
            nats = np.full(int(row.hidden.sum()), float(row.hidden.sum()) ** 2)
            yield number, nats, nats > 0

    def bound(seed: int, last: str) -> float:
        monkeypatch.setattr(passages, "SEED", seed)
        (tmp_path / "a.txt").write_text(f"the cat sees the bird in that {last}\n")
        found = suites.evaluate(models["whole"], "nelbo", source=str(tmp_path), draws=draws)
        return found["nats_per_token"] * found["tokens"]

    monkeypatch.setattr(hidden, "score_hidden", predict)
    exact = sum(k * k for k in range(1, 9))
    for found in (
        [bound(seed, "garden") for seed in range(200)],
        [bound(0, f"garden{number}") for number in range(200)],
    ):
        assert abs(np.mean(found) - exact) < 3 * np.std(found, ddof=1) / len(found) ** 0.5


def test_nelbo_of_a_causal_model_is_its_likelihood(source, tmp_path):
    causal = {"objectives__causal_lm__weight": 1.0, "objectives__mlm__weight": None}
    causal |= {"objectives__nsp__weight": None, "pairs": "none", "model__causal": True}
    run = model(tmp_path / "causal", vocabularies()["whole"], checkpoints__best="", **causal)
    found = ask(run, "nelbo", source=source, words=WORDS, limit=5)
    written = [passage.text for passage in read(run, source, words=WORDS, limit=5)]
    scores = CausalScorer(run, suites.Options("pll"))(run.tokenizer.encode_batch(written))
    nats = -sum(tokens.sum() for tokens in scores)
    assert found["draws"] == 1
    assert found["nats_per_token"] == pytest.approx(nats / sum(map(len, scores)), rel=1e-5)
    letters = sum(len(text.replace(" ", "")) for text in written)
    assert found["nats_per_character"] == pytest.approx(nats / letters, rel=1e-5)


@pytest.mark.parametrize("within_word", [False, True])
def test_pll_of_a_source_has_nats_per_word(models, tmp_path, within_word):
    lines = ["the cat sees that garden.", "my  old friend"]
    (tmp_path / "a.txt").write_text("\n\n".join(lines))
    suffix = "_word_l2r" * within_word
    found = ask(models["whole"], "pll", source=str(tmp_path), within_word=within_word)
    nats = -found[f"pll{suffix}"] * 2
    assert (found["words"], found["characters"]) == (8, 21 + 11)
    assert found[f"nats_per_word{suffix}"] == pytest.approx(nats / 8)
    assert found[f"nats_per_character{suffix}"] == pytest.approx(nats / 32)


# --- what is refused ------------------------------------------------------------------------------


def test_build_refuses_options_of_the_other_text(models, source):
    run, files = models["whole"], f"--source={source}"
    for asked, problem in (
        ({"limit": 3}, "--limit means nothing to cross_rate without a --source"),
        ({"words": 3}, "--words means nothing to cross_rate without a --source"),
        (
            {"source": files, "changes": (("corpus.path", "x"),)},
            "--config.KNOB means nothing to cross_rate beside a --source",
        ),
        ({"source": source, "draws": 3}, r"--draws means nothing to cross_rate\n"),
        ({"source": "tfds:x"}, "suite cross_rate cannot read --source='tfds:x'"),
    ):
        with pytest.raises(ConfigError, match=problem):
            ask(run, "cross_rate", **asked)


def test_sources_without_words_are_refused(models, tmp_path):
    (tmp_path / "blank.txt").write_text(" \n\n")
    with pytest.raises(DataError, match="holds no text"):
        ask(models["whole"], "cross_rate", source=f"files:{tmp_path}")
    with pytest.raises(DataError, match="no files at"):
        ask(models["whole"], "nelbo", source=f"files:{tmp_path}/none")
    molecules = reactions.build_tokenizer([*SPECIALS, "C", "O"])
    run = dataclasses.replace(models["whole"], tokenizer=molecules)
    with pytest.raises(ConfigError, match=r"the vocabulary of .*whole has none"):
        ask(run, "cross_rate", source=f"files:{tmp_path}")


# --- commands -------------------------------------------------------------------------------------


def test_models_of_two_vocabularies_end_on_one_page(models, source, tmp_path, monkeypatch, cheap):
    """By the commands, on what they write."""
    monkeypatch.setattr(runs, "open_run", lambda name, **_: models[name])
    files = [str(tmp_path / f"{name}.json") for name in models]
    asked = ["--suite=cross_rate,nelbo", f"--source={source}", f"--words={WORDS}", "--draws=2"]
    for name, file in zip(models, files, strict=True):
        assert cli.execute(["evaluate", f"--model={name}", *asked, f"--output={file}"]) == 0
    assert cli.execute(["report", *files, f"--output={tmp_path / 'both.html'}"]) == 0
    page = (tmp_path / "both.html").read_text()
    assert "Nats per character by masking rate" in page
    assert "nelbo: Nats per character" in page
    assert "not scored on the same text" not in page
