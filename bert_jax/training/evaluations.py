"""The evaluations of a config, each at its own steps, of all runs that train together."""

from __future__ import annotations

from typing import Any

from bert_jax.training.program import Program, State
from bert_jax.training.run import Run
from bert_jax.training.runs import Runs
from bert_jax.training.stop import Interrupted, StopFlag


class Evaluations:
    """The evaluations of a config, each at its own steps."""

    def __init__(self, runs: Runs, program: Program, stop_flag: StopFlag):
        data, self._runs, self._program = runs.data, runs, program
        self._stop_flag = stop_flag
        self._every = {name: settings.every for name, settings in runs.config.evals.items()}
        self._steps = runs.config.steps
        self._evaluators = {name: data.evaluator(name, program.mesh) for name in self._every}

    def list_due(self, step: int) -> list[str]:
        """List the evaluations to run after an update; `every` 0 means after the last one only."""
        return [
            name
            for name, every in self._every.items()
            if step == self._steps or (every and step % every == 0)
        ]

    def run(self, names: list[str], state: State, step: int) -> list[str]:
        """Evaluate each run that has not diverged; return what a stop signal left out."""
        runs = self._runs
        if names:
            runs.settle(self._program)
        for position, name in enumerate(names):
            try:
                with self._stop_flag.interrupting():
                    results = self._evaluate(name, state)
            except Interrupted:
                return names[position:]
            for run, metrics, samples in results:
                run.evaluated(name, metrics, step)
                run.writer.show(step, samples)
        return []

    def run_owed(self, state: State, step: int) -> None:
        """Make the evaluations that a stop signal had left out, and rank the saved step by them."""
        owed = self._runs.owed
        if self.run(owed, state, step):
            self._runs.interrupt(step)
        for _, run in self._runs.active():
            if owed and run.rank and run.rank[0] == step:
                run.checkpoints.rank(*run.rank)

    def _evaluate(self, name: str, state: State) -> list[tuple[Run, Any, Any]]:
        """Return metrics and samples of each run that has not diverged.

        With the mesh in context each device keeps its own rows. Without it XLA may follow the split
        of parameters under fsdp, and gather the activations of all rows.
        """
        with self._runs.clock.on("evaluation"), self._program.context():
            evaluate = self._evaluators[name]
            return [
                (run, *evaluate(self._program.run_params(state, index)))
                for index, run in self._runs.active()
            ]
