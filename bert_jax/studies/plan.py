"""What a dry run of a study prints: cells, groups to do, FLOPs, and hours if a speed is known."""

from collections.abc import Sequence, Set

from bert_jax.reporting.text_table import format_table
from bert_jax.studies import trunks
from bert_jax.studies.groups import Group
from bert_jax.studies.spec import Cell
from bert_jax.system.counts import format_count
from bert_jax.system.durations import format_duration


def describe_plan(
    name: str, cells: Sequence[Cell], groups: Sequence[Group], notes: Sequence[str], total: str
) -> str:
    """Describe a launch: its cells, the groups to do, notes, and the cost.

    Args:
      name: the name of the study.
      cells: all its cells.
      groups: the groups that are still to do.
      notes: further lines.
      total: the cost, as `describe_cost` writes it.
    """
    counts = f"{format_count(len(cells), 'cell')}, {format_count(len(groups), 'group')} to do"
    total = f"study {name}: {counts}{total}"
    lines = [("group", "runs", "slots", "empty")]
    for group in groups:
        lines.append((group.id, str(len(group.cells)), str(group.slots), f"{group.empty:.0%}"))
    parts = [_list_cells(cells, groups), format_table(lines), *notes]
    return "\n\n".join(filter(None, [*parts, trunks.describe_saving(cells), total]))


def describe_cost(
    groups: Sequence[Group], trained: Set[str], parallel: int, stated: float, pace: float
) -> str:
    """Describe the cost of a launch: workers, FLOPs, and hours if a speed is known.

    Args:
      groups: the groups that are still to do.
      trained: cells of them that only lack evaluations.
      parallel: the number of workers.
      stated: the FLOP/s of a worker as the user states it; 0 if not stated.
      pace: the FLOP/s of a worker as measured; 0 if not measured.
    """
    left = [cell for group in groups for cell in group.cells if cell.id not in trained]
    text = f", {parallel} at a time" if parallel > 1 else ""
    if flops := trunks.count_work(left):
        text += f"; training takes {flops:.1e} FLOPs"
        if speed := stated or pace:
            training = [group for group in groups if {cell.id for cell in group.cells} - trained]
            seconds = flops / speed / min(parallel, len(training))
            source = f"at {stated:.3g} FLOP/s a worker" if stated else "at the pace so far"
            text += f", about {format_duration(seconds, rough=True)} {source}"
        else:
            text += "; --tflops=N, the speed of a worker, gives the hours"
    if any(cell.config.epochs is not None for cell in left):
        text += "; what epochs take follows from the data"
    return text


def _list_cells(cells: Sequence[Cell], groups: Sequence[Group]) -> str:
    """Write a table of the cells with their labels, steps, tokens and group."""
    group_of = {cell.id: group.id for group in groups for cell in group.cells}
    branched = any(cell.trunk for cell in cells)
    head = ["cell", *cells[0].labels, "seed", "steps", "tokens", "group"]
    lines = [head + ["goes on from"] * branched]
    for cell in cells:
        config = cell.config
        tokens = config.steps * config.batch_size * config.sequence_length
        length = [f"{config.steps:,}", f"{tokens:,}"]
        if config.epochs is not None:  # steps are known once the data is read
            length = [f"{config.epochs:g} epochs", "?"]
        group = group_of.get(cell.id, "finished")
        line = [cell.id, *cell.labels.values(), str(cell.seed), *length, group]
        lines.append(line + [cell.trunk] * branched)
    return format_table(lines)
