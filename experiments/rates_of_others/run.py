"""Train models at several masking rates, export them, and evaluate the exports beside each other.

    python experiments/rates_of_others/run.py --workdir=runs/rates

With --models it evaluates these instead, Hugging Face folders or names, on a --text. What is made
already is not made again.
"""

import argparse
import csv
import json
import math
import pydoc_data.topics
import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
TRAINED = {  # name -> argument of config.py
    "rate15": "0.15,8000",
    "rate40": "0.4,8000",
    "rate80": "0.8,8000",
    "rate40_vocabulary2k": "0.4,2000",
}
WORDS = 8  # of a passage at most: in no vocabulary here has it more tokens than rows of 32 hold
SUITES = "cross_rate,nelbo,pll"
SHOWN = ("0.15", "0.4", "0.8")  # rates of evaluation; of eight words the first is one, 16 % here


def bert_jax(*words: str) -> None:
    """Run a command of the package; stop with its exit code where it fails."""
    code = subprocess.run([sys.executable, "-m", "bert_jax.cli", *words]).returncode
    if code:
        sys.exit(code)


def exported(name: str, argument: str, workdir: Path) -> Path:
    """Train a model and export it; return the folder."""
    folder = workdir / f"{name}_exported"
    if not folder.exists():
        run = workdir / name
        bert_jax("train", f"--config={FOLDER / 'config.py'}:{argument}", f"--workdir={run}")
        bert_jax("export", f"--checkpoint={run}", f"--output={folder}")
    return folder


def prose(file: Path) -> Path:
    """Write the sentences of Python's manual, as help() shows it, that are plain words alone."""
    text = " ".join(" ".join(pydoc_data.topics.topics.values()).split())
    plain = re.findall(r"(?<=[.:] )[A-Z][a-z]*(?:[,;:]? [A-Za-z'-]{1,14}){3,30}\.(?= )", text)
    file.write_text("\n\n".join(dict.fromkeys(plain)) + "\n")
    return file


def evaluated(model: Path | str, text: Path, words: int, file: Path) -> dict:
    """Evaluate a model on a text; return what `bert-jax evaluate` writes."""
    if not file.exists():
        source = (f"--source={text}", f"--words={words}")
        bert_jax("evaluate", f"--model={model}", f"--suite={SUITES}", *source, f"--output={file}")
    return json.loads(file.read_text())


def row(name: str, result: dict) -> dict[str, object]:
    """Return the row of a model in the table."""
    rates = result["cross_rate"]
    found: dict[str, object] = {"model": name}
    for rate in SHOWN:
        of = rates[rate]
        found[f"perplexity a token at {rate}"] = round(math.exp(of["mlm_loss"]), 1)
        found[f"nats a character at {rate}"] = round(of["nats_per_character"], 3)
        found[f"words right at {rate}"] = round(of["word_accuracy"], 3)
    found["bound, nats a character"] = round(result["nelbo"]["nats_per_character"], 3)
    found["pseudo-likelihood, nats a character"] = round(result["pll"]["nats_per_character"], 3)
    return found


def main() -> None:
    """Make what is missing, and write results.csv and report.html."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workdir", type=Path, required=True)
    parser.add_argument("--models", nargs="+", help="models of others, in place of those trained")
    parser.add_argument("--text", type=Path, help="in place of sentences of Python's manual")
    parser.add_argument("--words", type=int, default=WORDS, help="most words of a passage")
    args = parser.parse_args()
    names = {Path(model).name: model for model in args.models or TRAINED}
    if len(names) < len(args.models or TRAINED):
        parser.error("two models have one name")
    if args.text is not None and not args.text.is_file():
        parser.error(f"no file {args.text}")
    if args.words < 1:
        parser.error("--words is 1 or more")
    args.workdir.mkdir(parents=True, exist_ok=True)
    text = args.text or prose(args.workdir / "manual.txt")
    rows, files = [], []
    for name, model in names.items():
        folder = model if args.models else exported(name, TRAINED[name], args.workdir)
        files.append(args.workdir / f"{name}.{text.stem}.{args.words}.json")
        rows.append(row(name, evaluated(folder, text, args.words, files[-1])))
    with (args.workdir / "results.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    bert_jax("report", *map(str, files), f"--output={args.workdir / 'report.html'}")


if __name__ == "__main__":
    main()
