"""Pages of a small model for tests, and what their scripts are given."""

import base64
import json
import re
import zlib
from typing import Any

import numpy as np

from bert_jax import cli
from bert_jax.interop import runs
from bert_jax.predictors.base import AskedModel, Line, OfText
from bert_jax.predictors.options import Options
from bert_jax.views import PAGES, vectors
from tests.predictors.drawing import GOLDEN

FOLDER = GOLDEN / "pretraining"  # 2 layers of 16 with 2 heads, 47 pieces, 24 positions
CAT = {"text": "the cat sat on the mat", "text_pair": "it walked"}
DOG = {"text": "a big dog ran"}
FIVE = ["the cat sat", "a big dog", "the dog walked", "a mat", "jumping"]


def make_page(
    name: str, run: runs.TrainedModel, *fields: dict[str, str], long: str = "refuse", **flags: Any
) -> str:
    """Make a page of texts, as `inspect` makes it."""
    kind, make = PAGES[name].find_maker()
    rows = [Line(number, dict(one)) for number, one in enumerate(fields, 1)]
    return make(kind(AskedModel(run, Options(long=long))), rows, **flags)


def make_points(run: runs.TrainedModel, texts: list[str], words: bool = False) -> vectors.Points:
    """Make the points of texts, or of their words."""
    rows = [Line(i, {"text": text}) for i, text in enumerate(texts, 1)]
    return vectors.make_points(OfText(AskedModel(run, Options())), rows, words)


def read_data(page: str) -> dict[str, Any]:
    """Read the numbers that the script of a page is given."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(found[1])


def read_weights(data: dict[str, Any], text: int = 0) -> np.ndarray:
    """Read the weights of a page [layers, heads + 1, n, n]; the last head is the rollout."""
    stored = data["texts"][text]
    n = len(stored["tokens"])
    content = zlib.decompress(base64.b64decode(stored["weights"]))
    shares = np.frombuffer(content, np.uint8).reshape(data["layers"], data["heads"] + 1, n, n)
    return (shares / 255) ** 2


def run_inspect(page: str, *words: str) -> int:
    """Return the exit code of `bert-jax inspect`."""
    return cli.execute(["inspect", page, f"--model={FOLDER}", *words])
