"""What `bert-jax evaluate --suite=NAME` can ask of a checkpoint: a table of suites.

A suite is a function of (runs.Run, base.Ask) that returns numbers by metric, or by part and then by metric. Its row
says which fields of Ask it reads: a flag that none of the suites asked for reads is refused; and which head it asks,
which is looked for before the first of several suites begins. To add one, write its
function in a file of this folder, and its row here.
"""

from bert_jax.data.tasks import TASKS
from bert_jax.interop import runs
from bert_jax.suites import blimp, corpus, nsp, pll, probe, sts, task
from bert_jax.suites.base import Ask, Detailed, Suite

FINE_TUNED = ("changes", "source", "split", "limit", "submission")

TABLE: dict[str, Suite] = {
    "pretrain": Suite(corpus.pretrain, reads=("config", "changes"), each=corpus.pretrain_each),
    "nsp": Suite(nsp.nsp, reads=("config", "changes", "source", "split", "limit")),
    "cross_rate": Suite(corpus.cross_rate, reads=("config", "changes")),
    "pll": Suite(pll.pll, reads=("config", "changes", "source", "limit", "within_word")),
    "blimp": Suite(blimp.blimp, reads=("source", "limit", "within_word"), each=blimp.blimp_each),
    "sts": Suite(sts.sts, reads=("config", "changes", "task", "source", "split", "limit")),
    "probe": Suite(probe.probe, reads=("config", "changes", "task", "source", "split", "limit")),
    "task": Suite(task.own, reads=("config", *FINE_TUNED)),
    "glue": Suite(task.glue, reads=FINE_TUNED),
    **{name: Suite(task.named(name), reads=FINE_TUNED, head=row.kind) for name, row in TASKS.items()},
}


def detailed(name: str, run: runs.Run, ask: Ask) -> Detailed:
    """What a suite finds, and of each example where it can tell; nothing is computed twice."""
    suite = TABLE[name]
    return suite.each(run, ask) if suite.each else (suite.run(run, ask), {})
