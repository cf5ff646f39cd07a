"""Functions that the stops share: training and asking a model, drawing, and renewing README.md.

    python experiments/tour/walk.py

runs every stop, and puts what it prints into README.md.
"""

import contextlib
import functools
import importlib.util
import io
import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import matplotlib
import numpy as np

from bert_jax import config, train
from bert_jax.batch import Batch
from bert_jax.config import knobs
from bert_jax.data.encoding import pad_rows
from bert_jax.interop import runs
from bert_jax.models.encoder import LayerOutputs, compute_layers
from bert_jax.objectives import network
from bert_jax.predictors.base import AskedModel
from bert_jax.predictors.options import Options
from bert_jax.predictors.stream import Stream

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"
BLUE, ORANGE, GREEN, GREY, INK = "#3b6fb6", "#d9822b", "#3f9266", "#c9ced6", "#1d2733"

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402  # after the backend is chosen, which needs no screen

plt.rcParams |= {
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "font.size": 10,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "savefig.dpi": 150,
}


# --- models ---------------------------------------------------------------------------------------


@functools.cache  # stops that read the same model share it where they run in one process
def trained(
    name: str, folder: Path, *changes: tuple[str, str], place: str = ""
) -> runs.TrainedModel:
    """Train the model of that name in config.py anew, in folder/runs/NAME, and open it.

    `changes` are knobs and their values, as on a command line; then `place` names the folder.
    """
    workdir = folder / "runs" / (place or name)
    shutil.rmtree(workdir, ignore_errors=True)
    tree = config.load_file(f"{HERE / 'config.py'}:{name}")
    for path, text in changes:
        config.override(tree, path, text)
    train.run(config.resolve(tree), workdir, command=[])
    return runs.open_run(str(workdir))


def untrained(config: knobs.Config, vocab_size: int) -> Any:
    """Initialise the parameters of a config, by seed 0."""
    init = jax.jit(lambda seed: network.init_params(config, vocab_size, seed))
    return jax.device_get(init(np.uint32(0)))


def losses(run: runs.TrainedModel, name: str) -> list[tuple[int, float]]:
    """Return (update, loss) pairs from a run's metrics."""
    lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    return [
        (line["step"], line[f"train/{name}_loss"]) for line in lines if f"train/{name}_loss" in line
    ]


def ask(
    run: runs.TrainedModel, task: str, lines: Sequence[str | dict], **options: Any
) -> list[dict[str, Any]]:
    """Return the answers of `bert-jax predict TASK` to texts or objects."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    stream = Stream(AskedModel(run, Options(**options)), task)
    return list(stream.answer([text.encode() for text in texts]))


def batch_of(run: runs.TrainedModel, *texts: str) -> tuple[Batch, list[list[str]]]:
    """Return texts as a batch, a row each, padded to the longest, and the tokens of each."""
    encoded = run.tokenizer.encode_batch(texts)
    length = max(map(len, encoded)) + 2
    batch = pad_rows(run.tokenizer.special, [[ids] for ids in encoded], length)
    return batch, [["[CLS]", *(run.tokenizer.vocab[i] for i in ids), "[SEP]"] for ids in encoded]


def look_inside(run: runs.TrainedModel, batch: Batch, params: Any = None) -> LayerOutputs:
    """Run the encoder on a batch, and return the vectors and attention of every layer."""
    read = jax.jit(functools.partial(compute_layers, run.config.model, run.tokenizer.size))
    return jax.device_get(read((params or run.params)["encoder"], batch))


# --- numbers --------------------------------------------------------------------------------------


def cosines(vectors: np.ndarray) -> np.ndarray:
    """Return the cosine of the angle between every two rows."""
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return units @ units.T


# --- figures --------------------------------------------------------------------------------------


def heat(
    panel: Any,
    values: np.ndarray,
    rows: Sequence,
    columns: Sequence,
    *,
    numbers: str = "",
    **scale: Any,
) -> None:
    """Draw a heat map with a name at each row and column.

    Where a format for numbers is given, each square shows its value.
    """
    drawn = panel.imshow(values, **({"cmap": "Blues", "vmin": 0} | scale))
    panel.set_xticks(range(len(columns)), columns, rotation=90 if max(map(len, columns)) > 2 else 0)
    panel.set_yticks(range(len(rows)), rows)
    panel.tick_params(length=0)
    panel.spines[:].set_visible(False)
    for i, j in np.ndindex(values.shape) if numbers else ():
        dark = np.mean(drawn.to_rgba(values[i, j])[:3]) < 0.55
        text = f"{values[i, j]:{numbers}}"
        panel.text(j, i, text, ha="center", va="center", fontsize=8, color="white" if dark else INK)


def save(figure: Any, folder: Path, program: str) -> None:
    """Write the figure of a program under the program's name, and say where."""
    file = folder / f"{Path(program).stem}.png"
    figure.savefig(
        file,
        facecolor="white",
        bbox_inches="tight",
        pad_inches=0.15,
        metadata={"Software": None},
    )
    plt.close(figure)
    print(f"figure: {os.path.relpath(file)}", file=sys.stderr)


# --- the page -------------------------------------------------------------------------------------


def programs() -> list[Path]:
    """List the stops, in order."""
    return sorted(HERE.glob("[0-9][0-9]_*.py"))


def load(program: Path) -> ModuleType:
    """Import a program by its path: a name that begins with a digit cannot be imported."""
    spec = importlib.util.spec_from_file_location(f"stop_{program.stem}", program)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_stop(program: Path, folder: Path) -> tuple[Any, str]:
    """Run the `main` of a stop; return its result and what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        result = load(program).main(folder)
    return result, printed.getvalue()


def block(program: Path) -> re.Pattern[str]:
    """Build the pattern of a program's quotation in README.md: its command and its output."""
    return re.compile(rf"(?s)```\n\$ python experiments/tour/{program.name}\n(.*?)```\n")


def cut(printed: str, quoted: str) -> str:
    """Cut what a program prints to what README.md quotes: all, or the first lines, then a `…`."""
    lines = quoted.splitlines()
    if not lines or lines[-1] != "…":
        return printed
    return "".join(printed.splitlines(keepends=True)[: len(lines) - 1]) + "…\n"


def renew() -> None:
    """Run all stops and write README.md anew."""
    page = (HERE / "README.md").read_text()
    for program in programs():
        _, printed = run_stop(program, HERE)
        quoted = block(program).findall(page)
        assert len(quoted) == 1, f"README.md quotes {program.name} {len(quoted)} times"
        shown = cut(printed, quoted[0])
        quotation = f"```\n$ python experiments/tour/{program.name}\n{shown}```\n"
        (place,) = block(program).finditer(page)
        page = page[: place.start()] + quotation + page[place.end() :]
    (HERE / "README.md").write_text(page)


if __name__ == "__main__":
    renew()
