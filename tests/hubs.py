"""A small server on this machine that speaks the protocol of huggingface.co.

Datasets: /api/datasets/NAME/revision/REVISION lists files, and
/datasets/NAME/resolve/REVISION/FILE answers with X-Repo-Commit, ETag and ranges of bytes.

Models are pushed: a repository is created, preupload says which files are large, those are put
where the batch of git's LFS says, and a commit names all of them and holds the small ones.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.server
import json
import threading
from collections.abc import Iterator

OLD, NEW = "a" * 40, "b" * 40
NAME, BOOKS = "owner/wiki", "other/books"
OWNER, TOKEN = "someone", "hf_token"  # who may push
CUT = 700  # bytes after which the server ends its first answer


class Hub:
    """Datasets by commit, and what was asked for."""

    def __init__(self, commits: dict[str, dict[str, bytes]], books: dict[str, bytes]):
        self.sets = {NAME: commits, BOOKS: {NEW: books}}
        self.refs = {"main": NEW}
        self.requests: list[tuple[str, str, str]] = []  # method, path, range
        self.cut: set[str] = set()  # files whose first answer is cut short
        self.held: dict[str, threading.Event] = {}  # files whose answers stop until the event
        self.gated = False
        self.models: dict[str, dict[str, bytes]] = {}  # files of repositories that were pushed
        self.private: dict[str, bool] = {}
        self.stored: dict[str, bytes] = {}  # large files, by sha256
        self.broken = ""  # a path that answers with an error

    def answer(self, handler: http.server.BaseHTTPRequestHandler, body: bool) -> None:
        path = handler.path.partition("?")[0].lstrip("/")
        span = handler.headers.get("Range", "")
        self.requests.append((handler.command, path, span))
        parts = path.split("/")
        if parts[:2] == ["api", "datasets"]:
            dataset = "/".join(parts[2:4])
            commit = self.refs.get(parts[5] if len(parts) > 5 else "main", (parts + [""] * 6)[5])
            if commit in self.sets.get(dataset, {}):
                files = [
                    {"rfilename": name, "size": len(data), "blobId": hashlib.sha1(data).hexdigest()}
                    for name, data in self.sets[dataset][commit].items()
                ]
                listing = {"id": dataset, "sha": commit, "siblings": files}
                self.send(handler, 200, json.dumps(listing).encode())
                return
        elif parts[0] == "datasets" and parts[3:4] == ["resolve"]:
            dataset, name = "/".join(parts[1:3]), "/".join(parts[5:])
            commit = self.refs.get(parts[4], parts[4])
            data = self.sets.get(dataset, {}).get(commit, {}).get(name)
            if self.gated:
                self.send(handler, 403, b"", {"X-Error-Code": "GatedRepo"})
                return
            if data is not None:
                self.file(handler, commit, name, data, span, body)
                return
        self.send(handler, 404, b"", {"X-Error-Code": "RepoNotFound"})

    def upload(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        """Answer a request that changes something: a repository, a large file, a commit."""
        path = handler.path.partition("?")[0].lstrip("/")
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        self.requests.append((handler.command, path, ""))
        if handler.command == "PUT":
            if self.broken and self.broken in path:
                return self.send(handler, 400, b"")
            self.stored[path.rpartition("/")[2]] = body
            return self.send(handler, 200, b"")
        if handler.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.send(handler, 401, b"")
        if self.broken and self.broken in path:
            return self.send(handler, 500, b"")
        parts = path.split("/")
        if path == "api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            if asked["organization"] != OWNER:
                return self.send(handler, 403, b"")
            code = 409 if name in self.models else 200
            hidden = asked.get("private") or asked.get("visibility") == "private"
            self.private.setdefault(name, bool(hidden))
            self.models.setdefault(name, {})
            return self.say(handler, {"url": f"{self.address(handler)}/{name}"}, code)
        if path == "api/validate-yaml":
            known = "license: wrong" not in json.loads(body)["content"]
            problem = {"errors": [] if known else [{"message": '"license" must be one of'}]}
            return self.say(handler, problem, 200 if known else 400)
        if "preupload" in parts:
            modes = [
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular",
                    "shouldIgnore": False,
                }
                for file in json.loads(body)["files"]
            ]
            return self.say(handler, {"files": modes})
        if path.endswith("info/lfs/objects/batch"):
            actions = [
                asked
                | {
                    "actions": {
                        "upload": {"href": f"{self.address(handler)}/sha256/{asked['oid']}"}
                    }
                }
                for asked in json.loads(body)["objects"]
            ]
            return self.say(handler, {"transfer": "basic", "objects": actions})
        if "commit" in parts:
            files = self.models["/".join(parts[2:4])]
            for line in map(json.loads, body.splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    files[value["path"]] = self.stored[value["oid"]]
            url = f"{self.address(handler)}/{'/'.join(parts[2:4])}/commit/{NEW}"
            return self.say(handler, {"commitUrl": url, "commitOid": NEW})
        return self.send(handler, 404, b"")

    @staticmethod
    def address(handler: http.server.BaseHTTPRequestHandler) -> str:
        return f"http://{handler.headers['Host']}"

    def say(self, handler, answer: dict, code: int = 200) -> None:
        self.send(handler, code, json.dumps(answer).encode(), {"Content-Type": "application/json"})

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
        if name in self.held:
            handler.wfile.write(rest[:CUT])
            handler.wfile.flush()
            self.held[name].wait(60)
            rest = rest[CUT:]
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
        if body and handler.command != "HEAD":
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

        def do_POST(self) -> None:
            hub.upload(self)

        do_PUT = do_POST

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
