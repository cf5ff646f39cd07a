"""Finished cells of a study in one small file, to be committed: all that its report needs of them.

    bert-jax study report --workdir=runs/x --keep=experiments/x/records/part.zip

`study run` takes cells from the files in the folder `records` beside a study.py as finished, and
`study report --workdir=experiments/x` makes tables and figures from them. A kept cell has no
checkpoint: no other cell can go on from it, and it cannot be evaluated anew, so it is taken only
where it has the results of all evaluations, as they are defined now.
"""

from __future__ import annotations

import io
import itertools
import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bert_jax.errors import ConfigError, DataError
from bert_jax.reporting import records
from bert_jax.studies import files, measures
from bert_jax.studies.definition import Cell
from bert_jax.studies.folder import RESULT, Entry, StudyFolder, spec_hash
from bert_jax.studies.report.collect import LEDGER
from bert_jax.system import disk, jsons

FOLDER = "records"
STUDY = "study.json"
WHOLE = ("cell.json", "trained.json", "environment.json", "attempts.jsonl")
NAME = re.compile(
    rf"[0-9a-f]+/({'|'.join(map(re.escape, WHOLE))}|{records.METRICS}|results/\w+\.(json|npz))"
)
LARGEST = 1 << 28  # bytes of a file in the archive
# What reading a damaged archive raises: its parts, their compression, their names and versions.
DAMAGE = (OSError, EOFError, zipfile.BadZipFile, zlib.error, ValueError, NotImplementedError)
ALIKE = ("budget", "evaluations", "comparisons", "claims")  # in all parts of a study
DATE = (1980, 1, 1, 0, 0, 0)  # the same bytes whenever they are written


def write(place: StudyFolder, output: Path) -> int:
    """Write the finished cells of a study to a file; return how many there are."""
    done = [entry for entry in place.cells() if place.state(entry).name == "done"]
    if not done:
        raise ConfigError(f"{place.workdir} has no finished cell", "study run makes them")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:

        def add(name: str, content: bytes) -> None:
            archive.writestr(zipfile.ZipInfo(name, DATE), content, zipfile.ZIP_DEFLATED, 9)

        add(STUDY, place.study.read_bytes())
        for entry in sorted(done, key=lambda entry: entry.id):
            for name, content in _parts(place, entry):
                add(f"{entry.id}/{name}", content)
    disk.write_output(output, packed.getvalue(), "choose another --keep")
    return len(done)


def _parts(place: StudyFolder, entry: Entry) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each file of a cell that a report reads."""
    folder = place.cell(entry.id)
    for name in WHOLE:
        if (folder / name).exists():
            yield name, (folder / name).read_bytes()
    if (folder / records.METRICS).exists():
        rows = (
            {key: value for key, value in row.items() if _read(key)}
            for row in records.rows(folder / records.METRICS)
        )
        yield records.METRICS, "".join(json.dumps(row) + "\n" for row in rows).encode()
    for name in entry.evaluations:
        for file in (place.result(entry.id, name), place.each(entry.id, name)):
            if file.exists():
                yield f"results/{file.name}", file.read_bytes()


def _read(key: str) -> bool:
    """Return whether a report reads a metric."""
    kind, _, name = key.partition("/")
    return kind in ("step", "time", "branch_from", "eval") or (kind == "train" and name in LEDGER)


def beside(folder: Path) -> list[Path]:
    """Return the files of records of a study's folder."""
    return sorted((folder / FOLDER).glob("*.zip"))


def finished(
    archives: Sequence[Path], cells: Iterable[Cell], evaluations: Mapping[str, Any]
) -> dict[str, Path]:
    """Return the cells whose records have all their results, and the file each is in."""
    found: dict[str, Path] = {}
    for path in archives:
        with opened(path) as archive:
            names = set(archive.namelist())
            for cell in cells:
                possible = measures.possible(cell, evaluations)
                entry = Entry(**vars(cell), evaluations=possible)
                if cell.id not in found and _complete(archive, names, entry):
                    found[cell.id] = path
    return found


def _complete(archive: zipfile.ZipFile, names: set[str], entry: Entry) -> bool:
    """Return whether an archive has every result of a cell as it is defined now."""
    for name in entry.evaluations:
        file = f"{entry.id}/results/{name}.json"
        if file not in names:
            return False
        if _json(archive, file, RESULT)["spec"] != spec_hash(entry, name):
            return False
    return f"{entry.id}/trained.json" in names


def taken(place: StudyFolder, cell: str) -> bool:
    """Return whether a cell was taken from records."""
    return bool(place.trained(cell)) and not (place.cell(cell) / "config.json").exists()


def check(place: StudyFolder, cells: Iterable[Cell], evaluations: Mapping[str, Any]) -> None:
    """Refuse cells that were taken from records and lack a result as it is defined now."""
    for cell in cells:
        if taken(place, cell.id):
            entry = Entry(**vars(cell), evaluations=measures.possible(cell, evaluations))
            for name in entry.evaluations:
                if place.read_result(entry, name) is None:
                    raise ConfigError(
                        f"{place.cell(cell.id)} was taken from records, which have neither "
                        f"{name} nor a checkpoint to make it from",
                        "another --workdir trains such cells anew; so does this one once they "
                        "are removed",
                    )


def extract(archive: zipfile.ZipFile, cell: str, target: Path, without: Sequence[str] = ()) -> None:
    """Write the files of a cell into a folder."""
    for name in archive.namelist():
        inner = name.removeprefix(f"{cell}/")
        if inner == name or inner in without:
            continue
        if not NAME.fullmatch(name) or archive.getinfo(name).file_size > LARGEST:
            raise DataError(
                f"{archive.filename}: {name} is no record of a cell", "restore the file"
            )
        (target / inner).parent.mkdir(parents=True, exist_ok=True)
        disk.write(target / inner, archive.read(name))


def unpack(archives: Sequence[Path], place: StudyFolder) -> None:
    """Fill a study's folder with the cells of several files, and with a study.json of them all."""
    study: dict[str, Any] = {}
    commits: list[str] = []
    for path in archives:
        with opened(path) as archive:
            if STUDY not in archive.namelist():
                raise DataError(f"{path} has no {STUDY}", "`study report --keep` writes it")
            part = _json(archive, STUDY)
            if differs := [key for key in ALIKE if study and part.get(key) != study.get(key)]:
                raise DataError(
                    f"{path} has other {differs[0]} than {archives[0]}",
                    "`study run` and `study report --keep` make it anew",
                )
            for cell in {name.partition("/")[0] for name in archive.namelist()} - {STUDY}:
                if not place.cell(cell).exists():  # the first file counts, as for `study run`
                    extract(archive, cell, place.cell(cell))
        study = _merged(study, part)
        commits.append(part.get("git_commit") or "")
    if len(archives) > 1:
        study["parts"] = [path.stem for path in archives]
        study["commits"] = list(dict.fromkeys(filter(None, commits)))
    files.write(place.study, study)


def _merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Return a study.json with the cells, seeds and points of both, named as what they are of."""
    if not first:
        return second
    axes = {axis["name"]: list(axis["points"]) for axis in first["axes"]}
    for axis in second["axes"]:
        known = axes.setdefault(axis["name"], [])
        known += [point for point in axis["points"] if point not in known]
    part = second.get("spec", "")
    words = zip(first.get("spec", "").split(","), part.split(","), strict=False)
    both = itertools.takewhile(lambda pair: pair[0] == pair[1], words)
    whole = ",".join(word for word, _ in both) or part
    texts = dict.fromkeys([*first.get("texts", ()), *second.get("texts", ())])
    expected = first.get("expected", {}) | second.get("expected", {})
    return {
        **second,
        "spec": whole,
        "command": [whole if word == part else word for word in second.get("command", ())],
        "axes": [{"name": name, "points": points} for name, points in axes.items()],
        "seeds": sorted({*first["seeds"], *second["seeds"]}),
        "cells": list(dict.fromkeys([*first["cells"], *second["cells"]])),
        **({"texts": list(texts)} if texts else {}),
        **({"expected": expected} if expected else {}),
    }


def _json(archive: zipfile.ZipFile, name: str, schema: Any = dict) -> dict[str, Any]:
    try:
        content: dict[str, Any] = jsons.parse(archive.read(name), schema)
    except jsons.Malformed as error:
        raise DataError(f"{archive.filename}: {name}: {error}", "restore it") from error
    return content


def opened(path: Path) -> zipfile.ZipFile:
    """Open a file of records and test all of it; one line says what is wrong with it."""
    try:
        archive = zipfile.ZipFile(path)
        damaged = archive.testzip()
    except DAMAGE as error:
        raise DataError(f"{path} holds no records: {error}", "restore it") from error
    if damaged:
        raise DataError(f"{path}: {damaged} is damaged", "restore it")
    return archive
