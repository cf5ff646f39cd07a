"""Write durations in one form everywhere."""


def format_duration(seconds: float, rough: bool = False) -> str:
    """Write a duration such as 2 h 05 min, 3 min 07 s, 41.2 s or 35 ms.

    With `rough` it has one unit: 2 h.
    """
    if rough:
        for unit, size in (("h", 3600), ("min", 60)):
            if seconds >= 2 * size:
                return f"{seconds / size:,.0f} {unit}"
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60:,} h {minutes % 60:02d} min"
    if minutes:
        return f"{minutes} min {rest:02d} s"
    return f"{seconds:.3g} s" if seconds >= 0.1 else f"{1000 * seconds:.3g} ms"
