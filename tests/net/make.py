"""Freeze the numbers of the net again: python -m tests.net.make FILE [ROW...].

FILE is the name of a frozen file. Rows that are not named keep their numbers. Batches hold no
number that the compiler rounds: with JAX_DISABLE_MOST_OPTIMIZATIONS=true they are made faster.
"""

import contextlib
import sys
import tempfile
from pathlib import Path

from tests.net import answer_rows, batch_rows, config_rows, golden, prepare_rows
from tests.net.rows import ROWS
from tests.net.train_rows import inputs, train, write_folder

MASKS = [*batch_rows.MASKED, *batch_rows.RULES]
FILES = {  # frozen file -> its rows, what measures one of them, and the folder where it does
    "batches": (list(batch_rows.SETTINGS), batch_rows.measure_batches, inputs),
    "masks": (MASKS, batch_rows.measure_masks, inputs),
    "preparation": (list(prepare_rows.ROWS), prepare_rows.measure, prepare_rows.inputs),
    "configs": (list(config_rows.CONFIGS), config_rows.measure, inputs),
    "studies": (list(config_rows.STUDIES), config_rows.measure_study, inputs),
    "cells": (list(config_rows.TABLES), config_rows.measure_cells, inputs),
}
ROWS_OF = {part: rows for part, (rows, *_) in FILES.items()} | {"training": list(ROWS)}
ANSWERED = [row for _, rows, _ in answer_rows.PARTS for row in rows]  # of several parts


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


def make_rows(part: str, names: list[str]) -> None:
    """Freeze the rows of a file that are named, or all; rows that are not known any more go."""
    known, measure_row, work_in = FILES[part]
    frozen = golden.read(part) if names else {}
    with tempfile.TemporaryDirectory() as folder, work_in(Path(folder) / "inputs"):
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


if __name__ == "__main__":
    part, *rows = sys.argv[1:]
    known = ANSWERED if part == "answers" else ROWS_OF[part]
    if unknown := [row for row in rows if row not in known]:
        sys.exit(f"no row of {part}: {', '.join(unknown)}")
    if part in FILES:
        make_rows(part, rows)
    elif part == "training":
        make_training(rows)
    else:
        make_answers(rows)
