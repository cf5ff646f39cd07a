"""`bert-jax prepare`: the corpus and vocabulary of a config, prepared once for all runs."""

import logging
import sys
from argparse import ArgumentParser

from bert_jax import cli
from bert_jax.config import knobs
from bert_jax.errors import DataError, need
from bert_jax.system import jsons
from bert_jax.system.log import log_line

logger = logging.getLogger(__name__)

EXAMPLE = "--config=configs/tiny.py"
RESUMABLE = True


def add_flags(parser: ArgumentParser) -> None:
    """Add the flags of the command."""
    cli.add_config_flag(parser)


def main(call: cli.Call) -> None:
    """Run the command line."""
    run(cli.read_config(call.args.config, call.overrides))


def run(config: knobs.Config) -> None:
    """Prepare a corpus; print its audit on standard error and its folder on standard output."""
    from bert_jax.data import audit, pmi, prepare

    need(
        not config.task.source,
        f"task.source = {config.task.source!r}: a labelled task reads no corpus, so nothing is "
        "prepared",
        "bert-jax train reads the task when it starts",
    )
    prepared = prepare.prepare_corpus(config, log=log_line)
    audit.warn_of_problems(prepared.folder, config.pairs)
    if "pmi" in (config.masking.unit, *(settings.unit for settings in config.evals.values())):
        pmi.load_collocations(prepared, config.masking)
    facts = jsons.read(prepared.folder / "audit.json", DataError, dict)
    logger.info(audit.format_audit(facts))
    print(prepared.folder)


if __name__ == "__main__":
    cli.main(["prepare", *sys.argv[1:]])
