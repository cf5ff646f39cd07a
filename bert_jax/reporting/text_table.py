"""Tables for a terminal."""

from collections.abc import Iterable, Sequence


def format_table(rows: Iterable[Sequence[str]]) -> str:
    """Format rows as text, each column as wide as its longest cell."""
    rows = [list(map(str, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
