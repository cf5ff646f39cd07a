"""Questions of the net: each suite and each task of `predict`, asked of a frozen model.

A row is a model and the words of a command line, without its --model and --input. A model
runs/NAME is a training row of `rows.py`, trained first: no Hugging Face folder can hold it.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import bert_jax
from tests.net.rows import MODELS, command
from tests.net.train_rows import print_here, run_command, write_folder

TEXTS = ("the cat sees [MASK] small dog.", "every guest hears the quiet river near the sea.")
LONG = "the young baker follows the last train by night. " * 12
FILES = {  # the lines that `predict` reads, and labelled pairs
    "masks.txt": f"{TEXTS[0]}\nevery [MASK] hears the quiet [MASK] near the sea.\n[MASK]\n",
    "pieces.txt": "the cat sees<mask> small dog.\nevery<mask> hears the quiet river.\n",
    "starts.txt": "the cat sees\na famous painter\n",
    "mixed.txt": "the cat sees\nthe captain [MASK] the silver [MASK].\n",
    "words.txt": "the cat sees her sister by night .\nan early guest\n",
    "pairs.txt": "the cat sees it.\tmy old friend likes the cat.\na child.\tthe train.\n",
    "questions.txt": f"who sees the sea?\ta child sees the sea. it rains.\nwho?\t{LONG}\n",
    "choices.jsonl": '{"text": "the cat sees it.", "options": ["it leaves.", "the sea.", "no."]}\n',
    "long.txt": f"a [MASK] stone {LONG}\n",
    "spread.txt": LONG.replace("last", "[MASK]") + "\n",
    "unlike.txt": "the cat\n\nthé ÇAT 猫 🙂 [UNK] 12,5%\n",
    "order/validation.tsv": "text\ttext_pair\tlabel\n"
    "the cat sees it.\tit rains.\tis_next\na child.\tthe last train.\tnot_next\n",
}
MASKED = ("bert", "electra_generator", "roberta", "modernbert")
CORPUS = "--config=base.py"
LINES = "--source=files:lines.txt"
PIPELINE = "checkout/tests/golden/babylm/full_eval"
SUITES = (  # models, and a suite with its flags
    ((*MASKED, "causal", "electra", "runs/hybrid"), f"pretrain {CORPUS}"),
    (("bert", "roberta"), f"cross_rate {CORPUS}"),
    (MASKED, f"cross_rate {LINES} --words=24"),
    (("bert", "runs/hybrid", "runs/diffusion"), f"nelbo {CORPUS} --draws=2"),
    ((*MASKED, "causal"), f"nelbo {LINES} --words=24 --limit=3"),
    ((*MASKED, "causal", "runs/hybrid"), f"pll {LINES}"),
    (("bert",), f"pll {CORPUS} --limit=20"),
    (("roberta", "modernbert"), f"pll {LINES} --within-word"),
    ((*MASKED, "causal", "runs/hybrid"), "blimp --source=files:pairs"),
    (("roberta",), "blimp --source=files:pairs --limit=4 --within-word"),
    (("bert", "roberta", "causal", "runs/hybrid"), f"babylm --source={PIPELINE} --limit=3"),
    ((*MASKED, "causal", "electra"), "sts --source=files:tasks"),
    (("bert",), f"nsp {CORPUS}"),
    (("bert",), "nsp --source=files:order"),
    (("bert", "modernbert"), "probe --task=sst2 --source=files:tasks"),
    (("bert",), "probe --task=stsb --source=files:tasks"),
    (("classify", "regress"), "glue --source=files:tasks"),
    (("classify",), "sst2 --source=files:tasks --split=train --limit=20"),
    (("span",), "squad --source=files:tasks/squad"),
    (("choice",), "copa --source=files:tasks/copa"),
    (("runs/tag",), "task"),
    (("runs/span",), "task --submission=submitted"),
)
TASKS = (  # models, and a task of `predict` with its flags and input
    (("bert", "electra_generator", "runs/diffusion"), "fill-mask --top-k=3 masks.txt"),
    (("roberta", "modernbert"), "fill-mask --top-k=3 pieces.txt"),
    (("bert",), "fill-mask --long=cut --top-k=2 long.txt"),
    (("bert",), "fill-mask --long=windows --stride=16 --stride-as=step --top-k=2 long.txt"),
    (("bert",), "fill-mask --long=windows --top-k=2 spread.txt"),
    (("bert",), "fill-mask --format=text masks.txt"),
    (("bert",), "nsp pairs.txt"),
    (("classify", "regress"), "classify lines.txt"),
    (("classify",), "classify pairs.txt"),
    (("choice",), "classify choices.jsonl"),
    (("tag", "runs/tag"), "tag words.txt"),
    (("tag",), "tag --entities --stride=8 long.txt"),
    (("span",), "answer questions.txt"),
    (("span",), "answer --top-k=2 --no-answer-threshold=-1 --stride=8 questions.txt"),
    (("bert", "causal", "electra", "roberta", "modernbert", "span"), "embed unlike.txt"),
    (("bert",), "embed --pooling=cls --normalize starts.txt"),
    (("causal",), "generate --max-tokens=8 starts.txt"),
    (("causal",), "generate --max-tokens=8 --temperature=1 --top-k=9 --seed=3 starts.txt"),
    (("causal",), "generate --max-tokens=24 --temperature=2 --top-p=0.5 starts.txt"),
    (("bert", "runs/diffusion"), "generate --max-tokens=4 --steps=2 --show-steps mixed.txt"),
    (("bert",), "generate --max-tokens=5 --order=random --temperature=1 --seed=2 starts.txt"),
    (("runs/hybrid",), "generate --max-tokens=6 mixed.txt"),
)
QUESTIONS = {
    f"{model}: {line}": (model, line)
    for asked, kind in ((SUITES, "evaluate --suite="), (TASKS, "predict "))
    for models, words in asked
    for model in models
    for line in [f"{kind}{words}"]
}
TRAINED = {  # run -> what its training row changes besides
    "hybrid": ("--config.steps=2",),
    "diffusion": ("--config.steps=2",),
    "tag": ("--config.epochs=1",),
    "span": ("--config.epochs=1",),
}
FROZEN_MODELS = sorted(path.name for path in MODELS.iterdir() if path.is_dir())


def write_questions(folder: Path) -> None:
    """Write what the training rows read, and the questions."""
    write_folder(folder)
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def as_json(value: Any) -> Any:
    """Return a value as it is after it was written as JSON and read."""
    return json.loads(json.dumps(value))


def find_model(name: str) -> str:
    """Return the path of a model, trained first where it is a training row."""
    if name in FROZEN_MODELS:
        return f"models/{name}"
    if not Path(name).exists():
        row = name.removeprefix("runs/")
        print_here([*command(row, name), *TRAINED[row]])
    return name


def make_command(name: str) -> list[str]:
    """Return the command that asks a question in the folder of `write_questions`."""
    model, line = QUESTIONS[name]
    kind, *words = line.split()
    if kind == "predict":
        words[-1] = f"--input={words[-1]}"
    return [kind, *words, f"--model={find_model(model)}"]


def ask(name: str) -> Any:
    """Return the answer to a question, asked in the folder of `write_questions`."""
    words = make_command(name)
    return read_answer(words, print_here(words))


def read_answer(words: list[str], out: str) -> Any:
    """Return the answer that a command printed."""
    if words[0] == "evaluate":
        return json.loads(out)
    return out if "--format=text" in words else [json.loads(x) for x in out.splitlines()]


def take_arrays(path: str) -> dict[str, Any]:
    """Return what describes the arrays of a model for each of TEXTS."""
    model = bert_jax.load(path)
    asked = [{"text": text, "options": ["it rains.", "a dog."]} for text in TEXTS]
    found = {
        "hidden": model.hidden_states(TEXTS),
        "attention": model.attention(TEXTS),
        "logits": model.logits(asked if "heads choice" in repr(model) else TEXTS),
    }
    return {name: [describe(array) for array in arrays] for name, arrays in found.items()}


def describe(array: np.ndarray) -> dict[str, Any]:
    """Return an array's shape, a few of its values, and sums that every value changes."""
    flat = np.asarray(array, np.float64).ravel()
    few = flat[:: max(1, len(flat) // 6)][:6]
    turned = (flat * np.cos(np.arange(len(flat)))).mean()
    size = np.sqrt((flat**2).mean())
    return {"shape": list(array.shape), "values": few.tolist(), "means": [turned, size]}


def shorten(value: Any) -> Any:
    """Return a value whose numbers have as many digits as a comparison needs."""
    if isinstance(value, dict):
        return {name: shorten(item) for name, item in value.items()}
    if isinstance(value, list):
        return [shorten(item) for item in value]
    return float(f"{value:.8g}") if isinstance(value, float) else value


def exchange(path: str, folder: Path) -> dict[str, Any]:
    """Export a model, import that and export it again; return its kind, or why it is refused."""
    first, run, second = (str(folder / name) for name in ("first", "run", "second"))
    code, out, err = run_command(["export", f"--checkpoint={path}", f"--output={first}"])
    if code:
        return {"code": code, "refused": err.replace(str(folder), "FOLDER")}
    for words in (
        ["import", f"--model={first}", f"--output={run}"],
        ["export", f"--checkpoint={run}", f"--output={second}"],
    ):
        print_here(words)
    weights = [Path(place, "model.safetensors").read_bytes() for place in (first, second)]
    assert weights[0] == weights[1]
    return {
        "architecture": json.loads(out)["architecture"],
        "files": sorted(file.name for file in Path(first).iterdir()),
        "arrays": take_arrays(run),
    }


def find_arrays(name: str) -> dict[str, Any]:
    """Return what describes a frozen model's arrays."""
    return take_arrays(find_model(name))


def find_exchange(name: str) -> dict[str, Any]:
    """Return what a model is exported as."""
    with tempfile.TemporaryDirectory() as folder:
        found = exchange(find_model(name), Path(folder))
    found.pop("arrays", None)  # those of the model itself
    return found


PARTS = (  # of the frozen answers: name, rows, and what finds a row's value
    ("questions", [*QUESTIONS], ask),
    ("arrays", FROZEN_MODELS, find_arrays),
    ("exchange", [*FROZEN_MODELS, "runs/hybrid", "runs/diffusion", "runs/tag"], find_exchange),
)
