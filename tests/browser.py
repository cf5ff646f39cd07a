"""A headless Chromium that is clicked and typed into as by a person, over its debugging pipe."""

import contextlib
import json
import os
import re
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 30  # seconds for an answer
SIZES = [(1400, False), (420, True)]  # width, and whether it is dark
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "about:blank")


def find_program() -> str:
    """Find the browser; without one the test is skipped."""
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if found is None:  # no package of pip brings one; tests without a browser read the same pages
        pytest.skip(f"a browser is not installed: none of {', '.join(PROGRAMS)}")
    return found


class Browser:
    """One tab; `errors` are its exceptions and console errors since the page was opened."""

    def __init__(self, program: str, folder: Path):
        self.folder, self.errors, self.number, self.session, self.rest = folder, [], 0, "", b""
        commands, self.commands = os.pipe()
        self.answers, answers = os.pipe()
        # Chromium reads commands from descriptor 3 and writes answers to 4.
        launcher = f'exec "$@" 3<&{commands} 4>&{answers}'
        words = ["bash", "-c", launcher, "bash", program, *FLAGS]
        words += ["--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}"]
        ends = {"pass_fds": (commands, answers), "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(words, **ends)
        os.close(commands)
        os.close(answers)
        tabs = self.call("Target.getTargets")["targetInfos"]
        tab = next(tab["targetId"] for tab in tabs if tab["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=tab, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> Any:
        """Send a command and wait for its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        message |= {"sessionId": self.session} if self.session else {}
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while (answer := self._message()).get("id") != self.number:
            pass
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            assert select.select([self.answers], [], [], PATIENCE)[0], "the browser is silent"
            more = os.read(self.answers, 1 << 16)
            assert more, "the browser has ended"
            self.rest += more
        line, _, self.rest = self.rest.partition(b"\0")
        message = json.loads(line)
        told = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                details = told["exceptionDetails"]
                self.errors.append(details.get("exception", details).get("description", details))
            case "Runtime.consoleAPICalled" if told["type"] in ("error", "warning", "assert"):
                self.errors.append(str(told["args"]))
            case "Log.entryAdded" if told["entry"]["level"] in ("error", "warning"):
                self.errors.append(told["entry"]["text"])
        return message

    def open(self, page: str, *, width: int = 1400, dark: bool = False) -> None:
        """Show a page of HTML once its scripts have run."""
        file = self.folder / f"page{self.number}.html"
        file.write_text(page, errors="replace")
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.errors.clear()
        self.call("Page.navigate", url=file.as_uri())
        self.wait("document.readyState === 'complete'")
        ready = "document.documentElement.dataset.ready"
        self.wait(f"!document.querySelector('script#data') || {ready}")

    def show(self, page: str, width: int, dark: bool) -> None:
        """Open a page; nothing of it is wider than the window, and its ground has the theme."""
        self.open(page, width=width, dark=dark)
        assert self.js("document.documentElement.scrollWidth") == width
        ground = self.js("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 200) == dark

    def js(self, expression: str) -> Any:
        """Return the value of an expression, awaited."""
        asked = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        answer = self.call("Runtime.evaluate", **asked)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + PATIENCE
        while not self.js(f"Boolean({condition})"):
            assert time.monotonic() < end, f"waited in vain for {condition}"
            time.sleep(0.02)

    def texts(self, selector: str) -> list[str]:
        """Return the text of every element of a selector."""
        return self.js(f"[...document.querySelectorAll({json.dumps(selector)})]"
                       ".map(e => e.textContent)")  # fmt: skip

    def place(self, selector: str, frame: str = "") -> tuple[float, float]:
        """Scroll to an element, of a frame if one is named; return its middle."""
        within = f"document.querySelector({json.dumps(frame)})" if frame else "null"
        return self.js(
            f"(() => {{ const f = {within}; const e = (f ? f.contentDocument : document)"
            f".querySelector({json.dumps(selector)}); e.scrollIntoView({{ block: 'center' }});"
            "const b = e.getBoundingClientRect(), o = f ? f.getBoundingClientRect() : "
            "{ left: 0, top: 0 }; return [o.left + b.left + b.width / 2, "
            "o.top + b.top + b.height / 2]; })()"
        )

    def click(self, selector: str, frame: str = "") -> None:
        """Click the middle of an element with the mouse."""
        x, y = self.place(selector, frame)
        self.point(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def point(self, x: float, y: float) -> None:
        """Move the mouse to a place of the window, once what is there is drawn."""
        self.js("new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press_enter(self) -> None:
        """Press Enter where the focus is."""
        key = {"key": "Enter", "windowsVirtualKeyCode": 13}
        self.call("Input.dispatchKeyEvent", type="keyDown", **key, text="\r")
        self.call("Input.dispatchKeyEvent", type="keyUp", **key)

    def choose(self, selector: str, value: str) -> None:
        """Choose an option of a <select>, or a value of a slider, and tell the page."""
        self.js(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            f"e.value = {json.dumps(value)}; for (const kind of ['input', 'change']) "
            "e.dispatchEvent(new Event(kind, { bubbles: true })); })()"
        )

    def close(self) -> None:
        """End the browser."""
        with contextlib.suppress(OSError, AssertionError):
            self.session = ""
            self.call("Browser.close")
        self.process.wait(PATIENCE)
        os.close(self.commands)
        os.close(self.answers)
