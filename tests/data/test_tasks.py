"""The table of tasks: its names against TFDS, and the published data that is here."""

import sys

import pytest

from bert_jax.config.knobs import Task
from bert_jax.data.examples import Example, load_examples
from bert_jax.data.rows import pick_column
from bert_jax.data.tasks import TASKS
from tests.marks import mark_slow

GLUE = ("cola", "stsb", "mnli", "ax")  # a text, a number, pairs, no training split


def load(name: str, split: str, source: str, **task) -> list[Example]:
    row = TASKS[name]
    settings = Task(**{**row.task, "name": name, "source": source, **task})
    return load_examples(settings, row.kind, row.labels, split, lambda line: None)


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
def test_glue_is_read_from_tfds_without_tensorflow(tmp_path, name, monkeypatch):
    import tensorflow_datasets as tfds

    monkeypatch.setitem(sys.modules, "tensorflow", None)  # an import of it fails
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
            assert (one.pair is None) == (name == "cola")
            assert one.label == raw["label"]
    assert len(found) == 40


COUNTS = {  # of the READMEs beside the data: (task, source) -> rows of train, validation and test
    ("cola", "glue"): (8551, 1043, 1063),
    ("sst2", "glue"): (67349, 872, 1821),
    ("stsb", "glue"): (5749, 1500, 1379),
    ("rte", "glue/RTE"): (2490, 277, 3000),
    ("mrpc", "glue"): (3668, 408, 1725),
    ("mnli10k", "glue"): (8999, 1000, 0),
    ("trec", "cls_trec"): (5452, 0, 500),
    ("movie_reviews", "cls_movie_reviews"): (1600, 0, 400),
    ("ud_ewt", "pos_ud_ewt"): (12544, 2001, 2077),
    ("swag", "mc_swag_sample/sample.json"): (8, 2, 0),  # one file of 10 rows
    ("wnut17", "ner_wnut17"): (3394, 1009, 1287),
    ("squad2", "squad2_subjqa/restaurants_{split}.json.gz"): (1400, 267, 266),
    ("copa", "mc_copa"): (0, 500, 0),
    ("copa", "mc_copa/copa_dev.jsonl"): (400, 100, 0),  # one file is divided
    ("squad", "squad_xquad_en"): (475, 89, 0),
}


ROWS = mark_slow(COUNTS, [key for key in COUNTS if key[0] not in ("sst2", "ud_ewt")])


@pytest.mark.parametrize(("name", "source"), ROWS)
def test_published_data_has_its_published_count(request, name, source):
    folder = request.getfixturevalue("copies" if name in ("copa", "squad") else "shared")
    for split, count in zip(("train", "validation", "test"), COUNTS[name, source], strict=True):
        if count:
            found = load(name, split, f"files:{folder}/{source}")
            assert len(found) == count, split
            hidden = split == "test" and name in ("cola", "sst2", "stsb", "rte")
            assert all((one.label is None) == hidden for one in found)
