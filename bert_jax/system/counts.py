"""Write a count with its noun, and choose its verb."""


def format_count(count: int, one: str, more: str = "") -> str:
    """Format a count with its noun, as 1 seed, 2 seeds; `more` is the plural if it is irregular."""
    return f"{count:,} {one if count == 1 else more or f'{one}s'}"


def choose_verb(count: int) -> str:
    """Return the verb that follows a count: is for 1, else are."""
    return "is" if count == 1 else "are"
