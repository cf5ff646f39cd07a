"""The suites of `bert-jax evaluate --suite=NAME`: a table.

A suite is a function of (runs.TrainedModel, base.SuiteOptions) that returns numbers by metric, or
by part and then by metric. Its row names the fields of SuiteOptions that it reads: a flag that no
selected suite reads is refused. It also names the head that the suite needs, which is checked
before the first of several suites begins. To add a suite, write its function in a file of this
folder, and its row here; to ask it in studies, too, its options in `studies/definition.py` and its
metrics in `studies/measures.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from bert_jax.config import changed, knobs, suggest
from bert_jax.data.tasks import TASKS
from bert_jax.errors import ConfigError
from bert_jax.interop import runs
from bert_jax.suites import babylm, blimp, corpus, cross_rate, nelbo, nsp, pll, probe, sts, task
from bert_jax.suites.base import Detailed, Suite, SuiteOptions, need_head

FINE_TUNED = ("changes", "source", "split", "limit", "submission")

TABLE: dict[str, Suite] = {
    "pretrain": Suite(corpus.pretrain, reads=("config", "changes"), detailed=corpus.pretrain_each),
    "nsp": Suite(nsp.nsp, reads=("config", "changes", "source", "split", "limit"), head="nsp"),
    "cross_rate": Suite(
        cross_rate.cross_rate,
        reads=("config", "changes"),
        of_source=("limit", "words"),
        head="mlm",
        detailed=cross_rate.cross_rate_each,
    ),
    "nelbo": Suite(
        nelbo.nelbo,
        reads=("config", "changes", "draws"),
        of_source=("limit", "words", "draws"),
        detailed=nelbo.nelbo_each,
    ),
    "pll": Suite(pll.pll, reads=("config", "changes", "source", "limit", "within_word")),
    "blimp": Suite(
        blimp.blimp, reads=("source", "limit", "within_word"), detailed=blimp.blimp_each
    ),
    "babylm": Suite(babylm.babylm, reads=("source", "limit", "submission")),
    "sts": Suite(sts.sts, reads=("config", "changes", "task", "source", "split", "limit")),
    "probe": Suite(probe.probe, reads=("config", "changes", "task", "source", "split", "limit")),
    "task": Suite(task.own, reads=("config", *FINE_TUNED)),
    "glue": Suite(task.glue, reads=FINE_TUNED),
    **{
        name: Suite(functools.partial(task.named, name), reads=FINE_TUNED, head=row.kind)
        for name, row in TASKS.items()
    },
}


def detailed(name: str, run: runs.TrainedModel, options: SuiteOptions) -> Detailed:
    """Run a suite; return its result and, where it has them, metrics of each example.

    Nothing is computed twice.
    """
    suite = TABLE[name]
    need_heads(run, {name: suite})
    return suite.detailed(run, options) if suite.detailed else (suite.run(run, options), {})


def evaluate(
    run: runs.TrainedModel, suite: str, config: knobs.Config | None = None, **options: Any
) -> dict[str, Any]:
    """Score a run on a suite; `config` names another corpus, masks or sizes than the run's own."""
    table = named([suite])
    if config is not None:
        config = changed(config, options.get("changes", ()))
    need_heads(run, table)
    return table[suite].run(run, build_options(table, config=config, **options))


def need_heads(run: runs.TrainedModel, table: dict[str, Suite]) -> None:
    """Refuse a model without a head that one of the suites needs."""
    for name, suite in table.items():
        if suite.head:
            need_head(run, suite.head, name)


def named(names: Sequence[str]) -> dict[str, Suite]:
    """Return the rows of TABLE by name; refuse a name that is not in it."""
    for name in names:
        if name not in TABLE:
            raise ConfigError(f"no suite {name!r}", suggest(name, TABLE))
    return {name: TABLE[name] for name in names}


def build_options(table: dict[str, Any], **options: Any) -> SuiteOptions:
    """Build the options the suites share; reject flags that no selected suite reads."""
    source = bool(options.get("source"))
    read = {"batch_size"}.union(*(suite.fields(source) for suite in table.values()))
    for name, value in options.items():
        if value and name not in read:
            flag = "--config.KNOB" if name == "changes" else f"--{name.replace('_', '-')}"
            problem = f"{flag} means nothing to {', '.join(table)}"
            if any(name in suite.fields(not source) for suite in table.values()):
                problem += " beside a --source" if source else " without a --source"
            raise ConfigError(problem, "leave it out")
    return SuiteOptions(**options)
