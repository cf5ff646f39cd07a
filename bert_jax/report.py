"""`bert-jax report`: the page of a run, or of several beside one another."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

from bert_jax import cli
from bert_jax.errors import ConfigError

EXAMPLE = "runs/demo runs/mine --output=both.html"


def flags(parser: ArgumentParser) -> None:
    """Add the flags of the command."""
    folder = "folder of a run, finished or not; several are compared on one page"
    parser.add_argument("runs", metavar="RUN", nargs="+", type=cli.nonempty, help=folder)
    output = "the page (of one run: RUN/report.html; of several: report.html)"
    parser.add_argument("--output", type=Path, metavar="FILE", help=output)


def main(call: cli.Call) -> None:
    """Run the command line."""
    run([Path(folder) for folder in call.args.runs], call.args.output)


def run(runs: Sequence[Path], output: Path | None = None) -> None:
    """Write the page of runs and print its path."""
    from bert_jax.checkpoints import manifest
    from bert_jax.reporting import comparison, page, run_record, run_report

    for folder in runs:
        run_record.check(folder)
    path = output or (runs[0] / "report.html" if len(runs) == 1 else Path("report.html"))
    if path.is_dir():
        raise ConfigError(f"--output={path} is a folder", f"--output={path / 'report.html'}")
    cli.check_output(path)
    if len(runs) == 1:
        run_report.write(runs[0], manifest.kept, path)
    else:
        records = [run_record.read(folder, manifest.kept) for folder in runs]
        page.write(path, comparison.build(records))
    print(path)


if __name__ == "__main__":
    cli.main(["report", *sys.argv[1:]])
