"""The result of a study's cell: its state, costs and metrics, and its history of training."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bert_jax.config import costs
from bert_jax.config.knobs import Config
from bert_jax.studies.folder import State
from bert_jax.studies.spec import Cell

SPENT = ("tokens", "predictions", "flops")


@dataclass(frozen=True)
class History:
    """Metrics that a cell wrote during training.

    `evaluations` maps each metric to its (step, value) pairs. `ledger` maps each metric of LEDGER
    to its mean over the run.
    """

    evaluations: Mapping[str, list[tuple[int, float]]] = field(default_factory=dict)
    ledger: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """The state, costs and metrics of one cell: its run and its evaluations."""

    entry: Cell
    state: State
    metrics: Mapping[str, float]  # EVALUATION/METRIC, finite ones
    errors: Mapping[str, str] = field(default_factory=dict)  # of evaluations that failed
    seconds: float = 0.0  # the cell's share of the time its group trained
    evaluation_seconds: float = 0.0
    parameters: int | None = None
    hardware: str = ""
    ended: str = ""  # when the last result was written
    history: History = History()
    vocabulary: int | None = None  # its real size, once known
    costs: Mapping[str, float] = field(default_factory=dict)  # of a row of results.csv
    # Fingerprints of corpus and vocabulary: of the cell by "", of a fine-tuning by its name.
    data: Mapping[str, Sequence[str]] = field(default_factory=dict)
    evaluated: Mapping[str, str] = field(default_factory=dict)  # evaluation -> hash of what it is
    taken: bool = False  # from tables, of another workdir or machine

    def spent(self, kind: str, step: int | None = None) -> float:
        """Count the steps, tokens, predictions or FLOPs up to a step; `kind` says which.

        By default it is the last step.
        """
        if step is None and kind in self.costs:
            return self.costs[kind]
        return self.clock(kind)(self.state.step if step is None else step)

    def clock(self, kind: str) -> Callable[[int], float]:
        """Make a function from a step of this cell to the amount spent by then, such as FLOPs."""
        config = self.entry.config
        return make_clock(kind, config, self.vocabulary or config.tokenizer.vocab_size)


def make_clock(kind: str, config: Config, vocab_size: int) -> Callable[[int], float]:
    """Make a function from a step to the amount spent by then, such as tokens or FLOPs.

    If the masking rate has phases, the number of predictions per step changes during training.
    """
    if kind != "predictions" or not config.masking.phases:
        per_step = costs.per_step(kind, config, vocab_size)
        return lambda step: step * per_step
    tokens = config.batch_size * config.sequence_length
    last = max(config.steps - 1, 1)
    return lambda step: step * tokens * costs.predicted_share(config, (step - 1) / last)
