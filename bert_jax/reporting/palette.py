"""Colours of pages and figures by name, in a light and in a dark theme.

Files have the light colours. On a page each colour is a variable of CSS, `var(--name)`.
"""

from __future__ import annotations

LIGHT = {
    "ink": "#1c2430",
    "soft": "#5b6675",
    "line": "#dfe4ea",
    "page": "#f5f6f8",
    "card": "#ffffff",
    "shade": "#2466b3",  # of cells of a matrix
    # Lines and dots:
    "c1": "#2467b3",
    "c2": "#c8591b",
    "c3": "#2c8155",
    "c4": "#8450a8",
    "c5": "#a8821a",
    "c6": "#b03a72",
    # Lines that have an order:
    "q0": "#440154",
    "q1": "#482374",
    "q2": "#424086",
    "q3": "#375b8d",
    "q4": "#2c728e",
    "q5": "#23898e",
    "q6": "#1fa188",
    "q7": "#34b679",
    "q8": "#60ca60",
    "q9": "#9bd93c",
}
DARK = {
    "ink": "#e4e8ee",
    "soft": "#98a3b2",
    "line": "#313a46",
    "page": "#12161c",
    "card": "#1a2028",
    "shade": "#2a75c8",
    "c1": "#6aaef5",
    "c2": "#f0935a",
    "c3": "#63c591",
    "c4": "#c295e4",
    "c5": "#dcbb5c",
    "c6": "#f08ab8",
    "q0": "#8f7ce8",
    "q1": "#7a90f0",
    "q2": "#5fa3ee",
    "q3": "#48b4e0",
    "q4": "#3ec3c9",
    "q5": "#44cfa8",
    "q6": "#63d884",
    "q7": "#93de62",
    "q8": "#c5e04a",
    "q9": "#f2e04a",
}


def write_css() -> str:
    """Write the variables of both themes, of which the reader's system chooses one."""
    light, dark = (
        " ".join(f"--{name}: {value};" for name, value in theme.items()) for theme in (LIGHT, DARK)
    )
    return (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
    )
