"""What the pages of a model share: style, helpers of their scripts, and their data."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

from bert_jax.reporting import page as pages

STYLE, SCRIPT = pages.asset(__file__, ".css"), pages.asset(__file__, ".js")


def data_script(data: Any) -> str:
    """Embed data for the page's script as JSON, escaped so that it cannot end the element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":  # in JSON they occur in strings alone
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="data">{text}</script>'


def pack_bytes(content: bytes) -> str:
    """Write bytes as base64 of their deflated form, which common.js reads."""
    return base64.b64encode(zlib.compress(content, 9)).decode()
