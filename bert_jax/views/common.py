"""What the pages of a model share: style, a script that saves figures as files, and their data."""

from __future__ import annotations

import json
from typing import Any

from bert_jax.reporting import page as pages

STYLE, SCRIPT = pages.asset(__file__, ".css"), pages.asset(__file__, ".js")


def data_script(data: Any) -> str:
    """Embed data for the page's script as JSON, escaped so that it cannot end the element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":  # in JSON they occur in strings alone
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="data">{text}</script>'
