"""The inference loop: computes rows by a compiled function, in batches of rows of similar length.

    plan = plan_by_length(lengths, size)            # which rows form a batch, and its padded shape
    for rows, outputs in run_plan(compute, plan):   # outputs on the host, in the plan's order

Evaluations, suites, predictors and pages all compute through `run_plan`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from bert_jax import sharding
from bert_jax.batch import Batch
from bert_jax.config import knobs
from bert_jax.data.task_stream import round_length

TOKENS = 8192  # of a batch, where nobody names a batch size
FINEST = 4  # tokens by which the lengths of short rows differ
Progress = Callable[[int, int], None]  # how much is done, and of how much


def ignore_progress(done: int, total: int) -> None:
    """Do nothing: the progress function of callers that show no progress."""


class Planned(NamedTuple):
    """One planned batch: the indices of its rows, and its shape with padding."""

    rows: np.ndarray  # int64 [n], n <= size
    length: int  # columns
    size: int  # rows, with the padding rows behind the real ones


def plan_in_order(count: int, size: int, length: int) -> list[Planned]:
    """Plan batches of `count` rows of one length, without sorting the rows."""
    starts = range(0, count, size)
    return [Planned(np.arange(at, min(at + size, count)), length, size) for at in starts]


def plan_by_length(lengths: np.ndarray, size: int, shrink_last: bool = False) -> list[Planned]:
    """Plan batches of `size` rows, sorted by length, and padded to the longest row of the batch.

    The padded length is rounded up, so that few shapes are compiled. The longest rows come first,
    so that a batch that does not fit in memory fails at once. With `shrink_last`, the size of an
    incomplete batch is the next power of two instead of `size`.
    """
    order = np.argsort(-lengths, kind="stable")
    plan = []
    for start in range(0, len(order), size):
        rows = order[start : start + size]
        count = min(size, _round_to_power(len(rows))) if shrink_last else size
        plan.append(Planned(rows, round_length(int(lengths[rows[0]])), count))
    return plan


def plan_by_shape(
    lengths: np.ndarray, mesh: Mesh, batch_size: int = 0, tokens: int = TOKENS
) -> list[Planned]:
    """Plan batches of rows whose rounded lengths are equal, the longest first.

    This suits many short rows, such as sentences of some ten tokens. By default the rows of a batch
    have about `tokens` tokens together, or fewer if there are fewer rows of this length. Every
    batch size is rounded up to a multiple of the devices that split the rows.
    """
    longest = int(lengths.max(initial=0))
    shapes = np.array([round_length(n, FINEST) for n in range(longest + 1)])[lengths]
    plan = []
    for length in sorted(set(shapes.tolist()), reverse=True):
        group = np.flatnonzero(shapes == length)
        size = batch_size or min(max(1, tokens // length), _round_to_power(len(group)))
        size = round_batch_size(size, mesh)
        starts = range(0, len(group), size)
        plan += [Planned(group[start : start + size], length, size) for start in starts]
    return plan


def _round_to_power(count: int) -> int:
    """Return the smallest power of two that is at least `count`."""
    return 1 << (count - 1).bit_length()


def find_batch_size(config: knobs.Config, settings: knobs.Eval) -> int:
    """Return the batch size of an evaluation during training."""
    return settings.batch_size or config.batch_size // config.optim.accumulation


def round_batch_size(size: int, mesh: Mesh) -> int:
    """Round a batch size up to a multiple of the devices that split its rows."""
    ways = sharding.count_row_shards(mesh)
    return -(-size // ways) * ways


def place_batch(batch: Batch, mesh: Mesh) -> Batch:
    """Split the rows of a host batch over the mesh; every process must have the whole batch."""
    size = len(next(iter(batch.values())))
    local = sharding.local_rows(size, mesh)
    return sharding.place({key: value[local] for key, value in batch.items()}, size, mesh)


def run_plan(
    compute: Callable[[Planned], Any],
    plan: Sequence[Planned],
    progress: Progress = ignore_progress,
    cost: Callable[[Planned], int] = lambda batch: 1,
) -> Iterator[tuple[np.ndarray, Any]]:
    """Compute each batch of a plan, in its order; yield the indices of its rows and its outputs.

    Outputs are numpy arrays without padding rows. They are fetched one batch late, so that the
    device never waits for the host.

    Args:
      compute: starts a batch on the devices and returns its replicated outputs. An output is an
        array with a row for each row of the batch, or a scalar of the whole batch.
      plan: the batches.
      progress: called after each batch with the cost of all batches started so far, and the total
        cost.
      cost: returns the cost of a batch; by default each batch costs 1.
    """
    done, total = 0, sum(map(cost, plan))
    started: list[tuple[np.ndarray, Any]] = []
    for batch in plan:
        started.append((batch.rows, compute(batch)))
        if len(started) > 1:
            yield _fetch(*started.pop(0))
        done += cost(batch)
        progress(done, total)
    yield from (_fetch(*one) for one in started)


def _fetch(rows: np.ndarray, outputs: Any) -> tuple[np.ndarray, Any]:
    host = sharding.to_host(outputs)
    return rows, jax.tree.map(lambda array: array[: len(rows)] if array.ndim else array, host)
