"""Corpus source `tfds`: any text data set of TFDS, read as array records without TensorFlow."""

import functools
import os
import re
from collections.abc import Iterator
from typing import Any

from bert_jax.config import knobs
from bert_jax.data.files import convert_text
from bert_jax.data.sentences import Item, Text
from bert_jax.errors import DataError, MissingError, first_line

RANGE = 16 << 20  # bytes of examples read as one item
PREPARE = (
    'python -c "import tensorflow_datasets as tfds, tensorflow_datasets.text; '
    "tfds.builder({!r}{}, file_format='array_record').download_and_prepare()\" where there is a "
    "network"
)
HUB = "; or take the text from the hub: --config.corpus.source=hub"
# Structure marks of wiki40b.
WIKI40B = re.compile(r"\s*_(?:START_ARTICLE|START_SECTION|START_PARAGRAPH|NEWLINE)_\s*")


@functools.lru_cache(maxsize=2)
def builder(name: str, data_dir: str, knob: str = "config.corpus.path") -> Any:
    """Return TFDS's builder of a data set; an error names `knob`, where the name was set."""
    import tensorflow_datasets as tfds  # heavy, and only this source needs it
    import tensorflow_datasets.text  # registers datasets that importing the package alone does not

    if not name:
        raise DataError(f"{knob} is empty", "tfds: a dataset name such as lm1b")
    unknown = (ValueError, AttributeError, OSError, ImportError, tfds.core.DatasetNotFoundError)
    try:
        return tfds.builder(name, data_dir=data_dir or None)
    except unknown as error:
        section = knob.rpartition(".")[0]
        hint = f"a TFDS name, and {section}.tfds_dir" if section else "a TFDS name"
        raise DataError(f"{knob} = {name!r}: {first_line(error)[:200]}", hint) from error


@functools.lru_cache(maxsize=2)
def examples_of(name: str, data_dir: str, split: str, more: str = "") -> Any:
    """Open a split as a sequence of examples; only data sets of array records are read.

    The hint for a data set that is not prepared ends with `more`.
    """
    dataset = builder(name, data_dir)
    try:
        return dataset.as_data_source(split=split)
    except (AssertionError, ValueError, NotImplementedError, FileNotFoundError, KeyError) as error:
        message = f"{name}, split {split!r} cannot be read from {dataset.data_dir}"
        missing = not os.path.isdir(dataset.data_dir) or isinstance(error, AssertionError)
        place = f", data_dir={data_dir!r}" if data_dir else ""
        raise (MissingError if missing else DataError)(
            f"{message}: {first_line(error)[:200]}", PREPARE.format(name, place) + more
        ) from error


def _open_text(settings: knobs.Corpus) -> Any:
    return examples_of(settings.path, settings.tfds_dir, settings.split, HUB)


def identify(settings: knobs.Corpus, cache: Any) -> Any:
    """Return the name and version of the data set, the split and its size."""
    rows = len(_open_text(settings))
    return [builder(settings.path, settings.tfds_dir).info.full_name, settings.split, rows]


def list_items(settings: knobs.Corpus, cache: Any) -> tuple[list[Item], list[str]]:
    """Divide the examples into ranges, each an item."""
    count = len(_open_text(settings))
    info = builder(settings.path, settings.tfds_dir).info
    if settings.text_field not in (info.features or {}):
        names = ", ".join(info.features or {})
        raise DataError(
            f"{settings.path} has no {settings.text_field!r}",
            f"config.corpus.text_field: one of {names}",
        )
    whole = info.splits.get(settings.split.partition("[")[0])  # of a part such as train[:10%]
    size = whole.num_bytes // max(1, whole.num_examples) if whole else 0
    size = size or 1000  # unknown
    step = max(1, RANGE // size)
    spans = [(start, min(start + step, count)) for start in range(0, count, step)]
    return [Item(settings.path, step * size, span) for span in spans], []


def read_texts(item: Item, settings: knobs.Corpus) -> Iterator[Text]:
    """Yield the documents of a range of examples."""
    source = _open_text(settings)
    wiki40b = settings.path.startswith("wiki40b")
    for index in range(*item.spec):
        where = f"{settings.path}, split {settings.split}, example {index}"
        text = convert_text(source[index][settings.text_field], settings.text_field, where)
        yield Text(WIKI40B.sub("\n", text) if wiki40b else text, where)
