"""The corpus source `hub`, against a server on this machine that speaks the hub's protocol."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from bert_jax.config import knobs
from bert_jax.data import hub as source
from bert_jax.errors import DataError
from tests import texts
from tests.hubs import BOOKS, NAME, NEW, OLD, Hub, serving

BOOK = [f"The mill by the sea had {n} sails. Nobody came to see them." for n in range(40)]


def table(documents: list[str]) -> bytes:
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(
        pyarrow.table({"text": documents, "id": range(len(documents))}), sink
    )
    return sink.getvalue().to_pybytes()


@pytest.fixture(scope="module")
def documents(tmp_path_factory) -> list[str]:
    folder = texts.write(tmp_path_factory.mktemp("text"), documents=60)
    text = "".join(file.read_text() for file in sorted(Path(folder).rglob("*.txt")))
    return [part.strip() for part in text.split("\n\n") if part.strip()]


@pytest.fixture
def hub(documents) -> Hub:
    half = len(documents) // 2
    files = {
        "README.md": b"# about",
        "en/train-00000-of-00002.parquet": table(documents[:half]),
        "en/train-00001-of-00002.parquet": table(documents[half:]),
        "en/test-00000-of-00001.parquet": table(["never read"] * 5),
        "de/train-00000-of-00001.parquet": table(["nie gelesen"] * 5),
    }
    old = {**files, "en/train-00001-of-00002.parquet": table(["old"] * 9)}
    return Hub({NEW: files, OLD: old}, {"data/train-00000-of-00001.parquet": table(BOOK)})


@pytest.fixture
def prepare(tmp_path):
    """A function that prepares in a process of its own; returns exit code, folder, errors."""

    def run(endpoint: str, home: str = "home", **changes: object) -> tuple[int, Path, str]:
        settings = {"corpus.source": "hub", "corpus.path": f"{NAME}:en", **changes}
        process = texts.start(
            "prepare",
            f"--config={texts.ROOT / 'configs' / 'tiny.py'}",
            "--config.tokenizer.vocab_size=200",
            f"--config.corpus.cache={tmp_path / 'cache'}",
            *(f"--config.{key}={value}" for key, value in settings.items()),
            HF_ENDPOINT=endpoint,
            HF_HOME=str(tmp_path / home),
            HF_HUB_DISABLE_XET="1",
            HF_HUB_ETAG_TIMEOUT="2",
        )
        out, err = process.communicate(timeout=300)
        return process.returncode, Path(out.strip()), err

    return run


def tokens(folder: Path) -> list[int]:
    return [t for file in sorted(folder.rglob("tokens.npy")) for t in np.load(file).tolist()]


def chosen(monkeypatch, path: str, split: str, *files: str) -> list[str]:
    """The files that are read, of a dataset that holds `files`."""
    listing = NEW, dict.fromkeys(sorted(files), 1)
    monkeypatch.setattr(source, "_list_files", lambda repository, revision: listing)
    settings = knobs.Corpus(source="hub", path=path, split=split)
    items, _ = source.list_items(settings, Path("/nonexistent"))
    return [item.name.removeprefix(f"{NAME}/") for item in items]


def test_splits_are_told_by_files_or_folders(monkeypatch):
    converted = ("text/train/0000.parquet", "text/train/0001.parquet", "text/test/0000.parquet")
    assert chosen(monkeypatch, NAME, "train", *converted) == list(converted[:2])
    assert chosen(monkeypatch, f"{NAME}:text", "test", *converted) == [converted[2]]
    hashed = ("data/en-00000-of-00002-7cda8f63.parquet", "data/fr-00000-of-00001-5c2b3fd5.parquet")
    assert chosen(monkeypatch, NAME, "en", *hashed) == [hashed[0]]
    untold = ("data/crawl/000_00000.parquet", "data/crawl/000_00001.parquet")
    assert chosen(monkeypatch, NAME, "train", *untold) == list(untold)
    assert chosen(monkeypatch, NAME, "train", "train.parquet", "test.parquet") == ["train.parquet"]
    languages = [f"{language}/train-00000-of-00001.parquet" for language in ("de", "en")]
    with pytest.raises(DataError, match="holds several texts, each in a folder"):
        chosen(monkeypatch, NAME, "train", *languages)


@pytest.mark.parametrize("path", [f"{NAME}:en", f"{NAME}:en,{BOOKS}"], ids=["one", "several"])
def test_hub_datasets_are_the_text_of_their_files(hub, documents, prepare, tmp_path, path):
    with serving(hub) as endpoint:
        code, folder, err = prepare(endpoint, **{"corpus.path": path})
        assert code == 0, err
        assert f"{NAME}: commit {NEW}" in err
        hub.refs["main"] = OLD
        pins = {"corpus.path": path, "corpus.revision": ",".join([NEW] * (1 + path.count(",")))}
        assert prepare(endpoint, **pins)[:2] == (0, folder)
    fetched = {path for method, path, _ in hub.requests if method == "GET" and "resolve" in path}
    assert not any("test-" in path or "/de/" in path for path in fetched)
    local = tmp_path / "local"
    local.mkdir()
    (local / "all.parquet").write_bytes(table(documents + BOOK * path.count(",")))
    code, other, err = prepare("", **{"corpus.source": "files", "corpus.path": str(local)})
    assert code == 0, err
    assert tokens(folder) == tokens(other)


@pytest.mark.fault(27)
def test_hub_dataset_prepared_needs_no_network(hub, prepare):
    with serving(hub) as endpoint:
        code, folder, err = prepare(endpoint)
        assert code == 0, err
        hub.refs["main"] = OLD  # the data set has changed since, and what was prepared stays
        assert prepare(endpoint)[:2] == (0, folder)
    for pin in ({}, {"corpus.revision": NEW}):
        assert prepare(endpoint, "elsewhere", **pin)[:2] == (0, folder)
    code, _, err = prepare(endpoint, "elsewhere", **{"corpus.revision": OLD})
    assert code == 3
    assert f"error: {NAME}, revision {OLD} cannot be fetched" in err


@pytest.mark.parametrize(
    ("knobs", "message", "hint"),
    [
        ({"gated": True}, "on the hub it is behind a gate", "hf auth login"),
        ({"corpus.path": "owner/other"}, "on the hub it is not there", "hf auth login"),
        ({"corpus.path": f"{NAME}:fr"}, "holds no parquet files", "there are de, en"),
        ({"corpus.text_field": "body"}, "has no column 'body'", "columns: text, id"),
    ],
)
def test_hub_dataset_that_cannot_be_read_is_one_line(hub, prepare, knobs, message, hint):
    hub.gated = knobs.pop("gated", False)
    with serving(hub) as endpoint:
        code, _, err = prepare(endpoint, **knobs)
    assert code == 3
    problem, advice = [line for line in err.splitlines() if line.startswith(("error:", "hint:"))]
    assert message in problem
    assert hint in advice
    assert "Traceback" not in err
