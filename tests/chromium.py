"""A page as it stands once its script has run, in a headless Chromium."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def program() -> str:
    """The browser; without one the test is skipped."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is installed")
    return found


def document(folder: Path, page: str, *, address: str = "", width: int = 1000) -> str:
    """Its HTML; `address` is what follows the page's own after a #."""
    file = folder / "page.html"
    file.write_text(page, errors="replace")
    words = (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder / 'profile'}",
        "--dump-dom",
    )
    words += (
        "--virtual-time-budget=20000",
        f"--window-size={width},1000",
        f"{file.as_uri()}#{address}",
    )
    return subprocess.run(
        [program(), *words], capture_output=True, text=True, check=True, timeout=120
    ).stdout
