"""Write a count with its noun."""


def format_count(count: int, one: str, more: str = "") -> str:
    """Format a count with its noun, as 1 seed, 2 seeds; `more` is the plural if it is irregular."""
    return f"{count:,} {one if count == 1 else more or f'{one}s'}"
