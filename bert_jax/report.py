"""`bert-jax report`: an HTML page that compares runs and evaluations, or shows one run."""

import itertools
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from bert_jax import cli
from bert_jax.errors import ConfigError
from bert_jax.system import disk

EXAMPLE = "runs/demo runs/mine other.json --output=both.html"


def add_flags(parser: ArgumentParser) -> None:
    """Add the flags of the command."""
    folder = "folder of a run, finished or not, or a file of `evaluate --output=FILE.json`, of any "
    folder += "model; several are compared on one page, with evaluation*.json of each folder"
    parser.add_argument("runs", metavar="RUN", nargs="+", type=cli.read_path, help=folder)
    output = "the page (of one run: RUN/report.html; else report.html)"
    parser.add_argument("--output", type=cli.read_path, metavar="FILE", help=output)


def main(call: cli.Call) -> None:
    """Run the command line."""
    run(call.args.runs, call.args.output)


def run(paths: Sequence[Path], output: Path | None = None) -> None:
    """Write the HTML page of runs and evaluations, and print its path."""
    from bert_jax.reporting import comparison, run_record, run_report

    comparison.name_runs(paths)  # refuses one that is given twice
    files = {}  # what `evaluate --output` wrote: the path itself, or files in its folder
    for path in paths:
        files[path] = [path] if path.is_file() else sorted(path.glob(comparison.FILES))
    runs = [path for path in paths if not files[path] or run_record.is_run(path)]
    for folder in runs:
        run_record.check_run(folder)
    alone = len(paths) == len(runs) == 1
    path = output or (runs[0] / "report.html" if alone else Path("report.html"))
    if path.is_dir():
        raise ConfigError(f"--output={path} is a folder", f"--output={path / 'report.html'}")
    disk.check_output(path)
    if alone:
        html = run_report.build_report(run_record.read_run(runs[0]))
    else:
        records = [run_record.read_run(folder) for folder in runs]
        scores = comparison.read_scores(itertools.chain.from_iterable(files.values()))
        html = comparison.build_comparison(records, scores)
    disk.write_output(path, html.encode(errors="replace"))  # UTF-8 has no lone surrogates
    print(path)


if __name__ == "__main__":
    cli.main(["report", *sys.argv[1:]])
