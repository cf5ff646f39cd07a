"""The corpus source `hub`, against a small server on this machine that speaks the hub's protocol.

The protocol is that of huggingface.co: /api/datasets/NAME/revision/REVISION lists files, and
/datasets/NAME/resolve/REVISION/FILE answers with X-Repo-Commit, ETag and ranges of bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from tests import texts

OLD, NEW = "a" * 40, "b" * 40
NAME = "owner/wiki"
CUT = 700  # bytes after which the server ends its first answer


class Hub:
    """Datasets by commit, and what was asked for."""

    def __init__(self, commits: dict[str, dict[str, bytes]]):
        self.commits, self.refs = commits, {"main": NEW}
        self.requests: list[tuple[str, str, str]] = []  # method, path, range
        self.cut: set[str] = set()  # files whose first answer is cut short

    def answer(self, handler: http.server.BaseHTTPRequestHandler, body: bool) -> None:
        path = handler.path.partition("?")[0].lstrip("/")
        span = handler.headers.get("Range", "")
        self.requests.append((handler.command, path, span))
        parts = path.split("/")
        if parts[:2] == ["api", "datasets"] and "/".join(parts[2:4]) == NAME:
            commit = self.refs.get(parts[5] if len(parts) > 5 else "main", (parts + [""] * 6)[5])
            if commit in self.commits:
                files = [
                    {"rfilename": name, "size": len(data), "blobId": hashlib.sha1(data).hexdigest()}
                    for name, data in self.commits[commit].items()
                ]
                listing = {"id": NAME, "sha": commit, "siblings": files}
                self.send(handler, 200, json.dumps(listing).encode())
                return
        elif parts[0] == "datasets" and parts[3:4] == ["resolve"]:
            commit, name = self.refs.get(parts[4], parts[4]), "/".join(parts[5:])
            data = self.commits.get(commit, {}).get(name)
            if data is not None:
                self.file(handler, commit, name, data, span, body)
                return
        self.send(handler, 404, b"", {"X-Error-Code": "RepoNotFound"})

    def file(self, handler, commit: str, name: str, data: bytes, span: str, body: bool) -> None:
        headers = {
            "X-Repo-Commit": commit,
            "ETag": f'"{hashlib.sha256(data).hexdigest()}"',
            "Accept-Ranges": "bytes",
        }
        start, code = 0, 200
        if span:
            start, code = int(span.removeprefix("bytes=").split("-")[0]), 206
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        rest = data[start:]
        self.send(handler, code, b"", headers | {"Content-Length": str(len(rest))})
        if not body:
            return
        if name in self.cut and len(rest) > CUT:
            self.cut.remove(name)
            handler.wfile.write(rest[:CUT])
            handler.wfile.flush()
            handler.connection.close()
            return
        handler.wfile.write(rest)

    def send(self, handler, code: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        headers = {"Content-Length": str(len(body))} | (headers or {})
        handler.send_response(code)
        for key, value in headers.items():
            handler.send_header(key, value)
        handler.end_headers()
        if body and handler.command == "GET":
            handler.wfile.write(body)


@contextlib.contextmanager
def serving(hub: Hub) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def do_GET(self) -> None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError, ValueError, OSError):
                hub.answer(self, True)

        def do_HEAD(self) -> None:
            hub.answer(self, False)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


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
    return Hub({NEW: files, OLD: {**files, "en/train-00001-of-00002.parquet": table(["old"] * 9)}})


@pytest.fixture
def prepare(tmp_path):
    """A function that prepares in a process of its own; returns exit code, folder, errors."""

    def run(endpoint: str, home: str = "home", **knobs: object) -> tuple[int, Path, str]:
        settings = {"corpus.source": "hub", "corpus.path": f"{NAME}:en", **knobs}
        code, _, err = texts.run(
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
        folders = sorted((tmp_path / "cache").glob("*/manifest.json"))
        return code, folders[-1].parent if folders else tmp_path, err

    return run


def tokens(folder: Path) -> list[int]:
    return [
        t for file in sorted(folder.rglob("*tokens*")) for t in np.fromfile(file, "u2").tolist()
    ]


def test_a_dataset_of_the_hub_is_the_text_of_its_files(hub, documents, prepare, tmp_path):
    with serving(hub) as endpoint:
        code, folder, err = prepare(endpoint)
    assert code == 0, err
    assert f"{NAME}: commit {NEW}" in err
    asked = {path for method, path, _ in hub.requests if method == "GET" and "resolve" in path}
    assert {Path(path).name for path in asked} == {
        "train-00000-of-00002.parquet",
        "train-00001-of-00002.parquet",
    }
    local = tmp_path / "local"
    local.mkdir()
    (local / "all.parquet").write_bytes(table(documents))
    code, other, err = prepare("", **{"corpus.source": "files", "corpus.path": str(local)})
    assert code == 0, err
    folders = {f.parent for f in (tmp_path / "cache").glob("*/manifest.json")}
    (other,) = folders - {folder}
    assert tokens(folder) == tokens(other)


def test_a_pinned_commit_is_trained_on_without_a_network(hub, prepare):
    with serving(hub) as endpoint:
        code, folder, err = prepare(endpoint)
        assert code == 0, err
        hub.refs["main"] = OLD  # the dataset has changed since
        code, pinned, err = prepare(endpoint, **{"corpus.revision": NEW})
        assert (code, pinned) == (0, folder), err
    code, again, err = prepare(endpoint, "elsewhere", **{"corpus.revision": NEW})
    assert (code, again) == (0, folder), err
    code, _, err = prepare(endpoint, "elsewhere")
    assert code == 3
    assert f"error: {NAME} cannot be fetched" in err
    assert "corpus.revision=COMMIT" in err


def test_a_download_that_is_cut_short_is_made_whole(hub, prepare):
    name = "en/train-00001-of-00002.parquet"
    with serving(hub) as endpoint:
        code, whole, err = prepare(endpoint, "first")
        assert code == 0, err
        expected = tokens(whole)
        for file in sorted(whole.rglob("*"), reverse=True):
            file.unlink() if file.is_file() else file.rmdir()
        hub.cut, hub.requests = {name}, []
        code, again, err = prepare(endpoint, "second")
        if code:  # the library gave up: the same command goes on
            assert code == 3, err
            code, again, err = prepare(endpoint, "second")
    assert code == 0, err
    assert tokens(again) == expected
    fetched = [path for method, path, _ in hub.requests if method == "GET" and path.endswith(name)]
    assert len(fetched) > 1


@pytest.mark.parametrize(
    ("knobs", "message", "hint"),
    [
        ({"corpus.path": "wiki"}, "names no dataset", "OWNER/NAME"),
        ({"corpus.path": "owner/other"}, "no such dataset or revision", "hf auth login"),
        ({"corpus.path": f"{NAME}:fr"}, "holds no parquet files", "there are de, en"),
        ({"corpus.split": "dev"}, "has no split 'dev'", "one of test, train"),
        ({"corpus.text_field": "body"}, "has no column 'body'", "columns: text, id"),
        ({"corpus.revision": "v2"}, "no such dataset or revision", ""),
    ],
)
def test_what_the_hub_does_not_have_is_one_line(hub, prepare, knobs, message, hint):
    with serving(hub) as endpoint:
        code, _, err = prepare(endpoint, **knobs)
    assert code == 3
    problem, advice = [line for line in err.splitlines() if line.startswith(("error:", "hint:"))]
    assert message in problem
    assert hint in advice
    assert "Traceback" not in err
