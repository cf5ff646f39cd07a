"""What the BabyLM evaluation pipeline makes of small models and data: tests/golden/babylm/.

Its data is not ours to copy: `full_eval` has its form, with sentences that were drawn at random
from 24 words. `outputs.json` has what the pipeline saved for each backend, and what it reported.
Made on 2026-11-23 with Python 3.12, torch 2.13.0, transformers 5.23.0, numpy 2.5.5, pandas 3.1.1,
statsmodels 0.15.0, scipy 1.18.1, in fp32 on a CPU, after make_huggingface.py, with
github.com/babylm/evaluation-pipeline-2025 at bf55c11 in the folder PIPELINE. To make outputs.json
again (the tests need none of this):

    python experiments/parity/make_babylm.py PIPELINE
"""

import importlib.machinery
import itertools
import json
import os
import runpy
import shutil
import sys
import tempfile
import types
from pathlib import Path

import transformers

HERE = Path(__file__).resolve().parents[2] / "tests" / "golden"
DATA = HERE / "babylm" / "full_eval"
MODELS = {"mlm": "masked_lm", "mntp": "masked_lm", "causal": "causal_lm"}  # by backend
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
    """Run the pipeline on the models and the data, and keep its answers."""
    sys.path.insert(0, sys.argv[1])
    for name in ("datasets", "aiohttp"):  # which the pipeline imports for its tasks with images
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        sys.modules[name] = module
    vars(sys.modules["datasets"])["load_dataset"] = None  # the pipeline imports it by name
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
