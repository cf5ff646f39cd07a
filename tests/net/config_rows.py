"""Resolved configs, as `bert-jax train --dry-run` prints them: every file, preset and study.

Knobs are flat: the path with dots, and the value. The default config is whole, and every other one
is what differs from it. A study is its base, what each of its points changes, and its cells.
"""

import contextlib
import functools
import io
import json
import re
from typing import Any

import bert_jax
from bert_jax.config import load_file
from tests import texts
from tests.net import inside
from tests.net.train_rows import ROOT, print_here

Knobs = dict[str, Any]
ABSENT = "(absent)"  # of a section, such as an objective that is not trained
PRESETS = ("google_2018", "google_head", "huggingface", "roberta", "wettig", "mosaic")
PRESETS += ("modernbert", "neobert", "gpt_bert")
SIZES = ("tiny", "mini", "small", "medium", "base", "large")
ABLATIONS = ("diffusion", "drawn_rate", "hybrid", "left_to_right", "mask_only", "masking_rate")
ABLATIONS += ("modern", "no_nsp", "pmi", "pre_ln", "rate_schedule", "replaced", "sop", "span")
ABLATIONS += ("static_masks", "views", "weighted_masks", "whole_word")
TASKS = {"sst2": "tasks", "stsb": "tasks", "conll2003": "tasks/words", "squad": "tasks/squad"}
TASKS |= {"copa": "tasks/copa"}
MODELS = {"sst2": "classify", "stsb": "regress", "conll2003": "tag", "squad": "span"}
MODELS |= {"copa": "choice"}
ADAPTED = ("bert", "causal", "roberta", "modernbert")
FILES = [  # below configs/, with an argument
    *(f"pretrain.py:{size}" for size in SIZES),
    *(f"preset.py:{preset}" for preset in PRESETS),
    "preset.py:google_2018,large",
    *("tiny.py", "fast.py:base", "fast.py:large", "local.py:texts", "local.py:texts,small"),
    *("babylm.py:strict-small", "babylm.py:strict,texts,tiny"),
    *(f"adapt.py:texts,init_from=models/{name}" for name in ADAPTED),
    *(
        f"finetune.py:{task},init_from=models/{MODELS[task]},task.source=files:{source}"
        for task, source in TASKS.items()
    ),
    *(f"ablations.py:{name}" for name in ABLATIONS),
    *("ablations.py:masking_rate,0.25,mini", "ablations.py:views,0.15,0.45"),
    "ablations.py:replaced,large",
]
# Recipes whose data is not here: as their file returns them, before they are resolved.
RECIPES = ("cola", "mrpc", "qqp", "mnli", "qnli", "rte", "wnli", "squad2", "wnut17", "ud_ewt")
RECIPES += ("mnli10k", "ax", "trec", "movie_reviews")
RECIPES += ("swag", "classify", "regress", "tag", "span", "choice")
# Its batch of 255 rows does not divide over the eight fake devices of the tests' process.
ONE_DEVICE = ("ablations.py:views", "ablations.py:views,0.15,0.45")
CONFIGS = ("default", *FILES, *RECIPES)
QUICK = ("preset.py", "tiny.py", "adapt.py:texts,init_from=models/bert", "finetune.py:sst2")
DRY = tuple(name for name in FILES if name.startswith(QUICK))  # quick dry runs of files
PLACES = tuple(file.parent.name for file in sorted((ROOT / "experiments").glob("*/study.py")))
STUDIES = tuple(f"{place}:{scale}" for scale in ("docstrings", "cpu", "full") for place in PLACES)
TABLES = tuple(name for name in STUDIES if not name.endswith(":cpu"))  # whose text is elsewhere
# Names of cells and of the groups they train in are the plan's own.
UNSTABLE = ("cell", "goes on from", "group")


def measure(name: str) -> Knobs:
    """Return the knobs of the default config, of a file in configs/, or of a recipe."""
    if name == "default":
        return default()
    if name in RECIPES:
        return measure_recipe(name)
    return _differences(default(), _resolve(load_file(f"checkout/configs/{name}")))


def measure_dry(name: str) -> Knobs:
    """Return the knobs of a file in configs/ that a dry run prints."""
    words = ["train", f"--config=checkout/configs/{name}", "--workdir=w", "--dry-run"]
    with texts.one_device() if name in ONE_DEVICE else contextlib.nullcontext():
        return _differences(default(), _json(print_here(words)))


def measure_recipe(name: str) -> Knobs:
    """Return the knobs that the recipe of a task sets."""
    tree = load_file(f"checkout/configs/finetune.py:{name},init_from=models/bert")
    found = _flat(tree.to_dict())
    known = _flat(bert_jax.default_config().to_dict())
    return _differences(known, {path: found[path] for path in found if path != "taken"})


def measure_study(name: str) -> Knobs:
    """Return the knobs of the base of STUDY:SCALE, and what each point of its axes changes."""
    place, scale = name.split(":")
    spec = f"checkout/experiments/{place}/study.py:{scale}"
    study = load_file(spec, function="get_study")
    find = _resolve if scale == "docstrings" else _run_dry
    found = _differences(default(), find(study.base))
    for axis in study.axes:
        for point in axis.points:
            found[f"{axis.name} = {point.label}"] = dict(point.changes)
    # The text of scale cpu lies beside the checkout, wherever that is.
    return json.loads(re.sub(r'"[^"]*/shared/data/', '"SHARED/', json.dumps(found)))


def measure_cells(name: str) -> dict[str, str]:
    """Return the seeds of the cells of STUDY:SCALE by their labels, steps and tokens."""
    words = ["study", "run", f"checkout/experiments/{name}", "--workdir=w", "--dry-run"]
    head, *lines = print_here(words).split("\n\n")[0].splitlines()
    starts = [match.start() for match in re.finditer(r"(?:^|(?<=  ))\S", head)]
    columns = [slice(*ends) for ends in zip(starts, [*starts[1:], None], strict=True)]
    names = [head[column].strip() for column in columns]
    found: dict[str, list[str]] = {}
    for line in lines:
        cell = {name: line[place].strip() for name, place in zip(names, columns, strict=True)}
        labels = {name: text for name, text in cell.items() if name not in UNSTABLE}
        seed = labels.pop("seed")
        found.setdefault(", ".join(f"{k} {v}" for k, v in labels.items()), []).append(seed)
    return {name: " ".join(seeds) for name, seeds in found.items()}


@functools.cache
def default() -> Knobs:
    """Return the knobs of the default config."""
    return _run_dry(bert_jax.default_config())


def _resolve(tree: Any) -> Knobs:
    """Return the knobs of a resolved config."""
    return _flat(inside.resolve(tree))


def _run_dry(tree: Any) -> Knobs:
    """Return the knobs that a dry run in Python prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        bert_jax.run(tree, "w", dry_run=True)
    return _json(printed.getvalue())


def _json(printed: str) -> Knobs:
    return _flat(json.loads(printed[printed.index("\n{\n") :]))


def _flat(tree: dict[str, Any], path: str = "") -> Knobs:
    """Return the values of a nested dict by their paths."""
    found: Knobs = {}
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            found |= _flat(value, f"{path}{name}.")
        else:
            found[f"{path}{name}"] = list(value) if isinstance(value, tuple) else value
    return found


def _list_sections(path: str) -> list[str]:
    """Return the sections of a knob, the widest first: of a.b.c, a and a.b."""
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _differences(base: Knobs, found: Knobs) -> Knobs:
    """Return the knobs whose values differ from the base."""
    sections = {section for path in found for section in _list_sections(path)}
    gone = set()
    for path in base.keys() - found.keys() - sections:
        # A section that is absent as a whole stands for its knobs.
        gone.add(next((part for part in _list_sections(path) if part not in sections), path))
    kept = {path: value for path, value in found.items() if base.get(path, ABSENT) != value}
    return kept | dict.fromkeys(sorted(gone), ABSENT)
