"""Freeze the numbers of the net again: python -m tests.net.make PART [ROW...].

PART is a row of PARTS. Rows that are not named keep their numbers. Batches hold no number that the
compiler rounds: with JAX_DISABLE_MOST_OPTIMIZATIONS=true they are made faster.
"""

import contextlib
import functools
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.net import answer_rows, batch_rows, config_rows, golden, prepare_rows, report_rows
from tests.net.rows import ROWS
from tests.net.train_rows import inputs, train, write_folder

ROWS_OF: dict[str, list[str]] = {  # frozen file -> its rows; `answers` has those of several parts
    "training": list(ROWS),
    "batches": list(batch_rows.SETTINGS),
    "masks": [*batch_rows.MASKED, *batch_rows.RULES],
    "preparation": list(prepare_rows.ROWS),
    "configs": list(config_rows.CONFIGS),
    "studies": list(config_rows.STUDIES),
    "cells": list(config_rows.TABLES),
    "study": list(report_rows.STUDIES),
}


def make_training(names: list[str]) -> None:
    """Train rows with the compiler flags of a user, and freeze their numbers."""
    chosen = names or list(ROWS)
    with tempfile.TemporaryDirectory() as folder:
        write_folder(Path(folder))
        found = train(Path(folder), chosen, users_flags=True)
        numbers = {name: dict(sorted(found[name].read_numbers().items())) for name in chosen}
    frozen = golden.read("training") if names else {}
    frozen |= answer_rows.shorten(numbers)
    golden.write("training", {name: frozen[name] for name in ROWS if name in frozen})


def make_batches(names: list[str]) -> None:
    """Freeze the digests of batches, and of the masks made of them."""
    with tempfile.TemporaryDirectory() as folder, inputs(Path(folder) / "inputs"):
        freeze_rows("batches", names, batch_rows.measure_batches)
        freeze_rows("masks", names, batch_rows.measure_masks)


def make_preparation(names: list[str]) -> None:
    """Freeze the digests of prepared texts."""
    with tempfile.TemporaryDirectory() as folder, prepare_rows.inputs(Path(folder) / "inputs"):
        freeze_rows("preparation", names, prepare_rows.measure)


def make_configs(names: list[str]) -> None:
    """Freeze the knobs of configs and studies, and the cells of studies."""
    with tempfile.TemporaryDirectory() as folder, inputs(Path(folder) / "inputs"):
        freeze_rows("configs", names, config_rows.measure)
        freeze_rows("studies", names, config_rows.measure_study)
        freeze_rows("cells", names, config_rows.measure_cells)


def make_study(names: list[str]) -> None:
    """Freeze the numbers of reports of committed studies."""
    with tempfile.TemporaryDirectory() as folder:
        measure_report = functools.partial(report_rows.measure, folder=Path(folder))
        freeze_rows("study", names, measure_report)


def freeze_rows(part: str, names: list[str], measure_row: Callable[[str], Any]) -> None:
    """Freeze the rows of a file that are named, or all; rows that are not known any more go."""
    known = ROWS_OF[part]
    frozen = golden.read(part) if names else {}
    frozen |= {name: measure_row(name) for name in known if name in names or not names}
    golden.write(part, {name: frozen[name] for name in known if name in frozen})


def make_answers(names: list[str]) -> None:
    """Ask the frozen models; a row is a question's name or a model's."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        answer_rows.write_questions(Path(folder))
        frozen = golden.read("answers") if names else {}
        for part, rows, find in answer_rows.PARTS:
            chosen = [row for row in rows if not names or row in names]
            kept = frozen.get(part, {}) | {row: answer_rows.shorten(find(row)) for row in chosen}
            frozen[part] = {row: kept[row] for row in rows if row in kept}
    golden.write("answers", frozen)


PARTS = {  # what makes a part, and the rows of its files
    "training": (make_training, ROWS),
    "batches": (make_batches, [*ROWS_OF["batches"], *ROWS_OF["masks"]]),
    "preparation": (make_preparation, prepare_rows.ROWS),
    "configs": (make_configs, [*config_rows.CONFIGS, *config_rows.STUDIES]),
    "study": (make_study, report_rows.STUDIES),
    "answers": (make_answers, [row for _, rows, _ in answer_rows.PARTS for row in rows]),
}

if __name__ == "__main__":
    part, *rows = sys.argv[1:]
    make_part, known = PARTS[part]
    if unknown := [row for row in rows if row not in known]:
        sys.exit(f"no row of {part}: {', '.join(unknown)}")
    make_part(rows)
