"""A small server on this machine that speaks the protocol of huggingface.co for data sets.

/api/datasets/NAME/revision/REVISION lists files, and /datasets/NAME/resolve/REVISION/FILE answers
with X-Repo-Commit and ETag.
"""

import contextlib
import hashlib
import http.server
import json
import threading
from collections.abc import Iterator

OLD, NEW = "a" * 40, "b" * 40
NAME, BOOKS = "owner/wiki", "other/books"
Answer = tuple[int, bytes, dict[str, str]]  # code, body, headers


class Hub:
    """Data sets by commit, and what was asked for."""

    def __init__(self, commits: dict[str, dict[str, bytes]], books: dict[str, bytes]):
        self.sets = {NAME: commits, BOOKS: {NEW: books}}
        self.refs = {"main": NEW}
        self.requests: list[tuple[str, str]] = []  # method, path
        self.gated = False

    def read(self, path: str) -> Answer:
        """Answer a request for the files of a dataset, or for one of them."""
        parts = path.split("/")
        if parts[:2] == ["api", "datasets"]:
            dataset, revision = "/".join(parts[2:4]), parts[5] if len(parts) > 5 else "main"
            commit = self.refs.get(revision, revision)
            files = self.sets.get(dataset, {}).get(commit)
            if files is not None:
                listed = [
                    {"rfilename": name, "size": len(data), "blobId": hashlib.sha1(data).hexdigest()}
                    for name, data in files.items()
                ]
                answer = {"id": dataset, "sha": commit, "siblings": listed}
                return 200, json.dumps(answer).encode(), {"Content-Type": "application/json"}
        elif parts[0] == "datasets" and parts[3:4] == ["resolve"]:
            if self.gated:
                return 403, b"", {"X-Error-Code": "GatedRepo"}
            dataset, commit = "/".join(parts[1:3]), self.refs.get(parts[4], parts[4])
            data = self.sets.get(dataset, {}).get(commit, {}).get("/".join(parts[5:]))
            if data is not None:
                digest = hashlib.sha256(data).hexdigest()
                return 200, data, {"X-Repo-Commit": commit, "ETag": f'"{digest}"'}
        return 404, b"", {"X-Error-Code": "RepoNotFound"}


@contextlib.contextmanager
def serving(hub: Hub) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            path = self.path.partition("?")[0].lstrip("/")
            hub.requests.append((self.command, path))
            code, data, headers = hub.read(path)
            self.send_response(code)
            for key, value in (headers | {"Content-Length": str(len(data))}).items():
                self.send_header(key, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_HEAD = answer

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
