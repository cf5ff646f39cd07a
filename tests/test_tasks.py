"""The table of tasks: its names against those of TFDS, its knobs, and the published data of every
task that is here.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

from bert_jax.config import default, knobs, resolve, set_values
from bert_jax.config.knobs import LABELLED, METRICS, Task
from bert_jax.data.labelled import examples, rows
from bert_jax.data.tasks import TASKS, settings
from bert_jax.errors import ConfigError

GLUE = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "ax")


def silent(text: str) -> None:
    pass


def load(name: str, split: str, source: str, **task) -> list[examples.Example]:
    row = TASKS[name]
    return examples.load(
        Task(**{**row.task, "source": source, **task}), row.kind, row.labels, split, silent
    )


# --- the table ------------------------------------------------------------------------------------


def test_every_task_of_the_paper_is_a_row():
    assert set(GLUE) | {"squad", "squad2", "conll2003", "swag"} <= set(TASKS)
    scored = {name: (row.best, row.task["metrics"]) for name, row in TASKS.items() if name in GLUE}
    assert scored == {  # of gluebenchmark.com
        "cola": ("mcc", ("mcc", "accuracy")),
        "sst2": ("accuracy", ("accuracy",)),
        "mrpc": ("f1", ("f1", "accuracy")),
        "stsb": ("spearman", ("pearson", "spearman")),
        "qqp": ("f1", ("f1", "accuracy")),
        "mnli": ("accuracy", ("accuracy",)),
        "qnli": ("accuracy", ("accuracy",)),
        "rte": ("accuracy", ("accuracy",)),
        "wnli": ("accuracy", ("accuracy",)),
        "ax": ("", ("mcc", "accuracy")),
    }
    assert TASKS["mnli"].evals == (
        ("validation", "validation_matched"),
        ("mismatched", "validation_mismatched"),
    )


def test_the_server_takes_these_files():
    made = {name: row.submission for name, row in TASKS.items() if row.submission}
    names = {file for name in GLUE for file in made[name].files.values()}
    assert names == {
        *(
            "CoLA.tsv",
            "SST-2.tsv",
            "MRPC.tsv",
            "STS-B.tsv",
            "QQP.tsv",
            "MNLI-m.tsv",
            "MNLI-mm.tsv",
            "QNLI.tsv",
        ),
        *("RTE.tsv", "WNLI.tsv", "AX.tsv"),
    }
    assert {made[name].columns for name in GLUE} == {("index", "prediction")}
    assert set(made) == {*GLUE, "squad", "squad2"}


@pytest.mark.parametrize("name", [*TASKS, *LABELLED])
def test_settings_make_a_config(name):
    tree = default()
    tree.pairs, tree.init_from = "none", "a model"
    set_values(tree, settings(name))
    tree.task.source = tree.task.source or "files:here"
    if name == "choice":
        tree.task.options = ("a", "b")
    config = resolve(tree)
    row = TASKS.get(name)
    kind = row.kind if row else name
    assert list(config.objectives) == [kind]
    assert config.checkpoints.best in ("", *METRICS[kind])
    assert "validation" in config.evals
    if row:
        assert config.objectives[kind].labels == row.labels
        assert {n: e.split for n, e in config.evals.items()} == dict(row.evals)
        assert {f: getattr(config.task, f) for f in row.task} == row.task
        assert config.task.name == name
        assert set(dict(row.evals).values()) <= set(rows.SPLITS)
        assert set(config.task.metrics) <= set(METRICS[kind])


def test_recipes_are_of_the_paper():
    tree = default()
    set_values(tree, settings("squad2"))
    recipe = (
        tree.batch_size,
        tree.epochs,
        tree.optim.learning_rate,
        tree.sequence_length,
        tree.task.no_answer,
    )
    assert recipe == (48, 2.0, 5e-5, 384, True)
    assert settings("swag")["batch_size"] == 16
    for name, row in TASKS.items():
        if row.best:
            assert row.recipe["optim.learning_rate"] in (2e-5, 3e-5, 5e-5), name
            assert row.recipe["batch_size"] in (16, 32, 48), name
            assert 2 <= row.recipe["epochs"] <= 4, name


def test_a_task_that_is_none():
    with pytest.raises(ConfigError, match="no task 'sst3'") as caught:
        settings("sst3")
    assert "sst2" in caught.value.hint


def test_rows_name_fields_of_the_task():
    fields = {f.name for f in dataclasses.fields(knobs.Task)}
    assert {field for row in TASKS.values() for field in row.task} <= fields


# --- TensorFlow Datasets --------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")  # the library's own
@pytest.mark.parametrize("name", [name for name, row in TASKS.items() if row.source_tfds])
def test_columns_and_labels_are_those_of_tfds(name):
    from bert_jax.data.text import tfds_text

    row = TASKS[name]
    features = tfds_text.builder(row.source_tfds.removeprefix("tfds:"), "").info.features
    for knob in {"text", "text_pair", "label"} & row.task.keys():
        assert rows.pick(row.task[knob], features), knob
    if row.labels:
        assert features[rows.pick(row.task["label"], features)].names == list(row.labels)


@pytest.mark.filterwarnings("ignore")  # the library's own
@pytest.mark.parametrize("name", GLUE)
def test_glue_is_read_from_tfds_without_tensorflow(tmp_path, name):
    import tensorflow_datasets as tfds

    row = TASKS[name]
    with tfds.testing.mock_data(num_examples=40):
        (split, *_) = [split for _, split in row.evals]
        found = load(name, split, row.source_tfds, tfds_dir=str(tmp_path))
        source = tfds.data_source(
            row.source_tfds.removeprefix("tfds:"), split=split, data_dir=str(tmp_path)
        )
        for number, example in enumerate(found):
            raw = source[number]
            assert example.where == f"{row.source_tfds}/{split}, example {number}"
            assert example.id == str(raw["idx"])
            assert (
                example.text == raw[next(key for key in row.task["text"].split("|") if key in raw)]
            )
            assert (example.pair is None) == (name in ("cola", "sst2"))
            assert example.label == raw["label"]
    assert len(found) == 40
    assert "tensorflow" not in sys.modules


@pytest.mark.filterwarnings("ignore")  # the library's own
def test_a_dataset_of_ones_own_is_read_by_its_names(tmp_path):
    import tensorflow_datasets as tfds

    class LocalTags(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            tags = tfds.features.Sequence(tfds.features.ClassLabel(names=["O", "B-LOC"]))
            words = tfds.features.Sequence(tfds.features.Text())
            return self.dataset_info_from_configs(
                features=tfds.features.FeaturesDict({"words": words, "tags": tags})
            )

        def _split_generators(self, dl_manager):
            return {"train": self._generate_examples(), "dev": self._generate_examples()}

        def _generate_examples(self):
            yield 0, {"words": ["Zürich", "rains"], "tags": ["B-LOC", "O"]}

    LocalTags(data_dir=str(tmp_path), file_format="array_record").download_and_prepare()
    task = Task(source="tfds:local_tags", tfds_dir=str(tmp_path), text="words", label="tags")
    for split in ("train", "validation"):
        (example,) = examples.load(task, "tag", ("O", "B-LOC"), split, silent)
        assert (example.words, example.label) == (("Zürich", "rains"), (1, 0))
    with pytest.raises(examples.DataError, match="no split 'test'") as caught:
        examples.load(task, "tag", ("O", "B-LOC"), "test", silent)
    assert caught.value.hint == "it has: train, dev"


# --- published data -------------------------------------------------------------------------------

COUNTS = {  # of the READMEs beside the data: (task, folder) -> rows of each split
    ("cola", "glue"): {"train": 8551, "validation": 1043, "test": 1063},
    ("sst2", "glue"): {"train": 67_349, "validation": 872, "test": 1821},
    ("stsb", "glue"): {"train": 5749, "validation": 1500, "test": 1379},
    ("rte", "glue/RTE"): {"train": 2490, "validation": 277, "test": 3000},
    ("mrpc", "glue"): {"train": 3668, "validation": 408, "test": 1725},
    ("mnli10k", "glue"): {"train": 8999, "validation": 1000},
    ("trec", "cls_trec"): {"train": 5452, "test": 500},
    ("movie_reviews", "cls_movie_reviews"): {"train": 1600, "test": 400},
    ("wnut17", "ner_wnut17"): {"train": 3394, "validation": 1009, "test": 1287},
    ("ud_ewt", "pos_ud_ewt"): {"train": 12_544, "validation": 2001, "test": 2077},
    ("squad2", "squad2_subjqa/restaurants_{split}.json.gz"): {
        "train": 1400,
        "validation": 267,
        "test": 266,
    },
    ("squad2", "squad2_subjqa/tripadvisor_{split}.json.gz"): {
        "train": 1165,
        "validation": 230,
        "test": 512,
    },
    ("squad2", "squad2_subjqa/electronics_{split}.json.gz"): {
        "train": 1295,
        "validation": 255,
        "test": 358,
    },
}
COPIED = (("copa", "mc_copa", "validation", 500), ("squad", "squad_xquad_en", "train", 475))
COPIED += (("squad", "squad_xquad_en", "validation", 89),)
UNLABELLED = ("cola", "sst2", "stsb", "rte")  # the test splits that are


@pytest.mark.parametrize(
    ("name", "folder", "split", "count"),
    [(*key, split, count) for key, counts in COUNTS.items() for split, count in counts.items()],
)
def test_published_data_loads_with_its_published_count(shared, name, folder, split, count):
    found = load(name, split, f"files:{shared}/{folder}")
    assert len(found) == count
    assert all((e.label is None) == (split == "test" and name in UNLABELLED) for e in found)


@pytest.mark.parametrize(("name", "folder", "split", "count"), COPIED)
def test_copied_data_loads_with_its_published_count(copies, name, folder, split, count):
    assert len(load(name, split, f"files:{copies}/{folder}")) == count


def test_words_of_wnut_are_counted_hashes_and_all(shared):
    counts = {"train": 62_730, "validation": 15_733, "test": 23_394}
    hashes = 0
    for split, count in counts.items():
        found = load("wnut17", split, f"files:{shared}/ner_wnut17")
        assert sum(len(e.words) for e in found) == count
        hashes += sum(word.startswith("#") for e in found for word in e.words)
    assert hashes == 828 + 22 + 247  # lines that begin with '#', by grep


def test_first_rows_are_what_the_files_show(shared):
    first = load("cola", "validation", f"files:{shared}/glue")[0]
    assert (first.text, first.label, first.id) == (
        "The sailors rode the breeze clear of the rocks.",
        1,
        "0",
    )
    first = load("mrpc", "validation", f"files:{shared}/glue")[0]
    assert first.text.startswith("He said the foodservice")
    assert (first.pair or "").startswith('" The foodservice pie')
    assert first.label == 1
    assert load("stsb", "validation", f"files:{shared}/glue")[1].label == 4.75
    assert load("rte", "validation", f"files:{shared}/glue")[0].label == 1  # not_entailment


def test_first_rows_of_choices_are_what_the_files_show(copies):
    (first, *_) = load("copa", "validation", f"files:{copies}/mc_copa")
    assert first.text == "My body cast a shadow over the grass."
    assert (first.options, first.label) == (
        ("cause The sun was rising.", "cause The grass was cut."),
        0,
    )
    found = load("swag", "train", f"files:train={copies}/mc_swag_sample/sample.json")
    assert len(found) == 10
    assert (
        found[0].options[0]
        == "A drum line passes by walking down the street playing their instruments."
    )


def test_one_file_of_copa_is_divided(copies):
    source = f"files:{copies}/mc_copa/copa_dev.jsonl"
    assert [len(load("copa", split, source)) for split in ("train", "validation")] == [400, 100]


def test_labels_found_in_published_data_are_those_of_the_table(shared):
    for name, folder in (("trec", "cls_trec"), ("wnut17", "ner_wnut17"), ("ud_ewt", "pos_ud_ewt")):
        row = TASKS[name]
        split = (
            {"files": {"train": row.task["files"]["validation"]}} if name == "ud_ewt" else {}
        )  # the quicker one
        task = Task(**{**row.task, **split, "source": f"files:{shared}/{folder}"})
        assert examples.found_labels(task, row.kind, silent) == tuple(sorted(row.labels))


def test_reading_starts_without_tensorflow_datasets():
    """Its import takes seconds, which only its source may cost."""
    import subprocess

    code = (
        "import sys, bert_jax.data.labelled.examples, bert_jax.data.tasks; "
        "print('tensorflow_datasets' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1],
    )
    assert done.stdout.strip() == "False"
