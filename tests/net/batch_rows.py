"""Settings of data whose batches are frozen, and rules of masking whose masks are.

Each setting is a row of knobs, as of the training rows. Its first `BATCHES` batches are hashed
array by array. The masks of each setting of text are hashed at the rates of `RATES`; the masks of
`PLAIN` also by every other rule that chooses, replaces or rounds.
"""

import functools

import numpy as np

from bert_jax.config import load_file, override
from tests.net import inside
from tests.net.rows import ROWS, Row

BATCHES = 20
SIZE = 8  # rows of a batch, and of those that are corrupted at once
RATES = (0.05, 0.15, 0.4, 1.0)
PLAIN = "no_pairs"
Frozen = dict[str, str]  # of each array, the digests of its batches in order

# The training text makes 280 to 530 examples, so only settings that say so read a second epoch.
ALONE = {"pairs": "none"}
SETTINGS: dict[str, Row] = {
    "nsp": Row({}),
    "nsp_over_epochs": Row({"batch_size": 64}),  # whose numbers of examples differ a little
    "sop": Row({"pairs": "sop"}),
    "no_pairs": Row(ALONE),
    "no_pairs_over_epochs": Row(ALONE | {"batch_size": 96}),  # no batch ends with an epoch
    "other_data_seed": Row({"data_seed": 7}),
    "short_pairs": Row({"examples.short_probability": 1.0, "examples.truncate": "front"}),
    "random_pairs": Row({"examples.random_next_probability": 1.0, "examples.truncate": "back"}),
    "packed_documents": Row(ALONE | {"packing": 4, "sequence_length": 64}),  # a second epoch, too
    "packed_pairs": ROWS["packing"],
    "words": Row({"masking.unit": "word", "masking.max_unit": 4}),
    "spans": Row({"masking.unit": "span", "masking.span_mean": 2.5, "masking.span_max": 5}),
    "pmi": Row({"masking.unit": "pmi", "masking.pmi_words": 3}),
    "frequency_weights": Row({"masking.weights": "frequency", "masking.unit": "word"}),
    "static_copies": Row({"masking.dupe_factor": 2, "batch_size": 64}),
    "byte_pairs": Row({"tokenizer.path": "models/roberta"}),  # two separators in a pair
    "hybrid": ROWS["hybrid"],
    "replaced": ROWS["replaced"],
    "classify": ROWS["classify"],
    "classify_by_length": ROWS["classify"]._replace(
        knobs=ROWS["classify"].knobs | {"task.group": "length"}
    ),
    "regress": ROWS["regress"],
    "tag": ROWS["tag"],
    "span": ROWS["span"],
    "choice": ROWS["choice"],
}
MASKED = tuple(SETTINGS)[: tuple(SETTINGS).index("classify")]
RULES: dict[str, Row] = {  # of the masks of PLAIN
    "predict_less": Row({"masking.rate": 0.4, "masking.prediction_rate": 0.15}),
    "predict_more": Row({"masking.rate": 0.15, "masking.prediction_rate": 0.4, "batch_size": 24}),
    "other_seed": Row({"seed": 7}),
    "only_mask": Row({"masking.replace": "(1.0,0.0,0.0)"}),
    "only_random": Row({"masking.replace": "(0.0,1.0,0.0)"}),
    "regular_of_all": Row({"masking.random_from": "regular", "masking.count": "all"}),
    "nearest_skip": Row(
        {"masking.unit": "word", "masking.rounding": "nearest", "masking.overflow": "skip"}
    ),
    "linear_rate": ROWS["linear_rate"],
    "phases": ROWS["phases"],
    "uniform": ROWS["uniform"],
    "uniform_nearest": Row({"masking.draw": "uniform", "masking.rounding": "nearest"}),
    "beta": ROWS["beta"],
    "cosine_low": ROWS["cosine_low"],
    "cosine_high": ROWS["cosine_high"],
}
RULES = {name: Row(ALONE | row.knobs) for name, row in RULES.items()}


def open_row(row: Row, **more: object) -> inside.Stream:
    """Open the data of a row; `more` are knobs with __ for the dots of a path."""
    tree = load_file(row.config)
    knobs = {name.replace("__", "."): value for name, value in more.items()}
    for path, value in ({"batch_size": SIZE} | row.knobs | knobs).items():
        override(tree, path, str(value))
    if "epochs" not in row.knobs:
        override(tree, "steps", str(BATCHES))  # which a schedule of rates refers to
    return inside.open_stream(tree)


def digests(batches: list[inside.Arrays]) -> Frozen:
    """Return the digests of each array of batches."""
    names = sorted(batches[0])
    assert all(sorted(batch) == names for batch in batches)
    return {name: " ".join(inside.digest(batch[name]) for batch in batches) for name in names}


def measure_batches(name: str) -> Frozen:
    """Return the digests of the batches of a setting."""
    stream = open_row(SETTINGS[name])
    return digests([stream.batch(step) for step in range(BATCHES)])


def measure_masks(name: str) -> Frozen:
    """Return the digests of the masks of a setting at every rate, or of a rule."""
    if name in RULES:
        return digests(corrupt_batches(open_row(RULES[name]))[1])
    found: Frozen = {}
    for rate in RATES:
        _, masks = corrupt_setting(name, rate)
        found |= {f"{array} at {rate:g}": text for array, text in digests(masks).items()}
    return found


@functools.cache  # two tests read them
def corrupt_setting(name: str, rate: float) -> tuple[list[inside.Arrays], list[inside.Arrays]]:
    """Return the batches of a setting, and their masks at a rate."""
    return corrupt_batches(open_row(SETTINGS[name], masking__rate=rate))


def corrupt_batches(stream: inside.Stream) -> tuple[list[inside.Arrays], list[inside.Arrays]]:
    """Return the first batches, and what corruption makes of each."""
    batches = [stream.batch(step) for step in range(BATCHES)]
    return batches, [_corrupt(stream, batch, step) for step, batch in enumerate(batches)]


def _corrupt(stream: inside.Stream, batch: inside.Arrays, step: int) -> inside.Arrays:
    """Corrupt a batch piece by piece: masks do not depend on the batch of an example."""
    pieces = []
    for start in range(0, len(batch["tokens"]), SIZE):
        rows = {name: array[start : start + SIZE] for name, array in batch.items()}
        pieces.append(stream.corrupt(rows, step))
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
