"""Colours of pages and figures by name, for a light and a dark theme.

Figures in files use the light colours. On a page each colour is a variable of CSS, `var(--name)`.
"""

COLOURS = {  # name -> light, dark
    "ink": ("#1c2430", "#e4e8ee"),
    "soft": ("#5b6675", "#98a3b2"),
    "line": ("#dfe4ea", "#313a46"),
    "page": ("#f5f6f8", "#12161c"),
    "card": ("#ffffff", "#1a2028"),
    "shade": ("#2466b3", "#2a75c8"),  # of cells of a matrix
    # Lines and dots:
    "c1": ("#2467b3", "#6aaef5"),
    "c2": ("#c8591b", "#f0935a"),
    "c3": ("#2c8155", "#63c591"),
    "c4": ("#8450a8", "#c295e4"),
    "c5": ("#a8821a", "#dcbb5c"),
    "c6": ("#b03a72", "#f08ab8"),
    # Lines that have an order:
    "q0": ("#440154", "#8f7ce8"),
    "q1": ("#482374", "#7a90f0"),
    "q2": ("#424086", "#5fa3ee"),
    "q3": ("#375b8d", "#48b4e0"),
    "q4": ("#2c728e", "#3ec3c9"),
    "q5": ("#23898e", "#44cfa8"),
    "q6": ("#1fa188", "#63d884"),
    "q7": ("#34b679", "#93de62"),
    "q8": ("#60ca60", "#c5e04a"),
    "q9": ("#9bd93c", "#f2e04a"),
}
HUES = 6  # c1 to c6
LIGHT = {name: light for name, (light, _) in COLOURS.items()}
