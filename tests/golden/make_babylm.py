"""What the BabyLM evaluation pipeline makes of small models and data: tests/golden/babylm/.

Its data is not ours to copy: `full_eval` has its form, with sentences of 24 words. `outputs.json`
has what the pipeline saved for each backend, and what it reported. Made on 2026-11-23 with Python
3.12, torch 2.13.0, transformers 5.23.0, numpy 2.5.5, pandas 3.1.1, statsmodels 0.15.0, scipy
1.18.1, in fp32 on a CPU, after make_huggingface.py, with github.com/babylm/evaluation-pipeline-2025
at bf55c11 in the folder PIPELINE. To make again (the tests need none of this):

    python tests/golden/make_babylm.py PIPELINE
"""

from __future__ import annotations

import csv
import importlib.machinery
import itertools
import json
import os
import random
import runpy
import shutil
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path

import transformers

HERE = Path(__file__).resolve().parent
DATA = HERE / "babylm" / "full_eval"
MODELS = {"mlm": "masked_lm", "mntp": "masked_lm", "causal": "causal_lm"}  # by backend
WORDS = "the a is of to and cat dog sat ran mat big red it in on walked jumping wants b c d e f"
FIELDS = ("syntax", "morphology", "syntax_semantics", "syntax/semantics")
TASKS = {  # folder -> the pipeline's --task
    "blimp_filtered": "blimp",
    "supplement_filtered": "blimp",
    "ewok_filtered": "ewok",
    "entity_tracking": "entity_tracking",
    "wug_adj_nominalization": "wug_adj",
    "wug_past_tense": "wug_past",
    "comps": "comps",
}
TIMES = ("RTfirstfix", "RTfirstpass", "RTgopast", "RTrightbound", "self_paced_reading_time")
POTENTIALS = ("ELAN", "LAN", "N400", "P600", "EPNP", "PNP")

draw = random.Random(0)


def words(low: int, high: int) -> str:
    return " ".join(draw.choice(WORDS.split()) for _ in range(draw.randint(low, high)))


def write(place: str, count: int, row: Callable[[int], dict]) -> None:
    file = DATA / f"{place}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row(number)) + "\n" for number in range(count)))


def pair() -> dict[str, str]:
    good, bad = f"The {words(6, 8)} .", f"the {words(6, 8)} ."
    if draw.random() < 0.15:  # equal for an uncased vocabulary
        bad = good.lower()
    return {"sentence_good": good, "sentence_bad": bad}


def make_data() -> None:
    shutil.rmtree(HERE / "babylm", ignore_errors=True)
    for number, name in enumerate(("agreement", "binding", "islands")):
        more = {"UID": name, "linguistics_term": f"term_{number // 2}"}
        write(
            f"blimp_filtered/{name}",
            10 + number,
            lambda k, more=more: pair() | more | {"field": FIELDS[k % 4], "pair_id": str(k)},
        )
    for name in ("hypernym", "turn_taking"):
        write(f"supplement_filtered/{name}", 9, lambda k: {"row": k} | pair())
    for name in ("physical-dynamics", "social-relations"):
        write(f"ewok_filtered/{name}", 11, lambda k, name=name: ewok(name))
    for name in ("regular", "ambiref", "move_contents"):
        write(f"entity_tracking/{name}", 12, lambda k: entities(k // 4))
    stems = ("walk", "play", "jump", "want", "sat", "red")
    forms = [(f"{a}able", f"{a}ers") for a in stems], [(f"{a}ed", f"{a}s") for a in stems]
    for name, made in zip(("wug_adj_nominalization", "wug_past_tense"), forms, strict=True):
        write(f"{name}/{name}", 14, lambda k, made=made: wug(*made[k % len(made)]))
    for name in ("base", "wugs", "wugs_dist-before", "wugs_dist-in-between"):
        write(f"comps/comps_{name}", 8, comps)
    reading()


def ewok(domain: str) -> dict[str, str]:
    contexts = {f"Context{k}": f"The {words(2, 4)} ." for k in (1, 2)}
    targets = {f"Target{k}": f"It {words(2, 3)} ." for k in (1, 2)}
    kinds = {"ContextType": draw.choice(("direct", "indirect")), "TargetDiff": "concept swap"}
    return {"Domain": domain, "ContextDiff": draw.choice("ab")} | kinds | contexts | targets


def entities(operations: int) -> dict:
    options = list(dict.fromkeys(f"the {words(1, 2)} ." for _ in range(20)))[:5]
    prefix = f"1 is {words(1, 2)} , 2 is {words(1, 1)} . 1 is "
    return {"numops": operations, "input_prefix": prefix, "options": options}


def wug(one: str, other: str) -> dict:
    begin = f"The {words(4, 6)}"
    sentences = f"{begin} {one} .\t{begin} {other} ."
    return {"sentences": sentences, "ratio": round(draw.random(), 2)}


def comps(number: int) -> dict[str, str]:
    prefixes = {f"prefix_{side}": f"a {words(3, 5)}" for side in ("acceptable", "unacceptable")}
    return {"property": "-"} | prefixes | {"property_phrase": f"{words(2, 4)} ."}


def reading() -> None:
    """Words with their contexts; one context is the word None, and some numbers are missing."""
    rows = []
    sentences = [f"{words(5, 7)}, it ran".split() for _ in range(12)]
    sentences.append(["None", "of", "it", "jumped", "on", "the", "cat"])
    for sentence in sentences:
        for place in range(1, len(sentence)):
            row = {"item": " ".join(sentence[:place]), "word": sentence[place]}
            row |= {"sentence": " ".join(sentence), "context_length": place}
            row |= {"Subtlex_log10": round(draw.uniform(1, 6), 3), "length": len(sentence[place])}
            for name in TIMES + POTENTIALS:
                row[name] = round(draw.uniform(100, 400), 2) if draw.random() > 0.05 else ""
            row |= {"prev_word": "", "prev_item": "", "prev_length": ""}
            if place > 1:
                before = {"prev_word": sentence[place - 1], "prev_length": len(sentence[place - 1])}
                row |= before | {"prev_item": " ".join(sentence[: place - 1])}
            rows.append(row)
    (DATA / "reading").mkdir()
    with (DATA / "reading" / "reading_data.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ["", *rows[0]], lineterminator="\n")
        writer.writeheader()
        writer.writerows({"": number} | row for number, row in enumerate(rows))


def run(module: str, **flags: object) -> None:
    """Run a command of the pipeline in this process."""
    words = [f"--{name}={value}" for name, value in flags.items() if value is not True]
    sys.argv = [module, *words, *(f"--{name}" for name, value in flags.items() if value is True)]
    runpy.run_module(f"evaluation_pipeline.{module}.run", run_name="__main__")


def report(file: Path) -> dict:
    """Read the pipeline's report: per cent, or a correlation, by group and subset, and in all."""
    found: dict = {}
    name = ""
    for line in filter(None, file.read_text().splitlines()[1:]):
        key, _, value = line.rpartition(": ")
        if line.startswith("### "):
            name = line[4:].rpartition(" ACCURACY")[0] or line[4:].partition(" SPEARMAN")[0]
        elif name == "AVERAGE":
            found[name] = float(line)
        else:
            found.setdefault(name, {})[key] = float(value)
    return found


def explained(folder: Path) -> dict[str, float]:
    """Return the shares of variance that the pipeline's report averages, in all their digits."""
    found = {}
    for file, names in (("", TIMES[:4]), ("_spillover", TIMES[4:])):
        for line in (folder / f"predictive_power{file}.jsonl").read_text().splitlines():
            row = json.loads(line)
            gain = row["Change in R2 from baseline"]
            if row["Predicted variable"] in names:
                found[row["Predicted variable"]] = gain / (1 - row["R2"] + gain)
    return found


def main() -> None:
    sys.path.insert(0, sys.argv[1])
    for name in ("datasets", "aiohttp"):  # which the pipeline imports for its tasks with images
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        sys.modules[name] = module
    sys.modules["datasets"].load_dataset = None
    make_data()
    outputs: dict = {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for backend, name in MODELS.items():
            shutil.copytree(HERE / "huggingface" / name, backend)
            vocabulary = str(HERE / "huggingface" / "pretraining" / "vocab.txt")
            transformers.BertTokenizer(vocab=vocabulary, do_lower_case=True).save_pretrained(
                backend
            )
            flags = {"model_path_or_name": backend, "backend": backend, "output_dir": "results"}
            for task_folder, task in TASKS.items():
                place = {"data_path": DATA / task_folder, "task": task, "save_predictions": True}
                run("sentence_zero_shot", **flags, **place)
            run("reading", **flags, data_path=DATA / "reading" / "reading_data.csv")
            results = Path("results", backend, "main", "zero_shot", backend)
            outputs[backend] = {}
            for task_folder, task in itertools.chain(TASKS.items(), [("", "reading")]):
                place = results / task / task_folder
                saved = (place / "predictions.json").read_text()  # NaN where there is none before
                found = {"predictions": json.loads(saved, parse_constant=lambda _: None)}
                if task_folder:
                    found["report"] = report(place / "best_temperature_report.txt")
                else:
                    found["report"] = (place / "report.txt").read_text().splitlines()
                    found["explained"] = explained(place)
                outputs[backend][f"{task}/{task_folder}".rstrip("/")] = found
    text = json.dumps(outputs, indent=1, allow_nan=False)
    (HERE / "babylm" / "outputs.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
