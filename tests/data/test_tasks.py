"""The table of tasks: its names against TFDS, and the published data that is here."""

from __future__ import annotations

import sys

import pytest

from bert_jax.config import default, resolve, set_values
from bert_jax.config.knobs import LABELLED, METRICS, Task
from bert_jax.data.examples import Example, find_labels, load_examples
from bert_jax.data.rows import pick_column
from bert_jax.data.tasks import TASKS, list_knobs

GLUE = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli", "ax")


def load(name: str, split: str, source: str, **task) -> list[Example]:
    row = TASKS[name]
    settings = Task(**{**row.task, "name": name, "source": source, **task})
    return load_examples(settings, row.kind, row.labels, split, lambda line: None)


@pytest.mark.parametrize("name", [*TASKS, *LABELLED])
def test_list_knobs_makes_a_config(name):
    tree = default()
    tree.pairs, tree.init_from = "none", "a model"
    set_values(tree, list_knobs(name))
    tree.task.source = tree.task.source or "files:here"
    if name == "choice":
        tree.task.options = ("a", "b")
    config = resolve(tree)
    (kind,) = config.objectives
    assert kind == (TASKS[name].kind if name in TASKS else name)
    assert {*config.task.metrics, config.checkpoints.best} <= {"", *METRICS[kind]}


# --- TensorFlow Datasets --------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")  # the library's own
@pytest.mark.parametrize("name", [name for name, row in TASKS.items() if row.source_tfds])
def test_columns_and_labels_have_the_names_of_tfds(name):
    from bert_jax.data import tfds

    row = TASKS[name]
    features = tfds.builder(row.source_tfds.removeprefix("tfds:"), "").info.features
    for knob in {"text", "text_pair", "label"} & row.task.keys():
        assert pick_column(row.task[knob], features), knob
    if row.labels:
        assert features[pick_column(row.task["label"], features)].names == list(row.labels)


@pytest.mark.filterwarnings("ignore")  # the library's own
@pytest.mark.parametrize("name", GLUE)
def test_glue_is_read_from_tfds_without_tensorflow(tmp_path, name):
    import tensorflow_datasets as tfds

    row = TASKS[name]
    split = row.evals[0][1]
    with tfds.testing.mock_data(num_examples=40):
        found = load(name, split, row.source_tfds, tfds_dir=str(tmp_path))
        dataset = row.source_tfds.removeprefix("tfds:")
        source = tfds.data_source(dataset, split=split, data_dir=str(tmp_path))
        for number, one in enumerate(found):
            raw = source[number]
            assert one.where == f"{row.source_tfds}/{split}, example {number}"
            assert one.id == str(raw["idx"])
            assert one.text == raw[pick_column(row.task["text"], raw)]
            assert (one.pair is None) == (name in ("cola", "sst2"))
            assert one.label == raw["label"]
    assert len(found) == 40
    assert "tensorflow" not in sys.modules


# --- published data -------------------------------------------------------------------------------

COUNTS = {  # of the READMEs beside the data: (task, source) -> rows of train, validation and test
    ("cola", "glue"): (8551, 1043, 1063),
    ("sst2", "glue"): (67_349, 872, 1821),
    ("stsb", "glue"): (5749, 1500, 1379),
    ("rte", "glue/RTE"): (2490, 277, 3000),
    ("mrpc", "glue"): (3668, 408, 1725),
    ("mnli10k", "glue"): (8999, 1000, 0),
    ("trec", "cls_trec"): (5452, 0, 500),
    ("movie_reviews", "cls_movie_reviews"): (1600, 0, 400),
    ("wnut17", "ner_wnut17"): (3394, 1009, 1287),
    ("ud_ewt", "pos_ud_ewt"): (12_544, 2001, 2077),
    ("squad2", "squad2_subjqa/restaurants_{split}.json.gz"): (1400, 267, 266),
    ("squad2", "squad2_subjqa/tripadvisor_{split}.json.gz"): (1165, 230, 512),
    ("squad2", "squad2_subjqa/electronics_{split}.json.gz"): (1295, 255, 358),
}
SPLITS = ("train", "validation", "test")
UNLABELLED = ("cola", "sst2", "stsb", "rte")  # of the test splits


@pytest.mark.parametrize(("name", "source"), COUNTS)
def test_published_data_has_its_published_count(shared, name, source):
    for split, count in zip(SPLITS, COUNTS[name, source], strict=True):
        if count:
            found = load(name, split, f"files:{shared}/{source}")
            assert len(found) == count, split
            assert all((e.label is None) == (split == "test" and name in UNLABELLED) for e in found)


@pytest.mark.parametrize(
    ("name", "source", "counts"),
    [
        ("copa", "mc_copa", (0, 500)),
        ("copa", "mc_copa/copa_dev.jsonl", (400, 100)),  # one file is divided
        ("squad", "squad_xquad_en", (475, 89)),
        ("swag", "train={copies}/mc_swag_sample/sample.json", (10,)),
    ],
)
def test_copied_data_has_its_published_count(copies, name, source, counts):
    place = source.format(copies=copies) if "=" in source else f"{copies}/{source}"
    for split, count in zip(SPLITS, counts, strict=False):
        assert not count or len(load(name, split, f"files:{place}")) == count


def test_published_words_are_all_counted(shared):
    found = [load("wnut17", split, f"files:{shared}/ner_wnut17") for split in SPLITS]
    assert [sum(len(e.words) for e in part) for part in found] == [62_730, 15_733, 23_394]
    hashes = [word for part in found for e in part for word in e.words if word.startswith("#")]
    assert len(hashes) == 828 + 22 + 247  # lines that begin with '#', by grep


def test_first_rows_are_what_the_files_show(shared):
    first = load("cola", "validation", f"files:{shared}/glue")[0]
    text = "The sailors rode the breeze clear of the rocks."
    assert (first.text, first.label, first.id) == (text, 1, "0")
    first = load("mrpc", "validation", f"files:{shared}/glue")[0]
    assert first.pair.startswith('" The foodservice pie')
    assert load("stsb", "validation", f"files:{shared}/glue")[1].label == 4.75
    assert load("rte", "validation", f"files:{shared}/glue")[0].label == 1  # not_entailment


def test_find_labels_finds_the_labels_of_the_table(shared):
    for name, source in (("trec", "cls_trec"), ("wnut17", "ner_wnut17")):
        row = TASKS[name]
        task = Task(**{**row.task, "source": f"files:{shared}/{source}"})
        assert find_labels(task, row.kind, lambda line: None) == tuple(sorted(row.labels))
