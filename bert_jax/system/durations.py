"""How a duration is printed, everywhere."""

from __future__ import annotations


def duration(seconds: float, rough: bool = False) -> str:
    """Return a duration as text: 2 h 05 min, 3 min 07 s, 41.2 s, 35 ms.

    A `rough` one is an estimate, which is worth one unit: 2 h, 3 min, 41 s.
    """
    if rough:
        for unit, size in (("h", 3600), ("min", 60)):
            if seconds >= 2 * size:
                return f"{seconds / size:,.0f} {unit}"
        return f"{seconds:.0f} s"
    hours, rest = divmod(round(seconds), 3600)
    if hours:
        return f"{hours:,} h {rest // 60:02d} min"
    if rest >= 60:
        return f"{rest // 60} min {rest % 60:02d} s"
    return f"{seconds:.3g} s" if seconds >= 0.1 else f"{1000 * seconds:.3g} ms"
